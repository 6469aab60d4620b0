"""Parts of a loss that are not learned while the whole falls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import unlearned
from smdwidgets.diagnosis.inputs import Kind, RunData, Series, is_whole
from smdwidgets.finding import Finding

#: Share of a loss that is nearly all of it, its fall, and the level of a part that has learned nothing.
NEARLY_ALL, FALLS_WELL, STAYED = 0.97, 0.7, 0.95
#: Words of a loss of the task itself; its first value relative to the whole loss, and its least later value relative to
#: the first one, if another part works against it.
_OF_TASKS = frozenset({"ce", "nll", "mse", "task", "recon", "reconstruction", "cls", "lm", "xent", "bce"})
MINOR, WORSE = 0.1, 1.15
#: Fewest values that show something.
LEAST_POINTS = 20


def loss_parts(data: RunData) -> Iterator[Finding]:
    """Yield parts of a loss that are not learned while the whole falls."""
    yield from _drowned(data)
    yield from _sacrificed(data)


def _whole_and_parts(data: RunData) -> tuple[Series | None, list[Series]]:
    """Return a whole training loss that falls well, and the losses beside it.

    These have as many values. There is none if no loss falls so.
    """
    losses = [one for one in data.of(Kind.LOSS) if not one.role.is_held_out and len(one) >= LEAST_POINTS]
    whole = next((one for one in losses if is_whole(one)), None)
    if whole is None or not 0 < whole.values[-1] < FALLS_WELL * whole.values[0]:
        return None, []
    return whole, [one for one in losses if one is not whole and len(one) == len(whole)]


def _drowned(data: RunData) -> Iterator[Finding]:
    """Yield a part of a loss that does not fall beside one that is nearly all."""
    whole, others = _whole_and_parts(data)
    if whole is None:
        return
    parts = [one for one in others if "loss" in one.stem]
    large = [one for one in parts if (one.values >= NEARLY_ALL * whole.values).all()]
    if len(large) != 1:
        return
    for part in parts:
        late = float(np.median(part.values[2 * len(part) // 3 :]))
        if part is large[0] or part.values[0] <= 0 or late < STAYED * part.values[0]:
            continue
        facts = {
            "detail": f"{part.quoted} {part.values[0]:.4g} → {part.values[-1]:.4g} over {len(part):,} values",
            "guessing": f"{large[0].quoted} is {float(np.median(large[0].values / whole.values)):.1%} of {whole.quoted}, so that "
            "hardly anything else is trained: scale its targets, or weigh the parts. ",
            "what": f"loss {part.quoted}",
            "verb": "fall",
        }
        yield unlearned(part, facts)
        return


def _sacrificed(data: RunData) -> Iterator[Finding]:
    """Yield a part of a loss that stays above its first value while the whole falls."""
    whole, parts = _whole_and_parts(data)
    if whole is None:
        return
    for part in parts:
        first, later = float(part.values[0]), part.values[1:]
        # A weight against growth, such as that of a divergence, begins at nearly 0.
        if _OF_TASKS.isdisjoint(part.stem) or not 0 < MINOR * whole.values[0] < first or later.min() < WORSE * first:
            continue
        facts = {
            "detail": f"{part.quoted} {first:.4g} → {part.values[-1]:.4g}, and at least {later.min():.4g} since, over {len(part):,} values",
            "guessing": f"{whole.quoted} falls from {whole.values[0]:.3g} to {whole.values[-1]:.3g} by another part, which works "
            "against this one: compare what the two are computed from. ",
            "what": f"loss {part.quoted}",
            "verb": "fall",
        }
        yield unlearned(part, facts)
        return
