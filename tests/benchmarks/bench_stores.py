"""Compare runs in a store with smdebug, obstore and an earlier version.

Usage: `python tests/benchmarks/bench_stores.py [--before DIRECTORY] [--dry]`.

The server is rclone's S3 server, on loopback, behind a relay that delays every response by 20 ms, both in separate
processes. For smdebug the server closes each connection after a response: smdebug forks while a connection is open, and
its processes then receive each other's responses and wait a minute for them (observed: 64 s for opening). Connecting is
free here, so that this can only help smdebug.

obstore only makes requests (see peer_obstore.py): it parses no index, verifies no record and reads nothing ahead.
`--before` names a directory with the package of an earlier version.

Each figure is the best of several, each in a new process that has imported its modules. The run ended an hour ago.
(Ours refreshes a run that has just ended once more; smdebug always waits a second and refreshes again.)
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import report
from run import PEERS, Row, ask, seconds, times, within

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from servers import CREDENTIALS, rclone_server, relay
from smdwidgets import _core

STEPS, TENSORS, VALUES = 1000, 10, 1000
#: smdebug needs about 50 ms per value; this many are enough.
SAMPLE = 40
LATENCY = 0.02
REPEATS = 5
#: smdebug reads so slowly that it is timed with fewer values.
READINGS = 2
URL = "s3://runs/run"
#: What is done, how it is named, and how many times faster than smdebug it must be.
TASKS = {
    "open": (f"open a run of {STEPS} index objects", 12),
    "one": (f"{VALUES} values one by one", 75),
    "all": (f"{VALUES} values in one call", 900),
}


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


Figures = dict[str, list[dict[str, float]]]


def measure(server: str, before: str, repeats: int) -> Iterator[Figures]:
    """Yield the figures so far, after each round; their names are `side task`."""
    found: Figures = defaultdict(list)
    for number in range(repeats):
        with relay(server, LATENCY) as os.environ["AWS_ENDPOINT_URL"]:
            for task in TASKS:
                more = [] if task == "open" else [str(VALUES)]
                found[f"ours {task}"].append(ask(sys.executable, "ours_stores.py", task, URL, *more))
                with patch.dict(os.environ, {"PYTHONPATH": before}):
                    if before:
                        found[f"before {task}"].append(ask(sys.executable, "ours_stores.py", task, URL, *more))
                found[f"obstore {task}"].append(ask(PEERS, "peer_obstore.py", task, "runs", "run", str(VALUES)))
            found["ours open16"].append(ask(sys.executable, "ours_stores.py", "open", URL, "16"))
        with relay(server, LATENCY, close=True) as os.environ["AWS_ENDPOINT_URL"]:
            sample = SAMPLE if number < READINGS else 0
            theirs = ask(PEERS, "peer_stores.py", URL, str(sample))
            assert theirs["steps"] == STEPS == found["ours open"][-1]["steps"]
            found["smdebug open"].append({"wall": theirs["open"]})
            if sample:
                found["smdebug read"].append({"wall": theirs["read"] * VALUES / sample})
        yield found


def best(found: Figures, side: str, figure: str) -> float:
    """Return the smallest of a side's figures."""
    return min(each[figure] for each in found[side])


def rows(found: Figures) -> Iterator[Row]:
    """Compare ours with each of the others."""
    for task, (what, least) in TASKS.items():
        mine = {figure: best(found, f"ours {task}", figure) for figure in ("wall", "cpu", "memory")}
        theirs = "smdebug open" if task == "open" else "smdebug read"
        note = "" if task == "open" else f" ({SAMPLE} timed)"
        yield times(what, mine["wall"], best(found, theirs, "wall"), "smdebug", least, note)
        if f"before {task}" in found:
            yield within(what, mine["wall"], best(found, f"before {task}", "wall"), "before", 1.1)
            yield within(f"{what}: CPU", mine["cpu"], best(found, f"before {task}", "cpu"), "before", 1.0)
            memory = best(found, f"before {task}", "memory")
            yield Row(f"{what}: memory", f"{mine['memory']:.1f} MB", f"before: {memory:.1f} MB", "", "", met=True)
        other = {figure: best(found, f"obstore {task}", figure) for figure in ("wall", "cpu")}
        for name, figure in ((what, "wall"), (f"{what}: CPU", "cpu")):
            ratio = f"{mine[figure] / other[figure]:.2f}x the time"
            peer = f"obstore, requests only: {seconds(other[figure])}"
            yield Row(name, seconds(mine[figure]), peer, ratio, "", met=True)
    sixteen = best(found, "ours open16", "wall")
    yield times("open, concurrency=16", sixteen, best(found, "smdebug open", "wall"), "smdebug", 1)


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    asked.add_argument("--before", default="", help="directory with the package of an earlier version")
    asked.add_argument("--repeats", type=int, default=REPEATS)
    options = asked.parse_args()
    os.environ.update(CREDENTIALS)
    with tempfile.TemporaryDirectory() as folder:
        # rclone's buckets are folders: files written here are in the bucket.
        write_run(Path(folder) / "runs" / "run")
        with rclone_server(Path(folder)) as server:
            for found in measure(server, options.before, options.repeats):
                print({side: round(each[-1]["wall"], 2) for side, each in found.items()}, flush=True)
    table = [row.cells() for row in rows(found)]
    for line in table:
        print("  ".join(line), flush=True)
    if not options.dry:
        body = (
            f"`make bench`. Wall or CPU seconds against one S3 server, {LATENCY * 1e3:.0f} ms added to every answer, the best of "
            f"{options.repeats} runs of each side in turn; the load average was {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores.\n\n"
        )
        head = ["what", "ours", "peer", "ratio", "target", "met"]
        report.write_section("Runs on S3", body + report.table(head, table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
