"""Actions of rules: stop files, SageMaker jobs, messages, commands; progress."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from botocore.stub import ANY, Stubber

from python.rules.memory_trial import MemoryTrial
from servers import CREDENTIALS, moto_server
from smdwidgets import create_trial
from smdwidgets.exceptions import NoMoreData, TrainingStopped
from smdwidgets.numpy import Hook
from smdwidgets.rules import (
    SMS,
    ActionList,
    Call,
    Command,
    Email,
    RuleRunner,
    StopTraining,
    VanishingGradient,
    invoke_rule,
)
from smdwidgets.rules.actions import Actions, parse_actions
from smdwidgets.stop import clear_stop, request_stop, stop_requested


def test_actions_serialize_to_json() -> None:
    actions = ActionList(StopTraining("job-1"), Email("abc@abc.com"), SMS("+1234567890"))
    wire = actions.serialize()
    assert wire == (
        r"[{\"name\":\"stoptraining\",\"training_job_prefix\":\"job-1\"},{\"endpoint\":\"abc@abc.com\",\"name\":\"email\"},"
        r"{\"endpoint\":\"+1234567890\",\"name\":\"sms\"}]"
    )
    for text in (wire, wire.replace('\\"', '"')):
        assert [action.to_json() for action in parse_actions(text)] == [action.to_json() for action in actions]
    assert [action.name for action in parse_actions(StopTraining().serialize())] == ["stoptraining"]
    assert not parse_actions("")


@pytest.mark.parametrize(
    "make",
    [
        lambda: StopTraining("a job"),
        lambda: Email("nobody"),
        lambda: Email("a@b"),
        lambda: SMS("0123"),
        lambda: SMS("+12345678901234567"),
        lambda: ActionList("stop"),  # type: ignore[arg-type]
        lambda: Command("rm -rf"),
        lambda: Command([]),
        lambda: Call("print"),  # type: ignore[arg-type]
        lambda: Call(print).serialize(),
        lambda: parse_actions('{"name":"command","arguments":["ls"]}'),
        lambda: parse_actions('{"name":"email"}'),
        lambda: parse_actions("[1]"),
    ],
)
def test_invalid_actions_raise(make: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        make()


def test_stop_training_stops_the_hook(tmp_path: Path) -> None:
    hook = Hook(tmp_path / "run")
    hook.save_tensor("g", np.zeros(3), "gradients")
    hook.step()
    hook.close()
    from smdwidgets import create_trial

    trial = create_trial(tmp_path / "run")
    rule = VanishingGradient(trial, action_str=StopTraining().serialize())
    with pytest.raises(NoMoreData):
        invoke_rule(rule)
    request = stop_requested(tmp_path / "run")
    assert request is not None
    assert (request.by, request.step) == ("VanishingGradient", 0)
    assert "is below 1e-07" in request.reason
    assert request_stop(tmp_path / "run", reason="later").reason == request.reason
    assert clear_stop(tmp_path / "run")
    assert not clear_stop(tmp_path / "run")
    assert stop_requested(tmp_path / "run") is None


def test_rule_stops_a_failing_training(tmp_path: Path) -> None:
    stopped: list[tuple[int, str]] = []

    def training() -> None:
        with Hook(tmp_path / "run") as hook:
            for step in range(100_000):
                try:
                    hook.save_tensor("gradient/w", np.full(4, 1.0 if step < 5 else 1e-12), "gradients")
                    hook.step()
                except TrainingStopped as stop:
                    stopped.append((step, str(stop)))
                    return
                time.sleep(0.02)  # otherwise the training could end before the rule is evaluated

    thread = threading.Thread(target=training)
    thread.start()
    runner = RuleRunner(create_trial(tmp_path / "run", wait=60))
    runner.add("VanishingGradient", action_str=StopTraining().serialize())
    assert runner.start().wait(120)
    thread.join(120)
    ((step, why),) = stopped
    assert 5 <= step < 99_999
    assert "VanishingGradient at step 5: gradient/w: mean |g| = 1e-12 is below 1e-07" in why
    assert runner.status == {"VanishingGradient": "IssuesFound"}
    assert runner.trial.steps()[-1] <= step


@pytest.mark.parametrize("content", ["", "not json", "[]", '{"step": true, "time": "x", "more": 1}', "\x00" * 200_000])
def test_any_stop_file_stops(tmp_path: Path, content: str) -> None:
    (tmp_path / "smdwidgets_stop.json").write_text(content)
    assert stop_requested(tmp_path) is not None


def test_command_receives_the_firing_in_its_environment(tmp_path: Path) -> None:
    code = "import os, sys; open(sys.argv[1], 'w').write('|'.join(os.environ['SMDWIDGETS_' + k] for k in ('RULE', 'STEP', 'MESSAGE')))"
    command = Command([sys.executable, "-c", code, str(tmp_path / "output; rm -rf $HOME")])
    command.run("AllZero", 7, "a\0b `id`", None)
    assert (tmp_path / "output; rm -rf $HOME").read_text() == "AllZero|7|a b `id`"
    failing = Actions(Command([sys.executable, "-c", "import sys; sys.exit('no')"]), Command(["/no/such/program"]))
    failing.run("AllZero", 7, "", None)
    assert failing.failures[0][1].endswith(": no")
    assert len(failing.failures) == 2


def client_of(service: str) -> tuple[Any, Stubber]:
    client = boto3.client(service, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    return client, Stubber(client)


def test_stop_training_stops_the_only_job_with_the_prefix() -> None:
    client, stub = client_of("sagemaker")
    job = {
        "TrainingJobArn": "arn:aws:sagemaker:us-east-1:1:training-job/x",
        "CreationTime": 0,
        "TrainingJobStatus": "InProgress",
    }
    jobs = [{**job, "TrainingJobName": "my-job-1"}, {**job, "TrainingJobName": "not-my-job"}]
    expected = {"NameContains": "my-job", "StatusEquals": "InProgress"}
    stub.add_response("list_training_jobs", {"TrainingJobSummaries": jobs[:1], "NextToken": "more"}, expected)
    stub.add_response("list_training_jobs", {"TrainingJobSummaries": jobs[1:]}, {**expected, "NextToken": "more"})
    stub.add_response("stop_training_job", {}, {"TrainingJobName": "my-job-1"})
    with stub:
        StopTraining("my-job", client=client).run("AllZero", 1, "", None)
        stub.assert_no_pending_responses()
    client, stub = client_of("sagemaker")
    two = [{**job, "TrainingJobName": "my-job-1"}, {**job, "TrainingJobName": "my-job-2"}]
    stub.add_response("list_training_jobs", {"TrainingJobSummaries": two}, expected)
    with stub, pytest.raises(RuntimeError, match="2 active training jobs"):
        StopTraining("my-job", client=client).run("AllZero", 1, "", None)


@pytest.mark.parametrize(("action", "endpoint"), [(Email, "a.b@c.co.uk"), (SMS, "+491234")])
def test_messages_go_through_the_topic(action: Any, endpoint: str) -> None:
    client, stub = client_of("sns")
    arn = "arn:aws:sns:us-east-1:1:SMDebugRules"
    stub.add_response("create_topic", {"TopicArn": arn}, {"Name": "SMDebugRules"})
    stub.add_response("list_subscriptions_by_topic", {"Subscriptions": []}, {"TopicArn": arn})
    stub.add_response("subscribe", {}, {"TopicArn": arn, "Protocol": action.name, "Endpoint": endpoint})
    stub.add_response(
        "publish", {}, {"TopicArn": arn, "Subject": ANY, "Message": "AllZero fired at step 3 in /run: why"}
    )
    with stub:
        action(endpoint, client=client).run("AllZero", 3, "why", "/run")
        stub.assert_no_pending_responses()


def test_stop_file_needs_a_local_run() -> None:
    actions = Actions(StopTraining())
    actions.run("AllZero", 1, "", "s3://bucket/run")
    assert "not a local directory" in actions.failures[0][1]


# ----------------------------------------------------------------------------------------------- against a local server


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run SNS and SQS on loopback, configured through boto3's environment variables."""
    with moto_server() as address:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": address, "AWS_EC2_METADATA_DISABLED": "true"}.items():
            monkeypatch.setenv(name, value)
        yield


def test_messages_arrive(cloud: None) -> None:
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    topic = sns.create_topic(Name="SMDebugRules")["TopicArn"]
    queue = sqs.create_queue(QueueName="inbox")["QueueUrl"]
    inbox = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=inbox)
    trial = MemoryTrial(gradients=["g"])
    for step in range(3):
        trial.put(step, "g", np.full(3, 1e-9))
    wire = ActionList(Email("someone@example.org"), SMS("+491234")).serialize()
    runner = RuleRunner(trial)
    evaluation = runner.add(VanishingGradient, action_str=wire)
    assert runner.start().wait(120)
    assert evaluation.rule.actions.failures == []
    subscribed = {each["Endpoint"]: each["Protocol"] for each in sns.list_subscriptions()["Subscriptions"]}
    assert subscribed == {inbox: "sqs", "someone@example.org": "email", "+491234": "sms"}
    # Each action runs once, at the first firing, and each endpoint is subscribed once.
    texts = []
    while found := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        for message in found:
            texts.append(json.loads(message["Body"])["Message"])
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    assert texts == ["VanishingGradient fired at step 0: g: mean |g| = 1e-09 is below 1e-07"] * 2
    assert runner.start().wait(120)
    runner.rerun("VanishingGradient")
    assert runner.wait(120)
    assert len(sns.list_subscriptions()["Subscriptions"]) == 3
    for client in (sns, sqs):
        client.close()


def test_failed_message_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    trial = MemoryTrial(gradients=["g"])
    trial.put(0, "g", np.zeros(3))
    runner = RuleRunner(trial)
    runner.add(VanishingGradient, action_str=Email("someone@example.org").serialize())
    assert runner.start().wait(120)
    assert runner.status == {"VanishingGradient": "IssuesFound"}
    details = runner.summary()[0]["StatusDetails"]
    assert "resulted in the condition being met" in details
    assert "Action email failed: " in details
    assert "127.0.0.1:9" in details


def test_long_runs_show_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from smdwidgets.rules import progress

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with progress.Progress("AllZero", terminal) as shown:
        shown.update(1, 10)
    assert terminal.getvalue() == ""  # no output for short evaluations
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(progress, "BETWEEN", -1.0)
    with progress.Progress("AllZero", terminal) as shown:
        shown.update(5, 10, "step 40")
        assert "AllZero ████████████░░░░░░░░░░░░ 5/10 step 40" in terminal.getvalue()
    assert terminal.getvalue().endswith(" \r")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    trial = MemoryTrial(gradients=["g"])
    for step in range(4):
        trial.put(step * 100, "g", np.ones(3))
    with pytest.raises(NoMoreData):
        invoke_rule(VanishingGradient(trial))
    assert "VanishingGradient ████████████████████████ 4/4 step 300" in terminal.getvalue()


def test_smdebug_action_classes(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from smdwidgets.rules.smdebug_actions import Actions as RuleActions
    from smdwidgets.rules.smdebug_actions import MessageAction, StopTrainingAction

    sent: list[tuple[str, str, str]] = []
    monkeypatch.setattr(Email, "send", lambda self, subject, message: sent.append((self.endpoint, subject, message)))
    MessageAction("LossNotDecreasing", "email", "abc@abc.com").invoke("loss is 3")
    actions = RuleActions('{"name": "email", "endpoint": "abc@abc.com"}', rule_name="Overfit")
    actions.invoke()
    actions.invoke()
    assert [each[1] for each in sent] == ["LossNotDecreasing fired", "Overfit fired", "Overfit fired"]
    assert sent[0][2] == "LossNotDecreasing fired. loss is 3"
    RuleActions(None, "Overfit").invoke()
    with pytest.raises(ValueError, match="invalid message_type 'fax'; choose from email, sms"):
        MessageAction("Overfit", "fax", "1")
    monkeypatch.setattr(StopTraining, "_stop_job", lambda self, prefix: 1 / 0)
    with caplog.at_level("WARNING"):
        StopTrainingAction("Overfit", "job-1").invoke("now")
    assert "action stoptraining of rule Overfit failed: division by zero" in caplog.text
