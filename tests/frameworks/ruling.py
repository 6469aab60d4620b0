"""Where a rule first fires on a run, whichever library's hook has written it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from smdwidgets import create_trial
from smdwidgets.rules import RuleRunner

#: Whose hooks write the runs: ours, and smdebug 1.0.34's own.
LIBRARIES = ("smdwidgets", "smdebug")


def hooks_of(library: str, framework: str) -> ModuleType:
    """The module with a library's hook for a framework; smdebug's has the same names."""
    with warnings.catch_warnings():  # what smdebug imports is of its time
        warnings.simplefilter("ignore")
        return importlib.import_module(f"{library}.{framework}")


class Trainings:
    """Trainings by their arguments; each runs once per library's hook."""

    def __init__(self, folder: Callable[[str], Path]) -> None:
        self._folder = folder
        self._done: dict[str, Path] = {}

    def __call__(self, training: Callable[..., Path], faults: dict[str, Any]) -> Callable[[str], Path]:
        def run(library: str) -> Path:
            key = f"{training.__name__} {library} {sorted((name, repr(value)) for name, value in faults.items())}"
            if key not in self._done:
                self._done[key] = training(self._folder("training") / "run", library, **faults)
            return self._done[key]

        return run


def first_firing(run: Path, rule: str, **parameters: Any) -> int | None:
    """The first step at which a rule fires.

    A rule that judged nothing is a failure, not silence.
    """
    runner = RuleRunner(create_trial(run))
    evaluation = runner.add(rule, **parameters)
    runner.start()
    assert runner.wait(120)
    assert not evaluation.errors, evaluation.message
    assert evaluation.judged, evaluation.message
    return evaluation.first_firing.step if evaluation.first_firing else None


def on_both(train: Callable[[str], Path], rule: str, **parameters: Any) -> dict[str, int | None]:
    """The first firing on the same training, saved by each library's hook."""
    return {library: first_firing(train(library), rule, **parameters) for library in LIBRARIES}


def both(step: int | None) -> dict[str, int | None]:
    """What :func:`on_both` says when both agree on this step."""
    return dict.fromkeys(LIBRARIES, step)
