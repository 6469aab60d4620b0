"""Checks what no compiler does: that committed files are portable and whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from steps import ROOT

MOST_BYTES = 2_000_000
# Absolute paths of somebody's machine, which mean nothing on another.
MACHINE_PATH = re.compile(rb"(?<![\w.:/~$])/(?:home|Users|root|work|tmp)/[\w.-]+/[\w./-]+")
INDEX_URL = re.compile(rb"(?im)^\s*(?:--)?(?:extra-)?index-url\b|^\s*registry\s*=\s*(?:\"|')?https?:")
CONFLICT = re.compile(rb"(?m)^(?:<{7} |>{7} |={7}$)")


def tracked() -> list[Path]:
    """Files under version control that are in the work tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


def faults(path: Path) -> list[str]:
    """What is wrong with one file."""
    data = path.read_bytes()
    found = []
    if len(data) > MOST_BYTES:
        found.append(f"is {len(data):,} bytes long; the repository holds nothing over {MOST_BYTES:,}")
    if b"\0" in data[:8000]:
        return found
    found += [f"holds the path {m[0].decode()} of one machine" for m in MACHINE_PATH.finditer(data)]
    found += ["names a package index" for _ in INDEX_URL.finditer(data)]
    found += ["holds a conflict marker" for _ in CONFLICT.finditer(data)]
    if path.name == "package-lock.json" and b'"resolved"' in data:
        found.append("names download addresses: `npm install` with the js/.npmrc of this project leaves them out")
    if path.suffix == ".ipynb":
        cells = json.loads(data)["cells"]
        if any(cell.get("outputs") or cell.get("execution_count") for cell in cells):
            found.append("holds outputs: clear them before committing")
    return found


def main() -> int:
    """Prints each fault; 1 when there is one."""
    said = [f"{path.relative_to(ROOT)}: {fault}" for path in tracked() for fault in faults(path)]
    print("\n".join(said) or "clean")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
