"""Optimizers, schedules, precisions and other ways to update, with PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

from frameworks.stacks.fitting import STEPS, Decoder, Net, classify, fit, images, next_token, points, sentences
from frameworks.stacks.table import Trained, stack


def with_optimizer(record, kind, **options):
    model = Net()
    return fit(record, model, kind(model.parameters(), **options))


@stack
def sgd_with_momentum(record):
    return with_optimizer(record, torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)


@stack
def adamw_foreach(record):
    return with_optimizer(record, torch.optim.AdamW, lr=0.01, foreach=True)


@stack
def adamw_fused(record):
    return with_optimizer(record, torch.optim.AdamW, lr=0.01, fused=True)


@stack
def adamw_with_a_rate_that_is_a_tensor(record):
    return with_optimizer(record, torch.optim.AdamW, lr=torch.tensor(0.01), amsgrad=True)


@stack
def adafactor(record):
    return with_optimizer(record, torch.optim.Adafactor, lr=0.01)


@stack
def lbfgs(record):
    """The optimizer calls the closure several times in a step."""
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=3, line_search_fn="strong_wolfe")
    record(model)
    x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return Trained([optimizer.step(closure).item() for _ in range(STEPS)], [model])


@stack
def muon_and_adamw(record):
    """Two optimizers for one model."""
    model = Decoder()
    large = [one for one in model.layers.parameters() if one.ndim == 2]
    kept = {id(one) for one in large}
    muon = torch.optim.Muon(large, 0.02)
    adamw = torch.optim.AdamW([one for one in model.parameters() if id(one) not in kept], 0.01)
    record(model)
    losses = []
    for tokens in sentences():
        loss = next_token(model, tokens)
        loss.backward()
        for one in (muon, adamw):
            one.step()
            one.zero_grad()
        losses.append(loss.item())
    return Trained(losses, [model])


@stack
def optimizer_with_quantized_state(record):
    """An optimizer of the script, whose momentum has eight bits."""

    class Quantized(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for one in group["params"]:
                    state = self.state[one]
                    if not state:
                        state["codes"] = torch.zeros_like(one, dtype=torch.int8)
                        state["largest"] = torch.zeros(())
                    momentum = 0.9 * state["codes"] * state["largest"] / 127 + one.grad
                    state["largest"] = momentum.abs().max()
                    state["codes"] = (momentum / (state["largest"] + 1e-12) * 127).round().to(torch.int8)
                    one.add_(momentum, alpha=-group["lr"])

    return with_optimizer(record, Quantized, lr=0.05)


@stack(notes=("no optimizer of PyTorch updated",))
def optimizer_that_is_none_of_torch(record):
    """A class of the script with `step` and `zero_grad`."""

    class Signs:
        def __init__(self, params, lr):
            self.params, self.lr = list(params), lr

        def zero_grad(self):
            for one in self.params:
                one.grad = None

        @torch.no_grad()
        def step(self):
            for one in self.params:
                one -= self.lr * one.grad.sign()

    return with_optimizer(record, Signs, lr=0.01)


@stack
def optimizer_in_the_backward_pass(record):
    """Each parameter is updated when its gradient is complete, which is then freed."""
    model = Net()
    optimizers = {one: torch.optim.SGD([one], 0.1, momentum=0.9) for one in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(update)
    record(model)
    losses = []
    for batch in points():
        loss = classify(model, batch)
        loss.backward()
        losses.append(loss.item())
    return Trained(losses, [model])


@stack
def sharpness_aware(record):
    """Two passes in each update, the second at disturbed weights."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    record(model)
    losses = []
    for batch in points():
        loss = classify(model, batch)
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([one.grad.norm() for one in model.parameters()]).norm()
            moves = [0.05 * one.grad / norm for one in model.parameters()]
            for one, move in zip(model.parameters(), moves, strict=True):
                one += move
        optimizer.zero_grad()
        second = classify(model, batch)
        second.backward()
        with torch.no_grad():
            for one, move in zip(model.parameters(), moves, strict=True):
                one -= move
        optimizer.step()
        optimizer.zero_grad()
        losses.append((loss.item(), second.item()))
    return Trained({f"loss_output_{i}": series for i, series in enumerate(zip(*losses, strict=True))}, [model])


@stack
def sparse_gradients(record):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.EmbeddingBag(24, 8, sparse=True), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.table(x))

    model = Table()
    dense = torch.optim.Adam(model.head.parameters(), 0.01)
    sparse = torch.optim.SparseAdam(model.table.parameters(), 0.01)
    record(model)
    losses = []
    for tokens in sentences():
        loss = F.cross_entropy(model(tokens), tokens[:, 0] % 3)
        loss.backward()
        for one in (dense, sparse):
            one.step()
            one.zero_grad()
        losses.append(loss.item())
    return Trained(losses, [model])


@stack
def averaged_weights(record):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    average, schedule = AveragedModel(model), SWALR(optimizer, 0.05, anneal_epochs=3)

    def after():
        average.update_parameters(model)
        schedule.step()

    trained = fit(record, model, optimizer, batches=images(), after=after)
    update_bn([x for x, _ in images()], average)
    return Trained(trained.losses, [model, average])


@stack
def exponential_average(record):
    model = Net()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    trained = fit(record, model, after=lambda: average.update_parameters(model))
    return Trained(trained.losses, [model, average])


@stack
def one_cycle_of_rates(record):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=STEPS)
    return fit(record, model, optimizer, after=schedule.step)


@stack
def rates_that_follow_an_evaluation(record):
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    held = next(iter(points(1)))

    def evaluate():
        model.eval()
        with torch.no_grad():
            schedule.step(classify(model, held).item())
        model.train()

    return fit(record, model, optimizer, after=evaluate)


@stack
def clipping_by_norm(record):
    model = Net()
    return fit(record, model, before=lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.1))


@stack
def clipping_by_value(record):
    model = Net()
    return fit(record, model, before=lambda: nn.utils.clip_grad_value_(model.parameters(), 0.01))


@stack
def noise_on_gradients(record):
    """Hooks of the script on tensors draw random numbers."""
    model = Net()
    for one in model.parameters():
        one.register_hook(lambda gradient: gradient + 0.01 * torch.randn_like(gradient))
    return fit(record, model)


@stack
def autocast_to_bfloat16(record):
    def loss_of(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return classify(model, batch)

    return fit(record, Net(), None, loss_of)


@stack
def weights_of_bfloat16(record):
    def loss_of(model, batch):
        return F.cross_entropy(model(batch[0].bfloat16()).float(), batch[1])

    return fit(record, Net().bfloat16(), None, loss_of)


@stack
def accumulation(record):
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    record(model)
    losses, parts = [], []
    for number, batch in enumerate(points(24)):
        loss = classify(model, batch)
        (loss / 3).backward()
        parts.append(loss.item())
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
            losses.append(sum(parts) / 3)
            parts.clear()
    return Trained({"loss_output_mean": losses}, [model])


@stack
def scaled_accumulated_clipped_and_scheduled(record):
    """What large trainings combine; the first updates overflow and are skipped."""
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=3)
    record(model)
    losses = []
    for _ in range(STEPS):
        parts = []
        for tokens in sentences(2):
            with torch.autocast("cpu", torch.float16):
                loss = next_token(model, tokens)
            scaler.scale(loss / 2).backward()
            parts.append(loss.item())
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad()
        losses.append(sum(parts) / 2)
    return Trained({"loss_output_mean": losses}, [model])
