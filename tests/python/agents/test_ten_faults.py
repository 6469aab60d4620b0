"""An agent that sees only the tools finds the cause of each of ten planted faults."""

from __future__ import annotations

import asyncio
import csv
import os
import re
import sys

import numpy as np
import pytest
from mcp import Client, StdioServerParameters

from python.diagnosis.scalar_runs import RUNS

#: Logs with a fault, which the names of the runs do not tell.
FAULTS = (
    "fine_tuning_overfits",
    "rate_a_hundred_times_too_high",
    "rate_of_zero",
    "half_precision_that_overflows",
    "preferences_that_are_not_learned",
    "reward_of_language_that_collapses",
    "critic_that_diverges",
    "loss_of_the_wrong_sign",
    "rate_that_jumps",
    "clipping_before_the_backward_pass",
)


@pytest.fixture
def root(tmp_path):
    for number, fault in enumerate(FAULTS):
        log = RUNS[fault][1](np.random.default_rng(1))
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        with (folder / "metrics.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["step", "name", "value"])
            points = [
                (step, name, value)
                for name, (at, values) in log.items()
                for step, value in zip(at, values, strict=True)
            ]
            rows.writerows(sorted(points, key=lambda point: point[0]))
        os.utime(folder / "metrics.csv", (1e9, 1e9))  # the run has ended: what happens last is no passing state
    return tmp_path


async def causes(root):
    """List the runs, diagnose each, and read what the finding means."""
    causes_by_run = {}
    server = StdioServerParameters(command=sys.executable, args=["-m", "smdwidgets", "mcp", str(root)])
    async with Client(server, mode="legacy") as client:

        async def ask(tool, **arguments):
            answer = await client.call_tool(tool, arguments)
            assert not answer.is_error, answer.content[0].text
            return answer.content[0].text

        for run in re.findall(r"^\S*\brun\d+\b", await ask("list_runs"), re.MULTILINE):
            diagnosis = await ask("diagnose", run=run)
            first = re.search(r"^1\. id: (.+)$", diagnosis, re.MULTILINE)
            if first is None:
                continue
            meaning = await ask("explain", kind=first[1])
            evidence = await ask("evidence", run=run, id=first[1])
            causes_by_run[run] = first[1].partition(":")[0], meaning, evidence
    return causes_by_run


@pytest.mark.slow
def test_each_cause_is_found_through_the_tools(root):
    causes_by_run = asyncio.run(causes(root))
    assert sorted(causes_by_run) == [f"run{number}" for number in range(len(FAULTS))]
    for number, fault in enumerate(FAULTS):
        kind, meaning, evidence = causes_by_run[f"run{number}"]
        assert kind in RUNS[fault][0], fault
        assert len(meaning) > 100
        assert "observation" in evidence
