"""Fixtures of the tests of hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from python.hooks.written import Written


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """The run that a test writes, and how to read it back."""
    return Written(tmp_path / "run")
