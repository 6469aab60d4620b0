"""Runs that tests write with the package's writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from smdwidgets import _core


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A directory for a run."""
    return tmp_path / "run"


@pytest.fixture
def write(run: Path) -> Callable[..., None]:
    """Write one step of one worker."""

    def write(
        step: int, tensors: Mapping[str, Any], worker: str = "worker_0", mode: int = 4, mode_step: int | None = None
    ) -> None:
        with _core.StepWriter(str(run), step, worker=worker, mode=mode, mode_step=mode_step) as writer:
            for name, value in tensors.items():
                writer.tensor(name, value)

    return write


@pytest.fixture
def catalog_of() -> Callable[[Path], _core.Catalog]:
    """A catalog of a run with all index files read."""

    def catalog_of(run: Path) -> _core.Catalog:
        catalog = _core.Catalog()
        catalog.list_local(str(run))
        catalog.load_local(str(run))
        return catalog

    return catalog_of
