"""Context managers that turn refreshing of trials off and on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

from smdwidgets.trials.trial import Trial

Trials = TypeVar("Trials", bound=Trial | Iterable[Trial])


@contextmanager
def no_refresh(trials: Trials) -> Iterator[Trials]:
    """Turn off refreshing of a trial, or several, within a block.

    All queries in the block then see the same steps. The previous setting is restored after the block, also if it
    raises. Blocks can be nested.

    >>> with no_refresh(trial):                                # doctest: +SKIP
    ...     last = trial.steps()[-1]
    ...     names = trial.tensor_names(step=last)
    """
    with _refreshing(trials, False):
        yield trials


@contextmanager
def refresh(trials: Trials) -> Iterator[Trials]:
    """Check one or several trials for new steps at every call within a block."""
    with _refreshing(trials, True):
        yield trials


def _refreshing(trials: Trial | Iterable[Trial], on: bool) -> AbstractContextManager[object]:
    if isinstance(trials, Trial):
        return trials.refreshing(on)
    with ExitStack() as stack:
        for trial in trials:
            stack.enter_context(trial.refreshing(on))
        return stack.pop_all()
