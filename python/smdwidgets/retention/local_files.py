"""The files of a run in a directory, as they are thinned."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from smdwidgets.hooks.writing.capture_log import CaptureLog
from smdwidgets.hooks.writing.compacted import forget_compacted
from smdwidgets.hooks.writing.thinning import Thinning
from smdwidgets.modes import ModeKeys
from smdwidgets.retention.run_files import Left, damaged, without_index
from smdwidgets.retention.saved_steps import SMALL, SavedStep, lengths_in, saved_step
from smdwidgets.storage.local import LocalStorage
from smdwidgets.trials.smdebug.thinned import ThinnedSteps


class LocalFiles:
    """The files of a run in a directory.

    Its methods are those of :class:`~.run_files.RunFiles`.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._storage = LocalStorage(path)
        self._index: list[str] = []

    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(size for _, size in files_of(self._path))

    def version(self) -> object:
        """Return the bytes of all files."""
        return self.size()

    def steps(self) -> list[SavedStep]:
        """Return the saved steps in order."""
        self._index = list(self._storage.list("index/"))
        steps = (saved_step(key, content) for key, content in self._storage.read_many(self._index))
        return [step for step in steps if step is not None]

    def thinned(self) -> frozenset[tuple[int, str]]:
        """Return the steps that were thinned."""
        return ThinnedSteps(self._storage).by_worker()

    def left(self, steps: Sequence[SavedStep]) -> list[Left]:
        """Return event files that were not cut off or deleted."""
        thinned = self.thinned() - damaged(self._index, steps)
        if not thinned:
            return []
        events = {key: size for key, size in files_of(self._path) if key.startswith("events/")}
        long = [
            Left(step.events, step.end, events[step.events] - step.end)
            for step in steps
            if (step.step, step.worker) in thinned and 0 < step.end < events.get(step.events, 0)
        ]
        return long + without_index(events, thinned, steps)

    def thin(self, steps: Sequence[SavedStep], left: Sequence[Left], every: int) -> Iterator[int]:
        """Delete the large values of steps, one after the other."""
        forget_compacted(self._path)
        for one in left:
            with suppress(FileNotFoundError):
                if one.keep:
                    os.truncate(self._path / one.key, one.keep)
                else:
                    (self._path / one.key).unlink()
        for done, step in enumerate(steps, 1):
            log = CaptureLog(self._path, step.worker)
            keep = {name for name, length in lengths_in(self._storage.read(step.key)) if length <= SMALL}
            key = step.step, ModeKeys[step.mode], step.mode_step
            Thinning(self._path, step.worker, log.thinned).keep(key, keep, every)
            yield done
        forget_compacted(self._path)

    def close(self) -> None:
        """Do nothing: no file is held open."""


def files_of(path: str | Path) -> Iterator[tuple[str, int]]:
    """Yield the files below a directory and their sizes.

    Paths are relative and have slashes.
    """
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            try:
                yield file.relative_to(path).as_posix(), file.lstat().st_size
            except OSError:
                continue  # deleted meanwhile
