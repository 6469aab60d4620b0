"""Answers about incidents of whole trainings: cause, rows, changes that heal."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import smdwidgets.pytorch as smd
from smdwidgets import create_trial
from smdwidgets.exceptions import CannotReplay
from smdwidgets.hooks.core.process import open_hooks
from smdwidgets.incident import Incident

POISONED = 301


class Attention(nn.Module):
    """Weights positions by their share of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = (
            nn.Linear(1, 16),
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
            nn.Linear(16, 4),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = x / x.sum(1, keepdim=True)  # CAUSE
        return self.head((self.mix(self.embed(x[..., None])) * share[..., None]).sum(1))


@pytest.fixture(autouse=True)
def closed_hooks() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for hook in open_hooks():
        hook.close()


def _train(folder: Path, rate: float = 1e-3) -> tuple[nn.Module, Incident]:
    torch.manual_seed(0)
    x = torch.rand(480, 6) + 0.1
    y = torch.randint(0, 4, (480,))
    x[POISONED] = 0
    model = Attention()
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    hook = smd.record(model, folder, replay="auto")
    for x_batch, y_batch in DataLoader(
        TensorDataset(x, y), 16, shuffle=True, generator=torch.Generator().manual_seed(3)
    ):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x_batch), y_batch)
        loss.backward()
        optimizer.step()
    hook.close()
    with create_trial(folder) as trial:
        return model, trial.incidents()[0]


def test_operator_line_and_row_of_the_data_set_are_named(tmp_path: Path) -> None:
    model, incident = _train(tmp_path / "run")
    live = [one.clone() for one in model.state_dict().values()]
    explanation = incident.explain()
    lines, start = inspect.getsourcelines(Attention)
    cause = next(start + number for number, line in enumerate(lines) if "# CAUSE" in line)
    assert explanation.kind == "operator", str(explanation)
    assert (explanation.operator, explanation.value) == ("aten.div", "NaN")
    assert explanation.user.line == cause
    assert explanation.module == "Attention"
    assert explanation.dataset_rows == (POISONED,), str(explanation)
    assert "input 2: float32 (16, 1) from 0" in str(explanation)
    assert explanation.verified.startswith("bit-equal, ")
    json.dumps(explanation.to_json(), allow_nan=False)

    [row] = explanation.rows
    outcome = incident.what_if(drop_rows=[row])
    assert outcome.heals, str(outcome)
    assert not incident.what_if(clip=1.0).heals
    table = incident.try_all(explanation.rows)
    assert {str(one.change) for one in table if one.heals} == {f"without row {row}", "without the update of the step"}

    by_execution = incident.rank_rows()
    by_loss = incident.rank_rows(lambda call, batch: F.cross_entropy(call(batch[0]), batch[1]))
    for ranking in (by_execution, by_loss):
        assert ranking.claims == (f"row {row} is not finite",), str(ranking)
        assert ranking.rows[0].identity == POISONED
    assert by_execution.method == "execution"
    for one, was in zip(model.state_dict().values(), live, strict=True):
        assert torch.equal(one.nan_to_num(), was.nan_to_num())


def test_invalid_change_and_step_are_errors(tmp_path: Path) -> None:
    _, incident = _train(tmp_path / "run")
    with pytest.raises(ValueError, match="nothing is changed"):
        incident.what_if()
    with pytest.raises(CannotReplay, match="step 9999 was not recorded"):
        incident.what_if(step=9999, clip=1.0)


def test_incident_without_a_recording_is_an_error() -> None:
    with pytest.raises(LookupError, match="no batches were recorded around this incident"):
        Incident("worker_0", 3, ("NaN in 'w'",)).explain()


def _train_classifier(folder: Path, fault: str) -> Incident:
    torch.manual_seed(0)
    tokens, y = torch.randint(0, 30, (320, 5)), torch.randint(0, 3, (320,))
    if fault == "token":
        tokens[POISONED - 100, 2] = 30
    model = nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(40, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    hook = smd.record(model, folder, replay="auto")
    step = 0
    try:
        for x_batch, y_batch in DataLoader(TensorDataset(tokens, y), 10, shuffle=fault == "token"):
            optimizer.param_groups[0]["lr"] = 1e25 if fault == "rate" and step == 20 else 1e-2
            optimizer.zero_grad()
            loss = F.mse_loss(model(x_batch), F.one_hot(y_batch, 3).float())
            loss.backward()
            optimizer.step()  # UPDATE
            step += 1
    except IndexError:
        hook.dump("an error")
    hook.close()
    with create_trial(folder) as trial:
        return trial.incidents()[0]


def _line(function: Any, mark: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return next(start + number for number, line in enumerate(lines) if mark in line)


def test_growth_is_named_at_the_update_before_the_incident(tmp_path: Path) -> None:
    incident = _train_classifier(tmp_path / "run", "rate")
    explanation = incident.explain()
    assert explanation.kind == "growth", str(explanation)
    assert (explanation.step, explanation.phase) == (20, "optimizer")
    assert explanation.user.line == _line(_train_classifier, "# UPDATE")
    assert incident.what_if(step=20, lr=1e-2).heals
    assert not incident.what_if(step=20, lr="0.1x").heals


def test_error_is_explained_with_the_offending_row(tmp_path: Path) -> None:
    explanation = _train_classifier(tmp_path / "run", "token").explain()
    assert (explanation.kind, explanation.operator, explanation.value) == ("error", "aten.embedding", "IndexError")
    assert explanation.user.line == _line(_train_classifier, "F.mse_loss(model(x_batch)")
    assert explanation.dataset_rows == (POISONED - 100,)
    assert "int64 (10, 5) from 0 to 30; 30 at this element" in str(explanation)
