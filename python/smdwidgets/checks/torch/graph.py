"""Read the autograd graph of a loss: loss functions and parameters.

The graph shows functions that a script has imported by name, which a replaced function would not. Attributes such as
``_saved_self`` are private: without one of them, the reader finds less.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

__all__ = [
    "REGRESSION",
    "Graph",
    "LossCall",
    "Use",
    "Value",
    "activation_before",
    "adds_up",
    "attracts_only",
    "compares_outputs",
    "constant_factors",
    "cosines_before",
    "divisor_of",
    "entropy_is_added",
    "is_chosen",
    "is_picked",
    "is_readable",
    "kind_of",
    "layer_before",
    "linear_layers",
    "loss_calls",
    "loss_of",
    "masks_of_softmax",
    "negated_divergence",
    "nodes_of",
    "number_of",
    "places_of_maximum",
    "product_of",
    "reshaped_from",
    "rewarded_likelihood",
    "saved",
    "selected",
    "size_of",
    "sizes_of_gradient",
    "softmax_axis",
    "sums_rows",
    "tensor_of",
    "users_of",
    "values_before",
    "walk",
    "weighted_likelihood",
    "weights_of_targets",
]

#: Nodes and depth at which loss functions are looked for, and nodes of a whole graph.
_MOST_NODES, _DEEPEST, _MOST_WALKED = 200, 12, 50_000
#: Nodes among which a sum of all elements is looked for.
_MOST_SUMMED = 16
#: Nodes among which masks are looked for.
_MOST_MASKED = 5_000
#: Nodes between a softmax and what its weights are multiplied with, and fewest queries and keys.
_MOST_BETWEEN, _FEWEST_PLACES = 6, 3
#: A term of a sum, with its sign.
Term = tuple[int, Any]
#: An operation on a leaf: the id of the leaf, and the number of the operation in the order in which they run.
Use = tuple[int, int]
#: A value: the node that computed it, and its place among the results of the node.
Value = tuple[Any, int]

#: Loss functions by the name of their node.
_LOSSES = {
    "NllLossBackward": "nll_loss",
    "NllLoss2DBackward": "nll_loss",
    "MseLossBackward": "mse_loss",
    "SmoothL1LossBackward": "smooth_l1_loss",
    "HuberLossBackward": "huber_loss",
    "BinaryCrossEntropyBackward": "binary_cross_entropy",
    "BinaryCrossEntropyWithLogitsBackward": "binary_cross_entropy_with_logits",
    "CtcLossBackward": "ctc_loss",
}
#: Loss functions whose node has saved all that their result follows from.
_RECOMPUTED: Mapping[str, Callable[..., torch.Tensor]] = {
    "NllLossBackward": functional.nll_loss,
    "NllLoss2DBackward": functional.nll_loss,
    "MseLossBackward": functional.mse_loss,
    "BinaryCrossEntropyWithLogitsBackward": functional.binary_cross_entropy_with_logits,
}
#: Loss functions of numbers.
REGRESSION = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
#: Names of what a node of a loss function has saved: its input and its targets.
_SAVED = {"ctc_loss": ("_saved_log_probs", "_saved_targets")}
#: Names of what a node of a loss function has saved of weights, if it is another.
_WEIGHTS = {"binary_cross_entropy_with_logits": "_saved_pos_weight", "binary_cross_entropy": ""}
#: Nodes that take some rows of a value.
_PICKING = ("Index", "IndexSelect")
#: Activations whose range is bounded, by the name of their node.
_ACTIVATIONS = {"Softmax": "softmax", "Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu"}
#: Nodes that give the same values in the same order in another shape.
_VIEWS = ("View", "UnsafeView", "ReshapeAlias")
#: Nodes that give the same values in another shape, type or order.
_SHAPING = (
    *_VIEWS,
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "T",
    "Permute",
    "ToCopy",
    "Clone",
    "Alias",
    "Slice",
    "Select",
    "Contiguous",
    "Flatten",
)
#: Nodes whose result is a view of their input: it changes with the input.
_SHARING = frozenset(
    {
        *("View", "ReshapeAlias", "Squeeze", "Unsqueeze", "Transpose", "T", "Permute", "Alias", "Slice", "Select"),
        *("Expand", "Split", "SplitWithSizes", "Unbind", "AsStrided", "Diagonal", "Unfold", "ViewAsReal"),
    }
)
#: Nodes whose result may be a multiple of their only input, or differ from it by a constant.
_SCALING = ("Mul", "Div", "Neg", "Rsub", "Add", "Sub", *_SHAPING)
#: Functions whose gradient is 0 everywhere.
_STEPS = ("Round", "Sign", "Sgn", "Floor", "Ceil", "Trunc")
#: Nodes that join values, and how many of them are looked at.
_JOINING, _MOST_JOINED = ("Stack", "Cat"), 32
#: Fewest steps of an episode whose log-probabilities are multiplied each with a number.
_FEWEST_STEPS = 4
#: Nodes that use a ratio of probabilities, nodes that make it something else, and ratios that are looked at.
_USING_RATIOS, _NO_RATIO, _MOST_RATIOS = ("Mul", "Clamp", "Minimum", "Maximum"), ("Max", "Amax", "Logsumexp"), 4
#: Fewest rows of a product that is taken for one of per-sample values.
_FEWEST_SPREAD = 8
#: Nodes that put rows where an index names.
_BY_INDEX = ("IndexAdd", "IndexPut", "IndexReduce", "ScatterAdd", "ScatterReduce", "SparseAddmm")
#: Values that are added to indexed places, and are looked at.
_MOST_ADDED = 4
_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
_UNSIGNED = 2**64


@dataclass(frozen=True)
class LossCall:
    """One call of a loss function.

    Attributes:
        kind: name of the function.
        input: what it got: for ``cross_entropy`` the log-probabilities.
        target: the targets.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignored: the target that does not count, for classes; the blank of ``ctc_loss``.
        before: the node that computed the input; for ``cross_entropy`` that of the logits.
        is_root: whether `backward()` was called on its result.
        is_negated: whether `backward()` was called on its result with the opposite sign.
        axis: the dimension over which its log-softmax normalizes; None: there is none, or it is not known.
        flattened: the shape of the targets before they were flattened; empty: they were not, or it is not known.
        weights: weights of the classes, or that of positive targets.
        lengths: numbers of targets of each row; empty: each row has all.
        input_lengths: numbers of outputs of each row that ``ctc_loss`` uses.
    """

    kind: str
    input: torch.Tensor
    target: torch.Tensor
    reduction: str
    ignored: int | None
    before: Any
    is_root: bool
    is_negated: bool = False
    axis: int | None = None
    flattened: tuple[int, ...] = ()
    weights: torch.Tensor | None = None
    lengths: tuple[int, ...] = ()
    input_lengths: tuple[int, ...] = ()


@dataclass
class Graph:
    """What a walk over a whole graph has found.

    Attributes:
        leaves: tensors without a graph that require gradients.
        pairs: shapes of a difference that compares every row with every row.
        softmax: name of an activation that comes before a log-softmax.
        double_softmax: whether a softmax has another as its input.
        heads: shapes before and after a view that mixes heads of attention with positions; empty: there is none.
        teachers: probabilities that logarithms of a softmax are multiplied with.
        indexed: indices of rows that values are added to, with the number of rows.
        returned: such indices, with those by which the values were picked.
        softmax_of_one: whether each row of a matrix is a softmax over one value, which is always 1.
        over_queries: shape of weights of attention that add up to 1 over the queries; empty: there are none.
        divergence: targets that a difference multiplies with a softmax, as `kl_div` does with logarithms.
        ratios: exponentials of differences of two values that have gradients, as of log-probabilities.
        uses: how often the leaf that is used most is used.
        operations: the operations on each leaf; a view is none.
        steps_of: name of a function that has steps, whose gradient is 0 everywhere.
        added: the indices of each `x[indices] += values`.
        sums_by_index: whether rows are added to those that an index names, as messages between nodes are.
        functions: the functions of the graph that are written in Python.
        packed: rows and frames of sequences that were packed, and frames of the longest one.
        of_maps: shapes before and after views of what convolutions have computed.
        whole: whether the walk saw all nodes.
    """

    leaves: list[torch.Tensor] = field(default_factory=list)
    pairs: list[tuple[int, ...]] = field(default_factory=list)
    softmax: str = ""
    double_softmax: bool = False
    softmax_of_one: bool = False
    over_queries: tuple[int, ...] = ()
    heads: tuple[tuple[int, ...], ...] = ()
    teachers: list[torch.Tensor] = field(default_factory=list)
    indexed: list[tuple[torch.Tensor, int]] = field(default_factory=list)
    returned: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    divergence: torch.Tensor | None = None
    ratios: list[torch.Tensor] = field(default_factory=list)
    uses: int = 0
    operations: list[Use] = field(default_factory=list)
    steps_of: str = ""
    added: list[torch.Tensor] = field(default_factory=list)
    sums_by_index: bool = False
    functions: list[type] = field(default_factory=list)
    packed: list[tuple[int, int, int]] = field(default_factory=list)
    of_maps: list[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    whole: bool = True

    @property
    def own_functions(self) -> bool:
        """Whether the graph contains functions that are written in Python."""
        return bool(self.functions)


def _plain(node: Any) -> str:
    """Return the name of a node without the number at its end."""
    return str(node.name()).rstrip("0123456789")


def _is(node: Any, names: Iterator[str] | tuple[str, ...]) -> bool:
    return _plain(node).removesuffix("Backward") in names


def saved(node: Any, name: str) -> Any:
    """Return what a node has saved for its backward pass, or None."""
    try:
        return getattr(node, name, None)
    except RuntimeError:
        return None


def _signed(number: int) -> int:
    """Return a saved number, which older versions of PyTorch give without a sign."""
    return number - _UNSIGNED if number >= _UNSIGNED // 2 else number


def _previous(node: Any) -> Any:
    following = node.next_functions
    return following[0][0] if following else None


def _shaped(node: Any, limit: int = 6) -> Any:
    """Return the node before those that only change the shape."""
    while node is not None and limit and _is(node, _SHAPING):
        node, limit = _previous(node), limit - 1
    return node


def _nodes(root: Any, most: int) -> Iterator[Any]:
    """Yield the nodes of a graph, each once, but no more than ``most``."""
    pending, seen = [root], set[Any]()
    while pending and len(seen) < most:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        pending += [before for before, _ in node.next_functions]


def nodes_of(root: Any) -> Iterator[Any]:
    """Yield the nodes of a graph, each once."""
    return _nodes(root, _MOST_WALKED)


def kind_of(node: Any) -> str:
    """Return the name of the operation of a node."""
    return _plain(node).removesuffix("Backward")


def values_before(node: Any) -> list[Value]:
    """Return the values that a node has got and that have gradients."""
    return [(one, place) for one, place in node.next_functions if one is not None]


def number_of(node: Any, name: str) -> float | None:
    """Return a number that a node has saved in host memory, or None."""
    number = saved(node, f"_saved_{name}")
    if isinstance(number, torch.Tensor) and number.numel() == 1 and number.device.type == "cpu":
        return None if number.is_complex() else float(number)
    return float(number) if isinstance(number, int | float) else None


def product_of(node: Any, most: int) -> torch.Tensor | None:
    """Return what a linear layer has computed, up to so many rows, or None."""
    places = {"Addmm": (2, "_saved_mat1"), "Mm": (1, "_saved_self")}.get(kind_of(node))
    if places is None:
        return None
    weights, inputs = _shaped(node.next_functions[places[0]][0]), saved(node, places[1])
    bias = node.next_functions[0][0] if places[0] == 2 else None
    weight, added = getattr(weights, "variable", None), getattr(bias, "variable", None)
    if not isinstance(weight, torch.Tensor) or not isinstance(inputs, torch.Tensor) or (bias and added is None):
        return None
    product = inputs.detach()[:most].float() @ weight.detach().float().T
    return product if added is None else product + added.detach().float()


def size_of(value: Value) -> int:
    """Return how many elements a value has; 1 if it is not known."""
    return math.prod(_shape(*value))


def activation_before(node: Any) -> str:
    """Return the name of the activation that computed a value, or an empty string."""
    node = _shaped(node, 8)
    return "" if node is None else _ACTIVATIONS.get(_plain(node).removesuffix("Backward"), "")


def logits_before(node: Any) -> Any:
    """Return the node whose value a sigmoid got; without one, the node itself."""
    shaped = _shaped(node, 8)
    return _previous(shaped) if shaped is not None and _is(shaped, ("Sigmoid",)) else node


def is_readable(output: torch.Tensor) -> bool:
    """Whether a probe of a whole graph runs no code of the script."""
    graph = walk(output, None)
    return graph.whole and not graph.own_functions


def sizes_of_gradient(output: torch.Tensor, inner: torch.Tensor) -> torch.Tensor | None:
    """Return how much an output depends on each element of an earlier value.

    None: it does not depend on it. The graph stays as it is.
    """
    with torch.enable_grad():
        one = output.float().pow(2).sum()
    gradient = torch.autograd.grad(one, inner, retain_graph=True, allow_unused=True)[0]
    return None if gradient is None else gradient.detach().abs()


def is_chosen(node: Any) -> bool:
    """Whether a value is one output of each row, as that of an action that was chosen."""
    node = _shaped(node)
    return node is not None and _is(node, ("Gather", "Index"))


def places_of_maximum(node: Any) -> torch.Tensor | None:
    """Return which element of each row is the largest.

    None: the value does not consist of these.
    """
    node = _shaped(node)
    if node is None or not _is(node, ("Max", "Amax")):
        return None
    values, places = saved(node, "_saved_self"), saved(node, "_saved_indices")
    axes = saved(node, "_saved_dim")
    axes = [_signed(one) for one in (axes if isinstance(axes, tuple | list) else (axes,)) if one is not None]
    if axes not in ([1], [-1]):
        return None
    if isinstance(values, torch.Tensor) and values.ndim == 2:
        return values.detach().argmax(1)
    return places.detach() if isinstance(places, torch.Tensor) else None


def sums_rows(node: Any, rows: int) -> bool:
    """Whether a value follows from a sum or mean of all elements of rows.

    ``rows``: how many rows these are. Only nodes near that of the value are looked at.
    """
    for one in _nodes(node, _MOST_SUMMED):
        sizes = saved(one, "_saved_self_sym_sizes") if _is(one, ("Sum", "Mean")) else None
        if sizes and saved(one, "_saved_dim") is None and next(iter(sizes)) == rows:
            return True
    return False


def is_picked(node: Any) -> bool:
    """Whether a value consists of elements that an index or a mask has picked."""
    return node is not None and _is(node, _PICKING)


def constant_factors(root: torch.Tensor, elements: int) -> list[torch.Tensor]:
    """Return constants of so many elements that multiply values near a root."""
    products = [node for node in _nodes(root.grad_fn, _MOST_NODES) if _is(node, ("Mul",))]
    factors = [tensor_of(node) for node in products]
    return [one for one in factors if one is not None and one.numel() == elements]


def divisor_of(root: torch.Tensor) -> float | None:
    """Return the number that a single loss was divided by; None for a mean of several."""
    node = root.grad_fn
    if node is None or not _is(node, ("Div",)):
        return None
    before = _previous(node)
    return None if before is None or _is(before, ("Add", "Sum", "Mean")) else number_of(node, "other")


def compares_outputs(root: torch.Tensor) -> bool:
    """Whether a loss compares two outputs by the log-sigmoid of their difference.

    Both have gradients. The difference may be multiplied with a number, and that of a reference may be subtracted.
    """
    for node in _nodes(root.grad_fn, _MOST_NODES):
        if not _is(node, ("LogSigmoid", "Softplus")):
            continue
        node, computed = _previous(node), [None]
        while node is not None and len(computed) == 1 and _is(node, _SCALING):
            computed = [one for one, _ in node.next_functions if one is not None]
            if _is(node, ("Sub",)) and len(computed) == 2:
                return True
            node = computed[0]
    return False


def softmax_axis(node: Any, dimensions: int) -> int | None:
    """Return the dimension over which a softmax that computed a value normalizes."""
    node = _shaped(node, 0)
    if node is None or not _is(node, ("Softmax", "LogSoftmax")):
        return None
    axis = saved(node, "_saved_dim")
    if not isinstance(axis, int):
        return None
    axis = _signed(axis)
    return axis + dimensions if axis < 0 else axis


#: Nodes whose result is a multiple of each of their inputs, or a sum of some of them.
_LINEAR = frozenset(
    {
        *_SHAPING,
        *("Add", "Sub", "Neg", "Rsub", "Sum", "Mean", "Expand", "NativeDropout", "AvgPool1D", "AvgPool2D", "AvgPool3D"),
        *("AdaptiveAvgPool2D", "AdaptiveAvgPool3D", "ConstantPadNd", "Mul", "Div", "NativeBatchNorm", "Index"),
    }
)
#: Nodes that multiply an input with weights, with the places of both among their inputs.
_WEIGHING = {"Addmm": (1, 2), "Mm": (0, 1), "Convolution": (0, 1), "Linear": (0, 1)}


def linear_layers(node: Any) -> list[torch.Tensor]:
    """Return the weights of successive layers that no activation separates.

    They are in order from the input to a value. The activation that computes the value is left out. Empty if anything
    else takes part in computing it, or a layer has several inputs that are computed.
    """
    weights: list[torch.Tensor] = []
    if activation_before(node):
        node = _previous(_shaped(node, 8))
    for _ in range(_MOST_NODES):
        if node is None or hasattr(node, "variable"):
            return weights[::-1]
        name, before = _plain(node).removesuffix("Backward"), [one for one, _ in node.next_functions]
        places = _WEIGHING.get(name)
        if places is not None and len(before) > max(places):
            weight = getattr(_shaped(before[places[1]]), "variable", None)
            if weight is None:
                return []
            weights.append(weight)
            node = before[places[0]]
        elif name in _LINEAR:
            computed = [one for one in before if one is not None and not hasattr(one, "variable")]
            if len(computed) > 1 or (name in ("Mul", "Div") and sum(one is not None for one in before) > 1):
                return []
            if _may_hide_an_activation(node, name):
                return []
            node = computed[0] if computed else None
        else:
            return []
    return []


def layer_before(node: Any) -> torch.Tensor | None:
    """Return the weights of the layer that computed a value, or None."""
    node = _shaped(node)
    places = None if node is None else _WEIGHING.get(_plain(node).removesuffix("Backward"))
    if places is None or len(node.next_functions) <= max(places):
        return None
    weight = getattr(_shaped(node.next_functions[places[1]][0]), "variable", None)
    return weight if isinstance(weight, torch.Tensor) else None


def _may_hide_an_activation(node: Any, name: str) -> bool:
    """Whether a constant may be computed of the other operand.

    It is so for a straight-through estimator, and for a mask.
    """
    if name in ("Add", "Sub"):
        return any(one is None for one, _ in node.next_functions)
    constants = (saved(node, "_saved_other"), saved(node, "_saved_self")) if name == "Mul" else ()
    return any(isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in constants)


def reshaped_from(node: Any) -> tuple[int, ...] | None:
    """Return the shape of a value before a `view` gave it another, or None."""
    if node is None or not _is(node, _VIEWS) or not node.next_functions:
        return None
    return _shape(*node.next_functions[0]) or None


def loss_calls(root: torch.Tensor, outputs: Sequence[torch.Tensor] = ()) -> list[LossCall]:
    """Return the loss functions near the root of a graph.

    Must be called before the backward pass, which frees what the nodes have saved.

    Args:
        root: what `backward()` is called on.
        outputs: what the model has returned, from which a script may compute an error.
    """
    top = root.grad_fn
    pending, calls = deque([(top, 0)]), []
    seen: set[Any] = set()
    while pending:
        node, depth = pending.popleft()
        if node is None or node in seen or depth > _DEEPEST or len(seen) > _MOST_NODES:
            continue
        seen.add(node)
        kind = _LOSSES.get(_plain(node))
        call = _own_call(node, top, outputs) if kind is None else _call(node, kind, top)
        if call is not None:
            calls.append(call)
        elif kind is None:
            pending += [(each, depth + 1) for each, _ in node.next_functions]
    return calls


def loss_of(node: Any) -> torch.Tensor | None:
    """Return the number that a loss function has computed, or None.

    It is computed from what the node has saved. None: this is another node, or one that has not saved all.
    """
    call = _call(node, _LOSSES.get(_plain(node), ""), node) if _plain(node) in _RECOMPUTED else None
    if call is None or call.reduction not in ("mean", "sum"):
        return None
    options: dict[str, Any] = {}
    if call.kind in ("cross_entropy", "nll_loss"):
        options = {"weight": call.weights, "ignore_index": call.ignored}
    elif call.kind == "binary_cross_entropy_with_logits":
        options = {"weight": saved(node, "_saved_weight"), "pos_weight": call.weights}
    return _RECOMPUTED[_plain(node)](call.input, call.target, reduction=call.reduction, **options)


def _own_call(node: Any, top: Any, outputs: Sequence[torch.Tensor]) -> LossCall | None:
    """Return the loss that a script computes of differences or log-probabilities."""
    if _is(node, ("Pow", "Abs")):
        return _error_call(node, node is top, outputs)
    return _soft_call(node, top) if _is(node, ("Mul",)) else None


def _error_call(node: Any, is_root: bool, results: Sequence[torch.Tensor]) -> LossCall | None:
    """Return the error that a script computes of the output of a layer or the model.

    The difference and the output are saved, and give the targets.
    """
    subtraction, difference = _previous(node), saved(node, "_saved_self")
    if subtraction is None or not _is(subtraction, ("Sub",)) or not isinstance(difference, torch.Tensor):
        return None
    operands = [(index, one) for index, (one, _) in enumerate(subtraction.next_functions) if one is not None]
    if len(operands) != 1 or saved(subtraction, "_saved_alpha") not in (1, 1.0):
        return None
    index, before = operands[0]
    output = saved(_shaped(before, 8), "_saved_result") if activation_before(before) else None
    if output is None:
        nodes = before, _shaped(before, 8)
        output = next((one for one in results if one.grad_fn is not None and one.grad_fn in nodes), None)
    if not isinstance(output, torch.Tensor) or output.numel() != difference.numel():
        return None
    prediction, difference = output.detach().reshape(difference.shape), difference.detach()
    target = prediction - difference if index == 0 else prediction + difference
    return LossCall("mse_loss", prediction, target, "mean", None, before, is_root)


def _soft_call(node: Any, top: Any) -> LossCall | None:
    """Return the cross-entropy of log-probabilities with a share for each class."""
    softmax = next((one for one, _ in node.next_functions if one is not None), None)
    target = saved(node, "_saved_other" if _previous(node) is not None else "_saved_self")
    if softmax is None or not _is(softmax, ("LogSoftmax",)) or not isinstance(target, torch.Tensor):
        return None
    prediction = saved(softmax, "_saved_result")
    if not isinstance(prediction, torch.Tensor) or target.requires_grad or prediction.shape != target.shape:
        return None
    tensors, axis = (prediction.detach(), target.detach()), softmax_axis(softmax, prediction.ndim)
    return LossCall("cross_entropy", *tensors, "", None, _previous(softmax), node is top, axis=axis)


def adds_up(node: Any, multiples: bool = True) -> list[Term]:
    """Return the terms of a sum, means included, with their signs.

    Values that are stacked or joined are terms, too, since what follows adds them up.

    Args:
        node: the node that computed the sum.
        multiples: whether a value times a number is its term, rather than the product.
    """
    pending, terms = deque([(1, node)]), list[Term]()
    for _ in range(_MOST_NODES):
        if not pending:
            return terms
        sign, node = pending.popleft()
        if node is None:
            continue
        name, before = _plain(node).removesuffix("Backward"), [one for one, _ in node.next_functions]
        if name in ("Sum", "Mean", "Neg", "Rsub", "Expand", *_SHAPING):
            pending.append((-sign if name in ("Neg", "Rsub") else sign, before[0]))
        elif name in ("Add", "Sub") and len(before) == 2:
            pending += [(sign, before[0]), (-sign if name == "Sub" else sign, before[1])]
        elif name in _JOINING:
            pending += [(sign, one) for one in before[:_MOST_JOINED]]
        elif (
            multiples and name in ("Mul", "Div") and len(before) == 2 and before[1] is None and number_of(node, "other")
        ):
            pending.append((sign if (number_of(node, "other") or 0.0) > 0 else -sign, before[0]))
        else:
            terms.append((sign, node))
    return []


def negated_divergence(terms: list[Term]) -> bool:
    """Whether a sum has a divergence with the opposite sign, which has no lower bound.

    It contains x - exp(x) or log(x) - x, as of the variance of a distribution.
    """
    positive, negative = ([one for sign, one in terms if sign == which] for which in (1, -1))
    for one in negative:
        inner = adds_up(_previous(one)) if _is(one, ("Exp",)) else []
        if inner and all(sign > 0 and any(part is other for other in positive) for sign, part in inner):
            return True
    for one in positive:
        inner = adds_up(_previous(one)) if _is(one, ("Log",)) else []
        squares = [_shaped(_previous(other)) for other in negative if _is(other, ("Pow",))]
        if len(inner) == 1 and any(inner[0][1] is other for other in (*negative, *squares)):
            return True
    return False


def rewarded_likelihood(node: Any) -> torch.Tensor | None:
    """Return the weights of log-probabilities that a loss makes larger."""
    return _weights(node, -1)


def weighted_likelihood(node: Any) -> torch.Tensor | None:
    """Return the weights of a mean of log-likelihoods that a loss makes smaller.

    The log-likelihood is that of chosen classes, or of a normal distribution. The weights are a tensor, or a number for
    each step of an episode.
    """
    if (weights := _weights(node, 1)) is not None:
        return weights
    numbers = [
        float(weight)
        for sign, term in adds_up(node, multiples=False)
        if (weight := _number_of(term)) is not None and _direction(sign, term) > 0
    ]
    return torch.tensor(numbers) if len(numbers) >= _FEWEST_STEPS else None


def _weights(node: Any, direction: int) -> torch.Tensor | None:
    """Return the tensor that weighs log-likelihoods of this direction."""
    for sign, term in adds_up(node):
        weights = tensor_of(term)
        if weights is not None and weights.numel() > 1 and _direction(sign, term) == direction:
            return weights
    return None


def tensor_of(node: Any) -> torch.Tensor | None:
    """Return the tensor without a graph that a node multiplies with, or None."""
    if not _is(node, ("Mul",)) or len([one for one, _ in node.next_functions if one is not None]) != 1:
        return None
    constant = saved(node, "_saved_other")
    constant = saved(node, "_saved_self") if constant is None else constant
    return constant.detach() if isinstance(constant, torch.Tensor) and not constant.requires_grad else None


def _number_of(node: Any) -> float | None:
    """Return the number that a node multiplies with."""
    if not _is(node, ("Mul",)):
        return None
    constant = tensor_of(node)
    if constant is not None and constant.numel() == 1 and constant.device.type == "cpu" and not constant.is_complex():
        return float(constant)
    return number_of(node, "other")


def _direction(sign: int, product: Any) -> int:
    """Return 1 if a term makes its log-likelihoods smaller, and -1 if larger.

    A squared error that is made smaller may be another loss.
    """
    before = next((one for one, _ in product.next_functions if one is not None), None)
    is_larger = False
    for own, part in adds_up(before):
        if _is(part, ("Div",)) and part.next_functions[1][0] is None and len(inner := adds_up(_previous(part))) == 1:
            own, part = own * inner[0][0], inner[0][1]  # by a variance
        is_chosen = _is(part, ("Gather",)) and _is_log_probability(_previous(part))
        is_error = _is(part, ("NllLoss",)) or (_is(part, ("Pow",)) and _is(_previous(part), ("Sub",)))
        if (is_chosen and sign * own > 0) or (is_error and sign * own < 0):
            return 1
        is_larger = is_larger or is_chosen
    return -1 if is_larger else 0


def _is_log_probability(node: Any) -> bool:
    """Whether a node computes logarithms of probabilities, which sum up to 1."""
    node = _shaped(node)
    if node is None:
        return False
    if _is(node, ("Log",)):  # of probabilities that are clamped, and divided by their sum
        while node is not None and _is(node, ("Log", "Clamp", "Div", *_SHAPING)):
            node = _previous(node)
        return node is not None and _is(node, ("Softmax",))
    if not _is(node, ("Sub",)):
        return _is(node, ("LogSoftmax",))
    after = node.next_functions[1][0] if len(node.next_functions) > 1 else None
    return after is not None and _is(after, ("Logsumexp",))


def entropy_is_added(root: Any) -> bool:
    """Whether a loss makes the entropy of a policy smaller.

    Another part of the loss takes the log-probability of one class of each row from the same logarithms.
    """
    terms = adds_up(root)
    for sign, term in terms:
        logarithms = _logarithms_of_entropy(term) if sign < 0 else None
        if logarithms is not None and any(
            _is(node, ("Gather",)) and _shaped(_previous(node)) is logarithms
            for _, other in terms
            if other is not term
            for node in _nodes(other, _MOST_WALKED)
        ):
            return True
    return False


def _logarithms_of_entropy(node: Any) -> Any:
    """Return the node of the logarithms in p * log(p), or None."""
    sides = [one for one, _ in node.next_functions if one is not None] if _is(node, ("Mul",)) else []
    for logarithms, shares in (sides, sides[::-1]) if len(sides) == 2 else ():
        while logarithms is not None and _is(logarithms, ("Clamp", *_SHAPING)):
            logarithms = _previous(logarithms)
        shares = _shaped(shares)
        if logarithms is None or shares is None or not _is_log_probability(logarithms):
            continue
        # Both are computed from the same value, or the shares from the logarithms.
        before = _shaped(_previous(shares)) if _is(shares, ("Softmax", "Exp")) else None
        if before is logarithms or (before is not None and before is _shaped(_previous(logarithms))):
            return logarithms
    return None


def cosines_before(node: Any) -> tuple[float, torch.Tensor, torch.Tensor] | None:
    """Return the number that multiplies a product of two matrices, and the matrices.

    They are the rows of the one and the columns of the other.
    """
    scale, node = 1.0, _shaped(node)
    while node is not None and _is(node, ("Mul", "Div")) and (factor := number_of(node, "other")):
        scale *= factor if _is(node, ("Mul",)) else 1 / factor
        node = _shaped(_previous(node))
    if node is None or not _is(node, ("Mm",)):
        return None
    one, other = saved(node, "_saved_self"), saved(node, "_saved_mat2")
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return None
    return abs(scale), one.detach(), other.detach().T


def similarities_before(node: Any) -> torch.Tensor | None:
    """Return the rows whose similarities a value holds, or None.

    Some of them may be filled or left out, and all may be scaled.
    """
    for _ in range(_MOST_BETWEEN):
        if node is None or _is(node, ("Mm",)):
            break
        before = values_before(node)
        node = before[0][0] if len(before) == 1 and _is(node, (*_SHAPING, *_OF_SIMILARITIES)) else None
    rows = saved(node, "_saved_self") if node is not None else None
    is_of_model = node is not None and _previous(node) is not None
    return rows.detach() if isinstance(rows, torch.Tensor) and is_of_model else None


def attracts_only(root: Any) -> bool:
    """Whether a loss only makes outputs of the same weights similar.

    Outputs that are all equal are the best ones then. All its terms are cosines, or squared errors of vectors of length
    1, of two values with gradients.
    """
    terms = adds_up(root)
    for sign, term in terms:
        sign_of_attraction = -1 if _is(term, ("Mul",)) else 1 if _is(term, ("MseLoss",)) else 0
        sides = [_normalized(one) for one, _ in term.next_functions]
        if sign != sign_of_attraction or len(sides) != 2 or None in sides or sides[0] is sides[1]:
            return False
        if _leaf_nodes(sides[0]).isdisjoint(_leaf_nodes(sides[1])):
            return False
    return bool(terms)


def weights_of_targets(root: Any) -> list[torch.Tensor]:
    """Return the weights of the targets of `kl_div` if they get gradients.

    Other weights compute its input.
    """
    terms = adds_up(root)
    # It is t * log(t) - t * input, where only targets with gradients give the first product a node.
    if not any(sign > 0 and _is(term, ("Xlogy",)) for sign, term in terms):
        return []
    for sign, term in terms:
        sides = [one for one, _ in term.next_functions if one is not None] if sign < 0 and _is(term, ("Mul",)) else []
        logarithms = [one for one in sides if (before := _shaped(one)) is not None and _is(before, ("LogSoftmax",))]
        if len(sides) == 2 and len(logarithms) == 1:
            target = next(one for one in sides if one is not logarithms[0])
            nodes = _leaf_nodes(target)
            if nodes.isdisjoint(_leaf_nodes(logarithms[0])):
                return [node.variable for node in nodes]
    return []


def _normalized(node: Any) -> Any:
    """Return the node whose values were divided by their length, or None."""
    node = _shaped(node)
    if node is None or not _is(node, ("Div",)) or len(node.next_functions) != 2:
        return None
    value, length = (one for one, _ in node.next_functions)
    while length is not None and _is(length, ("Clone", "Expand", "ClampMin", "Clamp", "Add", *_SHAPING)):
        length = _previous(length)
    is_length = length is not None and _is(length, ("LinalgVectorNorm", "Norm"))
    return value if is_length and _previous(length) is value else None


def _leaf_nodes(node: Any) -> set[Any]:
    """Return the nodes of the leaves that a value depends on.

    There are none if the graph is too large.
    """
    nodes = list(_nodes(node, _MOST_WALKED + 1))
    return {one for one in nodes if getattr(one, "variable", None) is not None} if len(nodes) <= _MOST_WALKED else set()


def users_of(root: Any, nodes: list[Any]) -> list[list[Any]]:
    """Return the nodes of a graph that use each of some nodes.

    The lists are empty if the graph is too large.
    """
    users: list[list[Any]] = [[] for _ in nodes]
    for count, node in enumerate(_nodes(root, _MOST_WALKED + 1)):
        if count == _MOST_WALKED:
            return [[] for _ in nodes]
        for each, _ in node.next_functions:
            for using, one in zip(users, nodes, strict=True):
                if each is one:
                    using.append(node)
    return users


def selected(node: Any) -> tuple[int, int] | None:
    """Return the dimension and the index that a node selects."""
    if not _is(node, ("Select",)):
        return None
    dimension, index = saved(node, "_saved_dim"), saved(node, "_saved_index")
    return (dimension, _signed(index)) if isinstance(dimension, int) and isinstance(index, int) else None


def _is_negated(node: Any, top: Any) -> bool:
    """Whether the root is a loss with the opposite sign, apart from its scale."""
    negative = False
    while top is not None and top is not node:
        name = _plain(top).removesuffix("Backward")
        if name in ("Mul", "Div") and number_of(top, "other") is None:
            return False  # it is weighted, which is judged as a policy
        if name == "Neg" or (name in ("Mul", "Div") and (number_of(top, "other") or 0.0) < 0):
            negative = not negative
        elif name not in ("Mul", "Div", "Mean") or len([one for one, _ in top.next_functions if one is not None]) != 1:
            return False
        top = _previous(top)
    return negative and top is node


def _call(node: Any, kind: str, top: Any) -> LossCall | None:
    # None where an earlier backward pass has freed them.
    prediction, target = (saved(node, name) for name in _SAVED.get(kind, ("_saved_self", "_saved_target")))
    if not isinstance(prediction, torch.Tensor) or not isinstance(target, torch.Tensor):
        return None
    before, ignored, axis = _previous(node), None, None
    if before is None:  # the gradient is that of the targets, see `exchanged`
        return None
    if kind == "nll_loss":
        ignored = getattr(node, "_saved_ignore_index", None)
        ignored = _signed(ignored) if isinstance(ignored, int) else ignored
        picked = before if before is None or not _is(before, _PICKING) else _previous(before)
        softmax = _shaped(picked)
        if softmax is not None and _plain(softmax) == "LogSoftmaxBackward":
            axis = softmax_axis(softmax, prediction.ndim) if softmax is picked else None
            kind, before = "cross_entropy", _previous(softmax)
    elif kind == "ctc_loss":
        ignored = getattr(node, "_saved_blank", None)
    reduction = _REDUCTIONS.get(getattr(node, "_saved_reduction", 1), "")
    whole = getattr(target, "_base", None)
    shape = tuple(whole.shape) if isinstance(whole, torch.Tensor) and whole.numel() == target.numel() else ()
    negated = _is_negated(node, top)
    tensors = prediction.detach(), target.detach()
    weights = saved(node, _WEIGHTS.get(kind, "_saved_weight"))
    weights = weights.detach() if isinstance(weights, torch.Tensor) else None
    lengths = (_numbers(saved(node, f"_saved_{of}_lengths")) for of in ("target", "input"))
    return LossCall(kind, *tensors, reduction, ignored, before, node is top, negated, axis, shape, weights, *lengths)


def _numbers(values: Any) -> tuple[int, ...]:
    if isinstance(values, torch.Tensor):
        values = values.tolist() if values.is_cpu else ()
    return tuple(map(int, values)) if isinstance(values, tuple | list) else ()


def masks_of_softmax(root: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the masks of values that are filled before a softmax."""
    for node in _nodes(root.grad_fn, _MOST_MASKED):
        if _is(node, ("Softmax",)):
            before = _shaped(_previous(node))
            mask = saved(before, "_saved_mask") if before is not None and _is(before, ("MaskedFill",)) else None
            if isinstance(mask, torch.Tensor):
                yield mask


#: Nodes that leave similarities out, or scale them.
_OF_SIMILARITIES = (
    *("Mul", "Div", "Add", "Sub", "Index", "Where", "MaskedFill", "MaskedSelect", "IndexPut"),
    "torch::autograd::CopySlices",
)
#: Nodes between a convolution and a view of its maps.
_AFTER_MAPS = ("Relu", "LeakyRelu", "Gelu", "Silu", "Elu", "Tanh", "Sigmoid", "NativeBatchNorm")
#: What uses a tensor whose heads were separated, and nodes that only change the form of one.
_USING_HEADS = ("Bmm", "Expand", "Transpose", "Unsqueeze", "Mul", "Div")
_FORM = (*_VIEWS, "Expand", "Clone", "ToCopy", "Squeeze")


def _mixed_heads(view: Any, above: str) -> tuple[tuple[int, ...], ...]:
    """Return the shapes before and after a view that mixes heads with positions.

    Heads and positions must be exchanged between a view and attention, on both sides of it.
    """
    before, after = tuple(getattr(view, "_saved_self_sym_sizes", ())), _shape(view, 0)
    if _are_exchanged(before, after):
        node = _previous(view)
        while node is not None and _is(node, _FORM):
            node = _previous(node)
        is_attention = node is not None and (_is(node, ("Bmm",)) or "ScaledDotProduct" in type(node).__name__)
        return (before, after) if is_attention else ()
    is_used = above in _USING_HEADS or "ScaledDotProduct" in above
    return (before, after) if is_used and _are_exchanged(after, before) else ()


def _are_exchanged(heads: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether heads stand before positions in one shape, and after them in the other.

    These are (rows, heads, positions, width) and (rows, positions, heads × width). The first two dimensions of the
    former may be one.

    >>> [_are_exchanged(heads, (2, 5, 32)) for heads in ((2, 4, 5, 8), (8, 5, 8), (2, 5, 4, 8))]
    [True, True, False]
    """
    if len(whole) != 3 or len(heads) not in (3, 4) or not whole[0]:
        return False
    rows, positions, size = whole
    number = heads[1] if len(heads) == 4 else heads[0] // rows
    width = heads[-1]
    is_same = heads == (rows, number, positions, width) or heads == (rows * number, positions, width)
    return is_same and number * width == size and min(number, positions, width) > 1 and number != positions


def _of_maps(view: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the shapes before and after a view of maps of a convolution, or None."""
    node = _previous(view)
    while node is not None and _is(node, _AFTER_MAPS):
        node = _previous(node)
    if node is None or not _is(node, ("Convolution",)):
        return None
    return tuple(getattr(view, "_saved_self_sym_sizes", ())), _shape(view, 0)


def _teacher(product: Any) -> list[torch.Tensor]:
    """Return probabilities that the logarithms of a softmax are multiplied with."""
    sides = [one for one, _ in product.next_functions]
    if sum(one is not None for one in sides) != 1:
        return []
    place = 0 if sides[0] is not None else 1
    shares = saved(product, ("_saved_other", "_saved_self")[place])
    is_share = isinstance(shares, torch.Tensor) and shares.ndim == 2 and shares.shape[1] > 2
    return [shares.detach()] if is_share and _is(sides[place], ("LogSoftmax",)) else []


def _indexed(node: Any) -> list[tuple[torch.Tensor, int]]:
    """Return the indices that rows are added to, and how many rows there are."""
    index, shape = saved(node, "_saved_index"), _shape(node, 0)
    if not isinstance(index, torch.Tensor) or not shape or getattr(node, "_saved_dim", 1) != 0:
        return []
    return [(index.detach().reshape(len(index), -1)[:, 0], shape[0])] if len(index) else []


def _picked_by(node: Any) -> list[torch.Tensor]:
    """Return the index by which the values were picked that an index adds to rows.

    Between, they may have been multiplied with numbers, or passed through layers. Empty: other values come in.
    """
    node = node.next_functions[-1][0] if node.next_functions else None
    for _ in range(_MOST_BETWEEN):
        if node is None or _is(node, ("Index", "IndexSelect", "Gather")):
            break
        before = [each for each, _ in node.next_functions if each is not None]
        before = [each for each in before if not _is_weight(each)]
        node = before[0] if len(before) == 1 and not _is(node, _JOINING) else None
    if node is None:
        return []
    every = saved(node, "_saved_indices") if _is(node, ("Index",)) else (saved(node, "_saved_index"),)
    picked = [one for one in every or () if isinstance(one, torch.Tensor)]
    is_by_row = getattr(node, "_saved_dim", 0) == 0
    return [picked[0].detach()] if len(picked) == 1 and is_by_row else []


def _is_weight(node: Any) -> bool:
    """Whether a node stands for a parameter, or its transposition."""
    node = _previous(node) if _is(node, ("T", "Transpose")) else node
    return getattr(node, "variable", None) is not None


def _over_queries(product: Any) -> tuple[int, ...]:
    """Return the shape of weights of attention that add up to 1 over the queries.

    They are then multiplied with values along the keys. Empty: these are none.
    """
    node = product.next_functions[0][0] if product.next_functions else None
    for _ in range(_MOST_BETWEEN):
        if node is None or _is(node, ("Softmax",)):
            break
        if not _is(node, (*_VIEWS, "Expand", "ToCopy", "NativeDropout", "Mul")):
            return ()
        others = [each for each, _ in node.next_functions[1:] if each is not None]
        node = None if others else _previous(node)  # dropout multiplies with a constant
    weights = saved(node, "_saved_result") if node is not None and _is(node, ("Softmax",)) else None
    multiplied = saved(product, "_saved_self")
    if not isinstance(weights, torch.Tensor) or not isinstance(multiplied, torch.Tensor) or weights.ndim < 3:
        return ()
    queries, keys = weights.shape[-2:]
    # Over one query, all weights are 1.
    if multiplied.shape[-2:] != (queries, keys) or keys < _FEWEST_PLACES or 1 < queries < _FEWEST_PLACES:
        return ()
    return tuple(weights.shape) if softmax_axis(node, weights.ndim) == weights.ndim - 2 else ()


def walk(root: torch.Tensor, rows: int | None) -> Graph:
    """Walk over a whole graph.

    Args:
        root: what `backward()` is called on.
        rows: number of rows of the model's input.
    """
    graph = Graph()
    pending: list[tuple[Any, str, int | None]] = [(root.grad_fn, "", None)]
    seen: set[Any] = set()
    uses: Counter[Any] = Counter()
    while pending:
        node, above, number = pending.pop()
        if node is not None and (used := getattr(node, "variable", None)) is not None:
            uses[node] += 1
            graph.operations += [] if number is None else [(id(used), number)]
        if node is None or node in seen:
            continue
        if len(seen) >= _MOST_WALKED:
            graph.whole = False
            break
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            graph.leaves.append(leaf)
            continue
        name = _plain(node).removesuffix("Backward")
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            graph.functions.append(getattr(type(node), "_forward_cls", type(node)))
        if name == "Sub" and above in ("Pow", "Abs", "Mul", "Square") and rows is not None:
            graph.pairs += _pair(node, rows)
        elif name == "Mul":
            if rows is not None and not graph.pairs:
                graph.pairs += _spread(node, rows)
            graph.teachers += _teacher(node) if len(graph.teachers) < _MOST_ADDED else []
        elif name == "LogSoftmax":
            before = _shaped(_previous(node))
            if before is not None and _is(before, ("Softmax", "Sigmoid")):
                graph.softmax = _ACTIVATIONS[_plain(before).removesuffix("Backward")]
        elif name == "Exp" and above in _USING_RATIOS and len(graph.ratios) < _MOST_RATIOS:
            graph.ratios += _ratio(node)
        elif name in _STEPS:
            graph.steps_of = name.lower()
        elif name in _BY_INDEX:
            graph.sums_by_index = True
            if name == "IndexPut" and len(graph.added) < _MOST_ADDED:
                graph.added += _added(node)
            elif name in ("IndexAdd", "ScatterAdd") and len(graph.indexed) < _MOST_ADDED:
                of_node = _indexed(node)
                graph.indexed += of_node
                graph.returned += [(index, picked) for index, _ in of_node for picked in _picked_by(node)]
        elif name in _VIEWS:
            graph.heads = graph.heads or _mixed_heads(node, above)
            if len(graph.of_maps) < _MOST_ADDED and (shapes := _of_maps(node)) is not None:
                graph.of_maps.append(shapes)
        elif name == "PackPaddedSequence":
            graph.packed += _packed(node)
        elif name == "Softmax" and above == "Softmax":
            graph.double_softmax = True
        elif name == "Softmax" and not graph.softmax_of_one:
            graph.softmax_of_one = _is_of_one(node)
        elif name in ("Bmm", "Mm") and not graph.over_queries:
            graph.over_queries = _over_queries(node)
        elif name == "Sub" and above in ("", "Sum", "Mean", "Div") and graph.divergence is None:
            graph.divergence = _divergence(node)
        number = number if name in _SHARING else _number_in_order(node)
        pending += [(each, name, number) for each, _ in node.next_functions]
    graph.uses = max(uses.values(), default=0)
    return graph


def _number_in_order(node: Any) -> int | None:
    """Return the number of an operation in the order in which they run, or None."""
    number = getattr(node, "_sequence_nr", None)
    return None if number is None else int(number())


def _is_of_one(node: Any) -> bool:
    """Whether each row of a matrix is a softmax over one value.

    Weights of attention, which may have one key, have more dimensions.
    """
    result = saved(node, "_saved_result")
    if not isinstance(result, torch.Tensor) or result.ndim != 2:
        return False
    return bool(result.shape[0] > 1 and result.shape[1] == 1)


def _ratio(node: Any) -> list[torch.Tensor]:
    """Return the exponential of a difference of which both sides have gradients."""
    difference, result = _previous(node), saved(node, "_saved_result")
    if difference is None or not _is(difference, ("Sub",)) or not isinstance(result, torch.Tensor):
        return []
    sides = [_shaped(one) for one, _ in difference.next_functions]
    are_values = len(sides) == 2 and all(one is not None and not _is(one, _NO_RATIO) for one in sides)
    return [result.detach()] if are_values and result.numel() >= _FEWEST_SPREAD else []


def _packed(node: Any) -> list[tuple[int, int, int]]:
    """Return rows and frames of what is packed, and the length of the longest row."""
    sizes, rows_at = tuple(saved(node, "_saved_input_sym_sizes") or ()), saved(node, "_saved_result1")
    if len(sizes) < 2 or not isinstance(rows_at, torch.Tensor):
        return []
    rows, frames = sizes[:2] if saved(node, "_saved_batch_first") else sizes[1::-1]
    return [(rows, frames, len(rows_at))]


def _added(node: Any) -> list[torch.Tensor]:
    """Return the indices of `x[indices] += values`, or of `-=`.

    It reads `x[indices]`, adds the values, and assigns the result: of several values for one index, one stays.
    """
    indices = [one for one in saved(node, "_saved_indices") or () if isinstance(one, torch.Tensor)]
    result = node.next_functions[1][0] if len(node.next_functions) == 2 else None
    if len(indices) != 1 or saved(node, "_saved_accumulate") or result is None or not _is(result, ("Add", "Sub")):
        return []
    before, values = (one for one, _ in result.next_functions)
    if before is not None and _is(before, ("Index",)):
        read = [one for one in saved(before, "_saved_indices") or () if isinstance(one, torch.Tensor)]
        is_read = len(read) == 1 and read[0].data_ptr() == indices[0].data_ptr()
    else:
        is_read = before is None  # it has no gradient yet, such as zeros
    is_sum = is_read and values is not None and indices[0].ndim == 1 and indices[0].dtype == torch.int64
    return [indices[0].detach()] if is_sum else []


def _divergence(node: Any) -> torch.Tensor | None:
    """Return the targets that are multiplied with a softmax."""
    for product, _ in node.next_functions:
        if product is None or not _is(product, ("Mul",)):
            continue
        before = _shaped(next((one for one, _ in product.next_functions if one is not None), None))
        target = saved(product, "_saved_other")
        if target is None:
            target = saved(product, "_saved_self")
        is_shares = isinstance(target, torch.Tensor) and target.ndim > 1 and not target.requires_grad
        if is_shares and before is not None and _is(before, ("Softmax",)):
            return target.detach() if isinstance(target, torch.Tensor) else None
    return None


def _pair(node: Any, rows: int) -> list[tuple[int, ...]]:
    """Return the shapes of a difference of (N, 1) and (N,), with N rows."""
    shape = _shape(node, 0)
    operands = [_shape(each, index) for each, index in node.next_functions if each is not None]
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] != rows or rows < 2 or not operands:
        return []
    is_smaller = all(math.prod(one) < math.prod(shape) for one in operands)
    return [*operands, shape] if is_smaller and all(one in ((rows, 1), (rows,), (1, rows)) for one in operands) else []


def _spread(node: Any, rows: int) -> list[tuple[int, ...]]:
    """Return the shapes of a product that makes a matrix of N rows.

    Its factors are (N,) and a constant of (N, 1) or (N, N), or (N, 1) and a constant of (N,), such as a ratio of
    probabilities and an advantage.
    """
    computed = [(each, at) for each, at in node.next_functions if each is not None]
    if len(computed) != 1:
        return []
    shape, operand = _shape(node, 0), _shape(*computed[0])
    constant = saved(node, "_saved_other")
    constant = saved(node, "_saved_self") if constant is None else constant
    if shape != (rows, rows) or rows < _FEWEST_SPREAD or not isinstance(constant, torch.Tensor):
        return []
    # A mask selects pairs on purpose.
    others = {(rows,): ((rows, 1), shape), (rows, 1): ((rows,),)}.get(operand, ())
    is_value = constant.is_floating_point() and tuple(constant.shape) in others
    return [operand, tuple(constant.shape), shape] if is_value else []


def _shape(node: Any, index: int) -> tuple[int, ...]:
    """Return the shape of an output of a node's operation; empty: it is not known."""
    try:
        return tuple(node._input_metadata[index].shape)  # noqa: SLF001
    except (AttributeError, IndexError, RuntimeError):
        return ()
