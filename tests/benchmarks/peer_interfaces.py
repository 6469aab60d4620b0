"""Write the same series with the writers of TensorBoard, trackio and Aim.

Usage: `PYTHON peer_interfaces.py TOOL FOLDER SERIES STEPS`, where PYTHON has the packages of `interfaces.txt`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from bench_large_map import names_of

#: Name of the project of trackio, and of the experiment of Aim.
PROJECT = "large"
Rows = Iterator[tuple[int, list[float]]]


def names_in_groups(count: int) -> list[str]:
    """Return names with a group before the slash.

    TensorBoard and trackio order charts by it.
    """
    return [name if "/" in name else f"weight/{name}" for name in names_of(count)]


def planted(count: int, steps: int) -> dict[str, tuple[int, int]]:
    """Return tensor and step of the events of one step.

    One is a NaN, one a value 10,000 times the usual one.
    """
    return {"nan": (count // 2, steps * 3 // 5), "spike": (count // 3, steps * 2 // 5)}


def rows_of(count: int, steps: int) -> Rows:
    """Yield each step with the values of all series."""
    chance = np.random.default_rng(0)
    base = np.exp(chance.normal(-4, 1, count))
    events = planted(count, steps)
    for step in range(steps):
        values = base * (1 + 0.05 * chance.normal(size=count))
        for kind, (tensor, when) in events.items():
            if when == step:
                values[tensor] = np.nan if kind == "nan" else values[tensor] * 1e4
        yield step, values.tolist()


def tensorboard(folder: Path, names: list[str], rows: Rows) -> None:
    """Write one event for each value, as `SummaryWriter.add_scalar` does."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for step, values in rows:
        for name, value in zip(names, values, strict=True):
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
    writer.close()


def trackio(folder: Path, names: list[str], rows: Rows) -> None:
    """Log all values of a step with one call."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    trackio.init(project=PROJECT, name="run")
    for step, values in rows:
        trackio.log(dict(zip(names, values, strict=True)), step=step)
    trackio.finish()


def aim(folder: Path, names: list[str], rows: Rows) -> None:
    """Track each value."""
    from aim import Run

    run = Run(repo=str(folder), experiment=PROJECT)
    for step, values in rows:
        for name, value in zip(names, values, strict=True):
            run.track(value, name=name, step=step)
    run.close()


WRITERS: dict[str, Callable[[Path, list[str], Rows], None]] = {
    "TensorBoard": tensorboard,
    "trackio": trackio,
    "Aim": aim,
}


def main() -> None:
    """Write a log, and `written.json` beside it."""
    tool, where, series, steps = sys.argv[1:]
    folder, count = Path(where), int(series)
    folder.mkdir(parents=True)
    begin = time.perf_counter()
    WRITERS[tool](folder, names_in_groups(count), rows_of(count, int(steps)))
    written = {"seconds": time.perf_counter() - begin, "load": os.getloadavg()[0]}
    folder.with_name(f"{folder.name}-written.json").write_text(json.dumps(written))


if __name__ == "__main__":
    main()
