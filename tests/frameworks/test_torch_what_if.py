"""An incident with one change, against a training with the change in its code."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from frameworks.plain_execution import PlainExecution
from smdwidgets.replay.what_if import try_all, what_if

AT, STEPS, ROWS = 10, 16, 8

FAULTS: dict[str, list[dict[str, Any]]] = {
    "large row": [{"clip": 1.0}, {"lr": "0.1x"}, {"drop_rows": [3]}, {"drop_rows": [6]}, {"batch": "skip"}],
    "NaN in a row": [{"drop_rows": [3]}, {"lr": "0.1x"}, {"clip": 1.0}, {"batch": "skip"}],
    "learning rate": [{"lr": 0.05}, {"lr": "0.01x"}, {"clip": 0.01}, {"drop_rows": [3]}],
    "large row, Adam": [{"drop_rows": [3]}, {"eps": 1e-1}, {"lr": "0.01x"}],
    "overflow of 16 bits": [{"dtype": "fp32"}, {"clip": 1.0}, {"lr": "0.1x"}],
    "loss x 1000": [{"clip": 1.0}, {"lr": 1e-4}, {"batch": "skip"}],
}
CASES = [(fault, change, seed) for fault, changes in FAULTS.items() for change in changes for seed in (0, 1)]


@dataclass
class Training:
    """A training with a fault at one step, and perhaps a change from it on."""

    fault: str
    seed: int
    change: dict[str, Any] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        x = torch.randn(STEPS, ROWS, 6)
        y = (x @ torch.randn(6, 3)).argmax(2)
        if self.fault.startswith("large row"):
            x[AT, 3] *= 300
            y[AT, 3] = (y[AT, 3] + 1) % 3
        if self.fault == "NaN in a row":
            x[AT, 3, 2] = math.nan
        self.batches = [(step, x[step], y[step]) for step in range(STEPS)]
        torch.manual_seed(50 + self.seed)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
        adam = self.fault.endswith("Adam")
        parameters = self.model.parameters()
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.Adam(parameters, 1e-2) if adam else torch.optim.SGD(parameters, 0.05, momentum=0.9)
        )

    def step(self, batch: Any) -> torch.Tensor:
        step, x, y = batch
        changed = self.change if step >= AT else {}
        group = self.optimizer.param_groups[0]
        if self.fault == "learning rate":
            group["lr"] = 20.0 if AT <= step < AT + 3 else 0.05
        if step == AT and "drop_rows" in changed:
            kept = [row for row in range(ROWS) if row not in changed["drop_rows"]]
            x, y = x[kept], y[kept]
        half = self.fault == "overflow of 16 bits"
        with torch.autocast("cpu", torch.float16, enabled=half and "dtype" not in changed):
            scores = self.model(x)
            if half and step >= AT:
                scores = scores + 1e-9 * ((scores * 1e3) @ torch.full((3, 3), 1e3))
        loss = F.cross_entropy(scores.float(), y) * (1000 if self.fault == "loss x 1000" and step == AT else 1)
        self.optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            squares = [one.grad.double().square().sum() for one in self.model.parameters()]
            self.norms.append(float(torch.stack(squares).sum().sqrt()))
        if "clip" in changed:
            nn.utils.clip_grad_norm_(self.model.parameters(), changed["clip"])
        rate, eps = group["lr"], group.get("eps")
        if "lr" in changed:
            group["lr"] = rate * float(changed["lr"][:-1]) if isinstance(changed["lr"], str) else changed["lr"]
        if "eps" in changed:
            group["eps"] = changed["eps"]
        if not ("batch" in changed and step == AT):
            self.optimizer.step()
        group["lr"] = rate
        if eps is not None:
            group["eps"] = eps
        return loss.detach()

    def run(self) -> tuple[list[float], list[float]]:
        losses = [float(self.step(batch)) for batch in self.batches]
        return losses, self.norms


def _happens(values: tuple[list[float], list[float]], before: tuple[list[float], list[float]], skips: bool) -> bool:
    """Whether a loss or a gradient norm is not finite or a spike."""
    first = AT + 1 if skips else AT
    return any(
        not math.isfinite(one) or one > 5 * float(np.median(recorded[:AT]))
        for series, recorded in zip(values, before, strict=True)
        for one in series[first:]
    )


@pytest.mark.parametrize(("fault", "change", "seed"), CASES)
def test_outcome_is_that_of_the_changed_training(fault: str, change: dict[str, Any], seed: int) -> None:
    training = Training(fault, seed)
    execution = PlainExecution(
        training.step, training.batches, [training.model], [training.optimizer], stops=False, keep=STEPS
    )
    recorded = Training(fault, seed).run()
    outcome = what_if(execution, AT, **change)
    changed = Training(fault, seed, change).run()
    assert _happens(recorded, recorded, False)
    assert not outcome.recorded.is_healthy
    assert outcome.happens == _happens(changed, recorded, "batch" in change), str(outcome)
    assert outcome.heals == (not outcome.happens)
    assert repr(outcome.changed.losses) == repr(tuple(one if math.isfinite(one) else math.nan for one in changed[0]))
    json.dumps(outcome.to_json(), allow_nan=False)
    again = what_if(execution, AT, **change)
    assert repr(again.changed.losses) == repr(outcome.changed.losses)


def test_all_changes_are_ordered_by_what_heals() -> None:
    training = Training("NaN in a row", 0)
    execution = PlainExecution(
        training.step, training.batches, [training.model], [training.optimizer], stops=False, keep=STEPS
    )
    table = try_all(execution, AT, [3])
    healing = [str(one.change) for one in table if one.heals]
    assert healing == ["without row 3", "without the update of the step"] or healing == [
        "without the update of the step",
        "without row 3",
    ]
    assert [one.heals for one in table] == sorted((one.heals for one in table), reverse=True)
    assert "without row 3 at step 10: heals; largest loss" in str(table)
    assert "without the update of the step at step 10: heals; largest loss" in str(table)
    assert "clip 1 from step 10 on: stays; step 10: loss is not finite" in str(table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "nothing is changed"),
        ({"lr": "fast"}, "invalid lr 'fast'"),
        ({"clip": -1}, "invalid clip -1"),
        ({"dtype": "fp8"}, "invalid dtype 'fp8'"),
        ({"batch": "double"}, "invalid batch 'double'"),
    ],
)
def test_invalid_change_is_an_error(change: dict[str, Any], message: str) -> None:
    training = Training("large row", 0)
    execution = PlainExecution(training.step, training.batches[:12], [training.model], [training.optimizer])
    with pytest.raises(ValueError, match=message):
        what_if(execution, AT, **change)


def test_rows_that_the_batch_does_not_have_are_reported() -> None:
    training = Training("large row", 0)
    execution = PlainExecution(
        training.step, training.batches, [training.model], [training.optimizer], stops=False, keep=STEPS
    )
    outcome = what_if(execution, AT, drop_rows=[8])
    assert not outcome.heals
    assert outcome.error == "ValueError: invalid drop_rows [8]; the batch has the rows 0 to 7"


def test_steps_that_differ_from_the_recorded_ones_are_refused() -> None:
    training = Training("large row", 0)
    calls = []

    def step(batch: Any) -> torch.Tensor:
        calls.append(batch)
        return training.step((batch[0], batch[1] + len(calls) * 1e-3, batch[2]))

    execution = PlainExecution(step, training.batches, [training.model], [training.optimizer], stops=False, keep=STEPS)
    with pytest.raises(ValueError, match="differs from step 0 on, the first one"):
        what_if(execution, AT, clip=1.0)
