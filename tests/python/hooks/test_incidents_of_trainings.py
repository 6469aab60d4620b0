"""Incidents of whole trainings: each script runs in a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from endings.running import default_signals, run_script
from smdwidgets import create_trial, diagnose

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

#: Steps end with train(step), which returns the loss.
TRAIN = """
import os, signal, sys, time
import numpy as np
from smdwidgets.numpy import Hook, Threshold

class Training:
    def __init__(self, hook, bad=-1):
        self.hook, self.bad = hook, bad
        random = np.random.default_rng(0)
        self.w1, self.w2 = 0.1 * random.normal(size=(16, 32)), 0.1 * random.normal(size=(32, 1))
        self.random = random

    def step(self, step):
        hook, x = self.hook, self.random.normal(size=(8, 16))
        hidden = np.maximum(x @ self.w1, 0)
        if step == self.bad:
            hidden[2, 3] = np.nan
        out = hidden @ self.w2
        loss = float(((out - x[:, :1]) ** 2).mean())
        g_out = 2 * (out - x[:, :1]) / len(x)
        g2, g1 = hidden.T @ g_out, x.T @ ((g_out @ self.w2.T) * (hidden > 0))
        hook.save_tensor("fc1.weight", self.w1, "weights")
        hook.save_tensor("fc2.weight", self.w2, "weights")
        hook.save_tensor("net_input_0", x, "inputs")
        hook.save_tensor("fc1_output_0", hidden, "outputs")
        hook.save_tensor("fc2_output_0", out, "outputs")
        hook.save_scalar("loss", loss)
        hook.save_tensor("gradient/fc1.weight", g1, "gradients")
        hook.save_tensor("gradient/fc2.weight", g2, "gradients")
        hook.step()
        self.w1, self.w2 = self.w1 - 0.002 * g1, self.w2 - 0.002 * g2
        return loss
"""
TENSORS = [
    "fc1.weight", "fc1_output_0", "fc2.weight", "fc2_output_0", "gradient/fc1.weight", "gradient/fc2.weight",
    "net_input_0", "scalar/loss",
]  # fmt: skip


def train(tmp_path, text, *arguments):
    done = run_script(TRAIN + text, tmp_path, tmp_path / "run", *arguments)
    assert "failed and was removed" not in done.stderr, done.stderr
    return done


def size_of(folder):
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


@pytest.mark.slow
def test_nan_at_step_337_of_1000_shows_its_cause_with_the_defaults_alone(tmp_path):
    done = train(
        tmp_path,
        """
training = Training(Hook(sys.argv[1]), bad=337)
for step in range(1000):
    training.step(step)
""",
    )
    assert done.returncode == 0, done.stderr
    with create_trial(tmp_path / "run") as trial:
        [incident] = trial.incidents()
        assert incident.step == 337
        assert incident.why == ("NaN in 'fc1_output_0'",)
        assert incident.steps == tuple(range(330, 346))
        assert incident.missed == 0
        for step in (336, 337):
            assert trial.tensor_names(step=step) == TENSORS
        assert np.isfinite(trial.tensor("net_input_0").value(336)).all()
        assert np.isfinite(trial.tensor("fc1_output_0").value(336)).all()
        assert np.argwhere(np.isnan(trial.tensor("fc1_output_0").value(337))).tolist() == [[2, 3]]
        # The step before explains its successor: the weights are those that its gradients update.
        updated = trial.tensor("fc1.weight").value(336) - 0.002 * trial.tensor("gradient/fc1.weight").value(336)
        np.testing.assert_array_equal(trial.tensor("fc1.weight").value(337), updated)
        assert any("fc1_output_0" in one.names and one.first == 337 for one in diagnose(trial).findings)
    assert size_of(tmp_path / "run") < 2e9


def test_exception_writes_the_last_steps_and_what_there_is_of_the_unfinished_one(tmp_path):
    done = train(
        tmp_path,
        """
hook = Hook(sys.argv[1], plan={"every": 0})
training = Training(hook)
for step in range(100):
    if step == 57:
        hook.save_tensor("net_input_0", np.full(3, 57.0), "inputs")
        raise RuntimeError("batch 57 is broken")
    training.step(step)
""",
    )
    assert done.returncode == 1
    with create_trial(tmp_path / "run") as trial:
        [incident] = trial.incidents()
        assert incident.why == ("exception RuntimeError: batch 57 is broken",)
        assert incident.step == 57
        assert incident.steps[-2:] == (56, 57)
        assert trial.tensor_names(step=56) == TENSORS
        assert trial.tensor("net_input_0").value(57).tolist() == [57.0] * 3
        assert str(trial.run_end()).startswith("exception")
        [finding] = [one for one in diagnose(trial).findings if one.kind == "incident"]
        assert finding.first == 57
        assert "batch 57 is broken" in finding.text


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "sys.exit(3)", "break"])
def test_ends_that_a_person_chose_are_no_incidents(tmp_path, end):
    train(
        tmp_path,
        f"""
training = Training(Hook(sys.argv[1], plan={{"every": 0}}))
for step in range(100):
    if step == 20:
        {end}
    training.step(step)
""",
    )
    with create_trial(tmp_path / "run") as trial:
        assert trial.incidents() == []


def begin(tmp_path, text):
    (tmp_path / "train.py").write_text(TRAIN + text, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "run")]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=tmp_path, preexec_fn=default_signals
    )


FOREVER = """
training = Training(Hook(sys.argv[1], plan={"every": 0}))
for step in range(100_000):
    training.step(step)
    if step == 20:
        print("training", flush=True)
    time.sleep(0.001)
"""


@POSIX
def test_sigterm_in_the_middle_of_a_step_writes_the_last_steps(tmp_path):
    with begin(tmp_path, FOREVER) as process:
        assert process.stdout.readline() == "training\n"
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM
    with create_trial(tmp_path / "run") as trial:
        [incident] = trial.incidents()
        assert incident.why == ("signal SIGTERM",)
        assert len(incident.steps) >= 8
        assert all(trial.tensor_names(step=step) == TENSORS for step in incident.steps[:-1])


@POSIX
def test_sigusr1_writes_the_last_steps_and_training_goes_on(tmp_path):
    with begin(tmp_path, FOREVER) as process:
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGUSR1)
        with create_trial(tmp_path / "run", wait=60) as trial:
            while not (found := trial.incidents()) or len(found[0].steps) < 16:
                assert process.poll() is None
                time.sleep(0.01)
        assert found[0].why == ("SIGUSR1",)
        process.kill()
        process.wait(60)


@POSIX
def test_handlers_of_the_script_are_called_after_the_dump(tmp_path):
    done = train(
        tmp_path,
        """
calls = []
signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
hook = Hook(sys.argv[1], plan={"every": 0})
training = Training(hook)
for step in range(40):
    training.step(step)
    if step == 20:
        os.kill(os.getpid(), signal.SIGUSR1)
hook.close()
assert calls == [signal.SIGUSR1], calls
assert signal.getsignal(signal.SIGUSR1).__name__ == "<lambda>"
""",
    )
    assert done.returncode == 0, done.stderr
    with create_trial(tmp_path / "run") as trial:
        [incident] = trial.incidents()
        assert incident.why == ("SIGUSR1",)
        assert len(incident.steps) == 16


@POSIX
def test_in_a_slurm_job_the_signal_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    done = train(
        tmp_path,
        """
hook = Hook(sys.argv[1])
assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
""",
    )
    assert done.returncode == 0, done.stderr


@POSIX
def test_a_forked_child_never_writes_incidents(tmp_path):
    done = train(
        tmp_path,
        """
hook = Hook(sys.argv[1], plan={"every": 0})
training = Training(hook)
for step in range(20):
    training.step(step)
child = os.fork()
if not child:
    hook.dump("child")
    os._exit(0)
os.waitpid(child, 0)
hook.dump("parent")
for step in range(20, 40):
    training.step(step)
""",
    )
    assert done.returncode == 0, done.stderr
    with create_trial(tmp_path / "run") as trial:
        assert [one.why for one in trial.incidents()] == [("parent",)]


def test_several_hooks_record_their_own_incidents(tmp_path):
    done = train(
        tmp_path,
        """
hooks = [Hook(f"{sys.argv[1]}/{number}", plan={"every": 0}) for number in range(3)]
trainings = [Training(hook, bad=30 if number == 1 else -1) for number, hook in enumerate(hooks)]
for step in range(60):
    for training in trainings:
        training.step(step)
hooks[2].dump("asked for")
for hook in hooks:
    hook.close()
""",
    )
    assert done.returncode == 0, done.stderr
    found = []
    for number in range(3):
        with create_trial(tmp_path / "run" / str(number)) as trial:
            found.append([one.why for one in trial.incidents()])
    assert found == [[], [("NaN in 'fc1_output_0'",)], [("asked for",)]]


def test_a_rule_stops_the_training_and_one_that_raises_is_a_note_of_the_run(tmp_path):
    done = train(
        tmp_path,
        """
from smdwidgets.exceptions import TrainingStopped

def broken(step, statistics):
    raise ZeroDivisionError("no")

rules = [broken, Threshold("not_finite", above=0, tensors="fc1_output", actions=["stop", "dump"], name="finite")]
hook = Hook(sys.argv[1], rules=rules)
training = Training(hook, bad=30)
try:
    for step in range(100_000):
        training.step(step)
        time.sleep(0.001)
except TrainingStopped as stopped:
    print(stopped)
""",
    )
    assert done.returncode == 0, done.stderr
    assert "finite" in done.stdout
    assert done.stderr.count("rule broken raised ZeroDivisionError: no; it is switched off") == 1
    with create_trial(tmp_path / "run") as trial:
        [incident] = trial.incidents()
        assert incident.step == 30
        assert incident.why[0] == "NaN in 'fc1_output_0'"
        assert incident.why[1].startswith("finite: not_finite of 'fc1_output_0' = 1")
        assert any("rule broken raised" in note for _, note in trial.notes())


@POSIX
def test_killed_during_a_dump_leaves_whole_steps_or_none(tmp_path):
    text = """
import threading
from smdwidgets.hooks.writing import step_files
hook = Hook(sys.argv[1], plan={"every": 0})
training = Training(hook)
for step in range(30):
    training.step(step)
hook.flush()
real, left = step_files.StepFiles._write, [int(sys.argv[2])]
def write(self, key, captured):
    real(self, key, captured)
    left[0] -= 1
    if left[0] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
step_files.StepFiles._write = write
hook.dump("why")
time.sleep(60)
"""
    for steps in (1, 4, 8):
        folder = tmp_path / str(steps)
        folder.mkdir()
        done = run_script(TRAIN + text, folder, folder / "run", steps)
        assert done.returncode == -signal.SIGKILL, done.stderr
        with create_trial(folder / "run", wait=0) as trial:
            assert trial.problems() == []
            names = {step: trial.tensor_names(step=step) for step in trial.steps()}
            assert set(map(tuple, names.values())) <= {tuple(TENSORS), ("scalar/loss",)}
            # The step that was being written was not shown.
            assert [step for step in names if len(names[step]) > 1] == list(range(22, 22 + steps - 1))
            for step in trial.steps():
                for name in names[step]:
                    assert trial.tensor(name).value(step).size
