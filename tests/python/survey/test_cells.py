"""A survey of too many records to hold shows the same as others."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from python.survey import runs
from python.widgets.talk import begin, end, save
from smdwidgets.modes import ModeKeys
from smdwidgets.queries.survey import query_survey
from smdwidgets.survey import Survey, spans, table
from smdwidgets.survey import survey as survey_module
from smdwidgets.survey.bins import DOMAINS
from smdwidgets.survey.spans import Span, Spans
from smdwidgets.trials.statistics import feed as statistics_feed

#: Records that a small table holds.
FEW = 4000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold few records and cells, and read many blocks."""
    monkeypatch.setattr(survey_module, "MOST_RECORDS", FEW)
    monkeypatch.setattr(table, "MOST_CELLS", FEW)
    monkeypatch.setattr(table, "_MOST_ADDED", 100)
    monkeypatch.setattr(statistics_feed, "_BLOCK_BYTES", 150_000)
    monkeypatch.setattr(statistics_feed, "_PLACES", 2)


def surveyed(root: Path) -> Survey:
    survey = Survey(smdwidgets.create_trial(root))
    survey._feed._cache_read = True  # of what another survey of the run computed
    survey.update()
    assert survey.reading.state == "complete"
    return survey


def pair(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Survey, Survey]:
    """Return a survey in cells, and one of all records."""
    merged = surveyed(root)
    monkeypatch.setattr(survey_module, "MOST_RECORDS", None)
    return merged, surveyed(root)


def assert_same_bins(merged: Survey, exact: Survey, worker: str = "", mode: int = 0) -> None:
    steps = exact.steps()
    assert steps is not None
    assert merged.level > 0
    for stat in DOMAINS:
        for level in (merged.level, merged.level + 2):
            window = level, steps[0] >> level, (steps[1] >> level) - (steps[0] >> level) + 1
            mine, its = (each.bins(exact.names(), worker, mode, stat, *window) for each in (merged, exact))
            for column in ("lo", "hi", "n", "known", "flag"):
                np.testing.assert_array_equal(getattr(mine, column), getattr(its, column), f"{stat} {column}")
            np.testing.assert_allclose(mine.mid, its.mid, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("fault", [runs.nan, runs.dead, runs.spike, runs.healthy], ids=lambda fault: fault.__name__)
@pytest.mark.slow
def test_a_large_run_shows_the_same(fault: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merged, exact = pair(runs.written(tmp_path / "run", fault, 600), monkeypatch)  # type: ignore[arg-type]
    assert len(merged.table) == len(exact.table) == 13 * 600
    assert len(merged.table._records["row"]) < FEW
    assert len(merged.table._cells or ()) <= FEW
    assert_same_bins(merged, exact)
    assert merged.findings() == exact.findings()
    assert merged.steps() == exact.steps()


@pytest.mark.usefixtures("small")
def test_several_workers_and_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    root = begin(tmp_path / "run")
    for step in range(0, 4500, 3):
        for worker in ("worker_0", "worker_1"):
            tensors = {"w": rng.normal(size=8).astype(np.float32), "v": rng.normal(size=4).astype(np.float32)}
            if step % 9 == 0:
                tensors["rare"] = rng.normal(size=4).astype(np.float32)
            save(root, step, tensors, mode=1 + (step % 5 == 0), worker=worker)
    merged, exact = pair(end(root), monkeypatch)
    for worker in ("", "worker_1", "*"):
        for mode in (0, 1, 2):
            assert_same_bins(merged, exact, worker, mode)


@pytest.mark.usefixtures("small")
def test_finer_bins_have_the_values_of_their_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merged, exact = pair(runs.written(tmp_path / "run", runs.nan, 600), monkeypatch)
    level, names = merged.level, exact.names()
    coarse = merged.bins(names, "", 0, "l2", level, 2, 1)
    fine = merged.bins(names, "", 0, "l2", 0, 2 << level, 1 << level)
    assert (np.nan_to_num(fine.hi) <= np.nan_to_num(coarse.hi)).all()
    np.testing.assert_array_equal(np.fmax.reduce(fine.hi, axis=1), coarse.hi[:, 0])


@pytest.mark.usefixtures("small")
def test_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merged, exact = pair(runs.written(tmp_path / "run", runs.dead, 600), monkeypatch)
    for text in ("zeros > 0.9", "| top 3 by zeros", "l2 > 1"):
        mine, its = (query_survey(each, exact.names(), {}, text, ModeKeys.GLOBAL, None) for each in (merged, exact))
        assert mine == its


@pytest.mark.usefixtures("small")
def test_a_sample_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = runs.written(tmp_path / "run", runs.nan, 600)
    monkeypatch.setattr(survey_module, "LARGEST_RUN", 1000)
    monkeypatch.setattr(survey_module, "SAMPLE_BYTES", 200_000)
    sample = surveyed_sample(root)
    sample.read_all()
    sample.update()
    assert len(sample.table) == 13 * 600
    monkeypatch.setattr(survey_module, "MOST_RECORDS", None)
    monkeypatch.setattr(survey_module, "LARGEST_RUN", 1 << 30)
    assert_same_bins(sample, surveyed(root))


def surveyed_sample(root: Path) -> Survey:
    sample = Survey(smdwidgets.create_trial(root))
    sample.update()
    assert sample.reading.state == "sampled"
    return sample


def test_what_stands_out_is_thinned_if_it_is_too_much(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_MOST_KEPT", 50)
    merged, exact = pair(runs.written(tmp_path / "run", runs.nan, 600), monkeypatch)
    mine, its = (each.findings()[0] for each in (merged, exact))
    assert (mine.id, mine.names, mine.last) == (its.id, its.names, its.last)
    # Those of the current level, whose cells become fewer.
    assert len(merged.table._kept["row"]) < len(exact.table) / 4


def test_spans_join_in_any_order() -> None:
    ends = [None, *range(9, 100, 10)]
    every = [Span("w", before, last) for before, last in pairwise(ends) if last]
    for seed in range(20):
        some = Spans()
        for span in random.Random(seed).sample(every, len(every)):
            some.add(span)
        some.add(Span("w", 200, 210))
        first, begins = some.joined()
        assert len(set(first[:-1].tolist())) == 1
        assert first[-1] == len(every)
        assert begins.tolist() == [True] * len(every) + [False]


def test_spans_of_other_tensors_do_not_join() -> None:
    some = spans.Spans()
    some.add(Span("w", None, 9))
    some.add(Span("v", 9, 19))
    assert some.joined()[0].tolist() == [0, 1]
