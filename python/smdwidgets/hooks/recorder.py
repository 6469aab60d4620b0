"""Write captured tensors to files; this part of a hook runs on the writer thread.

If a step cannot be written, for example on a full disk, the whole step is dropped. A warning is logged once until saving
works again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX
from smdwidgets.hooks.arrays import Held, Staging
from smdwidgets.hooks.keep import Keep
from smdwidgets.hooks.tensorboard import TensorBoardExport
from smdwidgets.modes import ModeKeys

__all__ = ["At", "Captured", "Recorder"]

logger = logging.getLogger("smdwidgets.hooks")


#: A step: its global step number, its mode, its step number in that mode.
At = tuple[int, ModeKeys, int]


@dataclass(slots=True)
class Captured:
    """A captured tensor that is not written yet.

    ``held`` is None if only the shape is saved.
    """

    name: str
    held: Held | None
    shape: tuple[int, ...]
    keep: Keep
    time: float


class Recorder:
    """Writes the steps of one worker in sequence. Not thread-safe."""

    def __init__(
        self,
        root: Path,
        worker: str,
        staging: Staging,
        tensorboard: TensorBoardExport | None,
        fsync: bool,
        send: Callable[..., object] | None = None,
        lost: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._root = str(root)
        self._worker = worker
        self._staging = staging
        self._tensorboard = tensorboard
        self._fsync = fsync
        #: Uploads finished files, given by their keys.
        self._send = send
        #: Returns the reason if this writer no longer owns the directory, else None.
        self._lost = lost
        self._gone = False
        self._content = ""
        self._writer: _core.StepWriter | None = None
        self._at: At | None = None
        self._failed = False
        self._warned = False
        #: Number of saved steps, and of dropped steps.
        self.saved = 0
        self.dropped = 0

    def write(self, at: At, captured: Sequence[Captured]) -> None:
        """Write tensors of a step, or their reductions and shapes."""
        if at != self._at:
            self._at = at
            self._failed = self._gone = self._gone or self._check_directory()
        try:
            if not self._failed:
                self._write(at, captured)
        except OSError as error:
            self._drop(error)
        finally:
            for one in captured:
                if one.held is not None and one.held.slab is not None:
                    self._staging.give_back(one.held.slab)

    def publish(self) -> None:
        """Make the current step visible to readers.

        More tensors may follow until :meth:`finish`.
        """
        if self._writer is not None and self._send is None:
            try:
                self._writer.publish()
            except OSError as error:
                self._drop(error)

    def finish(self) -> None:
        """Complete the current step and make it visible to readers atomically."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            event_key, index_key, _ = writer.finish()
            if self._send is not None:
                self._send(event_key, index_key)
            self.saved += 1
            if self._warned:
                logger.warning("saving works again from step %d", self._number)
                self._warned = False
        except OSError as error:
            self._drop(error)

    def collections(self, content: str) -> None:
        """Write the collection file atomically."""
        self._content = content
        if self._gone:
            return
        folder = Path(self._root, COLLECTIONS_PREFIX)
        target = folder / f"{self._worker}_collections.json"
        temporary = target.with_name(target.name + ".tmp")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(target)
            if self._send is not None:
                self._send(target.relative_to(self._root).as_posix())
        except OSError as error:
            temporary.unlink(missing_ok=True)
            self._warn(f"cannot write the collection file {target}: {error}")

    @property
    def _number(self) -> int:
        return -1 if self._at is None else self._at[0]

    def close(self) -> None:
        """Finish the current step and close all files."""
        self.finish()
        if self._tensorboard is not None:
            self._tensorboard.close()

    # ------------------------------------------------------------------------------------------------------- inside

    def _check_directory(self) -> bool:
        """Return whether another process took over the directory.

        If the directory was removed, the files that a run needs are written again.
        """
        lost = self._lost()
        if lost == "removed":
            logger.warning(
                "%s was removed during the training; recording continues from step %d", self._root, self._number
            )
            if self._content:
                self.collections(self._content)
        elif lost is not None:
            logger.error("recording stopped; no steps are saved from step %d: %s", self._number, lost)
        return lost not in (None, "removed")

    def _step_writer(self, at: At) -> _core.StepWriter:
        if self._writer is None:
            step, mode, mode_step = at
            self._writer = _core.StepWriter(self._root, step, self._worker, mode.value, mode_step, fsync=self._fsync)
        return self._writer

    def _write(self, at: At, captured: Sequence[Captured]) -> None:
        writer = self._step_writer(at)
        # Group tensors with equal settings into one call, because the call releases the GIL for the training.
        alike: dict[
            tuple[bool, tuple[tuple[str, bool], ...]], list[tuple[str, str, tuple[int, ...], NDArray[Any]]]
        ] = {}
        for one in captured:
            held, keep = one.held, one.keep
            if keep.shape:
                writer.shape(one.name, one.name, one.shape)
            if held is None:
                continue
            if held.dtype == "str":
                if keep.raw:
                    writer.tensor(one.name, held.array)
                continue
            if keep.raw or keep.reductions:
                array = held.array if held.shape else held.array.reshape(1)
                alike.setdefault((keep.raw, keep.reductions), []).append((one.name, held.dtype, held.shape, array))
            if self._tensorboard is not None and (keep.scalar or keep.histogram is not None):
                self._tensorboard.add(one.name, held, keep, at[0], at[1], one.time)
        for (raw, reductions), ready in alike.items():
            writer.tensors(ready, raw, reductions)

    def _drop(self, error: OSError) -> None:
        writer, self._writer = self._writer, None
        self._failed = True
        self.dropped += 1
        if writer is not None:
            writer.discard()
        self._warn(
            f"cannot save step {self._number}: {error}; the training continues, and later steps are saved if possible"
        )

    def _warn(self, message: str) -> None:
        if not self._warned:
            logger.warning(message)
            self._warned = True
