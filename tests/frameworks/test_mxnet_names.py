"""smdebug's names for mxnet, imported with the framework installed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import smdebug_names


def test_every_mapped_name_is_importable():
    smdebug_names.check("mxnet")
