"""Bins of a survey equal what NumPy computes of the saved values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
import smdwidgets.numpy
from python.survey import runs
from python.widgets.talk import begin, end, save
from smdwidgets.anomalies.sizes import surprise
from smdwidgets.modes import ModeKeys
from smdwidgets.survey import Survey
from smdwidgets.survey import survey as survey_module
from smdwidgets.survey.bins import DOMAINS, NAN, UNREAD, Bins, codes, level_of
from smdwidgets.trials import Trial
from smdwidgets.trials.statistics import feed

STATISTICS = {
    "size": lambda x, before: np.log10(np.sqrt((x**2).mean())),
    "l2": lambda x, before: np.log10(np.linalg.norm(x)),
    "update": lambda x, before: np.nan if before is None else np.log10(np.linalg.norm(x - before) / np.linalg.norm(x)),
    "zeros": lambda x, before: (x == 0).mean(),
    "not_finite": lambda x, before: 0.0,
}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return smdwidgets.create_trial(runs.written(tmp_path_factory.mktemp("runs") / "dead", runs.dead))


@pytest.fixture(scope="module")
def survey(trial: Trial) -> Survey:
    found = Survey(trial)
    found.update()
    return found


def value(code: np.ndarray, stat: str) -> np.ndarray:
    low, high = DOMAINS[stat]
    return np.where(code == 0, np.nan, low + (code.astype(float) - 1) / 65534 * (high - low))


@pytest.mark.parametrize("stat", STATISTICS)
@pytest.mark.parametrize("mode", ["", "TRAIN", "EVAL"])
@pytest.mark.parametrize("level", [0, 3])
def test_bins_equal_numpy(survey: Survey, trial: Trial, stat: str, mode: str, level: int) -> None:
    names = ["layers.0.weight", "relu_1", "loss"]
    count = (runs.STEPS >> level) + 1
    bins = survey.bins(names, "", ModeKeys[mode].value if mode else 0, stat, level, 0, count)
    low, high = DOMAINS[stat]
    for row, name in enumerate(names):
        numbers: dict[int, list[float]] = {}
        before = None
        for step in trial.steps():
            x = np.asarray(trial.tensor(name).value(step), np.float64)
            with np.errstate(divide="ignore", invalid="ignore"):
                number = STATISTICS[stat](x, before)
            before = x
            if mode in ("", trial.mode(step).name):
                numbers.setdefault(step >> level, []).append(np.clip(number, low, high))
        for place in range(count):
            here = np.array(numbers.get(place, []))
            known = here[~np.isnan(here)]
            assert bins.n[row, place] == len(here)
            expected = (known.min(), known.mean(), known.max()) if len(known) else (np.nan,) * 3
            got = [value(codes(getattr(bins, end)[row, place], stat), stat) for end in ("lo", "mid", "hi")]
            np.testing.assert_allclose(got, expected, atol=0.002 * (1 if high == 1 else np.log10(np.e)))


def test_coarse_bins_merge_fine_ones(survey: Survey) -> None:
    names = survey.names()
    fine = survey.bins(names, "", 0, "surprise", 1, 0, 128)
    coarse = survey.bins(names, "", 0, "surprise", 4, 0, 16)
    shape = (len(names), 16, 8)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(coarse.lo, np.fmin.reduce(fine.lo.reshape(shape), axis=2))
        np.testing.assert_array_equal(coarse.hi, np.fmax.reduce(fine.hi.reshape(shape), axis=2))
        np.testing.assert_array_equal(coarse.n, fine.n.reshape(shape).sum(axis=2))
        total = (np.nan_to_num(fine.mid) * fine.known).reshape(shape).sum(axis=2)
        np.testing.assert_allclose(coarse.mid, total / coarse.known, rtol=1e-5)


def test_surprise_is_the_distance_from_the_median_in_robust_deviations() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.normal(0, 0.3, 200).astype(np.float32)
    first = np.repeat([0, 120], [120, 80])
    found, usual = surprise(sizes, first, np.arange(200))
    for at in range(200):
        window = sizes[max(first[at], at - 32) : at]
        if len(window) < 8:
            assert np.isnan(found[at])
            continue
        middle = np.median(window)
        spread = max(1.4826 * np.median(np.abs(window - middle)), 0.04)
        np.testing.assert_allclose(
            [found[at], usual[at]], [(sizes[at] - middle) / spread, middle], rtol=1e-4, atol=1e-5
        )


def test_a_straight_drift_is_no_surprise() -> None:
    sizes = np.linspace(0, 30, 300).astype(np.float32)
    found, _ = surprise(sizes, np.zeros(300, np.int64), np.arange(8, 300))
    assert np.abs(found).max() < 1.7
    assert np.abs(found[24:]).max() < 1.4


def test_surprise_of_a_mode_does_not_depend_on_other_modes(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    for step in range(60):
        is_eval = step % 2
        save(
            root,
            step,
            {"w": np.full(4, 1000.0 if is_eval else 1 + step % 4 / 50, np.float32)},
            mode=2 if is_eval else 1,
        )
    survey = Survey(smdwidgets.create_trial(end(root)))
    survey.update()
    bins = survey.bins(["w"], "", 0, "surprise", 0, 0, 60)
    assert np.nanmax(np.abs(bins.hi)) < 2


@pytest.mark.parametrize("portions", [1, 2, 7])
def test_records_do_not_depend_on_the_order_in_which_they_are_read(trial: Trial, survey: Survey, portions: int) -> None:
    other = Survey(trial)
    known, blocks = other._feed.plan()
    tables = [*known, *(other._feed.read(block, 1) for block in blocks)]
    for number, table in enumerate(reversed(tables)):
        other.table.add(table)
        if number % portions == 0:
            other.table.records()
    mine = survey.bins(survey.names(), "", 0, "surprise", 0, 0, 256)
    its = other.table.bins(survey.names(), "", 0, "surprise", 0, 0, 256)
    np.testing.assert_allclose(mine.hi, its.hi, atol=1e-4)
    np.testing.assert_array_equal(mine.flag, its.flag)


def test_new_steps_of_a_live_run_are_added(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    trial = None
    for step in range(40):
        save(root, step, {"w": np.full(4, 1.0 + step, np.float32)}, mode=1)
        if trial is None:
            trial = smdwidgets.create_trial(root)
            live = Survey(trial)
        if step % 7 == 0:
            live.update()
    end(root)
    live.update()
    whole = Survey(smdwidgets.create_trial(root))
    whole.update()
    for stat in DOMAINS:
        one, other = (each.bins(["w"], "", 0, stat, 0, 0, 64) for each in (live, whole))
        np.testing.assert_allclose(one.hi, other.hi, atol=1e-4)
        np.testing.assert_array_equal(one.n, other.n)


def test_the_worst_worker_and_a_certain_one(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    for step in range(4):
        for worker, scale in (("worker_0", 1.0), ("worker_1", 10.0)):
            x = np.full(4, scale, np.float32)
            if worker == "worker_1" and step == 2:
                x[0] = np.nan
            save(root, step, {"w": x}, mode=1, worker=worker)
    survey = Survey(smdwidgets.create_trial(end(root)))
    survey.update()

    def bins(worker: str) -> Bins:
        return survey.bins(["w"], worker, 0, "size", 0, 0, 4)

    np.testing.assert_allclose(bins("").hi, [[0, 0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(bins("worker_1").lo, [[1, 1, 1, 1]], atol=1e-6)
    worst = bins("*")
    np.testing.assert_allclose(worst.lo, [[0] * 4], atol=1e-6)
    np.testing.assert_allclose(worst.mid, [[0.5] * 4], atol=1e-6)
    np.testing.assert_allclose(worst.hi, [[1] * 4], atol=1e-6)
    assert worst.n.tolist() == [[2, 2, 2, 2]]
    assert worst.flag.tolist() == [[0, 0, NAN, 0]]
    assert bins("").flag.tolist() == [[0, 0, 0, 0]]


def test_unread_steps_are_marked(trial: Trial) -> None:
    survey = Survey(trial)
    survey.read_stored(0)  # what other tests cached is more than that
    survey._blocks = survey._feed.plan()[1] or []
    if not survey._blocks:  # all of it was cached; plan it again without the cache
        survey._feed._planned, survey._feed._cache_read = -1, True
        survey._blocks = survey._feed.plan()[1]
    bins = survey.bins(["loss", "relu_1"], "", 0, "size", 4, 0, 13)
    assert (bins.flag == UNREAD).all()
    assert survey.names()


def test_levels() -> None:
    assert [level_of(0, last, 1024) for last in (1023, 1024, 99_999)] == [0, 1, 7]
    assert level_of(5, 5, 1) == 0


def test_a_sample_is_not_cached_because_it_has_no_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = runs.written(tmp_path / "run")
    monkeypatch.setattr(survey_module, "LARGEST_RUN", 1000)
    monkeypatch.setattr(survey_module, "SAMPLE_BYTES", 60_000)
    for _ in range(2):
        sample = Survey(smdwidgets.create_trial(root))
        sample.update()
        assert sample.reading.state == "sampled"
        assert 0 < sample.reading.done < sample.reading.total == 13 * runs.STEPS
        assert np.isnan(sample.table.records()["update"]).all()
    sample.read_all()
    sample.update()
    again = Survey(smdwidgets.create_trial(root))
    again.update()
    for survey in (sample, again):
        assert survey.reading.state == "complete"
        known = np.isfinite(survey.bins(["layers.0.weight"], "", 0, "update", 0, 0, runs.STEPS).hi)
        assert known.tolist() == [[step > 0 for step in range(runs.STEPS)]]


def test_text_has_no_statistics_and_is_no_error(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    for step in range(3):
        save(root, step, {"w": np.ones(4, np.float32), "text": np.array(["a", "b"])}, mode=1)
    trial = smdwidgets.create_trial(end(root))
    assert trial.statistics(["text", "w"]).errors == []
    survey = Survey(trial)
    survey.update()
    assert survey.names() == ["w"]
    assert survey.reading.done == survey.reading.total == 3


def test_steps_of_later_portions_are_unread_until_they_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with smdwidgets.numpy.Hook(tmp_path / "run") as hook:
        for step in range(100):
            hook.save_tensor("w", np.full(4, 1.0 + step), "weights")
            hook.step()
    monkeypatch.setattr(feed, "_ROWS", 25)
    survey = Survey(smdwidgets.create_trial(tmp_path / "run"))
    seen: list[list[int]] = []
    add = survey.table.add

    def watched(*args: Any, **kwargs: Any) -> None:
        add(*args, **kwargs)
        flags = survey.bins(["w"], "", 0, "size", 0, 0, 100).flag[0]
        seen.append(np.flatnonzero(flags & UNREAD).tolist())
        survey.table.changed_from()

    monkeypatch.setattr(survey.table, "add", watched)
    survey.update()
    assert seen[0] == list(range(25, 100))
    assert len(seen) > 3
    assert not (survey.bins(["w"], "", 0, "size", 0, 0, 100).flag & UNREAD).any()
    assert survey.table.changed_from() == 0  # pages get the bins that were marked again
