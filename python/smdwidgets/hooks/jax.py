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

A tree is anything that JAX takes for one: parameters of Flax linen, a module or state of Flax nnx, a module of Equinox, the state
of an optimizer of optax. Tensor names are paths: ``model/Dense_0/kernel``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from smdwidgets._text import shown
from smdwidgets.config import CollectionKeys
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.arrays import TensorCopy
from smdwidgets.hooks.base import guarded
from smdwidgets.hooks.numpy import Hook as NumpyHook

__all__ = ["Hook"]

_BIASES = frozenset({"bias", "beta"})


class Hook(NumpyHook):
    """Save trees of arrays that the training loop passes to the hook.

    :meth:`save_tree` saves all arrays of a tree, and :meth:`step` ends a step. Call both outside of compiled functions, with
    their results.
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

    @classmethod
    def _worker(cls) -> tuple[str, int]:
        # Asking for the process number before jax.distributed.initialize would be an error of the script.
        is_initialized = getattr(jax.distributed, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            return f"worker_{jax.process_index()}", jax.process_count()
        return super()._worker()

    @guarded
    def save_tree(self, prefix: str, tree: Any, collection: str | None = None) -> None:
        """Save the arrays of a tree as ``<prefix>/<path>``.

        Anything else in the tree, such as functions and keys of random numbers, is skipped. An array that cannot be saved is
        skipped with a warning.

        Args:
            prefix: the first part of the names.
            tree: parameters, gradients, an optimizer's state, a module.
            collection: the collection that the arrays belong to. By default the prefix decides: ``gradient`` and
                ``gradient/...`` are ``gradients``; ``optimizer`` and ``optimizer/...`` are ``optimizer_state``, and
                ``scalars`` for a ``learning_rate``; arrays of any other tree are ``weights``, or ``biases`` if they are
                named ``bias`` or ``beta``.
        """
        self._check_name(prefix)
        if not self._alive() or self._only_shards:
            self._warn_inactive()
            return
        self._ensure_step()
        found = [(f"{prefix}/{path}" if path else prefix, value) for path, value in _arrays(tree)]
        if not found:
            self._warn_once(f"no arrays {prefix}", "save_tree(%s): the tree has no arrays", shown(prefix))
        collections = {
            name: _collection_of(prefix, name, value) if collection is None else collection for name, value in found
        }
        due = {name for name in set(collections.values()) if self._plan.due([self._configured(name)])}
        wanted = [(name, value, of) for name, value in found if (of := collections[name]) in due]
        for _, value, _ in wanted:
            if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) and not value.is_deleted():
                value.copy_to_host_async()  # all copies at once, then one after the other
        for name, value, of in wanted:
            try:
                self.save_tensor(name, value, of)
            except Exception as error:
                kind = f"{type(error).__name__}: {error}".replace(name, "")
                why = str(error) if name in str(error) else f"{name}: {error}"
                self._report_failure(kind, f"tensor not saved: {why}")

    def _copy(self, name: str, value: object) -> TensorCopy:
        return super()._copy(name, _local(name, value))

    def _plain(self, value: object) -> object:
        return np.empty(0) if isinstance(value, jax.Array) else value


def _collection_of(prefix: str, name: str, value: Any) -> str:
    """Return the collection of an array in a tree."""
    kind, last = prefix.partition("/")[0], name.rpartition("/")[2]
    if kind in ("gradient", "gradients", "grads"):
        return CollectionKeys.GRADIENTS
    if kind in ("optimizer", "opt_state"):
        return CollectionKeys.SCALARS if last == "learning_rate" and value.size == 1 else CollectionKeys.OPTIMIZER_STATE
    if not jax.numpy.issubdtype(value.dtype, jax.numpy.inexact):  # a counter
        return CollectionKeys.DEFAULT
    return CollectionKeys.BIASES if last in _BIASES else CollectionKeys.WEIGHTS


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
