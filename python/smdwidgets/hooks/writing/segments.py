"""The steps of one worker that are in segments: many steps in two files.

Runs on the writer's thread. Small steps that a capture plan chooses are appended to a segment, which takes a fraction
of the time and of the files that two files a step take. Values are deleted by writing a segment again without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from smdwidgets import _core
from smdwidgets.exceptions import SMDebugError

__all__ = ["OWN_FILES", "SEGMENTS", "Segments"]

#: Folder of the segments of a run.
SEGMENTS: Final = "segments"
#: So many steps of a new run have separate files before others are appended to segments.
OWN_FILES: Final = 32
#: Steps of segments that get index files when the run ends: so many last ones, and others at equal distances.
_SHOWN_LAST, _SHOWN = 16, 32
#: A segment is written again when this part of it was deleted, and so many bytes.
_WORTHWHILE: Final = 0.25
_LEAST: Final = 64 << 10
#: A segment below this size is small. So many neighbouring ones become one, and any number when the run ends.
_SMALL: Final = 1 << 20
_MANY: Final = 8


@dataclass(eq=False, slots=True)
class _Segment:
    """A segment with the steps that this process has appended."""

    #: The key of its index.
    key: str
    size: int = 0
    steps: set[int] = field(default_factory=set)
    #: What is to be deleted: the first deleted tensor of each step, None for all of it.
    cuts: dict[int, str | None] = field(default_factory=dict)
    cut_bytes: int = 0


class _Place(NamedTuple):
    """Where a step is, its bytes, and its first tensor."""

    segment: _Segment
    nbytes: int
    first: str | None


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
        self._steps: dict[int, _Place] = {}
        #: In order; the last one may grow.
        self._segments: list[_Segment] = []

    def __contains__(self, step: object) -> bool:
        return step in self._steps

    def append(self, step: int, writer: _core.StepWriter) -> int:
        """Append a step, again if it has more tensors; return its bytes."""
        key, nbytes = self._writer.append(writer)
        before = self._steps.get(step)
        if nbytes:
            if not self._segments or self._segments[-1].key != key:
                self._segments.append(_Segment(key))
            segment = self._segments[-1]
            segment.size += nbytes
            if before is not None:
                before.segment.cut_bytes += before.nbytes
                if before.segment is not segment:
                    before.segment.steps.discard(step)
                    before.segment.cuts[step] = None
            segment.steps.add(step)
            self._steps[step] = _Place(segment, nbytes, writer.first)
        return self._steps[step].nbytes

    def drop(self, step: int) -> None:
        """Delete a step, which has separate files now."""
        self.cut(step, None)
        self.delete()

    def keeps_any(self, step: int, first: str | None) -> bool:
        """Whether anything is left of a step without the tensors from one on."""
        return first is not None and self._steps[step].first not in (None, first)

    def cut(self, step: int, first: str | None) -> None:
        """Note that a step is to be deleted, or its tensors from the first one on."""
        segment, nbytes, _ = self._steps[step]
        if not self.keeps_any(step, first):
            first = None
            del self._steps[step]
            segment.steps.discard(step)
        segment.cuts[step] = first
        segment.cut_bytes += nbytes

    def delete(self, all_of_it: bool = False) -> None:
        """Write segments again of which much is to be deleted, and join many small ones.

        Args:
            all_of_it: write all of which anything is to be deleted, and join any small ones.
        """
        for segment in self._segments[:]:
            enough = 0 if all_of_it else max(_WORTHWHILE * segment.size, _LEAST)
            if segment.cuts and segment.cut_bytes >= enough:
                self._rewrite([segment])
        for group in self._small_neighbours():
            if len(group) >= (2 if all_of_it else _MANY):
                self._rewrite(group)

    def _small_neighbours(self) -> list[list[_Segment]]:
        """Return groups of small segments that follow each other, in order.

        A group has some MB at most.
        """
        groups: list[list[_Segment]] = [[]]
        size = 0
        for segment in self._segments:
            is_small = segment.size < _SMALL
            if not is_small or size + segment.size > _MANY * _SMALL:
                groups.append([])
                size = 0
            if is_small:
                groups[-1].append(segment)
                size += segment.size
        return groups

    def _rewrite(self, segments: list[_Segment]) -> None:
        """Write segments that follow each other as one.

        What is to be deleted of them is left out.
        """
        try:
            new = self._writer.rewrite([(segment.key, segment.cuts) for segment in segments])
        except SMDebugError:  # one is damaged: they are left as they are from now on
            self._segments = [segment for segment in self._segments if segment not in segments]
            raise
        *others, joined = segments
        for segment in others:
            self._steps.update((step, self._steps[step]._replace(segment=joined)) for step in segment.steps)
            joined.steps |= segment.steps
        joined.cuts, joined.cut_bytes = {}, 0
        if new is not None:
            joined.key, joined.size = new
        gone = segments if new is None else others
        self._segments = [segment for segment in self._segments if segment not in gone]

    def reopen(self) -> None:
        """Begin another segment, because the directory was removed."""
        self._writer.end()
        self._steps.clear()
        self._segments.clear()

    def close(self, shows: bool = True) -> None:
        """Delete what is left to delete; ``shows`` some steps to smdebug's readers."""
        self.delete(all_of_it=True)
        steps = list(self._steps) if shows else []
        if steps:
            spaced = steps[:: max(len(steps) // (_SHOWN - _SHOWN_LAST), 1)]
            self._writer.show_steps([*spaced, *steps[-_SHOWN_LAST:]])
        self._writer.end()
