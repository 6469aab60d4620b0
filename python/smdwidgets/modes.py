"""Modes of a training job: TRAIN, EVAL, PREDICT and GLOBAL.

>>> from smdwidgets import modes
>>> modes.TRAIN
<ModeKeys.TRAIN: 1>
>>> as_mode("eval")
<ModeKeys.EVAL: 2>
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from enum import Enum
from typing import SupportsIndex

from smdwidgets._text import nearest, shown

__all__ = [
    "ALLOWED_MODES",
    "ALLOWED_MODE_NAMES",
    "ModeKeys",
    "as_mode",
    "as_name",
    "as_names",
    "as_step",
    "as_steps",
    "modes",
    "str_to_mode_keys",
]


class ModeKeys(Enum):
    """Mode of a step. ``GLOBAL`` counts the steps of all modes; file names use it."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4

    # There is one object of each. A hook looks up about 50 of them a step, and the hash of `Enum` is a Python function.
    __hash__ = object.__hash__


modes = ModeKeys
"""Alias of `ModeKeys` for training scripts: ``modes.TRAIN``."""

ALLOWED_MODES = list(ModeKeys)
"""All modes."""
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]
"""The names of all modes."""


def as_mode(mode: ModeKeys | str) -> ModeKeys:
    """Convert a mode name, case-insensitively, to a mode; return a mode unchanged.

    >>> as_mode("Train")
    <ModeKeys.TRAIN: 1>
    """
    if isinstance(mode, ModeKeys):
        return mode
    if isinstance(mode, str):
        try:
            return ModeKeys[mode.upper()]
        except KeyError:
            hint = nearest(mode.upper(), ALLOWED_MODE_NAMES)
            or_meant = f" Did you mean modes.{hint[0]}?" if hint else ""
            choice = ", ".join(ALLOWED_MODE_NAMES)
            raise ValueError(f"invalid mode {shown(mode)}; choose from {choice}.{or_meant}") from None
    raise TypeError(f"mode must be a ModeKeys or one of {', '.join(ALLOWED_MODE_NAMES)}, got {type(mode).__name__}")


def as_step(step: SupportsIndex, argument: str = "step") -> int:
    """Convert a step to an integer; integers of NumPy are steps, too.

    >>> as_step(7)
    7
    """
    if type(step).__name__ not in ("bool", "bool_"):  # of Python and NumPy
        try:
            return operator.index(step)
        except TypeError:
            pass
    raise TypeError(f"{argument} must be an integer, got {shown(step)}")


def as_name(name: str, argument: str = "name") -> str:
    """Return the name of a tensor or collection if it is a string.

    >>> as_name("loss")
    'loss'
    """
    if not isinstance(name, str):
        raise TypeError(f"{argument} must be a string, got {shown(name)}")
    return name


def as_steps(steps: Iterable[SupportsIndex] | SupportsIndex) -> list[int]:
    """Convert a step, or several, to a list.

    >>> as_steps(7), as_steps(range(2))
    ([7], [0, 1])
    """
    if hasattr(steps, "__index__") and not getattr(steps, "shape", ()):  # an array has both
        return [as_step(steps, "steps")]  # type: ignore[arg-type]  # an integer
    if isinstance(steps, str) or not isinstance(steps, Iterable):
        raise TypeError(f"steps must be an integer or integers, got {shown(steps)}")
    return [as_step(step, "each of steps") for step in steps]


def as_names(names: Iterable[str] | str) -> list[str]:
    """Convert a name of a tensor, or several, to a list without duplicates.

    >>> as_names("loss"), as_names(["w", "b"])
    (['loss'], ['w', 'b'])
    """
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable):
        raise TypeError(f"names must be a string or strings, got {shown(names)}")
    return list(dict.fromkeys(as_name(name, "each of names") for name in names))


def str_to_mode_keys(mode_str: str) -> ModeKeys:
    """Convert a mode name such as ``"train"`` to a mode.

    >>> str_to_mode_keys("predict")
    <ModeKeys.PREDICT: 3>
    """
    return as_mode(mode_str)
