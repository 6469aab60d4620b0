"""Commands to the rules of a widget: run, pause, stop, rerun, set, add and remove."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import Page, begin, end, save
from smdwidgets.rules import Rule
from smdwidgets.widgets.rule_controller import RuleController


class Waiting(Rule):
    """Waits at every step until its gate is open."""

    gates: dict[str, threading.Event] = {}

    def __init__(self, base_trial: Any, gate: str = "a") -> None:
        super().__init__(base_trial)
        self.gate = gate

    def invoke_at_step(self, step: int) -> bool:
        assert self.gates[self.gate].wait(60)
        return False


class Slow(Rule):
    """Takes a while to create."""

    def __init__(self, base_trial: Any, gate: str = "slow") -> None:
        super().__init__(base_trial)
        assert Waiting.gates[gate].wait(60)

    def invoke_at_step(self, step: int) -> bool:
        return False


@pytest.fixture(autouse=True)
def gates() -> Iterator[dict[str, threading.Event]]:
    Waiting.gates = {name: threading.Event() for name in ("a", "b", "slow")}
    yield Waiting.gates
    for gate in Waiting.gates.values():
        gate.set()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    root = begin(tmp_path / "mlp")
    for step in range(20):
        save(root, step, {"loss": np.float32(1 / (step + 1))})
    return end(root)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def shown(page: Page) -> dict[str, dict[str, Any]]:
    """Return the rules that a newly opened page shows, by id."""
    _, packets = page.ask("hello", protocol=1, again=True)
    return {rule["id"]: rule for head, _ in packets if head["kind"] == "rules" for rule in head["rules"]}


@pytest.fixture
def panel(run: Path) -> Iterator[tuple[Any, Page]]:
    trial = smdwidgets.create_trial(run)
    widget = smdwidgets.RulePanel(trial, [Waiting(trial, "a"), Waiting(trial, "b")])
    yield widget, Page(widget)
    widget.close()


def test_stop_and_pause_act_on_one_rule(panel: tuple[Any, Page], gates: dict[str, threading.Event]) -> None:
    _, page = panel
    assert page.ask("rule", do="stop", rule="0/Waiting")[0]["kind"] == "answer"
    for gate in gates.values():
        gate.set()
    until(lambda: shown(page)["0/Waiting-2"]["status"] == "NoIssuesFound")
    rules = shown(page)
    assert (rules["0/Waiting"]["status"], rules["0/Waiting"]["active"]) == ("Stopped", False)
    assert rules["0/Waiting"]["done"] <= 1
    assert rules["0/Waiting-2"]["done"] == 20


def test_a_paused_rule_is_shown_as_paused_and_resumes(
    panel: tuple[Any, Page], gates: dict[str, threading.Event]
) -> None:
    _, page = panel
    page.ask("rule", do="pause", rule="0/Waiting")
    rules = shown(page)
    assert rules["0/Waiting"]["paused"]
    assert not rules["0/Waiting-2"]["paused"]
    for gate in gates.values():
        gate.set()
    until(lambda: shown(page)["0/Waiting-2"]["status"] == "NoIssuesFound")
    assert shown(page)["0/Waiting"]["status"] == "InProgress"
    page.ask("rule", do="start", rule="0/Waiting")
    until(lambda: shown(page)["0/Waiting"]["status"] == "NoIssuesFound")
    rules = shown(page)
    assert rules["0/Waiting"]["done"] == 20
    assert not rules["0/Waiting"]["paused"]


def test_a_runner_paused_in_python_resumes_from_the_panel(
    panel: tuple[Any, Page], gates: dict[str, threading.Event]
) -> None:
    widget, page = panel
    widget.rules.pause()
    assert all(rule["paused"] for rule in shown(page).values())
    for gate in gates.values():
        gate.set()
    page.ask("rule", do="start", rule="0/Waiting-2")
    until(lambda: shown(page)["0/Waiting-2"]["status"] == "NoIssuesFound")
    assert shown(page)["0/Waiting"]["paused"]


def test_pausing_is_pushed_to_every_page(panel: tuple[Any, Page]) -> None:
    widget, page = panel
    page.ask("hello", protocol=1, again=False)
    page.updates.clear()
    widget.rules.pause()

    def all_are_paused() -> bool:
        latest = {rule["id"]: rule for head, _ in page.updates if head["kind"] == "rules" for rule in head["rules"]}
        return set(latest) == {"0/Waiting", "0/Waiting-2"} and all(rule["paused"] for rule in latest.values())

    until(all_are_paused)


def test_a_rule_removed_in_python_is_removed_from_the_page(panel: tuple[Any, Page]) -> None:
    widget, page = panel
    page.ask("hello", protocol=1, again=False)
    page.updates.clear()
    widget.rules.remove("Waiting")
    until(
        lambda: any(
            not head["append"] and [rule["id"] for rule in head["rules"]] == ["0/Waiting-2"]
            for head, _ in page.updates
            if head["kind"] == "rules"
        )
    )


def test_commands_are_executed_in_order_and_none_is_dropped(
    panel: tuple[Any, Page], gates: dict[str, threading.Event]
) -> None:
    """A page sends commands without waiting.

    It cancels requests that a newer one replaces.
    """
    _, page = panel
    first = page.start("rule", do="add", **{"class": "Slow"}, params={}, run=0)
    rest = [
        page.start("rule", do="pause", rule="0/Slow"),
        page.start("rule", do="start", rule="0/Slow"),
        page.start("rule", do="stop", rule="0/Slow"),
        page.start("rule", do="remove", rule="0/Waiting-2"),
    ]
    for number in [first, *rest]:
        page.cancel(number)
    gates["slow"].set()
    kinds = [page.wait(number)[0] for number in [first, *rest]]
    assert [message["kind"] for message in kinds] == ["answer"] * 5, kinds
    gates["a"].set()
    gates["b"].set()
    until(lambda: {id: rule["status"] for id, rule in shown(page).items()}.get("0/Slow") == "Stopped")
    assert sorted(shown(page)) == ["0/Slow", "0/Waiting"]


def test_a_command_does_not_wait_for_requests(panel: tuple[Any, Page], monkeypatch: pytest.MonkeyPatch) -> None:
    widget, page = panel
    busy = threading.Event()
    monkeypatch.setitem(widget.request_handler._handlers, "classes", lambda request, reply: busy.wait(60))
    for _ in range(8):  # more than there are threads
        page.start("classes")
    try:
        assert page.ask("rule", do="pause", rule="0/Waiting")[0]["kind"] == "answer"
    finally:
        busy.set()


def test_a_command_that_is_sent_again_is_executed_once(run: Path) -> None:
    widget = smdwidgets.RulePanel(run)
    page = Page(widget)
    for _ in range(3):
        page.start("rule", number="page-1", do="add", **{"class": "LossNotDecreasing"}, params={}, run=0)
    assert [page.wait("page-1")[0]["kind"] for _ in range(3)] == ["answer"] * 3
    assert sorted(shown(page)) == ["0/LossNotDecreasing"]
    for _ in range(2):
        page.start("rule", number="page-2", do="add", **{"class": "LosNotDecreasing"}, params={}, run=0)
    assert [page.wait("page-2")[0]["error"]["type"] for _ in range(2)] == ["UnknownRule"] * 2
    widget.close()


def test_two_clicks_at_once_make_one_runner(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class SlowRunner(smdwidgets.rules.RuleRunner):
        def __init__(self, *args: Any, **options: Any) -> None:
            time.sleep(0.05)
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(smdwidgets.rules, "RuleRunner", SlowRunner)
    controller = RuleController([smdwidgets.create_trial(run)])
    add = {"do": "add", "class": "LossNotDecreasing", "run": 0}
    threads = [threading.Thread(target=controller.execute, args=(add,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [each.name for each in controller.runners[0]] == [
        "LossNotDecreasing",
        "LossNotDecreasing-2",
        "LossNotDecreasing-3",
        "LossNotDecreasing-4",
    ]


@pytest.mark.parametrize("number", [-1, 1, 99, "x", None])
def test_a_run_that_does_not_exist_is_an_error(run: Path, number: object) -> None:
    widget = smdwidgets.RulePanel(run)
    page = Page(widget)
    answer, _ = page.ask("rule", do="add", **{"class": "LossNotDecreasing"}, params={}, run=number)
    assert answer["kind"] == "error"
    assert "run" in answer["error"]["message"]
    assert answer["error"]["type"] != "IndexError"
    assert shown(page) == {}
    widget.close()


@pytest.mark.parametrize("rule", ["AllZero", "LossNotDecreasing", "SimilarAcrossRuns"])
def test_a_rule_without_its_parameters_is_shown(run: Path, rule: str) -> None:
    given = {"use_losses_collection": False} if rule == "LossNotDecreasing" else {}
    widget = smdwidgets.explore(run)
    page = Page(widget)
    try:
        assert page.ask("rule", **{"do": "add", "class": rule, "run": 0, "params": given})[0]["kind"] == "answer"
        described = shown(page)[f"0/{rule}"]
        assert (described["status"], described["active"], described["done"]) == ("NoIssuesFound", False, 0)
        assert described["message"].startswith("needs ")
    finally:
        widget.close()


def test_a_rule_without_its_parameter_is_evaluated_when_the_parameter_is_set(run: Path) -> None:
    widget = smdwidgets.explore(run, rules=["AllZero"])
    page = Page(widget)
    try:
        assert repr(widget).endswith("rule AllZero: Not judged")
        assert shown(page)["0/AllZero"]["message"] == "needs parameter collection_names or tensor_regex"
        page.ask("rule", do="set", rule="0/AllZero", params={"threshold": 50.0})  # another parameter
        assert shown(page)["0/AllZero"]["message"] == "needs parameter collection_names or tensor_regex"
        page.ask("rule", do="set", rule="0/AllZero", params={"tensor_regex": "loss"})
        until(lambda: shown(page)["0/AllZero"]["done"] == 20)
        answer = page.ask("rule", do="set", rule="0/AllZero", params={"tensor_regex": ""})[0]
        assert "cannot run: needs parameter" in answer["error"]["message"]
    finally:
        widget.close()


def test_rules_added_from_the_panel_end_with_the_widget(run: Path, gates: dict[str, threading.Event]) -> None:
    widget = smdwidgets.explore(run, rules=None)
    page = Page(widget)
    page.ask("rule", do="add", **{"class": "Waiting"}, params={}, run=0)
    runner = widget.rules
    assert [each.name for each in runner] == ["Waiting"]
    widget.close()
    gates["a"].set()
    assert runner.wait(60)
    assert runner.status == {"Waiting": "Stopped"}


def test_an_export_does_not_hide_outcomes_from_the_page(
    panel: tuple[Any, Page], gates: dict[str, threading.Event], tmp_path: Path
) -> None:
    widget, page = panel
    page.ask("hello", protocol=1, again=False)
    page.updates.clear()
    widget.request_handler._closed.set()  # nothing is pushed meanwhile
    for gate in gates.values():
        gate.set()
    assert widget.rules.wait(60)
    widget.to_html(tmp_path / "page.html")
    widget.request_handler._closed.clear()
    widget.request_handler.poll()
    steps = [arrays["0.step"].tolist() for head, arrays in page.updates if head["kind"] == "rules"]
    assert sorted(step for each in steps for step in each) == list(range(20))
