"""Compare `smdwidgets verify` with TensorBoard's data server on the same bytes.

Usage: `python tests/benchmarks/bench_verify.py`.

The run has true checksums, so that rustboard --checksum can verify it. CPU seconds of both, alternating, the minimum of
several. Ours opens the run, reads its index and compares every record with it, which the server does not; the server
keeps what it has read.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import report
import trials
from run import Row, rustboard, times

from smdwidgets.cli.verify import check

REPEATS = 5


def the_check(path: str) -> float:
    """Return the CPU seconds of the check, with modules loaded."""
    begin = time.process_time()
    assert not check(path, threads=1)["faults"]
    return time.process_time() - begin


def the_command(path: str) -> float:
    """Return the CPU seconds of the whole process."""

    def spent() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    begin = spent()
    command = [sys.executable, "-m", "smdwidgets", "verify", path, "--json", "--threads", "1"]
    counts = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert counts["footer_crc"] == counts["records"] > 0
    return spent() - begin


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument(
        "--scale", type=float, default=0.25, help="share of run B that is written (1: 4 GB; default 0.25)"
    )
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    options = asked.parse_args()
    run = trials.ensure(options.scale, ("B", "B_crc"))["B_crc"]
    size = sum(path.stat().st_size for path in run.rglob("*.tfevents"))
    mine, whole, theirs = [], [], []
    for _ in range(REPEATS):
        mine.append(the_check(str(run)))
        whole.append(the_command(str(run)))
        theirs.append(rustboard(run))
    peer = "rustboard --checksum"
    rows: list[Row] = [
        times(f"verify {size / 1e9:.1f} GB", min(mine), min(theirs), peer, 15),
        times("the same, with the start of Python", min(whole), min(theirs), peer, 1),
    ]
    for row in rows:
        print("  ".join(row.cells()), flush=True)
    if not options.dry:
        body = (
            f"`python tests/benchmarks/bench_verify.py`. CPU seconds, the least of {REPEATS} in turn, one thread, page cache warm; "
            f"a run of {trials.shapes(options.scale)['B'].records:,} records of 1,000,000 float32 with true checksums.\n\n"
        )
        head = ["what", "ours", "peer", "ratio", "target", "met"]
        report.write_section("Verifying a run", body + report.table(head, [row.cells() for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
