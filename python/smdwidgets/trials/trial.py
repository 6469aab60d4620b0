"""Trial and Tensor: queries of steps, modes, tensors, collections and workers."""

from __future__ import annotations

import math
import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import did_you_mean, misspelling_of, shown
from smdwidgets.config.collection import Collection
from smdwidgets.config.keys import BUILT_IN
from smdwidgets.exceptions import (
    DataError,
    IncompleteShardsError,
    NoMoreData,
    RunFileMissing,
    RunIOError,
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugTypeError,
    SMDebugValueError,
    StepDeleted,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
    UFuncTypeError,
)
from smdwidgets.executors import using
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.run_end import RunEnd
from smdwidgets.trials import bulk, extensions, show
from smdwidgets.trials.columns import Columns, Failure
from smdwidgets.trials.difference import Difference, Saved
from smdwidgets.trials.extensions import Exported, TensorPlotter, TrialPlotter
from smdwidgets.trials.incidents import Incidents
from smdwidgets.trials.missing import wait_for_event_file
from smdwidgets.trials.patterns import Patterns
from smdwidgets.trials.queries import RunQueries, StepState
from smdwidgets.trials.resolver import StepResolver
from smdwidgets.trials.run import REDUCTIONS, Progress, Run, dtype_named
from smdwidgets.trials.shards import Sharded
from smdwidgets.trials.statistics import statistics as compute_statistics
from smdwidgets.trials.sweeps import Verified
from smdwidgets.trials.sweeps import verify as verify_records
from smdwidgets.trials.wait import wait_until

if TYPE_CHECKING:
    import dask.array
    import dask.dataframe
    import xarray

_GLOBAL = ModeKeys.GLOBAL


class Trial(RunQueries):
    """A finished or running training run.

    Until the run has ended, every call first checks for new steps; ``smdwidgets.analysis.utils.no_refresh`` turns this off.
    The cost depends on the number of new steps, not on the run's length. A trial is thread-safe and a context manager.

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
        lazy: bool = False,
    ) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._patterns = Patterns()
        #: Collections created by `collection` because the run does not have them.
        self._created: dict[str, Collection] = {}
        super().__init__(run, name, range_steps, wait=wait, skip_bad_index=skip_bad_index, lazy=lazy)

    def close(self) -> None:
        """Close files and connections.

        Arrays returned earlier stay valid. Later calls raise :class:`TrialClosed`.
        """
        for tensor in list(self._tensors.values()):
            tensor._close()
        super().close()

    def _start_over(self) -> None:
        super()._start_over()
        for tensor in list(self._tensors.values()):
            tensor._bind()

    def _of_snapshot(self, *args: Any) -> Self:
        trial = super()._of_snapshot(*args)
        trial._tensors, trial._patterns, trial._created = {}, Patterns(), {}
        return trial

    def run_end(self) -> RunEnd | None:
        """Return how the training ended, or None while there is no end marker.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).run_end()
        RunEnd(how='completed', detail='', workers={})
        """
        self.maybe_refresh()
        return self._run.end()

    def hparams(self) -> dict[str, Any]:
        """Return the hyperparameters that were logged for the run.

        Runs in smdebug's format have none.
        """
        return {}

    def incidents(self) -> Incidents:
        """Return when and why the flight recorder wrote its steps, by step.

        The result is a list of :class:`~smdwidgets.incident.Incident`, with a method ``to_pandas``. Records of several workers
        about the same steps are joined.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).incidents()
        no incidents
        """
        self.maybe_refresh()
        with self._refreshing:
            return self._run.incidents().combined()

    # ------------------------------------------------------------------------------------------------------ steps

    def steps(self, mode: ModeKeys | str = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the complete steps in ascending order: global steps, or steps of a mode.

        A step is complete once all workers have written it. ``show_incomplete_steps`` adds incomplete steps.
        """
        self.maybe_refresh()
        mode = as_mode(mode)
        return list(self._all_steps(mode) if show_incomplete_steps else self._complete_steps(mode))

    def modes(self) -> list[ModeKeys]:
        """Return the modes of the steps read so far, without GLOBAL."""
        self.maybe_refresh()
        self._run.load()
        return [ModeKeys(number) for number in self._run.index.modes() if number != ModeKeys.GLOBAL.value]

    def mode(self, global_step: int) -> ModeKeys | None:
        """Return the mode of a global step, or None if the step was not saved."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """Return the mode step of a global step, or None if the step was not saved."""
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys, int] | tuple[None, None]:
        """Return mode and mode step of a global step, or (None, None)."""
        found = self._mode_of(global_step)
        if found is None:
            self.maybe_refresh()
            found = self._mode_of(global_step)
        return (None, None) if found is None else (ModeKeys(found[0]), found[1])

    @property
    def _global_to_mode(self) -> dict[int, tuple[ModeKeys, int]]:
        """Mode and mode step by global step, for compatibility with smdebug."""
        index = self._run.index
        self._run.load()
        return {step: (ModeKeys(of[0]), of[1]) for step in index.steps() if (of := index.mode_of(step)) is not None}

    def global_step(self, mode: ModeKeys | str, mode_step: int) -> int | None:
        """Return the global step of a mode step, or None if the step was not saved."""
        mode = as_mode(mode)
        found = self._global_step(mode, mode_step)
        if found is None:
            self.maybe_refresh()
            found = self._global_step(mode, mode_step)
        return found

    def workers(self) -> list[str]:
        """Return the names of the workers of the run, sorted."""
        self.maybe_refresh()
        return sorted(self._collection_workers.union(self._run.index.workers()))

    # ---------------------------------------------------------------------------------------------------- waiting

    def has_passed_step(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> StepState:
        """Return the availability of a step.

        AVAILABLE: it is complete. NOT_YET_AVAILABLE: it may still be saved. UNAVAILABLE: it was not saved.
        """
        mode = as_mode(mode)
        self.maybe_refresh()
        return self._state_of(step, mode)

    def wait_for_steps(
        self,
        required_steps: Iterable[int],
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        timeout: float | None = None,
    ) -> None:
        """Block until all these steps are available. Ctrl-C interrupts the wait.

        Raises:
            StepUnavailable: a step was skipped.
            NoMoreData: the run ended before a step.
            WaitTimeout: ``timeout`` seconds elapsed (None: no timeout).
        """
        mode = as_mode(mode)
        steps = [required_steps] if isinstance(required_steps, int) else list(required_steps)
        if timeout is not None and (math.isnan(timeout) or timeout < 0):
            raise ValueError(f"timeout must be >= 0 seconds or None, got {timeout!r}")
        missing = list(reversed(steps))

        def done() -> bool:
            while missing and self._is_available(missing[-1], mode):
                missing.pop()
            return not missing

        def what() -> str:
            seen = self._all_steps(mode)
            last = f"last step so far: {seen[-1]}" if seen else "no steps so far"
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
        """Return sorted names of tensors: all, or those that satisfy every condition.

        Args:
            step: only tensors saved at this step of ``mode``.
            mode: only tensors saved in this mode.
            regex: only names in which this pattern, or any of these patterns, is found (``re.search``).
            collection: only tensors of this collection. Mutually exclusive with ``regex``.
            show_prefixed_tensors: accepted for compatibility.
        """
        if isinstance(step, bool):  # smdebug's first argument was show_prefixed_tensors
            step = None
        self.maybe_refresh()
        if regex is not None and collection is not None:
            raise ValueError("regex= and collection= are mutually exclusive; got both")
        names = self._names(step, as_mode(mode))
        if collection is not None:
            return self._in_collection(self._resolve_collection(collection), names)
        if regex is not None:
            return self._matching([regex] if isinstance(regex, str) else list(regex), names)
        return list(names)

    def tensors(self, *args: Any, **kwargs: Any) -> list[str]:
        """Alias of :meth:`tensor_names`, for older scripts."""
        return self.tensor_names(*args, **kwargs)

    def _matching(self, patterns: list[str], names: list[str]) -> list[str]:
        found = self._patterns.matching(patterns, names)
        return [name for name in names if name in found]

    def _in_collection(self, collection: Collection, names: list[str]) -> list[str]:
        listed_in = collection.tensor_names
        try:
            found = self._patterns.matching(collection.include_regex, names)
        except re.error as error:
            raise SMDebugValueError(
                f"invalid regular expression in collection {shown(collection.name)}: {error}"
            ) from None
        return [name for name in names if name in listed_in or name in found]

    def _resolve_collection(self, collection: Collection | str) -> Collection:
        if isinstance(collection, Collection):
            return collection
        if isinstance(collection, str):
            return self.collection(collection)
        raise TypeError(f"collection must be a string or Collection, got {type(collection).__name__}")

    def has_tensor(self, tname: str) -> bool:
        """Return whether a tensor was saved at any step so far."""
        if self._closed:
            self._refuse()
        return tname in self._tensors or self._has(tname)

    def tensor(self, tname: str) -> Tensor:
        """Return the tensor of this name.

        Raises :class:`TensorUnavailable`, with the most similar names, if no step so far contains it.
        """
        tensor = self._tensors.get(tname)
        if tensor is None:
            if not self.has_tensor(tname):
                raise TensorUnavailable(tname, self._names(None, ModeKeys.GLOBAL))
            tensor = self._tensors.setdefault(tname, Tensor(tname, self))
        return tensor

    def inputs(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        """Return the values of collection ``inputs`` at a step, by name suffix number."""
        return self._values_of(self.tensor_names(step, mode, collection="inputs"), step, mode)

    def labels(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        """Return the values of tensors whose names contain "label", at a step."""
        return self._values_of(self.tensor_names(step, mode, regex="labels*"), step, mode)

    def predictions(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        """Return the values of tensors whose names contain "prediction", at a step."""
        return self._values_of(self.tensor_names(step, mode, regex="predictions*"), step, mode)

    def _values_of(self, names: list[str], step: int, mode: ModeKeys | str) -> list[NDArray[Any]]:
        def number(name: str) -> int:
            tail = name.rpartition("_")[2]
            return int(tail) if tail.isdecimal() else 0

        return [self.tensor(name).value(step, mode) for name in sorted(names, key=number)]

    def difference(
        self,
        a: tuple[str | Tensor, int] | tuple[str | Tensor, int, str],
        b: tuple[str | Tensor, int] | tuple[str | Tensor, int, str] | int,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
    ) -> Difference:
        """Return ``a - b``, element by element.

        The result has statistics and the elements that changed most.

        Args:
            a: the tensor (its name, or a :class:`Tensor` of any run) and the step; a worker if it is not the first.
            b: the same of the other value, or only another step of ``a``.
            mode: mode of the steps.

        >>> trial.difference(("fc1.weight", 200), 100).changed(3)              # doctest: +SKIP
        >>> trial.difference(("fc1.weight", 200), (other.tensor("fc1.weight"), 200)).statistics["l2"]   # doctest: +SKIP
        """
        first, *at = _place(a, "a")
        second, *other = _place((first, b, *at[1:]) if isinstance(b, (int, np.integer)) else b, "b")
        tensors = [self.tensor(each) if isinstance(each, str) else each for each in (first, second)]
        return Difference(tensors[0]._saved(at[0], mode, *at[1:]), tensors[1]._saved(other[0], mode, *other[1:]))

    # ----------------------------------------------------------------------------------------------- bulk reading

    def values(
        self,
        wanted: Mapping[str, Iterable[int] | None] | Iterable[str] | str | None = None,
        *,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Columns:
        """Return values of many tensors at many steps, read in parallel.

        The result has one row per value. Unreadable records are in its ``errors``.

        Args:
            wanted: a dictionary from names to steps (None: all steps of the tensor), or names; None: all tensors.
            mode: mode of the steps.
            worker: name of a worker, or ``"*"`` for all; None: the first that has a value.
            progress: called with the number of finished records and their total.
            threads: number of threads.

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
        coverage: bool = False,
        progress: Progress | None = None,
        threads: int | None = None,
        client: Any = None,
    ) -> Columns:
        """Return reductions of many tensors at many steps, read in parallel.

        Saved reductions are read; the others are computed from the values.

        Args:
            names: names of tensors; None: all.
            steps: steps of ``mode``; None: all.
            mode: mode of ``steps``.
            worker: name of a worker, or ``"*"`` for all; None: the first that has a value.
            reductions: names such as ``"mean"``, ``"abs_max"``, ``"l2"``; None: all 18.
            counts: add the numbers of elements, zeros, NaNs and infinities.
            coverage: add the share of the tensor's elements that were saved. It is less than 1 if shards of a sharded tensor
                are missing; the reductions are then those of the elements that were saved. Without it, such tensors are
                in ``errors``.
            progress: called with the number of finished records and their total.
            threads: number of threads.
            client: a ``distributed.Client`` whose workers read the run; None: that of :func:`smdwidgets.use`, else this
                process.

        >>> trial.reductions(["fc1.weight"], reductions=["mean", "l2"])["l2"]    # doctest: +SKIP
        """
        with using(client):
            return bulk.reductions(
                self, names, steps, as_mode(mode), worker, reductions, counts, coverage, progress, threads
            )

    def statistics(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        columns: Iterable[str] | str | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        cache: bool = True,
        progress: Progress | None = None,
        threads: int | None = None,
        client: Any = None,
    ) -> Columns:
        """Return the statistics of tensors over steps, one row per tensor and step.

        They come from the statistics that the training wrote. For tensors without them they are computed from the saved
        values, and cached in the user's cache directory; a later call reads only new steps. The statistics are ``count``,
        ``nan``, ``neg_inf``, ``pos_inf``, ``zeros``; ``min``, ``max``, ``mean``, ``std``, ``l1``, ``l2`` and ``abs_max`` of
        the finite elements; and ``update``, the L2 norm of the change since the step before (for computed statistics, the
        saved step before). ``update_ratio`` is ``update`` divided by ``l2``, and ``rms`` is the root mean square.

        Numbers have 24 significant bits. ``flags`` is not 0 where a row is special: 1 no value, 2 skipped step, 4 sample of
        the elements, 8 failed, 16 approximate (from a histogram), 32 saved
        reductions only, without counts (-1). ``coverage`` is below 1 if shards are missing.

        Args:
            names: names of tensors; None: all with written statistics, or all tensors if the training wrote none.
            steps: steps of ``mode``; None: all.
            columns: names of statistics; None: all but ``update_ratio`` and ``rms``, with ``coverage`` and ``flags``.
            mode: mode of ``steps``.
            worker: name of a worker, or ``"*"`` for all; None: shards are combined, else the first worker's.
            cache: whether computed statistics are cached. Runs on S3 and TensorBoard logs have no cache.
            progress: called with the number of finished bytes and their total while values are read.
            threads: number of threads.
            client: a ``distributed.Client`` whose workers read the run; None: that of :func:`smdwidgets.use`, else this
                process.

        >>> trial.statistics("fc1.weight", columns=["mean", "update_ratio"]).to_pandas()    # doctest: +SKIP
        """
        with using(client):
            return compute_statistics(self, names, steps, columns, as_mode(mode), worker, cache, progress, threads)

    def verify(self, *, progress: Progress | None = None, threads: int | None = None, client: Any = None) -> Verified:
        """Verify every record of the run: framing, names, checksums and shapes.

        The command ``smdwidgets verify`` also checks index files, collections and statistics files. Only runs that hooks saved
        are verified.

        Args:
            progress: called with the number of finished bytes and their total.
            threads: number of threads.
            client: a ``distributed.Client`` whose workers read the run; None: that of :func:`smdwidgets.use`, else this
                process.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> found = smdwidgets.create_trial(folder).verify()
        >>> found.records, found.errors
        (1, [])
        """
        self.maybe_refresh()
        last_step = self._run.index.last_step()
        with using(client):
            counts = verify_records(self, threads=threads, progress=progress)
        errors = [Failure(*error) for error in counts["errors"]]
        return Verified(counts["records"], counts["bytes"], counts["unverifiable"], errors, last_step)

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
        """Export the run, or a part of it, to another format.

        The output is written record by record and renamed to ``out`` when it is complete. Unreadable records are skipped and
        listed in the result's ``errors``.

        Args:
            to: the format: ``"npz"``, ``"parquet"``, ``"csv"``, ``"csv-wide"`` or ``"tensorboard"``. A Parquet file has one row per
                record with the columns step, mode, mode_step, worker, tensor, dtype, shape, values and wall_time. CSV contains
                numbers and texts: one row per value, or one row per step and one column per tensor. An ``npz`` file contains one array per
                record, ``<tensor>/<step>.<worker>``, and ``index.jsonl``. For TensorBoard, numbers become scalars and tensors
                become histograms.
            out: the output file, for TensorBoard a directory. By default it is named after the run.
            tensors: patterns of tensor names; None: all.
            steps: steps of ``mode``; None: all.
            mode: mode of ``steps``.
            workers: names of workers; None: all.
            force: overwrite an existing output.
            progress: called with the number of finished records and their total.

        >>> trial.export("parquet", "mlp.parquet", tensors="weight$", steps=range(100, 200))    # doctest: +SKIP
        mlp.parquet: 200 records of 2 tensors at 100 steps, 12.0 MB
        """
        export = extensions.exporter.load()
        return export(
            self, to, out, tensors=tensors, steps=steps, mode=mode, workers=workers, force=force, progress=progress
        )

    def to_xarray(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        chunk_bytes: int = 64 << 20,
        verify: str = "record",
    ) -> xarray.Dataset:
        """Return tensors as a dataset of xarray.

        Values are read when they are computed. Requires ``pip install 'smdwidgets[dask]'``. Each tensor is a variable with the dimensions ``step``, ``<name>_0``,
        ``<name>_1`` and so on. Coordinates are ``step`` (global steps), ``mode``, ``mode_step``, ``wall_time`` (read lazily)
        and ``worker``. Where a tensor of floating-point numbers has no value, it is NaN; the dataset has only steps at which
        all other tensors have one. ``wall_time`` is that of the record of the first tensor. The dataset is a snapshot of a growing run: ``attrs["last_step"]`` is its last step.

        Args:
            names: names of tensors; None: all but texts.
            steps: steps of ``mode``; None: all complete ones.
            mode: mode of the steps.
            worker: name of a worker; None: the first that has a value, and sharded tensors as a whole.
            chunk_bytes: limit on the size of a chunk.
            verify: see :meth:`Tensor.to_dask`.

        >>> trial.to_xarray(["fc1.weight", "fc1.bias"]).sel(step=slice(0, 100)).std("step").compute()    # doctest: +SKIP
        """
        read = extensions.lazy_reader.load().to_xarray
        return read(self, names, steps, mode, worker, chunk_bytes=chunk_bytes, verify=verify)

    def to_dask_dataframe(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        columns: Iterable[str] | str | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        by: str = "names",
        partition_rows: int = 4096,
        errors: str = "raise",
    ) -> dask.dataframe.DataFrame:
        """Return the table of :meth:`statistics` as a data frame of Dask.

        Requires ``pip install 'smdwidgets[dask]'``. Nothing is read before a result is computed. Statistics that are computed
        from values are not cached.

        Args:
            names: names of tensors; None: as in :meth:`statistics`.
            steps: steps of ``mode``; None: all.
            columns: names of statistics; None: as in :meth:`statistics`.
            mode: mode of ``steps``.
            worker: name of a worker, or ``"*"`` for all; None: shards are combined, else the first worker's.
            by: ``"names"``: a partition has all steps of some tensors, in the order of :meth:`statistics`. ``"steps"``: it has
                all tensors at some of the steps at which values were saved.
            partition_rows: approximate number of rows of a partition.
            errors: ``"raise"`` the error of an unreadable record, or ``"skip"`` its row.

        >>> trial.to_dask_dataframe(columns=["l2"]).groupby("name")["l2"].max().compute()    # doctest: +SKIP
        """
        read = extensions.lazy_reader.load().to_dask_dataframe
        return read(self, names, steps, columns, mode, worker, by=by, partition_rows=partition_rows, errors=errors)

    # ------------------------------------------------------------------------------------------------- collections

    def collections(self) -> dict[str, Collection]:
        """Return the collections by name, with those created by :meth:`collection`.

        The tensors of a collection were not necessarily saved.
        """
        self.maybe_refresh()
        filled = {name: one for name, one in self._created.items() if _is_filled(one)}
        return {**self._created, **self.collection_manager.collections, **filled}

    def modules(self) -> dict[str, list[str]]:
        """Return the class names of the model's modules, by the module's name.

        The most derived class is first. The names are those in tensor names.

        PyTorch hooks record the modules whose inputs or outputs they save. Other runs have none.

        >>> trial.modules()["fc1"]                                 # doctest: +SKIP
        ['Linear']
        """
        self.maybe_refresh()
        return self.collection_manager.modules

    def collection(self, coll_name: str) -> Collection:
        """Return a collection. If the run has none of this name, create an empty one.

        Add patterns with ``include`` and names with ``add_tensor_name`` to query its tensors. A created collection exists
        only in this object and is not written to the run. A warning names the nearest collection if the name looks like a misspelling.

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

    # ----------------------------------------------------------------------------------------------------- display

    @property
    def plot(self) -> TrialPlotter[Trial]:
        """Matplotlib plots of the run: :class:`~smdwidgets.plots.TrialPlots`."""
        return extensions.trial_plotter.load()(self)

    def __eq__(self, other: object) -> bool:
        return (self.name, self.path) == (other.name, other.path) if isinstance(other, Trial) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.path))

    def __repr__(self) -> str:
        return show.trial_text(self)

    def _repr_html_(self) -> str:
        return show.trial_html(self)


def _place(given: Any, name: str) -> tuple[Any, ...]:
    """Check a tensor, a step and perhaps a worker."""
    if (
        isinstance(given, tuple)
        and len(given) in {2, 3}
        and isinstance(given[0], (str, Tensor))
        and isinstance(given[1], (int, np.integer))
    ):
        return given
    raise SMDebugTypeError(f"{name} must be (tensor, step) or (tensor, step, worker), got {shown(given)}")


def _is_filled(collection: Collection) -> bool:
    return bool(collection.include_regex or collection.tensor_names)


class Tensor:
    """One tensor of a run, returned by ``trial.tensor(name)``.

    Every call returns new writable arrays that share no memory.

    >>> weight = trial.tensor("fc1.weight")                      # doctest: +SKIP
    >>> weight.value(weight.steps()[-1]).shape                   # doctest: +SKIP
    (64, 32)
    """

    __slots__ = ("_fetch", "_index", "_resolver", "name", "trial")

    def __init__(self, name: str, trial: Trial) -> None:
        self.name = name
        self.trial = trial
        self._bind()

    def _bind(self) -> None:
        """Read from the trial's current index."""
        self._index = self.trial._run.index
        self._resolver = StepResolver(self.trial, self.name)
        self._fetch = self.trial._run.getter()

    def passing(self) -> Tensor:
        """Return a tensor that does not cache, for values that are read once."""
        tensor = Tensor(self.name, self.trial)
        tensor._fetch = self.trial._run.passing()
        return tensor

    # ----------------------------------------------------------------------------------------------------- values

    def value(
        self,
        step_num: int,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        copy: bool = False,
    ) -> NDArray[Any]:
        """Return the value at a step of ``mode``.

        ``worker=None`` selects the first worker by name that has a value. A sharded tensor is assembled from the shards of all
        workers; ``worker=`` selects one shard.

        The array is writable and shares no memory. ``copy`` is accepted for compatibility and has no effect.

        Raises :class:`StepUnavailable`, :class:`StepNotYetAvailable`, :class:`TensorUnavailableForStep`,
        :class:`InvalidWorker`, :class:`~smdwidgets.exceptions.IncompleteShardsError` if shards are missing, or
        :class:`~smdwidgets.exceptions.DataError` if the record is damaged.
        """
        # The common case is one call into the core, without checking for new steps.
        if mode is _GLOBAL:
            step: int | None = step_num
        else:
            mode = as_mode(mode)
            step = self.trial._global_step(mode, step_num)
        if step is not None:
            try:
                value = self._fetch(self.name, step, worker)
            except (DataError, RunIOError, OverflowError, UnicodeEncodeError):
                value = None  # _value_or_raise recovers or raises
            if value is not None:
                return value
        return self._value_or_raise(step_num, mode, worker)

    def values(self, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> dict[int, NDArray[Any]]:
        """Return the value at each step of a mode, by step.

        ``trial.values`` reads many tensors at once.
        """
        return {step: self.value(step, mode, worker) for step in self.steps(mode)}

    def difference(
        self,
        step_a: int,
        step_b: int,
        other: Tensor | None = None,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        other_worker: str | None = None,
    ) -> Difference:
        """Return the value at ``step_a`` minus that at ``step_b``, element by element.

        The result has statistics and the elements that changed most.

        Args:
            step_a: step of ``mode``.
            step_b: step of ``mode`` of the subtracted value.
            other: the tensor that is subtracted, of this or another run; None: this one.
            mode: mode of both steps.
            worker: name of a worker; None: the first that has a value.
            other_worker: the worker of the subtracted value; None: ``worker`` for the same tensor, else the first that has one.

        >>> trial.tensor("fc1.weight").difference(200, 100).changed(3)         # doctest: +SKIP
        """
        if other is None:
            other, other_worker = self, other_worker if other_worker is not None else worker
        if not isinstance(other, Tensor):
            raise SMDebugTypeError(f"other must be a Tensor, got {type(other).__name__}; see trial.tensor(name)")
        return Difference(self._saved(step_a, mode, worker), other._saved(step_b, mode, other_worker))

    def _saved(self, step_num: int, mode: ModeKeys | str, worker: str | None = None) -> Saved:
        value = self.value(step_num, mode, worker)
        return Saved(self.name, int(step_num), value, as_mode(mode), worker, self.trial.path)

    def rows(
        self,
        step_num: int,
        start: int,
        stop: int,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        verify: str = "record",
    ) -> NDArray[Any]:
        """Return ``value(step_num)[start:stop]``, and read no more than needed.

        Only this part is held in memory. ``verify="record"`` reads the whole record in pieces if it has a checksum. ``"none"`` reads only these rows, without
        their checksum.

        >>> trial.tensor("embedding").rows(1000, 0, 128, verify="none").shape     # doctest: +SKIP
        (128, 4096)
        """
        mode = as_mode(mode)
        step = self._resolver.global_step(step_num, mode, worker)
        place = None if self._sharded(step, worker) is not None else self._index.find(self.name, step, worker)
        if place is not None:
            _, shape = self._head(place, step_num, mode)
            if shape:
                first, last, _ = slice(start, stop).indices(shape[0])
                try:
                    part = self.trial._run.part(place, first, max(first, last), verify != "none")
                except (DataError, RunIOError):
                    part = None  # `value` recovers or raises
                if part is not None:
                    return part
        value: NDArray[Any] = self.value(step_num, mode, worker)[start:stop]
        return value

    def to_dask(
        self,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        chunk_bytes: int = 64 << 20,
        verify: str = "record",
    ) -> dask.array.Array:
        """Return the values as an array (step, shape…) of Dask.

        Values are read when they are computed. Requires ``pip install 'smdwidgets[dask]'``. A chunk has some steps, or rows of one step along the first axis, of at
        most ``chunk_bytes``. The array can be computed by other processes and machines that reach the run; they need the same
        version of smdwidgets, and find credentials by themselves. The array is a snapshot of a growing run; its repr says the
        last step.

        Args:
            steps: steps of ``mode``; None: all complete ones with a value.
            mode: mode of the steps.
            worker: name of a worker; None: the first that has a value, and a sharded tensor as a whole.
            chunk_bytes: limit on the size of a chunk.
            verify: ``"record"``: check each record, of which one that is cut into chunks is read whole for each of them.
                ``"none"``: read only the rows of a chunk, or of a slice, without their checksum.

        Raises :class:`~smdwidgets.exceptions.SMDebugValueError` if dtype or shape differ between steps.

        >>> trial.tensor("fc1.weight").to_dask().std(axis=0).compute()             # doctest: +SKIP
        """
        read = extensions.lazy_reader.load().to_dask
        return read(self, steps, mode, worker, chunk_bytes=chunk_bytes, verify=verify)

    def _value_or_raise(self, step_num: int, mode: ModeKeys, worker: str | None) -> NDArray[Any]:
        with self._telling_deleted(step_num, mode):
            return self._find_value(step_num, mode, worker)

    @contextmanager
    def _telling_deleted(self, step_num: int, mode: ModeKeys) -> Iterator[None]:
        """Raise StepDeleted where nothing is found because the step's values were deleted."""
        try:
            yield
        except (DataError, StepUnavailable, TensorUnavailableForStep) as error:
            raise self._deleted(step_num, mode) or error from None

    def _deleted(self, step_num: int, mode: ModeKeys, step: int | None = None) -> StepDeleted | None:
        """Return the error for a step whose values were deleted, or None."""
        if step is None:
            step = step_num if mode == ModeKeys.GLOBAL else self.trial._global_step(mode, step_num)
        every = None if step is None else self.trial._run.deleted(step)
        return None if every is None else StepDeleted(self.name, step_num, mode, every)

    def _find_value(self, step_num: int, mode: ModeKeys, worker: str | None) -> NDArray[Any]:
        step = self._resolver.global_step(step_num, mode, worker)
        sharded = self._sharded(step, worker)
        if sharded is not None and self._has_values(sharded):
            return self._assembled(sharded, step_num, mode)
        place = self._index.find(self.name, step, worker)
        if place is None:
            has_reductions = bool(self._index.stored_reductions(self.name, step, worker))
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions)
        return self._read(place, step_num, mode)

    def _sharded(self, step: int, worker: str | None) -> Sharded | None:
        return self.trial._run.sharded(self.name, step) if worker is None else None

    def coverage(self, step_num: int, mode: ModeKeys | str = _GLOBAL) -> float:
        """Return the share of the tensor's elements that were saved at a step.

        It is less than 1 if shards of a sharded tensor are missing.
        """
        sharded = self._sharded(self._resolver.global_step(step_num, as_mode(mode), None), None)
        if sharded is None:
            return 1.0

        def has(worker: str) -> bool:
            at = (self.name, sharded.step, worker)
            return self._index.find(*at) is not None or bool(self._index.stored_reductions(*at))

        return sharded.coverage(has)

    def _has_values(self, sharded: Sharded) -> bool:
        return any(self._index.find(self.name, sharded.step, worker) for worker in sharded.shards)

    def _assembled(self, sharded: Sharded, step_num: int, mode: ModeKeys) -> NDArray[Any]:
        """Return the value of a sharded tensor.

        Check once for shards that were written since the last refresh.
        """

        def read(worker: str) -> NDArray[Any]:
            return self._read(self._index.find(self.name, sharded.step, worker), step_num, mode)

        def has(worker: str) -> bool:
            return self._index.find(self.name, sharded.step, worker) is not None

        try:
            return sharded.assemble(read, has)
        except IncompleteShardsError:
            self.trial.maybe_refresh(self.name)
            return (self._sharded(sharded.step, None) or sharded).assemble(read, has)

    def _read(self, place: Any, step_num: int, mode: ModeKeys) -> NDArray[Any]:
        """Read a value; wait for a missing file, and retry if the step was overwritten."""
        try:
            return self.trial._run.value(place)
        except RunIOError as error:
            if not isinstance(error, RunFileMissing) and self.trial._run.file_there(place.event_key):
                raise
            if (deleted := self._deleted(step_num, mode, place.step)) is not None:
                raise deleted from None
            wait_for_event_file(self.trial, place, self.name, step_num, mode)
            return self.trial._run.value(place)
        except DataError as error:
            again = self.trial._run.reread(place.step) and self._index.find(self.name, place.step, place.worker)
            if not again:
                raise self._deleted(step_num, mode, place.step) or error from None
            return self.trial._run.value(again)

    # ------------------------------------------------------------------------------------------------- reductions

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        abs: bool = False,
    ) -> Any:
        """Return a reduction: the saved one, else computed from the value.

        ``reduction_name`` is min, max, mean, std, variance, sum, prod, l1 or l2. ``abs`` applies it to absolute values.
        Computed std and variance divide by n; norms are over all elements.
        """
        mode = as_mode(mode)
        with self._telling_deleted(step_num, mode):
            return self._reduction(step_num, reduction_name, mode, worker, abs)

    def _reduction(self, step_num: int, reduction_name: str, mode: ModeKeys, worker: str | None, abs: bool) -> Any:
        step = self._resolver.global_step(step_num, mode, worker)
        known = reduction_name in REDUCTIONS
        sharded = self._sharded(step, worker)
        if known and sharded is not None:
            return self._sharded_reduction(sharded, reduction_name, abs, step_num, mode)
        stored = self._index.stored_reduction(self.name, step, reduction_name, abs, worker) if known else None
        if stored is not None:
            return self._read(stored, step_num, mode)
        place = self._index.find(self.name, step, worker)
        if place is None:
            has_reductions = bool(self._index.stored_reductions(self.name, step, worker))
            which = f"{'abs_' if abs else ''}{reduction_name}"
            reason = f"neither the value nor its reduction {shown(which)} was saved"
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions, reason)
        if not known:
            self._head(place, step_num, mode)  # an unreadable value takes precedence as an error
            hint = did_you_mean(reduction_name, REDUCTIONS)
            choice = ", ".join(REDUCTIONS)
            raise SMDebugValueError(f"invalid reduction {shown(reduction_name)}; choose from {choice}.{hint}")
        value = self._read(place, step_num, mode)
        if value.dtype.kind not in "biufcV":
            raise UFuncTypeError(
                f"cannot compute {reduction_name} of tensor {shown(self.name)}: dtype {value.dtype.name} is not numeric"
            )
        return _core.reduction(value, reduction_name, abs)

    def _sharded_reduction(
        self, sharded: Sharded, reduction_name: str, absolute: bool, step_num: int, mode: ModeKeys
    ) -> Any:
        if self._has_values(sharded):
            return _core.reduction(self._assembled(sharded, step_num, mode), reduction_name, absolute)
        found = sharded.reduce(self._stored(sharded, step_num, mode), reduction_name, absolute)
        if found is None:
            # Raises if shards are missing.
            sharded.select(lambda worker: bool(self._index.stored_reductions(self.name, sharded.step, worker)))
            reason = f"the saved reductions of its shards cannot be combined to {reduction_name}"
            raise TensorUnavailableForStep(self.name, step_num, mode, True, reason)
        return found

    def _stored(
        self, sharded: Sharded, step_num: int, mode: ModeKeys
    ) -> dict[str, dict[tuple[str, bool], NDArray[Any]]]:
        """Return the saved reductions of each shard, by worker."""
        stored = {worker: self._index.stored_reductions(self.name, sharded.step, worker) for worker in sharded.shards}
        return {
            worker: {(op, absolute): self._read(place, step_num, mode) for op, absolute, place in places}
            for worker, places in stored.items()
        }

    def reduction_values(
        self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], Any]:
        """Return the saved reductions at a step, by (name, abs). Computes none."""
        mode = as_mode(mode)
        with self._telling_deleted(step_num, mode):
            return self._saved_reductions(step_num, mode, worker)

    def _saved_reductions(self, step_num: int, mode: ModeKeys, worker: str | None) -> dict[tuple[str, bool], Any]:
        step = self._resolver.global_step(step_num, mode, worker)
        sharded = self._sharded(step, worker)
        if sharded is not None:
            of_shards = self._stored(sharded, step_num, mode)
            saved = dict.fromkeys(name for of in of_shards.values() for name in of)
            combined = {(op, absolute): sharded.reduce(of_shards, op, absolute) for op, absolute in saved}
            return {name: value for name, value in combined.items() if value is not None}
        stored = self._index.stored_reductions(self.name, step, worker)
        return {(name, absolute): self._read(place, step_num, mode) for name, absolute, place in stored}

    # ----------------------------------------------------------------------------------------------------- shapes

    def shape(self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        """Return the shape at a step: the saved one, else that of the value.

        Only the header of the value is read.
        """
        mode = as_mode(mode)
        step = self._resolver.global_step(step_num, mode, worker)
        sharded = self._sharded(step, worker)
        if sharded is not None:
            return sharded.shape
        saved = self._index.shape_of(self.name, step, worker)
        if saved is not None:
            return saved
        place = self._index.find(self.name, step, worker)
        if place is None:
            raise ShapeUnavailableForStep(self.name, step_num, mode)
        try:
            return self._head(place, step_num, mode)[1]
        except TensorUnavailableForStep:
            raise ShapeUnavailableForStep(self.name, step_num, mode) from None

    def shapes(self, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> dict[int, tuple[int, ...]]:
        """Return the shape at each step of a mode, by step."""
        return {step: self.shape(step, mode, worker) for step in self.steps(mode)}

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Dtype of the newest value; None if no values were saved."""
        self.trial.maybe_refresh(self.name)
        self.trial._run.load()
        for step in reversed(self._index.steps_of(self.name)):
            place = self._index.find(self.name, step)
            if place is not None:
                return dtype_named(self._head(place, step, _GLOBAL)[0])
        return None

    def _head(self, place: Any, step_num: int, mode: ModeKeys) -> tuple[str, tuple[int, ...]]:
        run = self.trial._run
        try:
            return run.head(place)
        except (DataError, RunIOError):
            value = self._read(place, step_num, mode)
            return value.dtype.name, value.shape

    def _signature(self, step: int, worker: str | None) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return dtype and shape of the value at a global step, from its header."""
        sharded = self._sharded(step, worker)
        name, shape = self._head(self._index.find(self.name, step, worker), step, _GLOBAL)
        return dtype_named(name), shape if sharded is None else sharded.shape

    @property
    def original_name(self) -> str | None:
        """Name of the tensor in the framework, if the hook saved it."""
        self.trial._run.load()
        return self._index.original_name(self.name)

    # ------------------------------------------------------------------------------------------ steps and workers

    def steps(self, mode: ModeKeys | str = _GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the steps of a mode at which the tensor was saved, in ascending order.

        Steps with only a reduction or the shape are included.
        """
        self.trial.maybe_refresh(self.name)
        return list(self._steps(as_mode(mode), show_incomplete_steps))

    def _steps(self, mode: ModeKeys, show_incomplete_steps: bool = False) -> array[int]:
        trial, name = self.trial, self.name
        trial._run.load()

        def every() -> array[int]:
            return array(
                "q", self._index.steps_of(name) if mode == _GLOBAL else self._index.mode_steps(mode.value, name)
            )

        every_step = trial._cached(("steps of", name, mode), every)
        if show_incomplete_steps:
            return every_step
        return trial._cached(("complete of", name, mode), lambda: trial._only_complete(every_step, mode))

    def prev_steps(self, step: int, n: int | None = None, mode: ModeKeys | str = _GLOBAL) -> list[int]:
        """Return the last ``n`` steps up to ``step`` (inclusive), in ascending order.

        ``n=None`` returns all of them.
        """
        if n is not None and n < 0:
            raise ValueError(f"n must be >= 0 or None, got {n}")
        steps = self.steps(mode)
        end = bisect_right(steps, step)
        return steps[0 if n is None else max(0, end - n) : end]

    def workers(self, step_num: int, mode: ModeKeys | str = _GLOBAL) -> list[str]:
        """Return the workers that saved the tensor at a step, sorted."""
        return self._resolver.workers(step_num, as_mode(mode))

    def step(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported: use :meth:`value`, :meth:`reduction_value` or :meth:`shape`."""
        raise SMDebugNotImplementedError(
            "tensor.step(…) is not supported; use tensor.value(step) or tensor.reduction_value(step, name)"
        )

    # ------------------------------------------------------------------------------------------------------ other

    @property
    def plot(self) -> TensorPlotter:
        """Matplotlib plots of the tensor: :class:`~smdwidgets.plots.TensorPlots`."""
        return extensions.tensor_plotter.load()(self)

    def _close(self) -> None:
        trial = self.trial

        def refuse(name: str, step: int, worker: str | None = None) -> NoReturn:
            trial._refuse()

        self._fetch = refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_trial, (self.trial, self.name)

    def __repr__(self) -> str:
        return show.tensor_text(self.trial, self.name)

    def _repr_html_(self) -> str:
        return show.tensor_html(self.trial, self.name)


def _of_trial(trial: Trial, name: str) -> Tensor:
    """Restore a pickled tensor from its reopened trial."""
    return trial.tensor(name)
