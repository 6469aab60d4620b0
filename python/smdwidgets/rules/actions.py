"""Actions to run when a rule fires: stop the training, send a message, run code.

A rule has no actions by default. A failing action does not change the rule's result: the failure is logged and kept in
`Actions.failures`, and the remaining actions run. Actions run at a rule's first firing only.

>>> seen = []
>>> actions = Actions(Call(lambda rule, step, message: seen.append((step, message))))
>>> actions.run("VanishingGradient", 20, "fc1: mean |g| = 0 is below 1e-07", run=None)
>>> seen
[(20, 'fc1: mean |g| = 0 is below 1e-07')]
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from smdwidgets._text import did_you_mean, shown, visible
from smdwidgets.exceptions import SMDebugRuntimeError, SMDebugTypeError, SMDebugValueError
from smdwidgets.stop import request_stop
from smdwidgets.storage.address import is_address

__all__ = ["SMS", "Action", "ActionList", "Actions", "Call", "Command", "Email", "StopTraining", "parse_actions"]

_log = logging.getLogger("smdwidgets.rules.actions")

#: The SNS topic that SageMaker's rules publish to.
TOPIC = "SMDebugRules"
#: Timeout of a command in seconds.
COMMAND_TIMEOUT = 60.0


class Action(ABC):
    """Base class of actions to run when a rule fires."""

    #: The action's name in `action_json`.
    name: str = ""

    @abstractmethod
    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        """Run the action. `run` is the path of the run, if known."""

    def to_json(self) -> dict[str, str]:
        """Return the action as an object of `action_json`."""
        return {"name": self.name}

    def serialize(self) -> str:
        """Return the value of the rule parameter `action_json`: JSON with escaped quotes."""
        return json.dumps(self.to_json(), separators=(",", ":")).replace('"', '\\"')


class StopTraining(Action):
    """Stop the training with a stop file, or with SageMaker's StopTrainingJob.

    Without a prefix, writes a stop file to the run; the hooks of smdwidgets stop the training when they find it. With
    `training_job_prefix`, stops the SageMaker job whose name starts with the prefix, if exactly one active job matches.
    """

    name = "stoptraining"

    def __init__(self, training_job_prefix: str | None = None, *, client: Any = None) -> None:
        if training_job_prefix is not None and not re.fullmatch(r"[A-Za-z0-9-]+", training_job_prefix):
            raise SMDebugValueError(
                f"invalid training_job_prefix {shown(training_job_prefix)}; use letters, digits and hyphens only"
            )
        self.training_job_prefix = training_job_prefix
        self._client = client

    def to_json(self) -> dict[str, str]:
        prefix = {} if self.training_job_prefix is None else {"training_job_prefix": self.training_job_prefix}
        return {**super().to_json(), **prefix}

    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        if self.training_job_prefix is not None:
            self._stop_job(self.training_job_prefix)
        elif run is not None and Path(run).is_dir():
            request_stop(run, reason=message, by=rule, step=step)
        else:
            raise SMDebugValueError(
                f"cannot write a stop file: {shown(run)} is not a local directory; "
                "pass training_job_prefix= to stop a SageMaker job"
            )

    def _stop_job(self, prefix: str) -> None:
        client = self._client or _boto3_client("sagemaker")
        jobs: list[str] = []
        more: dict[str, str] = {}
        while True:
            page = client.list_training_jobs(NameContains=prefix, StatusEquals="InProgress", **more)
            jobs += [job["TrainingJobName"] for job in page["TrainingJobSummaries"]]
            if not page.get("NextToken"):
                break
            more = {"NextToken": page["NextToken"]}
        jobs = [job for job in jobs if job.startswith(prefix)]
        if len(jobs) != 1:
            raise SMDebugRuntimeError(
                f"{len(jobs)} active training jobs start with {shown(prefix)}; the prefix must match exactly one"
            )
        client.stop_training_job(TrainingJobName=jobs[0])


class _Message(Action):
    """Send a message to one endpoint through the SNS topic of SageMaker's rules."""

    protocol = ""

    def __init__(self, endpoint: str, *, client: Any = None) -> None:
        self.endpoint = endpoint
        self._client = client

    def to_json(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, **super().to_json()}

    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        where = f" in {run}" if run else ""
        self.send(f"{rule} fired at step {step}", f"{rule} fired at step {step}{where}: {message}")

    def send(self, subject: str, message: str) -> None:
        """Publish a message, after subscribing the endpoint to the topic if necessary."""
        client = self._client or _boto3_client("sns")
        topic = client.create_topic(Name=TOPIC)["TopicArn"]  # returns the ARN of an existing topic too
        if not self._subscribed(client, topic):
            client.subscribe(TopicArn=topic, Protocol=self.protocol, Endpoint=self.endpoint)
        client.publish(TopicArn=topic, Subject=subject[:99], Message=message)

    def _subscribed(self, client: Any, topic: str) -> bool:
        more: dict[str, str] = {}
        while True:
            page = client.list_subscriptions_by_topic(TopicArn=topic, **more)
            if any(each["Endpoint"] == self.endpoint for each in page["Subscriptions"]):
                return True
            if not page.get("NextToken"):
                return False
            more = {"NextToken": page["NextToken"]}


class Email(_Message):
    """Send an e-mail through SNS.

    SNS first asks the address to confirm its subscription.
    """

    name = protocol = "email"

    def __init__(self, email_address: str, *, client: Any = None) -> None:
        if not re.fullmatch(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+", email_address):
            raise SMDebugValueError(f"invalid email_address {shown(email_address)}; use the form name@example.org")
        super().__init__(email_address, client=client)


class SMS(_Message):
    """Send a text message through SNS."""

    name = protocol = "sms"

    def __init__(self, phone_number: str, *, client: Any = None) -> None:
        if not re.fullmatch(r"\+\d{1,15}", phone_number):
            raise SMDebugValueError(
                f"invalid phone_number {shown(phone_number)}; use the E.164 form +<country code><number>"
            )
        super().__init__(phone_number, client=client)


class Call(Action):
    """Call a Python function with (rule name, step, message)."""

    name = "call"

    def __init__(self, function: Callable[[str, int, str], object]) -> None:
        if not callable(function):
            raise SMDebugTypeError(f"function of Call must be callable, got {shown(function)}")
        self.function = function

    def to_json(self) -> dict[str, str]:
        raise SMDebugTypeError("cannot serialize a Call action to JSON: it holds a Python function")

    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        self.function(rule, step, message)


class Command(Action):
    """Run a program without a shell, given as a list of its name and arguments.

    The environment variables SMDWIDGETS_RULE, SMDWIDGETS_STEP, SMDWIDGETS_MESSAGE and SMDWIDGETS_RUN describe the
    firing.
    """

    name = "command"

    def __init__(self, arguments: Sequence[str], *, timeout: float = COMMAND_TIMEOUT) -> None:
        if isinstance(arguments, str) or not arguments or not all(isinstance(each, str) for each in arguments):
            raise SMDebugTypeError(
                f"arguments of Command must be a list of a program and its arguments, got {shown(arguments)}; no shell is used"
            )
        self.arguments = list(arguments)
        self.timeout = timeout

    def to_json(self) -> dict[str, str]:
        raise SMDebugTypeError("cannot serialize a Command action to JSON: a JSON configuration must not run programs")

    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        variables = {"SMDWIDGETS_RULE": rule, "SMDWIDGETS_STEP": str(step), "SMDWIDGETS_RUN": run or ""}
        # Names from the run's files can contain NUL, which is not allowed in environment variables.
        variables["SMDWIDGETS_MESSAGE"] = message.replace("\0", " ")[:4096]
        done = subprocess.run(
            self.arguments,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=self.timeout,
            check=False,
        )
        if done.returncode != 0:
            error = done.stderr[-400:].decode("utf-8", "replace").strip()
            raise SMDebugRuntimeError(
                f"command {shown(self.arguments[0])} exited with status {done.returncode}"
                + (f": {error}" if error else "")
            )


class ActionList:
    """Several actions, in the order given.

    >>> print(ActionList(StopTraining("job-1"), SMS("+1234567890")).serialize())
    [{\\"name\\":\\"stoptraining\\",\\"training_job_prefix\\":\\"job-1\\"},{\\"endpoint\\":\\"+1234567890\\",\\"name\\":\\"sms\\"}]
    """

    def __init__(self, *actions: Action) -> None:
        for action in actions:
            if not isinstance(action, Action):
                raise SMDebugTypeError(f"expected an Action, got {shown(action)}")
        self.actions = actions

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)

    def serialize(self) -> str:
        """Return the value of the rule parameter `action_json`."""
        return json.dumps([each.to_json() for each in self.actions], separators=(",", ":")).replace('"', '\\"')


class Actions:
    """The actions of one rule, run once at its first firing.

    A failing action does not prevent the others from running.
    """

    def __init__(self, *actions: Action) -> None:
        self._actions = list(ActionList(*actions))
        self._done = False
        self._lock = threading.Lock()
        #: Failed actions: (action, message).
        self.failures: list[tuple[Action, str]] = []

    def __len__(self) -> int:
        return len(self._actions)

    def __iter__(self) -> Iterator[Action]:
        return iter(self._actions)

    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        """Run all actions; later calls do nothing."""
        with self._lock:
            if self._done:
                return
            self._done = True
        for action in self._actions:
            try:
                action.run(rule, step, message, run)
            except Exception as error:
                self.failures.append((action, str(error) or type(error).__name__))
                _log.warning("action %s of rule %s failed: %s", action.name, visible(rule, 200), visible(error, 2000))


def run_path(trial: object) -> str | None:
    """Return a trial's local path, or None for a remote run."""
    path = getattr(trial, "path", None)
    if not isinstance(path, str | os.PathLike) or is_address(str(path)):
        return None
    return str(Path(path))


_FROM_JSON: dict[str, Callable[[dict[str, Any]], Action]] = {
    "stoptraining": lambda entry: StopTraining(entry.get("training_job_prefix") or None),
    "email": lambda entry: Email(str(entry["endpoint"])),
    "sms": lambda entry: SMS(str(entry["endpoint"])),
}


def parse_actions(given: str | Action | ActionList | Iterable[Action] | None) -> Actions:
    """Create actions from objects or from `action_json` (quotes escaped or not).

    >>> [action.name for action in parse_actions('{\\\\"name\\\\":\\\\"stoptraining\\\\"}')]
    ['stoptraining']
    """
    if given is None or given == "":
        return Actions()
    if isinstance(given, Action):
        return Actions(given)
    if not isinstance(given, str):
        return Actions(*given)
    try:
        decoded = json.loads(given)
    except (ValueError, RecursionError):
        try:
            decoded = json.loads(given.replace('\\"', '"'))
        except (ValueError, RecursionError) as error:
            raise SMDebugValueError(f"cannot parse action_json {shown(given)} as JSON: {error}") from None
    found = []
    for each in decoded if isinstance(decoded, list) else [decoded]:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise SMDebugValueError(f"an action in action_json must be an object with a name, got {shown(each)}")
        make = _FROM_JSON.get(each["name"].lower())
        if make is None:
            raise SMDebugValueError(
                f"unknown action {shown(each['name'])}; choose from {', '.join(_FROM_JSON)}."
                f"{did_you_mean(each['name'], _FROM_JSON)}"
            )
        try:
            found.append(make(each))
        except KeyError as missing:
            raise SMDebugValueError(f"action {shown(each['name'])} in action_json lacks {missing}") from None
    return Actions(*found)


def _boto3_client(service: str) -> Any:
    try:
        import boto3
    except ImportError:
        raise SMDebugRuntimeError("this action needs boto3, which is not installed; run: pip install boto3") from None
    return boto3.client(service)
