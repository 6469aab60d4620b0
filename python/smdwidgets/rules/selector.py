"""Which tensors a rule looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdwidgets._text import listed, shown

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["ALL", "Selector"]


#: Patterns longer than this say nothing to a person who reads a message.
MOST_SHOWN = 100


@dataclass(frozen=True)
class Selector:
    """The tensors of some collections and those whose names some patterns are found in, together; neither: all.

    >>> print(Selector(("losses",), ("relu", "tanh")))
    collection 'losses' or names matching 'relu', 'tanh'
    """

    collections: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether no tensor is left out."""
        return not self.collections and not self.patterns

    def names_at(self, trial: Trial, step: int) -> set[str]:
        """The selected names of a step. A collection that the run does not have contributes none."""
        if self.everything:
            return set(trial.tensor_names(step=step))
        found: set[str] = set()
        there = trial.collections() if self.collections else {}
        for collection in self.collections:
            if collection in there:
                found.update(trial.tensor_names(step=step, collection=collection))
        if self.patterns:
            found.update(trial.tensor_names(step=step, regex=list(self.patterns)))
        return found

    def __str__(self) -> str:
        if self.everything:
            return "any tensor"
        parts = []
        if self.collections:
            word = "collection" if len(self.collections) == 1 else "collections"
            parts.append(f"{word} {listed([shown(each) for each in self.collections])}")
        if self.patterns:
            patterns = listed([shown(each) for each in self.patterns])
            few = len(patterns) <= MOST_SHOWN
            parts.append(f"names matching {patterns if few else f'one of its {len(self.patterns)} patterns'}")
        return " or ".join(parts)


#: Every saved tensor.
ALL = Selector()
