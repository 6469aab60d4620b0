"""Measure long runs: memory for each step, opening, sliding, refreshing.

Memory is what the allocator has handed out (`mallinfo2` of glibc), over a doubling of the run's length, so that no
vector's spare capacity counts twice. What has a fixed limit does not count: the cache of values is emptied, that of the
rules is small and full, and the loss falls, because a rule keeps its latest 1,000 firings. Times are CPU seconds.

Usage: python tests/benchmarks/bench_long_runs.py [--scale 0.1]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import report

import smdwidgets
from smdwidgets import _core
from smdwidgets.rules import RuleRunner, measurements

RULES = {
    "VanishingGradient": {}, "ExplodingTensor": {"tensor_regex": "weight"}, "LossNotDecreasing": {},
    "WeightUpdateRatio": {}, "AllZero": {"tensor_regex": "relu"}, "DeadRelu": {},
    "TensorVariance": {"tensor_regex": "weight"}, "UnchangedTensor": {"tensor_regex": "weight"},
    "GradientNormSpike": {}, "LossSpike": {},
}  # fmt: skip
COLLECTIONS = {
    "weights": "fc1.weight", "gradients": "gradient/fc1.weight", "relu_activations": "relu1_output_0", "losses": "loss_0",
}  # fmt: skip
_ALLOCATED = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Allocated(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _ALLOCATED]


def held() -> int:
    """Return the bytes that are allocated."""
    gc.collect()
    library = ctypes.CDLL("libc.so.6")
    library.mallinfo2.restype = _Allocated
    found = library.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def collections(root: Path, members: dict[str, list[str]]) -> None:
    """Write the collections of a run."""
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True)
    empty = {"include_regex": [], "reduction_config": None, "save_config": None, "save_histogram": True}
    found = {name: {"name": name, "tensor_names": names, **empty} for name, names in members.items()}
    content = {"collections": found, "_meta": {"num_workers": 1}}
    (folder / "worker_0_collections.json").write_text(json.dumps(content))


def write(root: Path, steps: range) -> None:
    """Write steps of four small tensors."""
    random = np.random.default_rng(steps.start)
    for step in steps:
        with _core.StepWriter(root, step=step, worker="worker_0", mode=1) as writer:
            for name in COLLECTIONS.values():
                value = np.array([0.99**step]) if name == "loss_0" else random.normal(size=(4, 4))
                writer.tensor(name, value.astype(np.float32))


def memory(steps: int, rules: bool) -> None:
    """Print the bytes that each step of a live run takes, with ten rules or without."""
    measurements.CACHED_STEPS = 500
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        collections(root, {name: [tensor] for name, tensor in COLLECTIONS.items()})
        write(root, range(steps))
        trial = smdwidgets.create_trial(folder)
        # Full at the beginning.
        measurements.measurements_of(trial)._cache_bytes = 1 << 20
        runner = RuleRunner(trial)
        for name, parameters in RULES.items() if rules else ():
            runner.add(name, **parameters)
        runner.start()
        found = []
        for end in (steps, 2 * steps, 4 * steps):
            for first in range(end // 2 if end > steps else 0, end, steps):
                if end > steps:
                    write(root, range(first, first + steps))
                trial.refresh_data()
                trial.steps()
                runner.catch_up()
            assert all(evaluation.done == end for evaluation in runner), "a rule is behind"
            trial.reader.run.files.release()
            # A poll of the runner holds a list of all steps for a moment.
            found.append(min(held() for _ in range(50)))
        runner.stop()
    print("RESULT", json.dumps({"memory": (found[2] - found[1]) / (2 * steps)}))


def cpu(work: Callable[[], object]) -> float:
    """Return CPU seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def scalars(path: Path, steps: range) -> None:
    """Append 20 scalars of each step to a log."""
    with path.open("ab") as out:
        for step in steps:
            out.write(
                b"".join(_core.scalar_record(f"m/{tag:02d}", step, 1.7e9 + step, step / (tag + 1)) for tag in range(20))
            )


def tensors(root: Path, steps: range) -> None:
    """Write steps of 300 small tensors."""
    value = np.arange(2, dtype=np.float32)
    for step in steps:
        with _core.StepWriter(root, step=step, worker="worker_0", mode=1) as writer:
            for number in range(300):
                writer.tensor(f"layer{number}.weight", value + step)


def use(root: Path, steps: int, name: str, more: Callable[[range], None]) -> dict[str, float]:
    """Return CPU seconds of opening a run, of a slider movement, of a refresh."""
    kept = []

    def first() -> None:
        kept.append(smdwidgets.create_trial(str(root)))
        kept[0].tensor(name).value(steps - 1)

    opening = cpu(first)
    trial = kept[0]
    tensor = trial.tensor(name)
    some = np.random.default_rng(0).integers(0, steps, 1000).tolist()
    sliding = cpu(lambda: [tensor.value(step) for step in some]) / len(some)
    times = []
    for step in range(steps, steps + 20):
        more(range(step, step + 1))
        times.append(cpu(trial.refresh_data))
    assert trial.tensor(name).value(steps + 19) is not None
    return {"opening": opening, "sliding": sliding, "refreshing": min(times)}


def memory_row(what: str, arguments: list[str]) -> list[str]:
    """Return the row of the memory of a step, measured in a separate process."""
    command = [sys.executable, __file__, "--memory", "2000", *arguments]
    environment = {**os.environ, "PYTHONMALLOC": "malloc"}  # all memory comes from one allocator
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    bytes_a_step = json.loads(done.stdout.split("RESULT ")[1])["memory"]
    target = ["<= 250", "yes" if bytes_a_step <= 250 else "**no**"] if arguments else ["", ""]
    row = [f"memory for each step of a live run, {what}", f"{bytes_a_step:.0f} bytes", *target]
    print(*row, flush=True)
    return row


def main() -> None:
    """Print the table and write it."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--scale", type=float, default=1.0, help="share of the steps that are written")
    asked.add_argument("--memory", type=int, help="only print the memory of a run of so many steps")
    asked.add_argument("--rules", action="store_true", help="with ten rules")
    options = asked.parse_args()
    if options.memory:
        memory(options.memory, options.rules)
        return
    rows = [
        memory_row("4 tensors, no rules", []),
        memory_row("4 tensors, 10 rules that find nothing, without cached values", ["--rules"]),
    ]
    logged, saved = int(1_000_000 * options.scale), int(100_000 * options.scale)
    with tempfile.TemporaryDirectory() as folder:
        log, run = Path(folder, "log"), Path(folder, "run")
        log.mkdir()
        file = log / "events.out.tfevents.1.long"
        file.write_bytes(_core.version_record(1.0))
        scalars(file, range(logged))
        collections(run, {"weights": [f"layer{number}.weight" for number in range(300)]})
        tensors(run, range(saved))
        for what, root, steps, name, more in (
            (f"a log of {logged:,} steps x 20 scalars", log, logged, "m/03", lambda new: scalars(file, new)),
            (f"a run of {saved:,} steps x 300 tensors", run, saved, "layer3.weight", lambda new: tensors(run, new)),
        ):
            for doing, seconds in use(root, steps, name, more).items():
                shown = f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"
                rows.append([f"{what}: {doing}", shown, "", ""])
                print(*rows[-1], flush=True)
    body = (
        "`python tests/benchmarks/bench_long_runs.py`. CPU seconds. Opening: until the last value of a tensor is read; sliding: "
        "the value at another step; refreshing: after one more step.\n\n"
        + report.table(["what", "measured", "target", "met"], rows)
    )
    report.write_section("Long runs", body)


if __name__ == "__main__":
    main()
