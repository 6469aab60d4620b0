"""Which directories form a run, also if created later; caches; bulk reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from python.logs.logs import FILE, accumulated, log, scalars, writer
from smdwidgets import ModeKeys, _core, create_trial, create_trials, runs
from smdwidgets.exceptions import CorruptDataError
from smdwidgets.trials import TensorBoardTrial


def test_curves_of_add_scalars_belong_to_the_run_of_their_writer(tmp_path: Path) -> None:
    with writer(tmp_path) as out:
        for step in range(5):
            out.add_scalar("lr", 0.1, step)
            out.add_scalars("loss", {"train": step, "validation": step + 1}, step)
            out.add_scalars("deep/er", {"some curve": 2 * step}, step)
    with create_trial(tmp_path) as trial:
        assert isinstance(trial, TensorBoardTrial)
        assert trial.tensor_names() == ["deep/er/some curve", "loss/train", "loss/validation", "lr"]
        assert trial.steps() == [0, 1, 2, 3, 4]
        assert trial.workers() == ["worker_0"]
        assert [trial.tensor(name).value(3).item() for name in ("loss/train", "loss/validation")] == [3, 4]
        assert trial.tensor_names(collection="losses") == ["loss/train", "loss/validation"]
        assert trial.scalars("deep/er/some curve")["value"].tolist() == [0, 2, 4, 6, 8]
    assert list(create_trials(tmp_path)) == [tmp_path.name]


def test_add_scalars_directories_of_pytorch_and_similar_names(tmp_path: Path) -> None:
    log(tmp_path, scalars({"x": [1]}))
    log(tmp_path / "a_loss_train", scalars({"a/loss": [1, 2]}))
    log(tmp_path / "a_loss_val", scalars({"a/loss": [3, 4]}))
    log(tmp_path / "other_run", scalars({"loss": [5]}))
    with create_trial(tmp_path) as trial:
        assert trial.tensor_names() == ["a/loss/train", "a/loss/val", "x"]
    assert list(create_trials(tmp_path)) == [tmp_path.name, "other_run"]


def test_later_directories_are_found(tmp_path: Path) -> None:
    with create_trial(log(tmp_path, scalars({"loss": [1, 2]})), live=True) as trial:
        assert trial.steps() == [0, 1]
        log(tmp_path / "loss_good", scalars({"loss": [7, 8]}))
        assert trial.tensor_names() == ["loss", "loss/good"]
        assert trial.tensor("loss/good").value(1).item() == 8
        # An evaluation: from now on the steps of the modes are distinguished.
        log(tmp_path / "eval", scalars({"loss": [3]}))
        assert trial.modes() == [ModeKeys.TRAIN, ModeKeys.EVAL]
        assert trial.tensor("loss").value(0, ModeKeys.EVAL).item() == 3
        assert trial.tensor("loss").value(1, ModeKeys.TRAIN).item() == 2
        assert trial.tensor("loss/good").value(1, ModeKeys.TRAIN).item() == 8


def test_later_directory_with_another_name_is_a_mode(tmp_path: Path) -> None:
    log(tmp_path / "run" / "Train", scalars({"loss": [1]}))
    with create_trial(tmp_path / "run", live=True) as trial:
        assert trial.modes() == [ModeKeys.TRAIN]
        log(tmp_path / "run" / "dev", scalars({"loss": [2]}))
        assert trial.modes() == [ModeKeys.TRAIN, ModeKeys.EVAL]
        assert trial.workers() == ["Train", "dev"]


def test_histograms_as_one_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=200) for _ in range(6)]
    with writer(tmp_path) as out:
        for step, value in enumerate(values):
            out.add_histogram("w", value, step, bins=np.linspace(-4, 4, 9))
    theirs = accumulated(tmp_path)["histograms"]["w"]
    with create_trial(tmp_path) as trial:
        assert isinstance(trial, TensorBoardTrial)
        table = trial.histograms()
        assert table["step"].tolist() == [0, 1, 2, 3, 4, 5]
        assert [*table["wall_time"]] == [row[1] for row in theirs]
        assert len(table["value"]) == 6
        for mine, (step, _, (low, high, _, _, _, limits, counts)) in zip(table["value"], theirs, strict=True):
            np.testing.assert_array_equal(mine, trial.tensor("w").value(step))
            assert (mine[0, 0], mine[-1, 1]) == (low, high)
            assert mine[:-1, 1].tolist() == np.clip(limits[:-1], low, high).tolist()
            assert mine[:, 2].tolist() == counts
        # Histograms with equal numbers of buckets are one array; a damaged one is a separate error.
        even = [_histogram(step, 3) for step in range(4)]
        log(tmp_path / "even", b"".join(even))
    with create_trial(tmp_path / "even") as trial:
        assert isinstance(trial, TensorBoardTrial)
        assert trial.histograms("h")["value"].shape == (4, 3, 3)
        assert trial.values("h")["value"].shape == (4, 3, 3)
        path = tmp_path / "even" / FILE
        whole = bytearray(path.read_bytes())
        whole[len(even[0]) + 40] ^= 0xFF
        path.write_bytes(whole)
        # Data that was valid is verified again at every read.
        found = trial.histograms("h")
        assert found["step"].tolist() == [0, 2, 3]
        [failure] = found.errors
        assert failure.step == 1
        assert f"{FILE}, byte {len(even[0])}" in str(failure.error)
        with pytest.raises(CorruptDataError, match=f"{FILE}, byte {len(even[0])}: .*checksum"):
            trial.event("h", 1)
        # Another valid record at the same offset is detected.
        whole[len(even[0]) : len(even[0] + even[1])] = even[3]
        path.write_bytes(whole)
        with pytest.raises(CorruptDataError, match="overwritten"):
            trial.tensor("h").value(1)
        assert trial.tensor("h").value(2)[0, 2] == 2


def _histogram(step: int, buckets: int) -> bytes:
    counts = [float(step + bucket) for bucket in range(buckets)]
    limits = [float(bucket) for bucket in range(buckets)]
    return _core.histogram_record(
        "h", step, 1.0 + step, limits, counts, min=-1, max=9, num=sum(counts), sum=0, sum_squares=0
    )


def test_scanned_logs_are_cached(tmp_path: Path) -> None:
    content = scalars({f"tag{at}": [float(step) for step in range(3000)] for at in range(10)})
    run, cache = log(tmp_path / "run", content), tmp_path / "kept"
    with create_trial(run, cache=cache) as first:
        expected = first.scalars()
        assert first.reader.run.log.cached_bytes() == 0
    [kept] = cache.iterdir()
    assert kept.stat().st_size < len(content) / 2
    with create_trial(run, cache=cache) as second:
        assert second.reader.run.log.cached_bytes() == len(content)
        for name, column in second.scalars().items():
            assert column.tolist() == expected[name].tolist()
    log(run, scalars({"tag0": [-1.0]}, first=3000))
    with create_trial(run, cache=cache) as grown:
        assert grown.reader.run.log.cached_bytes() == len(content)
        assert grown.tensor("tag0").value(3000).item() == -1
    for damage in (b"", b"smdlog\0\1" + b"\xff" * 100, kept.read_bytes()[:-9]):
        kept.write_bytes(damage)
        with create_trial(run, cache=cache) as trial:
            assert trial.reader.run.log.cached_bytes() == 0
            assert len(trial.steps()) == 3001
    shutil.rmtree(cache)
    with create_trial(run, cache=cache) as trial:
        assert len(trial.steps()) == 3001
    # A cache file of another directory is ignored, even with equal content.
    copied = shutil.copytree(run, tmp_path / "copy")
    with create_trial(copied, cache=cache) as trial:
        assert trial.reader.run.log.cached_bytes() == 0


def test_default_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    run = log(tmp_path / "run", scalars({"loss": [float(step) for step in range(30_000)]}))
    with create_trial(run) as trial:
        assert len(trial.steps()) == 30_000
    assert not (tmp_path / "cache").exists(), "nothing is kept unless asked for"
    with create_trial(run, cache=True) as trial:
        assert len(trial.steps()) == 30_000
    assert len(list((tmp_path / "cache" / "smdwidgets" / "logs").iterdir())) == 1
    with create_trial(run, cache=True) as trial:
        assert trial.reader.run.log.cached_bytes() > 0


def test_many_files_are_merged_by_time(tmp_path: Path) -> None:
    for at in range(12):
        log(tmp_path, scalars({"loss": [float(at)] * 10}, first=10 * at), f"events.out.tfevents.{1700000000 + at}.host")
    with create_trial(tmp_path) as trial:
        assert trial.tensor("loss").steps() == list(range(120))
        assert [trial.tensor("loss").value(step).item() for step in (0, 55, 119)] == [0, 5, 11]
    [(_, *_), *_] = theirs = accumulated(tmp_path)["scalars"]["loss"]
    assert len(theirs) == 120


def test_hyperparameters_of_add_hparams_belong_to_the_run_of_their_writer(tmp_path: Path) -> None:
    for number in range(2):
        with writer(tmp_path / f"run_{number}") as out:
            for step in range(3):
                out.add_scalar("accuracy", step / 10, step)
            out.add_hparams({"lr": 0.1 * (number + 1), "name": "adam"}, {"accuracy": 0.9})
    trials = create_trials(tmp_path)
    assert list(trials) == ["run_0", "run_1"]
    for number, trial in enumerate(trials.values()):
        assert isinstance(trial, TensorBoardTrial)
        assert trial.hparams() == {"lr": pytest.approx(0.1 * (number + 1)), "name": "adam"}
        assert trial.tensor("accuracy").steps() == [0, 1, 2]
        assert trial.tensor("accuracy (hparams)").value(0).item() == pytest.approx(0.9)
        assert trial.workers() == ["worker_0"]


def test_several_calls_of_add_hparams_are_separate_runs(tmp_path: Path) -> None:
    with writer(tmp_path) as out:
        out.add_scalar("x", 1.0, 0)
        for number in range(3):
            out.add_hparams({"lr": 0.1 * number}, {"accuracy": 0.9}, name=f"170000000{number}.5")
    assert len(create_trials(tmp_path)) == 4


def test_hyperparameters_that_are_written_later_join_a_live_run(tmp_path: Path) -> None:
    with writer(tmp_path) as out:
        out.add_scalar("x", 1.0, 0)
        out.flush()
        with create_trial(tmp_path, live=True) as trial:
            assert isinstance(trial, TensorBoardTrial)
            assert trial.hparams() == {}
            out.add_hparams({"lr": 0.5}, {"accuracy": 0.9})
            assert trial.hparams() == {"lr": 0.5}


def test_a_nested_run_with_the_name_of_a_time_stays_a_run(tmp_path: Path) -> None:
    log(tmp_path, scalars({"x": [1]}))
    log(tmp_path / "1700000000.5", scalars({"y": [1]}))
    assert list(create_trials(tmp_path)) == [tmp_path.name, "1700000000.5"]


def test_the_mode_of_an_export_is_no_worker(tmp_path: Path) -> None:
    log(tmp_path / "log" / "GLOBAL", scalars({"loss": [1, 2]}))
    (tmp_path / "metrics.csv").write_text("step,acc\n0,1\n")
    with create_trial(tmp_path) as trial:
        assert trial.workers() == ["worker_0"]
    [row] = runs(tmp_path, cache=False)
    assert [row["loss"], row["acc"]] == [2, 1]
