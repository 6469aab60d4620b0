"""Measure refreshing a live run and reading single values.

A new step is read in a long and in a short run; a value of one step, and of a run with very many steps.

Usage: python tests/benchmarks/bench_trial.py

CPU seconds, medians. smdebug sees the same new steps in a separate process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import report
from clock import best, once
from growing import Growing
from run import PEERS, Row, ask

from smdwidgets import create_trial
from smdwidgets._core import StepWriter
from smdwidgets.config import CollectionManager

SHORT, LONG, VERY_LONG = 100, 10_000, 30_000
ROUNDS = 100
COLD_FILES, COLD_TENSORS, COLD_VALUES = 100, 300, 5_000


def template(root: Path) -> Path:
    """Write one step of two small tensors."""
    CollectionManager(create_default=True).export(root, "worker_0_collections.json")
    with StepWriter(root, 0) as step:
        step.tensor("weight", np.arange(64, dtype=np.float32))
        step.tensor("loss", np.float32(0.5))
    return root


def refresh(folder: Path, made_of: Path) -> list[Row]:
    """Measure one new step in a long and in a short run, alternating."""
    runs = [Growing(folder / str(steps), made_of, steps) for steps in (SHORT, LONG)]
    # Recently written directories are listed again, as their times are too coarse to trust; those of a long run are
    # older.
    time.sleep(3)
    trials = [create_trial(run.root, lazy=False) for run in runs]
    taken: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for run, trial, times in zip(runs, trials, taken, strict=True):
            step = run.grow()
            times.append(once(trial.refresh_data)[0])
            assert trial.has_passed_step(step).name == "AVAILABLE"
    short, long = map(statistics.median, taken)
    theirs = [ask(PEERS, "peer_trial.py", str(made_of), str(steps))["refresh"] for steps in (SHORT, LONG)]
    what = f"one new step in a run of {LONG:,}"
    return [
        Row(what, micros(long), f"ours in a run of {SHORT}: {micros(short)}", f"{long / short:.2f}x the time", "<= 2x", long <= 2 * short),
        Row(what, micros(long), f"smdebug: {micros(theirs[1])}", f"{theirs[1] / long:.0f}x faster", "", True),
        Row(f"one new step in a run of {SHORT}", micros(short), f"smdebug: {micros(theirs[0])}", f"{theirs[0] / short:.0f}x faster", "", True),
    ]  # fmt: skip


def value(folder: Path, made_of: Path) -> list[Row]:
    """Compare `Tensor.value` with the call into the core that it makes."""
    trial = create_trial(Growing(folder / "value", made_of, SHORT).root)
    weight, get, steps = trial.tensor("weight"), trial.reader.run.getter(), trial.steps()

    def through_python() -> None:
        for step in steps:
            weight.value(step)

    def core_alone() -> None:
        for step in steps:
            get("weight", step, None)

    ours, core = (seconds / len(steps) for seconds in best([through_python, core_alone], 200))
    added = f"{(ours - core) * 1e9:.0f} ns on top"
    return [
        Row(
            "tensor.value(step)",
            micros(ours),
            f"the call into the core: {micros(core)}",
            added,
            "<= 1 µs",
            ours - core <= 1e-6,
        )
    ]


def random_access(folder: Path, made_of: Path) -> list[Row]:
    """Measure opening a run of very many steps and reading its last value."""
    root = Growing(folder / "very long", made_of, VERY_LONG).root

    def last(lazy: bool | None) -> float:
        def work() -> None:
            trial = create_trial(root, lazy=lazy)
            assert trial.tensor("weight").value(trial.steps()[-1]).size == 64

        return min(once(work)[1] for _ in range(3))

    lazily, eagerly = last(None), last(False)
    what = f"open a run of {VERY_LONG:,} steps, read the last"
    return [
        Row(
            what,
            f"{lazily * 1e3:.0f} ms",
            f"reading all index files: {eagerly * 1e3:.0f} ms",
            f"{eagerly / lazily:.1f}x faster",
            "",
            lazily < eagerly,
        )
    ]


def cold(folder: Path) -> list[Row]:
    """Measure values that are asked for at random and for the first time, each once."""
    root = folder / "cold"
    names = [f"layer{layer}/weight" for layer in range(COLD_TENSORS)]
    CollectionManager(create_default=True).export(root, "worker_0_collections.json")
    values = np.random.default_rng(0).normal(size=(COLD_TENSORS, 64)).astype(np.float32)
    for step in range(COLD_FILES):
        with StepWriter(root, step) as writer:
            for name, array in zip(names, values, strict=True):
                writer.tensor(name, array + np.float32(step))
    asked = [(name, step) for step in range(COLD_FILES) for name in names]
    np.random.default_rng(1).shuffle(asked)  # type: ignore[arg-type]
    asked = [(str(name), int(step)) for name, step in asked[:COLD_VALUES]]
    (root / "asked.json").write_text(json.dumps(asked))
    taken: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(5):
        trial = create_trial(root, lazy=False)
        tensors = {name: trial.tensor(name) for name in names}

        def ours(tensors: dict[str, Any] = tensors) -> None:
            for name, step in asked:
                tensors[name].value(step)

        index = trial.reader.run.index
        places = []
        for name, step in asked:
            entry = index.find(name, step, None)
            assert entry is not None
            places.append((entry.event_key, entry.offset, entry.length))
        files = {key: os.open(root / key, os.O_RDONLY) for key in {key for key, _, _ in places}}

        def bare(files: dict[str, int] = files, places: list[tuple[str, int, int]] = places) -> None:
            for key, offset, length in places:
                np.frombuffer(os.pread(files[key], length, offset), np.uint8)

        for what, work in (("ours", ours), ("bare", bare)):
            taken[what].append(once(work)[0] / len(asked))
        for file in files.values():
            os.close(file)
    mine, least = min(taken["ours"]), min(taken["bare"])
    theirs = min(ask(PEERS, "peer_cold.py", str(root))["seconds"] for _ in range(3))
    what = f"one value of 64 floats, for the first time, of {COLD_FILES} files"
    return [
        Row(what, micros(mine), f"smdebug: {micros(theirs)}", f"{theirs / mine:.1f}x faster", ">= 25x", theirs >= 25 * mine),
        Row(what, micros(mine), f"os.pread + frombuffer of an open file: {micros(least)}", f"{mine / least:.2f}x the time", "<= 3x", mine <= 3 * least),
    ]  # fmt: skip


def micros(seconds: float) -> str:
    """Format seconds for readers."""
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    options = asked.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        made_of = template(Path(name) / "template")
        parts = [lambda folder, part=part: part(folder, made_of) for part in (refresh, value, random_access)]
        for part in [*parts, cold]:
            for row in part(Path(name)):
                rows.append(row)
                print("  ".join(row.cells()), flush=True)
    if not options.dry:
        head = ["what", "ours", "peer", "ratio", "target", "met"]
        body = "`python tests/benchmarks/bench_trial.py`. CPU seconds (wall where runs are opened), medians; runs in the page cache.\n\n"
        report.write_section("Live and long runs", body + report.table(head, [row.cells() for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
