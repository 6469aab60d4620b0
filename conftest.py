"""For the examples in docstrings: each runs in a separate empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

#: A placeholder that raises ImportError; it holds no examples.
collect_ignore = ["python/smdwidgets/_core.py"]


@pytest.fixture(autouse=True)
def _empty_directory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.chdir(tmp_path)
