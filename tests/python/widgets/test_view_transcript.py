"""Record a conversation over a run that grows, is damaged and is replaced.

Each exchange contains what the page must then show, computed by NumPy from the values that were written.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import begin, end, save, save_incident
from python.widgets.transcripts import Recorder, compare
from smdwidgets.pictures import differences
from smdwidgets.widgets import request_handler

WANT = {
    "stats": True,
    "update": True,
    "hist": {"scale": "linear", "bins": 16, "edges": "shared"},
    "image": {"axes": [], "fixed": [], "pool": "mean", "cells": 64},
    "percentiles": True,
}
OWN = {**WANT, "hist": {"scale": "symlog", "bins": 16, "edges": "own"}}
MAIN = {"role": "main", "run": 0, "worker": ""}
SLICE = {**MAIN, "tensor": "w", "step": 2, "axes": [], "fixed": []}
LINE = {"run": 0, "worker": "", "mode": ""}


def values(step: int, scale: float = 1.0) -> dict[str, Any]:
    w = (np.arange(12, dtype=np.float32).reshape(3, 4) - 5) * np.float32(scale * (step + 1)) / 8
    if step == 3:
        w[0, 0], w[1, 1] = np.nan, np.inf
    return {
        "w": w,
        "loss": np.float32(1 / 2**step),
        "z": np.full(3, complex(0, step), np.complex64),
        "text": np.array(["<b>a</b>", "b"]),
        "empty": np.zeros((0, 3), np.float32),
    }


class ViewRecorder(Recorder):
    """Also records what the page must show."""

    def expect(self, **expected: Any) -> None:
        self.exchanges[-1]["expected"] = expected


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ViewRecorder]:
    root = begin(tmp_path / "mlp")
    for step in range(4):
        save(root, step, values(step), mode=2 if step == 3 else 1)
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)  # `news` polls
    monkeypatch.setattr(request_handler, "HEARTBEAT", 1e9)
    monkeypatch.setattr(differences, "PART_SECONDS", 1e9)  # an answer in one part
    finished = begin(tmp_path / "other")
    save(finished, 0, values(0, 2.0), mode=1)
    end(finished)
    trials = [smdwidgets.create_trial(root), smdwidgets.create_trial(finished)]
    for trial in trials:
        trial.maybe_refresh()
    widget = smdwidgets.TensorInspector(trials, tensor="w")
    yield ViewRecorder(widget)
    widget.close()


def largest(steps: range | list[int], scale: float = 1.0) -> dict[str, float | None]:
    """Return the maximum of `w` at each step; None for NaN."""
    found = {step: float(values(step, scale)["w"].max()) for step in steps}
    return {str(step): None if np.isnan(value) else value for step, value in found.items()}


def test_view(recorder: ViewRecorder, tmp_path: Path) -> None:
    root = tmp_path / "mlp"
    say = recorder.exchange
    say("hello", protocol=1, again=False)
    recorder.expect(steps={"0": 4, "1": 1}, status={"0": "running", "1": "ended"})
    say("frames", **MAIN, tensor="w", near=-1, want=WANT)
    recorder.expect(maxima=largest(range(4)), form="number")
    say("frames", **MAIN, tensor="w", near=1, after=3, want=WANT)
    say("frames", **{**MAIN, "run": 1, "role": "compare"}, tensor="w", near=0, want=OWN)
    for name, form in (("text", "text"), ("z", "complex"), ("empty", "number")):
        say("frames", **MAIN, tensor=name, near=-1, want=WANT)
        recorder.expect(tensor=name, form=form)
    say("tile", **SLICE, pool="mean", rows=[0, 3], cols=[1, 4], size=[3, 3])
    recorder.expect(tile=[float(value) for value in values(2)["w"][:, 1:].ravel()])
    say("values", **SLICE, rows=[1, 3], cols=[0, 2])
    recorder.expect(cells=[[str(value) for value in row] for row in values(2)["w"][1:3, :2]])
    say("values", **{**SLICE, "tensor": "text"}, rows=[0, 1], cols=[0, 2])
    recorder.expect(cells=[["<b>a</b>", "b"]])
    a, b = ({"run": 0, "tensor": "w", "worker": "", "step": step} for step in (2, 1))
    want = {"bins": 8, "changed": 4, "image": {"axes": [0, 1], "fixed": [0, 0], "cells": 64}}
    say("diff", a=a, b=b, want=want)
    recorder.expect(difference=(values(2)["w"].astype(float) - values(1)["w"]).ravel().tolist())
    say("diff", a=a, b={**b, "tensor": "z"}, want=want)
    recorder.expect(error="SMDebugValueError")
    say("bisect", a=0, b=1)
    said = "First difference at step 0: 'w'[2, 3] = 0.75 and 1.5; 11 of 12 elements differ"
    recorder.expect(parting={"step": 0, "tensor": "w", "text": said})
    say("bisect", a=1, b=1)
    recorder.expect(parting={"step": None, "tensor": "", "text": "No difference"})
    say("life", run=0, tensor="w", worker="", near=1, cells=[[0, 0], [2, 3]])
    recorder.expect(life={str(step): [float(values(step)["w"][at]) for at in ((0, 0), (2, 3))] for step in (0, 1, 2)})
    say("series", lines=[{"tensor": "loss", "stat": "value", **LINE}, {"tensor": "w", "stat": "max", **LINE}])
    recorder.expect(series={"loss value": [1.0, 0.5, 0.25, 0.125]})
    say("values", **{**SLICE, "tensor": "missing"}, rows=[0, 1], cols=[0, 1])
    recorder.expect(error="TensorUnavailable")
    say("tile", **{**SLICE, "tensor": "missing"}, pool="mean", rows=[0, 1], cols=[0, 1], size=[1, 1])
    recorder.expect(error="TensorUnavailable")
    say("firing", rule="0/None", step=1)
    recorder.expect(error="SMDebugError")
    say("frames", **MAIN, tensor="w", near=3, after=3, want=WANT)  # the kernel pushes later steps of it
    save(root, 4, values(4), mode=1)
    save_incident(root, 3, "NaN in 'w'", range(2, 5))
    recorder.news()
    recorder.expect(
        steps={"0": 5, "1": 1},
        maxima=largest(range(5)),
        series={"loss value": [1.0, 0.5, 0.25, 0.125, 0.0625]},
        incidents=(incident := ["Incident at step 3: NaN in 'w'; whole tensors of steps 2 to 4"]),
    )
    end(root)
    recorder.news()
    recorder.expect(status={"0": "ended", "1": "ended"}, incidents=incident)
    shutil.rmtree(root)
    recorder.news()
    recorder.expect(status={"0": "gone", "1": "ended"})
    compare("view", recorder.exchanges)
