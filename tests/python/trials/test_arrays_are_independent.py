"""Returned arrays are independent: modifying one changes no later result."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from PIL import Image

from python.logs.logs import event, log, scalars, strings, tensor, value, writer
from python.trials import runs
from python.trials.overwriting import WRITES, arrays_in, check_writes_do_not_reach
from smdwidgets import Collection, Trial, create_trial, explore, modes
from smdwidgets.exceptions import NoMoreData
from smdwidgets.pictures import TensorView, pack, unpack
from smdwidgets.rules import Rule, invoke_rule
from smdwidgets.storage import LocalStorage, Range
from smdwidgets.trials import TensorBoardTrial
from smdwidgets.trials.smdebug.run import StorageRun

#: Bytes of a value: in the first and the second cache class, at their limits, and never cached.
SIZES = {"tiny": 4, "small": 256, "4 KiB": 4096, "64 KiB": 65536, "100 kB": 100_000, "1 MB": 1 << 20, "8 MB": 8 << 20}
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16,
)  # fmt: skip


class MemoryStorage(LocalStorage):
    """A run whose files are in memory: every read returns the same bytes objects."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._parts: dict[Range, bytes] = {}

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes]:
        for wanted in ranges:
            if wanted not in self._parts:
                [self._parts[wanted]] = super().read_ranges([wanted])
        return [self._parts[wanted] for wanted in ranges]


def _local(path: Path) -> Trial:
    return create_trial(path)


def _in_memory(path: Path) -> Trial:
    return Trial(StorageRun(MemoryStorage(path)), "memory")


OPENED = {"local": _local, "in memory": _in_memory}


@pytest.fixture(params=OPENED)
def opened(request: pytest.FixtureRequest) -> Callable[[Path], Trial]:
    """Open a run from files, or through a storage that returns the same bytes objects."""
    return OPENED[request.param]


@pytest.mark.parametrize("size", SIZES)
def test_values_of_every_size(tmp_path: Path, opened: Callable[[Path], Trial], size: str) -> None:
    count = SIZES[size] // 4
    path = runs.run(tmp_path, range(2), values={"w": np.arange(1, count + 1, dtype=np.float32)})
    trial = opened(path)
    weight = trial.tensor("w")
    check_writes_do_not_reach(lambda: weight.value(1))
    check_writes_do_not_reach(lambda: weight.value(1, copy=True), ["ctypes"])
    check_writes_do_not_reach(lambda: weight.passing().value(1), ["ctypes"])
    check_writes_do_not_reach(lambda: [weight.value(1), weight.passing().value(1), weight.value(1, copy=True)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3), (1,) * 32])
def test_values_of_every_dtype_and_rank(
    tmp_path: Path, opened: Callable[[Path], Trial], dtype: Any, shape: tuple[int, ...]
) -> None:
    path = runs.run(tmp_path, [0], values={"w": np.ones(shape, dtype)})
    trial = opened(path)
    check_writes_do_not_reach(lambda: trial.tensor("w").value(0))
    check_writes_do_not_reach(lambda: trial.values(["w"])["value"], ["ctypes"])
    # CPython shares bytes objects of length 1: the memory of a value must not be one of them.
    assert bytes([1]) == b"\x01"
    assert b"\x01"[0] == 1


@pytest.mark.parametrize("text", [np.array("one"), np.array([["a", "bc"], ["", "日本"]]), np.array(["x" * 5000] * 3)])
def test_strings(tmp_path: Path, opened: Callable[[Path], Trial], text: Any) -> None:
    trial = opened(runs.run(tmp_path, [0], values={"t": text}))
    check_writes_do_not_reach(lambda: trial.tensor("t").value(0))
    check_writes_do_not_reach(lambda: trial.values(["t"])["value"], ["ctypes"])


def test_strings_too_wide_for_padding(tmp_path: Path, opened: Callable[[Path], Trial]) -> None:
    text = np.array(["x" * (1 << 20), *["y"] * 40], dtype=object)
    trial = opened(runs.run(tmp_path, [0], values={"t": text}))
    assert trial.tensor("t").value(0).dtype == object
    check_writes_do_not_reach(lambda: trial.tensor("t").value(0))


def run_of_everything(path: Path) -> Path:
    """An ended run with two workers, modes, saved reductions, labels and predictions."""
    runs.collections(path, workers=2, given=[Collection("inputs", include_regex=["input"])])
    rng = np.random.default_rng(0)
    for step in range(4):
        mode = modes.EVAL if step % 2 else modes.TRAIN
        for worker in ("worker_0", "worker_1"):
            values = {
                "w": rng.normal(size=(30, 20)).astype(np.float32) + 9,
                "loss": np.float32(step + 1),
                "input_0": rng.normal(size=(3, 4)) + 9,
                "labels_0": np.arange(1, 6),
                "predictions_0": np.arange(1, 6),
                "odd": np.arange(1, step + 2),
            }
            runs.step(path, step, values, worker, mode, step // 2)
    return runs.end(path)


QUESTIONS: dict[str, Callable[[Trial], Any]] = {
    "value": lambda trial: trial.tensor("w").value(2),
    "value of a mode and a worker": lambda trial: trial.tensor("w").value(1, "eval", "worker_1"),
    "value with copy=True": lambda trial: trial.tensor("w").value(2, copy=True),
    "Tensor.values": lambda trial: trial.tensor("w").values(),
    "Trial.values of one kind": lambda trial: trial.values(["w"], worker="*"),
    "Trial.values of several kinds": lambda trial: trial.values(["w", "odd", "loss"]),
    "Trial.reductions": lambda trial: trial.reductions(worker="*", counts=True),
    "inputs": lambda trial: trial.inputs(2),
    "labels": lambda trial: trial.labels(2),
    "predictions": lambda trial: trial.predictions(2),
    "TensorView.value": lambda trial: TensorView(trial, "w").value(2),
    "TensorView.numbers": lambda trial: TensorView(trial, "w", "worker_1").numbers(2),
    "TensorView.reductions": lambda trial: TensorView(trial, "w").reductions([0, 2], ["min"]),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_all_public_methods_that_return_arrays(tmp_path: Path, opened: Callable[[Path], Trial], question: str) -> None:
    trial = opened(run_of_everything(tmp_path))
    check_writes_do_not_reach(lambda: QUESTIONS[question](trial))


@pytest.mark.parametrize("written", QUESTIONS)
def test_modifying_a_result_changes_no_other(tmp_path: Path, opened: Callable[[Path], Trial], written: str) -> None:
    trial = opened(run_of_everything(tmp_path))
    before = {name: [array.copy() for array in arrays_in(ask(trial))] for name, ask in QUESTIONS.items()}
    for array in arrays_in(QUESTIONS[written](trial)):
        WRITES["ctypes"](array)
    for name, ask in QUESTIONS.items():
        for array, expected in zip(arrays_in(ask(trial)), before[name], strict=True):
            np.testing.assert_array_equal(array, expected, err_msg=name)


def test_saved_reductions(golden_runs: Path) -> None:
    trial = create_trial(golden_runs / "pt_reductions" / "run")
    name = next(name for name in trial.tensor_names() if trial.tensor(name).reduction_values(trial.steps()[0]))
    saved = trial.tensor(name).reduction_values(trial.steps()[0])
    for array in arrays_in(saved):
        WRITES["ctypes"](array)
    again = create_trial(golden_runs / "pt_reductions" / "run").tensor(name).reduction_values(trial.steps()[0])
    assert trial.tensor(name).reduction_values(trial.steps()[0]) == again


def test_widget_returns_independent_values(tmp_path: Path) -> None:
    explorer = explore(run_of_everything(tmp_path), tensor="w")
    check_writes_do_not_reach(explorer.value)
    values = explorer.trial.tensor("w").value(3).copy()
    WRITES["ctypes"](explorer.value())
    np.testing.assert_array_equal(explorer.trial.tensor("w").value(3), values)
    explorer.close()


class Overwriting(Rule):
    """Overwrites each tensor that it reads; fires if one was overwritten before."""

    def invoke_at_step(self, step: int) -> bool:
        for name in self.base_trial.tensor_names(step=step):
            saved = self.base_trial.tensor(name)
            for array in (saved.value(step), saved.value(step)):
                if not array.all():
                    self.blame(name, step)
                for write in WRITES.values():
                    write(array)
        return bool(self.findings)


def test_rule_cannot_change_values_of_others(tmp_path: Path) -> None:
    trial = create_trial(run_of_everything(tmp_path))
    for _ in range(2):
        with pytest.raises(NoMoreData):
            invoke_rule(Overwriting(trial), raise_eval_cond=True)
    assert trial.tensor("w").value(2).all()


def test_unpacked_frames_are_independent_of_their_packet() -> None:
    packet = pack({"kind": "series"}, {"y": np.arange(1.0, 9.0), "codes": np.array([1], np.uint8)})
    check_writes_do_not_reach(lambda: unpack(packet)[1])


def sound() -> bytes:
    """A WAV file of three samples."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.array([1, 2, 3], "<i2").tobytes())
    return out.getvalue()


def log_of_everything(path: Path) -> Path:
    """A log with values of every kind, as written by tensorboardX and TensorFlow 2."""
    rng = np.random.default_rng(0)
    png = io.BytesIO()
    Image.fromarray(rng.integers(1, 255, (6, 5), dtype=np.uint8)).save(png, "PNG")
    jpeg = io.BytesIO()
    Image.fromarray(rng.integers(1, 255, (6, 5, 3), dtype=np.uint8)).save(jpeg, "JPEG")
    with writer(path) as out:
        for step in range(3):
            out.add_scalar("loss", 1 / (step + 1), step)
            out.add_histogram("histogram", rng.normal(size=500), step)
            out.add_image("image", rng.integers(1, 255, (3, 9, 7), dtype=np.uint8), step)
            out.add_text("text", f"step {step}", step)
            out.add_pr_curve("curve", rng.integers(0, 2, 50), rng.random(50), step)
    for step in range(3):
        log(path, event(value("kernel", tensor(rng.random((4, 3)) + 1, 2), "histograms"), step))
        log(path, event(value("large", tensor(rng.normal(size=(400, 400)), 2), "mine"), step))
        log(path, event(value("flag", tensor(np.array([True]), 10), "mine"), step))
        log(path, event(value("picture", strings(b"5", b"6", png.getvalue()), "images"), step))
        log(path, event(value("jpeg", strings(b"5", b"6", jpeg.getvalue()), "images"), step))
        log(path, event(value("sound", strings(sound()), "audio"), step))
        log(path, event(value("other sound", strings(b"\x01"), "audio"), step))
    return path


LOG_QUESTIONS: dict[str, Callable[[TensorBoardTrial], Any]] = {
    "Tensor.value": lambda trial: [trial.tensor(name).value(1) for name in trial.tensor_names()],
    "Tensor.values": lambda trial: [trial.tensor(name).values() for name in trial.tensor_names()],
    "Trial.values of all": lambda trial: trial.values(),
    "Trial.values of each": lambda trial: [trial.values(name) for name in trial.tensor_names()],
    "Trial.reductions": lambda trial: trial.reductions(["loss", "large"]),
    "scalars": lambda trial: trial.scalars(),
    "histograms": lambda trial: trial.histograms(),
    "event": lambda trial: [
        [found.value, found.buckets]
        for name in trial.tensor_names()
        if name != "loss"
        for found in [trial.event(name, 1), *trial.events(name).values()]
    ],
    "TensorView.value": lambda trial: [TensorView(trial, name).value(1) for name in trial.tensor_names()],
}


@pytest.mark.parametrize("kept", ["on disk", "held", "in memory"])
@pytest.mark.parametrize("question", LOG_QUESTIONS)
def test_all_public_methods_of_logs_that_return_arrays(tmp_path: Path, question: str, kept: str) -> None:
    path = log_of_everything(tmp_path)
    options: dict[str, Any] = {"storage": MemoryStorage(path)} if kept == "in memory" else {"dirname": path}
    with TensorBoardTrial(hold=kept == "held", **options) as trial:
        check_writes_do_not_reach(lambda: LOG_QUESTIONS[question](trial))


def test_superseded_values_of_a_log(tmp_path: Path) -> None:
    path = log(tmp_path, scalars({"loss": [1, 2, 3, 4]}))
    log(path, scalars({"loss": [9]}, first=1))
    with TensorBoardTrial(dirname=path) as trial:
        assert trial.orphans("loss").num_rows
        check_writes_do_not_reach(lambda: trial.orphans("loss"))


def test_event_returns_independent_arrays(tmp_path: Path) -> None:
    path = log_of_everything(tmp_path)
    with TensorBoardTrial(dirname=path) as trial:
        for name in ("large", "flag", "histogram", "sound"):
            found = trial.event(name, 1)
            check_writes_do_not_reach(lambda found=found: [found.value, found.buckets])
