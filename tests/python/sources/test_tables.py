"""CSV, TSV and JSON lines as runs: layouts, gaps, growth, restarts, other files."""

from __future__ import annotations

import json
import math
import os
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdwidgets
from smdwidgets.exceptions import RunNotFound, SeveralRuns
from smdwidgets.sources.layout import layout_of
from smdwidgets.sources.tables import MOST_COLUMNS
from smdwidgets.trials import LocalTrial, SourceTrial, TensorBoardTrial


def values(trial, name):
    return {step: value.item() for step, value in trial.tensor(name).values().items()}


def opened(folder, text, name="metrics.csv"):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return smdwidgets.create_trial(folder)


def make_old(path, seconds=60):
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "  "])
def test_separators(tmp_path, separator):
    lines = [separator.join(row) for row in (["step", "loss"], ["0", "1.5"], ["10", "1e-1"])]
    assert values(opened(tmp_path, "\n".join(lines) + "\n"), "loss") == {0: 1.5, 10: 0.1}


def test_decimal_comma_quotes_and_spaces(tmp_path):
    trial = opened(tmp_path, 'epoch ; "train; loss" ;\t acc\r\n0; 0,5; 1\r\n1; "0,25";  2\r\n')
    assert values(trial, "train; loss") == {0: 0.5, 1: 0.25}
    assert values(trial, "acc") == {0: 1, 1: 2}


def test_byte_order_mark_comment_and_blank_lines(tmp_path):
    trial = opened(tmp_path, b"\xef\xbb\xbf\n# step,loss\n0,1\n\n1,2\n")
    assert values(trial, "loss") == {0: 1, 1: 2}


def test_utf_16_is_a_problem_with_the_path(tmp_path):
    (tmp_path / "a.csv").write_text("step,loss\n0,1\n")
    trial = smdwidgets.create_trial(tmp_path)
    (tmp_path / "a.csv").write_bytes("step,loss\n0,1\n".encode("utf-16"))
    trial.refresh_data()
    assert [message for _, message in trial.problems()] == [
        f"{tmp_path / 'a.csv'}: UTF-16 is not supported; convert the file to UTF-8"
    ]


def test_duplicate_and_empty_headers(tmp_path):
    trial = opened(tmp_path, "step,loss,loss,,loss\n1,1,2,3,4\n")
    assert [values(trial, name)[1] for name in ("loss", "loss (2)", "column 4", "loss (3)")] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "spelling", ["nan", "NaN", "-NAN", "1.#QNAN", "-1.#IND", "nan(ind)", "+nan", "-nan(ind)", "1.#QNAN00"]
)
def test_nan_is_a_value(tmp_path, spelling):
    found = values(opened(tmp_path, f"step,loss\n0,1\n1,0.5\n2,{spelling}\n3,{spelling}\n"), "loss")
    assert found[1] == 0.5
    assert math.isnan(found[2])
    assert math.isnan(found[3])


@pytest.mark.parametrize("spelling", ["", "NA", "n/a", "#N/A", "null", "None", "-", "<NA>"])
def test_missing_cells_are_no_values(tmp_path, spelling):
    assert values(opened(tmp_path, f"step,loss,acc\n0,1,{spelling}\n1,{spelling},2\n"), "loss") == {0: 1}


def test_nan_in_a_sparse_column_means_not_written(tmp_path):
    trial = opened(tmp_path, "step,loss,val\n0,1,nan\n1,1,nan\n2,1,7\n3,1,nan\n4,1,nan\n5,1,8\n6,1,nan\n")
    assert values(trial, "val") == {2: 7, 5: 8}


def test_nan_in_a_column_that_was_written_at_first_is_a_value(tmp_path):
    """The loss became NaN, and is a number in a few rows after that."""
    cells = ["5", "4", "3", *["nan"] * 6, "2", *["nan"] * 5]
    trial = opened(tmp_path, "step,loss\n" + "".join(f"{step},{cell}\n" for step, cell in enumerate(cells)))
    assert [step for step, value in values(trial, "loss").items() if not math.isnan(value)] == [0, 1, 2, 9]
    assert len(values(trial, "loss")) == len(cells)


def test_nan_in_a_sparse_key_of_json_lines_is_a_value(tmp_path):
    rows = [{"step": step, "loss": 1.0, "val": 7.0 if step in (2, 5) else math.nan} for step in range(6)]
    text = "".join(json.dumps(row | ({"f1": None} if row["step"] else {"f1": 0.5})) + "\n" for row in rows)
    trial = opened(tmp_path, text, "metrics.jsonl")
    assert [step for step, value in values(trial, "val").items() if math.isnan(value)] == [0, 1, 3, 4]
    assert values(trial, "f1") == {0: 0.5}


@pytest.mark.parametrize(("cell", "number"), [("inf", math.inf), ("-Infinity", -math.inf), ("1.#INF", math.inf)])
def test_infinity(tmp_path, cell, number):
    assert values(opened(tmp_path, f"step,loss\n0,{cell}\n"), "loss") == {0: number}


@pytest.mark.parametrize("name", ["Timestep", "time_step", "frame", "Frames", "env_steps"])
def test_steps_of_an_environment_beside_dates(tmp_path, name):
    rows = "".join(f"2024-05-01 12:00:{at:02},{at * 100},{9 - at},0.{at}\n" for at in range(8))
    trial = opened(tmp_path, f"Timestamp,{name},Loss,Length\n{rows}")
    assert trial.tensor_names() == ["Length", "Loss"]
    assert values(trial, "Loss") == {at * 100: 9 - at for at in range(8)}


@pytest.mark.parametrize("text", ["frame,x,y\n0,1,2\n1,2,3\n", "timestep,price\n0,1\n1,2\n"])
def test_frames_of_other_data_are_no_steps(tmp_path, text):
    with pytest.raises(RunNotFound):
        opened(tmp_path, text)


def test_step_that_goes_backwards_is_a_restart(tmp_path):
    text = "step,loss\n0,1\n10,2\n20,3\n10,4\n20,5\n"
    trial = opened(tmp_path, text)
    assert values(trial, "loss") == {0: 1, 10: 4, 20: 5}
    assert trial.orphans("loss")["value"].tolist() == [2, 3]


def test_rows_of_one_step_are_no_restart(tmp_path):
    trial = opened(tmp_path, "epoch,step,loss,val\n0,3,1,\n0,3,,2\n1,7,3,\n")
    assert values(trial, "epoch") == {3: 0, 7: 1}
    assert trial.orphans("epoch")["step"].tolist() == []
    assert trial.notes() == []


@pytest.mark.parametrize("name", ["ep", "it", "itr", "update", "round", "epoch_num", "episode"])
def test_short_names_number_the_rows_beside_a_loss(tmp_path, name):
    trial = opened(tmp_path, f"{name},sec,lr,val_mse\n1,0.2,1e-3,0.5\n2,0.3,9e-4,0.25\n")
    assert values(trial, "val_mse") == {1: 0.5, 2: 0.25}


def test_short_names_number_no_rows_of_other_data(tmp_path):
    (tmp_path / "metrics.csv").write_text("round,player,points\n1,7,20\n2,8,30\n")
    with pytest.raises(RunNotFound, match="none of them is named step"):
        smdwidgets.create_trial(tmp_path)


def test_steps_that_begin_again_in_each_epoch_are_numbered_on(tmp_path):
    trial = opened(tmp_path, "epoch,step,loss\n0,0,1\n0,1,2\n1,0,3\n1,1,4\n2,0,5\n")
    assert values(trial, "loss") == {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}


def test_lengths_of_episodes_number_no_rows(tmp_path):
    rows = "".join(f"{at},{-at},{300 - 70 * (at % 3)},{at % 2}\n" for at in range(1, 13))
    trial = opened(tmp_path, f"episode,reward,steps,win\n{rows}")
    assert values(trial, "reward") == {at: -at for at in range(1, 13)}
    assert values(trial, "steps")[4] == 230
    assert trial.orphans("reward")["step"].tolist() == []


def test_steps_of_an_environment_that_each_row_has(tmp_path):
    rows = "".join(f"{at},{2048 * at},{-at},\n,{2048 * at + 100},,{-2 * at}\n" for at in range(1, 9))
    trial = opened(tmp_path, f"time/iterations,time/total_timesteps,rollout/ep_rew_mean,eval/mean_reward\n{rows}")
    assert values(trial, "eval/mean_reward") == {2048 * at + 100: -2 * at for at in range(1, 9)}
    assert trial.notes() == []


def test_rows_without_a_step_have_the_step_before(tmp_path):
    assert values(opened(tmp_path, "step,loss,val\n5,1,\n,,2\n6,3,\n"), "val") == {5: 2}


def test_fractions_of_an_epoch_number_the_rows(tmp_path):
    assert values(opened(tmp_path, "epoch,loss\n0.25,1\n0.5,2\n0.75,3\n"), "loss") == {0: 1, 1: 2, 2: 3}


def test_timestamps_are_wall_times(tmp_path):
    trial = opened(tmp_path, "step,timestamp,loss\n0,1700000000500,1\n1,1700000001500,2\n")
    assert trial.scalars("loss")["wall_time"].tolist() == [1700000000.5, 1700000001.5]
    assert not trial.has_tensor("timestamp")


def test_elapsed_time_is_a_scalar(tmp_path):
    assert values(opened(tmp_path, "epoch,time,wall_time,loss\n0,10,10,1\n1,20,20,2\n"), "wall_time") == {0: 10, 1: 20}


def test_json_lines(tmp_path):
    rows = [
        {"config": {"lr": 0.1}},
        {"step": 0, "train": {"loss": 1.5, "ok": True}, "note": "text"},
        {"step": 1, "train": {"loss": float("nan")}, "list": [1]},
        {"step": 2, "train": {"loss": "inf"}},
    ]
    trial = opened(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "log.jsonl")
    assert trial.tensor_names() == ["train/loss"]
    found = values(trial, "train/loss")
    assert (found[0], math.isnan(found[1]), found[2]) == (1.5, True, math.inf)


def test_lines_that_are_no_json_are_counted(tmp_path):
    trial = opened(tmp_path, '{"step": 0, "loss": 1}\nINFO text\n{"step": 1, "loss": 2}\n', "log.jsonl")
    assert values(trial, "loss") == {0: 1, 1: 2}
    [(key, message)] = trial.problems()
    assert (key, "1 rows are not JSON objects" in message, str(tmp_path) in message) == ("log.jsonl", True, True)


def test_rows_with_too_many_cells_are_counted(tmp_path):
    trial = opened(tmp_path, "step,loss\n0,1\n1,2,3\n2,4,\n3\n")
    assert values(trial, "loss") == {0: 1, 1: 2, 2: 4}
    [(_, message)] = trial.problems()
    assert f"{tmp_path / 'metrics.csv'}, from byte 10: 1 rows have more cells than the header" in message


def test_growing_table(tmp_path):
    file = tmp_path / "metrics.csv"
    trial = opened(tmp_path, "step,loss,val\n0,1,\n")
    assert values(trial, "loss") == {0: 1}
    with file.open("a") as out:
        out.write("1,0.12")
        out.flush()
        assert values(trial, "loss") == {0: 1}, "the last line is incomplete"
        out.write("5,\n2,0.5,3\n")
    assert values(trial, "loss") == {0: 1, 1: 0.125, 2: 0.5}
    assert values(trial, "val") == {2: 3}


def test_last_line_without_line_end_is_read_once_the_file_rests(tmp_path):
    file = tmp_path / "metrics.csv"
    trial = opened(tmp_path, "step,loss\n0,1\n1,25")
    assert values(trial, "loss") == {0: 1}
    make_old(file)
    assert values(trial, "loss") == {0: 1, 1: 25}
    with file.open("a") as out:
        out.write("6\n2,3\n")
    assert values(trial, "loss") == {0: 1, 1: 256, 2: 3}


def test_rewritten_table_with_another_header(tmp_path):
    trial = opened(tmp_path, "step,loss\n0,1\n1,2\n")
    assert values(trial, "loss") == {0: 1, 1: 2}
    (tmp_path / "metrics.csv").write_text("step,loss,val\n0,1,\n1,2,\n1,,7\n")
    assert values(trial, "loss") == {0: 1, 1: 2}
    assert values(trial, "val") == {1: 7}
    assert trial.restarts == 0


def test_rewritten_table_with_the_same_header(tmp_path):
    trial = opened(tmp_path, "step,loss\n0,1\n1,2\n2,3\n")
    assert len(values(trial, "loss")) == 3
    (tmp_path / "metrics.csv").write_text("step,loss\n0,9\n1,8\n2,7\n3,6\n4,5\n")
    assert values(trial, "loss") == {0: 9, 1: 8, 2: 7, 3: 6, 4: 5}


def test_table_that_appears_later(tmp_path):
    trial = opened(tmp_path, "step,loss\n0,1\n", "train.csv")
    assert trial.tensor_names() == ["train/loss"]
    (tmp_path / "val.csv").write_text("step,loss\n0,2\n")
    assert trial.tensor_names() == ["train/loss", "val/loss"]


def test_tables_with_columns_of_one_name(tmp_path):
    (tmp_path / "a.csv").write_text("step,loss\n0,1\n")
    (tmp_path / "b.csv").write_text("step,loss\n0,2\n")
    trial = smdwidgets.create_trial(tmp_path)
    assert [values(trial, name) for name in ("loss", "loss (b.csv)")] == [{0: 1}, {0: 2}]


def test_header_only(tmp_path):
    trial = opened(tmp_path, "step,loss\n")
    assert trial.steps() == []
    with (tmp_path / "metrics.csv").open("a") as out:
        out.write("3,1\n")
    assert trial.steps() == [3]


def test_deleted_table_keeps_what_was_read(tmp_path):
    trial = opened(tmp_path, "step,loss\n0,1\n")
    assert values(trial, "loss") == {0: 1}
    (tmp_path / "metrics.csv").unlink()
    assert values(trial, "loss") == {0: 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "name,age\nann,1\n",
        "1,2\n3,4\n",
        "step,label\n0,cat\n1,dog\n",
        "step\n0\n1\n",
        '{"step": [1]}',
        "[1, 2]\n",
        "\0\0step,loss\n0,1\n",
        "every step, taken with care\nis a loss, they say\n",
        '{"a": ' * 100_000,
    ],
)
def test_other_files_are_no_tables(tmp_path, text):
    for name in ("data.csv", "data.jsonl", "data.txt"):
        (tmp_path / name).write_text(text)
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_recognized_or_not(data):
    layout = layout_of(data)
    assert layout is None or layout.start <= len(data)


@given(st.text(alphabet=",;\t|\"'\n\r step0123.naNinf{}:é\u2028\ufeff", max_size=200))
def test_any_rows_are_read(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("any")
    trial = opened(folder, "step,loss\n0,1\n" + text)
    trial.refresh_data()
    make_old(folder / "metrics.csv")
    assert values(trial, "loss" if trial.has_tensor("loss") else trial.tensor_names()[0])


@pytest.mark.slow
def test_a_million_columns(tmp_path):
    names = ",".join(f"c{at}" for at in range(1_000_000))
    cells = ",".join(["1"] * 1_000_000)
    trial = opened(tmp_path, f"{names},step\n{cells},5\n")
    assert len(trial.tensor_names()) == MOST_COLUMNS
    assert values(trial, "c0") == {5: 1}
    [(_, message)] = trial.problems()
    assert f"{tmp_path / 'metrics.csv'}, line 1: 1,000,001 columns; the first 10,000 are read" in message


@pytest.mark.slow
def test_long_table_in_pieces(tmp_path):
    rows = 400_000
    steps = np.arange(rows)
    text = "step,loss,acc\n" + "".join(f"{step},{step / 8},{-step}\n" for step in steps)
    assert len(text) > 8 << 20
    trial = opened(tmp_path, text)
    table = trial.scalars("loss")
    assert (table["step"] == steps).all()
    assert (table["value"] == steps / 8).all()


def test_one_file_of_a_directory(tmp_path):
    (tmp_path / "a.csv").write_text("step,loss\n0,1\n")
    (tmp_path / "b.csv").write_text("step,acc\n0,2\n")
    trial = smdwidgets.create_trial(tmp_path / "b.csv")
    assert (trial.name, trial.tensor_names(), trial.sources()) == ("b.csv", ["acc"], ["b.csv"])


def test_several_runs(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.csv").write_text(f"epoch,loss\n0,{ord(name)}\n")
    with pytest.raises(SeveralRuns):
        smdwidgets.create_trial(tmp_path)
    trials = smdwidgets.create_trials(tmp_path)
    assert {name: values(trial, "loss") for name, trial in trials.items()} == {"a": {0: 97}, "b": {0: 98}}
    assert trials["a"].runs() == ["a", "b"]


def test_links_pipes_and_hidden_directories_are_ignored(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "metrics.csv").write_text("step,loss\n0,1\n")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere")
    (tmp_path / "metrics.csv").write_text("step,loss\n0,1\n")
    assert smdwidgets.create_trial(tmp_path).sources() == ["metrics.csv"]


def test_links_out_of_the_directory_are_not_followed(tmp_path):
    (tmp_path / "secret.csv").write_text("step,secret\n0,1\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.csv").write_text("step,loss\n0,1\n")
    (run / "out.csv").symlink_to(tmp_path / "secret.csv")
    (run / "above").symlink_to(tmp_path)
    assert smdwidgets.create_trial(run).tensor_names() == ["loss"]


def test_a_run_of_a_hook_stays_one(tmp_path):
    from smdwidgets.numpy import Hook

    with Hook(tmp_path / "run") as hook:
        hook.save_scalar("loss", 1.0)
    (tmp_path / "run" / "metrics.csv").write_text("step,loss\n0,1\n")
    assert isinstance(smdwidgets.create_trial(tmp_path / "run"), LocalTrial)


def test_table_beside_event_files(tmp_path):
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(3):
            writer.add_scalar("loss", step + 0.1, step)
            writer.add_scalar("lr", 0.5, step)
    # Two loggers wrote the loss; the other columns of the table are new, or have other numbers.
    (tmp_path / "metrics.csv").write_text("step,loss,acc,lr\n0,0.1,1,7\n1,1.1,2,7\n2,2.1,3,7\n3,3.1,4,7\n")
    trial = smdwidgets.create_trial(tmp_path)
    assert isinstance(trial, SourceTrial)
    assert isinstance(trial, TensorBoardTrial)
    assert trial.tensor_names() == ["acc", "loss", "lr", "lr (metrics.csv)"]
    assert list(values(trial, "loss")) == [0, 1, 2]
    assert values(trial, "acc") == {0: 1, 1: 2, 2: 3, 3: 4}
    assert trial.wall_time("loss", 0) > 0


def test_settings_beside_a_table(tmp_path):
    (tmp_path / "hparams.yaml").write_text("lr: 0.5\nmodel:\n  name: 'mlp'\n")
    assert opened(tmp_path, "step,loss\n0,1\n").hparams() == {"lr": 0.5, "model/name": "mlp"}
