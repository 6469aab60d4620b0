"""What operators of a step returned, and the first that differs in another one.

>>> div = Operator("forward", "aten.div", "Shares", values=(Value("result", (2,), "float32", 7, 1.5, (1.5, 0.5)),))
>>> other = Operator("forward", "aten.div", "Shares", values=(Value("result", (2,), "float32", 8, 1.5, (1.5, 0.25)),))
>>> print(first_operator(Executed(37, operators=(div,)), Executed(37, operators=(other,))))
aten.div returned other values (forward): 0.5 and 0.25, of at most 1.5
  in module 'Shares'
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from smdwidgets._text import ShownAsText, json_number, listed, shown
from smdwidgets.replay.places import Place

__all__ = ["Executed", "Operator", "OperatorDifference", "Value", "first_operator"]

#: Arguments that are listed.
_LISTED: Final = 4


@dataclass(frozen=True)
class Value:
    """A tensor: its checksum, and some of its elements.

    Attributes:
        name: which tensor it is.
        shape: its shape.
        dtype: its dtype.
        checksum: of all its bytes.
        largest: its largest magnitude.
        sample: elements at equal distances.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    checksum: int
    largest: float
    sample: tuple[float, ...] = ()

    def difference(self, other: Value, tolerance: float) -> str:
        """Return how another tensor differs; empty if it does not.

        ``tolerance`` is a part of the largest magnitude.
        """
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            return f"{self.dtype} {self.shape} and {other.dtype} {other.shape}"
        if self.checksum == other.checksum:
            return ""
        scale = max(self.largest, other.largest)
        pairs = [(self.largest, other.largest), *zip(self.sample, other.sample, strict=True)]
        at = max(pairs[::-1], key=lambda pair: _distance(*pair))
        distance = _distance(*at)
        if tolerance and distance <= tolerance * scale and math.isfinite(distance):
            return ""
        if distance == 0:
            return f"few elements, of at most {scale:.6g}"
        return f"{at[0]:.6g} and {at[1]:.6g}, of at most {scale:.6g}"


def _distance(a: float, b: float) -> float:
    """Return the distance of two elements; infinite if only one of them is NaN.

    >>> _distance(1.0, 0.5), _distance(float("nan"), float("nan")), _distance(1.0, float("nan"))
    (0.5, 0.0, inf)
    """
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf


@dataclass(frozen=True)
class Operator:
    """One operator that ran.

    Attributes:
        phase: ``"forward"``, ``"backward"`` or ``"optimizer"``; ``"given"`` of values that no operator made.
        name: name of the operator, or what holds a given value.
        module: path and class of the module that called it.
        node: node of the backward pass.
        place: the innermost line outside of PyTorch.
        user: the innermost line of the user.
        numbers: its arguments that are numbers, as text.
        values: what it returned.
    """

    phase: str
    name: str
    module: str = ""
    node: str = ""
    place: Place | None = None
    user: Place | None = None
    numbers: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Executed:
    """An executed step, and its operators in the order of execution.

    Given values come first.
    """

    step: int
    operators: tuple[Operator, ...] = ()
    #: Whether the executed steps are those that were recorded.
    verified: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "step": self.step,
            "verified": self.verified,
            "operators": [
                [
                    *(one.phase, one.name, one.module, one.node),
                    *(place and [place.file, place.line, place.text] for place in (one.place, one.user)),
                    list(one.numbers),
                    [
                        [
                            *(value.name, list(value.shape), value.dtype, value.checksum),
                            *(json_number(value.largest), list(map(json_number, value.sample))),
                        ]
                        for value in one.values
                    ],
                ]
                for one in self.operators
            ],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Executed:
        """Return what `to_json` gave.

        >>> value = Value("result", (), "float32", 1, 2.0, (2.0,))
        >>> step = Executed(3, (Operator("forward", "aten.add", values=(value,)),))
        >>> Executed.from_json(step.to_json()) == step
        True
        """
        operators = []
        for phase, name, module, node, place, user, numbers, values in content["operators"]:
            inner, outer = (None if one is None else Place(*one) for one in (place, user))
            tensors = (
                Value(label, tuple(shape), dtype, checksum, float(largest), tuple(map(float, sample)))
                for label, shape, dtype, checksum, largest, sample in values
            )
            operators.append(Operator(phase, name, module, node, inner, outer, tuple(numbers), tuple(tensors)))
        return cls(content["step"], tuple(operators), content["verified"])


@dataclass(frozen=True, repr=False)
class OperatorDifference(ShownAsText):
    """The first operator that differs between two executions of a step.

    Attributes:
        step: global step.
        what: ``"values"``, ``"numbers"`` (arguments), ``"operator"`` (another one was called), ``"given"`` (the state
            before the step, or the batch), or ``"nothing"``.
        text: the difference.
        a: the operator of the first run; None if it called no more.
        b: that of the second.
        equal: number of operators before it, which are equal.
        verified: what the comparisons of both executions with their recordings say.
    """

    step: int
    what: str
    text: str = ""
    a: Operator | None = None
    b: Operator | None = None
    equal: int = 0
    verified: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.what == "nothing":
            return f"all {self.equal:,} operators of step {self.step:,} returned the same"
        lines = [self.headline]
        both = [one for one in (self.a, self.b) if one is not None]
        same = len({(one.place, one.user, one.module) for one in both}) == 1
        for one, run in zip(both[:1] if same else both, ("first", "second"), strict=False):
            where = "" if same else f"{run} run: "
            if one.place is not None:
                lines.append(f"  {where}{one.place}")
            if one.user is not None and one.user != one.place:
                lines.append(f"  {where}called at {one.user}")
            if one.module:
                lines.append(f"  {where}in module {shown(one.module)}")
        lines += [f"  {text}" for text in dict.fromkeys(self.verified) if text]
        return "\n".join(lines)

    @property
    def headline(self) -> str:
        """What differs, in one line."""
        one = self.a or self.b
        if one is None:
            return ""
        phase = ", ".join(part for part in (one.phase, one.node) if part)
        if self.what == "given":
            return f"{one.name} differs before the step computes anything: {self.text}"
        if self.what == "operator":
            names = [f"{each.name} ({each.phase})" if each else "no further operator" for each in (self.a, self.b)]
            return f"other operators are called: {names[0]} and {names[1]}"
        if self.what == "numbers":
            return f"{one.name} is called with other numbers ({phase}): {self.text}"
        return f"{one.name} returned other values ({phase}): {self.text}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "step": self.step,
            "what": self.what,
            "text": str(self),
            "operators": [None if one is None else _described(one) for one in (self.a, self.b)],
            "equal": self.equal,
            "verified": list(self.verified),
        }


def _described(one: Operator) -> dict[str, Any]:
    places = {name: place and place.to_json() for name, place in (("place", one.place), ("user", one.user))}
    return {"name": one.name, "phase": one.phase, "module": one.module, "node": one.node, **places}


def first_operator(a: Executed, b: Executed, tolerance: float = 0.0) -> OperatorDifference:
    """Return the first operator that differs between two executions of a step.

    Everything before it returned the same, so the line that called it, or a number that it was given, is the cause.

    Args:
        a: one execution.
        b: the other one.
        tolerance: difference of elements, as a part of the largest magnitude, up to which values are equal.
    """
    verified = tuple(one.verified for one in (a, b))
    equal = 0
    for one, other in zip(a.operators, b.operators, strict=False):
        what, text = _difference(one, other, tolerance)
        if what:
            return OperatorDifference(a.step, what, text, one, other, equal, verified)
        equal += one.phase != "given"
    more, other_more = (next(iter(one.operators[len(other.operators) :]), None) for one, other in ((a, b), (b, a)))
    if more or other_more:
        return OperatorDifference(a.step, "operator", "", more, other_more, equal, verified)
    return OperatorDifference(a.step, "nothing", equal=equal, verified=verified)


def _difference(a: Operator, b: Operator, tolerance: float) -> tuple[str, str]:
    if (a.phase, a.name) != (b.phase, b.name):
        return "given" if "given" in (a.phase, b.phase) else "operator", f"only one run has {shown(a.name)}"
    if a.numbers != b.numbers:
        return "numbers", f"{_list(a.numbers)} and {_list(b.numbers)}"
    if len(a.values) != len(b.values):
        return "values", f"{len(a.values)} and {len(b.values)} tensors"
    for one, other in zip(a.values, b.values, strict=True):
        text = one.difference(other, tolerance)
        if text:
            named = len(a.values) > 1 and a.phase != "given"
            return "given" if a.phase == "given" else "values", f"{one.name}: {text}" if named else text
    return "", ""


def _list(numbers: Iterable[str]) -> str:
    listing = listed(list(numbers), _LISTED)
    return f"({listing})" if listing else "its defaults"
