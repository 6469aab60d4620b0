"""Follow a run that may still be growing, and answer questions about its index.

:class:`~smdwidgets.trials.trial.Trial` is the interface of users; ``trial.reader`` is that of the other modules of the
package.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple, NoReturn, TypeVar

from smdwidgets._text import shown, visible
from smdwidgets.checks.record import CheckRecords
from smdwidgets.config.collection_manager import CollectionManager
from smdwidgets.exceptions import IndexReaderException, MissingCollectionFiles, TrialClosed
from smdwidgets.modes import ModeKeys
from smdwidgets.run_end import RunEnd
from smdwidgets.signals.record import Signals
from smdwidgets.signals.rows import SignalRow, signal_rows
from smdwidgets.trials import environment
from smdwidgets.trials.completeness import Completeness
from smdwidgets.trials.incidents import Incidents
from smdwidgets.trials.run import Course, Getter, Index, RecordedStatistics, Row, Run, Values, is_text, possible
from smdwidgets.trials.wait import logger, wait_until

T = TypeVar("T")

#: Default seconds to wait for collection files when a trial is opened.
WAIT_FOR_COLLECTIONS = 600.0
#: Seconds after which that wait is logged.
_LOG_WAIT_AFTER = 1.0
#: Seconds between two checks of an ended run for another run in the same place.
_CHECK_ENDED_EVERY = 1.0


class StepState(Enum):
    """Availability of a step."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Reopening(NamedTuple):
    """How another process opens the same trial.

    Attributes:
        function: creates the trial, without reading its index.
        arguments: its positional arguments.
        options: its keyword arguments.
        has_catalog: whether the trial can be given the catalog of its run; otherwise it reads the run's files.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    has_catalog: bool


def reopened(cls: Callable[..., T], options: dict[str, Any]) -> T:
    """Reopen the run of a pickled trial."""
    return cls(**options)


def checked_range(range_steps: tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
    """Validate ``range_steps`` and return begin (inclusive) and end (exclusive).

    None means unbounded.

    >>> checked_range((100, None))
    (100, None)
    """
    if range_steps is None:
        return None, None
    # AssertionError for compatibility with smdebug; `python -O` would remove an `assert` statement.
    try:
        begin, end = range_steps
    except (TypeError, ValueError):
        raise AssertionError(f"range_steps must be a pair (begin, end), got {range_steps!r}") from None
    for limit in (begin, end):
        if limit is not None and (isinstance(limit, bool) or not hasattr(limit, "__index__") or limit < 0):
            raise AssertionError(f"range_steps must contain integers >= 0 or None, got {limit!r}")
    if begin is not None and end is not None and not begin < end:
        raise AssertionError(f"range_steps begin must be less than end, got ({begin}, {end})")
    return begin, end


class RunReader:
    """An open run: its steps, names, locations and values, while it grows.

    Thread-safe.

    Answers that need the whole index are cached until the run grows. They do not check for new steps: call
    :meth:`maybe_refresh` first.

    Args:
        run: the files of the run.
        name: name of the trial, for messages.
        wait: seconds to wait for a run that has not started; None: the run must exist.
        skip_bad_index: whether to skip unreadable index files.
        lazy: read nothing before the first query, also if refreshing is off.
        unstarted: the run may start later; it has no steps until then.
        reopening: returns how another process opens the same trial.
    """

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        wait: float | None = None,
        skip_bad_index: bool = False,
        lazy: bool = False,
        unstarted: bool = False,
        reopening: Callable[[], Reopening] | None = None,
    ) -> None:
        self.run = run
        self.name = name
        self.logger: logging.Logger = logger
        #: Whether the run has ended and all steps are known. If so, refreshing stops.
        self.loaded_all_steps = False
        #: Number of times that another run was found in the same place; everything read before was dropped.
        self.restarts = 0
        #: When the latest of these runs started, in Unix seconds, or None.
        self.restarted_at: float | None = None
        self.num_workers = 1
        self.collection_manager = CollectionManager()
        #: The workers that have written a collection file.
        self.collection_workers: frozenset[str] = frozenset()
        self.reopening = reopening
        self.closed = False
        #: Whether nothing was read yet.
        self.unread = lazy
        #: Seconds to wait for an event file that an index file names.
        self.event_file_patience = environment.event_file_patience()
        self._next_check = 0.0
        #: The last complete step.
        self.completeness = Completeness()
        #: Seconds after the end of the run in which files of it may still arrive.
        self.end_delay = environment.end_delay()
        self._skip_bad_index = skip_bad_index
        #: Held while the run is read.
        self.lock = threading.RLock()
        self._refresh_base = True
        self._refresh_overrides: list[tuple[object, bool]] = []
        self._empty_caches()
        self._bind()
        if unstarted:
            self.refresh_data()
        elif not lazy:
            self._open(WAIT_FOR_COLLECTIONS if wait is None else wait, may_come=bool(wait))

    def _empty_caches(self) -> None:
        self._memo: dict[object, tuple[object, Any]] = {}
        self._logged_problems: set[str] = set()
        #: The rows of signals, and the signals that have them.
        self._signal_rows: tuple[Signals | None, dict[str, tuple[SignalRow, ...]]] = None, {}

    def _bind(self) -> None:
        #: Returns a value by name, global step and worker, see :meth:`Run.getter`.
        self.fetch: Getter = self.run.getter()
        #: The same without caching, for values that are read once.
        self.fetch_once: Getter = self.run.passing()

    @property
    def path(self) -> str:
        """Directory or URL of the run."""
        return self.run.path

    # ---------------------------------------------------------------------------------------------------- opening

    def _open(self, wait: float, may_come: bool) -> None:
        # Log early: usually the path is wrong or the training has not started.
        hint = "Set the timeout with create_trial(path, wait=seconds), or press Ctrl-C."
        if may_come:
            start = f"a run to start at {self.path}"
            wait_until(self._is_there, lambda: start, wait, hint=hint, log_after=_LOG_WAIT_AFTER)
        else:
            self.run.check()
        wait_until(self._collections_complete, self._missing_collections, wait, hint=hint, log_after=_LOG_WAIT_AFTER)
        if not self.run.refreshed_for_collections:
            self.run.refresh()
        self._after_refresh()
        problems = self.run.problems()
        if problems and not self._skip_bad_index:
            more = f" (and {len(problems) - 1} more index files)" if len(problems) > 1 else ""
            raise IndexReaderException(
                f"{problems[0][1]}{more}; to skip unreadable index files, use create_trial(…, skip_bad_index=True); "
                "trial.problems() then lists them"
            )

    def _is_there(self) -> bool:
        try:
            self.run.check()
        except FileNotFoundError:
            return False
        return True

    def _collections_complete(self) -> bool:
        # Check the end marker before the files, so that files written just before the end are not missed.
        ended = self.run.end_age() is not None
        self._read_collections()
        found = len(self.collection_workers)
        if found and found >= self.num_workers:
            return True
        if ended:
            raise MissingCollectionFiles(self.path, found, self.num_workers)
        return False

    def _missing_collections(self) -> str:
        found = len(self.collection_workers)
        if not found:
            return f"the first collection file of {self.path}"
        return f"collection files of all {self.num_workers} workers in {self.path} ({found} found)"

    def _read_collections(self) -> None:
        read = self.run.collections()
        if read is not None:
            self.collection_manager = read.manager
            self.num_workers = read.manager.get_num_workers()
            self.collection_workers = read.workers

    # -------------------------------------------------------------------------------------------------- refreshing

    @property
    def dynamic_refresh(self) -> bool:
        """Whether every call checks for new steps.

        :func:`smdwidgets.analysis.utils.no_refresh` turns it off within a block.
        """
        overrides = self._refresh_overrides
        return overrides[-1][1] if overrides else self._refresh_base

    @dynamic_refresh.setter
    def dynamic_refresh(self, on: bool) -> None:
        with self.lock:
            if self._refresh_overrides:
                self._refresh_overrides[-1] = (self._refresh_overrides[-1][0], bool(on))
            else:
                self._refresh_base = bool(on)

    @contextmanager
    def refreshing(self, on: bool) -> Iterator[None]:
        """Turn refreshing on or off within a block. Blocks can be nested.

        The setting is restored after the block, also if it raises. Blocks of several threads may overlap: the one
        entered last takes precedence.
        """
        block = object()
        with self.lock:
            self._refresh_overrides.append((block, on))
        try:
            yield
        finally:
            with self.lock:
                self._refresh_overrides = [override for override in self._refresh_overrides if override[0] is not block]

    def maybe_refresh(self, name: str | None = None) -> None:
        """Check for new steps unless refreshing is off or all steps are known."""
        if self.closed:
            self.refuse()
        began = time.monotonic()
        if self.read_first():
            self._finish_if_ended(began)
            return
        if not self.dynamic_refresh:
            return
        if self.loaded_all_steps:
            if time.monotonic() < self._next_check:
                return
            self._next_check = time.monotonic() + _CHECK_ENDED_EVERY
            if self.run.replaced_at() is None:
                return
        with self.lock:
            self._check_replaced()
            self._refresh_or_finish()

    def read_first(self) -> bool:
        """Read a run that was opened lazily, unless it was read.

        Returns whether it was read now.
        """
        if not self.unread:
            return False
        with self.lock:
            reads = self.unread and not self.closed
            if reads:
                self._open(0.0, may_come=False)
                self.unread = False
        return reads

    def _finish_if_ended(self, began: float) -> None:
        """Note that all steps are known, if the run had ended before it was read first.

        Args:
            began: when the caller began to read it.
        """
        with self.lock:
            age = self.run.end_age() if self.dynamic_refresh else None
            if age is not None and age > max(self.end_delay, time.monotonic() - began):
                self.completeness.end(self.run.index)
                self.loaded_all_steps = True

    def _check_replaced(self) -> None:
        """Drop everything that was read if another run was written to the same place."""
        at = self.run.replaced_at()
        if at is None:
            return
        self.logger.info("%s: another run was started in %s; reading it", shown(self.name), shown(self.path))
        self.restarted_at = at
        self.start_over()

    def start_over(self) -> None:
        """Drop everything that was read."""
        self.run.start_over()
        self._bind()
        self.completeness = Completeness()
        self._memo = {}
        self._logged_problems = set()
        self.collection_manager = CollectionManager()
        self.collection_workers = frozenset()
        self.num_workers = 1
        self.loaded_all_steps = False
        self.restarts += 1

    def _refresh_or_finish(self) -> None:
        # Another thread may have finished meanwhile; an extra refresh of an ended run is harmless.
        age = self.run.end_age()
        if age is None:
            self.refresh_data()
        elif not self.loaded_all_steps:
            # An uploader may deliver files after the end marker.
            if age < self.end_delay:
                self.refresh_data()
                self.logger.info("%s has ended; last refresh in %.1f s", shown(self.name), self.end_delay - age)
                time.sleep(self.end_delay - age)
            self.run.settled = -1
            self.refresh_data()
            self.completeness.end(self.run.index)
            self.loaded_all_steps = True

    def refresh_data(self) -> None:
        """Check for new steps now, even if refreshing is off."""
        with self.lock:
            if self.closed:
                self.refuse()
            self.read_first()
            self._check_replaced()
            self._read_collections()
            self.run.refresh()
            self._after_refresh()

    def _after_refresh(self) -> None:
        samples = self.run.samples()  # after the run: samples of a step are written before it
        if samples is not None:
            samples.refresh()
        self.completeness.update(self.run.index, self.num_workers)
        self.run.settled = self.completeness.until
        for key, message in self.run.problems():
            # A file that is gone is no problem: another run may have replaced this one, or its values were deleted.
            if key not in self._logged_problems and self.run.has_file(key):
                self._logged_problems.add(key)
                self.logger.warning("%s: %s; %s", shown(self.name), visible(message, 2000), self.run.undamaged)

    def problems(self) -> list[tuple[str, str]]:
        """Return the unreadable index files, incidents and signals as (file, message).

        A file is read again after it changes.
        """
        self.read_first()
        with self.lock:
            return self.run.problems() + self.run.incidents().problems + self.run.signals().problems

    def incidents(self) -> Incidents:
        """Return when and why the flight recorder wrote its steps, by step."""
        self.maybe_refresh()
        with self.lock:
            return self.run.incidents().combined()

    def checks(self) -> CheckRecords:
        """Return the checks of the training."""
        self.maybe_refresh()
        with self.lock:
            return self.run.checks()

    def signals(self) -> Signals:
        """Return the signals of the training."""
        self.maybe_refresh()
        with self.lock:
            return self.run.signals()

    def signal_rows(self) -> dict[str, tuple[SignalRow, ...]]:
        """Return the rows that signals give the map by name, one for each worker.

        A tensor of the same name takes precedence.
        """
        signals = self.signals()
        if self._signal_rows[0] is not signals:
            rows = {name: row for name, row in signal_rows(signals).items() if not self.run.has(name)}
            self._signal_rows = signals, rows
        return self._signal_rows[1]

    def end(self) -> RunEnd | None:
        """Return how the training ended, or None while there is no end marker."""
        self.maybe_refresh()
        return self.run.end()

    def workers(self) -> list[str]:
        """Return the names of the workers of the run, sorted."""
        self.maybe_refresh()
        workers = self.collection_workers
        if self.run.declares_workers() and workers and len(workers) >= self.num_workers:
            return sorted(workers)  # an index file of another worker is foreign
        return sorted(workers.union(self.run.index.workers()))

    def notes(self) -> list[tuple[str, str]]:
        """Return what the hook did not get or failed to save, as (worker, text).

        A hook notes what it was asked to save and did not get after 20 steps, and again when it is closed. It notes the
        first failure of each kind.
        """
        self.maybe_refresh()
        self._read_collections()
        return [
            (worker, visible(text, 1000)) for worker, texts in self.collection_manager.notes.items() for text in texts
        ]

    @property
    def complete_until(self) -> int:
        """The last global step that all workers have written; -1 if there is none."""
        return self.completeness.until

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """Return ``make()``, cached until the run grows."""
        # Read before calling make, so that steps added meanwhile invalidate the result.
        now = (self.restarts, self.run.index.generation, self.completeness.until)
        known = self._memo.get(key)
        if known is not None and known[0] == now:
            answer: T = known[1]
            return answer
        made = make()
        if len(self._memo) > 4096:
            self._memo = {}
        self._memo[key] = now, made
        return made

    def snapshot(
        self,
        run: Run,
        manager: CollectionManager,
        num_workers: int,
        workers: frozenset[str],
        until: int,
        ended: bool,
    ) -> RunReader:
        """Return a reader of the same run that stays at a snapshot of it."""
        reader = RunReader(run, self.name, lazy=True, reopening=self.reopening)
        reader.unread = False
        reader.dynamic_refresh = False
        reader.collection_manager, reader.num_workers, reader.collection_workers = manager, num_workers, workers
        reader.completeness.until = until
        reader.loaded_all_steps = ended
        reader.restarts, reader.restarted_at = self.restarts, self.restarted_at
        return reader

    # -------------------------------------------------------------------------------------------------------- steps

    @property
    def index(self) -> Index:
        """The index of the run, as far as it was read."""
        return self.run.index

    def load(self, steps: Sequence[int] | None = None) -> None:
        """Read the names, modes and locations of these steps (None: all) into the index."""
        self.run.load(steps)

    # Steps are cached as arrays, which take 8 bytes for each step where a list of numbers takes 40. They are never
    # modified.

    def steps(self, mode: ModeKeys = ModeKeys.GLOBAL) -> array[int]:
        """Return the steps of a mode, including incomplete ones."""
        index = self.run.index
        if mode == ModeKeys.GLOBAL:
            return self.cached("steps", lambda: array("q", index.steps()))
        self.run.load()
        return self.cached(("steps", mode), lambda: array("q", index.mode_steps(mode.value)))

    def complete_steps(self, mode: ModeKeys = ModeKeys.GLOBAL) -> array[int]:
        """Return the steps of a mode that all workers have written."""
        return self.cached(("complete", mode), lambda: self._only_complete(self.steps(mode), mode))

    def steps_of(self, name: str, mode: ModeKeys = ModeKeys.GLOBAL) -> array[int]:
        """Return the steps at which a tensor was saved, also incomplete ones."""
        self.run.load()
        index = self.run.index

        def make() -> array[int]:
            return array("q", index.steps_of(name) if mode == ModeKeys.GLOBAL else index.mode_steps(mode.value, name))

        return self.cached(("steps of", name, mode), make)

    def complete_steps_of(self, name: str, mode: ModeKeys = ModeKeys.GLOBAL) -> array[int]:
        """Return the complete steps of a mode at which a tensor was saved."""
        return self.cached(("complete of", name, mode), lambda: self._only_complete(self.steps_of(name, mode), mode))

    def _only_complete(self, steps: array[int], mode: ModeKeys) -> array[int]:
        """Return the steps of a mode, given in ascending order, that are complete."""
        until = self.completeness.until
        if mode == ModeKeys.GLOBAL:
            return steps if not steps or steps[-1] <= until else steps[: bisect_right(steps, until)]
        last = self.run.index.last_step()
        if last is None or last <= until:
            return steps
        globally = self.run.index.global_step
        return array(
            "q", (step for step in steps if (number := globally(mode.value, step)) is not None and number <= until)
        )

    def mode_of(self, global_step: int) -> tuple[int, int] | None:
        """Return the number of the mode, and the mode step, of a global step."""
        if not possible(global_step):
            return None
        if self.run.partly_read:
            self.run.load([global_step])
        return self.run.index.mode_of(global_step)

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """Return the global step of a mode step, or None if the step was not saved."""
        if mode == ModeKeys.GLOBAL:
            return mode_step
        if not possible(mode_step):
            return None
        self.run.load()
        return self.run.index.global_step(mode.value, mode_step)

    def step_state(self, step: int, mode: ModeKeys) -> StepState:
        """Return whether a step is available."""
        steps = self.steps(mode)
        row = bisect_left(steps, step)
        if row == len(steps):
            return StepState.UNAVAILABLE if self.loaded_all_steps else StepState.NOT_YET_AVAILABLE
        reached = self.global_step(mode, steps[row])
        passed = self.loaded_all_steps or (reached is not None and reached <= self.completeness.until)
        if not passed:
            return StepState.NOT_YET_AVAILABLE
        return StepState.AVAILABLE if steps[row] == step else StepState.UNAVAILABLE

    # -------------------------------------------------------------------------------------------------------- names

    def names(self, step: int | None = None, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        """Return the sorted names of the tensors of a mode, or of one of its steps."""
        index = self.run.index
        if step is not None:
            number = self.global_step(mode, step)
            if number is None or not possible(number):
                return []
            if self.run.partly_read:
                self.run.load([number])
            return index.names_at(number)
        self.run.load()
        if mode == ModeKeys.GLOBAL:
            return self.cached("names", index.names)
        return self.cached(("names", mode), lambda: index.names_in_mode(mode.value))

    def has(self, name: str) -> bool:
        """Return whether a tensor was saved at any step; refresh if it is unknown."""
        if not is_text(name):
            return False
        if self.run.has(name):
            return True
        self.maybe_refresh()
        return self.run.has(name)

    def aliases(self) -> dict[str, str]:
        """Return the names of saved tensors by their aliases."""
        aliases = self.collection_manager.aliases
        return {alias: name for alias, name in aliases.items() if self.run.has(name)}

    def saved_name(self, name: str) -> str | None:
        """Return the name of a saved tensor, given it or an alias; None if there is none."""
        if self.has(name):
            return name
        alias = self.aliases().get(name)
        return name if alias is None and self._is_described(name) else alias

    def _is_described(self, name: str) -> bool:
        """Whether a tensor has samples or statistics, maybe without any value."""
        if not is_text(name):
            return False
        samples, statistics = self.run.samples(), self.run.statistics_file()
        return (samples is not None and samples.has(name)) or (statistics is not None and name in statistics.names())

    def kind_of(self, name: str) -> str:
        """Return the kind of a tensor of a log, such as ``scalar``; else ""."""
        return self.run.kind_of(name)

    # --------------------------------------------------------------------------------------------- locations, values

    def head(self, location: Any) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of the value at a location of the index."""
        return self.run.head(location)

    def values(self, rows: Sequence[Row]) -> Values:
        """Return the values of rows, and the errors of rows that failed.

        A row is name, global step and worker.
        """
        return self.run.values(rows)

    def is_sharded(self, name: str, step: int) -> bool:
        """Return whether a tensor is sharded at a global step."""
        return self.run.is_sharded(name, step)

    def course(self, name: str, worker: str | None = None, superseded: bool = False) -> Course:
        """Return when the values of a tensor were written, see :meth:`Run.course`."""
        return self.run.course(name, worker, superseded)

    def statistics_file(self) -> RecordedStatistics | None:
        """Return the statistics that the training wrote; None without any."""
        return self.run.statistics_file()

    def silence(self) -> float | None:
        """Return the seconds since the last write.

        None if unknown, or if the run has an end marker.
        """
        return self.run.silence()

    @property
    def log(self) -> Any:
        """The columns of a TensorBoard log (`_core.EventLog`); None for other runs."""
        return getattr(self.run, "log", None)

    @property
    def storage(self) -> Any:
        """Where the files of the run are."""
        return self.run.storage

    # ------------------------------------------------------------------------------------------------------ closing

    def close(self) -> None:
        """Close files and connections.

        Arrays returned earlier stay valid. Later calls raise :class:`TrialClosed`.
        """
        with self.lock:
            if not self.closed:
                self.closed = True
                self.fetch = self.fetch_once = self._fetch_closed
                self.run.close()

    def _fetch_closed(self, name: str, step: int, worker: str | None = None) -> NoReturn:
        self.refuse()

    def refuse(self) -> NoReturn:
        """Raise :class:`TrialClosed`."""
        raise TrialClosed(f"trial {shown(self.name)} is closed; reopen the run with create_trial({shown(self.path)})")
