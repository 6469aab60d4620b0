"""The NumPy hook for custom loops: the run contains the tensors that were saved."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from python.hooks.written import Written
from smdwidgets import _core
from smdwidgets.config import Collection, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError, TrainingStopped
from smdwidgets.hooks.loops.numpy import Hook
from smdwidgets.modes import modes
from smdwidgets.stop import request_stop


def test_step_contains_tensors_saved_before_its_end(written):
    weights = np.zeros((2, 3), "float32")
    with Hook(written.root) as hook:
        for i in range(3):
            weights += 1
            hook.save_tensor("weights/w", weights, "weights")
            hook.save_scalar("rate", 0.5**i)
            hook.step()
            weights[:] = i + 1  # changes after the step must not be saved
    assert written.steps() == [0, 1, 2]
    assert written.value("weights/w", 1).tolist() == [[2.0] * 3] * 2
    assert written.value("scalar/rate", 2).tolist() == [0.25]
    assert written.mode(1) == ("GLOBAL", 1)
    assert written.collections()["weights"]["tensor_names"] == ["weights/w"]
    assert written.ended
    assert written.leftovers() == []


def test_step_numbers_and_intervals_per_mode(written):
    config = SaveConfig({modes.TRAIN: SaveConfigMode(save_interval=2), modes.EVAL: SaveConfigMode(save_interval=1)})
    with Hook(written.root, save_config=config) as hook:
        for mode, count in ((modes.TRAIN, 3), (modes.EVAL, 2), (modes.TRAIN, 2)):
            hook.set_mode(mode)
            for _ in range(count):
                hook.save_tensor("x", np.ones(2))
                hook.step()
        assert hook.mode_steps[modes.TRAIN] == 4
        assert hook.global_step == 6
    assert [(step, *written.mode(step)) for step in written.steps()] == [
        (0, "TRAIN", 0),
        (2, "TRAIN", 2),
        (3, "EVAL", 0),
        (4, "EVAL", 1),
        (6, "TRAIN", 4),
    ]


def test_should_save_step_refers_to_the_current_step(written):
    with Hook(written.root, save_config=SaveConfig(save_interval=2, save_steps=[3])) as hook:
        results = []
        for _ in range(6):
            # Without included collections, the hook's save configuration applies.
            results.append(hook.should_save_step())
            hook.save_tensor("x", 1.0)
            hook.step()
    assert results == [True, False, True, True, True, False]
    assert written.steps() == [0, 2, 3, 4]


def test_tensor_is_added_to_all_given_collections(written):
    with Hook(written.root) as hook:
        hook.save_tensor("x", [1, 2], ["a", "b"])
    assert written.collections()["a"]["tensor_names"] == written.collections()["b"]["tensor_names"] == ["x"]
    assert written.value("x", 0).tolist() == [1, 2]


def test_reductions_and_shapes_instead_of_values(written):
    wanted = ReductionConfig(reductions=["mean"], abs_norms=["l1"], save_shape=True)
    with Hook(written.root) as hook:
        hook.add_collection(Collection("some", reduction_config=wanted))
        hook.save_tensor("x", np.array([[1.0, -2.0], [3.0, 4.0]], "float32"), "some")
    assert written.names(0) == ["smdebug/reductions/mean/x", "smdebug/reductions/abs_l1/x"]
    assert written.value("smdebug/reductions/mean/x", 0) == np.float32(1.5)
    assert written.value("smdebug/reductions/abs_l1/x", 0) == np.float32(10)
    assert written.index(0)["shape_payload"] == [{"tensorname": "x", "originalname": "x", "shape": [2, 2]}]


def test_scalars_are_saved_at_every_step(written):
    with Hook(written.root, save_config=SaveConfig(save_interval=100)) as hook:
        for i in range(3):
            hook.save_scalar("loss", i)
            hook.save_scalar("loss", i + 0.5)
            hook.save_tensor("w", np.ones(3))
            hook.step()
    assert [written.value("scalar/loss", step).tolist() for step in (0, 1, 2)] == [[0.5], [1.5], [2.5]]
    assert [("w" in written.names(step)) for step in (0, 1, 2)] == [True, False, False]


NAMES = [
    "with/slashes/in/it",
    "colon:0",
    "../../outside",
    "/absolute",
    "ünicöde/日本語 😀",
    "new\nline\ttab",
    "quote\"and'back\\slash",
    "x" * 2000,
    "re(gex)[chars]*+?.^$|",
]


def test_unusual_names(written):
    with Hook(written.root) as hook:
        for i, name in enumerate(NAMES):
            hook.save_tensor(name, np.full(2, i))
    assert written.names(0) == NAMES
    assert [int(written.value(name, 0)[0]) for name in NAMES] == list(range(len(NAMES)))


def test_invalid_unicode_name_raises(written):
    with Hook(written.root) as hook:
        for save in (hook.save_tensor, hook.save_scalar):
            with pytest.raises(SMDebugValueError, match="UTF-8"):
                save("half a surrogate \ud83d", 1)
        hook.save_tensor("whole", 1)
    assert written.names(0) == ["whole"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64", "bool", "complex64"])
def test_saved_reductions_match_computed_ones(written, dtype):
    values = np.random.default_rng(0).normal(size=(7, 5)) * 3
    values = (values > 0 if dtype == "bool" else np.abs(values) if dtype == "uint64" else values).astype(dtype)
    ops = ["min", "max", "mean", "prod", "std", "sum", "variance"]
    config = ReductionConfig(ops, ops, ["l1", "l2"], ["l1", "l2"], save_raw_tensor=True)
    with Hook(written.root, reduction_config=config) as hook:
        hook.save_tensor("x", values)
        hook.save_tensor("with/nan", np.array([np.nan, 1.0]))
        hook.save_tensor("empty", np.empty((0, 3)))
    assert [name for name in written.names(0) if name.endswith("empty")] == ["empty"]
    for name, array in (("x", values), ("with/nan", np.array([np.nan, 1.0]))):
        assert written.value(name, 0).tobytes() == array.tobytes()
        for (op, absolute), computed in _core.reduce(array).items():
            found = written.value(_core.reduction_name(op, absolute, name), 0)
            assert found.dtype == computed.dtype, (name, op)
            assert found.tobytes() == computed.tobytes(), (name, op)


@pytest.mark.parametrize("value", [object(), None, {"a": 1}, {1, 2}, [object()], np.array([object()]), lambda: 0])
def test_unsupported_value_raises_with_tensor_name(written, value):
    with Hook(written.root, save_config=SaveConfig(start_step=1)) as hook:
        with pytest.raises(SMDebugTypeError, match="'mine'"):
            hook.save_tensor("mine", value)
        hook.step()
        with pytest.raises(SMDebugTypeError, match="'mine'"):
            hook.save_tensor("mine", value)


def test_save_scalar_rejects_non_scalars(written):
    with Hook(written.root) as hook:
        for wrong in (np.ones(2), "text", []):
            with pytest.raises(SMDebugTypeError, match="pair"):
                hook.save_scalar("pair", wrong)
        with pytest.raises(SMDebugTypeError):
            hook.save_scalar(3, 1.0)
        with pytest.raises(SMDebugValueError):
            hook.save_tensor("", 1.0)


def test_run_ends_if_the_loop_raises(written):
    def train():
        with Hook(written.root) as hook:
            hook.save_tensor("x", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert written.steps() == [0]
    assert written.ended


def test_stop_file_raises_once(written):
    with Hook(written.root) as hook:
        hook.save_tensor("x", 1)
        hook.step()
        request_stop(written.root, by="ExplodingTensor", reason="NaN", step=0)
        assert hook.stop_requested is not None
        with pytest.raises(TrainingStopped, match="ExplodingTensor at step 0: NaN"):
            hook.save_tensor("x", 2)
        hook.save_tensor("x", 3)
    assert written.steps() == [0, 1]
    assert written.value("x", 1).tolist() == [3]


def test_dry_run_writes_nothing(written):
    with Hook(written.root, dry_run=True, export_tensorboard=True) as hook:
        assert hook.should_save_step()
        hook.save_tensor("x", 1)
        hook.save_scalar("y", 1)
        hook.step()
    assert not written.root.exists()


def test_saving_after_close_is_ignored(written):
    hook = Hook(written.root)
    hook.save_tensor("x", 1)
    hook.close()
    hook.close()
    hook.save_tensor("x", 2)
    hook.step()
    assert written.steps() == [0]


def test_all_steps_are_visible_after_flush(written):
    hook = Hook(written.root)
    for i in range(20):
        hook.save_tensor("x", np.full(1000, i))
        hook.step()
    hook.flush()
    assert written.steps() == list(range(20))
    assert not written.ended
    hook.close()
    assert written.ended


DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="<"),
    hnp.unsigned_integer_dtypes(endianness="<"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="<", sizes=(64, 128)),
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_values_round_trip_unchanged(tmp_path_factory, data):
    arrays = data.draw(
        st.lists(
            hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)), min_size=1, max_size=4
        )
    )
    root = tmp_path_factory.mktemp("run")
    with Hook(root) as hook:
        for i, array in enumerate(arrays):
            view = array[..., ::-1] if array.ndim else array
            hook.save_tensor(f"{i}", view)
    read = Written(root)
    for i, array in enumerate(arrays):
        expected = array[..., ::-1] if array.ndim else array
        found = read.value(f"{i}", 0)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype.newbyteorder("=")
        assert found.tobytes() == np.ascontiguousarray(expected.astype(expected.dtype.newbyteorder("<"))).tobytes()


def test_bfloat16_round_trip(written):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1.5, -2.0, np.inf], ml_dtypes.bfloat16)
    with Hook(written.root) as hook:
        hook.save_tensor("x", values)
    assert written.value("x", 0).dtype == values.dtype
    assert written.value("x", 0).tobytes() == values.tobytes()


def test_string_arrays_of_any_rank(written):
    text = np.array([["a", "bé"], ["", "日本"]])
    with Hook(written.root) as hook:
        hook.save_tensor("text", text)
        hook.save_tensor("one", "word")
        hook.save_tensor("bytes", np.array([b"ab", b"c"]))
    assert written.value("text", 0).tolist() == text.tolist()
    assert written.value("one", 0).tolist() == ["word"]
    assert written.value("bytes", 0).tolist() == ["ab", "c"]


def test_collection_file_contains_the_effective_configuration(written):
    with Hook(written.root, include_regex=["relu"], save_config=SaveConfig(save_interval=7)) as hook:
        hook.get_collection("mine").include("^m")
        hook.step()
    collections = written.collections()
    assert collections["default"]["include_regex"] == ["relu"]
    assert collections["mine"]["save_config"]["TRAIN"]["save_interval"] == 7
    assert collections["mine"]["reduction_config"] == {"save_raw_tensor": True, "reductions": "", "save_shape": False}
    assert json.loads((written.root / "collections/000000000/worker_0_collections.json").read_text())["_meta"] == {
        "num_workers": 1
    }


def test_invalid_arguments_raise_in_constructor(written):
    for arguments in (
        {"out_dir": None},
        {"include_workers": "some"},
        {"reduction_config": {"reductions": "min"}},
        {"save_config": 5},
        {"out_dir": b"bytes"},
        {"overwrite": True, "resume": True},
    ):
        with pytest.raises((SMDebugTypeError, SMDebugValueError)):
            Hook(**{"out_dir": written.root, **arguments})
    hook = Hook(written.root, overwrite=True, include_regex="(")
    with pytest.raises(SMDebugValueError, match="regular"):
        hook.step()
    hook.close()


def test_hook_of_checks_only_captures_nothing(tmp_path):
    saving = []
    for checks_only in (None, 10**6):
        with Hook(tmp_path / str(checks_only), dry_run=True, checks_only=checks_only) as hook:
            for _ in range(2):
                hook.save_tensor("w", np.ones(3), "weights")
                saving.append(bool(hook.parts.plan.saving))
                hook.step()
    assert saving == [True, True, False, False]
