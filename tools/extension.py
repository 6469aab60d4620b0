"""Build the extension module, or take it from this user's cache of builds.

The cache makes a second checkout of the same sources ready in seconds. A build is identified by a hash of everything
that it is made from: sources, lock file, profile, compiler and Python.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from steps import ROOT, SetupError, hash_files, run
from uv import PROJECT, environment, install, python_of

SOURCES = (*(ROOT / "rust" / name for name in ("core", "stores", "python")), ROOT / "Cargo.toml", ROOT / "Cargo.lock")
PACKAGE = ROOT / "python" / "smdwidgets"
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]
RUST_MISSING = f"""Rust {CARGO["rust-version"]} or newer is needed to build the extension module; {{problem}}.
Install it from https://rustup.rs (no administrator rights needed), open a new terminal and run the command again."""
#: Builds that are kept, the latest ones.
KEPT = 4


def require_rust() -> str:
    """Return the description of the compiler.

    Raise with the way to install it if it is missing or too old.
    """
    if shutil.which("cargo") is None or shutil.which("rustc") is None:
        raise SetupError(RUST_MISSING.format(problem="no cargo is on the PATH"))
    done = subprocess.run(["rustc", "-vV"], cwd=ROOT, capture_output=True, text=True, check=False)
    version = re.match(r"rustc (\d+)\.(\d+)", done.stdout)
    if done.returncode or not version:
        raise SetupError(RUST_MISSING.format(problem=f"`rustc -vV` fails: {done.stderr.strip()}"))
    if (int(version[1]), int(version[2])) < tuple(map(int, CARGO["rust-version"].split("."))):
        raise SetupError(RUST_MISSING.format(problem=f"this is {version[0]} (`rustup update` installs a newer one)"))
    return done.stdout


def build(venv: Path) -> None:
    """Install the package editable, with its extension, into an environment."""
    folder = _cache() / _digest(require_rust())
    if modules := list(folder.glob("_core*")):
        for module in modules:
            _replace(module, PACKAGE / module.name)
        _install_editable(venv, folder / "METADATA")
        folder.touch()
        return
    env = {**environment(), "VIRTUAL_ENV": str(venv)}
    run(python_of(venv), "-m", "maturin", "develop", "--uv", "--profile", "dev", "--locked", "--quiet", env=env)
    _keep(folder, venv)


def _digest(compiler: str) -> str:
    built_from = (compiler, sys.version, platform.platform(), str(PROJECT["project"]), str(PROJECT["tool"]["maturin"]))
    flags = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if re.match("RUSTFLAGS|CARGO_(BUILD|PROFILE)", name)
    ]
    return hashlib.sha256(repr((built_from, flags, hash_files(SOURCES))).encode()).hexdigest()[:24]


def _cache() -> Path:
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "smdwidgets" / "builds"


def _modules() -> Iterator[Path]:
    for pattern in ("_core*.so", "_core*.pyd"):
        yield from PACKAGE.glob(pattern)


def _keep(folder: Path, venv: Path) -> None:
    """Copy the build into the cache, and remove old builds.

    The folder appears when it is complete.
    """
    [metadata] = venv.glob("**/site-packages/smdwidgets-*.dist-info/METADATA")
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        for file in (*_modules(), metadata):
            shutil.copyfile(file, partial / file.name)
        partial.rename(folder)
        builds = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in builds[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:  # a cache that cannot be written is no reason to stop
        print(f"    the build is not cached: {error}", file=sys.stderr)
        shutil.rmtree(partial, ignore_errors=True)


def _replace(source: Path, target: Path) -> None:
    """Replace a module that may be loaded in another process."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, partial)
    partial.replace(target)


def _install_editable(venv: Path, metadata: Path) -> None:
    """Install a wheel that has only the metadata and the path of the sources."""
    name = f"smdwidgets-{CARGO['version']}"
    info = f"{name}.dist-info"
    scripts = "\n".join(f"{script} = {target}" for script, target in PROJECT["project"]["scripts"].items())
    files = {
        "smdwidgets.pth": f"{PACKAGE.parent}\n",
        f"{info}/METADATA": metadata.read_text(encoding="utf-8"),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: smdwidgets\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{scripts}\n",
    }
    record = [f"{path},sha256={_wheel_hash(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    wheel = ROOT / ".cache" / f"{name}-py3-none-any.whl"
    wheel.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    try:
        install(venv, "--no-deps", "--reinstall", "--no-cache", wheel)
    finally:
        wheel.unlink()


def _wheel_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
