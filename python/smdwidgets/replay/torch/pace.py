"""Decide when the next keyframe is taken, by counting what recording takes."""

from __future__ import annotations

from typing import Final

__all__ = ["EVERY", "LONGEST", "LONGEST_SHARED", "Pace", "spacing_of"]

#: Steps between two keyframes: at least, and at most. They are copies of the whole state.
EVERY, LONGEST = 8, 512
#: Steps between two keyframes at most, where all workers must choose the same steps.
LONGEST_SHARED: Final = 64
#: Share of the time that recording may take. Keyframes get what the other calls leave, but at least a part of it.
SHARE, LEAST_SHARE = 0.01, 0.0025
#: Seconds that keyframes may take besides: those of a short training are close to each other.
CREDIT: Final = 0.05
#: Keyframes that may be taken before their time has come in. Those that follow wait until it has.
_AHEAD: Final = 8
#: A state of less than so many bytes is kept every `EVERY` steps where all workers must choose the same steps.
_SMALL_STATE: Final = 8 << 20


class Pace:
    """An account of seconds: keyframes are paid from a share of the training's time.

    Args:
        now: the time.

    >>> pace = Pace(0.0)
    >>> pace.took(0.5)  # more than the credit
    >>> pace.allows(10.0, 0.0), pace.allows(100.0, 0.0)
    (False, True)
    """

    def __init__(self, now: float) -> None:
        self._at = now
        self._others = 0.0
        self._balance = CREDIT
        #: What the last keyframe took.
        self._cost = 0.0

    def allows(self, now: float, others: float, ahead: bool = False) -> bool:
        """Whether a keyframe may be taken now.

        Args:
            now: the time.
            others: what other calls have taken so far.
            ahead: whether it may be taken before its time has come in.
        """
        elapsed, taken = max(now - self._at, 0.0), others - self._others
        self._at, self._others = now, others
        # Time without steps, such as that of a long evaluation, pays for two keyframes, not for many.
        most = max(CREDIT, 2 * self._cost)
        self._balance = min(most, self._balance + max(SHARE * elapsed - taken, LEAST_SHARE * elapsed))
        return self._balance >= (-_AHEAD if ahead else 1) * self._cost

    def took(self, seconds: float) -> None:
        """A keyframe took so long."""
        self._cost = seconds
        self._balance -= seconds


def spacing_of(nbytes: int) -> int:
    """Return the steps between two keyframes of a training of several workers.

    All of them execute the steps again together, so that the size of a state decides, not the time of one worker.

    >>> spacing_of(1 << 20), spacing_of(20 << 20), spacing_of(1 << 30)
    (8, 32, 64)
    """
    sizes = (EVERY << number for number in range(LONGEST_SHARED.bit_length()))
    return next(one for one in sizes if one == LONGEST_SHARED or nbytes * EVERY < _SMALL_STATE * one)
