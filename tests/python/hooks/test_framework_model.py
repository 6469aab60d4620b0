"""The base hook with a minimal framework: which tensors are saved, when, and how."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import struct
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from smdwidgets import _core, create_trial
from smdwidgets.config import (
    Collection,
    CollectionKeys,
    CollectionManager,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
)
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.core.hook import Hook, current_hook, set_current_hook
from smdwidgets.hooks.core.tensors import TensorCapture
from smdwidgets.modes import modes
from smdwidgets.run_end import END_FILE, RunEnd


class Framework(Hook):
    """Captures a weight, its gradient, a loss and an output at every step."""

    built_in = {
        CollectionKeys.ALL: (),
        CollectionKeys.DEFAULT: (),
        CollectionKeys.WEIGHTS: ("^(?!gradient).*weight",),
        CollectionKeys.GRADIENTS: ("^gradient",),
        CollectionKeys.LOSSES: ("loss",),
    }
    always_saved = (CollectionKeys.LOSSES,)

    def run(self, steps, mode=modes.TRAIN):
        self.set_mode(mode)
        for _ in range(steps):
            self._begin_step()
            for name in ("net.weight", "gradient/net.weight", "loss", "relu_output_0"):
                self._capture(name, np.full((2, 2), self.global_step, "float32"))


def wait_for(condition):
    """Wait until a condition holds; fail after a timeout."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def saved(written):
    return {step: written.names(step) for step in written.steps()}


def test_losses_are_saved_at_every_step_by_default(written):
    with Framework(written.root) as hook:
        hook.run(501)
    with create_trial(written.root) as trial:  # most of the steps are in a segment
        assert trial.tensor("loss").steps() == [*range(501)]
        assert trial.tensor_names() == ["loss"]


def test_losses_are_saved_every_500_steps_without_a_plan(written):
    with Framework(written.root, plan=False) as hook:
        hook.run(501)
    assert saved(written) == {0: ["loss"], 500: ["loss"]}


def test_save_all_saves_every_tensor(written):
    with Framework(written.root, save_all=True, save_config=SaveConfig(save_interval=2)) as hook:
        hook.run(3)
    everything = ["net.weight", "gradient/net.weight", "loss", "relu_output_0"]
    assert saved(written) == {0: everything, 2: everything}
    assert written.collections()["all"]["tensor_names"] == sorted(everything)


def test_gradients_are_not_saved_in_eval_and_predict(written):
    include = ["gradients", "weights"]
    with Framework(written.root, include_collections=include, save_config=SaveConfig(save_interval=1)) as hook:
        hook.run(1)
        hook.run(1, modes.EVAL)
        hook.run(1, modes.PREDICT)
    assert ["gradient/net.weight" in names for names in saved(written).values()] == [True, False, False]


def test_collection_specific_steps_and_reductions(written):
    with Framework(
        written.root, include_collections=["weights", "relu"], save_config=SaveConfig(save_interval=2)
    ) as hook:
        relu = hook.get_collection("relu")
        relu.include("relu")
        relu.save_config = SaveConfigMode(save_interval=3)
        relu.reduction_config = ReductionConfig(["max"], save_raw_tensor=True, save_shape=True)
        hook.run(4)
    reduced = "smdebug/reductions/max/relu_output_0"
    assert {step: set(names) for step, names in saved(written).items()} == {
        0: {"net.weight", "loss", reduced, "relu_output_0"},
        2: {"net.weight", "loss"},
        3: {reduced, "relu_output_0"},
    }
    assert written.index(3)["shape_payload"][0]["shape"] == [2, 2]
    assert written.value(reduced, 3) == 3


def test_tensor_in_several_collections_is_saved_once(written):
    with Framework(
        written.root,
        include_collections=["a", "b"],
        save_config=SaveConfig(save_interval=1),
        reduction_config=ReductionConfig(["min"]),
    ) as hook:
        hook.add_collection(Collection("a", ["net"], reduction_config=ReductionConfig(["min", "mean"])))
        hook.add_collection(Collection("b", ["weight$"], save_histogram=False))
        hook.run(1)
    weights = [name for name in written.names(0) if name.endswith("/net.weight") and "gradient" not in name]
    assert weights == ["smdebug/reductions/min/net.weight", "smdebug/reductions/mean/net.weight"]


def test_losses_are_saved_whole_despite_reduction_config(written):
    with Framework(
        written.root,
        save_all=True,
        save_config=SaveConfig(save_interval=1),
        reduction_config=ReductionConfig(save_shape=True),
    ) as hook:
        hook.run(1)
    assert written.names(0) == ["loss"]
    assert [entry["tensorname"] for entry in written.index(0)["shape_payload"]] == [
        "net.weight",
        "gradient/net.weight",
        "loss",
        "relu_output_0",
    ]


def test_shape_only_run_has_no_event_file(written):
    with Framework(written.root, include_collections=["weights"], save_config=SaveConfig(save_interval=1)) as hook:
        hook.get_collection("weights").reduction_config = ReductionConfig(save_shape=True)
        hook.get_collection("losses").save_config = SaveConfigMode(start_step=10)
        hook.run(1)
    assert "event_file_name" not in written.index(0)["meta"]
    assert not (written.root / "events").exists()


def test_patterns_added_during_training_apply(written):
    with Framework(written.root, save_config=SaveConfig(save_interval=1), include_regex="nothing") as hook:
        hook.run(1)
        hook.get_collection("default").include("relu")
        hook.run(1)
    assert saved(written) == {0: ["loss"], 1: ["loss", "relu_output_0"]}
    assert written.collections()["default"]["tensor_names"] == ["relu_output_0"]


def test_tensors_saved_between_steps_belong_to_the_previous_step(written):
    with Framework(written.root, save_config=SaveConfig(save_interval=2)) as hook:
        hook.save_scalar("before", 1)  # belongs to the first step
        hook.run(1)
        hook.save_scalar("rate", 0.5)
        hook.save_tensor("mine", np.zeros(2))
        hook.run(1)
        hook.save_tensor("mine", np.ones(2))  # the step is not saved
        hook.set_mode(modes.EVAL)
        hook.save_scalar("after", 2)  # a separate step, because no step of this mode follows
    assert saved(written) == {0: ["scalar/before", "loss", "scalar/rate", "mine"], 2: ["scalar/after"]}
    assert written.mode(2) == ("EVAL", 0)


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records]


def test_empty_collection_logs_warning(written, caplog):
    with Framework(written.root, include_collections=["mine", "other"]) as hook:
        hook.get_collection("mine")
        hook.get_collection("third").add_tensor_name("net.weight")
        assert warnings_of(caplog) == []
        hook.run(2)
        hook.get_collection("mine").include("relu")  # later steps can add tensors
    assert [message.partition(",")[0].partition(";")[0] for message in warnings_of(caplog)] == [
        "collection 'mine' has no patterns and no tensors",
        "collection 'third' is not saved",
        "collection 'other' has no patterns and no tensors",
        f"'{written.root}': collection 'mine' is included",
    ]
    assert saved(written) == {0: ["loss"]}


@pytest.mark.parametrize(
    ("name", "meant"), [("gradient", "gradients"), ("weigths", "weights"), ("Loss", "losses"), ("lossses", "losses")]
)
def test_misspelled_collection_logs_warning(written, caplog, name, meant):
    with Framework(written.root, include_collections=[name], dry_run=True):
        [message] = warnings_of(caplog)
    assert message.startswith(f"include_collections contains the unknown collection {name!r}. Did you mean {meant!r}?")


@pytest.mark.parametrize("name", ["relu", "custom_losses", "my_weights", "scalars"])
def test_custom_collection_name_logs_no_warning(written, caplog, name):
    with Framework(written.root, include_collections=[name], dry_run=True):
        assert warnings_of(caplog) == []


def test_collection_filled_during_training_is_saved_from_then_on(written):
    options = {"include_collections": ["mine"], "save_config": SaveConfig(save_interval=1)}
    with Framework(written.root, **options) as hook:
        hook.run(1)
        hook.get_collection("mine").include("relu")
        hook.run(1)
    assert saved(written) == {0: ["loss"], 1: ["loss", "relu_output_0"]}


def test_scalars_collection(written, caplog):
    with Framework(written.root, save_config=SaveConfig(save_interval=2)) as hook:
        hook.save_scalar("before", 1)
        hook.run(1)
        hook.save_scalar("rate", 0.5)
        hook.run(1)
        hook.save_scalar("rate", 0.25)
    assert written.collections()["scalars"]["tensor_names"] == ["scalar/before", "scalar/rate"]
    assert written.names(1) == ["scalar/rate"]
    assert warnings_of(caplog) == []
    trial = create_trial(written.root)
    assert trial.tensor_names(collection="scalars") == ["scalar/before", "scalar/rate"]


def test_collection_not_included_logs_warning(written, caplog):
    with caplog.at_level(logging.WARNING, "smdwidgets.hooks"), Framework(written.root) as hook:
        hook.get_collection("mine").include("relu")
        hook.run(1)
    assert "'mine' is not saved" in caplog.text
    assert saved(written) == {0: ["loss"]}


def test_unsupported_value_is_logged_once_and_skipped(written, caplog):
    with caplog.at_level(logging.WARNING, "smdwidgets.hooks"), Framework(written.root, save_all=True) as hook:
        hook.run(1)
        hook._capture("odd", object())
        hook._capture("odd", object())
        hook._capture("net.bias_weight", np.ones(1))
    assert [record.message for record in caplog.records if "'odd'" in record.message] == [caplog.records[0].message]
    assert "net.bias_weight" in written.names(0)


@pytest.mark.slow
def test_tensors_can_be_captured_from_several_threads(written):
    arrays = {f"gradient/{i}": np.full(40_000, i, "float32") for i in range(300)}  # more than one write batch
    with Framework(written.root, save_all=True, save_config=SaveConfig(save_interval=1)) as hook:
        for _ in range(3):
            hook.set_mode(modes.TRAIN)
            hook._begin_step()
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(hook._capture, arrays, arrays.values()))
            hook._end_step()
    for step in range(3):
        found = written.values(step)
        assert found.keys() == arrays.keys()
        assert all((found[name] == array).all() for name, array in arrays.items())


class Unreadable:
    """A tensor whose value cannot be read."""

    dtype, shape = np.dtype("float32"), (2,)

    def detach(self):
        raise RuntimeError("the device is gone")


def test_framework_errors_do_not_stop_training(written, caplog, monkeypatch):
    hold = TensorCapture.copy
    monkeypatch.setattr(
        TensorCapture,
        "copy",
        lambda self, name, value: hold(self, name, value.detach() if isinstance(value, Unreadable) else value),
    )
    with caplog.at_level(logging.WARNING, "smdwidgets.hooks"), Framework(written.root, save_all=True) as hook:
        hook.run(1)
        hook._capture("far", Unreadable())
        hook._capture("far", Unreadable())
    assert [record.message for record in caplog.records] == [
        "tensor not saved: far: the device is gone; further failures of this kind are not logged"
    ]
    assert "net.weight" in written.names(0)


def test_tensorboard_histogram_matches_core(written):
    values = np.array([0.0, 1.0, 1.0, 4.0, np.nan, np.inf], "float32")
    with Framework(
        written.root, save_all=True, save_config=SaveConfig(save_interval=1), export_tensorboard=True
    ) as hook:
        hook.run(1)
        hook._capture("wide", values)
        hook._capture("none", np.full(3, np.nan))
    (file,) = (written.root / "tensorboard" / "TRAIN").glob("*.tfevents")
    events = _core.read_events(file.read_bytes())
    assert events.problems == []
    shown = {event.tag: event.value for event in events.others}
    wide = shown["all/wide"]
    assert (wide["min"], wide["max"], wide["num"], wide["sum"], wide["sum_squares"]) == (0, 4, 4, 6, 18)
    ours = _core.histogram(values, bins=len(wide["counts"]))
    assert np.asarray(wide["counts"]).tolist() == ours["counts"].tolist()
    assert np.asarray(wide["limits"]).tolist() == ours["edges"][1:].tolist()
    assert "all/none" not in shown


def test_collection_without_histograms(written):
    options = {"include_collections": ["loud", "quiet"], "save_config": SaveConfig(save_interval=1)}
    with Framework(written.root, export_tensorboard=True, **options) as hook:
        hook.get_collection("loud").include("^net.weight$")
        hook.get_collection("quiet").include("^gradient")
        hook.get_collection("quiet").save_histogram = False
        hook.run(1)
    (file,) = (written.root / "tensorboard" / "TRAIN").glob("*.tfevents")
    assert [event.tag for event in _core.read_events(file.read_bytes()).others] == ["loud/net.weight"]
    assert "gradient/net.weight" in written.names(0)


def test_copied_hook_is_the_same_object(written):
    with Framework(written.root) as hook:
        assert copy.copy(hook) is hook
        assert copy.deepcopy([hook])[0] is hook
        assert "open" in repr(hook)
    assert "closed" in repr(hook)


def test_pickled_hook_is_inactive(written, caplog):
    with Framework(written.root, save_all=True, save_config=SaveConfig(save_interval=1)) as hook:
        hook.run(1)
        other = pickle.loads(pickle.dumps(hook))
        assert current_hook() is hook
        assert "inactive" in repr(other)
        assert str(written.root) in repr(other)
        other.run(2)
        other.set_mode(modes.EVAL)
        other.save_tensor("x", np.zeros(3))
        other.save_scalar("y", 1)
        other.flush()
        assert not other.should_save_step()
        other.close()
        assert "only that process records" in caplog.text
        assert caplog.text.count("not saved") == 1
    assert written.steps() == [0]
    assert written.ended


@pytest.mark.slow
def test_open_hook_is_not_garbage_collected(written):
    reference = weakref.ref(Framework(written.root))
    gc.collect()
    assert reference() is current_hook() is not None
    reference().close()
    set_current_hook(None)
    gc.collect()
    assert reference() is None


def test_saving_after_close_logs_one_warning(written, caplog):
    hook = Framework(written.root, save_all=True)
    hook.close()
    hook.close()
    for _ in range(3):
        hook.save_scalar("loss", 0.5)
        hook.save_tensor("x", np.zeros(3))
    assert [record.getMessage() for record in caplog.records] == [
        f"'{written.root}': no step was recorded: the training did not reach the hook",
        f"not saved ('{written.root}'): the hook is closed",
    ]


def test_exception_handled_before_hook_creation_is_ignored(written):
    try:
        raise MemoryError("the batch is too large")
    except MemoryError:
        with Framework(written.root) as hook:
            hook.run(1)
        Framework(written.root, overwrite=True).close()
    assert RunEnd.parse((written.root / END_FILE).read_bytes()).how == "completed"


def test_close_in_finally_block_records_the_exception(written):
    def main():
        hook = Framework(written.root)
        try:
            raise ValueError("loss is NaN")
        finally:
            hook.close()

    with pytest.raises(ValueError, match="loss is NaN"):
        main()
    assert str(RunEnd.parse((written.root / END_FILE).read_bytes())) == "exception (ValueError: loss is NaN)"


def test_failure_to_detach_does_not_prevent_closing(written, caplog):
    class Broken(Framework):
        def _detach(self):
            raise RuntimeError("the model is gone")

    hook = Broken(written.root, save_all=True, save_config=SaveConfig(save_interval=1))
    hook.run(2)
    hook.close()
    assert written.steps() == [0, 1]
    assert written.ended
    assert "the model is gone" in caplog.text


@pytest.mark.parametrize("seconds", [0, -1, "soon", None])
def test_flush_seconds_must_be_positive(written, seconds):
    with pytest.raises(SMDebugValueError, match="flush_seconds must be a positive number"):
        Framework(written.root, flush_seconds=seconds)


def test_settled_step_is_published_and_can_grow(written):
    with Framework(written.root, save_all=True, save_config=SaveConfig(save_interval=1), flush_seconds=0.01) as hook:
        hook._begin_step()
        hook._capture("early", np.arange(3))
        hook.parts.recorder.queue.settle()
        wait_for(lambda: written.steps() == [0])
        assert written.names(0) == ["early"]
        hook._capture("late", np.arange(4))
        wait_for(lambda: written.names(0) == ["early", "late"])
        hook._begin_step()
        hook._capture("early", np.arange(5))
    assert written.steps() == [0, 1]
    assert {name: value.tolist() for name, value in written.values(0).items()} == {
        "early": [0, 1, 2],
        "late": [0, 1, 2, 3],
    }


def test_unsettled_step_stays_invisible(written):
    with Framework(written.root, save_all=True, save_config=SaveConfig(save_interval=1), flush_seconds=0.01) as hook:
        hook._begin_step()
        hook._capture("early", np.arange(3))
        hook.parts.recorder.queue._background.start()
        idle = threading.Event()
        touch, hook.parts.recorder.queue._touch = hook.parts.recorder.queue._touch, idle.set
        assert idle.wait(60)  # the writer thread was idle, but did not publish the step
        hook.parts.recorder.queue._touch = touch
        hook.flush()
        assert written.steps() == []
    assert written.steps() == [0]


def test_add_collection_rejects_other_types(written):
    with Framework(written.root, dry_run=True) as hook, pytest.raises(SMDebugTypeError, match="Collection"):
        hook.add_collection("relu")


def test_tensorboard_files_have_valid_checksums(written):
    with Framework(
        written.root, save_all=True, save_config=SaveConfig(save_interval=1), export_tensorboard=True
    ) as hook:
        hook.run(2)
        hook.save_scalar("rate", float("nan"))
        hook.run(1, modes.EVAL)
    files = sorted((written.root / "tensorboard").glob("*/*.tfevents"))
    assert [path.parent.name for path in files] == ["EVAL", "TRAIN"]
    for path in files:
        content, count = path.read_bytes(), 0
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            payload = content[12 : 12 + length]
            assert struct.unpack("<I", content[8:12])[0] == _core.masked_crc(content[:8])
            assert struct.unpack("<I", content[12 + length : 16 + length])[0] == _core.masked_crc(payload)
            content, count = content[16 + length :], count + 1
        assert count > 3


def test_frameworks_are_imported_lazily():
    code = """
import sys
import smdwidgets, smdwidgets.numpy
for name in ("torch", "keras", "tensorflow", "xgboost", "mxnet", "boto3", "matplotlib"):
    assert name not in sys.modules, name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_collection_manager_can_be_replaced(written):
    """Scripts for smdebug create a collection manager and assign it."""
    manager = CollectionManager()
    manager.create_collection("relu")
    manager.get("relu").include("relu")
    with Framework(written.root, include_collections=["relu"], save_config=SaveConfig(save_interval=1)) as hook:
        hook.collection_manager = manager
        assert hook.get_collection("relu") is manager.get("relu")
        hook.run(1)
        with pytest.raises(SMDebugTypeError, match="collection_manager must be a CollectionManager, got dict"):
            hook.collection_manager = {}
    assert saved(written) == {0: ["loss", "relu_output_0"]}
