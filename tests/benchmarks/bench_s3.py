"""Runs on S3, ours beside smdebug's on one server: `python tests/benchmarks/bench_s3.py`.

The server is rclone's, on loopback, behind a relay that holds back every answer by 20 ms, both in processes of their own. For
smdebug the server ends each connection after an answer: it forks while it holds one open, and its processes then take each
other's answers and wait a minute for them (seen: 64 s for opening). Making a connection costs nothing here, so that this only helps it.
Wall seconds, the best of several, each of a new process that has imported what it needs: the network is what is waited for. The run
has ended an hour before. (Ours looks once more at one that has just ended; smdebug waits a second and looks again either way.)
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
#: smdebug needs some 50 ms a value; this many tell.
SAMPLE = 40
LATENCY = 0.02
REPEATS = 5
#: Reading takes smdebug so long that it is told from fewer.
READINGS = 2


def write_run(root: Path) -> None:
    """A run of many small steps that has ended an hour ago."""
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
    """Measures, prints, writes."""
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
        # rclone's buckets are folders: what is written here is in the bucket.
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
