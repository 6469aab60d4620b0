"""Queries on runs of every kind, compared with NumPy."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from python.logs.logs import writer
from python.queries.vectors import VECTORS
from python.sources.test_safetensors import save as checkpoint
from python.survey import runs
from python.trials.runs import collections
from python.trials.runs import end as mark_end
from python.trials.test_shards import slabs, write
from python.widgets.talk import begin, end, save
from smdwidgets.exceptions import InvalidWorker, QueryError
from smdwidgets.naming.tensors import model_order
from smdwidgets.numpy import Hook
from smdwidgets.survey import Survey

STEPS = 12
RNG = np.random.default_rng(7)
#: By name, the values at each step; None: not saved.
SAVED = {
    "layers.10.q_proj.weight": [RNG.normal(0, 1 + step, (8, 4)) for step in range(STEPS)],
    "layers.2.q_proj.weight": [RNG.normal(0, 1, (4, 4)) for _ in range(STEPS)],
    "layers.2.bias": [np.zeros(4) if step < 6 else np.ones(4) for step in range(STEPS)],
    "gradient/layers.2.bias": [None if step % 3 else RNG.normal(0, 0.01, 4) for step in range(STEPS)],
    "bad": [
        np.array([1.0, 2.0] if step < 5 else [np.nan, 3.0] if step < 9 else [np.inf, np.nan]) for step in range(STEPS)
    ],
    "loss": [np.float32(5 - step / 4) for step in range(STEPS)],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queries") / "run"
    with Hook(path) as hook:
        for step in range(STEPS):
            for name, values in SAVED.items():
                if values[step] is not None:
                    collection = "losses" if name == "loss" else "weights" if name.endswith("weight") else "others"
                    hook.save_tensor(name, values[step], collection)
            hook.save_tensor("note", "text", "others")
            hook.step()
    return path


def sizes(name: str, steps: range = range(STEPS)) -> np.ndarray:
    """Return the root mean square of the finite elements at each saved step."""
    found = []
    for value in [SAVED[name][step] for step in steps]:
        if value is not None:
            finite = np.atleast_1d(value)[np.isfinite(np.atleast_1d(value))]
            found.append(np.sqrt(np.mean(finite.astype(np.float64) ** 2)) if len(finite) else np.nan)
    return np.array(found)


def test_columns_agree_with_numpy(run: Path) -> None:
    found = smdwidgets.query(run, "")
    assert found.columns == ["name", "first", "last", "worst", "change"]
    assert found.names == [
        "bad",
        "layers.2.q_proj.weight",
        "gradient/layers.2.bias",
        "layers.2.bias",
        "layers.10.q_proj.weight",
        "note",
        "loss",
    ]
    for at, name in enumerate(found.names):
        if name == "note":
            assert all(np.isnan(found[key][at]) for key in ("first", "last", "worst", "change"))
            continue
        expected = sizes(name)
        known = expected[~np.isnan(expected)]
        with np.errstate(divide="ignore"):
            change = known.max() / known.min()
        got = [found[key][at] for key in ("first", "last", "change")]
        np.testing.assert_allclose(got, [expected[0], expected[-1], change], rtol=1e-6)
        assert np.isclose(known, found["worst"][at], rtol=1e-6).any()


def test_every_statistic_agrees_with_numpy(run: Path) -> None:
    name = "layers.10.q_proj.weight"
    values = [value.astype(np.float64).ravel() for value in SAVED[name]]
    norms = [np.linalg.norm(value) for value in values]
    updates = [np.linalg.norm(b - a) / np.linalg.norm(b) for a, b in pairwise(values)]
    expected = {
        "size": max(norm / np.sqrt(32) for norm in norms),
        "l2": max(norms),
        "update": max(updates),
        "zeros": 0,
        "nonfinite": 0,
        "mean": max(value.mean() for value in values),
        "std": max(value.std() for value in values),
        "min": min(value.min() for value in values),
        "max": max(value.max() for value in values),
    }
    text = f'"{name}"' + "".join(f" | {key} != nan" for key in expected)
    found = smdwidgets.query(run, text)
    assert found.names == [name]
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], [value], rtol=1e-5, err_msg=key)


def test_surprise_is_that_of_the_run_map(tmp_path: Path) -> None:
    root = runs.written(tmp_path / "run", runs.dead, steps=100)
    survey = Survey(smdwidgets.create_trial(root))
    survey.update()
    found = smdwidgets.query(root, "| surprise")
    for name, worst in zip(found.names, found["worst"].tolist(), strict=True):
        bins = survey.bins([name], "", 0, "surprise", 0, 0, 100)
        known = np.abs(bins.hi[~np.isnan(bins.hi)])
        assert (np.isnan(worst) and not len(known)) or worst == known.max(), name
    last = smdwidgets.query(root, "| surprise | steps 90 .. 99")["worst"]
    assert (last[~np.isnan(last)] <= found["worst"][~np.isnan(last)]).all()


def test_not_finite_values(run: Path) -> None:
    found = smdwidgets.query(run, "| nonfinite > 0")
    assert (found.names, found["nonfinite"].tolist()) == (["bad"], [1.0])
    assert smdwidgets.query(run, "| last = nan").names == ["bad", "note"]
    assert smdwidgets.query(run, "| steps 0 .. 4 | nonfinite > 0").names == []
    assert smdwidgets.query(run, "| steps 5 .. 8 | nonfinite | first = .5").names == ["bad"]


def test_a_range_of_steps(run: Path) -> None:
    found = smdwidgets.query(run, "layers* | steps 3 .. 5 | sort by name")
    expected = [sizes(name, range(3, 6)) for name in found.names]
    np.testing.assert_allclose(found["first"], [value[0] for value in expected], rtol=1e-6)
    np.testing.assert_allclose(found["last"], [value[-1] for value in expected], rtol=1e-6)
    assert found.steps == (3, 5)
    # The change since the step before the range is known.
    updates = smdwidgets.query(run, "layers.10* | update | steps 3 .. 3")["first"]
    assert updates.tolist() == smdwidgets.query(run, "layers.10* | update | steps 2 .. 3")["last"].tolist()


def test_collections_and_errors(run: Path) -> None:
    assert smdwidgets.query(run, "@weights").names == ["layers.2.q_proj.weight", "layers.10.q_proj.weight"]
    with pytest.raises(QueryError, match=r"Unknown collection 'wieghts'\. Did you mean 'weights'\?"):
        smdwidgets.query(run, "@wieghts")
    with pytest.raises(InvalidWorker):
        smdwidgets.query(run, "", worker="worker_9")


def test_only_selected_tensors_are_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = smdwidgets.create_trial(run)
    asked: list[tuple[list[str], list[int] | None]] = []
    original = type(trial).statistics

    def statistics(self, names, steps, *args, **kwargs):
        asked.append((names, steps))
        return original(self, names, steps, *args, **kwargs)

    monkeypatch.setattr(type(trial), "statistics", statistics)
    smdwidgets.query(trial, "loss | steps 3 .. 4 | change > 0 | l2 > 0")
    assert asked == [(["loss"], [3, 4])]


def test_the_result_is_shown_as_text_and_html(run: Path) -> None:
    found = smdwidgets.query(run, "q_proj | l2 | top 1 by change | steps 0 .. 9 | as curves")
    assert repr(found).splitlines()[0] == (
        "1 of 7 tensors, l2, steps 0 to 9: q_proj | l2 | top 1 by change | steps 0 .. 9 | as curves"
    )
    assert repr(found).splitlines()[1].split() == found.columns
    assert found._repr_html_().count("<tr>") == 2
    assert (found.view, found.statistic, found.total) == ("curves", "l2", 7)
    assert repr(smdwidgets.query(run, "change < 0")) == "0 of 7 tensors, size: change < 0"
    frame = found.to_pandas()
    assert (frame["name"].tolist(), list(frame)) == (found.names, found.columns)
    hostile = smdwidgets.query(run, 'name != "<b>\u202e"')
    assert "<b>" not in hostile._repr_html_()
    assert "\u202e" not in hostile._repr_html_() + repr(hostile)


def test_logs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with writer(tmp_path / "log") as out:
        for step in range(20):
            out.add_scalar("train/loss", np.nan if step >= 15 else 2 / (1 + step), step)
            if step % 5 == 0:
                out.add_histogram("layers.0.weight", rng.normal(0, 2, 1000), step)
                out.add_text("note", "text", step)
    found = smdwidgets.query(tmp_path / "log", "| sort by name")
    assert found.names == ["layers.0.weight", "note/text_summary", "train/loss"]
    rows = dict(zip(found.names, found["first"].tolist(), strict=True))
    assert rows["train/loss"] == 2
    assert rows["layers.0.weight"] == pytest.approx(2, rel=0.1)
    assert np.isnan(rows["note/text_summary"])
    assert smdwidgets.query(tmp_path / "log", "| last = nan | change > 10").names == ["train/loss"]


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss,acc\n0,4,0.5\n10,2,0.5\n20,1,0.75\n")
    found = smdwidgets.query(tmp_path, "| top 1 by change")
    assert found.names == ["loss"]
    assert [found[key][0] for key in ("first", "last", "worst", "change")] == [4, 1, 4, 4]


def test_a_running_run_without_a_step(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    assert smdwidgets.query(root, "| top 3 by change").names == []
    save(root, 0, {"w": np.ones(3, np.float32)})
    assert smdwidgets.query(end(root), "| top 3 by change").names == ["w"]


def test_model_order() -> None:
    names = [
        "model.layers.10.w",
        "model.layers.9.w",
        "gradient/model.layers.9.w",
        "lm_head",
        "loss",
        "model.layers.9.b",
    ]
    order = [names[at] for at in model_order(names, {"losses": [4], "weights": [0, 1, 5]})]
    assert order == [
        "model.layers.9.b",
        "model.layers.9.w",
        "gradient/model.layers.9.w",
        "model.layers.10.w",
        "lm_head",
        "loss",
    ]
    table = VECTORS["tables"]["tensors"]
    assert sorted(model_order(table["names"], table["collections"])) == list(range(len(table["names"])))


def test_checkpoints(tmp_path: Path) -> None:
    for step in (5, 10):
        weight = np.arange(6, dtype=np.float32).reshape(2, 3) * step
        checkpoint(tmp_path / f"checkpoint-{step}" / "model.safetensors", weight=weight, bias=np.ones(2, np.float16))
    found = smdwidgets.query(tmp_path, "| l2 | sort by change")
    assert found.names == ["weight", "bias"]
    np.testing.assert_allclose(found["change"], [2, 1])
    np.testing.assert_allclose(found["last"], [np.linalg.norm(np.arange(6) * 10), np.sqrt(2)], rtol=1e-6)
    assert smdwidgets.query(tmp_path, "@biases").names == ["bias"]


def test_shards_are_one_tensor(tmp_path: Path) -> None:
    value = RNG.normal(0, 1, (6, 4)).astype(np.float32)
    for step in range(3):
        write(tmp_path, list(slabs(value * (step + 1), [2, 4])), step)
    collections(tmp_path, 2)
    mark_end(tmp_path)
    found = smdwidgets.query(tmp_path, "w | l2 | max > 0")
    np.testing.assert_allclose(found["first"], [np.linalg.norm(value)], rtol=1e-6)
    np.testing.assert_allclose(found["max"], [value.max() * 3], rtol=1e-6)
    np.testing.assert_allclose(found["change"], [3], rtol=1e-6)
    one = smdwidgets.query(tmp_path, "w | l2", worker="worker_0")
    np.testing.assert_allclose(one["first"], [np.linalg.norm(value[:2])], rtol=1e-6)
    every = smdwidgets.query(tmp_path, "w | max > 0 | surprise", worker="*")
    np.testing.assert_allclose(every["max"], [value.max() * 3], rtol=1e-6)


def test_a_record_that_cannot_be_read_is_an_error_of_the_result(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        for step in range(3):
            hook.save_tensor("w", np.full(100, step + 1.0), "weights")
            hook.step()
    file = next((tmp_path / "run" / "events").rglob("*000000001_*.tfevents"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    # Without the statistics that the training wrote, values are read.
    shutil.rmtree(tmp_path / "run" / "statistics", ignore_errors=True)
    found = smdwidgets.query(tmp_path / "run", "w")
    assert [(error.name, error.step) for error in found.errors] == [("w", 1)]
    assert [found[key][0] for key in ("first", "last", "change")] == [1, 3, 3]
    assert "1 unreadable record" in repr(found)
