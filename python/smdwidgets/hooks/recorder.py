"""The half of a hook that runs on the writer's thread: captured tensors become files.

A step whose writing fails (a full disk) is dropped whole, with one warning until saving works again.
"""

from __future__ import annotations

import logging
from pathlib import Path

from smdwidgets import _core
from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX
from smdwidgets.hooks.arrays import Held, Staging
from smdwidgets.hooks.keep import Keep
from smdwidgets.hooks.tensorboard import TensorBoardExport
from smdwidgets.modes import ModeKeys

__all__ = ["Recorder"]

logger = logging.getLogger("smdwidgets.hooks")


class Recorder:
    """Writes one worker's steps, one after the other. Not for use by several threads."""

    def __init__(
        self, root: Path, worker: str, staging: Staging, tensorboard: TensorBoardExport | None, fsync: bool
    ) -> None:
        self._root = str(root)
        self._worker = worker
        self._staging = staging
        self._tensorboard = tensorboard
        self._fsync = fsync
        self._writer: _core.StepWriter | None = None
        self._at: tuple[int, ModeKeys, int] = (0, ModeKeys.GLOBAL, 0)
        self._failed = False
        self._warned = False
        #: Steps that are on disk, and steps that were dropped.
        self.saved = 0
        self.dropped = 0

    def begin(self, step: int, mode: ModeKeys, mode_step: int) -> None:
        """What follows belongs to this step."""
        self._at = (step, mode, mode_step)
        self._failed = False

    def tensor(self, name: str, held: Held, keep: Keep, timestamp: float) -> None:
        """Write one tensor, or what is kept of it."""
        try:
            if not self._failed:
                self._write(name, held, keep, timestamp)
        except OSError as error:
            self._drop(error)
        finally:
            if held.buffer is not None:
                self._staging.give_back(held.buffer)

    def shape(self, name: str, shape: tuple[int, ...], original: str | None) -> None:
        """Write a shape whose value is not wanted."""
        if self._failed:
            return
        try:
            self._step_writer().shape(name, name if original is None else original, shape)
        except OSError as error:
            self._drop(error)

    def finish(self) -> None:
        """Make the step visible, all of it at once."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.finish()
            self.saved += 1
            if self._warned:
                logger.warning("Saving works again, from step %d on.", self._at[0])
                self._warned = False
        except OSError as error:
            self._drop(error)

    def collections(self, content: str) -> None:
        """Write the collection file, all at once."""
        folder = Path(self._root, COLLECTIONS_PREFIX)
        target = folder / f"{self._worker}_collections.json"
        temporary = target.with_name(target.name + ".tmp")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            self._warn(f"The collection file could not be written: {error}.")

    def close(self) -> None:
        """Close what stays open between steps."""
        self.finish()
        if self._tensorboard is not None:
            self._tensorboard.close()

    # ------------------------------------------------------------------------------------------------------- inside

    def _step_writer(self) -> _core.StepWriter:
        if self._writer is None:
            step, mode, mode_step = self._at
            self._writer = _core.StepWriter(self._root, step, self._worker, mode.value, mode_step, fsync=self._fsync)
        return self._writer

    def _write(self, name: str, held: Held, keep: Keep, timestamp: float) -> None:
        writer = self._step_writer()
        text = held.dtype == "str"
        if keep.shape:
            writer.shape(name, name, held.shape)
        if keep.reductions and not text and held.array.size:
            found = _core.reduce(held.array, held.dtype, keep.reductions)
            for (op, absolute), value in found.items():
                if value is not None:
                    writer.tensor(_core.reduction_name(op, absolute, name), value)
        if keep.raw:
            writer.tensor(name, held.array, "bfloat16" if held.dtype == "bfloat16" else None)
        if self._tensorboard is not None and not text and (keep.scalar or keep.histogram is not None):
            self._tensorboard.add(name, held, keep, self._at[0], self._at[1], timestamp)

    def _drop(self, error: OSError) -> None:
        writer, self._writer = self._writer, None
        self._failed = True
        self.dropped += 1
        if writer is not None:
            writer.discard()
        self._warn(
            f"Step {self._at[0]} is not saved: {error}. The training goes on; later steps are saved if they can be."
        )

    def _warn(self, message: str) -> None:
        if not self._warned:
            logger.warning(message)
            self._warned = True
