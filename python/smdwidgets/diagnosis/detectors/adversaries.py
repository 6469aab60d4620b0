"""Losses of a generator and a discriminator that are out of balance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import RunData, Series
from smdwidgets.finding import Finding

__all__ = ["adversaries"]

#: Words of the losses of both.
_DISCRIMINATORS = frozenset({"d", "disc", "discriminator", "netd"})
_GENERATORS = frozenset({"g", "gen", "generator", "netg"})
_SIDES = _DISCRIMINATORS, _GENERATORS
LEAST_POINTS = 12
#: Largest first loss of a discriminator that guesses, summed over real and made samples. Other losses, such as that of
#: a critic, begin elsewhere. A log that begins later shows a smaller one.
MOST_FIRST = 2.5
#: Words of the share of made samples that look real to the discriminator, and such a share of nearly none.
_LOOK_REAL, NEARLY_NONE = ("d", "g", "z"), 0.02
#: Loss of a discriminator that is right, and of a generator of which hardly any sample looks real; the share of the
#: run that must be so.
RIGHT, NOTHING_REAL, MOSTLY = 0.05, 4.0, 0.6
#: The same of losses that are squares of the distance from 0 or 1, as in CycleGAN: that of the discriminator, that of
#: the generator, and the least of three quarters of its values.
RIGHT_OF_SQUARES, NOTHING_REAL_OF_SQUARES, MOSTLY_NOTHING = 0.01, (0.9, 1.2), 0.7


def adversaries(data: RunData) -> Iterator[Finding]:
    """Yield a discriminator that is right for most of the run, and to its end."""
    for discriminator, generator in _pairs(data):
        yield from _judge(data, discriminator, generator)


def _judge(data: RunData, discriminator: Series, generator: Series) -> Iterator[Finding]:
    """Judge the losses of one pair."""
    values = discriminator.values
    first = max(float(values[0]), float(np.median(values[:3])))
    right = values < RIGHT
    seen = next((one for one in data.series if one.words == _LOOK_REAL and len(one) == len(values)), None)
    if seen is not None:  # with smoothed labels, its loss does not come near 0
        right |= seen.values < NEARLY_NONE
    if values.min() < 0 or first > MOST_FIRST or right.mean() < MOSTLY:
        return
    late = generator.values[len(generator) // 4 :]
    level = float(np.median(late))
    least, most = NOTHING_REAL_OF_SQUARES
    # No loss but one of squares has such a level beside a discriminator that is right.
    is_square = least <= level <= most and float(np.quantile(late, 0.25)) >= MOSTLY_NOTHING
    is_square = is_square and float(np.median(values[len(values) // 4 :])) <= RIGHT_OF_SQUARES
    if right[-max(5, len(right) // 5) :].mean() < MOSTLY or not (level >= NOTHING_REAL or is_square):
        return
    onset = int(discriminator.steps[int(np.argmax(right))])
    facts = {"numbers": f"{from_to(discriminator)}, {from_to(generator)}"}
    yield beside("discriminator_wins", "problem", (discriminator, generator), facts, onset)


def _pairs(data: RunData) -> Iterator[tuple[Series, Series]]:
    """Yield the losses of a discriminator and of its generator.

    If there are several pairs, the other words of their names tell which belong together.
    """
    ours, theirs = (_losses_of(data, some, others) for some, others in (_SIDES, _SIDES[::-1]))
    if len(ours) == len(theirs) == 1:
        yield ours[0], theirs[0]
        return
    generators = {frozenset(one.words) - _GENERATORS: one for one in theirs}
    discriminators = {frozenset(one.words) - _DISCRIMINATORS: one for one in ours}
    yield from ((one, generators[words]) for words, one in discriminators.items() if words in generators)


def _losses_of(data: RunData, words: frozenset[str], others: frozenset[str]) -> list[Series]:
    """Return the losses of one side: names with one of these words, not the others."""
    named = [(one, frozenset(one.words)) for one in data.series if len(one) >= LEAST_POINTS]
    return [one for one, of in named if "loss" in of and of & words and not of & others and not one.role.is_held_out]
