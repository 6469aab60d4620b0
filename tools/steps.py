"""Set-up steps that run only when their inputs have changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from processes import ProcessFamily

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
STAMPS = CACHE / "stamps"
_APT = Lock()
_COMMANDS = ProcessFamily()


class SetupError(Exception):
    """A step failed; the message says what to install or change."""


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    """Run a command; raise `SetupError` when it fails."""
    words = [str(word) for word in command]
    process = _COMMANDS.start(words, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
    if process.wait():
        raise SetupError(f"`{' '.join(words)}` failed with exit status {process.returncode}")


def can_apt() -> bool:
    """Return whether this system is based on Debian and the user may install packages."""
    return shutil.which("apt-get") is not None and hasattr(os, "geteuid") and os.geteuid() == 0


def apt_install(*packages: str) -> None:
    """Install Debian packages."""
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    with _APT:
        run("apt-get", "update", "-qq", env=env)
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, env=env)


def hash_files(paths: Iterable[Path]) -> str:
    """Return a hash of the names and contents of files, also below folders."""
    sha = hashlib.sha256()
    for file in _files(paths):
        sha.update(f"{file.relative_to(ROOT).as_posix()}\0".encode())
        sha.update(hashlib.sha256(file.read_bytes()).digest())
    return sha.hexdigest()


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
    """An idempotent part of the set-up.

    Attributes:
        name: what is printed, and the name of its stamp.
        action: does the step.
        inputs: files and folders; a change to one makes the step run again.
        outputs: what must exist afterwards.
        requires: steps that must be done first.
        key: further inputs, such as versions.
    """

    name: str
    action: Callable[[], None]
    inputs: tuple[Path, ...] = ()
    outputs: tuple[Path, ...] = ()
    requires: tuple[Step, ...] = ()
    key: tuple[str, ...] = ()

    def digest(self) -> str:
        """Return a hash of all inputs, including those of required steps."""
        sha = hashlib.sha256(repr((self.name, self.key)).encode())
        sha.update(hash_files(self.inputs).encode())
        for step in self.requires:
            sha.update(step.digest().encode())
        return sha.hexdigest()

    def run(self) -> None:
        """Do the step unless it is up to date. The steps it requires must be done."""
        stamp, digest = STAMPS / self.name, self.digest()
        if stamp.is_file() and stamp.read_text() == digest and all(path.exists() for path in self.outputs):
            return
        print(f"==> {self.name}", file=sys.stderr, flush=True)
        stamp.unlink(missing_ok=True)
        start = time.monotonic()
        self.action()
        STAMPS.mkdir(parents=True, exist_ok=True)
        stamp.write_text(digest)
        print(f"    {self.name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def ensure(*steps: Step) -> None:
    """Do these steps and those they require, side by side where the order allows."""
    futures: dict[str, Future[None]] = {}

    def submit(step: Step) -> Future[None]:
        if step.name not in futures:
            required = [submit(one) for one in step.requires]

            def task() -> None:
                for future in required:
                    future.result()
                step.run()

            futures[step.name] = pool.submit(task)
        return futures[step.name]

    # A thread for each step: those that wait for another must not occupy the place of that one.
    with ThreadPoolExecutor(max_workers=32) as pool:
        try:
            for step in steps:
                submit(step)
            for future in futures.values():
                future.result()
        except KeyboardInterrupt:
            _COMMANDS.end()  # the threads of the pool wait for these processes
            raise
