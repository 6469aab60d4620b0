"""Output and exit codes of inspect, show, verify, report and completion."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from tensorboardX import SummaryWriter

from python import tfrecords
from smdwidgets import _core, cli
from smdwidgets.modes import ModeKeys
from smdwidgets.numpy import Hook
from smdwidgets.pictures.packet import unpack

HOSTILE = "evil\x1b[2J\rname"


@pytest.fixture
def run(tmp_path):
    """A run of ten training steps, each followed by an evaluation step."""
    path = tmp_path / "run"
    with Hook(path) as hook:
        for step in range(10):
            hook.set_mode(ModeKeys.TRAIN)
            hook.save_tensor("w", np.arange(24, dtype=np.float32).reshape(4, 6) * step, "weights")
            hook.save_tensor(HOSTILE, np.float32(1.5), "losses")
            hook.step()
            hook.set_mode(ModeKeys.EVAL)
            hook.save_tensor("accuracy", np.float64(step / 10), "metrics")
            hook.step()
    return path


def run_command(capsys, *arguments):
    code = cli.main([str(each) for each in arguments])
    result = capsys.readouterr()
    return code, result.out, result.err


def test_inspect_summarizes_the_run(run, capsys):
    code, out, err = run_command(capsys, "inspect", run)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "state        ended: completed" in lines
    assert "steps        20, 0 to 19" in lines
    assert "  TRAIN      10, 0 to 9" in lines
    assert any(line.split() == ["w", "float32", "4x6", "10"] for line in lines)
    assert "3 tensors" in out


def test_inspect_json_output(run, capsys):
    code, out, _ = run_command(capsys, "inspect", run, "--json", "--tensors", "^w$")
    result = json.loads(out)
    assert code == 0
    assert result["ended"] is True
    assert result["modes"]["EVAL"] == {"count": 10, "first": 0, "last": 9}
    assert result["collections"]["weights"] == 1
    assert result["bytes"] == sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    steps = {"count": 10, "first": 0, "last": 18}
    assert result["tensors"] == [{"name": "w", "steps": steps, "dtype": "float32", "shape": [4, 6]}]


@pytest.mark.parametrize("command", [["inspect"], ["export", "--to", "csv"], ["report"]])
def test_pattern_that_matches_no_tensor_is_an_error_with_a_suggestion(run, capsys, command):
    code, out, err = run_command(capsys, *command, run, "--tensors", "prefix/Ww")
    assert (code, out) == (2, "")
    assert "no tensor of run 'run' matches 'prefix/Ww'." in err


def test_control_characters_in_names_are_escaped(run, capsys):
    for command in (["inspect", run], ["show", run, HOSTILE]):
        code, out, _ = run_command(capsys, *command)
        assert code == 0
        assert "\x1b" not in out
        assert "\r" not in out
        assert "evil\\x1b[2J\\rname" in out


def test_show_prints_statistics_and_histogram(run, capsys):
    code, out, _ = run_command(capsys, "show", run, "w", "--step", "2", "--bins", "2")
    assert code == 0
    assert "step 2 (TRAIN 1)  float32 (4, 6), 96 B" in out
    assert "min 0  max 23  mean 11.5" in out
    assert [line.split()[-1] for line in out.splitlines()[-2:]] == ["12", "12"]


def test_show_step_of_a_mode(run, capsys):
    code, out, _ = run_command(capsys, "show", run, "accuracy", "--mode", "eval", "--step", "3", "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["step"], result["mode"], result["mode_step"], result["values"]) == (7, "EVAL", 3, [0.3])


def test_show_missing_step_or_tensor(run, capsys):
    code, out, err = run_command(capsys, "show", run, "w", "--step", "99")
    assert (code, out) == (2, "")
    assert "99" in err
    code, _, err = run_command(capsys, "show", run, "accurac")
    assert code == 2
    assert "Did you mean 'accuracy'?" in err


def test_verify_intact_run_has_no_faults(run, capsys):
    code, out, err = run_command(capsys, "verify", run)
    assert (code, err) == (0, "")
    assert "30 records" in out
    assert out.endswith("No faults.\n")


def test_verify_reports_file_and_offset_of_flipped_bit(run, capsys):
    [victim] = (run / "events").rglob("000000000004_worker_0.tfevents")
    data = bytearray(victim.read_bytes())
    at = data.rindex(np.float32(46).tobytes())  # the last element of w
    data[at] ^= 1
    victim.write_bytes(data)
    code, out, _ = run_command(capsys, "verify", run, "--json")
    [fault] = json.loads(out)["faults"]
    assert code == 1
    assert fault["file"] == victim.relative_to(run).as_posix()
    assert (fault["tensor"], fault["step"]) == ("w", 4)
    assert fault["offset"] <= at
    code, out, _ = run_command(capsys, "verify", run)
    assert code == 1
    assert f"{fault['file']} at byte" in out
    assert out.endswith("1 fault.\n")
    assert run_command(capsys, "verify", run, "--steps", "5:")[0] == 0


@pytest.mark.parametrize("wrong", ["truncated", "index", "no index", "collections"])
def test_verify_detects_damaged_files(run, capsys, wrong):
    [events] = (run / "events").rglob("000000000004_worker_0.tfevents")
    [index] = (run / "index").rglob("000000000004_worker_0.json")
    [collections] = (run / "collections").rglob("*.json")
    if wrong == "truncated":
        os.truncate(events, events.stat().st_size - 3)
    elif wrong == "index":
        index.write_text("{")
    elif wrong == "no index":
        index.unlink()
    else:
        collections.write_text("[")
    code, out, _ = run_command(capsys, "verify", run, "--json")
    assert code == 1
    file = {"truncated": events, "no index": events, "index": index}.get(wrong, collections.parents[1])
    assert {fault["file"].rstrip("/") for fault in json.loads(out)["faults"]} >= {file.relative_to(run).as_posix()}


def log_of(folder, steps=range(5), damage=None, tail=b""):
    folder.mkdir(parents=True)
    data = bytearray(_core.version_record(1.0))
    for step in steps:
        at = len(data)
        data += _core.scalar_record("loss", step, 1.0, step / 10)
        if step == damage:
            data[at + 20] ^= 1
    (folder / "events.out.tfevents.1").write_bytes(data + tail)
    os.utime(folder / "events.out.tfevents.1", (1e9, 1e9))
    return folder


def test_verify_tensorboard_logs(tmp_path, capsys):
    log_of(tmp_path / "logs" / "one")
    log_of(tmp_path / "logs" / "two")
    code, out, _ = run_command(capsys, "verify", tmp_path / "logs")
    assert code == 0
    assert "2 event files" in out
    assert out.endswith("No faults.\n")
    victim = log_of(tmp_path / "logs" / "three", damage=3)
    log_of(tmp_path / "logs" / "four", tail=b"\x20\0\0")
    code, out, _ = run_command(capsys, "verify", tmp_path / "logs", "--json")
    result = json.loads(out)
    assert code == 1
    assert (result["files"], result["ended"]) == (4, True)
    faults = {fault["file"]: fault for fault in result["faults"]}
    assert set(faults) == {"three/events.out.tfevents.1", "four/events.out.tfevents.1"}
    [damaged] = [
        record for record in tfrecords.records((victim / "events.out.tfevents.1").read_bytes()) if not record.checked
    ]
    assert faults["three/events.out.tfevents.1"]["offset"] == damaged.offset
    cut = faults["four/events.out.tfevents.1"]
    assert cut["offset"] == (tmp_path / "logs" / "four" / "events.out.tfevents.1").stat().st_size - 3
    assert "middle of a record" in cut["message"]
    code, _, err = run_command(capsys, "verify", tmp_path / "logs", "--steps", "1:2")
    assert code == 2
    assert "--steps" in err


def test_report_is_one_self_contained_file(run, tmp_path, capsys):
    page = tmp_path / "page.html"
    code, out, _ = run_command(capsys, "report", run, "-o", page, "--rules", "UnchangedTensor,LossSpike")
    assert code == 2  # UnchangedTensor requires a tensor selection
    assert not page.exists()
    code, out, _ = run_command(capsys, "report", run, "-o", page, "--rules", "LossSpike")
    assert code == 0
    text = page.read_text("utf-8")
    assert "default-src 'none'" in text
    assert "smdw-packet" in text
    assert "0 of 1 rules fired" in out
    assert [file.name for file in tmp_path.iterdir() if file != run] == ["page.html"]


def test_report_contains_curves_and_omits_unjudged_rules(run, tmp_path, capsys):
    page = tmp_path / "page.html"
    code, out, _ = run_command(capsys, "report", run, "-o", page)
    assert code == 0
    packets = [
        unpack(base64.b64decode(text))[0]
        for text in re.findall(r'class="smdw-packet">([^<]*)<', page.read_text("utf-8"))
    ]
    assert {head["tensor"] for head in packets if head["kind"] == "series"} == {HOSTILE, "accuracy"}
    names = {rule["name"] for head in packets if head["kind"] == "rules" for rule in head["rules"]}
    assert f"of {len(names)} rules fired" in out
    assert "ExplodingTensor" in names
    assert "TreeDepth" not in names


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_contains_all_commands(capsys, shell):
    code, out, _ = run_command(capsys, "completion", shell)
    assert code == 0
    assert all(name in out for name in cli.COMMANDS)


def test_command_help_has_example_and_exit_codes(capsys):
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit) as ended:
            cli.main([name, "--help"])
        result = capsys.readouterr().out
        assert ended.value.code == 0
        assert f"  smdwidgets {name}" in result
        assert "Exit code" in result


def test_help_is_shown_without_command(capsys):
    code, out, err = run_command(capsys)
    assert (code, out) == (2, "")
    assert all(name in err for name in cli.COMMANDS)


PROGRESS = """
import sys
from smdwidgets import _core, cli
from smdwidgets.rules import progress
progress.QUIET_SECONDS = progress.BETWEEN = 0.0
raise SystemExit(cli.main(["verify", sys.argv[1]]))
"""


def test_progress_is_shown_only_on_a_terminal(run):
    pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")
    command = [sys.executable, "-c", PROGRESS, str(run)]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    ours, theirs = pty.openpty()
    try:
        on_terminal = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True)
        drawn = os.read(ours, 1 << 16).decode("utf-8")
    finally:
        os.close(ours)
        os.close(theirs)
    assert on_terminal.stdout == piped.stdout
    assert "verify " in drawn
    assert drawn.endswith("\r")  # the progress line is erased at the end


def test_closed_pipe_is_not_an_error(run):
    reader = subprocess.run(
        f"{sys.executable} -m smdwidgets inspect {run} --json | head -c 1", shell=True, capture_output=True, check=False
    )
    assert reader.stderr == b""


# ---------------------------------------------------------------------------------------------------- common mistakes


@pytest.mark.parametrize("command", ["inspect", "verify", "report", "check", "diagnose"])
def test_missing_directory(run, capsys, command):
    code, out, err = run_command(capsys, command, run.with_name(run.name + "s"))
    assert (code, out) == (2, "")
    assert f"no such file or directory. Did you mean {run.name!r}?" in err
    assert "wait=" not in err  # the hint at create_trial's argument is for Python only


@pytest.mark.parametrize("command", ["inspect", "verify", "report", "check", "diagnose"])
def test_empty_directory_fails_immediately(tmp_path, capsys, command):
    code, _, err = run_command(capsys, command, tmp_path)
    assert code == 2
    assert "the directory is empty" in err


def test_file_instead_of_directory(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    code, _, err = run_command(capsys, "inspect", tmp_path / "file" / "below")
    assert code == 2
    assert "file' is a file, not a directory" in err


def test_follow_waits_for_empty_directory_and_logs_it(tmp_path, capsys, caplog):
    code, _, err = run_command(capsys, "check", tmp_path, "--follow", "--timeout", "1.5")
    assert code == 2
    assert "timed out after 1.5 s waiting for" in err
    assert f"Still waiting for a run to start at {tmp_path}" in caplog.text


@pytest.fixture
def log(tmp_path):
    with SummaryWriter(str(tmp_path / "log")) as writer:
        for step in range(8):
            writer.add_scalar("loss", 1 / (step + 1), step)
    return tmp_path / "log"


@pytest.mark.parametrize("command", ["inspect", "check", "diagnose", "report", "show", "verify"])
def test_commands_accept_tensorboard_logs(log, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    more = {"show": ["loss"], "diagnose": ["--allow-unjudged"], "check": ["--allow-unjudged"]}.get(command, [])
    code, _, err = run_command(capsys, command, log, *more)
    assert (code, err) == (0, "")


def test_missing_boto3_error_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)  # boto3 is needed to find credentials only
    code, _, err = run_command(capsys, "inspect", "s3://bucket/run")
    assert code == 2
    assert "smdwidgets[s3]" in err
