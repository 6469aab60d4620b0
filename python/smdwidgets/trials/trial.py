"""A run as a person asks about it: steps, modes, tensors, collections, workers."""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from smdwidgets._text import misspelling_of, shown
from smdwidgets.config.collection import Collection
from smdwidgets.config.keys import BUILT_IN
from smdwidgets.exceptions import (
    NoMoreData,
    SMDebugTypeError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailable,
)
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.run_end import RunEnd
from smdwidgets.trials import bulk, show
from smdwidgets.trials.followed import Followed
from smdwidgets.trials.patterns import Patterns
from smdwidgets.trials.run import Progress, Run, is_text, possible
from smdwidgets.trials.tensor import StepState, Tensor
from smdwidgets.trials.wait import wait_until

if TYPE_CHECKING:
    from smdwidgets.exports import Exported
    from smdwidgets.plots import TrialPlots
    from smdwidgets.trials.columns import Columns


class Trial(Followed):
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
        self._tensors: dict[str, Tensor] = {}
        self._patterns = Patterns()
        #: Collections that were asked for and are not in the run.
        self._created: dict[str, Collection] = {}
        super().__init__(run, name, range_steps, wait=wait, skip_bad_index=skip_bad_index)

    def close(self) -> None:
        """Let go of files and connections. Arrays handed out stay valid; questions after it raise :class:`TrialClosed`."""
        for tensor in list(self._tensors.values()):
            tensor._close()
        super().close()

    def run_end(self) -> RunEnd | None:
        """How training ended, as its end marker says; None while there is no marker.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).run_end()
        RunEnd(how='completed', detail='', workers={})
        """
        self.maybe_refresh()
        return self._run.end()

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

    @property
    def _global_to_mode(self) -> dict[int, tuple[ModeKeys, int]]:
        """Mode and mode step of each global step seen so far, for scripts that read smdebug's attribute of this name."""
        index = self._run.index
        self._run.load()
        return {step: (ModeKeys(of[0]), of[1]) for step in index.steps() if (of := index.mode_of(step)) is not None}

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
        try:
            found = self._patterns.matching(collection.include_regex, names)
        except re.error as error:
            raise SMDebugValueError(
                f"Collection {shown(collection.name)} has a pattern that is no regular expression: {error}."
            ) from None
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
        if tname in self._tensors:
            return True
        if not is_text(tname):
            return False
        if self._run.has(tname):
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

    def export(
        self,
        to: str,
        out: str | os.PathLike[str] | None = None,
        *,
        tensors: str | Sequence[str] | None = None,
        steps: range | Iterable[int] | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        workers: str | Sequence[str] | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Exported:
        """Write the run, or a part of it, for other tools: ``to`` is ``"npz"``, ``"parquet"`` or ``"tensorboard"``.

        ``out`` is a file, or for TensorBoard a folder; unless said it is called after the run. ``tensors`` are regular
        expressions, ``steps`` in the count of ``mode``, ``workers`` names; None is all. It is written record by record, and is
        there when all is written, or not at all. What is there already is replaced only with ``force``. Records that can't be
        read are left out, and told of in the answer's ``errors``.

        Parquet is a table with a row a record: step, mode, mode_step, worker, tensor, dtype, shape, values. An ``npz`` holds an array a
        record, ``<tensor>/<step>.<worker>``, and ``index.jsonl``. TensorBoard gets numbers as scalars and tensors as histograms.

        >>> trial.export("parquet", "mlp.parquet", tensors="weight$", steps=range(100, 200))    # doctest: +SKIP
        mlp.parquet: 200 records of 2 tensors at 100 steps, 12.0 MB
        """
        from smdwidgets.exports import export  # what writes stands above what reads

        options: dict[str, Any] = {"tensors": tensors, "steps": steps, "mode": mode, "workers": workers, "force": force}
        return export(self, to, out, progress=progress, **options)

    # ------------------------------------------------------------------------------------------------- collections

    def collections(self) -> dict[str, Collection]:
        """The collections of the training, by name, and those created by :meth:`collection`.

        What belongs to one was not necessarily saved.
        """
        self.maybe_refresh()
        filled = {name: one for name, one in self._created.items() if _is_filled(one)}
        return {**self._created, **self.collection_manager.collections, **filled}

    def collection(self, coll_name: str) -> Collection:
        """One collection. If the run has none of this name, it is created empty.

        Fill it with ``include`` and ``add_tensor_name`` to ask for its tensors by name. It belongs to this object, not to the run.
        A warning names the nearest collection if the name looks like a misspelling.

        >>> trial.collection("relu").include("relu")               # doctest: +SKIP
        >>> trial.tensor_names(collection="relu")                  # doctest: +SKIP
        ['relu1_output_0', 'relu2_output_0']
        """
        if not isinstance(coll_name, str):
            raise SMDebugTypeError(f"coll_name must be a string, got {type(coll_name).__name__}")
        found = self._known_collection(coll_name)
        if found is None:
            self.maybe_refresh()
            found = self._known_collection(coll_name)
        if found is not None:
            return found
        if coll_name not in self._created and coll_name not in BUILT_IN:
            meant = misspelling_of(coll_name, [*BUILT_IN, *self.collection_manager.collections])
            if meant is not None:
                self.logger.warning(
                    "%s has no collection %s. Did you mean %s? An empty collection was created.",
                    shown(self.name),
                    shown(coll_name),
                    shown(meant),
                )
        return self._created.setdefault(coll_name, Collection(coll_name))

    def _known_collection(self, name: str) -> Collection | None:
        created = self._created.get(name)
        if created is not None and _is_filled(created):
            return created
        return self.collection_manager.collections.get(name)

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


def _is_filled(collection: Collection) -> bool:
    return bool(collection.include_regex or collection.tensor_names)
