"""Concurrent use of one run: processes, forks, tasks of an event loop, 64 writers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from faults import campaign
from python.trials import runs
from python.widgets.talk import Page
from smdwidgets import create_trial
from smdwidgets.rules import RuleRunner

WORKERS = 64
STEPS = 6


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, (process.returncode, errors[-4000:])
    return out


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0")


#: All workers are separate processes that write as fast as they can.
WRITE = """
import os, sys
from pathlib import Path
import numpy as np
from smdwidgets._core import StepWriter
root, workers, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
children = []
for rank in range(workers):
    child = os.fork()
    if not child:
        try:
            for step in range(steps):
                with StepWriter(root, step, f"worker_{rank}") as writer:
                    writer.tensor("x", np.full(2_000, step * 1000 + rank, np.float32))
                    writer.tensor("loss", np.float32(step + rank / 100))
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    children.append(child)
failed = [child for child in children if os.waitpid(child, 0)[1]]
Path(root, "training_job_end.ts").touch()
sys.exit(len(failed))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="64 processes are forked, not started")
def test_run_written_by_64_workers_concurrently(tmp_path: Path) -> None:
    root = runs.collections(tmp_path / "run", workers=WORKERS)
    with campaign.tally("64 workers") as counts, start(WRITE, root, WORKERS, campaign.size(STEPS, 60)) as writers:
        trial = create_trial(root)
        seen: list[int] = []
        while not trial.loaded_all_steps:
            steps = trial.steps()
            assert steps[: len(seen)] == seen
            for step in steps[len(seen) :]:
                # A step counts once every worker has passed it.
                assert len(trial.tensor("x").workers(step)) == WORKERS
            seen = steps
        result_of(writers)
        steps = trial.steps()
        assert steps == list(range(campaign.size(STEPS, 60)))
        table = trial.values("x", worker="*")
        assert not table.errors
        assert table.num_rows == WORKERS * len(steps)
        for step, worker, value in zip(table["step"], table["worker"], table["value"], strict=True):
            assert (value == step * 1000 + int(worker.removeprefix("worker_"))).all()
        counts["values"] += table.num_rows
        trial.close()


#: Polls a run until its end, and prints what it saw.
FOLLOW = """
import hashlib, sys
from smdwidgets import create_trial
trial = create_trial(sys.argv[1], wait=60)
digest, seen = hashlib.sha256(), []
while True:
    ended = trial.loaded_all_steps
    for step in trial.steps()[len(seen):]:
        seen.append(step)
        digest.update(trial.tensor("x").value(step).tobytes())
        digest.update(repr(trial.tensor("x").reduction_value(step, "mean")).encode())
    if ended:
        break
table = trial.reductions("x", reductions=["sum"])
print(seen == list(range(len(seen))), len(seen), digest.hexdigest(), table["sum"].tolist()[-3:])
"""


def test_several_processes_read_one_run(tmp_path: Path) -> None:
    root = runs.collections(tmp_path / "run")
    readers = [start(FOLLOW, root) for _ in range(4)]
    for step in range(150):
        runs.step(root, step, {"x": np.full(3_000, step, np.float32)})
    runs.end(root)
    results = {result_of(reader) for reader in readers}
    assert len(results) == 1
    assert results.pop().startswith("True 150 ")


#: A process with an open trial forks children that also use it.
FORK = """
import os, sys, time
from smdwidgets import create_trial
trial = create_trial(sys.argv[1])
right = [float(step) for step in range(40)]
def ask():
    for step in trial.steps():
        assert (trial.tensor("x").value(step) == step).all()
    assert trial.reductions("x", reductions=["mean"])["mean"].tolist() == right
    trial.refresh_data()
ask()
hung = wrong = 0
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        try:
            ask()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            ended = os.waitpid(child, 0)
            hung += 1
            break
        time.sleep(0.005)
    else:
        wrong += ended[1] != 0
ask()
print(hung, wrong)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked there")
def test_forks_of_a_process_with_an_open_trial(tmp_path: Path) -> None:
    root = runs.collections(tmp_path / "run")
    for step in range(40):
        runs.step(root, step, {"x": np.full(30_000, step, np.float32)})
    assert result_of(start(FORK, root, campaign.size(15, 300))) == "0 0\n"


def test_use_within_an_event_loop(tmp_path: Path) -> None:
    """Kernels run cells within an event loop: the package must not start another."""
    root = runs.run(tmp_path / "run", range(10))

    async def cells() -> None:
        trial = create_trial(root)
        trial.wait_for_steps([5], timeout=10)
        assert trial.tensor("x").value(3).tolist() == [3, 3, 3]
        runner = RuleRunner(trial)
        runner.add("ExplodingTensor", tensor_regex="x")
        runner.start()
        explorer = smdwidgets.explore(trial, rules=runner)
        answer, _ = Page(explorer).ask("hello", protocol=1, again=False)
        assert answer["kind"] == "answer"
        assert await asyncio.to_thread(runner.wait, 60)
        values = [asyncio.to_thread(trial.tensor("x").value, step) for step in trial.steps() * 16]
        assert [value.tolist() for value in await asyncio.gather(*values)] == [[s, s, s] for s in trial.steps()] * 16
        with ThreadPoolExecutor(16) as pool:
            loop = asyncio.get_running_loop()
            tables = [loop.run_in_executor(pool, lambda: trial.values("x").num_rows) for _ in range(64)]
            assert await asyncio.gather(*tables) == [10] * 64
        explorer.close()
        trial.close()

    asyncio.run(cells())
