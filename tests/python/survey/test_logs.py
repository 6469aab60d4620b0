"""Surveys of TensorBoard logs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from python.logs.logs import writer
from smdwidgets.survey import Survey
from smdwidgets.survey.bins import NAN, REDUCTIONS, SUDDEN
from smdwidgets.survey.sentence import text


@pytest.fixture
def survey(tmp_path: Path) -> Survey:
    rng = np.random.default_rng(0)
    with writer(tmp_path / "log") as out:
        for step in range(60):
            out.add_scalar("train/loss", np.nan if step >= 40 else 2 / (1 + step), step)
            out.add_scalar("lr", 0.1, step)
            if step % 5 == 0:
                out.add_histogram("layers.0.weight", rng.normal(0, 2, 1000), step)
                out.add_image("input", rng.random((3, 4, 4)).astype(np.float32), step)
                out.add_text("note", "text", step)
    found = Survey(smdwidgets.create_trial(tmp_path / "log"))
    found.update()
    return found


def test_logs(survey: Survey) -> None:
    assert survey.reading.state == "complete"
    loss = survey.bins(["train/loss"], "", 0, "size", 0, 0, 60)
    assert np.flatnonzero(loss.flag[0] & NAN).tolist() == list(range(40, 60))
    np.testing.assert_allclose(loss.hi[0, :40], np.log10(2 / (1 + np.arange(40))), rtol=1e-3, atol=1e-6)
    found = survey.findings()
    assert [(one.kind, one.names, one.first) for one in found] == [("not_finite", ("train/loss",), 40)]
    assert text(survey.sentence(found)).startswith("`train/loss` is NaN from step 40")


def test_logged_histograms_have_statistics_without_values(survey: Survey) -> None:
    bins = survey.bins(["layers.0.weight"], "", 0, "size", 0, 0, 60)
    assert np.flatnonzero(bins.n[0]).tolist() == list(range(0, 60, 5))
    np.testing.assert_allclose(bins.hi[0, ::5], np.log10(2), atol=0.05)
    assert (bins.flag[0, ::5] == REDUCTIONS).all()


def test_sudden_growth_of_a_scalar_is_marked_where_there_are_no_tensors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with writer(tmp_path / "log") as out:
        for step in range(100):
            out.add_scalar("norm/fc1", rng.normal(1, 0.05) * (1000 if step == 60 else 1), step)
            out.add_scalar("norm/fc2", rng.normal(1, 0.05), step)
            out.add_scalar("reward", 0.0 if step == 70 else rng.normal(0, 1), step)
    survey = Survey(smdwidgets.create_trial(tmp_path / "log"))
    survey.update()
    marks = survey.bins(["norm/fc1", "norm/fc2", "reward"], "", 0, "growth", 0, 0, 100).flag & SUDDEN
    assert np.argwhere(marks).tolist() == [[0, 60]]
    with writer(tmp_path / "log") as out:
        out.add_histogram("fc1.weight", rng.normal(0, 2, 1000), 100)
        out.add_scalar("norm/fc2", 1000.0, 100)
    survey = Survey(smdwidgets.create_trial(tmp_path / "log"))
    survey.update()
    assert not (survey.bins(["norm/fc1", "norm/fc2"], "", 0, "growth", 0, 0, 101).flag & SUDDEN).any()
