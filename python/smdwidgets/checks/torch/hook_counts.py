"""Check of the hooks that a script registers: that they do not pile up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn

from smdwidgets.checks.torch.context import Context

__all__ = ["HookCounts"]

#: Updates in succession after each of which there are more hooks than before.
_GROWS = 7
#: Where modules and parameters keep the hooks that a pass or a backward pass calls.
_OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class HookCounts:
    """Counts the hooks of models and their parameters.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._counts: Counter[str] = Counter()
        self._first: Counter[str] = Counter()
        self._grown: Counter[str] = Counter()

    def after_update(self) -> None:
        """An update has ended."""
        context = self._context
        if not context.due or context.log.has_fired("hooks_pile_up"):
            return
        counts = Counter({name: count for name, count in self._hooks() if count})
        for name, count in counts.items():
            # The first hooks of a tensor may be registered late.
            grows = count > self._counts[name] > 0
            self._grown[name] = self._grown[name] + 1 if grows else 0
            if not grows:
                self._first[name] = count
        self._counts = counts
        piled = [name for name in counts if self._grown[name] >= _GROWS]
        if piled:
            facts = {"tensor": piled[0], "before": self._first[piled[0]], "now": counts[piled[0]]}
            context.log.say("hooks_pile_up", context.step, facts, piled)

    def _hooks(self) -> Iterator[tuple[str, int]]:
        for name, parameter in self._context.parameters():
            yield name, _count(parameter, _OF_PARAMETERS)
        for model in self._context.models():
            for name, part in model.named_modules():
                yield name or type(model).__name__, _count(part, _OF_MODULES)


def _count(one: nn.Module | nn.Parameter, places: tuple[str, ...]) -> int:
    return sum(len(getattr(one, place, None) or ()) for place in places)
