"""The page of a run whose training wrote statistics and no value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import smdwidgets.numpy
from smdwidgets import ModeKeys, create_trial
from smdwidgets.pictures.details import curve
from smdwidgets.pictures.frames import Wanted, make_frame
from smdwidgets.pictures.overview import nothing_sent, overview
from smdwidgets.pictures.packet import unpack
from smdwidgets.pictures.signal_view import can_show, names_shown, view_of

STEPS = 12


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run") / "statistics"
    rng = np.random.default_rng(3)
    with smdwidgets.numpy.Hook(place, plan={"every": 0, "statistics": 1}) as hook:
        for step in range(STEPS):
            hook.set_mode("EVAL" if step % 3 == 2 else "TRAIN")
            for name in ("a.weight", "b.weight"):
                hook.save_tensor(name, rng.normal(step, 1, (32, 8)).astype(np.float32), "weights")
            hook.step()
    return place


def test_names_and_steps_are_those_of_the_statistics(run):
    with create_trial(run) as trial:
        assert trial.tensor_names() == []
        assert names_shown(trial) == ["a.weight", "b.weight"]
        assert can_show(trial, "a.weight")
        assert not can_show(trial, "c.weight")
        view = view_of(trial, "a.weight")
        assert (view.steps(), view.steps_shown()) == ([], list(range(STEPS)))
        packets = [unpack(one) for one in overview(trial, nothing_sent([(0, trial)])[0])]
    head, arrays = packets[0]
    assert head["tensors"] == ["a.weight", "b.weight"]
    assert head["collections"] == {"weights": [0, 1]}
    assert arrays["step"].tolist() == list(range(STEPS))
    assert [ModeKeys(mode).name for mode in arrays["mode"][:3]] == ["TRAIN", "TRAIN", "EVAL"]


def test_a_step_has_its_statistics_and_no_histogram(run):
    with create_trial(run) as trial:
        view = view_of(trial, "b.weight")
        frame = make_frame(view, 7, Wanted())
        assert frame.error is None
        assert frame.hist is None
        assert frame.counts.tolist() == [256, 0, 0, 0, 0]
        assert np.isfinite(frame.stats).sum() >= 10
        steps, means = curve(view, "mean")
    assert steps.tolist() == list(range(STEPS))
    np.testing.assert_allclose(means, steps, atol=0.3)
