"""Measure what a user waits for in a widget.

These are the first picture, all pictures, opening a run, and moving the slider.

Usage: python tests/benchmarks/bench_widgets.py [--only widgets|explorer]

Requests are sent to the kernel's side directly. What a user sees is timed in a real JupyterLab in Chromium without a
graphics card, until after the frame that shows it was painted. Needs 6 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import re
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

import bench_large_map  # noqa: E402
import in_lab  # noqa: E402

import smdwidgets  # noqa: E402
import smdwidgets.numpy as smd  # noqa: E402
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


def model_run(root: Path, tensors: int = 300, steps: int = 500) -> Path:
    """Write all tensors at every step; one becomes NaN."""
    random = np.random.default_rng(0)
    names = list(bench_large_map.names_of(tensors))
    values = random.normal(0, 0.05, (tensors, 16, 16)).astype(np.float32)
    with smd.Hook(root) as hook:
        for step in range(steps):
            values += random.normal(0, 1e-4, values.shape).astype(np.float32)
            if step == steps * 3 // 4:
                values[tensors // 2, 3] = np.nan
            for name, value in zip(names, values, strict=True):
                hook.save_tensor(name, value, "gradients" if name.startswith("gradient/") else "weights")
            hook.save_scalar("loss", float(2 + np.exp(-step / 100) + random.normal(0, 0.01)))
            hook.step()
    return root


def statistics_run(root: Path, tensors: int, steps: int) -> tuple[Path, str]:
    """Write statistics at every step.

    Return the run, and the tensor that is NaN first.
    """
    bench_large_map.write_run(root, tensors, steps, 4)
    planted = json.loads((root / "planted.json").read_text())
    return root, min(event for event in planted if event[2])[1]


def exporting(run: Path, work: Path) -> list[str]:
    """Measure `to_html` of an explorer."""
    widget = smdwidgets.explore(run)
    page = work / "page.html"
    start, busy = time.perf_counter(), time.process_time()
    widget.to_html(page)
    wall, busy = time.perf_counter() - start, time.process_time() - busy
    widget.close()
    size = page.stat().st_size / 1e6
    return row(f"`to_html` of 300 tensors x 500 steps, {size:.1f} MB", wall, 3.0, f"{busy:.2f} s")


def row(what: str, measured: float, most: float, cpu: str) -> list[str]:
    """Return a line of the table of the explorer, in seconds."""
    return [what, f"{measured:.2f} s", cpu, f"<= {most:g} s", "yes" if measured <= most else "no"]


def explorer(work: Path, large: Path) -> list[list[str]]:
    """Measure from the cell to the sentence, and what follows the pointer."""
    small = model_run(work / "small", 20, 100)
    usual = model_run(work / "usual")
    blamed = bench_large_map.names_of(300)[150]
    runs = [
        ("300 tensors x 500 steps", usual, blamed, 1.0),
        ("2,000 tensors x 1,000 steps, statistics", *statistics_run(work / "wide", 2000, 1000), 3.0),
        ("300 tensors x 20,000 steps, statistics", *statistics_run(work / "long", 300, 20_000), 3.0),
    ]
    rows = []
    with in_lab.jupyter(work) as (lab, port):

        def opened(what: str, run: Path, tensor: str, most: float, earlier: Path | None, times: int) -> list[str]:
            measured = []
            for _ in range(times):
                measured.append(in_lab.sentence(lab, run, re.escape(tensor), earlier))
                lab.close(check=False)
            wall, kernel, page = min(measured)
            return row(what, wall, most, f"kernel {kernel:.2f} s, page {page:.2f} s")

        for what, run, tensor, most in runs:
            text = f"{what}: from the cell to the sentence"
            rows.append(opened(f"{text}, the first time", run, tensor, most, small, 1))
            rows.append(opened(f"{text}, with statistics in the cache", run, tensor, most, small, 3))
        cold = "the same of 300 x 500, by a kernel that imports the package"
        rows.insert(2, opened(cold, usual, blamed, 2.0, None, 3))
        drag = in_lab.dragging(lab, port, large, 200)
        lab.close(check=False)
        hover, hover_cpu = in_lab.hovering(lab, port, usual)
        lab.close(check=False)
    for what, times, most, cpu in (
        ("drag over 200 steps of 1,000,000 elements", drag["worked"], 16.7, drag["cpu"]),
        ("hover over the map of 300 x 500", hover, 8.0, hover_cpu),
    ):
        p50, p95 = np.percentile(times, [50, 95])
        name = f"{what}, 125 movements a second: from event to painted frame, p50, p95"
        rows.append(
            [
                name,
                f"{p50:.1f} ms, {p95:.1f} ms",
                f"page {cpu['all']:.1f} ms a frame",
                f"p95 <= {most} ms",
                "yes" if p95 <= most else "no",
            ]
        )
    rows.append(exporting(usual, work))
    return rows


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
    """Measure, and write the sections."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--only", choices=("widgets", "explorer"))
    only = asked.parse_args().only
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        large = large_run(work / "large", 200)
        if only != "explorer":
            rows = frames(large) + memory(large) + in_the_notebook(work, large)
            report("Widgets", ["what", "measured", "target"], rows)
        if only != "widgets":
            report("Explorer", ["what", "measured", "CPU", "target", "met"], explorer(work, large))


def report(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Write the section, and print its table."""
    how = "`python tests/benchmarks/bench_widgets.py`. Wall time; single numbers are the best of three"
    how += ", except those of a first time."
    load = f"Load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    write_section(title, f"{how} {load}\n\n{table(head, rows)}")
    print(table(head, rows))


if __name__ == "__main__":
    main()
