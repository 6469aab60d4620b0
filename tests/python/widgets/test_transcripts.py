"""Record conversations between a page and the kernel over real runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import begin, end, save
from python.widgets.transcripts import Recorder, compare
from smdwidgets.rules import Rule
from smdwidgets.widgets import request_handler


class Gated(Rule):
    """Waits at every step until its gate is open; fires at the last three steps."""

    gates: dict[str, threading.Event] = {}
    waits = threading.Event()  # set when a rule waits at its gate

    def __init__(self, base_trial: Any, gate: str = "first", limit: float = 0.5) -> None:
        super().__init__(base_trial)
        self.gate = gate
        self.limit = float(limit)

    def invoke_at_step(self, step: int) -> bool:
        self.waits.set()
        assert self.gates[self.gate].wait(60)
        if step >= 7:
            self.blame("loss", step, float(step), self.limit)
        return step >= 7


class Silent(Rule):
    """Judges no step."""

    def invoke_at_step(self, step: int) -> bool:
        self.base_trial.tensor("missing").value(step)
        return False


@pytest.fixture(autouse=True)
def gates() -> Iterator[dict[str, threading.Event]]:
    Gated.gates = {name: threading.Event() for name in ("first", "second")}
    yield Gated.gates
    for gate in Gated.gates.values():
        gate.set()


class RuleRecorder(Recorder):
    """Also records the rules that the page must show after each message."""

    def _record(self, sent: dict[str, Any] | None) -> None:
        super()._record(sent)
        self.exchanges[-1]["rules"] = truth(self._widget)


def truth(widget: Any) -> dict[str, Any]:
    """Describe the rules of a widget as its runners know them."""
    return {
        f"{number}/{each.name}": {
            "status": str(each.status),
            "active": each.active,
            "paused": each.paused,
            "judged": each.judged > 0,
            "outcomes": {str(step): int(outcome) for step, outcome in each.outcomes.items()},
        }
        for number, runner in widget.rule_controller.runners.items()
        for each in runner
    }


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RuleRecorder]:
    root = begin(tmp_path / "mlp")
    for step in range(10):
        save(root, step, {"loss": np.float32(1 / (step + 1))})
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)  # `news` polls
    monkeypatch.setattr(request_handler, "HEARTBEAT", 1e9)
    trial = smdwidgets.create_trial(end(root))
    trial.maybe_refresh()
    assert trial.loaded_all_steps
    widget = smdwidgets.RulePanel(trial, [Gated(trial, "first"), Gated(trial, "second"), "LossNotDecreasing"])
    yield RuleRecorder(widget)
    widget.close()


def test_rules(recorder: RuleRecorder, gates: dict[str, threading.Event]) -> None:
    runner = recorder._widget.rules
    assert Gated.waits.wait(60)
    recorder.exchange("hello", protocol=1, again=False)
    recorder.exchange("rule", do="pause", rule="0/Gated")
    recorder.exchange("rule", do="pause", rule="0/Gated")
    recorder.exchange("rule", do="start", rule="0/Gated")
    recorder.exchange("rule", do="stop", rule="0/LossNotDecreasing")
    for gate in gates.values():
        gate.set()
    assert runner.wait(60)
    recorder.news()
    for command in ("start", "pause", "stop"):
        recorder.exchange("rule", do=command, rule="0/Gated")
    for gate in gates.values():
        gate.clear()
    Gated.waits.clear()
    recorder.exchange("rule", do="rerun", rule="0/Gated")
    assert Gated.waits.wait(60)
    recorder.exchange("rule", do="set", rule="0/Gated-2", params={"limit": 2})
    recorder.exchange("rule", do="set", rule="0/Gated-2", params={"limit": "none"})
    recorder.exchange("rule", do="stop", rule="0/Gated")
    recorder.exchange("rule", do="start", rule="0/Gated")
    recorder.exchange("rule", do="pause", rule="0/Gated-2")
    recorder.exchange("rule", do="stop", rule="0/Gated-2")
    recorder.exchange("rule", do="remove", rule="0/Gated-2")
    recorder.exchange("rule", do="stop", rule="0/Gated-2")
    recorder.exchange("rule", do="add", **{"class": "Silent"}, params={}, run=0)
    recorder.exchange("rule", do="add", **{"class": "Silent"}, params={}, run=0)
    recorder.exchange("rule", do="add", **{"class": "Silnt"}, params={}, run=0)
    recorder.exchange("rule", do="add", **{"class": "Silent"}, params={}, run=1)
    for gate in gates.values():
        gate.set()
    assert runner.wait(60)
    recorder.news()
    recorder.exchange("hello", protocol=1, again=True)
    compare("rules", recorder.exchanges)
