"""Call code of the script once more, so that the training does not notice."""

from __future__ import annotations

import dis
import inspect
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import CodeType
from typing import Any

import numpy as np
import torch

__all__ = ["apart", "changes_globals"]


@contextmanager
def apart(devices: Sequence[int] = ()) -> Iterator[None]:
    """Leave the random generators as they are, and ignore what is raised.

    Args:
        devices: numbers of the GPUs that may draw numbers.

    >>> before = random.getstate()
    >>> with apart():
    ...     _ = random.random(), np.random.rand(), torch.rand(1)
    ...     raise ValueError
    >>> random.getstate() == before
    True
    """
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices), suppress(Exception):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def changes_globals(function: Any) -> bool:
    """Whether a function, or one that it defines, sets variables outside of it.

    >>> def counts():
    ...     global CALLS
    ...     CALLS = 1
    >>> changes_globals(counts), changes_globals(random.random)
    (True, False)
    """
    codes = [getattr(inspect.unwrap(function), "__code__", None)]
    while codes:
        code = codes.pop()
        if isinstance(code, CodeType):
            if any(one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF") for one in dis.get_instructions(code)):
                return True
            codes += code.co_consts
    return False
