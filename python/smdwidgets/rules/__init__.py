"""Rules: conditions on a run's tensors that detect training problems.

>>> from smdwidgets.rules import BUILTIN
>>> len(BUILTIN)
27
"""

from __future__ import annotations

from smdwidgets.finding import Evidence
from smdwidgets.rules.actions import SMS, Action, ActionList, Actions, Call, Command, Email, StopTraining
from smdwidgets.rules.builtin import *  # noqa: F403
from smdwidgets.rules.builtin import BUILTIN
from smdwidgets.rules.config import rules_from_json
from smdwidgets.rules.creation import make_rule
from smdwidgets.rules.evaluation import Evaluation, Outcome, RuleEvent, Status
from smdwidgets.rules.invoke import invoke_rule
from smdwidgets.rules.parameters import RuleParameterError
from smdwidgets.rules.registry import UnknownRule, describe, find_rule, rule_classes
from smdwidgets.rules.required import RequiredTensors, RequiredTensorsForTrial
from smdwidgets.rules.rule import Rule
from smdwidgets.rules.runner import RuleRunner

__all__ = [
    *BUILTIN,
    "BUILTIN",
    "SMS",
    "Action",
    "ActionList",
    "Actions",
    "Call",
    "Command",
    "Email",
    "Evaluation",
    "Evidence",
    "Outcome",
    "RequiredTensors",
    "RequiredTensorsForTrial",
    "Rule",
    "RuleEvent",
    "RuleParameterError",
    "RuleRunner",
    "Status",
    "StopTraining",
    "UnknownRule",
    "describe",
    "find_rule",
    "invoke_rule",
    "make_rule",
    "rule_classes",
    "rules_from_json",
]
