"""What all hooks share: which step this is, what of it is saved, and the way to the disk.

A framework's hook tells the base when a step begins and which tensors it meets; the base decides, copies what is
wanted, and hands it to the writer's thread. So there is one place that knows the rules of saving, and none of it knows
a framework.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from smdwidgets._text import did_you_mean, shown
from smdwidgets.config import Collection, CollectionKeys, CollectionManager, ReductionConfig, SaveConfig
from smdwidgets.config._parse import texts
from smdwidgets.config.keys import NON_HISTOGRAM_COLLECTIONS, NON_REDUCTION_COLLECTIONS
from smdwidgets.exceptions import (
    InvalidCollectionConfiguration,
    SMDebugTypeError,
    SMDebugValueError,
    TrainingStopped,
)
from smdwidgets.hooks.arrays import Held, Staging, as_array, owned
from smdwidgets.hooks.background import Background
from smdwidgets.hooks.keep import WHOLE, Keep, Patterns, keep
from smdwidgets.hooks.recorder import Captured, Recorder
from smdwidgets.hooks.run_dir import Resumed, RunDirectory
from smdwidgets.hooks.tensorboard import TensorBoardExport
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.stop import STOP_FILE, StopRequest, stop_requested

__all__ = ["Collections", "Hook", "current_hook"]

logger = logging.getLogger("smdwidgets.hooks")

#: What save_scalar puts before a name, as smdebug does.
SCALAR_PREFIX = "scalar/"
#: Steps of these modes have no gradients worth saving, only stale ones.
_NOT_LEARNING = frozenset({ModeKeys.EVAL, ModeKeys.PREDICT})
_LEARNT = frozenset({CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES})
#: What is captured goes to the writer when it is more than this, and at the end of the step.
_PORTION = 8 << 20
_SCALAR = Keep(raw=True, scalar=True)

_open_hooks: weakref.WeakSet[Hook] = weakref.WeakSet()
_current: weakref.ref[Hook] | None = None


def current_hook() -> Hook | None:
    """The hook made last in this process, if it is still there."""
    return None if _current is None else _current()


class Collections(CollectionManager):
    """The collections of a hook, all of the framework's own class."""

    def __init__(self, kind: type[Collection]) -> None:
        super().__init__()
        self._kind = kind

    def create_collection(self, name: str, cls: type[Collection] | None = None) -> None:
        """Make an empty collection, of the framework's class unless told otherwise."""
        super().create_collection(name, self._kind if cls is None else cls)


class Hook:
    """Saves tensors of a training. The base of every framework's hook.

    Args:
        out_dir: the run's directory, fresh or empty; or ``s3://bucket/prefix``.
        export_tensorboard: write scalars and histograms for TensorBoard too, into ``tensorboard_dir`` or
            ``out_dir/tensorboard``.
        tensorboard_dir: where to; implies ``export_tensorboard``.
        dry_run: decide and log, write nothing.
        reduction_config: what to save of tensors whose collection does not say; by default the whole tensor.
        save_config: when to save tensors whose collection does not say: a SaveConfig, a SaveConfigMode or a dictionary of
            modes; by default every 500th step.
        include_regex: save tensors whose names match, as the collection ``default``.
        include_collections: names of collections to save, besides those that the framework always saves.
        save_all: save every tensor.
        include_workers: ``"one"`` (the first) or ``"all"`` workers of a distributed training save.
        overwrite: delete the run that ``out_dir`` holds.
        resume: go on after its last step; a number goes on with that step, and deletes what was saved from there on.
        queue_bytes: how much may wait to be written before the training waits for the disk.
        fsync: have every step on the disk itself before it becomes visible.
    """

    #: The framework's own collections with their patterns.
    built_in: ClassVar[Mapping[str, Sequence[str]]] = {CollectionKeys.ALL: (), CollectionKeys.DEFAULT: ()}
    #: Those that are saved whatever the caller includes.
    always_saved: ClassVar[tuple[str, ...]] = ()
    #: Every how many steps, if the caller does not say.
    save_interval: ClassVar[int] = 500
    collection_class: ClassVar[type[Collection]] = Collection
    #: Whether the hook meets tensors by itself, so that collections must say which of them are wanted.
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
        fsync: bool = False,
    ) -> None:
        if out_dir is None:
            raise SMDebugTypeError("out_dir is missing: give the directory that the run is to be written to.")
        if include_workers not in ("one", "all"):
            raise SMDebugValueError(f'include_workers must be "one" or "all", not {shown(include_workers)}.')
        if not (reduction_config is None or isinstance(reduction_config, ReductionConfig)):
            raise SMDebugTypeError(f"reduction_config takes a ReductionConfig, not {type(reduction_config).__name__}.")
        self.dry_run = bool(dry_run)
        self.save_all = bool(save_all)
        self.include_workers = include_workers
        self.save_config = (
            SaveConfig(save_interval=self.save_interval) if save_config is None else SaveConfig.parse(save_config)
        )
        self.reduction_config = WHOLE if reduction_config is None else reduction_config
        self.collection_manager = Collections(self.collection_class)
        for name, patterns in self.built_in.items():
            self.collection_manager.create_collection(name)
            self.collection_manager.get(name).include(list(patterns))
        self.include_collections = self._included(include_collections)
        if include_regex is not None:
            self.get_collection(CollectionKeys.DEFAULT).include(include_regex)
            self._include(CollectionKeys.DEFAULT)
        if self.save_all:
            self.get_collection(CollectionKeys.ALL).include(".*")
            self._include(CollectionKeys.ALL)

        self.mode = ModeKeys.GLOBAL
        self._step = -1
        self._mode_steps: dict[ModeKeys, int] = {}
        self._is_open = False
        self._closed = False
        self._pid = os.getpid()
        self._patterns = Patterns()
        self._saving: tuple[Collection, ...] = ()
        self._keeps: dict[tuple[str, ...], dict[str, Keep | None]] = {}
        self._seen_shape: tuple[int, ...] = ()
        self._exported: str | None = None
        self._pending: list[tuple[str, Held, Keep | None, float, tuple[Collection, ...]]] = []
        self._at = (-1, self.mode, -1)
        self._batch: list[Captured] = []
        self._batch_bytes = 0
        self._handed_over = False
        self._refused: set[str] = set()
        self._prepared = False
        self._stop_seen = False

        self.worker, self.num_workers = self._worker()
        self.run_dir = RunDirectory(out_dir, self.worker, self.num_workers if include_workers == "all" else 1)
        self.out_dir = self.run_dir.url
        self._stop_file = str(self.run_dir.path / STOP_FILE)
        self.tensorboard_dir = self._tensorboard_dir(export_tensorboard, tensorboard_dir)
        self._writes = not self.dry_run and (include_workers == "all" or self.worker == "worker_0")
        self._staging = Staging(queue_bytes)
        self._background = Background(queue_bytes)
        self._recorder: Recorder | None = None
        if self._writes:
            self._continue_after(self.run_dir.open(overwrite=overwrite, resume=resume))
            tensorboard = None if self.tensorboard_dir is None else TensorBoardExport(self.tensorboard_dir)
            send = None if self.run_dir.bucket is None else self.run_dir.bucket.send
            self._recorder = Recorder(self.run_dir.path, self.worker, self._staging, tensorboard, fsync, send)
        _open_hooks.add(self)
        global _current
        _current = weakref.ref(self)

    # ------------------------------------------------------------------------------------------------- construction

    @classmethod
    def create_from_json_file(cls, json_file_path: str | os.PathLike[str] | None = None, **options: Any) -> Self:
        """A hook as a configuration file in smdebug's format says.

        Without a path, the environment variable SMDEBUG_CONFIG_FILE_PATH names the file, or it is SageMaker's own.
        ``options`` are further arguments of the hook, such as ``overwrite=True``.
        """
        from smdwidgets.hooks.json_config import hook_from_json

        return hook_from_json(cls, json_file_path, options)

    def _worker(self) -> tuple[str, int]:
        """This process's name among the workers, and how many there are."""
        return "worker_0", 1

    def _included(self, given: str | Iterable[str] | None) -> list[str]:
        names: dict[str, None] = dict.fromkeys(self.always_saved)
        for name in [given] if isinstance(given, str) else texts(given or [], "include_collections"):
            names[name] = None
        return list(names)

    def _include(self, name: str) -> None:
        if name not in self.include_collections:
            self.include_collections.append(name)

    def _tensorboard_dir(self, export: bool, directory: str | os.PathLike[str] | None) -> str | None:
        if directory is not None:
            return str(Path(directory).expanduser().absolute())
        return str(self.run_dir.path / "tensorboard") if export else None

    def _continue_after(self, resumed: Resumed) -> None:
        self._step = resumed.step
        self._mode_steps.update(resumed.mode_steps)

    # -------------------------------------------------------------------------------------------------- collections

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """The collection of this name; made if there is none."""
        return self.collection_manager.get(name, create=create)

    def get_collections(self) -> dict[str, Collection]:
        """All collections, by name."""
        return self.collection_manager.get_collections()

    def add_collection(self, collection: Collection) -> None:
        """Add a collection of one's own. It is saved if ``include_collections`` names it."""
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(f"collection must be a Collection, not {type(collection).__name__}.")
        self.collection_manager.add(collection)

    def _prepare(self) -> None:
        """Give every collection its final configuration; called when the first step begins, when all are known."""
        self._prepared = True
        for name in self.include_collections:
            if name not in self.get_collections():
                hint = did_you_mean(name, self.get_collections())
                raise SMDebugValueError(
                    f"include_collections names {shown(name)}, which is no collection.{hint} Make it with "
                    f"hook.get_collection({shown(name)}).include(regex) before the first step."
                )
        saved = self._saved_collections()
        for name, collection in self.get_collections().items():
            if self.meets_tensors and name not in self.built_in:
                if not collection.include_regex and not collection.tensor_names:
                    raise InvalidCollectionConfiguration(name)
                if collection not in saved:
                    logger.warning("Collection %s is not saved: include_collections does not name it.", shown(name))
            self._patterns.any(
                name, collection.include_regex, ""
            )  # a wrong pattern is an error now, not in mid-training
            self._configure(collection)

    def _configure(self, collection: Collection) -> None:
        # A configuration of its own, since filling in missing modes must not change one that several collections share.
        given = self.save_config if collection.save_config is None else collection.save_config
        complete = SaveConfig(given.mode_save_configs)
        complete.merge_default_save_config(self.save_config)
        collection.save_config = complete
        if collection.name in NON_HISTOGRAM_COLLECTIONS:
            collection.save_histogram = False
        if collection.name in NON_REDUCTION_COLLECTIONS:
            collection.reduction_config = WHOLE
        elif collection.reduction_config is None:
            collection.reduction_config = self.reduction_config

    def _saved_collections(self) -> list[Collection]:
        if not self.meets_tensors or CollectionKeys.ALL in self.include_collections:
            return list(self.get_collections().values())
        return [self.get_collections()[name] for name in self.include_collections if name in self.get_collections()]

    def _collections_at(self, mode: ModeKeys, mode_step: int) -> tuple[Collection, ...]:
        """The collections that are saved at this step of this mode."""
        found = []
        for collection in self._saved_collections():
            if mode in _NOT_LEARNING and collection.name in _LEARNT:
                continue
            config = self.save_config if collection.save_config is None else collection.save_config
            if config.should_save_step(mode, mode_step):
                found.append(collection)
        return tuple(found)

    # -------------------------------------------------------------------------------------------------------- steps

    @property
    def global_step(self) -> int:
        """The number of the step that is going on, or of the last one; -1 before the first."""
        return self._step

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """The same for each mode seen so far, by the mode's own count."""
        return {**self._mode_steps, ModeKeys.GLOBAL: self._step}

    @property
    def mode_step(self) -> int:
        """The current mode's own count of steps; -1 before the first."""
        return self._step if self.mode is ModeKeys.GLOBAL else self._mode_steps.get(self.mode, -1)

    def set_mode(self, mode: ModeKeys | str) -> None:
        """Say what the coming steps do: ``modes.TRAIN``, ``EVAL`` or ``PREDICT``. Ends the step that is going on."""
        mode = as_mode(mode)
        if mode is not self.mode:
            self._end_step()
            self.mode = mode

    def should_save_step(self) -> bool:
        """Whether anything is saved at the step that is going on or, between steps, at the next one."""
        if not self._alive():
            return False
        if self._is_open:
            return bool(self._saving)
        if not self._prepared:
            self._prepare()
        return bool(self._collections_at(self.mode, self.mode_step + 1))

    def _begin_step(self) -> bool:
        """A new step of the current mode; whether any collection is saved at it."""
        self._end_step()
        self._check_stop()
        if not self._prepared:
            self._prepare()
        self._step += 1
        if self.mode is not ModeKeys.GLOBAL:
            self._mode_steps[self.mode] = self._mode_steps.get(self.mode, -1) + 1
        self._is_open = True
        self._saving = self._collections_at(self.mode, self.mode_step)
        self._at = (self._step, self.mode, self.mode_step)
        self._handed_over = False
        if self._saving:
            self._forget_changed_collections()
            self._export()
        pending, self._pending = self._pending, []
        for name, held, what, timestamp, collections in pending:
            self._submit_own(name, held, what, timestamp, collections)
        return bool(self._saving)

    def _end_step(self) -> None:
        """The step's files are complete; the writer makes them visible when it has got so far."""
        if not self._is_open:
            return
        self._is_open = False
        self._saving = ()
        if self._recorder is not None and (self._batch or self._handed_over):
            self._export()
            self._hand_over()
            self._background.put(self._recorder.finish)

    def _hand_over(self) -> None:
        """Give what has been captured to the writer. In portions: waking it for each tensor costs more than the tensor."""
        if self._recorder is not None and self._batch:
            batch, nbytes = self._batch, self._batch_bytes
            self._batch, self._batch_bytes = [], 0
            self._handed_over = True
            self._background.put(self._recorder.write, self._at, batch, nbytes=nbytes)

    def _forget_changed_collections(self) -> None:
        """Collections may gain patterns and tensors while the training runs; what was decided for names is then void."""
        collections = self.get_collections().values()
        seen = tuple(len(c.include_regex) << 32 | len(c.tensor_names) for c in collections)
        if seen != self._seen_shape:
            self._seen_shape = seen
            self._keeps.clear()

    def _export(self) -> None:
        """Write the collection file if it has changed."""
        if self._recorder is None:
            return
        collections = self.get_collections().values()
        seen = tuple(len(c.include_regex) << 32 | len(c.tensor_names) for c in collections)
        if self._exported is not None and seen == self._exported_shape:
            return
        self._exported_shape = seen
        self.collection_manager.set_num_workers(self.num_workers if self.include_workers == "all" else 1)
        content = self.collection_manager.to_json()
        if content != self._exported:
            self._exported = content
            self._background.put(self._recorder.collections, content)

    _exported_shape: tuple[int, ...] = ()

    # ------------------------------------------------------------------------------------------------------ stopping

    @property
    def stop_requested(self) -> StopRequest | None:
        """Who asked this training to stop, if anyone did: a rule's StopTraining action leaves a file in the run."""
        # Looked at in every step: finding nothing must cost next to nothing.
        return stop_requested(self.run_dir.path) if os.path.exists(self._stop_file) else None  # noqa: PTH110

    def _check_stop(self) -> None:
        """Between two steps: end the training by an exception if it was asked to stop, once."""
        request = None if self._stop_seen else self.stop_requested
        if request is not None:
            self._stop_seen = True
            raise TrainingStopped(request.by, request.reason, request.step)

    # -------------------------------------------------------------------------------------------------------- saving

    def save_scalar(self, name: str, value: object, sm_metric: bool = False, timestamp: float | None = None) -> None:
        """Save a number as ``scalar/<name>`` at the current step, whatever the save interval.

        ``sm_metric`` is accepted for smdebug's sake: SageMaker reads the metric from the run.
        """
        self._check_name(name)
        full = SCALAR_PREFIX + name
        if not self._alive():
            return
        held = self._hold(full, value)
        if held.array.size != 1 or held.dtype == "str":
            raise SMDebugTypeError(f"The scalar {shown(name)} must be one number, not {_what(held)}.")
        self._own(full, held, _SCALAR, time.time() if timestamp is None else float(timestamp), ())

    def save_tensor(
        self, tensor_name: str, tensor_value: object, collections_to_write: str | Iterable[str] = CollectionKeys.DEFAULT
    ) -> None:
        """Save a tensor of one's own at the current step, if that is one at which its collections are saved.

        It becomes a member of the collections named (all of them), which are made if there are none of these names.
        """
        self._check_name(tensor_name)
        if not self._alive():
            return
        names = [collections_to_write] if isinstance(collections_to_write, str) else collections_to_write
        collections = []
        for name in texts(names, "collections_to_write"):
            collection = self.get_collection(name)
            if collection.reduction_config is None or collection.save_config is None:
                self._configure(collection)
            collection.add_tensor_name(tensor_name)
            collections.append(collection)
        if self._is_open and not self._wanted_now(collections):
            as_array(tensor_name, self._plain(tensor_value))  # a wrong type is an error at every step, not at some
            return
        held = self._hold(tensor_name, tensor_value)
        self._own(tensor_name, held, None, time.time(), tuple(collections))

    def _own(
        self, name: str, held: Held, what: Keep | None, timestamp: float, collections: tuple[Collection, ...]
    ) -> None:
        """A tensor handed over by the script: into the step that is going on, or kept for the next."""
        if self._is_open:
            self._submit_own(name, held, what, timestamp, collections)
        else:
            self._pending = [one for one in self._pending if one[0] != name]
            self._pending.append((name, held, what, timestamp, collections))

    def _submit_own(
        self, name: str, held: Held, what: Keep | None, timestamp: float, collections: tuple[Collection, ...]
    ) -> None:
        if what is None:
            wanted = self._wanted_now(collections)
            if not wanted:
                return
            matched = [one for one in self._saving if one not in wanted and self._patterns.match(one, name)]
            what = keep([*wanted, *matched], self.tensorboard_dir is not None)
        self._submit(name, held, what, timestamp)

    def _wanted_now(self, collections: Iterable[Collection]) -> list[Collection]:
        """Those that are saved at the step that is going on, whether included or not: the script asked for this tensor."""
        configs = [(one, self.save_config if one.save_config is None else one.save_config) for one in collections]
        return [one for one, config in configs if config.should_save_step(self.mode, self.mode_step)]

    def _keep(self, name: str) -> Keep | None:
        """What to save of a tensor at this step; None for nothing."""
        key = tuple([collection.name for collection in self._saving])
        known = self._keeps.get(key)
        if known is None:
            known = self._keeps[key] = {}
        if name not in known:
            members = [one for one in self._saving if self._patterns.match(one, name)]
            for collection in members:
                collection.add_tensor_name(name)
            known[name] = keep(members, self.tensorboard_dir is not None) if members else None
        return known[name]

    def _capture(self, name: str, value: Any, shape: tuple[int, ...] | None = None) -> None:
        """A tensor that the framework has met in this step: copied and handed on if any collection wants it."""
        if not self._saving:
            return
        what = self._keep(name)
        if what is None or self._recorder is None:
            return
        if not what.needs_value and shape is not None:
            self._batch.append(Captured(name, None, shape, what, time.time()))
            return
        try:
            held = self._hold(name, value)
        except SMDebugTypeError as error:
            # The framework's tensors are not the script's choice: say it once, and let the training go on.
            if name not in self._refused:
                self._refused.add(name)
                logger.warning("Not saved: %s", error)
            return
        self._submit(name, held, what, time.time())

    def _submit(self, name: str, held: Held, what: Keep, timestamp: float) -> None:
        if self._recorder is not None:
            self._batch.append(Captured(name, held, held.shape, what, timestamp))
            self._batch_bytes += held.array.nbytes
            if self._batch_bytes > _PORTION:
                self._hand_over()

    def _hold(self, name: str, value: object) -> Held:
        """A copy of a tensor on this side of the device; frameworks with tensors of their own extend it."""
        return owned(name, value, self._staging)

    def _plain(self, value: object) -> object:
        """A tensor of the framework as something that numpy takes, for looking at its type only."""
        return value

    @staticmethod
    def _check_name(name: object) -> None:
        if not isinstance(name, str):
            raise SMDebugTypeError(f"A tensor's name must be text, not {type(name).__name__}.")
        if not name:
            raise SMDebugValueError("A tensor's name must not be empty.")

    # ------------------------------------------------------------------------------------------------------- closing

    def _alive(self) -> bool:
        """Whether this process may write: the hook is open, and this is no fork of the training (a DataLoader's worker)."""
        return not self._closed and self._pid == os.getpid()

    def flush(self) -> None:
        """Wait until every step that has ended is on disk."""
        if self._alive():
            self._background.wait()

    def close(self) -> None:
        """End the run: finish the step, write what waits, say that the training has ended. May be called again."""
        if not self._alive():
            return
        self._closed = True
        _open_hooks.discard(self)
        self._detach()
        self._save_leftovers()
        self._end_step()
        if self._recorder is not None:
            self._exported_shape = (-1,)
            self._export()
            self._background.put(self._recorder.close)
        self._background.close()
        self._staging.clear()
        self.run_dir.close()

    def _save_leftovers(self) -> None:
        """What was handed over after the last step gets a step of its own rather than none."""
        if self._pending and not self._is_open:
            self._stop_seen = True  # no reason to stop what ends anyway
            self._begin_step()

    def _detach(self) -> None:
        """Take the hook off the framework's objects."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        """A pickled hook (a model saved with it, a spawned process) comes back as None: it writes from one process only."""
        return (_nothing, ())

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "dry run" if self.dry_run else "open"
        return (
            f"<{type(self).__module__}.{type(self).__name__} {state}: out_dir={shown(self.out_dir, 200)}, "
            f"step={self._step}, mode={self.mode.name}, collections={', '.join(self.include_collections) or 'none'}, "
            f"{self.save_config!r}>"
        )


def _nothing() -> None:
    return None


def _what(held: Held) -> str:
    return "text" if held.dtype == "str" else f"an array of shape {held.shape}"


@atexit.register
def _close_all() -> None:
    for hook in list(_open_hooks):
        try:
            hook.close()
        except Exception:
            logger.exception("A hook could not be closed.")
