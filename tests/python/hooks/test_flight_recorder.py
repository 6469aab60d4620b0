"""The flight recorder: what it keeps, what it writes, and within which memory."""

from __future__ import annotations

import errno
import logging

import numpy as np
import pytest

from python.hooks.flight import MIB, Rig
from smdwidgets.modes import ModeKeys


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def whole(step, size=100):
    return {"weight": np.full(size, step), "gradient": np.full(size, -step), "output_0": np.full(size, step + 0.5)}


def test_nothing_but_what_is_saved_is_written_while_nothing_breaks(rig):
    for step in range(20):
        rig.step(step, loss=1.0, **whole(step))
    trial = rig.close()
    assert trial.steps() == list(range(20))
    assert trial.tensor_names() == ["loss"]
    assert trial.incidents() == []
    assert rig.flight.nbytes == 0


def test_the_steps_around_a_nan_are_whole_and_the_others_are_not(rig):
    for step in range(60):
        gradient = np.full(100, np.nan if step == 30 else -step)
        rig.step(step, loss=1.0, weight=np.full(100, step), gradient=gradient)
    trial = rig.close()
    [incident] = trial.incidents()
    assert incident.step == 30
    assert incident.why == ("NaN in 'gradient'",)
    assert (incident.trigger.tensor, incident.trigger.column, incident.trigger.value) == ("gradient", "nan", 100.0)
    assert incident.steps == tuple(range(23, 39))
    assert (incident.dense_until, incident.missed) == (38, 0)
    assert trial.tensor("weight").steps() == list(range(23, 39))
    assert [trial.tensor("weight").value(step)[0] for step in range(23, 39)] == list(range(23, 39))
    assert trial.tensor("loss").steps() == list(range(60))


def test_a_step_is_visible_at_once_and_grows_when_something_breaks(rig):
    from smdwidgets.trials import create_trial

    for step in range(5):
        rig.step(step, loss=1.0, **whole(step))
    reader = create_trial(str(rig.root), wait=0)
    assert reader.steps() == list(range(5))
    assert reader.tensor_names() == ["loss"]
    rig.flight.dump("look", 4)
    assert [one.why for one in reader.incidents()] == [("look",)]
    assert reader.tensor("weight").steps() == list(range(5))
    # Each tensor is in its step once: nothing was written twice.
    for file in sorted((rig.root / "index").rglob("*.json")):
        assert file.read_text().count('"loss"') == 1
        assert file.read_text().count('"weight"') == 1
    rig.close()


def test_first_tensor_in_forward_order_is_named(rig):
    bad = np.full(3, np.nan)
    for step in range(10):
        rig.step(step, output_0=np.ones(3), output_1=np.ones(3), loss=1.0)
    rig.step(10, net_input_0=np.ones(3), output_0=np.ones(3), net_output_1=bad, loss=np.nan, gradient=bad)
    trial = rig.close()
    assert trial.incidents()[0].trigger.tensor == "net_output_1"


def test_first_tensor_in_forward_order_is_named_though_its_statistics_are_rarer(rig):
    for step in range(10):
        rig.step(step, net_output_0=np.ones(3), loss=1.0)
    bad = np.full(3, np.nan)
    rig.step(10, judged=("loss",), weight=np.ones(3), fc_output_0=bad, net_output_0=bad, loss=np.nan)
    trial = rig.close()
    trigger = trial.incidents()[0].trigger
    assert (trigger.tensor, trigger.value) == ("fc_output_0", 3.0)


def test_input_that_is_not_finite_is_named_as_the_cause(rig):
    rig.step(0, net_input_0=np.ones(3), loss=1.0)
    rig.step(1, net_input_0=np.full(3, np.inf), loss=np.nan)
    trial = rig.close()
    trigger = trial.incidents()[0].trigger
    assert (trigger.tensor, trigger.column) == ("net_input_0", "pos_inf")


def test_a_long_evaluation_does_not_push_out_the_last_training_step(rig):
    rig.step(0, loss=1.0, **whole(0))
    for step in range(1, 21):
        rig.step(step, mode=ModeKeys.EVAL, loss=1.0, net_output_0=np.ones(3))
    rig.step(21, loss=np.nan, **whole(21))
    trial = rig.close()
    assert trial.tensor("weight").steps(ModeKeys.GLOBAL)[0] == 0


# -------------------------------------------------------------------------------------------------------------
# incidents


def test_a_dump_during_a_dump_extends_the_incident(rig):
    for step in range(10):
        rig.step(step, loss=1.0, **whole(step))
    rig.flight.dump("first", 9)
    for step in range(10, 14):
        rig.step(step, loss=1.0, **whole(step))
    rig.flight.dump("second", 13)
    for step in range(14, 40):
        rig.step(step, loss=1.0, **whole(step))
    trial = rig.close()
    [incident] = trial.incidents()
    assert incident.why == ("first", "second")
    assert incident.dense_until == 21
    assert incident.steps == tuple(range(2, 22))


def test_a_condition_that_goes_on_is_one_incident(rig):
    for step in range(200):
        rig.step(step, loss=np.nan if step >= 50 else 1.0, **whole(step))
    trial = rig.close()
    assert [one.step for one in trial.incidents()] == [50]
    assert trial.tensor("weight").steps() == list(range(43, 59))


def test_steps_are_written_for_five_incidents_an_hour_and_twenty_a_run(tmp_path):
    now = [1000.0]
    rig = Rig(tmp_path, clock=lambda: (now[0], now[0]))
    step = 0

    def incident():
        nonlocal step
        rig.flight.dump(f"at {step}", step)
        for _ in range(12):
            step += 1
            rig.step(step, loss=1.0, **whole(step))

    rig.step(0, loss=1.0, **whole(0))
    for _ in range(7):
        incident()
    for _ in range(20):
        now[0] += 3600
        incident()
    trial = rig.close()
    found = trial.incidents()
    assert len(found) == 27
    assert [bool(one.steps) for one in found] == [True] * 5 + [False] * 2 + [True] * 15 + [False] * 5


def test_jumps_that_come_again_and_again_are_announced_six_times(rig, caplog):
    """A loss jumps at every 100th step, as its targets do, and becomes a NaN at last."""
    with caplog.at_level(logging.WARNING):
        for step in range(2001):
            loss = np.nan if step == 2000 else 5.0 if step and step % 100 == 0 else 1.0 + 0.01 * (step % 7)
            rig.step(step, loss=loss, **whole(step))
        trial = rig.close()
    assert len(trial.incidents()) == 20
    said = [one.getMessage() for one in caplog.records if "incident at step" in one.getMessage()]
    assert len(said) == 7
    assert said[5].endswith("too many incidents: this and later ones like it are noted without their steps")
    assert "incident at step 2000: NaN" in said[6]


def test_records_end_before_they_fill_the_disk(rig):
    for step in range(400):
        rig.step(step, loss=1.0, weight=np.ones(2))
        rig.flight.dump("again", step)
        rig.flight._incident = None  # as if the dense steps had passed
    rig.close()
    assert len(list((rig.root / "incidents" / "worker_0").iterdir())) <= 220


# ----------------------------------------------------------------------------------------------------------------
# memory


def test_memory_stays_within_the_bound_and_the_number_of_steps_adapts(tmp_path):
    rig = Rig(tmp_path, limit=64 * MIB)
    seen = []
    for step in range(30):
        rig.step(step, loss=1.0, weight=np.ones(5 * MIB // 4), gradient=np.ones(5 * MIB // 4))
        assert rig.flight.nbytes <= 64 * MIB
        seen.append(len(rig.flight.steps))
    assert 3 <= seen[-1] < 8
    rig.flight.dump("look", 29)
    trial = rig.close()
    [incident] = trial.incidents()
    assert incident.steps == tuple(range(30 - seen[-1], 30))
    assert incident.missed == 0


def test_two_steps_are_kept_if_two_fit(tmp_path):
    rig = Rig(tmp_path, limit=64 * MIB)
    for step in range(12):
        gradient = np.ones(12 * MIB // 4) * (np.nan if step == 11 else 1)
        rig.step(step, loss=1.0, weight=np.full(12 * MIB // 4, step), gradient=gradient)
    trial = rig.close()
    [incident] = trial.incidents()
    assert incident.step == 11
    assert incident.steps == (10, 11)
    assert incident.missed == 0
    assert trial.tensor("weight").value(10)[0] == 10


def test_outputs_then_inputs_then_weights_are_left_out_if_two_steps_do_not_fit(tmp_path, caplog):
    rig = Rig(tmp_path, limit=64 * MIB)
    size = 10 * MIB // 4
    with caplog.at_level(logging.WARNING):
        for step in range(12):
            rig.step(
                step,
                weight=np.full(size, step),
                net_input_0=np.full(size, step),
                net_output_0=np.full(size, step),
                loss=1.0,
                gradient=np.full(size, np.nan if step == 11 else step),
            )
            assert rig.flight.nbytes <= 64 * MIB
    [message] = [record.message for record in caplog.records if "keeps no" in record.message]
    assert message.startswith(
        "the flight recorder keeps no outputs, inputs: two steps of 41.9 MB are more than its 67.1 MB"
    )
    trial = rig.close()
    assert trial.tensor_names(step=11) == ["gradient", "loss", "weight"]
    assert trial.tensor_names(step=10) == ["gradient", "loss", "weight"]


def test_message_names_the_kinds_that_are_left_out(tmp_path, caplog):
    rig = Rig(tmp_path, limit=2 * MIB)
    with caplog.at_level(logging.WARNING):
        rig.step(0, weight=np.ones(1 << 17), bias=np.ones(1 << 17), net_input_0=np.ones(1 << 17), loss=1.0)
    assert "keeps no inputs, weights, biases: two steps" in caplog.text
    rig.close()


def test_the_last_whole_copy_of_the_weights_is_kept_if_weights_are_left_out(tmp_path):
    rig = Rig(tmp_path, limit=64 * MIB)
    size = 30 * MIB // 4
    for step in range(30):
        rig.step(step, weight=np.full(size, step), loss=1.0, gradient=np.full(4 * MIB // 4, step))
        assert rig.flight.nbytes <= 64 * MIB
    rig.flight.dump("look", 29)
    trial = rig.close()
    [kept] = trial.tensor("weight").steps()
    assert 29 - kept <= 8
    assert trial.tensor("weight").value(kept)[0] == kept
    assert trial.tensor("loss").value(kept) == 1.0
    assert trial.tensor("gradient").steps()[-2:] == [28, 29]


def test_a_tensor_of_which_two_do_not_fit_is_said_once_and_left_out(tmp_path, caplog):
    rig = Rig(tmp_path, limit=64 * MIB)
    with caplog.at_level(logging.WARNING):
        for step in range(5):
            rig.step(step, loss=1.0, weight=np.ones(40 * MIB // 4), gradient=np.ones(100))
    assert [record.message for record in caplog.records] == [
        "the flight recorder does not keep weight: two copies of 41.9 MB are more than its 67.1 MB; its statistics are recorded"
    ]
    rig.flight.dump("look", 4)
    trial = rig.close()
    assert trial.tensor_names() == ["gradient", "loss"]
    assert trial.tensor("gradient").steps() == list(range(5))


def test_steps_that_are_saved_whole_take_no_memory(rig):
    for step in range(10):
        rig.step(step, saved=("loss", "weight", "gradient", "output_0"), loss=1.0, **whole(step))
        assert rig.flight.nbytes == 0
    rig.flight.dump("look", 9)
    trial = rig.close()
    assert trial.incidents()[0].steps == tuple(range(2, 10))


# ----------------------------------------------------------------------------------------------------------------
# faults


def test_a_full_disk_during_a_dump_leaves_the_steps_as_they_were(rig, monkeypatch):
    for step in range(10):
        rig.step(step, loss=1.0, **whole(step))
    real, written = rig.files._write, []

    def full_after_three(key, captured):
        if len(written) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(key)
        real(key, captured)

    monkeypatch.setattr(rig.files, "_write", full_after_three)
    rig.flight.dump("look", 9)
    monkeypatch.setattr(rig.files, "_write", real)
    for step in range(10, 30):
        rig.step(step, loss=1.0, **whole(step))
    trial = rig.close()
    [incident] = trial.incidents()
    assert incident.steps == (2, 3, 4, *range(10, 18))
    assert incident.missed == 5
    assert trial.tensor("loss").steps() == list(range(30))
    assert trial.tensor("loss").value(7) == 1.0
    assert trial.tensor("weight").steps() == list(incident.steps)


def test_a_step_that_could_not_be_saved_is_whole_after_a_dump(rig, monkeypatch):
    real = rig.files._write

    def full(key, captured):
        raise OSError(errno.ENOSPC, "No space left on device")

    rig.step(0, loss=1.0, **whole(0))
    monkeypatch.setattr(rig.files, "_write", full)
    rig.step(1, loss=1.0, **whole(1))
    monkeypatch.setattr(rig.files, "_write", real)
    rig.step(2, loss=1.0, **whole(2))
    rig.flight.dump("look", 2)
    trial = rig.close()
    assert trial.tensor_names(step=1) == ["gradient", "loss", "output_0", "weight"]


def test_steps_over_the_disk_budget_are_counted_and_not_written(tmp_path, monkeypatch):
    rig = Rig(tmp_path)
    monkeypatch.setattr(rig.files, "allows_incident", lambda nbytes: False)
    for step in range(10):
        rig.step(step, loss=1.0, **whole(step))
    rig.flight.dump("look", 9)
    trial = rig.close()
    [incident] = trial.incidents()
    assert incident.steps == ()
    assert incident.missed == 8
    assert trial.tensor_names() == ["loss"]
    assert trial.tensor("loss").steps() == list(range(10))
