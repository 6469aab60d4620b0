"""Record answers of a real kernel for the front end's demo page and tests.

js/demo/recorded.ts replays them.
tests/transcripts/demo-requests.json lists the requests, with `near` -1 and without `after`. A component test that sends
another request fails with the request's text; add it to the list, and write the recording again; see transcripts.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets import demo_run
from python.widgets.talk import save
from python.widgets.transcripts import TRANSCRIPTS, Recorder, compare
from smdwidgets.pictures import differences
from smdwidgets.rules import Rule, RuleRunner
from smdwidgets.rules.builtin import BUILTIN
from smdwidgets.widgets import request_handler

REQUESTS = json.loads((TRANSCRIPTS / "demo-requests.json").read_text())
FC1 = {"role": "main", "run": 0, "tensor": "fc1.weight", "worker": ""}
MANY_REQUESTS: list[dict[str, Any]] = [
    {
        "what": "frames",
        **FC1,
        "near": -1,
        "want": {"stats": True, "update": False, "hist": None, "image": None, "percentiles": False},
    },
]
VANISHING = "0/VanishingGradient"
COMMANDS = [
    [{"do": "set", "rule": VANISHING, "params": {"threshold": 0.001}}],
    [{"do": do, "rule": VANISHING} for do in ("pause", "start", "stop", "start")],
    [
        {"do": "remove", "rule": "0/ExplodingTensor"},
        {"do": "add", "class": "MyRule", "run": 0, "params": {}},
    ],
]


class MyRule(Rule):
    """defined in a cell"""

    def invoke_at_step(self, step: int) -> bool:
        if step == 300:
            raise ValueError("no layer fc4")
        return False


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The gate at which VanishingGradient waits at step 740.

    It is running while the recording is made.
    """
    gate, judge = threading.Event(), BUILTIN["VanishingGradient"].judge

    def waiting(self: Any, step: int) -> None:
        assert step < 740 or gate.wait(60)
        judge(self, step)

    monkeypatch.setattr(BUILTIN["VanishingGradient"], "judge", waiting)
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)
    monkeypatch.setattr(differences, "PART_SECONDS", 1e9)  # an answer in one part
    yield gate
    gate.set()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    return [demo_run.finished(root / "mlp"), demo_run.finished(root / "mlp-slow", 1)]


@pytest.fixture
def record(runs: list[Path], gate: threading.Event) -> Iterator[Callable[[], Recorder]]:
    widgets = []

    def page() -> Recorder:
        trials = [smdwidgets.create_trial(run) for run in runs]
        for trial in trials:
            trial.maybe_refresh()
        runner = RuleRunner(trials[0])
        runner.add("ExplodingTensor", tensor_regex="^gradient/fc")
        runner.add("Overfit")
        runner.add(MyRule)
        runner.start()
        assert runner.wait(60)
        runner.add("VanishingGradient", threshold=1e-5)
        widget = smdwidgets.explore(trials, tensor="fc1.weight", rules=runner)
        widgets.append(widget)
        widget.live_survey.complete()
        evaluation = runner["VanishingGradient"]
        wait_until(lambda: evaluation.done == 74)
        recorder = Recorder(widget)
        recorder.ask("hello", protocol=1, again=False)
        recorder._received.clear()
        return recorder

    yield page
    gate.set()
    for widget in widgets:
        widget.close()


def wait_until(done: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(3000):
        if done():
            return
        waiting.wait(0.02)
    raise AssertionError("timed out")


def test_demo(record: Callable[[], Recorder], gate: threading.Event) -> None:
    page = record()
    for request in REQUESTS:
        message = page.exchange(**request)
        if request["what"] == "classes":  # all others change with the rules of the package
            message["classes"][:] = [
                each
                for each in message["classes"]
                if each["name"] in {"MyRule", "ExplodingTensor", "Overfit", "VanishingGradient"}
            ]
    conversations = []
    for commands in COMMANDS:
        talk = record()
        evaluation = talk._widget.rules["VanishingGradient"]
        for command in commands:
            talk.exchange("rule", **command)
            if command["do"] == "stop":  # takes effect when the step has been judged
                gate.set()
                wait_until(lambda rule=evaluation: not rule.active)
                gate.clear()
                talk.news()
        conversations.append(talk.exchanges)
    compare("demo", {"requests": page.exchanges, "commands": conversations})


def test_demo_with_many_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with 10,000 more tensors, in whose names the page searches."""
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)
    root = demo_run.finished(tmp_path / "mlp", last=0)
    parts = ("query", "key", "value", "dense", "norm", "bias", "mask", "output")
    names = [f"encoder/layer.{i // 40}/block{i // 8 % 5}/{parts[i % 8]}" for i in range(10_000)]
    save(root, 10, dict.fromkeys(names, np.float32(0)))
    widget = smdwidgets.explore(root, tensor="fc1.weight")
    widget.live_survey.complete()
    page = Recorder(widget)
    page.exchange("hello", protocol=1, again=False)
    for request in MANY_REQUESTS:
        page.exchange(**request)
    widget.close()
    compare("demo-many", {"requests": page.exchanges, "commands": []})


def test_demo_truth() -> None:
    """Values that pictures are compared with, computed by NumPy."""
    found = {}
    for run, name, step in [
        *((0, "fc1.weight", step) for step in (10, 300, 600, 640, 700, 1200)),
        (0, "gradient/fc1.weight", 720),
        (0, "fc3.weight", 600),
        (0, "gradient/fc3.weight", 10),
        (1, "fc1.weight", 810),
    ]:
        value = np.asarray(demo_run.tensors(step, run)[name], np.float64)
        finite = value[np.isfinite(value)]
        found[f"{run}/{name}/{step}"] = {
            "min": finite.min(),
            "max": finite.max(),
            "l1": np.abs(finite).sum(),
            "size": value.size,
            "nan": int(np.isnan(value).sum()),
            "inf": int(np.isinf(value).sum()),
            "zero": int((value == 0).sum()),
            "cells": {
                f"{row}, {column}": value[row, column]
                for row, column in [(0, 0), (0, 5), (3, 5), (30, 0)]
                if row < len(value) and np.isfinite(value[row, column])
            },
        }
    compare("demo-truth", found)
