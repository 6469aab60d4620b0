"""Effects of the disk, permissions and the clock on a run that is read or written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from faults import campaign
from python.trials import runs
from smdwidgets import create_trial
from smdwidgets.exceptions import RunIOError, RunNotFound, SMDebugError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="limits, users and signals of other systems")


def python(code: str, *arguments: object, before: Sequence[str] = (), seconds: float = 240) -> str:
    """Return the output of code in a separate process that must succeed."""
    command = [*before, sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


# ------------------------------------------------------------------------------------------------------- truncated
# files

#: Reads everything in all ways for some seconds. Each result is correct, or an exception of this package.
READ = """
import sys, time
import numpy as np
from smdwidgets import create_trial
from smdwidgets.exceptions import SMDebugError

trial = create_trial(sys.argv[1])
deadline, right, refused, held = time.monotonic() + float(sys.argv[2]), 0, 0, []
print("reading", flush=True)
while time.monotonic() < deadline:
    fresh = create_trial(sys.argv[1])
    for step in trial.steps():
        for which in (trial, fresh):
            try:
                value = which.tensor("x").value(step)
            except SMDebugError:
                refused += 1
            else:
                assert (value == step).all(), step
                right += 1
                held = held[-5:] + [(value, step)]
    table = fresh.values("x")
    refused += len(table.errors)
    for step, value in zip(table["step"], table["value"]):
        assert (value == step).all(), step
        right += 1
    table = fresh.reductions("x", reductions=["min", "max"])
    refused += len(table.errors)
    assert (table["min"] == table["step"]).all() and (table["max"] == table["step"]).all()
    right += table.num_rows
    # Returned arrays are unchanged after changes to their file.
    assert all((value == step).all() for value, step in held)
    fresh.close()
print(right, refused)
"""


def test_files_truncated_and_rewritten_while_they_are_read(tmp_path: Path) -> None:
    """No signal and no wrong number, neither in existing views nor in running sweeps."""
    size = 400_000  # larger than one piece of a sweep, and than a memory page
    for step in range(12):
        runs.step(tmp_path, step, {"x": np.full(size, step, np.float32)})
    root = runs.end(runs.collections(tmp_path))
    events = sorted((root / "events").rglob("*.tfevents"))
    whole = {path: path.read_bytes() for path in events}
    chance = campaign.rng("cut")
    with campaign.tally("files cut while read") as counts:
        command = [sys.executable, "-c", READ, str(root), str(campaign.size(6, 120))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "reading\n"
            while reader.poll() is None:
                path = chance.choice(events)
                os.truncate(path, chance.randrange(len(whole[path])))
                counts["cuts"] += 1
                if chance.random() < 0.7:
                    with path.open("r+b") as file:  # in place, as `cp` does it
                        file.write(whole[path])
            out, errors = reader.communicate()
        assert reader.returncode == 0, (reader.returncode, errors[-4000:])
        right, refused = map(int, out.split())
        counts.update(right=right, refused=refused)
    assert right
    assert refused


# -------------------------------------------------------------------------------------------------------------- disk
# full

#: Saves steps to a disk with space for a few, frees space, and saves more.
FILL = """
import json, logging, os, resource, sys
import numpy as np
from smdwidgets import create_trial
from smdwidgets._core import StepWriter
from smdwidgets.exceptions import RunIOError
from smdwidgets.hooks.loops.numpy import Hook

root, ballast, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
messages = []
logging.getLogger("smdwidgets.hooks").addHandler(type("H", (logging.Handler,), {"emit": lambda _, r: messages.append(r.getMessage())})())
hook = Hook(root, plan={"reserve": 0})
def save():
    step = hook.global_step + 1
    hook.save_tensor("x", np.full(5_000, step, np.float32), "weights")
    hook.step()
    hook.flush()
for _ in range(3):
    save()
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
else:
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass
for _ in range(4):
    save()
try:
    with StepWriter(root, 99) as writer:
        writer.tensor("x", np.zeros(100_000))
except RunIOError as error:
    refused = str(error)
else:
    refused = ""
left = [name for _, _, names in os.walk(root) for name in names if name.endswith(".tmp")]
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
else:
    os.remove(ballast)
for _ in range(2):
    save()
hook.close()
trial = create_trial(root)
values = {step: trial.tensor("x").value(step).tolist() for step in trial.steps()}
print(json.dumps([{step: set(value) == {float(step)} and len(value) for step, value in values.items()}, messages, refused, left]))
"""


def check_filled(out: str) -> None:
    values, messages, refused, left = json.loads(out)
    assert values == {str(step): 5_000 for step in (0, 1, 2, 7, 8)}
    assert [message for message in messages if "cannot save step" in message] == [messages[0]]
    assert "saving works again from step 7" in messages
    assert "smdwidgets" not in refused
    assert refused
    assert left == []


def test_file_size_limit(tmp_path: Path) -> None:
    check_filled(python(FILL, tmp_path / "run", "", 10_000))


@pytest.mark.skipif(sys.platform != "linux", reason="a small disk is made with Linux's namespaces")
def test_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "fill.py").write_text(FILL)
    mount = f'mount -t tmpfs -o size=300k none "{disk}"'
    tried = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False)
    if tried.returncode:
        # Without the right to mount, this tests the process's file size limit instead.
        return check_filled(python(FILL, tmp_path / "run", "", 10_000))
    script = f'{mount} && exec "{sys.executable}" "{tmp_path / "fill.py"}" "{disk}/run" "{disk}/ballast" 0'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    check_filled(done.stdout)
    return None


# ------------------------------------------------------------------------------------------------------------
# permissions

#: Root drops its privileges.
DROP_PRIVILEGES = """
import json, os, sys
import numpy as np
import smdwidgets, smdwidgets.trials.wait, smdwidgets.cli
from smdwidgets.sources.registry import formats
formats()  # another user may not read the modules of this Python
from smdwidgets import create_trial
from smdwidgets.exceptions import SMDebugError
from smdwidgets.hooks.loops.numpy import Hook
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
def ask(what):
    try:
        return what()
    except SMDebugError as error:
        return [type(error).__name__, str(error)]
"""


@pytest.fixture
def opened() -> Iterator[Path]:
    """A directory with read permission for all users.

    The parent of `tmp_path` has none: each pytest that starts takes it away.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "all")
        folder.mkdir()
        Path(made).chmod(0o755)
        folder.chmod(0o755)
        yield folder


def test_unreadable_files_are_reported(opened: Path) -> None:
    root = runs.run(opened / "run", range(3))
    event, index = (
        (root / "events/000000000001").iterdir().__next__(),
        root / "index/000000000/000000000002_worker_0.json",
    )
    event.chmod(0)
    index.chmod(0)
    code = """
    trial = create_trial(sys.argv[1], skip_bad_index=True)
    x = trial.tensor("x")
    print(json.dumps([ask(lambda: x.value(0).tolist()), ask(lambda: x.value(1).tolist()), trial.problems(),
                      ask(lambda: create_trial(sys.argv[1]).steps()), [str(e.error) for e in trial.values("x").errors]]))
    """
    try:
        right, refused, problems, strict, swept = json.loads(python(DROP_PRIVILEGES + textwrap.dedent(code), root))
    finally:
        event.chmod(0o644)
        index.chmod(0o644)
    assert right == [0, 0, 0]
    assert refused[0] == "RunIOError"
    assert event.name in refused[1]
    assert "ermission denied" in refused[1]
    assert [index.name in key and "ermission denied" in what for key, what in problems] == [True]
    assert strict[0] == "IndexReaderException"
    assert "ermission denied" in swept[0]


@pytest.mark.parametrize(
    "folder", ["..", ".", "index", "index/000000000", "collections", "collections/000000000", "events"]
)
def test_directories_without_permission(opened: Path, folder: str) -> None:
    root = runs.run(opened / "run", range(3))
    (root / folder).chmod(0)
    code = """
    print(json.dumps(ask(lambda: create_trial(sys.argv[1]).tensor("x").value(1).tolist())))
    """
    try:
        said = json.loads(python(DROP_PRIVILEGES + textwrap.dedent(code), root))
    finally:
        (root / folder).chmod(0o755)
    assert isinstance(said[0], str), said
    assert "ermission denied" in said[1], said


def test_run_without_write_permission(opened: Path) -> None:
    root = opened / "run"
    root.mkdir()
    code = """
    hook = ask(lambda: Hook(sys.argv[1]))
    under = ask(lambda: Hook(sys.argv[1] + "/deeper"))
    print(json.dumps([hook, under]))
    """
    for name, said in json.loads(python(DROP_PRIVILEGES + textwrap.dedent(code), root)):
        assert name == "RunIOError"
        assert str(root) in said
        assert "ermission denied" in said
    assert list(root.iterdir()) == []


# ------------------------------------------------------------------------------------------- deleted and new
# directories


def every_answer(trial) -> list[object]:
    """Return the result of each query, or the exception of this package."""
    answers: list[object] = []
    asked: list[Callable[[], object]] = [
        trial.steps,
        trial.tensor_names,
        trial.workers,
        trial.modes,
        trial.collections,
        trial.problems,
        lambda: trial.values("x").num_rows,
        lambda: trial.reductions("x", reductions="mean").num_rows,
        lambda: trial.has_tensor("x"),
        lambda: repr(trial),
        *(lambda step=step: trial.tensor("x").value(step).tolist() for step in range(6)),
        *(lambda step=step: trial.tensor("x").reduction_value(step, "mean") for step in range(6)),
    ]
    for ask in asked:
        try:
            answers.append(ask())
        except SMDebugError as error:
            answers.append(error)
    return answers


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("looked", [True, False])
def test_directory_replaced_while_it_is_open(tmp_path: Path, ended: bool, looked: bool) -> None:
    root = runs.run(tmp_path / "run", range(3), ended=ended)
    trial = create_trial(root)
    held = trial.tensor("x").value(1) if looked else None
    shutil.rmtree(root)
    every_answer(trial)
    # Another training of the same network starts at the same path: same names and offsets, other numbers.
    for step in range(6):
        runs.step(root, step, {"x": np.full(3, 100 + step, np.float32)})
    runs.collections(root)
    every_answer(trial)
    for step in range(6):
        try:
            value = trial.tensor("x").value(step).tolist()
        except SMDebugError:
            continue
        assert value in ([step] * 3, [100 + step] * 3)
    assert held is None or held.tolist() == [1, 1, 1]
    with create_trial(root) as again:
        assert [again.tensor("x").value(step).tolist() for step in again.steps()] == [[100 + s] * 3 for s in range(6)]


def test_deleted_run(tmp_path: Path) -> None:
    root = runs.run(tmp_path / "run", range(3), ended=False)
    trial = create_trial(root)
    shutil.rmtree(root)
    with pytest.raises((RunNotFound, RunIOError, SMDebugError)):
        trial.tensor("x").value(1)
    root.write_text("a file now")
    every_answer(trial)


# ------------------------------------------------------------------------------------------------------------- the
# clock


@pytest.mark.parametrize("ago", [3600, 10 * 365 * 86400, -3600])
def test_clock_that_jumps(tmp_path: Path, ago: float) -> None:
    """Steps are found regardless of the times of their files and directories."""
    root = runs.run(tmp_path / "run", range(2), ended=False)
    trial = create_trial(root)
    assert trial.steps() == [0, 1]
    for step in range(2, 8):
        runs.step(root, step)
        then = time.time() - ago * (1 + step)
        for path in [*root.rglob("*"), root]:
            os.utime(path, (then, then))
        assert trial.steps() == list(range(step + 1))
        assert trial.tensor("x").value(step).tolist() == [step] * 3
    runs.end(root, ago=-3600)  # an end marker from the future
    assert trial.steps() == list(range(8))


def test_unchanged_modification_times(tmp_path: Path) -> None:
    """A copier that restores directory times hides no steps."""
    root = runs.run(tmp_path / "run", range(2), ended=False)
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    then = time.time() - 1000.123456789
    for folder in folders:
        os.utime(folder, (then, then))
    trial = create_trial(root)
    for step in range(2, 8):
        assert trial.steps() == list(range(step))
        runs.step(root, step)
        for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            os.utime(folder, (then, then))
    assert trial.steps() == list(range(8))
