"""The cost of a diagnosis: whole runs, spikes, and updates of live runs.

    python tests/benchmarks/bench_diagnosis.py

CPU seconds on one core, and their ratio to sorting as many numbers with NumPy, which tells slow machines from slow code.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from clock import once
from tensorboardX import SummaryWriter

from smdwidgets import create_trial
from smdwidgets.diagnosis import Diagnoser, diagnose
from smdwidgets.diagnosis.spikes import SpikeScan

ROUNDS = 5


def loss(count: int, seed: int) -> np.ndarray:
    """A loss that falls, with noise of a tenth; every tenth one has a few spikes."""
    random = np.random.default_rng(seed)
    values = (0.3 + 2 * np.exp(-6 * np.arange(count) / count)) * np.exp(0.1 * random.normal(size=count))
    if seed % 10 == 0:
        values[random.integers(count // 4, count, 3)] *= 5
    return values


def run_of(series: int, count: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """As many losses of training and validation."""
    return {
        f"{('train', 'val')[at % 2]}/loss_{chr(97 + at // 52)}{chr(97 + at // 2 % 26)}": (
            np.arange(count),
            loss(count, at),
        )
        for at in range(series)
    }


def median(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median CPU seconds of some calls."""
    return statistics.median(once(work)[0] for _ in range(rounds))


def row(name: str, seconds: float, points: int, target: float) -> None:
    """Print a measurement beside sorting as many numbers, and its target."""
    numbers = np.random.default_rng(0).normal(size=points)
    ratio = seconds / max(1e-9, median(lambda: np.sort(numbers), 9))
    print(f"{name:<52} {seconds * 1000:9.2f} ms  target {target * 1000:6.0f} ms  {ratio:7.1f} × sort", flush=True)


def live(series: int, count: int) -> float:
    """CPU seconds of an update after each series in memory has grown by one value."""
    whole = run_of(series, count + 2 * ROUNDS)
    run = {name: (steps[:count], values[:count]) for name, (steps, values) in whole.items()}
    diagnoser = Diagnoser(run)
    diagnoser.update()
    taken = []
    for end in range(count + 1, count + 2 * ROUNDS):
        run.update({name: (steps[:end], values[:end]) for name, (steps, values) in whole.items()})
        taken.append(once(diagnoser.update)[0])
    return statistics.median(taken)


def live_log(series: int, count: int) -> float:
    """The same for a log on disk, whose new values are read and parsed."""
    whole = run_of(series, count + ROUNDS)
    with tempfile.TemporaryDirectory() as folder:

        def write(begin: int, end: int) -> None:
            # A closed writer has written everything.
            with SummaryWriter(folder, filename_suffix=f".{begin:06d}") as writer:
                for step in range(begin, end):
                    for name, (_, values) in whole.items():
                        writer.add_scalar(name, values[step], step)

        write(0, count)
        with create_trial(Path(folder), live=True) as trial:
            diagnoser = Diagnoser(trial)
            diagnoser.update()
            taken = []
            for end in range(count, count + ROUNDS):
                write(end, end + 1)
                taken.append(once(diagnoser.update)[0])
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    for series, count in ((100, 10_000), (2, 500_000)):
        run = run_of(series, count)
        row(f"diagnose {series} series × {count:,} values", median(lambda run=run: diagnose(run)), series * count, 2.0)
    values = loss(20_000, 0)
    row("spikes among 20,000 values", median(lambda: SpikeScan().update(values), 21), 20_000, 0.02)
    for count in (200, 1_000, 10_000):
        row(f"live update, 100 series of {count:,} values", live(100, count), 100 * count, 0.005)
    row("live update, log with 100 series of 1,000 values", live_log(100, 1_000), 100_000, 0.005)


if __name__ == "__main__":
    main()
