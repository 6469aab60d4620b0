"""Copy tensors of the framework and the script, and queue them.

All of it runs on the training's thread. A tensor is copied if a collection of the current step selects it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.config import Collection, CollectionKeys
from smdwidgets.config.capture_plan import TENSORS
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.capture.arrays import TensorCopy, as_array, as_held, copy_tensor
from smdwidgets.hooks.capture.in_place import LARGE, described
from smdwidgets.hooks.capture.plan import Plan
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.core.guard import Guard
from smdwidgets.hooks.writing.write_queue import WriteQueue

__all__ = ["SCALAR", "SCALAR_PREFIX", "TensorCapture"]

#: Prefix of the names of scalars, as in smdebug.
SCALAR_PREFIX = "scalar/"
#: The collections of numbers that every worker has.
_NUMBERS = (CollectionKeys.LOSSES, CollectionKeys.UPDATES, CollectionKeys.SCALARS, CollectionKeys.METRICS)
#: The kind of tensors whose change has statistics.
_WEIGHTS = TENSORS[0]
#: What is saved of a number that the script passes.
SCALAR = SaveSpec(raw=True, scalar=True)


class TensorCapture:
    """Copies tensors and queues them. Frameworks with tensor classes extend it.

    Args:
        plan: selects the tensors of each step.
        queue: receives the copies.
        guard: reports failures.
    """

    def __init__(self, plan: Plan, queue: WriteQueue, guard: Guard) -> None:
        self._plan = plan
        self._queue = queue
        self._guard = guard
        #: Whether this worker saves, besides numbers of the training, shards of sharded tensors only.
        self.only_shards = False
        #: Whether this worker has statistics of numbers of the training, and saves no tensors.
        self.is_witness = False
        self._numbers: dict[str, bool] = {}

    def capture(self, name: str, value: Any, wants_norm: bool = False) -> TensorCopy | None:
        """Copy a tensor and queue it for the writer if a collection selects it.

        Returns the copy, whose norm the writer measures if it is wanted.
        """
        spec = self.spec(name)
        if spec is None or not self._queue.writes:
            return None
        if not spec.needs_value and (shape := getattr(value, "shape", None)) is not None:
            self._plan.mark_captured(name)
            self._queue.shape(name, tuple(shape), spec)
            return None
        began = time.perf_counter() if spec.kind else 0.0
        try:
            copy = self.copy_for(spec, name, value)
        except Exception as error:
            # The script did not choose this tensor, so the training continues.
            reason = str(error) if isinstance(error, SMDebugTypeError) else f"{name}: {error}"
            kind = f"{type(error).__name__}: {error}".replace(name, "")
            self._guard.report_failure(kind, f"tensor not saved: {reason}")
            return None
        if spec.kind and self._plan.capture is not None:
            self._plan.capture.time.spend(spec.kind, time.perf_counter() - began)
        self._plan.mark_captured(name)
        copy.wants_norm = wants_norm
        self._queue.tensor(name, copy, spec)
        return copy

    def number(self, name: str, value: Any) -> None:
        """Capture a number, such as a learning rate, if a collection selects it."""
        spec = self.spec(name)
        if spec is None or not self._queue.writes:
            return
        if type(value) is float:
            value = TensorCopy(np.array([value]), "float64", (1,))
        if type(value) is TensorCopy and spec.needs_value:
            self._plan.mark_captured(name)
            self._queue.tensor(name, value, spec)
        else:
            self.capture(name, value)

    def queue_script_tensor(
        self,
        name: str,
        copy: TensorCopy,
        spec: SaveSpec | None,
        timestamp: float | None,
        collections: tuple[Collection, ...],
    ) -> None:
        """Queue a tensor of the script, if its collections are saved at the step.

        Args:
            name: name of the tensor.
            copy: the copy.
            spec: what is saved of it; None: its collections decide.
            timestamp: time of the value; None: now.
            collections: the collections that the script named.
        """
        if spec is None:
            due = self._plan.due(collections)
            if not due:
                return
            spec = self._plan.spec_of_script_tensor(name, due)
            if spec is None:
                return
        elif spec is SCALAR:
            spec = self._plan.spec_of_scalar(spec)
        self._queue.tensor(name, copy, spec, timestamp)

    def spec(self, name: str) -> SaveSpec | None:
        """Return what this worker saves of a tensor at this step, or None."""
        return self._plan.spec(name)

    def is_number(self, name: str) -> bool:
        """Whether a tensor is a number that every worker has.

        These are losses, norms and scalars.
        """
        is_known = self._numbers.get(name)
        if is_known is None:
            is_known = self._numbers[name] = any(self._plan.is_member(collection, name) for collection in _NUMBERS)
        return is_known

    def copy_for(self, spec: SaveSpec, name: str, value: Any) -> TensorCopy:
        """Return a copy of a tensor, or of as much of it as is saved.

        A large tensor that nothing keeps is described where it lies.
        """
        nbytes = _size_of(value) if spec.statistics else 0
        lying = None
        if nbytes >= LARGE and not self.is_of_use(spec, name, nbytes):
            lying = self.in_memory(name, value)
        return self.copy(name, value) if lying is None else described(*lying, is_parameter=spec.kind == _WEIGHTS)

    def in_memory(self, name: str, value: Any) -> tuple[NDArray[Any], str] | None:
        """Return a tensor as an array, and the name of its element type.

        None: only a copy has its elements in order.
        """
        array, name_of_type = as_held(name, value)
        return (array, name_of_type) if name_of_type != "str" and array.flags.c_contiguous else None

    def is_of_use(self, spec: SaveSpec, name: str, nbytes: int) -> bool:
        """Whether a copy of a tensor is of use at this step, apart from its statistics."""
        return self._queue.keeps(name, nbytes) or self.saves_elements(spec, nbytes)

    def saves_elements(self, spec: SaveSpec, nbytes: int) -> bool:
        """Whether the elements of a tensor are saved at this step."""
        if spec.scalar or spec.reductions or spec.histogram is not None:
            return True
        capture = self._plan.capture
        fits = capture is None or capture.disk.fits_step(self._queue.copied + nbytes)
        return spec.raw and (fits or not spec.planned)

    def copy(self, name: str, value: Any) -> TensorCopy:
        """Return a copy of a tensor in host memory."""
        return copy_tensor(name, value, self._queue.staging)

    def numbers(self, name: str, value: Any) -> NDArray[Any]:
        """Return the values of a small tensor now; one on a device is waited for."""
        return as_array(name, value)

    def plain(self, value: Any) -> Any:
        """Return an object that NumPy can convert, to check a tensor's type."""
        return value


def _size_of(value: Any) -> int:
    """Return the size of a tensor in bytes; 0 if it is unknown, as of sparse ones."""
    try:
        return int(value.nbytes)
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return 0
