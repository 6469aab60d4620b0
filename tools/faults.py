"""The fault campaign at full length: `python tools/faults.py [--seed N] [--soak SECONDS | --no-soak] [PYTEST ARGUMENT ...]`.

Tries every byte of the golden runs, kills a writer a thousand times and so on, then soaks; at the end what was tried, by part.
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

FIGURES = CACHE / "faults"


def table() -> str:
    """What the parts left behind, those of one kind together."""
    parts: dict[str, Counter[str]] = {}
    for file in sorted(FIGURES.glob("*.json")):
        said = json.loads(file.read_text())
        name = said.pop("name")
        # `event files pt_modes` and its like are one part for each run.
        kind = next(
            (kind for kind in ("event files", "index files", "whole runs") if name.startswith(kind + " ")), name
        )
        for key in ("seed", "long", "seconds"):
            said.pop(key)
        parts.setdefault(kind, Counter()).update(said)
    lines = [
        f"{kind:<24} " + ", ".join(f"{count:,} {what}" for what, count in counts.items())
        for kind, counts in parts.items()
    ]
    soaked = FIGURES / "soak.report"
    if soaked.is_file():
        said = json.loads(soaked.read_text())
        lines += ["", "soak"]
        lines += [f"  {what}: {value}" for what, value in said.items() if what != "samples"]
    return "\n".join(lines)


def main() -> int:
    """0 when nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--soak", type=float, default=1800, help="seconds of the soak")
    parser.add_argument("--no-soak", action="store_true")
    parser.add_argument("--short", action="store_true", help="as `make test` runs it")
    given, rest = parser.parse_known_args()
    FIGURES.mkdir(parents=True, exist_ok=True)
    for old in FIGURES.glob("*.json"):
        old.unlink()
    size = "short" if given.short else "long"
    env = {**os.environ, "FAULTS_SEED": str(given.seed), "FAULTS_SIZE": size, "SOAK_SECONDS": str(given.soak)}
    pytest = [str(setup.PYTHON), "-m", "pytest", "-q", "-o", "timeout=14400"]
    # Options of pytest, such as `-k killed`, choose among all parts.
    where = rest if any((ROOT / word.split("::")[0]).exists() for word in rest) else ["tests/faults", *rest]
    began = time.monotonic()
    # Side by side but for the soak, which measures.
    campaign = [*pytest, *where, "--ignore=tests/faults/test_soak.py", "-n", str(min(4, os.cpu_count() or 1))]
    failed = subprocess.run(campaign, cwd=ROOT, env=env, check=False).returncode
    if not given.no_soak and not rest:
        failed |= subprocess.run([*pytest, "tests/faults/test_soak.py"], cwd=ROOT, env=env, check=False).returncode
    print(f"\n{table()}\n\nseed {given.seed}, {size}, {time.monotonic() - began:.0f} s")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
