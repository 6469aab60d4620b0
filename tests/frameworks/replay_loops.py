"""Training loops of many kinds.

None knows a recorder: `start(model, ...)` is the line that a user adds.

Each returns its local names, so that its objects exist when the caller looks at them.
"""

# ruff: noqa: B007, PERF401, SIM113 - these are the loops that people write

from __future__ import annotations

import copy
import random
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset


def classes(rows=160, columns=8, kinds=3, batch_size=8, **options):
    x, y = torch.randn(rows, columns), torch.randint(0, kinds, (rows,))
    return DataLoader(TensorDataset(x, y), batch_size, shuffle=True, **options)


def tokens(rows=160, vocabulary=20, length=9, **options):
    return DataLoader(TensorDataset(torch.randint(0, vocabulary, (rows, length))), 8, shuffle=True, **options)


def mlp(columns=8, hidden=16, kinds=3, *middle):
    return nn.Sequential(nn.Linear(columns, hidden), *middle, nn.ReLU(), nn.Linear(hidden, kinds))


def mlp_adam(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
    return locals()


def cnn_batchnorm_dropout(start):
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.3), nn.Flatten(), nn.Linear(144, 3))
    model = nn.Sequential(*layers)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(160, 1, 8, 8), torch.randint(0, 3, (160,))), 8, shuffle=True)
    start(model)
    for epoch in range(2):
        model.train()
        for x, y in loader:
            opt.zero_grad(set_to_none=False)
            F.cross_entropy(model(x), y).backward()
            opt.step()
        if epoch == 0:
            model.eval()
            with torch.no_grad():
                for x, y in loader:
                    model(x)
    return locals()


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 12, 2, batch_first=True, dropout=0.2)
        self.out = nn.Linear(12, 20)

    def forward(self, words, state=None):
        hidden, state = self.lstm(self.embedding(words), state)
        return self.out(hidden), state


def lstm_clipped(start):
    model = Words()
    opt = torch.optim.RMSprop(model.parameters(), 1e-3)
    loader = tokens()
    start(model)
    for epoch in range(2):
        for (words,) in loader:
            out, _ = model(words[:, :-1])
            loss = F.cross_entropy(out.flatten(0, 1), words[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
    return locals()


def truncated_backpropagation(start):
    model = Words()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    text = torch.randint(0, 20, (4, 400))
    state = None
    start(model)
    for begin in range(0, 396, 9):
        words, following = text[:, begin : begin + 9], text[:, begin + 1 : begin + 10]
        out, state = model(words, state)
        state = tuple(one.detach() for one in state)
        opt.zero_grad()
        F.cross_entropy(out.flatten(0, 1), following.flatten()).backward()
        opt.step()
    return locals()


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True), 2)
        self.out = nn.Linear(16, 20)

    def forward(self, words):
        return self.out(self.blocks(self.embedding(words)))


def transformer_schedule(start):
    model = Transformer()
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1, (step + 1) / 30))
    loader = tokens()
    start(model)
    for epoch in range(2):
        for step, (words,) in enumerate(loader):
            loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten()) * (1 + 0.001 * step)
            loss.backward()
            opt.step()
            schedule.step()
            opt.zero_grad()
    return locals()


def gan(start):
    generator, critic = mlp(4, 16, 2), mlp(2, 16, 1)
    of_generator = torch.optim.Adam(generator.parameters(), 1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), 1e-3)
    loader = DataLoader(TensorDataset(torch.randn(160, 2)), 8, shuffle=True)
    start(critic, generator, of_critic, of_generator)
    for epoch in range(2):
        for (x,) in loader:
            fake = generator(torch.randn(len(x), 4))
            loss = F.softplus(-critic(x)).mean() + F.softplus(critic(fake.detach())).mean()
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            loss = F.softplus(-critic(fake)).mean()
            of_generator.zero_grad()
            loss.backward()
            of_generator.step()
    return locals()


def accumulation(start):
    model = mlp(8, 16, 3, nn.Dropout(0.2))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes(rows=640)
    start(model)
    for epoch in range(2):
        for number, (x, y) in enumerate(loader):
            (F.cross_entropy(model(x), y) / 4).backward()
            if (number + 1) % 4 == 0:
                opt.step()
                opt.zero_grad()
    return locals()


def forever(loader):
    while True:
        yield from loader


def accumulation_inside(start):
    model = mlp(8, 16, 3, nn.Dropout(0.2))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    batches = forever(classes(rows=320))
    start(model)
    for step in range(40):
        for _ in range(3):
            x, y = next(batches)
            (F.cross_entropy(model(x), y) / 3).backward()
        opt.step()
        opt.zero_grad()
    return locals()


def autocast_bfloat16(start):
    model = mlp(8, 16, 3, nn.Dropout(0.1))
    opt = torch.optim.AdamW(model.parameters(), 1e-2)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return locals()


def bfloat16_weights(start):
    model = mlp().bfloat16()
    opt = torch.optim.AdamW(model.parameters(), 1e-2)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(model(x.bfloat16()).float(), y).backward()
            opt.step()
    return locals()


def one_cycle_averaged(start):
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    loader = classes()
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.5, total_steps=40)
    average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=average)
    start(model)
    for epoch in range(2):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y) + 0.1 * F.mse_loss(model(x), ema(x).detach())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            schedule.step()
            ema.update_parameters(model)
    return locals()


def average_in_a_dictionary(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    average = {name: one.detach().clone() for name, one in model.named_parameters()}
    start(model)
    for epoch in range(2):
        for x, y in loader:
            pull = sum(((one - average[name]) ** 2).sum() for name, one in model.named_parameters())
            opt.zero_grad()
            (F.cross_entropy(model(x), y) + 0.1 * pull).backward()
            opt.step()
            average = {name: 0.9 * average[name] + 0.1 * one.detach() for name, one in model.named_parameters()}
    return locals()


def average_in_place(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    teacher = [one.detach().clone() for one in model.parameters()]
    start(model)
    for epoch in range(2):
        for x, y in loader:
            pull = sum(((one - old) ** 2).sum() for one, old in zip(model.parameters(), teacher, strict=True))
            opt.zero_grad()
            (F.cross_entropy(model(x), y) + 0.1 * pull).backward()
            opt.step()
            with torch.no_grad():
                for one, old in zip(model.parameters(), teacher, strict=True):
                    old.lerp_(one, 0.1)
    return locals()


def lbfgs(start):
    model = mlp()
    opt = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=4)
    loader = classes(rows=320)
    start(model)
    for x, y in loader:

        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)  # noqa: B023 - called within the iteration
            loss.backward()
            return loss

        opt.step(closure)
    return locals()


def mixup(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            share, order = np.random.beta(0.4, 0.4), torch.randperm(len(x))
            if random.random() < 0.5:
                x = x.flip(1)
            out = model(share * x + (1 - share) * x[order])
            loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])
            opt.zero_grad()
            loss.backward()
            opt.step()
    return locals()


def own_generators(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    numbers, chance, noise = np.random.default_rng(3), random.Random(4), torch.Generator().manual_seed(5)
    start(model)
    for epoch in range(2):
        for x, y in loader:
            x = x + 0.1 * torch.randn(x.shape, generator=noise) + 0.01 * float(numbers.normal())
            opt.zero_grad()
            (F.cross_entropy(model(x), y) * (1 + 0.1 * chance.random())).backward()
            opt.step()
    return locals()


def spectral_norm(start):
    norm = nn.utils.parametrizations.spectral_norm
    model = nn.Sequential(norm(nn.Linear(8, 16)), nn.ReLU(), norm(nn.Linear(16, 3)))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
    return locals()


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = mlp(8, 16, 8, nn.Dropout(0.3)), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(checkpoint(self.first, x, use_reentrant=False))


def checkpointing(start):
    model = Checkpointed()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
    return locals()


def plateau(start):
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            schedule.step(float(loss.detach()))
    return locals()


def python_values(start):
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    loader = classes()
    running, history, recent, count = {"mean": 1.0}, [], deque(maxlen=4), 0
    start(model)
    for epoch in range(2):
        for x, y in loader:
            count += 1
            loss = F.cross_entropy(model(x), y) / running["mean"] * (1 + 0.01 * count + 0.01 * sum(recent))
            running["mean"] = 0.9 * running["mean"] + 0.1 * float(loss.detach())
            history.append(float(loss.detach()))
            recent.append(history[-1])
            opt.zero_grad()
            loss.backward()
            opt.step()
    return locals()


def gradients_never_reset(start):
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.01)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            F.cross_entropy(model(x), y).backward()
            opt.step()
    return locals()


def no_loader(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    rows, labels = torch.randn(160, 8), torch.randint(0, 3, (160,))
    start(model)
    for step in range(40):
        chosen = torch.randint(0, 160, (8,))
        x, y = rows[chosen], labels[chosen]
        opt.zero_grad()
        (F.cross_entropy(model(x), y) * (1 + 0.01 * step)).backward()
        opt.step()
    return locals()


def no_loader_while(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    step = 0
    start(model)
    while step < 40:
        step += 1
        x = torch.randn(8, 8)
        opt.zero_grad()
        (model(x) ** 2 * (1 + 0.01 * step)).mean().backward()
        opt.step()
    return locals()


def next_of_iterator(start):
    model = mlp(8, 16, 3, nn.Dropout(0.2))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    batches = iter(loader)
    step = 0
    start(model)
    while step < 40:
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(loader)
            x, y = next(batches)
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
        step += 1
    return locals()


def next_in_the_middle(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    batches = iter(classes(rows=640))
    count = 0
    start(model)
    for step in range(40):
        count += 1
        opt.zero_grad()
        x, y = next(batches)
        (F.cross_entropy(model(x), y) * (1 + 0.01 * count + 0.01 * step)).backward()
        opt.step()
    return locals()


def two_loaders(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    labelled, unlabelled = classes(), classes(batch_size=16, rows=320)
    start(model)
    for epoch in range(2):
        for (x, y), (u, _) in zip(labelled, unlabelled, strict=True):
            opt.zero_grad()
            (F.cross_entropy(model(x), y) + 0.1 * model(u).pow(2).mean()).backward()
            opt.step()
    return locals()


def grad_scaler(start):
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=5, growth_factor=2.0**4)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.step(opt)
            scaler.update()
    return locals()


def train_epoch(model, loader, opt, generator):
    for x, y in loader:
        opt.zero_grad()
        noise = 0.1 * torch.randn(x.shape, generator=generator)
        F.cross_entropy(model(x + noise), y).backward()
        opt.step()


def function_and_worker(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes(num_workers=1)
    generator = torch.Generator().manual_seed(3)
    start(model)
    for epoch in range(2):
        train_epoch(model, loader, opt, generator)
    return locals()


def train_step(model, opt, batch):
    x, y = batch
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


def step_in_a_function(start):
    model = mlp(8, 16, 3, nn.Dropout(0.2))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    losses = []
    start(model)
    for epoch in range(2):
        for batch in loader:
            losses.append(train_step(model, opt, batch))
    return locals()


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = mlp(), 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) * (1 + 0.01 * self.calls)


def attribute_of_a_module(start):
    model = Counter()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
    return locals()


class Bank:
    def __init__(self):
        self.bank, self.count = torch.zeros(8), 0

    def add(self, x):
        self.count += 1
        self.bank = 0.9 * self.bank + 0.1 * x.mean(0)


def own_object(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes()
    bank = Bank()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            bank.add(x)
            opt.zero_grad()
            (F.cross_entropy(model(x - bank.bank), y) * (1 + 0.01 * bank.count)).backward()
            opt.step()
    return locals()


class Trainer:
    """A trainer of the user's, with private attributes."""

    def __init__(self, model, loader):
        self.model, self.loader, self.__steps = model, loader, 0
        self.opt = torch.optim.Adam(model.parameters(), 1e-2)

    def fit(self):
        for epoch in range(2):
            for x, y in self.loader:
                self.__steps += 1
                self.opt.zero_grad()
                (F.cross_entropy(self.model(x), y) * (1 + 0.01 * self.__steps)).backward()
                self.opt.step()


def own_trainer(start):
    model = mlp()
    trainer = Trainer(model, classes())
    start(model)
    trainer.fit()
    return locals()


class Stream(IterableDataset):
    def __iter__(self):
        numbers = torch.Generator().manual_seed(7)
        for _ in range(160):
            yield torch.randn(8, generator=numbers), int(torch.randint(0, 3, (), generator=numbers))


def iterable_data(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = DataLoader(Stream(), 8)
    start(model)
    for epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
    return locals()


class Rows(Dataset):
    def __init__(self):
        self.x, self.y = torch.randn(160, 8), torch.randint(0, 3, (160,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"input": self.x[index] + 0.1 * torch.randn(8), "label": self.y[index], "name": f"row {index}"}


def dictionaries_with_augmentation(start):
    model = mlp(8, 16, 3, nn.Dropout(0.2))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = DataLoader(Rows(), 8, shuffle=True)
    start(model)
    for epoch in range(2):
        for batch in loader:
            opt.zero_grad()
            F.cross_entropy(model(batch["input"]), batch["label"]).backward()
            opt.step()
    return locals()


def evaluation_within_an_epoch(start):
    model = mlp(8, 16, 3, nn.Dropout(0.2))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader, validation = classes(), classes(rows=24)
    best, state = float("inf"), None
    start(model)
    for epoch in range(2):
        for step, (x, y) in enumerate(loader):
            model.train()
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
            if step % 5 == 4:
                model.eval()
                with torch.no_grad():
                    value = sum(F.cross_entropy(model(a), b).item() for a, b in validation)
                if value < best:
                    best, state = value, copy.deepcopy(model.state_dict())
    return locals()


def two_optimizers(start):
    model = mlp()
    first = torch.optim.SGD(model[0].parameters(), 0.1, momentum=0.9)
    second = torch.optim.Adam(model[2].parameters(), 1e-2)
    loader = classes()
    start(model)
    for epoch in range(2):
        for x, y in loader:
            first.zero_grad()
            second.zero_grad()
            F.cross_entropy(model(x), y).backward()
            first.step()
            second.step()
    return locals()


def continue_and_skip(start):
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = classes(rows=240)
    start(model)
    for epoch in range(2):
        for number, (x, y) in enumerate(loader):
            if number % 5 == 3:
                continue
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            if not torch.isfinite(loss):
                break
            loss.backward()
            opt.step()
    return locals()


def target_network(start):
    online = mlp(4, 16, 2)
    target = copy.deepcopy(online)
    opt = torch.optim.Adam(online.parameters(), 1e-2)
    memory = deque(maxlen=64)
    start(online)
    for step in range(60):
        memory.append((torch.randn(4).tolist(), random.randrange(2), random.random()))
        if len(memory) < 16:
            continue
        rows = random.sample(list(memory), 8)
        states = torch.tensor([row[0] for row in rows])
        actions, rewards = torch.tensor([row[1] for row in rows]), torch.tensor([row[2] for row in rows])
        with torch.no_grad():
            goal = rewards + 0.9 * target(states).amax(1)
        opt.zero_grad()
        F.mse_loss(online(states).gather(1, actions[:, None])[:, 0], goal).backward()
        opt.step()
        if step % 5 == 0:
            target.load_state_dict(online.state_dict())
    return locals()


LOOPS = [
    mlp_adam,
    cnn_batchnorm_dropout,
    lstm_clipped,
    truncated_backpropagation,
    transformer_schedule,
    gan,
    accumulation,
    accumulation_inside,
    autocast_bfloat16,
    bfloat16_weights,
    one_cycle_averaged,
    average_in_a_dictionary,
    average_in_place,
    lbfgs,
    mixup,
    own_generators,
    spectral_norm,
    checkpointing,
    plateau,
    python_values,
    gradients_never_reset,
    no_loader,
    no_loader_while,
    next_of_iterator,
    next_in_the_middle,
    two_loaders,
    grad_scaler,
    function_and_worker,
    step_in_a_function,
    attribute_of_a_module,
    own_object,
    own_trainer,
    iterable_data,
    dictionaries_with_augmentation,
    evaluation_within_an_epoch,
    two_optimizers,
    continue_and_skip,
    target_network,
]
