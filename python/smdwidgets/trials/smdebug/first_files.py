"""Notice that another run was written to the directory of a run.

The index file of a run's first step is written once. If it changes, another run has started in the same directory.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class FirstFiles:
    """Modification time and size of the first step's index files, by path.

    The time is in nanoseconds.
    """

    def __init__(self, path: str) -> None:
        self._index = Path(path, "index")
        self._known: dict[Path, tuple[int, int]] = {}

    def remember(self) -> None:
        """Remember the files of the first step, which further workers may add.

        Call this before the index is listed, so that a run that starts in between is noticed.
        """
        for path in self._of_first_step():
            with suppress(OSError):
                self._known.setdefault(path, _identity(path))

    def replaced_at(self) -> float | None:
        """Return when another run wrote its first step.

        The result is in Unix seconds, or None if it is the same run.
        """
        missing = False
        for path, known in self._known.items():
            try:
                now = _identity(path)
            except FileNotFoundError:
                missing = True
            except OSError:
                return None  # the file system does not respond, so the state is unknown
            else:
                if now != known:
                    return now[0] / 1e9
        if missing:
            # Not if the run was merely deleted.
            for path in self._of_first_step():
                with suppress(OSError):
                    return _identity(path)[0] / 1e9
        return None

    def _of_first_step(self) -> list[Path]:
        for folder in _sorted(self._index):
            files = [file for file in _sorted(folder) if file.suffix in {".json", ".csv"}]
            if files:
                first = files[0].name.partition("_")[0]
                return [file for file in files if file.name.startswith(f"{first}_")]
        return []


def _sorted(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size
