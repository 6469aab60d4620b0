"""The widget protocol: replies match what NumPy computes from the same files."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import Page, begin, by_step, end, save, weights
from smdwidgets.exceptions import NoMoreData
from smdwidgets.numpy import Hook
from smdwidgets.pictures import unpack
from smdwidgets.pictures.edges import Bins, shared_edges, swept_ranges
from smdwidgets.pictures.frames import PERCENTILES, Wanted, even_sample
from smdwidgets.pictures.overview import SentState
from smdwidgets.pictures.packet import LARGEST
from smdwidgets.pictures.plane import ImageWanted
from smdwidgets.pictures.view import TensorView
from smdwidgets.rules import Rule, describe, rule_classes
from smdwidgets.rules.declared import parameters_of
from smdwidgets.widgets import bundle, request_handler
from smdwidgets.widgets.streaming import FrameStream
from smdwidgets.widgets.thread_switch_interval import SHORT, ShortSwitchInterval

WANT = {
    "stats": True,
    "update": True,
    "hist": {"scale": "linear", "bins": 32, "edges": "shared"},
    "image": {"axes": [], "fixed": [], "pool": "mean", "cells": 4096},
    "percentiles": True,
}


# Measures how much memory a kernel keeps after it sent all frames of a 4 MB tensor. A separate process isolates its
# memory.
MEASURE = """
import gc, re, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import smdwidgets
from python.widgets.talk import Page
from python.widgets.test_widgets import WANT

def held():
    gc.collect()
    return int(re.search(r"RssAnon:[^0-9]+([0-9]+)", Path("/proc/self/status").read_text())[1])

page = Page(smdwidgets.explore(sys.argv[1], tensor="smaller"))
page.frames("smaller", want=WANT)  # the threads start
before = held()
page.frames("w", want=WANT)
print(held() - before)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    root = begin(tmp_path / "mlp", '{"weights": {"name": "weights", "include_regex": ["weight$"], "tensor_names": []}}')
    for step in range(20):
        save(
            root,
            step * 5,
            {"fc1.weight": weights(step), "loss": np.float32(1 / (step + 1)), "note": np.array(["a", f"é{step}"])},
        )
    return end(root)


@pytest.fixture
def explorer(run: Path) -> Iterator[Any]:
    widget = smdwidgets.explore(run)
    yield widget
    widget.close()


def test_hello_reply_contains_the_run(explorer: Any) -> None:
    answer, packets = Page(explorer).ask("hello", protocol=1, again=False)
    assert answer["live"] == "thread"
    head, arrays = packets[0]
    assert (head["kind"], head["name"], head["status"]) == ("catalog", "mlp", "ended")
    assert head["tensors"] == ["fc1.weight", "loss", "note"]
    assert head["collections"]["weights"] == [0]
    assert arrays["step"].tolist() == [step * 5 for step in range(20)]
    assert set(arrays["mode"].tolist()) == {4}


def test_initial_state_contains_the_run(explorer: Any) -> None:
    assert explorer._boot
    assert sum(map(len, explorer._boot)) <= LARGEST
    assert explorer.tensor == "fc1.weight"


def test_explorer_opens_on_the_first_finding_unless_a_place_is_chosen(run: Path, tmp_path: Path) -> None:
    for given, chosen in (
        ({}, {}),
        ({}, {"tensor": "loss"}),
        ({}, {"step": 5}),
        ({"tensor": "loss"}, {}),
        ({"step": 5}, {}),
    ):
        widget = smdwidgets.explore(run, **given)
        widget.map_stat = "zeros"  # no choice of a place
        for name, value in chosen.items():
            setattr(widget, name, value)
        fresh = not given and not chosen
        assert widget.opens_on_finding is fresh
        page = tmp_path / "page.html"
        widget.to_html(page)
        blocks = re.findall(r'class="smdw-packet">([^<]*)<', page.read_text())
        heads = [unpack(base64.b64decode(block))[0] for block in blocks]
        assert [head["traits"]["_fresh"] for head in heads if head["kind"] == "page"] == [fresh]
        widget.close()
    widget = smdwidgets.explore(run)
    # The page, which has gone to the finding, says so.
    widget.set_state({"step": 5, "_fresh": False})
    assert not widget.opens_on_finding
    widget.close()


def test_frames_match_numpy(explorer: Any) -> None:
    frames = Page(explorer).frames("fc1.weight", want=WANT)
    assert sorted(frames) == [step * 5 for step in range(20)]
    before = None
    for step in range(20):
        value, frame = weights(step), frames[step * 5]
        assert frame["stats"][0] == value.min()
        assert frame["stats"][1] == value.max()
        np.testing.assert_allclose(
            frame["stats"][[2, 4, 8]],
            [value.mean(dtype=float), value.std(dtype=float), np.linalg.norm(value.astype(float))],
            rtol=1e-6,
        )
        assert frame["counts"].tolist() == [value.size, 0, 0, 0, 0]
        inside = np.histogram(value.astype(np.float64), frame["edges"])[0]
        assert frame["hist"].tolist() == inside.tolist()
        assert frame["hist"].sum() + frame["hist_out"].sum() == value.size
        np.testing.assert_allclose(
            frame["percentiles"], np.percentile(value.astype(float), [1, 5, 25, 50, 75, 95, 99]), rtol=1e-6
        )
        low, high = frame["image_range"]
        drawn = low + frame["image"].astype(float) / 252 * (high - low)
        assert drawn.shape == value.shape
        assert np.abs(drawn - value).max() <= (high - low) / 252
        if before is not None:
            moved = np.linalg.norm((value - before).astype(float)) / np.linalg.norm(before.astype(float))
            assert frame["update"] == pytest.approx(moved, rel=1e-6)
        before = value


def test_switch_interval_is_short_during_a_request(explorer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.getswitchinterval()
    seen = []
    plan = FrameStream.plan

    def watched(stream: FrameStream) -> bytes:
        seen.append(sys.getswitchinterval())
        return plan(stream)

    monkeypatch.setattr(FrameStream, "plan", watched)
    page = Page(explorer)
    page.frames("fc1.weight", want=WANT)
    page.ask("frames", role="main", run=0, tensor="absent", worker="", near=0, want=WANT)
    assert seen
    assert max(seen) < before
    deadline = time.monotonic() + 30
    while sys.getswitchinterval() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sys.getswitchinterval() == before


def test_switch_interval_set_by_other_code_is_kept() -> None:
    before = sys.getswitchinterval()
    interval = ShortSwitchInterval()
    try:
        with interval, interval:
            assert sys.getswitchinterval() == pytest.approx(SHORT)
            sys.setswitchinterval(0.02)
        assert sys.getswitchinterval() == pytest.approx(0.02)
    finally:
        sys.setswitchinterval(before)


def test_shared_edges_span_all_finite_values(tmp_path: Path) -> None:
    values = [weights(0), weights(9), np.full((3, 3), np.nan, np.float32), np.arange(9, dtype=np.int16).reshape(3, 3)]
    values.append(np.array([[np.inf, -40.0, 3.0]], np.float32))
    run = begin(tmp_path / "mixed")
    for step, value in enumerate(values):
        save(run, step, {"w": value, "text": np.array(["a"]), "complex": value.astype(np.complex64)})
    trial = smdwidgets.create_trial(end(run))
    finite = np.concatenate([value[np.isfinite(value)].astype(np.float64).ravel() for value in values])
    edges = shared_edges([TensorView(trial, "w")], "linear", 16)
    assert edges is not None
    assert (edges.edges[0], edges.edges[-1]) == (finite.min(), finite.max())
    sizes = shared_edges([TensorView(trial, "complex")], "linear", 16)
    assert sizes is not None
    assert sizes.edges[0] >= 0
    assert sizes.edges[-1] == pytest.approx(np.abs(finite).max())
    assert shared_edges([TensorView(trial, "text")], "linear", 16) is None
    # Read together with others, also with some that cannot be read, a tensor has the same edges.
    views = [TensorView(trial, name) for name in ("w", "complex", "text", "missing")]
    for together in (views[:1], views, [TensorView(trial, "w", "worker_0"), *views[1:]]):
        swept = swept_ranges(together)
        again = shared_edges(together[:1], "linear", 16, swept)
        assert again is not None
        assert again.edges.tolist() == edges.edges.tolist()


def test_ranges_of_many_tensors_are_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(tmp_path / "many")
    for step in range(3):
        save(run, step, {f"w{index}": weights(step + index) for index in range(5)})
    trial = smdwidgets.create_trial(end(run))
    views = [TensorView(trial, name) for name in trial.tensor_names()]
    expected = [swept_ranges([view])[view] for view in views]
    calls = []
    plain = trial.reductions
    monkeypatch.setattr(trial, "reductions", lambda *args, **options: calls.append(args) or plain(*args, **options))
    assert list(swept_ranges(views).values()) == expected
    assert len(calls) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_values_are_freed_after_their_frames_are_sent(tmp_path: Path) -> None:
    root = begin(tmp_path / "large")
    for step in range(24):
        save(root, step, {"w": np.full((1000, 1000), step, np.float32), "smaller": weights(step, (300, 300))})
    tests = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", MEASURE, str(end(root)), str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout) < 4_000


def test_displayed_step_is_sent_first_then_nearest_steps(explorer: Any) -> None:
    _, packets = Page(explorer).ask("frames", role="main", run=0, tensor="fc1.weight", worker="", near=50, want=WANT)
    heads = [head["kind"] for head, _ in packets]
    assert heads[0] == "plan"
    assert packets[1][1]["step"].tolist() == [50]
    assert packets[2][1]["step"].tolist() == [45, 55, 40, 60, 35, 65, 30, 70]
    plan = packets[0][0]
    assert (plan["dtype"], plan["shape"], plan["form"], plan["reduced"]) == ("float32", [32, 48], "number", False)


@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
@pytest.mark.parametrize("edges", ["shared", "own"])
def test_histogram_counts_all_elements_on_any_scale(explorer: Any, scale: str, edges: str) -> None:
    want = {**WANT, "hist": {"scale": scale, "bins": 40, "edges": edges}}
    for frame in Page(explorer).frames("fc1.weight", want=want).values():
        assert (np.diff(frame["edges"]) >= 0).all()
        assert frame["hist"].sum() + frame["hist_out"].sum() == 32 * 48


@pytest.mark.parametrize(
    "value",
    [
        np.float32(3.5),
        np.array([], np.float32),
        np.full(7, np.nan, np.float32),
        np.array([np.inf, -np.inf, np.nan, 0, 1]),
        np.arange(24, dtype=np.int16).reshape(2, 3, 4),
        np.ones((1,) * 9, np.float64),
        np.array([1 + 2j, 3 - 4j], np.complex64),
        np.array([True, False]),
        np.full(4, 1e300),
        np.zeros((3, 3), np.float16),
        np.array([["text", "<script>alert(1)</script>"]]),
        np.array([2**63], np.uint64),
    ],
    ids=str,
)
def test_frames_tiles_and_values_for_all_dtypes(tmp_path: Path, value: Any) -> None:
    root = begin(tmp_path / "run")
    for step in range(3):
        save(root, step, {"x": value})
    widget = smdwidgets.TensorInspector(end(root), tensor="x")
    page = Page(widget)
    frames = page.frames("x", want=WANT)
    assert sorted(frames) == [0, 1, 2]
    assert not frames[0]["head"]["errors"]
    if np.asarray(value).dtype.kind not in "US":
        assert frames[0]["counts"][0] == np.size(value)
    if np.size(value):
        answer, [(head, _)] = page.ask(
            "values", role="main", run=0, tensor="x", worker="", step=0, axes=[], fixed=[], rows=[0, 9], cols=[0, 9]
        )
        assert answer["kind"] == "answer"
        assert len(head["cells"]) == head["rows"][1]
        if np.asarray(value).dtype.kind not in "US":
            answer, [(head, arrays)] = page.ask(
                "tile",
                role="main",
                run=0,
                tensor="x",
                worker="",
                step=0,
                axes=[],
                fixed=[],
                pool="maxabs",
                rows=[0, 9],
                cols=[0, 9],
                size=[64, 64],
            )
            assert answer["kind"] == "answer"
            assert arrays["image"].shape == (head["rows"][1], head["cols"][1])
    widget.close()


def test_values_request_of_a_slice(tmp_path: Path) -> None:
    value = np.arange(2 * 5 * 7, dtype=np.float64).reshape(2, 5, 7) / 3
    root = begin(tmp_path / "run")
    save(root, 0, {"x": value})
    widget = smdwidgets.TensorInspector(end(root), tensor="x")
    place = {"role": "main", "run": 0, "tensor": "x", "worker": "", "step": 0}
    _, [(head, arrays)] = Page(widget).ask("values", **place, axes=[2, 0], fixed=[0, 3, 0], rows=[1, 4], cols=[0, 2])
    expected = value[:, 3, 1:4].T
    assert arrays["number"].tolist() == expected.tolist()
    assert head["cells"] == [[str(cell) for cell in row] for row in expected]
    assert head["shape"] == [7, 2]
    widget.close()


def test_series_request(explorer: Any) -> None:
    place = {"run": 0, "worker": "", "mode": ""}
    lines = [{"tensor": "loss", "stat": "value", **place}, {"tensor": "fc1.weight", "stat": "std", **place}]
    _, packets = Page(explorer).ask("series", lines=lines)
    loss, std = packets
    np.testing.assert_allclose(loss[1]["y"], [np.float32(1 / (step + 1)) for step in range(20)])
    np.testing.assert_allclose(std[1]["y"], [weights(step).std(dtype=float) for step in range(20)], rtol=1e-6)
    assert loss[1]["step"].tolist() == [step * 5 for step in range(20)]


def test_failed_requests_return_errors(explorer: Any) -> None:
    page = Page(explorer)
    answer, _ = page.ask(
        "tile",
        role="main",
        run=0,
        tensor="no such",
        worker="",
        step=0,
        axes=[],
        fixed=[],
        pool="mean",
        rows=[0, 1],
        cols=[0, 1],
        size=[8, 8],
    )
    assert answer["kind"] == "error"
    assert answer["error"]["type"] == "TensorUnavailable"
    assert page.ask("nonsense")[0]["error"]["type"] == "SMDebugValueError"
    answer, _ = page.ask("frames", role="main", run=7, tensor="x", worker="", near=0, want=WANT)
    assert answer["error"]["message"] == "ValueError: run index 7 is out of range"
    assert page.ask("hello", protocol=1, again=True)[0]["kind"] == "answer"


def test_cancelled_request_stops_and_is_answered(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    widget = smdwidgets.explore(run)
    page = Page(widget)
    began, gate, made = threading.Event(), threading.Event(), list[int]()
    make = FrameStream._make

    def slow(self: FrameStream, step: int, *rest: Any) -> Any:
        made.append(step)
        began.set()
        assert gate.wait(60)
        return make(self, step, *rest)

    monkeypatch.setattr(FrameStream, "_make", slow)
    number = page.start("frames", role="main", run=0, tensor="fc1.weight", worker="", near=-1, want=WANT)
    assert began.wait(60)
    page.cancel("another")
    page.cancel(number)
    gate.set()
    message, packets = page.wait(number)
    assert message["error"]["type"] == "Cancelled"
    assert made == [95]
    assert [head["kind"] for head, _ in packets] == ["plan"]
    widget.close()


def test_unreadable_step_is_marked_and_others_are_sent(run: Path) -> None:
    events = run / "events" / f"{50:012d}" / f"{50:012d}_worker_0.tfevents"
    events.write_bytes(events.read_bytes()[:100])
    widget = smdwidgets.explore(run)
    frames = Page(widget).frames("fc1.weight", want=WANT)
    assert len(frames) == 20
    assert list(frames[50]["head"]["errors"]) == ["50"]
    assert frames[45]["counts"][0] == 32 * 48
    widget.close()


def test_new_steps_are_pushed_while_training_runs(tmp_path: Path) -> None:
    root = begin(tmp_path / "live")
    save(root, 0, {"w": weights(0)})
    widget = smdwidgets.explore(root)
    page = Page(widget)
    answer, _ = page.ask("hello", protocol=1, again=False)
    assert answer["heartbeat"] > 0
    page.frames("w", want=WANT)
    for step in range(1, 6):
        save(root, step, {"w": weights(step) * 10})
        deadline = time.monotonic() + 10
        while step not in by_step(list(page.updates)) and time.monotonic() < deadline:
            time.sleep(0.02)
    found = by_step(list(page.updates))
    assert set(range(1, 6)) <= set(found)
    assert found[5]["hist"].sum() + found[5]["hist_out"].sum() == 32 * 48
    steps = [step for head, arrays in page.updates if head["kind"] == "catalog" for step in arrays["step"]]
    assert steps == [1, 2, 3, 4, 5]
    end(root)
    deadline = time.monotonic() + 10
    while not any(head.get("status") == "ended" for head, _ in page.updates) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert any(head.get("status") == "ended" for head, _ in page.updates)
    widget.close()


def test_steps_are_pushed_after_a_request_that_needed_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)
    root = begin(tmp_path / "mlp")
    save(root, 0, {"w": weights(0)})
    widget = smdwidgets.explore(root, tensor="w")
    page = Page(widget)
    page.ask("hello", protocol=1, again=False)
    assert page.frames("w", want=WANT, after=0) == {}
    save(root, 1, {"w": weights(1)})
    widget.request_handler.poll()
    assert set(by_step(page.updates)) == {1}
    widget.close()


def test_curves_are_updated_until_the_run_ends(tmp_path: Path) -> None:
    root = begin(tmp_path / "live")
    save(root, 0, {"w": weights(0), "loss": np.float32(9)})
    widget = smdwidgets.explore(root)
    page = Page(widget)
    page.ask("hello", protocol=1, again=False)
    _, packets = page.ask("series", lines=[{"tensor": "loss", "stat": "value", "run": 0, "worker": "", "mode": ""}])
    assert packets[0][1]["y"].tolist() == [9]
    for step in range(1, 30):
        save(root, step, {"w": weights(step), "loss": np.float32(step)})
    end(root)

    def curve() -> list[float]:
        received = [arrays["y"].tolist() for head, arrays in list(page.updates) if head["kind"] == "series"]
        return received[-1] if received else []

    deadline = time.monotonic() + 30
    while len(curve()) < 30 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert curve() == [9, *range(1, 30)]
    widget.close()


def test_status_of_failing_or_removed_run(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    for step in range(3):
        save(root, step, {"w": weights(step)})

    class FailingTrial(smdwidgets.trials.LocalTrial):
        failure: Exception | None = None

        def maybe_refresh(self, *args: Any, **kwargs: Any) -> None:
            if self.failure:
                raise self.failure
            super().maybe_refresh(*args, **kwargs)

    trial = FailingTrial("failing", root)
    widget = smdwidgets.explore(trial, tensor="w")
    page = Page(widget)
    page.ask("hello", protocol=1, again=False)
    page.frames("w", want=WANT)  # so that a frame stream is updated, too

    def wait_for(status: str, words: str) -> None:
        deadline = time.monotonic() + 20
        while not any(
            head["kind"] == "catalog" and head["status"] == status and words in head["message"]
            for head, _ in list(page.updates)
        ):
            assert time.monotonic() < deadline, [head for head, _ in page.updates]
            time.sleep(0.02)
        page.updates.clear()

    trial.failure = ValueError("cannot read")
    wait_for("error", "ValueError: cannot read")
    trial.failure = None
    wait_for("running", "")
    shutil.rmtree(root)
    wait_for("gone", "The directory no longer exists")
    widget.close()


def test_messages_are_smaller_than_one_mebibyte(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    for step in range(60):
        save(
            root,
            step,
            {
                "w": np.random.default_rng(step).normal(size=(100, 100)),
                **({f"name {n} {'x' * 300}": 1.0 for n in range(3000)} if step == 0 else {}),
            },
        )
    widget = smdwidgets.explore(end(root))
    page = Page(widget)
    page.ask("hello", protocol=1, again=False)
    page.frames("w", want={**WANT, "image": {**WANT["image"], "cells": 60_000}})  # type: ignore[dict-item]
    assert max(page.sizes) <= LARGEST
    widget.close()


class Fires(Rule):
    """Fires at all steps from a given one."""

    def __init__(self, base_trial: Any, since: str = "50") -> None:
        super().__init__(base_trial)
        self.since = int(since)

    def invoke_at_step(self, step: int) -> bool:
        return step >= self.since


def test_rule_requests(run: Path) -> None:
    widget = smdwidgets.RulePanel(run, ["LossNotDecreasing", Fires])
    page = Page(widget)
    assert widget.rules.wait(30)
    _, packets = page.ask("hello", protocol=1, again=False)
    rules = {
        rule["name"]: (i, rule, arrays)
        for head, arrays in packets
        if head["kind"] == "rules"
        for i, rule in enumerate(head["rules"])
    }
    number, rule, arrays = rules["Fires"]
    assert rule["status"] == "IssuesFound"
    assert arrays[f"{number}.step"].tolist() == [step * 5 for step in range(20)]
    assert arrays[f"{number}.outcome"].tolist() == [1] * 10 + [2] * 10
    assert rule["firings_total"] == 10
    assert rule["params"] == [
        parameter.state(widget.rules["Fires"].rule) for parameter in parameters_of(Fires).values()
    ]
    assert [param["value"] for param in rule["params"] if param["name"] == "since"] == ["50"]
    answer, packets = page.ask("rule", do="set", rule=rule["id"], params={"since": "90"}, run=0)
    assert answer["kind"] == "answer", answer
    assert widget.rules.wait(30)
    assert [step for step, outcome in widget.rules["Fires"].outcomes.items() if outcome == 2] == [90, 95]
    answer, _ = page.ask("rule", do="set", rule=rule["id"], params={"sinse": 1}, run=0)
    assert answer["kind"] == "error"
    assert "since" in answer["error"]["message"]
    answer, _ = page.ask("firing", rule=rule["id"], step=95)
    assert answer["firings"]
    answer, _ = page.ask("classes")
    assert {"VanishingGradient", "Fires"} <= {each["name"] for each in answer["classes"]}
    assert {each["name"]: each["params"] for each in answer["classes"]} == {
        name: describe(rule)["parameters"] for name, rule in rule_classes().items()
    }
    assert (
        page.ask("rule", do="add", **{"class": "AllZero"}, params={"tensor_regex": "loss"}, run=0)[0]["kind"]
        == "answer"
    )
    assert page.ask("rule", do="remove", rule=rule["id"], run=0)[0]["kind"] == "answer"
    json.dumps(answer, allow_nan=False)
    widget.close()


def test_value_of_the_displayed_tensor(explorer: Any) -> None:
    explorer.step = 50
    np.testing.assert_array_equal(explorer.value(), weights(10))
    explorer.step = 52
    np.testing.assert_array_equal(explorer.value(), weights(10), "the latest earlier step that has it")
    explorer.tensor = "note"
    assert explorer.value().tolist() == ["a", "é10"]
    with pytest.raises(TypeError, match="no argument 'tensr'"):
        smdwidgets.explore(explorer.trial, tensr="x")


def test_slider_value_can_be_observed_and_linked(run: Path) -> None:
    import ipywidgets

    one, other = smdwidgets.StepSlider(run), smdwidgets.StepSlider([0, 5, 10, 95])
    assert one.value == 95
    seen: list[int] = []
    one.observe(lambda change: seen.append(change.new), "value")
    link = ipywidgets.link((one, "value"), (other, "value"))
    one.value = 10
    assert (one.step, other.value, other.step) == (10, 10, 10)
    other.step = 5
    assert one.value == 5
    assert seen == [10, 5]
    link.unlink()
    one.close()
    other.close()


def test_mime_bundle_contains_image_and_text(explorer: Any) -> None:
    bundle = explorer._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["image/png"].startswith("iVBOR")
    assert "fc1.weight" in data["text/plain"]
    assert "20 steps" in data["text/plain"]
    assert f"mean {weights(19).mean():.6g}"[:9] in data["text/plain"]


def test_a_folder_of_runs_is_shown_as_their_table(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.csv").write_text("step,loss\n0,2\n1,1\n")
    with contextlib.closing(smdwidgets.explore(tmp_path)) as shown:
        assert shown.run_names() == ["a", "b"]
        assert shown.table
    with contextlib.closing(smdwidgets.explore(tmp_path, run=1)) as shown:
        assert (shown.table, shown.trial.name) == (False, "b")


def test_html_page_is_self_contained(explorer: Any, tmp_path: Path) -> None:
    size = explorer.to_html(tmp_path / "page.html").stat().st_size
    page = (tmp_path / "page.html").read_text()
    assert len(page.encode()) == size
    assert "default-src 'none'" in page
    assert "unsafe-inline" not in page
    assert page.count('class="smdw-packet"') >= 4
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["page.html"]
    few = explorer.to_html(tmp_path / "small.html", limit=size - 20_000).stat().st_size
    assert few < size


def test_repeated_request_is_answered_once(explorer: Any) -> None:
    page = Page(explorer)
    page.start("classes", "same")
    assert page.wait("same")[0]["kind"] == "answer"
    page.start("classes", "same")
    page.ask("classes")
    assert page.wait(page.start("classes", "other"))[0]["kind"] == "answer"
    assert page._replies["same"].empty()


def test_widget_without_a_page_gets_its_first_view(explorer: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("smdwidgets.widgets.request_handler.WAIT_FOR_PAGE", 0.0)
    explorer.panels = ["histogram", "scalars"]
    explorer.series = [{"tensor": "loss", "stat": "value", "run": -1}]
    page = Page(explorer)
    explorer._repr_mimebundle_()
    assert explorer.request_handler.poll()
    replies = [{head["kind"] for head, _ in page.wait(number)[1]} for number in ("pushed-0", "pushed-1")]
    assert replies == [{"plan", "frames"}, {"series"}]


def test_widget_with_a_page_gets_no_second_first_view(explorer: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("smdwidgets.widgets.request_handler.WAIT_FOR_PAGE", 0.0)
    page = Page(explorer)
    page.ask("hello", protocol=1, again=False)
    explorer._repr_mimebundle_()
    explorer.request_handler.poll()
    page.ask("classes")
    assert not page.known("pushed-0")


def test_closed_widget_is_freed_and_stops_replying(run: Path) -> None:
    before = threading.active_count()
    widget = smdwidgets.explore(run)
    handler = widget.request_handler
    page = Page(widget)
    page.ask("hello", protocol=1, again=False)
    gone = weakref.ref(widget)
    widget.close()
    handler.handle_message({"kind": "ask", "id": "1", "what": "hello"})
    assert not handler.poll()
    del widget, page, handler
    deadline = time.monotonic() + 60
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert gone() is None
    # The threads that read for all widgets of a process may have started.
    assert threading.active_count() < before + 10


def test_widget_whose_constructor_failed_is_freed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("the front end is missing")

    monkeypatch.setattr(bundle.carried, "take", fail)
    with pytest.raises(OSError, match="the front end is missing"):
        smdwidgets.explore(run)
    gc.collect()  # an error in a finalizer fails the test


def test_what_does_not_exist_is_said_in_the_explorer(run: Path) -> None:
    trial = smdwidgets.create_trial(run)
    first = smdwidgets.explore(trial)
    last = trial.steps()[-1]
    for asked, said in (
        ({"step": last + 1}, f"Step {last + 1} was not saved: the run has ended; the last step is {last}"),
        ({"tensor": "fc1.weigth"}, "There is no tensor 'fc1.weigth'. Did you mean 'fc1.weight'?"),
        ({"run": 7}, "There is no run 7: the explorer has one run."),
        ({"rules": ["DeadRelu", "Nonsense"]}, "Unknown rule 'Nonsense'"),
    ):
        widget = smdwidgets.explore(trial, **asked)
        assert said in widget._notice
        assert (widget.run, widget.tensor, widget.step) == (0, first.tensor, -1)
        assert widget.opens_on_finding
        if "rules" in asked:
            assert [evaluation.name for evaluation in widget.rules] == ["DeadRelu"]
        widget.tensor = "fc2.weight"
        assert widget._notice == ""
        widget.close()
    first.close()
    with pytest.raises(NoMoreData):
        smdwidgets.TensorInspector(trial, step=last + 1)


def test_a_step_after_the_end_of_a_run_is_left_out_of_the_view(run: Path) -> None:
    trial = smdwidgets.create_trial(run)
    last = trial.steps()[-1]
    assert trial.loaded_all_steps
    widget = smdwidgets.explore(trial, step=last)
    assert smdwidgets.explore(trial, state=widget.state.replace(str(last), "9999")) is not None


def test_two_runs(run: Path, tmp_path: Path) -> None:
    other = begin(tmp_path / "other")
    save(other, 7, {"fc1.weight": weights(1)})
    widget = smdwidgets.explore([run, end(other)])
    _, packets = Page(widget).ask("hello", protocol=1, again=False)
    assert [head["name"] for head, _ in packets if head["kind"] == "catalog"] == ["mlp", "other"]
    widget.run = 1
    assert widget.trial.name == "other"
    assert widget.value().shape == (32, 48)
    widget.close()


def test_malicious_names_are_escaped(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    names = ["<img src=x onerror=alert(1)>", "a\nb", "x" * 100_000, "</script><script>alert(2)</script>", "\u202egnp"]
    save(root, 0, dict.fromkeys(names, np.ones(3)))
    widget = smdwidgets.explore(end(root))
    _, packets = Page(widget).ask("hello", protocol=1, again=False)
    assert max(len(name) for name in packets[0][0]["tensors"]) <= 2000
    widget.tensor = names[3]
    widget.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "alert(2)" not in page, "names are inside packets, which are base64"
    widget.close()


def test_setting_a_step_in_python_stops_following(explorer: Any, run: Path) -> None:
    assert smdwidgets.explore(run, step=5).follow is False
    explorer.step = 95
    assert explorer.follow
    explorer.step = 0
    assert not explorer.follow


def test_stale_step_from_browser_does_not_stop_following(explorer: Any) -> None:
    # The browser follows a training that has saved newer steps, so its step does not mean that the user selected it.
    explorer.set_state({"step": 90})
    assert (explorer.step, explorer.follow) == (90, True)
    explorer.set_state({"step": 5, "follow": False})
    assert (explorer.step, explorer.follow) == (5, False)


@pytest.mark.parametrize(
    ("axes", "fixed", "shape", "meant"),
    [
        ((), (), (), ([], [])),
        ((), (), (4,), ([0], [0])),
        ((), (), (8, 3, 5), ([1, 2], [0, 0, 0])),
        ((2, 0), (0, 9, 0), (8, 3, 5), ([2, 0], [0, 2, 0])),
        ((1, 1), (1,), (8, 3), ([0, 1], [0, 0])),
    ],
)
def test_invalid_axes_and_indices_are_replaced(axes: Any, fixed: Any, shape: Any, meant: Any) -> None:
    assert ImageWanted(axes, fixed).resolve(shape) == meant


def test_packets_contain_axes_and_indices(explorer: Any) -> None:
    page = Page(explorer)
    for frame in page.frames("fc1.weight", want=WANT).values():
        assert (frame["head"]["image"]["axes"], frame["head"]["image"]["fixed"]) == ([0, 1], [0, 0])
        assert frame["shapes"].tolist() == [32, 48]
    place = {"role": "main", "run": 0, "tensor": "fc1.weight", "worker": "", "step": 0}
    everything = {"axes": [], "fixed": [], "rows": [0, 32], "cols": [0, 48], "pool": "mean"}
    _, packets = page.ask("tile", **place, **everything, size=[9, 9])
    assert (packets[0][0]["axes"], packets[0][0]["fixed"]) == ([0, 1], [0, 0])


def test_closed_widget_leaves_no_model(run: Path) -> None:
    from ipywidgets.widgets.widget import _instances

    before = set(_instances)
    smdwidgets.explore(run).close()
    assert set(_instances) == before


@pytest.mark.parametrize("shape", [(1024, 1024), (1000, 999), (7, 300_000)])
def test_sampled_percentiles_are_accurate(shape: tuple[int, ...]) -> None:
    # The columns have very different values, so a sample that favors some columns would be far off.
    value = np.random.default_rng(0).normal(size=shape) + np.arange(shape[1]) % 64
    chosen = even_sample(value)
    assert 50_000 < chosen.size <= 1 << 16
    for q in PERCENTILES:
        rank = (value < np.percentile(chosen, q)).mean() * 100
        assert rank == pytest.approx(q, abs=1)


def test_compared_tensors_share_bins(run: Path, tmp_path: Path) -> None:
    """The tensors differ in range and steps; one exceeds the bins during the training."""
    other = begin(tmp_path / "other")
    for step in (0, 5):
        save(other, step, {"fc1.weight": 40 * weights(step)})
    widget = smdwidgets.explore([run, other])
    page = Page(widget)
    over = [{"run": 0, "worker": ""}, {"run": 1, "worker": ""}]
    want = {**WANT, "hist": {"scale": "linear", "bins": 64, "edges": "shared", "over": over}}

    def asked(role: str, number: int) -> list[Any]:
        question = {"role": role, "run": number, "tensor": "fc1.weight", "worker": "", "near": 0, "want": want}
        return [packet for packet in page.ask("frames", **question)[1] if packet[0]["kind"] == "frames"]

    packets = asked("main", 0) + asked("compare", 1)
    assert all(head["hist"]["over"] == over for head, _ in packets)
    edges = packets[0][1]["edges"]
    assert all(np.array_equal(arrays["edges"], edges) for _, arrays in packets)
    assert edges[0] <= 40 * weights(5).min() <= 40 * weights(5).max() <= edges[-1]

    def newest() -> dict[int, Any]:
        frames = [packet for packet in page.updates if packet[0]["kind"] == "frames"]
        return {head["run"]: (head["edition"], arrays["edges"]) for head, arrays in frames if "hist" in head}

    save(other, 10, {"fc1.weight": 4000 * weights(10)})
    deadline = time.monotonic() + 30
    while not (len(newest()) == 2 and {edition for edition, _ in newest().values()} == {2}):
        assert time.monotonic() < deadline, newest()
        widget.request_handler.poll()
    (_, first), (_, second) = newest().values()
    assert np.array_equal(first, second)
    assert first[-1] >= 4000 * weights(10).max()
    widget.close()


def test_recomputed_frames_are_streamed(tmp_path: Path) -> None:
    """Recomputing the frames of a long run does not keep all of them in memory."""
    root = begin(tmp_path / "run")
    for step in range(400):
        save(root, step, {"x": np.full(4000, step % 7, np.float32)})
    trial = smdwidgets.create_trial(root)
    wanted = Wanted.from_json({"hist": {"bins": 16}, "image": {"cells": 4000}})
    view = TensorView(trial, "x")
    stream = FrameStream(view, {"run": 0, "tensor": "x", "worker": ""}, wanted, Bins([view], "linear", 16))
    assert sum(1 for _ in stream.run(-1, None, lambda: False)) > 3
    assert list(stream.updates()) == []
    save(root, 400, {"x": np.full(4000, 1000, np.float32)})
    trial.refresh_data()
    news = stream.updates()
    sizes, steps = [], []
    for packet in news:
        head, arrays = unpack(packet)
        assert head["edition"] == 2
        sizes.append(len(packet))
        steps += arrays["step"].tolist()
    assert steps == list(range(401))
    assert max(sizes) < LARGEST
    assert len(sizes) > 3
    assert list(stream.updates()) == []
    trial.close()


def test_unsent_steps() -> None:
    sent = SentState(0)
    assert sent.unsent_steps([]) == []
    sent.mark_sent(sent.unsent_steps([2, 5]))
    assert sent.unsent_steps([2, 5, 9]) == [9]
    sent.mark_sent([9])
    assert sent.unsent_steps([2, 3, 5, 9, 11]) == [3, 11]  # step 3 was added late
    sent.mark_sent([3, 11])
    assert sent.unsent_steps([3, 5, 9, 11, 12]) == [12]  # step 2 was removed


def test_long_names_with_the_same_beginning_are_different_tensors(tmp_path: Path) -> None:
    names = ["w" * 3000 + end for end in ("a", "b", "c")]
    root = begin(tmp_path / "long")
    save(root, 0, {name: np.full((2, 2), i, np.float32) for i, name in enumerate(names)})
    widget = smdwidgets.explore(end(root))
    page = Page(widget)
    _, packets = page.ask("hello", protocol=1, again=False)
    shown = packets[0][0]["tensors"]
    assert len(set(shown)) == 3
    assert max(map(len, shown)) <= 2000
    means = [page.frames(name, want=WANT)[0]["stats"][2] for name in shown]
    assert means == [0, 1, 2]
    widget.close()


def test_a_run_has_the_same_colour_in_all_widgets(tmp_path: Path) -> None:
    runs = []
    for name in "abc":
        root = begin(tmp_path / name)
        save(root, 0, {"loss": np.float32(1)})
        runs.append(end(root))

    def colours(*shown: Path) -> dict[str, int]:
        widget = smdwidgets.ScalarPanel(list(shown), regex="loss")
        _, packets = Page(widget).ask("hello", protocol=1, again=True)
        widget.close()
        return {head["name"]: head["colour"] for head, _ in packets if head["kind"] == "catalog"}

    first = colours(runs[0], runs[1])
    assert first["a"] != first["b"]
    assert colours(runs[1], runs[0]) == first
    three = colours(runs[2], runs[1], runs[0])
    assert {name: three[name] for name in "ab"} == first
    assert len(set(three.values())) == 3
    assert colours(runs[1]) == {"b": first["b"]}


def test_few_frames_of_a_long_run(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    for step in range(60):
        save(root, step, {"w": weights(step)})
    widget = smdwidgets.TensorInspector(end(root), tensor="w")
    page = Page(widget)
    of_w = {"role": "main", "run": 0, "tensor": "w", "worker": ""}
    near = page.frames("w", want=WANT, most=5)
    assert set(near) == {0, 15, 30, 44, 59}
    zoomed = page.ask("frames", **of_w, near=33, want=WANT, most=4, **{"from": 20.0, "to": 50.0})[1]
    assert set(by_step(zoomed)) == {20, 30, 33, 40, 50}
    exact = page.ask("frames", **of_w, near=37, want=WANT, steps=[37.0])[1]
    assert set(by_step(exact)) == {37}
    widget.close()


def test_the_first_finding_of_a_rule_is_sent_with_the_latest(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        for _ in range(15):
            for number in range(25):
                hook.save_tensor(f"w{number}", np.full(4, np.nan, np.float32), "weights")
            hook.step()
    widget = smdwidgets.RulePanel(tmp_path / "run", ["ExplodingTensor"])
    page = Page(widget)
    assert widget.rules.wait(30)
    _, packets = page.ask("hello", protocol=1, again=False)
    [rule] = [rule for head, _ in packets if head["kind"] == "rules" for rule in head["rules"]]
    steps = [finding["step"] for finding in rule["firings"]]
    assert rule["firings_total"] == 15
    assert (len(steps), steps[0], steps[-1]) == (200, 0, 14)
