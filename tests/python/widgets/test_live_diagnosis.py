"""An explorer diagnoses its run in the background and sends what changed."""

from __future__ import annotations

import base64
import gc
import pathlib
import re
import shutil
import threading
import time

import numpy as np
import pytest

from python.widgets.protocol_checks import check_packet
from smdwidgets import create_trial, explore
from smdwidgets.diagnosis import Diagnoser
from smdwidgets.numpy import Hook
from smdwidgets.pictures.packet import unpack
from smdwidgets.widgets import live_diagnosis
from smdwidgets.widgets.live_diagnosis import LiveDiagnosis
from smdwidgets.widgets.live_survey import LiveSurvey
from smdwidgets.widgets.rule_controller import RuleController


def save(hook, steps, values=lambda step: 2 / (1 + step)):
    for step in steps:
        hook.save_scalar("train/loss", values(step))
        hook.step()


def is_nan_from(at):
    return lambda step: float("nan") if step >= at else 2 / (1 + step)


@pytest.fixture
def run(tmp_path):
    with Hook(tmp_path / "run") as hook:
        save(hook, range(60), is_nan_from(30))
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(live_diagnosis, "PAUSE", 0.01)
    monkeypatch.setattr(live_diagnosis, "SHARE", 0)


def heads(packets):
    found = []
    for packet in packets:
        head, arrays = unpack(packet)
        check_packet(head, arrays)
        found.append(head)
    return found


def updated(live, condition=lambda head: True, seconds=60.0):
    """Poll until there is an update that fulfills the condition."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        live.check()
        for head in heads(live.updates()):
            if condition(head):
                return head
        time.sleep(0.005)
    raise AssertionError("no update")


def test_finding_is_sent_once(run):
    live = LiveDiagnosis([create_trial(run)])
    assert [head["state"] for head in heads(live.packets())] == ["reading"]
    head = updated(live)
    (finding,) = head["findings"]
    assert (head["state"], finding["kind"], finding["first"], finding["tensor"]) == (
        "found",
        "not_finite",
        30,
        "scalar/train/loss",
    )
    assert live.of(0).findings[0].kind == "not_finite"
    assert live.is_current
    time.sleep(0.05)
    live.check()
    assert live.updates() == []
    assert heads(live.packets()) == [head]


def test_new_steps_change_it(tmp_path):
    hook = Hook(tmp_path / "live", flush_seconds=0.05)
    save(hook, range(20))
    trial = create_trial(tmp_path / "live", wait=60)
    trial.wait_for_steps([19], timeout=60)
    live = LiveDiagnosis([trial])
    assert updated(live)["state"] == "nothing"
    save(hook, range(20, 60), is_nan_from(25))
    hook.close()
    trial.wait_for_steps([59], timeout=60)
    assert updated(live)["findings"][0]["kind"] == "not_finite"


def test_what_was_read_of_a_run_that_has_ended_is_not_kept(tmp_path):
    with Hook(tmp_path / "run") as hook:
        save(hook, range(20))
    trial = create_trial(tmp_path / "run")
    live = LiveDiagnosis([trial])
    assert updated(live)["state"] == "nothing"
    assert referring(Diagnoser, trial) == []


def referring(kind, trial):
    """The objects of a kind that refer to a trial."""
    gc.collect()
    return [one for one in gc.get_referrers(trial) if isinstance(one, kind)]


def test_other_run_in_the_same_place_starts_it_again(tmp_path):
    with Hook(tmp_path / "run") as hook:
        save(hook, range(60), is_nan_from(30))
    trial = create_trial(tmp_path / "run")
    live = LiveDiagnosis([trial])
    assert updated(live)["state"] == "found"
    shutil.rmtree(tmp_path / "run")
    with Hook(tmp_path / "run") as hook:
        save(hook, range(60))
    assert updated(live, lambda head: head["state"] == "nothing")["findings"] == []


def test_error_is_shown(run, monkeypatch):
    def fails(*args, **kwargs):
        raise MemoryError("no room")

    monkeypatch.setattr(Diagnoser, "update", fails)
    head = updated(LiveDiagnosis([create_trial(run)]))
    assert (head["state"], head["summary"]) == ("failed", "MemoryError: no room")


def test_large_run_has_its_scalars_read_only(tmp_path, monkeypatch):
    with Hook(tmp_path / "run") as hook:
        for step in range(30):
            hook.save_tensor("w", np.full((8, 8), step, np.float32), "weights")
            hook.save_scalar("train/loss", 2 / (1 + step))
            hook.step()
    whole = LiveDiagnosis([create_trial(tmp_path / "run")])
    assert "1 tensor" in updated(whole)["summary"]
    monkeypatch.setattr(live_diagnosis, "LARGEST_RUN", 1000)
    assert "tensor" not in updated(LiveDiagnosis([create_trial(tmp_path / "run")]))["summary"]


def test_file_that_vanishes_while_the_run_is_measured_is_no_error(run, monkeypatch):
    for name in ("one.tmp", "two.tmp"):
        (run / "events" / name).write_bytes(b"1")
    lstat = pathlib.Path.lstat

    def vanishing(path):
        if path.suffix == ".tmp":
            path.unlink(missing_ok=True)
        return lstat(path)

    monkeypatch.setattr(pathlib.Path, "lstat", vanishing)
    assert updated(LiveDiagnosis([create_trial(run)]))["state"] == "found"


def test_exported_page_waits_for_the_update_in_the_background(run, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    update, calls = Diagnoser.update, []

    def slow(self, progress=None):
        calls.append(threading.current_thread().name)
        begun.set()
        assert go_on.wait(60)
        return update(self, progress)

    monkeypatch.setattr(Diagnoser, "update", slow)
    live = LiveDiagnosis([create_trial(run)])
    live.check()
    assert begun.wait(60)
    waiting = threading.Thread(target=live.complete)
    waiting.start()
    live.check()
    go_on.set()
    waiting.join(60)
    assert not waiting.is_alive()
    assert [finding.kind for finding in live.of(0)] == ["not_finite"]
    assert calls == ["smdwidgets-diagnosis"]


def test_closed_widget_stops_reading(run, monkeypatch):
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def update(self, progress=None):
        begun.set()
        assert go_on.wait(60)
        try:
            progress(1, 2)
        finally:
            ended.set()

    monkeypatch.setattr(Diagnoser, "update", update)
    live = LiveDiagnosis([create_trial(run)])
    live.check()
    assert begun.wait(60)
    live.close()
    go_on.set()
    assert ended.wait(60)
    live.check()
    assert live.of(0) is None


def test_finding_has_a_few_points_of_the_series_that_shows_it(tmp_path):
    with Hook(tmp_path / "run") as hook:
        for step in range(1000):
            hook.save_scalar("loss", 1 / (step + 1) if step < 900 else float("nan"))
            hook.step()
    live = LiveDiagnosis([create_trial(tmp_path / "run")])
    live.complete()
    [packet] = live.packets()
    head, _ = unpack(packet)
    curve = head["findings"][0]["curve"]
    steps, values = curve["steps"], curve["values"]
    assert 2 < len(steps) == len(values) <= 100
    assert steps == sorted(steps)
    assert values[0] == 1
    assert all(value == pytest.approx(1 / (step + 1)) for step, value in zip(steps, values, strict=True))


def test_healthy_run_says_what_was_checked_and_what_was_not_with_the_reason(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(16, 16))
    with Hook(tmp_path / "run") as hook:
        for step in range(60):
            weight = weight + rng.normal(0, 0.001, weight.shape)
            hook.save_tensor("fc.weight", np.asarray(weight, np.float32), "weights")
            save(hook, [step])
    live = LiveDiagnosis([create_trial(tmp_path / "run")])
    live.complete()
    [packet] = live.packets()
    head, _ = unpack(packet)
    check_packet(head, {})
    assert head["state"] == "nothing"
    checked, *gaps = head["coverage"]
    assert checked.startswith("Checked: ")
    assert any("not recorded" in gap for gap in gaps)


def packets_of(page):
    """Return the packets of an exported page."""
    scripts = re.findall(r'class="smdw-packet">([^<]*)<', page.read_text())
    return [unpack(base64.b64decode(script)) for script in scripts]


def test_explorer_has_a_diagnosis(run):
    widget = explore(run)
    try:
        assert widget.diagnosis is None
        end = time.monotonic() + 60
        while widget.diagnosis is None and time.monotonic() < end:
            widget.request_handler.poll()
            time.sleep(0.005)
        assert [finding.kind for finding in widget.diagnosis] == ["not_finite"]
    finally:
        widget.close()


def test_page_that_is_exported_at_once_has_it(run, tmp_path):
    widget = explore(run)
    try:
        widget.to_html(tmp_path / "page.html")
    finally:
        widget.close()
    (head,) = [head for head, _ in packets_of(tmp_path / "page.html") if head["kind"] == "diagnosis"]
    assert [finding["kind"] for finding in head["findings"]] == ["not_finite"]


@pytest.mark.parametrize("is_faulty", [True, False])
def test_a_run_is_not_called_healthy_before_its_map_was_read(tmp_path, monkeypatch, is_faulty):
    """The diagnosis reads the scalars of a large run only; its map takes longer."""
    monkeypatch.setattr(live_diagnosis, "LARGEST_RUN", 0)
    with Hook(tmp_path / "run") as hook:
        for step in range(60):
            hook.save_scalar("train/loss", 2 / (1 + step))
            value = np.nan if is_faulty and step == 40 else 1.0
            hook.save_tensor("fc.weight", np.array([value, step], np.float32), "weights")
            hook.step()
    trial = create_trial(tmp_path / "run")
    survey = LiveSurvey([trial], RuleController([trial]))
    live = LiveDiagnosis([trial], survey)
    assert updated(live, lambda head: bool(head["summary"]))["state"] == "reading"
    survey.complete()
    survey.update_marks(0)
    head = updated(live)
    if is_faulty:
        assert [(one["tensor"], one["first"]) for one in head["findings"]] == [("fc.weight", 40)]
    else:
        assert head["state"] in {"nothing", "unjudged"}
