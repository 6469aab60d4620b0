"""What is kept of a tensor: the union of what the collections want that hold it and are saved at this step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from smdwidgets._text import shown
from smdwidgets.config import Collection, ReductionConfig
from smdwidgets.config.keys import NON_HISTOGRAM_COLLECTIONS, NON_REDUCTION_COLLECTIONS, SCALAR_COLLECTIONS
from smdwidgets.exceptions import SMDebugValueError

__all__ = ["Keep", "Patterns", "keep"]


@dataclass(frozen=True, slots=True)
class Keep:
    """What to write of one tensor. ``histogram`` is the collection under whose name TensorBoard shows it."""

    raw: bool = True
    shape: bool = False
    reductions: tuple[tuple[str, bool], ...] = ()
    histogram: str | None = None
    scalar: bool = False

    @property
    def needs_value(self) -> bool:
        """Whether the bytes matter, or the shape alone."""
        return self.raw or bool(self.reductions) or self.histogram is not None or self.scalar


def keep(collections: Sequence[Collection], tensorboard: bool) -> Keep:
    """What these collections want together.

    >>> both = [Collection("a", reduction_config=ReductionConfig(["mean"])), Collection("b")]
    >>> keep(both, tensorboard=False)
    Keep(raw=True, shape=False, reductions=(('mean', False),), histogram=None, scalar=False)
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
    return Keep(raw, shape, tuple(reductions), histogram, scalar)


class Patterns:
    """The compiled patterns of a collection, as they are now."""

    def __init__(self) -> None:
        self._compiled: dict[str, re.Pattern[str]] = {}

    def match(self, collection: Collection, name: str) -> bool:
        """Whether the collection holds a tensor of this name."""
        return name in collection.tensor_names or self.any(collection.name, collection.include_regex, name)

    def any(self, collection: str, patterns: Iterable[str], name: str) -> bool:
        """Whether any of the patterns is found in the name."""
        compiled = [self._compile(collection, pattern) for pattern in patterns]
        return any(pattern.search(name) for pattern in compiled)

    def _compile(self, collection: str, pattern: str) -> re.Pattern[str]:
        found = self._compiled.get(pattern)
        if found is None:
            try:
                found = self._compiled[pattern] = re.compile(pattern)
            except re.error as error:
                raise SMDebugValueError(
                    f"Collection {shown(collection)}: {shown(pattern)} is no regular expression: {error}."
                ) from None
        return found


#: What a hook does with tensors whose collection says nothing: it saves them whole.
WHOLE = ReductionConfig(save_raw_tensor=True)
