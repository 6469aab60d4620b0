"""The finding of a rule that fired."""

from __future__ import annotations

from collections.abc import Sequence

from smdwidgets._text import quoted
from smdwidgets.finding.finding import Evidence, Finding

__all__ = ["rule_finding"]

#: Tensors that are kept of a finding.
_NAMES = 1000


def rule_finding(
    rule: str, first: int, last: int, count: int, tensors: Sequence[str], evidence: Sequence[Evidence] = ()
) -> Finding:
    """Return the finding of a rule.

    Args:
        rule: name of the rule.
        first: first step at which it fired.
        last: last step at which it fired.
        count: number of steps at which it fired.
        tensors: names of the tensors at fault, the first ones first.
        evidence: what was observed at the first step.

    >>> rule_finding("DeadRelu", 3, 9, 4, ["relu_0", "relu_1"]).title
    '`DeadRelu` fires for `relu_0` and 1 more tensor (4 steps)'
    """
    names = f" for {quoted(tensors[0])}" if tensors else ""
    if more := len(tensors[1:]):
        names += f" and {more:,} more tensor{'s' if more > 1 else ''}"
    facts = {"rule": rule, "tensors": names, "times": "1 step" if count == 1 else f"{count:,} steps"}
    subjects = (rule, *tensors[:_NAMES])
    return Finding.of("rule", "warning", "medium", first, last, subjects, facts, evidence, source="rule")
