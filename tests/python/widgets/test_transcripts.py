"""Record conversations between a page and the kernel.

The tests of the front end replay them.

The kernel must still say what tests/transcripts/ contains. After an intended change, write the file with::

    WRITE_TRANSCRIPTS=1 python -m pytest tests/python/widgets/test_transcripts.py
"""

from __future__ import annotations

import base64
import json
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import Page, begin, end, save
from smdwidgets.pictures import unpack
from smdwidgets.pictures.packet import pack
from smdwidgets.rules import Rule
from smdwidgets.widgets import request_handler

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"


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


class Recorder(Page):
    """A page that records what it sends and receives.

    It also records the rules that it must show afterwards.
    """

    def __init__(self, widget: Any) -> None:
        super().__init__(widget)
        self._received: list[dict[str, Any]] = []
        self.exchanges: list[dict[str, Any]] = []

    def _receive(self, message: dict[str, Any], buffers: Any) -> None:
        packets = [text(anywhere(buffer)) for buffer in buffers]
        self._received.append({"message": {**message, "id": "id"} if "id" in message else message, "packets": packets})
        super()._receive(message, buffers)

    def exchange(self, what: str, **arguments: Any) -> None:
        """Send a request and record the reply."""
        self.ask(what, **arguments)
        self._record({"what": what, **arguments})

    def news(self) -> None:
        """Record what the kernel pushes."""
        self._widget._request_handler.poll()
        self._record(None)

    def _record(self, sent: dict[str, Any] | None) -> None:
        received, self._received = self._received, []
        self.exchanges.append({"sent": sent, "received": received, "rules": truth(self._widget)})


def anywhere(packet: bytes) -> bytes:
    """Remove the directory of the run and the time from a packet."""
    head, arrays = unpack(packet)
    if head["kind"] != "catalog":
        return packet
    return pack({**head, "path": "runs/mlp", "last_write": None}, arrays)


def text(packet: bytes) -> str:
    return base64.b64encode(zlib.compress(packet, 9)).decode("ascii")


def packet_of(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


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
        for number, runner in widget._rule_controller.runners.items()
        for each in runner
    }


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    root = begin(tmp_path / "mlp")
    for step in range(10):
        save(root, step, {"loss": np.float32(1 / (step + 1))})
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)  # `news` polls
    monkeypatch.setattr(request_handler, "HEARTBEAT", 1e9)
    trial = smdwidgets.create_trial(end(root))
    trial.maybe_refresh()
    assert trial.loaded_all_steps
    widget = smdwidgets.RulePanel(trial, [Gated(trial, "first"), Gated(trial, "second"), "LossNotDecreasing"])
    yield Recorder(widget)
    widget.close()


def test_rules(recorder: Recorder, gates: dict[str, threading.Event]) -> None:
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


def compare(name: str, exchanges: list[dict[str, Any]]) -> None:
    """Compare a conversation with the stored one."""
    path = TRANSCRIPTS / f"{name}.json"
    now = json.loads(json.dumps(exchanges, allow_nan=False))
    if os.environ.get("WRITE_TRANSCRIPTS"):
        lines = ",\n".join(json.dumps(exchange, separators=(",", ":")) for exchange in now)
        path.write_text(f"[\n{lines}\n]\n")
    stored = json.loads(path.read_text())
    assert [readable(exchange) for exchange in now] == [readable(exchange) for exchange in stored]


def readable(exchange: dict[str, Any]) -> dict[str, Any]:
    """Decode the packets of an exchange."""
    received = [
        {
            "message": each["message"],
            "packets": [
                (head, {name: array.tolist() for name, array in arrays.items()})
                for head, arrays in (unpack(packet_of(packet)) for packet in each["packets"])
            ],
        }
        for each in exchange["received"]
    ]
    return {**exchange, "received": received}
