"""Run every fuzz target from its committed seeds.

Usage: `python tools/fuzz.py [SECONDS] [TARGET ...]`.
"""

from __future__ import annotations

import subprocess
import sys

from steps import CACHE, ROOT

sys.path.append(str(ROOT / "tests"))
from fixtures import unpacked

FUZZ = ROOT / "rust" / "fuzz"
CARGO = ("cargo", "+nightly")


def works(*command: str) -> bool:
    """Return whether a command exists and succeeds."""
    try:
        return not subprocess.run(command, cwd=FUZZ, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False


def main(seconds: int, only: list[str]) -> int:
    """Fuzz each target; return 1 when one fails."""
    if not works(*CARGO, "--version"):
        sys.exit("error: nightly Rust not found: rustup toolchain install nightly --profile minimal")
    if not works(*CARGO, "fuzz", "--version"):
        print("==> cargo-fuzz", file=sys.stderr, flush=True)
        if subprocess.run(["cargo", "install", "--locked", "--quiet", "cargo-fuzz"], check=False).returncode:
            sys.exit("error: cannot install cargo-fuzz")
    listed = subprocess.run(
        [*CARGO, "fuzz", "list", "--fuzz-dir", "."], cwd=FUZZ, capture_output=True, text=True, check=True
    ).stdout.split()
    failed = []
    for target in only or listed:
        print(f"==> {target}, {seconds} s", flush=True)
        # New inputs go to the first folder; cargo-fuzz only reads the others.
        found = CACHE / "fuzz" / target
        found.mkdir(parents=True, exist_ok=True)
        seeds = unpacked("fuzz-seeds") / target
        folders = [str(found), *([str(seeds)] if seeds.is_dir() else [])]
        limits = [
            f"-max_total_time={seconds}",
            "-rss_limit_mb=2048",
            "-timeout=20",
            "-verbosity=0",
            "-print_final_stats=1",
        ]
        run = [*CARGO, "fuzz", "run", "--fuzz-dir", ".", target, *folders, "--", *limits]
        if subprocess.run(run, cwd=FUZZ, check=False).returncode:
            failed.append(target)
    targets = only or listed
    print(f"{len(targets) - len(failed)} passed, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
    return 1 if failed or not targets else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 30, sys.argv[2:]))
