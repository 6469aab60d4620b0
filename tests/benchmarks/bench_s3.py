"""Compare runs on S3 with smdebug on one server.

Usage: `python tests/benchmarks/bench_s3.py`.

The server is rclone's, on loopback, behind a relay that delays every response by 20 ms, both in separate processes. For
smdebug the server closes each connection after a response: smdebug forks while a connection is open, and its processes
then receive each other's responses and wait a minute for them (observed: 64 s for opening). Connecting is free here, so
that this can only help smdebug.

Wall seconds, the best of several, each in a new process that has imported its modules: the time is spent waiting for
the network. The run ended an hour ago. (Ours refreshes a run that has just ended once more; smdebug always waits a
second and refreshes again.)
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import report
from run import PEERS, Row, ask, times

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from python.s3.servers import CREDENTIALS, rclone_server, relay
from smdwidgets import _core

STEPS, TENSORS, VALUES = 1000, 10, 1000
#: smdebug needs about 50 ms per value; this many are enough.
SAMPLE = 40
LATENCY = 0.02
REPEATS = 5
#: smdebug reads so slowly that it is timed with fewer values.
READINGS = 2


def write_run(root: Path) -> None:
    """Write a run of many small steps that ended an hour ago."""
    for step in range(STEPS):
        with _core.StepWriter(root, step, "worker_0", 1, step) as writer:
            for n in range(TENSORS):
                writer.tensor(f"t{n}", np.full(256, step + n, np.float32))
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True)
    (folder / "worker_0_collections.json").write_text('{"collections": {}, "_meta": {"num_workers": 1}}')
    mark, before = root / "training_job_end.ts", time.time() - 3600
    mark.touch()
    os.utime(mark, (before, before))


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    options = asked.parse_args()
    os.environ.update(CREDENTIALS)
    found: dict[str, list[float]] = {
        "open": [],
        "open16": [],
        "read": [],
        "bulk": [],
        "their open": [],
        "their read": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        # rclone's buckets are folders: files written here are in the bucket.
        write_run(Path(folder) / "runs" / "run")
        with rclone_server(Path(folder)) as server:
            for _ in range(REPEATS):
                with relay(server, LATENCY) as os.environ["AWS_ENDPOINT_URL"]:
                    for what, more in (("open", []), ("open16", ["16"])):
                        opened = ask(sys.executable, "ours_s3.py", "open", "s3://runs/run", *more)
                        assert opened["steps"] == STEPS
                        found[what].append(opened["open"])
                    if len(found["read"]) < READINGS:
                        for what, seconds in ask(
                            sys.executable, "ours_s3.py", "read", "s3://runs/run", str(VALUES)
                        ).items():
                            found[what].append(seconds)
                with relay(server, LATENCY, close=True) as os.environ["AWS_ENDPOINT_URL"]:
                    sample = SAMPLE if len(found["their read"]) < READINGS else 0
                    theirs = ask(PEERS, "peer_s3.py", "s3://runs/run", str(sample))
                    assert theirs["steps"] == STEPS
                    found["their open"].append(theirs["open"])
                    if sample:
                        found["their read"].append(theirs["read"] * VALUES / sample)
                print({what: round(seconds[-1], 2) for what, seconds in found.items()}, flush=True)
    best = {what: min(seconds) for what, seconds in found.items()}
    note = f" ({SAMPLE} timed)"
    rows: list[Row] = [
        times(f"open a run of {STEPS} index objects", best["open"], best["their open"], "smdebug", 10),
        times("the same, concurrency=16", best["open16"], best["their open"], "smdebug", 1),
        times(f"{VALUES} values one by one", best["read"], best["their read"], "smdebug", 50, note),
        times(f"{VALUES} values in one call", best["bulk"], best["their read"], "smdebug", 50, note),
    ]
    for row in rows:
        print("  ".join(row.cells()), flush=True)
    if not options.dry:
        body = (
            f"`make bench`. Wall seconds against one S3 server, {LATENCY * 1e3:.0f} ms added to every answer, the best of "
            f"{REPEATS} runs of each side in turn; the load average was {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores.\n\n"
        )
        head = ["what", "ours", "peer", "ratio", "target", "met"]
        report.write_section("Runs on S3", body + report.table(head, [row.cells() for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
