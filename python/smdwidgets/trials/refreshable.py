"""Open, refresh and close a run that may still be growing.

:class:`~smdwidgets.trials.trial.Trial` adds the queries.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Self, TypeVar

from smdwidgets._text import shown, visible
from smdwidgets.config.collection_manager import CollectionManager
from smdwidgets.exceptions import IndexReaderException, MissingCollectionFiles, TrialClosed
from smdwidgets.trials import environment
from smdwidgets.trials.completeness import Completeness
from smdwidgets.trials.run import Run
from smdwidgets.trials.wait import logger, wait_until

T = TypeVar("T")

#: Default seconds to wait for collection files when a trial is opened.
WAIT_FOR_COLLECTIONS = 600.0
#: Seconds after which that wait is logged.
_LOG_WAIT_AFTER = 1.0
#: Seconds between two checks of an ended run for another run in the same place.
_CHECK_ENDED_EVERY = 1.0


class RefreshableTrial:
    """An open run that can be refreshed. Thread-safe."""

    def __init__(
        self,
        run: Run,
        name: str,
        range_steps: tuple[int | None, int | None] | None = None,
        *,
        wait: float | None = None,
        skip_bad_index: bool = False,
        lazy: bool = False,
    ) -> None:
        self.name = name
        self.path = run.path
        self.trial_dir = run.path
        self.range_steps = range_steps
        self.logger: logging.Logger = logger
        #: Whether the run has ended and all steps are known. If so, refreshing stops.
        self.loaded_all_steps = False
        #: Number of times that another run was found in the same place; everything read before was dropped.
        self.restarts = 0
        #: When the latest of these runs started, in Unix seconds, or None.
        self.restarted_at: float | None = None
        self._next_check = 0.0
        self.num_workers = 1
        self.collection_manager = CollectionManager()
        self._run = run
        self._complete = Completeness()
        self._end_delay = environment.end_delay()
        self._event_file_patience = environment.event_file_patience()
        self._skip_bad_index = skip_bad_index
        self._refreshing = threading.RLock()
        self._refresh_base = True
        self._refresh_overrides: list[tuple[object, bool]] = []
        self._collection_workers: frozenset[str] = frozenset()
        self._empty_caches()
        self._closed = False
        #: Whether nothing was read yet. The first query reads the run, also if refreshing is off.
        self._unread = lazy
        if not lazy:
            self._open(WAIT_FOR_COLLECTIONS if wait is None else wait, may_come=bool(wait))

    def _empty_caches(self) -> None:
        """Create what a snapshot of the trial does not share with it."""
        self._memo: dict[object, tuple[object, Any]] = {}
        self._logged_problems: set[str] = set()

    # ---------------------------------------------------------------------------------------------------- opening

    @staticmethod
    def checked_range(range_steps: tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
        """Validate ``range_steps`` and return begin (inclusive) and end (exclusive).

        None means unbounded.

        >>> RefreshableTrial.checked_range((100, None))
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

    def _open(self, wait: float, may_come: bool) -> None:
        if may_come:
            wait_until(self._is_there, lambda: f"a run to start at {self.path}", wait)
        else:
            self._run.check()
        # Log early: usually the path is wrong or the training has not started.
        hint = "Set the timeout with create_trial(path, wait=seconds), or press Ctrl-C."
        wait_until(self._collections_complete, self._missing_collections, wait, hint=hint, log_after=_LOG_WAIT_AFTER)
        self._run.refresh()
        self._after_refresh()
        problems = self._run.problems()
        if problems and not self._skip_bad_index:
            more = f" (and {len(problems) - 1} more index files)" if len(problems) > 1 else ""
            raise IndexReaderException(
                f"{problems[0][1]}{more}; to skip unreadable index files, use create_trial(…, skip_bad_index=True); "
                "trial.problems() then lists them"
            )

    def _is_there(self) -> bool:
        try:
            self._run.check()
        except FileNotFoundError:
            return False
        return True

    def _collections_complete(self) -> bool:
        # Check the end marker before the files, so that files written just before the end are not missed.
        ended = self._run.end_age() is not None
        self._read_collections()
        found = len(self._collection_workers)
        if found and found >= self.num_workers:
            return True
        if ended:
            raise MissingCollectionFiles(self.path, found, self.num_workers)
        return False

    def _missing_collections(self) -> str:
        found = len(self._collection_workers)
        if not found:
            return f"the first collection file of {self.path}"
        return f"collection files of all {self.num_workers} workers in {self.path} ({found} found)"

    def _read_collections(self) -> None:
        read = self._run.collections()
        if read is not None:
            self.collection_manager = read.manager
            self.num_workers = read.manager.get_num_workers()
            self._collection_workers = read.workers

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
        with self._refreshing:
            if self._refresh_overrides:
                self._refresh_overrides[-1] = (self._refresh_overrides[-1][0], bool(on))
            else:
                self._refresh_base = bool(on)

    @contextmanager
    def refreshing(self, on: bool) -> Iterator[Self]:
        """Turn refreshing on or off within a block. Blocks can be nested.

        The setting is restored after the block, also if it raises. Blocks of several threads may overlap: the one entered
        last takes precedence.
        """
        block = object()
        with self._refreshing:
            self._refresh_overrides.append((block, on))
        try:
            yield self
        finally:
            with self._refreshing:
                self._refresh_overrides = [override for override in self._refresh_overrides if override[0] is not block]

    def maybe_refresh(self, name: str | None = None) -> None:
        """Check for new steps unless refreshing is off or all steps are known."""
        if self._closed:
            self._refuse()
        self._read_first()
        if not self.dynamic_refresh:
            return
        if self.loaded_all_steps:
            if time.monotonic() < self._next_check:
                return
            self._next_check = time.monotonic() + _CHECK_ENDED_EVERY
            if self._run.replaced_at() is None:
                return
        with self._refreshing:
            self._check_replaced()
            self._refresh_or_finish()

    def _read_first(self) -> None:
        """Read a run that was opened lazily and not read yet."""
        if not self._unread:
            return
        with self._refreshing:
            if self._unread and not self._closed:
                self._open(0.0, may_come=False)
                self._unread = False

    def _check_replaced(self) -> None:
        """Drop everything that was read if another run was written to the same place."""
        at = self._run.replaced_at()
        if at is None:
            return
        self.logger.info("%s: another run was started in %s; reading it", shown(self.name), shown(self.path))
        self.restarted_at = at
        self._start_over()

    def _start_over(self) -> None:
        """Drop everything that was read."""
        self._run.start_over()
        self._complete = Completeness()
        self._memo = {}
        self._logged_problems = set()
        self.collection_manager = CollectionManager()
        self._collection_workers = frozenset()
        self.num_workers = 1
        self.loaded_all_steps = False
        self.restarts += 1

    def _refresh_or_finish(self) -> None:
        # Another thread may have finished meanwhile; an extra refresh of an ended run is harmless.
        age = self._run.end_age()
        if age is None:
            self.refresh_data()
        elif not self.loaded_all_steps:
            # An uploader may deliver files after the end marker.
            if age < self._end_delay:
                self.refresh_data()
                self.logger.info("%s has ended; last refresh in %.1f s", shown(self.name), self._end_delay - age)
                time.sleep(self._end_delay - age)
            self._run.settled = -1
            self.refresh_data()
            self._complete.end(self._run.index)
            self.loaded_all_steps = True

    def refresh_data(self) -> None:
        """Check for new steps now, even if refreshing is off."""
        with self._refreshing:
            if self._closed:
                self._refuse()
            self._read_first()
            self._check_replaced()
            self._read_collections()
            self._run.refresh()
            self._after_refresh()

    def refresh_tensor(self, tname: str, steps: Sequence[int] | None = None) -> None:
        """Check for new steps of the whole run, which costs no more than for one tensor."""
        self.refresh_data()

    def _after_refresh(self) -> None:
        self._complete.update(self._run.index, self.num_workers)
        self._run.settled = self._complete.until
        for key, message in self._run.problems():
            # A file that is gone is no problem: another run may have replaced this one, or its values were deleted.
            if key not in self._logged_problems and self._run.has_file(key):
                self._logged_problems.add(key)
                self._log_problem(message)

    def _log_problem(self, message: str) -> None:
        """Log a part of the run that cannot be read."""
        self.logger.warning("%s: %s; the other index files were read", shown(self.name), visible(message, 2000))

    def problems(self) -> list[tuple[str, str]]:
        """Return the unreadable index files and incidents as (file, message).

        A file is read again after it changes.
        """
        self._read_first()
        with self._refreshing:
            return self._run.problems() + self._run.incidents().problems

    def notes(self) -> list[tuple[str, str]]:
        """Return what the hook did not get or failed to save, as (worker, text).

        A hook notes what it was asked to save and did not get after 20 steps, and again when it is closed. It notes the first
        failure of each kind.
        """
        self.maybe_refresh()
        self._read_collections()
        return [
            (worker, visible(text, 1000)) for worker, texts in self.collection_manager.notes.items() for text in texts
        ]

    @property
    def last_complete_step(self) -> int:
        """The last global step that all workers have written; -1 if there is none."""
        return self._complete.until

    def _cached(self, key: object, make: Callable[[], T]) -> T:
        """Return ``make()``, cached until the run grows."""
        # Read before calling make, so that steps added meanwhile invalidate the result.
        now = (self.restarts, self._run.index.generation, self._complete.until)
        known = self._memo.get(key)
        if known is not None and known[0] == now:
            answer: T = known[1]
            return answer
        made = make()
        if len(self._memo) > 4096:
            self._memo = {}
        self._memo[key] = now, made
        return made

    def _reopening(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None:
        """Return function, arguments and options that make this trial again.

        They do not read its index. None if that is not possible.
        """
        return None

    def _of_snapshot(
        self,
        run: Run,
        manager: CollectionManager,
        num_workers: int,
        workers: frozenset[str],
        until: int,
        ended: bool,
    ) -> Self:
        """Return a trial of the same run that stays at a snapshot of it."""
        trial = object.__new__(type(self))
        trial.__dict__.update(self.__dict__)
        trial._run = run
        trial.collection_manager, trial.num_workers, trial._collection_workers = manager, num_workers, workers
        trial._complete = Completeness()
        trial._complete.until = until
        trial.loaded_all_steps = ended
        trial._refreshing = threading.RLock()
        trial._refresh_base, trial._refresh_overrides = False, []
        trial._empty_caches()
        trial._unread = False
        return trial

    # ------------------------------------------------------------------------------------------------------ closing

    def close(self) -> None:
        """Close files and connections.

        Arrays returned earlier stay valid. Later calls raise :class:`TrialClosed`.
        """
        with self._refreshing:
            if not self._closed:
                self._closed = True
                self._run.close()

    def _refuse(self) -> NoReturn:
        raise TrialClosed(f"trial {shown(self.name)} is closed; reopen the run with create_trial({shown(self.path)})")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
