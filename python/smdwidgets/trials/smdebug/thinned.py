"""The steps whose values a hook deleted to stay within its disk budget."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

__all__ = ["ThinnedSteps"]

#: Files of a run, one for each worker: a JSON object a line.
_FOLDER, _FILE = "capture", "thinned.jsonl"
#: Bytes of a file that are read at once.
_PIECE = 1 << 20


class ThinnedSteps:
    """Reads what was appended to the files since it was asked last."""

    def __init__(self, root: str) -> None:
        self._folder = Path(root) / _FOLDER
        self._every: dict[int, int] = {}
        self._read: dict[Path, int] = {}

    def every(self, step: int) -> int | None:
        """Return the spacing of steps with values; None if a step was not thinned."""
        return self._read_all().get(step)

    def steps(self) -> frozenset[int]:
        """Return the steps that were thinned."""
        return frozenset(self._read_all())

    def _read_all(self) -> dict[int, int]:
        for path in self._folder.glob(f"*/{_FILE}"):
            with suppress(OSError):
                self._follow(path)
        return self._every

    def _follow(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            while piece := file.read(_PIECE):
                whole = piece.rpartition(b"\n")[0]
                if not whole:  # an incomplete line, or one that is too long to be ours
                    return
                self._read[path] = self._read.get(path, 0) + len(whole) + 1
                file.seek(self._read[path])
                for line in whole.split(b"\n"):
                    with suppress(ValueError, TypeError, KeyError):
                        found = json.loads(line)
                        self._every[int(found["step"])] = int(found["every"])
