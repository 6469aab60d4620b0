"""Compare sweeps by two workers with one process and with smdebug.

Usage: `python tests/benchmarks/bench_scale.py [--dry] [--gigabytes 4]`.

The bucket is rclone's S3 server behind a relay that delays every response by 20 ms. Each side reads with the same
number of connections in each process, few enough that latency binds. The other runs are local: there, the processor
binds. The results of all sides are compared bit for bit.
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
from run import PEERS, Row, ask
from simulate_scale import Load, simulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from servers import CREDENTIALS, rclone_server, relay
from smdwidgets import _core
from smdwidgets.trials.plans import Rates

LATENCY, CONNECTIONS = 0.02, 4
REMOTE_STEPS, REMOTE_TENSORS = 1500, 10
#: Steps that smdebug is timed with.
SAMPLE = 40
REPEATS = int(os.environ.get("REPEATS", "3"))


def write_run(root: Path, steps: int, tensors: int, size: int) -> None:
    """Write a run that ended an hour ago."""
    rng = np.random.default_rng(0)
    value = rng.normal(size=size).astype(np.float32)
    for step in range(steps):
        with _core.StepWriter(root, step, "worker_0", 1, step) as writer:
            for n in range(tensors):
                writer.tensor(f"t{n}", np.roll(value, step + n))
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True)
    (folder / "worker_0_collections.json").write_text('{"collections": {}, "_meta": {"num_workers": 1}}')
    mark, before = root / "training_job_end.ts", time.time() - 3600
    mark.touch()
    os.utime(mark, (before, before))


def best(url: str, workers: int) -> dict[str, float]:
    """Return the fastest of several runs, and the largest memory."""
    found = [ask(sys.executable, "ours_scale.py", url, str(workers), str(CONNECTIONS)) for _ in range(REPEATS)]
    return {**min(found, key=lambda one: one["seconds"]), "memory": max(one["memory"] for one in found)}


def speedup(what: str, one: dict[str, float], two: dict[str, float], target: float) -> Row:
    """Return the row of two workers beside one process."""
    assert one["digest"] == two["digest"], "the results differ"
    ratio = one["seconds"] / two["seconds"]
    mine, other = f"{two['seconds']:.2f} s", f"one process: {one['seconds']:.2f} s"
    return Row(what, mine, other, f"{ratio:.2f}x", f">= {target}x", ratio >= target)


def overhead(what: str, found: list[dict[str, float]]) -> Row:
    """Return the row of one worker beside one process."""
    alone, worker = found[0]["seconds"], found[1]["seconds"]
    more = worker / alone - 1
    name = f"overhead of one worker, {what}, {found[1]['parts']:.0f} parts"
    return Row(name, f"{worker:.2f} s", f"no cluster: {alone:.2f} s", f"{more:+.1%}", "<= 5 %", more <= 0.05)


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    asked.add_argument("--gigabytes", type=float, default=4.0, help="size of the local run")
    options = asked.parse_args()
    os.environ.update(CREDENTIALS)
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder) / "runs" / "run", REMOTE_STEPS, REMOTE_TENSORS, 256)
        with rclone_server(Path(folder)) as server, relay(server, LATENCY) as os.environ["AWS_ENDPOINT_URL"]:
            remote = [best("s3://runs/run", workers) for workers in (0, 1, 2)]
    with tempfile.TemporaryDirectory() as folder:
        steps = max(8, int(options.gigabytes * 250))
        write_run(Path(folder, "run"), steps, 500, 2_000)
        small = [best(str(Path(folder, "run")), workers) for workers in (0, 1, 2)]
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder, "run"), steps, 1, 1_000_000)
        local = [best(str(Path(folder, "run")), workers) for workers in (0, 1, 2)]
        theirs = ask(PEERS, "peer_scale.py", str(Path(folder, "run")), str(min(SAMPLE, steps)))
    memory = max(one["memory"] for one in (*remote[1:], *small[1:], *local[1:])) / 2**20
    size = REMOTE_STEPS * REMOTE_TENSORS * 1100.0
    load = Load("measured", size, REMOTE_STEPS, REMOTE_TENSORS)
    rates = Rates(200e6, LATENCY, CONNECTIONS)
    peer = theirs["seconds"] / theirs["rows"] * local[2]["rows"]
    rows = [
        speedup(f"latency binds: {REMOTE_STEPS:,} small steps in a bucket, two workers", remote[0], remote[2], 1.8),
        speedup(
            f"the processor binds: {steps / 250:g} GB of local tensors of 8 kB, two workers", small[0], small[2], 1.6
        ),
        speedup(
            f"the processor binds: {steps / 250:g} GB of local tensors of 4 MB, two workers", local[0], local[2], 1.6
        ),
        overhead("the bucket", remote),
        overhead("tensors of 8 kB", small),
        overhead("tensors of 4 MB", local),
        Row("peak memory of a worker", f"{memory:.0f} MB", "", "", "<= 256 MB", memory <= 256),
        Row(
            "tensors of 4 MB, two workers each",
            f"{local[2]['seconds']:.2f} s",
            f"dask.delayed over smdebug: {peer:.1f} s ({theirs['rows']:.0f} of {local[2]['rows']:.0f} timed)",
            f"{peer / local[2]['seconds']:.1f}x",
            "",
            True,
        ),
    ]
    for workers in (1, 2):
        expected = simulate(load, workers, rates)
        ratio = remote[workers]["seconds"] / expected
        mine = f"{remote[workers]['seconds']:.2f} s"
        rows.append(
            Row(
                f"the bucket, {workers} worker{'s' * (workers > 1)}: measured, beside the simulation",
                mine,
                f"simulated: {expected:.2f} s",
                f"{ratio:.2f}x",
                "0.7 to 1.5x",
                0.7 <= ratio <= 1.5,
            )
        )
    for row in rows:
        print("  ".join(row.cells()), flush=True)
    if not options.dry:
        body = (
            f"`python tests/benchmarks/bench_scale.py --gigabytes {options.gigabytes:g}`. Wall seconds, the best of {REPEATS} runs "
            f"of each side; {LATENCY * 1e3:.0f} ms added to every answer, {CONNECTIONS} connections a process; the load average "
            f"was {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores, of which the scheduler and the server need some, too. All "
            "results are equal bit for bit.\n\n"
        )
        head = ["what", "ours", "beside", "ratio", "target", "met"]
        report.write_section("Sweeps by two workers", body + report.table(head, [row.cells() for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
