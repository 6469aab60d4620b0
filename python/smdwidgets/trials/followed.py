"""A run that is followed while it grows: opened, looked at for news, closed. What it holds is asked of :class:`Trial`."""

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

#: How long a new trial waits for collection files, if nothing else is said.
WAIT_FOR_COLLECTIONS = 600.0
#: After so many seconds it says so.
_TELL_SOON = 1.0


class Followed:
    """A run held open. Safe to use from many threads."""

    def __init__(
        self,
        run: Run,
        name: str,
        range_steps: tuple[int | None, int | None] | None = None,
        *,
        wait: float | None = None,
        skip_bad_index: bool = False,
    ) -> None:
        self.name = name
        self.path = run.path
        self.trial_dir = run.path
        self.range_steps = range_steps
        self.logger: logging.Logger = logger
        #: The run has ended and everything it holds has been seen: no question looks for news any more.
        self.loaded_all_steps = False
        self.num_workers = 1
        self.collection_manager = CollectionManager()
        self._run = run
        self._complete = Completeness()
        self._end_delay = environment.end_delay()
        self._event_file_patience = environment.event_file_patience()
        self._skip_bad_index = skip_bad_index
        self._refreshing = threading.RLock()
        self._refresh_base = True
        self._refresh_held: list[tuple[object, bool]] = []
        self._memo: dict[object, tuple[object, Any]] = {}
        self._collection_workers: frozenset[str] = frozenset()
        self._problems_told: set[str] = set()
        self._closed = False
        self._open(WAIT_FOR_COLLECTIONS if wait is None else wait, may_come=wait is not None)

    # ---------------------------------------------------------------------------------------------------- opening

    @staticmethod
    def checked_range(range_steps: tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
        """The two ends of ``range_steps``: begin is part of it, end is not, None is open.

        >>> Followed.checked_range((100, None))
        (100, None)
        """
        if range_steps is None:
            return None, None
        # smdebug asserts here, and so do scripts that catch it; `assert` itself would be gone under `python -O`.
        try:
            begin, end = range_steps
        except (TypeError, ValueError):
            raise AssertionError(f"range_steps is a pair (begin, end), not {range_steps!r}.") from None
        for limit in (begin, end):
            if limit is not None and (isinstance(limit, bool) or not hasattr(limit, "__index__") or limit < 0):
                raise AssertionError(f"range_steps takes step numbers from 0 on, or None, not {limit!r}.")
        if begin is not None and end is not None and not begin < end:
            raise AssertionError(f"range_steps=({begin}, {end}) holds no step: begin must be less than end.")
        return begin, end

    def _open(self, wait: float, may_come: bool) -> None:
        if may_come:
            wait_until(self._is_there, lambda: f"a run to begin at {self.path}", wait)
        else:
            self._run.check()
        # Most often the path is wrong, or the training has not begun: said soon, with what can be done.
        hint = "create_trial(path, wait=seconds) sets how long; Ctrl-C ends it."
        wait_until(self._collections_complete, self._what_is_missing, wait, hint=hint, tell_after=_TELL_SOON)
        self._run.refresh()
        self._after_refresh()
        problems = self._run.index.problems()
        if problems and not self._skip_bad_index:
            more = f" (and {len(problems) - 1} more index files)" if len(problems) > 1 else ""
            raise IndexReaderException(
                f"{problems[0][1]}{more}. To open the run without the steps of such files: "
                "create_trial(…, skip_bad_index=True); trial.problems() then lists them."
            )

    def _is_there(self) -> bool:
        try:
            self._run.check()
        except FileNotFoundError:
            return False
        return True

    def _collections_complete(self) -> bool:
        # Before the files: those written last, just before the end, must not be missed.
        ended = self._run.end_age() is not None
        self._read_collections()
        found = len(self._collection_workers)
        if found and found >= self.num_workers:
            return True
        if ended:
            raise MissingCollectionFiles(self.path, found, self.num_workers)
        return False

    def _what_is_missing(self) -> str:
        found = len(self._collection_workers)
        if not found:
            return f"the first collection file of {self.path}"
        return f"collection files of all {self.num_workers} workers in {self.path} ({found} are there)"

    def _read_collections(self) -> None:
        read = self._run.collections()
        if read is not None:
            self.collection_manager = read.manager
            self.num_workers = read.manager.get_num_workers()
            self._collection_workers = read.workers

    # ------------------------------------------------------------------------------------------------------- news

    @property
    def dynamic_refresh(self) -> bool:
        """Whether questions look for news. :func:`smdwidgets.analysis.utils.no_refresh` holds it off."""
        held = self._refresh_held
        return held[-1][1] if held else self._refresh_base

    @dynamic_refresh.setter
    def dynamic_refresh(self, on: bool) -> None:
        with self._refreshing:
            if self._refresh_held:
                self._refresh_held[-1] = (self._refresh_held[-1][0], bool(on))
            else:
                self._refresh_base = bool(on)

    @contextmanager
    def refreshing(self, on: bool) -> Iterator[Self]:
        """Look for news (or do not) within the block, and as before after it; nested, and whatever is raised in it.

        Blocks of several threads may overlap: the one entered last counts, and each takes back only its own.
        """
        mine = object()
        with self._refreshing:
            self._refresh_held.append((mine, on))
        try:
            yield self
        finally:
            with self._refreshing:
                self._refresh_held = [held for held in self._refresh_held if held[0] is not mine]

    def maybe_refresh(self, name: str | None = None) -> None:
        """Look for news unless refreshing is held off or the run has ended and all of it is known."""
        if self._closed:
            self._refuse()
        if self.loaded_all_steps or not self.dynamic_refresh:
            return
        with self._refreshing:
            self._refresh_or_finish()

    def _refresh_or_finish(self) -> None:
        # Another thread may have finished meanwhile; looking once more at a run that has ended does no harm.
        age = self._run.end_age()
        if age is None:
            self.refresh_data()
        elif not self.loaded_all_steps:
            # Files may still be on their way when the mark of the end appears: those that an uploader holds back.
            if age < self._end_delay:
                self.refresh_data()
                self.logger.info(
                    "%s has ended; looking a last time in %.1f s.", shown(self.name), self._end_delay - age
                )
                time.sleep(self._end_delay - age)
            self._run.settled = -1
            self.refresh_data()
            self._complete.end(self._run.index)
            self.loaded_all_steps = True

    def refresh_data(self) -> None:
        """Look for news now, whatever was said about refreshing."""
        with self._refreshing:
            if self._closed:
                self._refuse()
            self._read_collections()
            self._run.refresh()
            self._after_refresh()

    def refresh_tensor(self, tname: str, steps: Sequence[int] | None = None) -> None:
        """Look for news of a tensor: of the whole run, which costs no more."""
        self.refresh_data()

    def _after_refresh(self) -> None:
        self._complete.update(self._run.index, self.num_workers)
        self._run.settled = self._complete.until
        for key, message in self._run.index.problems():
            if key not in self._problems_told:
                self._problems_told.add(key)
                self._tell(message)

    def _tell(self, message: str) -> None:
        """Say once that something of the run can't be read."""
        self.logger.warning("%s: %s. The other index files are read.", shown(self.name), visible(message, 2000))

    def problems(self) -> list[tuple[str, str]]:
        """Index files that could not be read, as (file, what is wrong). Each is tried again once it has changed."""
        return self._run.index.problems()

    @property
    def last_complete_step(self) -> int:
        """The last global step that all workers have passed; -1 where there is none."""
        return self._complete.until

    def _remembered(self, key: object, make: Callable[[], T]) -> T:
        """What ``make`` gives, made again only after the run has grown."""
        # Taken before making: what comes in between must not be taken for known.
        now = (self._run.index.generation, self._complete.until)
        known = self._memo.get(key)
        if known is not None and known[0] == now:
            answer: T = known[1]
            return answer
        made = make()
        if len(self._memo) > 4096:
            self._memo = {}
        self._memo[key] = now, made
        return made

    # ------------------------------------------------------------------------------------------------------ closing

    def close(self) -> None:
        """Let go of files and connections. Arrays handed out stay valid; questions after it raise :class:`TrialClosed`."""
        with self._refreshing:
            if not self._closed:
                self._closed = True
                self._run.close()

    def _refuse(self) -> NoReturn:
        raise TrialClosed(
            f"The trial {shown(self.name)} was closed; open the run again with create_trial({shown(self.path)})."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
