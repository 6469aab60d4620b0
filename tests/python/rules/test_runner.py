"""RuleRunner and invoke_rule: events, statuses, live runs, parameters, errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python.rules.memory_trial import MemoryTrial
from python.rules.trainings import History
from smdwidgets import create_trial, modes
from smdwidgets.exceptions import NoMoreData, RuleEvaluationConditionMet, SMDebugError, TensorUnavailable
from smdwidgets.numpy import Hook
from smdwidgets.rules import (
    AllZero,
    Call,
    Outcome,
    Rule,
    RuleParameterError,
    RuleRunner,
    Status,
    UnknownRule,
    VanishingGradient,
    describe,
    invoke_rule,
    rule_classes,
)
from smdwidgets.rules.declared import parameters_of
from smdwidgets.rules.measurements import measurements_of


class Threshold(Rule):
    """Fires when the loss is above a limit."""

    def __init__(self, base_trial: Any, limit: str = "0.5", names: str = "loss") -> None:
        super().__init__(base_trial, other_trials=None)
        self.limit = float(limit)
        self.names = names

    def invoke_at_step(self, step: int) -> bool:
        value = self.base_trial.tensor(self.names).value(step).item()
        if value > self.limit:
            self.blame(self.names, step, value, self.limit)
        return value > self.limit


class Broken(Rule):
    """Raises at every step except the first."""

    def invoke_at_step(self, step: int) -> bool:
        if step:
            raise ZeroDivisionError("broken")
        return False


def losses(*values: float) -> MemoryTrial:
    trial = MemoryTrial(losses=["loss"], gradients=["gradient"])
    for step, value in enumerate(values):
        trial.put(step * 10, "loss", value)
    return trial


def finished(runner: RuleRunner) -> RuleRunner:
    runner.start()
    assert runner.wait(60)
    return runner


# ------------------------------------------------------------------------------------------------------ constructors


def test_both_documented_constructors() -> None:
    trial, other = losses(1.0), losses(2.0)

    class Mine(Rule):
        def invoke_at_step(self, step: int) -> bool:
            return False

    assert Mine(trial).other_trials is None
    assert Mine(trial, "").other_trials is None
    assert Mine(trial, other_trials=None).trials == [trial]
    assert Mine(trial, other_trials=[other]).trials == [trial, other]
    assert Mine(trial, [other]).trials == [trial, other]
    assert Mine(trial, "", [other]).trials == [trial, other]
    assert Mine(trial, '{"name": "stoptraining"}').actions
    assert Mine(trial).rule_name == "Mine"
    assert Mine(trial).logger.name.endswith("Mine")
    with pytest.raises(TypeError):
        Rule(trial)  # type: ignore[abstract]


def test_required_tensors() -> None:
    class Required(Rule):
        def set_required_tensors(self, step: int) -> None:
            self.req_tensors.add("gradient/.*", steps=[step], should_match_regex=True)
            self.req_tensors.add("loss", steps=[step])

        def invoke_at_step(self, step: int) -> bool:
            assert self.req_tensors.get_names() == ["gradient/a", "gradient/b", "loss"]
            assert self.req_tensors.get_tensor_steps("loss") == [step]
            return sum(float(tensor.value(step)) for tensor in self.req_tensors.get()) > 5

    trial = losses(1.0, 2.0, 3.0)
    for step in trial.steps():
        trial.put(step, "gradient/a", 1.0)
        trial.put(step, "gradient/b", 1.5)
    rule = Required(trial)
    rule.invoke(0)
    with pytest.raises(RuleEvaluationConditionMet) as met:
        rule.invoke(20)
    assert (met.value.rule_name, met.value.step) == ("Required", 20)
    assert rule.report["RuleTriggered"] == 1
    assert rule.report["Datapoints"] == 2
    rule.req_tensors.clear()
    rule.req_tensors.add("no such", steps=[0])
    with pytest.raises(TensorUnavailable):
        rule.req_tensors.fetch()


# ------------------------------------------------------------------------------------------------------- invoke_rule


def test_invoke_rule_evaluates_saved_steps_before_end_step() -> None:
    evaluated: list[int] = []

    class Recording(Threshold):
        def invoke_at_step(self, step: int) -> bool:
            evaluated.append(step)
            return super().invoke_at_step(step)

    trial = losses(0.1, 0.9, 0.1, 0.9)
    trial.put(1_000_000_000, "loss", 0.0)  # must not iterate over every integer up to this step
    with pytest.raises(NoMoreData):
        invoke_rule(Recording(trial))
    assert evaluated == [0, 10, 20, 30, 1_000_000_000]
    evaluated.clear()
    invoke_rule(Recording(trial), start_step=5, end_step=30)
    assert evaluated == [10, 20]
    evaluated.clear()
    with pytest.raises(RuleEvaluationConditionMet) as met:
        invoke_rule(Recording(trial), raise_eval_cond=True)
    assert met.value.step == 10
    assert evaluated == [0, 10]


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (0, None, 31),
        (None, None, 31),
        (0, 40, 31),
        (50, None, 50),
        (50, 60, 50),
        (0, 31, None),
        (0, 10, None),
        (40, 40, None),
    ],
)
def test_invoke_rule_raises_no_more_data_at_the_end_of_the_run(
    start: int | None, end: int | None, step: int | None
) -> None:
    rule = Threshold(losses(0.1, 0.1, 0.1, 0.1))  # steps 0 to 30
    if step is None:
        invoke_rule(rule, start, end)
        return
    with pytest.raises(NoMoreData) as raised:
        invoke_rule(rule, start, end)
    assert (raised.value.step, raised.value.mode, raised.value.last_step) == (step, modes.GLOBAL, 30)


def test_invoke_rule_skips_missing_tensors() -> None:
    trial = losses(0.1, 0.9)
    trial.put(5, "other", 1.0)
    rule = Threshold(trial)
    with pytest.raises(NoMoreData):
        invoke_rule(rule)
    assert rule.report["RuleTriggered"] == 1
    with pytest.raises(NoMoreData):
        invoke_rule(Threshold(trial, names="never saved"))
    with pytest.raises(ZeroDivisionError):
        invoke_rule(Broken(trial))


def test_invoke_rule_restores_refresh(trained: Any) -> None:
    trial = create_trial(trained().path)

    class Frozen(Rule):
        def invoke_at_step(self, step: int) -> bool:
            assert not self.base_trial.dynamic_refresh
            return step == 3

    with pytest.raises(RuleEvaluationConditionMet):
        invoke_rule(Frozen(trial), raise_eval_cond=True)
    assert trial.dynamic_refresh


def write_slowly(path: Path, steps: int, pause: float) -> threading.Thread:
    def write() -> None:
        with Hook(path) as hook:
            for step in range(steps):
                hook.save_tensor("loss", 1.0 / (step + 1) if step < steps - 2 else np.nan, "losses")
                hook.save_tensor("gradient/w", np.ones(4), "gradients")
                hook.step()
                time.sleep(pause)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_invoke_rule_follows_a_live_run(tmp_path: Path) -> None:
    writer = write_slowly(tmp_path / "run", 12, 0.03)
    evaluated: list[int] = []

    class Recording(Rule):
        def invoke_at_step(self, step: int) -> bool:
            evaluated.append(step)
            return False

    with pytest.raises(NoMoreData):
        invoke_rule(Recording(create_trial(tmp_path / "run", wait=30)))
    writer.join()
    assert evaluated == list(range(12))


# ------------------------------------------------------------------------------------------------------------ runner


def test_runner_follows_a_live_run_to_its_end(tmp_path: Path) -> None:
    writer = write_slowly(tmp_path / "run", 12, 0.03)
    runner = RuleRunner(create_trial(tmp_path / "run", wait=30), ["LossSpike", "VanishingGradient", "DeadRelu"])
    events = list(runner.start().events())
    writer.join()
    assert runner.wait(30)
    by_rule = {
        name: [event.step for event in events if event.rule == name and event.step is not None]
        for name in runner.status
    }
    assert by_rule == {name: list(range(12)) for name in runner.status}
    assert runner.status == {
        "LossSpike": "IssuesFound",
        "VanishingGradient": "NoIssuesFound",
        "DeadRelu": "NoIssuesFound",
    }
    fired = [event for event in events if event.kind == "fired"]
    assert [event.step for event in fired] == [10, 11]
    assert fired[0].findings[0].subject == "loss"
    assert str(fired[0]) == "LossSpike fired at step 10: loss: the loss is NaN"
    assert runner["DeadRelu"].judged == 0
    assert "judged no step" in runner["DeadRelu"].message


def test_summary_has_the_format_of_sagemaker() -> None:
    runner = finished(RuleRunner(losses(0.1, 0.9, 0.8), [Threshold, "VanishingGradient"]))
    first, second = runner.summary()
    assert list(first) == [
        "RuleConfigurationName",
        "RuleEvaluationJobArn",
        "RuleEvaluationStatus",
        "StatusDetails",
        "LastModifiedTime",
    ]
    assert first["RuleConfigurationName"] == "Threshold"
    assert first["RuleEvaluationStatus"] == "IssuesFound"
    assert first["StatusDetails"].startswith(
        "RuleEvaluationConditionMet: Evaluation of the rule Threshold at step 10 resulted in the condition being met\n"
    )
    assert "loss: 0.9, limit 0.5" in first["StatusDetails"]
    assert len(first["StatusDetails"]) <= 1024
    assert second["RuleEvaluationStatus"] == "NoIssuesFound"
    assert {status.value for status in Status} == {
        "InProgress",
        "NoIssuesFound",
        "IssuesFound",
        "Error",
        "Stopping",
        "Stopped",
    }


def test_error_affects_only_its_rule() -> None:
    runner = finished(RuleRunner(losses(0.1, 0.9, 0.1), [Broken, Threshold]))
    assert runner.status == {"Broken": "Error", "Threshold": "IssuesFound"}
    assert runner["Broken"].outcomes == {0: Outcome.PASSED, 10: Outcome.ERROR, 20: Outcome.ERROR}
    assert "2 steps failed, the last at step 20: ZeroDivisionError: broken" in runner["Broken"].status_details()


def test_stop_waits_for_a_blocked_rule() -> None:
    go_on = threading.Event()
    begun = threading.Event()

    class Stuck(Rule):
        def invoke_at_step(self, step: int) -> bool:
            begun.set()
            go_on.wait(60)
            return False

    runner = RuleRunner(losses(1.0, 2.0), [Stuck]).start()
    assert begun.wait(30)
    assert not runner.stop(timeout=0.1)
    assert runner.status == {"Stuck": "Stopping"}
    go_on.set()
    assert runner.wait(30)
    assert runner.status == {"Stuck": "Stopped"}
    assert runner["Stuck"].done == 1
    finished(runner)
    assert runner["Stuck"].done == 2
    assert runner.status == {"Stuck": "NoIssuesFound"}


def test_pause_and_resume() -> None:
    steps = threading.Semaphore(0)
    evaluated: list[int] = []

    class Stepwise(Rule):
        def invoke_at_step(self, step: int) -> bool:
            assert steps.acquire(timeout=60)
            evaluated.append(step)
            return False

    runner = RuleRunner(losses(*range(20)), [Stepwise]).start()
    for _ in range(3):
        steps.release()
    while len(evaluated) < 3:
        time.sleep(0.01)
    runner.pause()
    steps.release()
    while len(evaluated) < 4:
        time.sleep(0.01)
    for _ in range(30):
        steps.release()
    time.sleep(0.2)
    assert runner.paused
    assert len(evaluated) <= 5
    runner.resume()
    assert runner.wait(30)
    assert evaluated == [step * 10 for step in range(20)]


class Gated(Rule):
    """Waits for a permit at every step."""

    def __init__(self, base_trial: Any, permits: threading.Semaphore) -> None:
        super().__init__(base_trial)
        self.permits = permits
        self.judged: list[int] = []

    def invoke_at_step(self, step: int) -> bool:
        assert self.permits.acquire(timeout=60)
        self.judged.append(step)
        return False


class Counted(Gated):
    """A second rule that waits for permits."""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def two_gated_rules() -> tuple[RuleRunner, Gated, Counted]:
    trial = losses(*range(20))
    first, second = Gated(trial, threading.Semaphore(0)), Counted(trial, threading.Semaphore(0))
    runner = RuleRunner(trial, [first, second]).start()
    return runner, first, second


def test_stopping_a_rule_leaves_the_others_running() -> None:
    runner, first, second = two_gated_rules()
    runner.stop_rule("Gated")
    for _ in range(20):
        first.permits.release()
        second.permits.release()
    assert runner.wait(60)
    assert runner.status == {"Gated": "Stopped", "Counted": "NoIssuesFound"}
    assert len(first.judged) <= 1
    assert len(second.judged) == 20


def test_pausing_a_rule_leaves_the_others_running_until_it_is_started() -> None:
    runner, first, second = two_gated_rules()
    runner.pause_rule("Gated")
    for _ in range(20):
        first.permits.release()
        second.permits.release()
    until(lambda: runner.status["Counted"] == "NoIssuesFound")
    assert len(first.judged) <= 1
    assert runner["Gated"].paused
    assert runner["Gated"].active
    assert not runner.wait(0.1), "a paused rule has not finished"
    runner.start_rule("Gated")
    assert runner.wait(60)
    assert first.judged == [step * 10 for step in range(20)]
    assert runner.status["Gated"] == "NoIssuesFound"


def test_a_stopped_rule_continues_when_it_is_started() -> None:
    runner, first, second = two_gated_rules()
    first.permits.release()
    until(lambda: runner["Gated"].done == 1)
    runner.stop_rule("Gated")
    second.permits.release()
    until(lambda: runner.status["Gated"] == "Stopped")
    runner.start_rule("Gated")
    for _ in range(20):
        first.permits.release()
        second.permits.release()
    assert runner.wait(60)
    assert first.judged == [step * 10 for step in range(20)]


def test_a_rule_of_a_paused_runner_can_be_started_alone() -> None:
    runner, first, second = two_gated_rules()
    runner.pause()
    assert runner.paused
    for _ in range(20):
        first.permits.release()
        second.permits.release()
    runner.start_rule("Counted")
    until(lambda: runner.status["Counted"] == "NoIssuesFound")
    assert runner["Gated"].paused
    runner.resume()
    assert runner.wait(60)
    assert len(first.judged) == 20


def test_start_right_after_stop_is_not_lost() -> None:
    runner, first, second = two_gated_rules()
    runner.stop(timeout=0)
    runner.start()
    for _ in range(20):
        first.permits.release()
        second.permits.release()
    assert runner.wait(60)
    assert runner.status == {"Gated": "NoIssuesFound", "Counted": "NoIssuesFound"}
    assert len(first.judged) == len(second.judged) == 20


def test_a_finished_rule_neither_pauses_nor_stops() -> None:
    runner = finished(RuleRunner(losses(0.1, 0.9), [Threshold]))
    runner.pause_rule("Threshold")
    runner.stop_rule("Threshold")
    runner.start_rule("Threshold")
    assert runner.wait(60)
    assert not runner["Threshold"].paused
    assert runner.status == {"Threshold": "IssuesFound"}
    assert runner["Threshold"].done == 2


def test_changed_parameters_start_a_paused_rule() -> None:
    runner, first, second = two_gated_rules()
    runner.pause_rule("Gated")
    first.permits.release(40)
    second.permits.release(20)
    runner.rerun("Gated")
    assert runner.wait(60)
    assert runner["Gated"].done == 20


def test_changed_parameters_rerun_the_rule_without_reading(trained: Any) -> None:
    history: History = trained()
    runner = finished(RuleRunner(create_trial(history.path), [VanishingGradient, "LossNotDecreasing"]))
    assert runner.status["VanishingGradient"] == "NoIssuesFound"
    read = measurements_of(runner.trial).records_read
    assert read > 0
    smallest = {
        step: min(float(np.abs(g).mean()) for name, g in saved.items() if name.startswith("gradient/"))
        for step, saved in history.saved.items()
    }
    limit = float(np.median(list(smallest.values())))
    events: list[Any] = []
    runner.subscribe(events.append)
    evaluation = runner.set_parameters("VanishingGradient", threshold=str(limit))
    assert runner.wait(30)
    assert evaluation.restarts == 1
    assert [step for step, outcome in evaluation.outcomes.items() if outcome == Outcome.FIRED] == [
        step for step, value in smallest.items() if value < limit
    ]
    assert measurements_of(runner.trial).records_read == read
    assert {event.rule for event in events} == {"VanishingGradient"}
    assert runner["LossNotDecreasing"].restarts == 0
    with pytest.raises(RuleParameterError):
        runner.set_parameters("VanishingGradient", threshold="low")
    assert runner["VanishingGradient"].rule.threshold == limit


def test_each_record_is_read_once_for_all_rules(trained: Any) -> None:
    history: History = trained()
    runner = RuleRunner(create_trial(history.path), ["VanishingGradient", "GradientNormSpike", "ExplodingTensor"])
    runner.add("TensorVariance", collection_names="gradients")
    runner.add(AllZero, collection_names="gradients", name="zeros")
    finished(runner)
    assert measurements_of(runner.trial).records_read == sum(len(saved) for saved in history.saved.values())


def test_snapshots_are_incremental() -> None:
    runner = finished(RuleRunner(losses(0.1, 0.9, 0.1), [Threshold]))
    evaluation = runner["Threshold"]
    whole = evaluation.snapshot()
    assert list(whole.steps) == [0, 10, 20]
    assert list(whole.outcomes) == [1, 2, 1]
    assert (whole.done, whole.firings_total, whole.active) == (3, 1, False)
    assert list(evaluation.snapshot(after=2).steps) == [20]
    runner.rerun("Threshold")
    assert runner.wait(30)
    assert evaluation.snapshot().restarts == 1


def test_rules_added_and_removed_while_running() -> None:
    runner = finished(RuleRunner(losses(0.1, 0.9)))
    runner.add(Threshold, limit=0.95)
    second = runner.add(Threshold)
    assert runner.wait(30)
    assert runner.status == {"Threshold": "NoIssuesFound", "Threshold-2": "IssuesFound"}
    assert second.name == "Threshold-2"
    runner.remove("Threshold")
    assert list(runner.status) == ["Threshold-2"]
    with pytest.raises(ValueError, match="no rule 'Threshold'"):
        runner["Threshold"]
    with pytest.raises(ValueError, match="already"):
        runner.add(Threshold, name="Threshold-2")


def test_stop_at_first_and_actions_run_once() -> None:
    heard: list[Any] = []

    def failing(*args: Any) -> None:
        heard.append(args)
        raise OSError("no network")

    runner = RuleRunner(losses(0.1, 0.9, 0.9, 0.9), stop_at_first=True)
    evaluation = runner.add(Threshold)
    evaluation.rule.actions = type(evaluation.rule.actions)(Call(failing))
    finished(runner)
    assert evaluation.outcomes == {0: Outcome.PASSED, 10: Outcome.FIRED}
    assert heard == [("Threshold", 10, "loss: 0.9, limit 0.5")]
    assert evaluation.status == "IssuesFound"
    assert "Action call failed: no network" in evaluation.status_details()


def test_step_range_and_unfinished_run(tmp_path: Path) -> None:
    runner = finished(RuleRunner(losses(*[0.9] * 6), [Threshold], start_step=15, end_step=40))
    assert list(runner["Threshold"].outcomes) == [20, 30]
    hook = Hook(tmp_path / "run")
    hook.save_tensor("loss", 0.9, "losses")
    hook.step()
    trial = create_trial(tmp_path / "run", wait=30)
    trial.wait_for_steps([0], timeout=30)
    assert finished(RuleRunner(trial, [Threshold], follow=False))["Threshold"].fired
    hook.close()


def test_run_is_deleted_while_running(tmp_path: Path) -> None:
    class Gone(MemoryTrial):
        def steps(self, mode: modes = modes.GLOBAL) -> list[int]:
            raise SMDebugError("the bucket is gone")

    runner = finished(RuleRunner(Gone(), [Threshold]))
    assert runner.status == {"Threshold": "Error"}
    assert "the bucket is gone" in runner.summary()[0]["StatusDetails"]


def test_reprs_are_escaped() -> None:
    runner = finished(RuleRunner(losses(0.9)))
    runner.add(Threshold, name="<b>bold</b>")
    runner.wait(30)
    assert "<b>" not in runner._repr_html_()
    assert "IssuesFound" in repr(runner)


def test_unknown_rules_and_parameters() -> None:
    trial = losses(1.0)
    with pytest.raises(UnknownRule, match="Did you mean 'VanishingGradient'"):
        RuleRunner(trial, ["VanishingGradeint"])
    with pytest.raises(RuleParameterError, match="Did you mean 'threshold'"):
        RuleRunner(trial).add("VanishingGradient", treshold=1)
    with pytest.raises(RuleParameterError, match="Did you mean 'limit'"):
        RuleRunner(trial).add(Threshold, limits=1)
    with pytest.raises(RuleParameterError, match=r"VanishingGradient\.threshold='much' is not a number"):
        VanishingGradient(trial, threshold="much")
    with pytest.raises(TypeError):
        VanishingGradient(trial, 1e-7, 3)
    with pytest.raises(TypeError):
        RuleRunner(trial).add(int)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="another trial"):
        RuleRunner(trial).add(Threshold(losses(1.0)))


def test_describe_user_defined_rules() -> None:
    assert rule_classes()["Threshold"] is Threshold
    description = describe(Threshold)
    assert description["builtin"] is False
    assert description["summary"] == "Fires when the loss is above a limit."
    assert [parameter["name"] for parameter in description["parameters"]] == ["limit", "names"]
    description = describe(rule_classes()["WeightUpdateRatio"])
    assert description["parameters"][0] | {"doc": ""} == {
        "name": "num_steps", "kind": "integer", "default": None, "text": "None", "doc": "", "unit": "",
        "minimum": 1, "maximum": None, "optional": True,
    }  # fmt: skip
    for rule in rule_classes().values():
        for parameter in parameters_of(rule).values():
            parameter.parse(parameter.format(parameter.default))  # the formatted value round-trips


def test_a_rule_that_judged_no_step_is_not_clear() -> None:
    class NeverJudges(Rule):
        def invoke_at_step(self, step: int) -> bool:
            raise TensorUnavailable("missing")

    trial = losses(0.1, 0.2)
    runner = finished(RuleRunner(trial, [NeverJudges, Threshold, Broken]))
    assert {each.name: each.label for each in runner} == {
        "NeverJudges": "Not judged",
        "Threshold": "Clear",
        "Broken": "Failed",
    }
    assert "<td>Not judged</td>" in runner._repr_html_()
    assert "NoIssuesFound" not in runner._repr_html_()


class Held(Rule):
    """Waits at every step until its gate is open; fires at values above a limit."""

    entered = threading.Event()
    gate = threading.Event()

    def __init__(self, base_trial: Any, limit: float = 0.0) -> None:
        super().__init__(base_trial)
        self.limit = float(limit)

    def invoke_at_step(self, step: int) -> bool:
        self.entered.set()
        assert self.gate.wait(60)
        return self.limit < 1


def three_steps() -> MemoryTrial:
    trial = MemoryTrial()
    for step in range(3):
        trial.put(step, "loss", 1.0)
    return trial


@pytest.fixture
def held() -> type[Held]:
    Held.entered, Held.gate = threading.Event(), threading.Event()
    return Held


def test_an_outcome_from_before_a_restart_does_not_count(held: type[Held]) -> None:
    runner = RuleRunner(three_steps())
    evaluation = runner.add(held)
    runner.start()
    assert held.entered.wait(60)
    runner.set_parameters("Held", limit=1)
    held.gate.set()
    assert runner.wait(60)
    assert evaluation.outcomes == dict.fromkeys(range(3), Outcome.PASSED)
    assert evaluation.done == 3


def test_an_outcome_of_a_removed_rule_does_not_count(held: type[Held]) -> None:
    runner = RuleRunner(three_steps())
    evaluation = runner.add(held)
    runner.add(Threshold, limit="9")
    runner.start()
    assert held.entered.wait(60)
    runner.remove("Held")
    held.gate.set()
    assert runner.wait(60)
    assert evaluation.done == 0
    assert runner.status == {"Threshold": Status.NO_ISSUES_FOUND}
