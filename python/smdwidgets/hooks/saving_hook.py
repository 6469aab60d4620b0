"""The saving layer of a hook: it copies tensors of the framework and the script.

All of it runs on the training's thread. A tensor is copied, if a collection of the current step selects it, and the copy is
queued for the writer's thread.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from typing import Any

from smdwidgets._text import shown
from smdwidgets.config import Collection, CollectionKeys
from smdwidgets.config._parse import texts
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.arrays import TensorCopy, as_array, copy_tensor
from smdwidgets.hooks.configured_hook import ConfiguredHook
from smdwidgets.hooks.guarded_hook import guarded
from smdwidgets.hooks.losses import is_loss
from smdwidgets.hooks.save_spec import SaveSpec
from smdwidgets.hooks.write_queue import WriteQueue

__all__ = ["SCALAR_PREFIX", "SavingHook"]

logger = logging.getLogger("smdwidgets.hooks")

#: Prefix of the names of scalars, as in smdebug.
SCALAR_PREFIX = "scalar/"
_SCALAR = SaveSpec(raw=True, scalar=True)

#: A tensor that the script passed between two steps: name, copy, what to save (None: decide at the step), time, collections.
_ScriptTensor = tuple[str, TensorCopy, SaveSpec | None, float, tuple[Collection, ...]]


class SavingHook(ConfiguredHook):
    """Copies the tensors of the current step and queues them for the writer.

    Args:
        queue_bytes: maximum number of queued bytes before the training waits for the disk.
        flush_seconds: maximum age of a complete step in the queue.
        *args: the arguments of the layer below.
    """

    def __init__(self, queue_bytes: int, flush_seconds: float, *args: Any) -> None:
        super().__init__(*args)
        #: Whether a step is in progress, to which the next tensor belongs.
        self._is_open = False
        self._script_tensors: list[_ScriptTensor] = []
        self._write_queue = WriteQueue(queue_bytes, float(flush_seconds))

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
            if spec is None:
                return
        elif spec is _SCALAR:
            spec = self._plan.spec_of_scalar(spec)
        self._write_queue.tensor(name, copy, spec, timestamp)

    def _save_spec(self, name: str) -> SaveSpec | None:
        """Return what to save of a tensor at this step, or None."""
        return self._plan.spec(name)

    def _capture(self, name: str, value: Any, keep: bool = False) -> TensorCopy | None:
        """Copy a tensor and queue it for the writer if a collection selects it.

        Returns the copy. With ``keep``, the caller releases its slab.
        """
        spec = self._plan.spec(name)
        if spec is None or not self._write_queue.writes:
            return None
        if not spec.needs_value and (shape := getattr(value, "shape", None)) is not None:
            self._plan.mark_captured(name)
            self._write_queue.shape(name, tuple(shape), spec)
            return None
        began = time.perf_counter() if spec.kind else 0.0
        try:
            copy = self._copy_for(spec, name, value)
        except Exception as error:
            # The script did not choose this tensor, so the training continues.
            why = str(error) if isinstance(error, SMDebugTypeError) else f"{name}: {error}"
            self._report_failure(f"{type(error).__name__}: {error}".replace(name, ""), f"tensor not saved: {why}")
            return None
        if spec.kind and self._plan.capture is not None:
            self._plan.capture.time.spend(spec.kind, time.perf_counter() - began)
        self._plan.mark_captured(name)
        if keep and copy.slab is not None:
            self._write_queue.staging.retain(copy.slab)
        self._write_queue.tensor(name, copy, spec)
        return copy

    def _copy_for(self, spec: SaveSpec, name: str, value: object) -> TensorCopy:
        """Return a copy of a tensor in host memory, or of as much as is needed of it."""
        return self._copy(name, value)

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

    def _add_script_tensors(self) -> None:
        """Add the tensors that the script saved between steps."""
        pending, self._script_tensors = self._script_tensors, []
        for one in pending:
            self._queue_script_tensor(*one)

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


def _described(copy: TensorCopy) -> str:
    return "text" if copy.dtype == "str" else f"an array of shape {copy.shape}"
