"""Read the pickle of a PyTorch checkpoint without executing it.

The few opcodes that ``torch.save`` writes for tensors in plain containers are interpreted. Nothing is imported, no
object is created but containers, numbers and descriptions of tensors. Anything else is refused, as
``torch.load(weights_only=True)`` refuses it.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from smdwidgets._text import shown
from smdwidgets.exceptions import UnsupportedDataError

#: NumPy dtype of each class of storages.
STORAGES: Final = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
#: Other types whose names NumPy shares.
_NAMES: Final = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"
)
_DTYPES: Final = frozenset(_NAMES.split())
#: Nesting below which containers are searched for tensors.
_DEEPEST: Final = 40
#: Entries of containers that are searched.
_MOST: Final = 1_000_000


class Storage(NamedTuple):
    """The bytes of a tensor: a record of the archive."""

    dtype: str
    key: str


class PickledTensor(NamedTuple):
    """A tensor in a pickle."""

    storage: Storage
    #: In elements.
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Global:
    """A name that the pickle refers to. It is not imported."""

    module: str
    name: str


class _Mark:
    pass


_MARK: Final = _Mark()


def read_pickle(data: bytes) -> Any:
    """Return the containers, numbers, texts and :class:`PickledTensor` of a pickle.

    Raises :class:`~smdwidgets.exceptions.UnsupportedDataError`, with the reason, for anything else.

    >>> import pickle
    >>> read_pickle(pickle.dumps({"step": 5, "names": ["a", None]}, protocol=2))
    {'step': 5, 'names': ['a', None]}
    """
    machine = _Machine()
    try:
        for opcode, argument, at in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.pop()
            step = _STEPS.get(opcode.name)
            if step is None:
                raise UnsupportedDataError(f"pickle opcode {opcode.name} at byte {at} is not one that weights need")
            step(machine, argument)
    except UnsupportedDataError:
        raise
    except Exception as error:  # the pickle is damaged: each of its bytes may be any
        raise UnsupportedDataError(f"damaged pickle: {type(error).__name__}: {error}") from None
    raise UnsupportedDataError("damaged pickle: it has no end")


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("unexpected mark")
        return value

    def since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("no mark")
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def put(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise ValueError("not a list")
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(values) % 2:
            raise ValueError("not a dictionary")
        for name, value in zip(values[::2], values[1::2], strict=True):
            # Names of other types are of no use, and hashing them may be expensive.
            if isinstance(name, (str, int, float, bool, type(None))):
                target[name] = value

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise ValueError("invalid call")
        self.push(_called(function, arguments))

    def build(self) -> None:
        self.pop()
        # The metadata of a state_dict, which is an attribute of a dictionary.
        if not isinstance(self.stack[-1], dict):
            raise UnsupportedDataError("it sets the state of an object, which weights_only does not allow")

    def persistent(self) -> None:
        given = self.pop()
        if not (isinstance(given, tuple) and len(given) >= 3 and given[0] == "storage" and isinstance(given[2], str)):
            raise ValueError("invalid storage")
        kind = given[1]
        name = kind.name if isinstance(kind, _Global) else ""
        dtype = STORAGES.get(name, "uint8" if name == "UntypedStorage" else "")
        if not dtype:
            raise UnsupportedDataError(f"storage {shown(name)} is not supported")
        self.push(Storage(dtype, given[2]))


def _named(module: str, name: str) -> Any:
    """Return what a name stands for; refuse those that weights do not need."""
    allowed = (
        (module, name) in _CALLS
        or (module in ("torch", "torch.storage") and (name in STORAGES or name == "UntypedStorage"))
        or (module == "torch" and (name in _DTYPES or name in ("Size", "device")))
    )
    if not allowed:
        raise UnsupportedDataError(
            f"it refers to {shown(module + '.' + name)}, which weights_only does not allow; save the state_dict instead"
        )
    return _Global(module, name)


def _rebuild(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> PickledTensor:
    sizes = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or len(shape) != len(strides) or len(shape) > 64:
        raise ValueError("invalid tensor")
    if not all(type(size) is int and 0 <= size < 2**62 for size in sizes):
        raise ValueError("invalid sizes of a tensor")
    return PickledTensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_v3(storage: Any, offset: Any, shape: Any, strides: Any, _: Any, __: Any, dtype: Any, *___: Any) -> Any:
    if not isinstance(dtype, _Global) or dtype.name not in _DTYPES:
        raise ValueError("invalid dtype of a tensor")
    return _rebuild(Storage(dtype.name, storage.key), offset, shape, strides)


_CALLS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("collections", "OrderedDict"): lambda items=(): dict(items),
    ("torch._utils", "_rebuild_tensor"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_v3,
    ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
    ("torch._utils", "_rebuild_parameter_with_state"): lambda data, *_: data,
    ("torch", "Size"): lambda items=(): tuple(items),
    ("torch", "device"): lambda *_: None,
}


def _called(function: _Global, arguments: tuple[Any, ...]) -> Any:
    call = _CALLS.get((function.module, function.name))
    if call is None:
        raise UnsupportedDataError(f"it calls {shown(function.module + '.' + function.name)}")
    return call(*arguments)


def _global(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    machine.push(_named(module, name))


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.pop(), machine.pop()
    machine.push(_named(str(module), str(name)))


def _tuple(count: int) -> Callable[[_Machine, Any], None]:
    def step(machine: _Machine, _: Any) -> None:
        values = tuple(machine.pop() for _ in range(count))[::-1]
        machine.push(values)

    return step


def _push(machine: _Machine, argument: Any) -> None:
    machine.push(argument)


def _constant(value: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.push(value)


def _pairs(machine: _Machine) -> None:
    values = machine.since_mark()
    machine.set_items(values)


#: What each opcode does.
_STEPS: Final[dict[str, Callable[[_Machine, Any], None]]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "MARK": _constant(_MARK),
    "POP": lambda machine, _: machine.stack.pop() and None,
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    **dict.fromkeys(
        (
            "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
            "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
        ),
        _push,
    ),
    "EMPTY_TUPLE": _constant(()),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_SET": lambda machine, _: machine.push([]),
    "ADDITEMS": lambda machine, _: machine.extend(machine.since_mark()),
    "APPEND": lambda machine, _: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: _pairs(machine),
    "BINPUT": lambda machine, number: machine.put(number),
    "LONG_BINPUT": lambda machine, number: machine.put(number),
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    "BINGET": lambda machine, number: machine.push(machine.memo[number]),
    "LONG_BINGET": lambda machine, number: machine.push(machine.memo[number]),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.persistent(),
}  # fmt: skip


def tensors_of(root: Any) -> dict[str, PickledTensor]:
    """Return the tensors in nested containers by name, joined by dots.

    Raises :class:`~smdwidgets.exceptions.UnsupportedDataError` for containers that are nested without end.
    """
    found: dict[str, PickledTensor] = {}
    below: list[tuple[str, Any, int]] = [("", root, 0)]
    seen = 0
    while below:
        name, value, depth = below.pop()
        seen += 1
        if seen > _MOST or depth > _DEEPEST:
            raise UnsupportedDataError("its containers are nested too deeply")
        if isinstance(value, PickledTensor):
            found[name or "tensor"] = value
            continue
        # A NamedTuple of this module is not a container of the pickle.
        items = value.items() if isinstance(value, dict) else enumerate(value) if type(value) in (list, tuple) else ()
        inner = [(f"{name}.{key}" if name else str(key), one, depth + 1) for key, one in items]
        below.extend(inner[::-1])
    return found
