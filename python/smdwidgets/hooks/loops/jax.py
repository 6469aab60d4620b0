"""A hook for training loops with JAX, which passes trees of arrays.

::

    from smdwidgets.jax import Hook

    with Hook("runs/mine") as hook:
        for batch in batches:
            params, state, loss, gradients = update(params, state, batch)  # compiled by jax.jit
            hook.save_tree("model", params)
            hook.save_tree("gradient/model", gradients)
            hook.save_scalar("loss", loss)
            hook.step()

A tree is anything that JAX takes for one: parameters of Flax linen, a module or state of Flax nnx, a module of Equinox,
the state of an optimizer of optax. Tensor names are paths: ``model/Dense_0/kernel``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from smdwidgets._text import shown
from smdwidgets.config import CollectionKeys
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.core.hook import check_name, guarded
from smdwidgets.hooks.core.tensors import TensorCapture
from smdwidgets.hooks.loops.checking import Checking
from smdwidgets.hooks.loops.numpy import Hook as NumpyHook
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.tensors import Kind, describe

__all__ = ["Hook"]


class JaxCapture(TensorCapture):
    """Copies arrays of JAX."""

    def copy(self, name: str, value: Any) -> TensorCopy:
        """Return a copy of the array that this process has of a value."""
        return super().copy(name, _local(name, value))

    def plain(self, value: Any) -> Any:
        """Return an object that NumPy can convert."""
        return np.empty(0) if isinstance(value, jax.Array) else value


class Hook(NumpyHook):
    """Save trees of arrays that the training loop passes to the hook.

    :meth:`save_tree` saves all arrays of a tree, and :meth:`step` ends a step. Call both outside of compiled functions,
    with their results.
    """

    __doc__ += "\n\n    " + "".join((NumpyHook.__doc__ or "").partition("Args:")[1:])

    built_in: ClassVar[Mapping[str, tuple[str, ...]]] = {  # type: ignore[assignment, unused-ignore]
        **{name: tuple(patterns) for name, patterns in NumpyHook.built_in.items()},
        CollectionKeys.OPTIMIZER_STATE: (),
    }
    kinds: ClassVar[Mapping[str, str]] = {
        CollectionKeys.WEIGHTS: "weights",
        CollectionKeys.BIASES: "weights",
        CollectionKeys.GRADIENTS: "gradients",
    }

    capture_class: ClassVar[type[TensorCapture]] = JaxCapture

    def _attach(self) -> None:
        super()._attach()
        self._checking = Checking(self.parts, self.options)

    def _detach(self) -> None:
        self._checking.close()
        super()._detach()

    @classmethod
    def current_worker(cls) -> tuple[str, int]:
        """Return the name of this worker and the number of workers."""
        # Asking for the process number before jax.distributed.initialize would be an error of the script.
        is_initialized = getattr(jax.distributed, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            return f"worker_{jax.process_index()}", jax.process_count()
        return super().current_worker()

    @guarded
    def save_tree(self, prefix: str, tree: Any, collection: str | None = None) -> None:
        """Save the arrays of a tree as ``<prefix>/<path>``.

        Anything else in the tree, such as functions and keys of random numbers, is skipped. An array that cannot be
        saved is skipped with a warning.

        Args:
            prefix: the first part of the names.
            tree: parameters, gradients, an optimizer's state, a module.
            collection: the collection that the arrays belong to. By default the prefix decides: ``gradient`` and
                ``gradient/...`` are ``gradients``; ``optimizer`` and ``optimizer/...`` are ``optimizer_state``, and
                ``scalars`` for a ``learning_rate``; arrays of any other tree are ``weights``, or ``biases`` if they are
                named ``bias`` or ``beta``.
        """
        check_name(prefix)
        if not self._saves_script_tensors():
            return
        self._ensure_step()
        leaves = list(_arrays(tree))
        arrays = [(f"{prefix}/{path}" if path else prefix, value) for path, value in leaves]
        if self._is_training and collection == CollectionKeys.INPUTS:
            for name, value in arrays:
                self._checking.inputs(name, value)
        elif self._is_training:
            self._checking.tree(prefix, lambda: leaves)
        if not arrays:
            self.guard.warn_once(f"no arrays {prefix}", "save_tree(%s): the tree has no arrays", shown(prefix))
        collections = {
            name: _collection_of(prefix, name, value) if collection is None else collection for name, value in arrays
        }
        plan = self.parts.plan
        due = {name for name in set(collections.values()) if plan.due([plan.configured(name)])}
        selected = [(name, value) for name, value in arrays if collections[name] in due]
        for _, value in selected:
            if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) and not value.is_deleted():
                value.copy_to_host_async()  # all copies at once, then one after the other
        for name, value in selected:
            try:
                super().save_tensor(name, value, collections[name])
            except Exception as error:
                kind = f"{type(error).__name__}: {error}".replace(name, "")
                reason = str(error) if name in str(error) else f"{name}: {error}"
                self.guard.report_failure(kind, f"tensor not saved: {reason}")

    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: object, collections_to_write: str | Iterable[str] = CollectionKeys.DEFAULT
    ) -> None:
        """Save a tensor at the current step.

        It is saved to those of the collections that are saved at this step.
        """
        super().save_tensor(tensor_name, tensor_value, collections_to_write)
        names = [collections_to_write] if isinstance(collections_to_write, str) else collections_to_write
        if isinstance(names, list | tuple | set) and CollectionKeys.INPUTS in names and self._is_training:
            self._checking.inputs(tensor_name, tensor_value)

    @guarded
    def _end_step_of_script(self) -> None:
        step, trained = self.global_step, self.is_open and self._is_training
        super()._end_step_of_script()
        if trained:
            self._checking.step_ends(step)

    @property
    def _is_training(self) -> bool:
        return self.mode in (ModeKeys.TRAIN, ModeKeys.GLOBAL)


def _collection_of(prefix: str, name: str, value: Any) -> str:
    """Return the collection of an array in a tree."""
    kind, last = prefix.partition("/")[0], name.rpartition("/")[2]
    if kind in ("gradient", "gradients", "grads"):
        return CollectionKeys.GRADIENTS
    if kind in ("optimizer", "opt_state"):
        return CollectionKeys.SCALARS if last == "learning_rate" and value.size == 1 else CollectionKeys.OPTIMIZER_STATE
    if not jax.numpy.issubdtype(value.dtype, jax.numpy.inexact):  # a counter
        return CollectionKeys.DEFAULT
    return CollectionKeys.BIASES if describe(last).kind is Kind.BIAS else CollectionKeys.WEIGHTS


def _arrays(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield paths and arrays of a tree."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and isinstance(tree, nnx.Module):
        tree = nnx.state(tree)
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, np.ndarray | np.generic) or (
            isinstance(leaf, jax.Array) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        ):
            yield "/".join(_parts(path)), leaf


def _parts(path: tuple[Any, ...]) -> list[str]:
    """Return the parts of a path.

    The attribute in which Flax nnx keeps the array of a variable is left out.
    """
    parts = []
    for index, key in enumerate(path):
        part = next((getattr(key, name) for name in ("key", "name", "idx") if hasattr(key, name)), key)
        if not (index and index == len(path) - 1 and str(part) == "value" and hasattr(key, "name")):
            parts.append(str(part))
    return parts


def _local(name: str, value: object) -> object:
    """Return the array that this process has of a value."""
    if not isinstance(value, jax.Array):
        return value
    if isinstance(value, jax.core.Tracer):
        raise SMDebugTypeError(
            f"{shown(name)} has no value inside a compiled function; return it from the function and save the result"
        )
    if value.is_fully_addressable:
        return value
    if value.is_fully_replicated:
        return value.addressable_data(0)
    raise SMDebugTypeError(f"{shown(name)} is sharded over several processes; save a shard of it with save_tensor")
