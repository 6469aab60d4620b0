"""Fixtures for the hook tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from python.hooks.written import Written


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """The run directory of a test, with methods to read it."""
    return Written(tmp_path / "run")
