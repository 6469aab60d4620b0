"""Parts of a loss that no target of the training reaches."""

from __future__ import annotations

from collections.abc import Iterator

from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import Role

__all__ = ["no_targets"]

#: Fewest values of the part in the training, and in evaluations.
LEAST_POINTS, LEAST_EVALUATIONS = 5, 3
#: Words of parts that are computed where a sample has a target only.
_OF_TARGETS = frozenset(
    {
        *("box", "bbox", "dfl", "loc", "giou", "ciou", "diou", "iou", "mask", "seg", "rpn", "roi"),
        *("pose", "kpt", "keypoint", "keypoints", "landmark", "landmarks"),
    }
)


def no_targets(data: RunData) -> Iterator[Finding]:
    """Yield parts of the training loss that are always 0, but not in evaluations."""
    losses = data.of(Kind.LOSS, Kind.UNDIRECTED)
    others = [one for one in losses if not one.role.is_held_out and one.values.any()]
    if not others:
        return  # a loss of 0 alone may be one that is not computed
    for held_out in losses:
        evaluated = held_out.role.is_held_out and len(held_out) >= LEAST_EVALUATIONS and held_out.values.min() > 0
        if not evaluated or (_OF_TARGETS.isdisjoint(held_out.stem) and not _is_poor(data)):
            continue
        for part in losses:
            is_same = part.stem == held_out.stem and part.role in (Role.TRAINING, Role.NONE)
            if is_same and len(part) >= LEAST_POINTS and not part.values.any():
                facts = {
                    "series": part.quoted,
                    "count": len(part),
                    "numbers": f"{from_to(held_out)}, {from_to(others[0])}",
                }
                yield beside("no_targets", "problem", (part, held_out), facts)
                return


def _is_poor(data: RunData) -> bool:
    """Whether a metric of evaluations is 0 for the second half of the run."""
    metrics = [one for one in data.of(Kind.METRIC) if one.role is not Role.TRAINING and len(one) >= LEAST_EVALUATIONS]
    return bool(metrics) and all(not one.values[len(one) // 2 :].any() for one in metrics)
