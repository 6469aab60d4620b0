"""Wrong command lines end with exit code 2 and say what to do.

They print nothing else. Exit code 1 means a problem of the run, so that no problem of the command may end with it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smdwidgets import cli
from smdwidgets.exceptions import RunIOError
from smdwidgets.numpy import Hook


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps, and files that are no runs."""
    root = tmp_path_factory.mktemp("wrong")
    with Hook(str(root / "run"), plan=False) as hook:
        for step in range(20):
            hook.set_mode("eval" if step % 10 == 9 else "train")
            hook.save_tensor("loss", np.float32(1 / (step + 1)), "losses")
            if step % 10 != 9:
                hook.save_tensor("fc1.weight", np.full((3, 2), step, np.float32), "weights")
            hook.step()
    (root / "empty").mkdir()
    (root / "zero.csv").write_text("")
    (root / "blank.csv").write_text("\n\n")
    (root / "utf16.csv").write_text("step,loss\n1,2\n", "utf-16")
    (root / "latin1.csv").write_text("größe,loss\n1,2\n", "latin-1")
    (root / "binary.csv").write_bytes(b"a\0b")
    (root / "no_steps.csv").write_text("age;height\n1;2\n")
    (root / "words.csv").write_text("step,loss\none,two\n")
    (root / "broken.jsonl").write_text('{"loss": \n')
    (root / "list.jsonl").write_text("[1, 2]\n")
    (root / "picture.png").write_bytes(b"\x89PNG")
    return root


#: Command lines, and a part of the message.
WRONG = {
    "diagnose zero.csv": "zero.csv': the file is empty.",
    "diagnose blank.csv": "the file has no line with text.",
    "diagnose utf16.csv": "the file is encoded in UTF-16, not UTF-8; convert it with: iconv -f UTF-16 -t UTF-8.",
    "diagnose latin1.csv": "The file is not valid UTF-8: byte 2 is 0xf6.",
    "diagnose binary.csv": "the file is binary (byte 1 is zero), not text in UTF-8.",
    "diagnose no_steps.csv": "line 1 has 2 columns ('age', 'height'), separated by a semicolon; none of them is named step",
    "diagnose words.csv": "but no row below has a number for a step and a value.",
    "diagnose broken.jsonl": "line 1 is not valid JSON: Expecting value, at column 10; each line must be one JSON object.",
    "diagnose list.jsonl": "line 1 is not a JSON object, but '[1, 2]'; each line must be one JSON object.",
    "verify picture.png": "files that end in '.png' are not read; read are CSV,",
    "diagnose empty": "the directory is empty.",
    "diagnose zero.csv/below": "zero.csv' is a file, not a directory.",
    "diagnose rum": "no such file or directory. Did you mean 'run'?",
    "diagnose run --kind lsos=loss": "there is no series 'lsos'. Did you mean 'loss'?",
    "diagnose run --kind loss=los": "invalid kind 'los' of series 'loss'; choose from",
    "diagnose run --kind loss": "expected NAME=KIND",
    "diagnose run --until -3": "invalid value '-3'; must be an integer of at least 0",
    "show run fc1.wieght": "the run has no tensor 'fc1.wieght'. Did you mean 'fc1.weight'? `smdwidgets inspect RUN` lists",
    "show run loss --step 99999": "step 99999 was not saved: the run has ended; the last step is 19",
    "show run loss --step 99 --mode TRAIN": "step 99 of TRAIN was not saved: the run has ended; the last step is 17",
    "show run fc1.weight --step 9": "no value of tensor 'fc1.weight' at step 9: it was not saved. Without --step,",
    "show run fc1.weight --mode EVAL": "tensor 'fc1.weight' was not saved in mode EVAL, but in TRAIN",
    "show run fc1.weight --worker w9": "no worker 'w9'. The workers are 'worker_0'.",
    "show run loss --mode trian": "invalid mode 'trian'; choose from TRAIN, EVAL, PREDICT, GLOBAL. Did you mean TRAIN?",
    "show run loss --bins 0": "invalid value '0'; must be an integer from 1 to 1024",
    "show run loss --step -1": "must be an integer of at least 0",
    "report run -o .": "cannot write the report: '.' is a directory; give a file with -o",
    "report run -o missing/x.html": "cannot write the report: the directory ",
    "report run -o -": "the report cannot be written to standard output; give a file with -o",
    "report run --no-rules -o /proc/x.html": "cannot write the report",
    "report run --rules DeadRely": "unknown rule 'DeadRely'. Did you mean 'DeadRelu'? `smdwidgets check --list` lists",
    "report run --tensors nope": "matches 'nope'. `smdwidgets inspect` lists the tensors",
    "export run --to csv -o empty": "output 'empty' is a directory",
    "export run --to csv -o /proc/x": "cannot write '/proc/x'",
    "export run --to csv --mode trian": "invalid mode 'trian'",
    "export run --to csv --workers w9": "no worker 'w9'. The workers are 'worker_0'.",
    "export run --to csv --tensors nope": "matches 'nope'. `smdwidgets inspect` lists the tensors",
    "export run --to csv --steps 500:600": "its steps are 0 to 19",
    "export run --to tensorboard -o -": "TensorBoard logs cannot be written to standard output; give a directory with -o",
    "export run --to csv -o - --json": "cannot both write to standard output",
    "runs empty": "the directory is empty.",
    "runs zero.csv": "it is a file; give a directory with runs below it",
    "runs run --limit 0": "must be an integer of at least 1",
    "check run --rules DeadRely": "Did you mean 'DeadRelu'?",
    "check run --json missing/x.json": "missing/x.json: No such file or directory",
    "check run --start-step -1": "must be an integer of at least 0",
    "query run wieght": "Did you mean 'weight'?",
    "explain deda": "`smdwidgets explain` lists all kinds",
    "digonse run": "unknown command 'digonse'. Did you mean 'diagnose'? `smdwidgets --help` lists them",
    "compact empty": "the directory is empty.",
    "diagnose run --unitl 3": "unknown option '--unitl'. Did you mean '--until'? `smdwidgets diagnose --help` lists them",
    "diagnose run --unitl=3": "unknown option '--unitl'. Did you mean '--until'?",
    "thin run --keep": "`smdwidgets thin --help` lists them",
    "replay run --step 5": "`smdwidgets replay --help` lists them",
    "run --otu x train.py": "unknown option '--otu'. Did you mean '--out'? `smdwidgets run --help` lists them",
    "check run DeadRelu": "one argument too many: 'DeadRelu'",
    "check run --timeout soon": "invalid value 'soon'; must be a number above 0",
    "report run --limit-mb -1": "invalid value '-1'; must be a number above 0",
    "demo --seconds abc": "invalid value 'abc'; must be a number of at least 0",
    "demo --port 99999": "invalid value '99999'; must be an integer from 1 to 65535",
    "replay run --incident 0": "invalid value '0'; must be an integer of at least 1",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_says_what_to_do(line, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    try:
        code = cli.main(line.split())
    except SystemExit as ended:  # of argparse
        code = ended.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert WRONG[line] in err
    assert "Traceback" not in err
    assert "trial." not in err  # advice on Python calls is of no use in a terminal
    assert sorted(path.name for path in folder.iterdir()) == before


def test_an_unexpected_error_has_another_exit_code_than_a_finding(folder, monkeypatch, capsys):
    def fail(args):
        raise ZeroDivisionError("x")

    monkeypatch.setattr("smdwidgets.cli.inspect.run", fail)
    assert cli.main(["inspect", str(folder / "run")]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "error: smdwidgets failed with ZeroDivisionError; please report this with the lines above" in err


def test_an_export_to_standard_output(folder, monkeypatch, capfdbinary):
    monkeypatch.chdir(folder)
    assert cli.main(["export", "run", "--to", "csv-wide", "--tensors", "loss", "-o", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"step,")
    assert out.count(b"\n") == 21
    assert err.startswith(b"standard output: ")
    assert not (folder / "-").exists()


def test_a_store_without_credentials_says_how_to_get_some(monkeypatch, tmp_path, capsys):
    """Of an error of a store, the terminal once showed the key only."""
    pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert cli.main(["diagnose", "s3://bucket/run"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: 's3://bucket': no usable credentials found: sign in, or set AWS_PROFILE"
    )


def test_an_error_of_a_file_names_the_file_in_the_terminal():
    assert RunIOError(13, "Permission denied", "runs/a").in_terminal() == "'runs/a': Permission denied"
