"""Cache of statistics of a run's tensors, shared by all rules on the run.

Rules read *columns*: one number per tensor (and worker) at a step, such as ``abs_mean`` or ``nan``. A runner prefetches
the columns of all its rules for many steps in one sweep, so that each record is read once for any number of rules. A
rule that runs alone fetches its columns step by step. Columns are cached up to a limit in bytes, so that a rule that
runs again with a changed limit reads only evicted columns.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import natural
from smdwidgets.exceptions import TensorUnavailable, TensorUnavailableForStep
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.scalar_columns import ScalarColumns, columns_of_log, columns_of_steps
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.sweep import Cancelled, read_column, read_values, sweep_trial
from smdwidgets.rules.tables import SCALAR, Need, StepTable
from smdwidgets.trials.widening import widened

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["Measurements", "measurements_of"]

#: Cache limit in bytes per run; the oldest entries are evicted first, and read again when needed.
CACHE_BYTES = 64 * 1024 * 1024
#: Approximate overhead in bytes of one cached result: its key and dictionary entry.
ENTRY_OVERHEAD = 400
#: Number of steps whose names and modes are cached; larger than the look-back of any rule.
CACHED_STEPS = 4096
#: Maximum number of distinct sets of names that steps share.
CACHED_LAYOUTS = 256

#: Number of steps that a fold prefetches at once.
FOLDED_AT_ONCE = 256

V = TypeVar("V")
Layout = tuple[tuple[str, ...], tuple[str | None, ...]]


class Measurements:
    """Cached columns of one run. Thread-safe."""

    def __init__(self, trial: Trial, cache_bytes: int = CACHE_BYTES) -> None:
        # A weak reference, because the global registry of measurements must not keep the trial alive.
        self._trial = weakref.ref(trial)
        #: `trial.restarts` of the run that was measured.
        self.restarts = trial.restarts
        self._lock = threading.RLock()
        self._tables: OrderedDict[tuple[Selector, int], StepTable] = OrderedDict()
        self._derived: OrderedDict[tuple[Hashable, ...], Any] = OrderedDict()
        self._folds: dict[tuple[Hashable, ...], tuple[int | None, Any]] = {}
        self._columns: dict[Selector, tuple[int, ScalarColumns | None]] = {}
        self._bytes = 0
        self._cache_bytes = cache_bytes
        self._steps = array("q")
        self._modes: OrderedDict[int, ModeKeys] = OrderedDict()
        self._rosters: OrderedDict[int, tuple[str, ...]] = OrderedDict()
        self._last_listed: list[str] = []
        self._last_roster: tuple[str, ...] = ()
        self._selected_names: dict[tuple[Selector, tuple[str, ...]], tuple[str, ...]] = {}
        #: Names and workers of tables; steps with equal names share one object.
        self._layouts: dict[Layout, Layout] = {}
        #: Number of records read, for tests that each record is read once.
        self.records_read = 0

    @property
    def trial(self) -> Trial:
        """The trial that the columns are read from."""
        trial = self._trial()
        if trial is None:
            raise ReferenceError("the trial of these measurements was garbage-collected; keep a reference to it")
        return trial

    # ------------------------------------------------------------------------------------------------ steps and names

    def _steps_to(self, step: int) -> array[int]:
        """Return the saved steps, ascending, at least up to this one.

        The returned array is never modified.
        """
        with self._lock:
            if not self._steps or self._steps[-1] < step:
                self._steps = array("q", self.trial.steps())
            return self._steps

    def steps_between(self, after: int | None, until: int) -> Sequence[int]:
        """Return saved steps in (after, until], ascending; `after` None means all.

        The cost depends on the number of returned steps.
        """
        steps = self._steps_to(until)
        return steps[0 if after is None else bisect_right(steps, after) : bisect_right(steps, until)]

    def earlier_steps(self, step: int, mode: ModeKeys | None = None) -> Iterator[int]:
        """Yield saved steps before this one, latest first, optionally of one mode."""
        steps = self._steps_to(step - 1)
        for at in range(bisect_left(steps, step) - 1, -1, -1):
            if mode is None or self.mode(steps[at]) == mode:
                yield steps[at]

    def mode(self, step: int) -> ModeKeys:
        """Return the mode of a global step."""
        with self._lock:
            mode = self._modes.get(step)
            if mode is None:
                mode = self._modes[step] = self.trial.mode(step) or ModeKeys.GLOBAL
                if len(self._modes) > CACHED_STEPS:
                    self._modes.popitem(last=False)
            return mode

    def names_at(self, step: int) -> tuple[str, ...]:
        """Return the names of the tensors saved at a step, in natural order."""
        with self._lock:
            names = self._rosters.get(step)
            if names is None:
                listed = self.trial.tensor_names(step=step)
                if listed != self._last_listed:  # steps usually save the same tensors, so share one tuple
                    self._last_listed, self._last_roster = listed, tuple(sorted(listed, key=natural))
                names = self._rosters[step] = self._last_roster
                if len(self._rosters) > CACHED_STEPS:
                    self._rosters.popitem(last=False)
            return names

    def names(self, selector: Selector, step: int) -> tuple[str, ...]:
        """Return the names of the selected tensors saved at a step."""
        roster = self.names_at(step)
        if selector.everything:
            return roster
        with self._lock:
            selected_names = self._selected_names.get((selector, roster))
            if selected_names is None:
                chosen = selector.names_at(self.trial, step)
                selected_names = tuple(name for name in roster if name in chosen)
                self._selected_names[selector, roster] = selected_names
            return selected_names

    def earlier(
        self, names: Iterable[str], step: int, mode: ModeKeys | None = None, newest: int | None = None
    ) -> dict[str, int]:
        """Return, per name, the latest earlier step at which it was saved.

        Steps after `newest` are ignored.
        """
        found: dict[str, int] = {}
        missing = set(names)
        for before in self.earlier_steps(step, mode):
            if newest is not None and before > newest:
                continue
            here = missing.intersection(self.names_at(before))
            found.update(dict.fromkeys(here, before))
            missing -= here
            if not missing:
                break
        return found

    # -------------------------------------------------------------------------------------------------------- columns

    def table(self, selector: Selector, step: int, columns: Sequence[str] = ()) -> StepTable:
        """Return the selected tensors at a step with these columns."""
        with self._lock:
            table = self._tables.get((selector, step))
            if table is None or any(column not in table.columns for column in columns):
                self._fetch({step: {selector: tuple(columns)}}, None)
                table = self._tables[selector, step]
            return table

    def prefetch(
        self, needs: Iterable[Need], steps: Sequence[int], cancelled: Callable[[], bool] | None = None
    ) -> None:
        """Fetch missing columns for many steps in one sweep."""
        merged: dict[Selector, dict[str, None]] = {}
        for need in needs:
            merged.setdefault(need.selector, {}).update(dict.fromkeys(need.columns))
        with self._lock:
            wanted: dict[int, dict[Selector, tuple[str, ...]]] = {}
            for step in steps:
                for selector, columns in merged.items():
                    table = self._tables.get((selector, step))
                    if table is None or any(column not in table.columns for column in columns):
                        wanted.setdefault(step, {})[selector] = tuple(columns)
            if wanted:
                self._fetch(wanted, cancelled)

    def rows(self, needs: Iterable[Need], step: int) -> int:
        """Estimate the number of tensors that a prefetch of one step reads."""
        names: set[str] = set()
        for need in needs:
            names.update(self.names(need.selector, step))
        return len(names) * max(len(self.trial.workers()), 1)

    def _fetch(self, wanted: dict[int, dict[Selector, tuple[str, ...]]], cancelled: Callable[[], bool] | None) -> None:
        selected_names = {
            (selector, step): self.names(selector, step) for step, each in wanted.items() for selector in each
        }
        # In natural order, so that the rows of a table do not depend on the steps that are fetched with it.
        names = sorted({name for each in dict.fromkeys(selected_names.values()) for name in each}, key=natural)
        columns = list(dict.fromkeys(column for each in wanted.values() for some in each.values() for column in some))
        for key in selected_names:  # empty tables mark these as fetched, even if the sweep finds no rows
            if not self._tables.get(key):
                self._merge(key, StepTable(key[1], (), (), {column: np.empty(0) for column in wanted[key[1]][key[0]]}))
        if not names:
            return
        steps = sorted(wanted)
        try:
            swept = sweep_trial(self.trial, names, steps, columns, cancelled)
        except Cancelled:
            for key in selected_names:
                table = self._tables.get(key)
                if table is not None and not len(table):
                    self._drop(key)
            raise
        self.records_read += len(swept.step)
        selected = {
            each: np.array([name in set_of for name in names])
            for each, set_of in ((names_, set(names_)) for names_ in dict.fromkeys(selected_names.values()))
        }
        order = np.argsort(swept.step, kind="stable")
        at = swept.step[order]
        layouts: dict[bytes, Layout] = {}
        for step in steps:
            rows = order[np.searchsorted(at, step, "left") : np.searchsorted(at, step, "right")]
            for selector, columns_needed in wanted[step].items():
                mine = rows[selected[selected_names[selector, step]][swept.name[rows]]]
                key = swept.name[mine].tobytes() + swept.worker[mine].tobytes()
                if key not in layouts:
                    layouts[key] = self._layout(
                        tuple(names[code] for code in swept.name[mine]),
                        tuple(swept.workers[code] for code in swept.worker[mine]),
                    )
                bad = tuple(
                    (name, text) for name, text in swept.errors.get(step, ()) if name in selected_names[selector, step]
                )
                missing = {
                    column: gaps
                    for column in columns_needed
                    if column in swept.missing and (gaps := swept.missing[column][mine]).any()
                }
                table = StepTable(
                    step,
                    *layouts[key],
                    {column: swept.columns[column][mine] for column in columns_needed},
                    missing,
                    bad,
                )
                self._merge((selector, step), table)

    def _layout(self, names: tuple[str, ...], workers: tuple[str | None, ...]) -> Layout:
        if len(self._layouts) >= CACHED_LAYOUTS:
            self._layouts.clear()
        return self._layouts.setdefault((names, workers), (names, workers))

    def _merge(self, key: tuple[Selector, int], new: StepTable) -> None:
        old = self._tables.get(key)
        if old is not None and (old.names, old.workers) == (new.names, new.workers):
            new = StepTable(
                new.step,
                old.names,
                old.workers,
                {**old.columns, **new.columns},
                {**old.missing, **new.missing},
                new.unreadable,
            )
        if old is not None:
            self._drop(key)
        self._store(key, new)

    def _store(self, key: tuple[Selector, int], table: StepTable) -> None:
        self._tables[key] = table
        self._bytes += table.nbytes
        while self._bytes > self._cache_bytes and len(self._tables) > 1:
            self._drop(next(iter(self._tables)))

    def _drop(self, key: tuple[Selector, int]) -> None:
        self._bytes -= self._tables.pop(key).nbytes

    # ------------------------------------------------------------------------------------ values and derived results

    def value(self, name: str, step: int, worker: str | None = None) -> NDArray[Any]:
        """Return the value of a tensor; of a type that NumPy lacks, as float32."""
        return widened(self.trial.tensor(name).value(step, worker=worker))

    def values(self, table: StepTable, rows: NDArray[np.intp], step: int) -> NDArray[Any] | list[NDArray[Any] | None]:
        """Return the values of these rows at a step.

        Returns one array (rows, ...) if all values have the same shape and dtype, else a list with None for missing
        values.
        """
        self.records_read += len(rows)
        return read_values(self.trial, [(table.names[row], table.workers[row]) for row in rows], step)

    def reduction(self, name: str, step: int, worker: str | None, column: str) -> float | None:
        """Return one reduction of one tensor, or None if it is not available."""
        try:
            return read_column(self.trial, name, step, worker, column)
        except (TensorUnavailableForStep, TensorUnavailable):
            return None

    def workers(self, name: str, step: int) -> tuple[str | None, ...]:
        """Return the workers that saved a tensor at a step; (None,) for a single worker."""
        if len(self.trial.workers()) <= 1:
            return (None,)
        return tuple(self.trial.tensor(name).workers(step))

    def position(self, step: int, mode: ModeKeys | None) -> int:
        """Convert a global step to a mode step; None and GLOBAL return it unchanged."""
        return step if mode is None or mode == ModeKeys.GLOBAL else int(self.trial.mode_step(step) or 0)

    def fold(
        self, key: tuple[Hashable, ...], step: int, start: V, add: Callable[[V, int], V], needs: Iterable[Need] = ()
    ) -> V:
        """Accumulate a state over all steps up to this one, in order.

        The state is cached, and a call for a later step continues from it. `add` must return a new state and not modify
        its argument. `needs` are prefetched for many steps at once.
        """
        with self._lock:
            last, state = self._folds.get(key, (None, start))
            if last is not None and last > step:  # an earlier step: start again from the first step
                last, state = None, start
            todo = self.steps_between(last, step)
            for at, each in enumerate(todo):
                if at % FOLDED_AT_ONCE == 0 and len(todo) > 1:
                    self.prefetch(needs, todo[at : at + FOLDED_AT_ONCE])
                state = add(cast("V", state), each)
            if todo:
                self._folds[key] = (todo[-1], state)
            return cast("V", state)

    def scalars(self, selector: Selector, steps: Sequence[int]) -> ScalarColumns:
        """Return the selected scalars at consecutive saved steps, averaged over workers."""
        log = self._log_columns(selector) if len(steps) > 1 else None
        part = None if log is None else log.part(steps)
        if part is not None:
            return part
        rows = self.each_step(
            [Need(selector, SCALAR)], steps, lambda step: self.table(selector, step, SCALAR).scalars()
        )
        return self.as_columns(steps, rows)

    def each_step(self, needs: Sequence[Need], steps: Sequence[int], compute: Callable[[int], V]) -> list[V]:
        """Return a result at each of these steps.

        `needs` are prefetched for many steps at once.
        """
        results: list[V] = []
        for begin in range(0, len(steps), FOLDED_AT_ONCE):
            portion = steps[begin : begin + FOLDED_AT_ONCE]
            if len(portion) > 1:
                self.prefetch(needs, portion)
            results += map(compute, portion)
        return results

    def as_columns(self, steps: Sequence[int], scalars: Sequence[dict[str, float]]) -> ScalarColumns:
        """Return the scalars of each step, by name, as columns."""
        modes = [self.mode(step) for step in steps]
        mode_steps = [self.position(step, mode) for step, mode in zip(steps, modes, strict=True)]
        return columns_of_steps(steps, scalars, modes, mode_steps)

    def _log_columns(self, selector: Selector) -> ScalarColumns | None:
        """Return the selected scalars of a log at all steps, if they are columns."""
        reader = getattr(self.trial, "reader", None)
        if reader is None:
            return None
        with self._lock:
            generation = reader.index.generation
            known = self._columns.get(selector)
            if known is None or known[0] != generation:
                known = self._columns[selector] = generation, columns_of_log(self.trial, selector)
            return known[1]

    def cached(self, key: tuple[Hashable, ...], compute: Callable[[], V]) -> V:
        """Return a cached result, computed on first use.

        The key must contain everything that the result depends on: kind, tensors, step and parameters.
        """
        with self._lock:
            if key in self._derived:
                return cast("V", self._derived[key])
        result = compute()
        with self._lock:
            if key not in self._derived:
                self._derived[key] = result
                self._bytes += ENTRY_OVERHEAD + _size(result)
            while self._bytes > self._cache_bytes and len(self._derived) > 1:
                self._bytes -= ENTRY_OVERHEAD + _size(self._derived.popitem(last=False)[1])
        return result


def _size(result: object) -> int:
    """Estimate the bytes of a cached result."""
    if isinstance(result, np.ndarray):
        return 128 + result.nbytes
    if isinstance(result, Mapping):
        return 128 + sum(_size(value) for value in result.values())
    if isinstance(result, list | tuple):
        return 64 + sum(_size(value) for value in result)
    return 64


_all: dict[int, tuple[weakref.ref[Trial], Measurements]] = {}
_all_lock = threading.Lock()


def measurements_of(trial: Trial) -> Measurements:
    """Return the measurements of a trial, shared by all rules on it.

    Trials are compared by identity, because trials of the same path are equal.
    """
    with _all_lock:
        known = _all.get(id(trial))
        if known is not None and known[0]() is trial and known[1].restarts == trial.restarts:
            return known[1]
        key = id(trial)
        found = Measurements(trial)
        _all[key] = weakref.ref(trial, lambda reference: _remove(key, reference)), found
        return found


def _remove(key: int, reference: weakref.ref[Trial]) -> None:
    known = _all.get(key)
    if known is not None and known[0] is reference:
        del _all[key]
