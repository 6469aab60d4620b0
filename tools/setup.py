"""Sets a checkout up: `python tools/setup.py [STEP ...]`, everything without arguments.

Each step notes what it was made from, so that a second run costs nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from steps import ROOT, Step, StepError, run

VENV = ROOT / ".venv"
PEERS = ROOT / ".venv-peers"
JS = ROOT / "js"
CHROMIUM = JS / "scripts" / "chromium.mjs"


def python_of(venv: Path) -> Path:
    """The interpreter of a virtual environment."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


PYTHON = python_of(VENV)


def _root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _apt(*packages: str) -> None:
    run("apt-get", "update", "-qq")
    run(
        "apt-get",
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        *packages,
        env={"DEBIAN_FRONTEND": "noninteractive"},
    )


def _same_python(where: Path) -> bool:
    asked = [str(python_of(where)), "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        said = subprocess.run(
            asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        ).stdout.split()
    except OSError:
        return False
    return said == [str(part) for part in sys.version_info[:2]]


def make_venv(where: Path) -> None:
    """A virtual environment of the Python that runs this, with a pip that knows dependency groups."""
    if where.exists() and not _same_python(where):
        shutil.rmtree(where)
    make = [sys.executable, "-m", "venv", str(where)]
    if subprocess.run(make, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
        # Debian keeps ensurepip in a package of its own.
        if not (_root() and shutil.which("apt-get")):
            raise StepError("python's venv module does not work here (Debian: apt install python3-venv)")
        _apt("python3-venv", f"python{sys.version_info.major}.{sys.version_info.minor}-venv")
        run(*make)
    run(python_of(where), "-m", "pip", "install", "--quiet", "pip==26.3")


def _python() -> None:
    make_venv(VENV)
    run(PYTHON, "-m", "pip", "install", "--quiet", "--group", "dev")


def _docs() -> None:
    run(PYTHON, "-m", "pip", "install", "--quiet", "--group", "docs")


def _packages() -> None:
    if shutil.which("npm") is None:
        raise StepError("Node.js >= 20 with npm is needed to build and test the front end")
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=JS)


def _front_end() -> None:
    run(sys.executable, ROOT / "packaging" / "frontend.py", "--force")


def _extension() -> None:
    if shutil.which("cargo") is None:
        raise StepError("Rust (stable, with cargo) is needed to build the extension module: see rustup.rs")
    env = {"VIRTUAL_ENV": str(VENV), "PIP_QUIET": "1"}
    run(PYTHON, "-m", "maturin", "develop", "--release", "--locked", "--quiet", env=env)


def chromium() -> dict[str, object] | None:
    """Where the tests' Chromium is and how it is started; None when this machine has none."""
    asked = subprocess.run(
        ["node", str(CHROMIUM)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    found: dict[str, object] | None = json.loads(asked.stdout) if asked.returncode == 0 else None
    return found


def _browser() -> None:
    if chromium() is not None:
        return
    if shutil.which("apt-get") and _root():
        _apt("chromium", "fonts-dejavu-core")
    else:
        # Not Debian, or not its administrator: the build that the test driver itself offers, in the user's cache.
        run("npx", "--no-install", "playwright", "install", "chromium", cwd=JS)
    if chromium() is None:
        raise StepError("no Chromium: install it (Debian: apt install chromium) or set CHROMIUM to its path")


def _peers() -> None:
    make_venv(PEERS)
    run(python_of(PEERS), "-m", "pip", "install", "--quiet", "-r", ROOT / "tests" / "peers.txt")


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def dependencies() -> list[str]:
    """What the package needs at run time."""
    needed: list[str] = PROJECT["project"]["dependencies"]
    return needed


def pins(*packages: str) -> list[str]:
    """The pinned requirements of some development packages."""
    pinned = [line for group in PROJECT["dependency-groups"].values() for line in group if isinstance(line, str)]
    return [line for line in pinned if line.partition("==")[0] in packages]


def _said(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True)


PY = Step("python", _python, makes=(PYTHON,), settings=(sys.executable, _said(PROJECT["dependency-groups"])))
DOCS = Step("docs", _docs, after=(PY,))
NPM = Step("npm", _packages, made_from=(JS / "package-lock.json",), makes=(JS / "node_modules" / ".package-lock.json",))
FRONT_END = Step(
    "front-end",
    _front_end,
    made_from=(JS / "src", JS / "scripts", ROOT / "packaging" / "frontend.py"),
    makes=tuple(ROOT / "python" / "smdwidgets" / "static" / name for name in ("widget.js", "loader.js")),
    after=(NPM,),
)
EXTENSION = Step(
    "extension",
    _extension,
    made_from=(ROOT / "rust" / "core", ROOT / "rust" / "python", ROOT / "Cargo.toml", ROOT / "Cargo.lock"),
    settings=(_said(PROJECT["project"], PROJECT["tool"]["maturin"]),),
    after=(PY,),
)
BROWSER = Step("browser", _browser, after=(NPM,))
PEERS_STEP = Step("peers", _peers, made_from=(ROOT / "tests" / "peers.txt",), makes=(python_of(PEERS),))

STEPS = {step.name: step for step in (PY, NPM, FRONT_END, EXTENSION, BROWSER, DOCS, PEERS_STEP)}
DEFAULT = (PY, FRONT_END, EXTENSION, BROWSER)


def ensure(names: list[str]) -> None:
    """Does the named steps; a machine that cannot do one gets a line that says why."""
    try:
        for step in [STEPS[name] for name in names] or DEFAULT:
            step.ensure()
    except StepError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    if unknown := [name for name in sys.argv[1:] if name not in STEPS]:
        sys.exit(f"error: no such step: {', '.join(unknown)} (there are {', '.join(STEPS)})")
    ensure(sys.argv[1:])
