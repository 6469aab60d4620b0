"""`make bench`: compare with the peers; print a table and write it to RESULTS.md.

Usage: python tests/benchmarks/run.py [--scale 0.25] [--only NAME ...]

Each figure is CPU seconds of a separate process, a median, one thread. Peers that take minutes are timed on a sample
and scaled up; the table states this.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import report
import trials

HERE = Path(__file__).resolve().parent
PEERS = HERE.parents[1] / ".venv-peers" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
ONE_THREAD = dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Row:
    """One comparison."""

    what: str
    ours: str
    peer: str
    ratio: str
    target: str
    met: bool

    def cells(self) -> list[str]:
        """Return the row of the table."""
        return [self.what, self.ours, self.peer, self.ratio, self.target, "yes" if self.met else "**no**"]


def ask(python: str | Path, program: str, *arguments: str) -> dict[str, float]:
    """Return what a program of this folder measures."""
    command = [str(python), str(HERE / program), *arguments]
    done = subprocess.run(
        command, env={**os.environ, **ONE_THREAD}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    found = re.search(r"^RESULT (.*)$", done.stdout, re.M)
    if done.returncode or not found:
        raise RuntimeError(f"{program} {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(found[1])
    return result


def ours(what: str, run: Path) -> dict[str, float]:
    """Run a measurement in `ours.py`."""
    return ask(sys.executable, "ours.py", what, str(run))


def peer(what: str, run: Path, sample: int | None = None) -> dict[str, float]:
    """Run a measurement of peer.py."""
    return ask(PEERS, "peer.py", what, str(run), *([str(sample)] if sample else []))


def rustboard(run: Path) -> float:
    """Return CPU seconds of TensorBoard's data server to load a run with --checksum."""
    binary = subprocess.run(
        [str(PEERS), "-c", "import tensorboard_data_server as t; print(t.server_binary())"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    expected = len({file.parent for file in (run / "events").rglob("*.tfevents")})
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    server = subprocess.Popen(
        [binary, "--logdir", str(run), "--host", "127.0.0.1", "--port", "0", "--reload", "once", "--checksum",
         "--die-after-stdin", "-vv"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stderr is not None
    finished = 0
    for line in server.stderr:
        finished += "Finished load for run" in line
        if "WARN" in line or "ERROR" in line:
            raise RuntimeError(f"the data server complains: {line}")
        if finished == expected:
            break
    server.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def seconds(value: float) -> str:
    """Format a duration for readers."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return "0 s"


def times(what: str, mine: float, theirs: float, peer_name: str, least: float, note: str = "") -> Row:
    """Ours must be at least so many times faster."""
    ratio = theirs / mine
    return Row(
        what,
        seconds(mine),
        f"{peer_name}: {seconds(theirs)}{note}",
        f"{ratio:,.1f}x faster",
        f">= {least:g}x",
        ratio >= least,
    )


def within(what: str, mine: float, theirs: float, peer_name: str, most: float) -> Row:
    """Ours may take at most so many times as long."""
    ratio = mine / theirs
    return Row(
        what, seconds(mine), f"{peer_name}: {seconds(theirs)}", f"{ratio:.2f}x the time", f"<= {most:g}x", ratio <= most
    )


def opening(runs: dict[str, Path], shapes: dict[str, trials.Shape]) -> Iterator[Row]:
    """Open a run and list names and locations of all tensors."""
    for name, least in (("A", 30), ("C", 15)):
        mine = ours("open", runs[name])["cpu"]
        yield times(f"open {name}", mine, peer("open", runs[name])["cpu"], "smdebug", least)
        yield within(f"open {name}", mine, peer("json", runs[name])["cpu"], "orjson on the same files", 2)


def one_value(runs: dict[str, Path], shapes: dict[str, trials.Shape]) -> Iterator[Row]:
    """`tensor.value(step)`."""
    mine = ours("small", runs["A"])
    yield within("one value of 64 floats", mine["value"], mine["floor"], "dict lookup + frombuffer + reshape", 2)
    yield times("one value of 64 floats", mine["value"], peer("value", runs["A"], 4000)["cpu"], "smdebug", 25)
    mine = ours("large", runs["B"])
    theirs = peer("value", runs["B"], 100)["cpu"]
    yield times("one value of 1,000,000 floats", mine["again"], theirs, "smdebug", 1000)
    yield times("the same, read for the first time", mine["first"], theirs, "smdebug", 1000)


def all_reductions(runs: dict[str, Path], shapes: dict[str, trials.Shape]) -> Iterator[Row]:
    """All 18 reductions."""
    for name, least, sample in (("B", 120, 20), ("A", 500, 1000), ("C", 500, 1000)):
        records = shapes[name].records
        mine = ours("reductions", runs[name])["cpu"]
        # smdebug reads the first worker's tensor; ours reads those of all workers.
        theirs = peer("reductions", runs[name], sample)["cpu"] * records
        yield times(
            f"18 reductions of all of {name}", mine, theirs, "smdebug", least, f" ({sample} of {records:,} timed)"
        )
        if name == "B":
            floor = ours("numpy", runs[name])["cpu"] * records
            yield times("18 reductions of all of B", mine, floor, "numpy on arrays in memory", 20, " (1 array timed)")


def all_statistics(runs: dict[str, Path], shapes: dict[str, trials.Shape]) -> Iterator[Row]:
    """Statistics; for B beside NumPy, and what a bare read leaves of the target."""
    records = shapes["B"].records
    in_numpy = ours("numpy", runs["B"])["cpu"] * records
    found = {name: ours("statistics", runs[name]) for name in ("B", "A", "C")}
    peer_name = "18 reductions by numpy in memory"
    yield times("statistics of all of B", found["B"]["one"], in_numpy, peer_name, 25, " (1 array timed)")
    reads = ours("reads", runs["B"])["cpu"]
    yield times("its limit: reading B by 256 KB", reads, in_numpy, peer_name, 25, " (1 array timed)")
    for name in ("A", "C"):
        total, least = found[name]["two"], 0.5
        target, met = ("<= 0.5 s", total <= least) if name == "A" else ("", True)
        what = f"statistics of all of {name}, two threads"
        yield Row(what, seconds(total), f"one thread: {seconds(found[name]['one'])}", "", target, met)
    size = found["B"]["memory"]
    yield Row("statistics of B: peak memory of a thread", f"{size:.1f} MB", "", "", "<= 16 MB a thread", size <= 16)


def checksums(runs: dict[str, Path], shapes: dict[str, trials.Shape]) -> Iterator[Row]:
    """Verify true checksums of all records."""
    theirs = sorted(rustboard(runs["B_crc"]) for _ in range(3))[1]
    yield times("verify all checksums of B", ours("check", runs["B_crc"])["cpu"], theirs, "rustboard --checksum", 15)


def memory(runs: dict[str, Path], shapes: dict[str, trials.Shape]) -> Iterator[Row]:
    """Peak memory of a sweep."""
    found = ours("memory", runs["B"])
    for what, key in (("sweep B: peak memory beyond the import", "once"), ("the same, a run ten times as long", "ten")):
        yield Row(what, f"{found[key]:.1f} MB", "", "", "<= 16 MB a thread", found[key] <= 16)


PARTS: dict[str, Callable[[dict[str, Path], dict[str, trials.Shape]], Iterator[Row]]] = {
    "open": opening,
    "value": one_value,
    "reductions": all_reductions,
    "statistics": all_statistics,
    "checksums": checksums,
    "memory": memory,
}


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument(
        "--scale", type=float, default=0.25, help="share of run B that is written (1: 4 GB; default 0.25)"
    )
    asked.add_argument("--only", nargs="+", choices=PARTS, help="these parts, printed and not written")
    options = asked.parse_args()
    runs, shapes = trials.ensure(options.scale), trials.shapes(options.scale)
    head = ["what", "ours", "peer", "ratio", "target", "met"]
    rows: list[Row] = []
    began = time.monotonic()
    for name in options.only or PARTS:
        for row in PARTS[name](runs, shapes):
            rows.append(row)
            print("  ".join(row.cells()), flush=True)
    print(f"{time.monotonic() - began:.0f} s")
    if not options.only:
        described = ", ".join(
            f"{name}: {shape.records:,} records of {shape.elements:,} float32" for name, shape in shapes.items()
        )
        body = f"`make bench`. CPU seconds, medians, one thread, page cache warm. {described}.\n\n"
        report.write_section("Reading runs", body + report.table(head, [row.cells() for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
