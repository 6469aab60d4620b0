"""Trainings with one fault each, as a stranger writes them.

`smdwidgets run` starts this file with the names of some. It prints each name, and each update, on standard error.
"""

from __future__ import annotations

import copy
import gc
import random
import sys

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, nll_loss, relu
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, Dataset, TensorDataset

UPDATES = 24
#: Trainings by the check that proves their fault.
FAULTS = {}
X = torch.randn(512, 8, generator=torch.Generator().manual_seed(1))
LABELS, NUMBERS = X[:, :4].argmax(1), X.sum(1, keepdim=True)
TOKENS = torch.randint(2, 40, (512, 16), generator=torch.Generator().manual_seed(2))


def fault(check):
    """Give a training the name of its check."""

    def note(training):
        FAULTS[check] = training
        return training

    return note


def mlp(outputs=4, *last):
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, outputs), *last)


def adam(model):
    return torch.optim.Adam(model.parameters(), 1e-3)


def rows(size=32):
    return torch.randint(0, len(X), (size,))


def fit(model, criterion=cross_entropy, y=LABELS, optimizer=None, x=X):
    optimizer = optimizer or adam(model)
    for _ in range(UPDATES):
        chosen = rows()
        optimizer.zero_grad()
        criterion(model(x[chosen]), y[chosen]).backward()
        optimizer.step()


def epochs(loader, model=None, count=3):
    model = model or mlp()
    optimizer = adam(model)
    for _ in range(count):
        for x, y in loader:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()


@fault("not_reset")
def forgotten_zero_grad():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(UPDATES):
        chosen = rows()
        cross_entropy(model(X[chosen]), LABELS[chosen]).backward()
        optimizer.step()


@fault("stale_optimizer")
def copied_after_the_optimizer():
    model = mlp()
    optimizer = adam(model)
    fit(copy.deepcopy(model), optimizer=optimizer)


@fault("unregistered_layer")
def list_of_layers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.head = [nn.Linear(8, 8) for _ in range(2)], nn.Linear(8, 4)

        def forward(self, x):
            for block in self.blocks:
                x = relu(block(x))
            return self.head(x)

    fit(Net())


@fault("not_in_optimizer")
def half_of_a_block():
    model = mlp()
    fit(model, optimizer=torch.optim.Adam([model[0].weight, *model[2].parameters()], 1e-3))


@fault("no_gradient")
def detached_encoder():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            return self.head(relu(self.encoder(x)).detach())

    fit(Net())


@fault("softmax_before_loss")
def softmax_of_logits():
    fit(mlp(4, nn.Softmax(dim=1)))


@fault("double_sigmoid")
def sigmoid_of_logits():
    fit(mlp(1, nn.Sigmoid()), binary_cross_entropy_with_logits, (NUMBERS > 0).float())


@fault("nll_not_log")
def likelihood_of_logits():
    fit(mlp(), nll_loss)


@fault("softmax_one_unit")
def softmax_of_one_unit():
    fit(mlp(1, nn.Softmax(dim=1)), mse_loss, (NUMBERS > 0).float())


@fault("broadcast_loss")
def column_against_row():
    fit(mlp(1), lambda output, y: ((output - y) ** 2).mean(), NUMBERS[:, 0])


@fault("unreachable_targets")
def sigmoid_for_prices():
    fit(mlp(1, nn.Sigmoid()), mse_loss, 20 + NUMBERS)


@fault("constant_output")
def dead_output():
    model = mlp(1, nn.ReLU())
    nn.init.constant_(model[2].bias, -50.0)
    fit(model, mse_loss, NUMBERS.abs())


@fault("off_by_one")
def classes_from_one():
    fit(mlp(5), y=LABELS + 1)


@fault("loss_negated")
def wrong_sign():
    fit(mlp(), lambda output, y: -cross_entropy(output, y))


@fault("eval_in_train_mode")
def forgotten_eval():
    model = mlp(4, nn.Dropout(0.2))
    optimizer = adam(model)
    train = DataLoader(TensorDataset(X[:256], LABELS[:256]), 32, shuffle=True)
    held_out = DataLoader(TensorDataset(X[256:], LABELS[256:]), 64)
    for _ in range(3):
        for x, y in train:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            sum(cross_entropy(model(x), y).item() for x, y in held_out)


@fault("train_in_eval_mode")
def forgotten_train():
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = adam(model)
    for _ in range(3):
        for chosen in torch.arange(256).split(32):
            optimizer.zero_grad()
            cross_entropy(model(X[chosen]), LABELS[chosen]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            cross_entropy(model(X[256:]), LABELS[256:])


@fault("dropout_in_eval")
def dropout_without_the_mode():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            return self.head(nn.functional.dropout(relu(self.first(x)), 0.2))

    model = Net()
    optimizer = adam(model)
    for update in range(UPDATES):
        model.train()
        chosen = rows()
        optimizer.zero_grad()
        cross_entropy(model(X[chosen]), LABELS[chosen]).backward()
        optimizer.step()
        if update % 8 == 7:
            model.eval()
            with torch.no_grad():
                cross_entropy(model(X), LABELS)


@fault("clip_after_step")
def clipped_too_late():
    model = mlp()
    optimizer = adam(model)
    for _ in range(UPDATES):
        chosen = rows()
        optimizer.zero_grad()
        cross_entropy(model(X[chosen]), LABELS[chosen]).backward()
        optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def scaled(step):
    model = mlp()
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.01), torch.amp.GradScaler("cpu")
    for _ in range(UPDATES):
        chosen = rows()
        optimizer.zero_grad()
        scaler.scale(cross_entropy(model(X[chosen]), LABELS[chosen])).backward()
        step(model, optimizer, scaler)


@fault("clip_before_unscale")
def clipped_while_scaled():
    def step(model, optimizer, scaler):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    scaled(step)


@fault("scaled_step")
def step_without_the_scaler():
    scaled(lambda model, optimizer, scaler: optimizer.step())


@fault("other_schedule")
def schedule_of_the_first_optimizer():
    model = mlp()
    schedule = torch.optim.lr_scheduler.StepLR(adam(model), 5)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(UPDATES):
        chosen = rows()
        optimizer.zero_grad()
        cross_entropy(model(X[chosen]), LABELS[chosen]).backward()
        optimizer.step()
        schedule.step()


@fault("schedule_first")
def schedule_before_the_update():
    model = mlp()
    optimizer = adam(model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
    for _ in range(UPDATES):
        chosen = rows()
        optimizer.zero_grad()
        cross_entropy(model(X[chosen]), LABELS[chosen]).backward()
        schedule.step()
        optimizer.step()


@fault("labels_sorted")
def not_shuffled():
    order = LABELS.argsort()
    epochs(DataLoader(TensorDataset(X[order], LABELS[order]), 32), count=1)


@fault("same_batch")
def first_batch_of_each_iterator():
    loader, model = DataLoader(TensorDataset(X, LABELS), 32), mlp()
    optimizer = adam(model)
    for _ in range(UPDATES):
        x, y = next(iter(loader))
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


class Noise(Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        return torch.from_numpy(np.random.randn(8)).float(), index % 4


def seed_equally(worker):
    random.seed(0)
    np.random.seed(0)


@fault("worker_twins")
def workers_of_one_seed():
    epochs(DataLoader(Noise(), 8, num_workers=2, worker_init_fn=seed_equally), count=1)


@fault("mostly_frozen")
def all_but_the_normalization():
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("1.")
    fit(model)


class LanguageModel(nn.Module):
    def __init__(self, causal=True, copied=False):
        super().__init__()
        self.embedding, self.attention, self.head = nn.Embedding(40, 32), nn.Linear(32, 96), nn.Linear(32, 40, False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.head.weight = nn.Parameter(self.embedding.weight.detach().clone()) if copied else self.embedding.weight
        self.causal = causal

    def forward(self, tokens):
        x = self.embedding(tokens)
        query, key, value = self.attention(x).chunk(3, -1)
        return self.head(x + nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal))


def language(model, begin=1, tokens=TOKENS):
    optimizer = adam(model)
    for _ in range(UPDATES):
        chosen = tokens[rows()]
        targets = chosen[:, begin:]
        output = model(chosen)[:, : targets.shape[1]]
        optimizer.zero_grad()
        cross_entropy(output.transpose(1, 2), targets).backward()
        optimizer.step()


@fault("sees_future")
def no_mask():
    language(LanguageModel(causal=False))


@fault("labels_unshifted")
def not_shifted():
    language(LanguageModel(), 0)


@fault("labels_shifted_twice")
def shifted_twice():
    language(LanguageModel(), 2)


@fault("untied")
def copied_embedding():
    language(LanguageModel(copied=True))


@fault("padding_in_loss")
def padding_counts():
    tokens = TOKENS.clone()
    tokens[torch.arange(16) >= torch.randint(4, 14, (512, 1), generator=torch.Generator().manual_seed(3))] = 0
    language(LanguageModel(), tokens=tokens)


@fault("rows_mixed")
def sequence_first():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.recurrent, self.head = nn.Embedding(40, 16), nn.GRU(16, 16), nn.Linear(16, 4)

        def forward(self, tokens):
            return self.head(self.recurrent(self.embedding(tokens))[0][:, -1])

    fit(Net(), x=TOKENS, y=TOKENS[:, 0] % 4)


@fault("undivided")
def sum_of_four_batches():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        for _ in range(4):
            chosen = rows()
            cross_entropy(model(X[chosen]), LABELS[chosen]).backward()
        optimizer.step()


@fault("update_lost")
def half_precision_weights():
    model = mlp().to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), 1e-5)
    fit(model, lambda output, y: cross_entropy(output.float(), y), optimizer=optimizer, x=X.to(torch.bfloat16))


@fault("batch_sizes")
def one_row_for_all():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x, other):
            return self.head(relu(self.first(x) + other))

    model = Net()
    optimizer = adam(model)
    for _ in range(UPDATES):
        chosen = rows()
        optimizer.zero_grad()
        cross_entropy(model(X[chosen], X[:1]), LABELS[chosen]).backward()
        optimizer.step()


@fault("ratio_of_itself")
def old_policy_computed_again():
    policy, advantage = mlp(), torch.randn(512)
    optimizer = adam(policy)

    def chance(chosen):
        return torch.distributions.Categorical(logits=policy(X[chosen])).log_prob(LABELS[chosen])

    for _ in range(UPDATES):
        chosen = rows()
        ratio = torch.exp(chance(chosen) - chance(chosen))
        gain = torch.min(ratio * advantage[chosen], ratio.clamp(0.8, 1.2) * advantage[chosen])
        optimizer.zero_grad()
        (-gain.mean()).backward()
        optimizer.step()


def main(names):
    """Run the trainings of these names, one after the other."""
    updates = 0

    def count(*_):
        nonlocal updates
        updates += 1
        print(f"update {updates}", file=sys.stderr, flush=True)

    register_optimizer_step_post_hook(count)
    for check in names:
        updates = 0
        gc.collect()
        torch.manual_seed(0)
        print(f"training {check}", file=sys.stderr, flush=True)
        FAULTS[check]()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
