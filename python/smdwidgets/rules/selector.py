"""Selection of tensors by collection and name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdwidgets._text import listed, shown
from smdwidgets.naming.scalars import is_loss

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["ALL", "ModuleTensors", "Selector", "module_classes"]


#: Longer lists of patterns are abbreviated in messages.
MOST_SHOWN = 100


#: The input or output of a module: its name, the kind, the number.
_TENSOR = re.compile(r"^(?P<module>.+)_(?P<kind>input|output)_\d+$")


@dataclass(frozen=True)
class ModuleTensors:
    """The inputs or the outputs of modules of some classes, or of their subclasses."""

    kind: str
    classes: tuple[str, ...]

    def contains(self, name: str, classes: Sequence[str]) -> bool:
        """Return whether a tensor of a module with these classes is selected."""
        match = _TENSOR.match(name)
        return match is not None and match["kind"] == self.kind and not set(self.classes).isdisjoint(classes)


def _classes_of(name: str, modules: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the classes of the module that a tensor belongs to.

    Empty if the run does not know them.
    """
    match = _TENSOR.match(name)
    return modules.get(match["module"], ()) if match else ()


def module_classes(trial: Trial, name: str) -> Sequence[str]:
    """Return the classes of a tensor's module, as recorded by the hook.

    The result is empty if they are unknown.
    """
    return _classes_of(name, trial.modules())


@dataclass(frozen=True)
class Selector:
    """Tensors in any of the collections or with names that match any of the patterns.

    Without collections and patterns, all tensors are selected. If ``modules`` is given, inputs and outputs of modules
    whose classes the run contains are selected by class instead. From the collections ``losses_of``, only tensors with
    names of losses are selected.

    >>> print(Selector(("losses",), ("relu", "tanh")))
    collection 'losses' or names matching 'relu', 'tanh'
    """

    collections: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    modules: ModuleTensors | None = None
    losses_of: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether all tensors are selected."""
        return not self.collections and not self.patterns and not self.losses_of

    def names(self, trial: Trial) -> set[str]:
        """Return the selected names of the run. Unknown collections are ignored."""
        return self.names_at(trial, None)

    def names_at(self, trial: Trial, step: int | None) -> set[str]:
        """Return the selected names at a step (None: any). Ignore unknown collections."""
        if self.everything:
            return set(trial.tensor_names(step=step))
        found: set[str] = set()
        known = trial.collections() if self.collections or self.losses_of else {}
        for collection in self.collections:
            if collection in known:
                found.update(trial.tensor_names(step=step, collection=collection))
        for collection in self.losses_of:
            if collection in known:
                found.update(filter(is_loss, trial.tensor_names(step=step, collection=collection)))
        if self.patterns:
            found.update(trial.tensor_names(step=step, regex=list(self.patterns)))
        if self.modules is not None and (modules := trial.modules()):
            for name in trial.tensor_names(step=step):
                if classes := _classes_of(name, modules):
                    (found.add if self.modules.contains(name, classes) else found.discard)(name)
        return found

    def __str__(self) -> str:
        if self.everything:
            return "any tensor"
        parts = []
        if self.collections:
            word = "collection" if len(self.collections) == 1 else "collections"
            parts.append(f"{word} {listed([shown(each) for each in self.collections])}")
        if self.losses_of:
            parts.append(f"losses in {listed([shown(each) for each in self.losses_of])}")
        if self.modules is not None:
            # The patterns say the same of runs that do not know the classes of their modules.
            parts.append(f"{self.modules.kind}s of {listed(self.modules.classes)} modules")
        elif self.patterns:
            patterns = listed([shown(each) for each in self.patterns])
            few = len(patterns) <= MOST_SHOWN
            parts.append(f"names matching {patterns if few else f'one of {len(self.patterns)} patterns'}")
        return " or ".join(parts)


#: Every saved tensor.
ALL = Selector()
