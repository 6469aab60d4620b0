"""Set up a checkout: `python tools/setup.py [STEP ...]`, by default all steps.

Each step records a hash of its inputs in .cache/stamps, so a second run does only what has changed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import extension
import steps
from processes import interrupt_on_termination
from steps import CACHE, ROOT, SetupError, Step, apt_install, can_apt, run
from uv import PROJECT, UV, install, make_venv, python_of

VENV = ROOT / ".venv"
PYTHON = python_of(VENV)
PEERS = ROOT / ".venv-peers"
INTERFACES = ROOT / ".venv-interfaces"
JS = ROOT / "js"
SERVERS = CACHE / "servers"
SERVER_PACKAGES = ("package.json", "package-lock.json", ".npmrc")
CHROMIUM = JS / "scripts" / "chromium.mjs"


def _packages() -> None:
    if shutil.which("npm") is None:
        raise SetupError("npm not found; install Node.js 20 or newer with npm")
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=JS)


def chromium() -> dict[str, object] | None:
    """Return the path and arguments of the tests' Chromium, or None."""
    done = subprocess.run(
        ["node", str(CHROMIUM)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    found: dict[str, object] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return found


def _browser() -> None:
    if chromium() is not None:
        return
    if can_apt():
        apt_install("chromium", "fonts-dejavu-core")
    else:
        # Playwright's own build, in the user's cache.
        run("npx", "--no-install", "playwright", "install", "chromium", cwd=JS)
    if chromium() is None:
        raise SetupError("Chromium not found; install it (Debian: apt install chromium) or set CHROMIUM to its path")


def _servers() -> None:
    if shutil.which("npm") is None:
        raise SetupError("npm not found; install Node.js 20 or newer with npm")
    SERVERS.mkdir(parents=True, exist_ok=True)
    for name in SERVER_PACKAGES:
        shutil.copyfile(ROOT / "tests" / "servers" / name, SERVERS / name)
    run("npm", "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--loglevel=error", cwd=SERVERS)


def _json(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True)


PY = Step(
    "python",
    lambda: make_venv(VENV, "--group", "dev"),
    outputs=(PYTHON,),
    requires=(UV,),
    key=(_json(PROJECT["dependency-groups"]),),
)
DOCS = Step("docs", lambda: install(VENV, "--group", "docs"), requires=(PY,))
NPM = Step("npm", _packages, inputs=(JS / "package-lock.json",), outputs=(JS / "node_modules" / ".package-lock.json",))
FRONT_END = Step(
    "front-end",
    lambda: run(sys.executable, ROOT / "packaging" / "frontend.py", "--force"),
    inputs=(JS / "src", JS / "scripts", ROOT / "packaging" / "frontend.py"),
    outputs=tuple(ROOT / "python" / "smdwidgets" / "static" / name for name in ("parts.json", "loader.js")),
    requires=(NPM,),
)
EXTENSION = Step(
    "extension",
    lambda: extension.build(VENV),
    inputs=extension.SOURCES,
    requires=(PY,),
    key=(_json(PROJECT["project"], PROJECT["tool"]["maturin"]),),
)
BROWSER = Step("browser", _browser, requires=(NPM,))
SERVERS_STEP = Step(
    "servers",
    _servers,
    inputs=tuple(ROOT / "tests" / "servers" / name for name in SERVER_PACKAGES),
    outputs=(SERVERS / "node_modules" / "azurite",),
)


def _others(name: str, venv: Path) -> Step:
    """Return the step that installs what `tests/NAME.txt` lists in an environment."""
    packages = ROOT / "tests" / f"{name}.txt"
    return Step(
        name,
        lambda: make_venv(venv, "-r", packages),
        inputs=(packages,),
        outputs=(python_of(venv),),
        requires=(UV,),
    )


PEERS_STEP = _others("peers", PEERS)
INTERFACES_STEP = _others("interfaces", INTERFACES)

STEPS = {
    step.name: step
    for step in (UV, PY, NPM, FRONT_END, EXTENSION, BROWSER, DOCS, SERVERS_STEP, PEERS_STEP, INTERFACES_STEP)
}
DEFAULT = ("python", "front-end", "extension", "browser")


def ensure(names: list[str] | tuple[str, ...] = DEFAULT) -> None:
    """Do the named steps; exit with the reason when one fails."""
    try:
        if "extension" in names:
            extension.require_rust()  # before anything is downloaded
        steps.ensure(*(STEPS[name] for name in names))
    except SetupError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    if unknown := [name for name in sys.argv[1:] if name not in STEPS]:
        sys.exit(f"error: unknown step: {', '.join(unknown)}; choose from {', '.join(STEPS)}")
    interrupt_on_termination()
    try:
        ensure(sys.argv[1:] or DEFAULT)
    except KeyboardInterrupt:
        sys.exit(130)
