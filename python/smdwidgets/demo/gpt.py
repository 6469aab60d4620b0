"""A small language model in NumPy, for the notebooks.

It has attention, and dense layers or a mixture of experts. Its text is made of words that a generator draws. It gives
the signals that a hook reads in models of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["GPT", "Adam", "words"]

Floats = NDArray[np.floating]
#: The output of a part of a block, and a function from its gradient to that of the input.
Part = tuple[Floats, Callable[[Floats], Floats]]
_WORDS = ("attention", "gradient", "layer", "loss", "model", "router", "step", "token", "weight")


def words(rng: np.random.Generator, rows: int, length: int) -> NDArray[np.int64]:
    """Return rows of characters, of words in random order.

    They are 0 for a space and 1 to 26 for letters.

    >>> words(np.random.default_rng(0), 2, 12).shape
    (2, 12)
    """
    drawn = [" ".join(rng.choice(_WORDS, length // 4 + 1)) for _ in range(rows)]
    return np.array([[max(0, ord(one) - 96) for one in text[:length]] for text in drawn])


def _softmax(values: Floats) -> Floats:
    powers = np.exp(values - values.max(-1, keepdims=True))
    shares: Floats = powers / powers.sum(-1, keepdims=True)
    return shares


def _softmax_gradient(shares: Floats, d: Floats) -> Floats:
    gradient: Floats = shares * (d - (shares * d).sum(-1, keepdims=True))
    return gradient


def _norm(x: Floats) -> tuple[Floats, Floats]:
    """Return vectors of size 1 per element, and their former size."""
    size = np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6)
    return x / size, size


def _norm_gradient(normal: Floats, size: Floats, d: Floats) -> Floats:
    gradient: Floats = (d - normal * (normal * d).mean(-1, keepdims=True)) / size
    return gradient


class Adam:
    """The optimizer Adam.

    Args:
        parameters: arrays by name, which :meth:`step` changes.

    >>> parameters = {"w": np.ones(2)}
    >>> Adam(parameters).step({"w": np.array([3.0, -3.0])}, 0.1)
    >>> parameters["w"].round(3).tolist()
    [0.9, 1.1]
    """

    def __init__(self, parameters: dict[str, Floats]) -> None:
        self._parameters = parameters
        self._first = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._second = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._steps = 0

    def step(self, gradients: dict[str, Floats], rate: float) -> None:
        """Update the parameters; gradients are scaled to a norm of at most 1."""
        self._steps += 1
        norm = np.sqrt(sum(np.square(one).sum() for one in gradients.values()))
        for name, value in gradients.items():
            gradient = value / max(1.0, float(norm))
            self._first[name] += 0.1 * (gradient - self._first[name])
            self._second[name] += 0.05 * (gradient**2 - self._second[name])
            first = self._first[name] / (1 - 0.9**self._steps)
            second = self._second[name] / (1 - 0.95**self._steps)
            self._parameters[name] -= (rate * first / (np.sqrt(second) + 1e-8)).astype(value.dtype)


class GPT:
    """Two blocks of causal attention and dense layers or experts.

    A router chooses one expert for each token.

    Attributes:
        parameters: weights by name; a training changes them.

    Args:
        rng: draws the weights.
        experts: number of experts of a block; 0: dense layers.
        balance: weight of the loss that balances the load of experts.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> model = GPT(rng, experts=8)
        >>> loss, gradients, signals = model.step(words(rng, 8, 33))
        >>> signals["attention_max", "blocks.1.attention"].shape, signals["router_load", "blocks.1.experts"].shape
        ((4,), (8,))
    """

    def __init__(self, rng: np.random.Generator, experts: int = 0, balance: float = 0.02) -> None:
        self.experts, self.balance = experts, balance
        self.heads, self.blocks, width, length = 4, 2, 32, 32
        shapes: dict[str, tuple[int, ...]] = {"tokens": (27, width), "places": (length, width), "head": (width, 27)}
        for block in range(self.blocks):
            name = f"blocks.{block}"
            shapes[f"{name}.attention.qkv"] = (width, 3 * width)
            shapes[f"{name}.attention.out"] = (width, width)
            each = (experts,) if experts else ()
            shapes[f"{name}.mlp.up"] = (*each, width, 2 * width)
            shapes[f"{name}.mlp.down"] = (*each, 2 * width, width)
            if experts:
                shapes[f"{name}.router"] = (width, experts)
        self.parameters: dict[str, Floats] = {
            name: rng.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()
        }

    def step(self, text: NDArray[np.int64]) -> tuple[float, dict[str, Floats], dict[tuple[str, str], Floats]]:
        """Return loss, gradients and signals of rows of characters.

        Gradients are by name, signals by kind and layer.
        """
        self._gradients: dict[str, Floats] = {}
        self._signals: dict[tuple[str, str], Floats] = {}
        p, inputs, targets = self.parameters, text[:, :-1], text[:, 1:]
        x = p["tokens"][inputs] + p["places"][: inputs.shape[1]]
        backward, sizes = [], []
        for block in range(self.blocks):
            for part in (self._attention, self._experts if self.experts else self._dense):
                normal, size = _norm(x)
                y, back = part(f"blocks.{block}", normal)
                x = x + y
                backward.append((normal, size, back))
            sizes.append(float(np.sqrt(np.square(x).mean())))
        normal, size = _norm(x)
        logits = normal @ p["head"]
        largest = logits.max(-1, keepdims=True)
        log_z = largest + np.log(np.exp(logits - largest).sum(-1, keepdims=True))
        log_shares = logits - log_z
        loss = -float(np.take_along_axis(log_shares, targets[..., None], -1).mean())
        self._signals["log_z", ""] = np.array([log_z.mean()])
        self._signals["residual_rms", "blocks"] = np.array(sizes)

        d = np.exp(log_shares)
        np.put_along_axis(d, targets[..., None], np.take_along_axis(d, targets[..., None], -1) - 1, -1)
        d /= targets.size
        gradients = self._gradients
        gradients["head"] = np.tensordot(normal, d, ((0, 1), (0, 1)))
        dx = _norm_gradient(normal, size, d @ p["head"].T)
        for normal, size, back in reversed(backward):
            dx = dx + _norm_gradient(normal, size, back(dx))
        gradients["tokens"], gradients["places"] = np.zeros_like(p["tokens"]), np.zeros_like(p["places"])
        np.add.at(gradients["tokens"], inputs, dx)
        gradients["places"][: inputs.shape[1]] = dx.sum(0)
        return loss, gradients, self._signals

    def _attention(self, name: str, x: Floats) -> Part:
        qkv, out = self.parameters[f"{name}.attention.qkv"], self.parameters[f"{name}.attention.out"]
        rows, length, width = x.shape
        q, k, v = (x @ qkv).reshape(rows, length, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        scale = np.float32(1 / np.sqrt(q.shape[-1]))
        hidden = np.triu(np.ones((length, length), bool), 1)
        scores = np.where(hidden, np.float32(-np.inf), q @ k.swapaxes(-1, -2) * scale)
        shares = _softmax(scores)
        mixed = (shares @ v).swapaxes(1, 2).reshape(rows, length, width)
        entropy = -(shares * np.log(np.maximum(shares, 1e-30))).sum(-1)[..., 1:] / np.log(np.arange(2, length + 1))
        self._signals["attention_max", f"{name}.attention"] = scores.max((0, 2, 3))
        self._signals["attention_entropy", f"{name}.attention"] = entropy.mean((0, 2))

        def backward(d: Floats) -> Floats:
            self._gradients[f"{name}.attention.out"] = np.tensordot(mixed, d, ((0, 1), (0, 1)))
            d_mixed = (d @ out.T).reshape(rows, length, self.heads, -1).swapaxes(1, 2)
            d_scores = _softmax_gradient(shares, d_mixed @ v.swapaxes(-1, -2)) * scale
            each = (d_scores @ k, d_scores.swapaxes(-1, -2) @ q, shares.swapaxes(-1, -2) @ d_mixed)
            d_qkv = np.stack(each).transpose(1, 3, 0, 2, 4).reshape(rows, length, 3 * width)
            self._gradients[f"{name}.attention.qkv"] = np.tensordot(x, d_qkv, ((0, 1), (0, 1)))
            return d_qkv @ qkv.T

        return mixed @ out, backward

    def _dense(self, name: str, x: Floats) -> Part:
        up, down = self.parameters[f"{name}.mlp.up"], self.parameters[f"{name}.mlp.down"]
        hidden = np.maximum(x @ up, 0)

        def backward(d: Floats) -> Floats:
            d_hidden = (d @ down.T) * (hidden > 0)
            self._gradients[f"{name}.mlp.down"] = np.tensordot(hidden, d, ((0, 1), (0, 1)))
            self._gradients[f"{name}.mlp.up"] = np.tensordot(x, d_hidden, ((0, 1), (0, 1)))
            return d_hidden @ up.T

        return hidden @ down, backward

    def _experts(self, name: str, x: Floats) -> Part:
        up, down = self.parameters[f"{name}.mlp.up"], self.parameters[f"{name}.mlp.down"]
        router = self.parameters[f"{name}.router"]
        tokens = x.reshape(-1, x.shape[-1])
        shares = _softmax(tokens @ router)
        chosen = shares.argmax(-1)
        gate = np.take_along_axis(shares, chosen[:, None], -1)
        load = np.bincount(chosen, minlength=self.experts) / len(tokens)
        self._signals["router_load", f"{name}.experts"] = load * self.experts
        hidden, result = np.zeros((len(tokens), up.shape[-1]), x.dtype), np.zeros_like(tokens)
        for expert in range(self.experts):
            mine = chosen == expert
            hidden[mine] = np.maximum(tokens[mine] @ up[expert], 0)
            result[mine] = hidden[mine] @ down[expert]

        def backward(d: Floats) -> Floats:
            d = d.reshape(tokens.shape)
            d_up, d_down, d_tokens = np.zeros_like(up), np.zeros_like(down), np.zeros_like(tokens)
            for expert in range(self.experts):
                mine = chosen == expert
                d_result = d[mine] * gate[mine]
                d_hidden = (d_result @ down[expert].T) * (hidden[mine] > 0)
                d_down[expert], d_up[expert] = hidden[mine].T @ d_result, tokens[mine].T @ d_hidden
                d_tokens[mine] = d_hidden @ up[expert].T
            d_shares = np.broadcast_to(self.balance * self.experts * load / len(tokens), shares.shape).astype(x.dtype)
            d_shares[np.arange(len(tokens)), chosen] += (d * result).sum(-1)
            d_scores = _softmax_gradient(shares, d_shares)
            self._gradients[f"{name}.router"] = tokens.T @ d_scores
            self._gradients[f"{name}.mlp.up"], self._gradients[f"{name}.mlp.down"] = d_up, d_down
            return (d_tokens + d_scores @ router.T).reshape(x.shape)

        return (result * gate).reshape(x.shape), backward
