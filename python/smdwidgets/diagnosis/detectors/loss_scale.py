"""A loss scale that falls until nothing is left of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import beside
from smdwidgets.diagnosis.inputs import RunData
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import Kind as NameKind
from smdwidgets.naming.scalars import kinds_of

__all__ = ["loss_scale"]

#: The last scale by the largest one, and how small it is: each overflow halves it.
OF_LARGEST, SMALL = 2.0**-10, 1.0
#: Part of the largest scale of a series at which it has not begun to fall for good.
STILL_LARGE = 1 / 8
#: Share of the run at whose end it must be so.
AT_END = 0.05


def loss_scale(data: RunData) -> Iterator[Finding]:
    """Yield scales that gradients overflow at any size."""
    kinds = kinds_of(one.name for one in data.series)
    # A parameter may have such a name, and its gradient has both signs.
    scales = [one for one in data.series if len(one) and kinds[one.name] is NameKind.LOSS_SCALE]
    scales = [one for one in scales if one.values.min() >= 0 and not one.name.startswith("gradient/")]
    largest = max((float(one.values.max()) for one in scales), default=0.0)
    begin, end = data.extent
    for scale in scales:
        last = float(scale.values[-1])
        if last >= min(SMALL, OF_LARGEST * largest) or end - scale.steps[-1] > AT_END * (end - begin):
            continue
        # A scale that is halved now and then, and grows again, is a healthy one.
        at = int(np.flatnonzero(scale.values >= STILL_LARGE * scale.values.max())[-1])
        first = int(scale.steps[min(at + 1, len(scale) - 1)])
        facts = {
            "series": scale.quoted,
            "what": f"{last:.2g}, {largest:.3g} at most: gradients overflow at any scale",
            "when": f"since step {first:,}",
            "share": "each overflow halves the scale, and its update is left out",
        }
        yield beside("not_finite", "problem", (scale,), facts, first)
        return
