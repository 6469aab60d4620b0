"""Selection of tensors by collection and name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdwidgets._text import listed, shown

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["ALL", "Selector"]


#: Longer lists of patterns are abbreviated in messages.
MOST_SHOWN = 100


@dataclass(frozen=True)
class Selector:
    """Tensors in any of the collections or with names that match any of the patterns.

    Without collections and patterns, all tensors are selected.

    >>> print(Selector(("losses",), ("relu", "tanh")))
    collection 'losses' or names matching 'relu', 'tanh'
    """

    collections: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether all tensors are selected."""
        return not self.collections and not self.patterns

    def names_at(self, trial: Trial, step: int) -> set[str]:
        """Return the selected names at a step. Unknown collections are ignored."""
        if self.everything:
            return set(trial.tensor_names(step=step))
        found: set[str] = set()
        known = trial.collections() if self.collections else {}
        for collection in self.collections:
            if collection in known:
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
            parts.append(f"names matching {patterns if few else f'one of {len(self.patterns)} patterns'}")
        return " or ".join(parts)


#: Every saved tensor.
ALL = Selector()
