"""The phases of a job: what a saved step was doing.

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
    """Mode of a step. ``GLOBAL`` counts the steps of all modes together; its numbers name the files of a run."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4


#: The same enum under the name that training scripts use: ``modes.TRAIN``.
modes = ModeKeys

ALLOWED_MODES = list(ModeKeys)
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]


def as_mode(mode: ModeKeys | str) -> ModeKeys:
    """The mode meant by a member or, in any case of letters, by its name.

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
            raise ValueError(f"There is no mode {shown(mode)}: use one of {choice}.{or_meant}") from None
    raise TypeError(f"A mode is one of smdwidgets.modes ({', '.join(ALLOWED_MODE_NAMES)}), not {type(mode).__name__}.")


def str_to_mode_keys(mode_str: str) -> ModeKeys:
    """The mode of a name such as ``"train"``.

    >>> str_to_mode_keys("predict")
    <ModeKeys.PREDICT: 3>
    """
    return as_mode(mode_str)
