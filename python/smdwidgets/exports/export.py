"""Writing a run in another format: streamed, whole or not at all, and nothing that is there is overwritten unasked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from smdwidgets._files import whole_file, whole_folder
from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.exports.records import Record, Wanted, global_steps, records
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials.columns import Failure
from smdwidgets.trials.extensions import Exported
from smdwidgets.trials.trial import Trial


class Writer(Protocol):
    """What writes one format."""

    def write(self, batch: Sequence[Record]) -> None:
        """Append records."""

    def close(self) -> None:
        """Write what comes last."""


def _npz(path: Path, workers: int) -> Writer:
    from smdwidgets.exports.npz import NpzWriter

    return NpzWriter(path)


def _parquet(path: Path, workers: int) -> Writer:
    from smdwidgets.exports.parquet import ParquetWriter

    return ParquetWriter(path)


def _tensorboard(path: Path, workers: int) -> Writer:
    from smdwidgets.exports.tensorboard import TensorBoardWriter

    return TensorBoardWriter(path, workers)


FORMATS: dict[str, tuple[Callable[[Path, int], Writer], Callable[[Path], AbstractContextManager[Path]], str]] = {
    "npz": (_npz, whole_file, ".npz"),
    "parquet": (_parquet, whole_file, ".parquet"),
    "tensorboard": (_tensorboard, whole_folder, "-tensorboard"),
}
"""The writer of each format, and what its output is: a file or a folder."""


def default_name(trial: Trial, to: str) -> str:
    """Where an export goes unless told: the run's name, in the current directory.

    What no file may be called on some system is replaced.
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
    force: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Exported:
    """See :meth:`Trial.export`."""
    if to not in FORMATS:
        raise SMDebugValueError(f"{to!r} is no format of an export: {', '.join(FORMATS)}.{did_you_mean(to, FORMATS)}")
    make, whole, _ = FORMATS[to]
    target = Path(default_name(trial, to) if out is None else out).expanduser()
    _check_target(target, to, force=force)
    trial.maybe_refresh()
    wanted = Wanted.of(trial, tensors, steps, as_mode(mode), workers)
    at = global_steps(trial, wanted)
    if not at:
        raise SMDebugValueError("The run has no such steps.")
    failed: list[Failure] = []
    written, seen, stepped = 0, set[str](), set[int]()
    with whole(target) as partial:
        writer = make(partial, len(wanted.workers or trial.workers()))
        try:
            for batch in records(trial, at, wanted, failed):
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


def _check_target(target: Path, to: str, *, force: bool) -> None:
    said = shown(str(target), 400)
    if not target.absolute().parent.is_dir():
        raise SMDebugValueError(f"There is no directory {shown(str(target.absolute().parent), 400)} to write to.")
    if not target.exists() and not target.is_symlink():
        return
    folder = FORMATS[to][1] is whole_folder
    if target.is_dir() != folder:
        raise SMDebugValueError(f"{said} is a {'file' if folder else 'directory'}: give another name.")
    if not force:
        raise SMDebugValueError(f"{said} is there already: give another name, or force=True (--force) to replace it.")
    # A folder is replaced as a whole: only one that holds nothing else than such an export may be lost.
    if folder and any(path.is_file() and ".tfevents" not in path.name for path in target.rglob("*")):
        raise SMDebugValueError(
            f"{said} holds other files than TensorBoard's logs, and is not replaced: give another name."
        )
