"""Determine what to save of a tensor.

The result is the union of the configurations of all collections that contain the tensor and are saved at the step.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from smdwidgets._patterns import is_found, may_be_found
from smdwidgets._text import shown
from smdwidgets.config import Collection, ReductionConfig
from smdwidgets.config.keys import NON_HISTOGRAM_COLLECTIONS, NON_REDUCTION_COLLECTIONS, SCALAR_COLLECTIONS
from smdwidgets.exceptions import SMDebugValueError

__all__ = ["WHOLE_TENSOR", "Patterns", "SaveSpec", "save_spec"]


@dataclass(frozen=True, slots=True)
class SaveSpec:
    """What to save of one tensor.

    ``histogram`` is the collection name that prefixes the TensorBoard tag. ``planned`` marks a value that a capture
    plan chose to save, and may delete later, ``kept`` one that it must not delete; ``kind`` is the plan's kind of
    tensor.
    """

    raw: bool = True
    shape: bool = False
    reductions: tuple[tuple[str, bool], ...] = ()
    histogram: str | None = None
    scalar: bool = False
    statistics: bool = False
    planned: bool = False
    kept: bool = False
    kind: str = ""

    @property
    def writes_value(self) -> bool:
        """Whether the step's files contain the value, or reductions of it."""
        return self.raw or bool(self.reductions)

    @property
    def needs_value(self) -> bool:
        """Whether the value is needed, and not only the shape."""
        return self.writes_value or self.histogram is not None or self.scalar or self.statistics


#: The value of a tensor, which is never deleted.
WHOLE_TENSOR = SaveSpec(raw=True, kept=True)


def save_spec(collections: Sequence[Collection], tensorboard: bool) -> SaveSpec:
    """Return the union of what the collections save.

    >>> both = [Collection("a", reduction_config=ReductionConfig(["mean"])), Collection("b")]
    >>> save_spec(both, tensorboard=False)  # doctest: +NORMALIZE_WHITESPACE
    SaveSpec(raw=True, shape=False, reductions=(('mean', False),), histogram=None, scalar=False, statistics=False,
    planned=False, kept=False, kind='')
    """
    raw = shape = scalar = False
    reductions: dict[tuple[str, bool], None] = {}
    histogram: str | None = None
    for collection in collections:
        config = collection.reduction_config
        if config is None or collection.name in NON_REDUCTION_COLLECTIONS:
            raw = True
        else:
            raw |= config.save_raw_tensor
            shape |= config.save_shape
            reductions.update(dict.fromkeys(config.pairs()))
        scalar |= tensorboard and collection.name in SCALAR_COLLECTIONS
        if tensorboard and collection.save_histogram and collection.name not in NON_HISTOGRAM_COLLECTIONS:
            histogram = histogram or collection.name
    return SaveSpec(raw, shape, tuple(reductions), histogram, scalar)


#: A pattern that may match some numbers and not others: with digits, with classes that have ranges or escapes, or with
#: two characters of which each may be a digit.
_DEPENDS_ON_NUMBER = re.compile(r"\d|\\[dDwWsS]|\[[^\]]*[-\\]|\.\.|[\].]\[|\]\.")
_NUMBER = re.compile(r"\d{1,9}")


@functools.cache
def _sample(pattern: str) -> tuple[int, ...]:
    numbers = [*range(128), *range(128, 1024, 37)]
    for digits in _NUMBER.findall(pattern):
        number = int(digits)
        numbers += [number, number * 100, *range(number * 10, number * 10 + 10)]
    return tuple(dict.fromkeys(numbers))


def _numbers_for(pattern: str, prefix: str) -> tuple[int, ...]:
    """Return the numbers to try: one if a pattern does not depend on them."""
    if not _DEPENDS_ON_NUMBER.search(pattern):
        return (0,)
    try:
        return _sample(pattern) if may_be_found(pattern, prefix) else ()
    except re.error:
        return (0,)  # its first use says what is wrong with it


class Patterns:
    """The patterns of collections."""

    def match(self, collection: Collection, name: str) -> bool:
        """Whether the collection contains a tensor of this name."""
        return name in collection.tensor_names or self.any(collection.name, collection.include_regex, name)

    def match_numbered(self, collection: Collection, prefix: str) -> bool:
        """Whether the collection may contain a tensor named by prefix and number.

        A sample of numbers is tried, and those in the pattern. A pattern without digits and classes matches each number
        or none.
        """
        if any(name.startswith(prefix) for name in collection.tensor_names):
            return True
        return any(
            self.any(collection.name, [pattern], f"{prefix}{number}")
            for pattern in collection.include_regex
            for number in _numbers_for(pattern, prefix)
        )

    def any(self, collection: str, patterns: Iterable[str], name: str) -> bool:
        """Whether any of the patterns matches the name."""
        for pattern in patterns:
            try:
                if is_found(pattern, name):
                    return True
            except re.error as error:
                raise SMDebugValueError(
                    f"invalid regular expression {shown(pattern)} in collection {shown(collection)}: {error}"
                ) from None
        return False


#: Default reduction configuration: save the whole tensor.
WHOLE = ReductionConfig(save_raw_tensor=True)
