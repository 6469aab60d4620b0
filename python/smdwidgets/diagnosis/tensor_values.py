"""Compute from saved values what statistics of tensors cannot tell.

That is how many units are dead or saturated, how often one class wins, how features differ in scale, whether weights
follow their gradients, and how far workers are apart. Values are read in portions of a few megabytes and freed.
Weights, gradients and inputs are read at the first saves only, and weights of several workers where their statistics
differ.

A *sketch* represents a tensor: its elements with random signs, summed up in 61 numbers. Cosines of tensors follow from
their sketches within about a tenth.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.tensor_roles import TensorRole
from smdwidgets.trials import Trial
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.run import Progress

__all__ = ["Key", "ValueReader"]

#: Numbers of a sketch. A prime, so that rows and columns of matrices spread over all of them.
SKETCH = 61
#: Values read at once, in bytes.
PORTION = 32 << 20
#: Samples that a judgement of units or classes needs.
SAMPLES = 256
#: Largest number of units of a layer that is watched.
UNITS = 1 << 16
#: Saves of weights, gradients and inputs that are read.
EARLY = 50
_READ_EARLY = frozenset({"weight", "gradient", "input"})
_READ_ALWAYS = frozenset({"activation", "output"})

#: Name, mode and worker.
Key = tuple[str, str, str]
#: Steps and values by column.
Computed = dict[str, tuple[Steps, Floats]]
_Parts = list[NDArray[Any]]


@dataclass
class _Window:
    """Saves of an activation that together hold enough samples."""

    saves: deque[tuple[int, int, _Parts]] = field(default_factory=deque)
    samples: int = 0

    def add(self, step: int, samples: int, parts: _Parts) -> tuple[int, list[_Parts]] | None:
        """Add a save; return the first step and the parts of the last saves.

        The parts have enough samples together. Return None if there are too few.
        """
        if self.saves and [one.shape for one in self.saves[-1][2]] != [one.shape for one in parts]:
            self.saves.clear()
            self.samples = 0
        self.saves.append((step, samples, parts))
        self.samples += samples
        while self.samples - self.saves[0][1] >= SAMPLES:
            self.samples -= self.saves.popleft()[1]
        return None if self.samples < SAMPLES else (self.saves[0][0], [parts for *_, parts in self.saves])


class ValueReader:
    """Reads values of new steps; keeps what those of later steps need."""

    def __init__(self) -> None:
        self._saves: Counter[str] = Counter()
        self._windows: dict[Key, _Window] = defaultdict(_Window)
        #: Step and sketch of the last save that was read.
        self._last: dict[Key, tuple[Steps, Floats]] = {}
        self._signs = np.empty(0, np.float32)

    def update(
        self,
        trial: Trial,
        roles: Mapping[str, TensorRole],
        steps: Sequence[int],
        at_step: Mapping[Key, Steps],
        statistics: Mapping[Key, Mapping[str, Floats]],
        progress: Progress | None,
    ) -> dict[Key, Computed]:
        """Read the values of new steps, and return columns by tensor.

        Args:
            trial: the run.
            roles: roles of all tensors.
            steps: the new steps.
            at_step: steps of the new statistics.
            statistics: the new statistics.
            progress: called with the number of values read and their total.
        """
        apart = _apart(roles, at_step, statistics)
        found: dict[Key, Computed] = defaultdict(dict)
        portions = list(self._portions(trial, roles, steps, at_step, statistics, apart))
        done, total = 0, sum(len(steps) for portion in portions for steps in portion.values())
        for portion in portions:
            for key, columns in self._read(trial.values(portion, worker="*"), roles, apart).items():
                for name, (at, values) in columns.items():
                    _append(found[key], name, at, values)
            done += sum(len(steps) for steps in portion.values())
            if progress is not None:
                progress(done, total)
        for key, where in apart.items():
            same = at_step[key][~np.isin(at_step[key], where)]
            _append(found[key], "apart", same, np.zeros(len(same)))
        return found

    def _portions(
        self,
        trial: Trial,
        roles: Mapping[str, TensorRole],
        steps: Sequence[int],
        at_step: Mapping[Key, Steps],
        statistics: Mapping[Key, Mapping[str, Floats]],
        apart: Mapping[Key, Steps],
    ) -> Iterator[dict[str, list[int]]]:
        """Split the values to read, by steps, into portions of bounded size."""
        index = trial.reader.index
        first, last = steps[0], steps[-1]
        size: dict[str, float] = {}
        training: dict[str, list[Steps]] = defaultdict(list)
        for (name, mode, _), at in at_step.items():
            role = roles[name].role
            if mode in ("TRAIN", "GLOBAL") and role in _READ_EARLY | _READ_ALWAYS:
                training[name].append(at)
        for (name, *_), columns in statistics.items():
            size[name] = max(size.get(name, 0.0), float(np.nanmax(columns["count"], initial=0)) * 4)
        differing: dict[str, set[int]] = defaultdict(set)
        for (name, *_), at in apart.items():
            if len(at):
                differing[name].update(at.tolist())
        wanted: dict[int, list[str]] = defaultdict(list)
        for name, trained in training.items():
            if not size[name]:
                continue  # only reductions were saved
            of_name = set().union(*(at.tolist() for at in trained))
            saved = [step for step in index.steps_of(name) if first <= step <= last and step in of_name]
            early = len(saved) if roles[name].role in _READ_ALWAYS else max(0, EARLY - self._saves[name])
            self._saves[name] += len(saved)
            for number, step in enumerate(saved):
                if number < early or step in differing.get(name, ()):
                    wanted[step].append(name)
        portion, taken = defaultdict[str, list[int]](list), 0.0
        for step in sorted(wanted):
            if taken > PORTION:
                yield portion
                portion, taken = defaultdict(list), 0.0
            for name in wanted[step]:
                portion[name].append(step)
                taken += size[name]
        if portion:
            yield portion

    def _read(self, table: Columns, roles: Mapping[str, TensorRole], apart: Mapping[Key, Steps]) -> dict[Key, Computed]:
        values: dict[Key, list[tuple[int, NDArray[Any]]]] = defaultdict(list)
        keys = zip(*(table[column].tolist() for column in ("name", "mode", "worker", "step")), strict=True)
        for row, (name, mode, worker, step) in enumerate(keys):
            value = np.asarray(table["value"][row])
            if value.dtype.kind in "fV" and value.size:
                whole = value if value.dtype.itemsize > 2 else value.astype(np.float32)
                values[name, mode, worker].append((step, whole))
        found: dict[Key, Computed] = {}
        sketches: dict[Key, tuple[Steps, Floats]] = {}
        del table
        for key in list(values):
            role, saves = roles[key[0]], values.pop(key)  # each is freed once it was looked at
            if role.role in ("weight", "gradient"):
                if role.role == "weight":
                    found[key] = {
                        "units": (np.array([step for step, _ in saves]), np.array([_equal_units(v) for _, v in saves]))
                    }
                sketches[key] = np.array([step for step, _ in saves]), self._sketch([value for _, value in saves])
            elif role.role == "input":
                found[key] = {
                    "spread": (np.array([step for step, _ in saves]), np.array([_spread(v) for _, v in saves]))
                }
            else:
                found[key] = _unit_columns(role, saves, self._windows[key])
        for key, columns in self._compared(sketches, roles, apart).items():
            found[key] = found.get(key, {}) | columns
        return found

    def _sketch(self, values: list[NDArray[Any]]) -> Floats:
        """Return the sketch of each value, which must be of one tensor."""
        out = np.empty((len(values), SKETCH))
        for row, value in enumerate(values):
            flat = value.reshape(-1)
            if len(self._signs) < flat.size:
                size = -(-flat.size // SKETCH) * SKETCH
                signs = np.random.default_rng(0).integers(0, 2, size, dtype=np.int8)
                self._signs = (2 * signs - 1).astype(np.float32)
            rest = flat.size % SKETCH
            body = flat.size - rest
            signed = flat * self._signs[: flat.size]
            out[row] = signed[:body].reshape(-1, SKETCH).sum(axis=0, dtype=np.float64)
            out[row, :rest] += signed[body:]
        return out

    def _compared(
        self,
        sketches: Mapping[Key, tuple[Steps, Floats]],
        roles: Mapping[str, TensorRole],
        apart: Mapping[Key, Steps],
    ) -> dict[Key, Computed]:
        """Return how changes of weights follow gradients, and the distance of workers."""
        joined = {}
        for key, (steps, sketch) in sketches.items():
            joined[key] = steps, sketch
            if (before := self._last.get(key)) is not None:
                joined[key] = np.append(before[0], steps), np.concatenate([before[1], sketch])
            self._last[key] = steps[-1:], sketch[-1:]
        gradient_of = {role.order: name for name, role in roles.items() if role.role == "gradient"}
        found: dict[Key, Computed] = defaultdict(dict)
        with np.errstate(all="ignore"):
            for key, (steps, sketch) in joined.items():
                role = roles[key[0]]
                if role.role != "weight":
                    continue
                gradient = joined.get((gradient_of.get(role.order, ""), *key[1:]))
                if gradient is not None:
                    both, here, there = np.intersect1d(steps[:-1], gradient[0], return_indices=True)
                    if len(both):
                        change = sketch[here + 1] - sketch[here]
                        found[key]["along"] = steps[here + 1], _cosine(change, gradient[1][there])
                if key in apart:
                    leader = joined.get((key[0], key[1], _leader(key, joined)))
                    if leader is not None:
                        both, here, there = np.intersect1d(steps, leader[0], return_indices=True)
                        norm = np.linalg.norm(leader[1][there], axis=1)
                        distance = np.linalg.norm(sketch[here] - leader[1][there], axis=1)
                        where = np.isin(both, apart[key])
                        found[key]["apart"] = both[where], np.where(distance == 0, 0.0, distance / norm)[where]
        return found


def _leader(key: Key, keys: Mapping[Key, object]) -> str:
    """Return the first worker that has a tensor in a mode."""
    return min(worker for name, mode, worker in keys if (name, mode) == key[:2])


def _append(columns: Computed, name: str, at: Steps, values: Floats) -> None:
    """Append to a column, which may be new."""
    known = columns.get(name, (np.empty(0, np.int64), np.empty(0)))
    columns[name] = np.append(known[0], at), np.append(known[1], values)


def _apart(
    roles: Mapping[str, TensorRole], at_step: Mapping[Key, Steps], statistics: Mapping[Key, Mapping[str, Floats]]
) -> dict[Key, Steps]:
    """Return the steps at which statistics of a weight differ from the first worker's.

    Workers whose statistics are equal have the same weights.
    """
    workers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, mode, worker in at_step:
        if roles[name].role == "weight" and mode in ("TRAIN", "GLOBAL"):
            workers[name, mode].append(worker)
    found = {}
    for (name, mode), some in workers.items():
        first, *others = sorted(some)
        for worker in others:
            key, leader = (name, mode, worker), (name, mode, first)
            both, here, there = np.intersect1d(at_step[key], at_step[leader], return_indices=True)
            differs = np.zeros(len(both), dtype=bool)
            for column in ("l2", "std"):
                differs |= statistics[key][column][here] != statistics[leader][column][there]
            found[key] = both[differs]
    return found


def _cosine(one: Floats, other: Floats) -> Floats:
    product: Floats = (one * other).sum(axis=1)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.where(norms > 0, product / np.where(norms > 0, norms, 1), np.nan)


def _spread(value: NDArray[Any]) -> float:
    """Return the largest standard deviation of a feature, divided by the smallest."""
    if value.ndim != 2 or len(value) < 8 or value.shape[1] < 2:
        return np.nan
    with np.errstate(all="ignore"):
        deviation = value.std(axis=0)
    varied = deviation[deviation > 0]
    return float(varied.max() / varied.min()) if len(varied) > 1 else np.nan


def _equal_units(value: NDArray[Any]) -> float:
    """Return the number of units of a weight if all are equal, else 0.

    Units are rows or columns: frameworks store them either way.
    """
    if value.ndim < 2 or min(value.shape[0], value.shape[-1]) < 2 or not value.any():
        return np.nan
    for units in (value.reshape(value.shape[0], -1), value.reshape(-1, value.shape[-1]).T):
        # The first two units differ in nearly every weight there is, most often in their first value.
        if (
            math.isclose(units[0, 0], units[1, 0], rel_tol=2e-5)
            and np.allclose(units[0], units[1], 1e-5, 0)
            and np.allclose(units, units[0], 1e-5, 0)
        ):
            return float(len(units))
    return 0.0


def _unit_columns(role: TensorRole, saves: list[tuple[int, NDArray[Any]]], window: _Window) -> Computed:
    """Return the shares of dead units, saturated values and the most frequent class.

    A dead unit is never above 0.
    ``since`` is the first step of the saves that were judged together.
    """
    steps = np.array([step for step, _ in saves], dtype=np.int64)
    names = ("majority", "classes", "since") if role.role == "output" else ("dead", "saturated", "since")
    columns = {name: np.full(len(saves), np.nan) for name in names}
    for row, (step, value) in enumerate(saves):
        if value.ndim < 2 or value.shape[1] < 2 or value.shape[1] > UNITS or value.shape[-1] > UNITS:
            continue
        if role.role == "output":
            if value.ndim == 3:  # one prediction per place of a sequence
                value = value.reshape(-1, value.shape[-1])
            if value.ndim == 2 and np.isfinite(value).all():
                columns["classes"][row] = value.shape[1]
                wins = np.bincount(value.argmax(axis=1), minlength=value.shape[1])
                together = window.add(step, len(value), [wins])
                if together is not None:
                    columns["since"][row], judged = together
                    total = np.sum([part[0] for part in judged], axis=0)
                    columns["majority"][row] = total.max() / total.sum()
            continue
        active = value > 0
        axes = {1, value.ndim - 1}
        parts = [
            np.asarray(active.any(axis=tuple(each for each in range(value.ndim) if each != axis)))
            for axis in sorted(axes)
        ]
        together = window.add(step, len(value), parts)
        if together is not None:
            columns["since"][row], judged = together
            columns["dead"][row] = max(
                1 - float(np.any([part[at] for part in judged], axis=0).mean()) for at in range(len(parts))
            )
        if role.module in ("", "Tanh", "Sigmoid"):
            columns["saturated"][row] = _saturated(value, role.module)
    return {name: (steps, column) for name, column in columns.items()}


def _saturated(value: NDArray[Any], module: str) -> float:
    """Return the share of values at the limits of a tanh or sigmoid.

    The share is NaN for other activations.
    """
    low, high = float(value.min()), float(value.max())
    if module != "Sigmoid" and -1 <= low < 0 and high <= 1:
        return float((np.abs(value) > 0.99).mean())
    if module == "Sigmoid" and low >= 0 and high <= 1:
        return float((np.abs(value - 0.5) > 0.495).mean())
    return np.nan
