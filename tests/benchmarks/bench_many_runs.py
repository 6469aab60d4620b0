"""Open many TensorBoard runs, beside TensorBoard's server and tbparse.

Usage: python tests/benchmarks/bench_many_runs.py [--scale 0.1]

Two directories: 1,000 runs of 10 scalars at 100 steps, and 100 runs of a million scalars in all. Ours verifies every
checksum.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import report
from run import ask

from smdwidgets import _core

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / ".venv" / "bin" / "python"

OURS = {
    "ours_created": "create_trials, each run is read at its first query",
    "ours_all": "create_trials(lazy=False), all runs read",
    "ours_table": "smdwidgets.runs, the first time",
    "ours_table_again": "smdwidgets.runs, the second time",
}
#: CPU seconds for 1,000 runs.
TARGETS = {"ours_created": 0.3, "ours_all": 1.5, "ours_table_again": 1.0}
#: Rounds, ours and the server alternately; the least of each is kept, because other work only adds.
ROUNDS = 3
#: Share of the runs that tbparse reads; its time is scaled up.
SAMPLE = 10


def write(root: Path, runs: int, tags: int, steps: int) -> None:
    """Write runs of so many scalars."""
    for number in range(runs):
        folder = root / f"sweep_{number % 10}" / f"run_{number:04d}"
        folder.mkdir(parents=True)
        with (folder / "events.out.tfevents.1700000000.host").open("wb") as out:
            out.write(_core.version_record(1.0))
            for step in range(steps):
                for tag in range(tags):
                    value = number / (step + 1) + tag
                    out.write(_core.scalar_record(f"metrics/number_{tag:02d}", step, 1.7e9 + step, value))


def compare(what: str, path: Path, sample: Path, many: bool) -> list[list[str]]:
    """Return a row for each way in which we open the runs."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for who in [*OURS, "server", "server_checked"]:
            found = ask(PYTHON, "tensorboard_readers.py", who, str(path))
            kept = best.setdefault(who, found)
            best[who] = {key: min(kept[key], found[key]) for key in kept}
    parsed = ask(PYTHON, "tensorboard_readers.py", "tbparse", str(sample))["cpu"] * SAMPLE
    rows = []
    for who, name in OURS.items():
        mine, server, checked = best[who], best["server"], best["server_checked"]
        ratio = (
            f"{server['cpu'] / mine['cpu']:.1f}× time, {server['megabytes'] / max(mine['megabytes'], 0.1):.1f}× memory"
        )
        target, met = "–", True
        if many and who in TARGETS:
            target, met = f"≤ {TARGETS[who]} s", mine["cpu"] <= TARGETS[who]
        if not many and who == "ours_all":
            target = "> 1× time, ≥ 2× memory"
            met = mine["cpu"] < server["cpu"] and 2 * mine["megabytes"] <= server["megabytes"]
        rows.append(
            [
                what, name, f"{mine['cpu']:.2f} s, {mine['megabytes']:.0f} MB",
                f"{server['cpu']:.2f} s, {server['megabytes']:.0f} MB", f"{checked['cpu']:.2f} s", f"{parsed:.0f} s", ratio, target,
                "–" if target == "–" else "yes" if met else "**no**",
            ]
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Write the runs, time the readers, print and keep the table."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--scale", type=float, default=1.0, help="share of the runs: 1 is 1,000 and 100 runs")
    scale = given.parse_args().scale
    rows = []
    for count, steps, what in (
        (1000, 100, "{} runs of 10 scalars at 100 steps"),
        (100, 1000, "{} runs of {:,} scalars in all"),
    ):
        runs = max(SAMPLE, int(count * scale))
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder, "logs"), runs, 10, steps)
            write(Path(folder, "sample"), runs // SAMPLE, 10, steps)
            name = what.format(f"{runs:,}", runs * 10 * steps)
            rows += compare(name, Path(folder, "logs"), Path(folder, "sample"), count == 1000)
    head = [
        "runs",
        "way",
        "ours",
        "TensorBoard's server",
        "the same with checksums",
        "tbparse",
        "ratio to the server",
        "target",
        "met",
    ]
    body = (
        "`python tests/benchmarks/bench_many_runs.py`. CPU seconds and memory beyond the reader's imports, one thread for smdwidgets; the least of "
        f"{ROUNDS} rounds, in which ours and the server alternate. The server reads all scalars. tbparse reads {100 // SAMPLE} % of the runs, and "
        f"its time is scaled up. Load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores, which increases CPU times of both sides.\n\n"
        + report.table(head, rows)
    )
    print(body)
    if scale == 1:
        report.write_section("Many TensorBoard runs", body)


if __name__ == "__main__":
    main()
