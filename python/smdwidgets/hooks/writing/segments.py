"""The steps of one worker that are in segments: many steps in two files.

Runs on the writer's thread. Small steps that a capture plan chooses are appended to a segment, which takes a fraction
of the time and of the files that two files a step take. Values are deleted by writing a segment again without them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from smdwidgets import _core
from smdwidgets.exceptions import SMDebugError

__all__ = ["OWN_FILES", "SEGMENTS", "Segments"]

#: Folder of the segments of a run.
SEGMENTS: Final = "segments"
#: So many steps of a new run have separate files before others are appended to segments.
OWN_FILES: Final = 32
#: Steps of segments that get index files when the run ends: so many last ones, and others at equal distances.
_SHOWN_LAST, _SHOWN = 16, 32
#: A segment is written again when this part of it was deleted.
_WORTHWHILE: Final = 0.25
#: A segment below this size is small. So many neighbouring ones become one, and any number when the run ends.
_SMALL: Final = 1 << 20
_MANY: Final = 8


class Segments:
    """Appends steps to segments, and deletes values in them.

    Args:
        root: directory of the run.
        worker: name of the worker.
        own_files: so many first steps have separate files.
    """

    def __init__(self, root: Path, worker: str, own_files: int = OWN_FILES) -> None:
        self._root, self._worker = str(root), worker
        self.own_files = own_files
        self._writer = _core.SegmentWriter(self._root, worker)
        #: The key of the segment's index, the bytes, and the first tensor of each step.
        self._steps: dict[int, tuple[str, int, str | None]] = {}
        self._sizes: dict[str, int] = {}
        #: What is to be deleted, by segment: the first deleted tensor of each step, None for all of it.
        self._cuts: dict[str, dict[int, str | None]] = {}
        self._cut_bytes: dict[str, int] = {}

    def __contains__(self, step: object) -> bool:
        return step in self._steps

    def append(self, step: int, writer: _core.StepWriter) -> int:
        """Append a step, again if it has more tensors; return its bytes."""
        key, nbytes = self._writer.append(writer)
        before = self._steps.get(step)
        if nbytes:
            self._sizes[key] = self._sizes.get(key, 0) + nbytes
            if before is not None:
                self._cut_bytes[before[0]] = self._cut_bytes.get(before[0], 0) + before[1]
                if before[0] != key:
                    self._cuts.setdefault(before[0], {})[step] = None
            self._steps[step] = key, nbytes, writer.first
        return self._steps[step][1]

    def drop(self, step: int) -> None:
        """Delete a step, which has separate files now."""
        self.cut(step, None)
        self.delete()

    def keeps_any(self, step: int, first: str | None) -> bool:
        """Whether anything is left of a step without the tensors from one on."""
        return first is not None and self._steps[step][2] not in (None, first)

    def cut(self, step: int, first: str | None) -> None:
        """Note that a step is to be deleted, or its tensors from the first one on."""
        key, nbytes, _ = self._steps[step]
        if not self.keeps_any(step, first):
            first = None
            del self._steps[step]
        self._cuts.setdefault(key, {})[step] = first
        self._cut_bytes[key] = self._cut_bytes.get(key, 0) + nbytes

    def delete(self, at_least: float = _WORTHWHILE, many: int = _MANY) -> None:
        """Write segments again of which much is to be deleted, and join small ones.

        Args:
            at_least: the part of a segment that is to be deleted.
            many: the number of small segments that follow each other.
        """
        for key in [key for key in self._cuts if self._cut_bytes[key] >= at_least * self._sizes.get(key, 0)]:
            self._rewrite([key])
        for keys in self._small_neighbours():
            if len(keys) >= many:
                self._rewrite(keys)

    def _small_neighbours(self) -> list[list[str]]:
        """Return groups of small segments that follow each other, in order.

        A group has some MB at most.
        """
        groups: list[list[str]] = [[]]
        size = 0
        for key, nbytes in self._sizes.items():
            is_small = nbytes < _SMALL
            if not is_small or size + nbytes > _MANY * _SMALL:
                groups.append([])
                size = 0
            if is_small:
                groups[-1].append(key)
                size += nbytes
        return groups

    def _rewrite(self, keys: list[str]) -> None:
        """Write segments that follow each other as one.

        What is to be deleted of them is left out.
        """
        try:
            new = self._writer.rewrite([(key, self._cuts.get(key, {})) for key in keys])
        except SMDebugError:  # one is damaged: they are left as they are
            for key in keys:
                self._forget(key)
            raise
        for step, (key, nbytes, first) in self._steps.items():
            if key in keys and new is not None:
                self._steps[step] = new[0], nbytes, first
        # In place of the last one, so that the order stays.
        sizes = [new if key == keys[-1] else (key, nbytes) for key, nbytes in self._sizes.items()]
        for key in keys:
            self._forget(key)
        self._sizes = dict(one for one in sizes if one is not None and one[0] not in keys)

    def _forget(self, key: str) -> None:
        """Forget what is to be deleted of a segment, and its size."""
        for by_segment in (self._sizes, self._cuts, self._cut_bytes):
            by_segment.pop(key, None)

    def reopen(self) -> None:
        """Begin another segment, because the directory was removed."""
        self._writer.end()
        for known in (self._steps, self._sizes, self._cuts, self._cut_bytes):
            known.clear()

    def close(self, shows: bool = True) -> None:
        """Delete what is left to delete; ``shows`` some steps to smdebug's readers."""
        self.delete(0.0, many=2)
        steps = list(self._steps) if shows else []
        if steps:
            spaced = steps[:: max(len(steps) // (_SHOWN - _SHOWN_LAST), 1)]
            self._writer.show_steps([*spaced, *steps[-_SHOWN_LAST:]])
        self._writer.end()
