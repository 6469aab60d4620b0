"""The file of checks: what is written, read, joined, and refused."""

import json

import pytest

import smdwidgets
from smdwidgets.checks.file import CheckFile
from smdwidgets.checks.log import CheckLog, chosen_checks
from smdwidgets.checks.record import CheckRecords
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.finding import CHECKS
from smdwidgets.numpy import Hook


def log_and_lines(chosen=True):
    lines = []
    return CheckLog(chosen_checks(chosen), lines.append), lines


def read(lines, worker="worker_0"):
    return CheckRecords.parse({worker: b"".join(lines)})


def test_a_check_is_written_at_first_sight_and_at_the_end():
    log, lines = log_and_lines()
    for step in range(1, 8):
        log.say("not_reset", step, {"optimizer": "SGD"}, ["SGD"])
    assert len(lines) == 1
    log.close(8)
    [record] = read(lines)
    assert (record.id, record.level, record.first, record.last, record.count) == ("not_reset", "problem", 1, 7, 7)
    assert read(lines).updates == 8
    assert "SGD" in record.says


def test_a_check_that_needs_several_sightings_names_the_first():
    log, lines = log_and_lines()
    for step in (4, 5, 6):
        log.say("constant_output", step, need=3)
    assert [(one.first, one.last) for one in read(lines)] == [(4, 6)]


def test_sightings_with_a_gap_do_not_add_up():
    log, lines = log_and_lines()
    for step in range(6):
        log.say("constant_output", step, need=3)
        if step % 2:
            log.unseen("constant_output")
    assert not lines


def test_a_graver_level_is_written_again():
    log, lines = log_and_lines()
    log.say("train_in_eval_mode", 1, level="warning")
    log.say("train_in_eval_mode", 5)
    log.say("train_in_eval_mode", 6, level="warning")
    assert [(one.level, one.first) for one in read(lines)] == [("problem", 1)]


def test_warnings_are_logged_once_and_notes_are_not(caplog):
    log, _ = log_and_lines()
    for step in (0, 1):
        log.say("sum_reduction", step)
        log.say("loss_is_leaf", step)
    [message] = caplog.messages
    assert message.startswith("problem at step 0: `backward()` is called on a tensor")
    assert message.endswith("(smdwidgets explain loss_is_leaf)")


def test_a_check_that_is_off_says_why_and_fires_no_more():
    log, lines = log_and_lines()
    log.off(["sees_future"], "torch.compile has made the graph")
    log.off(["sees_future"], "again")
    log.say("sees_future", 1)
    assert read(lines).off == {"sees_future": "torch.compile has made the graph"}
    assert not read(lines).fired


@pytest.mark.parametrize(
    ("option", "runs", "without"),
    [
        (True, "untied", None),
        (["-untied"], "not_reset", "untied"),
        (["untied"], "untied", "not_reset"),
        (False, None, "untied"),
    ],
)
def test_checks_are_chosen(option, runs, without):
    chosen = chosen_checks(option)
    assert runs is None or runs in chosen
    assert without not in chosen


def test_unknown_checks_are_refused(tmp_path):
    with pytest.raises(SMDebugValueError, match="Did you mean 'untied'"):
        Hook(tmp_path / "run", checks=["-untide"])
    with pytest.raises(SMDebugTypeError, match="checks must be"):
        Hook(tmp_path / "run", checks="untied")


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"id": "no_such_check", "level": "problem", "first": 0, "last": 0, "count": 1}',
        b'{"id": "untied", "level": "fatal", "first": 0, "last": 0, "count": 1}',
        b'{"id": "untied", "level": "problem", "first": "0", "last": 0, "count": 1}',
        b'{"id": "untied", "level": "problem", "first": 0, "last": 0, "count": 1, "subject": 3}',
        b'{"digest": 3}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_invalid_lines_are_problems_and_the_others_are_read(line):
    log, lines = log_and_lines()
    log.say("untied", 0, {"tensor": "a", "other": "b"})
    records = read([line + b"\n", *lines])
    assert [one.id for one in records] == ["untied"]
    assert len(records.problems) == 1


def test_an_incomplete_last_line_is_ignored():
    log, lines = log_and_lines()
    log.say("untied", 0, {"tensor": "a", "other": "b"})
    records = read([*lines, lines[0][:-5]])
    assert len(records) == 1
    assert not records.problems


def digests(*values, replicated=False):
    return b"".join(
        json.dumps({"digest": step, "tensors": {"w": ["(2,)", value, replicated]}}).encode() + b"\n"
        for step, value in enumerate(values)
    )


@pytest.mark.parametrize(
    ("mine", "other", "first"),
    [
        (digests(1, 2, 3), digests(1, 2, 3), None),
        (digests(1, 2, 3), digests(1, 2, 4), 2),
        (digests(1, 2, 3), digests(5, 6, 7), None),  # two separate trainings
        (digests(1, 2, replicated=True), digests(5, 6, replicated=True), 0),
        (digests(1, 2, 3), digests(1), None),
    ],
)
def test_digests_of_workers_are_compared(mine, other, first):
    records = CheckRecords.parse({"worker_0": mine, "worker_1": other})
    assert [one.first for one in records] == ([] if first is None else [first])
    assert all(one.id == "replicas_differ" for one in records)


def test_a_trial_and_its_diagnosis_have_the_checks(tmp_path):
    with Hook(tmp_path / "run") as hook:
        for step in range(20):
            hook.save_scalar("loss", 1 / (1 + step))
            hook.step()
    log = CheckLog(chosen_checks(True), CheckFile(tmp_path / "run", "worker_0").append)
    log.say("not_reset", 1, {"optimizer": "SGD"}, ["SGD"])
    log.off(["sees_future"], "the model is compiled")
    trial = smdwidgets.create_trial(tmp_path / "run")
    assert repr(trial.checks()) == "step 1: Gradients are not reset between two updates of SGD"
    diagnosis = smdwidgets.diagnose(trial)
    [finding] = diagnosis.findings
    assert (finding.kind, finding.confidence, finding.source, finding.first) == ("not_reset", "proof", "check", 1)
    assert ("check sees_future", "the model is compiled") in diagnosis.unjudged
    assert not smdwidgets.diagnose(trial, until=0).findings


def test_a_run_that_is_overwritten_loses_its_checks(tmp_path):
    for _ in range(2):
        with Hook(tmp_path / "run", overwrite=True) as hook:
            hook.save_scalar("loss", 1.0)
        assert not smdwidgets.create_trial(tmp_path / "run").checks().workers
        CheckLog(chosen_checks(True), CheckFile(tmp_path / "run", "worker_0").append).say("float64", 0)
        assert smdwidgets.create_trial(tmp_path / "run").checks().workers == ("worker_0",)


def test_a_file_that_cannot_be_written_is_said_once(tmp_path, caplog):
    (tmp_path / "checks").write_text("a file")
    file = CheckFile(tmp_path, "worker_0")
    file.append(b"{}\n")
    file.append(b"{}\n")
    assert len(caplog.messages) == 1


def test_identifiers_of_checks_are_unique():
    assert len({one.id for one in CHECKS}) == len(CHECKS)
