"""A reader sees each step of a live writer once and in order.

This also holds if the writer is killed and restarted.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from python.trials import runs
from smdwidgets import create_trial
from smdwidgets.exceptions import NoMoreData
from smdwidgets.trials import StepState

STEPS = 400
#: Prints "ready" when it starts to write; continues at the first step that has no index file.
WRITER = """
import sys
from pathlib import Path
import numpy as np
from smdwidgets._core import StepWriter

root, steps, pause = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
first = sum(1 for _ in root.glob("index/*/*.json"))
print("ready", flush=True)
for step in range(first, steps):
    if step == pause:
        sys.stdin.readline()  # the reader is slow: it kills this process here, and not after the last step
    with StepWriter(root, step) as writer:
        writer.tensor("x", np.full(50_000, step, np.float32))
        writer.tensor("loss", np.float32(step))
(root / "training_job_end.ts").touch()
"""


def writer(root: Path, pause: int = -1) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), str(STEPS), str(pause)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == "ready\n"
    return process


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0")


def test_reader_follows_a_writer_that_is_killed_and_restarted(tmp_path: Path) -> None:
    runs.collections(tmp_path)
    process = writer(tmp_path, pause=80 + 60)
    trial = create_trial(tmp_path)
    seen: list[int] = []
    kills = 0
    ended = False
    while not ended:
        ended = trial.loaded_all_steps  # checked first: the run may end while steps are read
        steps = trial.steps()
        news = steps[len(seen) :]
        assert steps[: len(seen)] == seen  # no step is removed, moved or inserted before others
        for step in news:
            assert trial.has_passed_step(step) == StepState.AVAILABLE
            x = trial.tensor("x").value(step)
            assert x.shape == (50_000,)
            assert (x == step).all()
            assert trial.tensor("loss").value(step) == step
        seen = steps
        if kills < 4 and len(seen) > 80 * (kills + 1):
            process.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
            process.wait()
            process.stdin.close()
            kills += 1
            # A step that was not finished is not listed.
            half = tmp_path / f"events/{len(seen) + 7:012d}/{len(seen) + 7:012d}_worker_0.tfevents.tmp"
            half.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(b"\x10")
            process = writer(tmp_path, pause=80 * (kills + 1) + 60 if kills < 4 else -1)
    assert process.wait() == 0
    process.stdin.close()
    assert kills == 4
    assert seen == list(range(STEPS))
    assert trial.tensor("x").steps() == seen


def test_waiting_for_each_step_of_a_writer(tmp_path: Path) -> None:
    runs.collections(tmp_path)
    trial = create_trial(tmp_path)
    process = writer(tmp_path)
    for step in range(STEPS):
        trial.wait_for_steps([step], timeout=60)
        assert trial.tensor("loss").value(step) == step
    with pytest.raises(NoMoreData) as raised:
        trial.wait_for_steps([STEPS], timeout=60)
    assert raised.value.last_step == STEPS - 1
    assert process.wait() == 0
    process.stdin.close()


def test_writer_that_stops_in_the_middle_of_a_record(tmp_path: Path) -> None:
    """A half-copied file is not available; after the rest has arrived, it is."""
    root = runs.run(tmp_path, range(3), ended=False)
    trial = create_trial(root)
    assert trial.tensor("x").steps() == [0, 1, 2]
    runs.step(root, 3, {"x": np.arange(10.0), "y": np.arange(1000.0)})
    event = root / "events/000000000003/000000000003_worker_0.tfevents"
    whole = event.read_bytes()
    event.write_bytes(whole[: len(whole) // 2])
    from smdwidgets.exceptions import TruncatedDataError

    assert trial.tensor("x").value(3).sum() == 45
    with pytest.raises(TruncatedDataError, match=event.name):
        trial.tensor("y").value(3)
    half = event.with_suffix(".half")
    half.write_bytes(whole)
    half.replace(event)
    assert trial.tensor("y").value(3).sum() == 999 * 500
