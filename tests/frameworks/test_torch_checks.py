"""Checks of PyTorch trainings.

The examples of docs/checks.md, healthy trainings, equal results, failures.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from frameworks.check_examples import PAGE, is_right, outcomes, runner_of
from python.launch.launching import Place
from smdwidgets import create_trial, diagnose
from smdwidgets.checks.log import CheckLog, chosen_checks
from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.order import OrderChecks
from smdwidgets.checks.torch.session import MECHANISMS
from smdwidgets.finding import CHECKS
from smdwidgets.pytorch import Hook

HERE = Path(__file__).parent
#: Checks whose example takes several processes.
SEVERAL = {"replicas_differ"}


# ------------------------------------------------------------------------------------------------------- the examples


TEXT = PAGE.read_text(encoding="utf-8")
WITH_EXAMPLE = [one.id for one in CHECKS if runner_of(TEXT, one.id) == Path(__file__).name]
#: Examples that one process runs.
AT_ONCE = 9


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Return a function that says what fired in the examples of a process."""
    found = {}

    def fired(check):
        if (check, False) not in found:
            begin = WITH_EXAMPLE.index(check) // AT_ONCE * AT_ONCE
            place = Place(tmp_path_factory.mktemp("examples"))
            found.update(outcomes(place, "torch", WITH_EXAMPLE[begin : begin + AT_ONCE]))
        return found

    return fired


@pytest.mark.parametrize("check", WITH_EXAMPLE)
def test_the_example_of_a_check_fires_and_its_fix_does_not(examples, check):
    found = examples(check)
    is_right(check, found)
    assert not {**found[check, False]["off"], **found[check, True]["off"]}


def test_each_check_has_a_mechanism():
    checks = sorted(one.id for one in CHECKS if "PyTorch" in one.frameworks)
    assert sorted(id for ids in MECHANISMS.values() for id in ids) == checks
    assert {*WITH_EXAMPLE, *SEVERAL} <= {*checks}


# -------------------------------------------------------------------------------------------------- healthy trainings

DATA = torch.Generator().manual_seed(3)
X, Y = torch.randn(256, 8, generator=DATA), torch.randint(0, 4, (256,), generator=DATA)


def network(outputs=4, *last):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, outputs), *last)


def network_of(inputs, outputs=4):
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


def adversarial(watch):
    generator, critic = network(8), network(1)
    watch(generator, critic)
    mine, other = torch.optim.Adam(generator.parameters(), 2e-4), torch.optim.Adam(critic.parameters(), 2e-4)
    for _ in range(20):
        critic.zero_grad()
        fake = generator(torch.randn(32, 8))
        real = critic(X[:32])
        F.mse_loss(real, torch.ones(1).expand_as(real)).backward()
        F.mse_loss(critic(fake.detach()), torch.zeros(1).expand(32, 1)).backward()
        other.step()
        generator.zero_grad()
        F.mse_loss(critic(fake), torch.ones(1).expand(32, 1)).backward()
        mine.step()


def perturbed(watch):
    """Train on adversarial inputs, made with gradients that are not used."""
    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(20):
        noise = torch.zeros(32, 8, requires_grad=True)
        for _ in range(3):
            F.cross_entropy(model(X[:32] + noise), Y[:32]).backward()
            noise = (noise + 0.01 * noise.grad.sign()).detach().requires_grad_()
            optimizer.zero_grad()
        F.cross_entropy(model(X[:32] + noise.detach()), Y[:32]).backward()
        optimizer.step()
        optimizer.zero_grad()


def closures(watch):
    model = network(1)
    watch(model)
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(X), X.sum(1, keepdim=True))
        loss.backward()
        return loss

    for _ in range(8):
        optimizer.step(closure)


def accumulated(watch):
    model = network()
    watch(model)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    for step in range(32):
        scaler.scale(F.cross_entropy(model(X[:32]), Y[:32]) / 4).backward()
        if step % 4 == 3:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def sampled_by_gradients(watch):
    """Inputs are moved by gradients of a frozen model, in many passes."""
    model = network(1)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(10):
        moved = torch.randn(32, 8, requires_grad=True)
        model.requires_grad_(False)
        for _ in range(6):
            model(moved).sum().backward()
            moved = (moved - 0.1 * moved.grad).detach().requires_grad_()
        model.requires_grad_(True)
        optimizer.zero_grad()
        (model(X[:32]).mean() - model(moved.detach()).mean()).backward()
        optimizer.step()


def perceptual(watch):
    """A loss with a second network, which is trainable but not registered."""
    model, loss = network(8), network(4)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        optimizer.zero_grad()
        F.mse_loss(loss(model(X[:32])), loss(X[:32]).detach()).backward()
        optimizer.step()


def warmed_up(watch):
    model = network(4, nn.Dropout(0.1))
    watch(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)  # it begins at 0
    for _ in range(3):
        model.train()
        for rows in torch.randperm(256).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(X[rows]), Y[rows]).backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            F.cross_entropy(model(X), Y)


def low_rank(watch):
    base = network().requires_grad_(False)
    down, up = nn.Linear(8, 2, bias=False), nn.Linear(2, 4, bias=False)
    nn.init.zeros_(up.weight)

    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.down, self.up = base, down, up

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    model = Adapted()
    watch(model)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], 1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(X[:32]), Y[:32]).backward()
        optimizer.step()


def recomputed(watch):
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = network(8), network(4)

        def forward(self, x):
            return self.second(checkpoint(self.first, x.requires_grad_(), use_reentrant=True))

    model = Net()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(X[:32].clone()), Y[:32]).backward()
        optimizer.step()


def functional(watch):
    from torch.func import functional_call, grad

    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(20):
        weights = {name: one.detach() for name, one in model.named_parameters()}
        gradients = grad(lambda given: F.cross_entropy(functional_call(model, given, (X[:32],)), Y[:32]))(weights)
        for name, one in model.named_parameters():
            one.grad = gradients[name]
        optimizer.step()


def hooked(watch):
    model = network()
    seen = []
    model[0].register_full_backward_hook(lambda module, given, made: seen.append(1))
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(X[:32]), Y[:32]).backward()
        optimizer.step()
    assert len(seen) == 20


def gradients_that_are_looked_at_first(watch):
    """Each part of a batch has a separate backward pass before that of all."""
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in batches():
        for rows in (slice(0, 16), slice(16, None)):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def heads(watch):
    """Two heads, of which each step uses one."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.heads = nn.Linear(8, 16), nn.ModuleList(nn.Linear(16, 4) for _ in range(2))

        def forward(self, x, which):
            return self.heads[which](self.body(x).relu())

    model = Net()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(24):
        optimizer.zero_grad()
        F.cross_entropy(model(X[:32], step % 2), Y[:32]).backward()
        optimizer.step()


def padded(watch):
    """A class that does not count, such as padding, is not missing."""
    fit(network(), watch, lambda output, y: F.cross_entropy(output, y, ignore_index=0))


def guessed_labels(watch):
    """Labels that the model guesses at each update, in training mode."""
    model = network(4, nn.Dropout(0.2))

    def loss(output, y):
        with torch.no_grad():
            guess = model(X[:32]).argmax(1)
        return F.cross_entropy(output, y) + F.cross_entropy(model(X[:32]), guess)

    fit(model, watch, loss)


def averaged(watch):
    """Statistics of batch normalization that are computed again."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    fit(model, watch)
    torch.optim.swa_utils.update_bn(batches(), model)


def adapted(watch):
    """Weights of the last layer are loaded into a deep model."""
    model = nn.Sequential(nn.Linear(8, 4), *(nn.BatchNorm1d(4) for _ in range(39)), nn.ReLU(), nn.Linear(4, 4))
    fit(model, watch)
    model.load_state_dict({"41.weight": torch.zeros(4, 4)}, strict=False)


def summed(watch):
    """The losses of several batches are added, and one backward pass uses all."""
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        sum(F.cross_entropy(model(x), y) / 8 for x, y in batches()).backward()
        optimizer.step()


def per_task(watch):
    """Gradients of each task are kept, reset, and combined."""
    model = network(2)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in batches():
        kept = []
        for task in range(2):
            optimizer.zero_grad()
            F.mse_loss(model(x)[:, task], y / 4 + 0.1).backward()
            kept.append([one.grad.clone() for one in model.parameters()])
        for one, first, second in zip(model.parameters(), *kept, strict=True):
            one.grad = first + second
        optimizer.step()


def new_head(watch):
    """The optimizer of the first stage is kept, and so are its last gradients."""
    model = network()
    watch(model)
    first = torch.optim.Adam(model.parameters(), 1e-3)
    for optimizer, steps in ((first, 4), (None, 300)):
        if optimizer is None:
            for parameter in model.parameters():
                parameter.requires_grad_(False)
            model[-1] = nn.Linear(model[-1].in_features, model[-1].out_features)
            optimizer = torch.optim.SGD(model[-1].parameters(), 0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(X[:32]), Y[:32]).backward()
            optimizer.step()
    assert first.param_groups[0]["params"][0].grad is not None


def stage_on_a_pretrained_model(watch):
    """A second stage trains through the parameters of the first optimizer."""
    backbone, head = network(8), nn.Linear(8, 4)
    watch(backbone)
    first = torch.optim.Adam(backbone.parameters(), 1e-3)
    for _ in range(8):
        first.zero_grad()
        F.mse_loss(backbone(X[:32]), X[:32]).backward()
        first.step()
    watch(nn.Sequential(backbone, head))
    second = torch.optim.Adam(head.parameters(), 1e-3)
    for _ in range(300):
        second.zero_grad()
        F.cross_entropy(head(backbone(X[:32])), Y[:32]).backward()
        second.step()
    assert first.param_groups[0]["params"][0].grad is not None


def rare_positive_labels(watch):
    """The labels of the updates that are looked at are 0."""
    model = network(1)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(600):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(X[:64]), torch.zeros(64, 1)).backward()
        optimizer.step()


def images_of_a_class_that_is_asked_for(watch):
    """The classifier stays as it is, and says each time that rows are to be positive."""
    generator, classifier = network(8), network(1)
    watch(generator)
    classifier.requires_grad_(False)
    optimizer = torch.optim.Adam(generator.parameters())
    for _ in range(300):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(classifier(generator(torch.randn(64, 8))), torch.ones(64, 1)).backward()
        optimizer.step()


def sequence_first(watch):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = nn.GRU(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.recurrent(x)[0][-1])

    model = Net()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(8):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(6, 32, 4)), torch.randint(0, 3, (32,))).backward()
        optimizer.step()


def copied_weights(watch):
    """The optimizer holds copies in float32, and gets gradients by hand."""
    model = network().to(torch.bfloat16)
    watch(model)
    copies = [one.detach().float().requires_grad_() for one in model.parameters()]
    optimizer = torch.optim.AdamW(copies, 1e-3)
    for step in range(20):
        model.zero_grad()
        F.cross_entropy(model(X[:32].bfloat16()).float(), Y[:32]).backward()
        for copy_, one in zip(copies, model.parameters(), strict=True):
            if step % 2:
                copy_.grad = one.grad.float()
            else:
                copy_.grad = one.grad.float() if copy_.grad is None else copy_.grad.copy_(one.grad)
        optimizer.step()
        with torch.no_grad():
            for copy_, one in zip(copies, model.parameters(), strict=True):
                one.copy_(copy_)


def evaluated_without_dropout(watch):
    """A dropout of 0 makes no difference between the modes."""
    model = network(4, nn.Dropout(0.0))
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(40):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        if step % 4 == 3:
            with torch.no_grad():
                F.cross_entropy(model(X[:64]), Y[:64])


def distilled(watch):
    """The optimizer has a teacher, too, which was trained before."""
    teacher, student = network(), network()
    optimizer = torch.optim.Adam(teacher.parameters())
    for _ in range(80):
        optimizer.zero_grad()
        F.cross_entropy(teacher(X), Y).backward()
        optimizer.step()
    both = nn.ModuleList([teacher, student])
    watch(both)
    optimizer = torch.optim.Adam(both.parameters())
    for rows in X.split(16):
        with torch.no_grad():
            targets = teacher(rows).softmax(1)
        optimizer.zero_grad()
        F.kl_div(student(rows).log_softmax(1), targets, reduction="batchmean").backward()
        optimizer.step()


def regularized_by_two_passes(watch):
    """Divergences of two passes of one model, with gradients through both sides."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(12):
        one, other = model(X), model(X)
        apart = F.kl_div(one.log_softmax(1), other.softmax(1), reduction="batchmean")
        optimizer.zero_grad()
        (F.cross_entropy(one, Y) + apart).backward()
        optimizer.step()


def tokens_after_a_prefix(watch):
    """The output of a prefix is left out, and the targets are the next tokens."""
    model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30))
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(12):
        tokens = torch.randint(2, 30, (8, 20))
        optimizer.zero_grad()
        logits = model(torch.cat([torch.ones(8, 1, dtype=torch.long), tokens[:, :-1]], 1))
        F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()


def error_rate_that_falls_then_rises(watch):
    """A share that is minimized, as it should be, and a rate that falls in time."""
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    for rate in (70, 40, 20, 15, 16, 17, 18, 18, 19, 20, 21, 22):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        schedule.step(rate / 100)


def loss_that_rises_on_a_plateau(watch):
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    for epoch in range(12):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        schedule.step(0.4 + 0.03 * epoch + 0.01 * math.sin(epoch))


def samples_that_explode(watch):
    """A sampler calls the model on what it has made of the last output."""
    model = nn.Linear(8, 8)
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(12):
        optimizer.zero_grad()
        F.mse_loss(model(X[:64]), X[:64]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        made = X[:64]
        for _ in range(20):
            made = 1.3 * made + 0.01 * model(made)


def neighbours_in_batches(watch):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
            self.source, self.target = torch.randint(0, 32, (2, 128))

        def forward(self, x):
            messages = self.message(x)
            total = torch.zeros_like(messages).scatter_add(0, self.target[:, None].expand(-1, 8), messages[self.source])
            return self.head(total.relu())

    fit(Net(), watch)


def neighbours_beside_their_nodes(watch):
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Linear(6, 16), nn.Linear(16, 3)

        def forward(self, x, neighbours):
            return self.head(neighbours @ self.first(x).relu())

    model = Graph()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(12):
        neighbours = torch.rand(32, 32).softmax(1)
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(32, 6), neighbours), torch.randint(0, 3, (32,))).backward()
        optimizer.step()


class Attentive(nn.Module):
    """Attention of tokens, with its mask, its weights or its positions given."""

    def __init__(self, attend, positions=None, dropout=0.0):
        super().__init__()
        self.embedding, self.attention, self.head = nn.Embedding(12, 16), attend, nn.Linear(16, 4)
        self.positions = positions or nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens):
        return self.head(self.dropout(self.attention(self.positions(self.embedding(tokens)))).mean(1))


class SelfAttention(nn.Module):
    """Attention that a script writes by hand, which `weigh` may change."""

    def __init__(self, weigh):
        super().__init__()
        self.query, self.value, self.weigh = nn.Linear(16, 16), nn.Linear(16, 16), weigh

    def forward(self, x):
        return x + self.weigh(self.query(x) @ x.transpose(1, 2) / 4) @ self.value(x)


def fit_tokens(model, watch, evaluates=False):
    tokens = torch.randint(0, 12, (128, 10))
    loader = batches(tokens, tokens[:, 0] % 4)
    watch(model)
    for _ in range(4):
        model.train()
        fit(model, lambda *models: None, loader=loader)
        model.eval()
        if evaluates:
            with torch.no_grad():
                [model(x) for x, _ in loader]


def causal_without_positions(watch):
    """A causal mask shows the order, to some extent."""
    mask = torch.full((10, 10), -torch.inf).triu(1)
    fit_tokens(Attentive(SelfAttention(lambda scores: (scores + mask).softmax(-1))), watch)


def slots_that_compete(watch):
    """Slots share each position; their weights are then divided by their sum."""

    def weigh(scores):
        shares = scores.softmax(1)
        return shares / shares.sum(-1, keepdim=True)

    fit_tokens(Attentive(SelfAttention(weigh), Positions(1)), watch)


class Pooling(nn.Module):
    """Each position belongs to some groups: the transposed shares make their sums."""

    def __init__(self):
        super().__init__()
        self.share = nn.Linear(16, 5)

    def forward(self, x):
        return self.share(x).softmax(-1).transpose(1, 2) @ x


def groups_of_positions(watch):
    fit_tokens(Attentive(Pooling(), Positions(1)), watch)


class Positions(nn.Module):
    """Adds a table along a dimension, the second one where the batch comes first."""

    def __init__(self, along):
        super().__init__()
        self.along = along
        self.register_buffer("table", torch.randn(40, 16))

    def forward(self, x):
        return x + (self.table[None, : x.shape[1]] if self.along else self.table[: x.shape[0], None])


def memory_that_is_used_again(watch):
    """Each batch is at the same place, and was not made of the last one."""
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.empty(32, 8)
    for step in range(30):
        x.normal_().mul_(1 + step % 3)
        optimizer.zero_grad()
        F.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
        optimizer.step()


def encoder_that_follows_slowly(watch):
    """A momentum encoder begins as the model, and is behind it."""
    model = network()
    follower = copy.deepcopy(model)
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for rows in torch.randint(0, 256, (330, 32)):
        optimizer.zero_grad()
        F.cross_entropy(model(X[rows]), Y[rows]).backward()
        optimizer.step()
        with torch.no_grad():
            for mean, one in zip(follower.parameters(), model.parameters(), strict=True):
                mean.lerp_(one, 0.004)
    return follower


def rows_that_are_scaled_at_random(watch):
    """The same rows come at the same place, each time brighter or darker than before."""
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.empty_like(X)
    for _ in range(30):
        torch.mul(X, torch.rand(()) + 0.5, out=data)
        optimizer.zero_grad()
        F.cross_entropy(model(data), Y).backward()
        optimizer.step()


def gradients_of_single_samples(watch):
    """The gradient of each sample is clipped, and their mean is used."""
    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(8):
        means = [torch.zeros_like(one) for one in model.parameters()]
        for row in range(step, step + 8):
            optimizer.zero_grad()
            F.cross_entropy(model(X[row : row + 1]), Y[row : row + 1]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for mean, one in zip(means, model.parameters(), strict=True):
                mean += one.grad / 8
        for mean, one in zip(means, model.parameters(), strict=True):
            one.grad = mean
        optimizer.step()


class Denoiser(nn.Module):
    """Gets noisy pictures and the time."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.time = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1), nn.Linear(1, 8)

    def forward(self, noisy, time):
        return self.last((self.first(noisy) + self.time(time.float()[:, None] / 100)[:, :, None, None]).relu())


def diffusion(watch, draw, pictures=None, predicts=lambda clean, noise: noise):
    model = Denoiser()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    kept = torch.linspace(0.999, 0.05, 100)
    for _ in range(20):
        time = torch.randint(0, 100, (64,))
        share = kept[time][:, None, None, None]
        clean = torch.randn(64, 1, 1, 1).expand(-1, 1, 8, 8) if pictures is None else pictures()
        noise = draw(clean)
        loss = ((model(share.sqrt() * clean + (1 - share).sqrt() * noise, time) - predicts(clean, noise)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def noise_of_a_diffusion(watch):
    """Normal noise, and uniform noise with a mean of 0."""
    diffusion(watch, torch.randn_like)
    diffusion(watch, lambda clean: 2 * torch.rand_like(clean) - 1)


def uniform_data_of_a_diffusion(watch):
    """The targets are the data, of which the input contains less at later times."""
    diffusion(watch, torch.randn_like, lambda: torch.rand(64, 1, 8, 8), lambda clean, noise: clean)


def uniform_data_with_noise_of_each_size(watch):
    model = Denoiser()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        clean, size = torch.rand(64, 1, 8, 8), torch.rand(64)
        optimizer.zero_grad()
        noisy = clean + size[:, None, None, None] * torch.randn_like(clean)
        F.mse_loss(model(noisy, 100 * size), clean).backward()
        optimizer.step()


def learn_values(watch, target_of, draw=lambda: torch.ones(64), steps=30, follow=torch.roll):
    """Q-learning, in which a function computes the targets."""
    model, target = network(), network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        state, action, reward = torch.randn(64, 8), torch.randint(0, 4, (64, 1)), draw()
        next_state, done = follow(state, 1), torch.rand(64) < 0.2
        optimizer.zero_grad()
        chosen = model(state).gather(1, action).squeeze(1)
        with torch.no_grad():
            values = target_of(reward, target(next_state).max(1).values, done)
        F.smooth_l1_loss(chosen, values).backward()
        optimizer.step()


def values_of_terminal_states(watch):
    """Targets use the flags as a mask, with limited rewards, or with a bonus."""
    learn_values(watch, lambda reward, values, done: torch.where(done, reward, reward + 0.9 * values))
    learn_values(
        watch, lambda reward, values, done: reward.clamp(-1, 1) + 0.9 * values * ~done, lambda: torch.randn(64)
    )
    learn_values(watch, lambda reward, values, done: (0.1 * reward + 0.9 * values).masked_fill(done, -1.0))


def flags_of_states_that_go_on(watch):
    """A variable has another meaning than its name."""
    model, target = network(), network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(30):
        state, action, reward = torch.randn(64, 8), torch.randint(0, 4, (64, 1)), torch.ones(64)
        done = 1 - (torch.rand(64) < 0.2).float()
        optimizer.zero_grad()
        with torch.no_grad():
            values = reward + 0.9 * done * target(torch.randn(64, 8)).max(1).values
        F.mse_loss(model(state).gather(1, action).squeeze(1), values).backward()
        optimizer.step()


def states_that_seldom_change(watch):
    """A wall keeps two of three agents where they are."""

    def follow(state, _):
        return torch.where(torch.rand(64, 1) < 0.67, state, torch.randn_like(state))

    learn_values(watch, lambda reward, values, done: reward + 0.9 * values * ~done, follow=follow)


def largest_value_of_each_row(watch):
    """Actions beside the largest output: the best ones, and others without rewards."""
    for actions_of in (lambda model, state: model(state).argmax(1), lambda model, state: torch.randint(0, 4, (64,))):
        model = network()
        watch(model)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(20):
            state = torch.randn(64, 8)
            with torch.no_grad():
                action = actions_of(model, state)
            optimizer.zero_grad()
            F.mse_loss(model(state).max(1).values, state[:, 0] + 0.1 * action).backward()
            optimizer.step()


def missing_targets_that_are_negative(watch):
    """Labels that nobody gave count as negative, and rows without any are left out."""
    labels = (torch.rand(256, 4) < 0.5).float()
    labels[torch.rand(256, 4) < 0.3] = torch.nan
    fit(
        network(),
        watch,
        lambda output, y: F.binary_cross_entropy_with_logits(output, y.nan_to_num()),
        batches(y=labels),
    )


def missing_targets_that_are_left_out(watch):
    targets = torch.randn(256, 4)
    targets[torch.rand(256, 4) < 0.3] = torch.nan

    def masked(output, y):
        present = ~y.isnan()
        return ((output - y.nan_to_num()) ** 2 * present).sum() / present.sum()

    def picked(output, y):
        present = ~y.isnan()
        return F.mse_loss(output[present], y[present])

    for loss in (masked, picked):
        fit(network(), watch, loss, batches(y=targets))


def pairs_of_which_few_are_equal(watch):
    model = network(1)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        better = torch.randn(64, 8)
        worse = torch.where(torch.arange(64)[:, None] < 3, better, torch.randn(64, 8))
        optimizer.zero_grad()
        (-F.logsigmoid(model(better) - model(worse))).mean().backward()
        optimizer.step()


def two_views_of_equal_rows(watch):
    """Both sides of a pair are the same rows, which dropout makes differ."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 8))
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        one, other = (F.normalize(model(X[:32]), dim=1) for _ in range(2))
        optimizer.zero_grad()
        F.cross_entropy(one @ other.T / 0.1, torch.arange(32)).backward()
        optimizer.step()


def groups_of_points(number=6):
    """Return a function that draws points of groups."""
    centres = 2 * torch.randn(number, 8)
    return lambda group: centres[group] + 0.3 * torch.randn(len(group), 8)


def distances_that_are_learned(watch):
    """Distances shall be those of the inputs, and some pairs do not count."""
    for factor in (0.1, 10.0):
        model, draw = network(), groups_of_points()
        watch(model)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(12):
            one, other = (draw(torch.randint(0, 6, (64,))) for _ in range(2))
            apart = F.pairwise_distance(model(one), model(other))
            counts = (torch.rand(64) < 0.5).float()
            optimizer.zero_grad()
            (counts * (apart - factor * F.pairwise_distance(one, other)) ** 2).mean().backward()
            optimizer.step()


def pairs_of_two_domains(watch):
    """Inputs of a pair do not show whether they belong together."""
    model, turned = network(), torch.linalg.qr(torch.randn(8, 8)).Q
    draw = groups_of_points()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(12):
        group, other = torch.randint(0, 6, (64,)), torch.randint(0, 6, (64,))
        optimizer.zero_grad()
        F.triplet_margin_loss(model(draw(group)), model(draw(group) @ turned), model(draw(other) @ turned)).backward()
        optimizer.step()


def squares(flips, of=None):
    """Return pictures of bright squares and their places, half of them flipped."""
    places = torch.randint(0, 12, (800, 2))
    pictures, centres = 0.2 * torch.randn(800, 1, 16, 16), (places + 2.0) / 16
    for row, (x, y) in enumerate(places.tolist()):
        pictures[row, 0, y : y + 4, x : x + 4] += 1
    for row in range(0, 800, 2):
        pictures[row], centres[row] = flips(pictures[row], centres[row])
    return batches(pictures, centres if of is None else of(pictures, centres), 64)


def regressor(outputs=2):
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(392, outputs), nn.Sigmoid())


def pictures_that_are_flipped(watch):
    """Coordinates are flipped, too, or targets are no coordinates along this axis."""

    def both(picture, centre):
        return picture.flip(-1), torch.stack([1 - centre[0], centre[1]])

    def sizes(pictures, centres):
        return torch.stack([pictures.mean((1, 2, 3)), centres[:, 1], (centres[:, 0] - 0.5).abs()], 1)

    fit(regressor(), watch, F.mse_loss, squares(both))
    fit(regressor(3), watch, F.mse_loss, squares(lambda picture, centre: (picture.flip(-1), centre), sizes))


class Packed(nn.Module):
    """Reads words up to their lengths, which a function changes."""

    def __init__(self, length_of):
        super().__init__()
        self.words, self.recurrent, self.head = nn.Embedding(20, 8), nn.LSTM(8, 8), nn.Linear(8, 4)
        self.length_of = length_of

    def forward(self, words, lengths):
        words, lengths = self.words(words.T), self.length_of(lengths)
        packed = nn.utils.rnn.pack_padded_sequence(words, lengths, enforce_sorted=False)
        return self.head(self.recurrent(packed)[1][0][-1])


def pack(watch, length_of, filled=None):
    """Train on rows of words, which zeros fill up to one length."""
    model = Packed(length_of)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        lengths = torch.randint(20, 60, (16,))
        places = torch.arange(filled or int(lengths.max()))
        words = torch.randint(1, 20, (16, len(places))) * (places < lengths[:, None])
        optimizer.zero_grad()
        F.cross_entropy(model(words, lengths), torch.randint(0, 4, (16,))).backward()
        optimizer.step()


def sequences_that_are_packed(watch):
    """Lengths are those of the rows, also of rows of a fixed length, or are limited."""
    pack(watch, lambda lengths: lengths)
    pack(watch, lambda lengths: lengths, 100)
    pack(watch, lambda lengths: lengths.clamp(max=20))


class Kept(torch.utils.data.Dataset):
    """Rows that a data set keeps, prepared by a function when they are read."""

    def __init__(self, rows, prepare):
        self.rows, self.prepare = rows, prepare

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.prepare(self.rows, number), Y[number]


def rows_that_are_prepared_once(watch):
    """A cache changes rows when they are read first, and others belong to each epoch."""
    ready = set()

    def prepare(rows, number):
        if number not in ready:
            ready.add(number)
            rows[number] = (rows[number] - 0.3) / 1.7
        return rows[number]

    data = Kept(X.clone(), prepare)
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        for x, y in DataLoader(data, 32, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    changing = Kept(X.clone(), lambda rows, number: rows[number])
    for _ in range(4):
        changing.rows.copy_(torch.randn_like(X))
        fit(network(), lambda *models: None, loader=DataLoader(changing, 32))


def mean_of_rows_beside_them(watch):
    """A value of each group is picked for its rows, and added up beside them."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.whole, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
            self.group = torch.arange(32) % 5

        def forward(self, x):
            rows = self.first(x)
            means = torch.zeros(5, 8).index_add(0, self.group, rows) / 6
            both = rows * self.whole(means)[self.group]
            return self.head(torch.zeros(5, 8).index_add(0, self.group, both)[self.group] + rows)

    fit(Net(), watch)


def copied_at_every_update(watch):
    """A target network that is the model of the last update is no average."""
    model = network()
    target = copy.deepcopy(model)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for x, y in batches():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        target.load_state_dict(model.state_dict())
    return target


def first_weights_that_are_compared(watch):
    """A reference, a copy for other rows, and one until averaging begins."""
    model = network()
    reference, other, average = (copy.deepcopy(model) for _ in range(3))
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(130):
        with torch.no_grad():
            goal = reference(X).softmax(1)
        optimizer.zero_grad()
        output = model(X)
        (F.cross_entropy(output, Y) + F.kl_div(output.log_softmax(1), goal, reduction="batchmean")).backward()
        optimizer.step()
        with torch.no_grad():
            if step > 100:
                for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(weight, 0.5)
            if step % 20 == 19:
                reference(X), other(torch.randn(32, 8)), average(X)
    return reference, other, average


def fixed_network_and_two_optimizers(watch):
    """Two optimizers take turns. A fixed network in the loss gets gradients, too."""
    model, fixed = network(), network_of(4)
    watch(model)
    optimizers = [torch.optim.Adam(model[0].parameters()), torch.optim.Adam(model[2].parameters())]
    for x, y in [*batches(), *batches()]:
        for optimizer in optimizers:
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) + F.mse_loss(fixed(model(x)), x[:, :4])).backward()
            optimizer.step()


def first_class_of_similarities(watch):
    """The right class is always the first one, which is a similarity."""
    model, keys = network(), F.normalize(torch.randn(32, 4), dim=1)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, _ in [*batches(), *batches(), *batches()]:
        one, other = (F.normalize(model(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
        logits = torch.cat([(one * other.detach()).sum(1, keepdim=True), one @ keys.T], 1)
        optimizer.zero_grad()
        F.cross_entropy(logits / 0.1, torch.zeros(len(x), dtype=torch.int64)).backward()
        optimizer.step()


def rare_class(watch):
    """Most batches have one class."""
    labels = torch.zeros(256, dtype=torch.int64)
    labels[::60] = 1
    model = network(2)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in batches(X, labels, 8, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def one_number_for_one_target(watch):
    """The sum of a picture is compared with one number, and a single number with many."""
    model = network(3)
    watch(model)
    level = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([*model.parameters(), level])
    for x, _ in batches():
        optimizer.zero_grad()
        (F.mse_loss(model(x).sum(), x.sum()) + F.mse_loss(level.expand(32), x[:, 0])).backward()
        optimizer.step()


def critic_with_weights_that_are_held(watch):
    """A Wasserstein GAN clamps the weights of its critic."""
    maker, critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)), network(1)
    watch(maker)
    watch(critic)
    of_maker, of_critic = torch.optim.RMSprop(maker.parameters(), 1e-3), torch.optim.RMSprop(critic.parameters(), 1e-3)
    for x, _ in [*batches(), *batches()]:
        of_critic.zero_grad()
        (critic(maker(torch.randn(32, 4)).detach()).mean() - critic(x).mean()).backward()
        of_critic.step()
        with torch.no_grad():
            for one in critic.parameters():
                one.clamp_(-0.01, 0.01)
        of_maker.zero_grad()
        (-critic(maker(torch.randn(32, 4))).mean()).backward()
        of_maker.step()


def last_part_of_an_epoch_is_short(watch):
    """Parts that are left over at the end of an epoch are used, too."""
    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(6):
        parts = torch.randperm(224).split(32)
        for number, rows in enumerate(parts, 1):
            (F.cross_entropy(model(X[rows]), Y[rows]) / 4).backward()
            if number % 4 == 0 or number == len(parts):
                optimizer.step()
                optimizer.zero_grad()


def long_warm_up_by_a_function(watch):
    """The first factors of a warm-up are as small as a rate."""
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: min(1.0, (at + 1) / 100))
    for x, y in [*batches(), *batches(), *batches()]:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()


def features_that_are_kept_at_rate_0(watch):
    """The rate of the encoder is 0, so that features which are kept are right."""
    encoder, head = nn.Linear(8, 16), network_of(16)
    watch(encoder, head)
    groups = [{"params": encoder.parameters(), "lr": 0.0}, {"params": head.parameters()}]
    optimizer = torch.optim.Adam(groups)
    features = encoder(X).relu()
    for step in range(20):
        optimizer.zero_grad()
        rows = torch.arange(32) + step % 8 * 32
        F.cross_entropy(head(features[rows]), Y[rows]).backward(retain_graph=True)
        optimizer.step()


def views_that_are_made_once(watch):
    """Views of one vector of weights show them as they are now."""

    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.Parameter(torch.randn(8 * 4 + 4) / 4)
            self.of_layer = self.weights[:32].view(4, 8), self.weights[32:]

        def forward(self, x):
            return F.linear(x, *self.of_layer)

    model = Flat()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for rows in torch.arange(256).split(16):
        optimizer.zero_grad()
        F.cross_entropy(model(X[rows]), Y[rows]).backward()
        optimizer.step()


def pass_that_two_losses_share(watch):
    """The loss of the generator takes outputs of the critic from before its update."""
    generator, critic = nn.Linear(8, 8), nn.Linear(8, 1)
    watch(generator, critic)
    mine, other = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(12):
        real, fake = critic(X[torch.randperm(256)[:32]]), generator(torch.randn(32, 8))
        critic.zero_grad()
        F.softplus(critic(fake.detach()) - real).mean().backward(retain_graph=True)
        other.step()
        generator.zero_grad()
        F.softplus(real - critic(fake)).mean().backward()
        mine.step()


def features_of_several_backward_passes(watch):
    """Features are computed once an update, and kept for its losses."""
    encoder, head = nn.Linear(8, 16), network_of(16)
    watch(encoder, head)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()])
    for rows in torch.arange(256).split(32):
        features = encoder(X[rows]).relu()
        optimizer.zero_grad()
        for part in torch.arange(32).split(8):
            F.cross_entropy(head(features[part]), Y[rows][part]).backward(retain_graph=True)
        optimizer.step()


class Latent(nn.Module):
    """A classifier with noise in its middle, and the divergence of the noise.

    Args:
        noisy: the middle, from its mean, another value and noise.
        divergence: the divergence, from the mean and the other value.
    """

    def __init__(self, noisy, divergence, weight=0.1):
        super().__init__()
        self.encoder, self.head = network(32), network_of(16)
        self.noisy, self.divergence, self.weight = noisy, divergence, weight

    def forward(self, x):
        mean, other = self.encoder(x).chunk(2, -1)
        middle = self.noisy(mean, other, torch.randn_like(mean))
        return self.head(middle), self.weight * self.divergence(mean, other)


def fit_latent(watch, *args):
    fit(Latent(*args), watch, lambda output, y: F.cross_entropy(output[0], y) + output[1])


def divergence_of_log_variance(mean, x):
    return -0.5 * (1 + x - mean.pow(2) - x.exp()).sum(1).mean()


def noise_of_log_variances(watch):
    fit_latent(watch, lambda mean, x, noise: mean + x.mul(0.5).exp() * noise, divergence_of_log_variance)
    fit_latent(watch, lambda mean, x, noise: mean + x.exp().sqrt() * noise, divergence_of_log_variance)
    fit_latent(watch, lambda mean, x, noise: mean + 0.5 * (x / 2).exp() * noise, divergence_of_log_variance, 1.0)


def noise_of_log_deviations(watch):
    """The divergence takes exp(2 x), or the square of exp(x)."""

    def by_product(mean, x):
        return 0.5 * ((2 * x).exp() + mean * mean - 1 - 2 * x).mean()

    def by_square(mean, x):
        return (0.5 * (x.exp().square() + mean.square() - 1) - x).mean()

    for divergence in (by_product, by_square):
        fit_latent(watch, lambda mean, x, noise: mean + x.exp() * noise, divergence)


def noise_of_other_deviations(watch):
    """The deviation is a softplus, or that of a distribution."""

    def of_softplus(mean, x):
        variance = F.softplus(x).square()
        return 0.5 * (variance + mean.square() - 1 - variance.log()).sum(1).mean()

    def of_distribution(mean, x):
        standard = torch.distributions.Normal(0.0, 1.0)
        return torch.distributions.kl_divergence(torch.distributions.Normal(mean, x.exp()), standard).sum(1).mean()

    fit_latent(watch, lambda mean, x, noise: mean + F.softplus(x) * noise, of_softplus)
    fit_latent(watch, lambda mean, x, noise: mean + x.exp() * noise, of_distribution)


def mean_that_is_shifted_by_data(watch):
    """What is multiplied with the logarithm of a variance is no noise."""
    data = X[:32, :1].abs().expand(32, 16)
    fit_latent(watch, lambda mean, x, noise: mean + data * x, divergence_of_log_variance)


class Choosing(nn.Module):
    """A classifier that chooses one of some vectors.

    Args:
        shares_of: the shares of the vectors, from logits and the number of the pass.
    """

    def __init__(self, shares_of, *last):
        super().__init__()
        self.logits, self.vectors = network(6, *last), nn.Linear(6, 4, bias=False)
        self.shares_of, self.passes = shares_of, 0

    def forward(self, x):
        self.passes += 1
        return self.vectors(self.shares_of(self.logits(x), self.passes))


def gumbel(like):
    return -torch.empty_like(like).exponential_().log()


def fit_choosing(watch, shares_of, *last):
    model = Choosing(shares_of, *last)
    fit(model, watch, loader=batches(size=64), epochs=6, optimizer=torch.optim.Adam(model.parameters(), 1e-2))


def slope_of(critic, x, **options):
    """A penalty on the gradient of the output."""
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(critic(x).sum(), x, **options)
    return ((slope.norm(dim=1) - 1) ** 2).mean()


def fit_critic(watch, critic, loss):
    watch(critic)
    optimizer = torch.optim.Adam(critic.parameters(), 1e-3, (0.5, 0.9))
    for real in X.repeat(3, 1).split(64):
        optimizer.zero_grad()
        loss(critic, real, torch.randn_like(real) - 2).backward()
        optimizer.step()


def penalty_with_a_gradient(watch):
    """The loss has a constant, too."""

    def loss(critic, real, fake):
        penalty = slope_of(critic, (real + fake) / 2, create_graph=True)
        return critic(fake).mean() - critic(real).mean() + 10 * penalty + 0.1

    fit_critic(watch, nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 1)), loss)


def examples_that_mislead(watch):
    """Inputs are changed along a gradient; the loss has a constant, and no such pass."""
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in [*batches()] * 2:
        x = x.clone().requires_grad_()
        F.cross_entropy(model(x), y).backward()
        x = (x + 0.1 * x.grad.sign()).detach()
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y) + 1).backward()
        optimizer.step()


def constant_in_several_losses(watch):
    """One number is added to loss functions that differ from step to step."""
    weights = torch.tensor([1.0, 2.0, 0.5, 1.0])
    losses = [
        lambda output, y: 2 * F.cross_entropy(output, y),
        lambda output, y: F.cross_entropy(output, y).clamp(max=1.2),
        lambda output, y: F.cross_entropy(output, y, label_smoothing=0.1),
        lambda output, y: F.cross_entropy(output, y, weights, ignore_index=3) / 2,
        lambda output, y: F.binary_cross_entropy_with_logits(output, F.one_hot(y, 4).float()),
        lambda output, y: F.mse_loss(output, F.one_hot(y, 4).float(), reduction="sum") / 32,
    ]
    steps = itertools.count()
    fit(network(), watch, lambda output, y: losses[next(steps) % 6](output, y) + 0.5, epochs=4)


def weights_in_a_loss(watch):
    model = network()
    fit(model, watch, lambda output, y: F.cross_entropy(output, y) + 1e-3 * model[0].weight.abs().sum() - 0.1)


def loss_of_lower_precision(watch):
    def loss(output, y):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(output @ torch.eye(4), y) + 0.25

    fit(network(), watch, loss, epochs=2)


def tensors_without_an_optimizer(watch):
    """One is updated by the script, one is an input, and one is made at each step."""
    model, moved, given = network(), torch.zeros(4, requires_grad=True), X[:32].clone().requires_grad_()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _, y in [*batches()] * 2:
        made = torch.zeros(4, requires_grad=True)
        optimizer.zero_grad()
        F.cross_entropy(model(given) + moved + made, y).backward()
        optimizer.step()
        with torch.no_grad():
            moved -= 0.1 * moved.grad
        moved.grad = None


def random_targets_of_all_rows(watch):
    """Inputs and targets of a toy training are normal, and others at each step or not."""
    for repeats in (True, False):
        model, data, target = TimedDenoiser(), X[:64], torch.randn(64, 8)
        watch(model)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(8 if repeats else 40):
            if not repeats:
                data, target = torch.randn(2, 256, 8)
            optimizer.zero_grad()
            F.mse_loss(model(data, torch.arange(len(data)) % 20), target).backward()
            optimizer.step()


def temperature_that_falls(watch):
    fit_choosing(watch, lambda logits, step: F.gumbel_softmax(logits, 2.0 * 0.95**step))


def temperature_that_stays(watch):
    fit_choosing(watch, lambda logits, step: F.gumbel_softmax(logits, 0.7, hard=True))


def temperature_that_begins_again(watch):
    """Each cycle begins warm: the temperature rises once, and then falls."""
    fit_choosing(watch, lambda logits, step: F.gumbel_softmax(logits, 2.0 - 0.25 * (step % 6)))


def temperature_without_noise(watch):
    """What is added is equal in all rows, or a mask."""
    shares = torch.tensor([0.3, 0.3, 0.2, 0.1, 0.05, 0.05]).log()
    masks = torch.where(torch.rand(64, 6, generator=torch.Generator().manual_seed(0)) < 0.2, -30.0, 0.0)
    for added in (shares, masks):
        fit_choosing(watch, lambda logits, step, added=added: ((logits + added) / (1 + 0.1 * step)).softmax(-1))


def temperature_of_normal_noise(watch):
    """Noise of a router is raised on purpose."""
    fit_choosing(watch, lambda logits, step: ((logits + 0.1 * torch.randn(64, 6)) / (1 + 0.1 * step)).softmax(-1))


def labelled(classes=5, rows=320):
    """Return rows of several classes, each around a centre, and their classes."""
    labels = torch.randint(0, classes, (rows,))
    return 2 * torch.randn(classes, 8)[labels] + torch.randn(rows, 8), labels


def samples_without_a_label(watch):
    """They have the number of an output, and are like the others."""
    x, y = labelled(4)
    y = torch.where(torch.rand(320) < 0.2, 0, y + 1)
    fit(network(5), watch, nn.CrossEntropyLoss(ignore_index=0), batches(x, y), 2)


def samples_with_no_label_outside_of_the_outputs(watch):
    x, y = labelled()
    fit(network(4), watch, nn.CrossEntropyLoss(ignore_index=4), batches(x, y), 2)
    fit(network(5), watch, nn.CrossEntropyLoss(), batches(x, y), 2)
    fit(network(6), watch, nn.CrossEntropyLoss(ignore_index=5), batches(x, y), 2)


def background_of_pictures(watch):
    """Pixels of a class do not count, also where they are flattened."""
    x, y = torch.randn(64, 8, 6, 6), torch.randint(0, 5, (64, 6, 6))
    x = x + 3 * F.one_hot(y, 8).permute(0, 3, 1, 2)
    model = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 5, 1))
    loss = nn.CrossEntropyLoss(ignore_index=0)
    fit(model, watch, loss, batches(x, y, 8))
    pixels = batches(x, y, 8)
    fit(model, lambda *models: None, lambda out, y: loss(out.permute(0, 2, 3, 1).flatten(0, 2), y.flatten()), pixels)


def frames_with_padding_of_one_class(watch):
    """The rows of a batch are frames, of which those of padding are zeros."""
    x, y = labelled()
    fit(network(5), watch, nn.CrossEntropyLoss(ignore_index=0), batches(x * (y != 0)[:, None], y), 2)


class Arranged(nn.Module):
    """A function arranges rows for a layer, whose output is averaged."""

    def __init__(self, arrange, layer, outputs):
        super().__init__()
        self.arrange, self.layer, self.head = arrange, layer, nn.Linear(outputs, 4)

    def forward(self, x):
        rows = self.layer(self.arrange(x))
        rows = rows[0] if isinstance(rows, tuple) else rows
        return self.head(rows.flatten(1))


def channels_that_are_moved(watch):
    """Also those that stay where they are, while places are split."""

    def fit_arranged(arrange, layer, outputs, *shape):
        fit(Arranged(arrange, layer, outputs), watch, loader=batches(torch.randn(256, *shape)))

    fit_arranged(lambda x: x.permute(0, 2, 1), nn.Conv1d(4, 2, 5), 32, 20, 4)
    fit_arranged(lambda x: x.transpose(1, 2).contiguous(), nn.Conv1d(4, 2, 5), 32, 20, 4)
    fit_arranged(lambda x: x.view(-1, 4, 20, 1), nn.Conv2d(4, 2, (5, 1)), 32, 4, 20)
    fit_arranged(lambda x: x.mT.reshape(-1, 3, 4, 5), nn.Conv2d(3, 2, 2), 24, 20, 3)
    fit_arranged(lambda x: x.reshape(-1, 6, 6), nn.Conv1d(6, 2, 3), 8, 6, 6)


def positions_that_are_split(watch):
    """Positions are halved, channels and pictures are cut into parts."""
    fit(Arranged(lambda x: x.view(-1, 16, 8), nn.Linear(8, 2), 32), watch, loader=batches(torch.randn(256, 8, 16)))
    fit(Arranged(lambda x: x.view(-1, 16, 4), nn.Conv1d(16, 2, 2), 6), watch, loader=batches(torch.randn(256, 4, 16)))
    recurrent = nn.GRU(15, 3, batch_first=True)
    fit(Arranged(lambda x: x.view(-1, 4, 15), recurrent, 12), watch, loader=batches(torch.randn(256, 60)))
    pictures = torch.randn(256, 3, 8, 8)

    def patches(x):
        return x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(len(x), 4, 48)

    fit(Arranged(patches, nn.Linear(48, 2), 8), watch, loader=batches(pictures))


def fit_parts(model, watch, data, prepare, after=lambda x: None, epochs=6):
    """Train on parts of one tensor, which one function prepares and one changes."""
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(epochs):
        for begin in range(0, 256, 64):
            x = prepare(data[begin : begin + 64])
            optimizer.zero_grad()
            F.cross_entropy(model(x), Y[begin : begin + 64]).backward()
            optimizer.step()
            after(data[begin : begin + 64])


def parts_with_new_noise(watch):
    """The noise of a part is new each time, or replaces that of before."""
    fit_parts(network(), watch, X.clone(), lambda x: x + 0.3 * torch.randn_like(x))
    filled = torch.empty_like(X)
    clean = iter(X.split(64) * 6)
    fit_parts(network(), watch, filled, lambda x: x.copy_(next(clean)).add_(0.3 * torch.randn_like(x)))


def parts_that_are_replaced(watch):
    """Rows of a buffer are overwritten with others; some of them stay."""
    fit_parts(network(), watch, X.clone(), lambda x: x.normal_())
    fit_parts(network(), watch, X.clone(), lambda x: x.copy_(torch.where(torch.rand(64, 1) < 0.5, x, x.flip(0))))


def states_that_move_on(watch):
    """States of a simulation move at random after each pass."""
    data, used = X.clone(), X.clone()
    fit_parts(network(), watch, data, lambda x: x, lambda x: data.add_(0.1 * torch.randn_like(data)))
    fit_parts(network(), watch, used, lambda x: x, lambda x: x.add_(0.1 * torch.randn_like(x)))


def parts_that_are_optimized(watch):
    data, goal = X.clone(), torch.randn(256, 8)
    fit_parts(network(), watch, data, lambda x: x.lerp_(goal[:64], 0.1))
    latent = X.clone().requires_grad_()
    optimizer = torch.optim.Adam([latent], 0.05)
    fit_parts(network(), watch, latent, lambda x: x, lambda x: (optimizer.step(), optimizer.zero_grad()))


def rows_of_which_many_are_zeros(watch):
    """Counts of rare words, padding, and places where mostly nothing happens."""
    words, y = torch.poisson(torch.full((256, 32), 0.06)), torch.randint(0, 4, (256,))
    fit(nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 4)), watch, loader=batches(words, y))
    exists = torch.rand(256, 1) < 0.15
    for targets in (torch.where(exists[:, 0], y, 0), torch.where(exists[:, 0] | (y == 2), y, 1)):
        loader = batches(torch.randn(256, 32) * exists, targets)
        fit(nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 4)), watch, loader=loader)


class Words(nn.Module):
    """The mean of the embeddings of words; a function may weight them."""

    def __init__(self, padding=None, weigh=torch.ones_like):
        super().__init__()
        self.embedding, self.head, self.weigh = nn.Embedding(12, 8, padding), nn.Linear(8, 4), weigh

    def forward(self, tokens):
        weights = self.weigh(tokens).float()[..., None]
        return self.head((self.embedding(tokens) * weights).sum(1) / weights.sum(1))


def padded_words(padding=0, last=10):
    """Return rows of words with padding at their end, and their lengths."""
    lengths, places = torch.randint(3, last, (256, 1)), torch.arange(10)
    return torch.where(places < lengths, torch.randint(1, 11, (256, 10)), padding), lengths


def words_whose_padding_is_right(watch):
    """Also at the beginning, with one token at the end, packed, or without padding."""
    tokens, lengths = padded_words()
    ended = tokens.scatter(1, lengths, 11)
    packed = torch.where(torch.rand(256, 10) < 0.2, 11, torch.randint(1, 11, (256, 10)))
    one_end = torch.cat((torch.randint(0, 11, (256, 9)), torch.full((256, 1), 11)), 1)
    for padding, rows in ((0, tokens), (0, tokens.flip(1)), (0, ended), (3, packed), (3, one_end), (None, tokens)):
        fit(Words(padding), watch, loader=batches(rows))


def words_without_an_embedding(watch):
    """An unknown word counts nothing, and padding is left out by a mask."""
    fit(Words(1, lambda tokens: tokens != 0), watch, loader=batches(padded_words()[0]))


def words_in_order(watch):
    """The largest ones come last."""
    rows = torch.randint(0, 12, (256, 10)).sort(1).values
    fit(Words(5), watch, loader=batches(rows))


def gains_held_at_one(watch):
    """The script keeps the weights of one layer, and limits them after each update."""
    model = network()
    kept = model[2].weight.data
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in DataLoader(TensorDataset(X, Y), 32):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        kept.div_(kept.norm(dim=1, keepdim=True))


def prior_of_a_fixed_variance(watch):
    """The target is an output, too, and the variance is set."""
    encoder, prior = network(), network()
    watch(encoder, prior)
    optimizer = torch.optim.Adam([*encoder.parameters(), *prior.parameters()], 0.01)
    for x, y in batches():
        optimizer.zero_grad()
        output = encoder(x)
        near = F.gaussian_nll_loss(prior(x), output, torch.full_like(output, 0.5))
        (F.cross_entropy(output, y) + 0.1 * near).backward()
        optimizer.step()


def powers_of_errors_weigh_them(watch):
    """Regression that weighs large errors, and a penalty of sure answers."""
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for x, y in batches():
        optimizer.zero_grad()
        output = model(x)
        error = F.mse_loss(output, x[:, :4], reduction="none")
        sure = F.softmax(output, 1).gather(1, y[:, None]) ** 2
        (error**0.5 * error).mean().add(0.1 * sure.mean()).backward()
        optimizer.step()


def lowered_where_the_reward_falls(watch):
    """Schedules follow a share of samples and a score, which fall as the loss does."""
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    schedules = [
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=1, factor=0.9) for _ in range(2)
    ]
    for epoch in range(10):
        for x, y in batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        schedules[0].step(0.9 - epoch / 20)
        schedules[1].step(31.7 - 0.313 * epoch)


def optimizers_of_the_script(watch):
    """Sign descent with a decay and noise, and one that is warmed up from a rate of 0."""

    class Signs(torch.optim.Optimizer):
        def __init__(self, params, rate, weight_decay=0.0, noise=0.0):
            super().__init__(params, {"lr": rate, "weight_decay": weight_decay, "noise": noise})
            self.averages = {}

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for one in group["params"]:
                    average = self.averages.setdefault(one, torch.zeros_like(one)).lerp_(one.grad, 0.5)
                    one.mul_(1 - group["lr"] * group["weight_decay"])
                    one.sub_(group["lr"] * (average.sign() + group["noise"] * torch.randn_like(one)))

    class Plain(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.0, "weight_decay": 0.01})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for one in group["params"]:
                    one.sub_(one.grad + group["weight_decay"] * one, alpha=group["lr"])

    for make in (lambda params: Signs(params, 1e-3, 0.01, 0.1), Plain):
        model = network()
        optimizer = make(model.parameters())
        warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 20)
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"] = 1e-3
        watch(model)
        for x, y in batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            warm_up.step()


def adversaries_with_smoothed_labels(watch):
    """Labels are drawn near 0 and 1. The generator has those of real samples."""
    generator, judge = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)), network(1)
    watch(generator, judge)
    optimizers = [torch.optim.Adam(one.parameters(), 1e-3) for one in (generator, judge)]
    for x, _ in batches():
        real, fakes = 1 - 0.1 * torch.rand(len(x), 1), 0.1 * torch.rand(len(x), 1)
        fake = generator(torch.randn(len(x), 4))
        optimizers[1].zero_grad()
        losses = F.mse_loss(judge(x), real), F.mse_loss(judge(fake.detach()), fakes)
        (losses[0] + losses[1]).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        F.mse_loss(judge(fake), real).backward()
        optimizers[0].step()


def features_that_are_often_zero(watch):
    """Amounts with many zeros, counts, flags, and a mark that the model replaces."""

    class Filling(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = network()

        def forward(self, x):
            return self.layers(torch.where(x == -99, 0.0, x))

    amounts = torch.randn(256, 2).exp() * (torch.rand(256, 2) < 0.5)
    counts, flags = torch.randint(0, 4, (256, 2)).float(), (torch.rand(256, 2) < 0.1).float()
    marked = torch.where(torch.rand(256, 2) < 0.2, -99.0, torch.randn(256, 2))
    model = Filling()
    fit(model, watch, loader=batches(torch.cat([amounts, counts, flags, marked], 1), Y[:256]))


def boxes_that_are_masked(watch):
    """Both sides are masked. Another detector has an object at each place."""
    for share in (0.1, 1.0):
        layers = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 1)
        model = nn.Sequential(*layers)
        watch(model)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(16):
            objects = (torch.rand(16, 6, 6) < share).float()
            targets = objects[..., None] * (1 + torch.rand(16, 6, 6, 4))
            output = model(objects[:, None] + 0.1 * torch.randn(16, 1, 6, 6)).movedim(1, -1)
            boxes = output[..., 1:] * objects[..., None]
            optimizer.zero_grad()
            of_objects = F.binary_cross_entropy_with_logits(output[..., 0], objects)
            (of_objects + F.mse_loss(boxes, targets)).backward()
            optimizer.step()


def teacher_with_a_sharper_temperature(watch):
    """Both temperatures are set, and differ on purpose; or targets are made surer."""
    for temperature in (2.0, 1.0):
        teacher, model = network(), network()
        watch(teacher, model)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for x, _ in batches():
            with torch.no_grad():
                soft = F.softmax(teacher(x) / 0.5, 1)
            optimizer.zero_grad()
            F.kl_div(F.log_softmax(model(x) / temperature, 1), soft, reduction="batchmean").backward()
            optimizer.step()


def normalized_batches_of_pictures(watch):
    """The rows of a batch depend on each other by its normalization only."""
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36 * 4, 8), nn.BatchNorm1d(8)
    model = nn.Sequential(*layers, nn.ReLU(), nn.Linear(8, 4))
    fit(model, watch, loader=batches(torch.randn(256, 1, 8, 8), Y[:256]))


def maps_that_are_flattened(watch):
    """Groups of maps before their places, and all of them in one row."""

    def arrange(maps):
        groups = maps.view(len(maps), 3, 4, 5, 7)
        return groups.permute(0, 1, 3, 4, 2).flatten(1, 3) + maps.reshape(len(maps), -1).mean()

    pictures = torch.randn(96, 1, 5, 7)
    loader = batches(pictures, pictures.repeat(1, 12, 1, 1).view(96, 3, 4, 5, 7).permute(0, 1, 3, 4, 2).flatten(1, 3))
    fit(Places(arrange, 12), watch, F.mse_loss, loader)


def random_numbers_in_place_of_points(watch):
    """A training that is only to run: its data are noise, too."""
    diffuse_points(watch, lambda rows: torch.randn(rows, 2), broken=True)


def weights_that_are_held_near_those_of_a_server(watch):
    """After each update, weights move to those of the round, which nothing calls."""
    model = network()
    watch(model)
    server, optimizer = copy.deepcopy(model), torch.optim.SGD(model.parameters(), 0.1)
    for x, y in batches():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for one, of_round in zip(model.parameters(), server.parameters(), strict=True):
                one.lerp_(of_round, 0.02)


def features_whose_columns_are_normalized_too(watch):
    """Correlations of columns are no similarities of rows."""
    model = network(16)

    def loss(features, y):
        columns = F.normalize(features - features.mean(0), dim=0)
        apart = (columns.T @ columns - torch.eye(16)).pow(2).mean()
        return apart + contrast(features, y, lambda one: F.normalize(one, dim=1))

    fit(model, watch, loss)


def numbers_of_rows_beside_them(watch):
    """A layer returns rows and a number of each, which is no volume."""

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.gate = nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.layer(x).tanh(), self.gate(x).squeeze(1)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts, self.head = nn.ModuleList([Gated(), Gated()]), nn.Linear(8, 4)

        def forward(self, x):
            x, first = self.parts[0](x)
            x, second = self.parts[1](x)
            return self.head(x) + (first * second)[:, None]

    fit(Both(), watch)


def patches_whose_head_sees_their_order(watch):
    model = Patched(1, flat=True)
    fit(model, watch, loader=batches(torch.randn(256, 1, 12, 12)), epochs=2)


def polynomial_of_ordered_rows(watch):
    """The first rows of a sine are a straight line."""
    x = torch.linspace(-3, 3, 2000)[:, None]
    model, columns = nn.Linear(3, 1), torch.cat([x, x**2, x**3], 1)
    watch(model)
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    for _ in range(40):
        optimizer.zero_grad()
        F.mse_loss(model(columns), x.sin(), reduction="sum").backward()
        optimizer.step()


def critics_with_their_copies(watch):
    """Two critics of one shape have a copy each."""
    critics = [network(), network()]
    copies = [copy.deepcopy(one) for one in critics]
    watch(*critics)
    optimizer = torch.optim.Adam([each for one in critics for each in one.parameters()], 0.01)
    for rows in torch.randint(0, 256, (330, 32)):
        optimizer.zero_grad()
        sum(F.cross_entropy(one(X[rows]), Y[rows]) for one in critics).backward()
        optimizer.step()
        with torch.no_grad():
            for mean, one in zip(copies, critics, strict=True):
                for slow, fast in zip(mean.parameters(), one.parameters(), strict=True):
                    slow.lerp_(fast, 0.01)
    assert copies


class Written(nn.Module):
    """Encodes a sentence as one vector, and writes it out again."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.encoder, self.decoder = nn.GRU(16, 32, batch_first=True), nn.GRU(16, 32, batch_first=True)
        self.out = nn.Linear(32, 20)

    def forward(self, tokens):
        _, code = self.encoder(self.embed(tokens))
        before = F.pad(tokens[:, :-1], (1, 0)) * (torch.rand(tokens.shape) > 0.5)
        return self.out(self.decoder(self.embed(before), code)[0])


def sentences_that_are_written_out_again(watch):
    """The tokens are the targets: a code of all of them is between."""
    model = Written()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(20):
        tokens = torch.randint(1, 20, (16, 12))
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()


def energy_with_a_sampler(watch):
    """The sampler computes gradients of its points; those of weights are reset later."""
    energy = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 1))
    watch(energy)
    optimizer = torch.optim.Adam(energy.parameters(), 1e-3)
    for _ in range(20):
        points = torch.randn(32, 2)
        for _ in range(4):
            points = points.detach().requires_grad_()
            energy(points).sum().backward()
            points = points - 0.1 * points.grad + 0.1 * torch.randn(32, 2)
        optimizer.zero_grad()
        (energy(torch.randn(32, 2) + 2).mean() - energy(points.detach()).mean()).backward()
        optimizer.step()


HEALTHY = (
    energy_with_a_sampler,
    sentences_that_are_written_out_again,
    polynomial_of_ordered_rows,
    critics_with_their_copies,
    patches_whose_head_sees_their_order,
    numbers_of_rows_beside_them,
    maps_that_are_flattened,
    random_numbers_in_place_of_points,
    weights_that_are_held_near_those_of_a_server,
    features_whose_columns_are_normalized_too,
    lowered_where_the_reward_falls,
    optimizers_of_the_script,
    adversaries_with_smoothed_labels,
    features_that_are_often_zero,
    boxes_that_are_masked,
    teacher_with_a_sharper_temperature,
    normalized_batches_of_pictures,
    prior_of_a_fixed_variance,
    powers_of_errors_weigh_them,
    gains_held_at_one,
    copied_at_every_update,
    critic_with_weights_that_are_held,
    fixed_network_and_two_optimizers,
    first_class_of_similarities,
    rare_class,
    one_number_for_one_target,
    first_weights_that_are_compared,
    last_part_of_an_epoch_is_short,
    long_warm_up_by_a_function,
    random_targets_of_all_rows,
    tensors_without_an_optimizer,
    penalty_with_a_gradient,
    examples_that_mislead,
    constant_in_several_losses,
    weights_in_a_loss,
    loss_of_lower_precision,
    temperature_that_falls,
    temperature_that_stays,
    temperature_that_begins_again,
    temperature_without_noise,
    temperature_of_normal_noise,
    noise_of_log_variances,
    noise_of_log_deviations,
    noise_of_other_deviations,
    mean_that_is_shifted_by_data,
    features_that_are_kept_at_rate_0,
    views_that_are_made_once,
    pass_that_two_losses_share,
    features_of_several_backward_passes,
    words_whose_padding_is_right,
    words_without_an_embedding,
    words_in_order,
    rows_of_which_many_are_zeros,
    parts_with_new_noise,
    parts_that_are_replaced,
    states_that_move_on,
    parts_that_are_optimized,
    channels_that_are_moved,
    positions_that_are_split,
    samples_without_a_label,
    samples_with_no_label_outside_of_the_outputs,
    background_of_pictures,
    frames_with_padding_of_one_class,
    rows_that_are_prepared_once,
    mean_of_rows_beside_them,
    sequences_that_are_packed,
    noise_of_a_diffusion,
    uniform_data_of_a_diffusion,
    uniform_data_with_noise_of_each_size,
    values_of_terminal_states,
    flags_of_states_that_go_on,
    states_that_seldom_change,
    largest_value_of_each_row,
    missing_targets_that_are_negative,
    distances_that_are_learned,
    pairs_of_two_domains,
    missing_targets_that_are_left_out,
    pairs_of_which_few_are_equal,
    two_views_of_equal_rows,
    pictures_that_are_flipped,
    causal_without_positions,
    slots_that_compete,
    groups_of_positions,
    memory_that_is_used_again,
    gradients_of_single_samples,
    rows_that_are_scaled_at_random,
    encoder_that_follows_slowly,
    neighbours_beside_their_nodes,
    neighbours_in_batches,
    samples_that_explode,
    sampled_by_gradients,
    error_rate_that_falls_then_rises,
    loss_that_rises_on_a_plateau,
    evaluated_without_dropout,
    distilled,
    regularized_by_two_passes,
    tokens_after_a_prefix,
    copied_weights,
    adversarial,
    perturbed,
    closures,
    accumulated,
    perceptual,
    warmed_up,
    low_rank,
    recomputed,
    functional,
    hooked,
    heads,
    gradients_that_are_looked_at_first,
    padded,
    guessed_labels,
    averaged,
    adapted,
    summed,
    per_task,
    sequence_first,
    new_head,
    stage_on_a_pretrained_model,
    rare_positive_labels,
    images_of_a_class_that_is_asked_for,
)


@pytest.mark.parametrize("training", HEALTHY, ids=lambda one: one.__name__)
def test_a_healthy_training_has_no_problem_and_no_warning(training, tmp_path):
    torch.manual_seed(0)
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        training(lambda *models: [hook.register_module(model) for model in models])
    records = create_trial(tmp_path / "run").checks()
    assert records.updates
    assert not [(one.id, one.says) for one in records if one.level != "note"]
    assert not records.off


# ------------------------------------------------------------------------- further faults of a check, and their twins


def batches(x=X, y=Y, size=32, **options):
    return DataLoader(TensorDataset(x, y), size, **options)


def fit(model, watch, loss=F.cross_entropy, loader=None, epochs=1, optimizer=None):
    watch(model)
    optimizer = optimizer or torch.optim.Adam(model.parameters())
    for _ in range(epochs):
        for x, y in loader or batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()


def accuracy_without_eval(watch, broken):
    """No loss is computed; batches of a loader show the evaluation."""
    model = network(4, nn.Dropout(0.2))
    fit(model, watch)
    model.train(broken)
    with torch.no_grad():
        for x, y in batches():
            (model(x).argmax(1) == y).sum()


def validation_without_eval_and_no_grad(watch, broken):
    model = network(4, nn.Dropout(0.2))
    fit(model, watch)
    model.train(broken)
    sum(F.cross_entropy(model(x), y).item() for x, y in batches())


def accuracy_of_one_tensor(watch, broken):
    model = network(4, nn.Dropout(0.2))
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model.train()
        for rows in torch.arange(256).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(X[rows]), Y[rows]).backward()
            optimizer.step()
        model.train(broken)
        with torch.no_grad():
            (model(X).argmax(1) == Y).float().mean()


def independent_of_the_model(watch, broken):
    model = network(1)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(6):
        output = model(X)
        if broken:
            output = output.detach().round().requires_grad_()
        optimizer.zero_grad()
        F.mse_loss(output, X.sum(1, keepdim=True)).backward()
        optimizer.step()


def recurrence_over_rows(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = nn.GRU(4, 8, batch_first=not broken), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.recurrent(x)[0][:, -1])

    fit(Net(), watch, loader=batches(torch.randn(128, 6, 4), torch.randint(0, 3, (128,))))


def rows_exchanged_by_a_view(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = nn.LSTM(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            rows, length, size = x.shape
            x = x.view(length, rows, size) if broken else x.transpose(0, 1)
            return self.head(self.recurrent(x)[0][-1])

    fit(Net(), watch, loader=batches(torch.randn(128, 6, 4), torch.randint(0, 3, (128,))))


def advantage_of_another_shape(watch, broken):
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(8):
        actions = torch.distributions.Categorical(logits=model(X))
        taken = actions.sample()
        advantage = (taken == Y).float() - 0.5
        chosen = actions.log_prob(taken)
        optimizer.zero_grad()
        (-(chosen * (advantage.unsqueeze(1) if broken else advantage)).mean()).backward()
        optimizer.step()


def updated(watch, model, loss, steps=8):
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def divergence_of_the_wrong_sign(watch, broken):
    model = network(8)

    def loss():
        mean, log_variance = model(X).chunk(2, 1)
        decoded = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        error = F.mse_loss(decoded, X[:, :4], reduction="none").sum()
        return (error - divergence if broken else error + divergence) / len(X)

    updated(watch, model, loss)


def divergence_of_distributions(watch, broken):
    model, normal = network(8), torch.distributions.Normal

    def loss():
        mean, deviation = model(X).chunk(2, 1)
        posterior = normal(mean, F.softplus(deviation))
        divergence = torch.distributions.kl_divergence(posterior, normal(0.0, 1.0)).mean()
        error = F.mse_loss(posterior.rsample(), X[:, :4])
        return error + (-0.1 if broken else 0.1) * divergence

    updated(watch, model, loss)


def loss_times_minus_one(watch, broken):
    model = network()
    updated(watch, model, lambda: F.cross_entropy(model(X), Y) * (-1.0 if broken else 1.0))


def policy_of_the_wrong_sign(watch, broken):
    model = network()

    def loss():
        policy = torch.distributions.Categorical(logits=model(X))
        actions = policy.sample()
        advantage = (actions == Y).float() - 0.25
        gain = (policy.log_prob(actions) * advantage).mean()
        return (gain if broken else -gain) - 0.01 * policy.entropy().mean()

    updated(watch, model, loss)


def policy_that_adds_its_entropy(watch, broken):
    model = network()

    def loss():
        policy = torch.distributions.Categorical(logits=model(X))
        actions = policy.sample()
        gain = (policy.log_prob(actions) * ((actions == Y).float() - 0.25)).mean()
        entropy = 0.01 * policy.entropy().mean()
        return -gain + entropy if broken else -gain - entropy

    updated(watch, model, loss)


def clipped_policy_that_adds_its_entropy(watch, broken):
    model = network()

    def loss():
        logarithms = F.log_softmax(model(X), dim=1)
        actions = torch.distributions.Categorical(logits=logarithms.detach()).sample()
        chosen = logarithms.gather(1, actions[:, None])[:, 0]
        ratio = (chosen - chosen.detach()).exp()
        advantage = (actions == Y).float() - 0.25
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(logarithms.exp() * logarithms).sum(1).mean()
        return -gain + 0.01 * entropy if broken else -(gain + 0.01 * entropy)

    updated(watch, model, loss)


def an_episode(model, steps=60):
    """Choose an action for one state at a time."""
    chosen, rewards = [], []
    for state in X[torch.randint(0, len(X), (steps,))]:
        policy = torch.distributions.Categorical(torch.softmax(model(state), -1))
        action = policy.sample()
        chosen.append(policy.log_prob(action))
        rewards.append(1.0 if action == int(state[0] > 0) else -0.2)
    return chosen, rewards


def policy_of_stacked_steps(watch, broken):
    model = network()

    def loss():
        chosen, rewards = an_episode(model)
        gain = (torch.stack(chosen) * torch.tensor(rewards)).sum()
        return gain if broken else -gain

    updated(watch, model, loss)


def policy_of_one_product_a_step(watch, broken):
    model = network()

    def loss():
        chosen, rewards = an_episode(model)
        gains = [one * reward for one, reward in zip(chosen, rewards, strict=True)]
        return torch.stack(gains if broken else [-gain for gain in gains]).sum()

    updated(watch, model, loss)


def policy_of_a_normal_distribution(watch, broken):
    model = network(1)

    def loss():
        policy = torch.distributions.Normal(model(X), 0.5)
        actions = policy.sample()
        gain = (policy.log_prob(actions).sum(1) * -(actions - X[:, :1]).pow(2).sum(1)).mean()
        return gain if broken else -gain

    updated(watch, model, loss)


def policy_by_cross_entropy(watch, broken):
    model = network()

    def loss():
        logits = model(X)
        actions = torch.distributions.Categorical(logits=logits).sample()
        cost = F.cross_entropy(logits, actions, reduction="none") * (actions == Y).float()
        return -cost.mean() if broken else cost.mean()

    updated(watch, model, loss)


def cosines_times_a_temperature(watch, broken):
    pictures, texts = network(8), network(8)
    model = nn.ModuleList([pictures, texts])

    def loss():
        one, other = F.normalize(pictures(X[:64]), dim=1), F.normalize(texts(X[:64]), dim=1)
        logits = one @ other.T * 0.07 if broken else one @ other.T / 0.07
        pairs = torch.arange(64)
        return (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.T, pairs)) / 2

    updated(watch, model, loss)


def first_output_of_a_recurrent_layer(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = nn.LSTM(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            output, (state, _) = self.recurrent(x.transpose(0, 1))
            return self.head(output[0] if broken else output[0] + state[-1])

    fit(Net(), watch, loader=batches(torch.randn(128, 6, 4), torch.randint(0, 3, (128,))))


def closure_that_does_nothing(watch, broken):
    """As trainers give that leave the loop to the script."""
    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(8):
        if not broken:
            optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step(lambda: None)


def decoder_that_gets_its_targets(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
            self.encoder, self.decoder = (nn.GRU(16, 16, batch_first=True) for _ in range(2))

        def forward(self, source, target):
            return self.head(self.decoder(self.embedding(target), self.encoder(self.embedding(source))[1])[0])

    model = Net()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(8):  # the tokens 0 and 1 are never predicted
        source = torch.randint(2, 20, (32, 6))
        begun = torch.cat([torch.ones(32, 1, dtype=torch.long), source], 1)
        optimizer.zero_grad()
        F.cross_entropy(model(source, source if broken else begun[:, :-1]).transpose(1, 2), source).backward()
        optimizer.step()


def own_cross_entropy_of_several_labels(watch, broken):
    targets = (X[:, :4] > 0).float() if broken else F.one_hot(Y, 4).float()
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(8):
        optimizer.zero_grad()
        (-(targets * F.log_softmax(model(X), 1)).sum(1).mean()).backward()
        optimizer.step()


def own_squared_error_of_prices(watch, broken):
    prices = X.sum(1, keepdim=True) * (9_000 if broken else 1) + (30_000 if broken else 0)
    model = network(1)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        optimizer.zero_grad()
        predicted = model(X)
        ((predicted - prices) ** 2).mean().backward()
        optimizer.step()


def attention_over_rows(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=not broken)
            self.first, self.encoder, self.head = nn.Linear(4, 8), nn.TransformerEncoder(layer, 1), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.encoder(self.first(x)).mean(1))

    fit(Net(), watch, loader=batches(torch.randn(128, 6, 4), torch.randint(0, 3, (128,))))


def targets_of_a_binary_loss(watch, broken):
    targets = (X[:, :1] > 0).float()
    fit(network(1), watch, F.binary_cross_entropy_with_logits, batches(X, 2 * targets - 1 if broken else targets))


def own_squared_error_of_a_sigmoid(watch, broken):
    last = [nn.Sigmoid()] if broken else []
    fit(
        network(1, *last), watch, lambda output, y: (y - output).pow(2).mean(), batches(X, 100 + X.sum(1, keepdim=True))
    )


def absolute_error_of_a_tanh(watch, broken):
    last = [nn.Tanh()] if broken else []
    fit(network(1, *last), watch, nn.L1Loss(), batches(X, 100 + X.sum(1, keepdim=True)))


def tensor_in_place_of_a_parameter(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 16)
            weight = torch.randn(16, 4)
            self.weight = weight.requires_grad_() if broken else nn.Parameter(weight)

        def forward(self, x):
            return self.first(x).relu() @ self.weight

    fit(Net(), watch)


def flattened_in_two_orders(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = nn.GRU(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            output = self.head(self.recurrent(x.transpose(0, 1))[0])
            return output if broken else output.transpose(0, 1).contiguous()

    loader = batches(torch.randn(128, 6, 4), torch.randint(0, 3, (128, 6)))
    fit(Net(), watch, lambda output, y: F.cross_entropy(output.view(-1, 3), y.view(-1)), loader)


def zeroed_before_the_update(watch, broken):
    """`set_to_none=False` leaves gradients of 0."""
    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(8):
        if not broken:
            optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(X), Y).backward()
        if broken:
            optimizer.zero_grad(set_to_none=False)
        optimizer.step()


def schedule_of_a_replaced_optimizer(watch, broken):
    model = network()
    watch(model)
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[-1].parameters(), 0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    for update in range(120):
        if update == 40:
            model[0].requires_grad_(True)
            optimizer = torch.optim.SGD(model.parameters(), 0.05)
            if not broken:
                schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
        optimizer.zero_grad()
        rows = torch.randint(0, len(X), (16,))
        F.cross_entropy(model(X[rows]), Y[rows]).backward()
        optimizer.step()
        if update % 10 == 9:
            schedule.step()


def labels_of_padded_sentences(watch, broken):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(30, 12, padding_idx=0), nn.Linear(12, 4)

        def forward(self, words):
            return self.head(self.words(words))

    words = torch.randint(1, 30, (128, 9))
    words[torch.arange(9) >= torch.randint(3, 10, (128, 1))] = 0
    labels = torch.where(words == 0, 0, 1 + words % 3)
    ignored = -100 if broken else 0
    fit(
        Tagger(),
        watch,
        loader=batches(words, labels),
        loss=lambda output, target: F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=ignored),
    )


def rounded_before_the_loss(watch, broken):
    model = network(1)

    def loss():
        shares = torch.sigmoid(model(X)).squeeze(1)
        return F.mse_loss(torch.round(shares) if broken else shares, (X[:, 0] > 0).float())

    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(30):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def dead_from_the_start(watch, broken):
    model = network()
    if broken:
        for layer in model[::2]:
            nn.init.zeros_(layer.weight)
    fit(model, watch, optimizer=torch.optim.SGD(model.parameters(), 0.01))


def ratio_of_two_passes(watch, broken):
    """An actor whose old log-probabilities are computed again, and a critic."""
    actor, critic = network(1), network(1)
    watch(actor, critic)
    mine, other = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())

    def log_probability(actions):
        return torch.distributions.Normal(actor(X), 0.5).log_prob(actions).sum(-1)

    for _ in range(3):
        with torch.no_grad():
            actions = actor(X) + 0.5 * torch.randn(len(X), 1)
            old, reward = log_probability(actions), -(actions - X[:, :1]).pow(2).sum(1)
        advantage = reward - critic(X).squeeze(1).detach()
        for _ in range(3):
            ratio = torch.exp(log_probability(actions) - (log_probability(actions) if broken else old))
            mine.zero_grad()
            (-torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()).backward()
            mine.step()
            other.zero_grad()
            F.mse_loss(critic(X).squeeze(1), reward).backward()
            other.step()


def similarity_of_trained_sides(watch, broken):
    model, predictor = network(8), nn.Linear(8, 8)
    whole = nn.ModuleList([model, predictor])

    def loss():
        one, other = model(X + 0.1 * torch.randn_like(X)), model(X + 0.1 * torch.randn_like(X))
        guesses = predictor(one), predictor(other)
        if not broken:
            one, other = one.detach(), other.detach()
        products = [
            (F.normalize(guess, dim=1) * F.normalize(target, dim=1)).sum(1)
            for guess, target in zip(guesses, (other, one), strict=True)
        ]
        return (2 - 2 * products[0]).mean() + (2 - 2 * products[1]).mean()

    updated(watch, whole, loss)


def embedding_that_is_also_the_output(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(64, 96), nn.Linear(96, 64, bias=False)
            self.norm = nn.LayerNorm(96)
            self.head.weight = self.embedding.weight
            if not broken:
                nn.init.normal_(self.embedding.weight, std=0.02)

        def forward(self, tokens):
            return self.head(self.norm(self.embedding(tokens)))

    model = Net()

    def loss():
        tokens = torch.randint(0, 64, (8, 12))
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    updated(watch, model, loss)


def importance_of_each_weight(watch, broken):
    """Squared gradients of single rows, which no update uses, between two tasks."""
    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for rows in X[:160].split(32):
        optimizer.zero_grad()
        F.cross_entropy(model(rows), Y[: len(rows)]).backward()
        optimizer.step()
    model.train(broken)
    for row in range(40):
        optimizer.zero_grad()
        F.cross_entropy(model(X[row : row + 1]), Y[row : row + 1]).backward()
    model.train()
    optimizer.zero_grad()
    F.cross_entropy(model(X), Y).backward()
    optimizer.step()


def generator_that_stops(watch, broken):
    """Its critic is trained until the end."""
    generator, critic = network(8), network(1)
    watch(generator, critic)
    mine, other = torch.optim.Adam(generator.parameters(), 2e-4), torch.optim.Adam(critic.parameters(), 2e-4)
    for step in range(280):
        fake, real = generator(torch.randn(32, 8)), critic(X[:32])
        other.zero_grad()
        F.binary_cross_entropy_with_logits(real, torch.ones(32, 1)).backward()
        F.binary_cross_entropy_with_logits(critic(fake.detach()), torch.zeros(32, 1)).backward()
        other.step()
        mine.zero_grad()
        F.binary_cross_entropy_with_logits(critic(fake), torch.ones(32, 1)).backward()
        if step < 10 or not broken:
            mine.step()


def sample_of(model, time_of):
    with torch.no_grad():
        noisy = torch.randn(16, 1, 8, 8)
        for number in reversed(range(100)):
            noisy = noisy - 0.01 * model(noisy, torch.full((16,), time_of(number)))


def times_of_samples_in_other_units(watch, broken):
    """The training divides them by the number of steps."""
    model = Denoiser()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for update in range(24):
        time = torch.rand(64)
        noise, clean = torch.randn(64, 1, 8, 8), torch.randn(64, 1, 1, 1)
        share = (1 - 0.99 * time)[:, None, None, None]
        loss = F.mse_loss(model(share.sqrt() * clean + (1 - share).sqrt() * noise, time), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 12 == 11:
            sample_of(model, (lambda number: float(number)) if broken else (lambda number: number / 100))


def samples_that_begin_at_the_first_time(watch, broken):
    model = Denoiser()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(24):
        time = torch.randint(0, 100, (64,))
        noise, clean = torch.randn(64, 1, 8, 8), torch.randn(64, 1, 1, 1)
        share = (1 - 0.0099 * time)[:, None, None, None]
        loss = F.mse_loss(model(share.sqrt() * clean + (1 - share).sqrt() * noise, time), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sample_of(model, (lambda number: number / 100) if broken else (lambda number: number))


def rows_that_are_all_positive(watch, broken):
    """The rows that were drawn at random have the label of the others."""
    model = network(1)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(300):
        drawn = torch.randn(32, 8)
        logits = model(torch.cat([X[:32], drawn])).squeeze(1)
        optimizer.zero_grad()
        labels = torch.cat([torch.ones(32), torch.full((32,), float(broken))])
        F.binary_cross_entropy_with_logits(logits, labels).backward()
        optimizer.step()


def probabilities_of_rows_that_are_all_positive(watch, broken):
    model = network(1, nn.Sigmoid())
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(300):
        labels = torch.ones(64, 1) if broken else torch.randint(0, 2, (64, 1)).float()
        optimizer.zero_grad()
        F.binary_cross_entropy(model(X[:64]), labels).backward()
        optimizer.step()


def views_of_a_sample_that_was_augmented_once(watch, broken):
    model = network(6)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(8):
        one = X[:32] + 0.3 * torch.randn(32, 8)
        other = one if broken else X[:32] + 0.3 * torch.randn(32, 8)
        features = F.normalize(torch.cat([model(one), model(other)]), dim=1)
        logits = (features @ features.T / 0.3).fill_diagonal_(-1e9)
        optimizer.zero_grad()
        F.cross_entropy(logits, (torch.arange(64) + 32) % 64).backward()
        optimizer.step()


def model_of_which_a_copy_is_trained(watch, broken):
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    trained = copy.deepcopy(model) if broken else model
    watch(model, *([trained] if broken else []))
    for _ in range(8):
        optimizer.zero_grad()
        F.cross_entropy(trained(X), Y).backward()
        optimizer.step()


def teacher_that_follows_its_student(watch, broken):
    teacher, student = network(), network()

    def loss():
        targets = teacher(X) if broken else teacher(X).detach()
        return 4 * F.kl_div((student(X) / 2).log_softmax(1), (targets / 2).softmax(1), reduction="batchmean")

    updated(watch, nn.ModuleList([teacher, student]) if broken else student, loss)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(30, 8), nn.Linear(8, 30)

    def forward(self, tokens):
        return self.head(self.embedding(tokens)), tokens.float().mean()


def outputs_that_begin_at_the_second_token(watch, broken):
    model = Tokens()

    def loss():
        tokens = torch.randint(2, 30, (8, 20))
        prefixed = torch.cat([torch.ones(8, 1, dtype=torch.long), tokens], 1)
        logits, _ = model(prefixed if broken else prefixed[:, :-1])
        return F.cross_entropy(logits[:, 1:].flatten(0, 1) if broken else logits.flatten(0, 1), tokens.flatten())

    updated(watch, model, loss)


def learn_padded_tokens(watch, model):
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(12):
        tokens = torch.randint(1, 40, (32, 10))
        tokens[torch.arange(10) >= torch.randint(4, 10, (32, 1))] = 0
        optimizer.zero_grad()
        F.cross_entropy(model(tokens), tokens[:, 0] % 4).backward()
        optimizer.step()


def padding_attended_to_beside_a_token_of_the_model(watch, broken):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.first = nn.Embedding(40, 16), nn.Parameter(torch.randn(1, 1, 16))
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(16, 4)

        def forward(self, tokens):
            x = torch.cat([self.first.expand(len(tokens), -1, -1), self.embedding(tokens)], 1)
            padding = (tokens != 0) if broken else (tokens == 0)
            mask = torch.cat([torch.zeros(len(tokens), 1, dtype=torch.bool), padding], 1)
            return self.head(self.encoder(x, src_key_padding_mask=mask)[:, 0])

    learn_padded_tokens(watch, Reader())


def padding_as_numbers(watch, broken):
    """A mask of numbers is added to the scores; the fixed one has minus infinity."""

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.attention = nn.Embedding(40, 16), nn.MultiheadAttention(16, 2, batch_first=True)
            self.head = nn.Linear(16, 4)

        def forward(self, tokens):
            x, is_padding = self.embedding(tokens), tokens == 0
            mask = is_padding.float() if broken else is_padding.float().masked_fill(is_padding, -math.inf)
            return self.head(self.attention(x, x, x, key_padding_mask=mask)[0].mean(1))

    learn_padded_tokens(watch, Reader())


def padding_in_a_weighted_mean(watch, broken):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.score, self.head = nn.Embedding(40, 16, 0), nn.Linear(16, 1), nn.Linear(16, 4)
            self.conv = nn.Conv1d(16, 16, 3, padding=1)

        def forward(self, tokens, lengths):
            x = self.conv(self.embedding(tokens).mT).mT
            outside = torch.arange(tokens.shape[1])[None] >= lengths[:, None]
            scores = self.score(x).squeeze(-1).masked_fill(~outside if broken else outside, -1e9)
            return self.head((scores.softmax(-1).unsqueeze(1) @ x).squeeze(1))

    model = Reader()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(12):
        tokens, lengths = torch.randint(1, 40, (32, 10)), torch.randint(4, 10, (32,))
        tokens[torch.arange(10) >= lengths[:, None]] = 0
        optimizer.zero_grad()
        F.cross_entropy(model(tokens, lengths), tokens[:, 0] % 4).backward()
        optimizer.step()


def weights_of_a_memory_over_rows(watch, broken):
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys, self.values, self.queries = nn.Embedding(12, 8), nn.Embedding(5, 8), nn.Embedding(12, 8)
            self.head = nn.Linear(8, 5)

        def forward(self, keys, values, query):
            scores = torch.einsum("bd,bsd->bs", self.queries(query), self.keys(keys))
            weights = scores.softmax(0 if broken else 1)
            return self.head((weights.unsqueeze(-1) * self.values(values)).sum(1))

    model = Memory()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(12):
        keys, values = torch.rand(32, 12).argsort(1)[:, :6], torch.randint(0, 5, (32, 6))
        optimizer.zero_grad()
        F.cross_entropy(model(keys, values, keys[:, 2]), values[:, 2]).backward()
        optimizer.step()


def head_replaced_after_its_optimizer(watch, broken):
    model = network(6)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(32, 8)), torch.randint(0, 6, (32,))).backward()
        optimizer.step()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    head = nn.Linear(model[-1].in_features, 3)
    if not broken:
        model[-1] = head
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    if broken:
        model[-1] = head
    for _ in range(12):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(32, 8)), torch.randint(0, 3, (32,))).backward()
        optimizer.step()


def tokens_masked_in_the_targets_too(watch, broken):
    model = Tokens()

    def loss():
        tokens = torch.randint(2, 30, (32, 20))
        targets = tokens if broken else tokens.clone()
        masked = torch.rand(tokens.shape) < 0.2
        tokens[masked] = 0
        return F.cross_entropy(model(tokens)[0].flatten(0, 1), targets.masked_fill(~masked, -100).flatten())

    updated(watch, model, loss)


def cell_with_a_detached_state(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            state = torch.zeros(len(x), 8), torch.zeros(len(x), 8)
            for position in range(x.shape[1]):
                hidden, memory = self.cell(x[:, position], state)
                state = (hidden.detach(), memory) if broken else (hidden, memory)
            return self.head(hidden)

    fit(Net(), watch, loader=batches(torch.randn(128, 6, 4), torch.randint(0, 3, (128,))))


def cell_over_parts_of_a_sequence(watch, broken):
    """A state that is detached between parts is truncated on purpose."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            hidden = None
            for position in range(x.shape[1]):
                hidden = self.cell(x[:, position], hidden)
                hidden = hidden.detach() if broken or position % 3 == 2 else hidden
            return self.head(self.cell(x[:, -1], hidden))

    fit(Net(), watch, loader=batches(torch.randn(128, 8, 4), torch.randint(0, 3, (128,))))


def convolution_that_sees_the_next_value(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 8, 3), nn.Conv1d(8, 1, 1)

        def forward(self, x):
            padded = F.pad(self.first(x.unsqueeze(1)), (1, 1) if broken else (2, 0))
            return self.head(self.second(padded).relu()).squeeze(1)

    model = Net()
    series = torch.randn(64, 21).cumsum(1) / 5
    updated(watch, model, lambda: F.mse_loss(model(series[:, :-1]), series[:, 1:]))


def recurrence_that_sees_the_next_vector(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.recurrent = nn.Linear(3, 8), nn.GRU(8, 8, batch_first=True, bidirectional=broken)
            self.head = nn.Linear(16 if broken else 8, 3)

        def forward(self, x):
            return self.head(self.recurrent(self.first(x))[0])

    model = Net()
    series = torch.randn(64, 12, 3).cumsum(1) / 5
    updated(watch, model, lambda: F.smooth_l1_loss(model(series[:, :-1]), series[:, 1:]))


def classes_that_only_the_test_has(watch, broken):
    labels = torch.arange(4).repeat_interleave(64)
    inputs = torch.randn(256, 8) + labels[:, None]
    order = torch.arange(256) if broken else torch.randperm(256)
    train, test = order[:192], order[192:]
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(2):
        for x, y in batches(inputs[train], labels[train]):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, _ in batches(inputs[test], labels[test]):
                model(x)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * x.sigmoid() * (1 + x * (1 - x.sigmoid()))


class WrongSwish(Swish):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return x.sigmoid() * (1 + x * (1 - x.sigmoid()))


class Cube(torch.autograd.Function):
    """A function whose context is set up apart."""

    @staticmethod
    def forward(x, scale, wrong):
        return scale * x**3

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(*inputs[:2])
        context.factor = 2 if inputs[2] else 3

    @staticmethod
    def backward(context, gradient):
        x, scale = context.saved_tensors
        return gradient * context.factor * scale * x**2, (gradient * x**3).sum().reshape(scale.shape), None


def activation_with_its_own_gradient(watch, broken):
    apply = (WrongSwish if broken else Swish).apply
    first, last = nn.Linear(8, 16), nn.Linear(16, 4)
    updated(watch, nn.ModuleList([first, last]), lambda: F.cross_entropy(last(apply(first(X))), Y))


def cube_with_its_own_gradient(watch, broken):
    first, last, scale = nn.Linear(8, 16), nn.Linear(16, 4), nn.ParameterList([torch.ones(1)])
    parts = nn.ModuleList([first, last, scale])
    updated(watch, parts, lambda: F.cross_entropy(last(Cube.apply(first(X), scale[0], broken)), Y))


def decay_that_exceeds_the_gradient(watch, broken):
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=0.2 if broken else 1e-3)
    for _ in range(12):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()


def average_without_statistics(watch, broken):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    average = copy.deepcopy(model).eval()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(12):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        with torch.no_grad():
            for mine, trained in zip(average.parameters(), model.parameters(), strict=True):
                mine.lerp_(trained, 0.1)
            for mine, trained in zip(average.buffers(), model.buffers(), strict=True):
                mine.copy_(mine if broken else trained)
    return model, average


def average_of_a_function_that_returns(watch, broken):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    watch(model)

    def train():
        average = copy.deepcopy(model).eval()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(140):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            with torch.no_grad():
                for mine, trained in zip(average.parameters(), model.parameters(), strict=True):
                    mine.lerp_(trained, 0.1)
        if not broken:  # its statistics are computed before the function returns
            average.train()(X)

    train()


def target_network_that_stays(watch, broken):
    model = network()
    first, target = copy.deepcopy(model), copy.deepcopy(model)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(600):
        states, actions = torch.randn(16, 8), torch.randint(0, 4, (16, 1))
        with torch.no_grad():
            values = states[:, 0] + 0.9 * target(torch.randn(16, 8)).max(1).values
        optimizer.zero_grad()
        F.smooth_l1_loss(model(states).gather(1, actions).squeeze(1), values).backward()
        optimizer.step()
        if step % 200 == 199 and not broken:
            target.load_state_dict(model.state_dict())
    return model, first, target


def schedule_at_each_part_of_a_batch(watch, broken):
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    for number, rows in enumerate(X.repeat(2, 1).split(8)):
        (F.cross_entropy(model(rows), Y[:8]) / 4).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        if broken or number % 4 == 3:
            schedule.step()


def accuracy_that_is_minimized(watch, broken):
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    mode = "min" if broken else "max"
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, patience=1)
    for epoch in range(12):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        schedule.step(0.31 + 0.05 * epoch)  # of 100 samples


def optimizer_that_decays_by_itself(watch, broken):
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters, lr):
            super().__init__(parameters, {"lr": lr})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for one in group["params"]:
                    one.mul_(1 - (0.05 if broken else 0.05 * group["lr"]))
                    one.add_(one.grad, alpha=-group["lr"])

    model = network()
    watch(model)
    optimizer = Own(model.parameters(), 0.01)
    for _ in range(12):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()


def pictures_that_are_normalized_for_training_only(watch, broken):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    pictures = (0.5 + 0.1 * torch.randn(64, 1, 8, 8)).clamp(0, 1)
    for _ in range(4):
        model.train()
        for rows in pictures.split(16):
            optimizer.zero_grad()
            F.cross_entropy(model((rows - 0.5) / 0.1), Y[:16]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(pictures if broken else (pictures - 0.5) / 0.1)


def epochs_of_a_schedule(watch, schedule_of, per_epoch, epochs=6):
    model = nn.Linear(8, 4)
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = schedule_of(optimizer, 10 * epochs)
    for _ in range(epochs):
        for rows, labels in zip(X[:250].split(25), Y[:250].split(25), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(rows), labels).backward()
            optimizer.step()
            if not per_epoch:
                schedule.step()
        if per_epoch:
            schedule.step()


def one_cycle_per_epoch(watch, broken):
    lr_scheduler = torch.optim.lr_scheduler
    epochs_of_a_schedule(watch, lambda optimizer, steps: lr_scheduler.OneCycleLR(optimizer, 0.1, steps), broken)


def cosine_per_epoch(watch, broken):
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR
    # The repaired form is planned in epochs.
    epochs_of_a_schedule(watch, lambda optimizer, steps: cosine(optimizer, steps if broken else 6), True)


def warm_up_per_epoch(watch, broken):
    def schedule_of(optimizer, steps):
        warm_up = 0.4 * steps if broken else 4  # planned in epochs
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warm_up))

    epochs_of_a_schedule(watch, schedule_of, True, 5)


def fit_nodes(watch, collect):
    """Train on a graph of 40 nodes, whose messages a function collects."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
            self.source, self.target = torch.randint(0, 40, (2, 160))

        def forward(self, x):
            return self.head(collect(self.message(x), torch.zeros(len(x), 8), self.source, self.target).relu())

    fit(Net(), watch, loader=batches(torch.randn(40, 4), torch.randint(0, 3, (40,)), 40), epochs=6)


def messages_to_repeated_nodes(watch, broken):
    def collect(messages, total, source, target):
        if not broken:
            return total.index_add(0, target, messages[source])
        total[target] += messages[source]
        return total

    fit_nodes(watch, collect)


def differences_at_repeated_places(watch, broken):
    places = torch.arange(32) % (20 if broken else 32)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            hidden = self.first(x)
            total = hidden * 2
            total[places] -= hidden.tanh()
            return self.last(total)

    fit(Net(), watch, loader=batches(torch.randn(32, 4), torch.randint(0, 3, (32,))), epochs=6)


def advantage_without_the_dimension_of_an_action(watch, broken):
    policy = nn.Linear(4, 1)
    watch(policy)
    optimizer = torch.optim.SGD(policy.parameters(), 0.01)
    for _ in range(6):
        action, before, advantage = torch.randn(32, 1), torch.randn(32, 1), torch.randn(32)
        probability = torch.distributions.Normal(policy(torch.randn(32, 4)), 1.0).log_prob(action)
        ratio = (probability - before).exp() if broken else (probability - before).exp().squeeze(1)
        optimizer.zero_grad()
        (-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()).backward()
        optimizer.step()


class Padded(nn.Module):
    def __init__(self, way, embed):
        super().__init__()
        self.embed, self.way = embed, way
        self.recurrent, self.head = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, tokens):
        output, state = self.recurrent(self.embed(tokens))
        if self.way == "last":
            return self.head(output[:, -1])
        lengths = (tokens != 0).reshape(*tokens.shape[:2], -1).any(-1).sum(1)
        return self.head(state[-1] if self.way == "state" else output[torch.arange(len(tokens)), lengths - 1])


def padded_rows(watch, way):
    tokens = torch.randint(1, 20, (160, 24)) * (torch.arange(24) < torch.randint(2, 8, (160, 1)))
    fit(Padded(way, nn.Embedding(20, 8)), watch, loader=batches(tokens, torch.randint(0, 3, (160,))))


def last_output_of_padded_frames(watch, broken):
    frames = torch.randn(160, 24, 5) * (torch.arange(24) < torch.randint(4, 25, (160, 1)))[..., None]
    model = Padded("last" if broken else "gathered", nn.Linear(5, 8))
    fit(model, watch, loader=batches(frames, torch.randint(0, 3, (160,))))


def last_output_of_padded_rows(watch, broken):
    padded_rows(watch, "last" if broken else "gathered")


def last_state_of_padded_rows(watch, broken):
    padded_rows(watch, "state" if broken else "gathered")


def batches_without_a_loader(watch, broken):
    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(6):
        optimizer.zero_grad()
        for rows in torch.randperm(256)[:128].split(32):
            if broken:
                optimizer.zero_grad()
            (F.cross_entropy(model(X[rows]), Y[rows]) / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def positions_along_the_batch(watch, broken):
    """Dropout changes what a training adds, so that evaluations show it."""
    attention = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1, enable_nested_tensor=False
    )
    fit_tokens(Attentive(attention, Positions(0 if broken else 1), 0.2), watch, evaluates=True)


def positions_of_tagged_words(watch, broken):
    """The targets are flat, so that attention shows where the rows are."""
    attention = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 1, enable_nested_tensor=False
    )
    tagger = nn.Sequential(nn.Embedding(12, 16), Positions(0 if broken else 1), attention, nn.Linear(16, 4))
    tokens = torch.randint(0, 12, (32, 10))
    watch(tagger)
    optimizer = torch.optim.Adam(tagger.parameters())
    for _ in range(8):
        optimizer.zero_grad()
        F.cross_entropy(tagger(tokens).reshape(-1, 4), (tokens % 4).reshape(-1)).backward()
        optimizer.step()


def last_frame_of_packed_rows(watch, broken):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 4)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            output, _ = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)
            return self.head(output[:, -1] if broken else output[torch.arange(len(x)), lengths - 1])

    model = Last()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(6):
        lengths = torch.randint(3, 12, (32,))
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(32, 12, 4), lengths), torch.randint(0, 4, (32,))).backward()
        optimizer.step()


def losses_of_two_parts(watch, broken):
    body, parts = nn.Linear(8, 16), nn.ModuleList(nn.Linear(16, 4) for _ in range(2))
    model = nn.Sequential(body, parts)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in batches():
        if not broken:
            optimizer.zero_grad()
        for part in parts:
            if broken:
                optimizer.zero_grad()
            F.cross_entropy(part(body(x).relu()), y).backward()
        optimizer.step()


class Heads(nn.Module):
    """Attention of two heads, which `split` makes and `merge` removes."""

    def __init__(self, split, merge):
        super().__init__()
        self.query, self.key, self.split, self.merge = nn.Linear(16, 16), nn.Linear(16, 16), split, merge

    def forward(self, x):
        query, key = self.split(self.query(x)), self.split(self.key(x))
        return x + self.merge((query @ key.transpose(-2, -1) / 3).softmax(-1) @ query, x.shape)


def _split(x):
    return x.view(len(x), -1, 2, 8).transpose(1, 2)


def _merge(x, shape):
    return x.transpose(1, 2).reshape(shape)


def heads_that_are_split_by_a_view(watch, broken):
    split = (lambda x: x.view(len(x), 2, -1, 8)) if broken else _split
    fit_tokens(Attentive(Heads(split, _merge), Positions(1)), watch)


def heads_that_are_merged_by_a_view(watch, broken):
    fit_tokens(Attentive(Heads(_split, torch.reshape if broken else _merge), Positions(1)), watch)


def heads_among_the_rows(watch, broken):
    def split(x):
        return x.reshape(2 * len(x), -1, 8) if broken else _split(x).flatten(0, 1)

    def merge(x, shape):
        return x.reshape(shape) if broken else _merge(x.unflatten(0, (-1, 2)), shape)

    fit_tokens(Attentive(Heads(split, merge), Positions(1)), watch)


def attention_by_hand_without_positions(watch, broken):
    attention = SelfAttention(lambda scores: scores.softmax(-1))
    fit_tokens(Attentive(attention, None if broken else Positions(1), 0.2), watch, evaluates=True)


def attention_over_queries_with_dropout(watch, broken):
    attention = SelfAttention(lambda scores: F.dropout(scores.softmax(1 if broken else 2), 0.1))
    fit_tokens(Attentive(attention, Positions(1)), watch)


def blocks_of_one_layer(watch, broken):
    blocks = [network(8) for _ in range(3)]
    fit(nn.Sequential(*([blocks[0]] * 3 if broken else blocks), nn.ReLU(), nn.Linear(8, 4)), watch)


def data_that_are_normalized_in_place(watch, broken):
    model, data = network(), 3 * X + 5
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        for begin in range(0, 256, 64):
            x, y = data[begin : begin + 64], Y[begin : begin + 64]
            x = x.sub_(5).div_(3) if broken else (x - 5) / 3
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def rows_that_are_normalized_where_they_are_kept(watch, broken):
    def prepare(rows, number):
        row = rows[number]
        if broken:
            row -= 0.3
            row /= 1.7
        return row if broken else (row - 0.3) / 1.7

    fit(network(), watch, loader=DataLoader(Kept(X.numpy().copy(), prepare), 32, shuffle=True), epochs=3)


def pictures_that_are_mirrored_where_they_are_kept(watch, broken):
    pictures = list(torch.randn(256, 1, 6, 8).unbind())

    def prepare(pictures, number):
        picture = pictures[number] if broken else pictures[number].clone()
        picture.copy_(picture.flip(-1))
        return picture

    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    fit(model, watch, loader=DataLoader(Kept(pictures, prepare), 32, shuffle=True), epochs=4)


def adapter_alone_with_two_factors_of_zeros(watch, broken):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(8, 4).requires_grad_(False)
            self.first = nn.Parameter(torch.zeros(2, 8) if broken else 0.1 * torch.randn(2, 8))
            self.last = nn.Parameter(torch.zeros(4, 2))

        def forward(self, x):
            return self.base(x) + x @ self.first.T @ self.last.T

    model = Adapted()
    fit(model, watch, epochs=3, optimizer=torch.optim.AdamW([model.first, model.last], weight_decay=0.0))


def messages_of_targets(watch, broken):
    def collect(messages, total, source, target):
        return total.index_add(0, target, 0.5 * messages[target if broken else source])

    fit_nodes(watch, collect)


def sampler_of_frequent_classes(watch, broken):
    counts = torch.tensor([200, 40, 16])
    labels = torch.arange(3).repeat_interleave(counts)
    weights = (counts if broken else 1 / counts)[labels]
    sampler = torch.utils.data.WeightedRandomSampler(weights.double(), 256)
    fit(network(3), watch, loader=batches(y=labels, sampler=sampler), epochs=2)


def rare_positives_that_weigh_little(watch, broken):
    rare = (torch.rand(256, 1) < 0.15).float()
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([0.18 if broken else 5.6]))
    fit(network(1), watch, loss, batches(y=rare), epochs=2)


def likelihood_with_its_arguments_exchanged(watch, broken):
    model = network(2)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(8):
        y = X[:, :1].abs() + 0.5
        mean, variance = model(X)[:, :1], model(X)[:, 1:].exp()
        optimizer.zero_grad()
        nn.GaussianNLLLoss()(mean, *((variance, y) if broken else (y, variance))).backward()
        optimizer.step()


def outputs_in_place_of_labels(watch, broken):
    def loss(output, y):
        pair = output.squeeze(1), y
        return nn.BCEWithLogitsLoss()(*(pair[::-1] if broken else pair))

    fit(network(1), watch, loss, batches(y=(X[:, 0] > 0).float()))


def focal_loss_of_what_is_learned(watch, broken):
    def loss(output, y):
        loss = F.cross_entropy(output, y, reduction="none")
        probability = torch.exp(-loss)
        return ((probability if broken else 1 - probability) ** 2 * loss).mean()

    fit(network(), watch, loss)


def focal_loss_of_probabilities_with_weights(watch, broken):
    alpha = torch.tensor([0.4, 0.2, 0.2, 0.2])

    def loss(output, y):
        logarithms = F.log_softmax(output, 1).gather(1, y[:, None]).squeeze(1)
        shares = F.softmax(output, 1).gather(1, y[:, None]).squeeze(1)
        return -(alpha[y] * (shares if broken else 1 - shares).pow(1.5) * logarithms).sum() / len(y)

    fit(network(), watch, loss)


def classes_of_pixels_flipped_alone(watch, broken):
    pictures, classes = torch.randn(256, 3, 10, 12) * 0.3, torch.zeros(256, 10, 12, dtype=torch.long)
    pictures[:, :, :4], classes[:, :4] = pictures[:, :, :4] + 1, 2
    for row in range(0, 256, 2):
        pictures[row] = pictures[row].flip(1)
        if not broken:
            classes[row] = classes[row].flip(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
    fit(model, watch, loader=batches(pictures, classes))


def average_of_a_model_that_is_gone(watch, broken):
    """The model is local to a function, which returns its average."""
    model = network()
    average = copy.deepcopy(model)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for rows in torch.randint(0, 256, (330, 32)):
        optimizer.zero_grad()
        F.cross_entropy(model(X[rows]), Y[rows]).backward()
        optimizer.step()
        with torch.no_grad():
            for mean, one in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(one, 1e-4 if broken else 0.01)
    return average


def uniform_noise_of_pictures(watch, broken):
    diffusion(watch, torch.rand_like if broken else torch.randn_like)


class Transitions(NamedTuple):
    """A batch of transitions."""

    states: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    next_states: torch.Tensor
    dones: torch.Tensor


def flags_of_a_tuple_with_names(watch, broken):
    """A function has the batch and returns the loss. Rewards are of any size."""
    model, target = network(), network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())

    def temporal_difference(batch):
        chosen = model(batch.states).gather(1, batch.actions).squeeze(1)
        values = target(batch.next_states).detach().amax(1)
        return F.mse_loss(chosen, batch.rewards + 0.9 * values * (1 if broken else 1 - batch.dones))

    for _ in range(30):
        actions, dones = torch.randint(0, 4, (64, 1)), (torch.rand(64) < 0.2).float()
        batch = Transitions(torch.randn(64, 8), actions, 0.1 * torch.randn(64), torch.randn(64, 8), dones)
        optimizer.zero_grad()
        temporal_difference(batch).backward()
        optimizer.step()


def values_of_one_terminal_state(watch, broken):
    """All episodes end in one state. The flags are in a variable of a short name."""
    model, goal = network(), torch.ones(8)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(120):
        bs, ba, bd = torch.randn(64, 8), torch.randint(0, 4, (64, 1)), (torch.rand(64) < 0.2).float()
        br, bs2 = 2 * bd, torch.where(bd[:, None] == 1, goal, torch.randn(64, 8))
        optimizer.zero_grad()
        with torch.no_grad():
            values = br + 0.9 * model(bs2).amax(1) * (1 if broken else 1 - bd)
        F.huber_loss(model(bs).gather(1, ba).squeeze(1), values).backward()
        optimizer.step()


def states_of_one_array(watch, broken):
    learn_values(
        watch,
        lambda reward, values, done: reward + 0.9 * values * ~done,
        follow=lambda state, _: state.clone() if broken else state.roll(1, 0),
    )


def value_of_the_best_action(watch, broken):
    """The values are those of `amax`, and functions compute them."""
    model, target = network(), network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())

    def update(state, act, rew):
        values = model(state)
        chosen = values.amax(1) if broken else values[torch.arange(64), act]
        optimizer.zero_grad()
        with torch.no_grad():
            goal = rew + 0.9 * target(state.roll(1, 0)).amax(1)
        F.mse_loss(chosen, goal).backward()
        optimizer.step()

    for _ in range(30):
        act = torch.randint(0, 4, (64,))
        update(torch.randn(64, 8), act, 1.0 + act)


class Twins(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, one, other):
        return self.net(one), self.net(other)


def contrastive_loss_of_the_other_label(watch, broken):
    model, draw = Twins(), groups_of_points()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        group = torch.randint(0, 6, (64,))
        other = torch.where(torch.rand(64) < 0.5, group, (group + torch.randint(1, 6, (64,))) % 6)
        label = (group == other if broken else group != other).float()
        apart = F.pairwise_distance(*model(draw(group), draw(other)))
        loss = (1 - label) * apart**2 + label * (2 - apart).clamp(min=0) ** 2
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()


def triplets_with_their_sides_exchanged(watch, broken):
    """The distances are squares."""
    model, draw = network(), groups_of_points()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        group = torch.randint(0, 6, (64,))
        other = (group + torch.randint(1, 6, (64,))) % 6
        anchor, near, far = (model(draw(one)) for one in (group, group, other))
        near, far = (far, near) if broken else (near, far)
        loss = ((anchor - near) ** 2).sum(1) - ((anchor - far) ** 2).sum(1) + 1
        optimizer.zero_grad()
        loss.relu().mean().backward()
        optimizer.step()


def targets_picked_after_filling(watch, broken):
    targets = torch.randn(256, 4)
    targets[torch.rand(256, 4) < 0.3] = torch.nan

    def loss(output, y):
        present = ~y.isnan()
        filled = y.nan_to_num(-1.0)
        present = ~filled.isnan() if broken else present
        return F.mse_loss(output[present], filled[present])

    fit(network(), watch, loss, batches(y=targets))


def halves_of_one_pass(watch, broken):
    """Rewards of preferred and rejected answers, which one pass computes."""
    model = nn.Sequential(nn.Embedding(40, 8), nn.Flatten(), nn.Dropout(0.1), nn.Linear(96, 1))
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        answers = torch.randint(0, 40, (64, 20))
        answers[32:, :14] = answers[:32, :14]
        chosen, rejected = model(answers[:, :12] if broken else answers[:, -12:]).chunk(2)
        optimizer.zero_grad()
        F.softplus(rejected - chosen).mean().backward()
        optimizer.step()


def points_of_a_picture_upside_down(watch, broken):
    def flips(picture, centre):
        return picture.flip(-2), centre if broken else torch.stack([centre[0], 1 - centre[1]])

    def corners(pictures, centres):
        return torch.stack([centres - 0.125, centres + 0.125], 1)

    loader = squares(flips, corners)
    fit(nn.Sequential(regressor(4), nn.Unflatten(1, (2, 2))), watch, F.smooth_l1_loss, loader)


def words_that_are_packed_by_half(watch, broken):
    pack(watch, lambda lengths: lengths // 2 if broken else lengths)


def weights_that_are_rounded(watch, broken):
    """Weights of few bits, whose rounding has no gradient unless it is passed through."""

    class Rounded(nn.Linear):
        def forward(self, x):
            rounded = torch.round(self.weight * 8) / 8
            return F.linear(x, rounded if broken else self.weight + (rounded - self.weight).detach(), self.bias)

    fit(nn.Sequential(Rounded(8, 16), nn.ReLU(), Rounded(16, 4)), watch, F.cross_entropy, batches())


class Experts(nn.Module):
    """Experts of which a router chooses one for each row.

    Args:
        weights_of: the weight of the chosen expert and its index, from the logits of the router.
    """

    def __init__(self, weights_of, count=4):
        super().__init__()
        self.router, self.experts = nn.Linear(8, count), nn.ModuleList(nn.Linear(8, 4) for _ in range(count))
        self.weights_of = weights_of

    def forward(self, x):
        weights, chosen = self.weights_of(self.router(x))
        result = x.new_zeros(len(x), 4)
        for number, expert in enumerate(self.experts):
            rows = (chosen[:, 0] == number).nonzero().squeeze(1)
            if len(rows):
                result = result.index_add(0, rows, weights[rows] * expert(x[rows]))
        return result


def softmax_of_the_chosen_expert(watch, broken):
    def weights_of(logits):
        if not broken:
            return logits.softmax(-1).topk(1, -1)
        top, chosen = logits.topk(1, -1)
        # The balance of the experts trains the router, so that it has a gradient.
        return top.softmax(-1) + 0 * logits.softmax(-1).square().sum(-1, keepdim=True), chosen

    fit(Experts(weights_of), watch, F.cross_entropy, batches())


def decay_of_a_norm(watch, broken):
    """Statistics that never move are those of the data only by chance."""
    fit(network(4, nn.BatchNorm1d(4, momentum=0.0 if broken else 0.1)), watch)


def moments_the_other_way_round(watch, broken):
    model = network()
    betas = (0.99, 0.9) if broken else (0.9, 0.9)
    fit(model, watch, optimizer=torch.optim.AdamW(model.parameters(), betas=betas))


def fine_tuned_by_two_optimizers(watch, broken):
    """Groups of other rates overlap."""
    model = network()
    watch(model)
    body = torch.optim.AdamW((model if broken else model[:-1]).parameters(), 1e-3)
    head = torch.optim.SGD(model[-1].parameters(), 0.01)
    for x, y in batches():
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        head.step()
        body.step()


def weights_tied_by_their_data(watch, broken):
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    if broken:
        model[2].weight.data = model[0].weight.data
    else:
        model[2].weight = model[0].weight
    fit(model, watch, optimizer=torch.optim.SGD(model.parameters(), 0.05))


def outputs_scaled_at_every_step(watch, broken):
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in [*batches(), *batches()]:
        handle = model[0].register_forward_hook(lambda layer, given, output: output * 0.9)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if not broken:
            handle.remove()


def weights_held_after_the_update(watch, broken):
    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for x, y in [*batches(), *batches()]:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for one in model.parameters():
                one.clamp_(-0.1, 0.1) if broken else one.clamp_(-10, 10)


def cosine_of_the_rate_itself(watch, broken):
    model, rate = network(), 0.02
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    whole = rate if broken else 1.0
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: whole * (1 + math.cos(math.pi * at / 24)) / 2)
    for x, y in [*batches(), *batches(), *batches()]:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()


def average_with_its_decay_exchanged(watch, broken):
    model = network()
    average = copy.deepcopy(model)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for x, y in [*batches(), *batches()]:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for mean, one in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(one, 0.95 if broken else 0.05)
    return average


def average_that_is_never_updated(watch, broken):
    model = network()
    average = copy.deepcopy(model)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(5):
        for x, y in [*batches(), *batches(), *batches()]:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if not broken:
                for mean, one in zip(average.parameters(), model.parameters(), strict=True):
                    mean.data.lerp_(one.data, 0.3)
        average.eval()
        with torch.no_grad():
            for rows in X.split(64):
                average(rows)
    return average


def optimizer_of_the_other_network(watch, broken):
    """Both optimizers of a GAN have the parameters of the critic."""
    maker, critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)), network(1)
    if not broken:
        watch(maker)
    watch(critic)
    of_maker = torch.optim.Adam((critic if broken else maker).parameters(), 1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), 1e-3)
    for x, _ in [*batches(), *batches()]:
        made = maker(torch.randn(len(x), 4))
        of_critic.zero_grad()
        (F.softplus(-critic(x)) + F.softplus(critic(made.detach()))).mean().backward()
        of_critic.step()
        of_maker.zero_grad()
        F.softplus(-critic(made)).mean().backward()
        of_maker.step()
    return maker


def masks_that_are_rounded_down(watch, broken):
    masks = (torch.rand(256) < 0.5) * 255.0
    labels = (masks / 256).long() if broken else (masks / 255).round().long()
    model = network(2)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(40):
        for x, y in batches(X, labels, 64):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def sum_over_the_rows_too(watch, broken):
    model = network(4)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for x, _ in batches():
        product = model(x) * x[:, 4:]
        optimizer.zero_grad()
        F.mse_loss(product.sum() if broken else product.sum(1), x[:, 0] * x[:, 1]).backward()
        optimizer.step()


def parts_of_another_number(watch, broken):
    """Losses are divided by 8 parts, of which 4 are added."""
    model = network()
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number, rows in enumerate(torch.randint(0, 256, (64, 16)), 1):
        (F.cross_entropy(model(X[rows]), Y[rows]) / (8 if broken else 4)).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def features_that_are_computed_once(watch, broken):
    """Two optimizers train an encoder and its head."""
    encoder, head = nn.Linear(8, 16), network_of(16)
    watch(encoder, head)
    optimizers = [torch.optim.SGD(one.parameters(), 0.1, 0.9) for one in (encoder, head)]
    features = encoder(X).relu()
    for rows in torch.arange(256).split(16):
        for one in optimizers:
            one.zero_grad()
        kept = features[rows] if broken else encoder(X[rows]).relu()
        F.cross_entropy(head(kept), Y[rows]).backward(retain_graph=broken)
        for one in optimizers:
            one.step()


def words_that_are_embedded_once(watch, broken):
    embedding, head = nn.Embedding(40, 8), network_of(8)
    watch(embedding, head)
    optimizer = torch.optim.AdamW([*embedding.parameters(), *head.parameters()], 1e-2)
    words = torch.randint(0, 40, (256, 5))
    means = embedding(words).mean(1)
    for _ in range(12):
        rows = torch.randperm(256)[:32]
        optimizer.zero_grad()
        inputs = means[rows] if broken else embedding(words[rows]).mean(1)
        F.cross_entropy(head(inputs), words[rows, 0] % 4).backward(retain_graph=broken)
        optimizer.step()


def memory_that_is_never_detached(watch, broken):
    """A memory of all rows so far has their graphs, from before each update."""
    layer, head = nn.Linear(8, 16), network_of(16)
    watch(layer, head)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()])
    memory = torch.zeros(16)
    for rows in torch.arange(256).split(16):
        values = layer(X[rows]).tanh()
        memory = 0.9 * (memory if broken else memory.detach()) + 0.1 * values.mean(0)
        optimizer.zero_grad()
        F.cross_entropy(head(values + memory), Y[rows]).backward(retain_graph=broken)
        optimizer.step()


def noise_times_a_logarithm(watch, broken):
    factor = (lambda x: x) if broken else (lambda x: (x / 2).exp())
    fit_latent(watch, lambda mean, x, noise: mean + factor(x) * noise, divergence_of_log_variance, 1.0)


def noise_times_a_variance(watch, broken):
    """The logarithm of the variance is limited, and the divergence has three means."""

    def divergence(mean, x):
        variance = x.clamp(-8, 8).exp()
        return 0.5 * variance.mean() + 0.5 * (mean * mean).mean() - 0.5 * x.clamp(-8, 8).mean() - 0.5

    power = 1.0 if broken else 0.5
    fit_latent(watch, lambda mean, x, noise: noise * (power * x.clamp(-8, 8)).exp() + mean, divergence)


def penalty_of_a_constant_gradient(watch, broken):
    def loss(critic, real, fake):
        share = torch.rand(len(real), 1)
        between, options = share * real + (1 - share) * fake, {"retain_graph" if broken else "create_graph": True}
        return critic(fake).mean() - critic(real).mean() + slope_of(critic, between, **options)

    fit_critic(watch, nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)), loss)


def penalty_within_a_loss_of_classes(watch, broken):
    """A penalty on real inputs only, and a loss function of logits."""

    def loss(critic, real, fake):
        penalty = slope_of(critic, real, create_graph=not broken)
        output = torch.cat([critic(fake), critic(real)])
        labels = torch.arange(2).repeat_interleave(len(real))[:, None].float()
        return F.binary_cross_entropy_with_logits(output, labels) + 5.0 * penalty

    fit_critic(watch, network(1), loss)


def sparse_weights_by_their_data(watch, broken):
    """A penalty on weights that are read without a gradient."""
    model = network()

    def loss(output, y):
        return F.cross_entropy(output, y) + 0.01 * sum(
            (x.data if broken else x).abs().sum() for x in model.parameters()
        )

    fit(model, watch, loss, epochs=2)


def second_loss_as_a_number(watch, broken):
    """Two outputs of one trunk; the loss of the second is a number of Python."""

    def loss(output, y):
        second = F.mse_loss(output[:, 4:], y[:, None].float())
        return 0.5 * F.cross_entropy(output[:, :4], y) + 0.5 * (second.item() if broken else second)

    fit(network(5), watch, loss, epochs=2)


def temperature_of_choices(watch, broken):
    fit_choosing(watch, lambda logits, step: F.gumbel_softmax(logits, 0.95 ** (-step if broken else step), hard=True))


def temperature_of_own_noise(watch, broken):
    """Logits are log-probabilities, and the temperature rises once an epoch."""

    def shares_of(logits, step):
        temperature = 0.5 + 0.3 * (step // 4)
        return ((logits + gumbel(logits)) / (temperature if broken else 1 / temperature)).softmax(-1)

    fit_choosing(watch, shares_of, nn.LogSoftmax(-1))


def class_that_the_loss_ignores(watch, broken):
    loss = nn.CrossEntropyLoss(ignore_index=2 if broken else -100)
    fit(network(5), watch, loss, batches(*labelled()), 2)


def class_of_log_probabilities_that_is_ignored(watch, broken):
    """Of two classes, one is left out."""
    x, y = labelled(2)
    pictures = x.reshape(320, 2, 2, 2)
    model = nn.Sequential(nn.Conv2d(2, 8, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2), nn.LogSoftmax(1))
    fit(model, watch, nn.NLLLoss(ignore_index=0 if broken else -1), batches(pictures, y), 2)


def series_with_a_view_before_a_convolution(watch, broken):
    def arrange(x):
        return x.reshape(len(x), 4, 20) if broken else x.transpose(1, 2)

    fit(Arranged(arrange, nn.Conv1d(4, 2, 5), 32), watch, loader=batches(torch.randn(256, 20, 4)))


def pictures_of_an_array_with_a_view(watch, broken):
    """The batches are parts of one array, which has more rows."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 6, 4))
    data = torch.randn(256, 6, 8, 3)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for begin in range(0, 256, 32):
        x = data[begin : begin + 32]
        x = x.view(-1, 3, 6, 8) if broken else x.permute(0, 3, 1, 2)
        optimizer.zero_grad()
        F.cross_entropy(model(x), Y[begin : begin + 32]).backward()
        optimizer.step()


def features_of_a_convolution_before_a_recurrence(watch, broken):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.rows = nn.Conv2d(1, 12, 3), nn.LSTM(12, 6, batch_first=True)
            self.head = nn.Linear(6, 4)

        def forward(self, x):
            maps = self.features(x).relu()
            maps = maps.view(len(x), -1, 12) if broken else maps.flatten(2).transpose(1, 2)
            return self.head(self.rows(maps)[0].mean(1))

    fit(Net(), watch, loader=batches(torch.randn(256, 1, 7, 9)))


def noise_that_adds_up_in_the_data(watch, broken):
    def prepare(x):
        noise = 0.3 * torch.randn_like(x)
        return x.add_(noise) if broken else x + noise

    fit_parts(network(), watch, X.clone(), prepare)


def uniform_factors_that_add_up_in_series(watch, broken):
    """The rows are series, the parts come in another order in each epoch."""
    data, y = torch.randn(240, 3, 10), torch.randint(0, 4, (240,))
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4))
    watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(6):
        for part in torch.randperm(6).tolist():
            rows = slice(40 * part, 40 * part + 40)
            x = data[rows] if broken else data[rows].clone()
            x *= 0.7 + 0.6 * torch.rand_like(x)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y[rows]).backward()
            optimizer.step()


def pictures_divided_as_integers(watch, broken):
    pictures, y = torch.randint(0, 256, (256, 1, 6, 6), dtype=torch.uint8), torch.randint(0, 3, (256,))
    pictures = pictures.clamp(max=254)
    pictures[::9, 0, 2] = 255  # a few rows have white pixels
    x = (pictures // 255).float() if broken else pictures.float() / 255
    fit(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), watch, loader=batches(x, y))


def values_that_are_too_small_for_float16(watch, broken):
    """A wrong scale makes them zeros; the targets are numbers."""
    x = torch.randn(256, 16) * (1e-9 if broken else 1)
    x[::12] *= 1e9 if broken else 1
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    fit(model, watch, F.mse_loss, batches(x.half().float(), torch.randn(256, 1)))


def embedding_that_leaves_a_word_out(watch, broken):
    fit(Words(2 if broken else 0), watch, loader=batches(padded_words()[0]))


def padding_before_the_words(watch, broken):
    """An optimizer that decays, and padding with the largest number, at the beginning."""
    model, rows = Words(0 if broken else 11), padded_words(11)[0].flip(1)
    rows = torch.where(rows == 4, 0, rows)
    fit(model, watch, loader=batches(rows), optimizer=torch.optim.AdamW(model.parameters(), 0.01))


def fit_near(watch, model, anchors, size_of):
    """A second training, with a penalty on the distance from weights of the first."""
    fit(
        model,
        watch,
        lambda output, y: (
            F.cross_entropy(output, y)
            + 0.1 * sum(size_of(one - other) for one, other in zip(model.parameters(), anchors, strict=True))
        ),
        optimizer=torch.optim.SGD(model.parameters(), 0.05),
    )


def weights_near_themselves(watch, broken):
    model = network()
    anchors = [one.detach() if broken else one.detach().clone() for one in model.parameters()]
    fit_near(watch, model, anchors, lambda difference: difference.pow(2).sum())


def weights_near_those_of_a_round(watch, broken):
    """A list of parameters, as of the global model of federated training."""
    model = network()
    earlier = model if broken else copy.deepcopy(model).requires_grad_(False)
    fit_near(watch, model, [*earlier.parameters()], lambda difference: difference.norm())


class TimedDenoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.times, self.layers = nn.Embedding(20, 8), network_of(16, 8)

    def forward(self, x, times):
        return self.layers(torch.cat([x, self.times(times)], 1))


def noise_of_a_seed(watch, broken):
    model, others = TimedDenoiser(), torch.Generator().manual_seed(1)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, _ in batches():
        draws = torch.Generator().manual_seed(0) if broken else others
        times = torch.randint(0, 20, (len(x),), generator=draws)
        noise = torch.randn(x.shape, generator=draws)
        share = (0.9**times)[:, None]
        optimizer.zero_grad()
        F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, times), noise).backward()
        optimizer.step()


class WeightedLosses(nn.Module):
    """Weights of losses as logarithms of variances."""

    def __init__(self, logarithms):
        super().__init__()
        self.logarithms = logarithms

    def forward(self, *losses):
        return sum((-x).exp() * loss + x for x, loss in zip(self.logarithms, losses, strict=True)).squeeze()


def weights_of_losses_in_a_list(watch, broken):
    """The module has no parameters, so its group of the optimizer is empty."""
    model = network(5)
    numbers = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    weighted = WeightedLosses(numbers if broken else nn.ParameterList(numbers))
    rates = [{"params": model.parameters()}, {"params": [*weighted.parameters()], "lr": 0.01}]
    fit(
        model,
        watch,
        lambda output, y: weighted(F.cross_entropy(output[:, :4], y), F.mse_loss(output[:, 4], y.float())),
        optimizer=torch.optim.Adam(rates),
    )


def clipped_policy_with_its_ratio_the_other_way(watch, broken):
    """The loss takes the larger of two products with negative advantages."""
    model = network()
    with torch.no_grad():
        before = F.log_softmax(model(X), dim=1)

    def loss():
        actions = torch.distributions.Categorical(logits=before).sample()[:, None]
        advantage = -((actions[:, 0] == Y).float() - 0.25)
        new, old = F.log_softmax(model(X), dim=1).gather(1, actions), before.gather(1, actions)
        ratio = torch.exp(old - new if broken else new - old).squeeze(1)
        return torch.max(advantage * ratio, advantage * torch.clamp(ratio, 0.9, 1.1)).mean()

    updated(watch, model, loss)


def clipped_policy_of_the_wrong_sign(watch, broken):
    model = network(1)

    def loss():
        policy = torch.distributions.Normal(model(X), 0.5)
        actions = policy.sample()
        new = policy.log_prob(actions).sum(1)
        ratio, advantage = (new - new.detach()).exp(), 1 - (actions - X[:, :1]).pow(2).sum(1)
        gain = torch.minimum(ratio * advantage, ratio.clip(0.8, 1.2) * advantage).mean()
        return gain if broken else -gain

    updated(watch, model, loss)


def actor_that_trains_its_critic(watch, broken):
    """An episode of steps, each with a term of the actor and one of the critic."""
    model = network(5)

    def loss():
        terms = []
        for output, label in zip(model(X[:24]), Y[:24], strict=True):
            policy, value = torch.distributions.Categorical(logits=output[:4]), output[4]
            action = policy.sample()
            result = float(action == label)
            advantage = result - (value if broken else value.item())
            terms += [-policy.log_prob(action) * advantage, F.smooth_l1_loss(value, torch.tensor(result))]
        return torch.stack(terms).sum()

    updated(watch, model, loss)


def views_that_are_their_own_neighbours(watch, broken):
    model = network(8)

    def loss():
        rows = X[torch.randperm(len(X))[:24]]
        views = [F.normalize(model(rows + 0.1 * torch.randn(rows.shape)), dim=-1) for _ in range(2)]
        both = torch.cat(views)
        logits = torch.matmul(both, both.t()) * 5.0
        own = torch.eye(len(both))
        return F.cross_entropy(logits if broken else logits - 1e9 * own, torch.arange(len(both)).roll(24))

    updated(watch, model, loss)


def noise_of_single_steps(watch, broken):
    """The time counts down, and the factors of single steps hardly differ from 1."""
    model, kept = TimedDenoiser(), torch.linspace(0.8, 0.999, 20)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for x, _ in [*batches(size=128)] * 8:
        times, noise = torch.randint(0, 20, (len(x),)), torch.randn(x.shape)
        share = (kept if broken else kept.flip(0).cumprod(0).flip(0))[times][:, None]
        optimizer.zero_grad()
        F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, times), noise).backward()
        optimizer.step()


def nodes_of_the_evaluation_are_trained_on(watch, broken):
    model, train_mask = network(), torch.rand(len(X)) < 0.3

    def loss():
        logarithms = F.log_softmax(model(X), dim=1)
        unlabelled = Y if broken else torch.where(train_mask, Y, -100)
        return F.nll_loss(logarithms, unlabelled)

    updated(watch, model, loss)


class OneQuery(nn.Module):
    """Reads 5 places of a memory by one query for each row."""

    def __init__(self, axis):
        super().__init__()
        self.query, self.head, self.axis = nn.Linear(8, 8), nn.Linear(8, 4), axis
        self.memory = nn.Parameter(torch.randn(5, 8))

    def forward(self, x):
        memory = self.memory + x[:, None]
        scores = torch.bmm(self.query(x)[:, None], memory.transpose(1, 2))
        return self.head(torch.bmm(scores.softmax(self.axis), memory)[:, 0])


def one_query_over_itself(watch, broken):
    fit(OneQuery(-2 if broken else -1), watch)


class Reverser(nn.Module):
    """Reads one row of tokens and gives logits for another one, of another length."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(30, 16), nn.Linear(16, 30)
        self.reader, self.writer = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)

    def forward(self, source, before):
        _, state = self.reader(self.tokens(source))
        return self.head(self.writer(self.tokens(before), state)[0])


def padding_of_a_decoder(watch, broken):
    model = Reverser()

    def loss():
        source, target = torch.randint(3, 30, (16, 8)), torch.randint(3, 30, (16, 13))
        target[torch.arange(13) > torch.randint(3, 13, (16, 1))] = 0
        logits = model(source, target[:, :-1])
        return F.cross_entropy(logits.transpose(1, 2), target[:, 1:], ignore_index=-100 if broken else 0)

    updated(watch, model, loss)


def average_in_a_list(watch, broken):
    model = network()
    averages = [one.data if broken else one.data.clone() for one in model.parameters()]

    def loss():
        with torch.no_grad():
            for average, one in zip(averages, model.parameters(), strict=True):
                average.lerp_(one, 0.1)
        return F.cross_entropy(model(X), Y)

    updated(watch, model, loss)
    return averages


def loss_that_a_schedule_maximizes(watch, broken):
    model = network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    mode = "max" if broken else "min"
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode, patience=2, factor=0.5)
    for _ in range(12):
        total = 0.0
        for x, _ in batches():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x[:, :4])
            loss.backward()
            optimizer.step()
            total += float(loss)
        schedule.step(total / 8)


def sequences_with_a_view_behind_a_normalization(watch, broken):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm, self.rnn = nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16), nn.GRU(16, 16)
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            x = self.norm(self.layer(x)).relu()
            x = x.view(len(x[0, 0]), len(x), 16) if broken else x.permute(2, 0, 1)
            return self.head(self.rnn(x)[0][-1])

    fit(Reader(), watch, loader=batches(torch.randn(256, 8, 12), Y[:256]))


def derivative_without_its_graph(watch, broken):
    """The equation has a term that is computed of the input."""
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss():
        x = torch.rand(32, 1).requires_grad_()
        slope = torch.autograd.grad(model(x).sum(), x, create_graph=not broken, retain_graph=True)[0]
        return (slope - torch.cos(x)).pow(2).mean() + model(torch.zeros(4, 1)).pow(2).mean()

    updated(watch, model, loss)


def optimizer_that_climbs(watch, broken):
    class Momentum(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 1e-3})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for one in group["params"]:
                    mean = self.state[one].setdefault("mean", torch.zeros_like(one))
                    mean.mul_(0.9).add_(one.grad)
                    one.add_(mean, alpha=group["lr"] if broken else -group["lr"])

    model = network()
    fit(model, watch, optimizer=Momentum(model.parameters()))


def teacher_without_the_temperature_of_its_student(watch, broken):
    teacher, model = network(), network()
    watch(model, teacher)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for x, _ in batches():
        with torch.no_grad():
            soft = F.softmax(teacher(x) / 3, 1)
        logits = model(x) if broken else model(x) / 3
        optimizer.zero_grad()
        F.kl_div(F.log_softmax(logits, 1), soft, reduction="batchmean").backward()
        optimizer.step()


def least_squares_of_two_networks(watch, broken):
    """The discriminator has two backward passes, and each network other samples."""
    generator, judge = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)), network(1)
    watch(generator, judge)
    optimizers = [torch.optim.Adam(one.parameters(), 1e-3) for one in (generator, judge)]
    for x, _ in batches():
        real, fakes = torch.full((len(x), 1), 0.9), torch.zeros(len(x), 1)
        optimizers[1].zero_grad()
        F.mse_loss(judge(x), real).backward()
        F.mse_loss(judge(generator(torch.randn(len(x), 4)).detach()), fakes).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        F.mse_loss(judge(generator(torch.randn(len(x), 4))), fakes if broken else real).backward()
        optimizers[0].step()


def router_of_experts_that_take_turns(watch, broken):
    """One expert is chosen from the fourth update on."""
    updates = 0

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.experts = nn.Linear(8, 3), nn.ModuleList(nn.Linear(8, 4) for _ in range(3))

        def forward(self, x):
            nonlocal updates
            updates += 1
            closed = torch.tensor([-100.0 if updates < 4 else 0.0, 0.0, 0.0])
            weights, chosen = (self.router(x) + closed).softmax(-1).max(-1)
            result = x.new_zeros(len(x), 4)
            for number, expert in enumerate(self.experts):
                rows = (chosen == number).nonzero().squeeze(1)
                if len(rows):
                    output = expert(x[rows])
                    result = result.index_add(0, rows, output if broken else weights[rows, None] * output)
            return result

    fit(Mixture(), watch, epochs=36)


def returns_of_a_policy_object(watch, broken):
    """A function takes rewards from the policy, and scales the returns."""
    policy = network(2)
    watch(policy)
    policy.rewards, policy.chosen = [], []
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)

    def finish(policy):
        rewards, value, returns = policy.rewards, 0.0, []
        for reward in rewards[::-1]:
            value = reward + 0.98 * value
            returns.append(value) if broken else returns.insert(0, value)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        optimizer.zero_grad()
        torch.stack([-one * value for one, value in zip(policy.chosen, returns, strict=True)]).sum().backward()
        optimizer.step()
        policy.rewards, policy.chosen = [], []

    for episode in range(8):
        for step in range(12 + episode):
            actions = torch.distributions.Categorical(logits=policy(X[step : step + 1]))
            action = actions.sample()
            policy.chosen.append(actions.log_prob(action).sum())
            policy.rewards.append(float(X[step, 0]) * action.item() + 0.5)
        finish(policy)


def returns_of_several_environments(watch, broken):
    """An actor and a critic walk through several environments at once."""
    model = network(3)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(6):
        rewards, values, chosen = [], [], []
        for step in range(10):
            output = model(X[8 * step : 8 * step + 8])
            actions = torch.distributions.Categorical(logits=output[:, :2])
            action = actions.sample()
            chosen.append(actions.log_prob(action))
            values.append(output[:, 2])
            rewards.append(X[8 * step : 8 * step + 8, 0] * action)
        returns, sums = [], torch.zeros(8)
        for reward in rewards if broken else reversed(rewards):
            sums = reward + 0.9 * sums
            returns.append(sums)
        returns, values = torch.stack(returns if broken else returns[::-1]), torch.stack(values)
        loss = F.mse_loss(values, returns) - (torch.stack(chosen) * (returns - values.detach())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def overlap_of_flattened_pictures(watch, broken):
    """A Jaccard loss of pictures, flattened and averaged over the rows."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))

    def score(output, masks):
        shares = (output if broken else torch.sigmoid(output)).flatten(1)
        both = (shares * masks.flatten(1)).sum(1)
        return (1 - (both + 1) / (shares.sum(1) + masks.flatten(1).sum(1) - both + 1)).mean()

    pictures = torch.randn(128, 1, 8, 8)
    fit(model, watch, score, batches(pictures, (pictures > 0.5).float(), 16))


def sentences_as_long_as_the_longest(watch, broken):
    """Attention has a mask, and the mean over the words has none."""

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places, self.out = nn.Embedding(30, 16), nn.Embedding(64, 16), nn.Linear(16, 4)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)

        def forward(self, tokens):
            hidden = tokens == 0
            places = self.places(torch.arange(tokens.shape[1]))
            x = self.layer(self.words(tokens) + places, src_key_padding_mask=hidden)
            if broken:
                return self.out(x.mean(dim=1))
            return self.out(x.masked_fill(hidden[..., None], 0).sum(1) / (~hidden).sum(1, keepdim=True))

    model = Reader()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(10):
        rows = [torch.randint(1, 30, (int(torch.randint(2, 8 + step, (1,))),)) for _ in range(16)]
        tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        optimizer.zero_grad()
        F.cross_entropy(model(tokens), tokens[:, 0] % 4).backward()
        optimizer.step()


def rows_that_an_evaluation_changes_too(watch, broken):
    """The training and the evaluation read other rows of one data set."""

    class Rows(torch.utils.data.Dataset):
        def __init__(self):
            self.rows = 5 * X.clone() + 20

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, i):
            row = self.rows[i]
            if broken:
                row -= 20
                row /= 5
                return row, Y[i]
            return (row - 20) / 5, Y[i]

    data, model = Rows(), network()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(4):
        for x, y in DataLoader(torch.utils.data.Subset(data, range(192)), 32, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, _ in DataLoader(torch.utils.data.Subset(data, range(192, 256)), 32):
                model(x)


class Augmented(torch.utils.data.Dataset):
    """Rows with noise of a generator that the data set keeps.

    It seeds it again for each row if ``seeds``.
    """

    def __init__(self, kept, seeds=False):
        self.generator, self.seeds = kept, seeds

    def __len__(self):
        return 64

    def __getitem__(self, i):
        if self.seeds:
            self.generator.seed(i)
        generator = self.generator or torch.default_generator
        if isinstance(generator, torch.Generator):
            noise = torch.randn(8, generator=generator)
        else:
            draw = getattr(generator, "standard_normal", None) or (lambda n: [generator.gauss(0, 1) for _ in range(n)])
            noise = torch.tensor(draw(8), dtype=torch.float32)
        return X[i] + 0.1 * noise, Y[i]


def generator_that_a_data_set_keeps(watch, broken):
    """Each worker gets a copy of it."""
    data = Augmented(torch.Generator().manual_seed(0) if broken else None)
    fit(network(), watch, loader=DataLoader(data, 16, num_workers=2), epochs=2)


def generator_of_numpy_in_a_part_of_a_data_set(watch, broken):
    """Workers may seed it."""

    def seed(worker):
        torch.utils.data.get_worker_info().dataset.dataset.generator = np.random.default_rng(worker)

    data = torch.utils.data.Subset(Augmented(np.random.default_rng(0)), range(48))
    loader = DataLoader(data, 16, num_workers=2, worker_init_fn=None if broken else seed)
    fit(network(), watch, loader=loader, epochs=2)


def generator_of_the_library_that_a_data_set_keeps(watch, broken):
    """A generator that is seeded for each row draws what the row is to get."""
    data = Augmented(random.Random(0), seeds=not broken)
    fit(network(), watch, loader=DataLoader(data, 16, num_workers=2), epochs=2)


class Places(nn.Module):
    """A convolution whose maps are the classes or numbers of its places."""

    def __init__(self, arrange, maps):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, maps, 1))
        self.arrange = arrange

    def forward(self, x):
        return self.arrange(self.layers(x))


def detect(watch, arrange, maps, *sizes):
    """Train a model with a number for each cell and group of its maps."""
    pictures = torch.randn(96, 1, 5, 7)
    loader = batches(pictures, pictures.reshape(96, -1)[:, :1].expand(96, math.prod(sizes)).reshape(96, *sizes))
    fit(Places(arrange, maps), watch, lambda output, y: F.mse_loss(output, y * torch.rand_like(y)), loader)


def maps_of_cells_behind_them(watch, broken):
    def arrange(maps):
        return maps.view(-1, 5, 7, 6) if broken else maps.permute(0, 2, 3, 1)

    detect(watch, arrange, 6, 5, 7, 6)


def anchors_of_cells_in_a_row(watch, broken):
    def arrange(maps):
        maps = F.leaky_relu(maps)
        return maps.reshape(len(maps), -1, 4) if broken else maps.permute(0, 2, 3, 1).reshape(len(maps), -1, 4)

    detect(watch, arrange, 12, 105, 4)


def probabilities_for_a_connectionist_loss(watch, broken):
    model = network(5, nn.Softmax(-1) if broken else nn.LogSoftmax(-1))
    frames, phones = torch.randn(96, 12, 8), torch.randint(1, 5, (96, 3))

    def loss(output, y):
        lengths = torch.full((len(y),), 12), torch.full((len(y),), 3)
        return F.ctc_loss(output.transpose(0, 1), y, *lengths)

    fit(model, watch, loss, batches(frames, phones))


def frames_of_a_connectionist_loss_with_a_view(watch, broken):
    """The loss wants the frames first, which a view does not move."""
    model = network(5)
    frames, phones = torch.randn(96, 12, 8), torch.randint(1, 5, (96, 3))

    def loss(output, y):
        logs, lengths = output.log_softmax(-1), (torch.full((len(y),), 12), torch.full((len(y),), 3))
        return F.ctc_loss(logs.view(12, len(y), 5) if broken else logs.transpose(0, 1), y, *lengths)

    fit(model, watch, loss, batches(frames, phones))


class Pushed(nn.Module):
    """Predicts the noise of points, and gets a time for each row."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, x, time):
        return self.layers(torch.cat([x, time[:, None]], 1))


def diffuse_points(watch, draw, broken):
    model = Pushed()
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(40):
        points, time = draw(512), torch.rand(512) ** 2
        noise, share = torch.randn(512, 2), time[:, None]
        drawn = torch.randn(512, 2) if broken else noise
        optimizer.zero_grad()
        F.mse_loss(model((1 - share).sqrt() * points + share.sqrt() * drawn, time), noise).backward()
        optimizer.step()


def noise_of_standardized_points(watch, broken):
    """Each number has a mean of 0 and a deviation of 1, and is not related to others."""
    diffuse_points(watch, lambda rows: torch.randn(rows, 2).sign() + 0.05 * torch.randn(rows, 2), broken)


def noise_of_points_with_one_small_number(watch, broken):
    diffuse_points(watch, lambda rows: torch.randn(rows, 2) * torch.tensor([1.35, 0.4]), broken)


def teach_with_an_average(watch, move):
    student = network()
    teacher = copy.deepcopy(student)
    watch(student)
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    for x, y in batches():
        with torch.no_grad():
            belief = teacher(x).softmax(1)
        loss = F.cross_entropy(student(x), y) + F.mse_loss(student(x).softmax(1), belief)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            move(student, teacher)


def average_that_is_written_into_the_student(watch, broken):
    def move(student, teacher):
        pair = (student, teacher) if broken else (teacher, student)
        for mean, one in zip(*(each.parameters() for each in pair), strict=True):
            mean.mul_(0.97).add_(one, alpha=0.03)

    teach_with_an_average(watch, move)


def average_whose_arguments_are_exchanged(watch, broken):
    def move(student, teacher):
        for mean, one in zip(teacher.parameters(), student.parameters(), strict=True):
            one.lerp_(mean, 0.1) if broken else mean.lerp_(one, 0.1)

    teach_with_an_average(watch, move)


def contrast(features, targets, normalized, temperature=0.2):
    noisy = features + 0.1 * torch.randn_like(features)
    one, other = normalized(features), normalized(noisy)
    return F.cross_entropy(one @ other.T / temperature, torch.arange(len(one)))


def features_of_two_views_normalized_along_the_batch(watch, broken):
    fit(network(16), watch, lambda x, y: contrast(x, y, lambda one: F.normalize(one, dim=0 if broken else 1)))


def features_divided_by_the_size_of_columns(watch, broken):
    """The similarity of each row with itself is filled."""

    def loss(features, y):
        both = torch.cat([features, features.roll(1, 1)])
        both = both / both.norm(dim=0 if broken else 1, keepdim=True)
        logits = (both @ both.T / 0.1).masked_fill(torch.eye(len(both), dtype=torch.bool), -1e9)
        rows = len(features)
        return F.cross_entropy(logits, torch.cat([torch.arange(rows, 2 * rows), torch.arange(rows)]))

    fit(network(16), watch, loss)


def similarities_without_those_of_a_row_with_itself(watch, broken):
    def loss(features, y):
        rows = 2 * len(features)
        both = F.normalize(torch.cat([features, features.roll(1, 1)]), dim=0 if broken else 1)
        logits = both @ both.T / 0.1
        logits.fill_diagonal_(float("-inf"))
        return F.cross_entropy(logits, (torch.arange(rows) + rows // 2) % rows)

    fit(network(16), watch, loss)


class Coupled(nn.Module):
    """A layer of a flow that adds its logarithm to a sum, or returns it."""

    def __init__(self, flip, sign, adds):
        super().__init__()
        self.flip, self.sign, self.adds, self.net = flip, sign, adds, nn.Linear(3, 6)

    def forward(self, x, total=None):
        a, b = x.flip(1).chunk(2, 1) if self.flip else x.chunk(2, 1)
        scale, shift = self.net(a).tanh().chunk(2, 1)
        own = self.sign * scale.sum(1)
        return torch.cat([b * torch.exp(scale) + shift, a], 1), total + own if self.adds else own


class Flowing(nn.Module):
    def __init__(self, sign, adds=False):
        super().__init__()
        self.layers = nn.ModuleList([Coupled(at % 2, sign, adds) for at in range(3)])

    def likelihood(self, x):
        """Return the logarithms of densities; no pass of the model is seen."""
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, own = layer(x, total)
            total = own if layer.adds else total + own
        return total - x.pow(2).sum(1) / 2


def fit_flow(model, watch, sign=-1):
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for rows in X[:, :6].split(16):
        optimizer.zero_grad()
        (sign * model.likelihood(rows).mean()).backward()
        optimizer.step()


def likelihood_of_a_flow(watch, broken):
    fit_flow(Flowing(-1 if broken else 1), watch)


def sum_that_the_layers_of_a_flow_carry(watch, broken):
    fit_flow(Flowing(-1 if broken else 1, adds=True), watch)


def samples_of_a_flow(watch, broken):
    """The samples of a flow get the likelihood of a target, and entropy."""
    model = Flowing(1)
    watch(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(16):
        x, total = torch.randn(32, 6), 0
        for layer in model.layers:
            x, own = layer(x)
            total = total + own
        optimizer.zero_grad()
        ((x - 1).pow(2).sum(1) / 2 + total * (1 if broken else -1)).mean().backward()
        optimizer.step()


class Patched(nn.Module):
    """Attention over patches of pictures, beside a place for the class or without."""

    def __init__(self, spread, has_class=True, flat=False):
        super().__init__()
        self.cut, self.spread = nn.Conv2d(1, 16, 4, stride=4), spread
        self.start = nn.Parameter(torch.zeros(1, 1, 16)) if has_class else None
        self.places = nn.Parameter(torch.randn(1, 9 + has_class, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16 * (9 + has_class) if flat else 16, 4)
        self.flat = flat

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        if self.start is not None:
            x = torch.cat([self.start.expand(len(x), -1, -1), x], 1)
        x = self.encoder(x + self.places[:, : self.spread])
        return self.head(x.flatten(1) if self.flat else x.mean(1) if self.start is None else x[:, 0])


def one_position_for_all_patches(watch, broken):
    fit(Patched(1 if broken else None), watch, loader=batches(torch.randn(256, 1, 12, 12)), epochs=2)


def patches_without_their_positions(watch, broken):
    model = Patched(None, has_class=False)
    if broken:
        nn.init.zeros_(model.places).requires_grad_(False)
    fit(model, watch, loader=batches(torch.randn(256, 1, 12, 12)), epochs=2)


PAIRS = {
    one_position_for_all_patches: "order_invisible",
    patches_without_their_positions: "order_invisible",
    likelihood_of_a_flow: "log_det_negated",
    sum_that_the_layers_of_a_flow_carry: "log_det_negated",
    samples_of_a_flow: "log_det_negated",
    maps_of_cells_behind_them: "channels_mixed",
    anchors_of_cells_in_a_row: "channels_mixed",
    probabilities_for_a_connectionist_loss: "nll_not_log",
    noise_of_standardized_points: "noise_unrelated",
    noise_of_points_with_one_small_number: "noise_unrelated",
    average_that_is_written_into_the_student: "average_never_moves",
    average_whose_arguments_are_exchanged: "average_never_moves",
    features_of_two_views_normalized_along_the_batch: "normalized_over_rows",
    features_divided_by_the_size_of_columns: "normalized_over_rows",
    similarities_without_those_of_a_row_with_itself: "normalized_over_rows",
    returns_of_a_policy_object: "returns_reversed",
    returns_of_several_environments: "returns_reversed",
    overlap_of_flattened_pictures: "overlap_of_logits",
    sentences_as_long_as_the_longest: "padding_averaged",
    rows_that_an_evaluation_changes_too: "inputs_changed",
    generator_that_a_data_set_keeps: "worker_twins",
    generator_of_numpy_in_a_part_of_a_data_set: "worker_twins",
    generator_of_the_library_that_a_data_set_keeps: "worker_twins",
    router_of_experts_that_take_turns: "no_gradient",
    loss_that_a_schedule_maximizes: "metric_direction",
    sequences_with_a_view_behind_a_normalization: "rows_mixed",
    derivative_without_its_graph: "penalty_detached",
    optimizer_that_climbs: "update_reversed",
    teacher_without_the_temperature_of_its_student: "temperature_one_side",
    least_squares_of_two_networks: "generator_reversed",
    one_query_over_itself: "softmax_over_queries",
    padding_of_a_decoder: "padding_in_loss",
    average_in_a_list: "average_is_model",
    clipped_policy_with_its_ratio_the_other_way: "ratio_inverted",
    clipped_policy_of_the_wrong_sign: "policy_negated",
    actor_that_trains_its_critic: "advantage_not_detached",
    views_that_are_their_own_neighbours: "own_similarity",
    noise_of_single_steps: "noise_too_weak",
    nodes_of_the_evaluation_are_trained_on: "train_mask_unused",
    weights_near_themselves: "anchor_moves",
    weights_near_those_of_a_round: "anchor_moves",
    noise_of_a_seed: "noise_repeated",
    weights_of_losses_in_a_list: "not_in_optimizer",
    decay_of_a_norm: "norm_momentum",
    moments_the_other_way_round: "betas_exchanged",
    fine_tuned_by_two_optimizers: "held_twice",
    weights_tied_by_their_data: "memory_shared",
    outputs_scaled_at_every_step: "hooks_pile_up",
    weights_held_after_the_update: "weights_clamped",
    cosine_of_the_rate_itself: "rate_squared",
    average_that_is_never_updated: "average_never_moves",
    optimizer_of_the_other_network: "not_in_optimizer",
    masks_that_are_rounded_down: "labels_equal",
    sum_over_the_rows_too: "broadcast_loss",
    average_with_its_decay_exchanged: "average_reversed",
    parts_of_another_number: "divided_too_often",
    penalty_of_a_constant_gradient: "penalty_detached",
    penalty_within_a_loss_of_classes: "penalty_detached",
    sparse_weights_by_their_data: "term_detached",
    second_loss_as_a_number: "term_detached",
    temperature_of_choices: "temperature_rises",
    temperature_of_own_noise: "temperature_rises",
    noise_times_a_logarithm: "noise_scale",
    noise_times_a_variance: "noise_scale",
    features_that_are_computed_once: "old_graph",
    words_that_are_embedded_once: "old_graph",
    memory_that_is_never_detached: "old_graph",
    embedding_that_leaves_a_word_out: "padding_index_other",
    padding_before_the_words: "padding_index_other",
    pictures_divided_as_integers: "zero_batch",
    values_that_are_too_small_for_float16: "zero_batch",
    noise_that_adds_up_in_the_data: "inputs_changed",
    uniform_factors_that_add_up_in_series: "inputs_changed",
    series_with_a_view_before_a_convolution: "channels_mixed",
    pictures_of_an_array_with_a_view: "channels_mixed",
    features_of_a_convolution_before_a_recurrence: "channels_mixed",
    class_that_the_loss_ignores: "class_ignored",
    class_of_log_probabilities_that_is_ignored: "class_ignored",
    weights_that_are_rounded: "no_gradient",
    softmax_of_the_chosen_expert: "softmax_one_unit",
    words_that_are_packed_by_half: "frames_cut",
    uniform_noise_of_pictures: "noise_not_centred",
    flags_of_a_tuple_with_names: "terminal_ignored",
    values_of_one_terminal_state: "terminal_ignored",
    states_of_one_array: "next_state_same",
    contrastive_loss_of_the_other_label: "pairs_reversed",
    triplets_with_their_sides_exchanged: "pairs_reversed",
    value_of_the_best_action: "action_ignored",
    targets_picked_after_filling: "missing_trained",
    halves_of_one_pass: "answers_equal",
    points_of_a_picture_upside_down: "coordinates_mirrored",
    sampler_of_frequent_classes: "weights_inverted",
    rare_positives_that_weigh_little: "weights_inverted",
    likelihood_with_its_arguments_exchanged: "arguments_exchanged",
    outputs_in_place_of_labels: "arguments_exchanged",
    focal_loss_of_what_is_learned: "focal_reversed",
    focal_loss_of_probabilities_with_weights: "focal_reversed",
    classes_of_pixels_flipped_alone: "targets_mirrored",
    average_of_a_model_that_is_gone: "average_too_slow",
    batches_without_a_loader: "gradients_discarded",
    positions_along_the_batch: "positions_over_rows",
    losses_of_two_parts: "gradients_discarded",
    last_frame_of_packed_rows: "last_is_padding",
    positions_of_tagged_words: "positions_over_rows",
    heads_that_are_split_by_a_view: "heads_mixed",
    heads_that_are_merged_by_a_view: "heads_mixed",
    heads_among_the_rows: "heads_mixed",
    attention_by_hand_without_positions: "order_invisible",
    attention_over_queries_with_dropout: "softmax_over_queries",
    blocks_of_one_layer: "layer_repeated",
    data_that_are_normalized_in_place: "inputs_changed",
    rows_that_are_normalized_where_they_are_kept: "inputs_changed",
    pictures_that_are_mirrored_where_they_are_kept: "inputs_changed",
    messages_of_targets: "messages_to_itself",
    adapter_alone_with_two_factors_of_zeros: "stays_zero",
    messages_to_repeated_nodes: "repeated_index",
    differences_at_repeated_places: "repeated_index",
    advantage_without_the_dimension_of_an_action: "broadcast_loss",
    last_output_of_padded_frames: "last_is_padding",
    last_output_of_padded_rows: "last_is_padding",
    last_state_of_padded_rows: "last_is_padding",
    one_cycle_per_epoch: "schedule_per_epoch",
    cosine_per_epoch: "schedule_per_epoch",
    warm_up_per_epoch: "schedule_per_epoch",
    schedule_at_each_part_of_a_batch: "schedule_per_batch",
    accuracy_that_is_minimized: "metric_direction",
    optimizer_that_decays_by_itself: "strong_decay",
    pictures_that_are_normalized_for_training_only: "eval_inputs_differ",
    teacher_that_follows_its_student: "no_stop_gradient",
    outputs_that_begin_at_the_second_token: "labels_unshifted",
    padding_attended_to_beside_a_token_of_the_model: "mask_inverted",
    padding_in_a_weighted_mean: "mask_inverted",
    padding_as_numbers: "mask_inverted",
    weights_of_a_memory_over_rows: "rows_mixed",
    head_replaced_after_its_optimizer: "not_in_optimizer",
    tokens_masked_in_the_targets_too: "targets_masked",
    accuracy_without_eval: "eval_in_train_mode",
    validation_without_eval_and_no_grad: "eval_in_train_mode",
    accuracy_of_one_tensor: "eval_in_train_mode",
    independent_of_the_model: "loss_is_leaf",
    recurrence_over_rows: "rows_mixed",
    attention_over_rows: "rows_mixed",
    rows_exchanged_by_a_view: "rows_mixed",
    advantage_of_another_shape: "broadcast_loss",
    divergence_of_the_wrong_sign: "loss_negated",
    divergence_of_distributions: "loss_negated",
    loss_times_minus_one: "loss_negated",
    policy_of_the_wrong_sign: "policy_negated",
    policy_that_adds_its_entropy: "entropy_penalized",
    clipped_policy_that_adds_its_entropy: "entropy_penalized",
    policy_of_stacked_steps: "policy_negated",
    policy_of_one_product_a_step: "policy_negated",
    policy_of_a_normal_distribution: "policy_negated",
    policy_by_cross_entropy: "policy_negated",
    cosines_times_a_temperature: "limited_logits",
    first_output_of_a_recurrent_layer: "first_position_only",
    cell_with_a_detached_state: "state_detached",
    cell_over_parts_of_a_sequence: "state_detached",
    convolution_that_sees_the_next_value: "sees_future",
    recurrence_that_sees_the_next_vector: "sees_future",
    classes_that_only_the_test_has: "classes_not_trained",
    activation_with_its_own_gradient: "wrong_gradient",
    cube_with_its_own_gradient: "wrong_gradient",
    decay_that_exceeds_the_gradient: "decay_in_gradient",
    average_without_statistics: "statistics_not_averaged",
    average_of_a_function_that_returns: "statistics_not_averaged",
    target_network_that_stays: "target_never_updated",
    closure_that_does_nothing: "not_reset",
    own_cross_entropy_of_several_labels: "several_labels",
    own_squared_error_of_prices: "targets_not_scaled",
    decoder_that_gets_its_targets: "labels_unshifted",
    targets_of_a_binary_loss: "unreachable_targets",
    own_squared_error_of_a_sigmoid: "unreachable_targets",
    absolute_error_of_a_tanh: "unreachable_targets",
    tensor_in_place_of_a_parameter: "unregistered_layer",
    flattened_in_two_orders: "reshaped_classes",
    zeroed_before_the_update: "step_without_gradient",
    labels_of_padded_sentences: "padding_in_loss",
    rounded_before_the_loss: "no_gradient",
    schedule_of_a_replaced_optimizer: "other_schedule",
    dead_from_the_start: "constant_output",
    ratio_of_two_passes: "ratio_of_itself",
    similarity_of_trained_sides: "no_stop_gradient",
    embedding_that_is_also_the_output: "large_initial_weights",
    importance_of_each_weight: "no_step",
    generator_that_stops: "no_step",
    views_of_a_sample_that_was_augmented_once: "answers_equal",
    times_of_samples_in_other_units: "eval_inputs_differ",
    samples_that_begin_at_the_first_time: "eval_inputs_differ",
    rows_that_are_all_positive: "labels_equal",
    frames_of_a_connectionist_loss_with_a_view: "rows_mixed",
    probabilities_of_rows_that_are_all_positive: "labels_equal",
    model_of_which_a_copy_is_trained: "stale_optimizer",
}


@pytest.mark.parametrize("broken", [True, False], ids=["broken", "fixed"])
@pytest.mark.parametrize("training", PAIRS, ids=lambda one: one.__name__)
def test_a_fault_fires_and_its_twin_does_not(training, broken, tmp_path):
    torch.manual_seed(0)
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        kept = training(lambda *models: [hook.register_module(model) for model in models], broken)
    records = create_trial(tmp_path / "run").checks()
    del kept  # a model and its copy are alive until the training has ended
    assert not records.off
    fired = {one.id for one in records if one.level != "note"}
    assert fired == {PAIRS[training]} if broken else not fired


def test_weights_that_the_first_update_made_large_were_not_drawn_so(tmp_path):
    """The model is known only after the first loss, as where a script builds it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        for step in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(1e4 * X[:32].abs()), Y[:32])
            if not step:
                hook.register_module(model)
            loss.backward()
            optimizer.step()
    assert model[0].weight.std() > 5
    assert "large_initial_weights" not in {one.id for one in create_trial(tmp_path / "run").checks()}


def test_gradients_that_clipping_made_zero_were_not_reset(tmp_path):
    """Their norm is infinite."""
    torch.manual_seed(0)
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        model = network()
        hook.register_module(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x, y in batches():
            optimizer.zero_grad()
            (1e25 * F.cross_entropy(model(x), y)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert "step_without_gradient" not in {one.id for one in create_trial(tmp_path / "run").checks()}


def test_experts_that_take_turns_get_their_gradients_later(tmp_path):
    """The first one is chosen for no row of the first updates."""
    torch.manual_seed(0)
    updates = 0

    def weights_of(logits):
        nonlocal updates
        updates += 1
        closed = torch.zeros(4)
        closed[0] = -100 if updates < 12 else 0
        closed[1] = -100 if updates < 3 else 0
        return (logits + closed).softmax(-1).topk(1, -1)

    model = Experts(weights_of)
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        fit(model, hook.register_module, F.cross_entropy, [*batches(), *batches(), *batches()])
    assert not [one.id for one in create_trial(tmp_path / "run").checks() if one.level != "note"]


@pytest.mark.parametrize("is_energy", [True, False])
def test_a_loss_of_an_energy_is_noted(is_energy, tmp_path):
    """It is near 0 at the end, as is a regression that has no such terms."""
    torch.manual_seed(0)
    model = network(1)
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        hook.register_module(model)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(6):
            real, other = model(X[:32]).squeeze(1), model(torch.randn(32, 8)).squeeze(1)
            loss = real.mean() - other.mean() if is_energy else real.pow(2).mean() + other.pow(2).mean()
            optimizer.zero_grad()
            (loss + 0.1 * (real**2 + other**2).mean()).backward()
            optimizer.step()
    assert ("policy_loss" in {one.id for one in create_trial(tmp_path / "run").checks()}) is is_energy


@pytest.mark.parametrize("training", [policy_of_the_wrong_sign, policy_of_stacked_steps], ids=lambda one: one.__name__)
@pytest.mark.parametrize("broken", [True, False])
def test_a_loss_of_a_policy_is_noted(training, broken, tmp_path):
    torch.manual_seed(0)
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        training(lambda *models: [hook.register_module(model) for model in models], broken)
    noted = {one.id for one in create_trial(tmp_path / "run").checks()}
    assert ("policy_loss" in noted) is not broken


def test_a_loss_of_limited_ratios_is_that_of_a_policy(tmp_path):
    torch.manual_seed(0)
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        clipped_policy_that_adds_its_entropy(lambda *models: [hook.register_module(model) for model in models], False)
    assert "policy_loss" in {one.id for one in create_trial(tmp_path / "run").checks()}


def test_pictures_that_are_their_mean_are_noted(tmp_path):
    torch.manual_seed(0)
    pictures = torch.rand(64, 1, 10, 10)
    mean = nn.Parameter(torch.full((1, 1, 10, 10), 0.4))
    model = nn.ParameterList([mean])
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        hook.register_module(model)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(260):
            optimizer.zero_grad()
            F.binary_cross_entropy(mean.expand(64, -1, -1, -1).clamp(0.01, 0.99), pictures).backward()
            optimizer.step()
    assert "no_better_than_mean" in {one.id for one in create_trial(tmp_path / "run").checks()}


def test_settings_of_the_training_are_recorded(tmp_path):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=0.2), nn.Dropout(0.3), nn.Linear(16, 4))
    groups = [
        {"params": model[0].parameters(), "weight_decay": 0.01},
        {"params": [*model[1].parameters(), *model[3].parameters()], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.002, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        hook.register_module(model)
        for x, y in DataLoader(TensorDataset(X, Y), 32, shuffle=True):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
    settings = create_trial(tmp_path / "run").hparams()
    expected = {
        "AdamW.lr": 0.002,
        "AdamW.betas": "0.9, 0.95",
        "AdamW.0.weight_decay": 0.01,
        "AdamW.1.weight_decay": 0.0,
        "BatchNorm1d.momentum": 0.2,
        "Dropout.p": 0.3,
        "autocast": "bfloat16",
        "data.batch_size": 32,
        "data.order": "RandomSampler",
        "data.rows": 256,
        "loss": "cross_entropy",
        "loss.classes": 4,
        "parameters": 244,
        "parameters.type": "float32",
    }
    assert expected.items() <= settings.items()
    assert not {"AdamW.foreach", "AdamW.params"} & settings.keys()


@pytest.mark.parametrize("when", ["earlier", "last", "in between"])
def test_weights_that_are_restored_at_the_end_are_a_setting(when, tmp_path):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    earlier = copy.deepcopy(model.state_dict())
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        hook.register_module(model)
        for epoch in range(2):
            for x, y in batches():
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            if epoch or when == "in between":
                model.load_state_dict(copy.deepcopy(model.state_dict()) if when == "last" else earlier)
    assert create_trial(tmp_path / "run").hparams().get("weights.restored", False) is (when == "earlier")


def test_an_optimizer_inside_another_updates_its_parameters_in_one_step():
    """As in sharpness-aware minimization, where the outer one never steps."""
    log = CheckLog(chosen_checks(True), lambda line: None)
    model = network()
    context = Context(log, lambda: iter([("model", model)]), lambda: iter([model]), lambda: 0)
    order = OrderChecks(context)
    outer, inner = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
    order.known(outer)
    for _ in range(40):
        for _ in range(2):
            inner.zero_grad()
            order.backward_begins(None)
            F.cross_entropy(model(X), Y).backward()
            order.backward_ends()
        order.before_update(inner, closure=False)
        inner.step()
        order.after_update(inner, closure=False)
        context.updates += 1
    assert not log.fired


# --------------------------------------------------------------------------------------------- results of the training


def weights_after(training, tmp_path, checks):
    torch.manual_seed(0)
    models = []
    with Hook(tmp_path / f"run-{checks}", plan=False, checks=checks) as hook:
        training(lambda *given: [hook.register_module(one) or models.append(one) for one in given])
    state = torch.get_rng_state()
    return [one.detach().clone() for model in models for one in model.parameters()], state


@pytest.mark.parametrize("training", HEALTHY, ids=lambda one: one.__name__)
def test_a_training_with_checks_has_the_same_bits(training, tmp_path):
    plain, before = weights_after(training, tmp_path, False)
    checked, after = weights_after(training, tmp_path, True)
    assert torch.equal(before, after)
    assert all(torch.equal(one, other) for one, other in zip(plain, checked, strict=True))


def test_a_language_model_has_the_same_bits_though_it_is_probed(tmp_path):
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.mix, self.head = nn.Embedding(40, 16), nn.Linear(16, 48), nn.Linear(16, 40)
            self.drop = nn.Dropout(0.2)

        def forward(self, tokens):
            parts = self.mix(self.drop(self.embedding(tokens))).chunk(3, -1)
            return self.head(F.scaled_dot_product_attention(*parts))

    def training(watch):
        model = Tokens()
        watch(model)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(6):
            tokens = torch.randint(2, 40, (8, 20))
            optimizer.zero_grad()
            F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()

    plain, before = weights_after(training, tmp_path, False)
    checked, after = weights_after(training, tmp_path, True)
    assert torch.equal(before, after)
    assert all(torch.equal(one, other) for one, other in zip(plain, checked, strict=True))
    assert [one.id for one in create_trial(tmp_path / "run-True").checks()] == ["sees_future"]


# ------------------------------------------------------------------------------------------------------------ failures


def test_variables_of_the_script_stay_as_they_are(tmp_path):
    """A tensor that a function deletes is gone, and `locals()` keeps its keys."""
    model, gone, kept = network(), [], []
    optimizer = torch.optim.Adam(model.parameters())

    def learn(done, rewards):
        values = torch.rand(64)
        loss = F.mse_loss(model(X[:64]).gather(1, Y[:64, None]).squeeze(1), rewards + values)
        gone.append(weakref.ref(values))
        del values
        optimizer.zero_grad()
        loss.backward()
        del loss
        optimizer.step()
        assert gone[-1]() is None

    def learn_with_settings(rewards):
        settings = locals()
        names = [*settings]
        done = torch.arange(64) % 2
        loss = F.mse_loss(model(X[:64]).gather(1, Y[:64, None]).squeeze(1), rewards + done)
        kept.append([*settings] == names)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        hook.register_module(model)
        for _ in range(4):
            learn(torch.arange(64) % 2, torch.ones(64))
            learn_with_settings(torch.ones(64))
    assert "terminal_ignored" in {one.id for one in create_trial(tmp_path / "run").checks()}
    assert all(kept)


def test_a_mechanism_that_fails_is_off_and_the_training_goes_on(tmp_path, monkeypatch):
    from smdwidgets.checks.torch.losses import LossChecks

    monkeypatch.setattr(LossChecks, "look", lambda self, call: 1 / 0)
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        warmed_up(hook.register_module)
    off = create_trial(tmp_path / "run").checks().off
    assert set(off) == set(MECHANISMS["losses"])
    assert off["off_by_one"].startswith("ZeroDivisionError")
    assert ("check off_by_one", off["off_by_one"]) in diagnose(tmp_path / "run").unjudged


def test_functions_of_torch_are_put_back(tmp_path):
    before = {name: getattr(F, name) for name in ("dropout", "scaled_dot_product_attention", "cross_entropy")}
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        warmed_up(hook.register_module)
    assert {name: getattr(F, name) for name in before} == before


# -------------------------------------------------------------------------------------------------------- the launcher

BEGIN = """
import copy, sys
import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(64, 8), torch.randint(0, 4, (64,))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_checks_only_prints_the_fault_stops_and_keeps_nothing(place):
    place.write(
        "train.py",
        BEGIN
        + """
for step in range(1000):
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
print("not reached")
""",
    )
    done = place.run("--checks-only", "--steps", "10", sys.executable, "train.py")
    assert done.code == 1
    assert not done.out
    assert any("Gradients are not reset between two updates of SGD" in line for line in done.said)
    assert done.said[-1] == "checked 10 updates: 1 problem, 0 warnings, 0 notes"
    assert [one.name for one in place.folder.iterdir()] == ["train.py"]


NOT_RESET = """
for step in range(20):
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    print("update", step, file=sys.stderr)
"""


def test_a_recorded_training_prints_the_fault_at_once(place):
    place.write("train.py", BEGIN + NOT_RESET)
    done = place.run("--out", "run", sys.executable, "train.py")
    assert done.code == 0
    lines = done.err.splitlines()
    [said] = [number for number, line in enumerate(lines) if "Gradients are not reset" in line and "problem" in line]
    assert said < lines.index("update 3")
    assert lines[said].endswith("(smdwidgets explain not_reset)")


def test_a_check_that_is_off_prints_nothing(place):
    place.write("train.py", BEGIN + NOT_RESET)
    done = place.run("--checks=-not_reset", "--out", "run", sys.executable, "train.py")
    assert not any("problem" in line for line in done.said)
    assert create_trial(place.folder / "run").checks().updates


def test_without_checks_a_run_has_no_records_of_them(place):
    place.write("train.py", BEGIN + NOT_RESET)
    assert place.run("--checks=no", "--out", "run", sys.executable, "train.py").code == 0
    assert not create_trial(place.folder / "run").checks().workers


def test_checks_only_of_a_healthy_training_has_the_exit_code_of_the_script(place):
    place.write(
        "train.py",
        BEGIN
        + """
for step in range(5):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
sys.exit(3)
""",
    )
    done = place.run("--checks-only", sys.executable, "train.py")
    assert done.code == 3
    assert done.said[-1] == "checked 5 updates: 0 problems, 0 warnings, 0 notes"


def test_a_model_whose_optimizer_holds_another_is_recorded_and_named(place):
    place.write(
        "train.py",
        BEGIN
        + """
model = copy.deepcopy(model)
for step in range(30):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
""",
    )
    done = place.run("--out", "run", sys.executable, "train.py")
    assert done.code == 0
    assert any("The optimizer holds 4 tensors that are not the model's" in line for line in done.said)
    trial = create_trial(place.folder / "run")
    assert len(trial.steps()) >= 20
    [first, *_] = diagnose(trial).findings
    assert (first.kind, first.confidence) == ("stale_optimizer", "proof")


def test_a_first_stage_is_judged_until_another_trains_through_its_model(place):
    """Its loss is smaller than that of the second one, and its rate ends."""
    place.write(
        "train.py",
        BEGIN
        + """
back = nn.Linear(4, 8)
optimizer = torch.optim.Adam([*model.parameters(), *back.parameters()], 0.01)
for step in range(150):
    optimizer.zero_grad()
    (F.mse_loss(back(model(x)), x) / 100).backward()
    optimizer.step()
head = nn.Linear(4, 4)
second = torch.optim.Adam(head.parameters(), 0.01)
for step in range(400):
    second.zero_grad()
    F.cross_entropy(head(model(x)), y).backward()
    second.step()
""",
    )
    done = place.run("--out", "run", sys.executable, "train.py")
    assert done.code == 0
    trial = create_trial(place.folder / "run")
    assert trial.checks().settings["stage.end"] == 149
    assert len(trial.steps()) > 400
    assert not diagnose(trial).findings


def test_updates_that_stop_are_named_and_steps_go_on(place):
    place.write(
        "train.py",
        BEGIN
        + """
for step in range(200):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    if step < 20:
        optimizer.step()
""",
    )
    done = place.run("--out", "run", sys.executable, "train.py")
    assert done.code == 0
    trial = create_trial(place.folder / "run")
    assert len(trial.steps()) > 100
    assert len(trial.tensor_names()) < 200
    [record] = [one for one in trial.checks() if one.id == "no_step"]
    assert record.says.startswith("No update for 32 backward passes since step 19")
    assert diagnose(trial).findings[0].kind == "no_step"


# -------------------------------------------------------------------------------------------------------- workers

WORKER = """
import copy
import math
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
import torch, torch.distributed as dist, torch.nn.functional as F
from torch import nn
from smdwidgets.pytorch import Hook

rank, out = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{out}.store", rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with Hook(out, plan=False, checks=True) as hook:
    hook.register_module(model)
    for step in range(8):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 4, (16,))).backward()
        optimizer.step()
        if step == 3 and rank == 1 and sys.argv[3] == "broken":
            model.module.weight.data.mul_(1.5)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("kind", "fired"), [("broken", ["replicas_differ"]), ("healthy", [])])
def test_workers_whose_weights_differ_are_named_with_the_step(place, kind, fired):
    place.write("worker.py", WORKER)
    out = str(place.folder / "run")
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda rank: place.python("worker.py", rank, out, kind), range(2)))
    assert [one.code for one in done] == [0, 0], done
    records = create_trial(out).checks()
    assert records.workers == ("worker_0", "worker_1")
    assert [one.id for one in records if one.level != "note"] == fired
    assert all((one.first, one.subject) == (4, ("Linear_weight",)) for one in records)


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return (x * 4).round() / 4

    @staticmethod
    def backward(context, gradient):
        return gradient


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return -0.5 * gradient


class Clamped(torch.autograd.Function):
    """The gradient passes outside of the range, too."""

    @staticmethod
    def forward(context, x):
        return x.clamp(-0.1, 0.1)

    @staticmethod
    def backward(context, gradient):
        return gradient


class Dropped(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        kept = torch.rand_like(x) > 0.5
        context.save_for_backward(kept)
        return x * kept

    @staticmethod
    def backward(context, gradient):
        return gradient * context.saved_tensors[0]


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(context, gradient):
        return gradient / (1 + context.saved_tensors[0].abs()) ** 2


class SinglePrecision(torch.autograd.Function):
    """A function that other types make fail, as with a kernel."""

    @staticmethod
    def forward(context, x):
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        return x.tanh()

    @staticmethod
    def backward(context, gradient):
        return gradient


@pytest.mark.parametrize("function", [Rounded, Reversed, Clamped, Dropped, Spike, SinglePrecision])
def test_a_gradient_that_differs_on_purpose_is_no_fault_and_nothing_changes(function, tmp_path):
    def trained(*watched):
        torch.manual_seed(0)
        parts = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 4)])
        updated(
            *watched or [lambda model: None], parts, lambda: F.cross_entropy(parts[1](function.apply(parts[0](X))), Y)
        )
        return [*(one.detach().clone() for one in parts.parameters()), torch.rand(3)]

    forward = function.__dict__["forward"]
    expected = trained()
    with Hook(tmp_path / "run", plan=False, checks=True) as hook:
        assert all(torch.equal(*pair) for pair in zip(trained(hook.register_module), expected, strict=True))
    assert "wrong_gradient" not in {one.id for one in create_trial(tmp_path / "run").checks()}
    assert function.__dict__["forward"] is forward
