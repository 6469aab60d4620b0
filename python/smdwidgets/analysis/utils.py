"""Hold a trial still while it is asked several questions, and read arguments that come as strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from smdwidgets.trials.trial import Trial

Trials = TypeVar("Trials", Trial, Iterable[Trial])


@contextmanager
def no_refresh(trials: Trials) -> Iterator[Trials]:
    """Within the block the trial, or each of the trials, looks for no news: all its answers are of one moment.

    What was set before holds again after it, whatever is raised in it; blocks may be nested.

    >>> with no_refresh(trial):                                # doctest: +SKIP
    ...     last = trial.steps()[-1]
    ...     names = trial.tensor_names(step=last)
    """
    with _held(trials, False):
        yield trials


@contextmanager
def refresh(trials: Trials) -> Iterator[Trials]:
    """Within the block the trial, or each of the trials, looks for news before each question."""
    with _held(trials, True):
        yield trials


def _held(trials: Trial | Iterable[Trial], on: bool) -> ExitStack:
    with ExitStack() as stack:
        for trial in [trials] if isinstance(trials, Trial) else trials:
            stack.enter_context(trial.refreshing(on))
        return stack.pop_all()


def parse_list_from_str(arg: str | list[str] | None, delimiter: str = ",") -> list[str]:
    """A list that may come as one string.

    >>> parse_list_from_str("relu,tanh")
    ['relu', 'tanh']
    """
    if arg is None or arg == "":
        return []
    if isinstance(arg, str):
        return arg.split(delimiter)
    return list(arg)


def parse_bool(arg: bool | str | None, default: bool) -> bool:
    """A truth value that may come as a string; ``default`` for None.

    >>> parse_bool("True", False)
    True
    """
    if arg is None:
        return default
    if isinstance(arg, bool):
        return arg
    if arg in ("True", "true"):
        return True
    if arg in ("False", "false"):
        return False
    raise ValueError(f"True or False is expected, not {arg!r}.")
