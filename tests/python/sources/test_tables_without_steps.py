"""Tables without a column of steps, and those of one program."""

from __future__ import annotations

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdwidgets
from smdwidgets.exceptions import RunNotFound
from smdwidgets.naming.scalars import Kind, Role, describe
from smdwidgets.sources.unnumbered import unnumbered


def opened(folder, text, name="history.csv"):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return smdwidgets.create_trial(folder)


def values(trial, name):
    return {step: value.item() for step, value in trial.tensor(name).values().items()}


# ------------------------------------------------------------------------------------------------ losses by row


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("loss,val_loss\n0.5,0.75\n0.25,0.5\n", "history.csv"),
        ("\ufeffloss,val_loss\r\n0.5,0.75\r\n0.25,0.5\r\n", "history.csv"),
        ("loss, val_loss, time\n0.5, 0.75, 3\n0.25, 0.5, 3\n", "history.csv"),
        ("loss;val_loss\n0,5;0,75\n0,25;0,5\n", "history.csv"),
        ("loss\tval_loss\t\n0.5\t0.75\t\n0.25\t0.5\t\n", "history.txt"),
        ("# loss val_loss\n0.5 0.75\n0.25 0.5\n", "history.txt"),
        ("# results of a training\n# loss,val_loss\n0.5,0.75\n0.25,0.5\n", "history.csv"),
    ],
)
def test_rows_of_losses_are_numbered(tmp_path, text, name):
    trial = opened(tmp_path, text, name)
    assert values(trial, "loss") == {0: 0.5, 1: 0.25}
    assert values(trial, "val_loss") == {0: 0.75, 1: 0.5}


def test_names_with_spaces(tmp_path):
    trial = opened(tmp_path, "policy loss,mean 100 episode reward,frac\n0.5,20,0\n0.25,21,1\n")
    assert values(trial, "mean 100 episode reward") == {0: 20, 1: 21}
    assert trial.tensor_names() == ["frac", "mean 100 episode reward", "policy loss"]


def test_missing_numbers_and_nan(tmp_path):
    trial = opened(tmp_path, "acc,val_acc\n0.5,\nnan,0.75\n")
    assert values(trial, "val_acc") == {1: 0.75}
    assert list(values(trial, "acc")) == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "customer,loss\nann,0.5\n",
        "age,income,loss\n37,1000,0.5\n",
        "cont1,cont2,cont3,loss\n0.5,0.25,0.5,2213.18\n",
        "price,cost\n5,3\n6,4\n",
        "time,error\n0.5,0.25\n",
        "precision,recall,f1\n0.5,0.5,0.5\n",
        "loss,val_loss\n",
        "loss,val_loss\n0.5,0.75\n0.5,see below\n",
        ",".join(f"loss_{at}" for at in range(61)) + "\n" + ",".join(["1"] * 61) + "\n",
        "loss\n",
        "loss of the company\nin the year\n",
        "1,2,3\n4,5,6\n",
    ],
)
def test_other_data_are_refused(tmp_path, text):
    with pytest.raises(RunNotFound):
        opened(tmp_path, text, "data.csv")


def test_table_grows_and_is_rewritten(tmp_path):
    file = tmp_path / "history.csv"
    trial = opened(tmp_path, "loss,val_loss\n0.5,0.75\n")
    with file.open("a") as more:
        more.write("0.25,0.5\n0.1")
    assert values(trial, "loss") == {0: 0.5, 1: 0.25}
    with file.open("a") as more:
        more.write("25,0.25\nstopped,early\n")
    assert values(trial, "loss") == {0: 0.5, 1: 0.25, 2: 0.125}
    file.write_text("loss,val_loss\n4,5\n")
    assert values(trial, "loss") == {0: 4}


def test_bad_bytes_in_a_row(tmp_path):
    trial = opened(tmp_path, b"loss,val_loss\n" + b"0.5,0.75\n" * 30 + b"\xff\xfe,0.5\n")
    assert len(values(trial, "loss")) == 30
    assert len(values(trial, "val_loss")) == 31


# ------------------------------------------------------------------------------------------- one number a line


def test_numbers_have_the_name_of_their_file(tmp_path):
    trial = opened(tmp_path, "2.5\n 1.5\n\n1.25\n", "train_loss.txt")
    assert values(trial, "train_loss") == {0: 2.5, 1: 1.5, 2: 1.25}
    with (tmp_path / "train_loss.txt").open("a") as more:
        more.write("1.0\n")
    assert values(trial, "train_loss")[3] == 1.0


def test_numbers_have_the_name_above_them(tmp_path):
    trial = opened(tmp_path, "training error\t\n 4.5e+02\t\n 2.5e+02\t\n", "log.txt")
    assert values(trial, "training error") == {0: 450.0, 1: 250.0}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1\n2\n3\n", "labels.txt"),
        ("0.5\n0.25\n0.125\n", "cost.csv"),
        ("0.93\n", "accuracy.txt"),
        ("1\n2\nthree\n", "loss.txt"),
        ("age\n37\n38\n", "loss.txt"),
        ("error\n37\n38\n", "data.txt"),
    ],
)
def test_other_numbers_are_refused(tmp_path, text, name):
    with pytest.raises(RunNotFound):
        opened(tmp_path, text, name)


# ------------------------------------------------------------------------------------------ episodes, generations


def test_episodes_beside_a_score(tmp_path):
    trial = opened(tmp_path, "Episode,Score,MaxTile\n1,6872,512\n2,5060,256\n")
    assert values(trial, "Score") == {1: 6872, 2: 5060}


def test_generations_beside_a_fitness(tmp_path):
    trial = opened(tmp_path, "Generation,Best_Fitness,Avg_Fitness\n1,10.5,-20\n2,11.5,-10\n")
    assert values(trial, "Avg_Fitness") == {1: -20, 2: -10}
    assert describe("Best_Fitness").kind is Kind.REWARD


@pytest.mark.parametrize("text", ["Episode,Title,Score\n1,Pilot,7.5\n", "generation,hp,attack\n1,45,49\n"])
def test_other_episodes_are_refused(tmp_path, text):
    with pytest.raises(RunNotFound):
        opened(tmp_path, text)


def test_epochs_of_so_many(tmp_path):
    assert values(opened(tmp_path, "epoch,loss\n1/300,0.5\n2/300,0.25\n"), "loss") == {1: 0.5, 2: 0.25}


# --------------------------------------------------------------------------------------------------- Stable-Baselines


def test_monitor_of_episodes(tmp_path):
    head = '#{"t_start": 1700000000.5, "env_id": "Cart"}\nr,l,t,note\n'
    trial = opened(tmp_path, head + "9.0,10,0.5,{}\n12.0,20,0.75,{}\n", "0.monitor.csv")
    assert values(trial, "episode reward") == {10: 9, 30: 12}
    assert values(trial, "episode length") == {10: 10, 30: 20}
    assert describe("episode reward").kind is Kind.REWARD
    with (tmp_path / "0.monitor.csv").open("a") as more:
        more.write("15.0,5,1.0,{}\n3.0,")
    assert values(trial, "episode reward") == {10: 9, 30: 12, 35: 15}
    then = time.time() - 60
    os.utime(tmp_path / "0.monitor.csv", (then, then))
    assert values(trial, "episode reward") == {10: 9, 30: 12, 35: 15}


def test_letters_without_a_start_are_refused(tmp_path):
    with pytest.raises(RunNotFound):
        opened(tmp_path, "# lengths\nr,l,t\n9.0,10,0.5\n", "monitor.csv")


# --------------------------------------------------------------------------------------------------------------- YOLO


def yolo(epoch, box):
    return f"{f'{epoch}/2':>10}{'1.15G':>10}" + "".join(f"{box / at:10.4g}" for at in range(1, 14)) + "\n"


def test_results_without_names(tmp_path):
    trial = opened(tmp_path, yolo(0, 1.0) + yolo(1, 0.5), "results.txt")
    assert values(trial, "train/box_loss") == {0: 1.0, 1: 0.5}
    assert values(trial, "val/cls_loss") == {0: 0.07692, 1: 0.03846}
    roles = {name: describe(name).role for name in trial.tensor_names()}
    assert (roles["train/obj_loss"], roles["val/obj_loss"]) == (Role.TRAINING, Role.VALIDATION)
    with (tmp_path / "results.txt").open("a") as more:
        more.write(yolo(2, 0.25) + "       0/2     1.1")
    assert values(trial, "metrics/mAP_0.5")[2] == pytest.approx(0.25 / 9, abs=1e-4)


def test_rows_of_other_numbers_are_refused(tmp_path):
    with pytest.raises(RunNotFound):
        opened(tmp_path, "0/2 1.15G " + " 0.5" * 12 + "\n", "results.txt")


# ----------------------------------------------------------------------------------------------------------- StyleGAN


def stylegan(tick, loss):
    numbers = {"Loss/G/loss": loss, "Progress/tick": tick, "Progress/kimg": 4.5 * tick}
    return json.dumps({name: {"num": 2, "mean": float(value), "std": 0.5} for name, value in numbers.items()})


def test_statistics_are_their_mean(tmp_path):
    lines = [stylegan(0, 2.5), stylegan(1, 1.5), '{"Loss/G/loss": {"num"', stylegan(2, 1.25), ""]
    trial = opened(tmp_path, "\n".join(lines), "stats.jsonl")
    assert values(trial, "Loss/G/loss") == {0: 2.5, 1: 1.5, 2: 1.25}
    assert trial.tensor_names() == ["Loss/G/loss", "Progress/kimg"]
    [(_, message)] = trial.problems()
    assert "1 rows are not JSON objects" in message


def test_an_index_without_a_name_numbers_the_rows(tmp_path):
    trial = opened(tmp_path, ",loss,accuracy\n0,0.5,0.75\n1,0.25,1.0\n")
    assert (values(trial, "loss"), values(trial, "accuracy")) == ({0: 0.5, 1: 0.25}, {0: 0.75, 1: 1.0})
    assert unnumbered(b",loss,accuracy\n7,0.5,0.75\n3,0.25,1.0\n") is None


def test_steps_and_numbers_that_the_file_names(tmp_path):
    assert values(opened(tmp_path, "0,2.5\n10,1.5\n20,1.25\n", "losses.csv"), "losses") == {0: 2.5, 10: 1.5, 20: 1.25}
    assert unnumbered(b"0,2.5\n10,1.5\n20,1.25\n", "ages") is None
    # Numbers with a decimal comma, or steps and whole numbers.
    assert unnumbered(b"0,2\n1,5\n2,25\n", "losses") is None
    assert unnumbered(b"2,5\n1,5\n1,25\n", "losses").names == ("losses",)


def test_colours_of_a_terminal(tmp_path):
    lines = [f"{at:7}  \x1b[36m{1 / at:.4f}\x1b[0m  {2 / at:.4f}" for at in range(1, 5)]
    trial = opened(
        tmp_path, "\n".join(["  epoch  train_loss  valid_loss", "-----  ------  ------", *lines, ""]), "train.log"
    )
    assert values(trial, "train_loss") == {at: round(1 / at, 4) for at in range(1, 5)}


def test_an_underscore_joins_no_numbers(tmp_path):
    trial = opened(tmp_path, "step,loss\n1,0.5\n2,7_0.25\n3,0.125\n")
    assert values(trial, "loss") == {1: 0.5, 3: 0.125}


def test_binary_data_are_no_table():
    assert unnumbered(b"loss,val_loss\n0.5,\0\n") is None


@given(
    st.text(alphabet='loss,val_\t;|# \n\r"0.5e-nan{}/G', max_size=80),
    st.sampled_from(["loss.txt", "a.csv", "rewards.jsonl"]),
)
def test_any_text_is_read_or_refused(tmp_path_factory, text, name):
    folder = tmp_path_factory.mktemp("any")
    try:
        trial = opened(folder, text, name)
    except RunNotFound:
        return
    assert all(len(trial.tensor(one).values()) for one in trial.tensor_names())


def test_rows_of_flair_have_one_cell_more_than_names(tmp_path):
    names = [
        "EPOCH",
        "TIMESTAMP",
        "BAD_EPOCHS",
        "LEARNING_RATE",
        "TRAIN_LOSS",
        "TRAIN_ACCURACY",
        "DEV_LOSS",
        "DEV_ACCURACY",
    ]
    rows = [[str(n), f"17:27:1{n}", "0", "0.1", f"{1 / (n + 1)}", "_", "_", f"{2 / (n + 1)}", "0.75"] for n in range(5)]
    (tmp_path / "loss.tsv").write_text("\n".join("\t".join(row) for row in [names, *rows]) + "\n")
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor("DEV_LOSS").value(4) == pytest.approx(0.4)
    assert trial.tensor("DEV_ACCURACY").value(4) == 0.75
    assert trial.tensor("TRAIN_LOSS").value(4) == pytest.approx(0.2)
    # A table without the additional cell is read as it is.
    (tmp_path / "loss.tsv").write_text(
        "\n".join("\t".join(row) for row in [names, *[row[:5] + row[6:] for row in rows]]) + "\n"
    )
    assert smdwidgets.create_trial(tmp_path).tensor("DEV_LOSS").value(4) == pytest.approx(0.4)


def test_two_columns_are_not_one_with_a_decimal_comma(tmp_path):
    (tmp_path / "data.csv").write_text("größe,loss\n1,2\n3,4\n5,6\n")
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path)
