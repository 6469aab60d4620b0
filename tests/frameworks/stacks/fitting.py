"""Models, batches and the plain loop of training stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from frameworks.stacks.table import Recorder, Trained

STEPS = 8


class Net(nn.Module):
    """A perceptron with a parameter that is neither a weight nor a bias."""

    def __init__(self, given: int = 8, hidden: int = 16, made: int = 3) -> None:
        super().__init__()
        self.body, self.act, self.head = nn.Linear(given, hidden), nn.ReLU(), nn.Linear(hidden, made)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.head(self.act(self.body(x))) * self.scale


class Block(nn.Module):
    """A block of a transformer with causal attention."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.norm, self.attend, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.heads = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), heads

    def forward(self, x):
        parts = self.attend(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))


class Decoder(nn.Module):
    """A language model whose embedding is its output layer."""

    def __init__(self, words: int = 24, width: int = 16, layers: int = 2, tied: bool = True) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(0.02 * torch.randn(1, 32, width))
        self.layers, self.norm = nn.ModuleList(Block(width) for _ in range(layers)), nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places[:, : tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def points(steps: int = STEPS, rows: int = 16, columns: int = 8, kinds: int = 3) -> Iterable[Any]:
    """Yield batches of points and their classes, drawn from the global generator."""
    for _ in range(steps):
        x = torch.randn(rows, columns)
        yield x, x[:, :kinds].argmax(1)


def images(steps: int = STEPS, rows: int = 8, size: int = 8, kinds: int = 3) -> Iterable[Any]:
    """Yield batches of pictures and their classes."""
    for _ in range(steps):
        yield torch.randn(rows, 1, size, size), torch.randint(0, kinds, (rows,))


def sentences(steps: int = STEPS, rows: int = 4, length: int = 12, words: int = 24) -> Iterable[Any]:
    """Yield batches of token numbers."""
    for _ in range(steps):
        yield torch.randint(0, words, (rows, length))


def classify(model, batch):
    """The loss of a classifier."""
    x, y = batch
    return F.cross_entropy(model(x), y)


def next_token(model, tokens):
    """The loss of a language model."""
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())


def fit(
    record: Recorder,
    model: nn.Module,
    optimizer: Any = None,
    loss_of: Callable[..., torch.Tensor] = classify,
    batches: Iterable[Any] | None = None,
    before: Callable[[], Any] = lambda: None,
    after: Callable[[], Any] = lambda: None,
    recorded: nn.Module | None = None,
) -> Trained:
    """Train by the plain loop.

    `before` and `after` are called before and after each update; `recorded` is the model for the hook.
    """
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 0.01)
    record(model if recorded is None else recorded)
    losses = []
    for batch in points() if batches is None else batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        before()
        optimizer.step()
        after()
        losses.append(loss.item())
    return Trained(losses, [model])
