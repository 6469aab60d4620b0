"""A hook says, and notes in the run, what it was to save and what is missing."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from smdwidgets import create_trial
from smdwidgets.cli import main
from smdwidgets.config import CollectionManager
from smdwidgets.numpy import Hook, SaveConfig
from smdwidgets.pictures.overview import SentState, overview
from smdwidgets.pictures.packet import unpack


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def train(hook, steps, **tensors):
    for _ in range(steps):
        for name in tensors:
            hook.save_tensor(name, np.ones(3), tensors[name])
        hook.step()


def notes(run):
    with create_trial(run) as trial:
        return [text for _, text in trial.notes()]


GRADIENTS = "collection 'gradients' is included, but nothing was saved for it in {} steps: no tensor was saved to it"


def test_hook_says_it_after_20_steps_and_notes_it(run, caplog):
    with Hook(run, include_collections=["weights", "gradients"]) as hook, caplog.at_level(logging.WARNING):
        train(hook, 19, w="weights")
        assert caplog.messages == []
        train(hook, 1, w="weights")
        assert [message.partition(": ")[2] for message in caplog.messages] == [_plain(20)]
        train(hook, 20, w="weights")
        hook.flush()
        assert notes(run) == [_plain(20)]
    assert len(caplog.messages) == 1
    assert notes(run) == [_plain(40)]
    with create_trial(run) as trial:
        assert "note:" in repr(trial)
        head, _ = unpack(overview(trial, SentState(0))[0])
        assert head["message"] == _plain(40)


def _plain(steps):
    return GRADIENTS.format(steps)


def test_what_comes_later_is_no_longer_noted(run):
    with Hook(run, include_collections=["gradients"]) as hook:
        train(hook, 25, w="weights")
        train(hook, 1, g="gradients")
    assert notes(run) == []


def test_collection_whose_steps_never_come(run, caplog):
    with Hook(run, include_collections=["gradients"]) as hook:
        hook.get_collection("gradients").save_config = SaveConfig(start_step=100)
        train(hook, 3, w="weights", g="gradients")
    assert "its save_config selected none of the 3 steps of its modes" in notes(run)[0]


def test_nothing_to_say(run, caplog):
    with Hook(run, include_collections=["weights", "losses", "scalars"]) as hook:
        for _ in range(25):
            hook.save_tensor("w", np.ones(3), "weights")
            hook.save_scalar("train/loss", 1.0)
            hook.step()
    assert not caplog.messages
    assert notes(run) == []


def test_scalars_named_as_losses_are_losses(run):
    with Hook(run) as hook:
        for name in ("train/loss", "loss_scale"):
            hook.save_scalar(name, 1.0)
    with create_trial(run) as trial:
        assert trial.tensor_names(collection="losses") == ["scalar/train/loss"]


def test_run_without_a_step(run, caplog, capsys):
    with Hook(run):
        pass
    assert "no step was recorded" in caplog.text
    assert notes(run) == ["no step was recorded: the training did not reach the hook"]
    assert main(["check", str(run)]) == 2
    out = capsys.readouterr().out
    assert "Note: no step was recorded" in out
    assert "The run has no step" in out
    assert main(["check", str(run), "--allow-unjudged"]) == 0
    assert main(["check", str(run), "--rules", "LossNotDecreasing", "--allow-unjudged"]) == 0
    capsys.readouterr()
    assert main(["check", str(run), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["exit_code"], found["empty"]) == (2, True)
    assert main(["check", str(run), "--junit"]) == 2
    assert '<error message="The run has no step' in capsys.readouterr().out


def test_training_that_fails_before_its_first_step_says_so_itself(run, caplog):
    with pytest.raises(ValueError, match="bad data"), Hook(run):
        raise ValueError("bad data")
    assert not caplog.messages


def test_dry_run_logs_nothing(run, caplog):
    with Hook(run, include_collections=["gradients"], dry_run=True) as hook:
        train(hook, 30, w="weights")
    assert not caplog.messages


def test_check_and_inspect_show_notes(run, capsys):
    with Hook(run, include_collections=["gradients"]) as hook:
        train(hook, 3, w="weights")
    assert main(["check", str(run), "--rules", "ExplodingTensor"]) == 0
    assert f"Note: {_plain(3)}" in capsys.readouterr().out
    assert main(["inspect", str(run)]) == 0
    assert _plain(3) in capsys.readouterr().out


def test_notes_of_several_workers_and_of_damaged_files():
    one, two = CollectionManager(), CollectionManager()
    one.set_notes("worker_0", ["a"])
    two.set_notes("worker_1", ["b"])
    one.merge(two)
    read = CollectionManager.load_from_string(one.to_json())
    assert read.notes == {"worker_0": ["a"], "worker_1": ["b"]}
    for damaged in ([], {"w": "text"}, {"w": [1, None]}, 7):
        read.update_meta({"notes": damaged})
        assert not any(read.notes.values())
