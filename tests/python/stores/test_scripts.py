"""Whole programs: one writes a run to a store, others read and show it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.stores.places import Place, Places, without_clouds
from servers import FaultyProxy
from smdwidgets import create_trial
from smdwidgets.exceptions import RunNotFound, SMDebugError

WRITE = """
import sys
import numpy as np
import smdwidgets
from smdwidgets.numpy import Hook

every = smdwidgets.SaveConfig(save_interval=1)
with Hook(sys.argv[1], save_all=True, save_config=every) as hook:
    for step in range(6):
        hook.save_tensor("fc1.weight", np.random.default_rng(step).standard_normal((20, 30)).astype(np.float32))
        hook.save_tensor("loss", np.float64(1 / (step + 1)), "losses")
        hook.step()
"""
READ = """
import json, sys
import numpy as np
import smdwidgets

with smdwidgets.create_trial(sys.argv[1]) as trial:
    weights = trial.tensor("fc1.weight")
    values = {str(step): weights.value(step).tobytes().hex() for step in weights.steps()}
    losses = {str(step): trial.tensor("loss").value(step).item() for step in trial.tensor("loss").steps()}
    print(json.dumps({"names": trial.tensor_names(), "weights": values, "losses": losses}))
"""
LOOK = """
import sys
import smdwidgets

widget = smdwidgets.explore(sys.argv[1])
assert "smdwidgets" in type(widget).__module__
print(type(widget).__name__)
widget.close()
"""


def run(code: str, *arguments: str, **environment: str) -> str:
    """Run a program in a process without other credentials."""
    inherited = {name: value for name, value in os.environ.items() if name not in without_clouds(os.environ)}
    nothing = {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**inherited, **nothing, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def written(place: Place, folder: Path, prefix: str = "jobs/mlp") -> str:
    """Write a run to the place; return its address."""
    address = place.address(prefix)
    if place.kind == "web":
        run(WRITE, str(folder / "run"))
        place.upload(folder / "run", prefix)
    else:
        run(WRITE, address, **place.environment(folder))
    return address


def test_run_is_written_read_and_shown_by_three_programs(place: Place, tmp_path: Path) -> None:
    address = written(place, tmp_path)
    found: dict[str, Any] = json.loads(run(READ, address, **place.environment(tmp_path)))
    assert found["names"] == ["fc1.weight", "loss"]
    assert found["losses"] == {str(step): 1 / (step + 1) for step in range(6)}
    for step in range(6):
        expected = np.random.default_rng(step).standard_normal((20, 30)).astype(np.float32)
        assert found["weights"][str(step)] == expected.tobytes().hex(), "the same bits"
    assert run(LOOK, address, **place.environment(tmp_path)).strip()


@pytest.mark.slow
def test_a_reader_keeps_its_values_through_faults(place: Place, tmp_path: Path) -> None:
    written(place, tmp_path)
    with FaultyProxy(place.endpoint, seed=5, share=0.3, faults=20, dialect=place.scheme) as proxy:
        address, options = place.address("jobs/mlp", proxy.endpoint), place.options(proxy.endpoint)
        rounds = 0
        while proxy.faults_left and rounds < 100:
            rounds += 1
            with create_trial(address, storage_options=options, cache_bytes=0) as trial:
                for step in range(6):
                    expected = np.random.default_rng(step).standard_normal((20, 30)).astype(np.float32)
                    np.testing.assert_array_equal(trial.tensor("fc1.weight").value(step), expected)
        assert not proxy.faults_left


def test_run_grows_while_it_is_read(bucket: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    from smdwidgets.numpy import Hook

    every = smdwidgets.SaveConfig(save_interval=1)
    with Hook(bucket.address("run"), save_all=True, save_config=every) as hook:
        hook.save_tensor("w", np.zeros(3, np.float32))
        hook.step()
        with create_trial(bucket.address("run"), storage_options=bucket.options(), wait=60) as trial:
            trial.wait_for_steps([0])
            assert not trial.loaded_all_steps
            hook.save_tensor("w", np.ones(3, np.float32))
            hook.step()
            trial.wait_for_steps([1])
            assert trial.tensor("w").value(1).tolist() == [1, 1, 1]


def test_missing_runs_are_named(place: Place, tmp_path: Path) -> None:
    place.put("jobs/other/file.bin", b"x")
    with pytest.raises(RunNotFound) as raised:
        create_trial(place.address("jobs/mlp"), storage_options=place.options())
    assert "jobs/mlp" in str(raised.value)


def test_web_servers_are_for_reading(stores: Places) -> None:
    from smdwidgets.numpy import Hook

    with pytest.raises(SMDebugError, match="a web server can only be read"):
        Hook(stores.new("web").address("run"))


def test_pickles_contain_no_secret_and_open_with_those_of_the_environment(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = written(place, tmp_path)
    variables = place.environment(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    secrets = [value for name, value in variables.items() if "SECRET" in name or name.endswith("_KEY")]
    with create_trial(address) as trial:
        content = pickle.dumps(trial)
        shown = repr(trial) + str(vars(trial)) + repr(vars(trial).get("_run"))
    assert not [secret for secret in secrets if secret.encode() in content or secret in shown]
    with pickle.loads(content) as again:
        assert again.steps() == list(range(6))
