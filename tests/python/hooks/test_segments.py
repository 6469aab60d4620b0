"""Steps in segments: few files, whole steps at any time, deleted values."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

from smdwidgets import create_trial
from smdwidgets.exceptions import StepDeleted
from smdwidgets.hooks.writing.segments import OWN_FILES
from smdwidgets.numpy import Hook
from smdwidgets.storage import LocalStorage
from smdwidgets.trials.smdebug.run import StorageRun

KILLED = """
import sys
import numpy as np
from smdwidgets.numpy import Hook
hook = Hook(sys.argv[1], plan={"budget": "1MB"}, resume=sys.argv[2] == "resume", flush_seconds=0.05)
step = hook.global_step
while True:
    step += 1
    hook.save_scalar("loss", step)
    hook.save_tensor("w", np.full(500, step, "float32"), "weights")
    hook.step()
    print(step, flush=True)
"""


def train(hook, steps, size=100):
    for step in steps:
        hook.save_scalar("loss", step)
        hook.save_tensor("w", np.full(size, step, "float32"), "weights")
        hook.step()


def files_in(run):
    return [path for path in run.rglob("*") if path.is_file()]


def check(trial):
    """Every value is that of its step."""
    assert trial.problems() == []
    for name in ("scalar/loss", "w"):
        tensor = trial.tensor(name)
        table = trial.values(name)
        gone = {one.step for one in table.errors}
        assert {type(one.error) for one in table.errors} <= {StepDeleted}
        assert table["step"].tolist() == [step for step in tensor.steps() if step not in gone]
        assert all((np.asarray(value) == step).all() for step, value in zip(table["step"], table["value"], strict=True))


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def test_many_steps_leave_few_files(run):
    with Hook(run) as hook:
        train(hook, range(1200))
    assert len(files_in(run)) < 120
    with create_trial(run) as trial:
        check(trial)
        assert trial.tensor("scalar/loss").steps() == list(range(1200))
        assert len(trial.tensor("w").steps()) > 100


def test_short_runs_have_separate_files(run):
    with Hook(run) as hook:
        train(hook, range(OWN_FILES))
    assert not (run / "segments").exists()
    assert len(list(run.glob("index/*/*.json"))) == OWN_FILES


def test_open_trial_follows_segments_and_what_is_deleted_of_them(run):
    hook = Hook(run, plan={"budget": "1MB"})
    train(hook, range(40))
    hook.flush()
    with create_trial(run) as trial:
        assert trial.steps() == list(range(40))
        first = trial.tensor("w").steps()
        assert len(first) > 30
        for end in (100, 600, 1200):
            train(hook, range(hook.global_step + 1, end), size=1000)
            hook.flush()
            check(trial)
            assert trial.tensor("scalar/loss").steps()[-1] >= end - 4
        with create_trial(run) as later:
            gone = sorted(set(first) - set(later.tensor("w").steps()))
        assert len(gone) > 10
        for step in gone:
            with pytest.raises(StepDeleted):
                trial.tensor("w").value(step)
    hook.close()
    with create_trial(run) as trial:
        check(trial)
    assert sum(path.stat().st_size for path in files_in(run)) < 10**6


def test_segments_that_became_small_are_joined(run):
    """Values of old steps are deleted repeatedly, and little of a segment is left."""
    hook = Hook(run, plan={"budget": "20MB"})
    train(hook, range(500), size=3000)
    hook.flush()
    most = 0
    with create_trial(run) as following:
        for begin in range(500, 6000, 500):
            train(hook, range(begin, begin + 500), size=3000)
            hook.flush()
            most = max(most, len(list(run.glob("segments/*/*.tfevents"))))
            check(following)
            assert following.tensor("scalar/loss").steps()[-1] == begin + 499
        hook.close()
        check(following)
        steps = following.tensor("scalar/loss").steps()
    with create_trial(run) as trial:
        check(trial)
        assert trial.tensor("scalar/loss").steps() == steps
    segments = [path.stat().st_size for path in run.glob("segments/*/*.tfevents")]
    assert most <= 32
    assert len(segments) <= 8
    assert max(segments) <= 16 << 20


def test_storage_reads_segments(run):
    with Hook(run, plan={"budget": "1MB"}) as hook:
        train(hook, range(500), size=1000)
    with create_trial(run) as trial:
        steps, kept = trial.steps(), trial.tensor("w").steps()
    read = StorageRun(LocalStorage(str(run)))
    read.refresh()
    assert read.index.steps() == steps
    assert read.catalog.steps_of("w") == kept
    assert read.getter()("w", kept[-1]).tolist() == [float(kept[-1])] * 1000


def test_resuming_deletes_later_steps_of_segments(run):
    with Hook(run) as hook:
        train(hook, range(100))
    with Hook(run, resume=60) as hook:
        train(hook, [60, 61])
    with create_trial(run) as trial:
        assert trial.steps() == list(range(62))
        check(trial)
    with Hook(run, resume=True) as hook:
        train(hook, range(62, 150))
    with create_trial(run) as trial:
        assert trial.steps() == list(range(150))
        check(trial)
    with Hook(run, overwrite=True) as hook:
        train(hook, range(3))
    assert not (run / "segments").exists()


def test_value_that_follows_a_step_is_in_it(run):
    hook = Hook(run)
    train(hook, range(50))
    hook.save_scalar("loss", 50)
    hook.parts.recorder.publish()
    hook.flush()
    with create_trial(run) as trial:
        assert trial.steps()[-1] == 50
        hook.save_tensor("w", np.full(100, 50, "float32"), "weights")
        hook.close()
        assert trial.tensor("w").value(50).tolist() == [50.0] * 100
        check(trial)


def test_large_steps_have_separate_files(run):
    with Hook(run, plan={"budget": "1GB"}) as hook:
        train(hook, range(40))
        train(hook, [40], size=3_000_000)
        train(hook, [41])
    assert len(list(run.glob("events/*/*"))) == OWN_FILES + 1
    with create_trial(run) as trial:
        check(trial)
        assert trial.steps() == list(range(42))


def test_readers_of_index_files_see_some_steps_of_segments(run):
    with Hook(run) as hook:
        train(hook, range(1000))
    shown = sorted(int(path.name[:12]) for path in run.glob("index/*/*.json"))
    assert shown[:OWN_FILES] == list(range(OWN_FILES))
    assert shown[-1] == 999
    assert 24 <= len(shown) - OWN_FILES <= 48


@pytest.mark.skipif(os.name == "nt", reason="requires SIGKILL")
def test_killed_writer_leaves_whole_steps(run):
    chance = random.Random(3)
    for kill in range(5):
        how = "resume" if kill else "new"
        with subprocess.Popen([sys.executable, "-c", KILLED, run, how], stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(chance.randrange(40, 120)):
                assert writer.stdout.readline()
            while kill == 4 and not (run / "segments").exists():  # steps of the last moments may be lost
                assert writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
        if any(run.glob("index/*/*.json")):  # else no step was complete
            with create_trial(run) as trial:
                check(trial)
    assert (run / "segments").exists()
