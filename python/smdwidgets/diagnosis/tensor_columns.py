"""Read the statistics of a run's tensors in one sweep.

A sweep reads reductions of all tensors and, where whole values were saved, computes what reductions cannot tell: how far
and in which direction weights moved, how many units are dead, how often one class wins. Values are read in portions of a
few megabytes and freed. A *sketch* represents a tensor between two saves: its elements with random signs, summed up in
61 numbers. Norms of differences and cosines of tensors follow from their sketches within about a tenth.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.inputs import TensorColumn, TensorColumns
from smdwidgets.diagnosis.tensor_roles import TensorRole, tensor_roles
from smdwidgets.trials import Trial
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.run import Progress
from smdwidgets.trials.tensorboard import TensorBoardTrial

__all__ = ["TensorReader", "read_tensors", "tensor_reader"]

REDUCTIONS = ("l2", "mean", "std", "min", "max")
COUNTS = ("size", "zero", "nan", "pos_inf", "neg_inf")
_OF_EVERY_ROW = frozenset({*REDUCTIONS, *COUNTS})
#: Numbers of a sketch. A prime, so that rows and columns of matrices spread over all of them.
SKETCH = 61
#: Values read at once, in bytes.
PORTION = 32 << 20
#: Samples that a judgement of units or classes needs.
SAMPLES = 256
#: Largest number of units of a layer that is watched.
UNITS = 1 << 16
#: Roles of which whole values say more than reductions do.
_READ_WHOLE = frozenset({"weight", "bias", "gradient", "activation", "output", "input"})

#: Name, mode and worker.
Key = tuple[str, str, str]


def read_tensors(run: object, until: int | None = None) -> TensorColumns:
    """Read the statistics of all tensors of a run."""
    reader = tensor_reader(run, until)
    return TensorColumns() if reader is None else reader.update()


def tensor_reader(run: object, until: int | None = None) -> TensorReader | None:
    """Return a reader of the tensors of a run that a hook wrote.

    Return None for logs and series in memory.
    """
    return TensorReader(run, until) if isinstance(run, Trial) and not isinstance(run, TensorBoardTrial) else None


@dataclass
class _Window:
    """Saves of an activation that together hold enough samples."""

    saves: deque[tuple[int, list[NDArray[Any]]]] = field(default_factory=deque)
    samples: int = 0

    def add(self, samples: int, parts: list[NDArray[Any]]) -> list[list[NDArray[Any]]] | None:
        """Add a save, and return the parts of the last saves.

        The parts have enough samples together. Return None if there are too few.
        """
        if self.saves and [one.shape for one in self.saves[-1][1]] != [one.shape for one in parts]:
            self.saves.clear()
            self.samples = 0
        self.saves.append((samples, parts))
        self.samples += samples
        while self.samples - self.saves[0][0] >= SAMPLES:
            self.samples -= self.saves.popleft()[0]
        return None if self.samples < SAMPLES else [parts for _, parts in self.saves]


@dataclass
class _Rows:
    """The columns of one tensor of a mode and worker, in portions.

    Also holds what the next portion continues.
    """

    steps: list[Steps] = field(default_factory=list)
    mode_steps: list[Steps] = field(default_factory=list)
    columns: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))
    sketch: tuple[Steps, Floats] = (np.empty(0, np.int64), np.empty((0, SKETCH)))
    window: _Window = field(default_factory=_Window)


class TensorReader:
    """Reads the statistics of new steps, and keeps those of earlier steps.

    Args:
        trial: the run.
        until: last step to read; None: all.

    Attributes:
        missing: what could not be read, by tensor.
    """

    def __init__(self, trial: Trial, until: int | None = None) -> None:
        self._trial = trial
        self._until = until
        self._rows: dict[Key, _Rows] = defaultdict(_Rows)
        self._roles: dict[str, TensorRole] = {}
        self._last = -1
        self._signs = np.empty(0, np.float32)
        self.missing: dict[str, str] = {}

    def update(self, progress: Progress | None = None) -> TensorColumns:
        """Read the steps that were saved since the last call.

        Return the statistics of all steps.

        ``progress`` is called with the number of records read and their total, first for reductions, then for values.
        """
        new = [step for step in self._trial.steps() if step > self._last]
        if self._until is not None:
            new = [step for step in new if step <= self._until]
        if new:
            self._last = new[-1]
            self._roles = tensor_roles(self._trial)
            if self._roles:
                self._read(new, progress)
        return self._columns()

    def _read(self, steps: Sequence[int], progress: Progress | None) -> None:
        names = list(self._roles)
        found = self._trial.reductions(names, steps, worker="*", reductions=REDUCTIONS, counts=True, progress=progress)
        for failure in found.errors:
            self.missing[failure.name] = f"unreadable at step {failure.step}: {failure.error}"
        whole = found["size"] >= 0
        at_step: dict[Key, Steps] = {}
        for key, rows in _groups(found):
            mine = self._rows[key]
            mine.steps.append(found["step"][rows].astype(np.int64))
            mine.mode_steps.append(found["mode_step"][rows].astype(np.int64))
            at_step[key] = mine.steps[-1]
            for column in REDUCTIONS:
                mine.columns[column].append(_real(found[column][rows]))
            for column in COUNTS:
                mine.columns[column].append(np.where(whole[rows], found[column][rows], np.nan))
            if not whole[rows].any():
                self.missing[key[0]] = "only reductions were saved"
        added: dict[Key, dict[str, Floats]] = defaultdict(dict)
        portions = list(self._portions(found, whole))
        done, total = 0, sum(len(steps) for portion in portions for steps in portion.values())
        for portion in portions:
            self._read_values(portion, at_step, added)
            done += sum(len(steps) for steps in portion.values())
            if progress is not None:
                progress(done, total)
        for key, at in at_step.items():
            mine = self._rows[key]
            for column in set(mine.columns) | set(added[key]):
                if column not in _OF_EVERY_ROW:
                    before = sum(len(one) for one in mine.steps[:-1])
                    if column not in mine.columns and before:
                        mine.columns[column].append(np.full(before, np.nan))
                    mine.columns[column].append(added[key].get(column, np.full(len(at), np.nan)))

    def _portions(self, found: Columns, whole: NDArray[np.bool_]) -> Iterator[dict[str, list[int]]]:
        """Split the values to read, by steps, into portions of bounded size."""
        role = np.array([self._roles[name].role in _READ_WHOLE for name in found["name"]], dtype=np.bool_)
        rows = np.flatnonzero(whole & role & np.isin(found["mode"], ("TRAIN", "GLOBAL")))
        rows = rows[np.argsort(found["step"][rows], kind="stable")]
        steps, sizes = found["step"][rows], found["size"][rows] * 4
        portion, taken, last = defaultdict[str, list[int]](list), 0, None
        for name, step, size in zip(found["name"][rows].tolist(), steps.tolist(), sizes.tolist(), strict=True):
            if taken > PORTION and step != last:
                yield portion
                portion, taken = defaultdict(list), 0
            last = step
            if not portion[name] or portion[name][-1] != step:
                portion[name].append(step)
            taken += size
        if portion:
            yield portion

    def _read_values(
        self, portion: dict[str, list[int]], at_step: dict[Key, Steps], added: dict[Key, dict[str, Floats]]
    ) -> None:
        found = self._trial.values(portion, worker="*")
        sketches: dict[Key, tuple[Steps, Floats]] = {}
        for key, rows in _groups(found):
            if key not in at_step:
                continue
            kept = [(np.asarray(found["value"][row]), row) for row in rows]
            kept = [(value, row) for value, row in kept if value.dtype.kind in "fV" and value.size]
            if not kept:
                continue
            values = [value if value.dtype.itemsize > 2 else value.astype(np.float32) for value, _ in kept]
            steps = found["step"][[row for _, row in kept]]
            role = self._roles[key[0]]
            columns: dict[str, Floats] = {}
            if role.role in ("weight", "bias", "gradient"):
                sketches[key] = steps, self._sketch(values)
            elif role.role == "input":
                columns["spread"] = np.array([_spread(value) for value in values])
            else:
                columns = _unit_columns(role, values, self._rows[key].window)
            self._add(added[key], columns, at_step[key], steps)
        self._compare(sketches, at_step, added)

    def _add(self, added: dict[str, Floats], columns: dict[str, Floats], all_steps: Steps, steps: Steps) -> None:
        places = np.searchsorted(all_steps, steps)
        for name, column in columns.items():
            if name not in added:
                added[name] = np.full(len(all_steps), np.nan)
            added[name][places] = column

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

    def _compare(
        self,
        sketches: dict[Key, tuple[Steps, Floats]],
        at_step: dict[Key, Steps],
        added: dict[Key, dict[str, Floats]],
    ) -> None:
        """Add how tensors changed between saves, and differ between workers."""
        joined = {}
        for key, (steps, sketch) in sketches.items():
            before, last = self._rows[key].sketch
            joined[key] = np.append(before, steps), np.concatenate([last, sketch])
            self._rows[key].sketch = steps[-1:], sketch[-1:]
        gradient_of = {role.order: name for name, role in self._roles.items() if role.role == "gradient"}
        first = min((key[2] for key in joined), default="")
        with np.errstate(all="ignore"):
            for key, (steps, sketch) in joined.items():
                if len(steps) < 1:
                    continue
                new = steps[-len(sketches[key][0]) :]
                difference = np.full(sketch.shape, np.nan)
                difference[1:] = sketch[1:] - sketch[:-1]
                role = self._roles[key[0]]
                columns = {}
                if role.role == "gradient":
                    columns["turn"] = np.append(np.nan, _cosine(sketch[1:], sketch[:-1]))
                else:
                    columns["update"] = np.linalg.norm(difference, axis=1)
                    gradient = gradient_of.get(role.order)
                    if gradient is not None and (other := joined.get((gradient, *key[1:]))) is not None:
                        columns["along"] = np.full(len(steps), np.nan)
                        both, here, there = np.intersect1d(steps[:-1], other[0], return_indices=True)
                        if len(both):
                            columns["along"][here + 1] = _cosine(difference[here + 1], other[1][there])
                    leader = joined.get((key[0], key[1], first))
                    if key[2] != first and leader is not None:
                        columns["apart"] = np.full(len(steps), np.nan)
                        _, here, there = np.intersect1d(steps, leader[0], return_indices=True)
                        norm = np.linalg.norm(leader[1][there], axis=1)
                        distance = np.linalg.norm(sketch[here] - leader[1][there], axis=1)
                        columns["apart"][here] = np.where(distance == 0, 0.0, distance / norm)
                self._add(added[key], {name: one[-len(new) :] for name, one in columns.items()}, at_step[key], new)

    def _columns(self) -> TensorColumns:
        found = []
        for (name, mode, worker), rows in self._rows.items():
            role = self._roles[name]
            steps = np.concatenate(rows.steps)
            columns = {column: np.concatenate(parts) for column, parts in rows.columns.items()}
            if not role.role and np.nanmax(columns["size"], initial=0) <= 1:
                continue
            found.append(
                TensorColumn(
                    name,
                    role.role,
                    role.layer,
                    role.module,
                    role.order,
                    mode,
                    worker,
                    steps,
                    np.concatenate(rows.mode_steps),
                    columns,
                )
            )
        return TensorColumns(found)


def _groups(found: Columns) -> Iterator[tuple[Key, NDArray[np.intp]]]:
    """Yield the rows of each name, mode and worker, by ascending step."""
    names, modes, workers = found["name"].tolist(), found["mode"].tolist(), found["worker"].tolist()
    rows: dict[Key, list[int]] = defaultdict(list)
    for row, key in enumerate(zip(names, modes, workers, strict=True)):
        rows[key].append(row)
    for key, some in rows.items():
        yield key, np.array(some, dtype=np.intp)


def _real(column: NDArray[Any]) -> Floats:
    return (np.abs(column) if column.dtype.kind == "c" else column).astype(np.float64)


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


def _unit_columns(role: TensorRole, values: list[NDArray[Any]], window: _Window) -> dict[str, Floats]:
    """Return the shares of dead units, saturated values and the most frequent class.

    Each has one value per save.
    """
    dead, saturated, majority, classes, saves = (np.full(len(values), np.nan) for _ in range(5))
    for row, value in enumerate(values):
        if value.ndim < 2 or value.shape[1] < 2 or value.shape[1] > UNITS or value.shape[-1] > UNITS:
            continue
        if role.role == "output":
            if value.ndim == 2 and np.isfinite(value).all():
                classes[row] = value.shape[1]
                wins = np.bincount(value.argmax(axis=1), minlength=value.shape[1])
                together = window.add(len(value), [wins])
                if together is not None:
                    saves[row] = len(together)
                    total = np.sum([part[0] for part in together], axis=0)
                    majority[row] = total.max() / total.sum()
            continue
        active = value != 0
        axes = {1, value.ndim - 1}
        parts = [active.any(axis=tuple(each for each in range(value.ndim) if each != axis)) for axis in sorted(axes)]
        together = window.add(len(value), parts)
        if together is not None:
            saves[row] = len(together)
            dead[row] = max(
                1 - float(np.any([part[at] for part in together], axis=0).mean()) for at in range(len(parts))
            )
        if role.module in ("", "Tanh", "Sigmoid"):
            saturated[row] = _saturated(value, role.module)
    if role.role == "output":
        return {"majority": majority, "classes": classes, "saves": saves}
    return {"dead": dead, "saturated": saturated, "saves": saves}


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
