"""A widget whose run is trained again into the same directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import smdwidgets
from python.widgets.talk import Page
from python.widgets.test_widgets import WANT
from smdwidgets.numpy import Hook
from smdwidgets.rules import Rule


class Large(Rule):
    """Fires at values above 100."""

    def invoke_at_step(self, step: int) -> bool:
        return bool(self.base_trial.tensor("w").value(step).max() > 100)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_that_is_trained_again_replaces_what_the_page_shows(tmp_path: Path) -> None:
    root = tmp_path / "mlp"

    def train(values: list[float], overwrite: bool) -> None:
        with Hook(root, overwrite=overwrite, save_all=True) as hook:
            for value in values:
                hook.save_tensor("w", np.full((4, 4), value, np.float32))
                hook.step()

    train([200.0] * 12, overwrite=False)
    widget = smdwidgets.explore(root, rules=["ExplodingTensor", Large])
    page = Page(widget)
    page.ask("hello", protocol=1, again=False)
    assert widget.rules.wait(30)
    assert widget.rules.status["Large"] == "IssuesFound"
    assert set(page.frames("w", want=WANT)) == set(range(12))
    until(lambda: widget.trial.loaded_all_steps)
    page.updates.clear()
    train([1.0] * 5, overwrite=True)

    def shown() -> tuple[set[int], str | None]:
        steps: set[int] = set()
        status = None
        for head, arrays in list(page.updates):
            if head["kind"] == "catalog" and head["restarted_at"]:
                steps = (set() if not head["append"] else steps) | set(arrays["step"].astype(int).tolist())
                status = head["status"]
        return steps, status

    until(lambda: shown() == (set(range(5)), "ended"))
    until(lambda: widget.rules["Large"].status == "NoIssuesFound")
    until(
        lambda: any(
            rule["name"] == "Large" and rule["status"] == "NoIssuesFound" and rule["done"] == 5
            for head, _ in page.updates
            if head["kind"] == "rules"
            for rule in head["rules"]
        )
    )
    frames = page.frames("w", want=WANT)
    assert {step: frame["stats"][0] for step, frame in frames.items()} == dict.fromkeys(range(5), 1.0)
    assert widget.value()[0, 0] == 1.0
    widget.close()
