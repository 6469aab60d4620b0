"""An incident of the flight recorder as evidence of a diagnosis."""

from __future__ import annotations

import numpy as np
import pytest

from python.hooks.flight import Rig
from smdwidgets import create_trial, diagnose
from smdwidgets.diagnosis.inputs import RunData, TensorColumns
from smdwidgets.diagnosis.tensor_detectors import first_not_finite
from smdwidgets.incident import Incident, Trigger
from smdwidgets.modes import ModeKeys
from smdwidgets.numpy import Hook


def test_the_tensor_that_an_incident_names_is_the_finding_with_the_incident_as_evidence(tmp_path):
    rig = Rig(tmp_path)
    noise = np.random.default_rng(0).normal(0, 0.01, 200)
    for step in range(200):
        bad = step >= 137
        rig.step(
            step,
            net_input_0=np.ones(8),
            net_fc1_output_0=np.where(np.arange(8) == 3, np.nan if bad else 1.0, 1.0),
            net_output_0=np.full(8, np.nan if bad else 1.0),
            loss=np.nan if bad else 2.0 - step / 200 + noise[step],
            gradient=np.full(8, np.nan if bad else 1.0),
        )
    with rig.close() as trial:
        found = next(one for one in diagnose(trial).findings if "net_fc1_output_0" in one.names)
        assert (found.kind, found.level, found.first) == ("not_finite", "problem", 137)
        [text] = [evidence.text for evidence in found.evidence if "incident" in evidence.text]
        assert text == "incident at step 137: NaN in 'net_fc1_output_0'; saved steps 130 to 145"
        assert trial.tensor("net_input_0").value(136).tolist() == [1.0] * 8


def test_a_tensor_that_broke_before_the_incident_is_named_at_its_own_step(tmp_path):
    """A recorder that still writes an incident begins none for NaN.

    Nor does the evaluation that follows.
    """
    random = np.random.default_rng(0)
    start = random.normal(0, 0.05, (12, 12))
    with Hook(tmp_path) as hook:
        for step in range(120):
            evaluates = step % 20 >= 18
            hook.set_mode(ModeKeys.EVAL if evaluates else ModeKeys.TRAIN)
            noise = random.normal(0, 1e-4, (12, 12))
            weight = (start * (1 + 5e-4 * step) + noise).astype(np.float32)
            if step >= 80:
                weight[2] = np.nan
            hook.save_tensor("layer.weight", weight, "weights")
            if not evaluates:
                size = 10 ** (step - 75) if 76 <= step < 80 else 1
                gradient = random.normal(0, 1e-3 * size, weight.shape).astype(np.float32)
                hook.save_tensor("gradient/layer.weight", gradient, "gradients")
            hook.save_tensor("loss", np.float32(1 + 3 * np.exp(-step / 30)), "losses")
            hook.step()
    trial = create_trial(tmp_path)
    [incident] = trial.incidents()
    assert (incident.trigger.tensor, incident.trigger.column) == ("gradient/layer.weight", "l2")
    [one] = [one for one in diagnose(trial) if one.kind == "not_finite"]
    assert (one.subject, one.first, one.incident) == ("layer.weight", 80, None)


def test_an_incident_after_the_last_step_to_read_is_no_evidence(tmp_path):
    rig = Rig(tmp_path)
    for step in range(40):
        rig.step(step, loss=1.0, weight=np.full(4, np.nan if step == 30 else 1.0))
    with rig.close() as trial:
        assert not any(one.kind == "not_finite" for one in diagnose(trial, until=20).findings)


def test_a_tensor_that_only_the_incident_knows_is_named():
    trigger = Trigger("net_fc1_output_0", "nan", 3.0)
    data = RunData([], TensorColumns([]), [Incident("worker_0", 137, ("NaN in 'net_fc1_output_0'",), trigger)])
    [one] = first_not_finite(data)
    assert (one.kind, one.first, one.names) == ("not_finite", 137, ("net_fc1_output_0",))
    assert one.title == "`net_fc1_output_0` is not finite since step 137"
    assert "(3 values)" in one.text
    assert (one.source, one.incident) == ("trigger", 137)


@pytest.mark.parametrize(("why", "level"), [("look at this", "note"), ("exception RuntimeError: batch 50", "problem")])
def test_an_exception_is_a_finding_and_a_request_is_a_note(tmp_path, why, level):
    rig = Rig(tmp_path)
    for step in range(60):
        rig.step(step, net_output_0=np.ones(4), loss=2.0 / (1 + step))
        if step == 50:
            rig.flight.dump(why, step)
    with rig.close() as trial:
        result = diagnose(trial)
    [one] = [one for one in (*result.findings, *result.notes) if one.kind == "incident"]
    assert (one.level, one.first, bool(result.findings)) == (level, 50, level == "problem")
    assert why in one.text
    assert "steps 43 to" in one.text
