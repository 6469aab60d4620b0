"""Actions under the names and arguments of `smdebug.rules.action`."""

from __future__ import annotations

import logging
from typing import Final

from smdwidgets._text import shown, visible
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.rules.actions import SMS, Action, Email, StopTraining, parse_actions

__all__ = ["ALLOWED_ACTIONS", "Actions", "MessageAction", "StopTrainingAction"]

_log = logging.getLogger("smdwidgets.rules.actions")

ALLOWED_ACTIONS: Final = ["stoptraining", "sms", "email"]


class _RuleAction:
    """An action of one rule. A failure is logged and not raised, as in smdebug."""

    def __init__(self, rule_name: str, action: Action) -> None:
        self.rule_name = rule_name
        self.action = action

    def invoke(self, message: str) -> None:
        """Run the action."""
        try:
            self._run(message)
        except Exception as error:
            _log.warning(
                "action %s of rule %s failed: %s", self.action.name, visible(self.rule_name, 200), visible(error, 2000)
            )

    def _run(self, message: str) -> None:
        if isinstance(self.action, Email | SMS):
            self.action.send(f"{self.rule_name} fired", f"{self.rule_name} fired. {message}")
        else:
            self.action.run(self.rule_name, -1, message, None)


class MessageAction(_RuleAction):
    """Send an e-mail or a text message through the SNS topic of SageMaker's rules.

    Args:
        rule_name: the rule in whose name the message is sent.
        message_type: "email" or "sms".
        message_endpoint: the e-mail address or the phone number (E.164).

    >>> MessageAction("LossNotDecreasing", "email", "me@example.org").action.name
    'email'
    """

    def __init__(self, rule_name: str, message_type: str, message_endpoint: str) -> None:
        kinds: dict[str, type[Email | SMS]] = {"email": Email, "sms": SMS}
        if message_type not in kinds:
            raise SMDebugValueError(f"invalid message_type {shown(message_type)}; choose from email, sms")
        super().__init__(rule_name, kinds[message_type](message_endpoint))


class StopTrainingAction(_RuleAction):
    """Stop the SageMaker training job whose name starts with a prefix.

    >>> StopTrainingAction("LossNotDecreasing", "my-job").action.name
    'stoptraining'
    """

    def __init__(self, rule_name: str, training_job_prefix: str) -> None:
        super().__init__(rule_name, StopTraining(training_job_prefix))


class Actions:
    """The actions of one rule, from the JSON of the rule parameter `action_json`.

    >>> actions = Actions('{"name": "sms", "endpoint": "+1234567890"}', rule_name="LossNotDecreasing")
    """

    def __init__(self, actions_str: str | None, rule_name: str) -> None:
        self._actions = [_RuleAction(rule_name, action) for action in parse_actions((actions_str or "").strip())]

    def invoke(self, message: str = "") -> None:
        """Run all actions. Each call runs them again."""
        for action in self._actions:
            action.invoke(message)
