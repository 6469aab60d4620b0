"""Steps of which only a sample was kept, in a page, live and saved, and in plots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import Page
from smdwidgets.exceptions import StepDeleted
from smdwidgets.hooks.capture.elements import LARGEST_SAMPLE
from smdwidgets.numpy import Hook
from smdwidgets.pictures import unpack
from smdwidgets.widgets.page_content import page_content

BROKEN, SHAPE = 8, (200, 512)
WANT = {
    "stats": True,
    "update": True,
    "hist": {"scale": "linear", "bins": 32, "edges": "shared"},
    "image": {"axes": [], "fixed": [], "pool": "maxabs", "cells": 256},
    "percentiles": True,
}


def weight(step: int) -> Any:
    value = np.random.default_rng(step).normal(step, 1, SHAPE).astype(np.float32)
    if step == BROKEN:
        value[3, 5] = np.nan  # one element, which the sample does not meet
    return value


def write(hook: Hook, steps: range) -> None:
    for step in steps:
        hook.save_tensor("w", weight(step), "weights")
        hook.save_tensor("large", np.random.default_rng(step).normal(size=(600, 1024)).astype(np.float32), "weights")
        hook.step()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("samples") / "run"
    with Hook(path, plan={"budget": "4MB"}) as hook:
        write(hook, range(40))
    return path


@pytest.fixture
def widget(run: Path) -> Iterator[Any]:
    explorer = smdwidgets.explore(run)
    yield explorer
    explorer.close()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def frames_of(packets: list[Any], tensor: str = "w") -> dict[int, dict[str, Any]]:
    by_step: dict[int, dict[str, Any]] = {}
    for head, arrays in packets:
        if head["kind"] == "frames" and head["tensor"] == tensor:
            for i, step in enumerate(arrays["step"]):
                rows = {
                    name: array if name == "edges" and array.ndim == 1 else array[i] for name, array in arrays.items()
                }
                by_step.setdefault(int(step), {}).update(rows, errors=head["errors"])
    return by_step


def kept(run: Path) -> tuple[list[int], list[int]]:
    with smdwidgets.create_trial(run) as trial:
        w = trial.tensor("w")
        return w.steps_with_value(), sorted({*w.sample_steps()} - {*w.steps_with_value()})


def request(page: Page, tensor: str = "w") -> dict[int, dict[str, Any]]:
    _, packets = page.ask("frames", role="main", run=0, tensor=tensor, worker="", near=-1, want=WANT)
    return frames_of(packets, tensor)


def test_frames_of_samples_estimate_the_whole(run: Path, widget: Any) -> None:
    whole, sampled = kept(run)
    assert len(sampled) > 2
    by_step = request(Page(widget))
    assert sorted(by_step) == sorted([*whole, *sampled])
    for step, frame in by_step.items():
        value = weight(step).astype(np.float64)
        finite = value[np.isfinite(value)]
        elements, estimated = frame.get("sampled", (0, 0))
        assert not frame["errors"]
        assert tuple(frame["shapes"]) == SHAPE
        assert frame["counts"][:2].tolist() == [value.size, np.isnan(value).sum()]
        assert (0 < elements <= LARGEST_SAMPLE) == (step in sampled)
        assert not estimated  # the statistics that were recorded are those of all elements
        if step == BROKEN:
            assert np.isnan(frame["stats"][0])
            continue
        np.testing.assert_allclose(frame["stats"][:3], [value.min(), value.max(), value.mean()], rtol=1e-5)
        q = np.array([1, 5, 25, 50, 75, 95, 99])
        np.testing.assert_allclose(frame["percentiles"], np.percentile(finite, q), atol=0.25)
        real, _ = np.histogram(value, frame["edges"])
        # Counts are scaled to the whole tensor, so that the heights of steps compare.
        assert frame["hist"].sum() + frame["hist_out"].sum() == pytest.approx(value.size, rel=1e-3)
        assert np.abs(frame["hist"] / value.size - real / value.size).max() < 0.05


def test_a_nan_that_the_sample_missed_is_counted(run: Path, widget: Any) -> None:
    assert BROKEN in kept(run)[1]
    frame = request(Page(widget))[BROKEN]
    assert frame["counts"].tolist() == [weight(0).size, 1, 0, 0, 0]


def test_the_page_knows_steps_and_tensors_that_have_samples_only(run: Path, widget: Any) -> None:
    with smdwidgets.create_trial(run) as trial:
        assert trial.tensor_names() == ["w"]
        assert not {*kept(run)[1]} & {*trial.steps()}
        assert trial.tensor("large").sample_steps() == trial.tensor("w").sample_steps()
    page = Page(widget)
    _, packets = page.ask("hello", protocol=1, again=False)
    names: list[str] = []
    steps: list[int] = []
    weights: set[int] = set()
    for head, arrays in packets:
        if head["kind"] == "catalog" and "tensors" in head:
            weights |= {*head["collections"].get("weights", [])}
            names += head["tensors"]
            steps += arrays["step"].tolist()
    assert {"w", "large"} <= {*names}
    assert {names.index("w"), names.index("large")} <= weights
    assert {*kept(run)[1]} <= {*steps}
    _, packets = page.ask("frames", role="main", run=0, tensor="large", worker="", near=-1, want=WANT)
    plan = next(head for head, _ in packets if head["kind"] == "plan")
    assert (plan["dtype"], plan["shape"], plan["reduced"], plan["workers"]) == (
        "float32", [600, 1024], False, ["worker_0"],
    )  # fmt: skip
    by_step = frames_of(packets, "large")
    assert by_step
    assert all(0 < frame["sampled"][0] <= LARGEST_SAMPLE and frame["hist"].any() for frame in by_step.values())


def test_the_change_is_that_since_the_value_before(run: Path, widget: Any) -> None:
    whole, _ = kept(run)
    frame = request(Page(widget))[whole[-1]]
    before, now = (weight(step).astype(np.float64) for step in whole[-2:])
    assert frame["update"] == pytest.approx(np.linalg.norm(now - before) / np.linalg.norm(before), rel=1e-5)


def test_a_saved_page_has_the_samples(run: Path, widget: Any) -> None:
    widget.tensor = "large"
    by_step = frames_of([unpack(packet) for packet in page_content(widget, ["large"], 20_000_000).packets], "large")
    assert any(frame.get("sampled", (0, 0))[0] > 0 and frame["hist"].any() for frame in by_step.values())


def test_new_samples_are_pushed(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", plan={"budget": "4MB"}, flush_seconds=0.05) as hook:
        write(hook, range(20))
        explorer = smdwidgets.explore(smdwidgets.create_trial(tmp_path / "run", wait=60))
        page = Page(explorer)
        page.ask("hello", protocol=1, again=False)
        before = request(page, "large")
        write(hook, range(20, 40))
        until(lambda: max(frames_of(page.updates, "large"), default=-1) > max(before, default=-1))
        explorer.close()


def test_a_plot_says_that_it_shows_a_sample(run: Path) -> None:
    with smdwidgets.create_trial(run) as trial:
        w = trial.tensor("w")
        deleted = kept(run)[1][0]
        with pytest.raises(StepDeleted):
            w.value(deleted)
        axes = w.plot.histogram(deleted)
        assert axes.get_title().endswith("elements)")
        assert "a sample of" in axes.get_title()
        assert "a sample of" not in w.plot.histogram(w.steps_with_value()[-1]).get_title()
