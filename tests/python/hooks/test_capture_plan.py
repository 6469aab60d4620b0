"""The capture plan of a hook: when it applies, what it saves, and what it deletes."""

from __future__ import annotations

import json
import logging
import os
import sys

import numpy as np
import pytest

from smdwidgets import CapturePlan, create_trial
from smdwidgets import numpy as smd
from smdwidgets.exceptions import SMDebugError, SMDebugRuntimeError, SMDebugTypeError, SMDebugValueError, StepDeleted
from smdwidgets.hooks.capture import disk_budget
from smdwidgets.hooks.core import recorder
from smdwidgets.numpy import Hook, ReductionConfig, SaveConfig


def lines(run, name="plan"):
    content = (run / f"capture/worker_0/{name}.jsonl").read_bytes()
    return [json.loads(line) for line in content.splitlines()]


def train(hook, steps, size=20_000, first=0):
    """Save a weight whose elements are the step's number, and a loss."""
    for step in range(first, first + steps):
        hook.save_scalar("loss", 1 / (step + 1))
        hook.save_tensor("w", np.full(size, step, "float32"), "weights")
        hook.step()


def statistics(run):
    """Return by tensor the steps in the statistics file."""
    from smdwidgets import _core

    reader, files = _core.StatisticsReader(), _core.Files(str(run))
    keys = [path.relative_to(run).as_posix() for path in sorted((run / "statistics").rglob("*")) if path.is_file()]
    reader.refresh(files, keys)
    rows = reader.read(files)
    assert not rows["error"]
    found = {}
    for name, step, mean in zip(rows["name"], rows["step"], rows["mean"], strict=True):
        found.setdefault(name, {})[int(step)] = float(mean)
    return found


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


# ------------------------------------------------------------------------------------------------------ when it applies


@pytest.mark.parametrize(
    "chosen",
    [
        {"save_config": SaveConfig(save_interval=2)},
        {"include_collections": []},
        {"include_regex": "w"},
        {"save_all": True},
        {"reduction_config": ReductionConfig(reductions=["mean"])},
        {"plan": False},
    ],
    ids=lambda chosen: next(iter(chosen)),
)
def test_script_that_chooses_what_to_save_has_no_plan(run, chosen):
    with Hook(run, **chosen) as hook:
        assert hook.plan is None
        train(hook, 3)
    assert not (run / "capture").exists()
    assert not (run / "statistics").exists()


def test_script_that_chooses_nothing_has_the_default_plan(run):
    with Hook(run) as hook:
        assert hook.plan == CapturePlan()
        train(hook, 3)
    assert lines(run)[0]["plan"] == json.loads(json.dumps(CapturePlan().to_dict()))


def test_configuration_file_in_the_format_of_smdebug_keeps_its_meaning(run, tmp_path):
    file = tmp_path / "hook.json"
    file.write_text(json.dumps({"LocalPath": str(run)}))
    with Hook.create_from_json_file(file) as hook:
        assert hook.plan is None


def test_plan_and_save_config_exclude_each_other(run):
    with pytest.raises(SMDebugValueError, match=r"plan and save_config .* mutually exclusive"):
        Hook(run, plan=CapturePlan(), save_config=SaveConfig(save_interval=2))


def test_collection_with_a_configuration_is_exempt_from_the_plan(run):
    with Hook(run, plan={"budget": "1MB"}) as hook:
        hook.get_collection("mine").save_config = SaveConfig(save_interval=10)
        for step in range(200):
            hook.save_tensor("m", np.full(5000, step, "float32"), "mine")
            hook.save_tensor("w", np.full(5000, step, "float32"), "weights")
            hook.step()
    with create_trial(run) as trial:
        assert trial.tensor("m").steps() == list(range(0, 200, 10))
        assert len(trial.tensor("w").steps()) <= 40


# --------------------------------------------------------------------------------------------------------- the
# arguments


def test_what_a_script_sets_during_the_training_counts_from_the_next_step(run):
    with Hook(run) as hook:
        train(hook, 3)
        hook.get_collection("weights").save_config = SaveConfig(save_steps=[4, 7])
        train(hook, 3, first=3)
        hook.get_collection("weights").reduction_config = ReductionConfig(reductions=["max"], save_raw_tensor=False)
        train(hook, 2, first=6)
    with create_trial(run) as trial:
        assert trial.tensor("w").steps() == [0, 1, 2, 4, 7]
        assert trial.tensor("w").value(4).tolist() == [4.0] * 20_000
        assert trial.tensor("w").reduction_value(7, "max") == 7


def test_every_hook_module_offers_the_plan():
    assert smd.CapturePlan is CapturePlan


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml"])
def test_plan_from_a_file(run, tmp_path, suffix):
    if suffix != "json":
        pytest.importorskip("yaml")
    file = tmp_path / f"plan.{suffix}"
    file.write_text('{"budget": "10GB", "keep_last": 3, "tensors": ["gradients", "weights"]}')
    expected = CapturePlan(budget=10**10, keep_last=3, tensors=("weights", "gradients"))
    assert CapturePlan.load(file) == expected
    with Hook(run, plan=file) as hook:
        assert hook.plan == expected
    assert CapturePlan.from_dict(expected.to_dict()) == expected


def test_yaml_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(SMDebugRuntimeError, match="needs the package PyYAML"):
        CapturePlan.from_yaml("budget: 10GB")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": "ten"}, "budget must be a number of bytes or a text such as \"10GB\", got 'ten'"),
        ({"budget": 1000}, "budget must be at least 1 MB"),
        ({"budget": float("nan")}, "budget must be a number of bytes"),
        ({"keep_last": -1}, "keep_last must be >= 0"),
        ({"time_share": 0}, "time_share must be a number above 0"),
        ({"time_share": True}, "time_share must be a number above 0"),
        ({"statistics": "often"}, 'statistics, if not "auto", must be an integer'),
        ({"every": 1 << 30}, "every must be at most"),
        ({"tensors": ["weight"]}, "invalid tensors 'weight'; choose from .* Did you mean 'weights'"),
        ({"bugdet": "1GB"}, "unknown key 'bugdet' in plan; .* Did you mean 'budget'"),
    ],
)
def test_invalid_arguments(run, arguments, message):
    with pytest.raises(SMDebugValueError, match=message):
        Hook(run, plan=arguments)


def test_invalid_types_and_files(run, tmp_path):
    with pytest.raises(SMDebugTypeError, match="plan must be a CapturePlan"):
        Hook(run, plan=7)
    with pytest.raises(SMDebugValueError, match=r"a capture plan is a .json, .yaml or .yml file"):
        Hook(run, plan="plan.toml")
    bad = tmp_path / "bad.json"
    bad.write_text("[")
    with pytest.raises(SMDebugValueError, match=r"bad\.json': invalid JSON of a capture plan"):
        CapturePlan.load(bad)


def test_repr_is_a_paragraph():
    text = repr(CapturePlan(budget="10GB", every=100, reserve="3GB", time_share=0.05))
    assert "\n" not in text
    for part in (
        "every 100th step, thinned to every 200th, 400th, …",
        "below 10.0 GB",
        "5 % of a step's time",
        "3.0 GB",
    ):
        assert part in text


# ---------------------------------------------------------------------------------------------------------- what it
# saves


def test_values_are_thinned_and_losses_and_statistics_of_every_step_are_kept(run):
    with Hook(run, plan={"budget": "20MB"}) as hook:
        train(hook, 200, size=100_000)
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    assert size < 20 * 10**6
    with create_trial(run) as trial:
        w = trial.tensor("w")
        kept = w.steps()
        assert 8 <= len(kept) <= 20
        assert kept[0] == 0
        assert [set(w.value(step).tolist()) for step in kept] == [{float(step)} for step in kept]
        losses = trial.tensor("scalar/loss")
        assert losses.steps() == list(range(200))
        assert [losses.value(step).item() for step in (0, 99, 199)] == [1.0, 1 / 100, 1 / 200]
        with pytest.raises(StepDeleted, match="value of tensor 'w' at step 3 was deleted to keep the run within"):
            w.value(3)
        assert issubclass(StepDeleted, SMDebugError)
    assert statistics(run)["w"] == {step: float(step) for step in range(200)}
    assert 3 in {line["step"] for line in lines(run, "thinned")}


def test_open_trial_reads_kept_tensors_and_says_that_others_were_deleted(run):
    hook = Hook(run, plan={"budget": "20MB"})
    train(hook, 8, size=100_000)
    hook.flush()
    with create_trial(run) as trial:
        seen = trial.tensor("w").steps()
        assert len(seen) >= 6
        for step in seen:
            trial.tensor("scalar/loss").value(step)
        train(hook, 150, size=100_000, first=8)
        hook.flush()
        outcomes = []
        for step in seen:
            assert trial.tensor("scalar/loss").value(step).item() == 1 / (step + 1)
            try:
                outcomes.append(set(trial.tensor("w").value(step).tolist()) == {float(step)})
            except StepDeleted as error:
                outcomes.append(None if (error.tname, error.step) == ("w", step) else error)
        assert outcomes.count(None) >= 4
        assert outcomes[0] is True
        assert set(outcomes) == {None, True}
    hook.close()


@pytest.mark.parametrize("opened", ["before", "after"])
@pytest.mark.slow
def test_reductions_and_tables_say_that_values_were_deleted(run, opened):
    hook = Hook(run, plan={"budget": "20MB"})
    train(hook, 8, size=100_000)
    hook.flush()
    early = create_trial(run)
    seen = early.tensor("w").steps()
    train(hook, 150, size=100_000, first=8)
    hook.close()
    with early, create_trial(run) as late:
        trial = early if opened == "before" else late
        kept = set(late.tensor("w").steps())
        gone = [step for step in seen if step not in kept]
        w = trial.tensor("w")
        assert len(gone) >= 4
        # One step each: any of these makes an open trial read the step again.
        with pytest.raises(StepDeleted, match=f"tensor 'w' at step {gone[0]} was deleted"):
            w.value(gone[0])
        with pytest.raises(StepDeleted, match=f"tensor 'w' at step {gone[1]} was deleted"):
            w.reduction_value(gone[1], "mean")
        with pytest.raises(StepDeleted, match=f"tensor 'w' at step {gone[1]} was deleted"):
            w.reduction_values(gone[1])
        for worker in (None, "worker_0", "*"):
            for table in (
                trial.values({"w": [0, *gone], "scalar/loss": gone}, worker=worker),
                trial.reductions(["w", "scalar/loss"], [0, *gone], worker=worker, reductions="mean"),
            ):
                assert sorted(one.step for one in table.errors) == gone
                assert {(one.name, type(one.error)) for one in table.errors} == {("w", StepDeleted)}
                rows = set(zip(table["name"].tolist(), table["step"].tolist(), strict=True))
                assert rows - {("scalar/loss", 0)} == {("w", 0), *(("scalar/loss", step) for step in gone)}
        for table in (trial.values("w"), trial.reductions("w", reductions="mean")):
            assert {type(one.error) for one in table.errors} <= {StepDeleted}
            assert set(table["step"].tolist()) <= kept


def test_scalars_of_a_very_long_training_are_thinned_too(run):
    with Hook(run, plan={"budget": "1MB"}) as hook:
        for step in range(100):
            hook.save_scalar("loss", step)
            hook.step()
    with create_trial(run) as trial:
        steps = trial.tensor("scalar/loss").steps()
    assert 4 <= len(steps) <= 13
    assert statistics(run)["scalar/loss"] == {step: float(step) for step in range(100)}


def test_no_values(run):
    with Hook(run, plan=CapturePlan(every=0)) as hook:
        train(hook, 5)
    with create_trial(run) as trial:
        assert trial.tensor_names() == ["scalar/loss"]
    assert len(statistics(run)["w"]) == 5


def test_no_statistics(run):
    with Hook(run, plan=CapturePlan(statistics=0, every=2)) as hook:
        train(hook, 5)
    assert not (run / "statistics").exists()
    with create_trial(run) as trial:
        assert trial.tensor("w").steps() == [0, 2, 4]


def stored(run, name):
    """Return what the statistics file says of a tensor."""
    from smdwidgets import _core

    reader, files = _core.StatisticsReader(), _core.Files(str(run))
    reader.refresh(files, [path.relative_to(run).as_posix() for path in run.glob("statistics/*/*")])
    return reader.read(files, [name])


@pytest.mark.parametrize("every", [1, 3])
def test_change_of_weights_is_that_since_the_last_step_that_has_them(run, every):
    with Hook(run) as hook:
        for step in range(4 * every):
            hook.save_scalar("loss", 1.0)
            if step % every == 0:
                hook.save_tensor("w", np.full(16, step // every, np.float32), "weights")
                hook.save_tensor("x", np.full(16, step, np.float32), "inputs")
            hook.step()
    rows = stored(run, "w")
    assert rows["step"].tolist() == [0, every, 2 * every, 3 * every]
    assert np.isnan(rows["update"][0])
    assert rows["update"][1:].tolist() == [4.0] * 3
    assert np.isnan(stored(run, "x")["update"]).all()


# ------------------------------------------------------------------------------------------------------------------
# faults


def test_tensors_larger_than_the_share_have_statistics_only_and_it_is_said_once(run, caplog):
    with caplog.at_level(logging.WARNING), Hook(run, plan={"budget": "1MB"}) as hook:
        for step in range(5):
            hook.save_tensor("large", np.full(100_000, step, "float32"), "weights")
            hook.save_tensor("small", np.full(100, step, "float32"), "weights")
            hook.step()
    assert len([message for message in caplog.messages if "values of large are not saved, only their" in message]) == 1
    with create_trial(run) as trial:
        assert trial.tensor_names() == ["small"]
    assert statistics(run)["large"] == {step: float(step) for step in range(5)}


def test_full_disk_pauses_values_and_resumes(run, monkeypatch, caplog):
    free = [10**11]
    monkeypatch.setattr(recorder, "free_space", lambda path: (free[0], 10**12))
    monkeypatch.setattr(disk_budget, "_LOOK_EVERY", 0.0)
    with caplog.at_level(logging.WARNING), Hook(run, plan={"reserve": "1GB"}) as hook:
        for bytes_free in (10**11, 5 * 10**8, 105 * 10**7, 2 * 10**9):
            free[0] = bytes_free
            train(hook, 10, first=hook.global_step + 1)
            hook.flush()
    with create_trial(run) as trial:
        assert trial.tensor("w").steps() == [*range(10), *range(30, 40)]
        assert trial.tensor("scalar/loss").steps() == list(range(40))
    assert list(statistics(run)["w"]) == list(range(40))
    assert [line["change"] for line in lines(run)].count("paused") == 1
    about = [message.partition(": ")[2] for message in caplog.messages]
    assert about[0].startswith("values are not saved until the disk has more space: 500.0 MB are free")
    assert about[1:] == ["values are saved again"]


def test_restart_into_the_same_directory_begins_a_new_segment(run):
    for restart in range(3):
        with Hook(run, plan={"budget": "4MB"}, resume=restart > 0) as hook:
            train(hook, 20, first=20 * restart)
    assert len(list(run.glob("statistics/worker_0/*.arrows"))) == 3
    assert statistics(run)["w"] == {step: float(step) for step in range(60)}
    assert [line["change"] for line in lines(run)].count("plan") == 3
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    assert size < 4 * 10**6


def test_overwriting_a_run_deletes_its_capture(run):
    for _ in range(2):
        with Hook(run, plan={"budget": "1MB"}, overwrite=True) as hook:
            train(hook, 50)
    assert [line["change"] for line in lines(run)].count("plan") == 1
    assert len(list(run.glob("statistics/worker_0/*.arrows"))) == 1


def test_clock_that_goes_backwards(run, monkeypatch):
    times = iter(range(10**9, 0, -1000))
    monkeypatch.setattr("time.time", lambda: float(next(times)))
    with Hook(run, plan={"budget": "8MB"}) as hook:
        train(hook, 60)
    monkeypatch.undo()
    with create_trial(run) as trial:
        assert trial.tensor("scalar/loss").steps() == list(range(60))
        assert trial.tensor("w").value(0).tolist()[0] == 0
    assert list(statistics(run)["w"]) == list(range(60))


@pytest.mark.skipif(os.name == "nt", reason="files that are open cannot be removed")
def test_deletion_that_fails_is_logged_once_and_training_goes_on(run, monkeypatch, caplog):
    from smdwidgets.hooks.writing.thinning import Thinning

    def fail(*_):
        raise PermissionError(13, "denied")

    monkeypatch.setattr(Thinning, "thin", fail)
    with caplog.at_level(logging.WARNING), Hook(run, plan={"budget": "1MB"}) as hook:
        train(hook, 60)
    assert len([message for message in caplog.messages if "cannot delete values of step" in message]) == 1


def test_the_default_budget_follows_the_model_and_says_when_it_is_reached(run, caplog):
    with caplog.at_level(logging.WARNING), Hook(run) as hook:
        for step in range(10):
            hook.save_tensor("w", np.full(1_500_000, step, "float32"), "weights")
            hook.step()
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    assert size < 0.45 * 20 * 6_000_000
    assert (
        "whole tensors of 7 steps (6.0 MB each) fit the disk budget of 120.0 MB: keeping them at every 2nd step from now on; "
        "losses and statistics stay complete." in caplog.text
    )
