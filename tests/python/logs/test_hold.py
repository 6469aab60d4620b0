"""Logs opened with `hold=True`: all values are available without the files."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from python.logs.logs import FILE, accumulated, event, field, log, scalars, strings, tensor, value, writer
from smdwidgets import create_trial, create_trials
from smdwidgets.exceptions import SMDebugError
from smdwidgets.trials import TensorBoardTrial

STEPS = 12


def written(path: Path) -> Path:
    """A log with every kind of value of tensorboardX."""
    rng = np.random.default_rng(0)
    edges = np.linspace(-3, 3, 31)
    with writer(path) as out:
        for step in range(STEPS):
            out.add_scalar("loss", 1 / (step + 1), step)
            out.add_histogram("fixed edges", rng.normal(size=500), step, bins=edges)
            out.add_histogram("moving edges", rng.normal(size=500) * (step + 1), step)
            out.add_image("noise", rng.integers(0, 255, (3, 9, 7), dtype=np.uint8), step)
            out.add_image("always the same", np.zeros((3, 40, 40), np.uint8), step)
            out.add_text("notes", f"step *{step}*", step)
    return path


def newer(path: Path) -> Path:
    """The same in the format of TensorFlow 2, with a custom tensor."""
    rng = np.random.default_rng(1)
    edges = np.linspace(-3, 3, 31)
    png = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (6, 5), dtype=np.uint8)).save(png, "PNG")
    for step in range(STEPS):
        buckets = np.stack([edges[:-1], edges[1:], rng.integers(0, 99, 30)], axis=1)
        log(path, event(value("kernel", tensor(buckets, 2), "histograms"), step), FILE)
        log(path, event(value("large", tensor(rng.normal(size=(40, 40)), 2), "mine"), step), FILE)
        log(path, event(value("picture", strings(b"5", b"6", png.getvalue()), "images"), step), FILE)
    return path


def all_values(trial: TensorBoardTrial) -> dict[str, list[object]]:
    """Read all values in all ways."""
    found: dict[str, list[object]] = {}
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        one_by_one = [tensor.value(step) for step in tensor.steps()]
        for one, other in zip(one_by_one, trial.values(name)["value"], strict=True):
            np.testing.assert_array_equal(one, other)
        found[name] = [(one.dtype, one.tolist()) for one in one_by_one]
        if name != "loss":
            found[name + ", as written"] = [str(event.value) for event in trial.events(name).values()]
    found["histograms"] = [one.tolist() for one in trial.histograms()["value"]]
    return found


def test_every_value_is_available_without_the_files(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    theirs = accumulated(run)
    newer(run)
    with create_trial(run, live=False) as trial, create_trial(run, live=False, hold=True) as held:
        assert isinstance(trial, TensorBoardTrial)
        assert isinstance(held, TensorBoardTrial)
        expected = all_values(trial)
        for file in run.iterdir():
            file.write_bytes(b"\0" * file.stat().st_size)
        assert all_values(held) == expected
        shutil.rmtree(run)
        assert all_values(held) == expected
        for tag, rows in theirs["histograms"].items():
            for step, _, (_, _, num, _, _, limits, counts) in rows:
                fields = held.event(tag, step).value
                assert (fields["num"], fields["limits"].tolist(), fields["counts"].tolist()) == (num, limits, counts)
        for tag, rows in theirs["images"].items():
            assert [step.value["encoded"].hex() for step in held.events(tag).values()] == [row[2] for row in rows]
        with pytest.raises(SMDebugError):
            trial.tensor("kernel").value(1)


def test_new_values_are_added_and_those_of_replaced_files_are_dropped(tmp_path: Path) -> None:
    first, second, third = (event(value("t", tensor(np.full(50, float(at)), 2), "mine"), at) for at in range(3))
    with create_trial(log(tmp_path, first), live=True, hold=True) as trial:
        assert trial.tensor("t").value(0)[7] == 0
        log(tmp_path, second)
        assert trial.tensor("t").steps() == [0, 1]
        (tmp_path / FILE).unlink()
        assert [trial.tensor("t").value(step)[7] for step in (0, 1)] == [0, 1]
        (tmp_path / "new").write_bytes(third)
        (tmp_path / "new").rename(tmp_path / FILE)
        assert trial.tensor("t").steps() == [2]
        assert trial.tensor("t").value(2)[7] == 2


def test_invalid_value_affects_only_its_entry(tmp_path: Path) -> None:
    png = io.BytesIO()
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(png, "PNG")
    images = {1: b"\x89PNG\r\n\x1a\n none", 2: png.getvalue()}
    log(tmp_path, b"".join(event(value("i", field(4, field(4, image))), step) for step, image in images.items()))
    with create_trial(tmp_path, hold=True) as trial:
        assert [failure.step for failure in trial.values("i").errors] == [1]
        assert trial.tensor("i").value(2).shape == (2, 2, 1)


def test_cache_stores_only_scalars(tmp_path: Path) -> None:
    many = scalars({"loss": [float(step) for step in range(40_000)]})
    picture = event(value("t", tensor(np.arange(9.0), 2), "mine"), 1)
    for run, content in (("scalars", many), ("more", many + picture)):
        log(tmp_path / "runs" / run, content)
    for again in (False, True):
        trials = create_trials(tmp_path / "runs", hold=True, cache=tmp_path / "kept")
        read = {}
        for run, trial in trials.items():
            assert isinstance(trial, TensorBoardTrial)
            assert trial.tensor("loss").value(39_999).item() == 39_999
            read[run] = trial.reader.run.log.cached_bytes()
        assert read == {"more": 0, "scalars": len(many) if again else 0}
        assert trials["more"].tensor("t").value(1).tolist() == list(range(9))
        for trial in trials.values():
            trial.close()
