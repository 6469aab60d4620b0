"""What happens when a rule fires: stop the training, send a message, call a function, run a command.

Nothing happens unless it is configured, and a failing action never hides the rule's verdict: it is logged, kept in
`Actions.failures`, and the rest goes on. An action runs at a rule's first firing only.

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

__all__ = ["SMS", "Action", "ActionList", "Actions", "Call", "Command", "Email", "StopTraining", "parse_actions"]

_log = logging.getLogger("smdwidgets.rules.actions")

#: The SNS topic that SageMaker's own rules publish to.
TOPIC = "SMDebugRules"
#: How long a command may take.
COMMAND_TIMEOUT = 60.0


class Action(ABC):
    """Something to do when a rule fires."""

    #: The word for it in `action_json`.
    name: str = ""

    @abstractmethod
    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        """Do it. `run` is the path of the run where it is known."""

    def to_json(self) -> dict[str, str]:
        """As `action_json` writes it."""
        return {"name": self.name}

    def serialize(self) -> str:
        """The value of the rule parameter `action_json`: JSON whose quotes are escaped."""
        return json.dumps(self.to_json(), separators=(",", ":")).replace('"', '\\"')


class StopTraining(Action):
    """Stop the training: by a stop file, which our hooks honour, or with a prefix by SageMaker's StopTrainingJob.

    A SageMaker job is stopped only if exactly one active job's name begins with the prefix.
    """

    name = "stoptraining"

    def __init__(self, training_job_prefix: str | None = None, *, client: Any = None) -> None:
        if training_job_prefix is not None and not re.fullmatch(r"[A-Za-z0-9-]+", training_job_prefix):
            raise SMDebugValueError(
                f"training_job_prefix={shown(training_job_prefix)}: letters, digits and hyphens are allowed."
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
                f"StopTraining can't leave a stop file at {shown(run)}: it is not a local directory. Give training_job_prefix= "
                "to stop a SageMaker job."
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
                f"{len(jobs)} active training jobs begin with {shown(prefix)}; one is stopped only if it is the only one."
            )
        client.stop_training_job(TrainingJobName=jobs[0])


class _Message(Action):
    """A message to one endpoint through the SNS topic that SageMaker's rules use."""

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
        topic = client.create_topic(Name=TOPIC)["TopicArn"]  # gives the topic's ARN also when it exists
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
    """Send an e-mail through SNS. The address gets one request to confirm its subscription first."""

    name = protocol = "email"

    def __init__(self, email_address: str, *, client: Any = None) -> None:
        if not re.fullmatch(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+", email_address):
            raise SMDebugValueError(f"email_address={shown(email_address)} is not an e-mail address.")
        super().__init__(email_address, client=client)


class SMS(_Message):
    """Send a text message through SNS."""

    name = protocol = "sms"

    def __init__(self, phone_number: str, *, client: Any = None) -> None:
        if not re.fullmatch(r"\+\d{1,15}", phone_number):
            raise SMDebugValueError(f"phone_number={shown(phone_number)}: write it as +, country code, number (E.164).")
        super().__init__(phone_number, client=client)


class Call(Action):
    """Call a Python function with (rule name, step, message)."""

    name = "call"

    def __init__(self, function: Callable[[str, int, str], object]) -> None:
        if not callable(function):
            raise SMDebugTypeError(f"Call takes a function, not {shown(function)}.")
        self.function = function

    def to_json(self) -> dict[str, str]:
        raise SMDebugTypeError("A Python function can't be written into a JSON configuration.")

    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        self.function(rule, step, message)


class Command(Action):
    """Run a program, without a shell: a list of its name and arguments.

    What happened is in its environment: SMDWIDGETS_RULE, SMDWIDGETS_STEP, SMDWIDGETS_MESSAGE, SMDWIDGETS_RUN.
    """

    name = "command"

    def __init__(self, arguments: Sequence[str], *, timeout: float = COMMAND_TIMEOUT) -> None:
        if isinstance(arguments, str) or not arguments or not all(isinstance(each, str) for each in arguments):
            raise SMDebugTypeError(
                f"Command takes a list of a program and its arguments, not {shown(arguments)}: no shell is asked."
            )
        self.arguments = list(arguments)
        self.timeout = timeout

    def to_json(self) -> dict[str, str]:
        raise SMDebugTypeError("A command can't be written into a JSON configuration.")

    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        told = {"SMDWIDGETS_RULE": rule, "SMDWIDGETS_STEP": str(step), "SMDWIDGETS_RUN": run or ""}
        # A message holds names from the run's files, which may hold what an environment cannot.
        told["SMDWIDGETS_MESSAGE"] = message.replace("\0", " ")[:4096]
        done = subprocess.run(
            self.arguments,
            env={**os.environ, **told},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=self.timeout,
            check=False,
        )
        if done.returncode != 0:
            error = done.stderr[-400:].decode("utf-8", "replace").strip()
            raise SMDebugRuntimeError(
                f"{self.arguments[0]} ended with {done.returncode}" + (f": {error}" if error else "")
            )


class ActionList:
    """Several actions, in the order given.

    >>> print(ActionList(StopTraining("job-1"), SMS("+1234567890")).serialize())
    [{\\"name\\":\\"stoptraining\\",\\"training_job_prefix\\":\\"job-1\\"},{\\"endpoint\\":\\"+1234567890\\",\\"name\\":\\"sms\\"}]
    """

    def __init__(self, *actions: Action) -> None:
        for action in actions:
            if not isinstance(action, Action):
                raise SMDebugTypeError(f"{shown(action)} is not an action.")
        self.actions = actions

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)

    def serialize(self) -> str:
        """The value of the rule parameter `action_json`."""
        return json.dumps([each.to_json() for each in self.actions], separators=(",", ":")).replace('"', '\\"')


class Actions:
    """The actions of one rule, run at its first firing, each on its own."""

    def __init__(self, *actions: Action) -> None:
        self._actions = list(ActionList(*actions))
        self._done = False
        self._lock = threading.Lock()
        #: What went wrong: (action, message).
        self.failures: list[tuple[Action, str]] = []

    def __len__(self) -> int:
        return len(self._actions)

    def __iter__(self) -> Iterator[Action]:
        return iter(self._actions)

    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        """Run them all, once."""
        with self._lock:
            if self._done:
                return
            self._done = True
        for action in self._actions:
            try:
                action.run(rule, step, message, run)
            except Exception as error:
                self.failures.append((action, str(error) or type(error).__name__))
                _log.warning("Action %s of rule %s failed: %s", action.name, visible(rule, 200), visible(error, 2000))


def run_path(trial: object) -> str | None:
    """A trial's local path; None for runs that lie elsewhere."""
    path = getattr(trial, "path", None)
    if not isinstance(path, str | os.PathLike) or "://" in str(path):
        return None
    return str(Path(path))


_FROM_JSON: dict[str, Callable[[dict[str, Any]], Action]] = {
    "stoptraining": lambda told: StopTraining(told.get("training_job_prefix") or None),
    "email": lambda told: Email(str(told["endpoint"])),
    "sms": lambda told: SMS(str(told["endpoint"])),
}


def parse_actions(given: str | Action | ActionList | Iterable[Action] | None) -> Actions:
    """Actions from objects, or from the text of `action_json` (quotes escaped or not).

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
        told = json.loads(given)
    except (ValueError, RecursionError):
        try:
            told = json.loads(given.replace('\\"', '"'))
        except (ValueError, RecursionError) as error:
            raise SMDebugValueError(f"The action {shown(given)} is not JSON: {error}") from None
    found = []
    for each in told if isinstance(told, list) else [told]:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise SMDebugValueError(f"An action in JSON is an object with a name, not {shown(each)}.")
        make = _FROM_JSON.get(each["name"].lower())
        if make is None:
            raise SMDebugValueError(
                f"Unknown action {shown(each['name'])}.{did_you_mean(each['name'], _FROM_JSON)} There are: {', '.join(_FROM_JSON)}."
            )
        try:
            found.append(make(each))
        except KeyError as missing:
            raise SMDebugValueError(f"Action {each['name']!r} needs {missing}.") from None
    return Actions(*found)


def _boto3_client(service: str) -> Any:
    try:
        import boto3
    except ImportError:
        raise SMDebugRuntimeError("This action needs boto3: pip install boto3") from None
    return boto3.client(service)
