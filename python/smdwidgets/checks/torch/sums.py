"""Sums near the root of a graph: their terms, with factors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from smdwidgets.checks.torch.graph import Value, kind_of, number_of, size_of, values_before

__all__ = ["EQUAL", "added", "parts_of", "same", "terms_of"]

#: Terms and factors that are followed.
_MOST_TERMS = 200
EQUAL = 1e-5
"""The difference of factors that are equal."""

#: Nodes that give the same elements in another form, or limit them.
_SAME = (
    "View",
    "ReshapeAlias",
    "UnsafeView",
    "Unsqueeze",
    "Squeeze",
    "ToCopy",
    "Clone",
    "Clamp",
    "ClampMin",
    "ClampMax",
)


def same(value: Value) -> Value:
    """Return the value that this one shows in another form."""
    while kind_of(value[0]) in _SAME and len(before := values_before(value[0])) == 1:
        value = before[0]
    return value


def parts_of(value: Value, ends: Collection[Value] = ()) -> dict[Value, float]:
    """Return the values of which a value is the sum, with their factors.

    A sum over elements has the factor 1 and a mean its share, so that factors of values of one shape can be compared.

    Args:
        value: the value.
        ends: values that are not parted further.
    """
    return added(terms_of(value, ends))


def added(terms: Iterable[tuple[Value | None, float]]) -> dict[Value, float]:
    """Return the terms that have a gradient, each with the sum of its factors."""
    parts: defaultdict[Value, float] = defaultdict(float)
    for term, factor in terms:
        if term is not None:
            parts[term] += factor
    return dict(parts)


def terms_of(value: Value, ends: Collection[Value] = ()) -> list[tuple[Value | None, float]]:
    """Return the terms of a sum, with their factors; None: a term without a gradient.

    The list is empty if there are too many.
    """
    terms, pending = list[tuple[Value | None, float]](), [(value, 1.0)]
    for _ in range(_MOST_TERMS):
        if not pending:
            return terms
        value, factor = pending.pop()
        value = same(value) if value not in ends else value
        name, before = kind_of(value[0]), values_before(value[0])
        if value in ends:
            terms.append((value, factor))
        elif name in ("Sum", "Neg", "Mean", "Expand") and before:
            share = size_of(value) / size_of(before[0]) if name == "Mean" and size_of(before[0]) else 1.0
            pending.append((before[0], factor * (-1 if name == "Neg" else share)))
        elif name in ("Add", "Sub", "Rsub"):
            for one, sign in _with_signs(value[0], name):
                if one is None:
                    terms.append((None, factor * sign))
                else:
                    pending.append((one, factor * sign))
        elif name in ("Mul", "Div") and len(before) == 1 and (number := number_of(value[0], "other")):
            pending.append((before[0], factor * number if name == "Mul" else factor / number))
        else:
            terms.append((value, factor))
    return []


def _with_signs(node: Any, name: str) -> list[tuple[Value | None, float]]:
    """Return the values that a node adds, with their factors; None: no gradient."""
    alpha = number_of(node, "alpha") or 1.0
    factors = {"Add": (1.0, alpha), "Sub": (1.0, -alpha), "Rsub": (-alpha, 1.0)}[name]
    pairs = zip(node.next_functions, factors, strict=False)
    return [(None if value[0] is None else value, factor) for value, factor in pairs]
