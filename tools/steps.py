"""Set-up steps that run when what they are made from has changed, and only then."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
STAMPS = CACHE / "stamps"


class StepError(Exception):
    """A step cannot be done on this machine; the message says what a person can do about it."""


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    """Runs a command that belongs to a step."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise StepError(f"`{' '.join(words)}` ended with {done.returncode}")


def _files(paths: Iterable[Path]) -> list[Path]:
    found: set[Path] = set()
    for path in paths:
        if path.is_dir():
            found.update(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        elif path.is_file():
            found.add(path)
    return sorted(found)


@dataclass(frozen=True)
class Step:
    """One idempotent piece of set-up: what it is made from, what must exist afterwards, and how it is done."""

    name: str
    does: Callable[[], None]
    made_from: tuple[Path, ...] = ()
    makes: tuple[Path, ...] = ()
    after: tuple[Step, ...] = ()
    settings: tuple[str, ...] = field(default=())

    def digest(self) -> str:
        """Names the state of everything the step is made from."""
        sha = hashlib.sha256(repr((self.name, self.settings)).encode())
        for file in _files(self.made_from):
            sha.update(f"{file.relative_to(ROOT).as_posix()}\0".encode())
            sha.update(hashlib.sha256(file.read_bytes()).digest())
        for step in self.after:
            sha.update(step.digest().encode())
        return sha.hexdigest()

    def ensure(self) -> None:
        """Does the step, after those it stands on, unless it is done already."""
        for step in self.after:
            step.ensure()
        stamp, digest = STAMPS / self.name, self.digest()
        if stamp.is_file() and stamp.read_text() == digest and all(path.exists() for path in self.makes):
            return
        print(f"==> {self.name}", file=sys.stderr, flush=True)
        began = time.monotonic()
        self.does()
        STAMPS.mkdir(parents=True, exist_ok=True)
        stamp.write_text(digest)
        print(f"    {self.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
