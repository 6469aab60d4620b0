"""A page has the steps of an incident executed again.

The steps are those of a stand-in, which needs no PyTorch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import Page
from python.widgets.transcripts import Recorder, compare
from smdwidgets.exceptions import SMDebugError
from smdwidgets.incident import Incident
from smdwidgets.numpy import Hook
from smdwidgets.pictures import unpack
from smdwidgets.replay.explanation import Explanation, Operand
from smdwidgets.replay.outcomes import Change, Course, WhatIf
from smdwidgets.replay.places import Place
from smdwidgets.replay.protocol import StepObserver, StepResult
from smdwidgets.replay.ranking import RowRanking, RowScore
from smdwidgets.replay.watched import Watch, Watched
from smdwidgets.trials import Trial
from smdwidgets.trials.incidents import Incidents
from smdwidgets.widgets import kernel_gate, live_replay, request_handler
from smdwidgets.widgets.live_replay import LiveReplay
from smdwidgets.widgets.page_content import page_content

STEP = 12
NAN = float("nan")
SOURCE = "def share(x):\n    whole = x.sum(1, keepdim=True)\n    return x / whole\n"


class Steps:
    """Three steps that can be executed, of which observers see each."""

    steps = range(10, 13)
    modules: tuple[Any, ...] = ()
    optimizers: tuple[Any, ...] = ()

    def __init__(self, during: Callable[[int], None] = lambda step: None) -> None:
        self._during = during
        self.executed: list[int] = []

    def run(self, observers: Any = (), *, last: int | None = None) -> list[StepResult]:
        results = []
        for step in self.steps:
            for one in observers:
                one.begin_step(step)
            self._during(step)
            self.executed.append(step)
            for one in observers:
                one.end_step(step)
            results.append(StepResult(step, (0.5,), True))
        return results


class StandIn:
    """What an incident offers, over `Steps`."""

    steps, expected, why_not, loop_text = Steps.steps, 3, "", "for x in loader: ..."
    #: The file of the line that it names.
    file = ""

    def __init__(self, execution: Any = None, rows: tuple[int, ...] = (1,), why_not_here: str = "") -> None:
        self.execution = execution or Steps()
        self.rows, self.why_not_here, self.is_training = rows, why_not_here, False

    def watched(self, watch: Watch) -> StandIn:
        return StandIn(Watched(self.execution, watch), self.rows)

    def row_ids(self, step: int) -> list[int]:
        return [302, 88, 17, 5]

    def explain(self, step: int) -> Explanation:
        self.execution.run()
        if not self.rows:
            return Explanation("nothing", step, verified="bit-equal, 3 of 3 steps")
        place = Place.of(self.file, 3)
        zero = Operand("input 2", (4, 1), "float32", 0.0, 4.5, element=0.0)
        identities = tuple(self.row_ids(step)[row] for row in self.rows)
        return Explanation(
            *("operator", step, "NaN", "aten.div", "forward", "", place, place, (zero,), self.rows),
            verified="bit-equal, 3 of 3 steps",
            dataset_rows=identities,
        )

    def rank_rows(self, step: int) -> RowRanking:
        self.execution.run()
        scores = [RowScore(3, NAN, NAN, 1.0, float("inf"), 5), RowScore(0, 0.5, 0.1, 1.0, 0.2, 302)]
        return RowRanking(tuple(scores), "execution")

    def what_if(self, step: int, recorded: Course | None = None, **change: Any) -> WhatIf:
        self.execution.run()
        recorded = recorded or Course((10, 11, 12), (0.5, 0.5, NAN), (1.0, 1.0, NAN), ((12, "loss is not finite"),))
        heals = "drop_rows" in change
        changed = Course((10, 11, 12), (0.5, 0.5, 0.4 if heals else NAN), (1.0, 1.0, 1.0), recorded.problems[heals:])
        return WhatIf(
            Change(**{key: tuple(v) if key == "drop_rows" else v for key, v in change.items()}), step, recorded, changed
        )


def write(path: Path) -> Path:
    with Hook(path) as hook:
        for step in range(24):
            value = np.ones((8, 8), np.float32)
            value[0, 0] = np.nan if step >= STEP else 1
            hook.save_tensor("w", value, "weights")
            hook.step()
    return path


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Recorder]]:
    """Return a function that opens an explorer whose incident has a stand-in."""
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)  # the test polls
    monkeypatch.setattr(request_handler, "HEARTBEAT", 1e9)
    monkeypatch.setattr(live_replay, "runs_cells", lambda: True)
    monkeypatch.setattr(live_replay, "no_cells", lambda interrupted: nullcontext())
    incidents = Trial.incidents
    (tmp_path / "model.py").write_text(SOURCE)
    monkeypatch.setattr(StandIn, "file", str(tmp_path / "model.py"))

    def open_explorer(stand_in: StandIn, **recorded: Any) -> tuple[Any, Recorder]:
        def with_stand_in(trial: Trial) -> Incidents:
            about = {"keyframe": 10, "steps": [10, 12], "bytes": 100, "why_not": None, **recorded}
            found = incidents(trial)
            return Incidents(
                replace(one, rows=(302, 88, *range(20)), recorded=about, opener=lambda: stand_in) for one in found
            )

        monkeypatch.setattr(Trial, "incidents", with_stand_in)
        widget = smdwidgets.explore(write(tmp_path / "run"))
        assert widget.live_diagnosis is not None
        widget.live_diagnosis.complete()
        return widget, Recorder(widget)

    return open_explorer


def offer(widget: Any) -> dict[str, Any]:
    """Return what the first finding with an incident offers."""
    (head, _) = unpack(widget.live_diagnosis.packets()[0])
    return next(one["replay"] for one in [*head["findings"], *head["notes"]] if "replay" in one)


def ended(widget: Any) -> dict[str, Any]:
    """Wait for the end of an answer, and return its packet."""
    for thread in threading.enumerate():
        if thread.name == "smdwidgets-replay":
            thread.join()
    (packet,) = widget.live_replay.packets()
    head, _ = unpack(packet)
    return dict(head)


def refused(page: Page, **command: Any) -> str:
    message, _ = page.ask("replay", run=0, step=STEP, **command)
    assert message["kind"] == "error", message
    return str(message["error"]["message"])


def test_replay_names_line_and_row_and_tries_without_it(opened: Any) -> None:
    steps = Steps()
    widget, page = opened(StandIn(steps))
    try:
        assert offer(widget)["rows"] == ["302", "88", "0", "1", "2", "3", "4", "5"]
        assert offer(widget) | {"rows": []} == {"step": STEP, "rows": [], "more": 14, "why_not": ""}
        page.exchange("hello", protocol=1, again=False)
        message, _ = page.ask("replay", do="start", run=0, step=STEP)
        assert message["kind"] == "answer"
        head = ended(widget)
        assert (head["state"], head["message"], head["doing"]) == ("done", "", "")
        explanation = head["explanation"]
        assert (explanation["kind"], explanation["rows"], explanation["of_data_set"]) == ("operator", ["88"], True)
        assert explanation["place"] == "model.py:3"
        lines = [{"line": 1 + number, "text": text} for number, text in enumerate(SOURCE.splitlines())]
        assert explanation["source"] == lines
        assert explanation["details"] == ["input 2: float32 (4, 1) from 0 to 4.5; 0 at this element"]
        assert explanation["verified"] == "bit-equal, 3 of 3 steps"
        first, *others = head["changes"]
        assert (first["id"], first["label"], first["outcome"]["heals"]) == ("drop 1", "without row 88", True)
        assert first["outcome"]["recorded"] == {"steps": [10.0, 11.0, 12.0], "values": [0.5, 0.5, None]}
        assert first["outcome"]["changed"]["values"] == [0.5, 0.5, 0.4]
        assert [one["id"] for one in others] == ["lr", "clip", "skip"]
        assert not any("outcome" in one for one in others)

        page.ask("replay", do="try", run=0, step=STEP, change="clip")
        head = ended(widget)
        tried = {one["id"]: one["outcome"]["heals"] for one in head["changes"] if "outcome" in one}
        assert tried == {"drop 1": True, "clip": False}
        assert (head["done"], head["total"]) == (3, 3)
        assert "unknown change none" in refused(page, do="try", change="none")
        assert len(steps.executed) == 9
    finally:
        widget.close()


def test_rows_are_ranked_where_no_operator_names_one(opened: Any) -> None:
    widget, page = opened(StandIn(rows=()))
    try:
        page.ask("replay", do="start", run=0, step=STEP)
        head = ended(widget)
        assert head["explanation"]["kind"] == "nothing"
        assert head["rows"][0] == "row 3 (data set: 5): loss nan, gradient norm nan, input norm 1"
        outcomes = {one["label"]: "outcome" in one for one in head["changes"]}
        assert outcomes == {
            "without row 5": True,  # it is not finite
            "without row 302": False,
            "lr × 0.1": False,
            "clip 1": False,
            "no update": False,
        }
    finally:
        widget.close()


def test_stop_ends_it_between_two_steps_and_it_can_be_started_again(opened: Any) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def during(step: int) -> None:
        reached.set()
        go_on.wait()

    steps = Steps(during)
    widget, page = opened(StandIn(steps))
    try:
        page.ask("replay", do="start", run=0, step=STEP)
        reached.wait()
        assert "other steps are being executed" in refused(page, do="start")
        (packet,) = widget.live_replay.packets()
        running, _ = unpack(packet)
        assert (running["state"], running["doing"], running["total"]) == ("running", "looking for the operator", 3)
        message, _ = page.ask("replay", do="stop", run=0, step=STEP)
        assert message["kind"] == "answer"
        go_on.set()
        head = ended(widget)
        assert (head["state"], head["explanation"], steps.executed) == ("stopped", None, [10])
        page.ask("replay", do="start", run=0, step=STEP)
        assert ended(widget)["state"] == "done"
    finally:
        go_on.set()
        widget.close()


def test_closed_widget_stops_it(opened: Any) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def during(step: int) -> None:
        reached.set()
        go_on.wait()

    steps = Steps(during)
    widget, page = opened(StandIn(steps))
    page.ask("replay", do="start", run=0, step=STEP)
    reached.wait()
    widget.close()
    go_on.set()
    assert ended(widget)["state"] == "stopped"
    assert steps.executed == [10]


def test_error_of_a_step_is_shown(opened: Any) -> None:
    def during(step: int) -> None:
        raise ZeroDivisionError(f"at step {step}")

    widget, page = opened(StandIn(Steps(during)))
    try:
        page.ask("replay", do="start", run=0, step=STEP)
        head = ended(widget)
        assert (head["state"], head["message"]) == ("failed", "ZeroDivisionError: at step 10")
    finally:
        widget.close()


@pytest.mark.parametrize(
    ("recorded", "here", "reason"),
    [
        ({"why_not": "no keyframe: the budget held none"}, "", "no keyframe: the budget held none"),
        ({}, "this process did not train", "this process did not train"),
    ],
)
def test_reason_is_given_in_place_of_a_replay(opened: Any, recorded: Any, here: str, reason: str) -> None:
    widget, page = opened(StandIn(why_not_here=here), **recorded)
    try:
        assert offer(widget)["why_not"] == reason
        assert offer(widget)["rows"][:2] == ["302", "88"]
        assert refused(page, do="start") == reason
        assert widget.live_replay.packets() == []
    finally:
        widget.close()


def test_incident_without_rows_and_recording_offers_nothing(tmp_path: Path) -> None:
    widget = smdwidgets.explore(write(tmp_path / "run"))
    try:
        widget.live_diagnosis.complete()
        (head, _) = unpack(widget.live_diagnosis.packets()[0])
        assert head["findings"]
        assert not any("replay" in one for one in [*head["findings"], *head["notes"]])
    finally:
        widget.close()


def test_other_commands_are_refused(opened: Any) -> None:
    widget, page = opened(StandIn())
    try:
        message, _ = page.ask("replay", do="start", run=0, step=STEP + 1)
        assert message["error"]["message"] == f"the run has no incident at step {STEP + 1}"
        message, _ = page.ask("replay", do="start", run=7, step=STEP)
        assert "out of range" in message["error"]["message"]
        message, _ = page.ask("replay", do="run", run=0, step=STEP)
        assert "do must be" in message["error"]["message"]
    finally:
        widget.close()


def test_training_in_another_thread_is_not_disturbed(opened: Any) -> None:
    stand_in = StandIn(steps := Steps())
    stand_in.is_training = True
    widget, page = opened(stand_in)
    try:
        page.ask("replay", do="start", run=0, step=STEP)
        assert ended(widget)["message"] == "the training is running in another thread; wait for its end"
        assert steps.executed == []
    finally:
        widget.close()


def test_exported_page_has_the_answer(opened: Any) -> None:
    widget, page = opened(StandIn())
    try:
        page.ask("replay", do="start", run=0, step=STEP)
        head = ended(widget)
        packets = [unpack(packet)[0] for packet in page_content(widget, None, 1_000_000).packets]
        assert [one for one in packets if one["kind"] == "replay"] == [head]
    finally:
        widget.close()


def test_replay_transcript(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversation that the tests of the front end replay."""
    monkeypatch.setattr(live_replay.time, "monotonic", lambda: 0.0)
    widget, page = opened(StandIn())
    try:
        page.exchange("hello", protocol=1, again=False)
        threads = LiveReplay._run
        monkeypatch.setattr(LiveReplay, "_run", lambda self, answer, work: None)  # `news` follows
        page.exchange("replay", do="start", run=0, step=STEP)
        (answer,) = widget.live_replay._answers.values()
        threads(widget.live_replay, answer, lambda: widget.live_replay._answer(answer))
        page.news()
        page.exchange("replay", do="try", run=0, step=STEP, change="none")
    finally:
        widget.close()
    compare("replay", page.exchanges)


# ------------------------------------------------------------------------------------------------------------- the gate


@pytest.fixture
def shell() -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def test_cells_wait_until_the_steps_have_ended(shell: Any) -> None:
    order: list[str] = []
    shell.user_ns["order"] = order
    with kernel_gate.no_cells(lambda: None):
        cell = threading.Thread(target=shell.run_cell, args=("order.append('cell')",))
        waiting = threading.Event()
        shell.events.register("pre_execute", waiting.set)  # a callback after that of the gate
        cell.start()
        order.append("steps")
        assert not waiting.is_set()
    cell.join()
    assert order == ["steps", "cell"]
    assert waiting.is_set()


def test_steps_are_not_executed_beside_a_running_cell(shell: Any) -> None:
    running, go_on = threading.Event(), threading.Event()
    shell.user_ns.update(running=running, go_on=go_on)
    cell = threading.Thread(target=shell.run_cell, args=("running.set(); go_on.wait()",))
    cell.start()
    running.wait()
    with pytest.raises(SMDebugError, match="a cell is running"), kernel_gate.no_cells(lambda: None):
        pass
    go_on.set()
    cell.join()
    with (
        kernel_gate.no_cells(lambda: None),
        pytest.raises(SMDebugError, match="other steps"),
        kernel_gate.no_cells(lambda: None),
    ):
        pass


def test_process_without_cells_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_gate, "_shell", lambda: None)
    with pytest.raises(SMDebugError, match=r"call incident\.explain"), kernel_gate.no_cells(lambda: None):
        pass


def test_watched_steps_have_the_observers_of_the_caller() -> None:
    seen: list[int] = []

    class Sees(StepObserver):
        def begin_step(self, step: int) -> None:
            seen.append(step)

    counted: list[int] = []
    watched = Watched(Steps(), Watch(lambda: counted.append(1)))
    assert [one.step for one in watched.run([Sees()])] == [10, 11, 12] == seen
    assert (len(counted), watched.steps, list(watched.modules), list(watched.optimizers)) == (3, range(10, 13), [], [])
    assert Incident("worker_0", 3, ("NaN in 'w'",), rows=((0, 7),)).row_names == ["7 of worker 0"]
