"""The base class of all hooks.

It counts steps, decides what to save, and queues copies for the writer's thread.
A framework's hook reports when a step begins and which tensors occur in it. The base class does not depend on any framework.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from smdwidgets._text import listed, shown
from smdwidgets.config import Collection, CollectionKeys, CollectionManager, ReductionConfig, SaveConfig
from smdwidgets.config._parse import texts
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError, TrainingStopped
from smdwidgets.hooks import process
from smdwidgets.hooks.arrays import TensorCopy, as_array, copy_tensor
from smdwidgets.hooks.json_config import HookFile
from smdwidgets.hooks.losses import is_loss
from smdwidgets.hooks.plan import Plan
from smdwidgets.hooks.run_dir import DirectoryInUse, RunDirectory
from smdwidgets.hooks.save_spec import WHOLE, SaveSpec
from smdwidgets.hooks.write_queue import SuspendedStep, WriteQueue
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.run_end import RunEnd
from smdwidgets.stop import STOP_FILE, StopRequest, stop_requested

__all__ = ["Hook", "current_hook", "set_current_hook"]

logger = logging.getLogger("smdwidgets.hooks")

#: Prefix of the names of scalars, as in smdebug.
SCALAR_PREFIX = "scalar/"
_SCALAR = SaveSpec(raw=True, scalar=True)

#: Failures that a hook notes in the run at most.
_MOST_FAILURES = 50
#: After this many steps the hook says what was to be saved and did not come.
_STEPS_BEFORE_REPORT = 20
#: A tensor that the script passed between two steps: name, copy, what to save (None: decide at the step), time, collections.
_ScriptTensor = tuple[str, TensorCopy, SaveSpec | None, float, tuple[Collection, ...]]

_current: Hook | None = None


def current_hook() -> Hook | None:
    """Return the hook that was created last in this process."""
    return _current


def set_current_hook(hook: Hook | None) -> None:
    """Set the hook that :func:`current_hook` returns; None unsets it."""
    global _current
    _current = hook


_P = ParamSpec("_P")
_H = TypeVar("_H", bound="Hook")
_T = TypeVar("_T")


def guarded(method: Callable[Concatenate[_H, _P], _T]) -> Callable[Concatenate[_H, _P], _T]:
    """Let one thread at a time run a method.

    The hook's signal handlers do not interrupt it.
    In a forked process the hook is not alive, and the method must do nothing.
    """

    @functools.wraps(method)
    def call(hook: _H, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if hook._pid != os.getpid():  # another thread may have locked the gate when the process was forked
            return method(hook, *args, **kwargs)
        with hook._gate:
            return method(hook, *args, **kwargs)

    return call


class Hook:
    """Save tensors of a training. The base class of every framework's hook.

    Args:
        out_dir: directory of the run, which must not contain a run; or ``s3://bucket/prefix``.
        export_tensorboard: also write scalars and histograms for TensorBoard, into ``tensorboard_dir`` or
            ``out_dir/tensorboard``.
        tensorboard_dir: directory of the TensorBoard files; implies ``export_tensorboard``.
        dry_run: count steps, write nothing.
        reduction_config: what to save of a tensor, unless its collection has a configuration; default: the whole tensor.
        save_config: when to save a tensor, unless its collection has a configuration: a SaveConfig, a SaveConfigMode or a
            dictionary of modes; default: every 500th step.
        include_regex: save tensors whose names match, as the collection ``default``.
        include_collections: names of collections to save, in addition to those that the framework always saves.
        save_all: save every tensor.
        include_workers: which workers of a distributed training save: ``"one"`` (the first; of sharded tensors, one copy of every shard)
            or ``"all"``.
        overwrite: delete the run in ``out_dir``.
        resume: True: continue after the last step of the run in ``out_dir``. A number: delete the steps from this number
            on, and continue with it.
        queue_bytes: maximum number of queued bytes before the training waits for the disk.
        flush_seconds: maximum age of a complete step in the queue, in seconds, before the training waits for the disk. A
            killed process loses at most the steps of this time. Does not apply to a run on S3.
        fsync: flush every step to the disk before it becomes visible.
    """

    #: The framework's collections and their patterns.
    built_in: ClassVar[Mapping[str, Sequence[str]]] = {CollectionKeys.ALL: (), CollectionKeys.DEFAULT: ()}
    #: Collections that are always saved.
    always_saved: ClassVar[tuple[str, ...]] = ()
    #: Default save interval.
    save_interval: ClassVar[int] = 500
    collection_class: ClassVar[type[Collection]] = Collection
    #: Whether the framework reports all tensors and collections select from them. Otherwise the script passes what to save.
    meets_tensors: ClassVar[bool] = True

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
        overwrite: bool = False,
        resume: bool | int = False,
        queue_bytes: int = 1 << 30,
        flush_seconds: float = 1.0,
        fsync: bool = False,
    ) -> None:
        self._gate = process.Gate()
        self._pid = os.getpid()
        self._born_in = _in_flight()
        if out_dir is None:
            raise SMDebugTypeError("out_dir is required: pass the directory of the run")
        if include_workers not in ("one", "all"):
            raise SMDebugValueError(f'invalid include_workers {shown(include_workers)}; choose "one" or "all"')
        if not (isinstance(flush_seconds, int | float) and flush_seconds > 0):
            raise SMDebugValueError(f"flush_seconds must be a positive number, got {shown(flush_seconds)}.")
        if not (reduction_config is None or isinstance(reduction_config, ReductionConfig)):
            raise SMDebugTypeError(f"reduction_config takes a ReductionConfig, not {type(reduction_config).__name__}.")
        self.dry_run = bool(dry_run)
        self.save_all = bool(save_all)
        self.include_workers = include_workers
        named = [include_collections] if isinstance(include_collections, str) else include_collections or ()
        self._plan = Plan(
            self.built_in,
            [*self.always_saved, *texts(named, "include_collections")],
            SaveConfig(save_interval=self.save_interval) if save_config is None else SaveConfig.parse(save_config),
            WHOLE if reduction_config is None else reduction_config,
            self.collection_class,
            self.meets_tensors,
            bool(export_tensorboard) or tensorboard_dir is not None,
            texts(named, "include_collections"),
        )
        if include_regex is not None:
            self._plan.include(CollectionKeys.DEFAULT, include_regex)
        if self.save_all:
            self._plan.include(CollectionKeys.ALL, ".*")
        self.worker, self.num_workers = self._worker()
        self._saving_workers = self.num_workers if include_workers == "all" else 1
        #: Whether this worker saves shards of sharded tensors, and nothing else.
        self._only_shards = False
        self._open_options = (overwrite, resume, fsync)
        self.run_dir = RunDirectory(out_dir, self.worker, self._saving_workers)
        self.out_dir = self.run_dir.url
        self._stop_file = str(self.run_dir.path / STOP_FILE)
        self.tensorboard_dir = self._tensorboard_dir(export_tensorboard, tensorboard_dir)

        self.mode = ModeKeys.GLOBAL
        #: Number of the current step, and of the latest one.
        self._step = self._last_step = -1
        self._suspended: tuple[ModeKeys, int, SuspendedStep] | None = None
        self._mode_steps: dict[ModeKeys, int] = {}
        #: Number of steps that this hook has ended.
        self._ended_steps = 0
        self._is_open = False
        #: Nothing more is saved; everything that was saved is written.
        self._closed = self._finished = False
        #: Why nothing is saved, unless the hook was closed.
        self._inactive = ""
        self._end_marked = False
        self._script_tensors: list[_ScriptTensor] = []
        #: What was warned of already.
        self._warned: set[str] = set()
        #: What was to be saved and did not come.
        self._notes: list[str] = []
        #: Failures to save something, one of each kind.
        self._failures: list[str] = []
        self._exported: tuple[object, ...] | None = None
        self._stop_seen = False
        self._write_queue = WriteQueue(queue_bytes, float(flush_seconds))
        if not self.dry_run and self._writes_here():
            self._close_predecessor()
            self._open(*self._open_options)
        process.opened(self)
        set_current_hook(self)

    def _open(self, overwrite: bool, resume: bool | int, fsync: bool) -> None:
        """Claim the directory.

        If another process writes to it, the training continues without being recorded.
        """
        directory = self.run_dir
        try:
            resumed = directory.open(overwrite=overwrite, resume=resume)
        except DirectoryInUse as error:
            self._closed, self._inactive = True, str(error)
            logger.error("nothing is recorded: %s", error)
            return
        self._step = self._last_step = resumed.step
        self._mode_steps.update(resumed.mode_steps)
        send = None if directory.bucket is None else directory.bucket.send
        self._write_queue.open(
            directory.path, self.worker, self.tensorboard_dir, fsync, send, directory.touch, directory.lost
        )

    def _save_shards(self, workers: int) -> None:
        """Save this worker's shards of sharded tensors.

        ``workers`` is the number of workers that save shards.
        A worker that saves nothing else opens the directory now.
        """
        self._saving_workers = self.run_dir.num_workers = workers
        if not (self.dry_run or self._write_queue.writes or self._closed):
            self._only_shards = True
            self.run_dir = RunDirectory(self.out_dir, self.worker, workers)
            self._open(*self._open_options)

    def _close_predecessor(self) -> None:
        """Close an open hook on the same directory.

        There is one if a notebook cell was run again.
        """
        for other in process.open_hooks():
            if other._write_queue.writes and other.worker == self.worker and other.run_dir.same_as(self.run_dir):
                logger.warning(
                    "%s: closed the open hook on this directory, because a new one was created", self.out_dir
                )
                other.close()

    # ------------------------------------------------------------------------------------------------- construction

    @classmethod
    def create_from_json_file(cls, json_file_path: str | os.PathLike[str] | None = None, **options: Any) -> Self:
        """Create a hook from a JSON file in smdebug's format.

        Args:
            json_file_path: the file; default: the environment variable SMDEBUG_CONFIG_FILE_PATH, else SageMaker's path.
            **options: further arguments of the hook, such as ``overwrite=True``.
        """
        file = HookFile(json_file_path, cls.save_interval)
        hook = cls(**{**file.arguments, **options})
        file.configure(hook.get_collection)
        return hook

    def _worker(self) -> tuple[str, int]:
        """Return the name of this worker and the number of workers."""
        for rank, size in (
            ("RANK", "WORLD_SIZE"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ):  # torchrun, mpirun
            number, count = os.environ.get(rank, ""), os.environ.get(size, "")
            if number.isdecimal() and count.isdecimal() and int(count) > 1:
                return f"worker_{int(number)}", int(count)
        return "worker_0", 1

    def _tensorboard_dir(self, export: bool, directory: str | os.PathLike[str] | None) -> str | None:
        if directory is not None:
            return str(Path(directory).expanduser().absolute())
        return str(self.run_dir.path / "tensorboard") if export else None

    # -------------------------------------------------------------------------------------------------- collections

    @property
    def collection_manager(self) -> CollectionManager:
        """All collections. Scripts may replace them before the first step, as in smdebug."""
        return self._plan.collections

    @collection_manager.setter
    def collection_manager(self, manager: CollectionManager) -> None:
        if not isinstance(manager, CollectionManager):
            raise SMDebugTypeError(f"collection_manager must be a CollectionManager, got {type(manager).__name__}")
        self._plan.replace_collections(manager)

    @property
    def include_collections(self) -> list[str]:
        """The names of the collections that are saved."""
        return self._plan.included

    @property
    def save_config(self) -> SaveConfig:
        """When to save a tensor whose collection has no configuration."""
        return self._plan.save_config

    @property
    def reduction_config(self) -> ReductionConfig:
        """What to save of a tensor whose collection has no configuration."""
        return self._plan.reduction_config

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

    def _prepare(self) -> None:
        """Complete the configuration when the first step begins."""
        self._plan.prepare()

    @property
    def _saving(self) -> tuple[Collection, ...]:
        """The collections that are saved at the current step."""
        return self._plan.saving

    # -------------------------------------------------------------------------------------------------------- steps

    @property
    def global_step(self) -> int:
        """Number of the current or last step; -1 before the first step."""
        return self._step

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """Number of the current or last step of each mode, counted per mode."""
        return {**self._mode_steps, ModeKeys.GLOBAL: self._step}

    @property
    def mode_step(self) -> int:
        """Number of the current or last step within its mode; -1 before the first step."""
        return self._step if self.mode is ModeKeys.GLOBAL else self._mode_steps.get(self.mode, -1)

    @guarded
    def set_mode(self, mode: ModeKeys | str) -> None:
        """End the current step, and set the mode of the next one.

        The modes are ``modes.TRAIN``, ``EVAL`` and ``PREDICT``.
        """
        mode = as_mode(mode)
        if mode is not self.mode:
            if self._alive():
                self._end_step()
            self.mode = mode

    def should_save_step(self) -> bool:
        """Whether anything is saved at the current step, or at the next between steps."""
        if not self._alive():
            return False
        if self._is_open:
            return bool(self._saving)
        if not self._plan.prepared:
            self._prepare()
        return bool(self._plan.at(self.mode, self.mode_step + 1))

    def _begin_step(self) -> bool:
        """Begin a step of the current mode; return whether any collection is saved at it."""
        self._end_step()
        self._check_stop()
        if self._end_marked:  # the training continued after a signal
            self._end_marked = False
            self.run_dir.withdraw_end()
        if not self._plan.prepared:
            self._prepare()
        self._last_step += 1
        self._step = self._last_step
        if self.mode is not ModeKeys.GLOBAL:
            self._mode_steps[self.mode] = self._mode_steps.get(self.mode, -1) + 1
        self._is_open = True
        saves = self._plan.begin(self.mode, self.mode_step)
        self._write_queue.begin((self._step, self.mode, self.mode_step))
        if saves:
            self._export()
        self._add_script_tensors()
        return saves

    def _end_step(self) -> None:
        """End the current step, if any."""
        if not self._is_open:
            return
        self._is_open = False
        self._plan.end()
        self._ended_steps += 1
        if self._ended_steps == _STEPS_BEFORE_REPORT:
            self._report_missing()
        if not self._write_queue.empty:
            self._export()
            self._write_queue.end()

    # --------------------------------------------------------------------------------------- what was asked for and did not come

    def _report_missing(self, end: RunEnd | None = None) -> None:
        """Log what was to be saved and did not come, and note it in the run.

        Each collection is logged once.

        ``end``: how the training ended, if it has. Until then, a collection that was not due at any step may still come.
        """
        if not self._write_queue.writes or self._only_shards:
            return
        steps = f"{self._ended_steps} step{'s' if self._ended_steps != 1 else ''}"
        notes = []
        if not self._ended_steps:
            if end is not None and end.how == "completed":
                notes.append(("steps", f"no step was recorded: {self._why_no_step()}"))
        else:
            for name, due in self._plan.missing().items():
                what = f"collection {shown(name)} {'is included' if name in self._plan.asked else 'is saved by default'}, but"
                if due:
                    notes.append((name, f"{what} nothing was saved for it in {steps}: {self._why_missing(name)}"))
                elif end is not None:
                    notes.append((name, f"{what} its save_config selected none of the {steps} of its modes"))
        for name, note in notes:
            if name != "steps" and self._plan.is_empty(name):
                continue  # which was logged when the first step began
            self._warn_once(f"missing {name}", "%s: %s", shown(self.out_dir, 200), note)
        self._notes = [note for _, note in notes]

    def _why_no_step(self) -> str:
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

    def _suspend_step(self) -> None:
        """Set the current step aside, so that another step can be saved before it ends."""
        if self._is_open:
            self._suspended = (self.mode, self.mode_step, self._write_queue.suspend())
            self._is_open = False
            self._plan.end()

    def _resume_step(self) -> None:
        """Continue the step that was set aside. The step after it has ended."""
        if self._suspended is not None:
            (self.mode, mode_step, state), self._suspended = self._suspended, None
            self._step = state.key[0]
            self._is_open = True
            self._plan.begin(self.mode, mode_step)
            self._write_queue.resume(state)
            self._add_script_tensors()

    def _add_script_tensors(self) -> None:
        """Add the tensors that the script saved between steps."""
        pending, self._script_tensors = self._script_tensors, []
        for one in pending:
            self._queue_script_tensor(*one)

    def _export(self, last: bool = False) -> None:
        """Write the collection file if collections have changed."""
        state = (*self._plan.state(), len(self.collection_manager.modules), *self._notes, *self._failures)
        if self._write_queue.writes and (last or state != self._exported):
            self._exported = state
            self.collection_manager.set_num_workers(self._saving_workers)
            self.collection_manager.set_notes(self.worker, [*self._failures, *self._notes])
            self._write_queue.collections(self.collection_manager.to_json())

    # ------------------------------------------------------------------------------------------------------ stopping

    @property
    def stop_requested(self) -> StopRequest | None:
        """The request to stop the training, or None.

        The action StopTraining of a rule writes it as a file of the run.
        """
        # This runs at every step; pathlib would be slower.
        return stop_requested(self.run_dir.path) if os.path.exists(self._stop_file) else None  # noqa: PTH110

    def _check_stop(self) -> None:
        """Raise TrainingStopped once if a stop was requested."""
        request = None if self._stop_seen else self.stop_requested
        if request is not None:
            self._stop_seen = True
            raise TrainingStopped(request.by, request.reason, request.step)

    # -------------------------------------------------------------------------------------------------------- saving

    @guarded
    def save_scalar(self, name: str, value: object, sm_metric: bool = False, timestamp: float | None = None) -> None:
        """Save a number as ``scalar/<name>``, regardless of the save interval.

        The scalar becomes a member of the collection ``scalars``, and of ``losses`` if its name is that of a loss, such as
        ``loss``, ``val_loss`` or ``train/loss``.

        Args:
            name: name of the scalar.
            value: a number.
            sm_metric: accepted for compatibility with smdebug.
            timestamp: time of the value in seconds since the epoch; default: now.
        """
        self._check_name(name)
        full = SCALAR_PREFIX + name
        if not self._alive() or self._only_shards:
            self._warn_inactive()
            return
        copy = self._copy(full, value)
        if copy.array.size != 1 or copy.dtype == "str":
            raise SMDebugTypeError(f"scalar {shown(name)} must be one number, got {_described(copy)}")
        self._configured(CollectionKeys.SCALARS).add_tensor_name(full)
        self._plan.mark_saved(CollectionKeys.SCALARS)
        if is_loss(name):
            self._add_loss(full)
        self._save_script_tensor(full, copy, _SCALAR, time.time() if timestamp is None else float(timestamp), ())

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
        self._check_name(tensor_name)
        if not self._alive() or self._only_shards:
            self._warn_inactive()
            return
        names = [collections_to_write] if isinstance(collections_to_write, str) else collections_to_write
        collections = [self._configured(name) for name in texts(names, "collections_to_write")]
        for collection in collections:
            collection.add_tensor_name(tensor_name)
        if self._is_open and not self._plan.due(collections):
            as_array(tensor_name, self._plain(tensor_value))  # a wrong type is an error at every step, saved or not
            return
        self._save_script_tensor(
            tensor_name, self._copy(tensor_name, tensor_value), None, time.time(), tuple(collections)
        )

    def _add_loss(self, name: str) -> None:
        """Make a scalar a member of the collection ``losses``."""
        self._configured(CollectionKeys.LOSSES).add_tensor_name(name)
        self._plan.mark_saved(CollectionKeys.LOSSES)

    def _configured(self, name: str) -> Collection:
        """Return the collection of this name; create and configure it if necessary."""
        collection = self.get_collection(name)
        if collection.reduction_config is None or collection.save_config is None:
            self._plan.configure(collection)
        return collection

    def _save_script_tensor(self, name: str, *rest: Any) -> None:
        """Add a tensor of the script to the current step, or to the next between steps."""
        if self._is_open:
            self._queue_script_tensor(name, *rest)
        else:
            self._script_tensors = [one for one in self._script_tensors if one[0] != name]
            self._script_tensors.append((name, *rest))

    def _queue_script_tensor(
        self,
        name: str,
        copy: TensorCopy,
        spec: SaveSpec | None,
        timestamp: float | None,
        collections: tuple[Collection, ...],
    ) -> None:
        if spec is None:
            due = self._plan.due(collections)
            if not due:
                return
            spec = self._plan.spec_of_script_tensor(name, due)
        self._write_queue.tensor(name, copy, spec, timestamp)

    def _save_spec(self, name: str) -> SaveSpec | None:
        """Return what to save of a tensor at this step, or None."""
        return self._plan.spec(name)

    def _capture(self, name: str, value: Any) -> None:
        """Copy a tensor and queue it for the writer if a collection selects it."""
        spec = self._plan.spec(name)
        if spec is None or not self._write_queue.writes:
            return
        if not spec.needs_value and (shape := getattr(value, "shape", None)) is not None:
            self._plan.mark_captured(name)
            self._write_queue.shape(name, tuple(shape), spec)
            return
        try:
            copy = self._copy(name, value)
        except Exception as error:
            # The script did not choose this tensor, so the training continues.
            why = str(error) if isinstance(error, SMDebugTypeError) else f"{name}: {error}"
            self._report_failure(f"{type(error).__name__}: {error}".replace(name, ""), f"tensor not saved: {why}")
            return
        self._plan.mark_captured(name)
        self._write_queue.tensor(name, copy, spec)

    def _report_failure(self, kind: str, message: str) -> None:
        """Log the first failure of a kind, and note it in the run."""
        kind = f"failure {kind[:300]}"
        if kind not in self._warned:
            self._warn_once(kind, "%s; further failures of this kind are not logged", message)
            if len(self._failures) < _MOST_FAILURES:
                self._failures.append(message[:1000])

    def _copy(self, name: str, value: object) -> TensorCopy:
        """Return a copy of a tensor in host memory.

        Frameworks with tensor classes override this.
        """
        return copy_tensor(name, value, self._write_queue.staging)

    def _plain(self, value: object) -> object:
        """Return an object that NumPy can convert.

        It serves to check the type of a framework's tensor.
        """
        return value

    @staticmethod
    def _check_name(name: object) -> None:
        if not isinstance(name, str):
            raise SMDebugTypeError(f"a tensor's name must be a string, got {type(name).__name__}")
        if not name:
            raise SMDebugValueError("a tensor's name must not be empty")
        if not name.isascii():
            try:
                name.encode()
            except UnicodeEncodeError:
                raise SMDebugValueError(f"the name {shown(name)} cannot be encoded as UTF-8") from None

    # ------------------------------------------------------------------------------------------------------- closing

    def _alive(self) -> bool:
        """Whether the hook is open, and this process created it."""
        return not self._closed and self._pid == os.getpid()

    def _writes_here(self) -> bool:
        """Whether this worker saves."""
        return self.include_workers == "all" or self.worker == "worker_0"

    def _warn_inactive(self) -> None:
        """Warn once that nothing is saved, and why."""
        if self.dry_run or not self._writes_here():
            return
        if self._pid != os.getpid():
            why = "this process is a fork; only the process that created the hook records"
        else:
            why = self._inactive or "the hook is closed"
        self._warn_once("inactive", "not saved (%s): %s", shown(self.out_dir, 200), why)

    def _warn_once(self, key: str, message: str, *args: object) -> None:
        """Log a warning once per key."""
        if key not in self._warned:
            self._warned.add(key)
            logger.warning(message, *args)

    @guarded
    def flush(self) -> None:
        """Wait until every complete step is on disk."""
        if self._alive():
            self._write_queue.wait()

    @guarded
    def close(self) -> None:
        """End the run: end the current step, write what is queued, write the end marker.

        Calling it again does nothing.

        A hook that is still open when the process ends is closed then.
        """
        # A hook that was created while an exception was being handled (a retry) is not ended by that exception.
        self._close(RunEnd.of(None if _in_flight() == self._born_in else sys.exc_info()[1]))

    @guarded
    def _close(self, end: RunEnd) -> None:
        """Close the hook. A second call after an interrupt continues the first."""
        if self._pid != os.getpid():
            return
        if self._finished or self._inactive:
            process.closed(self)
            return
        self._closed = True
        for part in (
            self._detach,
            self._save_leftovers,
            self._end_step,
            functools.partial(self._report_missing, end),
            functools.partial(self._export, last=True),
            self._write_queue.close,
            functools.partial(self.run_dir.close, end),
        ):
            try:
                part()
            except Exception:
                logger.exception("%s: part of closing the hook failed; the other parts were completed", self.out_dir)
        self._finished = True
        process.closed(self)

    @guarded
    def _interrupted(self, end: RunEnd) -> None:
        """Write everything before the script's own signal handler runs.

        The handler may end the process or return.
        """
        if self._alive():
            self._export()
            self._write_queue.publish()
            self._write_queue.wait()
            self.run_dir.mark_end(end)
            self._end_marked = True

    def _cleanup(self) -> None:
        """Close the hook. smdebug scripts use this name."""
        self.close()

    def _save_leftovers(self) -> None:
        """Save tensors that the script passed after the last step in a separate step."""
        if self._script_tensors and not self._is_open:
            self._stop_seen = True  # the training ends anyway
            self._begin_step()

    def _detach(self) -> None:
        """Remove the hook's callbacks from the framework's objects."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._close(RunEnd.of(error))

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
        state = "inactive" if self._inactive else "closed" if self._closed else "dry run" if self.dry_run else "open"
        return (
            f"<{type(self).__module__}.{type(self).__name__} {state}: out_dir={shown(self.out_dir, 200)}, "
            f"step={self._step}, mode={self.mode.name}, collections={', '.join(self.include_collections) or 'none'}, "
            f"{self.save_config!r}>"
        )


def _in_flight() -> tuple[int, type[BaseException]] | None:
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
    hook.out_dir, hook.dry_run, hook._closed = out_dir, False, True
    hook._inactive = "this is a copy of the hook from another process; only that process records"
    return hook


def _described(copy: TensorCopy) -> str:
    return "text" if copy.dtype == "str" else f"an array of shape {copy.shape}"
