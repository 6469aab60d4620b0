"""Cells stored beside the statistics of a run give what all rows give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import begin, end
from smdwidgets import _core
from smdwidgets.diagnosis import step_sample
from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.overview import nothing_sent, overview
from smdwidgets.pictures.packet import unpack
from smdwidgets.queries.survey import query_survey
from smdwidgets.survey import Survey
from smdwidgets.survey.bins import ERROR, NAN, SUDDEN, codes
from smdwidgets.trials.smdebug import pyramids
from smdwidgets.widgets import live_diagnosis, live_survey, survey_packets
from smdwidgets.widgets.live_diagnosis import LiveDiagnosis
from smdwidgets.widgets.rule_controller import RuleController

TENSORS, STEPS = 300, 400


def planted(tensors: int, steps: int, count: int) -> list[tuple[int, int, bool]]:
    """Return tensor, step and whether it is a NaN of so many events."""
    chance = np.random.default_rng(3)
    places = chance.choice(tensors, count, replace=False).tolist()
    when = [step - (step % 50 == 49) for step in chance.integers(41, steps - 1, count).tolist()]  # of the mode TRAIN
    return [(tensor, step, bool(at % 2)) for at, (tensor, step) in enumerate(zip(places, when, strict=True))]


def name(number: int) -> str:
    return "loss" if number == 0 else f"layers.{number // 4}.{'qkvo'[number % 4]}.weight"


def append(root: Path, steps: range, tensors: int, events: list[tuple[int, int, bool]]) -> None:
    """Write statistics with events."""
    chance = np.random.default_rng(steps.start)
    base = np.exp(np.random.default_rng(1).normal(-3, 1, tensors))
    with _core.StatisticsWriter(root, seconds=1e6) as writer:
        numbers = [writer.add(name(number), "float32", [8, 8]) for number in range(tensors)]
        for step in steps:
            std = base * (1 + 0.05 * chance.normal(size=tensors))
            nan = np.zeros(tensors, np.int64)
            for tensor, when, is_nan in events:
                if when == step:
                    nan[tensor], std[tensor] = int(is_nan), std[tensor] * (1 if is_nan else 1e4)
            count = np.full(tensors, 64)
            count[0] = 1
            none, mean = np.zeros(tensors, np.int64), 0.1 * std
            columns = {
                "count": count,
                "nan": nan,
                "neg_inf": none,
                "pos_inf": none,
                "zeros": none + 3,
                "min": -3 * std,
                "max": 3 * std,
                "mean": mean,
                "std": std,
                "l1": std,
                "l2": np.sqrt(count - nan) * np.hypot(mean, std),
                "abs_max": 3 * std,
                "update": 0.01 * std,
            }
            writer.append(step, numbers, columns, 2 if step % 50 == 49 else 1)


def written(root: Path, steps: int = STEPS, tensors: int = TENSORS, events: int = 40) -> list[tuple[int, int, bool]]:
    begin(root)
    placed = [event for event in planted(tensors, steps, events) if event[0]]
    append(root, range(steps), tensors, placed)
    with _core.StepWriter(root, 0, "worker_0", 1) as writer:
        for number in range(tensors):
            writer.tensor(name(number), np.float32([1.0]))
    end(root)
    return placed


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyramids, "FEWEST_ROWS", 1000)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    written(tmp_path / "run")
    return tmp_path / "run"


def surveyed(run: Path) -> Survey:
    survey = Survey(smdwidgets.create_trial(run))
    survey.update()
    assert survey.reading.state == "complete"
    return survey


@pytest.fixture
def both(run: Path) -> Iterator[tuple[Survey, Survey]]:
    """The survey of all rows, and that of stored cells."""
    rows = surveyed(run)
    assert smdwidgets.compact(run).pyramids > 0
    cells = surveyed(run)
    assert not rows.table.has_stored
    assert cells.table.has_stored
    yield rows, cells
    rows.trial.close()
    cells.trial.close()


@pytest.mark.parametrize("stat", ["growth", "surprise", "size", "l2", "update", "zeros", "not_finite"])
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.slow
def test_bins_are_those_of_all_rows(both: tuple[Survey, Survey], stat: str, mode: int) -> None:
    names = [name(number) for number in range(TENSORS)]
    for level, first, count in [(0, 0, STEPS), (3, 10, 20), (6, 0, 7)]:
        expected, stored = (each.bins(names, "", mode, stat, level, first, count) for each in both)
        np.testing.assert_array_equal(stored.n, expected.n)
        np.testing.assert_array_equal(stored.flag, expected.flag)
        for part in ("lo", "mid", "hi"):
            ours, theirs = (codes(getattr(each, part), stat).astype(int) for each in (stored, expected))
            np.testing.assert_array_equal(ours == 0, theirs == 0)
            # A code of a size is four codes of growth wide. Means are rounded at each level, and weigh bins by all
            # records, also those without a surprise at the beginning.
            assert np.abs(ours - theirs).max() <= (4 if part != "mid" else 64)


def test_findings_and_sentence_are_those_of_all_rows(both: tuple[Survey, Survey]) -> None:
    expected, stored = (each.findings() for each in both)
    assert stored
    assert [(one.title, one.first, one.last, one.names) for one in stored] == [
        (one.title, one.first, one.last, one.names) for one in expected
    ]
    assert both[1].sentence(stored) == both[0].sentence(expected)


@pytest.mark.parametrize(
    "text", ["*.q.* | size > 1", "nonfinite > 0", "top 5 by surprise", "* | mean > 0.2", "layers.7*"]
)
@pytest.mark.slow
def test_queries_find_the_same(both: tuple[Survey, Survey], text: str) -> None:
    names = [name(number) for number in range(TENSORS)]
    rows, cells = (query_survey(each, names, {}, text, ModeKeys.GLOBAL, None) for each in both)
    assert rows == cells


def test_the_map_of_a_run_that_grows_continues_behind_the_stored_cells(run: Path) -> None:
    smdwidgets.compact(run)
    survey = surveyed(run)
    append(run, range(STEPS, STEPS + 64), TENSORS, [(5, STEPS + 60, True)])
    survey.update()
    bins = survey.bins([name(5)], "", 0, "size", survey.level, 0, 29 << max(0, 4 - survey.level))
    assert bins.n.sum() == STEPS + 64
    assert survey.table.ends() == (0, STEPS + 63)
    assert any(one.kind == "not_finite" and one.last == STEPS + 60 for one in survey.findings())
    assert smdwidgets.compact(run).pyramids > 0
    again = surveyed(run)
    assert len(again.table) == (STEPS + 64) * TENSORS


def test_a_build_that_is_stopped_leaves_no_file_and_the_next_one_is_whole(run: Path) -> None:
    counts: list[tuple[int, int, str]] = []

    def stop(done: int, total: int, what: str) -> None:
        counts.append((done, total, what))
        if what == "rows":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        smdwidgets.compact(run, progress=stop)
    assert {what for *_, what in counts} == {"folders", "rows"}
    assert counts[-1][1] == STEPS * TENSORS
    assert [each.name for each in (run / "statistics/worker_0").iterdir() if each.name.startswith("survey")] == []
    assert smdwidgets.compact(run).pyramids > 0


def test_compacting_again_keeps_a_pyramid_that_is_current(run: Path) -> None:
    size = smdwidgets.compact(run).pyramids
    path = run / "statistics/worker_0/survey.pyramid"
    before = path.stat()
    assert smdwidgets.compact(run).pyramids == size
    assert path.stat().st_ino == before.st_ino
    assert [each.name for each in path.parent.iterdir() if each.name.startswith("survey")] == ["survey.pyramid"]


def test_a_pyramid_of_other_statistics_is_not_used(run: Path, tmp_path: Path) -> None:
    smdwidgets.compact(run)
    written(tmp_path / "other", events=3)
    target = tmp_path / "other/statistics/worker_0/survey.pyramid"
    target.write_bytes((run / "statistics/worker_0/survey.pyramid").read_bytes())
    assert not surveyed(tmp_path / "other").table.has_stored


def test_damage_is_shown_as_such(run: Path) -> None:
    smdwidgets.compact(run)
    path = run / "statistics/worker_0/survey.pyramid"
    content = bytearray(path.read_bytes())
    for at in range(60, 3000, 11):  # in the first tiles
        content[at] ^= 255
    path.write_bytes(content)
    survey = surveyed(run)
    assert survey.table.has_stored
    bins = survey.bins([name(1)], "", 0, "size", survey.level, 0, 10)
    assert (bins.flag & ERROR).all()
    path.write_bytes(content[:1000])
    assert not surveyed(run).table.has_stored


def test_every_event_of_a_step_is_in_the_first_picture(tmp_path: Path) -> None:
    tensors = 1000
    events = written(tmp_path, 300, tensors, 200)
    smdwidgets.compact(tmp_path)
    survey = surveyed(tmp_path)
    names = [name(number) for number in range(tensors)]
    window = survey_packets.poster_window(survey, {each: at for at, each in enumerate(names)})
    assert window is not None
    bins = survey.bins(names, "", 0, "growth", window.level, window.first, window.count)
    flags = bins.flag[
        [tensor for tensor, *_ in events], [(step >> window.level) - window.first for _, step, _ in events]
    ]
    assert ((flags & np.where([is_nan for *_, is_nan in events], NAN, SUDDEN)) > 0).all()
    assert np.count_nonzero(bins.flag & (NAN | SUDDEN)) == len(events)


def test_the_poster_of_very_many_tensors_has_few_bins(run: Path) -> None:
    survey = surveyed(run)
    many = {f"w{number}": number for number in range(100_000)}
    window = survey_packets.poster_window(survey, many)
    assert window is not None
    assert 16 <= window.count <= 32


def test_the_page_of_very_many_tensors_gets_names_and_pictures_before_findings(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_survey, "_MANY", TENSORS - 1)
    smdwidgets.compact(run)
    trial = smdwidgets.create_trial(run)
    live = live_survey.LiveSurvey([trial], RuleController([trial], []))
    sent = nothing_sent([(0, trial)])
    overview(trial, sent[0])
    kinds = [[unpack(packet)[0]["kind"] for packet in packets] for packets in live.opening(sent)]
    assert kinds == [["survey", "reading"], ["findings"]]
    live.close()
    trial.close()


def test_the_explorer_diagnoses_tensors_of_very_many_rows_but_not_of_very_many_values(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _core.StepWriter(run, STEPS - 1, "worker_0", 1) as writer:
        writer.tensor("loss", np.float32(1))
    trial = smdwidgets.create_trial(run)
    read: list[int] = []
    statistics = type(trial).statistics

    def noted(self: Any, names: Any, steps: Any, *others: Any, **named: Any) -> Any:
        read.append(STEPS if steps is None else len(steps))
        return statistics(self, names, steps, *others, **named)

    monkeypatch.setattr(type(trial), "statistics", noted)
    monkeypatch.setattr(step_sample, "WHOLE_ROWS", 40 * TENSORS)
    monkeypatch.setattr(step_sample, "MOST_ROWS", 40 * TENSORS)
    LiveDiagnosis([trial]).complete()
    assert 30 <= max(read) <= 50
    read.clear()
    # The statistics are much larger than this, and do not count.
    monkeypatch.setattr(live_diagnosis, "LARGEST_RUN", 1 << 20)
    LiveDiagnosis([trial]).complete()
    assert read
    read.clear()
    monkeypatch.setattr(live_diagnosis, "LARGEST_RUN", 1)
    LiveDiagnosis([trial]).complete()
    assert not read
    trial.close()
