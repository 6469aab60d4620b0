"""What agents see: answers over MCP from a server in its own process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import numpy as np
import pytest
from mcp import Client, StdioServerParameters

import smdwidgets
from smdwidgets.agents.answers import LONGEST, Answers
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.numpy import Hook


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A directory with a run that overfits, a good one, and a secret beside it."""
    base = tmp_path_factory.mktemp("agents")
    generator = np.random.default_rng(3)
    for name, turn in (("runs/overfits", 20), ("runs/good", 1000)):
        with Hook(str(base / name), plan=False) as hook:
            for step in range(100):
                hook.save_scalar("train_loss", 2 / (step + 1) + 0.001 * generator.random())
                hook.save_scalar("val_loss", 2 / (step + 1) + max(0, step - turn) / 50 + 0.001 * generator.random())
                hook.save_tensor("fc.weight", generator.normal(size=(4, 3)) * (step + 1))
                hook.step()
    (base / "secret").mkdir()
    (base / "secret" / "metrics.csv").write_text("step,loss\n0,1\n1,2\n")
    (base / "runs" / "link").symlink_to(base / "secret")
    return base / "runs"


@pytest.fixture
def answers(root):
    opened = Answers([str(root)])
    yield opened
    opened.close()


def ask(root, *questions):
    """Start the server in its own process, ask, and return the answers."""

    async def talk():
        server = StdioServerParameters(command=sys.executable, args=["-m", "smdwidgets", "mcp", str(root)])
        # The handshake of today waits for the server; the other gives up after seconds on a busy machine.
        async with Client(server, mode="legacy") as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            return tools, [await client.call_tool(name, arguments) for name, arguments in questions]

    return asyncio.run(talk())


@pytest.mark.slow
def test_agent_finds_the_cause_through_the_tools_alone(root):
    tools, (listed, found, bad) = ask(
        root, ("list_runs", {}), ("diagnose", {"run": "overfits"}), ("diagnose", {"run": "../secret"})
    )
    assert set(tools) == {"list_runs", "diagnose", "explain", "evidence", "query", "compare", "picture"}
    assert all(tool.description and tool.annotations.read_only_hint for tool in tools.values())
    assert "overfits" in listed.content[0].text
    assert "id: overfit:scalar/val_loss:" in found.content[0].text
    assert not found.is_error
    assert bad.is_error
    assert "is not below the directories that this server was given" in bad.content[0].text


@pytest.mark.slow
def test_evidence_and_picture(root):
    [finding] = [one for one in smdwidgets.diagnose(root / "overfits") if one.kind == "overfit"]
    _, (evidence, explained, histogram, curve) = ask(
        root,
        ("evidence", {"run": "overfits", "id": finding.id}),
        ("explain", {"kind": finding.id}),
        ("picture", {"run": "overfits", "tensor": "fc.weight", "step": 10}),
        ("picture", {"run": "overfits", "tensor": "scalar/val_loss"}),
    )
    assert "val_loss" in evidence.content[0].text
    assert "Overfit" in explained.content[0].text
    for answer in (histogram, curve):
        assert answer.content[0].mime_type == "image/png"
        assert len(answer.content[0].data) > 1000


def _message(method, number=None, **parameters):
    message = {"jsonrpc": "2.0", "method": method, "params": parameters}
    return (json.dumps(message if number is None else message | {"id": number}) + "\n").encode()


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.slow
def test_server_ends_when_its_client_disconnects(root, reads):
    hello = _message(
        "initialize",
        1,
        protocolVersion="2025-06-18",
        capabilities={},
        clientInfo={"name": "test", "version": "1"},
    )
    command = [sys.executable, "-m", "smdwidgets", "mcp", str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        server.stdin.write(hello)
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.stdin.write(_message("notifications/initialized"))
        for number in range(2, 30):  # not JSON, unknown methods, and questions whose answers nobody reads
            server.stdin.write(b"{\xff\n" + _message("no/such", number))
            server.stdin.write(_message("tools/call", 100 + number, name="diagnose", arguments={"run": "overfits"}))
        server.stdin.flush()
        if not reads:
            server.stdout.close()
        server.stdin.close()
        if reads:
            server.stdout.read()
        server.stderr.read()
        server.wait()


# ------------------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    "run",
    [
        "\x1b[31m",
        "overfits\n/etc",
        "x" * 100_000,
        "/etc",
        "../secret",
        "link",
        "overfits/../../secret",
        "s3://bucket/run",
        "a\0b",
        "file:///etc",
        "~",
    ],
)
def test_nothing_outside_the_roots_is_read(answers, run):
    with pytest.raises(SMDebugError):
        answers.diagnose(run)


def test_addresses_below_a_given_one_only():
    answers = Answers(["s3://bucket/team"])
    for run in ("s3://bucket/team2/run", "s3://bucket/team/../other", "s3://other/team/run", "runs/a"):
        with pytest.raises(SMDebugValueError, match="not below the directories"):
            answers.diagnose(run)


def test_ids_are_those_of_every_other_display(root, answers):
    ids = [finding.id for finding in smdwidgets.diagnose(root / "overfits")]
    text = answers.diagnose("overfits")
    assert [line.partition("id: ")[2] for line in text.splitlines() if "id: " in line] == ids


def test_query_compare_and_unknown_names(answers):
    assert "fc.weight" in answers.query("overfits", "*.weight | l2")
    assert answers.compare("overfits", "good")
    with pytest.raises(SMDebugValueError, match="Did you mean"):
        answers.explain("overfitt")
    with pytest.raises(SMDebugValueError, match="no finding"):
        answers.evidence("overfits", "spike:loss:0")
    with pytest.raises(SMDebugValueError, match="no tensor"):
        answers.picture("overfits", "fc.wight")


def test_answers_are_short_and_without_control_characters(tmp_path):
    names = ",".join(f"loss \x1b[31m{number:04d}" + "x" * 60 for number in range(500))
    (tmp_path / "metrics.csv").write_text(
        f"step,{names}\n" + "".join(f"{step}," + ",".join(["1"] * 500) + "\n" for step in range(20))
    )
    answers = Answers([str(tmp_path)])
    for text in (answers.list_runs(), answers.query("", "* | l2")):
        assert len(text) <= LONGEST
        assert "\x1b" not in text
    assert "more characters" in answers.query("", "* | l2")


def test_many_questions_keep_few_runs_open(tmp_path):
    for number in range(12):
        (tmp_path / f"{number}.csv").write_text("step,loss\n0,1\n1,2\n")
    answers = Answers([str(tmp_path)])
    for number in (*range(12), *(0 for _ in range(10_000)), *range(12)):
        answers._trial(f"{number}.csv")
    assert len(answers._trials) <= 8
    answers.close()
