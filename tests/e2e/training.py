"""A training in a process of its own, a step at a time."""

from __future__ import annotations

import subprocess

WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import smdwidgets.numpy as smd
from e2e import runs
with smd.Hook(sys.argv[1]) as hook:
    for step, line in enumerate(sys.stdin):
        for name, (value, collection) in runs.tensors(step).items():
            hook.save_tensor(name, value, collection)
        hook.step()
"""


def saved(writer: subprocess.Popen[str], steps: int) -> None:
    """Have it save so many more."""
    assert writer.stdin
    writer.stdin.write("next\n" * steps)
