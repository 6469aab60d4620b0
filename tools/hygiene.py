"""Check that committed files are portable and complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from steps import ROOT

MOST_BYTES = 2_000_000
# Absolute paths of one machine.
MACHINE_PATH = re.compile(rb"(?<![\w.:/~$])/(?:home|Users|root|work|tmp)/[\w.-]+/[\w./-]+")
INDEX_URL = re.compile(rb"(?im)^\s*(?:--)?(?:extra-)?index-url\b|^\s*registry\s*=\s*(?:\"|')?https?:")
CONFLICT = re.compile(rb"(?m)^(?:<{7} |>{7} |={7}$)")


def tracked() -> list[Path]:
    """Return the files under version control that exist in the work tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


def problems(path: Path) -> list[str]:
    """Return the problems of one file."""
    data = path.read_bytes()
    found = []
    if len(data) > MOST_BYTES:
        found.append(f"has {len(data):,} bytes; the maximum is {MOST_BYTES:,}")
    if b"\0" in data[:8000]:
        return found
    found += [f"contains the machine-specific path {m[0].decode()}" for m in MACHINE_PATH.finditer(data)]
    found += ["contains the address of a package index" for _ in INDEX_URL.finditer(data)]
    found += ["contains a conflict marker" for _ in CONFLICT.finditer(data)]
    if path.name == "package-lock.json" and b'"resolved"' in data:
        found.append("contains download addresses; run `npm install` with the js/.npmrc of this project to omit them")
    if path.suffix == ".ipynb":
        cells = json.loads(data)["cells"]
        if any(cell.get("outputs") or cell.get("execution_count") for cell in cells):
            found.append("contains outputs; clear them before committing")
    return found


def main() -> int:
    """Print each problem; return 1 if there is one."""
    lines = [f"{path.relative_to(ROOT)}: {problem}" for path in tracked() for problem in problems(path)]
    print("\n".join(lines) or "clean")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
