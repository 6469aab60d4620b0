"""Measure what a user waits for in a widget.

These are the first picture, all pictures, opening a run, and moving the slider.

Usage: python tests/benchmarks/bench_widgets.py

Requests are sent to the kernel's side directly. What a user sees is timed in a real JupyterLab in Chromium without a
graphics card, until after the frame that shows it was painted. Needs 6 GB of disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from report import table, write_section

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import in_lab  # noqa: E402

import smdwidgets  # noqa: E402
from python.widgets.talk import Page, begin, end, save, weights  # noqa: E402

WANT = {
    "stats": True,
    "update": False,
    "hist": {"scale": "linear", "bins": 128, "edges": "shared"},
    "image": {"axes": [], "fixed": [], "pool": "maxabs", "cells": 4096},
    "percentiles": True,
}
BUSY = """
import time
end = time.monotonic() + 60
while time.monotonic() < end:
    sum(range(1000))
"""


def large_run(root: Path, steps: int) -> Path:
    """Return a tensor of a million elements."""
    begin(root)
    value = np.random.default_rng(0).normal(size=(1000, 1000)).astype(np.float32)
    small = value[:40, :40].copy()
    for step in range(steps):
        save(root, step, {"w": value * np.float32(1 + step / steps), "small": small})
    return end(root)


def frames(run: Path) -> list[list[str]]:
    """Measure 200 steps of a tensor of a million elements on the kernel's side."""
    widget = smdwidgets.explore(run, tensor="w")
    page = Page(widget)
    start, busy = time.perf_counter(), time.process_time()
    number = page.start("frames", role="main", run=0, tensor="w", worker="", near=199, want=WANT)
    seen = 0
    first = 0.0
    while True:
        message, packets = page._replies[number].get(timeout=120)
        seen += sum(len(arrays["step"]) for head, arrays in packets if head["kind"] == "frames")
        first = first or (time.perf_counter() - start if seen else 0.0)
        if message["kind"] == "answer":
            break
    whole, busy = time.perf_counter() - start, time.process_time() - busy
    widget.close()
    assert seen == 200
    return [
        ["kernel: first frames of 1,000,000 elements", f"{first * 1000:.0f} ms", ""],
        ["kernel: frames of 200 steps of it", f"{whole:.2f} s ({busy:.2f} s of CPU)", ""],
    ]


HELD = """
import gc, re, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import bench_widgets, smdwidgets
from python.widgets.talk import Page

def held():
    gc.collect()
    return int(re.search(r"RssAnon:[^0-9]+([0-9]+)", Path("/proc/self/status").read_text())[1]) / 1024

widget = smdwidgets.explore(sys.argv[1], tensor="small")
page = Page(widget)
def display(name):
    size = 0
    number = page.start("frames", role="main", run=0, tensor=name, worker="", near=199, want=bench_widgets.WANT)
    while True:
        message, packets = page._replies[number].get(timeout=120)
        size += sum(array.nbytes for _, arrays in packets for array in arrays.values())
        del packets
        if message["kind"] == "answer":
            return size / 2**20
display("small")
before = held()
size = display("w")
print(held() - before, size)
"""


def memory(run: Path) -> list[list[str]]:
    """Return the memory of a kernel that shows a tensor, as pages beyond those before.

    Rust's memory is included.
    """
    if not Path("/proc/self/status").is_file():
        return []
    command = [sys.executable, "-c", HELD, str(run), str(ROOT / "tests")]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=env).stdout
    more, size = map(float, done.split())
    return [
        [
            "kernel: memory held for it, Rust's part included",
            f"{more:.1f} MB ({size:.1f} MB of frames were sent)",
            "<= 2 MB + frames",
        ]
    ]


def many_run(root: Path) -> Path:
    """Write 2,000 tensors at 1,000 steps."""
    begin(root)
    tensors = {f"net/block{i // 20}/part{i % 20}.weight": np.zeros(4, np.float32) for i in range(2000)}
    for step in range(1000):
        save(root, step, tensors)
    return end(root)


def running_run(root: Path) -> Path:
    """Write a run that has not ended, so that its rules wait for further steps."""
    begin(root)
    for step in range(20):
        save(root, step, {"gradient/w": weights(step)})
    return root


def in_the_notebook(work: Path, large: Path) -> list[list[str]]:
    """Measure what a user sees in JupyterLab."""
    several = begin(work / "several")
    for step in range(200):
        save(several, step, {f"w{i}": weights(step + i, (256, 256)) for i in range(12)} | {"small": weights(step)})
    end(several)
    many, longest, live = many_run(work / "many"), large_run(work / "longest", 1000), begin(work / "live")
    judged = running_run(work / "judged")
    with in_lab.jupyter(work) as (lab, port):

        def alone(measure: Callable[..., Any], *arguments: Any) -> Any:
            """Close notebooks and kernels of earlier measurements."""
            found = measure(lab, *arguments)
            lab.close(check=False)
            return found

        chosen = [alone(in_lab.choosing, large)[0] for _ in range(3)]
        opened = [alone(in_lab.opening, many) for _ in range(3)]
        drag: dict[str, Any] = alone(in_lab.dragging, port, longest)
        busy = [first for first, _ in alone(in_lab.choosing, several, BUSY, 12)]
        commands = alone(in_lab.commanding, judged, BUSY, 12)
        live_p50, live_p95 = np.percentile(alone(in_lab.living, live), [50, 95])
    waited, worked = np.array(drag["waited"]), np.array(drag["worked"])
    gaps, plain = np.diff(drag["shown"]), np.array(drag["plain"])
    cpu = drag["cpu"]
    return [
        ["first picture of 1,000,000 elements after the click", f"{min(c[0] for c in chosen):.0f} ms", "<= 500 ms"],
        ["all frames of 200 steps of it", f"{min(c[1] for c in chosen) / 1000:.2f} s", "<= 3 s"],
        [
            "explorer of 2,000 tensors x 1,000 steps: from running the cell to the picture",
            f"{min(opened) / 1000:.2f} s",
            "<= 1.5 s",
        ],
        [
            "drag over 1,000 steps of 1,000,000 elements, 125 movements a second: from event to painted frame, p50, p95",
            f"{np.percentile(worked, 50):.1f} ms, {np.percentile(worked, 95):.1f} ms",
            "p95 <= 16.7 ms",
        ],
        [
            f"for comparison: a plain page that only draws {drag['canvases']} canvases of the same sizes",
            f"{np.percentile(plain, 50):.1f} ms, {np.percentile(plain, 95):.1f} ms",
            "",
        ],
        [
            "the same, with the wait for the display's next frame",
            f"{np.percentile(waited, 50):.1f} ms, {np.percentile(waited, 95):.1f} ms",
            "",
        ],
        [
            "the same: from frame to frame, p50, p95",
            f"{np.percentile(gaps, 50):.1f} ms, {np.percentile(gaps, 95):.1f} ms",
            "",
        ],
        [
            "the same: CPU of the page's main thread for a frame (our script, style and layout)",
            f"{cpu['all']:.1f} ms ({cpu['script']:.1f} ms, {cpu['layout']:.1f} ms)",
            "",
        ],
        ["the same: requests to the kernel during the drag", f"{drag['asked']}", "0"],
        [
            "another tensor chosen while a cell trains: first picture, median, worst of 12",
            f"{np.median(busy):.0f} ms, {max(busy):.0f} ms",
            "<= 300 ms",
        ],
        [
            "a rule paused, run or stopped while a cell trains: until its new status is shown, median, worst of 12",
            f"{np.median(commands):.0f} ms, {max(commands):.0f} ms",
            "<= 300 ms",
        ],
        [
            "a step written by another process on the screen, p50, p95 of 60",
            f"{live_p50 * 1000:.0f} ms, {live_p95 * 1000:.0f} ms",
            "p95 <= 1 s",
        ],
    ]


def main() -> None:
    """Measure, and write the section."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        large = large_run(work / "large", 200)
        rows = frames(large) + memory(large) + in_the_notebook(work, large)
    body = f"`python tests/benchmarks/bench_widgets.py`. Wall time; single numbers are the best of three. Load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.\n\n"
    write_section("Widgets", body + table(["what", "measured", "target"], rows))
    print(table(["what", "measured", "target"], rows))


if __name__ == "__main__":
    main()
