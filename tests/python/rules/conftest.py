"""Fixtures for rule tests: runs that are written once per session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from python.rules.trainings import History, Training


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the delayed refresh after the end of a run: these runs are complete."""
    monkeypatch.setenv("TRAINING_END_DELAY_REFRESH", "0")
    monkeypatch.setenv("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., History]:
    """Return a function that trains with the given faults."""
    made: dict[str, History] = {}

    def run(**faults: Any) -> History:
        key = repr(sorted(faults.items()))
        if key not in made:
            made[key] = Training(**faults).run(Path(tmp_path_factory.mktemp("run")) / "run")
        return made[key]

    return run
