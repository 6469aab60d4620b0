"""Look at the map of very many tensors in a notebook, and measure it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Page, expect

from e2e.jupyter import Jupyter
from e2e.looking import Looking

SHOW = """
import time, smdwidgets
begin = time.perf_counter()
w = smdwidgets.explore({path!r})
w
"""
ASK = "(w.tensor, w.step)"
MEMORY = """
import os, pathlib
print(int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
"""
#: Values of the map were painted: it has more colours than the pattern of what is not read yet, which has three.
PAINTED = """() => {
  const canvas = document.querySelector(".smdw-map-plot canvas");
  if (!canvas?.width) return false;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size > 4;
}"""
#: Turns the wheel over the map in each frame of three seconds, and returns how long the frames took.
FRAMES = """async (zooms) => {
  const grid = document.querySelector(".smdw-map [role=grid]");
  const box = grid.getBoundingClientRect();
  const frame = () => new Promise((on) => requestAnimationFrame(on));
  const turn = (how) => {
    const place = { clientX: box.left + box.width * 0.6, clientY: box.top + box.height / 2 };
    grid.dispatchEvent(new WheelEvent("wheel", { ...how, ...place, bubbles: true, cancelable: true }));
  };
  grid.focus();
  if (!zooms) turn({ ctrlKey: true, deltaY: -400 });
  const times = [];
  const start = await frame();
  for (let now = start, at = 0; now - start < 3000; at++) {
    const there = at % 60 < 30 ? 1 : -1;
    turn(zooms ? { ctrlKey: true, deltaY: -20 * there } : { deltaX: 40 * there });
    const before = now;
    now = await frame();
    times.push(now - before);
  }
  turn({ ctrlKey: true, deltaY: 4000 });
  return times.sort((a, b) => a - b);
}"""


@dataclass
class Figures:
    """What was measured, in seconds, milliseconds and bytes.

    Times are since the cell was started, whose kernel has not imported the package yet.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    #: The median and 95 % of the time of a frame.
    frames: dict[str, tuple[float, float]] = field(default_factory=dict)
    heap: float = 0.0
    kernel: float = 0.0
    sentence: str = ""


def look(jupyter: Jupyter, run: Path, tensor: str, step: int, shot: str) -> Figures:
    """Open a run, see that a tensor is NaN at a step, and go there with one click.

    Args:
        jupyter: the server and its browser.
        run: a run, of which the first finding is that tensor.
        tensor: its name.
        step: the step.
        shot: the start of the names of the screenshots.
    """
    notebook = jupyter.open([SHOW.format(path=str(run)), ASK, MEMORY], fresh=True)
    figures, begin = Figures(), time.monotonic()
    notebook.run(0, wait=False)

    def done(what: str) -> None:
        figures.seconds[what] = time.monotonic() - begin

    view = Looking(notebook.output(0).locator(".smdw").first)
    expect(view.el.locator(".smdw-map-row").first).to_be_visible()
    done("names")
    notebook.page.wait_for_function(PAINTED)
    done("picture")
    sentence = view.el.get_by_role("region", name="Diagnosis").get_by_role("button", name=tensor)
    expect(sentence.first).to_be_visible()
    done("sentence")
    figures.sentence = sentence.first.inner_text()
    # Of folded tensors, their module shows the worst.
    expect(view.el.locator(".smdw-map-nan").first).to_be_visible()
    view.drawn()
    notebook.screenshot(f"{shot}-map")
    figures.heap = heap(notebook.page)
    for what, zooms in (("pan", False), ("zoom", True)):
        times = notebook.page.evaluate(FRAMES, zooms)
        figures.frames[what] = times[len(times) // 2], times[len(times) * 95 // 100]
    sentence.first.click()
    expect(view.el.get_by_role("heading", name=tensor)).to_be_visible()
    view.at_step(step)
    notebook.screenshot(f"{shot}-opened")
    notebook.expect_output(1, f"('{tensor}', {step})")
    figures.kernel = float(notebook.run(2).text(2))
    return figures


def heap(page: Page) -> float:
    """Return the bytes of all that the page's scripts hold, JupyterLab's included."""
    tools = page.context.new_cdp_session(page)
    tools.send("HeapProfiler.collectGarbage")
    usage = tools.send("Runtime.getHeapUsage")
    tools.detach()
    return float(usage["usedSize"] + usage.get("backingStorageSize", 0))
