"""The states of the global random number generators. Reading them draws no number."""

from __future__ import annotations

import ctypes
import random
from typing import Any, Final

import numpy as np
import torch

__all__ = ["all_states", "generator_state", "set_generator", "set_states", "torch_states"]

#: The last states, which are shared as long as a generator is not used: those of Python, and the generator of NumPy
#: with its memory: 624 words and the position among them.
_python: tuple[Any, list[Any]] | None = None
_numpy: tuple[Any, bytes | None, list[Any]] | None = None
_NUMPY_BYTES: Final = 4 * 625


def torch_states() -> dict[str, Any]:
    """Return the states of PyTorch's generators.

    They are that of the CPU, and those of devices that are in use.
    """
    states: dict[str, Any] = {"torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # `is_available` takes a millisecond
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def all_states() -> dict[str, Any]:
    """Return the states of all global generators."""
    return {"python": _python_state(), "numpy": _numpy_state(), **torch_states()}


def _python_state() -> list[Any]:
    global _python
    state = random.getstate()
    if _python is None or _python[0] != state:
        version, words, gauss = state
        _python = state, [version, np.array(words, np.uint32), gauss]
    return _python[1]


def _numpy_state() -> list[Any]:
    """Return the state of NumPy's generator.

    It is asked for only if the generator was used: NumPy copies its numbers one after the other. The generator leaves
    its memory unchanged where it gives the second number of a pair.
    """
    global _numpy
    find = getattr(np.random, "get_bit_generator", None)
    generator, memory = None if find is None else find(), None
    if type(generator) is np.random.MT19937:
        memory = ctypes.string_at(generator.ctypes.state_address, _NUMPY_BYTES)
        if _numpy is not None and _numpy[0] is generator and _numpy[1] == memory and not _numpy[2][3]:
            return _numpy[2]
    name, keys, position, has_gauss, cached = np.random.get_state()
    state = [str(name), np.asarray(keys), int(position), int(has_gauss), float(cached)]
    _numpy = generator, memory, state
    return state


def set_states(states: dict[str, Any]) -> None:
    """Set the generators whose states are given."""
    global _numpy
    _numpy = None
    if "python" in states:
        version, words, gauss = states["python"]
        random.setstate((version, tuple(int(one) for one in words), gauss))
    if "numpy" in states:
        np.random.set_state(tuple(states["numpy"]))
    if "torch" in states:
        torch.set_rng_state(_as_tensor(states["torch"]))
    if states.get("cuda") and torch.cuda.is_initialized():
        torch.cuda.set_rng_state_all([_as_tensor(one) for one in states["cuda"]])


def _as_tensor(state: Any) -> torch.Tensor:
    return state if isinstance(state, torch.Tensor) else torch.from_numpy(np.asarray(state, np.uint8))


def generator_state(value: Any) -> Any:
    """Return the state of a generator object; None if it is none."""
    if isinstance(value, torch.Generator):
        return {"torch": value.get_state()}
    if isinstance(value, np.random.Generator):
        return {"numpy": value.bit_generator.state}
    if isinstance(value, np.random.RandomState):
        return {"legacy": list(value.get_state(legacy=True))}
    if isinstance(value, random.Random):
        version, words, gauss = value.getstate()
        return {"python": [version, np.array(words, np.uint32), gauss]}
    return None


def set_generator(value: Any, state: Any) -> None:
    """Set a generator object to a state."""
    if "torch" in state:
        value.set_state(_as_tensor(state["torch"]))
    elif "numpy" in state:
        value.bit_generator.state = state["numpy"]
    elif "legacy" in state:
        value.set_state(tuple(state["legacy"]))
    else:
        version, words, gauss = state["python"]
        value.setstate((version, tuple(int(one) for one in words), gauss))
