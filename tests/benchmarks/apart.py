"""Run a part of a benchmark in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["apart"]


def apart(program: Path, *arguments: object, package: str | None = None) -> dict[str, Any]:
    """Run ``program --apart ARGUMENTS DIRECTORY``; return its last line of JSON.

    Args:
        program: the benchmark.
        arguments: what it is to measure.
        package: the directory of another release's package, which it imports.
    """
    env = dict(os.environ) if package is None else {**os.environ, "PYTHONPATH": package}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        command = [sys.executable, str(program), "--apart", *map(str, arguments), root]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
