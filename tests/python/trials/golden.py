"""The golden runs, written by smdebug, and smdebug's results for them.

See tests/data/README.md.
"""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

from fixtures import unpacked

GOLDEN = unpacked("golden")
NAMES = sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())


def oracle(name: str) -> dict[str, Any]:
    """Return what smdebug answers about a run."""
    plain = GOLDEN / name / "oracle.json"
    if plain.exists():
        return json.loads(plain.read_bytes())
    return json.loads(lzma.decompress((GOLDEN / name / "oracle.json.xz").read_bytes()))


def run(name: str, folder: Path) -> Path:
    """Return the run's directory; a large run is unpacked into `folder`."""
    where = json.loads((GOLDEN / name / "manifest.json").read_bytes())["run"]
    packed = GOLDEN / name / "run.tar.xz"
    if not packed.exists():
        return GOLDEN / name / where
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / where
