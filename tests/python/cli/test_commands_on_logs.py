"""Commands on logs: text, graphs only, modes, long curves, and other files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from python.logs.logs import event, field, log, scalars, strings, value
from smdwidgets.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main([str(argument) for argument in arguments])
    return status, capsys.readouterr().out


def text(tag: str, content: bytes) -> bytes:
    return event(value(tag, strings(content), plugin="text"))


def test_text_has_its_type_and_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log(tmp_path, text("note", "# Größe\n**bold** \x1b[2J".encode()))
    _, out = run(capsys, "inspect", str(tmp_path))
    assert out.splitlines()[-1].split() == ["note", "str", "1", "1"]
    _, out = run(capsys, "show", str(tmp_path), "note")
    assert "saved without its value" not in out
    assert out.splitlines()[1:] == ["  | # Größe", "  | **bold** \\x1b[2J"]
    _, out = run(capsys, "show", str(tmp_path), "note", "--json")
    found = json.loads(out)
    assert (found["dtype"], found["values"]) == ("str", ["# Größe\n**bold** \x1b[2J"])


@pytest.mark.parametrize("content", [b"", field(4, b"graph")], ids=["a version only", "a graph only"])
def test_report_of_a_run_without_tensors(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log(tmp_path / "run", event(field(3, b"brain.Event:2")) + (event(content) if content else b""))
    status, out = run(capsys, "report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html"))
    assert status == 0
    assert "0 of 0 tensors" in out
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_report_of_a_long_log_is_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    log(tmp_path / "run", scalars({f"metric_{tag}": rng.normal(size=12_000).tolist() for tag in range(3)}))
    status, _ = run(capsys, "report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html"))
    assert status == 0
    assert (tmp_path / "page.html").stat().st_size < 5_000_000


def test_files_that_are_no_logs_are_named_and_are_no_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log(tmp_path, scalars({"loss": [1.0]}))
    contents = {
        "events.out.tfevents.1.host.meta": b"fileFormatVersion: 2\nguid: 5d8a\n",
        "events.out.tfevents.2.host": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n",
        "events.out.tfevents.3.host.gz": gzip.compress(scalars({"x": [1.0]})),
        "read_tfevents.py": b"import os\n\nprint(os.listdir())\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    status, out = run(capsys, "verify", str(tmp_path))
    assert status == 0
    for name in contents:
        assert f"{name} is not an event file: " in out
    assert "Git LFS" in out
    assert "No faults." in out
    _, out = run(capsys, "verify", str(tmp_path), "--json")
    found = json.loads(out)
    assert (sorted(found["others"]), found["files"]) == (sorted(contents), 1)


def test_a_damaged_log_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = scalars({"loss": [1.0, 2.0]})
    log(tmp_path, good[:10] + b"\xff" + good[11:])
    status, out = run(capsys, "verify", str(tmp_path))
    assert status == 1
    assert "not an event file" not in out


def test_checks_name_steps_as_they_were_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = [1.0] * 40
    bad[30] = float("nan")
    log(tmp_path / "train", scalars({"loss": [1.0] * 40}))
    log(tmp_path / "eval", scalars({"loss": bad}))
    status, out = run(capsys, "check", str(tmp_path), "--rules", "LossSpike,LossNotDecreasing")
    assert status == 1
    assert "fired at EVAL step 30 (" in out
    assert "step 121" not in out
    assert "at EVAL step 0 to" in out
    _, out = run(capsys, "check", str(tmp_path), "--rules", "LossSpike", "--json")
    [rule] = json.loads(out)["rules"]
    assert "at EVAL step 30 resulted" in rule["StatusDetails"]
