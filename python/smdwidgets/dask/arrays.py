"""Tensors over steps as arrays of Dask."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from smdwidgets._text import shown
from smdwidgets.dask.packages import package
from smdwidgets.dask.values import Values, kept_steps, signature
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.modes import ModeKeys, as_mode, as_steps
from smdwidgets.trials.shipping import pack
from smdwidgets.trials.trial import Tensor

if TYPE_CHECKING:
    import dask.array

#: Default limit on the size of a chunk.
CHUNK_BYTES: Final = 64 << 20
#: Limit on the steps of a chunk, each of which may be a file.
CHUNK_STEPS: Final = 2000
#: What is verified when rows are read.
VERIFY: Final = ("record", "none")


def to_dask(
    tensor: Tensor,
    steps: Iterable[int] | int | None = None,
    mode: ModeKeys | str = ModeKeys.GLOBAL,
    worker: str | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    verify: str = "record",
) -> dask.array.Array:
    """Return the values of a tensor as an array (step, shape…) of Dask.

    Implements :meth:`smdwidgets.trials.Tensor.to_dask`.

    >>> to_dask(trial.tensor("fc1.weight"), chunk_bytes=1 << 20).mean(axis=0).compute()    # doctest: +SKIP
    """
    mode = checked(mode, chunk_bytes, verify)
    tensor.trial.maybe_refresh()
    with tensor.trial.refreshing(False):
        tensor.trial.reader.load()
        chosen = kept_steps(tensor, None if steps is None else as_steps(steps), mode, worker)
        kind = signature(tensor, chosen, worker)
        return array(values(tensor, chosen, chosen, worker, verify, kind), chunk_bytes)


def checked(mode: ModeKeys | str, chunk_bytes: int, verify: str) -> ModeKeys:
    """Check arguments and return the mode."""
    if verify not in VERIFY:
        raise SMDebugValueError(f"verify must be one of {', '.join(VERIFY)}, got {shown(verify)}")
    if not isinstance(chunk_bytes, int) or chunk_bytes < 1:
        raise SMDebugValueError(f"chunk_bytes must be an integer >= 1, got {shown(chunk_bytes)}")
    return as_mode(mode)


def values(
    tensor: Tensor,
    steps: list[int],
    present: list[int],
    worker: str | None,
    verify: str,
    kind: tuple[np.dtype[Any], tuple[int, ...]],
) -> Values:
    """Return the values of one dtype and shape at some global steps.

    Those in `present` have a value.
    """
    dtype, shape = kind
    if dtype.kind in "OSU":
        raise SMDebugValueError(f"tensor {shown(tensor.name)} contains texts; read them with trial.values()")
    shipment = pack(tensor.trial.reader, [tensor.name], present)
    at = np.array(steps, dtype=np.int64)
    return Values(shipment, tensor.name, at, worker, dtype, (len(steps), *shape), verify)


def array(source: Values, chunk_bytes: int) -> dask.array.Array:
    """Return a lazy array in chunks of at most so many bytes.

    A row of the first axis is not cut.
    """
    da = package("dask.array", "to_dask")
    # Dask shows the part of a name before the first dash in the array's repr.
    label = f"{source.name} until step {source.shipment.last_step}".replace("-", "_")
    chunks = chunks_of(source.shape, source.dtype.itemsize, chunk_bytes)
    # Chunks of other sizes are other tasks, which must have other names.
    token = package("dask.base", "to_dask").tokenize(source, chunks)
    meta = np.empty((0,) * source.ndim, source.dtype)
    made: dask.array.Array = da.from_array(
        source, chunks=chunks, name=f"{label}-{token}", asarray=False, fancy=False, meta=meta, inline_array=False
    )
    return made


def chunks_of(shape: tuple[int, ...], itemsize: int, chunk_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Return the chunks of an array (step, *shape).

    Several steps make a chunk; a larger step is cut into rows along its first axis.

    >>> chunks_of((5, 1000, 10), 4, 100_000)
    ((2, 2, 1), (1000,), (10,))
    >>> chunks_of((2, 1000, 10), 4, 16_000)
    ((1, 1), (400, 400, 200), (10,))
    """
    steps, *inner = shape
    size = math.prod(inner) * itemsize
    if size <= chunk_bytes or not inner:
        at_once = min(CHUNK_STEPS, chunk_bytes // max(1, size)) or 1
        return (_cut(steps, at_once), *((length,) for length in inner))
    row = size // inner[0]
    return (_cut(steps, 1), _cut(inner[0], max(1, chunk_bytes // row)), *((length,) for length in inner[1:]))


def _cut(length: int, at_once: int) -> tuple[int, ...]:
    whole, rest = divmod(length, at_once)
    return (at_once,) * whole + ((rest,) if rest else ()) or (0,)
