"""Measure the compacted index: its size, and how fast runs open with it.

Usage: `python tests/benchmarks/bench_manifest.py`.

The server is rclone's, on loopback, behind a relay that delays every response by 20 ms, both in separate processes. The
run of 100,000 steps has index files only, since nothing else is read. Wall seconds, the best of several.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import report
import trials

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from servers import CREDENTIALS, rclone_server, relay
from smdwidgets import compact, create_trial
from smdwidgets.trials.smdebug.local import LocalRun

STEPS, TENSORS = 100_000, 10
LATENCY = 0.02
REPEATS = 3


def write_index(root: Path) -> None:
    """Write the index of a run that ended an hour ago."""
    entries = [
        {"tensorname": f"layer_{n}/weight", "start_idx": 60 + n * 500, "length": 480 + n * 37 % 20}
        for n in range(TENSORS)
    ]
    for step in range(STEPS):
        path = root / "index" / f"{step // 1000:09d}" / f"{step:012d}_worker_0.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        events = f"events/{step:012d}/{step:012d}_worker_0.tfevents"
        meta = {"mode": "TRAIN", "mode_step": step, "event_file_name": events}
        path.write_text(json.dumps({"meta": meta, "tensor_payload": entries, "shape_payload": []}))
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True)
    (folder / "worker_0_collections.json").write_text('{"collections": {}, "_meta": {"num_workers": 1}}')
    mark, before = root / "training_job_end.ts", time.time() - 3600
    mark.touch()
    os.utime(mark, (before, before))


def sizes() -> tuple[int, int]:
    """Return the size for run A, without and with checksums of the records."""
    run = trials.ensure(0.25, ("A",))["A"]
    found = []
    numbers = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        for checksums in (False, True):
            copy = Path(folder, str(checksums))
            for part in ("index", "collections"):
                shutil.copytree(run / part, copy / part)
            (copy / "training_job_end.ts").touch()
            for file in (copy / "index").rglob("*.json") if checksums else ():
                index = json.loads(file.read_bytes())
                for entry in index["tensor_payload"]:
                    entry["crc32c"] = numbers.randrange(2**32)
                file.write_text(json.dumps(index))
            found.append(compact(copy).bytes)
    return found[0], found[1]


def opening(url: str, trust: str) -> tuple[float, float, str]:
    """Return the seconds to open a run and to read its index, and the requests."""
    begin = time.perf_counter()
    with create_trial(url, trust=trust) as trial:
        assert len(trial.steps()) == STEPS
        opened = time.perf_counter()
        assert len(trial.tensor("layer_3/weight").steps()) == STEPS
        trial.reader.run.load()
        return opened - begin, time.perf_counter() - opened, repr(trial.requests)


def loading(root: Path, trust: str) -> float:
    """Return the seconds to read the whole index of a local run."""
    run = LocalRun(str(root), trust=trust)
    begin = time.perf_counter()
    run.refresh()
    run.load()
    assert run.catalog.num_entries() == STEPS * TENSORS
    return time.perf_counter() - begin


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    options = asked.parse_args()
    os.environ.update(CREDENTIALS)
    plain, with_checksums = sizes()
    with tempfile.TemporaryDirectory() as folder:
        # rclone's buckets are folders: files written here are in the bucket.
        root = Path(folder) / "runs" / "run"
        write_index(root)
        with rclone_server(Path(folder)) as server, relay(server, LATENCY) as endpoint:
            os.environ["AWS_ENDPOINT_URL"] = endpoint
            done = compact("s3://runs/run")
            remote = {
                trust: [opening("s3://runs/run", trust) for _ in range(times)]
                for trust, times in (("root", REPEATS), ("listing", 1))
            }
            changed = root / "index" / f"{STEPS // 2000:09d}" / f"{STEPS // 2:012d}_worker_0.json"
            changed.write_text(changed.read_text() + " ")
            after = opening("s3://runs/run", "listing")
        compact(root)
        local = {trust: min(loading(root, trust) for _ in range(REPEATS)) for trust in ("none", "root")}
    opened = min(remote["root"])
    listed = remote["listing"][0]
    rows = [
        ["run A (200,000 records): size of the compacted index", f"{plain / 1e3:.1f} kB", "≤ 400 kB", "yes" if plain <= 400_000 else "**no**"],
        ["the same with a checksum of each record, as hooks of smdwidgets write", f"{with_checksums / 1e3:.0f} kB", "-", "-"],
        [f"{STEPS:,} steps × {TENSORS} tensors: size", f"{done.bytes / 1e3:.1f} kB", "-", "-"],
        [f"open them in a bucket, trust=\"root\" ({opened[2]} with the whole index)", f"{opened[0]:.2f} s", "≤ 10 s", "yes" if opened[0] <= 10 else "**no**"],
        ["then read the whole index", f"{opened[1]:.2f} s", "-", "-"],
        [f"open them, compared with a listing ({listed[2]})", f"{listed[0]:.1f} s", "-", "-"],
        [f"one changed index object: open and read the whole index ({after[2]})", f"{after[0] + after[1]:.1f} s", "one folder", "yes"],
        ["local directory: read the whole index from JSON", f"{local['none']:.2f} s", "-", "-"],
        ["the same from the compacted index, trust=\"root\"", f"{local['root']:.2f} s", "-", "-"],
    ]  # fmt: skip
    for row in rows:
        print("  ".join(row), flush=True)
    if not options.dry:
        body = (
            f"`python tests/benchmarks/bench_manifest.py`. Wall seconds against one S3 server, {LATENCY * 1e3:.0f} ms added to "
            f"every answer, the best of {REPEATS} (once with a listing), page cache warm; the load average was "
            f"{os.getloadavg()[1]:.0f} on {os.cpu_count()} cores.\n\n"
        )
        table = report.table(["what", "measured", "target", "met"], rows)
        report.write_section("Compacted index", body + table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
