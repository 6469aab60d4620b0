"""Checks of PyTorch after the first updates cost little, and see later faults."""

from __future__ import annotations

import gc
import weakref
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional

import smdwidgets.pytorch as smd
from smdwidgets.checks.mechanisms import Mechanisms
from smdwidgets.checks.record import CheckRecords
from smdwidgets.checks.torch import session

UPDATES = session._SETTLED + 192
#: A fault begins here.
LATER = session._SETTLED + 8


class Net(nn.Module):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU()), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.head(self.body(x))


@pytest.fixture(params=[0, 16, 64], ids=["long updates", "short updates", "many short updates"])
def short(request, monkeypatch):
    """Return of how many short updates one is looked at; 0: no update is short."""
    monkeypatch.setattr(session, "_SHORT", 100.0 if request.param else 0.0)
    monkeypatch.setattr(session, "_MANY", session._SETTLED if request.param == 64 else 10**9)
    return request.param


@pytest.fixture
def train(tmp_path, short):
    """Return a function that trains with all checks, and says which fired."""
    torch.manual_seed(0)

    def train(each=lambda update, x: x, resets=lambda update: True, after=lambda update, model: None):
        model = Net()
        hook = smd.Hook(tmp_path / "run", checks=True, checks_only=10**9)
        hook.register_module(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for update in range(UPDATES):
            x = each(update, torch.randn(16, 32))
            loss = functional.cross_entropy(model(x), (torch.arange(16) % 2))
            if resets(update):
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            after(update, model)
        hook.close()
        file = tmp_path / "run/checks/worker_0.jsonl"
        return {one.id for one in CheckRecords.parse({file.stem: file.read_bytes()}) if one.level != "note"}

    return train


def test_most_updates_are_not_looked_at_by_all_mechanisms(train, short, monkeypatch):
    calls, update = Counter(), [0]
    run = Mechanisms.run

    def counted(self, mechanism, call, *args):
        calls[update[0]] += 1
        run(self, mechanism, call, *args)

    monkeypatch.setattr(Mechanisms, "run", counted)
    train(after=lambda number, model: update.__setitem__(0, number + 1))
    later = [calls[one] for one in range(session._SETTLED, UPDATES - 1)]
    assert sorted(later)[len(later) // 2] <= (1 if short else 20)
    assert sum(one > 40 for one in later) == 2 * (UPDATES - session._SETTLED) // (short or 16)
    assert min(calls[one] for one in range(session._SETTLED)) > 40


def test_no_batch_is_kept(train):
    batches = []

    def each(update, x):
        gc.collect(0)
        alive = sum(one() is not None for one in batches)
        # The variable of the loop has the last one.
        assert alive <= 1, update
        batches.append(weakref.ref(x))
        return x

    train(each)


def test_batches_of_zeros_are_seen(train, short):
    """Short updates are too many for a look at each batch."""
    fired = train(lambda update, x: torch.zeros_like(x) if LATER <= update < LATER + (short + 8 if short else 3) else x)
    assert "zero_batch" in fired


def test_gradients_that_are_not_reset_any_more_are_seen(train):
    assert "not_reset" in train(resets=lambda update: update < LATER)


def test_a_model_that_stays_in_evaluation_mode_is_seen(train):
    fired = train(after=lambda update, model: model.eval() if update == LATER else None)
    assert "train_in_eval_mode" in fired


def test_an_evaluation_in_training_mode_is_seen(train):
    def evaluate(update, model):
        if update >= LATER and update % 4 == 0:
            with torch.no_grad():
                functional.cross_entropy(model(torch.randn(16, 32)), torch.zeros(16, dtype=torch.long))

    assert "eval_in_train_mode" in train(after=evaluate)


def test_a_healthy_training_fires_nothing(train):
    def evaluate(update, model):
        if update % 50 == 49:
            model.eval()
            with torch.no_grad():
                model(torch.randn(16, 32))
            model.train()

    assert not train(after=evaluate)
