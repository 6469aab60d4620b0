"""Time smdwidgets in a separate process: `python ours.py WHAT RUN`.

Prints one JSON object.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np
from clock import best, print_result, rounds

from smdwidgets import create_trial
from smdwidgets._core import Catalog, Files, sweep, verify
from smdwidgets.trials.run import Selection, SweepOptions

SMALL = 2000


def open_run(run: str) -> dict[str, float]:
    """Open a run and list names and locations of all tensors."""

    def once() -> None:
        trial = create_trial(run)
        assert trial.tensor_names()
        assert trial.steps()

    return rounds(once, 5)


def small_value(run: str) -> dict[str, float]:
    """Read one value of a few floats, and the minimum in Python for comparison.

    The minimum is a dict lookup, frombuffer and reshape.
    """
    trial = create_trial(run)
    names, steps = trial.tensor_names()[:20], trial.steps()
    tensors = [trial.tensor(name) for name in names]
    pairs = [(tensor, step) for step in steps for tensor in tensors]
    raw = {(tensor.name, step): tensor.value(step).tobytes() for tensor, step in pairs}
    dtype, shape = tensors[0].value(steps[0]).dtype, tensors[0].value(steps[0]).shape

    def ours() -> None:
        for tensor, step in pairs:
            tensor.value(step)

    def floor() -> None:
        for tensor, step in pairs:
            np.frombuffer(raw[tensor.name, step], dtype).reshape(shape)

    # Alternating, so that both see the same load.
    return {"value": best([ours, floor], 30)[0] / len(pairs), "floor": best([ours, floor], 30)[1] / len(pairs)}


def large_value(run: str) -> dict[str, float]:
    """Read one value of a million floats: first, when its file is opened, and again."""
    trial = create_trial(run)
    tensors, steps = [trial.tensor(name) for name in trial.tensor_names()], trial.steps()
    count = len(tensors) * len(steps)

    def all_values() -> None:
        for step in steps:
            for tensor in tensors:
                tensor.value(step)

    # Each of these happens only once, so each is timed alone.
    first = []
    for step in steps:
        for tensor in tensors:
            began = time.thread_time_ns()
            tensor.value(step)
            first.append((time.thread_time_ns() - began) / 1e9)
    return {"first": statistics.median(first), "again": rounds(all_values, 20)["cpu"] / count}


def reductions(run: str) -> dict[str, float]:
    """Compute all 18 reductions of every tensor at every step."""
    trial = create_trial(run)
    trial.tensor_names()
    return rounds(lambda: trial.reductions(worker="*"), 3)


def tensor_statistics(run: str) -> dict[str, float]:
    """Compute all statistics of every tensor at every step.

    ``one`` and ``two`` are CPU seconds by so many threads, ``memory`` the peak of one thread in MB.
    """
    trial = create_trial(run)
    names = trial.tensor_names()

    def once(threads: int) -> None:
        trial.reader.run.statistics(Selection(names, workers=[]), SweepOptions(threads))

    once(1)  # what the result itself takes is in memory
    before = _resident()
    _forget_peak()
    once(1)
    peak = _peak() - before
    return {"one": rounds(lambda: once(1), 7)["cpu"], "two": rounds(lambda: once(2), 7)["cpu"], "memory": peak / 1e6}


def bare_reads(run: str) -> dict[str, float]:
    """Read all event files into one buffer of 256 KB: the limit of any reader."""
    files = sorted(Path(run, "events").rglob("*.tfevents"))
    buffer = bytearray(256 << 10)

    def once() -> None:
        for file in files:
            with file.open("rb", buffering=0) as content:
                while content.readinto(buffer):
                    pass

    return rounds(once, 7)


def numpy_reductions(run: str) -> dict[str, float]:
    """Compute the 18 reductions with numpy on arrays in memory, per array."""
    array = np.random.default_rng(0).standard_normal(1_000_000, dtype=np.float32)

    def once() -> None:
        for values in (array, np.abs(array)):
            values.min(), values.max(), values.mean(), values.prod(), values.std(), values.sum(), values.var()
            np.linalg.norm(values, 1), np.linalg.norm(values, 2)

    return rounds(once, 40)


def check(run: str) -> dict[str, float]:
    """Verify every record's checksum."""
    catalog, files = Catalog(), Files(run)
    catalog.list_local(run)
    catalog.load_local(run)

    def once() -> None:
        found = verify(catalog, files)
        assert not found["errors"]
        assert found["footer_crc"] == found["records"] > 0

    return rounds(once, 5)


def memory(run: str) -> dict[str, float]:
    """Measure the peak memory of a sweep beyond that of the import, in MB.

    It is measured over the run, and over a plan ten times as long.
    """
    catalog, files = Catalog(), Files(run)
    catalog.list_local(run)
    catalog.load_local(run)
    names = catalog.names()
    before = _peak()
    sweep(catalog, files, names, reductions=["mean"])
    once = _peak() - before
    _forget_peak()
    sweep(catalog, files, names * 10, reductions=["mean"])
    return {"once": once / 1e6, "ten": (_peak() - before) / 1e6}


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    what = {
        "open": open_run,
        "small": small_value,
        "large": large_value,
        "reductions": reductions,
        "statistics": tensor_statistics,
        "reads": bare_reads,
        "numpy": numpy_reductions,
        "check": check,
        "memory": memory,
    }
    print_result(what[sys.argv[1]](sys.argv[2]))
