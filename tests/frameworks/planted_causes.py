"""Trainings with one planted cause each.

``# CAUSE`` marks the line that an explanation must name. The row with a fault is row 5 of the batch of step 8, where
the cause has a row. Functions return the execution and the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from frameworks.plain_execution import PlainExecution

ROW, AT, SIZE, WIDTH = 5, 8, 10, 7
Plant = Callable[[torch.Tensor, torch.Tensor], None]
Cause = tuple[PlainExecution, list[int] | None]


def _batches(plant: Plant | None = None, steps: int = 12, positive: bool = False) -> list[Any]:
    generator = torch.Generator().manual_seed(11)
    batches = []
    for step in range(steps):
        x = torch.randn(SIZE, WIDTH, generator=generator)
        x, y = x.abs() if positive else x, torch.randint(0, 3, (SIZE,), generator=generator)
        if step == AT and plant is not None:
            plant(x, y)
        batches.append((x, y))
    return batches


def _net(outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 12), nn.Tanh(), nn.Linear(12, outputs))


def _execution(
    model: nn.Module, loss: Callable[..., torch.Tensor], batches: list[Any], lr: float = 1e-2
) -> PlainExecution:
    optimizer = torch.optim.SGD(model.parameters(), lr)

    def step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(*batch)
        value.backward()
        optimizer.step()
        return value.detach()

    return PlainExecution(step, batches, [model], [optimizer])


def _row(change: Callable[[torch.Tensor], None]) -> Plant:
    return lambda x, y: change(x[ROW])


def entropy_of_a_certain_row() -> Cause:
    model = _net()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = torch.softmax(model(x) * (1 + 1e4 * (x[:, :1] > 50)), 1)
        entropy = -(p * torch.log(p)).sum(1)  # CAUSE
        return F.cross_entropy(model(x), y) - 0.01 * entropy.mean()

    return _execution(model, loss, _batches(_row(lambda row: row.fill_(60)))), [ROW]


def root_at_zero() -> Cause:
    model = _net(4)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        distance = ((model(x) - model(x.flip(1))) ** 2).sum(1).sqrt()  # CAUSE
        return (1 - distance).mean()

    return _execution(model, loss, _batches(_row(lambda row: row.fill_(1)))), [ROW]


def normalized_zero_row() -> Cause:
    model = _net()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        unit = x / x.norm(dim=1, keepdim=True)  # CAUSE
        return F.cross_entropy(model(unit), y)

    return _execution(model, loss, _batches(_row(lambda row: row.zero_()))), [ROW]


class _Scaled(nn.Module):
    """Divides by the range of each row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
        return (x - low) / (high - low)  # CAUSE range_of_a_constant_row


def range_of_a_constant_row() -> Cause:
    model = nn.Sequential(_Scaled(), *_net())
    return (
        _execution(model, lambda x, y: F.cross_entropy(model(x), y), _batches(_row(lambda row: row.fill_(2)))),
        [ROW],
    )


def half_precision_product() -> Cause:
    model = _net(6)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = x.half() * 40
        scores = (h @ h.T).float()  # CAUSE
        return F.cross_entropy(model(x)[:, :3], y) + 0 * scores.sum() * model(x).sum()

    return _execution(model, loss, _batches(_row(lambda row: row.mul_(60)))), [ROW]


def exponential_of_a_large_row() -> Cause:
    model = _net(4)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mean, log_scale = model[2](x @ model[0].weight.T).chunk(2, 1)
        return (mean**2 + torch.exp(log_scale * x.abs().amax(1, keepdim=True))).mean()  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row.mul_(300)))), [ROW]


def logarithm_of_a_negative_target() -> Cause:
    model = _net(1)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        target = torch.log(x[:, 0] + 1)  # CAUSE
        return F.mse_loss(model(x)[:, 0], target)

    return _execution(model, loss, _batches(_row(lambda row: row.fill_(-3)), positive=True)), [ROW]


def power_of_a_negative_base() -> Cause:
    model = _net()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        curved = x.pow(1.5)  # CAUSE
        return F.cross_entropy(model(curved), y)

    return _execution(model, loss, _batches(_row(lambda row: row[2:3].fill_(-1)), positive=True)), [ROW]


def attention_without_a_position() -> Cause:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.score, self.head = nn.Linear(1, 1), nn.Linear(1, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            score = self.score(x[:, :, None])[..., 0].masked_fill(x < 0, -math.inf)
            weights = score.softmax(1)  # CAUSE
            return self.head((weights * x).sum(1, keepdim=True))

    model = Pooled()

    def plant(x: torch.Tensor, y: torch.Tensor) -> None:
        x[ROW] = -x[ROW].abs() - 0.1

    batches = _batches(plant)
    for x, _ in batches:
        x[:, 0] = torch.where(x[:, 0] < 0, -x[:, 0], x[:, 0])
    batches[AT][0][ROW, 0] = -1.0
    return _execution(model, lambda x, y: F.cross_entropy(model(x), y), batches), [ROW]


def gradient_behind_where() -> Cause:
    model = _net(WIDTH)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = model(x) * x
        safe = torch.where(h == 0, torch.zeros_like(h), torch.sqrt(h.abs()))  # CAUSE
        return safe.mean()

    return _execution(model, loss, _batches(_row(lambda row: row[3:4].zero_()))), [ROW]


def cosine_of_a_zero_row() -> Cause:
    model = _net(WIDTH)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = model(x)
        return 1 - ((h * x).sum(1) / (h.norm(dim=1) * x.norm(dim=1))).mean()  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row.zero_()))), [ROW]


def nan_in_the_input() -> Cause:
    model = _net()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    return _execution(model, loss, _batches(_row(lambda row: row[1:2].fill_(math.nan)))), [ROW]


def token_outside_the_vocabulary() -> Cause:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(12, 3))
    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randint(0, 20, (SIZE, 3), generator=generator), torch.randint(0, 3, (SIZE,), generator=generator))
        for _ in range(12)
    ]
    batches[AT][0][ROW, 1] = 20

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = model(x)  # CAUSE
        return F.cross_entropy(scores, y)

    return _execution(model, loss, batches), [ROW]


def class_that_the_model_does_not_have() -> Cause:
    model = _net()

    def plant(x: torch.Tensor, y: torch.Tensor) -> None:
        y[ROW] = 3

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)  # CAUSE

    return _execution(model, loss, _batches(plant)), [ROW]


def learning_rate_of_one_step() -> Cause:
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def step(batch: Any) -> torch.Tensor:
        x, y, rate = batch
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), F.one_hot(y, 3).float())
        loss.backward()
        optimizer.step()  # CAUSE
        return loss.detach()

    batches = [(x, y, 1e-2 if n != AT else 1e22) for n, (x, y) in enumerate(_batches())]
    return PlainExecution(step, batches, [model], [optimizer]), None


def weights_multiplied_by_hand() -> Cause:
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def step(batch: Any) -> torch.Tensor:
        x, y, scales = batch
        if scales:
            with torch.no_grad():
                model[2].weight.mul_(1e25)  # CAUSE
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), F.one_hot(y, 3).float())
        loss.backward()
        optimizer.step()
        return loss.detach()

    batches = [(x, y, n == AT) for n, (x, y) in enumerate(_batches())]
    return PlainExecution(step, batches, [model], [optimizer]), None


#: Causes that were known while the rules were written.
KNOWN: tuple[Callable[[], Cause], ...] = (
    entropy_of_a_certain_row,
    root_at_zero,
    normalized_zero_row,
    range_of_a_constant_row,
    half_precision_product,
    exponential_of_a_large_row,
    logarithm_of_a_negative_target,
    power_of_a_negative_base,
    attention_without_a_position,
    gradient_behind_where,
    cosine_of_a_zero_row,
    nan_in_the_input,
    token_outside_the_vocabulary,
    class_that_the_model_does_not_have,
    learning_rate_of_one_step,
    weights_multiplied_by_hand,
)


# ----------------------------------------------------------------------------- written after the rules were final


def mean_of_no_valid_element() -> Cause:
    model = _net(WIDTH)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        valid = (x < 50).float()
        error = ((model(x.clamp(max=10)) - x.clamp(max=10)) ** 2 * valid).sum(1)
        return (error / valid.sum(1)).mean()  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row.fill_(60)))), [ROW]


def layer_norm_without_epsilon() -> Cause:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(WIDTH, eps=0.0), nn.Linear(WIDTH, 3))

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row.fill_(1)))), [ROW]


def angle_of_parallel_rows() -> Cause:
    model = _net(WIDTH)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        cosine = F.cosine_similarity(model(x) * (x[:, :1] < 50) + model(x).detach().sign(), model(x).sign(), dim=1)
        scaled = torch.where(x[:, 0] > 50, cosine * 0 + 1 + 0 * model(x).sum(1), cosine * 0.9)
        return torch.acos(scaled).mean() + model(x).square().mean()  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row.fill_(60)))), [ROW]


def attention_masked_for_a_row() -> Cause:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.lift, self.mix, self.head = (
                nn.Linear(1, 4),
                nn.MultiheadAttention(4, 2, batch_first=True),
                nn.Linear(4, 3),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.lift(x[:, :, None])
            padded = x > 50
            mixed, _ = self.mix(h, h, h, key_padding_mask=padded, need_weights=True)  # CAUSE
            return self.head(mixed.mean(1))

    model = Attention()
    return (
        _execution(model, lambda x, y: F.cross_entropy(model(x), y), _batches(_row(lambda row: row.fill_(60)))),
        [ROW],
    )


def divergence_of_an_empty_class() -> Cause:
    model = _net()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        target = torch.softmax(x[:, :3], 1)
        predicted = torch.softmax(model(x) * torch.where(x[:, :1] > 50, 1e6, 1.0), 1)
        return F.kl_div(predicted.log(), target, reduction="batchmean")  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row[:1].fill_(60)))), [ROW]


def standard_deviation_of_one_column() -> Cause:
    model = _net()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chosen = x[:, : 1 if float(x.max()) > 50 else 4]
        spread = chosen.std(1)  # CAUSE
        return F.cross_entropy(model(x / 10) + spread[:, None], y)

    return _execution(model, loss, _batches(_row(lambda row: row[:1].fill_(60)))), None


def impossible_alignment() -> Cause:
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, 20)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = model(x).reshape(SIZE, 4, 5).permute(1, 0, 2).log_softmax(2)
        lengths = torch.where(x[:, 0] > 50, 6, 2)
        targets = torch.ones(SIZE, 6, dtype=torch.long) + torch.arange(6) % 2
        return F.ctc_loss(scores, targets, torch.full((SIZE,), 4), lengths)  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row[:1].fill_(60)))), [ROW]


def harmonic_mean_with_zero() -> Cause:
    model = _net()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        harmonic = WIDTH / (1 / x).sum(1, keepdim=True)  # 0 for a row with a 0
        return F.cross_entropy(model(x * harmonic - (1 / x) * 0), y)  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row[2:3].zero_()), positive=True)), [ROW]


def infinite_target() -> Cause:
    model = _net(1)

    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(model(x)[:, 0], t)

    batches = [(x, x.sum(1)) for x, _ in _batches()]
    batches[AT][1][ROW] = math.inf
    return _execution(model, loss, batches), [ROW]


def probability_above_one() -> Cause:
    model = _net(1)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = model(x / 100)[:, 0].sigmoid() * x.amax(1).clamp(min=1)
        return F.binary_cross_entropy(p / x.amax(1).clamp(1, 50), (y > 0).float())  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row[:1].fill_(5000)))), None


def size_of_the_last_batch() -> Cause:
    model = _net()
    bias = torch.zeros(SIZE, 3)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x) + bias, y)  # CAUSE

    batches = _batches()
    batches[AT] = (batches[AT][0][:4], batches[AT][1][:4])
    return _execution(model, loss, batches), None


def key_that_a_row_does_not_have() -> Cause:
    model = _net()
    scales = {0: 1.0, 1: 1.0, 2: 1.0}

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weight = torch.tensor([scales[int(one)] for one in y])  # CAUSE
        return (F.cross_entropy(model(x), y.clamp(max=2), reduction="none") * weight).mean()

    def plant(x: torch.Tensor, y: torch.Tensor) -> None:
        y[ROW] = 7

    return _execution(model, loss, _batches(plant)), None


def loss_scale_of_one_step() -> Cause:
    model = _net()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scale = 1e38 if float(x.max()) > 50 else 1.0
        return (F.mse_loss(model(x / 10), F.one_hot(y, 3).float()) * scale).square()  # CAUSE

    return _execution(model, loss, _batches(_row(lambda row: row[:1].fill_(60)))), None


def momentum_without_damping() -> Cause:
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)

    def step(batch: Any) -> torch.Tensor:
        x, y, bad = batch
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), F.one_hot(y, 3).float())
        loss.backward()
        if bad:
            for state in optimizer.state.values():
                state["momentum_buffer"].mul_(1e30)  # CAUSE
        optimizer.step()
        return loss.detach()

    batches = [(x, y, n == AT) for n, (x, y) in enumerate(_batches())]
    return PlainExecution(step, batches, [model], [optimizer]), None


def gradient_divided_by_its_norm() -> Cause:
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def step(batch: Any) -> torch.Tensor:
        x, y = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) * (x.max() < 50), y)
        loss.backward()
        for parameter in model.parameters():
            parameter.grad = parameter.grad / parameter.grad.norm()  # CAUSE
        optimizer.step()
        return loss.detach()

    return PlainExecution(step, _batches(_row(lambda row: row[:1].fill_(60))), [model], [optimizer]), None


def recurrence_that_explodes() -> Cause:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.enter, self.next, self.head = nn.Linear(1, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.zeros(len(x), 8)
            for n in range(WIDTH):
                h = self.enter(x[:, n : n + 1]) + h * h * (x[:, n : n + 1] > 50) + torch.tanh(self.next(h))  # CAUSE
            return self.head(h)

    model = Recurrent()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return model(x).square().mean()

    return _execution(model, loss, _batches(_row(lambda row: row.fill_(1e5))), 1e-3), [ROW]


def constant_batch_statistics() -> Cause:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.BatchNorm1d(4, eps=0.0), nn.Linear(4, 3))

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)  # CAUSE

    def plant(x: torch.Tensor, y: torch.Tensor) -> None:
        x[:] = x[0].clone()

    return _execution(model, loss, _batches(plant)), None


#: Causes that were written after the rules were final.
HELD_OUT: tuple[Callable[[], Cause], ...] = (
    mean_of_no_valid_element,
    layer_norm_without_epsilon,
    angle_of_parallel_rows,
    attention_masked_for_a_row,
    divergence_of_an_empty_class,
    standard_deviation_of_one_column,
    impossible_alignment,
    harmonic_mean_with_zero,
    infinite_target,
    probability_above_one,
    size_of_the_last_batch,
    key_that_a_row_does_not_have,
    loss_scale_of_one_step,
    momentum_without_damping,
    gradient_divided_by_its_norm,
    recurrence_that_explodes,
    constant_batch_statistics,
)
