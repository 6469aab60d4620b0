"""Long tables, equal curves of two loggers, and steps that do not fit."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import smdwidgets
import smdwidgets.numpy
from smdwidgets import cli


def curves(folder):
    trial = smdwidgets.create_trial(folder)
    return {
        name: {step: value.item() for step, value in trial.tensor(name).values().items()}
        for name in trial.tensor_names()
    }


def written(folder, text, name="metrics.csv"):
    (folder / name).write_text(text, newline="")
    return curves(folder)


def saved_run(path):
    hook = smdwidgets.numpy.Hook(path, save_config=smdwidgets.numpy.SaveConfig(save_interval=1), save_all=True)
    for step in range(4):
        hook.save_tensor("loss", 1 / (step + 1))
        hook.save_tensor("acc", float(step))
        hook.step()
    hook.close()
    return path


@pytest.mark.parametrize("to", ["csv", "csv-wide"])
def test_csv_exports_read_back_as_the_run(tmp_path, to):
    run = saved_run(tmp_path / "run")
    (tmp_path / "out").mkdir()
    assert cli.main(["export", str(run), "--to", to, "-o", str(tmp_path / "out" / "table.csv")]) == 0
    assert curves(tmp_path / "out") == curves(run)
    assert smdwidgets.create_trial(tmp_path / "out").problems() == []
    assert [name for name in smdwidgets.runs(tmp_path / "out").columns if name in ("mode_step", "value")] == []


def test_melted_table_begins_again_for_each_name(tmp_path):
    rows = [(step, name, step + ten) for name, ten in (("loss", 10), ("acc", 0)) for step in range(3)]
    found = written(tmp_path, "step,variable,value\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    assert found == {"loss": {0: 10, 1: 11, 2: 12}, "acc": {0: 0, 1: 1, 2: 2}}


def test_names_in_json_lines(tmp_path):
    rows = [{"step": step, "tag": tag, "value": step} for step in range(2) for tag in ("loss", "acc")]
    found = written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "log.jsonl")
    assert found == {"loss": {0: 0, 1: 1}, "acc": {0: 0, 1: 1}}


def test_long_table_of_one_name_is_named_after_it(tmp_path):
    assert written(tmp_path, "step,metric,value\n0,loss,1\n1,loss,2\n") == {"loss": {0: 1, 1: 2}}


def test_names_that_appear_in_later_pieces(tmp_path):
    (tmp_path / "m.csv").write_text("step,tag,value\n0,loss,1\n")
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == ["loss"]
    with (tmp_path / "m.csv").open("a") as out:
        out.write("0,acc,2\n1,loss,3\n")
    assert trial.tensor_names() == ["acc", "loss"]
    assert trial.tensor("loss").steps() == [0, 1]


def test_data_and_several_columns(tmp_path):
    found = written(tmp_path, "epoch,phase,loss,acc\n0,train,1,2\n0,val,3,4\n1,train,5,6\n1,val,7,8\n")
    assert found == {
        "train/loss": {0: 1, 1: 5},
        "val/loss": {0: 3, 1: 7},
        "train/acc": {0: 2, 1: 6},
        "val/acc": {0: 4, 1: 8},
    }


def test_workers_of_one_name(tmp_path):
    text = "step,worker,tensor,value\n" + "".join(
        f"{step},w{worker},{name},{step + worker}\n" for step in range(2) for worker in (0, 1) for name in "ab"
    )
    assert written(tmp_path, text) == {
        f"{name} (w{worker})": {0: worker, 1: 1 + worker} for name in "ab" for worker in (0, 1)
    }


def test_numbered_workers(tmp_path):
    found = written(tmp_path, "step,rank,loss\n0,0,1\n0,1,2\n1,0,3\n1,1,4\n")
    assert found == {"loss (rank 0)": {0: 1, 1: 3}, "loss (rank 1)": {0: 2, 1: 4}}


def test_texts_beside_a_restart_are_no_names(tmp_path):
    lines = [("2026-01-01", "saved", step, at) for at, step in enumerate([0, 1, 2, 1, 2])]
    with (tmp_path / "m.csv").open("w", newline="") as out:
        csv.writer(out).writerows([("date", "note", "step", "loss"), *lines])
    assert curves(tmp_path) == {"loss": {0: 0, 1: 3, 2: 4}}


def test_numbers_that_another_of_their_step_replaces_are_a_problem(tmp_path):
    assert written(tmp_path, "epoch,loss,lr\n0,1,5\n0,2,5\n1,3,5\n1,4,5\n") == {
        "loss": {0: 2, 1: 4},
        "lr": {0: 5, 1: 5},
    }
    [(key, message)] = smdwidgets.create_trial(tmp_path).problems()
    assert key == "metrics.csv"
    assert "2 numbers of 'loss' have the step of the number after them, first at step 0" in message


def test_two_loggers_of_the_same_numbers_give_one_curve(tmp_path):
    rows = [{"train/loss": 1 / (step + 1), "time/total_timesteps": step * 10} for step in range(5)]
    with (tmp_path / "progress.csv").open("w", newline="") as out:
        table = csv.DictWriter(out, rows[0])
        table.writeheader()
        table.writerows(rows[:3])
    (tmp_path / "progress.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert curves(tmp_path) == {"train/loss": {step * 10: 1 / (step + 1) for step in range(5)}}


def test_loggers_that_differ_keep_both_curves(tmp_path):
    (tmp_path / "b.csv").write_text("step,loss\n1,2\n2,3\n")
    found = written(tmp_path, "step,loss\n0,1\n1,2\n", "a.csv")
    assert found == {"loss": {0: 1, 1: 2}, "loss (b.csv)": {1: 2, 2: 3}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.csv", "step,loss\n-5,1\n3,7\n1e23,8\n1e300,8\ninf,8\n4,9\n"),
        (
            "m.jsonl",
            "".join(
                f'{{"step": {step}, "loss": {loss}}}\n'
                for step, loss in ((-5, 1), (3, 7), ("1" + "0" * 23, 8), (10**400, 8), (1e300, 8), (4, 9))
            ),
        ),
        (
            "trainer_state.json",
            json.dumps(
                {
                    "global_step": 4,
                    "log_history": [
                        {"step": step, "loss": loss}
                        for step, loss in ((-5, 1), (3, 7), (1e23, 8), (1e300, 8), (10**30, 8), (4, 9))
                    ],
                }
            ),
        ),
    ],
)
def test_steps_that_do_not_fit_are_a_problem(tmp_path, name, text):
    assert written(tmp_path, text, name) == {"loss": {3: 7, 4: 9}}
    [(key, message)] = smdwidgets.create_trial(tmp_path).problems()
    assert key == name
    assert (
        "4 rows are not read, because their step is not a number from 0 to 4.6e+18: the first one is -5, in row 1"
        in message
    )


def test_lines_that_end_with_a_carriage_return(tmp_path):
    assert written(tmp_path, "step,loss\r1,2\r2,3\r") == {"loss": {1: 2, 2: 3}}


def test_exports_of_trackers(tmp_path):
    for name in ("wandb", "tensorboard", "range"):
        (tmp_path / name).mkdir()
    found = written(tmp_path / "wandb", '"Step","a - loss","a - loss__MIN","a - loss__MAX"\n0,1,1,1\n1,2,2,2\n')
    assert found == {"a - loss": {0: 1, 1: 2}}
    found = written(tmp_path / "range", '"Step","a - loss","a - loss__MIN"\n0,1,0.5\n')
    assert found == {"a - loss": {0: 1}, "a - loss__MIN": {0: 0.5}}
    found = written(
        tmp_path / "tensorboard", "Wall time,Step,Value\n1.7e9,0,1\n1.7e9,1,2\n", "run-x-tag-train_loss.csv"
    )
    assert found == {"train_loss": {0: 1, 1: 2}}
    (tmp_path / "renamed").mkdir()
    found = written(tmp_path / "renamed", "Wall time,Step,Value\n1.7e9,0,1\n1.7e9,1,2\n", "val_loss.csv")
    assert found == {"val_loss": {0: 1, 1: 2}}


def test_prose_is_no_name(tmp_path):
    rows = 20_000
    lines = "".join(f"{at // 2},message {at},{at}\n" for at in range(rows))
    found = written(tmp_path, "step,note,loss\n" + lines)
    assert list(found) == ["loss"]
    assert np.array_equal(list(found["loss"].values()), np.arange(1, rows, 2))
