"""The record of an incident: its content, and how a trial reads records."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets import SaveConfig, create_trial
from smdwidgets.cli import main
from smdwidgets.incident import Incident, Jump, Trigger, combined
from smdwidgets.numpy import Hook
from smdwidgets.storage import LocalStorage
from smdwidgets.trials import Trial
from smdwidgets.trials.smdebug import run as smdebug_run


def record(**changes: object) -> bytes:
    content = json.loads(Incident("worker_0", 3, ("why",), Trigger("w", "nan", 1.0), (2, 3), 11, 1, 5.0).to_json())
    return json.dumps({**content, **changes}).encode()


@pytest.mark.parametrize("value", [3.0, float("inf"), float("-inf")])
def test_record_reads_back(value):
    one = Incident(
        "worker_2", 7, ("a", "b"), Trigger("w", "mean", value), (5, 6, 7), 15, 2, 3.5, 2, 4, "s3://bucket/run",
        place=(3, -7), jumps=(Jump("w", 1.0, value), Jump("v", 0.5, 2.0)),
    )  # fmt: skip
    assert Incident.parse(one.to_json(), "worker_2") == one


def test_nan_of_a_trigger_reads_back():
    read = Incident.parse(Incident("w", 1, ("a",), Trigger("x", "mean", float("nan"))).to_json(), "w")
    assert read.trigger is not None
    assert read.trigger.value != read.trigger.value


@pytest.mark.parametrize(
    "changes",
    [
        {"why": []},
        {"why": "x"},
        {"step": -2},
        {"step": True},
        {"step": 2**63},
        {"steps": [1, "2"]},
        {"steps": 4},
        {"missed": 1.5},
        {"time": "now"},
        {"trigger": [1]},
        {"trigger": {"value": "many"}},
        {"place": 3},
        {"place": [1, 2.5]},
        {"jumps": {}},
        {"jumps": [1]},
        {"jumps": [{"tensor": "w", "before": "much", "value": 1}]},
    ],
)
def test_record_with_a_wrong_value_is_invalid(changes):
    with pytest.raises(ValueError):
        Incident.parse(record(**changes), "worker_0")


def test_unknown_keys_are_ignored():
    assert Incident.parse(record(later="x"), "worker_0") == Incident.parse(record(), "worker_0")


@given(
    st.binary(max_size=200)
    | st.dictionaries(
        st.sampled_from(["why", "step", "steps", "trigger", "missed", "time", "rank", "world", "run", "dense_until"]),
        st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4),
    ).map(lambda content: json.dumps(content).encode())
)
def test_any_content_is_an_incident_or_invalid(content):
    with contextlib.suppress(ValueError):
        assert isinstance(str(Incident.parse(content, "worker_0")), str)


def incident(worker: int, step: int, **more: object) -> Incident:
    return Incident(f"worker_{worker}", step, (f"{worker} at {step}",), rank=worker, world=3, **more)  # type: ignore[arg-type]


def test_records_of_workers_are_joined_by_step_and_never_by_time():
    found = combined(
        [
            incident(1, 338, steps=(337, 338), missed=1, time=9e9),
            incident(0, 337, steps=(336, 337), dense_until=345, time=1.0),
            incident(0, 900, time=9e9),
        ]
    )
    assert [(one.step, one.workers, one.steps) for one in found] == [
        (337, ("worker_0", "worker_1"), (336, 337, 338)),
        (900, ("worker_0",), ()),
    ]
    assert found[0].why == ("0 at 337", "1 at 338")
    assert (found[0].missed, found[0].dense_until) == (1, 345)


def test_worker_with_the_earliest_tensor_in_causal_order_is_named():
    first = incident(0, 5, place=(3, -7), trigger=Trigger("gradient/w", "nan", 1.0))
    other = incident(1, 5, place=(1, 2), trigger=Trigger("net_input_0", "nan", 1.0))
    [joined] = combined([first, other])
    assert (joined.worker, joined.rank, joined.trigger.tensor) == ("worker_1", 1, "net_input_0")
    assert str(joined) == "step 5: 1 at 5 of worker_1 (and 1 more); worker_0, worker_1"


def test_two_incidents_of_one_worker_stay_apart():
    assert [one.step for one in combined([incident(0, 10), incident(0, 20)])] == [10, 20]


def write(folder, name, content):
    target = folder / "incidents" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".tmp").write_bytes(content)
    target.with_suffix(".tmp").replace(target)


def test_trial_finds_records_while_it_follows_the_run(tmp_path, capsys):
    with Hook(tmp_path / "run") as hook:
        hook.save_scalar("loss", 1.0)
        hook.step()
        hook.flush()
        trial = create_trial(tmp_path / "run")
        assert trial.incidents() == []
        write(tmp_path / "run", "worker_0/1_2_0.json", record(step=0, steps=[0]))
        assert [one.step for one in trial.incidents()] == [0]
        write(tmp_path / "run", "worker_0/1_2_0.json", record(step=0, steps=[0], why=["why", "SIGTERM"]))
        assert trial.incidents()[0].why == ("why", "SIGTERM")
    assert main(["inspect", str(tmp_path / "run")]) == 0
    assert "step 0: why (and 1 more)" in capsys.readouterr().out


def test_an_invalid_record_is_a_problem_and_the_others_are_read(tmp_path):
    with Hook(tmp_path / "run") as hook:
        hook.save_scalar("loss", 1.0)
    write(tmp_path / "run", "worker_0/1_2_0.json", b"{")
    write(tmp_path / "run", "worker_0/1_2_1.json", record(step=4))
    write(tmp_path / "run", "worker_0/1_2_2.json.tmp", b"{")
    trial = create_trial(tmp_path / "run")
    assert [one.step for one in trial.incidents()] == [4]
    [(file, message)] = trial.problems()
    assert file == "incidents/worker_0/1_2_0.json"
    assert "invalid incident" in message


def test_steps_that_an_incident_added_to_are_read_again(tmp_path):
    from smdwidgets._core import StepWriter

    with Hook(tmp_path / "run") as hook:
        hook.save_scalar("loss", 1.0)
        hook.step()
        hook.flush()
        first = StepWriter(str(tmp_path / "run"), 1)
        first.tensor("loss", 2.0)
        first.publish()
        trial = create_trial(tmp_path / "run")
        assert trial.tensor_names(step=1) == ["loss"]
        first.tensor("w", [1.0, 2.0])
        first.finish()
        write(tmp_path / "run", "worker_0/1_2_0.json", record(step=1, steps=[1]))
        assert [one.steps for one in trial.incidents()] == [(1,)]
        assert trial.tensor_names(step=1) == ["loss", "w"]
        assert trial.tensor("w").value(1).tolist() == [1.0, 2.0]
        assert trial.tensor("loss").value(1) == 2.0


def test_steps_that_an_incident_wrote_late_are_found(tmp_path):
    from smdwidgets._core import StepWriter

    with Hook(tmp_path / "run", save_config=SaveConfig(save_interval=1, start_step=5)) as hook:
        for _ in range(8):
            hook.save_tensor("loss", 1.0)
            hook.step()
        hook.flush()
        trial = create_trial(tmp_path / "run")
        assert trial.steps()[0] == 5
        with StepWriter(str(tmp_path / "run"), 3) as late:
            late.tensor("w", [1.0])
        write(tmp_path / "run", "worker_0/1_2_0.json", record(step=4, steps=[3]))
        assert [one.steps for one in trial.incidents()] == [(3,)]
        assert trial.steps()[:2] == [3, 5]


def test_an_incident_of_the_last_seconds_is_found_through_a_storage(tmp_path, monkeypatch):
    monkeypatch.setattr(smdebug_run, "_INCIDENTS_EVERY", 1e9)
    with Hook(tmp_path / "run") as hook:
        hook.save_scalar("loss", 1.0)
        hook.step()
        hook.flush()
        trial = Trial(smdebug_run.StorageRun(LocalStorage(tmp_path / "run")), "live")
        assert trial.incidents() == []
        write(tmp_path / "run", "worker_0/1_2_0.json", record(step=0, steps=[0]))
    assert [one.step for one in trial.incidents()] == [0]
