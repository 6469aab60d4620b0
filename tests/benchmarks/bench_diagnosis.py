"""The cost of a diagnosis: whole runs, spikes, and updates of live runs.

    python tests/benchmarks/bench_diagnosis.py

CPU seconds on one core, and their ratio to sorting as many numbers with NumPy, which tells slow machines from slow
code.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from clock import once

from smdwidgets import _core, create_trial
from smdwidgets.anomalies import rises
from smdwidgets.diagnosis import Diagnoser, diagnose
from smdwidgets.numpy import Hook

ROUNDS = 5
#: Updates of a live run. The least of them counts: other processes only add to it.
UPDATES = 60


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


def least_row(name: str, taken: list[float], target: int = 5) -> None:
    """Print the least and the median CPU time beside the target in milliseconds."""
    least, middle = 1000 * min(taken), 1000 * statistics.median(taken)
    verdict = "reached" if least <= target else "missed"
    print(f"{name:<52} {least:9.2f} ms  target {target:6} ms  {verdict}; median {middle:.2f} ms", flush=True)


def update(diagnoser: Diagnoser) -> float:
    """CPU seconds that this thread spends in one update."""
    gc.collect()
    begin = time.thread_time()
    diagnoser.update()
    return time.thread_time() - begin


def live(series: int, count: int) -> list[float]:
    """CPU seconds of updates after each series in memory has grown by one value."""
    whole = run_of(series, count + UPDATES)
    run = {name: (steps[:count], values[:count]) for name, (steps, values) in whole.items()}
    diagnoser = Diagnoser(run)
    diagnoser.update()
    taken = []
    for end in range(count + 1, count + UPDATES):
        run.update({name: (steps[:end], values[:end]) for name, (steps, values) in whole.items()})
        taken.append(update(diagnoser))
    return taken


def live_log(series: int, count: int) -> list[float]:
    """The same for a log on disk, whose new values are read and parsed."""
    whole = run_of(series, count + UPDATES)
    with tempfile.TemporaryDirectory() as folder:

        def write(begin: int, end: int) -> None:
            records = (
                _core.scalar_record(name, step, float(step), values[step])
                for step in range(begin, end)
                for name, (_, values) in whole.items()
            )
            with Path(folder, "events.out.tfevents.1.host").open("ab") as file:
                file.write(b"".join(records))

        write(0, count)
        with create_trial(Path(folder), live=True) as trial:
            diagnoser = Diagnoser(trial)
            diagnoser.update()
            taken = []
            for end in range(count, count + UPDATES):
                write(end, end + 1)
                taken.append(update(diagnoser))
            assert diagnoser.update().judged[0].points == count + UPDATES
    return taken


def written_statistics(folder: str, tensors: int, steps: int) -> None:
    """Write a run of which only statistics are kept, of weights and gradients."""
    random = np.random.default_rng(0)
    weights = [random.normal(size=(8, 8)).astype(np.float32) for _ in range(tensors // 2)]
    with Hook(folder, plan={"every": 0}) as hook:
        for step in range(steps):
            for at, weight in enumerate(weights):
                gradient = random.normal(size=(8, 8)).astype(np.float32)
                hook.save_tensor(f"fc{at}.weight", weight, "weights")
                hook.save_tensor(f"gradient/fc{at}.weight", gradient, "gradients")
                weights[at] = weight - np.float32(0.001) * gradient
            hook.save_scalar("loss", 2 / (1 + step))
            hook.step()


def from_statistics(tensors: int, steps: int) -> list[float]:
    """CPU seconds of the first diagnosis of a run, from its statistics."""
    with tempfile.TemporaryDirectory() as folder:
        written_statistics(folder, tensors, steps)
        taken = []
        for _ in range(2 * ROUNDS):
            with create_trial(folder) as trial:
                diagnoser = Diagnoser(trial)
                taken.append(update(diagnoser))
                assert sum(one.kind == "tensor" for one in diagnoser.update().judged) == tensors
    return taken


def main() -> None:
    """Measure and print."""
    for series, count in ((100, 10_000), (2, 500_000)):
        run = run_of(series, count)
        row(f"diagnose {series} series × {count:,} values", median(lambda run=run: diagnose(run)), series * count, 2.0)
    values = loss(20_000, 0)
    row("spikes among 20,000 values", median(lambda: rises(values), 21), 20_000, 0.02)
    for count in (200, 1_000, 10_000):
        least_row(f"live update, 100 series of {count:,} values", live(100, count))
    least_row("live update, log with 100 series of 1,000 values", live_log(100, 1_000))
    least_row("diagnose 300 tensors × 500 steps of statistics", from_statistics(300, 500), 200)


if __name__ == "__main__":
    main()
