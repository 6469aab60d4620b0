"""The random states of the workers of a data loader.

Imported in the processes of the workers, so it imports the standard library only.
"""

from __future__ import annotations

import multiprocessing.util
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

__all__ = ["NUMBERS", "StateDigests"]

#: Numbers per worker: digests of the states of NumPy, of `random` and of the generators that the data set keeps, and
#: whether these were drawn from.
NUMBERS = 4
#: Objects of a data set that are looked through, and blocks of numbers after which a drawn state is looked for.
_OBJECTS, _BLOCKS, _BLOCK = 64, 100, 624


class StateDigests:
    """A `worker_init_fn` that also stores digests of the random states.

    It calls that of the script before.

    Args:
        original: the function of the script, or None.
        states: an array that the processes share, with `NUMBERS` numbers per worker.
    """

    def __init__(self, original: Callable[[int], Any] | None, states: Any) -> None:
        self._original = original
        self._states = states

    def __call__(self, worker: int) -> Any:
        """Initialize a worker."""
        result = None if self._original is None else self._original(worker)
        try:
            numpy = sys.modules.get("numpy")
            state = b"" if numpy is None else numpy.random.get_state()[1].tobytes()
            first = NUMBERS * worker
            # Without NumPy, each worker has another number.
            self._states[first] = zlib.crc32(state) + 1 if state else worker + 1
            self._states[first + 1] = zlib.crc32(repr(random.getstate()).encode()) + 1
            self._watch(first + 2)
        except Exception:  # the worker goes on
            return result
        return result

    def _watch(self, place: int) -> None:
        """Store a digest of the generators of the data set.

        When the worker ends, it stores whether they were drawn from.
        """
        info = sys.modules["torch.utils.data"].get_worker_info()
        if info is None or issubclass(type(info.dataset), sys.modules["torch.utils.data"].IterableDataset):
            return  # workers that share a stream may shuffle it alike
        begun = [(one, _state_of(one)) for one in _generators(info.dataset)]
        if not begun:
            return
        self._states[place] = zlib.crc32(repr([state for _, state in begun]).encode()) + 1

        def ends() -> None:
            with suppress(Exception):
                self._states[place + 1] = int(any(_is_drawn(*each) for each in begun))

        multiprocessing.util.Finalize(None, ends, exitpriority=100)


def _generators(data: Any) -> Iterator[Any]:
    """Yield the random generators that a data set, or one of its parts, keeps."""
    todo, seen = [data], set[int]()
    while todo and len(seen) < _OBJECTS:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _state_of(one) is not None:
            yield one
        elif type(one) in (list, tuple):
            todo += one[:8]
        elif not issubclass(type(one), type):
            with suppress(AttributeError, TypeError):  # `vars` would run code of lazy objects
                todo += list(object.__getattribute__(one, "__dict__").values())


def _state_of(generator: Any) -> Any:
    """Return the state of a random generator, or None if it is another object.

    >>> _state_of(random.Random(3)) == _state_of(random.Random(3)), _state_of([])
    (True, None)
    """
    kind = type(generator)
    if kind is random.Random:
        return generator.getstate()[1]
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name.startswith("numpy.random.") and name.endswith(".RandomState"):
        _, block, place = generator.get_state()[:3]
        return (*block.tolist(), place)
    if name.startswith("numpy.random.") and name.endswith(".Generator"):
        state = generator.bit_generator.state["state"]
        return (state["inc"], state["state"]) if "inc" in state else None
    if name == "torch._C.Generator" or name == "torch.Generator":
        return generator.initial_seed(), generator.get_state().numpy().tobytes()
    return None


def _is_drawn(generator: Any, begun: Any) -> bool:
    """Whether numbers of the sequence of a state were drawn.

    A generator that is seeded again has left the sequence.

    >>> drawn, seeded = random.Random(3), random.Random(3)
    >>> before = _state_of(drawn)
    >>> _ = drawn.random(), seeded.seed(4)
    >>> _is_drawn(drawn, before), _is_drawn(seeded, before)
    (True, False)
    """
    now = _state_of(generator)
    if now is None or now == begun:
        return False
    if len(now) == 2:
        return bool(now[0] == begun[0])
    if now[:-1] == begun[:-1]:
        return bool(now[-1] > begun[-1])
    follows = random.Random()  # of the same algorithm as that of NumPy
    follows.setstate((3, begun, None))
    for _ in range(_BLOCKS):
        follows.getrandbits(32 * _BLOCK)
        if follows.getstate()[1][:-1] == now[:-1]:
            return True
    return False
