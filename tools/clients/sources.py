"""Find client programs in a clone: in its work tree, newest commit or history."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


class NotAClone(Exception):
    """The directory is not a clone of the expected repository; the message says why."""


def _git(clone: Path, *words: str) -> bytes | None:
    command = ["git", "-c", "safe.directory=*", "-c", "core.quotePath=false", "-C", str(clone), *words]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


@dataclass(frozen=True)
class Clone:
    """A local copy of a repository, with or without a work tree and a history."""

    path: Path
    scratch: Path  # where files that exist only in git are written
    files: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, scratch: Path, marks: tuple[str, ...]) -> Clone:
        """Open a clone.

        Args:
            path: The directory.
            scratch: Where to write files that are only in git.
            marks: Patterns of path endings; the clone must have a file for each.

        Raises:
            NotAClone: If the directory is missing or has no such files.
        """
        if not path.is_dir():
            raise NotAClone(f"{path} is not a directory")
        listed = _git(path, "ls-tree", "-r", "-z", "--name-only", "HEAD") if cls._is_repository(path) else None
        if listed is not None:
            files = tuple(name for name in listed.decode(errors="replace").split("\0") if name)
        else:
            files = tuple(sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()))
        for mark in marks:
            if not any(name.endswith(mark) for name in files):
                raise NotAClone(f"{path} has no file {mark}")
        return cls(path, scratch, files)

    @staticmethod
    def _is_repository(path: Path) -> bool:
        return (path / ".git").exists() or (path / "HEAD").is_file() or (path / "objects").is_dir()

    def find(self, ending: str) -> Path | None:
        """Return the file whose path is `ending` or ends with it, or None.

        The file is extracted from git if needed.
        """
        for name in self.files:
            if name == ending or name.endswith("/" + ending):
                here = self.path / name
                return here if here.is_file() else self._extract("HEAD", name)
        added = _git(self.path, "log", "--all", "-1", "--diff-filter=AM", "--format=%H", "--", ending)
        if added and (commit := added.decode().strip()):
            return self._extract(commit, ending)
        return None

    def _extract(self, commit: str, name: str) -> Path | None:
        target = self.scratch / commit[:12] / name.strip()
        if not target.is_file():
            text = _git(self.path, "show", f"{commit}:{name}")
            if text is None:
                return None
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
        return target
