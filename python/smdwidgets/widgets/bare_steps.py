"""A run that is nothing but step numbers, for a slider over a plain list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from smdwidgets.config.collection import Collection
from smdwidgets.modes import ModeKeys
from smdwidgets.trials import Trial


class BareSteps(Trial):
    """Answers what a slider asks of a run."""

    def __init__(self, steps: Iterable[int]) -> None:
        self.name = self.path = "steps"
        self.loaded_all_steps = True
        self._steps = sorted({int(step) for step in steps})
        if self._steps and self._steps[0] < 0:
            raise ValueError(f"Steps are counted from 0: {self._steps[0]} is none.")

    def steps(self, mode: ModeKeys | str = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """The steps given."""
        return list(self._steps)

    def tensor_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """There are none."""
        return []

    def workers(self) -> list[str]:
        """There are none."""
        return []

    def collections(self) -> dict[str, Collection]:
        """There are none."""
        return {}

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys, int]:
        """A step without a mode counts itself."""
        return ModeKeys.GLOBAL, global_step

    def maybe_refresh(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is ever new."""

    @contextmanager
    def refreshing(self, on: bool) -> Iterator[Self]:
        """Nothing to hold still."""
        yield self

    def close(self) -> None:
        """Nothing to let go of."""

    def __repr__(self) -> str:
        return f"BareSteps({len(self._steps):,} steps)"
