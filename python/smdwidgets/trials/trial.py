"""A run as a person asks about it: steps, modes, tensors, collections, workers."""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.config.collection import Collection
from smdwidgets.config.collection_manager import CollectionManager
from smdwidgets.config.keys import BUILT_IN
from smdwidgets.exceptions import (
    IndexReaderException,
    MissingCollectionFiles,
    NoMoreData,
    StepUnavailable,
    TensorUnavailable,
    TrialClosed,
    UnknownCollection,
)
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials import bulk, environment, show
from smdwidgets.trials.completeness import Completeness
from smdwidgets.trials.patterns import Patterns
from smdwidgets.trials.run import Progress, Run, possible
from smdwidgets.trials.tensor import StepState, Tensor
from smdwidgets.trials.wait import logger, wait_until

if TYPE_CHECKING:
    from smdwidgets.plots import TrialPlots
    from smdwidgets.trials.columns import Columns

T = TypeVar("T")

#: How long a new trial waits for collection files, if nothing else is said.
WAIT_FOR_COLLECTIONS = 600.0


class Trial:
    """A run: a finished one, or one that is still being written.

    Every question first looks for news (see ``smdwidgets.analysis.utils.no_refresh``), until the run has ended. One trial may
    be used by many threads. ``with`` closes it.

    >>> trial = create_trial("runs/mlp")                       # doctest: +SKIP
    >>> trial.tensor("fc1.weight").value(trial.steps()[-1])    # doctest: +SKIP
    """

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
        self._tensors: dict[str, Tensor] = {}
        self._memo: dict[object, tuple[object, Any]] = {}
        self._patterns = Patterns()
        self._collection_workers: frozenset[str] = frozenset()
        self._problems_told: set[str] = set()
        self._closed = False
        self._open(WAIT_FOR_COLLECTIONS if wait is None else wait, may_come=wait is not None)

    # ---------------------------------------------------------------------------------------------------- opening

    @staticmethod
    def checked_range(range_steps: tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
        """The two ends of ``range_steps``: begin is part of it, end is not, None is open.

        >>> Trial.checked_range((100, None))
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
        wait_until(self._collections_complete, lambda: self._what_is_missing(), wait)
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
                self.logger.info("%s has ended; looking a last time in %.1f s.", self.name, self._end_delay - age)
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
        self.logger.warning("%s: %s. The other index files are read.", self.name, message)

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

    # ------------------------------------------------------------------------------------------------------ steps

    def steps(self, mode: ModeKeys | str = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Steps that all workers have written, ascending: global steps, or those of a mode in the mode's own count.

        ``show_incomplete_steps`` adds those that some workers have still to write.
        """
        self.maybe_refresh()
        mode = as_mode(mode)
        return list(self._all_steps(mode) if show_incomplete_steps else self._complete_steps(mode))

    def _all_steps(self, mode: ModeKeys) -> list[int]:
        index = self._run.index
        if mode == ModeKeys.GLOBAL:
            return self._remembered("steps", index.steps)
        self._run.load()
        return self._remembered(("steps", mode), lambda: index.mode_steps(mode.value))

    def _complete_steps(self, mode: ModeKeys) -> list[int]:
        return self._remembered(("complete", mode), lambda: self._only_complete(self._all_steps(mode), mode))

    def _only_complete(self, steps: list[int], mode: ModeKeys) -> list[int]:
        """Those of ascending steps of a mode whose global steps are complete."""
        until = self._complete.until
        if mode == ModeKeys.GLOBAL:
            return steps[: bisect_right(steps, until)]
        last = self._run.index.last_step()
        if last is None or last <= until:
            return steps
        globally = self._run.index.global_step
        return [step for step in steps if (at := globally(mode.value, step)) is not None and at <= until]

    def modes(self) -> list[ModeKeys]:
        """Modes of the steps seen, GLOBAL not among them."""
        self.maybe_refresh()
        self._run.load()
        return [ModeKeys(number) for number in self._run.index.modes() if number != ModeKeys.GLOBAL.value]

    def mode(self, global_step: int) -> ModeKeys | None:
        """The mode of a global step; None for a step that was not saved."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """A global step in the count of its mode; None for a step that was not saved."""
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys, int] | tuple[None, None]:
        """Mode and mode step of a global step."""
        found = self._mode_of(global_step)
        if found is None:
            self.maybe_refresh()
            found = self._mode_of(global_step)
        return (None, None) if found is None else (ModeKeys(found[0]), found[1])

    def _mode_of(self, global_step: int) -> tuple[int, int] | None:
        if not possible(global_step):
            return None
        if self._run.partly_read:
            self._run.load([global_step])
        return self._run.index.mode_of(global_step)

    def global_step(self, mode: ModeKeys | str, mode_step: int) -> int | None:
        """The global step of a step in the count of a mode; None for a step that was not saved."""
        mode = as_mode(mode)
        found = self._global_step(mode, mode_step)
        if found is None:
            self.maybe_refresh()
            found = self._global_step(mode, mode_step)
        return found

    def _global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        if mode == ModeKeys.GLOBAL:
            return mode_step
        if not possible(mode_step):
            return None
        self._run.load()
        return self._run.index.global_step(mode.value, mode_step)

    def workers(self) -> list[str]:
        """Names of the workers that wrote to the run, sorted by character."""
        self.maybe_refresh()
        return sorted(self._collection_workers.union(self._run.index.workers()))

    # ---------------------------------------------------------------------------------------------------- waiting

    def has_passed_step(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> StepState:
        """Whether a step is there (AVAILABLE), may still come (NOT_YET_AVAILABLE), or never will (UNAVAILABLE)."""
        mode = as_mode(mode)
        self.maybe_refresh()
        steps = self._all_steps(mode)
        at = bisect_left(steps, step)
        if at == len(steps):
            return StepState.UNAVAILABLE if self.loaded_all_steps else StepState.NOT_YET_AVAILABLE
        reached = self._global_step(mode, steps[at])
        passed = self.loaded_all_steps or (reached is not None and reached <= self._complete.until)
        if not passed:
            return StepState.NOT_YET_AVAILABLE
        return StepState.AVAILABLE if steps[at] == step else StepState.UNAVAILABLE

    def wait_for_steps(
        self,
        required_steps: Iterable[int],
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        timeout: float | None = None,
    ) -> None:
        """Return once all these steps are there.

        Raises :class:`StepUnavailable` for a step that was passed over, :class:`NoMoreData` where the run ends before it,
        :class:`WaitTimeout` after ``timeout`` seconds (None: no limit). Ctrl-C works.
        """
        mode = as_mode(mode)
        steps = [required_steps] if isinstance(required_steps, int) else list(required_steps)
        if timeout is not None and (math.isnan(timeout) or timeout < 0):
            raise ValueError(f"timeout must be seconds from 0 on, or None, not {timeout!r}.")
        missing = list(reversed(steps))

        def done() -> bool:
            while missing and self._is_available(missing[-1], mode):
                missing.pop()
            return not missing

        def what() -> str:
            seen = self._all_steps(mode)
            last = f"the last one seen is {seen[-1]}" if seen else "none seen yet"
            return f"step {missing[-1]} of {mode.name} of {self.path} ({last})"

        with self.refreshing(True):
            wait_until(done, what, timeout)

    def _is_available(self, step: int, mode: ModeKeys) -> bool:
        state = self.has_passed_step(step, mode)
        if state == StepState.UNAVAILABLE:
            seen = self._all_steps(mode)
            last = seen[-1] if seen else -1
            if not self.loaded_all_steps or step < last:
                raise StepUnavailable(step, mode)
            raise NoMoreData(step, mode, last)
        return state == StepState.AVAILABLE

    # ---------------------------------------------------------------------------------------------------- tensors

    def tensor_names(
        self,
        step: int | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        regex: str | Iterable[str] | None = None,
        collection: Collection | str | None = None,
        *,
        show_prefixed_tensors: bool = False,
    ) -> list[str]:
        """Names of tensors, sorted: all, or those that meet every condition given.

        ``step`` is in the count of ``mode``. A ``regex`` (or one of several) is found anywhere in the name. Give either
        ``regex`` or ``collection``.
        """
        if isinstance(step, bool):  # smdebug's first argument was show_prefixed_tensors
            step = None
        self.maybe_refresh()
        if regex is not None and collection is not None:
            raise ValueError("Give either regex= or collection=, not both: a collection has its own patterns.")
        names = self._names(step, as_mode(mode))
        if collection is not None:
            return self._in_collection(self._collection_meant(collection), names)
        if regex is not None:
            return self._matching([regex] if isinstance(regex, str) else list(regex), names)
        return list(names)

    def tensors(self, *args: Any, **kwargs: Any) -> list[str]:
        """The same as :meth:`tensor_names`, by the name that older examples use."""
        return self.tensor_names(*args, **kwargs)

    def _names(self, step: int | None, mode: ModeKeys) -> list[str]:
        index = self._run.index
        if step is not None:
            at = self._global_step(mode, step)
            if at is None or not possible(at):
                return []
            if self._run.partly_read:
                self._run.load([at])
            return index.names_at(at)
        self._run.load()
        if mode == ModeKeys.GLOBAL:
            return self._remembered("names", index.names)
        return self._remembered(("names", mode), lambda: index.names_in_mode(mode.value))

    def _matching(self, patterns: list[str], names: list[str]) -> list[str]:
        found = self._patterns.matching(patterns, names)
        return [name for name in names if name in found]

    def _in_collection(self, collection: Collection, names: list[str]) -> list[str]:
        listed_in = collection.tensor_names
        found = self._patterns.matching(collection.include_regex, names)
        return [name for name in names if name in listed_in or name in found]

    def _collection_meant(self, collection: Collection | str) -> Collection:
        if isinstance(collection, Collection):
            return collection
        if isinstance(collection, str):
            return self.collection(collection)
        raise TypeError(f"collection takes a name or a Collection, not {type(collection).__name__}.")

    def has_tensor(self, tname: str) -> bool:
        """Whether a tensor of this name was saved at any step seen so far."""
        if self._closed:
            self._refuse()
        if tname in self._tensors or self._run.has(tname):
            return True
        self.maybe_refresh()
        return self._run.has(tname)

    def tensor(self, tname: str) -> Tensor:
        """The tensor of this name.

        Raises :class:`TensorUnavailable` (which names the nearest spelling) if no step seen so far has it.
        """
        tensor = self._tensors.get(tname)
        if tensor is None:
            if not self.has_tensor(tname):
                raise TensorUnavailable(tname, self._names(None, ModeKeys.GLOBAL))
            tensor = self._tensors.setdefault(tname, Tensor(tname, self))
        return tensor

    def inputs(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        """Values of the tensors of collection ``inputs`` at a step, in the order of the numbers that end their names."""
        return self._values_of(self.tensor_names(step, mode, collection="inputs"), step, mode)

    def labels(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        """Values of the tensors whose names speak of labels, at a step."""
        return self._values_of(self.tensor_names(step, mode, regex="labels*"), step, mode)

    def predictions(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        """Values of the tensors whose names speak of predictions, at a step."""
        return self._values_of(self.tensor_names(step, mode, regex="predictions*"), step, mode)

    def _values_of(self, names: list[str], step: int, mode: ModeKeys | str) -> list[NDArray[Any]]:
        def number(name: str) -> int:
            tail = name.rpartition("_")[2]
            return int(tail) if tail.isdecimal() else 0

        return [self.tensor(name).value(step, mode) for name in sorted(names, key=number)]

    # ------------------------------------------------------------------------------------------------ many at once

    def values(
        self,
        wanted: Mapping[str, Iterable[int] | None] | Iterable[str] | str | None = None,
        *,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Columns:
        """Values of many tensors at many steps, each record read once, in parallel.

        ``wanted`` maps names to steps (None: all the tensor's steps), or is a name or names, or None for all tensors.
        ``worker`` is a worker's name, ``"*"`` for every worker, or None for the first that has the tensor. The answer has one
        row for each value found; records that can't be read are in its ``errors``.

        >>> trial.values({"loss": None, "fc1.weight": [0, 100]}).to_pandas()    # doctest: +SKIP
        """
        return bulk.values(self, wanted, as_mode(mode), worker, progress, threads)

    def reductions(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        reductions: Iterable[str] | str | None = None,
        *,
        counts: bool = False,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Columns:
        """Reductions of many tensors at many steps: those that were saved as saved, the others computed, in parallel.

        ``reductions`` are names as ``"mean"``, ``"abs_max"``, ``"l2"``; None is all 18. ``counts`` adds the numbers of
        elements, zeros, NaNs and infinities. ``names`` and ``steps`` None are all.

        >>> trial.reductions(["fc1.weight"], reductions=["mean", "l2"])["l2"]    # doctest: +SKIP
        """
        return bulk.reductions(self, names, steps, as_mode(mode), worker, reductions, counts, progress, threads)

    # ------------------------------------------------------------------------------------------------- collections

    def collections(self) -> dict[str, Collection]:
        """The collections of the training, by name. What belongs to one was not necessarily saved."""
        self.maybe_refresh()
        return dict(self.collection_manager.collections)

    def collection(self, coll_name: str) -> Collection:
        """One collection. Names that every framework knows (``losses``, ``gradients`` …) are never unknown, but may be empty."""
        found = self.collection_manager.collections.get(coll_name)
        if found is None:
            self.maybe_refresh()
            found = self.collection_manager.collections.get(coll_name)
        if found is None:
            if coll_name not in BUILT_IN:
                raise UnknownCollection(coll_name, self.collection_manager.collections)
            found = Collection(coll_name)
        return found

    # ------------------------------------------------------------------------------------------------------ closing

    def close(self) -> None:
        """Let go of files and connections. Arrays handed out stay valid; questions after it raise :class:`TrialClosed`."""
        with self._refreshing:
            if not self._closed:
                self._closed = True
                for tensor in list(self._tensors.values()):
                    tensor._close()
                self._run.close()

    def _refuse(self) -> NoReturn:
        raise TrialClosed(
            f"The trial {shown(self.name)} was closed; open the run again with create_trial({shown(self.path)})."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------- for a person

    @property
    def plot(self) -> TrialPlots:
        """Matplotlib pictures of the run: :class:`~smdwidgets.plots.TrialPlots`."""
        from smdwidgets.plots import TrialPlots  # what draws stands above what reads

        return TrialPlots(self)

    def __eq__(self, other: object) -> bool:
        return (self.name, self.path) == (other.name, other.path) if isinstance(other, Trial) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.path))

    def __repr__(self) -> str:
        return show.trial_text(self)

    def _repr_html_(self) -> str:
        return show.trial_html(self)
