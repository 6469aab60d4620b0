"""Sweeps in the core are equal to those through the cache, errors included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.stores.places import Place
from smdwidgets import SaveConfig
from smdwidgets.numpy import Hook
from smdwidgets.trials.run import Reductions, Selection
from smdwidgets.trials.smdebug.remote import RemoteRun

STEPS = 30


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweeps") / "run"
    with Hook(folder, save_all=True, save_config=SaveConfig(save_interval=1)) as hook:
        for step in range(STEPS):
            hook.save_tensor("weight", np.random.default_rng(step).normal(size=300).astype(np.float32))
            hook.save_tensor("loss", np.float64(1 / (step + 1)))
            hook.step()
    return folder


#: The event file that is damaged.
DAMAGED = f"events/{7:012d}/{7:012d}_worker_0.tfevents"


def sweeps(run: Any) -> list[Any]:
    names, steps = ["loss", "weight"], list(range(STEPS))
    selection = Selection(names, steps)
    statistics, reductions = run.statistics(selection), run.reductions(selection, Reductions(["mean", "std"]))
    return [
        {key: column.tolist() for key, column in table.items() if key != "error"}
        | {"error": [(*error[:-1], type(error[-1])) for error in table["error"]]}
        for table in (statistics, reductions)
    ]


@pytest.mark.parametrize("damage", ["nothing", "truncated", "missing"])
@pytest.mark.slow
def test_sweeps_past_the_cache_are_equal(
    place: Place, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    whole = (written / DAMAGED).read_bytes()
    content = {"nothing": whole, "truncated": whole[: len(whole) // 2], "missing": None}[damage]
    for path in sorted(one for one in written.rglob("*") if one.is_file()):
        key = path.relative_to(written).as_posix()
        data = content if key == DAMAGED else path.read_bytes()
        if data is not None:
            place.put(f"run/{key}", data)
    for name, value in place.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with smdwidgets.create_trial(place.address("run")) as trial:
        trial.tensor_names()
        run: RemoteRun = trial.reader.run
        before = trial.requests
        direct = sweeps(run.reading_once())
        assert (trial.requests - before).gets >= 2 * (STEPS - 1)
        assert run.storage.cache_info().size == 0, "nothing is cached"
        assert repr(direct) == repr(sweeps(run))
        assert [len(table["error"]) > 0 for table in direct] == [damage != "nothing"] * 2
