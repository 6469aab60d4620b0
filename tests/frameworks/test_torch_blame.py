"""Which operator, line and rows broke a step: planted causes, healthy steps."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from frameworks import planted_causes
from frameworks.plain_execution import PlainExecution
from frameworks.planted_causes import HELD_OUT, KNOWN, Cause
from smdwidgets.replay.blame import explain

KINDS = {
    "nan_in_the_input": "given",
    "infinite_target": "given",
    "token_outside_the_vocabulary": "error",
    "class_that_the_model_does_not_have": "error",
    "probability_above_one": "error",
    "size_of_the_last_batch": "error",
    "key_that_a_row_does_not_have": "error",
    "constant_batch_statistics": "error",
    "learning_rate_of_one_step": "growth",
    "weights_multiplied_by_hand": "growth",
    "loss_scale_of_one_step": "growth",
    "momentum_without_damping": "growth",
    "recurrence_that_explodes": "growth",
}


def _cause_line(cause: Callable[[], Cause]) -> int | None:
    source = inspect.getsource(planted_causes).splitlines()
    for number, line in enumerate(source, 1):
        if line.endswith(f"# CAUSE {cause.__name__}"):
            return number
    lines, start = inspect.getsourcelines(cause)
    return next((start + number for number, line in enumerate(lines) if "# CAUSE" in line), None)


@pytest.mark.parametrize("cause", [*KNOWN, *HELD_OUT], ids=lambda cause: cause.__name__)
def test_cause_is_named_with_line_and_rows(cause: Callable[[], Cause]) -> None:
    execution, rows = cause()
    assert execution.incident is not None
    live = [one.clone() for model in execution.modules for one in model.state_dict().values()]
    explanation = explain(execution, execution.incident)
    kind = KINDS.get(cause.__name__, "operator")
    assert explanation.kind == kind, str(explanation)
    line = _cause_line(cause)
    if line is None:
        assert explanation.operator.startswith("batch["), str(explanation)
    else:
        assert explanation.user is not None
        assert explanation.user.line == line, str(explanation)
        assert explanation.user.text in inspect.getsource(cause) + inspect.getsource(planted_causes)
    if rows is not None and kind != "growth":
        assert list(explanation.rows) == rows, str(explanation)
    if rows is not None and kind == "growth":
        assert f"row {rows[0]}" in str(explanation)
    if kind != "error":
        assert explanation.verified.startswith("bit-equal, ")
    json.dumps(explanation.to_json(), allow_nan=False)
    for one, was in zip((v for m in execution.modules for v in m.state_dict().values()), live, strict=True):
        assert torch.equal(one.nan_to_num(), was.nan_to_num())


# ------------------------------------------------------------------------------------------------------ healthy steps


class _Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(17, 8), nn.Linear(8, 17)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)
        return self.head(self.layer(self.embed(tokens), src_mask=mask))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(7, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x[:, None].expand(-1, 4, -1))[0][:, -1])


class _Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Sequential(nn.Linear(7, 8), nn.GELU(), nn.Dropout(0.2)), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(checkpoint(self.first, x, use_reentrant=False))


def _healthy(name: str) -> PlainExecution:
    torch.manual_seed(4)
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(20, 10, 7, generator=generator)
    y = torch.randint(0, 3, (20, 10), generator=generator)
    batches: list[Any] = list(zip(x, y, strict=True))
    model: nn.Module = {
        "dropout": lambda: nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)),
        "convolutions": lambda: nn.Sequential(
            nn.Unflatten(1, (1, 7)),
            nn.Conv1d(1, 6, 3),
            nn.BatchNorm1d(6),
            nn.Dropout1d(0.4),
            nn.Flatten(),
            nn.Linear(30, 3),
        ),
        "attention": _Causal,
        "recurrent": _Recurrent,
        "checkpointed": _Checkpointed,
        "half precision": lambda: nn.Sequential(nn.Linear(7, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3)),
        "log of a mask": lambda: nn.Sequential(nn.Linear(7, 3)),
    }[name]()
    adam = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: min(1.0, (step + 1) / 5))

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if name == "attention":
            tokens = (x.abs() * 5).long().clamp(max=16)
            return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        if name == "half precision":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return F.cross_entropy(model(x), y)
        if name == "log of a mask":
            scores = model(x) + torch.log((torch.arange(3) != (y[:, None] + 1) % 3).float())
            return F.cross_entropy(scores, y)
        return F.cross_entropy(model(x), y)

    def step(batch: Any) -> torch.Tensor:
        adam.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        return loss.detach()

    execution = PlainExecution(step, batches, [model], [adam], stops=False, keep=20)
    assert schedule is not None
    return execution


@pytest.mark.parametrize("last", [6, 12, 19])
@pytest.mark.parametrize(
    "name",
    ["dropout", "convolutions", "attention", "recurrent", "checkpointed", "half precision", "log of a mask"],
)
def test_nothing_is_named_on_healthy_steps(name: str, last: int) -> None:
    execution = _healthy(name)
    for trigger in (last, None) if last == 19 else (last,):
        explanation = explain(execution, trigger)
        assert explanation.kind == "nothing", str(explanation)
        assert str(explanation).startswith(f"step {last}: no operator explains the incident")
        assert explanation.verified == f"bit-equal, {last + 1} of {last + 1} steps"


def test_step_that_was_not_recorded_is_an_error() -> None:
    with pytest.raises(ValueError, match="step 99 cannot be executed again; steps 0 to 19 can"):
        explain(_healthy("dropout"), 99)
