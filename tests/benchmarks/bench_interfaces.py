"""Measure the pages of TensorBoard, trackio, Aim and the explorer.

Usage: `python tests/benchmarks/bench_interfaces.py [--data FOLDER] [--pictures FOLDER] [--write]`.

`python tools/setup.py interfaces` installs the other programs. Each tool gets the same series by its
own writer, in growing numbers, until its page has no picture within a limit. Each page is opened in a separate browser.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import report
from bench_large_map import names_of, write_collections
from peer_interfaces import PROJECT, names_in_groups, planted, rows_of
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv-interfaces" / "bin"
SIZES = {300: 1000, 3000: 300, 10_000: 100, 30_000: 30, 100_000: 10}
#: Aim's writer takes half a millisecond for each value.
SIZES_OF_AIM = {300: 1000, 3000: 30, 10_000: 10}
#: Seconds within which a page has a picture, and after that names what was planted.
PICTURE, NAMED = 60, 15
#: A page that has a picture, and is not ready to be read after so many seconds, is given up.
GIVE_UP = 60
VIEW = {"width": 1280, "height": 900}

#: An element is in view if a part of it is inside the window, and nothing else is at the middle of that part.
IN_VIEW = """const inView = (all) => [...all].filter((el) => {
  const box = el.getBoundingClientRect();
  const [left, right] = [Math.max(0, box.left), Math.min(innerWidth, box.right)];
  const [top, bottom] = [Math.max(0, box.top), Math.min(innerHeight, box.bottom)];
  if (left >= right || top >= bottom) return false;
  const there = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  return el.contains(there) || there?.contains(el);
});
const painted = (canvas) => canvas.width > 0 && canvas.height > 0 && canvas.getContext("2d")
  ?.getImageData(0, 0, canvas.width, canvas.height).data.some((value, at) => at % 4 === 3 && value > 0);
const number = (el) => Number(el.textContent.replace(/[^0-9]/g, ""));"""
#: A text node or a title in view contains one of these names.
FIND = """(names) => {
  %s
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [...document.querySelectorAll("[title]")].map((el) => [el, el.title]);
  while (texts.nextNode()) found.push([texts.currentNode.parentElement, texts.currentNode.data]);
  const held = names.filter((name) => inView(found.filter(([, text]) => text.includes(name)).map(([el]) => el)).length);
  return held.length ? held.join(" ") : null;
}"""


@dataclass
class Tool:
    """A program with a page.

    Attributes:
        written: the tool whose log it opens.
        sizes: series and steps.
        pictures: JavaScript that returns for how many series there is a picture in view.
    """

    written: str
    sizes: dict[int, int]
    pictures: str


TENSORBOARD = """inView(document.querySelectorAll("scalar-card")).filter((card) =>
  card.querySelector("line-chart canvas, line-chart path")
  && /[0-9]/.test(card.querySelector("tb-data-table-content-row")?.textContent ?? "")).length"""
TRACKIO = "inView(document.querySelectorAll('canvas')).filter(painted).length"
AIM = """inView(document.querySelectorAll(".LineChart"))
  .filter((chart) => chart.querySelector("path.Line")?.getAttribute("d")).length"""
# A folded module stands for its tensors; its row has their number. Runs of scalars only have curves instead.
MAP = """[...document.querySelectorAll(".smdw-map-plot canvas")].some(painted)
  ? inView(document.querySelectorAll(".smdw-map-row")).reduce((sum, row) => {
    const folded = row.querySelector(".smdw-map-mark")?.textContent === "\u25b8";
    return sum + (folded ? number(row.querySelector(".smdw-map-size")) : row.matches(".smdw-map-module") ? 0 : 1);
  }, 0) : 0"""
CURVES = """inView(document.querySelectorAll(".smdw-multiple"))
  .filter((cell) => [...cell.querySelectorAll("canvas")].some(painted)).length"""
TOOLS = {
    "TensorBoard": Tool("TensorBoard", SIZES, TENSORBOARD),
    "trackio": Tool("trackio", SIZES, TRACKIO),
    "Aim": Tool("Aim", SIZES_OF_AIM, AIM),
    "smdwidgets, its own run": Tool("smdwidgets", SIZES, MAP),
    "smdwidgets, TensorBoard's log": Tool("TensorBoard", SIZES, CURVES),
    "smdwidgets, trackio's database": Tool("trackio", SIZES, CURVES),
}


def write_own(folder: Path, count: int, steps: int) -> None:
    """Write the series as standard deviations, with the other statistics."""
    from smdwidgets import _core

    write_collections(folder)
    none, size = np.zeros(count, np.int64), 1 << 24
    with _core.StatisticsWriter(folder, seconds=1e9) as writer:
        numbers = [writer.add(name, "float32", [4096, 4096]) for name in names_of(count)]
        for step, values in rows_of(count, steps):
            std = np.array(values)
            nan = np.isnan(std).astype(np.int64)
            std = np.nan_to_num(std, nan=1e-2)
            counts = {"count": none + size, "nan": nan, "neg_inf": none, "pos_inf": none, "zeros": none}
            moments = {"min": -4 * std, "max": 4 * std, "mean": 0 * std, "std": std, "l1": 0.8 * std * size}
            rest = {"l2": 4096 * std, "abs_max": 4 * std, "update": 41 * std}
            writer.append(step, numbers, {**counts, **moments, **rest}, 1)
            with _core.StepWriter(folder, step, "worker_0", 1) as event:
                event.tensor("loss", np.float32(2 + np.exp(-step / 100)))
                # The map shows the tensors of which some values were saved.
                for name, value in zip(names_of(count), std if step == 0 else [], strict=False):
                    event.tensor(name, np.full(4, value, np.float32))
    (folder / "training_job_end.ts").touch()


def write(tool: str, folder: Path, count: int, steps: int) -> None:
    """Write a log unless it exists; `written.json` beside it appears last."""
    done = folder.with_name(f"{folder.name}-written.json")
    if done.exists():
        return
    if tool == "smdwidgets":
        begin = time.perf_counter()
        write_own(folder, count, steps)
        done.write_text(json.dumps({"seconds": time.perf_counter() - begin, "load": os.getloadavg()[0]}))
    else:
        program = Path(__file__).with_name("peer_interfaces.py")
        subprocess.run([BIN / "python", program, tool, folder, str(count), str(steps)], check=True)


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end(pid: int) -> None:
    """Kill a process that this program started, with its descendants."""
    for process in tree(pid):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def memory(pid: int) -> int:
    """Return the bytes of a process and its descendants; what they share counts once."""
    return sum(process.memory_full_info().pss for process in tree(pid))


def tell(**figures: object) -> None:
    """Print figures for the process that waits for them."""
    print(json.dumps(figures), flush=True)


def replied(address: str) -> bool:
    """Return whether a server replies."""
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@contextmanager
def serving(tool: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Start a tool's server on a log, and give its address and process."""
    from e2e.jupyter import free_port

    port, environment = free_port(), {**os.environ, "TRACKIO_DIR": str(folder)}
    environment.pop("PYTHONPATH", None)
    command = {
        "TensorBoard": [BIN / "tensorboard", "--logdir", folder, "--port", str(port)],
        "trackio": [BIN / "trackio", "show", "--project", PROJECT],
        "Aim": [BIN / "aim", "up", "--yes", "--repo", folder, "--port", str(port)],
    }[tool]
    address = f"http://127.0.0.1:{port}/"
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, stdin=subprocess.DEVNULL)
        try:
            while True:
                log.seek(0)
                # trackio chooses its port.
                said = re.search(r"launched at: (http://[^/]+/)", log.read()) if tool == "trackio" else None
                address = said[1] if said else address
                if replied(address):
                    break
                if process.poll() is not None or time.monotonic() - begin > 120:
                    raise RuntimeError(f"{tool} did not start")
                time.sleep(0.2)
            tell(start=time.monotonic() - begin)
            yield address, process.pid
        finally:
            end(process.pid)


def page_of(tool: str, address: str) -> str:
    """Return the address of the page that shows the series, without a search."""
    if tool == "TensorBoard":
        return address
    if tool == "trackio":
        return f"{address}?project={PROJECT}"

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"{address}api/experiments/{path}", timeout=60) as answer:
            return json.load(answer)

    [experiment] = [each["id"] for each in ask("") if each["name"] == PROJECT]
    return f"{address}runs/{ask(f'{experiment}/runs/')['runs'][0]['run_id']}/metrics"


def look(name: str, folder: Path, count: int, shot: Path) -> None:
    """Open a tool's page on a log, and tell the figures."""
    from playwright.sync_api import sync_playwright

    from e2e.chromium import launch

    tool = TOOLS[name]
    with sync_playwright() as driver:
        browser = launch(driver)
        if name.startswith("smdwidgets"):
            ours(browser, tool, folder, count, shot)
        else:
            with serving(name, folder) as (address, pid):
                page = browser.new_page(viewport=VIEW)
                # Nothing outside of this machine is asked.
                page.route(lambda url: not url.startswith((address, "data:", "blob:")), lambda route: route.abort())
                begin = time.monotonic()
                page.goto(page_of(name, address), wait_until="commit")
                measure(page, tool, count, shot, begin, lambda: memory(pid), reload=name == "TensorBoard")


def ours(browser: Any, tool: Tool, folder: Path, count: int, shot: Path) -> None:
    """Open a log in the explorer, in a kernel that has not imported the package."""
    from e2e.jupyter import Jupyter, Server

    log = folder / f"{PROJECT}.db" if tool.written == "trackio" else folder
    with tempfile.TemporaryDirectory() as place:
        begin = time.monotonic()
        server = Server("lab", Path(place))
        try:
            server.wait()
            tell(start=time.monotonic() - begin)
            show = f"import smdwidgets\nsmdwidgets.explore({str(log)!r})"
            cells = ["import os\nprint(os.getpid())", show]
            notebook = Jupyter(server, browser, Path(place)).open(cells, size=(1280, 900), fresh=True)
            pid = int(notebook.run(0).text(0))
            begin = time.monotonic()
            notebook.run(1, wait=False)
            measure(notebook.page, tool, count, shot, begin, lambda: memory(pid))
        finally:
            server.stop()


def measure(
    page: Any, tool: Tool, count: int, shot: Path, begin: float, held: Callable[[], int], reload: bool = False
) -> None:
    """Wait for the picture and the names of what was planted, and tell the figures."""
    from playwright.sync_api import TimeoutError as TooLong

    from e2e.large_map import heap

    script = f"() => {{ {IN_VIEW}\n return {tool.pictures}; }}"
    limit = begin + PICTURE
    while True:
        rest = max(1.0, limit - time.monotonic())
        try:
            # TensorBoard loads while it serves. A page without data stays so until it is loaded again.
            page.wait_for_function(script, timeout=1000 * min(rest, 15 if reload else rest), polling=50)
            tell(picture=time.monotonic() - begin)
            break
        except TooLong:
            if time.monotonic() >= limit - 1:
                tell(failed=f"no picture within {PICTURE} s", server=held())
                page.screenshot(path=shot, timeout=30_000)
                return
            if "No dashboards are active" in page.locator("body").inner_text(timeout=5000):
                page.reload(wait_until="commit")
    names = names_of(count) if tool.written == "smdwidgets" else names_in_groups(count)
    wanted = {kind: names[tensor] for kind, (tensor, _) in planted(count, tool.sizes[count]).items()}
    try:
        held_names = page.wait_for_function(
            FIND % IN_VIEW, arg=list(wanted.values()), timeout=1000 * NAMED, polling=250
        ).json_value()
        tell(named=time.monotonic() - begin)
        page.wait_for_timeout(2000)
        held_names = page.evaluate(FIND % IN_VIEW, list(wanted.values()))
        tell(kinds=[kind for kind, name in wanted.items() if name in (held_names or "").split(" ")])
    except TooLong:
        tell(kinds=[])
    tell(series=page.evaluate(script), server=held())
    page.screenshot(path=shot, timeout=60_000)
    tell(heap=heap(page))


def ask(name: str, folder: Path, count: int, shot: Path, cache: Path) -> dict[str, Any]:
    """Look in a process that can be ended when its page no longer answers."""
    command = [sys.executable, __file__, "--look", name, str(folder), str(count), str(shot)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    figures: dict[str, Any] = {"tool": name, "count": count, "load": [os.getloadavg()[0]]}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert process.stdout is not None
        stop = threading.Timer(PICTURE + NAMED + GIVE_UP, partial(end, process.pid))
        stop.start()
        for line in process.stdout:
            figures |= json.loads(line)
        process.wait()
        stop.cancel()
        errors.seek(0)
        reason = errors.read().strip().splitlines()[-1:]
    if process.returncode and "failed" not in figures:
        figures["failed"] = "the page did not answer any more" if process.returncode < 0 else (reason or ["?"])[0]
    figures["load"].append(os.getloadavg()[0])
    return figures


def size_of(folder: Path) -> int:
    """Return the bytes of the files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def row(figures: dict[str, Any]) -> list[str]:
    """Return the cells of a look."""

    def of(key: str, text: Callable[[Any], str]) -> str:
        return text(figures[key]) if figures.get(key) is not None else "–"

    seconds, megabytes = (lambda value: f"{value:.1f} s"), (lambda value: f"{value / 1e6:,.0f} MB")
    low, high = sorted(figures["load"])
    return [
        figures["tool"],
        f"{figures['count']:,} × {figures['steps']:,}",
        of("start", seconds),
        of("picture", seconds) if "picture" in figures else figures.get("failed", "–"),
        of("series", lambda value: f"{value:,}"),
        of("kinds", lambda kinds: ", ".join(kinds) or "no"),
        of("named", seconds),
        of("heap", megabytes),
        of("server", megabytes),
        megabytes(figures["disk"]),
        f"{figures['written']:.0f} s",
        f"{low:.0f} to {high:.0f}",
    ]


HEAD = [
    "page", "series × steps", "server starts", "first picture", "series in view", "names the planted series", "named after",
    "scripts of the page", "server or kernel", "on disk", "written in", "load",
]  # fmt: skip


def main() -> None:
    """Write the logs, look at each, and print or write the table."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--data", type=Path, help="where logs and figures are kept, so that `--only` repeats some")
    asked.add_argument("--pictures", type=Path, default=ROOT / ".cache/screenshots/interfaces")
    asked.add_argument("--only", nargs="*", choices=TOOLS, default=list(TOOLS))
    asked.add_argument("--most", type=int, default=max(SIZES), help="the largest number of series")
    asked.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    asked.add_argument("--look", nargs=4, help=argparse.SUPPRESS)
    options = asked.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    if options.look:
        name, folder, count, shot = options.look
        look(name, Path(folder), int(count), Path(shot))
        return
    options.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as own:
        data = (options.data or Path(own, "data")).resolve()
        data.mkdir(exist_ok=True)
        kept = data / "figures.json"
        looks: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
        for name in options.only:
            tool = TOOLS[name]
            for count, steps in tool.sizes.items():
                if count > options.most:
                    break
                folder = data / f"{tool.written}-{count}"
                write(tool.written, folder, count, steps)
                shot = options.pictures / f"{re.sub('[^a-z]+', '-', name.lower())}-{count}.png"
                figures = ask(name, folder, count, shot, Path(own, f"cache-{shot.stem}"))
                written = json.loads(folder.with_name(f"{folder.name}-written.json").read_text())
                figures |= {"steps": steps, "disk": size_of(folder), "written": written["seconds"]}
                if shot.exists():
                    Image.open(shot).convert("RGB").save(shot.with_suffix(".webp"), quality=70, method=6)
                looks[f"{name}, {count}"] = figures
                kept.write_text(json.dumps(looks))
                print(json.dumps(figures), flush=True)
                if "picture" not in figures or figures.get("failed"):
                    break
    rows = [row(looks[f"{name}, {count}"]) for name in TOOLS for count in SIZES if f"{name}, {count}" in looks]
    body = (
        "`python tests/benchmarks/bench_interfaces.py`, described in docs/large-runs-compared.md. Chromium without a graphics "
        f"card. A page has {PICTURE} s for its first picture.\n\n{report.table(HEAD, rows)}"
    )
    print(body)
    if options.write:
        report.write_section("Pages of large runs", body)


if __name__ == "__main__":
    main()
