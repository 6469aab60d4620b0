"""The golden runs under tests/data: where they lie, and what smdebug says of them."""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "golden"
NAMES = sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())


def oracle(name: str) -> dict[str, Any]:
    """What smdebug answers about a run."""
    plain = GOLDEN / name / "oracle.json"
    if plain.exists():
        return json.loads(plain.read_bytes())
    return json.loads(lzma.decompress((GOLDEN / name / "oracle.json.xz").read_bytes()))


def run(name: str, folder: Path) -> Path:
    """The run's directory, unpacked into `folder` if it is kept packed."""
    where = json.loads((GOLDEN / name / "manifest.json").read_bytes())["run"]
    packed = GOLDEN / name / "run.tar.xz"
    if not packed.exists():
        return GOLDEN / name / where
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / where
