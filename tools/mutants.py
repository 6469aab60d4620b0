"""Apply the mutations of tools/mutants.toml; report those that no test notices.

Usage: `python tools/mutants.py [NAME ...]`: all, or those whose name or file contains one of the words.

A mutation replaces one passage of a file, in a copy of the working tree. It is killed if its tests fail. The tests must
pass without it. The exit status is 1 if a mutation survives or cannot be applied.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps import ROOT

TABLE = Path(__file__).with_suffix(".toml")
PY = os.environ.get("MUTANTS_PYTHON", str(ROOT / ".venv/bin/python"))
LIMIT = 900  # seconds for one run of tests; a mutation that makes them hang is killed


@dataclass(frozen=True)
class Mutant:
    """One mutation and the tests that must notice it."""

    name: str
    file: str
    before: str
    after: str
    tests: str

    def command(self) -> list[str]:
        """Return the command of the tests: the kind of the file decides the runner."""
        arguments = self.tests.split()
        if self.file.endswith(".rs"):
            return ["cargo", "test", "-q", "-p", "smdwidgets-core", "--lib", *arguments]
        if self.file.endswith(".ts"):
            return ["npx", "--no-install", "vitest", "run", *arguments]
        return [PY, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]


def load(words: list[str]) -> list[Mutant]:
    """Return the mutants of the table that contain one of the words, or all."""
    table: list[dict[str, Any]] = tomllib.loads(TABLE.read_text())["mutant"]
    mutants = [Mutant(**entry) for entry in table]
    return [one for one in mutants if not words or any(word in one.name or word in one.file for word in words)]


def copy(target: Path) -> None:
    """Copy the files that git tracks or would track, and the built extension."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    built = [str(path.relative_to(ROOT)) for path in (ROOT / "python/smdwidgets").glob("_core*.*")]
    static = [str(path.relative_to(ROOT)) for path in (ROOT / "python/smdwidgets/static").glob("*")]
    for name in {*listed.split("\0"), *built, *static} - {"", "js/node_modules"}:
        source = ROOT / name
        if source.is_file() and not source.is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    (target / "js/node_modules").symlink_to((ROOT / "js/node_modules").resolve())


def passes(mutant: Mutant, tree: Path) -> bool:
    """Whether the tests of a mutant pass in the tree."""
    env = {
        **os.environ,
        "PYTHONPATH": str(tree / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target/mutants")),
    }
    try:
        done = subprocess.run(
            mutant.command(),
            cwd=tree / "js" if mutant.file.endswith(".ts") else tree,
            env=env,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode and "--verbose" in sys.argv:
        print(done.stdout[-3000:], done.stderr[-3000:])
    return done.returncode == 0


def main(words: list[str]) -> int:
    """Try the mutants; return 1 if one survives."""
    mutants = load([word for word in words if word != "--verbose"])
    survivors, sound = [], dict[str, bool]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        copy(tree)
        for mutant in mutants:
            path = tree / mutant.file
            original = path.read_text()
            command = " ".join(mutant.command())
            if original.count(mutant.before) != 1:
                outcome = f"CANNOT BE APPLIED: {original.count(mutant.before)} places"
            elif not (sound[command] if command in sound else sound.setdefault(command, passes(mutant, tree))):
                outcome = "TESTS FAIL WITHOUT IT"
            else:
                path.write_text(original.replace(mutant.before, mutant.after))
                if mutant.file.endswith(".rs"):
                    os.utime(path)  # cargo compares times
                outcome = "SURVIVES" if passes(mutant, tree) else "killed"
                path.write_text(original)
            if outcome != "killed":
                survivors.append(mutant.name)
            print(f"{outcome:<10} {mutant.name} ({mutant.file}; {mutant.tests})", flush=True)
    print(
        f"\n{len(mutants) - len(survivors)} killed, {len(survivors)} survive"
        + "".join(f"\n  {name}" for name in survivors)
    )
    return 1 if survivors or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
