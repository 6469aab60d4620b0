"""What explains an incident: an operator with its line, operands and rows.

>>> place = Place("model.py", 39, "x / x.sum(1, keepdim=True)")
>>> zero = Operand("input 2", (8, 1), "float32", 0.0, 12.5, element=0.0)
>>> print(Explanation("operator", 37, "NaN", "aten.div", "forward", "", place, place, (zero,), (6,), 4, (8, 4), (6, 0)))
step 37: aten.div returned NaN in 4 of 32 elements, first at [6, 0] (forward)
  model.py:39: x / x.sum(1, keepdim=True)
  input 2: float32 (8, 1) from 0 to 12.5; 0 at this element
  row of the batch: 6
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from smdwidgets._text import ShownAsText, json_number, shown
from smdwidgets.replay.places import Place

__all__ = ["Explanation", "Operand"]


@dataclass(frozen=True)
class Operand:
    """An input of an operator.

    Attributes:
        name: which input it is.
        shape: its shape.
        dtype: its dtype.
        low: the smallest finite element; NaN without one.
        high: the largest finite element.
        element: the element that belongs to the first bad element of the result; None if there is no such relation.
        not_finite: number of elements that are not finite.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    element: float | None = None
    not_finite: int = 0

    def __str__(self) -> str:
        if self.dtype == "number":
            return f"{self.name}: {self.element:.6g}"
        text = f"{self.name}: {self.dtype} {self.shape}"
        if not math.isnan(self.low):
            text += f" from {self.low:.6g} to {self.high:.6g}"
        if self.not_finite:
            text += f", {self.not_finite:,} not finite"
        return text + ("" if self.element is None else f"; {self.element:.6g} at this element")


@dataclass(frozen=True, repr=False)
class Explanation(ShownAsText):
    """What explains an incident.

    Attributes:
        kind: ``"operator"``: it produced the first value that is not finite. ``"growth"``: its largest value is at
            least 100 times that of the steps before. ``"given"``: the value was there before the step began.
            ``"error"``: it raised. ``"nothing"``: none of these.
        step: global step.
        value: ``"NaN"``, ``"Inf"`` or the type of the error.
        operator: name of the operator; for a given value what holds it, such as ``batch[1]``.
        phase: ``"forward"``, ``"backward"``, ``"optimizer"``, or empty.
        module: path and class of the module that called it; empty outside of modules.
        place: the innermost line outside of PyTorch.
        user: the innermost line of the user.
        operands: its inputs.
        rows: rows of the batch that have bad elements; empty if unknown.
        count: number of bad elements.
        shape: shape of the result.
        first: index of the first bad element.
        node: node of the backward pass.
        factor: growth, as a ratio.
        before: largest value of the steps before, and ``after`` that of this one.
        error: message of the error.
        notes: what was also seen.
        verified: what the comparison with the recorded steps says.
        dataset_rows: identities of the rows in the data set, where they were recorded.
    """

    kind: str
    step: int
    value: str = ""
    operator: str = ""
    phase: str = ""
    module: str = ""
    place: Place | None = None
    user: Place | None = None
    operands: tuple[Operand, ...] = ()
    rows: tuple[int, ...] = ()
    count: int = 0
    shape: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    node: str = ""
    factor: float = 0.0
    before: float = 0.0
    after: float = 0.0
    error: str = ""
    notes: tuple[str, ...] = ()
    verified: str = ""
    dataset_rows: tuple[Any, ...] = ()

    @property
    def headline(self) -> str:
        """What happened, in one line."""
        step = f"step {self.step:,}: "
        if self.kind == "nothing":
            return step + "no operator explains the incident"
        elements = math.prod(self.shape)
        where = f" in {self.count:,} of {elements:,} elements" if elements > 1 and self.count else ""
        where += f", first at {list(self.first)}" if self.first else ""
        if self.kind == "given":
            return f"{step}{self.operator} had {self.value} before the step began{where}"
        phase = ", ".join(part for part in (self.phase, self.node) if part)
        phase = f" ({phase})" if phase else ""
        if self.kind == "error":
            name = f"{self.operator} raised {self.value}" if self.operator else f"{self.value} was raised"
            return f"{step}{name}{phase}: {self.error}"
        if self.kind == "growth":
            factor = f"{self.factor:.3g} times" if math.isfinite(self.factor) else "beyond the largest number,"
            return f"{step}{self.operator} returned values up to {self.after:.3g}, {factor} the {self.before:.3g} of the steps before{phase}"
        return f"{step}{self.operator} returned {self.value}{where}{phase}"

    def __str__(self) -> str:
        lines = [self.headline]
        if self.place is not None:
            lines.append(f"  {self.place}")
        if self.user is not None and self.user != self.place:
            lines.append(f"  called at {self.user}")
        if self.module:
            lines.append(f"  in module {shown(self.module)}")
        lines += [f"  {operand}" for operand in self.operands]
        if self.rows:
            lines.append(f"  row{'s' * (len(self.rows) > 1)} of the batch: {', '.join(map(str, self.rows[:8]))}")
        if self.dataset_rows:
            lines.append(f"  of the data set: {', '.join(map(str, self.dataset_rows[:8]))}")
        lines += [f"  {note}" for note in self.notes]
        if self.verified:
            lines.append(f"  {self.verified}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values. Numbers that JSON does not have are strings."""
        return {
            "version": 1,
            "kind": self.kind,
            "step": self.step,
            "value": self.value,
            "operator": self.operator,
            "phase": self.phase,
            "module": self.module,
            "place": self.place and self.place.to_json(),
            "user": self.user and self.user.to_json(),
            "operands": [
                {
                    "name": one.name,
                    "shape": list(one.shape),
                    "dtype": one.dtype,
                    "low": json_number(one.low),
                    "high": json_number(one.high),
                    "element": None if one.element is None else json_number(one.element),
                    "not_finite": one.not_finite,
                }
                for one in self.operands
            ],
            "rows": list(self.rows),
            "count": self.count,
            "shape": list(self.shape),
            "first": list(self.first),
            "node": self.node,
            "factor": json_number(self.factor),
            "before": json_number(self.before),
            "after": json_number(self.after),
            "error": self.error,
            "notes": list(self.notes),
            "verified": self.verified,
            "dataset_rows": [one if isinstance(one, int | str) else str(one) for one in self.dataset_rows],
            "text": str(self),
        }
