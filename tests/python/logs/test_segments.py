"""Launches of a training that wrote to one directory."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from python.logs.logs import log, scalars
from smdwidgets import create_trial
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.trials import TensorBoardTrial
from smdwidgets.trials.tensorboard.layout import segments_of

NAME = "events.out.tfevents.{}.host"


@pytest.mark.parametrize(
    ("keys", "launches"),
    [
        ([], []),
        (["tfevents"], [["tfevents"]]),
        ([NAME.format(1600000000), NAME.format(1600000100)], [[0], [1]]),
        # TensorFlow 2 and PyTorch: the process, and its first and second file.
        (["train/" + NAME.format(1600000000) + ".7.0.v2", "val/" + NAME.format(1600000900) + ".7.1.v2"], [[0, 1]]),
        ([NAME.format(1600000000) + ".7.0", NAME.format(1600000100) + ".8.0"], [[0], [1]]),
        # In a container every launch is process 1.
        ([NAME.format(1600000000) + ".1.0", NAME.format(1600000100) + ".1.1", NAME.format(1600000200) + ".1.0"], [[0, 1], [2]]),
        # Without the process: training and evaluation of two launches.
        (
            [
                "train/" + NAME.format(1600000000), "eval/" + NAME.format(1600000050),
                "train/" + NAME.format(1600000100), "eval/" + NAME.format(1600000150),
            ],
            [[0, 1], [2, 3]],
        ),
        # Two processes at the same time.
        (
            ["a/" + NAME.format(1600000000) + ".7.0", "b/" + NAME.format(1600000001) + ".8.0", "a/" + NAME.format(1600000002) + ".7.1"],
            [[0, 2], [1]],
        ),
    ],
)  # fmt: skip
def test_which_files_belong_to_a_launch(keys: list[str], launches: list[list[int | str]]) -> None:
    expected = [sorted(keys[at] if isinstance(at, int) else at for at in launch) for launch in launches]
    for given in (keys, keys[::-1]):
        assert [list(segment.files) for segment in segments_of(given)] == expected


def test_one_launch_is_opened(tmp_path: Path) -> None:
    for number in range(3):
        content = scalars({"loss": [float(number)] * 10}, first=number * 5)
        log(tmp_path, content, NAME.format(1600000000 + 100 * number))
    with create_trial(tmp_path) as trial:
        assert isinstance(trial, TensorBoardTrial)
        assert [segment.started for segment in trial.segments()] == [1600000000, 1600000100, 1600000200]
        assert trial.steps() == list(range(20))
        assert "hidden" in trial.notes()[0][1]
    for segment, number in ((0, 0), (1, 1), (-1, 2)):
        with create_trial(tmp_path, segment=segment) as trial:
            assert isinstance(trial, TensorBoardTrial)
            assert trial.steps() == list(range(number * 5, number * 5 + 10))
            assert set(trial.scalars("loss")["value"].tolist()) == {float(number)}
            assert trial.notes() == []
            assert len(trial.segments()) == 3
            again: TensorBoardTrial = pickle.loads(pickle.dumps(trial))
            assert again.steps() == trial.steps()
    with pytest.raises(SMDebugValueError, match="has 3 segments"):
        create_trial(tmp_path, segment=3)


def test_launches_of_modes(tmp_path: Path) -> None:
    for number in range(2):
        for mode in ("train", "eval"):
            log(tmp_path / mode, scalars({"loss": [float(number)] * 3}), NAME.format(1600000000 + 100 * number))
    with create_trial(tmp_path, segment=0) as trial:
        assert trial.tensor("loss").value(2, "EVAL").item() == 0
    with create_trial(tmp_path, segment=1) as trial:
        assert trial.tensor("loss").value(2, "TRAIN").item() == 1


def test_a_launch_is_selected_and_everything_starts_over(log_runs: Path) -> None:
    with create_trial(log_runs / "restarted") as trial:
        assert isinstance(trial, TensorBoardTrial)
        loss = trial.tensor("loss")
        assert (trial.segment, trial.restarts, loss.value(40).item()) == (None, 0, pytest.approx(10.4))
        trial.select_segment(0)
        assert (trial.segment, trial.restarts) == (0, 1)
        assert trial.steps() == list(range(0, 80, 10))
        assert loss.value(40).item() == pytest.approx(0.4)
        assert trial.restarted_at is None
        assert trial.notes() == []
        trial.select_segment(0)  # nothing starts over again
        assert trial.restarts == 1
        trial.select_segment(-1)
        assert (trial.segment, trial.steps()) == (1, list(range(40, 100, 10)))
        assert pickle.loads(pickle.dumps(trial)).segment == 1
        with pytest.raises(SMDebugValueError, match="invalid segment 2; the run has 2 segments"):
            trial.select_segment(2)
        assert trial.segment == 1
        trial.select_segment(None)
        assert trial.steps() == list(range(0, 100, 10))
