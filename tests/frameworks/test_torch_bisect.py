"""The first difference of two trainings with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import smdwidgets.pytorch as smd
from smdwidgets import Trial, create_trial

Change = dict[str, Any]


def _data(shape: tuple[int, ...], classes: int, change: Change) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(96, *shape, generator=generator), torch.randint(0, classes, (96,), generator=generator)
    if "label" in change:
        y[change["label"]] = (y[change["label"]] + 1) % classes
    if "row" in change:
        x[change["row"]] *= 3
    return DataLoader(TensorDataset(x, y), 8)


def _convolutions(change: Change) -> nn.Module:
    torch.manual_seed(change.get("seed", 0))
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4, momentum=change.get("momentum", 0.1)),
        change.get("activation", nn.ReLU)(),
        nn.Flatten(),
        nn.Dropout(change.get("dropout", 0.1)),
        nn.Linear(144, 3),
    )


class _Attention(nn.Module):
    def __init__(self, change: Change) -> None:
        super().__init__()
        torch.manual_seed(change.get("seed", 0))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=change.get("dropout", 0.0), batch_first=True)
        self.head = nn.Linear(8, 3)
        self.scale = change.get("scale", 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x).mean(1) * self.scale)


class _Recurrent(nn.Module):
    def __init__(self, change: Change) -> None:
        super().__init__()
        torch.manual_seed(change.get("seed", 0))
        self.cells = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 3)
        self.last = change.get("last", -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x)[0][:, self.last])


MODELS: dict[str, tuple[Callable[[Change], nn.Module], tuple[int, ...]]] = {
    "convolutions": (_convolutions, (1, 8, 8)),
    "attention": (_Attention, (5, 8)),
    "recurrent": (_Recurrent, (5, 4)),
}


def _train(name: str, folder: Path, **change: Any) -> Trial:
    make, shape = MODELS[name]
    model = make(change)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, eps=change.get("eps", 1e-8))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, change.get("every", 6), 0.5)
    torch.manual_seed(change.get("noise", 3))
    hook = smd.record(model, folder)
    for step, (x, y) in enumerate(_data(shape, 3, change)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if step == change.get("clipped"):
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        schedule.step()
    hook.close()
    return create_trial(folder)


@pytest.mark.parametrize(
    ("model", "change", "step", "tensor", "updated_after"),
    [
        ("convolutions", {"seed": 1}, 0, "Sequential_0.weight", None),
        ("convolutions", {"activation": nn.GELU}, 0, "2_output_0", None),
        ("convolutions", {"dropout": 0.2}, 0, "4_output_0", None),
        ("convolutions", {"noise": 4}, 0, "4_output_0", None),
        ("convolutions", {"momentum": 0.2}, 1, "Sequential_1.running_mean", 0),
        ("convolutions", {"row": 42}, 5, "Sequential_input_0", None),
        ("convolutions", {"clipped": 7}, 7, "gradient/Sequential_5.bias", None),
        ("attention", {"every": 4}, 4, "optimizer/AdamW/learning_rate_0", None),
        ("attention", {"scale": 1.1}, 0, "head_input_0", None),
        ("attention", {"eps": 1e-4}, 1, None, 0),
        ("recurrent", {"last": -2}, 0, "head_input_0", None),
        ("recurrent", {"row": 80}, 10, "_Recurrent_input_0", None),
        ("recurrent", {"label": 13}, 1, "loss_output_0", None),
        ("convolutions", {"every": 9}, 6, "optimizer/AdamW/learning_rate_0", None),
        ("convolutions", {"label": 31}, 3, "loss_output_0", None),
        ("convolutions", {"row": 95}, 11, "Sequential_input_0", None),
        ("convolutions", {"eps": 1e-4}, 1, None, 0),
        ("attention", {"row": 3}, 0, "_Attention_input_0", None),
        ("attention", {"row": 50}, 6, "_Attention_input_0", None),
        ("attention", {"label": 95}, 11, "loss_output_0", None),
        ("attention", {"clipped": 5}, 5, "gradient/_Attention_head.bias", None),
        ("attention", {"clipped": 0}, 0, "gradient/_Attention_head.bias", None),
        ("recurrent", {"clipped": 2}, 2, "gradient/_Recurrent_head.bias", None),
        ("recurrent", {"every": 3}, 3, "optimizer/AdamW/learning_rate_0", None),
        ("recurrent", {"label": 90}, 11, "loss_output_0", None),
        ("recurrent", {"eps": 1e-4}, 1, None, 0),
        ("recurrent", {"last": 0}, 0, "head_input_0", None),
    ],
)
def test_first_difference_is_named(
    model: str, change: Change, step: int, tensor: str | None, updated_after: int | None, tmp_path: Path
) -> None:
    divergence = _train(model, tmp_path / "a").bisect(_train(model, tmp_path / "b", **change))
    assert divergence.first is not None
    assert (divergence.first.step, divergence.first.updated_after) == (step, updated_after), str(divergence)
    assert tensor in (None, divergence.first.tensor), str(divergence)
    assert divergence.first.exact
    assert divergence.noise is None


@pytest.mark.parametrize("model", MODELS)
def test_same_training_has_no_difference(model: str, tmp_path: Path) -> None:
    divergence = _train(model, tmp_path / "a").bisect(_train(model, tmp_path / "b"), 0)
    assert str(divergence).startswith("no difference\ncompared ")
    assert divergence.steps == 12
