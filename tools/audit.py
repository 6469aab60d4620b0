"""Check dependencies for known vulnerabilities: `make audit`. Needs the network.

A database that cannot be reached is reported and is not a failure. The exit status is 1 if any check finds something.
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
class Result:
    """The result of one check. `found` is None if the check could not run."""

    what: str
    found: bool | None
    output: str


def check(what: str, *command: str | Path, cwd: Path = ROOT, unreachable: tuple[str, ...] = ()) -> Result:
    """Run one program and return its result."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return Result(what, None, str(error))
    output = (done.stdout + done.stderr).strip()
    if any(word in output for word in unreachable):
        return Result(what, None, output)
    return Result(what, done.returncode != 0, output)


def _cargo(name: str) -> str | None:
    """Install a cargo command into the cache if it is missing.

    Return an error, or None.
    """
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


def rust() -> list[Result]:
    """Run cargo-deny.

    It checks licences, sources and bans from the lock file, and advisories from RustSec's database.
    """
    if why := _cargo("deny"):
        return [Result("cargo deny", None, why)]
    program = CACHE / "cargo-tools" / "bin" / "cargo-deny"
    command = [program] if program.exists() else ["cargo", "deny"]
    return [
        check("cargo deny: licences, sources, bans", *command, "check", "licenses", "sources", "bans"),
        check(
            "cargo deny: advisories", *command, "check", "advisories",
            unreachable=("failed to fetch advisory database", "failed to load advisory database"),
        ),
    ]  # fmt: skip


def python() -> list[Result]:
    """Run pip-audit on the run-time requirements, in the versions that the tests use."""
    try:
        steps.ensure(UV)
        make_venv(VENV, "pip-audit==2.10.1")
    except SetupError as error:
        return [Result("pip-audit", None, str(error))]
    requirements = CACHE / "audit-requirements.txt"
    requirements.write_text("".join(f"{one.name}=={one.version}\n" for one in supply.distributions()))
    arguments = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--timeout=30", "-r", str(requirements))
    return [
        check(
            "pip-audit", python_of(VENV), "-m", "pip_audit", *arguments,
            unreachable=("ConnectionError", "HTTPError", "Max retries", "ServiceError", "404", "timed out", "could not be audited"),
        )
    ]  # fmt: skip


def npm() -> list[Result]:
    """Run npm audit on the front end's tools. The bundle contains no packages."""
    return [
        check(
            "npm audit", "npm", "audit", "--audit-level=low", "--loglevel=error", cwd=ROOT / "js",
            unreachable=("audit endpoint returned an error", "ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT"),
        )
    ]  # fmt: skip


def main() -> int:
    """Run all checks; return 1 if one found something."""
    components = [*supply.crates(), *supply.distributions()]
    problems = list(supply.problems(components))
    own = Result(
        "licences and sources (offline)", bool(problems), "\n".join(problems) or f"{len(components)} components"
    )
    results = [own, *npm(), *python(), *rust()]
    for result in results:
        word = "not checked" if result.found is None else "FOUND PROBLEMS" if result.found else "ok"
        print(f"{result.what}: {word}")
        if result.found is not False:
            print("    " + "\n    ".join(result.output.splitlines()[-12:]))
    return 1 if any(result.found for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
