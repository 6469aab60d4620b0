"""Measure the table of 500 runs: packets in Python, rows and sorting in Chromium.

Usage: python tests/benchmarks/bench_run_table.py [--runs 500]

Prints each figure with its target. Needs Playwright, and Node to find Chromium.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from bench_many_runs import write
from playwright.sync_api import sync_playwright

import smdwidgets
from smdwidgets.widgets.runs_packets import RunsPackets

ROUNDS = 5

SORT = """(times) => new Promise((done) => {
  const took = [];
  const once = (left) => {
    if (!left) return done(took.sort((a, b) => a - b));
    const button = document.querySelector('.smdw-runs-head [data-by=best]');
    const begin = performance.now();
    button.click();
    // The page draws in the same frame, before this.
    requestAnimationFrame(() => { took.push(performance.now() - begin); setTimeout(() => once(left - 1), 50); });
  };
  once(times);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=500)
    count = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        logs = Path(folder, "logs")
        write(logs, count, 3, 100)
        first = _seconds(lambda: smdwidgets.runs(logs))
        again = _seconds(lambda: smdwidgets.runs(logs))
        table = smdwidgets.runs(logs)
        begin = time.perf_counter()
        explorer = smdwidgets.explore(table)
        opened = time.perf_counter() - begin
        assert explorer.live_table is not None
        size = sum(map(len, RunsPackets(explorer.live_table).all()))
        page = Path(folder, "page.html")
        explorer.to_html(page)
        explorer.close()
        shown, sorted_in = _in_chromium(page)
    rows = [
        (f"{count} runs, first call of runs()", f"{first * 1e3:.0f} ms", ""),
        (f"{count} runs, second call of runs()", f"{again * 1e3:.0f} ms", "<= 1,000 ms with the rows below"),
        ("explore(table), packets included", f"{opened * 1e3:.0f} ms", ""),
        ("page opened to first rows", f"{shown:.0f} ms", ""),
        ("sort and draw, median", f"{sorted_in:.1f} ms", "<= 50 ms"),
        ("packets, bytes a run", f"{size / count:.0f}", "<= 600"),
    ]
    for what, figure, target in rows:
        print(f"{what:40} {figure:>10}   {f'target {target}' if target else ''}")


def _seconds(act: object) -> float:
    begin = time.perf_counter()
    act()  # type: ignore[operator]
    return time.perf_counter() - begin


def _in_chromium(page: Path) -> tuple[float, float]:
    """Return the milliseconds until rows are shown, and of sorting and drawing."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from e2e.chromium import launch

    with sync_playwright() as driver:
        browser = launch(driver)
        view = browser.new_page()
        view.add_init_script(
            "new MutationObserver((_, self) => { if (document.querySelector('[data-run]')) "
            "{ window.shownAt = performance.now(); self.disconnect(); } })"
            ".observe(document, { childList: true, subtree: true });"
        )
        view.goto(page.as_uri())
        view.wait_for_selector("[data-run]")
        shown = float(view.evaluate("window.shownAt"))
        times = view.evaluate(SORT, ROUNDS)
        browser.close()
    return shown, float(times[ROUNDS // 2])


if __name__ == "__main__":
    main()
