"""Rules that a hook evaluates on the statistics of each step."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from python.hooks.flight import Rig, statistics_of
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.incidents.source_rules import SourceRules, Threshold
from smdwidgets.hooks.incidents.step_columns import StepColumns
from smdwidgets.modes import ModeKeys
from smdwidgets.rules import Call
from smdwidgets.stop import stop_requested


def rules(*given, run="", failures=None):
    failures = [] if failures is None else failures
    return SourceRules(given, str(run), lambda kind, message: failures.append(message))


def judge(rules, step, **tensors):
    return rules.judge((step, ModeKeys.TRAIN, step), StepColumns([statistics_of(tensors)]))


def test_threshold_names_the_first_tensor_beyond_the_limit():
    rule = Threshold("abs_max", above=5, tensors="^g")
    judged = rules(rule)
    assert judge(judged, 0, w=[9.0], g1=[4.0], g2=[-5.0]) == []
    [cause] = judge(judged, 1, w=[9.0], g1=[-6.0], g2=[7.0])
    assert cause.why == "Threshold('abs_max', above=5, tensors='^g'): abs_max of 'g1' = 6, above 5 (and 1 more tensors)"
    assert (cause.trigger.tensor, cause.trigger.column, cause.trigger.value) == ("g1", "abs_max", 6.0)


def test_threshold_below_and_for_several_steps_in_a_row():
    judged = rules(Threshold("l2", below=1e-3, steps=3, name="vanishing"))
    values = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    found = [(step, cause.why) for step, value in enumerate(values) for cause in judge(judged, step, g=[value])]
    assert found == [(6, "vanishing: l2 of 'g' = 0, below 0.001")]


def test_a_statistic_that_was_not_computed_does_not_fire():
    assert judge(rules(Threshold("update_ratio", below=1.0)), 0, w=[1.0]) == []


def test_a_rule_is_a_function_of_step_and_statistics():
    def too_many_zeros(step, statistics):
        share = statistics["zeros"] / statistics["count"]
        return f"{statistics.names[int(np.argmax(share))]} is zero" if share.max() > 0.5 else None

    judged = rules(too_many_zeros)
    assert judge(judged, 0, w=[1.0, 0.0]) == []
    assert [cause.why for cause in judge(judged, 1, w=[1.0, 2.0], b=[0.0, 0.0])] == ["too_many_zeros: b is zero"]


def test_a_rule_that_raises_is_switched_off_and_reported_once():
    failures = []

    def broken(step, statistics):
        raise ZeroDivisionError("no")

    judged = rules(broken, Threshold("l2", above=1), failures=failures)
    for step in range(3):
        judge(judged, step, w=[5.0])
    assert failures == ["rule broken raised ZeroDivisionError: no; it is switched off"]
    assert len(judged) == 1


def test_actions_dump_warn_stop_and_call(tmp_path, caplog):
    calls = []
    rule = Threshold(
        "l2",
        above=1,
        name="big",
        actions=["dump", "warn", "stop", lambda *given: calls.append(given), Call(lambda *given: calls.append(given))],
    )
    with caplog.at_level(logging.WARNING):
        causes = judge(rules(rule, run=tmp_path), 7, w=[5.0])
    message = "l2 of 'w' = 5, above 1"
    assert [cause.why for cause in causes] == [f"big: {message}"]
    assert [record.message for record in caplog.records] == [f"rule big fired at step 7: {message}"]
    assert calls == [("big", 7, message)] * 2
    request = stop_requested(tmp_path)
    assert (request.by, request.reason, request.step) == ("big", message, 7)


def test_an_action_that_raises_is_reported_and_the_others_run():
    calls, failures = [], []

    def broken(rule, step, message):
        raise OSError("no network")

    rule = Threshold("l2", above=1, name="big", actions=[broken, lambda *given: calls.append(given)])
    assert judge(rules(rule, failures=failures), 0, w=[5.0]) == []
    assert failures == ["an action of rule big raised OSError: no network"]
    assert len(calls) == 1


def test_a_rule_fires_again_after_eight_quiet_steps():
    judged = rules(Threshold("l2", above=1))
    found = [step for step in range(40) for _ in judge(judged, step, w=[5.0 if step in (1, 2, 3, 20) else 0.0])]
    assert found == [1, 20]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("norm",), {"above": 1}, "invalid column 'norm'; choose from count"),
        (("l2",), {}, "needs above= or below="),
        (("l2",), {"above": 1, "tensors": "("}, "invalid pattern"),
        (("l2",), {"above": 1, "steps": 0}, "steps must be at least 1"),
        (("l2",), {"above": 1, "actions": "email"}, "invalid action 'email'; choose from dump, stop, warn"),
    ],
)
def test_wrong_arguments(arguments, options, message):
    with pytest.raises(SMDebugValueError, match=message.replace("(", r"\(")):
        Threshold(*arguments, **options)


@pytest.mark.parametrize("rule", ["ExplodingTensor", Threshold, 3])
def test_wrong_rules(rule):
    with pytest.raises(SMDebugTypeError, match="a rule of a hook is a Threshold or a function"):
        rules(rule)


def test_a_rule_that_fires_writes_the_steps_in_memory(tmp_path):
    judged = SourceRules([Threshold("abs_max", above=100, tensors="gradient")], str(tmp_path), lambda *failure: None)
    rig = Rig(tmp_path / "run", rules=judged)
    for step in range(20):
        rig.step(step, loss=1.0, gradient=np.full(10, 500.0 if step == 12 else 1.0))
    trial = rig.close()
    [incident] = trial.incidents()
    assert incident.step == 12
    assert incident.why[0].startswith(
        "Threshold('abs_max', above=100, tensors='gradient'): abs_max of 'gradient' = 500"
    )
    assert trial.tensor("gradient").steps() == list(range(5, 20))
    assert Path(tmp_path / "run").is_dir()
