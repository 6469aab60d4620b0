"""Running one rule over a run's steps, one after the other."""

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
from smdwidgets.rules.follow import Feed, batches
from smdwidgets.rules.prefetch import needs_of, portions
from smdwidgets.rules.progress import Progress
from smdwidgets.trials.refresh import no_refresh

if TYPE_CHECKING:
    from smdwidgets.rules.rule import Rule

__all__ = ["UNAVAILABLE", "invoke_rule"]

#: What means that a step has nothing for a rule, and the next one is tried.
UNAVAILABLE = (StepUnavailable, TensorUnavailable, TensorUnavailableForStep)

_log = logging.getLogger("smdwidgets.rules")
#: Silence after which it is said what is waited for.
SAY_AFTER = 10.0


def invoke_rule(
    rule_obj: Rule, start_step: int | None = 0, end_step: int | None = None, raise_eval_cond: bool = False
) -> None:
    """Ask a rule about every saved step of its base trial, one after the other, until the run ends.

    The end of the run raises `NoMoreData`, as in smdebug. Only an `end_step` that the run has reached returns.

    Waits for steps of a run that is still being written. While a step is judged the trials are not refreshed, so that one question
    has one answer. Steps and tensors that are not there are passed over.

    - `start_step`: the global step to begin with.
    - `end_step`: the global step to end before; None goes on to the end of the run.
    - `raise_eval_cond`: raise `RuleEvaluationConditionMet` at the first step where the rule's condition is met. Otherwise it is
      logged, and the next step is judged.

    ::

        try:
            invoke_rule(VanishingGradient(create_trial("runs/mlp"), threshold=1e-6), raise_eval_cond=True)
        except NoMoreData as end:
            print(f"no finding until the end of the run at step {end.last_step}")
    """
    start_step = 0 if start_step is None else start_step
    feed = Feed(rule_obj.base_trial, start_step, end_step)
    said = False

    def waiting(seconds: float) -> bool:
        nonlocal said
        if feed.silence > SAY_AFTER and not said:
            said = True
            _log.info(
                "%s waits for a step after %d of %s.",
                rule_obj.rule_name,
                feed.last_step,
                shown(rule_obj.base_trial.path, 400),
            )
        if rule_obj.while_waiting(feed.last_step, feed.silence):
            _fired(rule_obj, feed.last_step, raise_eval_cond)
        time.sleep(seconds)
        return False

    done = total = 0
    with Progress(rule_obj.rule_name) as progress:
        for new in batches(feed, waiting):
            said = False
            total += len(new)
            for portion in portions(rule_obj.base_trial, needs_of([rule_obj]), new):
                for step in portion:
                    _invoke(rule_obj, step, raise_eval_cond)
                    done += 1
                    progress.update(done, total, f"step {step}")
    rule_obj.finish(feed.last_step if feed.last_step >= 0 else None)
    _log.info("%s is done: %d steps judged, the last was %d.", rule_obj.rule_name, done, feed.last_step)
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
        _log.debug("%s passes over step %d: %s", rule.rule_name, step, missing)
    except RuleEvaluationConditionMet:
        _log.info("%s", rule.explain(step))
        if raise_eval_cond:
            raise


def _fired(rule: Rule, step: int, raise_eval_cond: bool) -> None:
    rule.act(step)
    _log.info("%s", rule.explain(step))
    if raise_eval_cond:
        raise RuleEvaluationConditionMet(rule.rule_name, step)
