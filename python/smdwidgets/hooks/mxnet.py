"""A hook for MXNet's Gluon blocks.

::

    import smdwidgets.mxnet as smd

    hook = smd.Hook("/tmp/run", include_collections=["weights", "gradients"])
    hook.register_block(net)
    hook.register_block(loss)

A step starts with a forward pass of the registered block and ends before the next one. The saved weights are those that
the forward pass uses. The saved gradients are those that ``Trainer.step`` uses, or without a trainer those at the end
of the step. Tensor names are the same as in smdebug: ``dense0_weight``, ``gradient/dense0_weight``,
``dense0_output_0``. For a hybridized block, the inputs and outputs of its child blocks are not available.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import mxnet
import numpy as np

from smdwidgets.config import Collection as BaseCollection
from smdwidgets.config import CollectionKeys
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.core import process
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.hooks.core.hook import guarded
from smdwidgets.hooks.core.tensors import TensorCapture
from smdwidgets.modes import ModeKeys

__all__ = ["Collection", "Hook"]

logger = logging.getLogger("smdwidgets.hooks")

#: How many numbered inputs and outputs of a block are matched against the patterns to decide whether to observe the
#: block.
_PROBED = 16


class Collection(BaseCollection):
    """A collection that can select the inputs and outputs of a block."""

    def add_block_tensors(self, block: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Add the tensors that a block takes or returns."""
        if not isinstance(block, mxnet.gluon.Block):
            raise SMDebugTypeError(f"block must be a gluon.Block, got {type(block).__name__}")
        for kind, wanted in (("input", inputs), ("output", outputs)):
            if wanted:
                self.include(f"^{re.escape(block.name)}_{kind}_")


class MXNetCapture(TensorCapture):
    """Copies arrays of MXNet."""

    def copy(self, name: str, value: Any) -> TensorCopy:
        """Return a copy of an array in host memory."""
        if not isinstance(value, mxnet.nd.NDArray):
            return super().copy(name, value)
        array = value.asnumpy()  # returns a copy
        return TensorCopy(array, array.dtype.name, array.shape)

    def plain(self, value: Any) -> Any:
        """Return an object that NumPy can convert."""
        return np.empty(0) if isinstance(value, mxnet.nd.NDArray) else value


class Hook(BaseHook):
    """Save tensors of Gluon blocks."""

    __doc__ += "\n\n    " + "".join((BaseHook.__doc__ or "").partition("Args:")[1:])

    built_in: ClassVar[Mapping[str, Sequence[str]]] = {
        CollectionKeys.ALL: (),
        CollectionKeys.DEFAULT: (),
        CollectionKeys.WEIGHTS: ("^(?!gradient).*weight",),
        CollectionKeys.BIASES: ("^(?!gradient).*bias",),
        CollectionKeys.GRADIENTS: ("^gradient",),
        CollectionKeys.LOSSES: (r"loss\d*_(?!input).*output",),
    }
    always_saved: ClassVar[tuple[str, ...]] = (CollectionKeys.LOSSES,)
    kinds: ClassVar[Mapping[str, str]] = {
        CollectionKeys.WEIGHTS: "weights",
        CollectionKeys.BIASES: "weights",
        CollectionKeys.GRADIENTS: "gradients",
        CollectionKeys.ACTIVATIONS: "activations",
    }
    activations: ClassVar[Sequence[str]] = (r"^(?!gradient/).*_(input|output)_\d+$",)
    collection_class: ClassVar[type[BaseCollection]] = Collection

    capture_class: ClassVar[type[TensorCapture]] = MXNetCapture

    def _attach(self) -> None:
        self._blocks: list[Any] = []
        self._roots: list[Any] = []
        self._handles: list[Any] = []
        self._counts: dict[str, int] = {}
        self._tapped = False
        self._late: list[Any] = []
        self._gradients_saved = False

    def register_block(self, block: Any) -> None:
        """Register a block.

        The outputs of a loss block are saved. A forward pass of any other block starts a step.
        """
        if not isinstance(block, mxnet.gluon.Block):
            raise SMDebugTypeError(f"block must be a gluon.Block, got {type(block).__name__}")
        if any(block is known for known in self._blocks):
            raise SMDebugValueError(f"block {block.name} is already registered; register each block once")
        self._blocks.append(block)
        if isinstance(block, mxnet.gluon.loss.Loss):
            self._handles.append(block.register_forward_hook(self._after_forward))
            return
        self._roots.append(block)
        self._tapped = False
        _observe_trainers()
        self._handles.append(block.register_forward_pre_hook(self._before_forward))
        self._handles.append(block.register_forward_hook(self._read_late))

    # For scripts written for smdebug.
    register_hook = register_block

    # -------------------------------------------------------------------------------------------------------- steps

    @guarded
    def _before_forward(self, block: Any, _inputs: Any) -> None:
        if not self.is_open:
            return
        self._end_step()  # with the gradients of the last step
        saves = self._begin_step()
        self._gradients_saved = False
        self._counts.clear()
        if not self._tapped:
            self._tap_blocks()
        if saves:
            self._late = [one for one in self._parameters() if not self._read(one.name, one, one.data)]

    @guarded
    def _read_late(self, _block: Any, _inputs: Any, _outputs: Any) -> None:
        """Save the weights whose initialization Gluon deferred to the forward pass."""
        late, self._late = self._late, []
        if self.is_open and self.parts.plan.saving:
            for parameter in late:
                self._read(parameter.name, parameter, parameter.data)

    @guarded
    def after_update(self, parameters: Sequence[Any]) -> None:
        """Save the gradients after a trainer has updated the parameters.

        The step is then most likely complete.
        """
        if self.is_open and any(known is updated for known in self._parameters() for updated in parameters):
            self._save_gradients()
            self.parts.recorder.queue.settle()

    def _save_gradients(self) -> None:
        if self.parts.steps.is_open and self.parts.plan.saving and self.mode in (ModeKeys.TRAIN, ModeKeys.GLOBAL):
            self._gradients_saved = True
            for parameter in self._parameters():
                if parameter.grad_req != "null":
                    self._read(f"gradient/{parameter.name}", parameter, parameter.grad)

    def _end_step(self) -> None:
        if not self._gradients_saved:
            self._save_gradients()
        super()._end_step()

    def _parameters(self) -> Iterator[Any]:
        for root in self._roots:
            yield from root.collect_params().values()

    def _read(self, name: str, parameter: Any, get: Any) -> bool:
        """Save a parameter's value or gradient from its first device.

        Returns False if the parameter is not initialized yet.
        """
        if self.parts.plan.spec(name) is not None:
            try:
                value = get(parameter.list_ctx()[0])
            except (mxnet.gluon.parameter.DeferredInitializationError, RuntimeError):
                return False
            self._capture(name, value)
        return True

    def _tap_blocks(self) -> None:
        """Register callbacks on the blocks whose inputs or outputs may be saved."""
        self._tapped = True

        def tap(block: Any) -> None:
            probes = [f"{block.name}_{kind}_{i}" for kind in ("output", "input") for i in range(_PROBED)]
            if self.parts.plan.wants_any(probes):
                self._handles.append(block.register_forward_hook(self._after_forward))

        for root in self._roots:
            root.apply(tap)

    @guarded
    def _after_forward(self, block: Any, inputs: Any, outputs: Any) -> None:
        if self.is_open and self.parts.plan.saving:
            self._capture_all(f"{block.name}_input_", inputs)
            self._capture_all(f"{block.name}_output_", outputs)

    def _capture_all(self, prefix: str, value: Any) -> None:
        if isinstance(value, mxnet.nd.NDArray):
            index = self._counts.get(prefix, 0)
            self._counts[prefix] = index + 1
            self._capture(f"{prefix}{index}", value)
        elif isinstance(value, list | tuple):
            for item in value:
                self._capture_all(prefix, item)

    def _detach(self) -> None:
        self._end_step()  # while the gradients can still be read
        for handle in self._handles:
            handle.detach()
        self._handles.clear()
        self._roots.clear()
        self._blocks.clear()


def _observe_trainers() -> None:
    """Notify open hooks after a trainer has updated parameters.

    Gluon has no callback for this.
    """
    trainer = mxnet.gluon.Trainer
    if hasattr(trainer.step, "__wrapped__"):
        return

    def observed(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            result = method(self, *args, **options)
            for hook in process.open_hooks():
                if isinstance(hook, Hook):
                    try:
                        hook.after_update(self._params)
                    except Exception:
                        logger.exception("cannot save the gradients of this step")
            return result

        return call

    trainer.step, trainer.update = observed(trainer.step), observed(trainer.update)
