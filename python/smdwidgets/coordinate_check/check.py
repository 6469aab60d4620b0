"""Train a model of several widths for a few updates, and measure its activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smdwidgets._text import listed, shown
from smdwidgets.coordinate_check.result import CoordinateCheck, judged
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["WIDTHS", "coordcheck"]

WIDTHS = (64, 128, 256, 512)
"""The widths of a check unless others are given."""


def coordcheck(
    make: Callable[[int], tuple[nn.Module, Callable[[], object]]],
    widths: Sequence[int] = WIDTHS,
    *,
    steps: int = 5,
    seeds: int = 2,
    tolerance: float = 0.25,
) -> CoordinateCheck:
    """Check whether activations keep their size when a PyTorch model becomes wider.

    A model whose initial weights and learning rates scale correctly with its width (as with the maximal update
    parametrization, muP) has activations of one size at every width, before and after some updates. Hyperparameters
    of a narrow model then suit a wide one. The models are trained in this process, on the device that ``make`` chooses.

    Args:
        make: called with a width; returns a model and a function that trains one step: pass, backward, update. Where
            each step has the same batch, also the change of activations is judged, which is a sharper test.
        widths: at least three widths; a range of 8 or more gives clear slopes.
        steps: updates of each model.
        seeds: models of each width, with their own random seeds; their sizes are averaged.
        tolerance: slopes up to it count as steady.

    Raises:
        SMDebugTypeError: ``make`` is no function, or returns something else.
        SMDebugValueError: the widths or numbers are invalid, or no layer is in all models.

    >>> smdwidgets.coordcheck(make, [64, 128, 256, 512]).passed     # doctest: +SKIP
    True
    """
    if not callable(make):
        raise SMDebugTypeError(f"make must be a function of a width, got {type(make).__name__}")
    chosen = sorted({_whole("width", one, 1) for one in widths})
    if len(chosen) < 3:
        raise SMDebugValueError(f"invalid widths {listed(chosen)}; at least three different widths are needed")
    steps, seeds = _whole("steps", steps, 1), _whole("seeds", seeds, 1)
    if not 0 < tolerance < np.inf:
        raise SMDebugValueError(f"invalid tolerance {shown(tolerance)}; must be a positive number")
    from smdwidgets.coordinate_check.torch import measured

    trained: list[list[dict[str, Any]]] = [
        [measured(make, width, steps, seed) for seed in range(seeds)] for width in chosen
    ]
    every = [one for models in trained for one in models]
    names = [name for name in every[0] if all(name in one for one in every)]
    if not names:
        raise SMDebugValueError(
            "no layer with an output of numbers was called at every step in the models of all widths; does the function "
            "that trains a step call the model that make returned?"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes, changes = (
            {
                name: np.exp([np.mean([np.log(one[name][row]) for one in models], axis=0) for models in trained])
                for name in names
            }
            for row in (0, 1)
        )
    return CoordinateCheck(tuple(chosen), steps, seeds, float(tolerance), judged(chosen, sizes, changes, tolerance))


def _whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SMDebugValueError(f"invalid {name} {shown(value)}; must be a whole number, at least {least}")
    return int(value)
