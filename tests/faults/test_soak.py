"""A live run with everything attached, for 15 seconds after a short beginning.

`make soak` takes 30 minutes after a long one. Memory, open files and threads stay constant except for a few hundred
bytes per step, and closing releases everything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = float(os.environ.get("SOAK_SECONDS", "15"))
#: Steps before the measurement starts. The long beginning fills the rules' cache of 64 MB; for the short one the cache
#: is smaller.
BEGINNING = 16_000 if SECONDS >= 60 else 2_000
#: Memory that one more step of four tensors may add: 200 bytes of index, 90 bytes of rule results, and its number in
#: Python
#: lists, some of which exist twice for a moment.
A_STEP = 800
#: Fluctuation of allocators and caches of fixed size after the warm-up. Growth of ten rules would exceed it in two
#: minutes.
SETTLING = 16 << 20
#: Files that a trial keeps open at most.
KEPT_OPEN = 256
#: Steps by which rules may be behind in the middle: those of some seconds, on a shared machine.
BEHIND = 500


@pytest.mark.skipif(sys.platform != "linux", reason="memory, files and threads are counted in /proc")
@pytest.mark.timeout(SECONDS * 2 + 1800)
def test_live_run_with_an_explorer_and_ten_rules(repository: Path) -> None:
    report = repository / ".cache" / "faults" / "soak.report"
    report.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).with_name("soak.py")), str(SECONDS), str(BEGINNING), str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-4000:])
    found = json.loads(report.read_text())
    assert found["steps missed"] == 0
    assert found["wrong values"] == 0
    assert found["steps judged by the slowest rule"] == found["steps written"]
    assert not {"ERROR"} & set(found["rules"].values())
    assert found["packets to the page"] > SECONDS
    assert found["steps that rules were behind, median and most"][0] < BEHIND
    further = found["steps after warm-up"]
    assert further > SECONDS
    assert found["resident at the end"] - found["resident after warm-up"] < SETTLING + A_STEP * further
    assert found["growth over 2000 refreshes without news"] < 1 << 20
    assert found["most open files"] <= found["open files after warm-up"] + KEPT_OPEN + 8
    assert found["most threads"] <= found["threads after warm-up"] + 4
    (files, threads), (files_after, threads_after) = found["before and after (files, threads)"]
    assert files_after <= files
    # The shared thread pools remain: 4 that answer requests, up to 4 that make frames.
    assert threads_after <= threads + 8
    assert found["values outlive the trial"]
