"""Import every smdebug name that `smdwidgets.compat` maps.

The framework is installed.
"""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import importlib, sys
import smdwidgets
from smdwidgets.compat import MODULES
smdwidgets.install_as_smdebug()
framework = sys.argv[1]
for path, mapped in MODULES.items():
    if path.partition(".")[0] != framework:
        continue
    module = importlib.import_module(f"smdebug.{path}")
    for name in mapped.names:
        getattr(module, name)
        print(path, name)
"""


def check(framework: str) -> None:
    """Import every mapped name of a framework in a fresh process."""
    command = [sys.executable, "-c", _SCRIPT, framework]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert f"{framework} " in done.stdout
