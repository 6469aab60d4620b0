"""Manage virtual environments and Python packages with uv.

uv uses the package index that pip is configured for. uv itself comes from the package index: its wheel contains the
program. The version is pinned in pyproject.toml.

uv itself comes from the package index: its wheel contains the program. The version is pinned in pyproject.toml.
"""

from __future__ import annotations

import ast
import functools
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from steps import CACHE, ROOT, SetupError, Step, apt_install, can_apt, run

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: uv reads none of pip's settings. These have a variable of uv with the same meaning.
FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
HOME = CACHE / "uv"


def python_of(venv: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def program() -> Path:
    """Return the path of the uv executable."""
    return python_of(HOME).with_name("uv.exe" if os.name == "nt" else "uv")


def pins(*packages: str) -> list[str]:
    """Return the pinned requirements of these packages from the dependency groups."""
    lines = [line for group in PROJECT["dependency-groups"].values() for line in group if isinstance(line, str)]
    return [line for line in lines if line.partition("==")[0] in packages]


def _install_uv() -> None:
    shutil.rmtree(HOME, ignore_errors=True)
    make = [sys.executable, "-m", "venv", str(HOME)]
    if subprocess.run(make, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
        # Debian packages the venv module separately.
        if not can_apt():
            raise SetupError("Python's venv module does not work; install it (Debian: apt install python3-venv)")
        apt_install("python3-venv", f"python{sys.version_info.major}.{sys.version_info.minor}-venv")
        run(*make)
    run(python_of(HOME), "-m", "pip", "install", "--quiet", *pins("uv"))


UV = Step("uv", _install_uv, outputs=(program(),), key=(sys.executable, *pins("uv")))


def from_pip(config: str) -> tuple[dict[str, str], list[str]]:
    r"""Translate the output of ``pip config list`` for uv.

    The result has environment variables and options.

    >>> from_pip("global.index-url='file:///mirror'\n:env:.find-links='file:///a https://b'\n")
    ({'UV_DEFAULT_INDEX': 'file:///mirror', 'UV_FIND_LINKS': 'file:///a,https://b'}, [])
    """
    values: dict[str, str] = {}
    # In pip's order of precedence, the highest last: every command, `pip install`, the environment.
    for section in ("global.", "install.", ":env:."):
        for line in config.splitlines():
            name, separator, value = line.removeprefix(section).partition("=")
            if line.startswith(section) and separator:
                values[name] = str(ast.literal_eval(value))
    found = {FROM_PIP[name]: value.split() for name, value in values.items() if name in FROM_PIP}
    if links := found.pop("UV_FIND_LINKS", []):
        # pip warns of a folder that does not exist, uv fails.
        found["UV_FIND_LINKS"] = [",".join(link for link in links if "://" in link or Path(link).exists())]
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = ["unsafe-best-match"]  # as in pip: the best version of all indexes
    no_index = values.get("no-index", "").lower() in ("1", "true", "yes", "on")
    return {name: " ".join(words) for name, words in found.items() if any(words)}, ["--no-index"] if no_index else []


@functools.cache
def _from_pip() -> tuple[dict[str, str], list[str]]:
    command = [python_of(HOME), "-m", "pip", "config", "list"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return from_pip(done.stdout)


def environment() -> dict[str, str]:
    """Return the variables that uv runs with.

    Those already set take precedence over pip's configuration.
    """
    # Use the machine's certificates, as pip does, and never download another Python.
    env = {"UV_SYSTEM_CERTS": "true", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", **_from_pip()[0]}
    env["PATH"] = os.pathsep.join([str(program().parent), os.environ.get("PATH", os.defpath)])
    return {name: value for name, value in env.items() if name == "PATH" or name not in os.environ}


def make_venv(where: Path, *requirements: str | Path) -> None:
    """Create a virtual environment of the running Python, replacing an older one."""
    run(program(), "venv", "--quiet", "--clear", "--python", sys.executable, where, env=environment())
    install(where, *requirements)


def install(where: Path, *requirements: str | Path) -> None:
    """Install packages into a virtual environment."""
    options = ["--quiet", "--python", python_of(where), *_from_pip()[1]]
    run(program(), "pip", "install", *options, *requirements, env=environment())
