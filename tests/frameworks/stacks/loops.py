"""Loops of PyTorch for models and objectives of many kinds."""

from __future__ import annotations

import contextlib
import copy
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from frameworks.stacks.fitting import STEPS, Decoder, Net, classify, fit, images, next_token, points, sentences
from frameworks.stacks.table import Trained, stack


@stack
def perceptron(record):
    return fit(record, Net())


@stack
def convolutions(record):
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.3), nn.Flatten(), nn.Linear(144, 3))
    return fit(record, nn.Sequential(*layers), batches=images())


@stack
def residual_network_in_channels_last(record):
    from frameworks.public_trainings import resnet

    model = resnet(3).to(memory_format=torch.channels_last)
    batches = ((x.contiguous(memory_format=torch.channels_last), y) for x, y in images())
    return fit(record, model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), batches=batches)


class Words(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.embedding, self.cell, self.out = nn.Embedding(24, 8), cell(8, 12, batch_first=True), nn.Linear(12, 24)

    def forward(self, tokens, state=None):
        hidden, state = self.cell(self.embedding(tokens), state)
        return self.out(hidden), state


@stack
def recurrent(record):
    return fit(record, Words(nn.RNN), None, lambda model, batch: next_token(lambda x: model(x)[0], batch), sentences())


@stack
def lstm_with_carried_state(record):
    """Backpropagation is truncated: the state goes on without its graph."""
    model, state = Words(nn.LSTM), None

    def loss_of(model, tokens):
        nonlocal state
        logits, state = model(tokens[:, :-1], state)
        state = tuple(one.detach() for one in state)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return fit(record, model, None, loss_of, sentences())


@stack
def packed_sequences(record):
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.out = nn.GRU(5, 8, bidirectional=True, batch_first=True), nn.Linear(16, 3)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return self.out(self.gru(packed)[1].transpose(0, 1).flatten(1))

    def loss_of(model, batch):
        return F.cross_entropy(model(*batch[:2]), batch[2])

    batches = ((torch.randn(6, 9, 5), torch.randint(1, 10, (6,)), torch.randint(0, 3, (6,))) for _ in range(STEPS))
    return fit(record, Packed(), None, loss_of, batches)


@stack
def decoder_with_tied_weights(record):
    return fit(record, Decoder(), None, next_token, sentences())


@stack
def encoder_with_evaluations(record):
    """Dropout in training mode; an evaluation between two updates."""
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.2, batch_first=True)
    model = nn.Sequential(nn.Linear(4, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 2))

    def evaluate():
        model.eval()
        with torch.no_grad():
            F.mse_loss(model(torch.randn(3, 6, 4)), torch.zeros(3, 6, 2))
        model.train()

    def loss_of(model, x):
        return F.mse_loss(model(x), x[..., :2])

    return fit(record, model, None, loss_of, (torch.randn(8, 6, 4) for _ in range(STEPS)), after=evaluate)


@stack
def vision_transformer(record):
    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.token = nn.Conv2d(1, 16, 2, 2), nn.Parameter(torch.zeros(1, 1, 16))
            self.places = nn.Parameter(0.02 * torch.randn(1, 17, 16))
            self.body = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.1, batch_first=True, norm_first=True)
            self.gamma, self.head = nn.Parameter(torch.full((16,), 0.1)), nn.Linear(16, 3)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
            return self.head((x + self.gamma * self.body(x))[:, 0])

    return fit(record, ViT(), batches=images())


class Generator(Net):
    pass


class Discriminator(Net):
    pass


@stack
def generator_and_discriminator(record):
    made, judge = Generator(4, 16, 8), Discriminator(8, 16, 1)
    makes, judges = (torch.optim.Adam(one.parameters(), 1e-3, betas=(0.5, 0.999)) for one in (made, judge))
    record(made, judge, makes, judges)
    losses = []
    for x, _ in points():
        judges.zero_grad()
        false = made(torch.randn(16, 4))
        loss = F.softplus(-judge(x)).mean() + F.softplus(judge(false.detach())).mean()
        loss.backward()
        judges.step()
        makes.zero_grad()
        fooled = F.softplus(-judge(false)).mean()
        fooled.backward()
        makes.step()
        losses.append((loss.item(), fooled.item()))
    return Trained({f"loss_output_{i}": series for i, series in enumerate(zip(*losses, strict=True))}, [made, judge])


@stack
def variational_autoencoder(record):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = Net(8, 16, 6), Net(3, 16, 8)

        def forward(self, x):
            mean, spread = self.encode(x).chunk(2, 1)
            drawn = mean + torch.randn_like(mean) * torch.exp(spread / 2)
            return self.decode(drawn), mean, spread

    def loss_of(model, batch):
        made, mean, spread = model(batch[0])
        return F.mse_loss(made, batch[0]) - 0.01 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()

    return fit(record, VAE(), None, loss_of)


@stack
def diffusion(record):
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time, self.body = nn.Embedding(10, 8), Net(16, 32, 8)

        def forward(self, x, time):
            return self.body(torch.cat([x, self.time(time)], 1))

    kept = torch.linspace(0.99, 0.1, 10)

    def loss_of(model, batch):
        time, noise = torch.randint(0, 10, (16,)), torch.randn(16, 8)
        share = kept[time][:, None]
        return F.mse_loss(model(share.sqrt() * batch[0] + (1 - share).sqrt() * noise, time), noise)

    return fit(record, Denoiser(), None, loss_of)


@stack
def contrastive(record):
    """Two encoders and a temperature that is learned."""

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = Net(8, 16, 6), Net(8, 16, 6)
            self.logit_scale = nn.Parameter(torch.tensor(1.0))

        def forward(self, x, y):
            first, second = F.normalize(self.left(x), dim=1), F.normalize(self.right(y), dim=1)
            return self.logit_scale.exp() * first @ second.T

    def loss_of(model, batch):
        logits, target = model(batch[0], batch[0] + 0.1 * torch.randn(16, 8)), torch.arange(16)
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2

    return fit(record, Pairs(), None, loss_of)


@stack
def mixture_of_experts(record):
    """Experts as modules and as one parameter; not all see a token in each step."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.out = nn.Linear(8, 4, bias=False), nn.Linear(8, 3)
            self.experts = nn.ModuleList(Net(8, 8, 8) for _ in range(4))
            self.gate_up = nn.Parameter(0.1 * torch.randn(4, 8, 8))

        def forward(self, x):
            weight, chosen = self.router(x).softmax(-1).topk(2)
            made = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                row, place = torch.where(chosen == number)
                made = made.index_add(0, row, weight[row, place, None] * expert(x[row] @ self.gate_up[number]))
            return self.out(x + made)

    return fit(record, Experts())


@stack
def siamese(record):
    def loss_of(model, batch):
        x, _ = batch
        return F.triplet_margin_loss(model(x), model(x + 0.1 * torch.randn(16, 8)), model(x.flip(0)))

    return fit(record, Net(), None, loss_of)


@stack
def several_tasks(record):
    """A dictionary of losses, of which the sum is trained."""

    class Tasks(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.boxes, self.classes = Net(8, 16, 16), nn.Linear(16, 4), nn.Linear(16, 3)

        def forward(self, x, y):
            hidden = self.body(x)
            classes, boxes = self.classes(hidden), self.boxes(hidden)
            return {"loss_class": F.cross_entropy(classes, y), "loss_box": F.smooth_l1_loss(boxes, x[:, :4])}

    return fit(record, Tasks(), None, lambda model, batch: sum(model(*batch).values()))


@stack
def policy_gradient(record):
    def loss_of(policy, batch):
        with torch.no_grad():
            actions = torch.distributions.Categorical(logits=policy(batch[0])).sample()
        rewards = (actions == batch[1]).float()
        chances = torch.distributions.Categorical(logits=policy(batch[0]))
        return -((rewards - rewards.mean()) * chances.log_prob(actions)).mean() - 0.01 * chances.entropy().mean()

    return fit(record, Net(), None, loss_of)


@stack
def q_learning(record):
    """A replay memory of Python objects, and a target network."""
    online = Net(8, 16, 4)
    target, memory = copy.deepcopy(online), deque(maxlen=40)
    optimizer = torch.optim.RMSprop(online.parameters(), 1e-3)
    record(online)
    losses = []
    for step in range(20):
        state = torch.randn(8)
        with torch.no_grad():
            action = random.randrange(4) if random.random() < 0.3 else int(online(state[None]).argmax())
        memory.append((state.tolist(), action, random.random()))
        if step < 8:
            continue
        rows = random.sample(list(memory), 6)
        states, actions = torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])
        with torch.no_grad():
            goal = torch.tensor([row[2] for row in rows]) + 0.9 * target(states).amax(1)
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(online(states).gather(1, actions[:, None])[:, 0], goal)
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            target.load_state_dict(online.state_dict())
        losses.append(loss.item())
    return Trained(losses, [online, target])


@stack
def preferences(record):
    """A policy and its frozen start; answers are generated without gradients."""
    policy = Decoder()
    start = copy.deepcopy(policy).requires_grad_(False).eval()

    def chance(model, tokens):
        return model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).sum((1, 2))

    def loss_of(policy, tokens):
        with torch.no_grad():
            better = torch.cat([tokens[:, :6], policy(tokens[:, :6])[:, -1:].argmax(-1)], 1)
            kept = [chance(start, one) for one in (better, tokens[:, :7])]
        gained = [chance(policy, one) - old for one, old in zip((better, tokens[:, :7]), kept, strict=True)]
        return -F.logsigmoid(0.1 * (gained[0] - gained[1])).mean()

    return fit(record, policy, None, loss_of, sentences())


@stack
def distillation(record):
    teacher = Net(8, 32, 3).eval()

    def loss_of(student, batch):
        with torch.no_grad():
            soft = teacher(batch[0]).softmax(1)
        return F.kl_div(student(batch[0]).log_softmax(1), soft, reduction="batchmean")

    return fit(record, Net(), None, loss_of)


@stack
def frozen_body(record):
    """The optimizer knows the parameters of the head only."""
    model = Net()
    model.body.requires_grad_(False)
    return fit(record, model, torch.optim.SGD([one for one in model.parameters() if one.requires_grad], 0.1))


@stack
def gradient_penalty(record):
    def loss_of(model, batch):
        x = batch[0].requires_grad_()
        made = model(x)
        (slope,) = torch.autograd.grad(made.sum(), x, create_graph=True)
        return F.softplus(made).mean() + (slope.norm(dim=1) - 1).pow(2).mean()

    return fit(record, Net(8, 16, 1), None, loss_of)


@stack
def meta_learning(record):
    """An inner update by hand, through which the outer gradient goes."""

    def loss_of(model, batch):
        inner = classify(model, batch)
        weights = dict(model.named_parameters())
        slopes = torch.autograd.grad(inner, weights.values(), create_graph=True)
        moved = {name: one - 0.1 * slope for (name, one), slope in zip(weights.items(), slopes, strict=True)}
        return F.cross_entropy(torch.func.functional_call(model, moved, (batch[0].flip(0),)), batch[1].flip(0))

    return fit(record, Net(), None, loss_of)


@stack
def connectionist_temporal_classification(record):
    lengths = (torch.full((4,), 12), torch.full((4,), 3))

    def loss_of(model, batch):
        return F.ctc_loss(model(batch[0]).log_softmax(-1), batch[1], *lengths)

    batches = ((torch.randn(12, 4, 8), torch.randint(1, 5, (4, 3))) for _ in range(STEPS))
    return fit(record, Net(8, 16, 5), None, loss_of, batches)


@stack
def graph_network(record):
    links = torch.rand(16, 16) < 0.2
    spread = (links / links.sum(1, keepdim=True).clamp(min=1)).to_sparse()

    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 3)

        def forward(self, x):
            return torch.sparse.mm(spread, self.last(torch.sparse.mm(spread, self.first(x)).relu()))

    return fit(record, Graph())


@stack
def workers_of_a_loader(record):
    """Two processes load shuffled batches."""
    data = TensorDataset(torch.randn(48, 8), torch.randint(0, 3, (48,)))
    return fit(record, Net(), batches=DataLoader(data, 8, shuffle=True, num_workers=2))


@stack
def failure_that_the_script_catches(record):
    """A batch of a wrong shape fails within the model, and the training goes on."""

    def loss_of(model, batch):
        with contextlib.suppress(RuntimeError):
            model(torch.randn(4, 7))
        return classify(model, batch)

    return fit(record, Net(), None, loss_of)


@stack(notes=("no optimizer of PyTorch updated",))
def no_optimizer(record):
    """The script updates the parameters itself."""
    model = Net()
    record(model)
    losses = []
    for x, y in points():
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for one in model.parameters():
                one -= 0.1 * one.grad
        losses.append(loss.item())
    return Trained(losses, [model])
