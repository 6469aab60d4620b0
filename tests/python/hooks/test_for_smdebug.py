"""Names of smdebug's hooks that do not depend on a framework."""

from __future__ import annotations

import numpy as np
import pytest

import smdwidgets.numpy as smd
from smdwidgets import create_trial
from smdwidgets.exceptions import SMDebugTypeError


def test_the_step_is_a_number_and_ends_when_it_is_called(written):
    with smd.Hook(written.root) as hook:
        assert hook.step == -1
        for step in range(4):
            hook.save_tensor("x", np.array([step]))
            assert (hook.step, hook.step % 2, hook.step < 3) == (step, step % 2, step < 3)
            hook.step()
    assert create_trial(written.root).tensor("x").steps() == [0, 1, 2, 3]


def test_collections_list_only_tensors_of_the_run(written):
    with smd.Hook(written.root, plan=False) as hook:
        hook.get_collection("mine").add_tensor_name("never saved")
        hook.save_tensor("x", np.ones(2), "mine")
    assert create_trial(written.root).collection("mine").tensor_names == {"x"}


def test_a_tensor_is_saved_whatever_the_collections_select(written):
    with smd.Hook(written.root, save_config=smd.SaveConfig(save_interval=100)) as hook:
        for _ in range(3):
            hook.save_tensor("x", np.ones(2))
            hook._write_raw_tensor_simple("tokens", np.array(["a", "b"]))
            hook._save_for_tensor("forced", np.ones(2), check_before_write=False)
            hook.step()
        assert hook.last_saved_step == 0
    trial = create_trial(written.root)
    assert trial.tensor("x").steps() == [0]
    assert trial.tensor("tokens").steps() == trial.tensor("forced").steps() == [0, 1, 2]


def test_questions_of_subclasses_are_answered(written):
    with smd.Hook(written.root, include_regex="^x", save_config=smd.SaveConfig(save_interval=2)) as hook:
        assert hook.include_regex == ["^x"]
        assert not hook.has_default_hook_configuration()
        assert hook.chief_worker == "worker_0"
        hook.save_tensor("x", np.ones(2))
        assert hook.should_save_tensor_or_collection("x", "none")
        assert "default" in {one.name for one in hook._get_collections_to_save_for_step()}
        hook.export_collections()
        hook.step()
        hook.save_scalar("y", 1.0)
        assert not hook.should_save_tensor_or_collection("x", "default")


def test_what_is_not_offered_is_refused_in_words(written):
    with smd.Hook(written.root) as hook:
        with pytest.raises(AttributeError, match=r"profiler_config_parser.*a training is not profiled"):
            _ = hook.profiler_config_parser
        with pytest.raises(AttributeError, match=r"_write_reductions.*not offered; call save_tensor"):
            _ = hook._write_reductions
        assert not hasattr(hook, "anything_else")
    with pytest.raises(
        SMDebugTypeError, match="Mine overrides _increment_step, _write_raw_tensor, which no hook calls"
    ):
        type(
            "Mine", (smd.Hook,), dict.fromkeys(("_increment_step", "_write_raw_tensor"), len) | {"__module__": "train"}
        )
