"""Small PyTorch networks with planted faults.

They use convolutions, attention and bfloat16 autocast.
"""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from smdwidgets.modes import ModeKeys
from smdwidgets.pytorch import Hook, SaveConfig, SaveConfigMode

CLASSES, SIDE, LENGTH = 6, 8, 12


class ConvNet(nn.Module):
    """Three convolutions and a linear classifier of 8 × 8 pictures."""

    def __init__(self):
        super().__init__()
        self.conv1, self.relu1 = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()
        self.conv2, self.relu2 = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()
        self.conv3, self.relu3 = nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU()
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        """Return the logits."""
        x = self.relu3(self.conv3(self.relu2(self.conv2(self.relu1(self.conv1(x))))))
        return self.head(x.flatten(1))


class Attention(nn.Module):
    """Two blocks of self-attention and a classifier of sequences of 12 vectors."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 24)
        self.place = nn.Parameter(torch.randn(LENGTH, 24) * 0.1)
        self.block1, self.block2 = (
            nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x):
        """Return the logits."""
        return self.head(self.block2(self.block1(self.embed(x) + self.place)).mean(dim=1))


def draw(model, number, generator):
    """Draw inputs, and labels by fixed random patterns; 5 % of the labels are wrong."""
    shape = (1, SIDE, SIDE) if isinstance(model, ConvNet) else (LENGTH, 8)
    patterns = torch.randn(CLASSES, *shape, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, CLASSES, (number,), generator=generator)
    inputs = 0.6 * patterns[labels] + torch.randn(number, *shape, generator=generator)
    wrong = torch.rand(number, generator=generator) < 0.05
    labels = torch.where(wrong, torch.randint(0, CLASSES, (number,), generator=generator), labels)
    return inputs, labels


#: The expected first finding of each fault; none for a healthy training.
FAULTS = {
    "": (),
    "rate too high": ("rate_too_high",),
    "rate too low": ("rate_too_low",),
    "frozen layer": ("frozen",),
    "gradients not reset": ("gradients_add_up",),
    "ascent": ("loss_sign",),
    "same batch": ("same_batch",),
    "inputs not scaled": ("input_not_scaled",),
    "few samples": ("overfit",),
    "permuted labels": ("labels_unrelated",),
    "dead units": ("dead",),
    "decay": ("decay_too_strong",),
}


def train(directory, kind, fault, seed, every=10, steps=1000, autocast=False):
    """Train a network with a fault and save the run; return the last validation loss."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = {"conv": ConvNet, "attention": Attention}[kind]()
    loss_of = nn.CrossEntropyLoss()
    samples = {"few samples": 60, "permuted labels": 400}.get(fault, 8000)
    inputs, labels = draw(model, samples, generator)
    valid_inputs, valid_labels = draw(model, 500, generator)
    if fault == "permuted labels":
        labels = labels[torch.randperm(samples, generator=generator)]
    if fault == "inputs not scaled":
        inputs, valid_inputs = inputs * 300 + 400, valid_inputs * 300 + 400
    if fault == "dead units":
        for layer in (model.conv2, model.conv3) if kind == "conv" else (model.block1.linear1, model.block2.linear1):
            nn.init.constant_(layer.bias, -20.0)
    optimizer = _optimizer(model, kind, fault)
    modes = {ModeKeys.TRAIN: SaveConfigMode(save_interval=every), ModeKeys.EVAL: SaveConfigMode(save_interval=1)}
    hook = Hook(str(directory), save_all=True, save_config=SaveConfig(modes))
    hook.register_module(model)
    hook.register_loss(loss_of)
    generator.manual_seed(seed + 1)
    for step in range(steps):
        hook.set_mode(ModeKeys.TRAIN)
        rows = torch.arange(32) if fault == "same batch" else torch.randint(0, samples, (32,), generator=generator)
        half = torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
        with half:
            loss = loss_of(model(inputs[rows]), labels[rows])
        if fault != "gradients not reset":
            optimizer.zero_grad()
        (-loss if fault == "ascent" else loss).backward()
        optimizer.step()
        if step % (3 * every) == 0:
            hook.set_mode(ModeKeys.EVAL)
            with torch.no_grad():
                valid = loss_of(model(valid_inputs), valid_labels).item()
    hook.close()
    return valid


def _optimizer(model, kind, fault):
    forgotten = model.conv2 if kind == "conv" else model.block1
    skipped = {id(one) for one in forgotten.parameters()} if fault == "frozen layer" else set()
    parameters = [one for one in model.parameters() if id(one) not in skipped]
    if kind == "conv":
        rate = {"rate too high": 1.0, "rate too low": 1e-6}.get(fault, 0.02)
        return torch.optim.SGD(parameters, rate, 0.9, weight_decay=0.3 if fault == "decay" else 0)
    rate = {"rate too high": 0.3, "rate too low": 1e-7}.get(fault, 0.002)
    return torch.optim.AdamW(parameters, rate, weight_decay=5.0 if fault == "decay" else 0.01)
