"""Trial and Tensor, the public classes of a run.

They refer to each other, so one module defines both. A trial has a :class:`~smdwidgets.trials.reader.RunReader`, which
answers everything about the run; the methods here check arguments and describe the results.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import did_you_mean, shown
from smdwidgets.checks.record import CheckRecords
from smdwidgets.config.collection import Collection
from smdwidgets.config.collection_manager import CollectionManager
from smdwidgets.exceptions import (
    SMDebugIndexError,
    SMDebugNotImplementedError,
    SMDebugTypeError,
    SMDebugValueError,
    TensorUnavailable,
    UnknownTensor,
)
from smdwidgets.executors import using
from smdwidgets.modes import ModeKeys, as_mode, as_name, as_step
from smdwidgets.run_end import RunEnd
from smdwidgets.signals.noise import NoiseScale, noise_scale_of
from smdwidgets.signals.record import Signal, Signals
from smdwidgets.storage.address import is_address
from smdwidgets.trials import bulk, extensions, show
from smdwidgets.trials.bisection import Tolerance
from smdwidgets.trials.bisection import bisect as first_difference
from smdwidgets.trials.columns import Columns, Failure
from smdwidgets.trials.difference import Difference, Saved
from smdwidgets.trials.divergence import Divergence
from smdwidgets.trials.extensions import Exported, TensorPlotter, TrialPlotter
from smdwidgets.trials.incidents import Incidents
from smdwidgets.trials.names import NameFilter
from smdwidgets.trials.precision import (
    Precision,
    TensorPrecision,
    columns_of,
    precision_of,
    saved_until,
    worst_first,
)
from smdwidgets.trials.reader import Reopening, RunReader, StepState
from smdwidgets.trials.run import SWEEP, Progress, Run, SweepOptions
from smdwidgets.trials.saved_tensor import SavedTensor
from smdwidgets.trials.statistics.table import statistics as compute_statistics
from smdwidgets.trials.steps import wait_for_steps
from smdwidgets.trials.sweeps import Verified
from smdwidgets.trials.sweeps import verify as verify_records

if TYPE_CHECKING:
    import dask.array
    import dask.dataframe
    import xarray

    from smdwidgets.trials.first_operator import Command

_GLOBAL = ModeKeys.GLOBAL


class Trial:
    """A finished or running training run.

    Until the run has ended, every call first checks for new steps; ``smdwidgets.analysis.utils.no_refresh`` turns this
    off. The cost depends on the number of new steps, not on the run's length. A trial is thread-safe and a context
    manager.

    It is a mapping from names to tensors: ``trial["loss"]``, ``"loss" in trial``, ``len(trial)``.

    >>> trial = create_trial("runs/mlp")                       # doctest: +SKIP
    >>> trial["fc1.weight"].value()                            # doctest: +SKIP
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
        unstarted: bool = False,
        reopening: Callable[[], Reopening] | None = None,
    ) -> None:
        self.name = name
        self.range_steps = range_steps
        #: What the other modules of the package read the run with.
        self.reader = RunReader(
            run, name, wait=wait, skip_bad_index=skip_bad_index, lazy=lazy, unstarted=unstarted, reopening=reopening
        )
        self.path = self.trial_dir = run.path
        self._empty_caches()

    def _empty_caches(self) -> None:
        """Create what a snapshot of the trial does not share with it."""
        self._tensors: dict[str, Tensor] = {}
        self._filter = NameFilter(self.reader)

    def snapshot(self, reader: RunReader) -> Self:
        """Return a trial that reads with another reader of the same run."""
        trial = object.__new__(type(self))
        trial.__dict__.update(self.__dict__)
        trial.reader = reader
        trial._empty_caches()
        return trial

    # -------------------------------------------------------------------------------------------------- refreshing

    @property
    def logger(self) -> logging.Logger:
        """The logger of trials."""
        return self.reader.logger

    @property
    def is_local(self) -> bool:
        """Whether the run is in a directory of this machine, not in a store."""
        return not is_address(self.path)

    @property
    def loaded_all_steps(self) -> bool:
        """Whether the run has ended and all steps are known. If so, refreshing stops."""
        return self.reader.loaded_all_steps

    @property
    def restarts(self) -> int:
        """Number of times that another run replaced this one.

        Everything that was read before is dropped then.
        """
        return self.reader.restarts

    @property
    def restarted_at(self) -> float | None:
        """When the latest of these runs started, in Unix seconds, or None."""
        return self.reader.restarted_at

    @property
    def num_workers(self) -> int:
        """Number of workers of the run, according to its collection files."""
        return self.reader.num_workers

    @property
    def collection_manager(self) -> CollectionManager:
        """The collections of the run."""
        return self.reader.collection_manager

    @property
    def last_complete_step(self) -> int:
        """The last global step that all workers have written; -1 if there is none."""
        return self.reader.complete_until

    @property
    def dynamic_refresh(self) -> bool:
        """Whether every call checks for new steps.

        :func:`smdwidgets.analysis.utils.no_refresh` turns it off within a block.
        """
        return self.reader.dynamic_refresh

    @dynamic_refresh.setter
    def dynamic_refresh(self, on: bool) -> None:
        self.reader.dynamic_refresh = on

    @contextmanager
    def refreshing(self, on: bool) -> Iterator[Self]:
        """Turn refreshing on or off within a block. Blocks can be nested.

        The setting is restored after the block, also if it raises. Blocks of several threads may overlap: the one
        entered last takes precedence.
        """
        with self.reader.refreshing(on):
            yield self

    def maybe_refresh(self, name: str | None = None) -> None:
        """Check for new steps unless refreshing is off or all steps are known."""
        self.reader.maybe_refresh(name)

    def refresh_data(self) -> None:
        """Check for new steps now, even if refreshing is off."""
        self.reader.refresh_data()

    def refresh_tensor(self, tname: str, steps: Sequence[int] | None = None) -> None:
        """Check for new steps of the whole run, which costs no more than for one tensor."""
        self.reader.refresh_data()

    def problems(self) -> list[tuple[str, str]]:
        """Return the unreadable index files, incidents and signals as (file, message).

        A file is read again after it changes.
        """
        return self.reader.problems()

    def notes(self) -> list[tuple[str, str]]:
        """Return what the hook did not get or failed to save, as (worker, text).

        A hook notes what it was asked to save and did not get after 20 steps, and again when it is closed. It notes the
        first failure of each kind.
        """
        return self.reader.notes()

    def close(self) -> None:
        """Close files and connections.

        Arrays returned earlier stay valid. Later calls raise :class:`TrialClosed`.
        """
        self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run_end(self) -> RunEnd | None:
        """Return how the training ended, or None while there is no end marker.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).run_end()
        RunEnd(how='completed', detail='', workers={})
        """
        return self.reader.end()

    def hparams(self) -> dict[str, Any]:
        """Return the hyperparameters that were logged for the run.

        For a run of a hook, they are the settings that its checks have recorded. A hook of PyTorch records those of
        optimizers, layers and data loaders, such as ``AdamW.weight_decay``.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).hparams()
        {}
        """
        return dict(self.checks().settings)

    def incidents(self) -> Incidents:
        """Return when and why the flight recorder wrote its steps, by step.

        The result is a list of :class:`~smdwidgets.incident.Incident`, with a method ``to_pandas``. Records of several
        workers about the same steps are joined.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).incidents()
        no incidents
        """
        return self.reader.incidents()

    def checks(self) -> CheckRecords:
        """Return what the checks of the training have found while it ran.

        The result is a sequence of :class:`~smdwidgets.checks.record.CheckRecord` by step. Its attribute ``off`` has
        the checks that could not run, each with the reason. A run without a hook that checks has none.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).checks()
        no checks were recorded
        """
        return self.reader.checks()

    def signals(self, kind: str | None = None) -> Signals:
        """Return signals of large models, such as attention logits per layer and head.

        The result is a sequence of :class:`~smdwidgets.signals.Signal` in forward order. Its ``values`` are an array
        with the axes layer, row and step. Its attribute ``off`` has the kinds that could not be recorded, each with the
        reason. Explorers show layers, heads and experts as rows of the Run Map.

        Args:
            kind: ``"attention_max"``, ``"attention_entropy"``, ``"router_load"``, ``"residual_rms"``,
                ``"residual_kurtosis"``, ``"log_z"``, ``"update_ratio"``, ``"stale"``, ``"sigma_max"`` or
                ``"gradient_noise"``; default: all.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).signals()
        no signals were recorded
        """
        every = self.reader.signals()
        return every if kind is None else every.of(kind)

    def signal(self, name: str) -> Signal:
        """Return one signal by its name, such as ``"attention_max/blocks.0.attention"``.

        Several workers may have recorded it; the result is that of the first.

        Raises:
            SMDebugValueError: there is no such signal.

        >>> trial.signal("attention_max/blocks.0.attention").at(100)     # doctest: +SKIP
        array([12.1, 9.8, 14.4, 11.0], dtype=float32)
        """
        every = self.reader.signals()
        for one in every:
            if one.name == name:
                return one
        names = [one.name for one in every]
        raise SMDebugValueError(f"no signal {shown(name)} was recorded.{did_you_mean(str(name), names)}")

    def noise_scale(self, window: int = 64) -> NoiseScale:
        """Return the gradient noise scale, which says how large a batch should be.

        It is the batch size at which noise halves the progress of an update. It follows from the squared norms of
        gradients of two batch sizes, micro-batches and whole batches, which the hook of PyTorch reads where an update
        has several micro-batches or several processes.

        Args:
            window: measurements that a running mean covers. One measurement alone is mostly noise.

        Raises:
            SMDebugValueError: no such gradients were recorded; the message says why.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     for step in range(8):  # squared norms of the gradients of 4 and 16 examples, and these sizes
        ...         hook.save_signal("gradient_noise", "", [26 + step % 2, 8 - step % 2, 4, 16])
        ...         hook.step()
        >>> smdwidgets.create_trial(folder).noise_scale()
        NoiseScale: 86.9 examples (95 %: 50.5 to 251) at step 7, of 8 measurements
        updates of 16 examples make 16% of the progress without noise
        """
        return noise_scale_of(self.reader.signals(), window)

    # ------------------------------------------------------------------------------------------------------- steps

    def steps(self, mode: ModeKeys | str = _GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the complete steps in ascending order: global steps, or steps of a mode.

        A step is complete once all workers have written it. ``show_incomplete_steps`` adds incomplete steps.
        """
        reader, mode = self.reader, as_mode(mode)
        reader.maybe_refresh()
        return list(reader.steps(mode) if show_incomplete_steps else reader.complete_steps(mode))

    def modes(self) -> list[ModeKeys]:
        """Return the modes of the steps read so far, without GLOBAL."""
        self.reader.maybe_refresh()
        self.reader.load()
        return [ModeKeys(number) for number in self.reader.index.modes() if number != _GLOBAL.value]

    def mode(self, global_step: int) -> ModeKeys | None:
        """Return the mode of a global step, or None if the step was not saved."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """Return the mode step of a global step, or None if the step was not saved."""
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys, int] | tuple[None, None]:
        """Return mode and mode step of a global step, or (None, None)."""
        global_step = as_step(global_step, "global_step")
        position = self.reader.mode_of(global_step)
        if position is None:
            self.reader.maybe_refresh()
            position = self.reader.mode_of(global_step)
        return (None, None) if position is None else (ModeKeys(position[0]), position[1])

    @property
    def _global_to_mode(self) -> dict[int, tuple[ModeKeys, int]]:
        """Mode and mode step by global step, for compatibility with smdebug."""
        index = self.reader.index
        self.reader.load()
        return {step: (ModeKeys(of[0]), of[1]) for step in index.steps() if (of := index.mode_of(step)) is not None}

    def global_step(self, mode: ModeKeys | str, mode_step: int) -> int | None:
        """Return the global step of a mode step, or None if the step was not saved."""
        mode, mode_step = as_mode(mode), as_step(mode_step, "mode_step")
        step = self.reader.global_step(mode, mode_step)
        if step is None:
            self.reader.maybe_refresh()
            step = self.reader.global_step(mode, mode_step)
        return step

    def workers(self) -> list[str]:
        """Return the names of the workers of the run, sorted."""
        return self.reader.workers()

    def has_passed_step(self, step: int, mode: ModeKeys | str = _GLOBAL) -> StepState:
        """Return the availability of a step.

        AVAILABLE: it is complete. NOT_YET_AVAILABLE: it may still be saved. UNAVAILABLE: it was not saved.
        """
        mode, step = as_mode(mode), as_step(step)
        self.reader.maybe_refresh()
        return self.reader.step_state(step, mode)

    def wait_for_steps(
        self,
        required_steps: Iterable[int],
        mode: ModeKeys | str = _GLOBAL,
        timeout: float | None = None,
    ) -> None:
        """Block until all these steps are available. Ctrl-C interrupts the wait.

        Raises:
            StepUnavailable: a step was skipped.
            NoMoreData: the run ended before a step.
            WaitTimeout: ``timeout`` seconds elapsed (None: no timeout).
        """
        wait_for_steps(self.reader, required_steps, as_mode(mode), timeout)

    # ------------------------------------------------------------------------------------------- names, collections

    def tensor_names(
        self,
        step: int | str | None = None,
        mode: ModeKeys | str = _GLOBAL,
        regex: str | Iterable[str] | None = None,
        collection: Collection | str | None = None,
        *,
        show_prefixed_tensors: bool = False,
    ) -> list[str]:
        """Return sorted names of tensors: all, or those that satisfy every condition.

        Args:
            step: only tensors saved at this step of ``mode``. A string is ``regex``: ``trial.tensor_names("fc1")``.
            mode: only tensors saved in this mode.
            regex: only names in which this pattern, or any of these patterns, is found (``re.search``).
            collection: only tensors of this collection. Mutually exclusive with ``regex``.
            show_prefixed_tensors: accepted for compatibility.

        Raises:
            SMDebugValueError: the run has no collection of this name, and :meth:`collection` has not created it.
        """
        if isinstance(step, str):
            if regex is not None:
                raise SMDebugTypeError(f"got two patterns, {shown(step)} and regex={shown(regex)}; pass one")
            step, regex = None, step
        # smdebug's first argument was show_prefixed_tensors.
        step = None if step is None or isinstance(step, bool) else as_step(step)
        mode = as_mode(mode)
        self.reader.maybe_refresh()
        if regex is not None and collection is not None:
            raise ValueError("regex= and collection= are mutually exclusive; got both")
        names = self.reader.names(step, mode)
        if collection is not None:
            return self._filter.in_collection(collection, names)
        if regex is not None:
            return self._filter.matching([regex] if isinstance(regex, str) else regex, names)
        return list(names)

    def tensors(self, *args: Any, **kwargs: Any) -> list[str]:
        """Alias of :meth:`tensor_names`, for older scripts."""
        return self.tensor_names(*args, **kwargs)

    def collections(self) -> dict[str, Collection]:
        """Return the collections by name, with those created by :meth:`collection`.

        The tensors of a collection were not necessarily saved.
        """
        return self._filter.collections()

    def modules(self) -> dict[str, list[str]]:
        """Return the class names of the model's modules, by the module's name.

        The most derived class is first. The names are those in tensor names.

        PyTorch hooks record the modules whose inputs or outputs they save. Other runs have none.

        >>> trial.modules()["fc1"]                                 # doctest: +SKIP
        ['Linear']
        """
        self.reader.maybe_refresh()
        return self.reader.collection_manager.modules

    def aliases(self) -> dict[str, str]:
        """Return the names of tensors by their aliases.

        PyTorch hooks number the inputs and outputs of a module. A tensor that was passed by keyword, or that a
        dictionary or data class contains, also has an alias with its key. :meth:`tensor` takes it, and the patterns of
        :meth:`tensor_names` find it.

        >>> trial.aliases()                                        # doctest: +SKIP
        {'Net_input.mask': 'Net_input_1', 'Net_output.logits': 'Net_output_0'}
        """
        self.reader.maybe_refresh()
        return self.reader.aliases()

    def collection(self, coll_name: str) -> Collection:
        """Return a collection. If the run has none of this name, create an empty one.

        Add patterns with ``include`` and names with ``add_tensor_name`` to query its tensors. A created collection
        exists only in this object and is not written to the run. A warning names the nearest collection if the name
        looks like a misspelling.

        >>> trial.collection("relu").include("relu")               # doctest: +SKIP
        >>> trial.tensor_names(collection="relu")                  # doctest: +SKIP
        ['relu1_output_0', 'relu2_output_0']
        """
        return self._filter.collection(coll_name)

    # ----------------------------------------------------------------------------------------------------- tensors

    def has_tensor(self, tname: str) -> bool:
        """Return whether a tensor of this name or alias was saved at any step so far."""
        if self.reader.closed:
            self.reader.refuse()
        return as_name(tname, "tname") in self._tensors or self.reader.saved_name(tname) is not None

    def tensor(self, tname: str) -> Tensor:
        """Return the tensor of this name or alias.

        Raises :class:`TensorUnavailable`, with the most similar names, if no step so far contains it.
        """
        tensor = self._tensors.get(as_name(tname, "tname"))
        if tensor is None:
            if self.reader.closed:
                self.reader.refuse()
            name = self.reader.saved_name(tname)
            if name is None:
                raise TensorUnavailable(tname, self._filter.known())
            tensor = self._tensors.setdefault(name, Tensor(name, self))
        return tensor

    def __getitem__(self, tname: str) -> Tensor:
        """Return the tensor of this name, as :meth:`tensor` does.

        >>> trial["fc1.weight"][-1].shape                          # doctest: +SKIP
        (64, 32)

        Raises :class:`~smdwidgets.exceptions.UnknownTensor`, a ``KeyError``, if no step so far contains it.
        """
        try:
            return self.tensor(tname)
        except TensorUnavailable:
            raise UnknownTensor(tname, self._filter.known()) from None

    def __contains__(self, tname: object) -> bool:
        """Return whether a tensor was saved at any step so far."""
        return isinstance(tname, str) and self.has_tensor(tname)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all tensors."""
        return iter(self.tensor_names())

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self.tensor_names())

    def __bool__(self) -> bool:
        """Return True, also while the run has no tensor."""
        return True

    def inputs(self, step: int, mode: ModeKeys | str = _GLOBAL) -> list[NDArray[Any]]:
        """Return the values of collection ``inputs`` at a step, by name suffix number."""
        return self._values_of(self.tensor_names(as_step(step), mode, collection="inputs"), step, mode)

    def labels(self, step: int, mode: ModeKeys | str = _GLOBAL) -> list[NDArray[Any]]:
        """Return the values of tensors whose names contain "label", at a step."""
        return self._values_of(self.tensor_names(as_step(step), mode, regex="labels*"), step, mode)

    def predictions(self, step: int, mode: ModeKeys | str = _GLOBAL) -> list[NDArray[Any]]:
        """Return the values of tensors whose names contain "prediction", at a step."""
        return self._values_of(self.tensor_names(as_step(step), mode, regex="predictions*"), step, mode)

    def _values_of(self, names: list[str], step: int, mode: ModeKeys | str) -> list[NDArray[Any]]:
        def number(name: str) -> int:
            tail = name.rpartition("_")[2]
            return int(tail) if tail.isdecimal() else 0

        return [self.tensor(name).value(step, mode) for name in sorted(names, key=number)]

    def precision(
        self,
        step: int | None = None,
        names: Iterable[str] | str | None = None,
        worker: str | None = None,
        *,
        scaled: bool = True,
    ) -> Columns:
        """Return what formats of 8 and 4 bits would make of tensors, the worst first.

        There is one row for each tensor and format, with the columns name, step, format, flushed, saturated and error,
        as :meth:`Tensor.precision` has them. Tensors are those of several floating-point numbers, each at its last step
        with a value up to ``step``.

        Args:
            step: global step; None: the last one.
            names: names of tensors; None: all of them.
            worker: name of a worker; None: the first that has a value.
            scaled: whether E4M3 and E5M2 have a scale.

        >>> trial.precision(100, ["fc1.weight"]).to_pandas()                    # doctest: +SKIP
        """
        steps = self.steps()
        at = step if step is not None else steps[-1] if steps else 0
        chosen = self.tensor_names() if names is None else [names] if isinstance(names, str) else list(names)
        rows = []
        for name in chosen:
            place = saved_until(self.reader, self.tensor(name).name, at, worker)
            if place is not None:
                value = self.tensor(name).passing().value(place[0], _GLOBAL, worker)
                rows.append(TensorPrecision(name, place[0], precision_of(value, scaled=scaled)))
        return columns_of(worst_first(rows))

    def difference(
        self,
        a: tuple[str | Tensor, int] | tuple[str | Tensor, int, str],
        b: tuple[str | Tensor, int] | tuple[str | Tensor, int, str] | int,
        mode: ModeKeys | str = _GLOBAL,
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
        tensor, step, worker = _operand(a, "a")
        other, other_step, other_worker = _operand((tensor, b, worker) if isinstance(b, SupportsIndex) else b, "b")
        tensor, other = (self.tensor(name) if isinstance(name, str) else name for name in (tensor, other))
        return Difference(tensor.saved(step, mode, worker), other.saved(other_step, mode, other_worker))

    def bisect(
        self, other: Trial, tolerance: Tolerance = "auto", *, commands: tuple[Command, Command] | None = None
    ) -> Divergence:
        """Return the first difference of two runs, in the order of execution.

        Steps are compared in ascending order. In a step, the order is that in which a wrong value spreads: parameters,
        inputs and outputs of modules, the loss, gradients from the last layer to the first, the optimizer. If a
        parameter is the first difference of a step, the update of the step before is what differs. Where a run has no
        value, statistics are compared, and the result says that the difference is the first one that was seen.

        Args:
            other: the other run.
            tolerance: the relative difference, of a tensor's largest magnitude, up to which values are equal. 0: none.
                ``"auto"``: what another order of summation explains, and what grows from it.
            commands: the commands that trained this run and the other, such as ``["python", "train.py"]``. They execute
                the step again from what ``replay=True`` recorded, and the result has the first operator that differs,
                with its line. None in place of a command: this process trained.

        Raises:
            SMDebugValueError: the runs have no step or no tensor in common.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> folders = [tempfile.mkdtemp(), tempfile.mkdtemp()]
        >>> for folder, rate in zip(folders, (0.1, 0.2)):
        ...     with Hook(folder) as hook:
        ...         hook.save_scalar("learning_rate", rate)
        >>> one, other = map(smdwidgets.create_trial, folders)
        >>> one.bisect(other)
        first difference at step 0: 'scalar/learning_rate' = 0.1 and 0.2
          a recorded number differs; everything before it in this step is equal
        compared 1 tensor at 1 step
        """
        if not isinstance(other, Trial):
            raise SMDebugTypeError(f"other must be a Trial, got {type(other).__name__}; see create_trial(path)")
        divergence = first_difference(self.reader, other.reader, tolerance)
        if commands is None:
            return divergence
        from smdwidgets.trials.first_operator import with_operator

        return with_operator(divergence, (self.reader, other.reader), commands)

    # ------------------------------------------------------------------------------------------------ many tensors

    def values(
        self,
        wanted: Mapping[str, Iterable[int] | None] | Iterable[str] | str | None = None,
        *,
        mode: ModeKeys | str = _GLOBAL,
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
        return bulk.values(self.reader, wanted, as_mode(mode), worker, SweepOptions(threads, progress))

    def scalars(self, names: Iterable[str] | str | None = None, mode: ModeKeys | str = _GLOBAL) -> Columns:
        """Return series of single numbers, such as losses and learning rates.

        They are those of all workers. The columns are name, step, mode, mode_step, worker, wall_time and value. Runs of
        hooks save no time for each value: their ``wall_time`` is NaN.

        Args:
            names: names of tensors with one element; None: all of them.
            mode: only values that were saved in this mode.

        >>> trial.scalars("loss").to_pandas().plot("step", "value")             # doctest: +SKIP
        """
        return bulk.scalars(self.reader, names, as_mode(mode))

    def reductions(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = _GLOBAL,
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
            coverage: add the share of the tensor's elements that were saved. It is less than 1 if shards of a sharded
                tensor are missing; the reductions are then those of the elements that were saved. Without it, such
                tensors are in ``errors``.
            progress: called with the number of finished records and their total.
            threads: number of threads.
            client: a ``distributed.Client`` whose workers read the run; None: that of :func:`smdwidgets.use`, else this
                process.

        >>> trial.reductions(["fc1.weight"], reductions=["mean", "l2"])["l2"]    # doctest: +SKIP
        """
        with using(client):
            options = SweepOptions(threads, progress)
            return bulk.reductions(
                self.reader, names, steps, as_mode(mode), worker, reductions, counts, coverage, options
            )

    def statistics(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        columns: Iterable[str] | str | None = None,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        cache: bool = True,
        progress: Progress | None = None,
        threads: int | None = None,
        client: Any = None,
    ) -> Columns:
        """Return the statistics of tensors over steps, one row per tensor and step.

        They come from the statistics that the training wrote. For tensors without them they are computed from the saved
        values, and cached in the user's cache directory; a later call reads only new steps. The statistics are
        ``count``, ``nan``, ``neg_inf``, ``pos_inf``, ``zeros``; ``min``, ``max``, ``mean``, ``std``, ``l1``, ``l2`` and
        ``abs_max`` of the finite elements; and ``update``, the L2 norm of the change since the step before (for
        computed statistics, the saved step before). ``update_ratio`` is ``update`` divided by ``l2``, and ``rms`` is
        the root mean square. For a type of 8 or 4 bits, ``saturated`` counts elements whose magnitude is the largest
        finite one, and ``subnormal`` those between zero and the least normal number; they are 0 for other types.

        Numbers have 24 significant bits. ``flags`` is not 0 where a row is special: 1 no value, 2 skipped step, 4
        sample of the elements, 8 failed, 16 approximate (from a histogram), 32 saved reductions only, without counts
        (-1). ``coverage`` is below 1 if shards are missing.

        Args:
            names: names of tensors; None: all with written statistics, or all tensors if the training wrote none.
            steps: steps of ``mode``; None: all.
            columns: names of statistics; None: all but ``update_ratio``, ``rms``, ``saturated`` and ``subnormal``, with
                ``coverage`` and ``flags``.
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
            options = SweepOptions(threads, progress)
            return compute_statistics(self.reader, names, steps, columns, as_mode(mode), worker, cache, options)

    def verify(self, *, progress: Progress | None = None, threads: int | None = None, client: Any = None) -> Verified:
        """Verify every record of the run: framing, names, checksums and shapes.

        The command ``smdwidgets verify`` also checks index files, collections and statistics files. Only runs that
        hooks saved are verified.

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
        self.reader.maybe_refresh()
        last_step = self.reader.index.last_step()
        with using(client):
            counts = verify_records(self.reader, SweepOptions(threads, progress))
        errors = [Failure(*error) for error in counts["errors"]]
        return Verified(counts["records"], counts["bytes"], counts["unverifiable"], errors, last_step)

    def export(
        self,
        to: str,
        out: str | os.PathLike[str] | None = None,
        *,
        tensors: str | Sequence[str] | None = None,
        steps: range | Iterable[int] | None = None,
        mode: ModeKeys | str = _GLOBAL,
        workers: str | Sequence[str] | None = None,
        signals: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Exported:
        """Export the run, or a part of it, to another format.

        The output is written record by record and renamed to ``out`` when it is complete. Unreadable records are
        skipped and listed in the result's ``errors``.

        Args:
            to: the format: ``"npz"``, ``"parquet"``, ``"csv"``, ``"csv-wide"`` or ``"tensorboard"``. A Parquet file has
                one row per record with the columns step, mode, mode_step, worker, tensor, dtype, shape, values and
                wall_time. CSV contains numbers and texts: one row per value, or one row per step and one column per
                tensor. An ``npz`` file contains one array per record, ``<tensor>/<step>.<worker>``, and
                ``index.jsonl``. For TensorBoard, numbers become scalars and tensors become histograms.
            out: the output file, for TensorBoard a directory. By default it is named after the run.
            tensors: patterns of tensor names; None: all.
            steps: steps of ``mode``; None: all.
            mode: mode of ``steps``.
            workers: names of workers; None: all.
            signals: export :meth:`signals` in place of tensors, as Parquet or CSV: one row per value with the columns
                kind, layer, row (the head or expert), name, worker, step and value.
            force: overwrite an existing output.
            progress: called with the number of finished records and their total.

        >>> trial.export("parquet", "mlp.parquet", tensors="weight$", steps=range(100, 200))    # doctest: +SKIP
        mlp.parquet: 200 records of 2 tensors at 100 steps, 12.0 MB
        """
        export = extensions.exporter.load()
        return export(
            self,
            to,
            out,
            tensors=tensors,
            steps=steps,
            mode=mode,
            workers=workers,
            signals=signals,
            force=force,
            progress=progress,
        )

    def to_xarray(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        chunk_bytes: int = 64 << 20,
        verify: str = "record",
    ) -> xarray.Dataset:
        """Return tensors as a dataset of xarray.

        Values are read when they are computed. Requires ``pip install 'smdwidgets[dask]'``. Each tensor is a variable
        with the dimensions ``step``, ``<name>_0``, ``<name>_1`` and so on. Coordinates are ``step`` (global steps),
        ``mode``, ``mode_step``, ``wall_time`` (read lazily) and ``worker``. Where a tensor of floating-point numbers
        has no value, it is NaN; the dataset has only steps at which all other tensors have one. ``wall_time`` is that
        of the record of the first tensor. The dataset is a snapshot of a growing run: ``attrs["last_step"]`` is its
        last step.

        Args:
            names: names of tensors; None: all but texts.
            steps: steps of ``mode``; None: all complete ones.
            mode: mode of the steps.
            worker: name of a worker; None: the first that has a value, and sharded tensors as a whole.
            chunk_bytes: limit on the size of a chunk.
            verify: see :meth:`Tensor.to_dask`.

        >>> dataset = trial.to_xarray(["fc1.weight", "fc1.bias"])       # doctest: +SKIP
        >>> dataset.sel(step=slice(0, 100)).std("step").compute()       # doctest: +SKIP
        """
        read: Callable[..., xarray.Dataset] = extensions.lazy_reader.load().to_xarray
        return read(self, names, steps, mode, worker, chunk_bytes=chunk_bytes, verify=verify)

    def to_dask_dataframe(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        columns: Iterable[str] | str | None = None,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        by: str = "names",
        partition_rows: int = 4096,
        errors: str = "raise",
    ) -> dask.dataframe.DataFrame:
        """Return the table of :meth:`statistics` as a data frame of Dask.

        Requires ``pip install 'smdwidgets[dask]'``. Nothing is read before a result is computed. Statistics that are
        computed from values are not cached.

        Args:
            names: names of tensors; None: as in :meth:`statistics`.
            steps: steps of ``mode``; None: all.
            columns: names of statistics; None: as in :meth:`statistics`.
            mode: mode of ``steps``.
            worker: name of a worker, or ``"*"`` for all; None: shards are combined, else the first worker's.
            by: ``"names"``: a partition has all steps of some tensors, in the order of :meth:`statistics`. ``"steps"``:
                it has all tensors at some of the steps at which values were saved.
            partition_rows: approximate number of rows of a partition.
            errors: ``"raise"`` the error of an unreadable record, or ``"skip"`` its row.

        >>> trial.to_dask_dataframe(columns=["l2"]).groupby("name")["l2"].max().compute()    # doctest: +SKIP
        """
        read: Callable[..., dask.dataframe.DataFrame] = extensions.lazy_reader.load().to_dask_dataframe
        return read(self, names, steps, columns, mode, worker, by=by, partition_rows=partition_rows, errors=errors)

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
        return show.trial_text(self.reader, type(self).__name__)

    def _repr_html_(self) -> str:
        return show.trial_html(self.reader, type(self).__name__)


def _operand(value: Any, argument: str) -> tuple[str | Tensor, int, str | None]:
    """Check the tensor, the step and perhaps the worker of a difference."""
    if isinstance(value, tuple) and len(value) in (2, 3) and isinstance(value[0], (str, Tensor)):
        with suppress(TypeError):
            return value[0], as_step(value[1]), value[2] if len(value) == 3 else None
    raise SMDebugTypeError(f"{argument} must be (tensor, step) or (tensor, step, worker), got {shown(value)}")


class Tensor(SavedTensor):
    """One tensor of a run, returned by ``trial.tensor(name)``.

    Every call returns new writable arrays that share no memory. It is a sequence of values over steps: ``tensor[100]``
    is the value at step 100, ``tensor[-1]`` the last one, and ``np.asarray(tensor)`` has all of them.

    >>> weight = trial["fc1.weight"]                             # doctest: +SKIP
    >>> weight.value().shape                                     # doctest: +SKIP
    (64, 32)
    """

    __slots__ = ("trial",)

    def __init__(self, name: str, trial: Trial, caches: bool = True) -> None:
        super().__init__(name, trial.reader, caches)
        self.trial = trial

    def __getitem__(self, steps: SupportsIndex | slice) -> NDArray[Any]:
        """Return the value at a global step, or the values at several.

        Several values are stacked along the first axis. ``tensor[100]`` is the value at step 100, ``tensor[:100]`` are
        those at the saved steps before step 100, and ``tensor[::10]`` is every tenth of them. Negative numbers count
        from the last saved value: ``tensor[-1]``, ``tensor[-10:]``. Steps without a value are left out of a slice.

        Raises :class:`~smdwidgets.exceptions.SMDebugValueError` if the shapes of a slice differ.

        >>> trial["fc1.weight"][-1].std(axis=0)                                # doctest: +SKIP
        >>> trial["loss"][:100].mean()                                         # doctest: +SKIP
        """
        if isinstance(steps, slice):
            return self._stacked(self._selected(steps))
        step = as_step(steps)
        return self.value(step if step >= 0 else self._from_the_end(step))

    def __len__(self) -> int:
        """Return the number of global steps at which a value was saved."""
        return len(self.steps_with_value())

    def __bool__(self) -> bool:
        """Return True, also for a tensor without a value."""
        return True

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Iterate over the values in the order of their global steps."""
        return (self.value(step) for step in self.steps_with_value())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all values, stacked along the first axis, as ``tensor[:]``."""
        if copy is False:
            raise ValueError("the values of a tensor are read from its run, which makes a copy; pass copy=None")
        values = self[:]
        return values if dtype is None else values.astype(dtype, copy=False)

    def _from_the_end(self, number: int) -> int:
        saved = self.steps_with_value()
        if -number > len(saved):
            raise SMDebugIndexError(
                f"tensor {shown(self.name)} has {len(saved)} values, so that there is no [{number}]"
            )
        return saved[number]

    def _selected(self, wanted: slice) -> list[int]:
        """Return the global steps with a value that a slice selects."""
        saved = self.steps_with_value()

        def position(limit: Any, argument: str) -> int | None:
            if limit is None:
                return None
            number = as_step(limit, argument)
            return number if number < 0 else bisect_left(saved, number)

        every = 1 if wanted.step is None else as_step(wanted.step, "the step of a slice")
        if every < 1:
            raise SMDebugValueError(f"the step of a slice must be at least 1, got {every}")
        return saved[position(wanted.start, "start") : position(wanted.stop, "stop") : every]

    def _stacked(self, steps: list[int]) -> NDArray[Any]:
        """Return the values at global steps as one array."""
        if not steps:
            last = self.steps_with_value()[-1:]
            return np.empty((0, *(self.shape(last[0]) if last else ())), self.dtype or np.float64)
        table = bulk.values(self.trial.reader, {self.name: steps}, _GLOBAL, None, SWEEP)
        if table.errors:
            raise table.errors[0].error
        values = table["value"]
        if values.dtype == object:
            raise SMDebugValueError(
                f"the values of tensor {shown(self.name)} differ in shape or dtype and cannot be stacked; read them "
                f"with trial.values({shown(self.name)})"
            )
        return values

    def passing(self) -> Tensor:
        """Return a tensor that does not cache, for values that are read once."""
        return Tensor(self.name, self.trial, caches=False)

    def precision(
        self,
        step: int | None = None,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        scaled: bool = True,
    ) -> Precision:
        """Return what formats of 8 and 4 bits would make of a value.

        The result has one row for each of E4M3, E5M2, MXFP8 and NVFP4: the share of values that become zero, the share
        above the largest number, and the relative error, by exact casts.

        Args:
            step: step of ``mode``; None: the last one.
            mode: mode of the step.
            worker: name of a worker; None: the first that has a value.
            scaled: whether E4M3 and E5M2 have a scale, by which the largest value becomes the largest number. MXFP8 and
                NVFP4 always have the scales of their blocks.

        >>> trial.tensor("fc1.weight").precision(100)     # doctest: +SKIP
        format     flushed  saturated   error
        E4M3         0.02%      0.00%   0.026
        E5M2         0.00%      0.00%   0.052
        MXFP8        0.00%      0.00%   0.026
        NVFP4        4.81%      0.00%   0.095
        """
        return precision_of(np.asarray(self.value(... if step is None else step, mode, worker)), scaled=scaled)

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
            other_worker: the worker of the subtracted value; None: ``worker`` for the same tensor, else the first that
                has one.

        >>> trial.tensor("fc1.weight").difference(200, 100).changed(3)         # doctest: +SKIP
        """
        if other is None:
            other, other_worker = self, other_worker if other_worker is not None else worker
        if not isinstance(other, Tensor):
            raise SMDebugTypeError(f"other must be a Tensor, got {type(other).__name__}; see trial.tensor(name)")
        return Difference(self.saved(step_a, mode, worker), other.saved(step_b, mode, other_worker))

    def saved(self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> Saved:
        """Return the value at a step and its origin, for a :class:`Difference`."""
        value = self.value(step_num, mode, worker)
        return Saved(self.name, int(step_num), value, as_mode(mode), worker, self.trial.path)

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

        Values are read when they are computed. Requires ``pip install 'smdwidgets[dask]'``. A chunk has some steps, or
        rows of one step along the first axis, of at most ``chunk_bytes``. The array can be computed by other processes
        and machines that reach the run; they need the same version of smdwidgets, and find credentials by themselves.
        The array is a snapshot of a growing run; its repr says the last step.

        Args:
            steps: steps of ``mode``; None: all complete ones with a value.
            mode: mode of the steps.
            worker: name of a worker; None: the first that has a value, and a sharded tensor as a whole.
            chunk_bytes: limit on the size of a chunk.
            verify: ``"record"``: check each record, of which one that is cut into chunks is read whole for each of
                them. ``"none"``: read only the rows of a chunk, or of a slice, without their checksum.

        Raises :class:`~smdwidgets.exceptions.SMDebugValueError` if dtype or shape differ between steps.

        >>> trial.tensor("fc1.weight").to_dask().std(axis=0).compute()             # doctest: +SKIP
        """
        read: Callable[..., dask.array.Array] = extensions.lazy_reader.load().to_dask
        return read(self, steps, mode, worker, chunk_bytes=chunk_bytes, verify=verify)

    def step(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported: use :meth:`value`, :meth:`reduction_value` or :meth:`shape`."""
        raise SMDebugNotImplementedError(
            "tensor.step(…) is not supported; use tensor.value(step) or tensor.reduction_value(step, name)"
        )

    @property
    def plot(self) -> TensorPlotter:
        """Matplotlib plots of the tensor: :class:`~smdwidgets.plots.TensorPlots`."""
        return extensions.tensor_plotter.load()(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_trial, (self.trial, self.name)

    def __repr__(self) -> str:
        return show.tensor_text(self.trial.reader, self.name)

    def _repr_html_(self) -> str:
        return show.tensor_html(self.trial.reader, self.name)


def _of_trial(trial: Trial, name: str) -> Tensor:
    """Restore a pickled tensor from its reopened trial."""
    return trial.tensor(name)
