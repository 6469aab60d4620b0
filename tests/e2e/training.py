"""A training in a separate process, controlled step by step."""

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
    """Save so many more steps."""
    assert writer.stdin
    writer.stdin.write("next\n" * steps)
