"""The end marker: its content, and that a file with any content is an end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets import create_trial
from smdwidgets.cli import main
from smdwidgets.numpy import Hook
from smdwidgets.run_end import COMPLETED, END_FILE, LARGEST_END_FILE, RunEnd


@pytest.mark.parametrize(
    "end",
    [COMPLETED, RunEnd("exception", "ValueError: x"), RunEnd("signal", "SIGTERM", {"worker_1": "signal (SIGTERM)"})],
)
def test_marker_reads_back(end):
    assert RunEnd.parse(end.to_json()) == end


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b'{"how": 3}', b'{"how": "won"}', b"\xff\xfe", b"[" * 100_000, b'{"how": "signal"']
)
def test_marker_of_other_programs_is_an_end_without_details(content):
    assert RunEnd.parse(content) == RunEnd("ended")


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(lambda x: json.dumps(x).encode()))
def test_any_content_is_an_end(content):
    assert isinstance(str(RunEnd.parse(content)), str)


def test_exception_with_control_characters_and_without_message():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    assert RunEnd.of(Odd()).detail == "Odd"
    assert "\x1b" not in RunEnd.of(ValueError("\x1b[2J")).detail
    assert len(RunEnd.of(ValueError("x" * 10_000)).detail) <= 500


def test_trial_and_inspect_report_how_training_ended(tmp_path, capsys):
    run = tmp_path / "run"

    def train():
        with Hook(run) as hook:
            hook.save_scalar("loss", 1.0)
            raise ValueError("loss is NaN")

    with pytest.raises(ValueError, match="NaN"):
        train()
    with create_trial(run) as trial:
        assert trial.run_end() == RunEnd("exception", "ValueError: loss is NaN")
        assert "ended: exception (ValueError: loss is NaN)" in repr(trial)
    assert main(["inspect", str(run)]) == 0
    assert "ended: exception (ValueError: loss is NaN)" in capsys.readouterr().out

    (run / END_FILE).write_bytes(b"x" * (LARGEST_END_FILE * 4))
    with create_trial(run) as trial:
        assert trial.run_end() == RunEnd("ended")
        assert trial.loaded_all_steps
    (run / END_FILE).unlink()
    with create_trial(run) as trial:
        assert trial.run_end() is None
