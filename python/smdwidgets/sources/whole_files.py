"""Sources of files that are read whole when they were written again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from smdwidgets._text import visible
from smdwidgets.exceptions import DataError, RunIOError
from smdwidgets.sources.columns import Curves
from smdwidgets.sources.source import Scalars, Source
from smdwidgets.sources.tree import Tree, Version

__all__ = ["CurveFiles", "WholeFiles"]


class WholeFiles(Source):
    """Files that are read whole when they change.

    What was read of a file stays if it is deleted, or damaged later.
    """

    def __init__(self, tree: Tree, name: str, files: Sequence[str]) -> None:
        self.name = name
        self._tree = tree
        self._files = list(files)
        self._versions: dict[str, Version] = {}
        self._problems: dict[str, str] = {}

    def refresh(self) -> bool:
        """Read the files that were written again."""
        changed = False
        for key in self._files:
            version = self._tree.version(key)
            if version is None or version == self._versions.get(key):
                continue
            self._versions[key] = version
            self._problems.pop(key, None)
            changed = True
            try:
                self._read(key, version)
            except (DataError, RunIOError) as error:
                self._problems[key] = str(error)
        return changed

    @abstractmethod
    def _read(self, key: str, version: Version) -> None:
        """Read a file; a :class:`~smdwidgets.exceptions.DataError` becomes its problem."""

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age(self._files)

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return what could not be read."""
        return list(self._problems.items())


class CurveFiles(WholeFiles):
    """Files with curves."""

    def __init__(self, tree: Tree, name: str, files: Sequence[str]) -> None:
        super().__init__(tree, name, files)
        self._curves: dict[str, Curves] = {}

    def _by_file(self) -> Sequence[tuple[str, Curves]]:
        return [(key, self._curves[key]) for key in self._files if key in self._curves]

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the curves of all files, with the file if two share a name."""
        joined: dict[str, Scalars] = {}
        for key, curves in self._by_file():
            for name, scalars in curves.scalars.items():
                own = visible(name, 400)
                joined[own if own not in joined else f"{own} ({key.rpartition('/')[2]})"] = scalars
        return joined

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return what could not be read."""
        rows = [(key, one) for key, curves in self._by_file() for one in curves.problems]
        return [*super().problems(), *((key, f"{self._tree.path(key)}: {one}") for key, one in rows)]

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return what is read in part."""
        return [(key, f"{self._tree.path(key)}: {one}") for key, curves in self._by_file() for one in curves.notes]
