"""Samples of tensors whose values a capture plan deletes or cannot save."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from smdwidgets import cli, compact, create_trial, create_trials
from smdwidgets.cli.verify import check
from smdwidgets.exceptions import StepDeleted, TensorUnavailableForStep
from smdwidgets.hooks.capture.elements import LARGEST_SAMPLE, sample_of
from smdwidgets.hooks.writing.samples import SAMPLES
from smdwidgets.numpy import Hook
from smdwidgets.retention import disk_use

TRAINING = """
import sys
import numpy as np
from smdwidgets import modes
from smdwidgets.numpy import Hook

folder, plan, steps, mode = sys.argv[1:]
choice = {"plan": {"budget": "8MB"}} if plan == "plan" else {"plan": False}
hook = Hook(folder, resume=mode == "resume", flush_seconds=0.05, **choice)
step = hook.global_step + 1
while step < int(steps):
    random = np.random.default_rng(step)
    hook.save_scalar("loss", step)
    hook.save_tensor("w", random.normal(step, 1, (200, 512)).astype("float32"), "weights")
    hook.save_tensor("large", random.normal(size=(600, 1024)).astype("float32"), "weights")
    hook.save_tensor("b", np.arange(10) + step, "weights")
    hook.step()
    print(step, flush=True)
    step += 1
if mode == "kill":
    import os, time
    time.sleep(60)
hook.close()
"""


def train(folder, plan, steps, mode="new"):
    subprocess.run(
        [sys.executable, "-c", TRAINING, str(folder), plan, str(steps), mode], check=True, stdout=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train(folder / "thinned", "plan", 40)
    train(folder / "whole", "none", 40)
    return folder


def agree(run, whole):
    """Compare samples with the values of another recording; return their steps."""
    with create_trial(run) as trial, create_trial(whole) as every:
        for name in ("w", "large", "b"):
            tensor, other = trial.tensor(name), every.tensor(name)
            assert tensor.sample_steps()
            for step in tensor.sample_steps():
                value = other.value(step)
                sample = tensor.sample(step)
                assert (sample.dtype, sample.ndim) == (value.dtype, 1)
                assert 0 < sample.size <= LARGEST_SAMPLE
                np.testing.assert_array_equal(sample, sample_of(value, value.shape[-1]))
        return trial.tensor("w").sample_steps()


def test_samples_of_deleted_values_are_those_of_another_recording(runs):
    steps = agree(runs / "thinned", runs / "whole")
    with create_trial(runs / "thinned") as trial, create_trial(runs / "whole") as whole:
        w, other = trial.tensor("w"), whole.tensor("w")
        deleted = sorted(set(steps) - set(w.steps_with_value()))
        assert len(deleted) > len(w.steps_with_value()) > 0
        with pytest.raises(StepDeleted):
            w.value(deleted[0])
        q = [0.05, 0.5, 0.95]
        for step in deleted:
            np.testing.assert_allclose(w.quantiles(step, q), np.quantile(other.value(step), q), atol=0.15)
        kept = w.steps_with_value()[-1]
        np.testing.assert_array_equal(w.quantiles(kept, q), np.quantile(other.value(kept).astype(float), q))


def test_a_tensor_that_is_too_large_for_its_share_has_samples_only(runs):
    with create_trial(runs / "thinned") as trial:
        large = trial.tensor("large")
        assert large.steps_with_value() == []
        step = large.sample_steps()[-1]
        assert large.quantiles(step, 0.5) == pytest.approx(0, abs=0.1)


def test_what_has_neither_value_nor_sample_is_an_error(runs):
    with create_trial(runs / "thinned") as trial:
        w = trial.tensor("w")
        missing = next(step for step in range(40) if step not in w.sample_steps())
        with pytest.raises(TensorUnavailableForStep, match="sample_steps"):
            w.sample(missing)
        with pytest.raises(TensorUnavailableForStep):
            w.quantiles(missing, 0.5)
        with pytest.raises(TensorUnavailableForStep):
            w.sample(w.sample_steps()[0], worker="worker_7")
        with pytest.raises(ValueError, match="from 0 to 1"):
            w.quantiles(0, 5)
    with create_trial(runs / "whole") as trial:
        assert trial.tensor("w").sample_steps() == []


def test_the_samples_are_no_run_among_others(runs):
    assert sorted(create_trials(runs)) == ["thinned", "whole"]
    assert len(disk_use(runs)) == 2
    for command in ("verify", "inspect", "compact"):
        subprocess.run(
            [sys.executable, "-m", "smdwidgets", command, str(runs / "thinned")], check=True, stdout=subprocess.DEVNULL
        )
    compact(runs / "thinned")
    agree(runs / "thinned", runs / "whole")


def test_disk_use_names_samples(runs, capsys):
    thinned, whole = (next(one for one in disk_use(runs) if one.name == name) for name in ("thinned", "whole"))
    sizes = [path.stat().st_size for path in (runs / "thinned" / SAMPLES).rglob("*") if path.is_file()]
    assert thinned.parts["samples"] == sum(sizes)
    assert "samples" not in whole.parts
    assert cli.main(["du", str(runs)]) == 0
    assert re.search(r"statistics\s+samples\s+index", capsys.readouterr().out)


def test_verify_finds_a_damaged_sample(runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs / "thinned", run)
    intact = check(str(run))
    assert intact["samples"] > 0
    assert intact["faults"] == []
    file = max((run / SAMPLES).rglob("*.tfevents"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    faults = check(str(run))["faults"]
    assert [fault["file"] for fault in faults] == [file.relative_to(run).as_posix()]


def test_thinning_keeps_samples(runs, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(runs / "thinned", run)
    with create_trial(run) as trial:
        before = len(trial.tensor("w").steps_with_value())
    assert cli.main(["thin", str(run), "--every", "1000", "--delete"]) == 0
    with create_trial(run) as trial:
        assert 0 < len(trial.tensor("w").steps_with_value()) < before
    agree(run, runs / "whole")
    assert "1 fault" not in capsys.readouterr().out


def test_samples_are_bounded_by_their_share(runs):
    size = sum(path.stat().st_size for path in (runs / "thinned" / SAMPLES).rglob("*") if path.is_file())
    assert 0 < size < 0.12 * 8e6


def test_a_killed_training_leaves_the_samples_of_its_steps(tmp_path, runs):
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(run), "plan", "20", "kill"], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if int(line) == 19:
            break
    with create_trial(run, wait=60) as trial:
        trial.wait_for_steps([15], timeout=60)
        live = trial.tensor("w").sample_steps()
        assert live
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    steps = agree(run, runs / "whole")
    with create_trial(run) as trial:
        assert set(range(16)) <= set(trial.tensor("scalar/loss").steps()) <= set(steps)
    train(run, "plan", 40, "resume")
    assert agree(run, runs / "whole")[-1] > 19


def test_overwriting_deletes_samples(tmp_path):
    for size in (5000, 0):
        with Hook(tmp_path / "run", overwrite=True, plan={"budget": "8MB"}) as hook:
            for step in range(3):
                hook.save_scalar("loss", step)
                if size:
                    hook.save_tensor("w", np.ones(size), "weights")
                hook.step()
    assert not (tmp_path / "run" / SAMPLES).exists()


def test_columns_are_all_met():
    columns = {int(element) % 768 for element in sample_of(np.arange(768 * 3072).reshape(768, 3072), 3072)}
    assert len(columns) > 700
