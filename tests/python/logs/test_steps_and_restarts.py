"""Negative steps, values superseded by restarts, and summaries with a bad value."""

from __future__ import annotations

from pathlib import Path

from python.logs.logs import accumulated, event, field, log, writer
from smdwidgets import ModeKeys, create_trial
from smdwidgets.trials import TensorBoardTrial


def test_negative_steps_are_read_as_tensorboard_reads_them(tmp_path: Path) -> None:
    with writer(tmp_path) as out:
        for step in range(-3, 2):
            out.add_scalar("x", float(step), step)
        out.add_scalar("only_negative", 1.0, -1)
        out.add_text("note", "before", -2)
    with create_trial(tmp_path) as trial:
        assert isinstance(trial, TensorBoardTrial)
        assert trial.steps() == [-3, -2, -1, 0, 1]
        assert trial.tensor("x").steps() == [-3, -2, -1, 0, 1]
        assert [trial.tensor("x").value(step).item() for step in trial.steps()] == [-3, -2, -1, 0, 1]
        assert trial.tensor("only_negative").steps() == [-1]
        assert trial.tensor("note/text_summary").value(-2).item() == "before"
        assert trial.tensor_names(step=-1) == ["only_negative", "x"]
        assert trial.mode_modestep(-3) == (ModeKeys.GLOBAL, -3)
        assert trial.reductions("x", steps=[-2], reductions="mean")["mean"].tolist() == [-2]
        found = accumulated(tmp_path)["scalars"]
        scalars = trial.scalars()
        assert scalars["step"].tolist() == [step for rows in found.values() for step, _, _ in rows]


def test_steps_of_modes_may_be_negative(tmp_path: Path) -> None:
    for mode in ("train", "eval"):
        with writer(tmp_path / mode) as out:
            for step in (-1, 0):
                out.add_scalar("x", float(step), step)
    with create_trial(tmp_path) as trial:
        assert trial.steps("EVAL") == [-1, 0]
        assert trial.tensor("x").value(-1, "TRAIN").item() == -1
        assert len(trial.steps()) == 4


def test_other_values_of_a_summary_with_a_bad_value_are_read(tmp_path: Path) -> None:
    def one(tag: bytes, content: bytes) -> bytes:
        return field(1, field(1, tag) + content)

    number = b"\x15\x00\x00\x80\x3f"
    summary = one(b"first", number) + one(b"\xff\xfe", number) + one(b"old", field(3, b"")) + one(b"last", number)
    log(tmp_path, event(field(5, summary), step=3))
    with create_trial(tmp_path) as trial:
        assert trial.tensor_names() == ["first", "last"]
        assert trial.tensor("last").value(3).item() == 1
        [(_, message)] = trial.problems()
        assert "UTF-8" in message


def test_values_that_a_restart_superseded_are_counted(tmp_path: Path) -> None:
    with writer(tmp_path) as out:
        for step in [*range(10), *range(3, 6)]:
            out.add_scalar("x", float(step), step)
            out.add_scalar("y", 0.0, step)
    with create_trial(tmp_path) as trial:
        [(worker, note)] = trial.notes()
        assert worker == ""
        assert note.startswith("14 values are hidden")
        assert "keep_orphans=True" in note
    with create_trial(tmp_path, keep_orphans=True) as trial:
        assert trial.notes() == []
        assert len(trial.steps()) == 10


def test_no_note_without_a_restart(tmp_path: Path) -> None:
    with writer(tmp_path) as out:
        out.add_scalar("x", 1.0, 3)
    with create_trial(tmp_path) as trial:
        assert trial.notes() == []
