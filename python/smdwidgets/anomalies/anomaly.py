"""One thing that is odd in a series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Anomaly"]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that is odd in a series.

    Attributes:
        kind: what is odd.
        index: index of the value in its series.
        value: the value.
        limit: what the value exceeds; NaN if it has no limit.
        usual: what it is compared with; NaN without a comparison.
    """

    kind: Literal["spike", "not_finite"]
    index: int
    value: float
    limit: float
    usual: float
