"""Requests of two values: their difference, and single cells over steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.trials import runs
from python.widgets.protocol_checks import check_packet
from python.widgets.talk import Page
from smdwidgets import _core
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.pictures.differences import STATISTICS
from smdwidgets.widgets.protocol import SCHEMA, check_request

IMAGE = {"axes": [0, 1], "fixed": [0, 0], "cells": 4096}
WANT = {"bins": 16, "changed": 12, "image": IMAGE}


def weights(step: int) -> np.ndarray[Any, Any]:
    value = np.random.default_rng(step).normal(size=(20, 30)).astype(np.float32)
    if step >= 20:
        value[10, 3] = np.nan
    return value


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs; the second is shorter, and lacks a tensor."""
    made = []
    for number, name in enumerate(("a", "b")):
        root = runs.collections(tmp_path_factory.mktemp("runs") / name)
        for step in range(0, 40 if number == 0 else 20, 10):
            values: dict[str, Any] = {
                "w": weights(step) + number,
                "conv": np.arange(2 * 3 * 4, dtype=np.int64).reshape(2, 3, 4) * step,
                "z": np.full((2, 2), complex(step, 1)),
                "words": np.array(["a", "b"]),
                "shape": np.zeros((step // 10 + 1, 2)),
            }
            if number == 0 and step < 30:
                values["gone"] = np.full(3, step, np.float32)
            runs.step(root, step, values)
        with _core.StepWriter(root, 50, "worker_0", 4) as writer:
            writer.tensor(_core.reduction_name("mean", False, "w"), np.float32(0.5))
        made.append(runs.end(root))
    return made


@pytest.fixture
def page(paths: list[Path]) -> Iterator[Page]:
    widget = smdwidgets.TensorInspector([smdwidgets.create_trial(path) for path in paths], tensor="w")
    yield Page(widget)
    widget.close()


def at(step: int, tensor: str = "w", run: int = 0, worker: str = "") -> dict[str, Any]:
    return {"run": run, "tensor": tensor, "worker": worker, "step": step}


def ask_diff(page: Page, a: dict[str, Any], b: dict[str, Any], want: dict[str, Any] = WANT) -> Any:
    check_request({"what": "diff", "a": a, "b": b, "want": want}, exact=True)
    message, blocks = page.ask("diff", a=a, b=b, want=want)
    for head, arrays in blocks:
        check_packet(head, arrays)
    return message, blocks


def test_a_difference_is_numpys(page: Page) -> None:
    message, [(head, arrays)] = ask_diff(page, at(20), at(10))
    assert message["kind"] == "answer"
    assert (head["a"], head["b"], head["shape"]) == (at(20), at(10), [20, 30])
    wanted = weights(20).astype(np.float64) - weights(10)
    finite = wanted[np.isfinite(wanted)]
    statistics = dict(zip(STATISTICS, arrays["statistics"], strict=True))
    assert list(STATISTICS) == SCHEMA["constants"]["DIFFERENCE_STATISTICS"]["value"]
    assert (statistics["count"], statistics["changed"], statistics["nan"]) == (600, 600, 1)
    assert statistics["max"] == finite.max()
    assert statistics["std"] == pytest.approx(finite.std())
    assert arrays["hist"].sum() == len(finite)
    low, high = arrays["image_range"]
    codes = arrays["image"]
    assert codes.shape == (20, 30)
    assert codes[10, 3] == 255
    shown = low + codes.astype(float) / 252 * (high - low)
    np.testing.assert_allclose(shown[codes < 253], finite, atol=(high - low) / 252)
    order = np.argsort(-np.where(np.isfinite(wanted), np.abs(wanted), np.inf).reshape(-1), kind="stable")[:12]
    assert arrays["index"].tolist() == [[int(at) // 30, int(at) % 30] for at in order]
    np.testing.assert_array_equal(arrays["a"], weights(20).reshape(-1)[order])
    np.testing.assert_array_equal(arrays["b"], weights(10).reshape(-1)[order])


def test_a_region_another_run_and_other_tensors(page: Page) -> None:
    image = {**IMAGE, "rows": [5, 10], "cols": [0, 4]}
    _, [(head, arrays)] = ask_diff(page, at(10), at(10, run=1), {**WANT, "image": image, "bins": 0})
    assert head["image"] == {"axes": [0, 1], "fixed": [0, 0], "rows": [5, 10], "cols": [0, 4], "shape": [20, 30]}
    assert arrays["image"].shape == (5, 4)
    assert "hist" not in arrays
    np.testing.assert_allclose(arrays["statistics"][STATISTICS.index("mean")], -1, atol=1e-6)
    image = {"axes": [2, 0], "fixed": [0, 1, 0], "cells": 100}
    _, [(head, arrays)] = ask_diff(page, at(20, "conv"), at(10, "conv"), {**WANT, "image": image, "changed": 2})
    assert head["image"]["shape"] == [4, 2]
    assert arrays["index"].tolist() == [[1, 2, 3], [1, 2, 2]]
    assert arrays["a"].tolist() == [460, 440]
    _, [(head, arrays)] = ask_diff(page, at(20, "z"), at(10, "z"))
    assert arrays["statistics"][STATISTICS.index("max")] == 10
    _, [(_, arrays)] = ask_diff(page, at(0), at(0), {"bins": 0, "changed": 99, "image": None})
    assert arrays["index"].shape == (0, 2)
    assert "image" not in arrays
    _, [(_, arrays)] = ask_diff(page, at(10), at(0), {"bins": 0, "changed": 99, "image": None})
    assert arrays["index"].shape == (64, 2)


@pytest.mark.parametrize(
    ("a", "b", "kind", "message"),
    [
        (at(10, "shape"), at(0, "shape"), "SMDebugValueError", "shapes (1, 2) and (2, 2) differ"),
        (at(10, "words"), at(0, "words"), "SMDebugTypeError", "is not numeric"),
        (at(30, "gone"), at(0, "gone"), "TensorUnavailableForStep", "gone"),
        (at(50), at(0), "TensorUnavailableForStep", "reductions"),
        (at(30), at(30, run=1), "StepUnavailable", "30"),
        (at(10, "gone"), at(10, "gone", 1), "TensorUnavailable", "gone"),
        (at(10), at(10, worker="worker_9"), "InvalidWorker", "worker_9"),
        (at(10), at(10, run=7), "ValueError", "run index 7"),
    ],
)
def test_what_cannot_be_subtracted_is_said(
    page: Page, a: dict[str, Any], b: dict[str, Any], kind: str, message: str
) -> None:
    answer, _ = ask_diff(page, a, b)
    assert answer["kind"] == "error"
    assert answer["error"]["type"] == kind
    assert message in answer["error"]["message"]


def ask_life(page: Page, cells: list[list[int]], near: int = 20, tensor: str = "w") -> Any:
    about = {"run": 0, "tensor": tensor, "worker": ""}
    message, blocks = page.ask("life", **about, near=near, cells=cells)
    for head, arrays in blocks:
        check_packet(head, arrays)
        assert {name: head[name] for name in about} == about
    step = np.concatenate([arrays["step"] for _, arrays in blocks]) if blocks else np.array([])
    y = np.concatenate([arrays["y"] for _, arrays in blocks]) if blocks else np.array([])
    return message, step, y


def test_cells_over_steps(page: Page) -> None:
    cells = [[10, 3], [0, 0], [19, 29]]
    message, step, y = ask_life(page, cells)
    assert message["kind"] == "answer"
    assert step.tolist() == [20, 10, 30, 0]  # nearest first; step 50 has only a reduction
    np.testing.assert_array_equal(y, [[weights(int(at))[tuple(cell)] for cell in cells] for at in step])
    # A tensor whose shape changes, that is text, or complex.
    assert ask_life(page, [[1, 0]], tensor="shape")[1].tolist() == [20, 10, 30]
    assert ask_life(page, [[0]], tensor="words")[1].tolist() == []
    assert ask_life(page, [[1, 1]], tensor="z")[2][:, 0].tolist() == [abs(complex(at, 1)) for at in (20, 10, 30, 0)]


def test_cells_are_read_at_a_bounded_number_of_steps(tmp_path: Path) -> None:
    runs.run(tmp_path, range(1000))
    widget = smdwidgets.TensorInspector(smdwidgets.create_trial(tmp_path), tensor="x")
    _, step, y = ask_life(Page(widget), [[2]], 333, "x")
    widget.close()
    assert 500 <= len(step) <= 513
    assert step[0] == 333
    assert {0, 999} <= set(step)
    np.testing.assert_array_equal(y[:, 0], step)


@pytest.mark.parametrize("cells", [[], [[0, 0]] * 9, [[0, 0], [1]], [[-1, 0]]])
def test_invalid_cells(page: Page, cells: list[list[int]]) -> None:
    message, _, _ = ask_life(page, cells)
    assert message["error"]["type"] == "SMDebugValueError"
    assert "cells" in message["error"]["message"]


def test_the_widgets_difference(paths: list[Path]) -> None:
    trials = [smdwidgets.create_trial(path) for path in paths]
    widget = smdwidgets.explore(trials, tensor="w", step=25)
    with pytest.raises(SMDebugValueError, match="nothing to compare"):
        widget.difference()
    widget.compare = {"offset": -1}
    assert (widget.difference().a.step, widget.difference().b.step) == (20, 10)
    widget.compare = {"step": 15}
    assert widget.difference().b.step == 10
    widget.compare = {"run": 1, "step": 30}
    found = widget.difference()
    assert (found.a.step, found.b.step, found.b.run) == (20, 10, str(paths[1]))
    widget.compare = {"tensor": "conv"}
    with pytest.raises(SMDebugValueError, match="shapes"):
        widget.difference()
    widget.compare = {"offset": -9}
    with pytest.raises(SMDebugValueError, match="no saved step"):
        widget.difference()
    widget.compare = {"run": 4}
    with pytest.raises(SMDebugValueError, match="run 4"):
        widget.difference()
    widget.tensor = ""
    with pytest.raises(SMDebugTypeError, match="no tensor"):
        widget.difference()
    widget.close()


def test_bins_are_shared_with_another_tensor(page: Page) -> None:
    over = [{"run": 0, "worker": "", "tensor": "w"}, {"run": 0, "worker": "", "tensor": "gone"}]
    want = {
        "stats": True,
        "update": False,
        "hist": {"scale": "linear", "bins": 16, "edges": "shared", "over": over},
        "image": None,
        "percentiles": False,
    }
    edges = []
    for tensor in ("w", "gone"):
        _, blocks = page.ask("frames", role="main", run=0, tensor=tensor, worker="", near=0, want=want)
        frames = [(head, arrays) for head, arrays in blocks if head["kind"] == "frames" and "edges" in arrays]
        assert frames[0][0]["hist"]["over"] == over
        edges.append(frames[0][1]["edges"])
    np.testing.assert_array_equal(edges[0], edges[1])
    assert edges[0][-1] >= 20
