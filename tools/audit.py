"""Asks the databases of known holes for everything that is built with or shipped: `make audit`. Needs the network.

A database that can't be reached is said, and is no failure: what could be asked decides. Exit code 1 when something was found.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import steps
import supply
from steps import CACHE, ROOT, SetupError
from uv import UV, make_venv, python_of

VENV = ROOT / ".venv-audit"


@dataclass(frozen=True)
class Answer:
    """What became of one question: `found` is None where nobody answered."""

    what: str
    found: bool | None
    said: str


def asked(what: str, *command: str | Path, cwd: Path = ROOT, unreachable: tuple[str, ...] = ()) -> Answer:
    """One program's answer."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return Answer(what, None, str(error))
    said = (done.stdout + done.stderr).strip()
    if any(word in said for word in unreachable):
        return Answer(what, None, said)
    return Answer(what, done.returncode != 0, said)


def _cargo(name: str) -> str | None:
    """A cargo command, installed into the cache if there is none; why not, if it can't be."""
    root = CACHE / "cargo-tools"
    if not subprocess.run(["cargo", name, "--version"], capture_output=True, check=False).returncode:
        return None
    if (root / "bin" / f"cargo-{name}").exists():
        return None
    print(f"==> cargo-{name}, which takes minutes to build", file=sys.stderr, flush=True)
    made = subprocess.run(
        ["cargo", "install", "--locked", "--quiet", "--root", str(root), f"cargo-{name}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return made.stderr.strip()[-400:] if made.returncode else None


def rust() -> list[Answer]:
    """cargo-deny: licences, sources and bans from the lock file, advisories from RustSec's database on GitHub."""
    if why := _cargo("deny"):
        return [Answer("cargo deny", None, why)]
    program = CACHE / "cargo-tools" / "bin" / "cargo-deny"
    command = [program] if program.exists() else ["cargo", "deny"]
    return [
        asked("cargo deny: licences, sources, bans", *command, "check", "licenses", "sources", "bans"),
        asked(
            "cargo deny: advisories", *command, "check", "advisories",
            unreachable=("failed to fetch advisory database", "failed to load advisory database"),
        ),
    ]  # fmt: skip


def python() -> list[Answer]:
    """pip-audit on what is needed at run time, in the versions that the tests run with."""
    try:
        steps.ensure(UV)
        make_venv(VENV, "pip-audit==2.10.1")
    except SetupError as error:
        return [Answer("pip-audit", None, str(error))]
    wanted = CACHE / "audit-requirements.txt"
    wanted.write_text("".join(f"{one.name}=={one.version}\n" for one in supply.distributions()))
    arguments = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--timeout=30", "-r", str(wanted))
    return [
        asked(
            "pip-audit", python_of(VENV), "-m", "pip_audit", *arguments,
            unreachable=("ConnectionError", "HTTPError", "Max retries", "ServiceError", "404", "timed out", "could not be audited"),
        )
    ]  # fmt: skip


def npm() -> list[Answer]:
    """Npm audit on the front end's tools; the bundle itself holds no package."""
    return [
        asked(
            "npm audit", "npm", "audit", "--audit-level=low", "--loglevel=error", cwd=ROOT / "js",
            unreachable=("audit endpoint returned an error", "ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT"),
        )
    ]  # fmt: skip


def main() -> int:
    """Asks all of them."""
    components = [*supply.crates(), *supply.distributions()]
    problems = list(supply.faults(components))
    own = Answer(
        "licences and sources (offline)", bool(problems), "\n".join(problems) or f"{len(components)} components"
    )
    answers = [own, *npm(), *python(), *rust()]
    for answer in answers:
        word = "COULD NOT BE ASKED" if answer.found is None else "FOUND SOMETHING" if answer.found else "nothing found"
        print(f"{answer.what}: {word}")
        if answer.found is not False:
            print("    " + "\n    ".join(answer.said.splitlines()[-12:]))
    return 1 if any(answer.found for answer in answers) else 0


if __name__ == "__main__":
    sys.exit(main())
