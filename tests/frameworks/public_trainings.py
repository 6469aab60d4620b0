"""Healthy trainings in the style of public examples, on small random data.

Each function is one training as its authors write it: PyTorch's examples and tutorials, loops of language models,
trainers, and common methods of research. None has a known fault, so that no check may find a problem.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import math
import random
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

#: The trainings by name, and those without an optimizer of a module, which `smdwidgets run` does not see.
PUBLIC, UNSEEN = {}, {}


def public(training):
    """Add a training to the list."""
    PUBLIC[training.__name__] = training
    return training


def unseen(training):
    """Add a training whose weights are updated by hand, or in no module."""
    UNSEEN[training.__name__] = training
    return training


def traced(name, file):
    """Run a training; append its name and a digest to a file.

    The digest is of all weights after each update, and of the random generators.
    """
    digest = hashlib.sha256()

    def look(optimizer, *_):
        for group in optimizer.param_groups:
            for one in group["params"]:
                digest.update(
                    one.detach().cpu().view(torch.uint8).numpy().tobytes() if one.ndim else str(one.item()).encode()
                )

    handle = register_optimizer_step_post_hook(look)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    try:
        (PUBLIC | UNSEEN)[name]()
    finally:
        handle.remove()
    digest.update(torch.get_rng_state().numpy().tobytes() + repr(random.getstate()).encode())
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(f"{name} {digest.hexdigest()}\n")


def drawn(*shape):
    """Return normal numbers, the same at each call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def integers(low, high, *shape, seed=6):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


DIGITS = integers(0, 10, 640)
PATTERNS = drawn(10, 1, 14, 14)
IMAGES = PATTERNS[DIGITS] + 0.5 * drawn(640, 1, 14, 14)
GREYS = torch.sigmoid(IMAGES)


def digits(size=64, begin=0, end=512, **options):
    return DataLoader(TensorDataset(IMAGES[begin:end], DIGITS[begin:end]), size, **options)


def text(rows=512, length=17, words=40):
    """Return tokens of which each follows from the one before, most of the time."""
    follows = torch.randperm(words, generator=torch.Generator().manual_seed(8))
    tokens = integers(0, words, rows, length, seed=9)
    kept = torch.rand(rows, length, generator=torch.Generator().manual_seed(10)) < 0.7
    for place in range(1, length):
        tokens[:, place] = torch.where(kept[:, place], follows[tokens[:, place - 1]], tokens[:, place])
    return tokens


# ----------------------------------------------------------------------------------- PyTorch's examples and tutorials


@public
def mnist():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
            self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
            self.fc1, self.fc2 = nn.Linear(400, 32), nn.Linear(32, 10)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
            x = F.relu(self.fc1(torch.flatten(self.dropout1(x), 1)))
            return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)

    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for _ in range(3):
        model.train()
        for data, target in digits(shuffle=True):
            optimizer.zero_grad()
            F.nll_loss(model(data), target).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for data, target in digits(128, 512, 640):
                F.nll_loss(model(data), target, reduction="sum").item()
        scheduler.step()


@public
def mnist_rnn():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(14, 32, batch_first=True)
            self.batchnorm, self.dropout = nn.BatchNorm1d(32), nn.Dropout(0.25)
            self.fc1, self.fc2 = nn.Linear(32, 16), nn.Linear(16, 10)

        def forward(self, x):
            output, _ = self.rnn(x.reshape(-1, 14, 14))
            output = self.dropout(self.batchnorm(output[:, -1, :]))
            return F.log_softmax(self.fc2(F.relu(self.fc1(output))), dim=1)

    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=0.1)
    for _ in range(3):
        model.train()
        for data, target in digits():
            optimizer.zero_grad()
            F.nll_loss(model(data), target).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            sum(F.nll_loss(model(data), target, reduction="sum") for data, target in digits(128, 512, 640))


@public
def forward_forward():
    class Layer(nn.Linear):
        def __init__(self, given, made):
            super().__init__(given, made)
            self.opt = optim.Adam(self.parameters(), lr=0.03)

        def forward(self, x):
            return F.relu(F.linear(x / (x.norm(2, 1, keepdim=True) + 1e-4), self.weight, self.bias))

        def train(self, positive, negative):  # hides that of the module, as in the public script
            for _ in range(30):
                good, bad = self.forward(positive).pow(2).mean(1), self.forward(negative).pow(2).mean(1)
                loss = torch.log1p(torch.exp(torch.cat([2 - good, bad - 2]))).mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            return self.forward(positive).detach(), self.forward(negative).detach()

    layers = [Layer(196, 32), Layer(32, 32)]
    positive, negative = IMAGES[:128].flatten(1).clone(), IMAGES[:128].flatten(1).clone()
    positive[:, :10] = F.one_hot(DIGITS[:128], 10) * positive.max()
    negative[:, :10] = F.one_hot((DIGITS[:128] + 3) % 10, 10) * positive.max()
    for layer in layers:
        positive, negative = layer.train(positive, negative)


@unseen
def word_language_model_lstm():
    """Weights are updated by hand, and no optimizer exists."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(40, 24)
            self.rnn, self.decoder = nn.LSTM(24, 24, 2, dropout=0.2), nn.Linear(24, 40)
            self.decoder.weight = self.encoder.weight
            nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

        def forward(self, data, hidden):
            output, hidden = self.rnn(self.drop(self.encoder(data)), hidden)
            return F.log_softmax(self.decoder(self.drop(output)).view(-1, 40), dim=1), hidden

    corpus = text(1, 4001)[0]
    corpus = corpus[: len(corpus) // 20 * 20].view(20, -1).t().contiguous()
    model, criterion = Model(), nn.NLLLoss()
    for _ in range(2):
        model.train()
        hidden = torch.zeros(2, 20, 24), torch.zeros(2, 20, 24)
        for begin in range(0, len(corpus) - 11, 10):
            model.zero_grad()
            hidden = tuple(one.detach() for one in hidden)
            output, hidden = model(corpus[begin : begin + 10], hidden)
            criterion(output, corpus[begin + 1 : begin + 11].view(-1)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-20)
        model.eval()
        with torch.no_grad():
            output, _ = model(corpus[:10], (torch.zeros(2, 20, 24), torch.zeros(2, 20, 24)))
            criterion(output, corpus[1:11].view(-1))


class Places(nn.Module):
    """Adds sines and cosines of the positions; the sequence comes first."""

    def __init__(self, width, longest=64):
        super().__init__()
        self.dropout, table = nn.Dropout(0.1), torch.zeros(longest, width)
        position = torch.arange(longest).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
        self.register_buffer("table", table.unsqueeze(1))

    def forward(self, x):
        return self.dropout(x + self.table[: len(x)])


@unseen
def word_language_model_transformer():
    class Model(nn.Transformer):
        def __init__(self):
            super().__init__(d_model=24, nhead=2, dim_feedforward=32, num_encoder_layers=2)
            self.input_emb, self.pos_encoder = nn.Embedding(40, 24), Places(24)
            self.decoder = nn.Linear(24, 40)
            nn.init.uniform_(self.input_emb.weight, -0.1, 0.1)
            nn.init.zeros_(self.decoder.bias)
            nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

        def forward(self, source):
            mask = torch.log(torch.tril(torch.ones(len(source), len(source))))
            x = self.pos_encoder(self.input_emb(source) * math.sqrt(24))
            return F.log_softmax(self.decoder(self.encoder(x, mask=mask)), dim=-1)

    corpus = text(1, 4001)[0]
    corpus = corpus[: len(corpus) // 20 * 20].view(20, -1).t().contiguous()
    model, criterion = Model(), nn.NLLLoss()
    for begin in range(0, 400 - 11, 10):
        begin %= len(corpus) - 11
        model.train()
        model.zero_grad()
        output = model(corpus[begin : begin + 10]).view(-1, 40)
        criterion(output, corpus[begin + 1 : begin + 11].view(-1)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.data.add_(parameter.grad, alpha=-1)


@public
def vae():
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22 = nn.Linear(196, 64), nn.Linear(64, 8), nn.Linear(64, 8)
            self.fc3, self.fc4 = nn.Linear(8, 64), nn.Linear(64, 196)

        def forward(self, x):
            hidden = F.relu(self.fc1(x.view(-1, 196)))
            mean, logvar = self.fc21(hidden), self.fc22(hidden)
            z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mean, logvar

    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    def loss(data):
        made, mean, logvar = model(data)
        fit = F.binary_cross_entropy(made, data.view(-1, 196), reduction="sum")
        return fit - 0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())

    for _ in range(3):
        model.train()
        for (data,) in DataLoader(TensorDataset(GREYS[:512]), 32, shuffle=True):
            optimizer.zero_grad()
            loss(data).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            loss(GREYS[512:]).item()


def initialized(module):
    """Initialize weights as the example of DCGAN does."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


@public
def dcgan():
    netG = nn.Sequential(
        *(nn.ConvTranspose2d(16, 16, 4, bias=False), nn.BatchNorm2d(16), nn.ReLU(True)),
        *(nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True)),
        *(nn.ConvTranspose2d(8, 1, 4, 2, 2, bias=False), nn.Tanh()),
    )
    netD = nn.Sequential(
        *(nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)),
        *(nn.Conv2d(8, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, True)),
        *(nn.Conv2d(16, 1, 3, bias=False), nn.Sigmoid()),
    )
    netG.apply(initialized)
    netD.apply(initialized)
    criterion, fixed = nn.BCELoss(), torch.randn(16, 16, 1, 1)
    optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for _ in range(3):
        for number, (real, _) in enumerate(digits(32, shuffle=True)):
            netD.zero_grad()
            label = torch.full((len(real),), 1.0)
            criterion(netD(real.tanh()).view(-1), label).backward()
            fake = netG(torch.randn(len(real), 16, 1, 1))
            label.fill_(0)
            criterion(netD(fake.detach()).view(-1), label).backward()
            optimizerD.step()
            netG.zero_grad()
            label.fill_(1)
            criterion(netD(fake).view(-1), label).backward()
            optimizerG.step()
            if number % 8 == 0:
                netG(fixed).detach()


@unseen
def regression():
    """A polynomial, updated by hand."""
    weight, bias = drawn(4, 1) * 5, 2.0
    fc = nn.Linear(4, 1)
    for _ in range(60):
        x = torch.cat([torch.randn(32).unsqueeze(1) ** power for power in range(1, 5)], 1)
        fc.zero_grad()
        F.smooth_l1_loss(fc(x), x.mm(weight) + bias).backward()
        for parameter in fc.parameters():
            parameter.data.add_(-0.1 * parameter.grad)


class Pole:
    """A small environment: keep a number near 0."""

    def reset(self):
        self.state, self.steps = torch.randn(4) * 0.1, 0
        return self.state

    def step(self, action):
        push = 1.0 if action else -1.0
        self.state = (
            self.state @ torch.tensor([[1.0, 0, 0, 0], [0.1, 1, 0, 0], [0, 0.1, 1, 0], [0, 0, 0.1, 1]])
            + torch.tensor([push, -push, push, -push]) * 0.05
        )
        self.steps += 1
        ended = bool(self.state.abs().max() > 1) or self.steps >= 30
        return self.state, 1.0, ended


def returns_of(rewards):
    found, value = [], 0.0
    for reward in reversed(rewards):
        value = reward + 0.99 * value
        found.insert(0, value)
    found = torch.tensor(found)
    return (found - found.mean()) / (found.std() + 1e-6)


@public
def reinforce():
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.affine1, self.dropout, self.affine2 = nn.Linear(4, 32), nn.Dropout(0.6), nn.Linear(32, 2)

        def forward(self, x):
            return F.softmax(self.affine2(F.relu(self.dropout(self.affine1(x)))), dim=1)

    policy, env = Policy(), Pole()
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(40):
        state, ended, chances, rewards = env.reset(), False, [], []
        while not ended:
            choice = torch.distributions.Categorical(policy(state.unsqueeze(0)))
            action = choice.sample()
            chances.append(choice.log_prob(action))
            state, reward, ended = env.step(action.item())
            rewards.append(reward)
        losses = [-chance * value for chance, value in zip(chances, returns_of(rewards), strict=True)]
        optimizer.zero_grad()
        torch.cat(losses).sum().backward()
        optimizer.step()


@public
def actor_critic():
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.affine1, self.action_head, self.value_head = nn.Linear(4, 32), nn.Linear(32, 2), nn.Linear(32, 1)

        def forward(self, x):
            x = F.relu(self.affine1(x))
            return F.softmax(self.action_head(x), dim=-1), self.value_head(x)

    model, env = Policy(), Pole()
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    for _ in range(40):
        state, ended, saved, rewards = env.reset(), False, [], []
        while not ended:
            chances, value = model(state)
            choice = torch.distributions.Categorical(chances)
            action = choice.sample()
            saved.append((choice.log_prob(action), value))
            state, reward, ended = env.step(action.item())
            rewards.append(reward)
        policy, values = [], []
        for (chance, value), gained in zip(saved, returns_of(rewards), strict=True):
            policy.append(-chance * (gained - value.item()))
            values.append(F.smooth_l1_loss(value, torch.tensor([gained])))
        optimizer.zero_grad()
        (torch.stack(policy).sum() + torch.stack(values).sum()).backward()
        optimizer.step()


@public
def siamese_network():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
            self.fc = nn.Sequential(nn.Linear(576, 32), nn.ReLU(inplace=True), nn.Linear(32, 1))
            self.sigmoid = nn.Sigmoid()

        def forward(self, first, second):
            return self.sigmoid(self.fc(torch.cat((self.body(first), self.body(second)), 1)))

    class Pairs(Dataset):
        def __len__(self):
            return 512

        def __getitem__(self, index):
            other = (index * 7 + 3) % 512
            if index % 2:
                other = int((DIGITS[:512] == DIGITS[index]).nonzero()[index % 20])
            return IMAGES[index], IMAGES[other], (DIGITS[index] == DIGITS[other]).float()

    model, criterion = Siamese(), nn.BCELoss()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    for _ in range(2):
        model.train()
        for first, second, targets in DataLoader(Pairs(), 32, shuffle=True):
            optimizer.zero_grad()
            criterion(model(first, second).squeeze(), targets).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for first, second, targets in DataLoader(Pairs(), 64):
                criterion(model(first, second).squeeze(), targets)


@public
def super_resolution():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, 1, 2), nn.Conv2d(16, 8, 3, 1, 1)
            self.conv3, self.pixel_shuffle = nn.Conv2d(8, 4, 3, 1, 1), nn.PixelShuffle(2)
            for layer in (self.conv1, self.conv2):
                nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"))
            nn.init.orthogonal_(self.conv3.weight)

        def forward(self, x):
            return self.pixel_shuffle(self.conv3(F.relu(self.conv2(F.relu(self.conv1(x))))))

    model, criterion = Net(), nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=0.001)
    pairs = TensorDataset(F.avg_pool2d(GREYS, 2), GREYS)
    for _ in range(2):
        for given, target in DataLoader(pairs, 16, shuffle=True):
            optimizer.zero_grad()
            criterion(model(given), target).backward()
            optimizer.step()
        with torch.no_grad():
            for given, target in DataLoader(pairs, 100):
                criterion(model(given), target).item()


@public
def fast_neural_style():
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.slices = nn.ModuleList([nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), nn.Conv2d(8, 16, 3, 2)])
            for parameter in self.parameters():
                parameter.requires_grad = False

        def forward(self, x):
            first = self.slices[0](x)
            return first, F.relu(self.slices[1](first))

    def gram(features):
        flat = features.flatten(2)
        return flat.bmm(flat.transpose(1, 2)) / flat[0].numel()

    transformer = nn.Sequential(
        *(nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.ReLU()),
        *(nn.Upsample(scale_factor=1), nn.ReflectionPad2d(1), nn.Conv2d(8, 3, 3)),
    )
    optimizer, mse, vgg = optim.Adam(transformer.parameters(), 1e-3), nn.MSELoss(), Features()
    style = [gram(one) for one in vgg(drawn(1, 3, 14, 14).repeat(4, 1, 1, 1))]
    for _ in range(30):
        x = GREYS[torch.randint(0, 640, (4,))].repeat(1, 3, 1, 1)
        optimizer.zero_grad()
        y = transformer(x)
        made, given = vgg(y), vgg(x)
        content = 1e5 * mse(made[1], given[1])
        styles = sum(mse(gram(one), other[: len(x)]) for one, other in zip(made, style, strict=True))
        (content + 1e6 * styles).backward()
        optimizer.step()


@unseen
def neural_style():
    """The optimizer holds an image, and the network is frozen."""
    cnn = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval().requires_grad_(False)
    content, image = cnn(drawn(1, 3, 14, 14)).detach(), torch.rand(1, 3, 14, 14)
    image.requires_grad_(True)
    optimizer = optim.LBFGS([image])
    for _ in range(3):

        def closure():
            with torch.no_grad():
                image.clamp_(0, 1)
            optimizer.zero_grad()
            loss = F.mse_loss(cnn(image), content)
            loss.backward()
            return loss

        optimizer.step(closure)


@public
def time_sequence_prediction():
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 16), nn.LSTMCell(16, 16), nn.Linear(16, 1)

        def forward(self, given, future=0):
            outputs = []
            first = second = (torch.zeros(len(given), 16, dtype=torch.double),) * 2
            for part in given.split(1, dim=1):
                first = self.lstm1(part, first)
                second = self.lstm2(first[0], second)
                outputs += [self.linear(second[0])]
            for _ in range(future):
                first = self.lstm1(outputs[-1], first)
                second = self.lstm2(first[0], second)
                outputs += [self.linear(second[0])]
            return torch.cat(outputs, dim=1)

    phase = torch.arange(20).unsqueeze(1) * 3.1
    data = torch.sin((torch.arange(30) + phase) / 5).double()
    model, criterion = Sequence().double(), nn.MSELoss()
    optimizer = optim.LBFGS(model.parameters(), lr=0.8, max_iter=6)
    for _ in range(6):

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(data[3:, :-1]), data[3:, 1:])
            loss.backward()
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            criterion(model(data[:3, :-1], future=10)[:, :-10], data[:3, 1:]).item()


class Residual(nn.Module):
    """A block of a residual network."""

    def __init__(self, given, made, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made)
        self.conv2, self.bn2 = nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made)
        nn.init.zeros_(self.bn2.weight)
        self.shortcut = nn.Identity()
        if stride > 1 or given != made:
            self.shortcut = nn.Sequential(nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made))

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


def resnet(outputs=10, *body):
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Residual(8, 8), Residual(8, 16, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, outputs)),
    )


@public
def imagenet():
    model, criterion = resnet(), nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    for _ in range(3):
        model.train()
        for images, target in digits(32, shuffle=True):
            output = model(images)
            loss = criterion(output, target)
            (output.topk(5, 1)[1] == target[:, None]).float().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for images, target in digits(64, 512, 640):
                criterion(model(images), target).item()
        scheduler.step()


@public
def snli():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.projection = nn.Embedding(40, 16, padding_idx=1), nn.Linear(16, 16)
            self.encoder = nn.LSTM(16, 16, bidirectional=True)
            self.out = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))

        def encoded(self, words):
            _, (hidden, _) = self.encoder(F.relu(self.projection(self.embed(words))))
            return hidden[-2:].transpose(0, 1).contiguous().view(words.shape[1], -1)

        def forward(self, premise, hypothesis):
            return self.out(torch.cat([self.encoded(premise), self.encoded(hypothesis)], 1))

    model, criterion = Classifier(), nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(40):
        model.train()
        optimizer.zero_grad()
        premise, hypothesis = torch.randint(2, 40, (12, 32)), torch.randint(2, 40, (9, 32))
        hypothesis[6:, ::2] = 1
        answer = model(premise, hypothesis)
        criterion(answer, (premise[0] + hypothesis[0]) % 3).backward()
        optimizer.step()


def a_graph():
    near = (drawn(60, 60) > 1.6).float()
    near = ((near + near.t() + torch.eye(60)) > 0).float()
    classes = integers(0, 4, 60)
    return F.one_hot(classes, 4) + drawn(60, 12).repeat(1, 1)[:, :4] * 2, near, classes


@public
def gcn():
    class Convolution(nn.Module):
        def __init__(self, given, made):
            super().__init__()
            self.kernel = nn.Parameter(nn.init.xavier_normal_(torch.zeros(given, made)))
            self.bias = nn.Parameter(torch.zeros(made))

        def forward(self, x, near):
            return torch.spmm(near, x @ self.kernel) + self.bias

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.gc1, self.gc2, self.dropout = Convolution(4, 16), Convolution(16, 4), nn.Dropout(0.5)

        def forward(self, x, near):
            return F.log_softmax(self.gc2(self.dropout(F.relu(self.gc1(x, near))), near), dim=1)

    x, near, classes = a_graph()
    near = near / near.sum(1).sqrt()[:, None] / near.sum(1).sqrt()
    model, criterion, train, valid = GCN(), nn.NLLLoss(), torch.arange(40), torch.arange(40, 60)
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(50):
        model.train()
        optimizer.zero_grad()
        criterion(model(x, near.to_sparse())[train], classes[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            criterion(model(x, near.to_sparse())[valid], classes[valid])


@public
def gat():
    class Attention(nn.Module):
        def __init__(self, given, made, heads, concat):
            super().__init__()
            self.heads, self.concat = heads, concat
            self.W = nn.Parameter(nn.init.xavier_normal_(torch.empty(given, made * heads)))
            self.a = nn.Parameter(nn.init.xavier_normal_(torch.empty(heads, 2 * made, 1)))

        def forward(self, x, near):
            h = F.dropout((x @ self.W).view(len(x), self.heads, -1).permute(1, 0, 2), 0.4, training=self.training)
            half = h.shape[2]
            scores = h @ self.a[:, :half] + (h @ self.a[:, half:]).mT
            scores = F.leaky_relu(scores, 0.2).masked_fill(near == 0, -9e15)
            out = F.dropout(F.softmax(scores, dim=-1), 0.4, self.training) @ h
            return out.permute(1, 0, 2).flatten(1) if self.concat else out.mean(0)

    class GAT(nn.Module):
        def __init__(self):
            super().__init__()
            self.gat1, self.gat2 = Attention(4, 8, 4, True), Attention(32, 4, 1, False)

        def forward(self, x, near):
            return F.log_softmax(self.gat2(F.elu(self.gat1(x, near)), near), dim=1)

    x, near, classes = a_graph()
    model, train, valid = GAT(), torch.arange(40), torch.arange(40, 60)
    optimizer = optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    for _ in range(50):
        model.train()
        optimizer.zero_grad()
        F.nll_loss(model(x, near)[train], classes[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            F.nll_loss(model(x, near)[valid], classes[valid])


@public
def language_translation():
    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target, self.places = nn.Embedding(40, 24), nn.Embedding(40, 24), Places(24)
            self.transformer = nn.Transformer(24, 2, 1, 1, 32, dropout=0.1)
            self.out = nn.Linear(24, 40)
            for one in self.parameters():
                if one.dim() > 1:
                    nn.init.xavier_uniform_(one)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(len(target))
            out = self.transformer(
                self.places(self.source(source) * math.sqrt(24)),
                self.places(self.target(target) * math.sqrt(24)),
                tgt_mask=mask,
                src_key_padding_mask=(source == 1).t(),
                tgt_key_padding_mask=(target == 1).t().to(mask.dtype).masked_fill((target == 1).t(), -torch.inf),
                memory_key_padding_mask=(source == 1).t(),
            )
            return self.out(out)

    model, criterion = Translator(), nn.CrossEntropyLoss(ignore_index=1)
    optimizer = optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    sentences = text(256, 10, 36) + 4
    sentences[torch.arange(10) >= integers(5, 11, 256)[:, None]] = 1
    for _ in range(3):
        model.train()
        for rows in torch.randperm(256).split(32):
            source, target = sentences[rows].t(), sentences[rows].t().flip(0)
            target = torch.cat([torch.full((1, len(rows)), 2), source])
            logits = model(source, target[:-1])
            optimizer.zero_grad()
            criterion(logits.reshape(-1, 40), target[1:].reshape(-1)).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            source = sentences[:32].t()
            logits = model(source, source[:-1])
            criterion(logits.reshape(-1, 40), source[1:].reshape(-1)).item()


@public
def vision_transformer():
    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(1, 24, 7, 7)
            self.cls, self.places = nn.Parameter(torch.zeros(1, 1, 24)), nn.Parameter(torch.randn(1, 5, 24) * 0.02)
            layer = nn.TransformerEncoderLayer(24, 2, 48, batch_first=True, norm_first=True, activation="gelu")
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(24, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.places
            return self.head(self.encoder(x)[:, 0])

    model = ViT()
    optimizer = optim.AdamW(model.parameters(), lr=5e-4)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    for _ in range(3):
        model.train()
        for images, labels in digits(32, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            for images, labels in digits(64, 512, 640):
                F.cross_entropy(model(images), labels)


@unseen
def char_rnn_classification():
    """The tutorial on names: one row a step, and updates by hand."""

    class RNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.i2h, self.h2h, self.h2o = nn.Linear(26, 16), nn.Linear(16, 16), nn.Linear(16, 4)

        def forward(self, letter, hidden):
            hidden = torch.tanh(self.i2h(letter) + self.h2h(hidden))
            return F.log_softmax(self.h2o(hidden), dim=1), hidden

    rnn = RNN()
    for step in range(60):
        letters = integers(0, 26, 6, seed=step)
        hidden = torch.zeros(1, 16)
        rnn.zero_grad()
        for letter in F.one_hot(letters, 26).float():
            output, hidden = rnn(letter.unsqueeze(0), hidden)
        F.nll_loss(output, letters[:1] % 4).backward()
        for one in rnn.parameters():
            one.data.add_(one.grad.data, alpha=-0.005)


@public
def seq2seq_with_teacher_forcing():
    """The tutorial on translation: two models, two optimizers, steps of a decoder."""

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.gru, self.dropout = (
                nn.Embedding(40, 16),
                nn.GRU(16, 16, batch_first=True),
                nn.Dropout(0.1),
            )

        def forward(self, tokens):
            return self.gru(self.dropout(self.embedding(tokens)))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.gru, self.out = (
                nn.Embedding(40, 16),
                nn.GRU(32, 16, batch_first=True),
                nn.Linear(16, 40),
            )
            self.Wa, self.Ua, self.Va = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 1)
            self.dropout = nn.Dropout(0.1)

        def forward(self, memory, hidden, target=None):
            word, outputs = torch.zeros(len(memory), 1, dtype=torch.long), []
            for place in range(8):
                embedded, query = self.dropout(self.embedding(word)), hidden.permute(1, 0, 2)
                weights = F.softmax(self.Va(torch.tanh(self.Wa(query) + self.Ua(memory))).squeeze(2).unsqueeze(1), -1)
                output, hidden = self.gru(torch.cat((embedded, weights @ memory), 2), hidden)
                outputs.append(self.out(output))
                word = outputs[-1].topk(1)[1].squeeze(-1).detach() if target is None else target[:, place : place + 1]
            return F.log_softmax(torch.cat(outputs, 1), dim=-1), hidden

    encoder, decoder, criterion = Encoder(), Decoder(), nn.NLLLoss()
    optimizers = [optim.Adam(one.parameters(), lr=1e-3) for one in (encoder, decoder)]
    sentences = text(512, 8)
    for _ in range(3):
        for source, target in DataLoader(TensorDataset(sentences, sentences.flip(1)), 32, shuffle=True):
            for optimizer in optimizers:
                optimizer.zero_grad()
            memory, hidden = encoder(source)
            output, _ = decoder(memory, hidden, target)
            criterion(output.view(-1, 40), target.reshape(-1)).backward()
            for optimizer in optimizers:
                optimizer.step()


@public
def transfer_learning():
    """The tutorial on transfer learning: one loop for both phases."""
    model, best = resnet(10), None
    model[-1] = nn.Linear(16, 2)
    criterion, optimizer = nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    for _ in range(3):
        for phase in ("train", "val"):
            model.train(phase == "train")
            part = digits(32, shuffle=True) if phase == "train" else digits(32, 512, 640)
            for inputs, labels in part:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    loss = criterion(model(inputs), labels % 2)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
            if phase == "train":
                scheduler.step()
        best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)


@public
def speech_commands():
    """A network for waves whose output keeps a dimension of 1."""

    class M5(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv1d(1, 16, 20, stride=4), nn.BatchNorm1d(16)
            self.conv2, self.bn2 = nn.Conv1d(16, 16, 3), nn.BatchNorm1d(16)
            self.fc1 = nn.Linear(16, 8)

        def forward(self, x):
            x = F.max_pool1d(F.relu(self.bn1(self.conv1(x))), 4)
            x = F.max_pool1d(F.relu(self.bn2(self.conv2(x))), 2)
            x = F.avg_pool1d(x, x.shape[-1]).permute(0, 2, 1)
            return F.log_softmax(self.fc1(x), dim=2)

    model, labels = M5(), integers(0, 8, 512)
    waves = torch.sin(torch.arange(400)[None, None] * (0.1 + labels[:, None, None] / 20)) + 0.3 * drawn(512, 1, 400)
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=0.0001)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.1)
    for _ in range(3):
        model.train()
        for data, target in DataLoader(TensorDataset(waves, labels), 32, shuffle=True):
            loss = F.nll_loss(model(data).squeeze(), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        for data, _ in DataLoader(TensorDataset(waves[:128], labels[:128]), 32):
            model(data).squeeze().argmax(-1)
        scheduler.step()


@public
def mass_spring():
    """The parameters are positions, and the model has no input but a number."""

    class System(nn.Module):
        def __init__(self):
            super().__init__()
            self.rest = nn.Parameter(torch.randn(1, 2))

        def forward(self, steps):
            positions, speed = torch.cat([torch.zeros(1, 2), self.rest]), torch.zeros(2, 2)
            for _ in range(steps):
                way = positions[1] - positions[0]
                force = 10.0 * (way.norm() - 1.0) * way / (way.norm() + 1e-6)
                speed = speed + (torch.stack([force, -force]) - torch.tensor([0.0, 9.81])) * 0.01
                positions = torch.cat([torch.zeros(1, 2), (positions + speed * 0.01)[1:]])
            return positions

    system, target = System(), torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    optimizer = optim.Adam(system.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        (system(20) - target).pow(2).mean().backward()
        optimizer.step()


# ------------------------------------------------------------------------------------------------------ language models


class Attention(nn.Module):
    """Causal attention, computed by hand or by PyTorch."""

    def __init__(self, width, by_hand):
        super().__init__()
        self.c_attn, self.c_proj, self.by_hand = nn.Linear(width, 3 * width), nn.Linear(width, width), by_hand
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (one.view(rows, length, 2, -1).transpose(1, 2) for one in self.c_attn(x).split(width, dim=2))
        if self.by_hand:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.shape[-1])
            scores = scores.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(scores, dim=-1)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(rows, length, width)))


class Block(nn.Module):
    def __init__(self, width, by_hand):
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, by_hand)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, by_hand=False, tied=True, words=40, width=24):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(words, width), nn.Embedding(64, width), nn.Dropout(0.1)
        self.h, self.ln_f = nn.ModuleList(Block(width, by_hand) for _ in range(2)), nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        for one in self.modules():
            if isinstance(one, (nn.Linear, nn.Embedding)):
                nn.init.normal_(one.weight, std=0.02)
        if tied:
            self.wte.weight = self.lm_head.weight

    def forward(self, tokens, targets=None):
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        for block in self.h:
            x = block(x)
        if targets is None:
            return self.lm_head(self.ln_f(x[:, [-1], :])), None
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)


def decayed(model, decay=0.1):
    several = [one for one in model.parameters() if one.dim() > 1]
    return [
        {"params": several, "weight_decay": decay},
        {"params": [one for one in model.parameters() if one.dim() < 2], "weight_decay": 0.0},
    ]


@public
def mingpt():
    """Sort numbers; the targets of the question do not count."""

    class Sorting(Dataset):
        def __len__(self):
            return 2000

        def __getitem__(self, index):
            numbers = integers(0, 3, 6, seed=index)
            both = torch.cat([numbers, numbers.sort()[0]])
            targets = both[1:].clone()
            targets[:5] = -1
            return both[:-1], targets

    model = GPT(by_hand=True, tied=False, words=12)
    optimizer = optim.AdamW(decayed(model), lr=5e-4, betas=(0.9, 0.95))
    sampler = torch.utils.data.RandomSampler(Sorting(), replacement=True, num_samples=10_000)
    model.train()
    for _, (x, y) in zip(range(50), DataLoader(Sorting(), 32, sampler=sampler, shuffle=False), strict=False):
        _, loss = model(x, y)
        model.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@public
def nanogpt():
    """Gradients are accumulated under autocast, and the rate is set by hand."""
    model, tokens, scaler = GPT(), text(1, 8000)[0], torch.amp.GradScaler("cpu", enabled=False)
    optimizer = optim.AdamW(decayed(model), lr=1e-3, betas=(0.9, 0.95))

    def batch(part):
        begin = torch.randint(len(part) - 16, (8,))
        return torch.stack([part[i : i + 16] for i in begin]), torch.stack([part[i + 1 : i + 17] for i in begin])

    x, y = batch(tokens[:7000])
    for step in range(40):
        rate = 1e-3 * (step + 1) / 10 if step < 10 else 1e-4 + 0.5 * (1 + math.cos(math.pi * (step - 10) / 30)) * 9e-4
        for group in optimizer.param_groups:
            group["lr"] = rate
        if step % 10 == 0:
            model.eval()
            with torch.no_grad():
                for part in (tokens[:7000], tokens[7000:]):
                    [model(*batch(part))[1].item() for _ in range(3)]
            model.train()
        for _ in range(4):
            with torch.amp.autocast("cpu", torch.bfloat16):
                _, loss = model(x, y)
                loss = loss / 4
            x, y = batch(tokens[:7000])
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


@unseen
def makemore():
    """A perceptron of characters that is updated by hand."""
    model = nn.Sequential(
        *(nn.Embedding(27, 8), nn.Flatten(), nn.Linear(24, 32, bias=False), nn.BatchNorm1d(32), nn.Tanh()),
        nn.Linear(32, 27),
    )
    model[-1].weight.data *= 0.1
    x = text(1000, 4, 27)
    for step in range(60):
        rows = torch.randint(0, 1000, (32,))
        loss = F.cross_entropy(model(x[rows, :3]), x[rows, 3])
        for one in model.parameters():
            one.grad = None
        loss.backward()
        for one in model.parameters():
            one.data += -(0.1 if step < 40 else 0.01) * one.grad


@public
def skip_grams():
    """Sparse gradients, and two embeddings for one vocabulary."""

    class SkipGram(nn.Module):
        def __init__(self):
            super().__init__()
            self.center, self.context = nn.Embedding(40, 16, sparse=True), nn.Embedding(40, 16, sparse=True)
            nn.init.uniform_(self.center.weight, -0.5 / 16, 0.5 / 16)
            nn.init.zeros_(self.context.weight)

        def forward(self, center, context, other):
            v = self.center(center)
            score = torch.clamp((v * self.context(context)).sum(1), max=10, min=-10)
            others = torch.clamp(torch.bmm(self.context(other), v.unsqueeze(2)).squeeze(), max=10, min=-10)
            return (-F.logsigmoid(score) - F.logsigmoid(-others).sum(1)).mean()

    model, words = SkipGram(), text(1, 4000)[0]
    optimizer = optim.SparseAdam(list(model.parameters()), lr=0.01)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    for _ in range(50):
        at = torch.randint(0, 3999, (64,))
        optimizer.zero_grad()
        model(words[at], words[at + 1], torch.randint(0, 40, (64, 5))).backward()
        optimizer.step()
        scheduler.step()


@public
def experts():
    """Two of four experts see each token, and a loss balances them."""

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(16, 4, bias=False)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(4)
            )

        def forward(self, x):
            flat = x.reshape(-1, 16)
            chances = F.softmax(self.gate(flat), dim=-1)
            weights, chosen = chances.topk(2, dim=-1)
            weights, out = weights / weights.sum(-1, keepdim=True), torch.zeros_like(flat)
            for number, expert in enumerate(self.experts):
                rows, place = (chosen == number).nonzero(as_tuple=True)
                out.index_add_(0, rows, expert(flat[rows]) * weights[rows, place, None])
            share = F.one_hot(chosen, 4).float().mean((0, 1))
            return out.view_as(x), 4 * (share * chances.mean(0)).sum()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.moe = nn.Embedding(40, 16), nn.GRU(16, 16, batch_first=True), Mixture()
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 40)

        def forward(self, tokens):
            x = self.rnn(self.embed(tokens))[0]
            mixed, balance = self.moe(self.norm(x))
            return self.head(x + mixed), balance

    model, tokens = Model(), text()
    optimizer = optim.AdamW(model.parameters(), 3e-3)
    for _ in range(40):
        rows = tokens[torch.randint(0, 512, (16,))]
        logits, balance = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@public
def low_rank_by_hand():
    """Adapters in a frozen language model, which is in the mode of training."""

    class Adapter(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, self.scale = base, 8 / 4
            self.A = nn.Parameter(torch.randn(4, base.in_features) * 0.01)
            self.B = nn.Parameter(torch.zeros(base.out_features, 4))

        def forward(self, x):
            return self.base(x) + F.dropout(x, 0.05, self.training) @ self.A.T @ self.B.T * self.scale

    model = GPT().requires_grad_(False)
    for block in model.h:
        block.attn.c_attn = Adapter(block.attn.c_attn)
    optimizer = optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=1e-3)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 5))
    tokens = text()
    for _ in range(40):
        rows = tokens[torch.randint(0, 512, (8,))]
        model(rows[:, :-1], rows[:, 1:])[1].backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


# ------------------------------------------------------------------------------------------------------------- trainers


class Rows(Dataset):
    """Rows of a dictionary of tensors, as trainers want them."""

    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index):
        return {name: column[index] for name, column in self.columns.items()}


def with_trainer(model, train, valid=None, **options):
    from tempfile import TemporaryDirectory

    from transformers import Trainer, TrainingArguments

    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=16,
            report_to=[],
            save_strategy="no",
            logging_steps=5,
            disable_tqdm=True,
            use_cpu=True,
            **{"max_steps": 40, "learning_rate": 1e-3, **options},
        )
        Trainer(model=model, args=arguments, train_dataset=train, eval_dataset=valid).train()


SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def padded_text():
    tokens = text(256, 16, 35) + 5
    mask = (torch.arange(16) < integers(8, 17, 256)[:, None]).long()
    return tokens * mask, mask


@public
def transformers_classification():
    from transformers import BertConfig, BertForSequenceClassification

    tokens, mask = padded_text()
    rows = {"input_ids": tokens, "attention_mask": mask, "labels": (tokens[:, 0] + tokens[:, 1]) % 3}
    model = BertForSequenceClassification(BertConfig(vocab_size=40, num_labels=3, **SIZES))
    valid = Rows(**{name: one[200:] for name, one in rows.items()})
    train = Rows(**{name: one[:200] for name, one in rows.items()})
    with_trainer(model, train, valid, eval_strategy="steps", eval_steps=10, warmup_steps=5)


@public
def transformers_causal():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=40, n_embd=24, n_layer=2, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0)
    tokens = text(256, 16)
    with_trainer(GPT2LMHeadModel(config), Rows(input_ids=tokens, labels=tokens), lr_scheduler_type="cosine", bf16=True)


@public
def transformers_masked():
    from transformers import BertConfig, BertForMaskedLM

    class Masked(Rows):
        def __getitem__(self, index):
            tokens = super().__getitem__(index)["tokens"]
            at = torch.rand(16) < 0.15
            return {"input_ids": tokens.masked_fill(at, 4), "labels": tokens.masked_fill(~at, -100)}

    model = BertForMaskedLM(BertConfig(vocab_size=40, **SIZES))
    with_trainer(model, Masked(tokens=text(256, 16, 35) + 5), gradient_accumulation_steps=2, max_steps=30)


@public
def transformers_summaries():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=40, d_model=24, d_kv=12, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
    tokens, mask = padded_text()
    labels = tokens.flip(1)[:, :10].masked_fill(mask.flip(1)[:, :10] == 0, -100)
    with_trainer(T5ForConditionalGeneration(config), Rows(input_ids=tokens, attention_mask=mask, labels=labels))


@public
def transformers_llama_with_checkpoints():
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, num_key_value_heads=1, bos_token_id=0, eos_token_id=1, **SIZES))
    tokens, mask = padded_text()
    labels = tokens.masked_fill(mask == 0, -100)
    rows = Rows(input_ids=tokens, attention_mask=mask, labels=labels)
    with_trainer(model, rows, gradient_checkpointing=True, neftune_noise_alpha=5)


@public
def transformers_speech():
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        **SIZES,
        vocab_size=12,
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        apply_spec_augment=False,
        ctc_loss_reduction="mean",
    )
    model, waves, labels = Wav2Vec2ForCTC(config), drawn(64, 400), integers(1, 12, 64, 5)
    model.freeze_feature_encoder()
    with_trainer(model, Rows(input_values=waves, labels=labels), max_steps=24)


@public
def accelerate_images():
    from accelerate import Accelerator
    from transformers import ViTConfig, ViTForImageClassification

    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    model = ViTForImageClassification(ViTConfig(image_size=14, patch_size=7, num_channels=1, num_labels=10, **SIZES))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    schedule = optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 40)
    train = DataLoader(Rows(pixel_values=IMAGES[:512], labels=DIGITS[:512]), 16, shuffle=True)
    valid = DataLoader(Rows(pixel_values=IMAGES[512:], labels=DIGITS[512:]), 32)
    model, optimizer, train, valid, schedule = accelerator.prepare(model, optimizer, train, valid, schedule)
    for _ in range(2):
        model.train()
        for batch in train:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch).loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        model.eval()
        for batch in valid:
            with torch.no_grad():
                accelerator.gather_for_metrics((model(**batch).logits.argmax(-1), batch["labels"]))


@public
def accelerate_tags():
    """Labels of tokens; those of padding do not count."""
    from accelerate import Accelerator
    from transformers import DistilBertConfig, DistilBertForTokenClassification

    accelerator, (tokens, mask) = Accelerator(cpu=True), padded_text()
    config = DistilBertConfig(vocab_size=40, dim=24, n_layers=2, n_heads=2, hidden_dim=32, num_labels=5)
    model = DistilBertForTokenClassification(config)
    optimizer = optim.AdamW(decayed(model, 0.01), lr=1e-3)
    rows = Rows(input_ids=tokens, attention_mask=mask, labels=(tokens % 5).masked_fill(mask == 0, -100))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows, 16, shuffle=True))
    for _ in range(3):
        model.train()
        for batch in loader:
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()


def lightning_trainer(**options):
    import lightning

    return lightning.Trainer(
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        **options,
    )


@public
def lightning_autoencoder():
    import lightning

    class AutoEncoder(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(196, 32), nn.ReLU(), nn.Linear(32, 3))
            self.decoder = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 196))

        def shared(self, batch, name):
            x = batch[0].flatten(1)
            loss = F.mse_loss(self.decoder(self.encoder(x)), x)
            self.log(name, loss)
            return loss

        def training_step(self, batch, index):
            return self.shared(batch, "train_loss")

        def validation_step(self, batch, index):
            self.shared(batch, "val_loss")

        def configure_optimizers(self):
            return optim.Adam(self.parameters(), lr=1e-3)

    trainer = lightning_trainer(max_epochs=3)
    trainer.fit(AutoEncoder(), digits(32, shuffle=True), digits(32, 512, 640))


@public
def lightning_classifier():
    """Two batches a step, clipping, a schedule per step, precision bf16."""
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(nn.Flatten(), nn.Linear(196, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))

        def training_step(self, batch, index):
            return F.cross_entropy(self.model(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.log("val_loss", F.cross_entropy(self.model(batch[0]), batch[1]))

        def configure_optimizers(self):
            optimizer = optim.AdamW(self.parameters(), lr=1e-3)
            schedule = optim.lr_scheduler.OneCycleLR(
                optimizer, 1e-2, total_steps=self.trainer.estimated_stepping_batches
            )
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    trainer = lightning_trainer(max_epochs=4, accumulate_grad_batches=2, gradient_clip_val=1.0, precision="bf16-mixed")
    trainer.fit(Classifier(), digits(16, shuffle=True), digits(32, 512, 640))


@public
def lightning_gan():
    """Two optimizers, toggled and stepped by hand."""
    import lightning

    class GAN(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.generator = nn.Sequential(
                *(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 64), nn.BatchNorm1d(64)),
                *(nn.LeakyReLU(0.2), nn.Linear(64, 196), nn.Tanh()),
            )
            self.critic = nn.Sequential(nn.Linear(196, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())

        def training_step(self, batch, index):
            real, (first, second) = batch[0].flatten(1).tanh(), self.optimizers()
            ones, zeros, z = torch.ones(len(real), 1), torch.zeros(len(real), 1), torch.randn(len(real), 16)
            self.toggle_optimizer(first)
            loss = F.binary_cross_entropy(self.critic(self.generator(z)), ones)
            self.manual_backward(loss)
            first.step()
            first.zero_grad()
            self.untoggle_optimizer(first)
            self.toggle_optimizer(second)
            fake = F.binary_cross_entropy(self.critic(self.generator(z).detach()), zeros)
            self.manual_backward((F.binary_cross_entropy(self.critic(real), ones) + fake) / 2)
            second.step()
            second.zero_grad()
            self.untoggle_optimizer(second)

        def configure_optimizers(self):
            parts = (self.generator, self.critic)
            return [optim.Adam(one.parameters(), lr=2e-4, betas=(0.5, 0.999)) for one in parts], []

    lightning_trainer(max_epochs=3).fit(GAN(), digits(32, shuffle=True))


# ------------------------------------------------------------------------------------------------- methods of research


def convolution(outputs, channels=1):
    return nn.Sequential(
        *(nn.Conv2d(channels, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten()),
        nn.Linear(64, outputs),
    )


def perceptron(given, *sizes, activation=nn.ReLU):
    layers = []
    for one, other in itertools.pairwise((given, *sizes)):
        layers += [nn.Linear(one, other), activation()]
    return nn.Sequential(*layers[:-1])


def views(x):
    return x + 0.3 * torch.randn_like(x), (x * torch.empty(len(x), 1, 1, 1).uniform_(0.7, 1.3)).flip(-1)


def moved(target, source, rate):
    """Move the weights of a target network a little towards those of another one."""
    with torch.no_grad():
        for one, other in zip(target.parameters(), source.parameters(), strict=True):
            one.mul_(rate).add_(other, alpha=1 - rate)


@public
def mean_teacher():
    student = nn.Sequential(convolution(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
    teacher = copy.deepcopy(student)
    for one in teacher.parameters():
        one.detach_()
    optimizer = optim.SGD(student.parameters(), 0.05, momentum=0.9, nesterov=True)
    for step in range(48):
        rows = torch.randint(0, 512, (32,))
        first, second = views(IMAGES[rows])
        logits = student(first)
        with torch.no_grad():
            targets = F.softmax(teacher(second), dim=1)
        known = F.cross_entropy(logits[:8], DIGITS[rows[:8]])
        loss = known + min(1, step / 20) * F.mse_loss(F.softmax(logits, dim=1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        moved(teacher, student, min(1 - 1 / (step + 1), 0.99))


@public
def simclr():
    model = nn.Sequential(convolution(32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = optim.Adam(model.parameters(), 3e-4, weight_decay=1e-4)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(3):
        for images, _ in digits(32, shuffle=True, drop_last=True):
            features = F.normalize(model(torch.cat(views(images))), dim=1)
            pairs = torch.cat([torch.arange(32)] * 2)
            same = (pairs[None] == pairs[:, None]).float()
            other = ~torch.eye(64, dtype=torch.bool)
            similar, same = (features @ features.T)[other].view(64, -1), same[other].view(64, -1)
            positives = similar[same.bool()].view(64, -1)
            logits = torch.cat([positives, similar[~same.bool()].view(64, -1)], dim=1) / 0.07
            loss = F.cross_entropy(logits, torch.zeros(64, dtype=torch.long))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()


@public
def moco():
    query, queue, place = convolution(16), F.normalize(drawn(16, 128), dim=0), 0
    key = copy.deepcopy(query).requires_grad_(False)
    optimizer = optim.SGD(query.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
    for _ in range(3):
        for images, _ in digits(32, shuffle=True):
            first, second = views(images)
            q = F.normalize(query(first), dim=1)
            with torch.no_grad():
                moved(key, query, 0.99)
                k = F.normalize(key(second), dim=1)
            logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.clone()], dim=1) / 0.2
            loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            queue[:, place : place + 32] = k.T
            place = (place + 32) % 128


@public
def byol():
    def projector(given):
        return nn.Sequential(nn.Linear(given, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))

    online, predictor = nn.Sequential(convolution(32), projector(32)), projector(16)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = optim.Adam([*online.parameters(), *predictor.parameters()], 3e-4)
    for _ in range(3):
        for images, _ in digits(32, shuffle=True):
            first, second = views(images)
            with torch.no_grad():
                aims = [F.normalize(target(one), dim=1) for one in (second, first)]
            made = [F.normalize(predictor(online(one)), dim=1) for one in (first, second)]
            loss = sum((2 - 2 * (one * aim).sum(1)).mean() for one, aim in zip(made, aims, strict=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            moved(target, online, 0.99)


@public
def dino():
    """Crops, a centre, and a last layer without gradients at first."""
    student = nn.Sequential(convolution(32), nn.GELU(), nn.Linear(32, 24))
    teacher, centre = copy.deepcopy(student).requires_grad_(False), torch.zeros(1, 24)
    optimizer = optim.AdamW(decayed(student, 0.04), lr=5e-4)
    for epoch in range(3):
        for images, _ in digits(32, shuffle=True):
            crops = [*views(images), F.interpolate(images[:, :, 2:12, 2:12], size=14)]
            aims = [F.softmax((teacher(one) - centre) / 0.04, dim=-1).detach() for one in crops[:2]]
            made, losses = [F.log_softmax(student(one) / 0.1, dim=-1) for one in crops], []
            for number, aim in enumerate(aims):
                losses += [-(aim * one).sum(-1).mean() for other, one in enumerate(made) if other != number]
            optimizer.zero_grad()
            (sum(losses) / len(losses)).backward()
            if epoch < 1:
                for one in student[-1].parameters():
                    one.grad = None
            nn.utils.clip_grad_norm_(student.parameters(), 3.0)
            optimizer.step()
            moved(teacher, student, 0.99)


@public
def clip():
    class CLIP(nn.Module):
        def __init__(self):
            super().__init__()
            self.visual, self.words = convolution(16), nn.EmbeddingBag(20, 16)
            self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

        def forward(self, images, tokens):
            first, second = F.normalize(self.visual(images), dim=-1), F.normalize(self.words(tokens), dim=-1)
            logits = self.logit_scale.exp() * first @ second.t()
            return logits, logits.t()

    model = CLIP()
    optimizer = optim.AdamW(decayed(model, 0.2), lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
    for _ in range(3):
        for images, labels in digits(32, shuffle=True, drop_last=True):
            tokens = torch.stack([labels, 10 + labels // 2, torch.randint(15, 20, (32,))], dim=1)
            target = torch.arange(32)
            by_image, by_text = model(images, tokens)
            loss = (F.cross_entropy(by_image, target) + F.cross_entropy(by_text, target)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.logit_scale.clamp_(0, math.log(100))


@public
def masked_autoencoder():
    class MAE(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
            self.embed, self.encoder = nn.Linear(4, 16), nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.mask, self.decoder = nn.Parameter(torch.randn(1, 1, 16) * 0.02), copy.deepcopy(self.encoder)
            self.places = nn.Parameter(torch.randn(1, 49, 16) * 0.02, requires_grad=False)
            self.pred = nn.Linear(16, 4)

        def forward(self, images):
            patches = F.unfold(images, 2, stride=2).transpose(1, 2)
            order = torch.rand(len(images), 49).argsort(1)
            back, kept = order.argsort(1), order[:, :12, None]
            x = self.embed(patches) + self.places
            x = self.encoder(x.gather(1, kept.expand(-1, -1, 16)))
            x = torch.cat([x, self.mask.expand(len(x), 37, -1)], 1).gather(1, back[..., None].expand(-1, -1, 16))
            hidden = (back >= 12).float()
            error = ((self.pred(self.decoder(x + self.places)) - patches) ** 2).mean(-1)
            return (error * hidden).sum() / hidden.sum()

    model = MAE()
    optimizer = optim.AdamW([one for one in model.parameters() if one.requires_grad], 1e-3, betas=(0.9, 0.95))
    for _ in range(3):
        for images, _ in digits(32, shuffle=True):
            optimizer.zero_grad()
            model(images).backward()
            optimizer.step()


@public
def diffusion():
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time, self.down, self.up = nn.Embedding(100, 16), nn.Conv2d(1, 16, 3, 1, 1), nn.Conv2d(16, 1, 3, 1, 1)
            self.mid = nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 16, 3, 1, 1))

        def forward(self, x, t):
            x = self.down(x) + self.time(t)[:, :, None, None]
            return self.up(F.silu(x + self.mid(x)))

    model = Denoiser()
    average = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.99))
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)
    optimizer = optim.Adam(model.parameters(), 2e-4)
    for _ in range(3):
        for images, _ in digits(32, shuffle=True):
            t, noise = torch.randint(0, 100, (len(images),)), torch.randn_like(images)
            share = kept[t][:, None, None, None]
            loss = F.mse_loss(model(share.sqrt() * images + (1 - share).sqrt() * noise, t), noise)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            average.update_parameters(model)
        with torch.no_grad():
            x = torch.randn(4, 1, 14, 14)
            for t in range(99, 60, -1):
                x = x - 0.1 * average(x, torch.full((4,), t))


@public
def normalizing_flow():
    class Coupling(nn.Module):
        def __init__(self, flipped):
            super().__init__()
            self.net, self.flipped = perceptron(1, 32, 2, activation=nn.Tanh), flipped

        def forward(self, x):
            first, second = x.flip(1).split(1, 1) if self.flipped else x.split(1, 1)
            scale, shift = self.net(first).chunk(2, 1)
            second = second * torch.tanh(scale).exp() + shift
            x = torch.cat([first, second], 1)
            return x.flip(1) if self.flipped else x, torch.tanh(scale).sum(1)

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Coupling(bool(number % 2)) for number in range(4))

        def forward(self, x):
            logdet = 0
            for layer in self.layers:
                x, more = layer(x)
                logdet = logdet + more
            return x, logdet

    flow, base = Flow(), torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    optimizer = optim.Adam(flow.parameters(), lr=1e-3, weight_decay=1e-5)
    for _ in range(50):
        angle = torch.rand(64) * 6.28
        z, logdet = flow(torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(64, 2))
        optimizer.zero_grad()
        (-(base.log_prob(z) + logdet).mean()).backward()
        optimizer.step()


@public
def dqn():
    policy, target, memory, env = perceptron(4, 32, 32, 2), perceptron(4, 32, 32, 2), [], Pole()
    target.load_state_dict(policy.state_dict())
    optimizer = optim.AdamW(policy.parameters(), lr=1e-4, amsgrad=True)
    state = env.reset()
    for step in range(90):
        if random.Random(step).random() > 0.9 * math.exp(-step / 50):
            with torch.no_grad():
                action = policy(state.unsqueeze(0)).max(1).indices.item()
        else:
            action = step % 2
        after, reward, ended = env.step(action)
        memory.append((state, action, reward, None if ended else after))
        state = env.reset() if ended else after
        if len(memory) < 32:
            continue
        states, actions, rewards, nexts = zip(*random.Random(step).sample(memory, 32), strict=True)
        alive = torch.tensor([one is not None for one in nexts])
        chosen = policy(torch.stack(states)).gather(1, torch.tensor(actions).unsqueeze(1))
        values = torch.zeros(32)
        with torch.no_grad():
            values[alive] = target(torch.stack([one for one in nexts if one is not None])).max(1).values
        loss = F.smooth_l1_loss(chosen, (values * 0.99 + torch.tensor(rewards)).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        moved(target, policy, 1 - 0.005)


@public
def ppo():
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.critic, self.actor = (perceptron(4, 32, size, activation=nn.Tanh) for size in (1, 2))
            nn.init.orthogonal_(self.actor[-1].weight, 0.01)

        def get_action_and_value(self, x, action=None):
            chances = torch.distributions.Categorical(logits=self.actor(x))
            action = chances.sample() if action is None else action
            return action, chances.log_prob(action), chances.entropy(), self.critic(x)

    agent, env = Agent(), Pole()
    optimizer = optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    state = env.reset()
    for iteration in range(3):
        optimizer.param_groups[0]["lr"] = (1 - iteration / 3) * 2.5e-4
        states, actions, chances, values, rewards, ends = [], [], [], [], [], []
        for _ in range(64):
            with torch.no_grad():
                action, chance, _, value = agent.get_action_and_value(state)
            after, reward, ended = env.step(action.item())
            for kept, one in zip(
                (states, actions, chances, values, rewards, ends),
                (state, action, chance, value.view(()), reward, float(ended)),
                strict=True,
            ):
                kept.append(one)
            state = env.reset() if ended else after
        gains, gain, following = torch.zeros(64), 0.0, 0.0
        for t in reversed(range(64)):
            delta = rewards[t] + 0.99 * following * (1 - ends[t]) - values[t]
            gains[t] = gain = delta + 0.99 * 0.95 * (1 - ends[t]) * gain
            following = values[t]
        wanted = gains + torch.stack(values)
        states, actions, chances = (torch.stack(one) for one in (states, actions, chances))
        for _ in range(4):
            for rows in torch.randperm(64).split(16):
                _, chance, entropy, value = agent.get_action_and_value(states[rows], actions[rows])
                ratio = (chance - chances[rows]).exp()
                gain = (gains[rows] - gains[rows].mean()) / (gains[rows].std() + 1e-8)
                loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
                loss = loss - 0.01 * entropy.mean() + 0.5 * ((value.view(-1) - wanted[rows]) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()


@public
def soft_actor_critic():
    """Three optimizers, of which two use gradients through networks of the other."""
    actor, critics = perceptron(4, 32, 4), nn.ModuleList(perceptron(6, 32, 1) for _ in range(2))
    targets, log_alpha = copy.deepcopy(critics).requires_grad_(False), torch.zeros(1, requires_grad=True)
    for_actor, for_critics = optim.Adam(actor.parameters(), 3e-4), optim.Adam(critics.parameters(), 1e-3)
    for_alpha = optim.Adam([log_alpha], lr=1e-3)

    def act(state):
        mean, log_std = actor(state).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.tanh().exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        return action, (normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)

    for step in range(50):
        state, action = torch.randn(32, 4), torch.rand(32, 2) * 2 - 1
        after, reward = state * 0.9 + 0.1 * torch.randn(32, 4), -(state[:, :2] - action).pow(2).sum(1, keepdim=True)
        alpha = log_alpha.exp().item()
        with torch.no_grad():
            then, chance = act(after)
            least = torch.min(*(one(torch.cat([after, then], 1)) for one in targets))
            wanted = reward + 0.99 * (least - alpha * chance)
        loss = sum(F.mse_loss(one(torch.cat([state, action], 1)), wanted) for one in critics)
        for_critics.zero_grad()
        loss.backward()
        for_critics.step()
        if step % 2 == 0:
            for _ in range(2):
                made, chance = act(state)
                least = torch.min(*(one(torch.cat([state, made], 1)) for one in critics))
                for_actor.zero_grad()
                (alpha * chance - least).mean().backward()
                for_actor.step()
                for_alpha.zero_grad()
                (-log_alpha.exp() * (chance.detach() - 2)).mean().backward()
                for_alpha.step()
        moved(targets, critics, 0.995)


def waves(rows=10):
    """Return points of a sine of random size and phase."""
    x, size, phase = torch.rand(rows * 2, 1) * 10 - 5, torch.rand(1) * 4 + 0.1, torch.rand(1) * 3
    return x[:rows], size * torch.sin(x[:rows] + phase), x[rows:], size * torch.sin(x[rows:] + phase)


@public
def maml_functional():
    from torch.func import functional_call, grad, vmap

    model = perceptron(1, 32, 32, 1)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    def loss(weights, x, y):
        return ((functional_call(model, weights, (x,)) - y) ** 2).mean()

    def task(weights, x, y, x2, y2):
        gradients = grad(loss)(weights, x, y)
        return loss({name: one - 0.1 * gradients[name] for name, one in weights.items()}, x2, y2)

    for _ in range(40):
        tasks = [torch.stack(one) for one in zip(*(waves() for _ in range(4)), strict=True)]
        weights = dict(model.named_parameters())
        optimizer.zero_grad()
        vmap(functools.partial(task, weights), randomness="same")(*tasks).mean().backward()
        optimizer.step()


@public
def maml_by_hand():
    model = perceptron(1, 32, 1)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    def run(weights, x):
        return F.linear(F.relu(F.linear(x, *weights[:2])), *weights[2:])

    for _ in range(40):
        total = 0.0
        for _ in range(4):
            x, y, x2, y2 = waves()
            weights = list(model.parameters())
            gradients = torch.autograd.grad(F.mse_loss(run(weights, x), y), weights, create_graph=True)
            weights = [one - 0.01 * gradient for one, gradient in zip(weights, gradients, strict=True)]
            total = total + F.mse_loss(run(weights, x2), y2)
        optimizer.zero_grad()
        (total / 4).backward()
        optimizer.step()


@public
def physics_informed():
    """A heat equation: Adam, and then LBFGS."""
    net = perceptron(2, 16, 16, 1, activation=nn.Tanh)
    inside, edge = drawn(64, 2).sigmoid(), drawn(32, 2).sigmoid()
    edge[:16, 0], edge[16:, 1] = 0, 0
    values = torch.sin(math.pi * edge[:, :1]) * (edge[:, 1:] == 0)

    def loss():
        points = inside.clone().requires_grad_(True)
        u = net(points)
        (first,) = torch.autograd.grad(u, points, torch.ones_like(u), create_graph=True)
        (second,) = torch.autograd.grad(first[:, :1], points, torch.ones_like(u), create_graph=True)
        return (first[:, 1:] - 0.1 * second[:, :1]).pow(2).mean() + F.mse_loss(net(edge), values)

    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(40):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    refined = optim.LBFGS(net.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure():
        refined.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(5):
        refined.step(closure)


@public
def gradient_penalty():
    generator, critic = perceptron(8, 32, 2), perceptron(2, 32, 1)
    for_generator, for_critic = (optim.Adam(one.parameters(), 1e-4, (0.0, 0.9)) for one in (generator, critic))
    for step in range(60):
        angle = torch.rand(32) * 6.28
        real = torch.stack([angle.cos(), angle.sin()], 1)
        for_critic.zero_grad()
        fake = generator(torch.randn(32, 8))
        share = torch.rand(32, 1)
        between = (share * real + (1 - share) * fake.detach()).requires_grad_(True)
        out = critic(between)
        (slope,) = torch.autograd.grad(out, between, torch.ones_like(out), create_graph=True, retain_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        (-critic(real).mean() + critic(fake.detach()).mean() + 10 * penalty).backward()
        for_critic.step()
        if step % 5 == 0:
            for_generator.zero_grad()
            (-critic(generator(torch.randn(32, 8))).mean()).backward()
            for_generator.step()


@public
def spectral_gan():
    norm = nn.utils.parametrizations.spectral_norm
    generator = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(norm(nn.Linear(2, 32)), nn.LeakyReLU(0.1), norm(nn.Linear(32, 1)))
    for_generator, for_critic = (optim.Adam(one.parameters(), 2e-4, (0.0, 0.9)) for one in (generator, critic))
    for step in range(60):
        real = torch.randn(32, 2) * 0.1 + 1
        for_critic.zero_grad()
        for_generator.zero_grad()
        fake = generator(torch.randn(32, 8)).detach()
        (F.relu(1 - critic(real)).mean() + F.relu(1 + critic(fake)).mean()).backward()
        for_critic.step()
        if step % 2 == 0:
            for_critic.zero_grad()
            for_generator.zero_grad()
            (-critic(generator(torch.randn(32, 8))).mean()).backward()
            for_generator.step()


@public
def cycle_gan():
    """Two generators in one optimizer, images of earlier steps, rates that fall."""
    there, back = (
        nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.InstanceNorm2d(8), nn.ReLU(), nn.Conv2d(8, 1, 3, 1, 1)) for _ in "ab"
    )
    judges = [nn.Sequential(nn.Conv2d(1, 8, 4, 2), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4)) for _ in "ab"]
    makers = optim.Adam(itertools.chain(there.parameters(), back.parameters()), 2e-4, (0.5, 0.999))
    critics = [optim.Adam(one.parameters(), 2e-4, (0.5, 0.999)) for one in judges]
    rates = [optim.lr_scheduler.LambdaLR(one, lambda epoch: 1 - max(0, epoch - 1) / 3) for one in (makers, *critics)]
    mse, l1, kept = nn.MSELoss(), nn.L1Loss(), ([], [])
    for _ in range(3):
        for (a, _), (b, _) in zip(digits(16, 0, 256, shuffle=True), digits(16, 256, 512, shuffle=True), strict=True):
            makers.zero_grad()
            b = b.flip(-1)
            made = back(b), there(a)
            adversarial = sum(mse(one(x), torch.ones(len(a), 1, 3, 3)) for one, x in zip(judges, made, strict=True))
            cycle = l1(back(made[1]), a) + l1(there(made[0]), b)
            (adversarial + 10 * cycle + 5 * (l1(back(a), a) + l1(there(b), b))).backward()
            makers.step()
            for judge, critic, real, fake, older in zip(judges, critics, (a, b), made, kept, strict=True):
                critic.zero_grad()
                older.append(fake.detach())
                fake = random.Random(len(older)).choice(older[-5:])
                loss = (mse(judge(real), torch.ones(16, 1, 3, 3)) + mse(judge(fake), torch.zeros(16, 1, 3, 3))) / 2
                loss.backward()
                critic.step()
        for rate in rates:
            rate.step()


@public
def pix2pix():
    """The critic is frozen while the generator learns."""
    generator = nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 1, 3, 1, 1), nn.Tanh()
    )
    critic = nn.Sequential(
        nn.Conv2d(2, 8, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 8, 3, 1, 1),
        nn.BatchNorm2d(8),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 1, 3),
    )
    makes, judges = (optim.Adam(one.parameters(), 2e-4, (0.5, 0.999)) for one in (generator, critic))
    loss = nn.BCEWithLogitsLoss()
    for _ in range(3):
        for real, _ in digits(16, 0, 256, shuffle=True):
            given, real = real.abs().tanh(), real.tanh()
            fake = generator(given)
            critic.requires_grad_(True)
            judges.zero_grad()
            for image, value in ((fake.detach(), 0.0), (real, 1.0)):
                answer = critic(torch.cat((given, image), 1))
                (loss(answer, torch.tensor(value).expand_as(answer)) * 0.5).backward()
            judges.step()
            critic.requires_grad_(False)
            makes.zero_grad()
            answer = critic(torch.cat((given, fake), 1))
            (loss(answer, torch.tensor(1.0).expand_as(answer)) + 100 * F.l1_loss(fake, real)).backward()
            makes.step()


@public
def vq_vae():
    class VQVAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Conv2d(1, 8, 2, 2), nn.ConvTranspose2d(8, 1, 2, 2)
            self.codes = nn.Embedding(32, 8)
            self.codes.weight.data.uniform_(-1 / 32, 1 / 32)

        def forward(self, x):
            z = self.encoder(x).permute(0, 2, 3, 1)
            flat = z.reshape(-1, 8)
            nearest = torch.cdist(flat, self.codes.weight).argmin(1)
            quantized = self.codes(nearest).view_as(z)
            loss = F.mse_loss(quantized, z.detach()) + 0.25 * F.mse_loss(quantized.detach(), z)
            quantized = z + (quantized - z).detach()
            return self.decoder(quantized.permute(0, 3, 1, 2)), loss

    model = VQVAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        for images, _ in digits(32, shuffle=True):
            optimizer.zero_grad()
            made, loss = model(images)
            (F.mse_loss(made, images) / images.var() + loss).backward()
            optimizer.step()


@public
def gumbel_vae():
    encoder, decoder = perceptron(196, 32, 40), perceptron(40, 32, 196)
    optimizer = optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for step in range(50):
        x = GREYS[torch.randint(0, 640, (32,))].flatten(1)
        logits = encoder(x).view(-1, 4, 10)
        z = F.gumbel_softmax(logits, tau=max(0.5, math.exp(-0.03 * step)), hard=False)
        q = F.softmax(logits, -1)
        fit = F.binary_cross_entropy_with_logits(decoder(z.flatten(1)), x, reduction="sum") / len(x)
        loss = fit + (q * torch.log(q * 10 + 1e-20)).sum((1, 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@public
def checkpointed():
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(196, 32)
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.1)) for _ in range(4))
            self.head = nn.Linear(32, 10)

        def forward(self, x):
            x = self.first(x)
            for number, block in enumerate(self.blocks):
                x = checkpoint(block, x, use_reentrant=bool(number % 2))
            return self.head(x)

    model = Net()
    optimizer = optim.AdamW(model.parameters(), 1e-3)
    for _ in range(3):
        for images, labels in digits(32, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(images.flatten(1)), labels).backward()
            optimizer.step()


@public
def data_parallel():
    model = nn.DataParallel(resnet())
    optimizer, criterion = optim.SGD(model.parameters(), 0.05, momentum=0.9), nn.CrossEntropyLoss()
    for _ in range(2):
        for images, labels in digits(32, shuffle=True):
            loss = criterion(model(images), labels).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@public
def sharpness_aware():
    """Two passes and two steps for each batch."""

    class SAM(optim.Optimizer):
        def __init__(self, params, base, **options):
            super().__init__(params, {"rho": 0.05, **options})
            self.base_optimizer = base(self.param_groups, **options)
            self.param_groups = self.base_optimizer.param_groups

        @torch.no_grad()
        def first_step(self):
            held = [one for group in self.param_groups for one in group["params"] if one.grad is not None]
            norm = torch.stack([one.grad.norm() for one in held]).norm()
            for one in held:
                self.state[one]["old"] = one.data.clone()
                one.add_(one.grad * 0.05 / (norm + 1e-12))
            self.zero_grad()

        @torch.no_grad()
        def second_step(self):
            for group in self.param_groups:
                for one in group["params"]:
                    if one.grad is not None:
                        one.data = self.state[one]["old"]
            self.base_optimizer.step()
            self.zero_grad()

        def step(self, closure=None):
            self.first_step()
            with torch.enable_grad():
                closure()
            self.second_step()

    model = resnet()
    optimizer = SAM(model.parameters(), optim.SGD, lr=0.05, momentum=0.9)
    for _ in range(2):
        for images, labels in digits(32, shuffle=True):
            F.cross_entropy(model(images), labels).backward()
            optimizer.first_step()
            F.cross_entropy(model(images), labels).backward()
            optimizer.second_step()


@public
def quantization_aware():
    class Rounded(nn.Linear):
        def forward(self, x):
            scale = self.weight.detach().abs().max() / 127
            weight = torch.fake_quantize_per_tensor_affine(self.weight, scale, torch.zeros(1).int(), -128, 127)
            x = x + ((x * 16).round() / 16 - x).detach()
            return F.linear(x, weight, self.bias)

    model = nn.Sequential(Rounded(196, 32), nn.ReLU(), Rounded(32, 10))
    optimizer = optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for _ in range(3):
        for images, labels in digits(32, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(images.flatten(1)), labels).backward()
            optimizer.step()


@public
def handwriting():
    """Connectionist temporal classification, whose loss wants the sequence first."""

    class CRNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.rnn = nn.Conv2d(1, 4, 3, padding=1), nn.LSTM(56, 24, bidirectional=True)
            self.out = nn.Linear(48, 11)

        def forward(self, x):
            x = F.relu(self.conv(x)).permute(3, 0, 1, 2).flatten(2)
            return F.log_softmax(self.out(self.rnn(x)[0]), 2)

    model, criterion = CRNN(), nn.CTCLoss(zero_infinity=True)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(40):
        rows = torch.randint(0, 512, (16, 2))
        lines = torch.cat([IMAGES[rows[:, 0]], IMAGES[rows[:, 1]]], 3)
        targets = DIGITS[rows] + 1
        optimizer.zero_grad()
        criterion(model(lines), targets, torch.full((16,), 28), torch.full((16,), 2)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()


@public
def graphs_in_batches():
    """Sums over neighbours, and a mean over the nodes of each graph."""

    class GIN(nn.Module):
        def __init__(self):
            super().__init__()
            self.eps = nn.Parameter(torch.zeros(2))
            self.layers = nn.ModuleList([perceptron(4, 16, 16), perceptron(16, 16, 16)])
            self.head = nn.Linear(16, 2)

        def forward(self, x, edges, graph, count):
            for number, layer in enumerate(self.layers):
                near = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
                x = F.relu(layer((1 + self.eps[number]) * x + near))
            pooled = torch.zeros(count, 16).index_add(0, graph, x)
            return self.head(F.dropout(pooled, 0.5, self.training))

    model = GIN()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        graph = torch.arange(16).repeat_interleave(6)
        x, labels = torch.randn(96, 4), torch.randint(0, 2, (16,))
        x[:, 0] += labels[graph]
        edges = torch.stack([torch.arange(96), graph * 6 + torch.randint(0, 6, (96,))])
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges, graph, 16), labels).backward()
        optimizer.step()


@public
def distillation():
    teacher, student = convolution(10).eval(), perceptron(196, 16, 10)
    optimizer = optim.Adam(student.parameters(), 1e-3)
    for _ in range(3):
        student.train()
        for images, labels in digits(32, shuffle=True):
            with torch.no_grad():
                soft = teacher(images)
            logits = student(images.flatten(1))
            loss = F.kl_div(F.log_softmax(logits / 4, 1), F.softmax(soft / 4, 1), reduction="batchmean") * 16
            optimizer.zero_grad()
            (0.3 * loss + 0.7 * F.cross_entropy(logits, labels)).backward()
            optimizer.step()


@public
def faces():
    """A margin loss whose weights are a part of the criterion."""

    class ArcFace(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(10, 16)))

        def forward(self, features, labels):
            cosine = F.linear(F.normalize(features), F.normalize(self.weight)).clamp(-1 + 1e-6, 1 - 1e-6)
            margin = torch.cos(torch.acos(cosine) + 0.3)
            one = F.one_hot(labels, 10)
            return F.cross_entropy(30 * (one * margin + (1 - one) * cosine), labels)

    model, criterion = nn.Sequential(convolution(16), nn.BatchNorm1d(16)), ArcFace()
    optimizer = optim.SGD([*model.parameters(), *criterion.parameters()], 0.05, momentum=0.9, weight_decay=5e-4)
    for _ in range(3):
        for images, labels in digits(32, shuffle=True):
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            optimizer.step()


@public
def triplets():
    model, criterion = convolution(16), nn.TripletMarginLoss(margin=1.0)
    optimizer = optim.Adam(model.parameters(), 1e-3)
    by_class = [torch.where(number == DIGITS)[0] for number in range(10)]
    for step in range(40):
        first = integers(0, 640, 32, seed=step)
        same = torch.stack([by_class[DIGITS[one]][step % 20] for one in first])
        other = torch.stack([by_class[(DIGITS[one] + 1 + step % 9) % 10][step % 20] for one in first])
        loss = criterion(model(IMAGES[first]), model(IMAGES[same]), model(IMAGES[other]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@public
def segmentation():
    """A U-shaped network, two losses, ignored pixels, scaled gradients."""

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.inc, self.down = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU()), nn.MaxPool2d(2)
            self.mid = nn.Sequential(nn.Conv2d(8, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU())
            self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 1)

        def forward(self, x):
            x = self.inc(x)
            return self.out(torch.cat([x, self.up(self.mid(self.down(x)))], 1))

    masks = (PATTERNS[DIGITS][:, 0] > 0.5).long()
    masks[:, 0] = 255
    model, scaler = UNet(), torch.amp.GradScaler("cpu")
    optimizer = optim.RMSprop(model.parameters(), 1e-4, weight_decay=1e-8, momentum=0.9, foreach=True)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=2)
    for _ in range(3):
        model.train()
        for images, mask in DataLoader(TensorDataset(IMAGES[:512], masks[:512]), 16, shuffle=True):
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(images)
                loss = F.cross_entropy(logits, mask, ignore_index=255)
                chances, aim = F.softmax(logits.float(), 1)[:, 1:], (mask == 1).float()[:, None]
                loss = loss + 1 - (2 * (chances * aim).sum() + 1e-6) / (chances.sum() + aim.sum() + 1e-6)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        model.eval()
        with torch.no_grad():
            right = (model(IMAGES[512:]).argmax(1) == masks[512:]).float().mean()
        scheduler.step(right)


@public
def clicks():
    """Embeddings of categories beside numbers, rare positives, rows drawn by weight."""

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(size, 4, mode="sum") for size in (10, 20, 30))
            self.bottom, self.top = perceptron(5, 16, 4), perceptron(16, 16, 1)

        def forward(self, numbers, kinds):
            parts = [table(kinds[:, [at]]) for at, table in enumerate(self.tables)]
            return self.top(torch.cat([self.bottom(numbers), *parts], 1)).squeeze(1)

    numbers, kinds = drawn(1000, 5), torch.stack([integers(0, size, 1000, seed=size) for size in (10, 20, 30)], 1)
    clicked = (numbers[:, 0] + (kinds[:, 0] == 3) > 1.3).float()
    sampler = WeightedRandomSampler(torch.where(clicked > 0, 3.0, 1.0).tolist(), 1000)
    model, criterion = Wide(), nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0))
    optimizer = optim.Adagrad(model.parameters(), 0.02)
    for _ in range(2):
        for *given, target in DataLoader(TensorDataset(numbers, kinds, clicked), 40, sampler=sampler):
            optimizer.zero_grad()
            criterion(model(*given), target).backward()
            optimizer.step()


@public
def recommender():
    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items = nn.Embedding(50, 8), nn.Embedding(30, 8)
            self.user_bias, self.item_bias = nn.Embedding(50, 1), nn.Embedding(30, 1)
            for one in self.modules():
                if isinstance(one, nn.Embedding):
                    nn.init.normal_(one.weight, std=0.05)

        def forward(self, user, item):
            bias = self.user_bias(user) + self.item_bias(item)
            return (self.users(user) * self.items(item)).sum(1) + bias.squeeze(1) + 3.5

    user, item = integers(0, 50, 1600, seed=1), integers(0, 30, 1600, seed=2)
    stars = (3.5 + drawn(50)[user] + drawn(80)[50:][item] + 0.3 * drawn(1600)).round().clamp(1, 5)
    model = Factors()
    optimizer = optim.AdamW(model.parameters(), 5e-3, weight_decay=0.1)
    for _ in range(2):
        for first, second, target in DataLoader(TensorDataset(user, item, stars), 64, shuffle=True):
            optimizer.zero_grad()
            F.mse_loss(model(first, second), target).backward()
            optimizer.step()


@public
def radiance_field():
    net = perceptron(20, 32, 32, 4)
    optimizer = optim.Adam(net.parameters(), lr=5e-4)
    rates = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
    for _ in range(50):
        start, way, depth = torch.rand(32, 2), F.normalize(torch.randn(32, 2), dim=1), torch.linspace(0, 1, 8)
        points = start[:, None] + way[:, None] * depth[None, :, None]
        waves_ = [one(points * 2**power) for power in range(5) for one in (torch.sin, torch.cos)]
        out = net(torch.cat(waves_, -1))
        opaque = 1 - torch.exp(-F.relu(out[..., 3]) / 8)
        passed = torch.cumprod(torch.cat([torch.ones(32, 1), 1 - opaque + 1e-10], 1), 1)[:, :-1]
        color = ((opaque * passed)[..., None] * torch.sigmoid(out[..., :3])).sum(1)
        target = torch.stack([start[:, 0], way[:, 0].abs(), start[:, 1]], 1) * 0.5
        optimizer.zero_grad()
        ((color - target) ** 2).mean().backward()
        optimizer.step()
        rates.step()


@unseen
def ensemble():
    from torch.func import functional_call, stack_module_state, vmap

    models = [perceptron(196, 16, 10) for _ in range(3)]
    weights, buffers = stack_module_state(models)
    optimizer = optim.Adam(weights.values(), 1e-3)
    base = copy.deepcopy(models[0]).to("meta")
    for _ in range(2):
        for images, labels in digits(32, shuffle=True):
            run = vmap(lambda given, kept, x: functional_call(base, (given, kept), (x,)), in_dims=(0, 0, None))
            logits = run(weights, buffers, images.flatten(1))
            optimizer.zero_grad()
            F.cross_entropy(logits.flatten(0, 1), labels.repeat(3)).backward()
            optimizer.step()


@public
def averaged_weights():
    model = resnet()
    optimizer = optim.SGD(model.parameters(), 0.05, momentum=0.9)
    average = optim.swa_utils.AveragedModel(model)
    cosine, slow = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4), optim.swa_utils.SWALR(optimizer, 0.02)
    for epoch in range(4):
        model.train()
        for images, labels in digits(64, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
        if epoch > 1:
            average.update_parameters(model)
            slow.step()
        else:
            cosine.step()
    optim.swa_utils.update_bn(digits(64), average)


@public
def reference_classification():
    """Mixed images, smoothing, a warm-up before a cosine, averaged weights."""
    model, criterion = resnet(), nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = optim.SGD(decayed(model, 2e-5), 0.1, momentum=0.9, nesterov=True)
    warm = optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=1)
    cosine = optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    rates = optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [1])
    average = optim.swa_utils.AveragedModel(
        model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.98), use_buffers=True
    )
    for _ in range(4):
        model.train()
        for number, (images, labels) in enumerate(digits(32, shuffle=True)):
            share, soft = torch.distributions.Beta(0.2, 0.2).sample(), F.one_hot(labels, 10).float()
            mixed, target = (share * one + (1 - share) * one.roll(1, 0) for one in (images, soft))
            loss = criterion(model(mixed), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if number % 4 == 0:
                average.update_parameters(model)
        rates.step()
        for one in (model, average):
            one.eval()
            with torch.inference_mode():
                for images, labels in digits(64, 512, 640):
                    criterion(one(images), labels).item()


@public
def superconvergence():
    model = nn.Sequential(nn.Flatten(), nn.Linear(196, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = optim.SGD(model.parameters(), 0.1)
    rates = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, epochs=3, steps_per_epoch=16)
    for _ in range(3):
        for images, labels in digits(32, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            rates.step()


@public
def points():
    """A point cloud whose input is transformed, with a loss on the transform."""

    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.turn, self.conv, self.bn = nn.Linear(16, 9), nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16)
            self.more, self.head = (
                nn.Conv1d(3, 16, 1),
                nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4)),
            )
            nn.init.zeros_(self.turn.weight)
            self.turn.bias.data.copy_(torch.eye(3).flatten())

        def forward(self, x):
            turn = self.turn(F.relu(self.more(x)).max(2)[0]).view(-1, 3, 3)
            x = F.relu(self.bn(self.conv(torch.bmm(turn, x))))
            return F.log_softmax(self.head(x.max(2)[0]), dim=1), turn

    model = PointNet()
    optimizer = optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999))
    for _ in range(48):
        labels = torch.randint(0, 4, (16,))
        x = torch.randn(16, 3, 32) * (1 + F.one_hot(labels, 4)[:, :3, None])
        optimizer.zero_grad()
        made, turn = model.train()(x)
        penalty = torch.norm(torch.bmm(turn, turn.transpose(2, 1)) - torch.eye(3), dim=(1, 2)).mean()
        (F.nll_loss(made, labels) + 0.001 * penalty).backward()
        optimizer.step()


@public
def forecasts():
    """Windows of a series, a mean and a variance, and quantiles."""

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head, self.quantiles = nn.LSTM(1, 16, batch_first=True), nn.Linear(16, 2), nn.Linear(16, 3)

        def forward(self, x):
            last = self.lstm(x)[0][:, -1]
            mean, variance = self.head(last).chunk(2, 1)
            return mean, F.softplus(variance), self.quantiles(last)

    series = torch.sin(torch.arange(800) / 7) + 0.1 * drawn(800)
    windows = series.unfold(0, 21, 1)
    loader = DataLoader(TensorDataset(windows[:, :20, None], windows[:, 20:]), 32, shuffle=True)
    model, criterion, levels = Forecaster(), nn.GaussianNLLLoss(), torch.tensor([0.1, 0.5, 0.9])
    optimizer = optim.AdamW(model.parameters(), 3e-3)
    for _ in range(2):
        for x, y in loader:
            mean, variance, quantiles = model(x)
            error = y - quantiles
            loss = criterion(mean, y, variance) + torch.max(levels * error, (levels - 1) * error).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@public
def detection():
    """Boxes of a grid, of which few have an object."""
    model = nn.Sequential(nn.Conv2d(1, 16, 4, 4), nn.LeakyReLU(0.1), nn.Conv2d(16, 5, 1))
    optimizer = optim.Adam(model.parameters(), 1e-3)
    for _ in range(40):
        images = torch.randn(16, 1, 16, 16) * 0.1
        place = torch.randint(0, 4, (16, 2))
        for row, (y, x) in enumerate(place):
            images[row, 0, y * 4 : y * 4 + 4, x * 4 : x * 4 + 4] += 1
        has = torch.zeros(16, 4, 4)
        has[torch.arange(16), place[:, 0], place[:, 1]] = 1
        out = model(images)
        box = out[:, 1:].permute(0, 2, 3, 1)[has > 0]
        loss = F.binary_cross_entropy_with_logits(out[:, 0], has) + 5 * F.mse_loss(box, torch.rand(16, 4) * 0.2 + 0.4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@public
def frozen_features():
    """A head is trained on features of a network in eval mode, as linear probes do."""
    body, head = resnet()[:-1].eval().requires_grad_(False), nn.Linear(16, 10)
    optimizer = optim.SGD(head.parameters(), 0.1, momentum=0.9)
    rates = optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        for images, labels in digits(32, shuffle=True):
            with torch.no_grad():
                features = body(images)
            optimizer.zero_grad()
            F.cross_entropy(head(features), labels).backward()
            optimizer.step()
        rates.step()


@public
def compiled():
    model = torch.compile(perceptron(196, 32, 10), backend="aot_eager")
    optimizer = optim.Adam(model.parameters(), 1e-3)
    for _ in range(3):
        model.train()
        for images, labels in digits(64, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(images.flatten(1)), labels).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            F.cross_entropy(model(IMAGES[512:].flatten(1)), DIGITS[512:])
