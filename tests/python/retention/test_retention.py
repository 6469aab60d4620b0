"""What runs take on disk, and thinning old runs."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
import smdwidgets.numpy
from smdwidgets import cli
from smdwidgets._atomic import replace_file
from smdwidgets.exceptions import RunNotFound, StepDeleted
from smdwidgets.hooks.writing import thinning
from smdwidgets.retention import disk_use, plan
from smdwidgets.retention import plan as plan_of
from smdwidgets.retention.local_files import LocalFiles
from smdwidgets.retention.plans import Plan
from smdwidgets.trials.smdebug.compaction import compact

STEPS = 30


def values(step):
    return np.random.default_rng(step).normal(size=4096).astype(np.float32)


def saved(path: Path, *, large_first: bool = False, statistics: bool = True, steps: int = STEPS) -> Path:
    """Save a run with a loss and a large tensor at each step."""
    numpy = smdwidgets.numpy
    if statistics:
        given = {"plan": smdwidgets.CapturePlan(budget="1GB", statistics=1, time_share=1.0)}
    else:
        given = {"save_config": numpy.SaveConfig(save_interval=1), "save_all": True}
    hook = numpy.Hook(path, **given)
    for step in range(steps):
        names = ["big", "loss"] if large_first else ["loss", "big"]
        for name in names:
            hook.save_tensor(name, 1 / (step + 1) if name == "loss" else values(step))
        hook.step()
    hook.close()
    return path


def age(path: Path, days: float) -> None:
    then = time.time() - days * 86_400
    for folder, _, files in os.walk(path):
        for name in [*files, "."]:
            os.utime(Path(folder, name), (then, then))


@pytest.fixture
def runs(tmp_path):
    for name, days in (("old", 100), ("new", 1)):
        age(saved(tmp_path / name), days)
    return tmp_path


def test_disk_use_of_runs_and_tensors(runs, capsys):
    (runs / "table").mkdir()
    (runs / "table" / "metrics.csv").write_text("step,loss\n0,1\n")
    uses = {one.name: one for one in disk_use(runs)}
    assert set(uses) == {"old", "new", "table"}
    assert uses["table"].size == 14
    assert next(iter(uses["old"].tensors)) == "big"
    assert uses["old"].tensors["big"] > STEPS * 4096 * 4
    total = sum(file.stat().st_size for file in (runs / "old").rglob("*") if file.is_file())
    assert uses["old"].size == total == sum(uses["old"].parts.values())
    assert cli.main(["du", str(runs)]) == 0
    assert "3 runs" in capsys.readouterr().out
    assert cli.main(["du", str(runs / "old")]) == 0
    assert "big" in capsys.readouterr().out
    assert cli.main(["du", str(runs), "--json"]) == 0
    assert {one["name"] for one in json.loads(capsys.readouterr().out)} == set(uses)


def test_steps_in_segments_stay_as_they_are(tmp_path):
    run = saved(tmp_path / "run", steps=50)
    age(run, 100)
    segments = {file: file.read_bytes() for file in run.glob("segments/*/*")}
    assert segments
    assert cli.main(["thin", str(run), "--older-than", "30d", "--every", "10", "--delete"]) == 0
    assert {file: file.read_bytes() for file in run.glob("segments/*/*")} == segments
    with smdwidgets.create_trial(run) as trial:
        assert {*range(0, 32, 10), *range(32, 50)} <= set(trial.tensor("big").steps())
        assert all(np.array_equal(trial.tensor("big").value(step), values(step)) for step in range(32, 50))


def test_a_plan_deletes_nothing(runs, capsys):
    before = {file: file.read_bytes() for file in runs.rglob("*") if file.is_file()}
    chosen = plan(runs, older_than=30 * 86_400)
    old, new = (next(one for one in chosen.runs if one.name == name) for name in ("old", "new"))
    assert new.skipped == "it was written more recently"
    assert old.freed > 0.7 * old.size
    assert cli.main(["thin", str(runs), "--older-than", "30d"]) == 0
    out = capsys.readouterr().out
    assert "Nothing was deleted: --delete deletes" in out
    assert {file: file.read_bytes() for file in runs.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("large_first", [False, True])
def test_losses_statistics_and_some_values_stay(tmp_path, large_first, capsys):
    run = saved(tmp_path / "run", large_first=large_first)
    with smdwidgets.create_trial(run) as trial:
        table = trial.statistics("big")
        losses = {step: value.item() for step, value in trial.tensor("loss").values().items()}
    age(run, 100)
    size = disk_use(run)[0].size
    assert cli.main(["thin", str(run), "--older-than", "30d", "--every", "10", "--delete"]) == 0
    assert "freed: the values of" in capsys.readouterr().out
    assert disk_use(run)[0].size < 0.5 * size
    with smdwidgets.create_trial(run) as trial:
        assert {step: value.item() for step, value in trial.tensor("loss").values().items()} == losses
        kept = trial.tensor("big").steps()
        assert {0, 10, 20, STEPS - 1} <= set(kept)
        assert len(kept) < STEPS
        for step in kept:
            assert np.array_equal(trial.tensor("big").value(step), values(step))
        with pytest.raises(StepDeleted):
            trial.tensor("big").value(next(step for step in range(STEPS) if step not in kept))
        again = trial.statistics("big")
        assert again["step"].tolist() == table["step"].tolist()
        assert np.allclose(again["l2"], table["l2"])
        assert trial.problems() == []
    assert cli.main(["verify", str(run)]) == 0
    assert plan(run).runs[0].steps == (), "a second plan has nothing to delete"


def test_steps_of_incidents_and_findings_stay(runs, monkeypatch):
    finding = type("Finding", (), {"first": 7, "last": 9})
    monkeypatch.setattr("smdwidgets.retention.plans.diagnose", lambda _: type("D", (), {"findings": [finding]}))
    monkeypatch.setattr(smdwidgets.Trial, "incidents", lambda _: [type("I", (), {"steps": (15, 16)})])
    [old] = [one for one in plan(runs, older_than=30 * 86_400, every=100).runs if one.name == "old"]
    assert set(range(STEPS)) - {step.step for step in old.steps} == {0, 5, 6, 7, 8, 9, 10, 11, 15, 16, STEPS - 1}
    assert old.protected == {"first and last step": 2, "incident": 2, "finding": 7}


def test_a_run_that_is_being_written_is_left(runs):
    (runs / "old" / "training_job_end.ts").unlink()
    chosen = {one.name: one for one in plan(runs, every=100).runs}
    assert chosen["old"].steps, "nothing was written for a day"
    age(runs / "old", 0.5)
    chosen = {one.name: one for one in plan(runs, every=100).runs}
    assert chosen["old"].skipped == "it is being written"


def test_a_run_that_grew_since_the_plan_is_left(runs):
    chosen = plan(runs, older_than=30 * 86_400)
    (runs / "old" / "events" / "new").write_bytes(bytes(100))
    assert chosen.apply() == 0
    assert len(smdwidgets.create_trial(runs / "old").tensor("big").steps()) == STEPS


def test_an_interrupted_deletion_is_continued(runs):
    chosen = plan(runs, older_than=30 * 86_400)

    def interrupt(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chosen.apply(interrupt)
    age(runs / "old", 100)
    rest = plan(runs, older_than=30 * 86_400)
    [first], [second] = ([one for one in each.runs if one.name == "old"] for each in (chosen, rest))
    assert {step.step for step in second.steps} < {step.step for step in first.steps}
    rest.apply()
    assert cli.main(["verify", str(runs / "old")]) == 0


@pytest.mark.parametrize("large_first", [False, True])
def test_what_a_killed_deletion_left_is_deleted(tmp_path, large_first, monkeypatch):
    run = saved(tmp_path / "run", large_first=large_first)
    shutil.copytree(run, tmp_path / "other")
    replaced = []

    def replace(file, content):
        replace_file(file, content)
        replaced.append(file)
        if file.suffix == ".json":  # the values are still there
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(thinning, "replace_file", replace)
        with pytest.raises(KeyboardInterrupt):
            list(LocalFiles(str(run)).thin(LocalFiles(str(run)).steps()[1:2], (), 10))
    assert len(replaced) == 1 + large_first
    [rest] = plan(run).runs
    assert len(rest.left) == 1
    assert rest.left[0].freed > 4096 * 4
    plan(run).apply()
    plan(tmp_path / "other").apply()
    assert [one.left for one in plan(tmp_path).runs] == [(), ()]
    sizes = {one.name: one.parts["values"] for one in disk_use(tmp_path)}
    assert sizes["run"] == sizes["other"]


def test_the_compacted_index_is_deleted(tmp_path):
    run = saved(tmp_path / "run")
    compact(run)
    plan(run).apply()
    with smdwidgets.create_trial(run, trust="root") as trial:
        assert len(trial.tensor("big").values()) < STEPS
        assert len(trial.tensor("loss").values()) == STEPS


def test_budget_thins_the_oldest_run_first_and_no_more_than_needed(runs):
    sizes = {one.name: one.size for one in disk_use(runs)}
    total = sum(sizes.values())
    chosen = {one.name: one for one in plan(runs, budget=total - sizes["old"] // 3).runs}
    assert chosen["new"].skipped == "the runs fit the budget"
    assert sizes["old"] // 3 <= chosen["old"].freed < sizes["old"] * 0.8
    both = Plan(tuple(plan(runs, budget=1).runs))
    assert all(one.steps for one in both.runs)


def test_a_run_without_statistics_is_left_unless_asked(tmp_path):
    age(saved(tmp_path / "run", statistics=False), 100)
    shutil.rmtree(tmp_path / "run" / "statistics", ignore_errors=True)
    [one] = plan_of(tmp_path).runs
    assert one.skipped == "it has no file of statistics, which would be lost"
    [one] = plan_of(tmp_path, without_statistics=True).runs
    assert one.steps


def test_wrong_places_and_values(tmp_path, capsys):
    with pytest.raises(RunNotFound, match="the directory is empty"):
        disk_use(tmp_path)
    for arguments in (["--older-than", "3x"], ["--budget", "many"]):
        assert cli.main(["thin", str(tmp_path), *arguments]) == 2
        assert f"{arguments[0].lstrip('-')}" in capsys.readouterr().err
