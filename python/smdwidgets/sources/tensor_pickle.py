"""Read the pickle of a PyTorch checkpoint without executing it.

The opcodes that ``torch.save`` writes are interpreted. Nothing is imported, nothing is called, and no object is created
but containers, numbers and descriptions of tensors. Any other object is an :class:`Opaque`: the name of its class, and
what the pickle would pass to it.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

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


_ITEMSIZE: Final = {"bool": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}


def itemsize_of(dtype: str) -> int:
    """Return the bytes of an element.

    >>> itemsize_of("float32"), itemsize_of("float8_e4m3fn"), itemsize_of("bfloat16")
    (4, 1, 2)
    """
    digits = "".join(character for character in dtype.partition("_")[0] if character.isdigit())
    return _ITEMSIZE.get(dtype) or int(digits) // 8


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


def dtype_of(content: Any) -> str | None:
    """Return the NumPy name of a ``torch.dtype`` in a pickle; None if there is none."""
    is_dtype = isinstance(content, _Global) and content.module == "torch" and content.name in _DTYPES
    return content.name if is_dtype else None


class Opaque:
    """An object of a class that weights do not need. It is described, not created."""

    def __init__(self, kind: str, arguments: tuple[Any, ...] = ()) -> None:
        #: Name of its class or function, with the module.
        self.kind = kind
        self.arguments = arguments
        #: Its attributes.
        self.state: dict[str, Any] = {}
        #: Its state in place of attributes.
        self.values: tuple[Any, ...] = ()
        #: What it holds, if it is a container.
        self.entries: dict[Any, Any] = {}
        self.items: list[Any] = []

    @property
    def is_module(self) -> bool:
        """Whether it has the attributes of a ``torch.nn.Module``."""
        return isinstance(self.state.get("_parameters"), dict) and isinstance(self.state.get("_modules"), dict)

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Yield what it holds, by name; of a module, by the names of its ``state_dict``."""
        if self.is_module:
            for part in ("_parameters", "_buffers", "_modules"):
                entries = self.state.get(part)
                yield from entries.items() if isinstance(entries, dict) else ()
            return
        yield from ((str(name), value) for name, value in self.entries.items())
        yield from ((str(at), value) for at, value in enumerate(self.items))
        yield from ((name, value) for name, value in self.state.items() if not name.startswith("_"))


class _Mark:
    pass


_MARK: Final = _Mark()


def read_pickle(data: bytes, key_of: Callable[[Opaque], Hashable] | None = None) -> Any:
    """Return the containers, numbers, texts and described objects of a pickle.

    Objects are :class:`PickledTensor` or :class:`Opaque`. Entries of dictionaries whose keys are objects are left out,
    or have the keys that ``key_of`` returns for these objects.

    Raises :class:`~smdwidgets.exceptions.UnsupportedDataError`, with the reason, for a pickle that is damaged or that
    has opcodes that ``torch.save`` does not write.

    >>> import pickle
    >>> read_pickle(pickle.dumps({"step": 5, "names": ["a", None]}, protocol=2))
    {'step': 5, 'names': ['a', None]}
    """
    machine = _Machine(key_of)
    try:
        for opcode, argument, at in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.pop()
            step = _STEPS.get(opcode.name)
            if step is None:
                raise UnsupportedDataError(
                    f"pickle opcode {opcode.name} at byte {at} is not one that torch.save writes"
                )
            step(machine, argument)
    except UnsupportedDataError:
        raise
    except Exception as error:  # the pickle is damaged: each of its bytes may be any
        raise UnsupportedDataError(f"damaged pickle: {type(error).__name__}: {error}") from None
    raise UnsupportedDataError("damaged pickle: it has no end")


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self, key_of: Callable[[Opaque], Hashable] | None) -> None:
        self.key_of = key_of
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

    def drop_to_mark(self) -> None:
        self.since_mark()

    def put(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Opaque):
            target = target.items
        if not isinstance(target, list):
            raise ValueError("not a list")
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Opaque):
            target = target.entries
        if not isinstance(target, dict) or len(values) % 2:
            raise ValueError("not a dictionary")
        for name, value in zip(values[::2], values[1::2], strict=True):
            # Names of other types are of no use, and hashing them may be expensive.
            if isinstance(name, (str, int, float, bool, type(None))):
                target[name] = value
            elif isinstance(name, Opaque) and self.key_of is not None:
                target[self.key_of(name)] = value

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Global | Opaque) or not isinstance(arguments, tuple):
            raise ValueError("invalid call")
        self.push(_called(function, arguments))

    def reduce_with_names(self) -> None:
        self.pop()  # arguments by keyword
        self.reduce()

    def build(self) -> None:
        state = self.pop()
        target = self.stack[-1]
        if isinstance(target, Opaque):
            # The attributes, or a pair of them and of those in slots, or what the class makes of them.
            parts = state if isinstance(state, tuple) else (state,)
            for part in parts:
                if isinstance(part, dict):
                    target.state |= {name: value for name, value in part.items() if isinstance(name, str)}
            target.values = parts
        elif not isinstance(target, dict | list | PickledTensor):
            # A dictionary has an attribute with the metadata of a state_dict.
            raise ValueError("invalid state")

    def persistent(self) -> None:
        given = self.pop()
        if not (isinstance(given, tuple) and len(given) >= 3 and given[0] == "storage" and isinstance(given[2], str)):
            raise ValueError("invalid storage")
        kind = given[1]
        name = kind.name if isinstance(kind, _Global) else ""
        dtype = STORAGES.get(name, "uint8" if name == "UntypedStorage" else "")
        self.push(Storage(dtype, given[2]) if dtype else Opaque(f"storage {name}"))


def _rebuild(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Any:
    if isinstance(storage, Opaque):
        return storage
    sizes = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or len(shape) != len(strides) or len(shape) > 64:
        raise ValueError("invalid tensor")
    if not all(type(size) is int and 0 <= size < 2**62 for size in sizes):
        raise ValueError("invalid sizes of a tensor")
    return PickledTensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_v3(storage: Any, offset: Any, shape: Any, strides: Any, _: Any, __: Any, dtype: Any, *___: Any) -> Any:
    if not isinstance(dtype, _Global) or not isinstance(storage, Storage):
        raise ValueError("invalid dtype of a tensor")
    if dtype.name not in _DTYPES:
        return Opaque(f"tensor of {dtype.name}")
    return _rebuild(Storage(dtype.name, storage.key), offset, shape, strides)


def _rebuild_sparse(layout: Any, data: Any, *_: Any) -> Any:
    """Return the dense parts of a sparse tensor by name."""
    names = ("crow_indices", "col_indices", "values") if len(data) > 4 else ("indices", "values")
    if isinstance(layout, Opaque) and layout.arguments:
        kind = str(layout.arguments[0])
        names = ("indices", "values") if kind.endswith("coo") else names
        names = ("ccol_indices", "row_indices", "values") if kind.endswith(("csc", "bsc")) else names
        names = ("crow_indices", "col_indices", "values") if kind.endswith(("csr", "bsr")) else names
    return dict(zip(names, data, strict=False))


def _rebuild_from_type(function: Any, _: Any, arguments: Any, *__: Any) -> Any:
    if not isinstance(function, _Global) or not isinstance(arguments, tuple):
        raise ValueError("invalid call")
    if function == _FROM_TYPE:
        raise ValueError("a tensor is nested in itself")
    return _called(function, arguments)


def _list(items: Any = (), *_: Any) -> Any:
    return list(items) if isinstance(items, list | tuple) else []


_FROM_TYPE: Final = _Global("torch._tensor", "_rebuild_from_type_v2")
#: What calls stand for that weights need.
_CALLS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("collections", "OrderedDict"): lambda items=(): dict(items),
    ("collections", "defaultdict"): lambda *_: {},
    ("torch._utils", "_rebuild_tensor"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_v3,
    ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
    ("torch._utils", "_rebuild_parameter_with_state"): lambda data, *_: data,
    ("torch._utils", "_rebuild_sparse_tensor"): _rebuild_sparse,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type,
    ("torch", "Size"): lambda items=(): tuple(items),
    ("torch", "device"): lambda *_: None,
    **dict.fromkeys([("builtins", "set"), ("__builtin__", "set"), ("builtins", "frozenset")], _list),
}


def _called(function: _Global | Opaque, arguments: tuple[Any, ...]) -> Any:
    """Return the result of a call that weights need, else its description."""
    if isinstance(function, Opaque):
        return Opaque(function.kind, arguments)
    call = _CALLS.get((function.module, function.name))
    return Opaque(f"{function.module}.{function.name}", arguments) if call is None else call(*arguments)


def _global(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    machine.push(_Global(module, name))


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.pop(), machine.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise ValueError("invalid name")
    machine.push(_Global(module, name))


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
    "POP_MARK": lambda machine, _: machine.drop_to_mark(),
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    **dict.fromkeys(
        (
            "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
            "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
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
    "FROZENSET": lambda machine, _: machine.push(machine.since_mark()),
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
    "NEWOBJ": lambda machine, _: machine.reduce(),
    "NEWOBJ_EX": lambda machine, _: machine.reduce_with_names(),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.persistent(),
}  # fmt: skip


class Content(NamedTuple):
    """The tensors of a pickle by name, and the names and classes of what holds none."""

    tensors: dict[str, PickledTensor]
    left_out: dict[str, str]


def tensors_of(root: Any) -> Content:
    """Return the tensors in nested containers by name, joined by dots.

    Raises :class:`~smdwidgets.exceptions.UnsupportedDataError` for containers that are nested without end.
    """
    found: dict[str, PickledTensor] = {}
    left_out: dict[str, str] = {}
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
        items: Iterator[tuple[Any, Any]]
        if isinstance(value, Opaque):
            items = value.parts()
            if not value.is_module:
                left_out[name] = value.kind
        elif isinstance(value, dict):
            items = iter(value.items())
        else:
            # A NamedTuple of this module is not a container of the pickle.
            items = enumerate(value) if type(value) in (list, tuple) else iter(())
        inner = [(f"{name}.{key}" if name else str(key), one, depth + 1) for key, one in items]
        below.extend(inner[::-1])
    # An object with tensors below it was read.
    read = {name[:at] for name in found for at, character in enumerate(name) if character == "."} | {""}
    return Content(
        found, {name: kind for name, kind in left_out.items() if name not in read or (name == "" and not found)}
    )
