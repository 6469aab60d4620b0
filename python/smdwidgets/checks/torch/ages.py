"""Check of parts of a graph that are older than their weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torch.optim import Optimizer

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import Use

__all__ = ["AgeChecks"]

#: Updates in succession whose losses contain the same operation, those after which further graphs are read, and
#: operations that are followed.
_NEED, _SUSPICIOUS, _MOST_USES = 4, 2, 50_000
#: Operations of earlier losses that are kept, as a multiple of those of one update, which are at least so many.
_LEFT, _FEW_USES = 16, 256


class AgeChecks:
    """Looks for operations on weights that ran once and stay in later graphs.

    Operations are numbered in the order in which they run. An operation whose number is in the graphs of several
    losses, while an optimizer has updated its weights between them, has not run again. Another thread may use the same
    number by chance, and a part that one loss shares with the next is one update old, so that it takes several updates
    in succession. Weights whose learning rate is 0 stay as they are, and results that are kept are right.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        #: The operations in losses since the last update of their weights, and the updates whose losses had them.
        self._present: set[Use] = set()
        self._updates: Counter[Use] = Counter()

    @property
    def asks(self) -> bool:
        """Whether an operation was seen again, so that the next graph is read."""
        fired = self._context.log.has_fired("old_graph")
        return not fired and any(count >= _SUSPICIOUS for count in self._updates.values())

    def walked(self, uses: Iterable[Use]) -> None:
        """The graph of a loss has these operations on leaves."""
        if self._context.log.runs("old_graph") and len(self._present) < _MOST_USES:
            self._present.update(uses)

    def after_update(self, optimizer: Optimizer) -> None:
        """An optimizer has updated its parameters."""
        if not self._present:  # no graph was read since the last update
            return
        moved = {id(one): one for group in optimizer.param_groups if _moves(group) for one in group["params"]}
        seen = {use for use in self._present if use[0] in moved}
        self._present -= seen
        for use in [use for use in self._updates if use[0] in moved and use not in seen]:
            del self._updates[use]
        self._updates.update(seen)
        # Copies of a model, each of which is trained for a moment, leave theirs.
        if len(self._present) + len(self._updates) > _LEFT * max(len(seen), _FEW_USES):
            self._updates.clear()
            self._present.clear()
        old = {use[0] for use in seen if self._updates[use] >= _NEED}
        if old:
            names = sorted(self._context.name_of(moved[one]) for one in old)
            facts = {"count": len(names), "tensor": names[0], "updates": _NEED}
            self._context.log.say("old_graph", self._context.step, facts, names)


def _moves(group: dict[str, object]) -> bool:
    rate = group.get("lr")
    return not isinstance(rate, int | float) or rate != 0
