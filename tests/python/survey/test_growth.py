"""The size of tensors relative to their start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import begin, end, save
from smdwidgets.survey import Survey
from smdwidgets.survey.bins import NAN, SUDDEN, Bins
from smdwidgets.survey.growth import limit_of


def written(root: Path, values: dict[str, list[np.ndarray]], steps: int) -> Survey:
    begin(root)
    for step in range(steps):
        save(root, step, {name: each[step] for name, each in values.items()}, mode=1)
    survey = Survey(smdwidgets.create_trial(end(root)))
    survey.update()
    return survey


def sized(*sizes: float) -> list[np.ndarray]:
    return [np.full(4, size, np.float32) for size in sizes]


def growth(survey: Survey, name: str, level: int = 0, first: int = 0, count: int = 8) -> Bins:
    return survey.bins([name], "", 0, "growth", level, first, count)


def test_growth_is_the_size_divided_by_the_first_one_that_is_not_0(tmp_path: Path) -> None:
    nan = np.array([np.nan, 2, 2, 2], np.float32)
    values = {
        "doubles": sized(0.5, 1, 2, 4, 8, 16, 32, 64),
        "starts_at_0": sized(0, 0, 3, 3, 0, 3, 30, 3),
        "never": sized(*[0] * 8),
        "breaks": [*sized(2, 2, 2, 2), *[nan] * 4],
    }
    survey = written(tmp_path / "run", values, 8)
    np.testing.assert_allclose(growth(survey, "doubles").mid[0], np.log10(2) * np.arange(8), atol=1e-6)
    later = growth(survey, "starts_at_0")
    assert np.isnan(later.lo[0, :2]).all()  # no size yet: no growth and no decline
    np.testing.assert_allclose(later.hi[0, [2, 6]], [0, 1], atol=1e-6)
    assert later.lo[0, 4] < -20
    assert later.n[0].tolist() == [1] * 8
    pair = growth(survey, "starts_at_0", 1, 0, 4)
    assert np.isnan(pair.lo[0, 0])
    assert pair.lo[0, 1] == pytest.approx(0, abs=1e-6)
    assert np.isnan(growth(survey, "never").hi[0]).all()
    assert growth(survey, "never").n[0].tolist() == [1] * 8
    broken = growth(survey, "breaks")
    assert (broken.flag[0] & NAN > 0).tolist() == [False] * 4 + [True] * 4
    # Its finite elements have not changed.
    np.testing.assert_allclose(broken.mid[0], 0, atol=1e-6)
    assert growth(survey, "missing").n.sum() == 0


def test_a_step_before_the_start_moves_it(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    trial = None
    for step in (4, 5, 6):
        save(root, step, {"w": np.full(4, 2.0, np.float32)}, mode=1)
    trial = smdwidgets.create_trial(root)
    survey = Survey(trial)
    survey.update()
    np.testing.assert_allclose(growth(survey, "w").hi[0, 4:7], 0, atol=1e-6)
    late = {name: column.copy() for name, column in survey.table.records().items()}
    late = {name: column[:1] for name, column in late.items()}
    late["step"][:] = 1
    late["size"][:] = 0.0
    late["l2"][:] = 0.0
    survey.table._added.append(late)
    np.testing.assert_allclose(growth(survey, "w").hi[0, 4:7], np.log10(2), atol=1e-6)
    end(root)


def test_a_sudden_change_is_marked_and_a_drift_is_not(tmp_path: Path) -> None:
    steps = 60
    jump = sized(*[1.0] * 40, *[100.0] * 20)
    drift = sized(*np.geomspace(1, 20, steps).tolist())
    survey = written(tmp_path / "run", {"jump": jump, "drift": drift}, steps)
    marked = np.flatnonzero(growth(survey, "jump", count=steps).flag[0] & SUDDEN)
    assert marked[0] == 40
    assert not (growth(survey, "drift", count=steps).flag[0] & SUDDEN).any()
    # The mark belongs to the record, whatever the colour.
    other = survey.bins(["jump"], "", 0, "zeros", 2, 0, 15)
    assert np.flatnonzero(other.flag[0] & SUDDEN)[0] == 10


def test_scale_ignores_scalars_and_one_tensor_that_explodes(tmp_path: Path) -> None:
    steps = 30
    values = {f"w{i}": sized(*np.linspace(1, 1.8, steps).tolist()) for i in range(60)}
    values["explodes"] = sized(*np.geomspace(1, 1e6, steps).tolist())
    values["loss"] = [np.float32(1000 * 0.5**step) for step in range(steps)]  # type: ignore[misc]
    assert 10 ** written(tmp_path / "run", values, steps).table.growth_limit() == pytest.approx(4)
    assert limit_of(np.empty(0)) == pytest.approx(np.log10(1.1))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_sizes_beyond_float32_give_no_warning(tmp_path: Path) -> None:
    survey = written(tmp_path / "run", {"huge": [np.full(4, 1e308)] * 8}, 8)
    assert growth(survey, "huge").n[0].tolist() == [1] * 8
