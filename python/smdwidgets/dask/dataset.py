"""Runs as datasets of xarray."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from smdwidgets._core import __version__
from smdwidgets._text import shown
from smdwidgets.dask.arrays import CHUNK_BYTES, CHUNK_STEPS, array, checked, values
from smdwidgets.dask.packages import package
from smdwidgets.dask.values import MISSING, Times, kept_steps, signature
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.modes import ModeKeys, as_steps
from smdwidgets.trials.bulk import MODE_NAMES, worker_with_value
from smdwidgets.trials.shipping import pack
from smdwidgets.trials.trial import Trial

if TYPE_CHECKING:
    import xarray

#: The dimension of steps.
STEP: Final = "step"
_COORDINATES: Final = (STEP, "mode", "mode_step", "wall_time", "worker")


def to_xarray(
    trial: Trial,
    names: Iterable[str] | str | None = None,
    steps: Iterable[int] | int | None = None,
    mode: ModeKeys | str = ModeKeys.GLOBAL,
    worker: str | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    verify: str = "record",
) -> xarray.Dataset:
    """Return tensors as a dataset of xarray, read lazily.

    Implements :meth:`smdwidgets.Trial.to_xarray`.

    >>> to_xarray(trial, ["fc1.weight", "fc1.bias"]).sel(step=slice(0, 100))    # doctest: +SKIP
    """
    xr = package("xarray", "to_xarray")
    da = package("dask.array", "to_xarray")
    mode = checked(mode, chunk_bytes, verify)
    trial.maybe_refresh()
    with trial.refreshing(False):
        trial.reader.load()
        return _dataset(
            xr, da, trial, names, None if steps is None else as_steps(steps), mode, worker, chunk_bytes, verify
        )


def _dataset(
    xr: Any,
    da: Any,
    trial: Trial,
    names: Iterable[str] | str | None,
    steps: list[int] | None,
    mode: ModeKeys,
    worker: str | None,
    chunk_bytes: int,
    verify: str,
) -> xarray.Dataset:
    tensors = {name: trial.tensor(name) for name in _names(trial, names)}
    present = {name: kept_steps(tensor, None, mode, worker) for name, tensor in tensors.items()}
    if steps is not None:
        at = {trial.reader.global_step(mode, step) for step in steps}
        present = {name: [step for step in found if step in at] for name, found in present.items()}
    if names is None:
        present = {name: found for name, found in present.items() if found}
    kinds = {name: signature(tensors[name], found, worker) for name, found in present.items()}
    if names is None:
        # Texts have no place in an array that is read in parts.
        present = {name: found for name, found in present.items() if kinds[name][0].kind not in "OSU"}
    if taken := [name for name in present if name in _COORDINATES]:
        raise SMDebugValueError(
            f"tensor {shown(taken[0])} has the name of a coordinate; select other tensors with names="
        )
    sets = {name: set(found) for name, found in present.items()}
    common = _common({name: (kinds[name][0], of_tensor) for name, of_tensor in sets.items()})
    last_step = trial.reader.index.last_step()
    variables: dict[str, Any] = {}
    for name, of_tensor in sets.items():
        filled = [step if step in of_tensor else MISSING for step in common]
        kept = [step for step in common if step in of_tensor]
        source = values(tensors[name], filled, kept, worker, verify, kinds[name])
        dims = (STEP, *(f"{name}_{axis}" for axis in range(source.ndim - 1)))
        variables[name] = xr.Variable(dims, array(source, chunk_bytes), {"tensor": name, "last_step": last_step})
    records = tuple((_first_at(sets, step), step, worker) for step in common)
    shipment = pack(trial.reader, dict.fromkeys(name for name, _, _ in records), common)
    times = da.from_array(Times(shipment, records), chunks=CHUNK_STEPS, asarray=False, fancy=False)
    modes = [trial.reader.index.mode_of(step) or (ModeKeys.GLOBAL.value, step) for step in common]
    coordinates = {
        STEP: np.array(common, dtype=np.int64),
        "mode": (STEP, MODE_NAMES[np.array([number for number, _ in modes], dtype=np.intp)].astype(str)),
        "mode_step": (STEP, np.array([mode_step for _, mode_step in modes], dtype=np.int64)),
        "wall_time": (STEP, times, {"units": "seconds since 1970-01-01"}),
        "worker": (STEP, np.array([_worker(trial, *record) for record in records], dtype=str)),
    }
    about = {"run": trial.path, "last_step": last_step, "ended": shipment.ended, "smdwidgets": __version__}
    dataset: xarray.Dataset = xr.Dataset(variables, coordinates, about)
    return dataset


def _names(trial: Trial, names: Iterable[str] | str | None) -> list[str]:
    if names is None:
        return trial.reader.names()
    return list(dict.fromkeys([names] if isinstance(names, str) else names))


def _common(found: dict[str, tuple[np.dtype[Any], set[int]]]) -> list[int]:
    """Return the steps of the dataset.

    These are the steps of any tensor at which all tensors whose dtype has no NaN have a value.

    >>> _common({"a": (np.dtype("f4"), {0, 20}), "b": (np.dtype("i4"), {0, 10})})
    [0, 10]
    """
    steps = set().union(*(of_tensor for _, of_tensor in found.values()))
    return sorted(steps.intersection(*(of_tensor for dtype, of_tensor in found.values() if not _has_nan(dtype))))


def _has_nan(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype has NaN for missing values.

    >>> _has_nan(np.dtype(np.float16)), _has_nan(np.dtype(np.int64))
    (True, False)
    """
    try:
        return bool(np.isnan(np.array(np.nan, dtype=dtype)))
    except (ValueError, TypeError, OverflowError):
        return False


def _first_at(present: dict[str, set[int]], step: int) -> str:
    """Return the first tensor that has a value at a step."""
    return next(name for name, steps in present.items() if step in steps)


def _worker(trial: Trial, name: str, step: int, worker: str | None) -> str:
    """Return the worker whose value is read; ``"all"`` for the shards of a tensor."""
    return worker_with_value(trial.reader, name, step) if worker is None else worker
