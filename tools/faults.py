"""Run the fault campaigns at full length, then the soak.

Usage: `python tools/faults.py [--seed N] [--soak SECONDS | --no-soak] [PYTEST ARGUMENT ...]`.

The campaigns change every byte of the golden runs, kill a writer a thousand times and so on. At the end the numbers of
cases are printed, by part. `make test` runs a small sample of each.

"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter

import setup
from steps import CACHE, ROOT

RESULTS = CACHE / "faults"
SOAK = "tests/faults/test_soak.py"
CAMPAIGNS = (
    "tests/faults",
    "tests/python/hooks/test_run_directory.py::test_killed_at_any_moment_every_visible_step_is_whole",
    "tests/python/stores/test_faults.py",
    "tests/python/stores/test_forks.py",
    "tests/python/s3/test_storage.py::test_faults_change_no_byte",
    "tests/python/s3/test_s3_trial.py::test_faults_lose_no_step_and_change_no_value",
)


def table() -> str:
    """Return the counts that the parts recorded, summed by kind."""
    parts: dict[str, Counter[str]] = {}
    for file in sorted(RESULTS.glob("*.json")):
        counts = json.loads(file.read_text())
        name = counts.pop("name")
        # Parts such as `event files pt_modes` are recorded for each run.
        kinds = ("event files", "index files", "whole runs")
        kind = next((kind for kind in kinds if name.startswith(kind + " ")), name)
        for key in ("seed", "long", "seconds"):
            counts.pop(key)
        parts.setdefault(kind, Counter()).update(counts)
    lines = [
        f"{kind:<24} " + ", ".join(f"{count:,} {what}" for what, count in counts.items())
        for kind, counts in parts.items()
    ]
    soak = RESULTS / "soak.report"
    if soak.is_file():
        lines += ["", "soak"]
        lines += [f"  {what}: {value}" for what, value in json.loads(soak.read_text()).items() if what != "samples"]
    return "\n".join(lines)


def main() -> int:
    """Run the campaigns; return 0 when nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--soak", type=float, default=1800, help="seconds of the soak")
    parser.add_argument("--no-soak", action="store_true")
    parser.add_argument("--short", action="store_true", help="the sample that `make test` runs")
    args, rest = parser.parse_known_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in RESULTS.glob("*.json"):
        old.unlink()
    size = "short" if args.short else "long"
    env = {**os.environ, "FAULTS_SEED": str(args.seed), "FAULTS_SIZE": size, "SOAK_SECONDS": str(args.soak)}
    pytest = [str(setup.PYTHON), "-m", "pytest", "-q", "-o", "timeout=14400"]
    # Options of pytest, such as `-k killed`, select from all campaigns; paths replace them.
    where = rest if any((ROOT / word.split("::")[0]).exists() for word in rest) else [*CAMPAIGNS, *rest]
    start = time.monotonic()
    # The soak measures memory and runs alone.
    command = [*pytest, *where, f"--ignore={SOAK}", "-n", str(min(4, os.cpu_count() or 1))]
    failed = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    if not args.no_soak and not rest:
        failed |= subprocess.run([*pytest, SOAK], cwd=ROOT, env=env, check=False).returncode
    print(f"\n{table()}\n\nseed {args.seed}, {size}, {time.monotonic() - start:.0f} s")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
