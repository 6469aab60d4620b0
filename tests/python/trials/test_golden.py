"""Every golden run gives the same results as in smdebug.

Where smdebug is wrong, the correct result is asserted.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python.trials import golden
from smdwidgets import Trial, create_trial, modes
from smdwidgets.config import Collection
from smdwidgets.trials import Tensor
from smdwidgets.trials.run import REDUCTIONS

MODES = [mode.name for mode in modes]
#: smdebug fails with these; the correct results are asserted below or in separate tests.
BROKEN = {"KeyError", "NameError", "AttributeError", "IndexError", "UnboundLocalError"}
OPENED = sorted(set(golden.NAMES) - {"corrupt_index_empty", "corrupt_index_no_meta", "mw_missing_collections"})


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "0")
    monkeypatch.setenv("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0")


@pytest.fixture(params=OPENED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def oracle(name: str) -> dict[str, Any]:
    return golden.oracle(name)


@pytest.fixture
def trial(name: str, tmp_path: Path) -> Trial:
    return create_trial(golden.run(name, tmp_path))


def outcome(call: Callable[[], Any]) -> Any:
    """Convert a call's result to the format of the oracle."""
    try:
        return call()
    except Exception as error:
        return {"raises": type(error).__name__}


def agrees(got: Any, oracle: Any, what: str) -> None:
    """Assert that both are equal or raise the same.

    Any result is correct where smdebug failed.
    """
    if isinstance(oracle, dict) and "raises" in oracle:
        raised = got.get("raises") if isinstance(got, dict) else None
        if oracle["raises"] in BROKEN:
            assert raised not in BROKEN, what
        else:
            assert raised == oracle["raises"], f"{what}: {got} in place of {oracle}"
    else:
        assert got == oracle, what


def summary(value: Any) -> Any:
    """Convert a value to the format of the oracle."""
    if isinstance(value, dict):
        return value
    if value.dtype.kind == "U":
        return ["str", list(value.shape), hashlib.sha256(json.dumps(value.reshape(-1).tolist()).encode()).hexdigest()]
    little = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("<"), copy=False))
    return [value.dtype.name, list(value.shape), hashlib.sha256(little.tobytes()).hexdigest()]


def in_short(oracle: dict[str, Any]) -> Any:
    return oracle if "raises" in oracle else [oracle["dtype"], oracle["shape"], oracle["sha256"]]


def number(oracle: dict[str, Any]) -> float:
    return float(oracle["number"])


# ------------------------------------------------------------------------------------------------ steps, modes, names


def test_steps_modes_and_states(trial: Trial, oracle: dict[str, Any]) -> None:
    for mode in MODES:
        agrees(trial.steps(mode=modes[mode]), oracle["steps"][mode], mode)
        agrees(trial.steps(mode=modes[mode], show_incomplete_steps=True), oracle["all_steps"][mode], mode)
        for step, state in oracle["has_passed_step"][mode].items():
            got = outcome(lambda step=step, mode=mode: trial.has_passed_step(int(step), modes[mode]).name)
            agrees(got, state, f"has_passed_step({step}, {mode})")
    assert [mode.name for mode in sorted(trial.modes(), key=lambda mode: mode.name)] == oracle["modes"]
    for step, (mode, mode_step) in oracle["mode_of"].items():
        found = trial.mode(int(step))
        assert [found and found.name, trial.mode_step(int(step))] == [mode, mode_step]
    for mode, steps in oracle["global_step_of"].items():
        for mode_step, step in steps.items():
            assert trial.global_step(modes[mode], int(mode_step)) == step


def test_workers(name: str, trial: Trial, oracle: dict[str, Any]) -> None:
    # smdebug treats two underscores anywhere in the path as the name of a TensorFlow device.
    assert trial.workers() == (["worker_0"] if name == "dunder_path" else oracle["workers"])


def test_names(trial: Trial, oracle: dict[str, Any]) -> None:
    names = oracle["tensor_names"]
    assert trial.tensor_names() == names["all"]
    for mode in MODES:
        agrees(outcome(lambda mode=mode: trial.tensor_names(mode=modes[mode])), names["mode"][mode], mode)
    for mode, by_step in names["step"].items():
        for step, there in by_step.items():
            got = outcome(lambda step=step, mode=mode: trial.tensor_names(step=int(step), mode=modes[mode]))
            agrees(got, there, f"step {step} of {mode}")
    for regex, there in names["regex"].items():
        agrees(outcome(lambda regex=regex: trial.tensor_names(regex=json.loads(regex))), there, regex)
    for collection, there in names["collection"].items():
        name, _, as_object = collection.partition(" (object)")
        asked = trial.collection(name) if as_object or collection.endswith("(object)") else name
        agrees(trial.tensor_names(collection=asked), there, collection)
    agrees(outcome(lambda: trial.tensor_names(regex="a", collection="default")), names["regex and collection"], "both")
    agrees(outcome(lambda: trial.tensor_names(collection=3)), names["collection of a wrong type"], "type")  # type: ignore[arg-type]


def test_collections(trial: Trial, oracle: dict[str, Any]) -> None:
    assert set(trial.collections()) == set(oracle["collections"])
    for name, collection in trial.collections().items():
        there = oracle["collections"][name]
        assert isinstance(collection, Collection)
        assert collection.include_regex == there["include_regex"]
        assert sorted(collection.tensor_names) == there["tensor_names"]
        assert collection.save_histogram == there["save_histogram"]
        save, reduction = collection.save_config, collection.reduction_config
        assert (save and save.to_json_dict()) == there["save_config"]
        assert (reduction and reduction.to_json_dict()) == there["reduction_config"]


def test_ranges(name: str, oracle: dict[str, Any], tmp_path: Path) -> None:
    path = golden.run(name, tmp_path)
    for written, there in oracle["range_steps"].items():
        begin, end = (None if part == "None" else int(part) for part in written.split(":"))

        def ask(begin: int | None = begin, end: int | None = end) -> dict[str, Any]:
            trial = create_trial(path, range_steps=(begin, end))
            names = [mode.name for mode in trial.modes()]
            return {"steps": trial.steps(), "names": len(trial.tensor_names()), "modes": sorted(names)}

        agrees(outcome(ask), there, written)


def test_waiting(name: str, oracle: dict[str, Any], tmp_path: Path) -> None:
    path = golden.run(name, tmp_path)
    for step, there in oracle["wait_for_steps"].items():
        waited = outcome(lambda step=step: create_trial(path).wait_for_steps([int(step)]) or "ok")
        agrees(waited, there, step)


# -------------------------------------------------------------------------------------------------------------- tensors

#: Where smdebug loses or misreads a value; asserted individually below.
UNLIKE = {
    ("core_dtypes", "dtype/int8"), ("core_dtypes", "dtype/int16"), ("core_dtypes", "dtype/uint16"),
    ("core_dtypes", "dtype/uint32"), ("core_dtypes", "dtype/uint64"), ("core_dtypes", "dtype/complex64"),
    ("full_crc_events", "*"), ("corrupt_events", "*"),
    ("core_scalars_and_empty", "empty/*"), ("pt_dtypes", "empty*"), ("pt_save_shape", "CrossEntropyLoss_output_0"),
}  # fmt: skip


def unlike(run: str, tensor: str) -> bool:
    return any(
        run == there and (tensor == which or (which.endswith("*") and tensor.startswith(which[:-1])))
        for there, which in UNLIKE
    )


def test_tensors(name: str, trial: Trial, oracle: dict[str, Any]) -> None:
    for tensor_name, there in oracle["tensors"].items():
        tensor = trial.tensor(tensor_name)
        assert tensor.name == there["name"]
        for mode, steps in there["steps"].items():
            assert tensor.steps(modes[mode]) == steps
            assert tensor.steps(modes[mode], show_incomplete_steps=True) == there["all_steps"][mode]
            for asked, steps_before in there["prev_steps"][mode].items():
                step, n = asked.split(",")
                got = tensor.prev_steps(int(step), None if n == "None" else int(n), modes[mode])
                assert got == steps_before, asked
        if not unlike(name, tensor_name):
            check_values(name, tensor, there)


def check_values(run: str, tensor: Tensor, oracle: dict[str, Any]) -> None:
    for written, there in oracle["at"].items():
        step = int(written)
        what = f"{tensor.name} at {step}"
        if run != "dunder_path":
            agrees(outcome(lambda step=step: tensor.workers(step)), there["workers"], what)
        agrees(outcome(lambda step=step: summary(tensor.value(step))), in_short(there["value"]), what)
        agrees(outcome(lambda step=step: list(tensor.shape(step))), there["shape"], what)
        check_reductions(run, tensor, step, there)
        for worker, of_worker in there.get("worker", {}).items():
            assert summary(tensor.value(step, worker=worker)) == in_short(of_worker["value"])
    for mode, by_step in oracle["by_mode"].items():
        for mode_step, there in by_step.items():
            got = outcome(lambda s=mode_step, mode=mode: summary(tensor.value(int(s), modes[mode])))
            agrees(got, in_short(there["value"]), f"{tensor.name} at {mode_step} of {mode}")
    if "raises" in oracle["values"]:
        agrees(outcome(tensor.values), oracle["values"], "values")
    else:
        assert {str(step): summary(value)[2] for step, value in tensor.values().items()} == oracle["values"]
    last = (oracle["all_steps"]["GLOBAL"] or [0])[-1]
    bad = oracle["bad"]
    agrees(outcome(lambda: tensor.value(last, worker="no such worker")), bad["worker"], "worker")
    agrees(outcome(lambda: tensor.reduction_value(last, "median")), bad["reduction"], "reduction")


def check_reductions(run: str, tensor: Tensor, step: int, oracle: dict[str, Any]) -> None:
    stored = outcome(lambda: tensor.reduction_values(step))
    if "raises" in oracle["reduction_values"]:
        agrees(stored, oracle["reduction_values"], "reduction_values")
        return
    named = {("abs_" if absolute else "") + name: value for (name, absolute), value in stored.items()}
    assert set(named) == set(oracle["reduction_values"])
    for name, there in oracle["reduction_values"].items():
        assert named[name].dtype.name == there["dtype"]
        np.testing.assert_allclose(named[name].reshape(-1)[0], number(there), rtol=1e-6)
    for reduction in REDUCTIONS:
        for absolute in (False, True):
            there = oracle["reduction_value"][("abs_" if absolute else "") + reduction]
            computed = ("abs_" if absolute else "") + reduction not in named
            got = outcome(lambda r=reduction, a=absolute: tensor.reduction_value(step, r, abs=a))
            # Computed norms are over all elements; smdebug takes matrix norms of two dimensions and none of other
            # ranks. Means of integers are exact here.
            if computed and (reduction in ("l1", "l2") or (run == "core_special_values" and tensor.name == "i")):
                continue
            if "raises" in there:
                agrees(got, there, f"{reduction} of {tensor.name}")
            else:
                assert got.dtype.name == there["dtype"]
                want = number(there) if not isinstance(there["number"], list) else complex(*map(float, there["number"]))
                close = np.isclose(got, want, rtol=1e-5, atol=1e-7, equal_nan=True)
                assert close.all(), f"{reduction} of {tensor.name} at {step}: {got} in place of {want}"


# ------------------------------------------------------------------------- correct results where smdebug is wrong


def opened(name: str, tmp_path: Path) -> Trial:
    return create_trial(golden.run(name, tmp_path))


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16", "uint32", "uint64", "complex64"])
def test_dtypes_that_smdebug_writes_but_misreads(dtype: str, tmp_path: Path) -> None:
    tensor = opened("core_dtypes", tmp_path).tensor(f"dtype/{dtype}")
    assert tensor.dtype == np.dtype(dtype)
    assert tensor.value(0).dtype == np.dtype(dtype)
    assert tensor.value(0).shape == tensor.shape(0)


def test_value_and_separate_shape(tmp_path: Path) -> None:
    tensor = opened("pt_save_shape", tmp_path).tensor("CrossEntropyLoss_output_0")
    value = tensor.value(0)
    assert value.dtype == np.float32
    assert tensor.reduction_value(0, "mean") == pytest.approx(float(value.mean()))
    assert list(tensor.values()) == [0, 2, 4]


def test_tensors_without_elements(tmp_path: Path) -> None:
    trial = opened("core_scalars_and_empty", tmp_path)
    for name in trial.tensor_names(regex="^empty/"):
        tensor = trial.tensor(name)
        for step in tensor.steps():
            assert tensor.value(step).size == 0, name
            assert tensor.value(step).shape == tensor.shape(step)


def test_true_checksums(tmp_path: Path) -> None:
    trial = opened("full_crc_events", tmp_path)
    for name in trial.tensor_names():
        for step in trial.tensor(name).steps():
            assert trial.tensor(name).value(step).size


def test_damage_affects_one_value_and_is_reported(tmp_path: Path) -> None:
    from smdwidgets.exceptions import DataError

    trial = opened("corrupt_events", tmp_path)
    assert trial.steps() == list(range(7))
    good, bad = [], []
    for name in trial.tensor_names():
        for step in trial.tensor(name).steps():
            try:
                good.append(trial.tensor(name).value(step))
            except DataError as error:
                bad.append(str(error))
    assert good
    assert bad
    assert all("tfevents, byte " in message for message in bad)


def test_two_underscores_in_the_path(tmp_path: Path) -> None:
    trial = opened("dunder_path", tmp_path)
    for name in trial.tensor_names():
        assert trial.tensor(name).workers(0) == ["worker_0"]
        assert trial.tensor(name).value(0, worker="worker_0").size


def test_norms_are_over_all_elements(tmp_path: Path) -> None:
    trial = opened("core_special_values", tmp_path)
    for name in trial.tensor_names():
        value = trial.tensor(name).value(0)
        if value.dtype.kind == "f" and np.isfinite(value).all():
            want = math.sqrt(float((value.astype(np.float64) ** 2).sum()))
            assert float(trial.tensor(name).reduction_value(0, "l2")) == pytest.approx(want)


@pytest.mark.parametrize("run", ["corrupt_index_empty", "corrupt_index_no_meta"])
def test_bad_index_file_is_reported_and_can_be_skipped(run: str, tmp_path: Path) -> None:
    from smdwidgets.exceptions import IndexReaderException, TensorUnavailableForStep

    assert golden.oracle(run)["create_trial"]["raises"] == "IndexReaderException"
    with pytest.raises(IndexReaderException, match=r"000000000001_worker_0\.json.*skip_bad_index"):
        opened(run, tmp_path)
    trial = create_trial(golden.run(run, tmp_path), skip_bad_index=True)
    [(key, _)] = trial.problems()
    assert key == "index/000000000/000000000001_worker_0.json"
    x = trial.tensor(trial.tensor_names()[0])
    assert x.value(0).size
    with pytest.raises(TensorUnavailableForStep, match="index file"):
        x.value(1)


def test_missing_collection_files(tmp_path: Path) -> None:
    from smdwidgets.exceptions import MissingCollectionFiles

    assert golden.oracle("mw_missing_collections")["create_trial"]["raises"] == "MissingCollectionFiles"
    with pytest.raises(MissingCollectionFiles, match="3 of 4") as raised:
        opened("mw_missing_collections", tmp_path)
    assert (raised.value.found, raised.value.expected) == (3, 4)


def test_exceptions_have_the_same_base_classes_as_in_smdebug() -> None:
    from smdwidgets import exceptions

    for name, bases in golden.oracle("gaps")["exceptions"].items():
        mro = [base.__name__ for base in getattr(exceptions, name).__mro__]
        assert [base for base in mro if base in bases] == bases
        assert mro[1:] == bases[1:]
