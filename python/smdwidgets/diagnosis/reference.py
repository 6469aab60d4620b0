"""Compare a run with good runs: what differs first, since when, and by how much.

A summary keeps a few numbers of each quantity, so that a good run can be compared after it is gone. Quantities are
compared at equal steps, and their differences in units of the spread that good runs have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smdwidgets._text import capitalized
from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.inputs import Kind, RunData
from smdwidgets.diagnosis.tensor_layers import layers, training
from smdwidgets.diagnosis.trends import local_noise
from smdwidgets.exceptions import RunIOError, SMDebugValueError
from smdwidgets.finding import Confidence, Evidence, Finding, Level, plain_number

__all__ = ["Summary", "differences", "is_baseline", "read_summaries", "summarized", "write_summaries"]

#: Blocks of a quantity, and its fewest values.
BLOCKS, FEWEST = 24, 6
#: A difference in units of the spread that counts, and the blocks in a row at which it must.
FAR, IN_A_ROW = 4.0, 2
#: Differences that are shown as evidence.
SHOWN = 8
#: Relative spread of healthy runs of other seeds, by group: with one good run, and least spread with several.
_SPREAD = {
    "learning rate": (0.01, 0.01),
    "input": (0.08, 0.01),
    "activation": (0.25, 0.08),
    "loss": (0.12, 0.05),
    "metric": (0.12, 0.05),
    "gradient": (0.35, 0.12),
    "update": (0.25, 0.08),
    "norm": (0.05, 0.02),
}
#: Groups of which a run has one quantity for each layer.
_OF_LAYERS = frozenset({"activation", "gradient", "update", "norm"})
#: Order of groups in which a difference spreads within a step.
_ORDER = ("configuration", *_SPREAD)
_GROUPS = {
    Kind.LEARNING_RATE: "learning rate",
    Kind.LOSS: "loss",
    Kind.UNDIRECTED: "loss",
    Kind.METRIC: "metric",
    Kind.REWARD: "metric",
    Kind.GRADIENT_NORM: "gradient",
}


class Quantity(NamedTuple):
    """A quantity of a run over its steps, as medians of blocks.

    Attributes:
        group: what it is; a row of the spreads.
        place: place in the forward pass.
        steps: middle step of each block.
        values: median of each block.
        noise: standard deviation of a block's median about its neighbours.
        scale: what differences are relative to, for quantities around 0; 0: the value itself.
    """

    group: str
    place: int
    steps: tuple[float, ...]
    values: tuple[float, ...]
    noise: float
    scale: float = 0.0


@dataclass(frozen=True)
class Summary:
    """What is kept of a good run.

    Attributes:
        name: name of the run.
        quantities: its quantities by the name in texts.
        settings: its hyperparameters.
    """

    name: str
    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        quantities = {
            name: {**one._asdict(), "values": [plain_number(value) for value in one.values]}
            for name, one in self.quantities.items()
        }
        return {"name": self.name, "quantities": quantities, "settings": dict(self.settings)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Summary:
        """Return the summary of a JSON object that `to_json` returned."""
        quantities = {
            name: Quantity(
                str(one["group"]),
                int(one["place"]),
                tuple(map(float, one["steps"])),
                tuple(map(float, one["values"])),
                float(one["noise"]),
                float(one["scale"]),
            )
            for name, one in content["quantities"].items()
        }
        return cls(str(content["name"]), quantities, dict(content["settings"]))


def summarized(name: str, data: RunData, settings: Mapping[str, Any] | None = None) -> Summary:
    """Return the summary of a run."""
    return Summary(name, dict(_quantities(data)), {key: _plain(value) for key, value in (settings or {}).items()})


def _plain(value: Any) -> Any:
    """Return a setting as JSON holds it."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _quantities(data: RunData) -> Iterator[tuple[str, Quantity]]:
    for series in data.series:
        if series.kind in _GROUPS:
            yield from _quantity(series.quoted, _GROUPS[series.kind], 0, series.steps, series.values)
    for layer in layers(data):
        order, name = layer.weight.order, layer.weight.quoted
        yield from _quantity(f"the update of {name}", "update", order, layer.starts, layer.typical)
        yield from _quantity(f"the norm of {name}", "norm", order, layer.weight.steps, layer.weight["l2"])
        if layer.gradient is not None:
            steps, norm = layer.gradient.steps, layer.gradient["l2"]
            yield from _quantity(f"the gradient of {name}", "gradient", order, steps, norm)
    for role, group in (("input", "input"), ("activation", "activation"), ("output", "activation")):
        for tensor in training(data, role):
            deviation = tensor["std"]
            name = tensor.quoted
            yield from _quantity(f"the standard deviation of {name}", group, tensor.order, tensor.steps, deviation)
            scale = float(np.nanmedian(deviation)) if np.isfinite(deviation).any() else 0.0
            if scale > 0:
                yield from _quantity(f"the mean of {name}", group, tensor.order, tensor.steps, tensor["mean"], scale)


def _quantity(
    name: str, group: str, place: int, steps: Any, values: Floats, scale: float = 0.0
) -> Iterator[tuple[str, Quantity]]:
    known = np.isfinite(values)
    values, steps = values[known], np.asarray(steps)[known]
    if len(values) < FEWEST or (not scale and (np.abs(values) < 1e-30).all()):
        return
    parts = np.array_split(np.arange(len(values)), min(BLOCKS, len(values)))
    medians = np.array([np.median(values[part]) for part in parts])
    middles = np.array([np.median(steps[part]) for part in parts])
    # Of neighbouring values for many, of neighbouring blocks for few.
    noise = local_noise(values) * 1.25 / math.sqrt(len(values) / len(parts))
    yield name, Quantity(group, place, tuple(middles.tolist()), tuple(medians.tolist()), noise, scale)


class _Difference(NamedTuple):
    group: str
    place: int
    name: str
    step: int
    last: int
    value: float
    usual: float
    times: float
    from_start: bool


def differences(run: Summary, good: Sequence[Summary]) -> Iterator[Finding]:
    """Yield one finding with what differs from the good runs.

    Settings come before all quantities, which follow from them. Settings alone are a note.
    """
    changed = _changed(run, good)
    differing = [
        one for name, quantity in run.quantities.items() if (one := _compared(name, quantity, good)) is not None
    ]
    if len(differing) == 1 and differing[0].group in _OF_LAYERS and differing[0].times < 2 * FAR:
        differing.clear()  # of so many quantities, one leaves the range of a few runs by chance
    differing.sort(key=_order_of_difference)
    runs = f"{len(good)} good runs" if len(good) > 1 else f"`{good[0].name}`"
    confidence: Confidence = "medium"
    if changed:
        names = [f"`{name}`" for name, _, _ in changed]
        facts = {
            "what": f"{names[0]} differs",
            "since": "",
            "value": str(changed[0][1]),
            "usual": str(changed[0][2]),
            "spread": f" in {runs}",
        }
        if len(names) == 2:
            facts["what"] = f"{names[0]} and {names[1]} differ"
            facts["value"], facts["usual"] = (" and ".join(str(one[at]) for one in changed) for at in (1, 2))
        elif len(names) > 2:
            facts["what"] = f"{names[0]} and {len(names) - 1:,} other settings differ"
        facts["follow"] = _follow(differing, differing)
    elif differing:
        first = differing[0]
        facts = {
            "what": f"{capitalized(first.name)} differs",
            "since": f" since step {first.step:,}",
            "value": f"{first.value:.4g}",
            "usual": f"{first.usual:.4g}",
            "spread": f", {first.times:.3g} times the spread of {runs}",
            "follow": _follow(differing[1:], differing),
        }
        if len(good) > 2 and first.times > 2 * FAR:
            confidence = "high"
    else:
        return
    evidence = [Evidence(f"{name}: {value} instead of {usual}") for name, value, usual in changed[:SHOWN]] + [
        Evidence(
            f"{one.name}: {one.value:.4g} instead of {one.usual:.4g} from step {one.step:,} on", "", one.step, one.value
        )
        for one in differing[:SHOWN]
    ]
    subject = changed[0][0] if changed else differing[0].name.partition("`")[2].partition("`")[0]
    first_step = min((one.step for one in differing), default=None)
    last_step = max((one.last for one in differing), default=None)
    level: Level = "problem" if differing else "note"
    yield Finding.of(
        "differs_from_reference",
        level,
        confidence,
        first_step,
        last_step,
        (subject,),
        facts,
        evidence,
        source="reference",
    )


def _changed(run: Summary, good: Sequence[Summary]) -> list[tuple[str, Any, Any]]:
    """Return the settings that differ, with the value that the good runs agree on.

    Settings that only one side recorded count only if both recorded any: the other side may be of an earlier version.
    Seeds do not count, nor what a trainer has reached.
    """
    if not run.settings or not all(one.settings for one in good):
        return []
    return [
        (name, run.settings.get(name, "none"), good[0].settings.get(name, "none"))
        for name in sorted({*run.settings, *good[0].settings}, key=_order_of_setting)
        if "seed" not in name.lower()
        and not name.startswith("best_")  # what was reached
        and all(one.settings.get(name) != run.settings.get(name) for one in good)
        and len({str(one.settings.get(name)) for one in good}) == 1
    ]


def _order_of_difference(one: _Difference) -> tuple[Any, ...]:
    """Return when a difference begins, and its place in the order in which it spreads.

    Quantities are saved at different steps, so that those that differ from their first values on begin together.
    Weights that do so are other initial ones.
    """
    rank = 0.5 if one.from_start and one.group == "norm" else _ORDER.index(one.group)
    return (0 if one.from_start else one.step, rank, one.place, -one.times)


def _order_of_setting(name: str) -> tuple[bool, str]:
    """Return the order of a setting: precision, layers and optimizers, then the data."""
    return name.startswith("data."), name


def _follow(others: Sequence[_Difference], found: Sequence[_Difference]) -> str:
    """Return a sentence about what differs, too."""
    if not found:
        return "No quantity differs by more than the spread."
    groups = dict.fromkeys(one.group for one in others)
    if not groups:
        return "Nothing else differs."
    since = f" from step {others[0].step:,} on" if len(others) == len(found) else ""
    count = f"{len(others):,} quantities" if len(others) > 1 else "1 quantity"
    return f"Then differ{since}: {', '.join(groups)} ({count})."


def _compared(name: str, quantity: Quantity, good: Sequence[Summary]) -> _Difference | None:
    """Return how a quantity differs from the good runs; None if it does not."""
    others = [one.quantities[name] for one in good if name in one.quantities]
    if len(others) < len(good):
        return None
    steps, values = np.array(quantity.steps), np.array(quantity.values)
    end = min(one.steps[-1] for one in others)
    common = steps <= end
    if common.sum() < FEWEST // 2:
        return None
    steps, values = steps[common], values[common]
    table = np.array([np.interp(steps, one.steps, one.values) for one in others])
    alone, least = _SPREAD[quantity.group]
    with np.errstate(all="ignore"):
        usual = np.median(table, axis=0)
        scale = quantity.scale or 0.0
        positive = not scale and (values > 0).all() and (table > 0).all()
        size = np.full(len(steps), scale) if scale else np.maximum(np.abs(usual), 1e-3 * np.abs(table).max())
        away = np.log(values / usual) if positive else (values - usual) / size
        noise = np.array([quantity.noise, *(one.noise for one in others)]) / size[:, None]
        spread: Floats = np.full(len(steps), alone)
        if len(others) > 2:
            apart = np.log(table / usual) if positive else (table - usual) / size
            spread = np.maximum(least, _smooth(apart.std(axis=0, ddof=1)) * (1 + 2 / len(others)))
        unit = np.sqrt(spread**2 + (noise**2).sum(axis=1))
        times = np.abs(away) / unit
    far = times > FAR
    begin = next((at for at in range(len(far) - IN_A_ROW + 1) if far[at : at + IN_A_ROW].all()), None)
    if begin is None:
        return None
    # A difference that is there and gone again is that of a seed, which learning rates do not depend on.
    if quantity.group != "learning rate" and far[begin:].mean() < 0.5 and far.mean() < 0.25:
        return None
    at = begin + int(np.argmax(times[begin:]))
    last = int(steps[np.flatnonzero(far)[-1]])
    return _Difference(
        quantity.group,
        quantity.place,
        name,
        int(steps[begin]),
        last,
        float(values[at]),
        float(usual[at]),
        float(times[at]),
        bool(begin == 0),
    )


def _smooth(values: Floats) -> Floats:
    """Return the mean of each value and its neighbours."""
    padded = np.concatenate([values[:1], values, values[-1:]])
    mean: Floats = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    return mean


def write_summaries(path: Path, summaries: Iterable[Summary]) -> None:
    """Write a file of baselines; one that exists is replaced at once."""
    part = path.with_name(f".{path.name}.tmp")
    try:
        part.write_text(json.dumps({one.name: one.to_json() for one in summaries}) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise RunIOError(error.errno, f"cannot write the baselines: {error.strerror}", str(path)) from error


def is_baseline(path: Path) -> bool:
    """Whether a path is that of a file of baselines."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(content, dict) and all(isinstance(one, dict) and "quantities" in one for one in content.values())


def read_summaries(path: Path) -> list[Summary]:
    """Return the summaries of a file of baselines.

    Raises:
        SMDebugValueError: the file is no file of baselines.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [Summary.from_json(one) for one in content.values()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SMDebugValueError(f"{path} is no file of baselines: {type(error).__name__}: {error}") from None
