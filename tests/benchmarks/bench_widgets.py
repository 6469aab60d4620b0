"""What a person waits for in a widget: the first picture, all of them, a run that opens, a movement that reaches the screen.

    python tests/benchmarks/bench_widgets.py

The kernel's side is asked as a browser asks it; a movement is timed in Chromium, from the pointer event to after the frame it
led to was painted, on an exported page of 1,000 steps, which runs the same bundle with nobody to ask.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from report import table, write_section

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from playwright.sync_api import sync_playwright  # noqa: E402

import smdwidgets  # noqa: E402
from python.widgets.talk import Page, begin, end, save  # noqa: E402

WANT = {
    "stats": True,
    "hist": {"scale": "linear", "bins": 128, "edges": "shared"},
    "image": {"axes": [], "fixed": [], "pool": "maxabs", "cells": 4096},
    "percentiles": True,
}
WATCH = """() => {
  window.took = [];
  const channel = new MessageChannel();
  const due = [];
  channel.port1.onmessage = () => { for (const at of due.splice(0)) window.took.push(performance.now() - at); };
  addEventListener("pointermove", (event) => {
    const at = event.timeStamp;
    requestAnimationFrame(() => { due.push(at); channel.port2.postMessage(0); });
  }, { capture: true });
}"""


def frames(work: Path) -> list[list[str]]:
    """200 steps of a tensor of a million elements."""
    root = begin(work / "large")
    value = np.random.default_rng(0).normal(size=(1000, 1000)).astype(np.float32)
    for step in range(200):
        save(root, step, {"w": value * np.float32(1 + step / 200)})
    widget = smdwidgets.explore(end(root), tensor="w")
    page = Page(widget)
    tracemalloc.start()
    start, busy = time.perf_counter(), time.process_time()
    number = page.start("frames", role="main", run=0, tensor="w", worker="", near=199, want=WANT)
    seen = 0
    first = 0.0
    while True:
        message, packets = page._replies[number].get(timeout=120)
        seen += sum(len(arrays["step"]) for head, arrays in packets if head["kind"] == "frames")
        first = first or (time.perf_counter() - start if seen else 0.0)
        del packets
        if message["kind"] == "answer":
            break
    whole, busy = time.perf_counter() - start, time.process_time() - busy
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    widget.close()
    assert seen == 200
    return [
        ["first picture of 1,000,000 elements", f"{first * 1000:.0f} ms", "<= 0.5 s"],
        ["frames of 200 steps of it", f"{whole:.2f} s ({busy:.2f} s of CPU)", "<= 3 s"],
        ["memory of Python's own for it: held, peak", f"{held / 1e6:.1f} MB, {peak / 1e6:.1f} MB", "<= 2 MB + frames"],
    ]


def opening(work: Path) -> list[list[str]]:
    """An explorer on 2,000 tensors at 1,000 steps."""
    root = begin(work / "many")
    tensors = {f"net/block{i // 20}/part{i % 20}.weight": np.zeros(4, np.float32) for i in range(2000)}
    for step in range(1000):
        save(root, step, tensors)
    end(root)
    start, busy = time.perf_counter(), time.process_time()
    widget = smdwidgets.explore(root)
    made = time.perf_counter() - start
    Page(widget).ask("hello", protocol=1, again=False)
    whole, busy = time.perf_counter() - start, time.process_time() - busy
    widget.close()
    return [
        ["explorer on 2,000 tensors x 1,000 steps: made", f"{made:.2f} s", ""],
        ["the same, and the browser told", f"{whole:.2f} s ({busy:.2f} s of CPU)", "<= 1.5 s"],
    ]


def dragging(work: Path) -> list[list[str]]:
    """A slider dragged over 1,000 steps."""
    root = begin(work / "long")
    for step in range(1000):
        save(root, step, {"w": np.random.default_rng(step).normal(size=(100, 100)).astype(np.float32)})
    target = work / "page.html"
    widget = smdwidgets.explore(end(root), tensor="w")
    widget.to_html(target)
    widget.close()
    told: dict[str, Any] = json.loads(
        subprocess.run(
            ["node", str(ROOT / "js" / "scripts" / "chromium.mjs")], capture_output=True, text=True, check=True
        ).stdout
    )
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=told["path"], args=told["args"])
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        page.goto(target.as_uri())
        box = page.locator(".smdw-track").bounding_box()
        assert box
        page.evaluate(WATCH)
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 5, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 5, y, steps=1000)
        page.mouse.up()
        page.wait_for_function("() => window.took.length > 900")
        took = np.array(page.evaluate("() => window.took"))
        browser.close()
    p50, p95 = np.percentile(took, [50, 95])
    return [
        ["pointer event to painted frame, 1,000 movements: p50, p95", f"{p50:.1f} ms, {p95:.1f} ms", "p95 <= 16.7 ms"]
    ]


def main() -> None:
    """Measure, and write the section."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for part in (frames, opening, dragging) for row in part(Path(folder))]
    body = f"`python tests/benchmarks/bench_widgets.py`. Wall time; the machine had {os.getloadavg()[0]:.0f} processes at work on {os.cpu_count()} cores.\n\n"
    write_section("Widgets", body + table(["what", "measured", "target"], rows))
    print(table(["what", "measured", "target"], rows))


if __name__ == "__main__":
    main()
