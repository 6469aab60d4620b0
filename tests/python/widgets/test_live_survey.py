"""The survey of an explorer's runs, as its page receives it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.survey import runs
from python.widgets.talk import Packet, Page, begin, end, save
from smdwidgets.numpy import Hook
from smdwidgets.pictures import overview as overview_module
from smdwidgets.pictures import unpack
from smdwidgets.rules import Rule
from smdwidgets.survey import Survey
from smdwidgets.survey import survey as survey_module
from smdwidgets.survey.bins import FIRED, NAN, SAMPLED, UNREAD
from smdwidgets.trials.statistics.feed import StatisticsFeed
from smdwidgets.widgets import live_survey, request_handler
from smdwidgets.widgets.page_content import page_content

ALL = {"worker": "", "mode": "", "stat": "surprise", "tensors": [], "from": 0, "to": 1e12, "bins": 1024}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_survey, "PAUSE", 0.01)
    monkeypatch.setattr(live_survey, "SHARE", 0)
    monkeypatch.setattr(live_survey, "_PICTURES", 0.0)


@pytest.fixture
def explore() -> Iterator[Callable[..., Any]]:
    widgets = []

    def made(*arguments: Any, **options: Any) -> Any:
        widgets.append(smdwidgets.explore(*arguments, **options))
        return widgets[-1]

    yield made
    for widget in widgets:
        widget.close()


class Zero(Rule):
    """Fires where all values are 0."""

    def invoke_at_step(self, step: int) -> bool:
        is_zero = not self.base_trial.tensor("relu_1").value(step).any()
        if is_zero:
            self.blame("relu_1", step, 0.0, 0.0)
        return is_zero


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Held:
    """What a page holds of one run: bins by level, tensor and number."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, int, int, int], tuple[int, ...]] = {}
        self.edition = -1
        self.reading: dict[str, Any] = {}
        self.findings: dict[str, Any] = {}

    def add(self, packets: list[Packet], run: int = 0) -> Held:
        for head, arrays in packets:
            if head.get("run") == run and head["kind"] == "survey":
                if not head["append"]:
                    self.cells = {}
                self.edition = head["edition"]
                for row, tensor in enumerate(arrays["tensor"].tolist()):
                    for place in range(arrays["flag"].shape[1]):
                        values = (arrays[name][row, place] for name in ("shown", "lo", "hi", "flag") if name in arrays)
                        key = (
                            "poster" if "shown" in arrays else head["stat"],
                            head["level"],
                            tensor,
                            head["first"] + place,
                        )
                        self.cells[key] = tuple(map(int, values))
            elif head.get("run") == run and head["kind"] in ("reading", "findings"):
                setattr(self, head["kind"], head)
        return self

    @property
    def is_judged(self) -> bool:
        """Whether all was read and judged; findings follow the values in another packet."""
        return self.reading["state"] == "complete" and bool(self.sentence) and not self.sentence.startswith("In the ")

    @property
    def sentence(self) -> str:
        """What the run map says of the run; empty until it was judged."""
        return "".join(clause["text"] for clause in self.findings.get("sentence", []))


def test_a_page_gets_the_whole_run_and_what_stands_out(tmp_path: Path, explore: Any) -> None:
    widget = explore(runs.written(tmp_path / "run", runs.nan))
    page, held = Page(widget), Held()
    held.add(page.ask("hello", protocol=1, again=False)[1])
    assert held.reading["state"] == "reading"
    assert all(values[-1] == UNREAD for values in held.cells.values())
    assert len(held.cells) == 13 * runs.STEPS
    until(lambda: held.add(page.updates).is_judged)
    names = widget.trial.tensor_names()
    bad = names.index("layers.2.weight")
    assert {place for (_, _, tensor, place), (_, flag) in held.cells.items() if tensor == bad and flag & NAN} == set(
        range(120, 200)
    )
    assert held.sentence.startswith("`layers.2.weight` is NaN from step 120")
    first = held.findings["findings"][0]
    assert (first["kind"], first["tensors"][0], first["first"], first["last"]) == ("not_finite", bad, 120, 199)


def test_values_sent_just_before_reading_ends_reach_the_window_of_the_page(tmp_path: Path, explore: Any) -> None:
    """A page may poll between the last values and the end of reading."""
    widget = explore(runs.written(tmp_path / "run", runs.nan))
    page = Page(widget)
    page.ask("hello", protocol=1, again=False)
    widget.live_survey.complete()
    survey, _ = widget.live_survey.of(0)
    ended, survey.reading = survey.reading, replace(survey.reading, state="reading")
    until(lambda: survey.table._changed is None)
    page.ask("survey", **{**ALL, "run": 0})
    page.updates.clear()
    survey.table._changed = 0
    until(lambda: survey.table._changed is None and any("shown" in arrays for _, arrays in page.updates))
    assert not any("lo" in arrays for _, arrays in page.updates)
    survey.reading = ended
    until(lambda: any("lo" in arrays for _, arrays in page.updates))


def test_the_sentence_is_about_all_when_reading_ends_without_a_new_value(tmp_path: Path, explore: Any) -> None:
    widget = explore(runs.written(tmp_path / "run", runs.nan))
    page, held = Page(widget), Held()
    page.ask("hello", protocol=1, again=False)
    widget.live_survey.complete()
    survey, _ = widget.live_survey.of(0)
    until(lambda: survey.table._changed is None)
    ended, survey.reading = survey.reading, replace(survey.reading, state="reading", done=survey.reading.total // 2)
    survey.table._changed = 0
    until(lambda: held.add(page.updates).sentence.startswith("In the 50 % read so far"))
    survey.reading = ended
    until(lambda: held.add(page.updates).is_judged)


def test_a_second_widget_has_everything_in_its_state(tmp_path: Path, explore: Any) -> None:
    root = runs.written(tmp_path / "run", runs.nan)
    Survey(smdwidgets.create_trial(root)).update()  # fills the cache
    held = Held().add([unpack(packet) for packet in explore(root)._boot])
    assert held.reading["state"] == "complete"
    assert sum(bool(values[-1] & NAN) for values in held.cells.values()) == 80 + 79
    assert held.sentence.startswith("`layers.2.weight` is NaN from step 120")


@pytest.mark.parametrize("tensors", [[], [2, 5]])
def test_questions_are_answered_from_the_table(tmp_path: Path, explore: Any, tensors: list[int]) -> None:
    widget = explore(runs.written(tmp_path / "run", runs.dead))
    page = Page(widget)
    page.ask("hello", protocol=1, again=False)
    widget.live_survey.complete()
    wanted = {**ALL, "run": 0, "stat": "size", "tensors": tensors, "from": 40.0, "to": 103.0, "bins": 16}
    message, packets = page.ask("survey", **wanted)
    assert message["kind"] == "answer"
    details = [(head, arrays) for head, arrays in packets if "lo" in arrays]
    assert [(head["level"], head["first"], head["append"]) for head, _ in details] == [(2, 10, True)]
    arrays = details[0][1]
    assert arrays["tensor"].tolist() == (tensors or list(range(13)))
    assert arrays["n"].shape == (len(tensors) or 13, 16)
    assert (arrays["n"] == 4).all()
    # The map changes its colour: the rest of it comes, too.
    assert [head["stat"] for head, arrays in packets if "shown" in arrays] == ["size"]
    assert page.ask("survey", **{**wanted, "run": 7})[0]["kind"] == "error"
    assert page.ask("survey", **{**wanted, "tensors": [99]})[1] == []


def test_only_an_explorer_has_a_survey(tmp_path: Path) -> None:
    widget = smdwidgets.TensorInspector(runs.written(tmp_path / "run", steps=3))
    message, _ = Page(widget).ask("survey", **ALL, run=0)
    assert message["error"]["message"] == "only an explorer has a survey"
    widget.close()


def test_new_steps_are_appended(tmp_path: Path, explore: Any) -> None:
    root = begin(tmp_path / "run")
    for step in range(50):
        save(root, step, {"w": np.full(4, 1 + step % 3 / 50, np.float32)}, mode=1)
    widget = explore(root)
    first, held = Page(widget), Held()
    held.add(first.ask("hello", protocol=1, again=False)[1])
    until(lambda: held.add(first.updates).reading["done"] == 50)
    held.add(first.ask("survey", **ALL, run=0)[1])
    first.updates.clear()
    for step in range(50, 80):
        save(root, step, {"w": np.full(4, 100 if step == 70 else 1 + step % 3 / 50, np.float32)}, mode=1)
        time.sleep(0.01)
    end(root)
    until(lambda: held.add(first.updates).reading["done"] == 80 and held.findings["findings"])
    appended = [arrays["flag"].shape[1] for head, arrays in first.updates if head["kind"] == "survey"]
    assert max(appended) <= 30
    fresh = explore(root)
    fresh.live_survey.complete()
    second = Page(fresh)
    again = Held().add(second.ask("hello", protocol=1, again=False)[1])
    again.add(second.ask("survey", **ALL, run=0)[1])
    until(lambda: held.add(first.updates).findings == again.findings)
    assert held.cells == again.cells


def test_a_large_run_is_sampled_until_all_is_asked_for(
    tmp_path: Path, explore: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey_module, "LARGEST_RUN", 1000)
    monkeypatch.setattr(survey_module, "SAMPLE_BYTES", 60_000)
    widget = explore(runs.written(tmp_path / "run", runs.nan))
    page, held = Page(widget), Held()
    held.add(page.ask("hello", protocol=1, again=False)[1])
    until(lambda: held.add(page.updates).reading["state"] == "sampled")
    assert 0 < held.reading["done"] < held.reading["total"] == 13 * runs.STEPS
    assert held.reading["bytes_left"] > 0
    until(lambda: held.add(page.updates) and {flag & UNREAD for _, flag in held.cells.values()} == {0, UNREAD})
    coarse = page.ask("survey", **{**ALL, "bins": 8}, run=0)[1]
    assert any((arrays["flag"] & SAMPLED).any() for _, arrays in coarse)
    until(lambda: held.add(page.updates).sentence.startswith("In the "))
    assert page.ask("read_all", do="start", run=0)[1][0][0]["kind"] == "reading"
    until(lambda: held.add(page.updates).is_judged)
    assert held.sentence.startswith("`layers.2.weight` is NaN from step 120")
    assert not any(flag & (UNREAD | SAMPLED) for *_, flag in held.cells.values())
    whole = Survey(smdwidgets.create_trial(tmp_path / "run"))
    whole.update()
    for stat in ("size", "update"):
        mine, its = (
            each.bins(whole.names(), "", 0, stat, 0, 0, runs.STEPS)
            for each in (widget.live_survey._runs[0].survey, whole)
        )
        np.testing.assert_allclose(mine.hi, its.hi, atol=1e-4)


def test_reading_stops_when_the_widget_is_closed(tmp_path: Path, explore: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    began, gate, read = threading.Event(), threading.Event(), StatisticsFeed.read

    def slow(*arguments: Any) -> Any:
        began.set()
        assert gate.wait(60)
        return read(*arguments)

    monkeypatch.setattr(StatisticsFeed, "read", slow)
    widget = explore(runs.written(tmp_path / "run"))
    Page(widget).ask("hello", protocol=1, again=False)
    assert began.wait(60)
    widget.close()
    gate.set()
    until(lambda: not any(thread.name == "smdwidgets-survey" for thread in threading.enumerate()))
    assert widget.live_survey._runs[0].survey.reading.state == "stopped"


def test_a_run_that_is_trained_again_has_another_edition(tmp_path: Path, explore: Any) -> None:
    root = tmp_path / "run"

    def train(values: list[float], overwrite: bool) -> None:
        with Hook(root, overwrite=overwrite, save_all=True, plan=False) as hook:
            for value in values:
                hook.save_tensor("w", np.full((4, 4), value, np.float32))
                hook.step()

    train([np.nan] * 12, overwrite=False)
    widget = explore(root)
    page, held = Page(widget), Held()
    held.add(page.ask("hello", protocol=1, again=False)[1])
    until(lambda: held.add(page.updates).findings.get("findings"))
    until(lambda: widget.trial.loaded_all_steps)
    page.updates.clear()
    train([1.0] * 5, overwrite=True)
    until(lambda: held.add(page.updates).edition == 1 and held.reading["state"] == "complete")
    until(lambda: held.add(page.updates).findings["findings"] == [])
    assert {place for _, _, _, place in held.cells} == set(range(5))
    assert all(flag == 0 for *_, flag in held.cells.values())


def test_tensors_that_rules_name_are_marked(tmp_path: Path, explore: Any) -> None:
    widget = explore(runs.written(tmp_path / "run", runs.dead), rules=[Zero])
    assert widget.rules.wait(60)
    widget.live_survey.complete()
    page, held = Page(widget), Held()
    held.add(page.ask("hello", protocol=1, again=False)[1])
    fired = {(tensor, place) for (_, _, tensor, place), (_, flag) in held.cells.items() if flag & FIRED}
    relu = widget.trial.tensor_names().index("relu_1")
    steps = {event.step for event in widget.rules["Zero"].firings}
    assert fired == {(relu, step) for step in steps}
    assert steps == set(range(90, 200))
    assert [one["kind"] for one in held.findings["findings"]] == ["rule", "stands_out"]


def test_exported_pages_have_the_survey(tmp_path: Path, explore: Any) -> None:
    widget = explore(runs.written(tmp_path / "run", runs.nan))
    packets = [unpack(packet) for packet in page_content(widget, [], 20_000_000).packets]
    held = Held().add(packets)
    assert held.reading["state"] == "complete"
    assert held.sentence.startswith("`layers.2.weight` is NaN from step 120")
    stats = [head["stat"] for head, _ in packets if head["kind"] == "survey"]
    assert sorted(stats) == ["growth", "l2", "not_finite", "size", "surprise", "update", "zeros"]
    small = [unpack(packet) for packet in page_content(widget, [], 200_000).packets]
    size = sum(len(array.tobytes()) for head, arrays in small if head["kind"] == "survey" for array in arrays.values())
    assert 0 < size <= 30_000


def test_exporting_a_large_run_reads_a_sample(tmp_path: Path, explore: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_survey, "MOST_EXPORTED", 1000)
    monkeypatch.setattr(survey_module, "SAMPLE_BYTES", 60_000)
    widget = explore(runs.written(tmp_path / "run", runs.nan))
    held = Held().add([unpack(packet) for packet in page_content(widget, [], 20_000_000).packets])
    assert held.reading["state"] == "sampled"
    page = Page(widget)
    held = Held().add(page.ask("hello", protocol=1, again=False)[1])
    until(lambda: held.add(page.updates).reading["state"] == "complete")


def test_the_curve_of_a_live_run_is_requested_so_that_it_grows(tmp_path: Path, explore: Any) -> None:
    root = begin(tmp_path / "run")
    save(root, 0, {"loss": np.float32(5)})
    live = explore(root, lane="loss")
    assert "series" not in {unpack(packet)[0]["kind"] for packet in live._boot}
    end(root)
    ended = explore(root, lane="loss")
    assert "series" in {unpack(packet)[0]["kind"] for packet in ended._boot}


def test_a_run_that_cannot_be_read_for_a_while_is_read_afterwards(tmp_path: Path, explore: Callable[..., Any]) -> None:
    root = begin(tmp_path / "run")
    save(root, 0, {"w": np.ones((4, 4), np.float32)})

    class Failing(smdwidgets.trials.LocalTrial):
        failures = 0
        fails = False

        def steps(self, *args: Any, **kwargs: Any) -> list[int]:
            if self.fails and threading.current_thread().name == "smdwidgets-survey":
                self.failures += 1
                raise OSError("the disk is away")
            return super().steps(*args, **kwargs)

    trial = Failing("failing", str(root))
    survey = explore(trial, tensor="w").live_survey
    until(lambda: survey.check() or survey.is_current)
    trial.fails = True
    save(root, 1, {"w": np.ones((4, 4), np.float32)})
    until(lambda: survey.check() or trial.failures >= 2)
    trial.fails = False
    until(lambda: survey.check() or survey.is_current)
    assert survey.of(0)[0].steps() == (0, 1)


def test_page_that_opens_during_a_poll_numbers_tensors_as_its_map_does(
    explore: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that polls finds the same new names as the request, at the same time."""
    begin(tmp_path / "run")
    names = [f"relu_{number}" for number in range(5)]
    for step in range(8):
        save(tmp_path / "run", step, dict.fromkeys(names, np.ones(3, np.float32)))
    end(tmp_path / "run")
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)  # the test polls
    widget = explore(tmp_path / "run")
    page = Page(widget)
    begun, both = threading.Event(), threading.Barrier(2)

    def run_facts(*_: Any) -> dict[str, Any]:
        begun.set()
        with suppress(threading.BrokenBarrierError):  # it waits in vain for a thread that waits for this one
            both.wait(0.5)
        return {}

    monkeypatch.setattr(overview_module, "run_facts", run_facts)
    number = page.start("hello", protocol=1, again=False)
    until(begun.is_set)
    widget.request_handler.poll()
    _, packets = page.wait(number)
    packets += page.updates

    shown: list[str] = []
    for head, _ in packets:
        if head["kind"] == "catalog":
            shown = [*(shown if head["append"] else []), *head["tensors"]]
    assert shown == names
    rows = {int(row) for head, arrays in packets if head["kind"] == "survey" for row in arrays["tensor"]}
    assert rows == set(range(5))
    _, packets = page.wait(page.start("survey", run=0, **ALL))
    assert {int(row) for head, arrays in packets for row in arrays["tensor"]} == set(range(5))
