"""Run one rule over a run's steps in order."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from smdwidgets._text import shown
from smdwidgets.exceptions import (
    NoMoreData,
    RuleEvaluationConditionMet,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.prefetch import needs_of, portions
from smdwidgets.rules.progress import Progress
from smdwidgets.rules.step_poller import StepPoller, batches
from smdwidgets.trials.refresh import no_refresh

if TYPE_CHECKING:
    from smdwidgets.rules.rule import Rule

__all__ = ["UNAVAILABLE", "invoke_rule"]

#: Exceptions that mean that a step lacks data for a rule, so that the step is skipped.
UNAVAILABLE = (StepUnavailable, TensorUnavailable, TensorUnavailableForStep)

_log = logging.getLogger("smdwidgets.rules")
#: Seconds without a new step after which a log message says what the rule waits for.
LOG_AFTER = 10.0


def invoke_rule(
    rule_obj: Rule, start_step: int | None = 0, end_step: int | None = None, raise_eval_cond: bool = False
) -> None:
    """Evaluate a rule at every saved step of its base trial until the run ends.

    Waits for new steps if the run is still being written. Trials are not refreshed while a step is judged, so that the
    rule sees a consistent state. Steps without the needed tensors are skipped.

    Args:
        rule_obj: the rule.
        start_step: first global step.
        end_step: end step (exclusive, global); None means the end of the run.
        raise_eval_cond: raise `RuleEvaluationConditionMet` at the first step at which the rule fires. Otherwise the
            firing is logged, and evaluation continues with the next step.

    Raises:
        NoMoreData: the run ended before `end_step`, as in smdebug.
        RuleEvaluationConditionMet: the rule fired and `raise_eval_cond` is True.

    ::

        try:
            invoke_rule(VanishingGradient(create_trial("runs/mlp"), threshold=1e-6), raise_eval_cond=True)
        except NoMoreData as end:
            print(f"no finding until the end of the run at step {end.last_step}")
    """
    start_step = 0 if start_step is None else start_step
    poller = StepPoller(rule_obj.base_trial, start_step, end_step)
    logged = False

    def waiting(seconds: float) -> bool:
        nonlocal logged
        if poller.silence > LOG_AFTER and not logged:
            logged = True
            _log.info(
                "rule %s waits for a step after %d of run %s",
                rule_obj.rule_name,
                poller.last_step,
                shown(rule_obj.base_trial.path, 400),
            )
        if rule_obj.while_waiting(poller.last_step, poller.silence):
            _fired(rule_obj, poller.last_step, raise_eval_cond)
        time.sleep(seconds)
        return False

    done = total = 0
    with Progress(rule_obj.rule_name) as progress:
        for new in batches(poller, waiting):
            logged = False
            total += len(new)
            for portion in portions(rule_obj.base_trial, needs_of([rule_obj]), new):
                for step in portion:
                    _invoke(rule_obj, step, raise_eval_cond)
                    done += 1
                    progress.update(done, total, f"step {step}")
    rule_obj.finish(poller.last_step if poller.last_step >= 0 else None)
    _log.info("rule %s finished: %d steps evaluated, last step %d", rule_obj.rule_name, done, poller.last_step)
    with no_refresh([rule_obj.base_trial]) as [trial]:
        last = max(trial.steps(), default=-1)
    beyond = max(start_step, last + 1)
    if end_step is None or beyond < end_step:
        raise NoMoreData(beyond, ModeKeys.GLOBAL, last)


def _invoke(rule: Rule, step: int, raise_eval_cond: bool) -> None:
    try:
        with no_refresh(rule.trials):
            rule.invoke(step)
    except UNAVAILABLE as missing:
        _log.debug("rule %s skips step %d: %s", rule.rule_name, step, missing)
    except RuleEvaluationConditionMet:
        _log.info("%s", rule.explain(step))
        if raise_eval_cond:
            raise


def _fired(rule: Rule, step: int, raise_eval_cond: bool) -> None:
    rule.act(step)
    _log.info("%s", rule.explain(step))
    if raise_eval_cond:
        raise RuleEvaluationConditionMet(rule.rule_name, step)
