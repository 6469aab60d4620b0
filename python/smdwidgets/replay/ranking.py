"""The rows of a batch in order of suspicion, which need no PyTorch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from smdwidgets._text import ShownAsText, json_number

__all__ = ["RowRanking", "RowScore"]


@dataclass(frozen=True)
class RowScore:
    """One row of a batch.

    Attributes:
        row: place in the batch.
        loss: its loss alone.
        gradient_norm: norm of the gradient of its loss.
        input_norm: norm of its floating-point inputs; NaN without any.
        score: largest distance from the other rows, in robust standard deviations of logarithms; infinite if a number
            is not finite.
        identity: identity in the data set, where it was recorded.
    """

    row: int
    loss: float
    gradient_norm: float
    input_norm: float
    score: float
    identity: Any = None

    @property
    def is_finite(self) -> bool:
        """Whether its loss and gradient are finite."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)

    def __str__(self) -> str:
        name = f"row {self.row}" + ("" if self.identity is None else f" (data set: {self.identity})")
        text = f"{name}: loss {self.loss:.4g}, gradient norm {self.gradient_norm:.4g}"
        return text + ("" if math.isnan(self.input_norm) else f", input norm {self.input_norm:.4g}")


@dataclass(frozen=True, repr=False)
class RowRanking(ShownAsText):
    """Rows of a batch, the most suspicious one first.

    Attributes:
        rows: all rows.
        method: ``"vmap"``, ``"loop"`` or ``"execution"``.
        note: why rows were computed one after the other; empty otherwise.
    """

    rows: tuple[RowScore, ...]
    method: str
    note: str = ""

    @property
    def claims(self) -> tuple[str, ...]:
        """What is certain: rows whose own loss, gradient or input is not finite."""
        return tuple(f"row {one.row} is not finite" for one in self.rows if not one.is_finite)

    def top(self, count: int = 3) -> tuple[RowScore, ...]:
        """Return the first rows of the ranking."""
        return self.rows[:count]

    def __str__(self) -> str:
        lines = [*self.claims] or ["all rows are finite; the order is a suspicion"]
        return "\n".join([*lines, *(f"  {one}" for one in self.rows[:8]), *([self.note] if self.note else [])])

    def to_json(self) -> dict[str, Any]:
        """Return the ranking as JSON values. Numbers that JSON does not have are strings."""
        rows = [
            {
                "row": one.row,
                "loss": json_number(one.loss),
                "gradient_norm": json_number(one.gradient_norm),
                "input_norm": json_number(one.input_norm),
                "score": json_number(one.score),
                "identity": one.identity if isinstance(one.identity, int | str | None) else str(one.identity),
            }
            for one in self.rows
        ]
        return {"version": 1, "method": self.method, "note": self.note, "claims": list(self.claims), "rows": rows}
