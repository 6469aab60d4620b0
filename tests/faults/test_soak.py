"""Two minutes of a live run with everything attached (30 by `make soak`): nothing grows but with the run, everything is let go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))
#: What one more step may add to memory: its place in the index, its frame of the tensor in view, what ten rules measured of it.
A_STEP = 5_000
#: What caches of a fixed size may still take after the warm-up: the values asked for lately alone take minutes to fill theirs.
CACHES = 40 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="memory, files and threads are counted in /proc")
@pytest.mark.timeout(SECONDS * 2 + 600)
def test_a_live_run_with_an_explorer_and_ten_rules(repository: Path) -> None:
    report = repository / ".cache" / "faults" / "soak.report"
    report.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).with_name("soak.py")), str(SECONDS), str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-4000:])
    found = json.loads(report.read_text())
    assert found["steps missed"] == 0
    assert found["wrong values"] == 0
    assert found["steps judged by the slowest rule"] == found["steps written"]
    assert not {"ERROR"} & set(found["rules"].values())
    assert found["packets to the page"] > SECONDS
    further = found["steps after warm-up"]
    assert found["resident at the end"] - found["resident after warm-up"] < CACHES + A_STEP * further
    assert found["growth over 2000 refreshes without news"] < 1 << 20
    assert found["most open files"] <= found["open files after warm-up"] + 8
    assert found["most threads"] <= found["threads after warm-up"] + 4
    (files, threads), (files_after, threads_after) = found["before and after (files, threads)"]
    assert files_after <= files
    # The pools that all widgets share stay: 4 that answer, up to 4 that make frames.
    assert threads_after <= threads + 8
    assert found["values outlive the trial"]
