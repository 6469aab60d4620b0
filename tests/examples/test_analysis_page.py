"""The examples on the page about asking a run are true."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

RUN = """
import sys
from pathlib import Path
import numpy as np
from python.trials import runs
from smdwidgets import Collection, modes

root = Path(sys.argv[1])
runs.collections(root, given=[Collection("weights", ["^fc.*weight$"])])
for step in range(0, 90, 10):
    values = {"loss": np.float32(10 / (step + 10)), "fc2.weight": np.ones((3, 2), np.float32)}
    values |= {"fc1.weight": np.full((4, 3), step, np.float32), "gradient/fc1.weight": np.ones((4, 3))}
    runs.step(root, step, values, mode=modes.EVAL if step % 30 == 20 else modes.TRAIN, mode_step=step // 10)
runs.end(root)
"""


def test_the_page(repository: Path, tmp_path: Path) -> None:
    tests = str(repository / "tests")
    subprocess.run([sys.executable, "-c", RUN, str(tmp_path / "runs" / "mlp")], check=True, env={"PYTHONPATH": tests})
    # In a process of its own: it installs itself as smdebug.
    page = repository / "docs" / "analysis.md"
    code = f"import doctest; f, n = doctest.testfile({str(page)!r}, False, optionflags={doctest.IGNORE_EXCEPTION_DETAIL}); assert n > 20; exit(f)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
