"""Modes of a training job: TRAIN, EVAL, PREDICT and GLOBAL.

>>> from smdwidgets import modes
>>> modes.TRAIN
<ModeKeys.TRAIN: 1>
>>> as_mode("eval")
<ModeKeys.EVAL: 2>
"""

from __future__ import annotations

from enum import Enum

from smdwidgets._text import nearest, shown

__all__ = ["ALLOWED_MODES", "ALLOWED_MODE_NAMES", "ModeKeys", "as_mode", "modes", "str_to_mode_keys"]


class ModeKeys(Enum):
    """Mode of a step. ``GLOBAL`` counts the steps of all modes; file names use it."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4


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


def str_to_mode_keys(mode_str: str) -> ModeKeys:
    """Convert a mode name such as ``"train"`` to a mode.

    >>> str_to_mode_keys("predict")
    <ModeKeys.PREDICT: 3>
    """
    return as_mode(mode_str)
