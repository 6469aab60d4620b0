"""Which steps of a very large run are read, so that memory is bounded.

They are stretches of successive steps, evenly spread, because the change of a step and the steps before it are judged
together; steps with values; and those at which a tensor first has values that are not finite. All tensors have the same
steps, as detectors that compare layers need.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

__all__ = ["MOST_ROWS", "WHOLE_ROWS", "StepSample", "planned"]

#: Rows of statistics of a run that is read whole, and of a sample of a larger one, which may have very many tensors.
#: They take 50 bytes each, and half a kilobyte for each tensor.
WHOLE_ROWS, MOST_ROWS = 5_000_000, 2_000_000
#: Steps that are read at least.
_FEWEST_STEPS = 16
#: Share of the steps that are in stretches; the others have values.
_STRETCHES = 0.75
#: Successive steps of a stretch, at least and at most, and the number of stretches if they are longer.
_SHORTEST, _LONGEST, _SPREAD = 4, 64, 16
#: Steps at which a tensor first has values that are not finite; the first ones are kept.
_BROKEN = 8


class StepSample(NamedTuple):
    """A choice of steps, which goes on as the run grows.

    Attributes:
        rows: rows of the run for which it was made.
        length: number of successive steps of a stretch.
        every: of so many stretches, one is read.
        every_value: of so many steps with values, one is read.
    """

    rows: int
    length: int
    every: int
    every_value: int

    def of(
        self,
        steps: Sequence[int],
        valued: Container[int],
        broken: Iterable[int] = (),
        before: tuple[int, int] = (0, 0),
    ) -> list[int]:
        """Return the steps to read.

        Args:
            steps: new steps, in order.
            valued: steps with values.
            broken: steps at which values are not finite for the first time.
            before: numbers of earlier steps, and of those with values.

        >>> StepSample(0, 2, 3, 100).of(range(0, 140, 10), {50})
        [0, 10, 50, 60, 70, 120, 130]
        """
        number, number_valued = before
        kept = set(sorted(broken)[:_BROKEN])
        if not number:
            kept.update(steps[-1:])
        for step in steps:
            if step in valued:
                if number_valued % self.every_value == 0:
                    kept.add(step)
                number_valued += 1
            if number // self.length % self.every == 0:
                kept.add(step)
            number += 1
        return [step for step in steps if step in kept]


def planned(rows: int, steps: int, valued: int, most: int) -> StepSample:
    """Return a sample of the steps of a run.

    Args:
        rows: number of rows of the run.
        steps: number of steps.
        valued: number of steps with values.
        most: rows that are read at most, unless a step has so many that the fewest steps have more.

    >>> planned(100_000_000, 1_000, 1_000, 2_000_000)
    StepSample(rows=100000000, length=4, every=84, every_value=250)
    >>> planned(10_000_000, 100_000, 1_000, 2_000_000)
    StepSample(rows=10000000, length=64, every=7, every_value=1)
    """
    kept = max(_FEWEST_STEPS, most * steps // max(1, rows) - _BROKEN)
    stretches = max(1, int(_STRETCHES * kept))
    length = _SHORTEST
    while length < _LONGEST and 2 * length * _SPREAD <= stretches:
        length *= 2
    return StepSample(rows, length, -(-steps // stretches), max(1, -(-valued // max(1, kept - stretches))))
