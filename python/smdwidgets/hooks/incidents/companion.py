"""What a framework's hook writes beside the record of an incident."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Companion", "Written"]


@dataclass(frozen=True)
class Written:
    """What was written into the folder of an incident.

    Attributes:
        rows: the rows of the data set in the batches of its step.
        summary: what the record says about it.
        files: names of the files, in order; the last one completes them.
        extend: writes what has followed, and returns the names of the files.
        nbytes: size of the files.
    """

    rows: Sequence[Any]
    summary: Mapping[str, Any]
    files: Sequence[str]
    extend: Callable[[], Sequence[str]]
    nbytes: int = 0


class Companion(Protocol):
    """Records beside the flight recorder.

    All methods but `nbytes` are called on the writer's thread.
    """

    @property
    def nbytes(self) -> int:
        """Memory that it takes of the flight recorder's."""

    @property
    def has_peers(self) -> bool:
        """Whether companions of other workers write about the same incidents."""

    def judged(self, step: int) -> None:
        """A step was judged."""

    def follow(self, step: int, allows: Callable[[int], bool]) -> int:
        """Write what an incident of another worker needs; nothing broke here.

        Args:
            step: the step that was judged.
            allows: whether so many bytes may be written.

        Returns the number of bytes that were written.
        """

    def ends(self) -> None:
        """No step follows: complete what was written for other workers."""

    def begin(self, folder: Path, step: int, allows: Callable[[int], bool]) -> Written | None:
        """Write into the folder of an incident.

        Args:
            folder: the folder, which may not exist.
            step: the step of the incident.
            allows: whether so many bytes may be written.
        """
