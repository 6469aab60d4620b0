"""Output and exit codes of the query command."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smdwidgets import cli
from smdwidgets.numpy import Hook


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("query") / "run"
    with Hook(path) as hook:
        for step in range(4):
            hook.save_tensor("layers.2.weight", np.full(4, 2.0**step), "weights")
            hook.save_tensor("layers.10.weight", np.full(4, 3.0), "weights")
            hook.save_tensor("evil\x1b[2J", np.array([np.inf, 0.0]) if step else np.zeros(2), "others")
            hook.save_tensor("note", "text", "others")
            hook.step()
    return path


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = cli.main(["query", *map(str, arguments)])
    result = capsys.readouterr()
    return code, result.out, result.err


def test_text(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, run, "| l2 | sort by change")
    assert (code, err) == (0, "")
    first, header, *rows = out.splitlines()
    assert first == "4 of 4 tensors; first, last and worst: l2"
    assert header.split() == ["name", "first", "last", "worst", "change"]
    assert [row.split() for row in rows] == [
        ["layers.2.weight", "2", "16", "16", "8"],
        ["evil\\x1b[2J", "0", "0", "0", "1"],
        ["layers.10.weight", "6", "6", "6", "1"],
        ["note", "-", "-", "-", "-"],
    ]
    assert len({len(row) for row in rows}) == 1  # aligned
    assert run_command(capsys, run, "change < 0")[1] == "0 of 4 tensors; first, last and worst: size\n"


def test_json_and_csv(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run_command(capsys, run, "layers | l2 | top 1 by nonfinite | last != nan", "--json")[1])
    assert found == [{"name": "layers.2.weight", "first": 2, "last": 16, "worst": 16, "change": 8, "nonfinite": 0}]
    assert json.loads(run_command(capsys, run, "note", "--json")[1])[0]["change"] is None
    rows = list(csv.DictReader(io.StringIO(run_command(capsys, run, "", "--csv")[1])))
    assert [row["name"] for row in rows] == ["evil\x1b[2J", "layers.2.weight", "layers.10.weight", "note"]
    assert rows[-1]["change"] == ""


def test_an_invalid_query_is_underlined(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, run, "layers | tpo 3 by change")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: Unknown word 'tpo'. Did you mean 'top'?",
        "layers | tpo 3 by change",
        "         ^^^",
    ]
    code, _, err = run_command(capsys, run, "重み\x1b | sort by\nlost")
    assert (code, "\x1b" in err, len(err.splitlines())) == (2, False, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wieght", "No name contains 'wieght'. Did you mean 'weight'?"),
        ("weight or wieght", "No name contains 'wieght'. Did you mean 'weight'?"),
        ("not wieght", "No name contains 'wieght'. Did you mean 'weight'?"),
        ("tpo 12 by change", "Unknown word 'tpo'. Did you mean 'top'?"),
        ("/nope$/", "No name matches '/nope$/'."),
        ("@weigths", "Unknown collection 'weigths'. Did you mean 'weights'?"),
        ("loss > 1", "Unknown key 'loss'."),
    ],
)
def test_an_unknown_name_is_an_error(run: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, run, text)
    assert (code, out, err.splitlines()[0]) == (2, "", f"error: {message}")


def test_conditions_are_combined(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(run_command(capsys, run, "layers and not (10 or change < 2)", "--json")[1])
    assert [row["name"] for row in rows] == ["layers.2.weight"]


def test_other_errors(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, tmp_path / "no", "x")[0] == 2
    for command in (["query", str(run), "x"], ["show", str(run), "note"]):
        with pytest.raises(SystemExit, match="2"):
            cli.main([*command, "--mode", "TRIAN"])
        assert "invalid mode 'TRIAN'; choose from TRAIN" in capsys.readouterr().err
    code, _, err = run_command(capsys, run, "x", "--worker", "worker_7")
    assert (code, "worker_7" in err) == (2, True)


def test_a_terminal_without_unicode_and_colours(run: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1", "COLUMNS": "40"}
    command = [sys.executable, "-m", "smdwidgets", "query", str(run), "重み | lst"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.isascii()
    assert b"\x1b" not in done.stderr
    assert b"Unknown word 'lst'. Did you mean 'last'?" in done.stderr
