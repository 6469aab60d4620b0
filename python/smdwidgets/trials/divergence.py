"""The result of :meth:`smdwidgets.Trial.bisect`.

>>> first = FirstDifference(5, "optimizer/Adam/learning_rate_0", Kind.OPTIMIZER, "value", 0.5, 0.01, 0.015, exact=True)
>>> print(Divergence("runs/a", "runs/b", "auto", first=first, steps=6, tensors=29))
first difference at step 5: 'optimizer/Adam/learning_rate_0' = 0.01 and 0.015
  a value that the optimizer uses or computes differs; everything before it in this step is equal
compared 29 tensors at 6 steps
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from smdwidgets._text import ShownAsText, listed, shown
from smdwidgets.naming.tensors import Kind

if TYPE_CHECKING:
    from smdwidgets.replay.operators import OperatorDifference

__all__ = ["Divergence", "FirstDifference"]

#: What a first difference in a tensor of this kind means, if everything before it in the step is equal.
_MEANING: Final = {
    Kind.INPUT: "the data or an earlier operation that was not recorded differs",
    Kind.LABEL: "the labels differ",
    Kind.OUTPUT: "what this module computes differs: its code, its random numbers or its precision",
    Kind.ACTIVATION: "what this module computes differs: its code, its random numbers or its precision",
    Kind.LOSS: "the loss function or what it is given differs",
    Kind.GRADIENT: "the backward pass, or code that changes gradients, differs",
    Kind.OPTIMIZER: "a value that the optimizer uses or computes differs",
    Kind.SCALAR: "a recorded number differs",
    Kind.OTHER: "this tensor differs",
}


@dataclass(frozen=True)
class FirstDifference:
    """A tensor that differs between two runs at a step.

    Attributes:
        step: global step.
        tensor: name of the tensor; empty if the modes of the step differ.
        kind: what the tensor is.
        what: ``"value"``, ``"shape"``, ``"dtype"``, ``"mode"``, or the name of a statistic.
        relative: largest difference of two elements, divided by the largest magnitude; NaN where there is none.
        a: the element, shape, dtype, mode or statistic of the first run.
        b: that of the second.
        exact: whether everything before it was compared by value. If not, it is the first difference that was seen.
        index: the element that differs most.
        changed: number of elements that differ, of ``count``.
        count: number of elements; 0 where statistics were compared.
        worker: worker that saved it; None if the run has one.
        updated_after: the compared step before, if the tensor is a parameter or buffer at the beginning of a step.
        gradients_equal: whether the gradients of that step were compared by value and are equal.
        equal_until: last step at which all tensors were compared by value; None if there is none.
    """

    step: int
    tensor: str
    kind: Kind
    what: str
    relative: float
    a: Any
    b: Any
    exact: bool
    index: tuple[int, ...] = ()
    changed: int = 0
    count: int = 0
    worker: str | None = None
    updated_after: int | None = None
    gradients_equal: bool = False
    equal_until: int | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.difference}"

    @property
    def where(self) -> str:
        """The step or the update at which the runs part."""
        if self.updated_after is None:
            return f"step {self.step:,}"
        return f"the update after step {self.updated_after:,}"

    @property
    def difference(self) -> str:
        """The tensor and both values."""
        if self.what == "mode":
            return f"the mode is {self.a} and {self.b}"
        name = shown(self.tensor) + (f" of {shown(self.worker)}" if self.worker else "")
        if self.what in ("shape", "dtype"):
            return f"{name} has {self.what} {self.a} and {self.b}"
        if self.what != "value":
            return f"{self.what} of {name} is {_number(self.a)} and {_number(self.b)}"
        at = f"[{', '.join(map(str, self.index))}]" if self.count > 1 else ""
        text = f"{name}{at} = {_number(self.a)} and {_number(self.b)}"
        return text + (f"; {self.changed:,} of {self.count:,} elements differ" if self.count > 1 else "")

    @property
    def meaning(self) -> str:
        """What the difference says about the cause."""
        if self.what == "mode":
            return "one run trains and the other does something else: the loops differ"
        if self.updated_after is not None:
            if self.gradients_equal:
                return f"the gradients of step {self.updated_after:,} are equal: the optimizer or its settings differ"
            return (
                f"the state was changed between step {self.updated_after:,} and step {self.step:,}, and no recorded "
                "gradient shows why"
            )
        if self.kind.is_parameter:
            return "the parameters differ before the first compared step: their initialization or checkpoint differs"
        return f"{_MEANING[self.kind]}; everything before it in this step is equal"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values. Numbers that JSON does not have are strings."""
        return {
            "step": self.step,
            "tensor": self.tensor,
            "kind": self.kind.value,
            "what": self.what,
            "relative": _json(self.relative),
            "a": _json(self.a),
            "b": _json(self.b),
            "exact": self.exact,
            "index": list(self.index),
            "changed": self.changed,
            "count": self.count,
            "worker": self.worker,
            "updated_after": self.updated_after,
            "gradients_equal": self.gradients_equal,
            "equal_until": self.equal_until,
            "meaning": self.meaning,
        }


@dataclass(frozen=True, repr=False)
class Divergence(ShownAsText):
    """Where two runs part, returned by :meth:`smdwidgets.Trial.bisect`.

    Attributes:
        a: path of the first run.
        b: path of the second.
        tolerance: ``"auto"``, or the relative difference up to which values are equal.
        first: the first difference beyond the tolerance; None if there is none.
        noise: the first difference within the tolerance; None if there is none.
        noise_level: the largest relative difference within the tolerance.
        steps: number of steps that were compared, up to the first difference.
        tensors: number of different tensors that were compared.
        only_a: tensors that only the first run has.
        only_b: tensors that only the second run has.
        unreadable: number of values that could not be read and were skipped.
        unequal_lengths: the last steps of both runs, if one has more.
        operator: the first operator that differs, if the step was executed again in both runs.
        no_operator: why it is not known, if it was asked for.
    """

    a: str
    b: str
    tolerance: float | str
    first: FirstDifference | None = None
    noise: FirstDifference | None = None
    noise_level: float = 0.0
    steps: int = 0
    tensors: int = 0
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    unreadable: int = 0
    unequal_lengths: tuple[int, int] | None = None
    operator: OperatorDifference | None = None
    no_operator: str = ""

    @property
    def equal(self) -> bool:
        """Whether everything that both recorded is equal within the tolerance."""
        return self.first is None

    def __str__(self) -> str:
        lines = []
        if self.first is not None:
            seen = "" if self.first.exact else " seen"
            lines.append(f"first difference{seen} at {self.first}")
            lines.append(f"  {self.first.meaning}")
            if not self.first.exact:
                lines.append(f"  {self._unseen(self.first)}")
            if self.operator is not None:
                lines.append(f"executed again, step {self.operator.step:,}:")
                lines += [f"  {line}" for line in str(self.operator).splitlines()]
            elif self.no_operator:
                lines.append(f"first operator not known: {self.no_operator}")
        elif self.noise is None:
            lines.append("no difference")
        else:
            lines.append("no difference beyond rounding" if self.tolerance == "auto" else "no difference")
        if self.noise is not None:
            lines.append(
                f"{'before it, ' if self.first else ''}within the tolerance since {self.noise}; at most "
                f"{self.noise_level:.2g} of a tensor's largest magnitude"
            )
        lines.append(
            f"compared {self.tensors:,} tensor{'s' * (self.tensors != 1)} at {self.steps:,} step{'s' * (self.steps != 1)}"
        )
        for names, run in ((self.only_a, "first"), (self.only_b, "second")):
            if names:
                lines.append(f"only in the {run} run: {listed([shown(name) for name in names], 4)}")
        if self.unequal_lengths is not None:
            lines.append("last steps: {:,} and {:,}".format(*self.unequal_lengths))
        if self.unreadable:
            lines.append(f"{self.unreadable:,} value{'s' * (self.unreadable != 1)} could not be read")
        return "\n".join(lines)

    @staticmethod
    def _unseen(first: FirstDifference) -> str:
        if first.equal_until is None:
            return "not every value before it was recorded, so that the runs may part earlier"
        return f"all values are equal until step {first.equal_until:,}; after it, not all of them were recorded"

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "version": 1,
            "a": self.a,
            "b": self.b,
            "equal": self.equal,
            "tolerance": self.tolerance,
            "first": None if self.first is None else self.first.to_json(),
            "noise": None if self.noise is None else self.noise.to_json(),
            "noise_level": self.noise_level,
            "steps": self.steps,
            "tensors": self.tensors,
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "unreadable": self.unreadable,
            "unequal_lengths": None if self.unequal_lengths is None else list(self.unequal_lengths),
            "operator": None if self.operator is None else self.operator.to_json(),
            "no_operator": self.no_operator,
        }


def _number(value: object) -> str:
    """Return a number with the digits that tell float32 numbers apart."""
    return f"{value:.9g}" if isinstance(value, float) else shown(value) if isinstance(value, str) else str(value)


def _json(value: Any) -> Any:
    """Return a value of JSON; numbers that JSON does not have become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, int | float | str | None) else str(value)
