"""What a diagnosis could judge, and what it could not because it was not recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smdwidgets._text import capitalized
from smdwidgets.diagnosis.cause_table import READS
from smdwidgets.diagnosis.inputs import Kind, RunData
from smdwidgets.diagnosis.tensor_layers import layers, training
from smdwidgets.finding import KINDS

__all__ = ["Coverage", "coverage_of"]

#: What to do about a part that is missing; parts that are not here are usual to be without, such as a reward.
_MISSING = {
    "training loss": ("no training loss with 10 values", "save the loss at every step"),
    "validation loss": ("no validation loss with 10 values", "save a loss of held-out data"),
    "weights": ("the updates of weights were not recorded", "attach a hook, or `smdwidgets run`"),
    "gradients": ("gradients were not recorded", "add the collection `gradients` to the capture plan"),
    "activations": ("values of activations were not recorded", "add the collection `activations` to the capture plan"),
    "outputs": ("values of outputs were not recorded", "add the collection `outputs` to the capture plan"),
    "inputs": ("inputs were not recorded", "add the collection `inputs` to the capture plan"),
}

#: What a sample of the steps cannot tell.
_SAMPLED = (
    "Tensors at {:,} of {:,} steps were read, since the run is very large: stretches of successive steps, steps with "
    "values, and where values first are NaN or infinite. A bad batch, a jump of updates or a burst of gradients between "
    "them may be missed, and what is seen may have begun a stretch earlier."
)
#: Share of values that a restart writes again, above which it is said.
_MUCH_AGAIN = 0.1
_AGAIN = "{:,} earlier values of `{}` were written again, by another run or a restart: only the last ones were judged."


class Coverage(NamedTuple):
    """Which of the kinds of faults were judged.

    Attributes:
        checks: kinds that were judged.
        gaps: one sentence for each part that is missing, with the faults that were not judged and what to record.
        learning: whether a loss, metric or reward has a trend, so that learning could be judged.
    """

    checks: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    learning: bool = False


def coverage_of(data: RunData) -> Coverage:
    """Return what could be judged of a run."""
    there = _parts(data)
    missing: dict[str, list[str]] = {}
    for kind, parts in READS.items():
        for part in parts:
            if part not in there:
                missing.setdefault(part, []).append(kind)
                break
    gaps = [
        f"{capitalized(what)}: {_listed(missing[part])} not judged; {how}."
        for part, (what, how) in _MISSING.items()
        if part in missing and (data.tensors or part.endswith("loss"))
    ]
    again = max(data.series, key=lambda one: one.superseded / max(len(one.steps), 1), default=None)
    if again is not None and again.superseded > _MUCH_AGAIN * len(again.steps):
        gaps.insert(0, _AGAIN.format(again.superseded, again.name))
    if not data.tensors:
        gaps.append("Only scalars were recorded: weights, gradients, activations and inputs not judged.")
    if data.sampled is not None:
        gaps.append(_SAMPLED.format(*data.sampled))
    skipped = {kind for kinds in missing.values() for kind in kinds}
    learning = any(one.trend is not None for one in data.of(Kind.LOSS, Kind.METRIC, Kind.REWARD))
    return Coverage(tuple(kind for kind in READS if kind not in skipped), tuple(gaps), learning)


def _parts(data: RunData) -> set[str]:
    """Return the parts of a run that were recorded."""
    every = layers(data)
    there = {
        "training loss": any(one.trend is not None for one in data.training_losses()),
        "validation loss": any(one.trend is not None for one in data.held_out(Kind.LOSS)),
        "reward": bool(data.of(Kind.REWARD)),
        "learning rate": bool(data.of(Kind.LEARNING_RATE)),
        "weights": bool(every),
        "gradients": any(one.gradient is not None for one in every),
        "activations": any(np.isfinite(one["dead"]).any() for one in training(data, "activation", having="dead")),
        "outputs": any(np.isfinite(one["classes"]).any() for one in training(data, "output", having="classes")),
        "inputs": bool(training(data, "input")),
        "workers": len(data.tensors.workers) > 1,
    }
    return {part for part, is_there in there.items() if is_there}


def _listed(kinds: list[str]) -> str:
    return ", ".join(KINDS[kind].name for kind in kinds)
