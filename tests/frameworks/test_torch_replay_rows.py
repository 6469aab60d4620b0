"""Which rows of a batch stand out, by their own losses, gradients and inputs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from smdwidgets.replay.rows import RowRanking, rank_rows, rows_of

Made = tuple[nn.Module, list[torch.Tensor], Callable[..., torch.Tensor], torch.Generator]


class _Tokens(nn.Module):
    """Predicts the next token by attention, written out for vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 16), nn.Linear(16, 16)
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embed(tokens)
        scores = self.query(h) @ self.key(h).transpose(1, 2) / 4
        mask = torch.ones(scores.shape[-2:]).triu(1).bool()
        return self.head(h + scores.masked_fill(mask, -1e9).softmax(-1) @ self.value(h))


def _trained(name: str, seed: int) -> Made:
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    x = torch.randn(320, 16, generator=generator)
    y = (x @ torch.randn(16, 4, generator=generator)).argmax(1)
    data: list[torch.Tensor] = [x, y]
    model: nn.Module
    if name == "tokens":
        model = _Tokens()
        following = torch.randperm(16, generator=generator)
        tokens = torch.zeros(320, 10, dtype=torch.long)
        tokens[:, 0] = torch.randint(0, 16, (320,), generator=generator)
        for place in range(1, 10):
            tokens[:, place] = following[tokens[:, place - 1]]
        data = [tokens]
    elif name == "normalized":
        model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    else:
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))

    def loss_of(call: Callable[..., Any], batch: Any) -> torch.Tensor:
        if name == "tokens":
            return F.cross_entropy(call(batch[0])[:, :-1].flatten(0, 1), batch[0][:, 1:].flatten())
        return F.cross_entropy(call(batch[0]), batch[1])

    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        chosen = torch.randint(0, 320, (32,), generator=generator)
        optimizer.zero_grad()
        loss_of(model, [one[chosen] for one in data]).backward()
        optimizer.step()
    return model, data, loss_of, generator


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["plain", "normalized", "tokens"])
def test_bad_row_is_first_and_clean_rows_are_not_claimed(name: str, seed: int) -> None:
    model, data, loss_of, generator = _trained(name, seed)
    faults = ["garbage"] if name == "tokens" else ["nan", "large", "label"]
    hits = trials = 0
    for fault in faults:
        for _ in range(6):
            chosen = torch.randint(0, 320, (32,), generator=generator)
            batch = [one[chosen].clone() for one in data]
            assert rank_rows(model, loss_of, batch).claims == ()
            row = int(torch.randint(0, 32, (1,), generator=generator))
            if fault == "nan":
                batch[0][row, 3] = math.nan
            elif fault == "large":
                batch[0][row] *= 30
            elif fault == "label":
                batch[1][row] = (batch[1][row] + 2) % 4
            else:
                batch[0][row] = torch.randint(0, 16, (10,), generator=generator)
            ranking = rank_rows(model, loss_of, batch)
            assert ranking.method == "vmap", ranking.note
            assert ranking.claims == ((f"row {row} is not finite",) if fault == "nan" else ())
            trials += 1
            hits += row in [one.row for one in ranking.top(3)]
    assert hits >= trials - 2


def test_loop_and_vmap_agree_and_nothing_changes() -> None:
    model, data, loss_of, _ = _trained("plain", 3)
    batch = [one[:8] for one in data]
    model.train()
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    before = [one.clone() for one in model.state_dict().values()]
    state = torch.get_rng_state()
    at_once = rank_rows(model, loss_of, batch, identities=[f"s{row}" for row in range(8)])

    def branching(call: Callable[..., Any], rows: Any) -> torch.Tensor:
        loss = loss_of(call, rows)
        return loss if float(loss) >= 0 else -loss  # vmap has no value to branch on

    one_by_one = rank_rows(model, branching, batch)
    assert (at_once.method, one_by_one.method) == ("vmap", "loop")
    assert one_by_one.note.startswith("one row after the other, because vmap failed: ")
    _compare(at_once, one_by_one)
    assert model.training
    assert all(torch.equal(one, was) for one, was in zip(model.state_dict().values(), before, strict=True))
    assert all(bool((one.grad == 1).all()) for one in model.parameters() if one.grad is not None)
    assert torch.equal(torch.get_rng_state(), state)
    assert f"row {at_once.rows[0].row} (data set: s{at_once.rows[0].row}): loss" in str(at_once)
    json.dumps(at_once.to_json(), allow_nan=False)


def _compare(a: RowRanking, b: RowRanking) -> None:
    for one, other in zip(sorted(a.rows, key=lambda r: r.row), sorted(b.rows, key=lambda r: r.row), strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-4)
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-3)


def test_rows_of_nested_batches() -> None:
    batch = {
        "x": torch.arange(6).reshape(3, 2),
        "names": ["a", "b", "c"],
        "scale": 2.0,
        "pair": (torch.ones(3), torch.ones(2)),
    }
    chosen = rows_of(batch, [0, 2])
    assert chosen["x"].tolist() == [[0, 1], [4, 5]]
    assert chosen["names"] == ["a", "c"]
    assert chosen["scale"] == 2.0
    assert [len(one) for one in chosen["pair"]] == [2, 2]


def test_batch_without_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="no tensor with rows"):
        rank_rows(nn.Linear(2, 1), lambda call, batch: call(batch), {"n": 3})
