"""Logs as trials: runs, modes, restarts, collections, refreshing and damage."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from python.logs.logs import FILE, event, field, integer, log, scalars, tensor, value, writer
from smdwidgets import ModeKeys, _core, create_trial, create_trials
from smdwidgets.exceptions import CorruptDataError, RunNotFound, SeveralRuns, UnsupportedDataError
from smdwidgets.pictures.overview import status_of
from smdwidgets.storage import LocalStorage
from smdwidgets.trials import LocalTrial, TensorBoardTrial
from smdwidgets.trials.run import SweepOptions
from smdwidgets.trials.tensorboard.run import TensorBoardRun
from smdwidgets.trials.tensorboard.values import image


def steps_and_values(trial: TensorBoardTrial, name: str) -> dict[int, float]:
    return {step: one.item() for step, one in trial.tensor(name).values().items()}


def test_single_run_in_a_subdirectory_is_found(tmp_path: Path) -> None:
    log(tmp_path / "lightning_logs" / "version_0", scalars({"train_loss": [3, 2, 1]}))
    with create_trial(tmp_path) as trial:
        assert trial.name == "version_0"
        assert trial.steps() == [0, 1, 2]
        assert trial.tensor_names() == ["train_loss"]
        assert "version_0" in repr(trial)


def test_several_runs_are_listed(tmp_path: Path) -> None:
    for run in ("a", "b/deep"):
        log(tmp_path / run, scalars({"loss": [1, 2]}))
    with pytest.raises(SeveralRuns, match=r"contains 2 runs: 'a', 'b/deep'.*create_trials"):
        create_trial(tmp_path)
    trials = create_trials(tmp_path)
    assert list(trials) == ["a", "b/deep"]
    assert [trial.tensor("loss").value(1).item() for trial in trials.values()] == [2, 2]
    assert trials["b/deep"].path == str(tmp_path / "b" / "deep")


def test_directory_without_logs_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(RunNotFound):
        create_trial(tmp_path)


def test_run_of_smdebug_is_not_a_tensorboard_log(tmp_path: Path) -> None:
    from smdwidgets.numpy import Hook

    with Hook(tmp_path / "run") as hook:
        hook.save_scalar("loss", 0.5)
        hook.step()
    log(tmp_path / "run" / "tensorboard", scalars({"loss": [1]}))
    assert isinstance(create_trial(tmp_path / "run"), LocalTrial)


def test_keras_directories_are_modes(tmp_path: Path) -> None:
    log(tmp_path / "train", scalars({"epoch_loss": [4, 3, 2]}))
    with create_trial(tmp_path) as trial:
        assert trial.modes() == [ModeKeys.TRAIN]
        # Validation starts only after the first epoch.
        log(tmp_path / "validation", scalars({"epoch_loss": [5, 6]}))
        assert trial.modes() == [ModeKeys.TRAIN, ModeKeys.EVAL]
        assert trial.steps(ModeKeys.TRAIN) == [0, 1, 2]
        assert trial.steps(ModeKeys.EVAL) == [0, 1]
        loss = trial.tensor("epoch_loss")
        assert {step: one.item() for step, one in loss.values(ModeKeys.EVAL).items()} == {0: 5, 1: 6}
        assert loss.value(1, ModeKeys.TRAIN).item() == 3
        assert trial.workers() == ["train", "validation"]
        assert trial.mode(trial.global_step(ModeKeys.EVAL, 1)) == ModeKeys.EVAL
        table = trial.values("epoch_loss")
        assert [*zip(table["mode"], table["mode_step"], table["value"], strict=True)] == [
            ("TRAIN", 0, 4), ("EVAL", 0, 5), ("TRAIN", 1, 3), ("EVAL", 1, 6), ("TRAIN", 2, 2),
        ]  # fmt: skip


def test_two_directories_of_one_mode_are_two_workers(tmp_path: Path) -> None:
    for name, number in (("train", 1), ("test", 2), ("validation", 3)):
        log(tmp_path / name, scalars({"loss": [number]}))
    with create_trial(tmp_path) as trial:
        loss = trial.tensor("loss")
        assert loss.workers(0, ModeKeys.EVAL) == ["test", "validation"]
        assert loss.value(0, ModeKeys.EVAL, worker="validation").item() == 3


def test_evaluations_of_an_estimator_are_below_its_training(tmp_path: Path) -> None:
    log(tmp_path, scalars({"loss": [1, 2]}))
    log(tmp_path / "eval", scalars({"loss": [3]}))
    with create_trial(tmp_path) as trial:
        assert [one.item() for one in trial.tensor("loss").values(ModeKeys.TRAIN).values()] == [1, 2]
        assert [one.item() for one in trial.tensor("loss").values(ModeKeys.EVAL).values()] == [3]


def test_restart_supersedes_the_steps_that_it_repeats(tmp_path: Path) -> None:
    with writer(tmp_path, filename_suffix=".1") as first:
        for step in range(6):
            first.add_scalar("loss", step, step)
    with writer(tmp_path, filename_suffix=".2", purge_step=3) as second:
        second.add_scalar("loss", 30, 3)
    with create_trial(tmp_path) as trial:
        assert steps_and_values(trial, "loss") == {0: 0, 1: 1, 2: 2, 3: 30}
        orphans = trial.orphans("loss")
        assert (orphans["step"].tolist(), orphans["value"].tolist()) == ([3, 4, 5], [3, 4, 5])
    with create_trial(tmp_path, keep_orphans=True) as trial:
        assert steps_and_values(trial, "loss") == {0: 0, 1: 1, 2: 2, 3: 30, 4: 4, 5: 5}


def test_superseded_values_of_all_kinds(tmp_path: Path) -> None:
    def life(begin: int, end: int, number: float) -> bytes:
        return b"".join(
            event(value("t", tensor(np.full(3, float(number + at)), 2), "mine"), at) for at in range(begin, end)
        )

    restart = event(field(7, integer(1, 1)), 2)
    log(tmp_path, life(0, 4, 0) + restart + life(2, 5, 100), "events.out.tfevents.1")
    log(tmp_path, restart + life(2, 3, 200), "events.out.tfevents.2")
    for hold in (False, True):
        with create_trial(tmp_path, hold=hold) as trial:
            assert {step: one[0] for step, one in trial.tensor("t").values().items()} == {0: 0, 1: 1, 2: 202}
            orphans = trial.orphans("t")
            found = zip(orphans["step"].tolist(), (one.tolist() for one in orphans["value"]), strict=True)
            assert sorted(found) == [
                (step, [number] * 3) for step, number in [(2, 2), (2, 102), (3, 3), (3, 103), (4, 104)]
            ]
            if not hold:
                path = tmp_path / "events.out.tfevents.1"
                whole = path.read_bytes()
                path.write_bytes(whole[:-7] + b"\xff" + whole[-6:])
                assert [failure.step for failure in trial.orphans("t").errors] == [4]
                path.write_bytes(whole)
    with create_trial(tmp_path, keep_orphans=True) as trial:
        assert {step: one[0] for step, one in trial.tensor("t").values().items()} == {
            0: 0,
            1: 1,
            2: 202,
            3: 103,
            4: 104,
        }


def test_range_of_steps(tmp_path: Path) -> None:
    log(tmp_path, scalars({"loss": [0, 1, 2, 3, 4]}))
    with create_trial(tmp_path, range_steps=(1, 3)) as trial:
        assert trial.steps() == [1, 2]


def test_collections_and_reductions(tmp_path: Path) -> None:
    log(tmp_path, scalars({"val/Loss": [1, -2], "top1_accuracy": [0.5, 0.75], "lr": [0.1, 0.1]}))
    with create_trial(tmp_path) as trial:
        assert trial.tensor_names(collection="losses") == ["val/Loss"]
        assert trial.tensor_names(collection="metrics") == ["top1_accuracy"]
        assert len(trial.tensor_names(collection="all")) == 3
        table = trial.reductions("val/Loss", reductions=["mean", "abs_max", "l2", "std"])
        assert [table[name].tolist() for name in ("mean", "abs_max", "l2", "std")] == [[1, -2], [1, 2], [1, 2], [0, 0]]
        assert trial.tensor("val/Loss").reduction_value(1, "min").item() == -2


def test_reductions_use_the_given_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path, scalars({"loss": [1, 2]}))
    given = []
    values = TensorBoardRun.values

    def recorded(run: TensorBoardRun, rows: Any, options: SweepOptions) -> Any:
        given.append(options.threads)
        return values(run, rows, options)

    monkeypatch.setattr(TensorBoardRun, "values", recorded)
    with create_trial(tmp_path) as trial:
        assert trial.reductions("loss", reductions="mean", threads=3)["mean"].tolist() == [1, 2]
    assert given == [3]


def test_killed_writer_and_its_successor(tmp_path: Path) -> None:
    write = (
        "import os, sys\nfrom tensorboardX import SummaryWriter\n"
        "log = SummaryWriter(sys.argv[1], filename_suffix=sys.argv[2])\n"
        "for step in range(int(sys.argv[3]), int(sys.argv[4])):\n"
        "    log.add_scalar('loss', step, step)\n"
        "    log.flush()\n"
        "os._exit(9)\n"
    )

    def killed(suffix: str, first: int, end: int) -> Path:
        asked = [sys.executable, "-c", write, str(tmp_path), suffix, str(first), str(end)]
        done = subprocess.run(asked, capture_output=True, check=False)
        assert done.returncode == 9, done.stderr
        [file] = tmp_path.glob(f"*{suffix}")
        return file

    file = killed(".1", 0, 200)
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])
    with create_trial(tmp_path) as trial:
        # The writer is killed before its queue is empty: fewer steps are written than it was given.
        last = trial.steps()[-1]
        assert trial.tensor("loss").steps() == list(range(last + 1))
        assert trial.problems() == []
        killed(".2", last - 10, last + 100)
        assert steps_and_values(trial, "loss") == {step: step for step in range(trial.steps()[-1] + 1)}
        now = trial.tensor("loss").steps()
        assert now[-1] > last
        file.write_bytes(whole)
        assert trial.tensor("loss").steps() == now
        assert trial.orphans("loss")["step"].tolist()[:11] == list(range(last - 10, last + 1))


def test_log_that_grows_while_it_is_read(tmp_path: Path) -> None:
    with create_trial(log(tmp_path, scalars({"loss": [0]})), live=True) as trial:
        for step in range(1, 20):
            records = scalars({"loss": [step], f"new{step % 3}": [step]}, first=step)
            # A few bytes at a time, as if a buffer was flushed.
            for at in range(0, len(records), 17):
                seen = trial.steps()
                assert seen == list(range(step)) or (seen == list(range(step + 1)) and at > len(records) // 3)
                log(tmp_path, records[at : at + 17])
            trial.wait_for_steps([step], timeout=30)
            assert trial.tensor("loss").value(step).item() == step
        assert trial.tensor_names(collection="scalars") == ["loss", "new0", "new1", "new2"]
        assert trial.problems() == []


def test_replaced_file_is_read_again(tmp_path: Path) -> None:
    log(tmp_path, scalars({"loss": [1, 2, 3]}))
    with create_trial(tmp_path) as trial:
        assert len(trial.steps()) == 3
        (tmp_path / FILE).unlink()
        other = tmp_path / "other"
        other.write_bytes(scalars({"loss": [9, 8]}))
        other.rename(tmp_path / FILE)
        assert steps_and_values(trial, "loss") == {0: 9, 1: 8}


def test_damage_is_reported_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = bytearray(scalars({"loss": [0, 1, 2, 3]}, first=1))
    size = len(content) // 4
    content[size + 20] ^= 1
    log(tmp_path, bytes(content))
    with create_trial(tmp_path) as trial:
        assert trial.tensor("loss").steps() == [1, 3, 4]
        [(key, message)] = trial.problems()
        assert key == FILE
        assert f"byte {size}" in message
        assert "checksum" in message
        assert f"resumed at byte {2 * size}" in message
        assert "all other records were read" in caplog.text


def test_log_through_the_storage_protocol(tmp_path: Path) -> None:
    with writer(tmp_path / "run" / "train") as out:
        out.add_scalar("loss", 0.5, 3)
        out.add_image("picture", np.zeros((3, 2, 2), np.uint8), 3)
    with TensorBoardTrial("mine", storage=LocalStorage(tmp_path)) as trial:
        assert trial.tensor("loss").value(3, ModeKeys.TRAIN).item() == 0.5
        assert trial.tensor("picture").value(3, ModeKeys.TRAIN).shape == (2, 2, 3)
        [file] = (tmp_path / "run" / "train").iterdir()
        log(tmp_path / "run" / "train", scalars({"loss": [0.25]}, first=4), file.name)
        assert trial.steps(ModeKeys.TRAIN) == [3, 4]


def test_link_out_of_the_log_is_not_followed(tmp_path: Path) -> None:
    outside = log(tmp_path / "outside", scalars({"secret": [1]}))
    log(tmp_path / "run", scalars({"loss": [1]}))
    (tmp_path / "run" / "events.out.tfevents.2").symlink_to(outside / FILE)
    with create_trial(tmp_path / "run") as trial:
        assert trial.tensor_names() == ["loss"]
        assert "points outside" in trial.problems()[0][1]


def test_trial_can_be_pickled(tmp_path: Path) -> None:
    log(tmp_path, scalars({"loss": [1, 2]}))
    with create_trial(tmp_path) as trial, pickle.loads(pickle.dumps(trial)) as other:
        assert other == trial
        assert other.tensor("loss").value(1).item() == 2


def test_old_log_has_ended(tmp_path: Path) -> None:
    log(tmp_path, scalars({"loss": [1]}))
    os.utime(tmp_path / FILE, (1e9, 1e9))
    with create_trial(tmp_path) as trial:
        trial.steps()
        assert trial.loaded_all_steps
    with create_trial(tmp_path, live=True) as trial:
        trial.steps()
        assert not trial.loaded_all_steps


def test_log_without_new_data_is_not_shown_as_running(tmp_path: Path) -> None:
    log(tmp_path, scalars({"loss": [1]}))
    with create_trial(tmp_path) as trial:
        trial.steps()
        assert status_of(trial) == "running"
        now = time.time()
        os.utime(tmp_path / FILE, (now - 120, now - 120))
        assert status_of(trial) == "stalled"
        os.utime(tmp_path / FILE, (1e9, 1e9))
        trial.steps()
        assert status_of(trial) == "ended"


def test_wall_times_are_shown_as_times(tmp_path: Path) -> None:
    at = datetime(2026, 11, 22, 12, 30, 15, 250_000).timestamp()
    content = b"".join(_core.scalar_record("loss", step, at + step, 1.0) for step in range(2))
    log(tmp_path, content)
    with create_trial(tmp_path) as trial:
        table = trial.scalars("loss")
        assert "2026-11-22 12:30:15.250" in repr(table)
        assert "<td>2026-11-22 12:30:16.250</td>" in table._repr_html_()
        assert table["wall_time"].tolist() == [at, at + 1]


def encoded(pixels: np.ndarray, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()


def test_images_of_all_kinds() -> None:
    rng = np.random.default_rng(1)
    rgba = rng.integers(0, 255, (3, 4, 4), dtype=np.uint8)
    np.testing.assert_array_equal(image(encoded(rgba, "PNG")), rgba)
    deep = rng.integers(0, 65535, (3, 4), dtype=np.uint16)
    np.testing.assert_array_equal(image(encoded(deep, "PNG"))[..., 0], deep)
    gray = np.full((8, 8), 77, np.uint8)
    assert image(encoded(gray, "JPEG")).shape == (8, 8, 1)
    assert image(encoded(rgba[..., :3], "GIF")).shape == (3, 4, 3)
    frames = [Image.fromarray(np.full((2, 2), shade, np.uint8)) for shade in (0, 255)]
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    assert image(out.getvalue()).shape[0] == 2
    with pytest.raises(UnsupportedDataError):
        image(b"no image")
    with pytest.raises(CorruptDataError):
        image(encoded(rgba, "PNG")[:40])


def test_bad_image_affects_only_itself(tmp_path: Path) -> None:
    good = field(4, field(4, encoded(np.zeros((2, 2), np.uint8), "PNG")))
    bad = field(4, field(4, b"\x89PNG\r\n\x1a\n none"))
    log(tmp_path, event(value("i", bad), 1) + event(value("i", good), 2))
    with create_trial(tmp_path) as trial:
        with pytest.raises(CorruptDataError, match=FILE):
            trial.tensor("i").value(1)
        assert trial.tensor("i").value(2).shape == (2, 2, 1)
        assert len(trial.values("i").errors) == 1


def test_graphs_are_skipped(tmp_path: Path) -> None:
    log(tmp_path, event(field(4, b"\0" * (5 << 20))) + scalars({"loss": [1]}) + event(integer(99, 1)))
    with create_trial(tmp_path) as trial:
        assert trial.tensor_names() == ["loss"]
        assert trial.problems() == []


def test_loss_rule_on_a_log(tmp_path: Path) -> None:
    from smdwidgets.exceptions import RuleEvaluationConditionMet
    from smdwidgets.rules.builtin.loss_not_decreasing import LossNotDecreasing
    from smdwidgets.rules.invoke import invoke_rule

    log(tmp_path, scalars({"loss": [1.0] * 60}))
    with create_trial(tmp_path, live=False) as trial, pytest.raises(RuleEvaluationConditionMet):
        invoke_rule(LossNotDecreasing(trial, num_steps=10), raise_eval_cond=True)
