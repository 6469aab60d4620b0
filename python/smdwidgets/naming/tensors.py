"""What a tensor is, from its collections and name: kind, layer, row in the map.

This is the only module that decides it. JavaScript orders the rows alike in ``js/src/lib/map-rows.ts``; the table of
cases is ``tests/vectors/names.json``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from smdwidgets._text import natural_key

__all__ = [
    "GRADIENT_NORM",
    "SCALAR_COLLECTIONS",
    "SKIPPED_UPDATE",
    "Kind",
    "Kinds",
    "TensorName",
    "describe",
    "first_tensor",
    "model_order",
    "without_gradient",
]

SCALAR_COLLECTIONS: Final = ("losses", "metrics", "scalars", "sm_metrics", "searchable_scalars")
"""Collections of scalars, those with losses first. ``js/src/lib/tensor-names.ts`` has the same."""

GRADIENT_NORM: Final = re.compile(r"^optimizer/.*/gradient_norm$")
"""Global gradient norms of optimizers, as hooks name them."""

SKIPPED_UPDATE: Final = re.compile(r"^optimizer/.*/skipped$")
"""The mark that a GradScaler skipped an update, as hooks name it."""


class Kind(Enum):
    """What a tensor is."""

    LOSS = "loss"
    WEIGHT = "weight"
    BIAS = "bias"
    GRADIENT = "gradient"
    ACTIVATION = "activation"
    INPUT = "input"
    OUTPUT = "output"
    LABEL = "label"
    #: State of an optimizer.
    OPTIMIZER = "optimizer"
    #: A number about the training: a metric, a learning rate.
    SCALAR = "scalar"
    OTHER = "tensor"

    @property
    def is_parameter(self) -> bool:
        """Whether it is a weight or a bias."""
        return self in (Kind.WEIGHT, Kind.BIAS)

    @property
    def plural(self) -> str:
        """Several of them, as a message names them."""
        return {Kind.BIAS: "biases", Kind.OPTIMIZER: "optimizer states"}.get(self, f"{self.value}s")


@dataclass(frozen=True, slots=True)
class TensorName:
    """What the collections and the name of a tensor say.

    Attributes:
        kind: what it is. An input or output is that of its layer; which one is the model's depends on the others of the
            run.
        layer: name that the weight, gradient and activation of a layer share.
        activation: the activation function in the name, such as ``"ReLU"``; empty if there is none.
    """

    kind: Kind
    layer: str
    activation: str


#: What the collections say. The first that contains a tensor decides.
_BY_COLLECTION: Final = {
    "losses": Kind.LOSS,
    "gradients": Kind.GRADIENT,
    "weights": Kind.WEIGHT,
    "biases": Kind.BIAS,
    "updates": Kind.SCALAR,
    "metrics": Kind.SCALAR,
    "sm_metrics": Kind.SCALAR,
    "searchable_scalars": Kind.SCALAR,
    "optimizer_state": Kind.OPTIMIZER,
    "optimizer_variables": Kind.OPTIMIZER,
    "inputs": Kind.INPUT,
    "scalars": Kind.SCALAR,
}
#: Collections of what layers compute, which may also have labels and inputs.
_ACTIVATIONS: Final = ("outputs", "activations", "layers")
_GRADIENT: Final = re.compile(r"^gradients?([/_.]|$)", re.I)
#: What names say. The first pattern that is found decides.
_BY_NAME: Final = tuple(
    (re.compile(pattern, re.I), kind)
    for pattern, kind in (
        (r"^scalar/", Kind.SCALAR),
        (r"^optimizer/", Kind.OPTIMIZER),
        (_GRADIENT.pattern, Kind.GRADIENT),
        (r"(^|[/._])(labels?|targets?|y_true)([/._:\d]|$)|loss\w*_input_1$", Kind.LABEL),
        (r"_input_\d+(_|$)", Kind.INPUT),
        (r"_output_\d+(_|$)", Kind.OUTPUT),
        (r"(^|[/._])(attn|attention)_(weights?|probs?|scores?)$", Kind.ACTIVATION),
        (r"(^|[/._])(bias(es)?|beta)([/._:\d]|_(ih|hh)_l\d+|$)", Kind.BIAS),
        (
            r"(^|[/._])(weights?|kernel|gamma|embeddings?|recurrent_kernel)([/._:\d]|_(ih|hh)_l\d+|$)",
            Kind.WEIGHT,
        ),
        (r"(^|[/._])inputs?([/_:]\d+)*$|(^|[/._])(images?|x)$", Kind.INPUT),
        (r"(^|[/._])(outputs?|logits|predictions?|y_pred)([/_:]\d+)*$", Kind.OUTPUT),
        (r"(relu|tanh|sigmoid|gelu|silu|softmax|activations?|hidden|state)", Kind.ACTIVATION),
    )
)
#: The end of a parameter's name that is not its layer's name.
_PARAMETER: Final = re.compile(r"[/._]?(weights?|kernel|biase?s?|gamma|beta)(:\d+)?$", re.I)
_FUNCTIONS: Final = {
    "relu": "ReLU",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "softmax": "Softmax",
    "gelu": "GELU",
    "silu": "SiLU",
}


def describe(name: str, collections: Container[str] = ()) -> TensorName:
    """Return what a tensor is.

    Args:
        name: its name.
        collections: names of the collections that contain it.

    >>> describe("fc1.weight")
    TensorName(kind=<Kind.WEIGHT: 'weight'>, layer='fc1', activation='')
    >>> describe("relu1_output_0", ["outputs"]).kind, describe("x", ["weights"]).kind
    (<Kind.OUTPUT: 'output'>, <Kind.WEIGHT: 'weight'>)
    """
    lower = name.lower()
    activation = next((function for word, function in _FUNCTIONS.items() if word in lower), "")
    return TensorName(_kind(name, collections), _PARAMETER.sub("", name) or name, activation)


def _kind(name: str, collections: Container[str]) -> Kind:
    for collection, kind in _BY_COLLECTION.items():
        if collection in collections:
            return kind
    for pattern, kind in _BY_NAME:
        if pattern.search(name):
            return kind
    return Kind.ACTIVATION if any(collection in collections for collection in _ACTIVATIONS) else Kind.OTHER


class Kinds:
    """The kinds of a run's tensors by name, each found once.

    Args:
        is_member: whether a tensor belongs to a collection of this name.

    >>> kinds = Kinds(lambda collection, name: collection == "gradients" and name.startswith("gradient/"))
    >>> kinds["gradient/fc1.weight"], kinds["Net_output_0"], kinds["x1"]
    (<Kind.GRADIENT: 'gradient'>, <Kind.OUTPUT: 'output'>, <Kind.OTHER: 'tensor'>)
    """

    def __init__(self, is_member: Callable[[str, str], bool]) -> None:
        self._is_member = is_member
        self._kinds: dict[str, Kind] = {}

    def __getitem__(self, name: str) -> Kind:
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _kind(name, _Memberships(self._is_member, name))
        return kind


@dataclass(frozen=True, slots=True)
class _Memberships(Container[str]):
    """The collections that contain a tensor; each is asked for when it is needed."""

    is_member: Callable[[str, str], bool]
    name: str

    def __contains__(self, collection: object) -> bool:
        return self.is_member(str(collection), self.name)


def without_gradient(gradient: str) -> str:
    """Return the name of the parameter in the name of its gradient.

    >>> without_gradient("gradient/fc1.weight"), without_gradient("gradients/dense/kernelGrad")
    ('fc1.weight', 'dense/kernel')
    """
    return re.sub(r"_?grad$", "", _GRADIENT.sub("", gradient), flags=re.I)


def as_in_gradient(parameter: str) -> str:
    """Return the name of a parameter as the name of its gradient has it.

    >>> as_in_gradient("dense/weights/kernel"), as_in_gradient("fc1.weight")
    ('dense/kernel', 'fc1.weight')
    """
    return parameter.replace("/weights/", "/")


# ------------------------------------------------------------------------------------------------------- the Run Map

_LETTERS: Final = "WGAS"
#: Tensors of a module above which it is split at the next number in their names.
_LARGE: Final = 64
_SCALAR_MODULE: Final = "scalars"
_LONGEST: Final = 400


def first_tensor(names: Sequence[str], collections: Mapping[str, Collection[int]]) -> str:
    """Return the tensor to display first.

    This is a weight, else a gradient, else a loss, else any tensor.

    >>> first_tensor(["loss", "w10", "w2"], {"losses": [0], "weights": [1, 2]})
    'w2'
    """
    listed = next((indices for key in ("weights", "gradients", "losses") if (indices := collections.get(key))), None)
    return min(names if listed is None else (names[index] for index in listed), key=natural_key, default="")


def model_order(names: Sequence[str], collections: Mapping[str, Collection[int]]) -> list[int]:
    """Return the indices of names in the order of the Run Map.

    >>> names = ["loss", "layers.10.w", "layers.2.w"]
    >>> model_order(names, {"losses": [0], "weights": [1, 2]})
    [2, 1, 0]
    """
    return [index for _, members in modules(names, collections) for index in members]


def modules(names: Sequence[str], collections: Mapping[str, Collection[int]]) -> list[tuple[str, list[int]]]:
    """Return the modules of the Run Map, and the indices of their tensors.

    Scalars beside tensors are one module, the last one. Those of a run without tensors are grouped by their names.

    >>> names = ["loss", "gradient/layers.2.w", "layers.10.w", "layers.2.w"]
    >>> modules(names, {"losses": [0], "gradients": [1], "weights": [2, 3]})
    [('layers.2', [3, 1]), ('layers.10', [2]), ('scalars', [0])]
    >>> modules(["norm/fc1", "norm/fc2", "loss"], {"scalars": [0, 1, 2]})
    [('loss', [2]), ('norm', [0, 1])]
    """
    letters = _letters(names, collections)
    paths = [_path(_stem(name)) for name in names]
    has_tensors = any(letter != "S" for letter in letters)

    def module_of(index: int, nth: int) -> str:
        if has_tensors and letters[index] == "S":
            return _SCALAR_MODULE
        name = _stem(names[index])
        return _head(name, paths[index], _module_end(paths[index], nth)) or name

    groups: dict[str, list[int]] = {}
    for index in range(len(names)):
        groups.setdefault(module_of(index, 1), []).append(index)
    for module, members in list(groups.items()):
        if len(members) > _LARGE and module != _SCALAR_MODULE:
            del groups[module]
            for index in members:
                groups.setdefault(module_of(index, 2), []).append(index)
    common = _common_start(groups)
    ordered = sorted(groups, key=lambda module: (module == _SCALAR_MODULE, natural_key(module.removeprefix(common))))

    def in_module(index: int) -> tuple[int, object]:
        return _LETTERS.index(letters[index]), natural_key(_stem(names[index]))

    return [(module, sorted(groups[module], key=in_module)) for module in ordered]


def _letters(names: Sequence[str], collections: Mapping[str, Collection[int]]) -> list[str]:
    """Return W for weights and biases, G for gradients, S for scalars, A for others."""
    letters = ["G" if re.match("gradients?/", name) else "A" for name in names]
    for collection, letter in (
        *((collection, "S") for collection in SCALAR_COLLECTIONS),
        ("weights", "W"),
        ("biases", "W"),
        ("gradients", "G"),
    ):
        for index in collections.get(collection, ()):
            letters[index] = letter
    return letters


def _stem(name: str) -> str:
    """Return a name without the word that marks a gradient."""
    return re.sub("^gradients?/", "", name)


def _path(name: str) -> list[str]:
    parts = [name] if len(name) > _LONGEST else [part for part in re.split(r"[/.](?=[^/.])", name) if part]
    return parts or [name]


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit()


def _module_end(parts: Sequence[str], nth: int) -> int:
    """Return the end of the module in a path.

    It is after its numbered part ``nth``, or before its last part.
    """
    numbered = [index for index, part in enumerate(parts[:-1], 1) if _is_number(part)]
    return numbered[min(nth, len(numbered)) - 1] if numbered else len(parts) - 1


def _head(name: str, parts: Iterable[str], end: int) -> str:
    """Return the first parts of a name, with its own separators."""
    length = 0
    for part in list(parts)[:end]:
        length = name.index(part, length) + len(part)
    return name[:length]


def _common_start(names: Collection[str]) -> str:
    """Return the start that half of the names have.

    It leaves them a word and a number at least.
    """
    start = ""
    while True:
        counts: dict[str, int] = {}
        for name in names:
            rest = name.removeprefix(start)
            parts = _path(rest) if name.startswith(start) else []
            if len(parts) < 3 or _is_number(parts[0]) or _is_number(parts[1]):
                continue
            end = len(start) + len(parts[0])
            following = start + _head(rest, parts, 1) + name[end : end + 1]
            counts[following] = counts.get(following, 0) + 1
        longer = next((prefix for prefix, count in counts.items() if count * 2 >= len(names)), None)
        if longer is None:
            return start
        start = longer
