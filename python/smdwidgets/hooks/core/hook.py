"""The base class of all hooks: what scripts call, and what a framework provides.

A hook holds :class:`~smdwidgets.hooks.core.parts.Parts` and passes calls on to them; it does not depend on any
framework. A framework's hook is a subclass that attaches to the framework's events and then calls, in this order:

1. ``_attach()``: create what belongs to the framework. Called once, before the run's directory is opened;
2. ``_begin_step()``: a step begins;
3. ``_capture(name, value)``: a tensor of the step. A framework with tensor classes copies them in a ``capture_class``;
4. ``_end_step()``; and ``_detach()`` removes the framework's callbacks when the hook is closed.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from smdwidgets._text import did_you_mean, listed, shown
from smdwidgets.checks.log import ChecksOption
from smdwidgets.config import CapturePlan, Collection, CollectionKeys, CollectionManager, ReductionConfig, SaveConfig
from smdwidgets.config._parse import texts
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.capture.arrays import TensorCopy, as_array
from smdwidgets.hooks.capture.save_spec import WHOLE_TENSOR, SaveSpec
from smdwidgets.hooks.core import process
from smdwidgets.hooks.core.for_smdebug import refuse_overrides, why_missing
from smdwidgets.hooks.core.guard import Guard, gated, guarded
from smdwidgets.hooks.core.json_config import HookFile
from smdwidgets.hooks.core.options import HookOptions, PlanOption
from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.core.tensors import SCALAR, SCALAR_PREFIX, TensorCapture
from smdwidgets.hooks.incidents.source_rules import SourceRule
from smdwidgets.hooks.writing.run_dir import RunDirectory
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.naming.scalars import is_loss
from smdwidgets.run_end import COMPLETED, RunEnd
from smdwidgets.signals import SIGNAL_KINDS
from smdwidgets.stop import StopRequest

__all__ = ["Hook", "check_name", "current_hook", "guarded", "set_current_hook"]

logger = logging.getLogger("smdwidgets.hooks")

_current: Hook | None = None


def current_hook() -> Hook | None:
    """Return the hook that was created last in this process."""
    return _current


def set_current_hook(hook: Hook | None) -> None:
    """Set the hook that :func:`current_hook` returns; None unsets it."""
    global _current
    _current = hook


class Hook:
    """Save tensors of a training. The base class of every framework's hook.

    Args:
        out_dir: directory of the run, which must not contain a run; or the address of a
            store: ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``.
        export_tensorboard: also write scalars and histograms for TensorBoard, into ``tensorboard_dir`` or
            ``out_dir/tensorboard``.
        tensorboard_dir: directory of the TensorBoard files; implies ``export_tensorboard``.
        dry_run: count steps, write nothing.
        reduction_config: what to save of a tensor, unless its collection has a configuration; default: the whole
            tensor.
        save_config: when to save a tensor, unless its collection has a configuration: a SaveConfig, a SaveConfigMode or
            a dictionary of modes; default: every 500th step. Any collection with a configuration is exempt from
            ``plan``.
        include_regex: save tensors whose names match, as the collection ``default``.
        include_collections: names of collections to save, in addition to those that the framework always saves.
        save_all: save every tensor.
        include_workers: which workers of a distributed training save: ``"one"`` (the first; of sharded tensors, one
            copy of every shard) or ``"all"``.
        plan: a :class:`~smdwidgets.config.CapturePlan`, a dictionary of its arguments, or the path of a JSON or YAML
            file with them. It is the default if none of ``reduction_config``, ``save_config``, ``include_regex``,
            ``include_collections`` and ``save_all`` is given; False: save by ``save_config`` alone.
        overwrite: delete the run in ``out_dir``.
        resume: True: continue after the last step of the run in ``out_dir``. A number: delete the steps from this
            number on, and continue with it.
        recorder_bytes: maximum number of bytes of the last steps that stay in memory, to be written when something
            breaks. None: a tenth of the memory that the process has when the hook is created, at least 128 MiB and at
            most 512 MiB. 0: no flight recorder.
        rules: rules that are evaluated on the statistics of every step: a `Threshold`, or functions of (step,
            statistics) that return a message if they fire.
        queue_bytes: maximum number of queued bytes before the training waits for the disk. None: with a capture plan a
            twentieth of the memory of the process, at least 64 MiB and at most 1 GiB; without one, and for
            a bucket, 1 GiB.
        flush_seconds: maximum age of a complete step in the queue, in seconds, before the training waits for the disk.
            A killed process loses at most the steps of this time. Does not apply to a run on S3.
        fsync: flush every step to the disk before it becomes visible.
        compact: write the compacted index (see :func:`smdwidgets.compact`) when the run has ended, so that a run of
            many steps opens faster.
        catalog: directory or address above the run, whose catalog (see :func:`smdwidgets.run_table.update_catalog`) the
            run is added to when it has ended. Default: the environment variable ``SMDWIDGETS_CATALOG``.
        checks: which checks of the training run: True, False, or a list such as ``["-same_batch"]`` (all but this one)
            or ``["not_reset"]`` (only this one).
        checks_only: record nothing but checks, and stop the training after this number of updates.
    """

    #: The framework's collections and their patterns.
    built_in: ClassVar[Mapping[str, Sequence[str]]] = {CollectionKeys.ALL: (), CollectionKeys.DEFAULT: ()}
    #: Collections that are always saved.
    always_saved: ClassVar[tuple[str, ...]] = ()
    #: Default save interval.
    save_interval: ClassVar[int] = 500
    collection_class: ClassVar[type[Collection]] = Collection
    #: The kind of tensors in each collection that a capture plan saves, and the patterns of activations.
    kinds: ClassVar[Mapping[str, str]] = {}
    activations: ClassVar[Sequence[str]] = ()
    #: Whether the framework reports all tensors and collections select from them. Otherwise the script passes what to
    #: save.
    meets_tensors: ClassVar[bool] = True
    #: Copies the framework's tensors.
    capture_class: ClassVar[type[TensorCapture]] = TensorCapture
    options_class: ClassVar[type[HookOptions]] = HookOptions
    #: Names that scripts written for smdebug use.
    logger: ClassVar[logging.Logger] = logger
    chief_worker: ClassVar[str] = "worker_0"

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        refuse_overrides(cls)

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: object = None,
        include_regex: str | Iterable[str] | None = None,
        include_collections: str | Iterable[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        *,
        plan: PlanOption = None,
        overwrite: bool = False,
        resume: bool | int = False,
        recorder_bytes: int | None = None,
        rules: Iterable[SourceRule] = (),
        queue_bytes: int | None = None,
        flush_seconds: float = 1.0,
        fsync: bool = False,
        compact: bool = False,
        catalog: str | os.PathLike[str] | None = None,
        checks: ChecksOption = False,
        checks_only: int | None = None,
        **options: Any,
    ) -> None:
        keywords = {name: value for name, value in locals().items() if name not in ("self", "options", "__class__")}
        self.options = self.options_class.of(type(self).__name__, {**keywords, **options})
        self._created_during = _current_exception()
        #: Called once, after everything was written, however the run ends.
        self.when_closed: Callable[[Hook, RunEnd], None] | None = None
        self.parts = Parts.of(type(self), self.options, self.current_worker(), self._report_missing)
        self.dry_run, self.save_all = self.options.dry_run, self.options.save_all
        self.include_workers = include_workers
        self.out_dir = self.run_dir.url
        self.tensorboard_dir = self.parts.recorder.tensorboard_dir
        self._attach()
        if not self.dry_run and self.parts.recorder.is_saving_worker:
            self._close_predecessor()
            self.parts.open()
        process.opened(self)
        set_current_hook(self)

    @classmethod
    def create_from_json_file(cls, json_file_path: str | os.PathLike[str] | None = None, **options: Any) -> Self:
        """Create a hook from a JSON file in smdebug's format.

        Args:
            json_file_path: the file; default: the environment variable SMDEBUG_CONFIG_FILE_PATH, else SageMaker's path.
            **options: further arguments of the hook, such as ``overwrite=True``.
        """
        file = HookFile(json_file_path, cls.save_interval)
        # Files in smdebug's format keep smdebug's meaning: without a configuration, losses at every save_interval.
        hook = cls(**{"plan": False, **file.arguments, **options})
        file.configure(hook.get_collection)
        return hook

    if not TYPE_CHECKING:  # or any attribute would seem to exist

        def __getattr__(self, name: str) -> Any:
            """Say why a name of smdebug's hooks is not offered."""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{why_missing(name)}")

    # ------------------------------------------------------------------------------------------ what a framework
    # provides

    @classmethod
    def current_worker(cls) -> tuple[str, int]:
        """Return the name of this worker and the number of workers."""
        for rank, size in (
            ("RANK", "WORLD_SIZE"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ):  # torchrun, mpirun
            number, count = os.environ.get(rank, ""), os.environ.get(size, "")
            if number.isdecimal() and count.isdecimal() and int(count) > 1:
                return f"worker_{int(number)}", int(count)
        return "worker_0", 1

    def _attach(self) -> None:
        """Create what belongs to the framework, before the run's directory is opened."""

    def _detach(self) -> None:
        """Remove the hook's callbacks from the framework's objects."""

    def _begin_step(self) -> bool:
        """Begin a step of the current mode; return whether any collection is saved at it."""
        return self.parts.steps.begin()

    def _capture(self, name: str, value: Any, wants_norm: bool = False) -> TensorCopy | None:
        """Copy a tensor and queue it for the writer if a collection selects it."""
        return self.parts.tensors.capture(name, value, wants_norm)

    def _end_step(self) -> None:
        """End the current step, if any."""
        self.parts.steps.end()

    def why_no_step(self) -> str:
        """Return why no step may have been recorded."""
        return "the training did not reach the hook"

    def _why_missing(self, name: str) -> str:
        """Return why nothing may have been saved for a collection, although steps were."""
        patterns = self.get_collection(name).include_regex
        if patterns:
            return f"no tensor matched {listed([shown(pattern) for pattern in patterns], 4)}"
        return (
            "no tensor was saved to it, and it has no patterns" if self.meets_tensors else "no tensor was saved to it"
        )

    def _unseen(self) -> Sequence[tuple[str, str]]:
        """Return what was not seen of the training, and what the run lacks."""
        return ()

    # -------------------------------------------------------------------------------------------------------- state

    @property
    def guard(self) -> Guard:
        """Whether the hook may record; see `Parts`."""
        return self.parts.guard

    @property
    def is_open(self) -> bool:
        """Whether the hook records: it was not closed, and this process created it."""
        return self.parts.guard.alive

    @property
    def run_dir(self) -> RunDirectory:
        """The directory of the run."""
        return self.parts.recorder.run_dir

    @property
    def worker(self) -> str:
        """The name of this worker."""
        return self.parts.recorder.worker

    @property
    def num_workers(self) -> int:
        """The number of workers of the training."""
        return self.parts.recorder.num_workers

    @property
    def plan(self) -> CapturePlan | None:
        """The capture plan, or None if save configurations alone decide."""
        return self.options.capture_plan

    @property
    def collection_manager(self) -> CollectionManager:
        """All collections. Scripts may replace them before the first step, as in smdebug."""
        return self.parts.plan.collections

    @collection_manager.setter
    def collection_manager(self, manager: CollectionManager) -> None:
        if not isinstance(manager, CollectionManager):
            raise SMDebugTypeError(f"collection_manager must be a CollectionManager, got {type(manager).__name__}")
        self.parts.plan.replace_collections(manager)

    @property
    def include_collections(self) -> list[str]:
        """The names of the collections that are saved."""
        return self.parts.plan.included

    @property
    def save_config(self) -> SaveConfig:
        """When to save a tensor whose collection has no configuration."""
        return self.parts.plan.save_config

    @property
    def reduction_config(self) -> ReductionConfig:
        """What to save of a tensor whose collection has no configuration."""
        return self.parts.plan.reduction_config

    @property
    def include_regex(self) -> list[str]:
        """The patterns of the collection ``default``."""
        return self.get_collection(CollectionKeys.DEFAULT).include_regex

    def has_default_hook_configuration(self, default_saved_collections: object = ()) -> bool:
        """Return whether the script has chosen neither what is saved nor when."""
        options = self.options
        return options.save_config is None and options.reduction_config is None and not options.selects_tensors

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Return the collection of this name; create it if it does not exist."""
        return self.collection_manager.get(name, create=create)

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections by name."""
        return self.collection_manager.get_collections()

    def add_collection(self, collection: Collection) -> None:
        """Add a collection. It is saved if ``include_collections`` contains its name."""
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(f"collection must be a Collection, got {type(collection).__name__}")
        self.collection_manager.add(collection)

    # -------------------------------------------------------------------------------------------------------- steps

    @property
    def mode(self) -> ModeKeys:
        """The mode of the current step, or of the next between steps."""
        return self.parts.steps.mode

    @mode.setter
    def mode(self, mode: ModeKeys) -> None:
        self.parts.steps.mode = mode

    @property
    def step(self) -> int:
        """Number of the current or last step; -1 before the first step."""
        return self.parts.steps.step

    @property
    def last_saved_step(self) -> int | None:
        """Number of the last step at which anything was to be saved. A script may set it."""
        return self.parts.steps.last_saved

    @last_saved_step.setter
    def last_saved_step(self, step: int | None) -> None:
        self.parts.steps.last_saved = step

    @property
    def global_step(self) -> int:
        """Number of the current or last step; -1 before the first step."""
        return self.parts.steps.step

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """Number of the current or last step of each mode, counted per mode."""
        return self.parts.steps.mode_steps

    @property
    def mode_step(self) -> int:
        """Number of the current or last step within its mode; -1 before the first step."""
        return self.parts.steps.mode_step

    @guarded
    def set_mode(self, mode: ModeKeys | str) -> None:
        """End the current step, and set the mode of the next one.

        The modes are ``modes.TRAIN``, ``EVAL`` and ``PREDICT``.
        """
        mode = as_mode(mode)
        if mode is not self.mode:
            if self.is_open:
                self._end_step()
            self.mode = mode

    def should_save_step(self) -> bool:
        """Whether anything is saved at the current step, or at the next between steps."""
        return self.is_open and self.parts.steps.is_saved()

    def should_save_tensor_or_collection(self, tensor_name: str, collection_name: str) -> bool:
        """Whether a tensor, or a collection, is saved at the current step."""
        return self._is_collection_being_saved_for_step(collection_name) or self._is_tensor_saved_for_step(tensor_name)

    def _is_collection_being_saved_for_step(self, name: str) -> bool:
        return any(collection.name == name for collection in self.parts.plan.saving)

    def _is_tensor_saved_for_step(self, tensor_name: str) -> bool:
        return self.parts.plan.spec(tensor_name) is not None

    def _get_collections_to_save_for_step(self) -> set[Collection]:
        return set(self.parts.plan.saving)

    def export_collections(self) -> None:
        """Write the collection file, which hooks do whenever collections have changed."""
        self.parts.recorder.export()

    @property
    def stop_requested(self) -> StopRequest | None:
        """The request to stop the training, or None.

        The action StopTraining of a rule writes it as a file of the run.
        """
        return self.parts.stopping.request

    # ------------------------------------------------------------------------------------------ tensors of the script

    @gated
    def save_scalar(self, name: str, value: object, sm_metric: bool = False, timestamp: float | None = None) -> None:
        """Save a number as ``scalar/<name>``, regardless of the save interval.

        The scalar becomes a member of the collection ``scalars``, and of ``losses`` if its name is that of a loss, such
        as ``loss``, ``val_loss`` or ``train/loss``.

        Args:
            name: name of the scalar.
            value: a number.
            sm_metric: accepted for compatibility with smdebug.
            timestamp: time of the value in seconds since the epoch; default: now.
        """
        check_name(name)
        full = SCALAR_PREFIX + name
        if not self._saves_script_tensors(are_numbers=True) or self._repeats(full, value, timestamp):
            return
        copy = self.parts.tensors.copy(full, value)
        if copy.array.size != 1 or copy.dtype == "str":
            content = "text" if copy.dtype == "str" else f"an array of shape {copy.shape}"
            raise SMDebugTypeError(f"scalar {shown(name)} must be one number, got {content}")
        self.parts.plan.add_saved(CollectionKeys.SCALARS, full)
        if is_loss(name):
            self._add_loss(full)
        self._save_script_tensor(full, copy, SCALAR, time.time() if timestamp is None else float(timestamp), ())

    @guarded
    def save_signal(
        self,
        kind: str,
        layer: str,
        values: object,
        *,
        names: Sequence[str] = (),
        most: float | None = None,
    ) -> None:
        """Save a signal of a large model at the current step, such as the load of experts.

        The diagnosis judges it as it does those that the PyTorch hook reads by itself. Between two steps, it belongs to
        the next one.

        Args:
            kind: identifier of the kind, such as ``"attention_max"``; see `smdwidgets.signals.SIGNAL_KINDS`.
            layer: name of the module or optimizer; empty for the whole model.
            values: one number per head, expert, block or tensor; a number if the kind has one value. Those on a device
                are waited for.
            names: names of the rows, if they are not numbered.
            most: the largest value that a row can have: for ``"router_load"`` the number of experts over the number
                that a token is sent to.

        Example:
            >>> import tempfile, smdwidgets
            >>> from smdwidgets.numpy import Hook
            >>> with Hook(tempfile.mkdtemp() + "/run") as hook:
            ...     for step in range(3):
            ...         hook.save_signal("router_load", "blocks.0.moe", [1.5, 0.5, 1.0, 1.0], most=4)
            ...         hook.step()
            >>> smdwidgets.create_trial(hook.out_dir).signal("router_load/blocks.0.moe")
            Signal('router_load/blocks.0.moe': 3 steps, 4 experts)
        """
        if kind not in SIGNAL_KINDS:
            raise SMDebugValueError(f"unknown kind of signal {shown(kind)}.{did_you_mean(str(kind), SIGNAL_KINDS)}")
        if layer:
            check_name(layer)
        rows = self.parts.tensors.numbers(kind, values)
        if rows.ndim > 1 or not rows.size or rows.dtype.kind not in "biuf":
            raise SMDebugTypeError(
                f"values of the signal {shown(kind)} must be numbers in one row, got {rows.dtype} of shape {rows.shape}"
            )
        if most is not None and not 0 < most < np.inf:
            raise SMDebugValueError(f"invalid most {shown(most)}; must be a positive number, or None")
        if not self._saves_script_tensors() or not self.parts.recorder.queue.writes:
            return
        writer, steps = self.parts.recorder.signals, self.parts.steps
        writer.declare(kind, layer, texts(names, "names"), most)
        step = steps.step if steps.is_open else steps.last + 1
        writer.write(step, {(kind, layer): rows.astype(np.float64).reshape(-1).tolist()})

    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: object, collections_to_write: str | Iterable[str] = CollectionKeys.DEFAULT
    ) -> None:
        """Save a tensor if one of its collections is saved at the current step.

        Args:
            tensor_name: name of the tensor.
            tensor_value: an array, a number, or a list of numbers or strings.
            collections_to_write: the collections that the tensor becomes a member of; created if they do not exist.
        """
        check_name(tensor_name)
        if not self._saves_script_tensors():
            return
        plan, tensors = self.parts.plan, self.parts.tensors
        names = [collections_to_write] if isinstance(collections_to_write, str) else collections_to_write
        collections = [plan.configured(name) for name in texts(names, "collections_to_write")]
        for collection in collections:
            collection.add_tensor_name(tensor_name)
        plan.given.update(one.name for one in collections)
        if self.parts.steps.is_open and not self._belongs_to_next_pass(tensor_name) and not plan.due(collections):
            # A wrong type is an error at every step, saved or not.
            as_array(tensor_name, tensors.plain(tensor_value))
            return
        copy = tensors.copy(tensor_name, tensor_value)
        self._save_script_tensor(tensor_name, copy, None, time.time(), tuple(collections))

    @guarded
    def _save_for_tensor(self, tensor_name: str, tensor_value: Any, check_before_write: bool = True) -> None:
        """Save a tensor at this step.

        With ``check_before_write``, only if a collection selects it.

        Subclasses that were written for smdebug call it.
        """
        check_name(tensor_name)
        if not check_before_write:
            self._write_raw_tensor_simple(tensor_name, tensor_value)
        elif self._saves_script_tensors():
            self._capture(tensor_name, tensor_value)

    @guarded
    def _write_raw_tensor_simple(
        self, tensor_name: str, tensor_value: Any, tensor_ref: object = None, timestamp: float | None = None
    ) -> None:
        """Save a tensor at this step whatever the collections select.

        It may be an array of texts.

        Scripts that were written for smdebug call it.
        """
        check_name(tensor_name)
        if self._saves_script_tensors():
            copy = self.parts.tensors.copy(tensor_name, tensor_value)
            self._save_script_tensor(
                tensor_name, copy, WHOLE_TENSOR, time.time() if timestamp is None else float(timestamp), ()
            )

    def _repeats(self, name: str, value: object, timestamp: float | None) -> bool:
        """Whether a number is one that the script saves at each step, and has been saved.

        A framework that knows of no such steps saves it as any other.
        """
        return False

    def _saves_script_tensors(self, are_numbers: bool = False) -> bool:
        """Whether tensors that the script passes are saved; if not, warn once."""
        tensors = self.parts.tensors
        saves = self.is_open and (are_numbers or not (tensors.only_shards or tensors.is_witness))
        if not saves:
            self.guard.warn_inactive()
        return saves

    def _add_loss(self, name: str) -> None:
        """Make a scalar a member of the collection ``losses``."""
        self.parts.plan.add_saved(CollectionKeys.LOSSES, name)

    def _save_script_tensor(
        self,
        name: str,
        copy: TensorCopy,
        spec: SaveSpec | None,
        timestamp: float,
        collections: tuple[Collection, ...],
    ) -> None:
        """Add a tensor of the script to the current step, or to the next between steps."""
        steps = self.parts.steps
        save = steps.save_for_next_pass if self._belongs_to_next_pass(name) else steps.save
        save(name, copy, spec, timestamp, collections)

    def _belongs_to_next_pass(self, name: str) -> bool:
        """Whether a tensor of the script belongs to the step of the next pass."""
        return False

    # ----------------------------------------------------------------------------------------------- opening and
    # closing

    def _close_predecessor(self) -> None:
        """Close an open hook on the same directory.

        There is one if a notebook cell was run again.
        """
        for other in process.open_hooks():
            recorder = other.parts.recorder
            if recorder.queue.writes and other.worker == self.worker and other.run_dir.same_as(self.run_dir):
                logger.warning(
                    "%s: closed the open hook on this directory, because a new one was created", self.out_dir
                )
                other.close()

    @guarded
    def dump(self, why: str = "requested") -> None:
        """Write the last steps in memory, and the next 8 steps whole.

        The run keeps the reason: see `Trial.incidents`. Does nothing if the hook has no flight recorder.

        Args:
            why: the reason.
        """
        if self.is_open:
            self.parts.incidents.dump(why, self.global_step)
        else:
            self.guard.warn_inactive()

    @guarded
    def flush(self) -> None:
        """Wait until every complete step is on disk."""
        if self.is_open:
            self.parts.recorder.queue.wait()

    @guarded
    def continue_at(self, mode: ModeKeys, mode_step: int) -> None:
        """Continue with a step of a mode, after a checkpoint was loaded.

        The run's step of this number and all later ones are deleted. Nothing happens if this hook has recorded a step.
        """
        if self.is_open:
            self.parts.steps.continue_at(mode, mode_step)

    @guarded
    def rest(self) -> None:
        """Make the run complete on disk, because a training has ended.

        The hook stays open; another step withdraws the end marker.
        """
        if self.is_open and self.parts.recorder.queue.writes:
            self._report_missing(COMPLETED)
            self.parts.recorder.publish()
            self.parts.recorder.mark_end()

    @guarded
    def interrupted(self, end: RunEnd) -> None:
        """Write everything before the script's own signal handler runs.

        The handler may end the process or return.
        """
        if self.is_open:
            self.parts.recorder.publish()
            self.parts.incidents.dump_at_end(end, self.global_step)
            self.parts.recorder.mark_end(end)

    @guarded
    def close(self) -> None:
        """End the run: end the current step, write what is queued, write the end marker.

        Calling it again does nothing.

        A hook that is still open when the process ends is closed then.
        """
        # A hook that was created while an exception was being handled (a retry) is not ended by that exception.
        self.end(RunEnd.of(None if _current_exception() == self._created_during else sys.exc_info()[1]))

    @guarded
    def end(self, end: RunEnd) -> None:
        """Close the hook, and state how the training ended.

        A second call after an interrupt continues the first.
        """
        guard = self.guard
        if not guard.in_own_process:
            return
        if guard.finished or guard.inactive:
            process.closed(self)
            return
        guard.closed = True
        steps, recorder, incidents = self.parts.steps, self.parts.recorder, self.parts.incidents
        for part in (
            self._detach,
            functools.partial(steps.save_leftovers, end.how != COMPLETED.how),
            self._end_step,
            lambda: incidents.dump_at_end(end, self.global_step),
            incidents.stop,
            functools.partial(self._report_missing, end),
            functools.partial(recorder.export, last=True),
            recorder.queue.close,
            functools.partial(recorder.run_dir.close, end),
            recorder.compact,
            recorder.add_to_catalog,
        ):
            try:
                part()
            except Exception:
                logger.exception("%s: part of closing the hook failed; the other parts were completed", self.out_dir)
        guard.finished = True
        process.closed(self)
        if self.when_closed is not None:
            try:
                self.when_closed(self, end)
            except Exception:
                logger.exception("%s: when_closed callback failed", self.out_dir)

    def _cleanup(self) -> None:
        """Close the hook. smdebug scripts use this name."""
        self.close()

    def _report_missing(self, end: RunEnd | None = None) -> None:
        """Log expected tensors that were never captured, and note them in the run.

        Each collection is logged once.

        ``end``: how the training ended, if it has. Until then, a collection that was not due at any step may still be
        captured.
        """
        plan, recorder, ended = self.parts.plan, self.parts.recorder, self.parts.steps.ended
        if not recorder.queue.writes or self.parts.tensors.only_shards or self.parts.tensors.is_witness:
            return
        steps = f"{ended} step{'s' if ended != 1 else ''}"
        notes = []
        missing = plan.missing() if ended else {}
        if not ended:
            if end is not None and end.how == "completed":
                notes.append(("steps", f"no step was recorded: {self.why_no_step()}"))
        else:
            for name, due in missing.items():
                what = f"collection {shown(name)} {'is included' if name in plan.asked else 'is saved by default'}, but"
                if due:
                    notes.append((name, f"{what} nothing was saved for it in {steps}: {self._why_missing(name)}"))
                elif end is not None:
                    notes.append((name, f"{what} its save_config selected none of the {steps} of its modes"))
            notes += [(what, f"{what} in {steps}: {why}") for what, why in self._unseen()]
        for name, note in notes:
            if name in missing and plan.is_empty(name):
                continue  # which was logged when the first step began
            self.guard.warn_once(f"missing {name}", "%s: %s", shown(self.out_dir, 200), note)
        recorder.notes = [note for _, note in notes]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.end(RunEnd.of(error))

    def __copy__(self) -> Self:
        """Return the hook itself, since one run has one hook.

        ``sklearn.base.clone`` copies an estimator's callbacks.
        """
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """Pickle to an inactive hook, because only one process writes a run."""
        return (_inactive_copy, (type(self), self.out_dir))

    def __repr__(self) -> str:
        state = (
            "inactive"
            if self.guard.inactive
            else "closed"
            if self.guard.closed
            else "dry run"
            if self.dry_run
            else "open"
        )
        return (
            f"<{type(self).__module__}.{type(self).__name__} {state}: out_dir={shown(self.out_dir, 200)}, "
            f"step={self.global_step}, mode={self.mode.name}, collections={', '.join(self.include_collections) or 'none'}, "
            f"{self.save_config!r}>"
        )


def check_name(name: object) -> None:
    """Raise an error unless a tensor may have this name."""
    if not isinstance(name, str):
        raise SMDebugTypeError(f"a tensor's name must be a string, got {type(name).__name__}")
    if not name:
        raise SMDebugValueError("a tensor's name must not be empty")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise SMDebugValueError(f"the name {shown(name)} cannot be encoded as UTF-8") from None


def _current_exception() -> tuple[int, type[BaseException]] | None:
    """Identify the exception being handled.

    No reference to its traceback is kept, since that keeps tensors alive.
    """
    error = sys.exc_info()[1]
    return None if error is None else (id(error), type(error))


def _inactive_copy(kind: type[Hook], out_dir: str) -> Hook:
    """Return a hook that accepts every call and saves nothing."""
    current = current_hook()
    try:
        hook = kind("inactive", dry_run=True)
    except TypeError:  # a subclass defined by the script, with other arguments
        hook = kind.__new__(kind)
        Hook.__init__(hook, "inactive", dry_run=True)
    process.closed(hook)
    set_current_hook(current)
    hook.out_dir, hook.dry_run = out_dir, False
    guard = hook.guard
    guard.closed, guard.silent, guard.out_dir = True, False, out_dir
    guard.inactive = "this is a copy of the hook from another process; only that process records"
    return hook
