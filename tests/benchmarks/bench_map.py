"""Measure the Run Map in Chromium, without a graphics card.

The runs are made in the page.

Usage: python tests/benchmarks/bench_map.py

Prints each figure with its target. Needs Node and the packages of `js/`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    node = shutil.which("node")
    if node is None:
        raise SystemExit("node is not installed")
    done = subprocess.run(
        [node, "scripts/bench-map.mjs"], cwd=ROOT / "js", check=True, capture_output=True, text=True, timeout=300
    )
    found = json.loads(done.stdout)
    large, zoom = found["large"], found["zoom"]
    rows = [
        ("300 x 500: opened to NaN on the canvas", f"{found['small']['first violet ms']:.0f} ms", "<= 1,000 ms"),
        *(
            (f"5,000 x 100,000, {view}: opened to NaN on the canvas", f"{large[f'{view} ms']:.0f} ms", "visible")
            for view in ("folded", "fit")
        ),
        ("5,000 x 100,000: memory of the page", f"{large['heap MB']:.0f} MB", "<= 150 MB"),
        *(
            (f"3 s of {name}: 95 % of frames within", f"{found[name]['95% ms']:.1f} ms", "<= 20 ms")
            for name in ("hover", "drag")
        ),
        *(
            (f"3 s of {name}: requests and saves", f"{found[name]['sent'] + found[name]['saved']}", "0")
            for name in ("hover", "drag")
        ),
        (
            "zoom x 2: finer bins, 120 ms of rest included",
            f"{sorted(zoom['finer bins ms'])[1]:.0f} ms",
            "<= 150 ms after the rest",
        ),
        ("zoom x 2: least area drawn in a frame", f"{zoom['fewest pixels of a frame / before']:.2f}", "> 0"),
    ]
    for what, figure, target in rows:
        print(f"{what:58} {figure:>10}   target {target}")
    if found["errors"]:
        raise SystemExit(f"errors in the page: {found['errors']}")


if __name__ == "__main__":
    main()
