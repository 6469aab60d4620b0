"""Export of signals: one row per value, with layer, head or expert, and step."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import listed, shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.signals import Signal, Signals
from smdwidgets.trials.trial import Trial

__all__ = ["SIGNAL_FORMATS", "signals_of"]

_COLUMNS: Final = ("kind", "layer", "row", "name", "worker", "step", "value")


def signals_of(trial: Trial, steps: range | Iterable[int] | None, workers: frozenset[str] | None) -> list[Signal]:
    """Return the signals of a run at some steps.

    Raises:
        SMDebugValueError: there are none.
    """
    every = trial.signals()
    chosen = steps if steps is None or isinstance(steps, range) else frozenset(steps)
    selected = [
        one
        for signal in every
        if workers is None or signal.worker in workers
        if len(one := signal if chosen is None else signal.where([step in chosen for step in signal.steps.tolist()]))
    ]
    if not selected:
        reasons = [f"{kind}: {reason}" for kind, reason in every.off.items()]
        reason = f"; {listed(reasons)}" if reasons else ""
        raise SMDebugValueError(
            f"run {shown(trial.name)} has no signals{' at these steps and workers' if len(every) else ''}{reason}"
        )
    return selected


def _tables(signals: Iterable[Signal]) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield a table for each signal, so that one is in memory at a time."""
    return (Signals([one]).table() for one in signals)


def _csv(path: Path, signals: Iterable[Signal]) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for table in _tables(signals):
            texts = (f"{one:.6g}" if np.isfinite(one) else str(one) for one in table.pop("value").tolist())
            writer.writerows(zip(*(table[name].tolist() for name in _COLUMNS[:-1]), texts, strict=True))


def _parquet(path: Path, signals: Iterable[Signal]) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(path, Signals().to_arrow().schema) as writer:
        for one in signals:
            writer.write_table(Signals([one]).to_arrow())


SIGNAL_FORMATS: dict[str, Callable[[Path, Iterable[Signal]], None]] = {"parquet": _parquet, "csv": _csv}
"""For each format of signals: what writes them."""
