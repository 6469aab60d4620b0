"""Run the rules that a file defines over a prepared run, step by step."""

from __future__ import annotations

import inspect
import runpy
from functools import partial
from typing import Any


def run(job: dict[str, Any]) -> dict[str, Any]:
    """For each rule class: whether it fires at each step, and how `invoke_rule` ends."""
    from smdebug.rules import Rule, invoke_rule
    from smdebug.trials import create_trial

    answers: dict[str, Any] = {}
    for name, found in runpy.run_path(job["path"], run_name="rules_of_client").items():
        if not (inspect.isclass(found) and issubclass(found, Rule) and found is not Rule):
            continue
        rule_class: Any = found
        for threshold in ({}, {"threshold": 1e-6}):
            trial = create_trial(job["prepared"])
            rule = rule_class(trial, **threshold)
            call_text = f"{name}({', '.join(f'{key}={value}' for key, value in threshold.items())})"
            for step in trial.steps():
                answers[f"{call_text}.invoke({step})"] = _outcome(partial(rule.invoke, step))
            for raises in (True, False):
                rule = rule_class(create_trial(job["prepared"]), **threshold)
                call = partial(invoke_rule, rule, start_step=0, end_step=20, raise_eval_cond=raises)
                answers[f"invoke_rule({call_text}, raise_eval_cond={raises})"] = _outcome(call)
    return {"answers": answers or {"rules": "the file defines no rule"}}


def _outcome(call: Any) -> Any:
    try:
        return repr(call())
    except Exception as error:
        return {"raises": type(error).__name__}
