"""`smdwidgets demo`: the training, the notebook, and the rules that detect faults."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from smdwidgets import cli, create_trial, demo, diagnose
from smdwidgets.demo import training
from smdwidgets.demo.lab import Lab
from smdwidgets.rules import RuleRunner
from smdwidgets.survey import Survey


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "run"
    training.train(path)
    return path


def test_rules_find_the_two_planted_faults_and_no_others(run):
    runner = RuleRunner(create_trial(run))
    for name, parameters in {**demo.RULES, "VanishingGradient": {}, "PoorWeightInitialization": {}}.items():
        runner.add(name, **parameters)
    runner.start().wait(timeout=60)
    fired = {each.name: each.first_firing.step if each.fired else None for each in runner}
    assert fired["UnchangedTensor"] == 2
    # One evaluation step follows every ten training steps.
    slip = training.SLIP_AT * 11 // 10
    assert slip < fired["LossSpike"] <= slip + 10
    assert slip < fired["DeadRelu"] <= slip + 10
    assert fired["VanishingGradient"] is None
    assert fired["PoorWeightInitialization"] is None


def test_the_first_screen_names_both_faults(run):
    trial = create_trial(run)
    first, second = diagnose(trial).findings
    assert first.subject == "fc2.weight"
    slip = training.SLIP_AT * 11 // 10
    assert slip <= second.first <= slip + 10
    survey = Survey(trial)
    survey.update()
    jump, change = sorted(survey.findings(), key=lambda mark: mark.kind)
    assert (jump.kind, jump.names) == ("spike", ("loss",))
    assert jump.first == change.first == slip + 1


def test_a_second_training_is_shown_without_steps_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_started", {})
    for _ in range(5):
        trial = create_trial(demo.run(seconds=0, directory=tmp_path / "run"))
        weight = trial.tensor("fc1.weight")
        assert weight.value(weight.steps()[-1]).shape == (256, 48)
        demo._started[str(tmp_path / "run")].wait(60)


def test_loss_falls_until_the_learning_rate_spike(run):
    trial = create_trial(run)
    accuracy = trial.tensor("accuracy")
    before = training.SLIP_AT // training.EVALUATE_EVERY - 1
    assert accuracy.value(0, "EVAL") < 0.6
    assert accuracy.value(before, "EVAL") > 0.75


def test_headless_check_starts_everything_and_prints_the_result():
    command = [sys.executable, "-m", "smdwidgets", "demo", "--headless-check", "--seconds", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "JupyterLab serves 01_look_around.ipynb" in done.stdout
    assert "Explorer: run 'demo'" in done.stdout
    assert "DeadRelu: fired at step" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no groups of processes to send a signal to")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
def test_ending_the_demo_stops_training_and_server(tmp_path, free_port, how):
    arguments = ["demo", "--no-browser", f"--out={tmp_path}", f"--port={free_port}"]
    # Processes that run in the background ignore Ctrl-C, and so do their children.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from smdwidgets import cli; raise SystemExit(cli.main({arguments!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert str(tmp_path / "runs" / "demo") in process.stdout.readline()
    address = process.stdout.readline().split()[-1]
    assert address.startswith(f"http://127.0.0.1:{free_port}/lab/tree/01_look_around.ipynb?token=")
    with urllib.request.urlopen(address, timeout=60) as page:  # printed after the server answers, not before
        assert page.status == 200
    os.killpg(process.pid, how)  # like a terminal
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    steps = create_trial(tmp_path / "runs" / "demo", wait=5).steps()
    time.sleep(1)
    assert create_trial(tmp_path / "runs" / "demo").steps() == steps
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", free_port))


def test_training_stops_when_its_parent_exits(tmp_path, run_python):
    code = f"import os; from smdwidgets import demo; demo.run(60, {str(tmp_path / 'run')!r}); os._exit(0)"
    run_python(code)
    end = tmp_path / "run" / "training_job_end.ts"
    for _ in range(200):
        if end.exists():
            break
        time.sleep(0.05)
    assert end.exists()
    assert len(create_trial(tmp_path / "run").steps()) < training.STEPS


def test_finished_training_exits_with_status_zero(tmp_path):
    process = demo.TrainingProcess(str(tmp_path / "run"), seconds=0)
    try:
        assert process.wait(60) == 0
    finally:
        process.stop()


def test_used_port_is_reported_before_anything_starts(tmp_path, capsys):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        assert cli.main(["demo", "--no-browser", f"--port={port}", f"--out={tmp_path / 'out'}"]) == 2
    assert f"port {port} is in use" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("port", ["0", "65536", "99999999"])
def test_invalid_port(capsys, port):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["demo", "--port", port])
    assert f"invalid value '{port}'; must be an integer from 1 to 65535" in capsys.readouterr().err


def test_without_jupyterlab_the_demo_checks_itself_and_names_the_extra(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("smdwidgets.cli.demo.has_lab", lambda: False)
    assert cli.main(["demo", "--headless-check", "--out", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    assert "pip install 'smdwidgets[lab]'" in said
    assert "UnchangedTensor: fired" in said


def test_jupyterlab_asks_nothing_and_keeps_the_settings_of_the_user(tmp_path, free_port, monkeypatch):
    theirs = tmp_path / "theirs"
    (theirs / "labconfig").mkdir(parents=True)
    (theirs / "labconfig" / "page_config.json").write_text('{"disabledExtensions": {"an-extension-of-theirs": true}}')
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(theirs))
    root = tmp_path / "demo"
    root.mkdir()
    (root / "empty.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    lab = Lab(root, "empty.ipynb", free_port, browser=False, log=root / "jupyterlab.log", environment={})
    try:
        lab.wait_until_up()
        with urllib.request.urlopen(lab.url) as response:
            page = response.read().decode()
    finally:
        lab.stop()
    [config] = re.findall(r'<script id="jupyter-config-data" type="application/json">(.*?)</script>', page, re.S)
    assert {"@jupyterlab/apputils-extension:announcements", "an-extension-of-theirs"} <= set(
        json.loads(config)["disabledExtensions"]
    )
