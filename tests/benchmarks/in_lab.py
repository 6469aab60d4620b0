"""Widgets in a real JupyterLab, as a user sees them.

A measurement ends when the result is painted. The machine's load distorts wall times of a drag, so that the CPU time of
the page's main thread per frame is reported too, of which our script and the layout are parts.
"""

from __future__ import annotations

import collections
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import websocket
from playwright.sync_api import sync_playwright

from e2e.chromium import launch
from e2e.jupyter import Jupyter, Notebook, Server
from e2e.looking import Looking

ROOT = Path(__file__).resolve().parents[2]

# Performance marks, set inside the page: when a pointer moved, and when the result was drawn. A task posted in the last
# animation frame callback runs after style, layout and paint of that frame.
WATCH_DRAG = """() => {
  window.drag = { waited: [], worked: [], shown: [], asked: 0 };
  const channel = new MessageChannel();
  let due = null;
  let asks = 0; // those after the last movement are of the rest, and not of the way
  channel.port1.onmessage = () => {
    const now = performance.now();
    window.drag.waited.push(now - due.moved);
    window.drag.worked.push(now - due.handled);
    window.drag.shown.push(now);
    due = null;
  };
  window.addEventListener("pointermove", (event) => {
    const handled = performance.now();
    window.drag.asked = asks;
    if (due) return;
    due = { moved: event.timeStamp, handled };
    requestAnimationFrame(() => channel.port2.postMessage(0));
  }, { capture: true });
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) {
    const text = typeof data === "string" ? data : new TextDecoder().decode(data);
    if (text.includes('"ask"')) asks++;
    return send.call(this, data);
  };
}"""
# A page that only redraws canvases of these sizes at each movement: the minimum for this machine.
PLAIN = """(sizes) => {
  document.body.style.margin = 0;
  const pens = sizes.map(([width, height]) => {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    canvas.style.display = "block";
    document.body.append(canvas);
    return canvas.getContext("2d");
  });
  let frame = 0;
  let x = 0;
  const draw = () => {
    frame = 0;
    for (const pen of pens) {
      const { width, height } = pen.canvas;
      pen.clearRect(0, 0, width, height);
      for (let bar = 0; bar < 128; bar++) {
        const tall = (height * ((bar * 37 + x) % 128)) / 128;
        pen.fillRect((bar * width) / 128, height - tall, width / 128 - 1, tall);
      }
    }
  };
  addEventListener("pointermove", (event) => {
    x = event.clientX;
    frame ||= requestAnimationFrame(draw);
  });
}"""
SIZES = """() => [...document.querySelectorAll(".smdw-body .smdw-figure canvas")]
  .filter((canvas) => { const box = canvas.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; })
  .map((canvas) => [canvas.clientWidth, canvas.clientHeight])"""
# When an element of the widget first contained a text, after the frame that shows it.
WATCH_WORDS = """([place, words]) => {
  const root = document.querySelector(".jp-NotebookPanel:not(.lm-mod-hidden)") ?? document.body;
  window.seen = null;
  const look = () => {
    const held = [...root.querySelectorAll(place)].map((el) => el.textContent).join("\\n");
    if (!new RegExp(words).test(held) || window.seen) return;
    window.seen = -1;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.seen = Date.now(); }));
  };
  const observer = new MutationObserver(look);
  observer.observe(root, { subtree: true, childList: true, characterData: true });
  look();
}"""


@contextmanager
def jupyter(work: Path) -> Iterator[tuple[Jupyter, int]]:
    """A JupyterLab in Chromium, and the port for raw input."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    server = Server("lab", work / "lab")
    try:
        server.wait()
        with sync_playwright() as driver:
            browser = launch(driver, f"--remote-debugging-port={port}", "--remote-allow-origins=*")
            opened = Jupyter(server, browser, work)
            yield opened, port
            opened.close(check=False)
            browser.close()
    finally:
        server.stop()


class Hand(threading.Thread):
    """Move the mouse 125 times a second, whether or not the page keeps up."""

    def __init__(
        self, port: int, title: str, start: tuple[float, float], end: float, moves: int, *, pressed: bool = True
    ) -> None:
        super().__init__()
        import urllib.request

        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
            pages = [each for each in json.load(answer) if each["type"] == "page" and title in each["url"]]
        self._socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=30)
        self._x = np.linspace(start[0], end, moves)
        self._y = start[1]
        self._button = {"button": "left", "buttons": 1} if pressed else {"button": "none", "buttons": 0}

    def run(self) -> None:
        for number, x in enumerate(self._x):
            move = {"type": "mouseMoved", "x": float(x), "y": self._y, **self._button}
            self._socket.send(json.dumps({"id": number, "method": "Input.dispatchMouseEvent", "params": move}))
            time.sleep(0.008)
        self._socket.close()


def dragging(lab: Jupyter, port: int, run: Path, steps: int = 1000) -> dict[str, Any]:
    """Drag a slider over all steps; return the duration and work of each frame."""
    notebook = lab.open(
        [f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor='w')\nw"], size=(1280, 1100)
    ).run(0)
    look = Looking.at(notebook)
    look.panel("history").get_by_text(f"{steps:,} steps loaded").wait_for(timeout=120_000)
    page = notebook.page
    look.track.scroll_into_view_if_needed()
    box = look.track.bounding_box()
    assert box
    y = box["y"] + box["height"] / 2
    left, right = box["x"] + 12, box["x"] + box["width"] - 12

    def sweep(url: str = notebook.server.url) -> None:
        page.mouse.move(left, y)
        page.mouse.down()
        hand = Hand(port, url, (left, y), right, 1000)
        hand.start()
        while hand.is_alive():
            page.wait_for_timeout(100)
        page.wait_for_timeout(300)

    page.evaluate(WATCH_DRAG)
    sweep()
    seen = page.evaluate("() => window.drag")  # before the mouse button is released
    page.mouse.up()
    cpu = _traced(page, sweep)
    page.mouse.up()
    sizes = page.evaluate(SIZES)
    page.goto("data:text/html,<title>plain</title>")
    page.evaluate(WATCH_DRAG)
    page.evaluate(PLAIN, sizes)
    sweep("data:text/html")
    return {**seen, "cpu": cpu, "plain": page.evaluate("() => window.drag.worked"), "canvases": len(sizes)}


def _traced(page: Any, sweep: Callable[[], None]) -> dict[str, float]:
    """Return what `_cpu` does, for the frames of a movement."""
    events: list[dict[str, Any]] = []
    over: list[bool] = []
    devtools = page.context.new_cdp_session(page)
    devtools.on("Tracing.dataCollected", lambda part: events.extend(part["value"]))
    devtools.on("Tracing.tracingComplete", lambda _: over.append(True))
    categories = {"includedCategories": ["devtools.timeline", "blink", "cc"]}
    devtools.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": categories})
    sweep()
    devtools.send("Tracing.end")
    while not over:
        page.wait_for_timeout(50)
    return _cpu(events)


def _cpu(events: list[dict[str, Any]]) -> dict[str, float]:
    """Return milliseconds of CPU per drawn frame on the page's main thread.

    The parts are our script, style and layout.
    """
    names = {
        "ProxyMain::BeginMainFrame": "all",
        "FireAnimationFrame": "script",
        "EventDispatch": "script",
        "UpdateLayoutTree": "layout",
        "Layout": "layout",
    }
    threads = collections.Counter((e["pid"], e["tid"]) for e in events if e["name"] == "FireAnimationFrame")
    main = threads.most_common(1)[0][0]
    spent: dict[str, float] = dict.fromkeys(names.values(), 0.0)
    for event in events:
        if (event["pid"], event["tid"]) == main and event["name"] in names:
            spent[names[event["name"]]] += event.get("tdur", 0) / 1000
    drawn = sum(e["name"] == "ProxyMain::BeginMainFrame::commit" for e in events)
    return {name: value / max(1, drawn) for name, value in spent.items()}


def choosing(lab: Jupyter, run: Path, busy: str = "", rounds: int = 1) -> list[tuple[float, float]]:
    """Return milliseconds from selecting a tensor to its first and to all frames.

    With `busy`, a cell trains meanwhile.
    """
    cells = [f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor='small')\nw", busy or "1"]
    notebook = lab.open(cells, size=(1280, 1100)).run(0)
    look = Looking.at(notebook)
    look.panel("history").get_by_text("200 steps loaded").first.wait_for(timeout=60_000)
    if busy:
        _train(notebook)
    took = []
    for number in range(rounds):
        name = f"w{number}" if busy else "w"
        row = look.row(name)
        row.wait_for()
        first = _until(notebook, ".smdw-panel-histogram .smdw-sr", f"Histogram of {name} at step .* values from", row)
        whole = 0.0
        if not busy:
            notebook.page.evaluate(WATCH_WORDS, [".smdw-panel-history .smdw-readout", "200 steps loaded"])
            notebook.page.wait_for_function("() => window.seen > 0", timeout=120_000)
            whole = notebook.page.evaluate("() => window.seen - window.clicked")
        took.append((first, whole))
    if busy:
        _check_trains(notebook)
    return took


def commanding(lab: Jupyter, run: Path, busy: str, rounds: int) -> list[float]:
    """Return milliseconds from clicks on a rule's controls to its new status.

    A cell trains meanwhile.
    """
    source = f"import smdwidgets\nw = smdwidgets.RulePanel({str(run)!r}, ['VanishingGradient'])\nw"
    notebook = lab.open([source, busy], size=(1280, 1100)).run(0)
    look = Looking.at(notebook)
    look.el.locator(".smdw-status", has_text="Running").wait_for(timeout=60_000)
    _train(notebook)
    took = []
    for number in range(rounds):
        last = ("Stop rule", "Stopped") if number == rounds - 1 else ("Run rule", "Running")
        name, status = ("Pause rule", "Paused") if number % 2 == 0 else last
        control = look.el.get_by_role("button", name=name, exact=True)
        took.append(_until(notebook, ".smdw-status", status, control))
    _check_trains(notebook)
    return took


def _train(notebook: Notebook) -> None:
    """Run the second cell until it is busy."""
    notebook.run(1, wait=False)
    notebook.page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt", has_text="[*]").wait_for()


def _check_trains(notebook: Notebook) -> None:
    prompt = notebook.page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt").inner_text()
    assert "*" in prompt, "the cell ended too early"


def _until(notebook: Notebook, place: str, words: str, row: Any) -> float:
    page = notebook.page
    page.evaluate(WATCH_WORDS, [place, words])
    page.evaluate(
        "() => addEventListener('click', () => { window.clicked = Date.now(); }, { capture: true, once: true })"
    )
    row.click()
    page.wait_for_function("() => window.seen > 0", timeout=120_000)
    took: float = page.evaluate("() => window.seen - window.clicked")
    return took


def opening(lab: Jupyter, run: Path) -> float:
    """Return milliseconds from running the cell to the explorer with its picture."""
    cells = ["import smdwidgets", f"smdwidgets.explore({str(run)!r})"]
    notebook = lab.open(cells, size=(1280, 1100)).run(0)
    page = notebook.page
    page.evaluate(WATCH_WORDS, [".smdw-run, .smdw-tree", "2,000 tensors(.|\\n)*weight"])
    began = time.time()
    notebook.run(1, wait=False)
    page.wait_for_function("() => window.seen > 0", timeout=120_000)
    return float(page.evaluate("() => window.seen")) - began * 1000


CPU_TIME = "import time\nprint(time.process_time())"
#: A kernel that has shown an explorer before.
WARM = "import smdwidgets\nsmdwidgets.explore({path!r})"


def sentence(lab: Jupyter, run: Path, words: str, earlier: Path | None = None) -> tuple[float, float, float]:
    """Return seconds from a cell of an explorer to its sentence.

    CPU seconds of kernel and page follow. The sentence is on the screen when these words of it are. With `earlier`, the
    kernel has opened that run before; without, the cell imports the package. JupyterLab is loaded in both cases.
    """
    before = WARM.format(path=str(earlier)) if earlier else "1"
    notebook = lab.open([before, CPU_TIME, WARM.format(path=str(run)), CPU_TIME], size=(1280, 1100)).run(0)
    page = notebook.page
    if earlier:
        Looking.at(notebook).el.get_by_role("region", name="Diagnosis").get_by_role("button").first.wait_for()
    kernel = float(notebook.run(1).text(1))
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable")

    def cpu() -> float:
        metrics = tools.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "ProcessTime")

    drawn = cpu()
    page.evaluate(WATCH_WORDS, [".jp-CodeCell:nth-child(3) [aria-label=Diagnosis]", words])
    began = time.time()
    notebook.run(2, wait=False)
    page.wait_for_function("() => window.seen > 0", timeout=120_000)
    took = page.evaluate("() => window.seen") / 1000 - began
    drawn = cpu() - drawn
    return took, float(notebook.run(3).text(3)) - kernel, drawn


def hovering(lab: Jupyter, port: int, run: Path) -> tuple[list[float], dict[str, float]]:
    """Move the mouse over the map 125 times a second.

    Return milliseconds from each event to its painted frame, and CPU of a frame.
    """
    notebook = lab.open([WARM.format(path=str(run))], size=(1280, 1100)).run(0)
    look = Looking.at(notebook)
    look.el.get_by_role("region", name="Diagnosis").get_by_role("button").first.wait_for()
    look.el.scroll_into_view_if_needed()
    box = look.settled(look.el.locator(".smdw-map-plot canvas").first)
    page, y = notebook.page, box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 4, y)
    page.evaluate(WATCH_DRAG)
    right = box["x"] + box["width"] - 4

    def sweep() -> None:
        hand = Hand(port, notebook.server.url, (box["x"] + 4, y), right, 500, pressed=False)
        hand.start()
        while hand.is_alive():
            page.wait_for_timeout(100)
        look.drawn()

    sweep()
    times = list(map(float, page.evaluate("() => window.drag.worked")))
    page.mouse.move(box["x"] + 4, y)
    return times, _traced(page, sweep)


WRITER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from python.widgets.talk import save, weights
for step in map(int, sys.stdin):
    save(Path(sys.argv[1]), step, {"w": weights(step, (256, 256))})
    print(step, time.time(), flush=True)
"""
WATCH_STEPS = """() => {
  window.steps = {};
  const track = document.querySelector(".jp-NotebookPanel:not(.lm-mod-hidden) .smdw-track");
  new MutationObserver(() => {
    const step = track.getAttribute("aria-valuenow");
    if (step in window.steps) return;
    window.steps[step] = -1;
    requestAnimationFrame(() => setTimeout(() => { window.steps[step] = Date.now(); }));
  }).observe(track, { attributes: true, attributeFilter: ["aria-valuenow"] });
}"""


def living(lab: Jupyter, root: Path, steps: int = 60) -> list[float]:
    """Return seconds from a step of another process to its picture on the screen."""
    command = [sys.executable, "-c", WRITER, str(root), str(ROOT / "tests")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as writer:
        assert writer.stdin
        assert writer.stdout

        def write(step: int) -> float:
            writer.stdin.write(f"{step}\n")  # type: ignore[union-attr]
            return float(writer.stdout.readline().split()[1])  # type: ignore[union-attr]

        for step in range(3):
            write(step)
        source = f"import smdwidgets\nw = smdwidgets.explore({str(root)!r}, tensor='w')\nw"
        notebook = lab.open([source], size=(1280, 1100)).run(0)
        Looking.at(notebook).at_step(2)
        notebook.page.evaluate(WATCH_STEPS)
        pause = np.random.default_rng(0)
        written = {}
        for step in range(3, 3 + steps):
            # At any time between two polls of the kernel, not synchronized with them.
            notebook.page.wait_for_timeout(float(pause.uniform(300, 900)))
            written[step] = write(step)
        notebook.page.wait_for_function("(step) => window.steps[step] > 0", arg=str(2 + steps), timeout=60_000)
        seen = {int(step): at / 1000 for step, at in notebook.page.evaluate("() => window.steps").items()}
        writer.stdin.close()
        writer.wait(30)
    # A skipped step appears on the screen with the next one.
    later = sorted(seen)
    return [min(seen[s] for s in later if s >= step) - at for step, at in written.items()]
