"""Read a W&B run of a million rows, beside W&B's own reader.

Usage: python tests/benchmarks/bench_wandb.py --peer PYTHON [--rows 1000000]

PYTHON has `wandb==0.25.1` and NumPy; see `peer_wandb.py`. Both sides return steps and values of each name as arrays.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
from pathlib import Path

import report
from clock import once, print_result
from run import ask

#: Pairs of measurements; their ratios count, because the machine's speed drifts.
PAIRS = 3


def measure(path: str) -> None:
    """Time ours in this process."""
    import smdwidgets

    def read() -> None:
        trial = smdwidgets.create_trial(path)
        kept.extend((name, trial.scalars(name)) for name in trial.tensor_names())

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept: list[tuple[str, smdwidgets.trials.tables.Table]] = []
    cpu, wall = once(read)
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    sums = {name: float(table["value"].sum()) for name, table in kept}
    print_result({"cpu": cpu, "wall": wall, "megabytes": megabytes, "sums": sums})


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--peer", required=True, metavar="PYTHON")
    asked.add_argument("--rows", type=int, default=1_000_000)
    asked.add_argument("--file", type=Path, help="where the file is kept for the next run")
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "run-bench.wandb"
        if not path.is_file():
            ask(options.peer, "peer_wandb.py", "write", str(path), str(options.rows))
        size = path.stat().st_size
        pairs = []
        for _ in range(PAIRS):
            mine = ask(sys.executable, "bench_wandb.py", "measure", str(path))
            theirs = ask(options.peer, "peer_wandb.py", "read", str(path))
            same = {name: float(f"{total:.9e}") for name, total in mine["sums"].items()} == {
                name: float(f"{total:.9e}") for name, total in theirs["sums"].items()
            }
            assert same, "the numbers differ"
            pairs.append((mine, theirs))
            print(f"{mine['cpu']:.2f} s; {theirs['cpu']:.2f} s, without JSON {theirs['scan']:.2f} s", flush=True)
    rows = []
    cpu = statistics.median(mine["cpu"] for mine, _ in pairs)
    for key, what, target in (("cpu", "steps and values as arrays", 5), ("scan", "records only, no JSON is parsed", 0)):
        peer = statistics.median(theirs[key] for _, theirs in pairs)
        ratios = sorted(theirs[key] / mine["cpu"] for mine, theirs in pairs)
        ratio = f"{ratios[len(ratios) // 2]:.1f}x faster ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        met = "–" if not target else "yes" if ratios[len(ratios) // 2] >= target else "**no**"
        rows.append(
            [f"W&B's reader: {what}", f"{cpu:.2f} s", f"{peer:.2f} s", ratio, f">= {target}x" if target else "", met]
        )
    megabytes = max(mine["megabytes"] for mine, _ in pairs)
    rows.append(["peak memory beyond the import", f"{megabytes:.0f} MB", "", "", "", "–"])
    head = ["what", "ours", "peer", "ratio of pairs, median (range)", "target", "met"]
    body = (
        f"`python tests/benchmarks/bench_wandb.py`. A file of {options.rows:,} rows with 4 numbers each and W&B's three, "
        f"{size / 1e6:.0f} MB, written with W&B's library. CPU seconds of a process each, in {PAIRS} pairs, the file in the "
        "page cache. Ours is `create_trial` and `scalars` of all names, with checksums. The peer is what W&B 0.25.1 has in "
        "Python: DataStore, which compares checksums, protobuf in C, `json` for each number, lists that become arrays.\n\n"
        + report.table(head, rows)
    )
    print(body)
    if not options.dry:
        report.write_section("W&B runs", body)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2])
    else:
        sys.exit(main())
