"""A hook continues the pyramid of its statistics without harm to the run."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types

import numpy as np
import pytest

import smdwidgets
from python.counting import Store
from smdwidgets import _core, create_trial
from smdwidgets.hooks.writing import growing_pyramid
from smdwidgets.numpy import Hook
from smdwidgets.storage import LocalStorage
from smdwidgets.survey import Survey
from smdwidgets.survey.bins import NAN, codes
from smdwidgets.trials.smdebug import pyramids
from smdwidgets.trials.statistics import file as statistics_file
from smdwidgets.trials.statistics import kept_pyramids
from smdwidgets.trials.statistics.file import StatisticsFile

TENSORS = 40
PLAN = {"budget": "4MB", "statistics": 1}


def make_small():
    """Let a run of few rows have a pyramid."""
    growing_pyramid.FEWEST_ROWS, growing_pyramid.ROWS, growing_pyramid.STEPS = 2000, 500, 1


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name in ("FEWEST_ROWS", "ROWS", "STEPS"):
        monkeypatch.setattr(growing_pyramid, name, getattr(growing_pyramid, name))
    make_small()
    monkeypatch.setattr(pyramids, "FEWEST_ROWS", 2000)
    monkeypatch.setattr(kept_pyramids, "FEWEST_ROWS", 10**9)


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def train(hook, steps, nan=()):
    """Save tensors at these steps; of some (tensor, step), one element is NaN."""
    for step in steps:
        chance = np.random.default_rng(step)
        for tensor in range(TENSORS):
            value = chance.normal(0, 1 + tensor, 64).astype("float32")
            if (tensor, step) in nan:
                value[3] = np.nan
            hook.save_tensor(f"w{tensor}", value, "weights")
        hook.step()
    hook.flush()


def opened(run):
    """Return the pyramid of a run, if it is used."""
    file = StatisticsFile(LocalStorage(str(run)), _core.Files(str(run)))
    file.refresh()
    return file.pyramid("worker_0")


def train_until_grown(hook, run, begin, last, nan=()):
    """Train until the pyramid has so many steps, and return the next step."""
    deadline = time.monotonic() + 300
    while (pyramid := opened(run)) is None or pyramid.ends[1] < last:
        assert time.monotonic() < deadline
        train(hook, range(begin, begin + 50), nan)
        begin += 50
        time.sleep(0.01)  # the pyramid's thread has a low priority
    return begin


def surveyed(run):
    survey = Survey(create_trial(run))
    survey.update()
    assert survey.reading.state == "complete"
    return survey


def picture(survey, end, stat, level):
    names = [f"w{tensor}" for tensor in range(TENSORS)]
    return survey.bins(names, "", 0, stat, level, 0, (end >> level) + 1)


def assert_same(ours, theirs, end):
    assert len(ours.table) == len(theirs.table)
    assert ours.table.ends() == theirs.table.ends()
    for stat in ("size", "growth", "surprise", "zeros"):
        for level in (4, 6, 9):
            one, other = picture(ours, end, stat, level), picture(theirs, end, stat, level)
            np.testing.assert_array_equal(one.n, other.n)
            np.testing.assert_array_equal(one.flag, other.flag)
            # Rows behind the pyramid are exact, those in it are codes. One of a size is four of growth wide. Means are
            # rounded at each level, and weigh bins by all records, also those without a surprise at the beginning.
            for part, most in (("lo", 4 if stat == "growth" else 1), ("hi", 4 if stat == "growth" else 1), ("mid", 64)):
                ours_, theirs_ = (codes(getattr(each, part), stat).astype(int) for each in (one, other))
                np.testing.assert_array_equal(ours_ == 0, theirs_ == 0)
                assert np.abs(ours_ - theirs_).max() <= most
    expected = [(one.title, one.first, one.last, one.names) for one in theirs.findings()]
    assert [(one.title, one.first, one.last, one.names) for one in ours.findings()] == expected


def test_a_run_that_grows_reads_as_the_one_reopened_and_as_the_one_compacted(run, tmp_path):
    planted = [(5, 300), (7, 599)]
    with Hook(run, plan=PLAN) as hook:
        begin = train_until_grown(hook, run, 0, 250, nan=planted)
        live = surveyed(run)
        assert live.table.has_stored
        # The rows behind the pyramid, also those right behind it, in a reader that is open and in others.
        for _ in range(4):
            begin = train_until_grown(hook, run, begin, opened(run).ends[1] + 1, nan=planted)
            live.update()
            again = surveyed(run)
            assert again.table.has_stored
            assert_same(live, again, begin)
            again.trial.close()
        begin = train_until_grown(hook, run, begin, 600, nan=planted)
    live.update()
    reopened = surveyed(run)
    assert_same(live, reopened, begin)
    flags = picture(reopened, begin, "size", 9).flag & NAN
    assert np.argwhere(flags).tolist() == [[tensor, step >> 9] for tensor, step in planted]
    assert {one.first for one in reopened.findings() if one.kind == "not_finite"} == {step for _, step in planted}
    path = run / "statistics/worker_0/survey.pyramid"
    path.unlink()
    rows = surveyed(run)
    assert not rows.table.has_stored
    assert_same(reopened, rows, begin)
    assert smdwidgets.compact(run).pyramids > 0
    assert_same(reopened, surveyed(run), begin)


def test_a_trial_that_is_open_for_long_sees_the_pyramid_of_now(run, monkeypatch):
    monkeypatch.setattr(statistics_file, "_REOPENED", 100)
    with Hook(run, plan=PLAN) as hook:
        begin = train_until_grown(hook, run, 0, 100)
        file = StatisticsFile(LocalStorage(str(run)), _core.Files(str(run)))
        file.refresh()
        before = file.pyramid("worker_0")
        assert file.pyramid("worker_0") is before
        train_until_grown(hook, run, begin, begin)
        file.refresh()
        assert file.pyramid("worker_0").ends[1] > before.ends[1]


KILLED = """
import os, sys, threading
import numpy as np
sys.path[:0] = {paths}
from python.hooks.test_growing_pyramid import PLAN, make_small, train
from smdwidgets.hooks.writing import growing_pyramid
from smdwidgets.numpy import Hook

make_small()
begun = threading.Event()

def hang(self, done, total):
    if os.path.exists(os.path.join(sys.argv[1], "hang")):
        begun.set()
        threading.Event().wait()

growing_pyramid.GrowingPyramid._check = hang
hook = Hook(sys.argv[1], plan=PLAN, resume=os.path.exists(sys.argv[1]))
begin = int(sys.argv[2])
while not begun.is_set():
    train(hook, range(begin, begin + 50))
    begin += 50
    if begin >= 400:
        open(os.path.join(sys.argv[1], "hang"), "w").close()
print(begin, flush=True)
os.kill(os.getpid(), 9)
"""


def killed(run, begin):
    """Train in a process that is killed during a build; return the next step."""
    paths = [path for path in sys.path if path]
    script = textwrap.dedent(KILLED.format(paths=paths))
    done = subprocess.run(
        [sys.executable, "-c", script, str(run), str(begin)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (run / "hang").unlink()
    return int(done.stdout)


@pytest.mark.skipif(os.name == "nt", reason="requires SIGKILL")
@pytest.mark.parametrize("resumed", [True, False])
def test_a_build_that_is_killed_is_continued_by_the_next_hook_and_by_compact(run, resumed):
    begin = killed(run, 0)
    before = opened(run)
    reached = -1 if before is None else before.ends[1]
    again = surveyed(run)
    assert again.table.ends()[1] < begin
    if resumed:
        with Hook(run, plan=PLAN, resume=True) as hook:
            begin = train_until_grown(hook, run, begin, begin)
        assert opened(run).ends[1] > reached
    else:
        assert smdwidgets.compact(run).pyramids > 0
        assert opened(run).ends[1] > reached
    stored = surveyed(run)
    assert stored.table.has_stored
    assert sorted(path.name for path in (run / "statistics/worker_0").glob("survey*")) == ["survey.pyramid"]
    (run / "statistics/worker_0/survey.pyramid").unlink()
    assert_same(stored, surveyed(run), begin)


def test_a_growing_run_in_a_store_opens_with_few_requests_however_often_it_was_resumed(run):
    begin = 0
    for resumed in (False, True, True, True):
        with Hook(run, plan=PLAN, resume=resumed) as hook:
            begin = train_until_grown(hook, run, begin, begin + 100)
    segments = len([*run.glob("statistics/*/*.arrows")])
    assert segments > 3
    file = StatisticsFile(store := Store(str(run)))
    assert file.refresh()
    # The index, and what came after it: rows of the last segment, or all of the last two.
    assert store.requests <= 1 + 2 * 2 < 2 * segments
    assert file.faults(ended=True) == []
    local = StatisticsFile(LocalStorage(str(run)), _core.Files(str(run)))
    assert local.refresh()
    assert file.read(["w3"])["step"].tolist() == local.read(["w3"])["step"].tolist()


def test_a_file_with_damage_is_ignored_with_a_message_and_written_again(run, caplog):
    with Hook(run, plan=PLAN) as hook:
        begin = 0
        for last in (100, 200, 300, 400):  # so often that the place of an earlier directory is used again
            begin = train_until_grown(hook, run, begin, last)
    path = run / "statistics/worker_0/survey.pyramid"
    content = path.read_bytes()
    for damaged in (
        *(content[: len(content) // 2], content[: len(content) * 3 // 4], content[:-1], content[:30], b""),
        content[:20] + b"\xff" + content[21:],
    ):
        path.write_bytes(damaged)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            survey = surveyed(run)
        assert not survey.table.has_stored
        assert len(survey.table) == begin * TENSORS
        assert "survey.pyramid" in caplog.text
        assert "is not used" in caplog.text
    with Hook(run, plan=PLAN, resume=True) as hook:
        train_until_grown(hook, run, begin, begin)
    assert surveyed(run).table.has_stored


def test_a_full_disk_ends_the_pyramid_with_one_message_and_not_the_recording(run, caplog, monkeypatch):
    calls = []

    def full(*arguments, **named):
        calls.append(threading.current_thread().name)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "survey.pyramid")

    parts = {name: getattr(_core, name) for name in ("Files", "StatisticsReader", "worker_file_name")}
    core = types.SimpleNamespace(**parts, Pyramid=types.SimpleNamespace(write=full))
    monkeypatch.setattr(growing_pyramid, "_core", core)
    with caplog.at_level(logging.WARNING), Hook(run, plan=PLAN) as hook:
        begin = 0
        while not calls:
            train(hook, range(begin, begin + 50))
            begin += 50
        train(hook, range(begin, begin + 200))
    assert calls == ["smdwidgets-pyramid"]
    assert caplog.text.count("no pyramid of the statistics") == 1
    assert "No space left" in caplog.text
    assert len(surveyed(run).table) == (begin + 200) * TENSORS


def test_a_hook_that_is_closed_ends_the_build_and_keeps_what_the_file_has(run, monkeypatch):
    with Hook(run, plan=PLAN) as hook:
        begin = train_until_grown(hook, run, 0, 100)
        begun, waiting = threading.Event(), growing_pyramid.GrowingPyramid._check

        def hang(self, done, total):
            begun.set()
            self._stopped.wait()
            waiting(self, done, total)

        monkeypatch.setattr(growing_pyramid.GrowingPyramid, "_check", hang)
        while not begun.is_set():
            train(hook, range(begin, begin + 50))
            begin += 50
    assert not [one for one in threading.enumerate() if one.name == "smdwidgets-pyramid"]
    assert opened(run) is not None
    assert len(surveyed(run).table) == begin * TENSORS
    assert [path.name for path in (run / "statistics/worker_0").glob("survey*")] == ["survey.pyramid"]


def test_a_run_that_is_removed_gets_another_pyramid(run, tmp_path):
    with Hook(run, plan=PLAN) as hook:
        begin = train_until_grown(hook, run, 0, 100)
        run.rename(tmp_path / "away")
        while not (run / "statistics").exists():
            train(hook, range(begin, begin + 50))
            begin += 50
        end = train_until_grown(hook, run, begin, begin + 100)
    assert opened(run).ends[0] > 0
    assert surveyed(run).table.ends()[1] == end - 1
