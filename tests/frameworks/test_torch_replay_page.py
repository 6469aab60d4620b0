"""From a training in a notebook's cell to the answer of one press on Replay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import smdwidgets
from python.widgets.talk import Page
from smdwidgets.hooks.core.process import open_hooks
from smdwidgets.pictures import unpack
from smdwidgets.widgets import request_handler

ROW = 413

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
import smdwidgets.pytorch as smd


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, padding):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[-1] ** 0.5
        scores = scores.masked_fill(padding[:, None, :], -torch.inf)
        return scores.softmax(-1) @ self.value(x)


class Classifier(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed, self.attend, self.head = nn.Embedding(40, width), Attention(width), nn.Linear(width, 2)

    def forward(self, tokens):
        padding = tokens == 0
        x = self.embed(tokens)
        x = (x + self.attend(x, padding)).masked_fill(padding[..., None], 0)
        return self.head(x.sum(1) / (~padding).sum(1, keepdim=True).clamp(min=1))
"""
CAUSE = 1 + MODEL.strip().splitlines().index("        return scores.softmax(-1) @ self.value(x)")
TRAINING = """
torch.manual_seed(0)
tokens = torch.randint(1, 40, (480, 8))
labels = (tokens == 7).any(1).long()
tokens[ROW] = 0
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
hook = smd.record(model, path, replay=True)
for x, y in DataLoader(TensorDataset(tokens, labels), 16, shuffle=True):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
hook.close()
"""


@pytest.fixture
def shell() -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()
    torch.set_num_threads(threads)
    for hook in open_hooks():
        hook.close()


def ended(widget: Any) -> dict[str, Any]:
    for thread in threading.enumerate():
        if thread.name == "smdwidgets-replay":
            thread.join()
    head, _ = unpack(widget.live_replay.packets()[0])
    return dict(head)


def test_one_press_names_line_and_row_and_shows_the_run_without_it(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)
    shell.user_ns.update(path=str(tmp_path / "run"), ROW=ROW)
    for cell in (MODEL, TRAINING):
        shell.run_cell(cell, store_history=True).raise_error()
    model = shell.user_ns["model"]
    live = [one.clone() for one in model.state_dict().values()]
    widget = smdwidgets.explore(tmp_path / "run")
    page = Page(widget)
    try:
        assert widget.live_diagnosis is not None
        widget.live_diagnosis.complete()
        head, _ = unpack(widget.live_diagnosis.packets()[0])
        offer = next(one["replay"] for one in head["findings"] if "replay" in one)
        assert offer["why_not"] == ""
        assert str(ROW) in widget.trial.incidents()[0].row_names
        page.ask("replay", do="start", run=0, step=offer["step"])
        answer = ended(widget)
        assert (answer["state"], answer["message"]) == ("done", "")
        explained = answer["explanation"]
        assert (explained["kind"], explained["rows"], explained["of_data_set"]) == ("operator", [str(ROW)], True)
        assert "aten._softmax returned NaN" in explained["text"]
        assert explained["place"] == f"Cell In[1] line {CAUSE}"
        assert {"line": CAUSE, "text": "return scores.softmax(-1) @ self.value(x)"} in explained["source"]
        assert explained["verified"].startswith("bit-equal, ")
        without = answer["changes"][0]
        assert (without["label"], without["outcome"]["heals"]) == (f"without row {ROW}", True)
        recorded, changed = without["outcome"]["recorded"]["values"], without["outcome"]["changed"]["values"]
        assert None in recorded
        assert None not in changed

        page.ask("replay", do="try", run=0, step=offer["step"], change="clip")
        tried = {one["id"]: one["outcome"]["heals"] for one in ended(widget)["changes"] if "outcome" in one}
        assert tried["clip"] is False
        for one, was in zip(model.state_dict().values(), live, strict=True):
            assert torch.equal(one.nan_to_num(), was.nan_to_num())
        assert len(widget.trial.incidents()) == 1
    finally:
        widget.close()
