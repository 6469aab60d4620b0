"""Small trainings with PyTorch, each of which either library's hook can save.

The same seed gives the same numbers.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ruling import hooks_of

torch.set_num_threads(1)  # these are tiny; threads would only wait for each other, and the sums depend on their number

Change = Callable[[nn.Module, torch.optim.Optimizer], None]


class Net(nn.Module):
    """A perceptron whose activations carry their names, as `relu0`."""

    def __init__(self, depth=2, activation=nn.ReLU, bias=None, scale=1.0):
        super().__init__()
        self.activation = activation.__name__.lower()
        sizes = [8] + [16] * depth
        for i in range(depth):
            layer = nn.Linear(sizes[i], sizes[i + 1])
            if bias is not None:
                nn.init.constant_(layer.bias, bias)
            with torch.no_grad():
                layer.weight.mul_(scale)
            self.add_module(f"fc{i}", layer)
            self.add_module(f"{self.activation}{i}", activation())
        self.out = nn.Linear(16, 3)
        self.depth = depth

    def forward(self, x):
        for i in range(self.depth):
            x = getattr(self, f"{self.activation}{i}")(getattr(self, f"fc{i}")(x))
        return self.out(x)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.relu = nn.ReLU()
        self.out = nn.Linear(4 * 6 * 6, 3)

    def forward(self, x):
        return self.out(self.relu(self.conv(x)).flatten(1))


class Sentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.embedding(x).mean(1))


def hooked(path: Path, library: str, model: nn.Module, loss: nn.Module | None = None, **options: Any):
    """A library's hook that saves everything of every step."""
    smd = hooks_of(library, "pytorch")
    hook = smd.Hook(out_dir=str(path), save_all=True, save_config=smd.SaveConfig(save_interval=1), **options)
    hook.register_module(model)
    if loss is not None:
        hook.register_loss(loss)
    return hook, smd.modes


def train(
    path: Path,
    library: str = "smdwidgets",
    *,
    steps: int = 20,
    rate: float = 0.05,
    change: Mapping[int, Change] | None = None,
    spoilt: Mapping[int, float] | None = None,
    schedule: Callable[[int], float] | None = None,
    clip: float | None = None,
    frozen: bool = False,
    samples: int = 64,
    evaluate: int = 0,
    noise: float = 0.0,
    regression: bool = False,
    **net: Any,
) -> Path:
    """Classification (or regression) of points by gradient descent.

    `change` does something to model and optimizer before a step, `spoilt` multiplies the inputs of one, `schedule`
    multiplies the learning rate, which is then saved; every `evaluate` steps there is one of EVAL, on other points of
    the same kind.
    """
    torch.manual_seed(0)
    model = Net(**net)

    def points(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(count, 8)
        target = x[:, :3] + noise * torch.randn(count, 3)
        return x, target if regression else target.argmax(1)

    (x, y), held = points(samples), points(samples)
    loss_of = nn.MSELoss() if regression else nn.CrossEntropyLoss()
    if frozen:
        model.fc1.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule) if schedule else None
    hook, modes = hooked(path, library, model, loss_of)
    for step in range(steps):
        if change and step in change:
            change[step](model, optimizer)
        hook.set_mode(modes.TRAIN)
        optimizer.zero_grad()
        loss_of(model(x * (spoilt or {}).get(step, 1.0)), y).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        if scheduler is not None:
            hook.save_scalar("learning_rate", scheduler.get_last_lr()[0])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if evaluate and step % evaluate == evaluate - 1:
            hook.set_mode(modes.EVAL)
            with torch.no_grad():
                loss_of(model(held[0]), held[1])
    hook.close()
    return path


def learn(path: Path, library: str, model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> Path:
    """Classification with any model, a step for each batch."""
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    hook, modes = hooked(path, library, model, loss_of)
    for x, y in batches:
        hook.set_mode(modes.TRAIN)
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
    hook.close()
    return path


def classes(path: Path, library: str, *, rare: float = 1 / 3, swapped: int | None = None, steps: int = 16) -> Path:
    """Three classes that lie far apart.

    The last has the share `rare`, and from step `swapped` on the last two change labels.
    """
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.copy_(torch.eye(3, 4))  # it knows them from the start
    centres = 4.0 * torch.eye(3, 4)
    shares = torch.tensor([(1 - rare) / 2, (1 - rare) / 2, rare])
    batches = []
    for step in range(steps):
        label = torch.multinomial(shares, 64, replacement=True)
        x = centres[label] + 0.1 * torch.randn(64, 4)
        mixed = swapped is not None and step >= swapped
        batches.append((x, torch.tensor([0, 2, 1])[label] if mixed else label))
    return learn(path, library, model, batches)


def images(path: Path, library: str, *, mean: float = 0.0) -> Path:
    """Small images whose mean is not what it should be."""
    torch.manual_seed(0)
    batches = [(torch.randn(64, 3, 8, 8) + mean, torch.randint(0, 3, (64,))) for _ in range(10)]
    return learn(path, library, Images(), batches)


def sentences(path: Path, library: str, *, padded_from: int | None = None) -> Path:
    """Sequences of tokens, from a step on mostly padding."""
    torch.manual_seed(0)
    batches = []
    for step in range(10):
        tokens = torch.randint(1, 50, (8, 20))
        tokens[:, 7 if padded_from is not None and step >= padded_from else 12 :] = 0
        batches.append((tokens, torch.randint(0, 3, (8,))))
    return learn(path, library, Sentences(), batches)


def _worker(rank: int, runs: list[tuple[Path, str, int]], store: Path, count: int) -> None:
    torch.distributed.init_process_group("gloo", init_method=store.as_uri(), rank=rank, world_size=count)
    for path, library, lost_at in runs:
        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(Net())
        loss_of = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        hook, modes = hooked(path, library, model, loss_of, include_workers="all")
        own = torch.Generator().manual_seed(rank)
        for step in range(10):
            hook.set_mode(modes.TRAIN)
            optimizer.zero_grad()
            x = torch.randn(16, 8, generator=own)
            with model.no_sync() if step >= lost_at else contextlib.nullcontext():
                loss_of(model(x), x[:, :3].argmax(1)).backward()
            optimizer.step()
        hook.close()
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def train_workers(runs: list[tuple[Path, str, int]], store: Path, count: int = 2) -> None:
    """Train in several processes that stop averaging their gradients at some step.

    Trainings run one after the other.
    Each has its path, its library and that step. The processes are the same for all: starting them is what takes long.
    """
    torch.multiprocessing.spawn(_worker, (runs, store, count), nprocs=count)
