"""Runs of Comet and nvdlfw-inspect: values, growth, damage, hostile content."""

from __future__ import annotations

import json
import math
import os
import random
import zipfile

import pytest

import smdwidgets
from smdwidgets.exceptions import RunNotFound, SMDebugError
from smdwidgets.sources import comet

_STEPS = [0, 10, 20, 30, 40, 50]
_LOSSES = [2.5, 1.75, 1.25, 1.0, 0.875, 0.75]


def values(trial, name):
    return {step: value.item() for step, value in trial.tensor(name).values().items()}


def metric(name, value, step, context=None, **more):
    payload = {"metric": {"metricName": name, "metricValue": value, "step": step, "epoch": None, **more}}
    payload |= {"local_timestamp": 1_700_000_000_000} | ({"context": context} if context else {})
    return {"type": "metric_msg", "payload": payload}


def archive(path, messages, about=None, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("experiment.json", json.dumps(about or {"stop_time": 1}))
        text = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in messages)
        file.writestr("messages.json", text)
    return path


def test_archive_of_comet(source_runs):
    trial = smdwidgets.create_trial(source_runs / "comet")
    assert values(trial, "loss") == dict(zip(_STEPS, _LOSSES, strict=True))
    assert values(trial, "validate_loss") == {20: 1.5, 50: 1.125}
    assert math.isnan(values(trial, "spread")[50])
    settings = trial.hparams()
    assert (settings["lr"], settings["model/width"]) == (0.125, 4)
    assert (settings["comet.name"], settings["comet.tags"], settings["comet.project"]) == ("first", "a, b", "golden")
    assert trial.loaded_all_steps
    assert trial.problems() == []
    [row] = smdwidgets.runs(source_runs / "comet")
    assert (row["kind"], row["state"], row.name) == ("Comet experiment", "ended", "experiment.zip")


def test_archives_of_a_directory_are_runs(tmp_path):
    for name in "ab":
        archive(
            tmp_path / f"{name}.zip", [metric("loss", 1 / (n + 1), n) for n in range(9)], None, zipfile.ZIP_DEFLATED
        )
    archive(tmp_path / "data.zip", []).unlink()
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as other:
        other.writestr("data.csv", "a,b\n1,2\n")
    trials = smdwidgets.create_trials(tmp_path)
    assert list(trials) == ["a.zip", "b.zip"]
    assert values(trials["b.zip"], "loss")[8] == 1 / 9


def test_steps_values_and_settings_of_comet(tmp_path):
    messages = [
        *(metric("counted", n, None) for n in range(3)),
        *(metric("by_epoch", n, None, epoch=n + 5) for n in range(3)),
        metric("x", "Infinity", 1, "train"),
        metric("x", "high", 2, "train"),
        metric("x", True, 3, "train"),
        metric("x", 10**400, 4, "train"),
        metric("x", 2, -5),
        {"type": "parameter_msg", "payload": {"param": {"paramName": "curr_step", "paramValue": 1, "source": "auto-logged"}}},
        {"type": "parameter_msg", "payload": {"params": {"paramName": "sizes", "paramValue": [1, 2], "source": "manual"}}},
        {"type": "git_metadata", "payload": {"git_metadata": {"parent": "abc123"}}},
        {"type": "file_upload", "payload": {"additional_params": {"fileName": "weights"}}},
        "not JSON",
        "[1]",
        '{"type": 3, "payload": {}}',
        "x" * (3 << 20),
    ]  # fmt: skip
    trial = smdwidgets.create_trial(archive(tmp_path / "e.zip", messages))
    assert values(trial, "counted") == {0: 0, 1: 1, 2: 2}
    assert values(trial, "by_epoch") == {5: 0, 6: 1, 7: 2}
    assert values(trial, "train_x") == {1: math.inf, 4: math.inf}
    assert "x" not in trial.tensor_names()  # a negative step
    assert trial.hparams() == {"sizes": [1, 2]}
    assert trial.identity() == {"commit": "abc123"}
    assert [message.partition("e.zip: ")[2] for _, message in trial.problems()] == [
        "1 row is not read, because its step is not a number from 0 to 4.6e+18: it is -5",
        "histograms, images and files are not read: 'weights'",
    ]


def test_directory_of_a_running_experiment_grows(tmp_path):
    path = tmp_path / "messages.json"
    (tmp_path / "experiment.json").write_text(json.dumps({"project_name": "p"}))
    path.write_text("".join(json.dumps(metric("loss", n, n)) + "\n" for n in range(3)))
    trial = smdwidgets.create_trial(tmp_path)
    assert values(trial, "loss") == {0: 0, 1: 1, 2: 2}
    assert not trial.loaded_all_steps
    with path.open("a") as file:
        file.write(json.dumps(metric("loss", 3, 3)) + "\n")
    assert values(trial, "loss")[3] == 3
    assert trial.hparams() == {"comet.project": "p"}


def test_damaged_archives_are_errors_with_the_file(tmp_path):
    path = archive(tmp_path / "e.zip", [metric("loss", 1 / (n + 1), n) for n in range(200)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    with pytest.raises(RunNotFound, match=r"an archive of Comet that is damaged or incomplete"):
        smdwidgets.create_trial(tmp_path)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 64
    path.write_bytes(damaged)
    trial = smdwidgets.create_trial(path)
    [(_, reason)] = trial.problems()
    assert f"{path}: damaged archive: Bad CRC-32" in reason


def test_flipped_and_cut_archives_never_raise_anything_else(tmp_path):
    whole = archive(
        tmp_path / "e.zip", [metric("loss", 1 / (n + 1), n) for n in range(40)], None, zipfile.ZIP_DEFLATED
    ).read_bytes()
    generator = random.Random(5)
    for number in range(300):
        data = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        path = tmp_path / f"{number}.zip"
        path.write_bytes(data[: generator.randrange(len(data))] if number % 3 == 0 else data)
        os.utime(path, (1e9, 1e9))  # a trial waits for the rest of a run that has just ended
        try:
            trial = smdwidgets.create_trial(path)
            trial.scalars()
            trial.problems()
            trial.close()
        except SMDebugError as error:
            assert path.name in str(error)  # noqa: PT017
        path.unlink()


def test_archive_that_expands_without_end_is_bounded(tmp_path, monkeypatch):
    path = archive(tmp_path / "e.zip", [metric("loss", 1, 1), "0" * (64 << 20)], None, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    assert values(smdwidgets.create_trial(path), "loss") == {1: 1}
    monkeypatch.setattr(comet, "_LARGEST", 1 << 20)
    [(_, reason)] = smdwidgets.create_trial(path).problems()
    assert "are not read" in reason


def test_statistics_of_nvdlfw_inspect(source_runs):
    trial = smdwidgets.create_trial(source_runs / "inspect")
    assert trial.tensor_names() == [
        "decoder.fc1_activation_l2_norm",
        "decoder.fc1_gradient_max",
        "decoder.fc1_gradient_underflows% (rank 0)",
        "decoder.fc1_gradient_underflows% (rank 1)",
    ]
    assert values(trial, "decoder.fc1_activation_l2_norm")[20] == 125
    assert values(trial, "decoder.fc1_gradient_underflows% (rank 1)") == {
        step: loss + 1 for step, loss in zip(_STEPS, _LOSSES, strict=True)
    }
    assert math.isnan(values(trial, "decoder.fc1_gradient_max")[50])
    assert trial.problems() == []


def test_logged_statistics_are_statistics_of_tensors(source_runs):
    trial = smdwidgets.create_trial(source_runs / "inspect")
    table = trial.statistics()
    assert dict.fromkeys(table["name"].tolist()) == {"decoder.fc1_activation": None, "decoder.fc1_gradient": None}
    own = table["name"] == "decoder.fc1_activation"
    assert table["step"][own].tolist() == [*_STEPS]
    assert table["l2"][own].tolist() == [100 * loss for loss in _LOSSES]
    assert set(table["count"]) == {-1}
    assert set(table["flags"]) == {32}
    assert trial.statistics("decoder.fc1_activation", 20)["l2"].tolist() == [125]
    assert trial.statistics(["decoder.fc1_gradient"])["step"].tolist() == [50]
    assert trial.statistics("decoder.fc1_activation_l2_norm", 20)["mean"].tolist() == [125]
    assert trial.collection("gradients").tensor_names == {"decoder.fc1_gradient"}


def test_statistics_of_ranks(tmp_path):
    folder = tmp_path / "nvdlfw_inspect_statistics_logs"
    folder.mkdir()
    for rank in range(3):
        lines = [
            f"2026-01-02 03:04:05,678 - INFO - fc1_{name} \t\t\t\t iteration={step:06d} \t\t\t\t value={value:.4f}\n"
            for step in range(5)
            for name, value in {
                "weight_min": -2.0,
                "weight_max": 1.0,
                "gradient_cur_amax": step + (rank == 1),
                "gradient_numel": 64,
                "gradient_num_zeros": 4,
                "gradient_underflows%": 0.5,
            }.items()
        ]
        (folder / f"nvdlfw_inspect_globalrank-{rank}.log").write_text("".join(lines))
    trial = smdwidgets.create_trial(tmp_path)
    table = trial.statistics(worker="*")
    assert set(zip(table["name"], table["worker"], strict=True)) == {
        ("fc1_gradient", "worker_0"),
        ("fc1_gradient", "worker_1"),
        ("fc1_weight", "worker_0"),
    }
    gradient = trial.statistics("fc1_gradient")
    assert gradient["abs_max"].tolist() == [0, 1, 2, 3, 4]
    assert (gradient["count"][0], gradient["zeros"][0]) == (64, 4)
    assert trial.statistics("fc1_gradient", worker="worker_1")["abs_max"].tolist() == [1, 2, 3, 4, 5]
    assert trial.statistics("fc1_weight")["abs_max"].tolist() == [2] * 5


def test_statistics_grow_and_damaged_lines_are_skipped(tmp_path):
    path = tmp_path / "nvdlfw_inspect_statistics_logs" / "nvdlfw_inspect_globalrank-0.log"
    path.parent.mkdir()

    def line(step, value):
        return f"2026-01-02 03:04:05,678 - INFO - fc1_weight_std \t\t\t\t iteration={step:06d} \t\t\t\t value={value}\n"

    path.write_text(line(1, "0.5000") + line(2, "a.b") + "\0\n" + line(3, "inf") + line(10**17, "1.0000"))
    (tmp_path / "metrics.csv").write_text("step,loss\n1,2.0\n")
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == ["fc1_weight_std", "loss"]
    assert values(trial, "fc1_weight_std") == {1: 0.5, 3: math.inf, 10**17: 1}
    with path.open("a") as file:
        file.write(line(10**17 + 1, "0.2500"))
    assert values(trial, "fc1_weight_std")[10**17 + 1] == 0.25
