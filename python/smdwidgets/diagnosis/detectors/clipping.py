"""Gradients that are clipped before they are computed."""

from __future__ import annotations

from collections.abc import Iterator

from smdwidgets.diagnosis.detectors._show import evidence
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

LEAST_POINTS = 8
#: What a hook adds to the name of the norm that the optimizer uses.
BEFORE_CLIPPING = "_before_clipping"


def clipping(data: RunData) -> Iterator[Finding]:
    """Yield norms that are 0 whenever gradients are clipped.

    The optimizer gets gradients nevertheless.
    """
    norms = {(one.name, one.mode, one.worker): one for one in data.of(Kind.GRADIENT_NORM)}
    for clipped in norms.values():
        if not clipped.name.endswith(BEFORE_CLIPPING) or len(clipped) < LEAST_POINTS or clipped.values.any():
            continue
        used = norms.get((clipped.name.removesuffix(BEFORE_CLIPPING), clipped.mode, clipped.worker))
        if used is not None and len(used) >= LEAST_POINTS and (used.values > 0).mean() > 0.5:
            yield _finding(clipped, used)


def _finding(clipped: Series, used: Series) -> Finding:
    first, last = int(clipped.steps[0]), int(clipped.steps[-1])
    facts = {"count": len(clipped), "norm": float(used.values.max())}
    shown = (evidence(used, f"{used.label} up to {facts['norm']:.3g}", first, last),)
    return Finding.of("clip_before_backward", "problem", "proof", first, last, (clipped.name,), facts, shown)
