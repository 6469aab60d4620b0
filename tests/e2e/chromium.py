"""The Chromium that tests, benchmarks and pictures use."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from playwright.sync_api import Browser, Playwright

_FIND = Path(__file__).parents[2] / "js/scripts/chromium.mjs"


def launch(driver: Playwright, *more: str) -> Browser:
    """Start the Chromium of this machine without a display.

    Args:
        driver: what `sync_playwright()` returns.
        more: arguments of its command line, beside those of all tests.
    """
    done = subprocess.run(["node", _FIND], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    place = json.loads(done.stdout)
    return driver.chromium.launch(executable_path=place["path"], args=[*place["args"], *more])
