"""Test data packed into one archive per suite.

Usage: `python tests/fixtures.py list | unpack | pack NAME [FOLDER]`.

Tests call `unpacked(NAME)` for the folder. It is unpacked once into .cache/fixtures, under a name with the archive's
hash.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "fixtures"
ARCHIVES = {
    "golden": ROOT / "tests" / "data" / "golden.tar.xz",
    "sources": ROOT / "tests" / "data" / "sources.tar.xz",
    "tensorboard": ROOT / "tests" / "data" / "tensorboard.tar.xz",
    "training-logs": ROOT / "tests" / "data" / "training_logs.tar.xz",
    "fuzz-seeds": ROOT / "rust" / "fuzz" / "seeds.tar.xz",
}
#: Modification time of every file, so that the same files always give the same archive.
MTIME = 1_704_067_200


@cache
def unpacked(name: str) -> Path:
    """Return the folder with the files of an archive.

    Treat it as read-only: all tests share it.
    """
    content = ARCHIVES[name].read_bytes()
    folder = CACHE / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
    try:
        unpack(name, temporary / "files")
        try:
            (temporary / "files").rename(folder)  # atomic: several processes may unpack at the same time
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(temporary)
    return folder


def unpack(name: str, folder: Path) -> None:
    """Unpack an archive into a folder."""
    with tarfile.open(ARCHIVES[name]) as archive:
        archive.extractall(folder, filter="data")


def pack(name: str, folder: Path) -> None:
    """Replace an archive by the files of a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz", preset=9) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size, member.mtime = path.stat().st_size, MTIME
            with path.open("rb") as content:
                archive.addfile(member, content)
    ARCHIVES[name].write_bytes(out.getvalue())


def main(command: str = "list", name: str = "", folder: str = "") -> int:
    """Run a command; return its exit status."""
    if command not in ("list", "unpack", "pack") or (name and name not in ARCHIVES) or (command != "list" and not name):
        print(
            f"usage: fixtures.py list | unpack | pack NAME [FOLDER], NAME one of {', '.join(ARCHIVES)}", file=sys.stderr
        )
        return 2
    if command == "list":
        for one in [name] if name else ARCHIVES:
            with tarfile.open(ARCHIVES[one]) as archive:
                members = archive.getmembers()
            if name:
                print("\n".join(f"{member.size:>9,} {member.name}" for member in members))
            size = ARCHIVES[one].stat().st_size
            print(f"{one}: {len(members)} files, {sum(member.size for member in members):,} bytes, {size:,} packed")
        return 0
    place = Path(folder) if folder else CACHE / name
    if command == "unpack":
        if not folder:
            shutil.rmtree(place, ignore_errors=True)
        unpack(name, place)
        print(place.relative_to(ROOT) if place.is_relative_to(ROOT) else place)
    else:
        pack(name, place)
        print(f"{ARCHIVES[name].relative_to(ROOT)}: {ARCHIVES[name].stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
