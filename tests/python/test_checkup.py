"""`smdwidgets doctor`: what it finds, and what it says when something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import smdwidgets
from smdwidgets import checkup
from smdwidgets.cli import main


def named(result: smdwidgets.Checkup, name: str) -> checkup.Check:
    return next(check for check in result.checks if check.name == name)


def test_this_environment_has_no_problem():
    result = smdwidgets.doctor()
    assert result.ok, result
    assert named(result, "numpy").text == checkup._version("numpy")
    assert named(result, "version").text.startswith(smdwidgets.__version__)
    assert named(result, "JupyterLab").state == "ok"
    assert named(result, "write and read a run").text == "3 steps"
    assert "Everything required works." in str(result)


def test_the_command_prints_json(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    assert {check["group"] for check in found["checks"]} >= {"Environment", "Required packages", "Self-test"}


def test_missing_and_old_packages_are_named_with_the_command_that_installs_them(monkeypatch, capsys):
    real = checkup._version
    changed = {"anywidget": None, "numpy": "1.20.3", "boto3": None}
    monkeypatch.setattr(
        checkup, "_version", lambda name: changed.get(name, real(name)) if name in changed else real(name)
    )
    result = smdwidgets.doctor()
    assert not result.ok
    assert named(result, "anywidget").state == "problem"
    assert named(result, "anywidget").remedy == "pip install 'anywidget>=0.11'"
    assert named(result, "numpy").text == "1.20.3 is older than 1.23"
    assert named(result, "boto3") == checkup.Check(
        "Optional packages", "boto3", "absent", "not installed", "for runs on S3: pip install 'smdwidgets[s3]'"
    )
    assert main(["doctor"]) == 1
    assert "2 problems found" in capsys.readouterr().out


def test_a_missing_front_end_is_a_problem_with_a_remedy(monkeypatch, tmp_path):
    from smdwidgets.widgets import bundle

    bundle.text.cache_clear()
    bundle.parts.cache_clear()
    monkeypatch.setattr(bundle, "STATIC", tmp_path)
    try:
        found = named(smdwidgets.doctor(), "front end")
    finally:
        monkeypatch.undo()
        bundle.text.cache_clear()
        bundle.parts.cache_clear()
    assert found.state == "problem"
    assert "loader.js is missing" in found.text
    assert "make setup" in found.remedy


def test_jupyterlab_without_the_widget_manager_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(checkup, "_labextensions", lambda: [tmp_path])
    found = named(smdwidgets.doctor(), "widget manager")
    assert found.state == "problem"
    assert "pip install jupyterlab_widgets" in found.remedy


@pytest.mark.parametrize("arguments", [["doctor"], ["--help"]])
def test_a_console_with_few_letters_shows_question_marks(arguments):
    env = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-m", "smdwidgets", *arguments], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    if arguments == ["doctor"]:
        assert b"? numpy" in done.stdout


@pytest.mark.slow
def test_the_demo_without_jupyterlab_trains_diagnoses_and_saves_a_page(monkeypatch, tmp_path, capsys):
    from smdwidgets.cli import demo

    opened: list[str] = []
    monkeypatch.setattr(demo, "has_lab", lambda: False)
    monkeypatch.setattr(demo.webbrowser, "open", opened.append)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    assert "The weights of `fc2.weight` never change" in said
    page = tmp_path / "demo" / "demo.html"
    assert "smdw-page" in page.read_text(encoding="utf-8")
    assert opened == [page.as_uri()]
    assert "pip install 'smdwidgets[lab]'" in said
