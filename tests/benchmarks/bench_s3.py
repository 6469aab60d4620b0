"""Runs on S3, ours beside smdebug's on one server: `python tests/benchmarks/bench_s3.py`.

The server is moto's, on loopback, behind a proxy that adds 20 ms to every answer and ends each connection: smdebug forks while it
holds one open, and its processes then take each other's answers. Wall seconds: the network is what is waited for.
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
from python.s3.servers import CREDENTIALS, FaultyProxy, moto_server
from smdwidgets import _core, create_trial
from smdwidgets.storage.s3 import connect

STEPS, TENSORS, VALUES = 1000, 10, 1000
#: smdebug needs some 50 ms a value; this many tell.
SAMPLE = 40
LATENCY = 0.02


def write_run(root: Path) -> None:
    """A finished run of many small steps."""
    for step in range(STEPS):
        with _core.StepWriter(root, step, "worker_0", 1, step) as writer:
            for n in range(TENSORS):
                writer.tensor(f"t{n}", np.full(256, step + n, np.float32))
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True)
    (folder / "worker_0_collections.json").write_text('{"collections": {}, "_meta": {"num_workers": 1}}')
    (root / "training_job_end.ts").touch()


def ours(url: str) -> dict[str, float]:
    """The same as peer_s3.py, and all values by one call."""
    begin = time.perf_counter()
    trial = create_trial(url)
    trial.tensor_names()
    steps = trial.steps()
    opened = time.perf_counter()
    for n in range(VALUES):
        trial.tensor(f"t{n % TENSORS}").value(steps[n // TENSORS])
    read = time.perf_counter()
    trial.close()
    with create_trial(url) as fresh:
        fresh.tensor_names()
        before = time.perf_counter()
        fresh.values({f"t{n}": steps[: VALUES // TENSORS] for n in range(TENSORS)})
        return {"open": opened - begin, "read": read - opened, "bulk": time.perf_counter() - before}


def main() -> int:
    """Measures, prints, writes."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    options = asked.parse_args()
    os.environ.update(CREDENTIALS)
    with (
        tempfile.TemporaryDirectory() as folder,
        moto_server() as endpoint,
        FaultyProxy(endpoint, latency=LATENCY, keep_alive=False) as proxy,
    ):
        root = Path(folder) / "run"
        write_run(root)
        client = connect(endpoint_url=endpoint)
        client.create_bucket(Bucket="runs")
        for path in sorted(root.rglob("*")):
            if path.is_file():
                client.upload_file(str(path), "runs", f"run/{path.relative_to(root).as_posix()}")
        client.close()
        os.environ["AWS_ENDPOINT_URL"] = proxy.endpoint
        mine = ours("s3://runs/run")
        theirs = ask(PEERS, "peer_s3.py", "s3://runs/run", str(SAMPLE))
    assert theirs["steps"] == STEPS
    scaled = theirs["read"] * VALUES / SAMPLE
    note = f" ({SAMPLE} timed)"
    rows: list[Row] = [
        times(f"open a run of {STEPS} index objects", mine["open"], theirs["open"], "smdebug", 10),
        times(f"{VALUES} values one by one", mine["read"], scaled, "smdebug", 50, note),
        times(f"{VALUES} values in one call", mine["bulk"], scaled, "smdebug", 50, note),
    ]
    for row in rows:
        print("  ".join(row.cells()), flush=True)
    if not options.dry:
        body = f"`make bench`. Wall seconds against one S3 server, {LATENCY * 1e3:.0f} ms added to every answer.\n\n"
        head = ["what", "ours", "peer", "ratio", "target", "met"]
        report.write_section("Runs on S3", body + report.table(head, [row.cells() for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
