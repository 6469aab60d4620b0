"""A trial that has only step numbers, for a slider over a list of steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from smdwidgets.config.collection import Collection
from smdwidgets.modes import ModeKeys
from smdwidgets.trials import Trial


class BareSteps(Trial):
    """The subset of the trial interface that a slider uses, over given steps."""

    def __init__(self, steps: Iterable[int]) -> None:
        self.name = self.path = "steps"
        self._steps = sorted({int(step) for step in steps})
        if self._steps and self._steps[0] < 0:
            raise ValueError(f"invalid step {self._steps[0]}; steps must not be negative")

    @property
    def is_local(self) -> bool:
        """False: there are no files."""
        return False

    @property
    def loaded_all_steps(self) -> bool:
        """True: the steps never change."""
        return True

    @property
    def restarts(self) -> int:
        """0: there is no run that could be replaced."""
        return 0

    @property
    def restarted_at(self) -> None:
        """None: there is no run that could be replaced."""

    def steps(self, mode: ModeKeys | str = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the given steps."""
        return list(self._steps)

    def tensor_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return an empty list."""
        return []

    def workers(self) -> list[str]:
        """Return an empty list."""
        return []

    def collections(self) -> dict[str, Collection]:
        """Return an empty dictionary."""
        return {}

    def notes(self) -> list[tuple[str, str]]:
        """Return an empty list."""
        return []

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys, int]:
        """Return the global step as a step of mode GLOBAL."""
        return ModeKeys.GLOBAL, global_step

    def maybe_refresh(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the steps never change."""

    @contextmanager
    def refreshing(self, on: bool) -> Iterator[Self]:
        """Do nothing: the steps never change."""
        yield self

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def __repr__(self) -> str:
        return f"BareSteps({len(self._steps):,} steps)"
