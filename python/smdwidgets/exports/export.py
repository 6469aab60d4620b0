"""Export a run to another format.

Records are streamed. The output is written atomically, and an existing output is replaced only with ``force``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from smdwidgets._files import whole_file, whole_folder
from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.exports.records import Record, Selection, chosen_workers, global_steps, records
from smdwidgets.exports.signals import SIGNAL_FORMATS, signals_of
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials.columns import Failure
from smdwidgets.trials.extensions import Exported
from smdwidgets.trials.trial import Trial


class Writer(Protocol):
    """Writer for one export format."""

    def write(self, batch: Sequence[Record]) -> None:
        """Append records."""

    def close(self) -> None:
        """Finish and close the output."""


def _npz(path: Path, workers: int) -> Writer:
    from smdwidgets.exports.npz import NpzWriter

    return NpzWriter(path)


def _parquet(path: Path, workers: int) -> Writer:
    from smdwidgets.exports.parquet import ParquetWriter

    return ParquetWriter(path)


def _csv(path: Path, workers: int) -> Writer:
    from smdwidgets.exports.csv_table import LongCsvWriter

    return LongCsvWriter(path)


def _wide_csv(path: Path, workers: int) -> Writer:
    from smdwidgets.exports.csv_table import WideCsvWriter

    return WideCsvWriter(path, workers)


def _tensorboard(path: Path, workers: int) -> Writer:
    from smdwidgets.exports.tensorboard import TensorBoardWriter

    return TensorBoardWriter(path, workers)


FORMATS: dict[str, tuple[Callable[[Path, int], Writer], Callable[[Path], AbstractContextManager[Path]], str]] = {
    "npz": (_npz, whole_file, ".npz"),
    "parquet": (_parquet, whole_file, ".parquet"),
    "csv": (_csv, whole_file, ".csv"),
    "csv-wide": (_wide_csv, whole_file, ".csv"),
    "tensorboard": (_tensorboard, whole_folder, "-tensorboard"),
}
"""For each format: the writer, the context manager for an atomic file or folder, and the suffix of the default name."""


def default_name(trial: Trial, to: str) -> str:
    """Return the default output name: the run's name plus a suffix.

    Characters that are not valid in file names on every platform are replaced with ``_``.
    """
    name = "".join(char if char.isalnum() or char in "-_." else "_" for char in trial.name).strip(".") or "run"
    return name[:100] + FORMATS[to][2]


def export(
    trial: Trial,
    to: str,
    out: str | os.PathLike[str] | None = None,
    *,
    tensors: str | Sequence[str] | None = None,
    steps: range | Iterable[int] | None = None,
    mode: ModeKeys | str = ModeKeys.GLOBAL,
    workers: str | Sequence[str] | None = None,
    signals: bool = False,
    force: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Exported:
    """See :meth:`Trial.export`."""
    if to not in FORMATS:
        raise SMDebugValueError(
            f"invalid export format {shown(to)}; choose from {', '.join(FORMATS)}.{did_you_mean(to, FORMATS)}"
        )
    make, whole, _ = FORMATS[to]
    target = Path(default_name(trial, to) if out is None else out).expanduser()
    _check_target(target, to, force=force)
    if signals:
        if tensors is not None or as_mode(mode) is not ModeKeys.GLOBAL:
            raise SMDebugValueError("signals have no tensors and modes; select them by steps and workers")
        return _export_signals(trial, to, target, steps, workers)
    trial.maybe_refresh()
    selection = Selection.of(trial, tensors, steps, as_mode(mode), workers)
    at = global_steps(trial, selection)
    if not at:
        raise SMDebugValueError(
            f"no saved step of run {shown(trial.name)} matches mode={selection.mode.name} and the given steps{_span(trial)}"
        )
    failed: list[Failure] = []
    written, seen, stepped = 0, set[str](), set[int]()
    with whole(target) as partial:
        writer = make(partial, len(selection.workers or trial.workers()))
        try:
            accepts = getattr(writer, "accepts", None)
            for found in records(trial, at, selection, failed):
                batch = found if accepts is None else [record for record in found if accepts(record)]
                writer.write(batch)
                written += len(batch)
                seen.update(record.tensor for record in batch)
                stepped.update(record.step for record in batch)
                if progress is not None and batch:
                    progress(at.index(batch[-1].step) + 1, len(at))
        finally:
            writer.close()
        size = sum(
            path.stat().st_size for path in ([partial] if partial.is_file() else partial.rglob("*")) if path.is_file()
        )
    return Exported(target, to, written, len(seen), len(stepped), size, failed)


def _export_signals(
    trial: Trial,
    to: str,
    target: Path,
    steps: range | Iterable[int] | None,
    workers: str | Sequence[str] | None,
) -> Exported:
    if to not in SIGNAL_FORMATS:
        raise SMDebugValueError(f"signals cannot be exported as {to}; choose from {', '.join(SIGNAL_FORMATS)}")
    selected = signals_of(trial, steps, chosen_workers(trial, workers))
    with whole_file(target) as partial:
        SIGNAL_FORMATS[to](partial, selected)
        size = partial.stat().st_size
    stepped = set[int]().union(*(one.steps.tolist() for one in selected))
    values = sum(one.values.size for one in selected)
    return Exported(target, to, values, len({one.name for one in selected}), len(stepped), size)


def _span(trial: Trial) -> str:
    saved = trial.steps(show_incomplete_steps=True)
    return f"; its steps are {saved[0]:,} to {saved[-1]:,}" if saved else ""


def _check_target(target: Path, to: str, *, force: bool) -> None:
    label = shown(str(target), 400)
    if not target.absolute().parent.is_dir():
        parent = shown(str(target.absolute().parent), 400)
        raise SMDebugValueError(f"cannot write the export: no directory {parent}; create it first")
    if not target.exists() and not target.is_symlink():
        return
    folder = FORMATS[to][1] is whole_folder
    if target.is_dir() != folder:
        raise SMDebugValueError(f"output {label} is a {'file' if folder else 'directory'}; choose another name")
    if not force:
        raise SMDebugValueError(
            f"output {label} already exists; choose another name, or pass force=True (--force) to replace it"
        )
    # The folder is replaced as a whole, so it must hold nothing but event files.
    if folder and any(path.is_file() and ".tfevents" not in path.name for path in target.rglob("*")):
        raise SMDebugValueError(
            f"output {label} holds files that are not TensorBoard logs and is not replaced; choose another name"
        )
