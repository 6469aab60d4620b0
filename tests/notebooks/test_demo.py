"""`smdwidgets demo`: the training writes, the notebook shows it, the rules find what was planted."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from smdwidgets import create_trial
from smdwidgets.demo import training
from smdwidgets.rules import RuleRunner


def test_rules_find_the_two_planted_faults_and_call_the_rest_healthy(tmp_path):
    training.train(tmp_path / "run", seconds=4)
    trial = create_trial(tmp_path / "run")
    rules = ["LossSpike", "DeadRelu", "ExplodingTensor", "PoorWeightInitialization"]
    with RuleRunner(trial, rules, follow=False).start() as runner:
        assert runner.wait(timeout=60)
        said = {name: status.name for name, status in runner.status.items()}
    assert said["LossSpike"] == said["DeadRelu"] != said["ExplodingTensor"] == said["PoorWeightInitialization"]


def test_the_headless_check_prints_what_a_person_would_see():
    command = [sys.executable, "-m", "smdwidgets", "demo", "--headless-check", "--seconds", "6"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    during, after = done.stdout.split("=== 01_look_around.ipynb, when it has ended")
    assert "units active" in during
    assert ", 0 of 48 units active" in after
    assert "DeadRelu: IssuesFound" in after


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to end a program with")
def test_ending_the_demo_ends_the_training_and_the_server(tmp_path, free_port):
    command = [sys.executable, "-m", "smdwidgets", "demo", "--no-browser", f"--out={tmp_path}", f"--port={free_port}"]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "run" / "index").is_dir():
        assert demo.poll() is None
        time.sleep(0.1)
    time.sleep(1)
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(30) == 0
    steps = create_trial(tmp_path / "run").steps()
    time.sleep(1)
    assert create_trial(tmp_path / "run").steps() == steps


def test_without_jupyterlab_the_way_to_get_it_is_said(monkeypatch, capsys):
    from smdwidgets import cli

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["demo"]) == 2
    assert "pip install 'smdwidgets[lab]'" in capsys.readouterr().err
