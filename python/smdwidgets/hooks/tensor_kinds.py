"""What a tensor of a step is: a loss, a gradient, a weight, an output.

The flight recorder decides by it what breaks a training, and what to leave out when memory is short.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from smdwidgets.config import CollectionKeys

__all__ = ["GRADIENT_NORM", "SKIPPED", "Kind", "Kinds"]

#: Names of the global gradient norms of optimizers, and of the mark that a GradScaler skipped an update.
GRADIENT_NORM: Final = re.compile(r"^optimizer/.*/gradient_norm$")
SKIPPED: Final = re.compile(r"^optimizer/.*/skipped$")


class Kind(Enum):
    """What a tensor is."""

    LOSS = "loss"
    GRADIENT = "gradient"
    WEIGHT = "weight"
    INPUT = "input"
    OUTPUT = "output"
    #: Values about the training: learning rates, metrics, the optimizer's state.
    ABOUT = "value"
    #: A tensor of a collection of the script's own.
    OTHER = "tensor"


_BY_COLLECTION: Final = (
    (CollectionKeys.LOSSES, Kind.LOSS),
    (CollectionKeys.GRADIENTS, Kind.GRADIENT),
    (CollectionKeys.WEIGHTS, Kind.WEIGHT),
    (CollectionKeys.BIASES, Kind.WEIGHT),
    (CollectionKeys.UPDATES, Kind.ABOUT),
    (CollectionKeys.METRICS, Kind.ABOUT),
    (CollectionKeys.OPTIMIZER_STATE, Kind.ABOUT),
    (CollectionKeys.OPTIMIZER_VARIABLES, Kind.ABOUT),
    (CollectionKeys.INPUTS, Kind.INPUT),
    (CollectionKeys.OUTPUTS, Kind.OUTPUT),
    (CollectionKeys.SCALARS, Kind.ABOUT),
)
_BY_NAME: Final = ((re.compile(r"_input_\d+(_|$)"), Kind.INPUT), (re.compile(r"_output_\d+(_|$)"), Kind.OUTPUT))


class Kinds:
    """The kinds of a run's tensors.

    Args:
        member_of: whether a tensor belongs to a collection of this name.

    >>> kinds = Kinds(lambda collection, name: collection == "gradients" and name.startswith("gradient/"))
    >>> kinds["gradient/fc1.weight"], kinds["Net_output_0"], kinds["x"]
    (<Kind.GRADIENT: 'gradient'>, <Kind.OUTPUT: 'output'>, <Kind.OTHER: 'tensor'>)
    """

    def __init__(self, member_of: Callable[[str, str], bool]) -> None:
        self._member_of = member_of
        self._known: dict[str, Kind] = {}

    def __getitem__(self, name: str) -> Kind:
        kind = self._known.get(name)
        if kind is None:
            kind = self._known[name] = self._find(name)
        return kind

    def _find(self, name: str) -> Kind:
        for collection, kind in _BY_COLLECTION:
            if self._member_of(collection, name):
                return kind
        return next((kind for pattern, kind in _BY_NAME if pattern.search(name)), Kind.OTHER)
