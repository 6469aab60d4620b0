"""Signal handlers of scripts, threads, forks and child processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from endings.running import run_script
from endings.scripts import NUMPY
from smdwidgets import create_trial
from smdwidgets.run_end import END_FILE

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and fork")

HEAD = "import os, signal, sys, threading, time\nRUN = sys.argv[1]\n" + textwrap.dedent(NUMPY)


def run(code, tmp_path):
    """Return the output of a script, its exit status, and its run."""
    done = run_script(HEAD + textwrap.dedent(code), tmp_path, tmp_path / "run")
    return done, tmp_path / "run"


def left(run):
    """Return steps and end of a run."""
    with create_trial(run) as trial:
        end = trial.run_end()
        return trial.steps(), None if end is None else str(end)


# -------------------------------------------------------------------------------------------------------------- signals


def test_handler_of_the_script_that_returns_lets_training_go_on(tmp_path):
    done, path = run(
        """
        signal.signal(signal.SIGTERM, lambda *_: print("saving a checkpoint", os.path.exists(os.path.join(RUN, END_FILE))))
        from smdwidgets.run_end import END_FILE
        hook = make_hook()
        train(hook)
        os.kill(os.getpid(), signal.SIGTERM)
        train(hook, 1)
        print("goes on", os.path.exists(os.path.join(RUN, END_FILE)))
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["saving a checkpoint True", "goes on False"]
    assert left(path) == ([0, 1, 2, 3, 4, 5], "completed")


@pytest.mark.parametrize(
    ("ends", "status", "marker"),
    [("sys.exit(5)", 5, "signal (SIGTERM)"), ("os._exit(4)", 4, "signal (SIGTERM)")],
)
def test_handler_of_the_script_that_ends_the_process(ends, status, marker, tmp_path):
    done, path = run(
        f"""
        def handler(*_):
            {ends}
        signal.signal(signal.SIGTERM, handler)
        hook = make_hook()
        train(hook)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (status, "")
    assert left(path) == ([0, 1, 2, 3, 4], marker)


def test_handler_set_after_the_hook_replaces_ours_and_may_call_it(tmp_path):
    done, path = run(
        """
        hook = make_hook()
        before = signal.getsignal(signal.SIGTERM)
        def handler(number, frame):
            print("ours first")
            before(number, frame)
        signal.signal(signal.SIGTERM, handler)
        train(hook)
        os.kill(os.getpid(), signal.SIGTERM)
        train(hook, 1)
        hook.close()
        print(signal.getsignal(signal.SIGTERM) is handler)
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["ours first", "True"]
    assert left(path) == ([0, 1, 2, 3, 4, 5], "completed")


def test_ignored_signals_stay_ignored(tmp_path):
    done, path = run(
        """
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
        hook = make_hook()
        train(hook)
        os.kill(os.getpid(), signal.SIGHUP)
        train(hook, 1)
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert left(path) == ([0, 1, 2, 3, 4, 5], "completed")


def test_handlers_are_given_back_when_the_last_hook_closes(tmp_path):
    done, _ = run(
        """
        before = signal.getsignal(signal.SIGTERM)
        hook = make_hook()
        assert signal.getsignal(signal.SIGTERM) is not before
        hook.save_scalar("loss", 1)
        hook.step()
        hook.close()
        assert signal.getsignal(signal.SIGTERM) is before
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("seed", range(10))
def test_signal_at_any_moment_leaves_a_complete_run(seed, tmp_path):
    """The handler can run between any two instructions, also inside the hook."""
    script = tmp_path / "train.py"
    script.write_text(
        HEAD
        + textwrap.dedent(
            """
            hook = make_hook(queue_bytes=1 << 20)
            step = 0
            while True:
                for i in range(5):
                    hook.save_tensor(f"t{i}", np.full(20_000, step))
                hook.save_scalar("loss", step)
                hook.step()
                step += 1
            """
        )
    )
    path = tmp_path / "run"
    process = subprocess.Popen([sys.executable, script, path], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (path / "index").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.Random(seed).random() * 0.3)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (-signal.SIGTERM, "")
    steps, end = left(path)
    assert end == "signal (SIGTERM)"
    assert steps == list(range(len(steps)))
    assert steps
    with create_trial(path) as trial:
        for name in [f"t{i}" for i in range(5)]:
            assert (trial.tensor(name).value(steps[-2] if len(steps) > 1 else 0) == max(len(steps) - 2, 0)).all()


# -------------------------------------------------------------------------------------------------------------- threads


def test_training_on_another_thread(tmp_path):
    done, path = run(
        """
        thread = threading.Thread(target=lambda: train(make_hook()))
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert left(path) == ([0, 1, 2, 3, 4], "completed")


def test_daemon_thread_that_still_trains_when_the_interpreter_ends(tmp_path):
    done, path = run(
        """
        hook = make_hook()
        train(hook)
        def forever():
            while True:
                hook.save_tensor("weight", np.zeros(1000), "weights")
                hook.step()
        threading.Thread(target=forever, daemon=True).start()
        while hook.global_step < 50:
            time.sleep(0.001)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    steps, end = left(path)
    assert steps == list(range(len(steps)))
    assert len(steps) > 50
    assert end == "completed"


def test_many_threads_on_one_hook(tmp_path):
    done, path = run(
        """
        hook = make_hook()
        def work(number):
            for i in range(200):
                hook.save_tensor(f"t{number}", np.full(100, i), "weights")
                if number == 0:
                    hook.step()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        """,
        tmp_path,
    )
    assert done.returncode == 0
    # Only one thread ends steps, so others may save a name twice in one of them.
    assert all("was saved twice in step" in line for line in done.stderr.splitlines())
    steps, end = left(path)
    assert end == "completed"
    assert len(steps) in (200, 201)
    with create_trial(path) as trial:
        assert [int(trial.tensor("t0").value(step)[0]) for step in trial.tensor("t0").steps()] == list(range(200))


# ------------------------------------------------------------------------------------------------------ child processes

CHILD = """
    import multiprocessing

    def child(run, how):
        global RUN
        RUN = run
        hook = make_hook()
        train(hook)
        if how == "exception":
            raise ValueError("loss is NaN")
        if how == "exit":
            sys.exit(3)

    if __name__ == "__main__":
        process = multiprocessing.get_context(METHOD).Process(target=child, args=(RUN, HOW))
        process.start()
        process.join()
        print(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(
    ("how", "status", "marker"),
    [
        ("return", 0, "completed"),
        ("exception", 1, "exception (ValueError: loss is NaN)"),
        ("exit", 3, "exception (SystemExit: 3)"),
    ],
)
def test_child_process_that_owns_the_hook(method, how, status, marker, tmp_path):
    head = HEAD.replace("RUN = sys.argv[1]", "RUN = sys.argv[1] if len(sys.argv) > 1 else None")
    script = head + textwrap.dedent(CHILD).replace("METHOD", repr(method)).replace("HOW", repr(how))
    done = run_script(script, tmp_path, tmp_path / "run")
    assert done.stdout.split() == [str(status)], done.stderr
    assert left(tmp_path / "run") == ([0, 1, 2, 3, 4], marker)


def test_hook_that_is_sent_to_a_spawned_child_is_inactive_there(tmp_path):
    done, path = run(
        """
        import multiprocessing

        def child(hook):
            hook.save_tensor("theirs", np.zeros(3))
            hook.save_scalar("loss", 1.0)
            hook.set_mode("train")
            hook.step()
            hook.flush()
            hook.close()
            print(repr(hook).split(":")[0])

        if __name__ == "__main__":
            hook = make_hook()
            train(hook)
            process = multiprocessing.get_context("spawn").Process(target=child, args=(hook,))
            process.start()
            process.join()
            assert process.exitcode == 0
            train(hook, 1)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "<smdwidgets.hooks.loops.numpy.Hook inactive"
    (line,) = done.stderr.splitlines()
    assert "only that process records" in line
    steps, end = left(path)
    assert (steps, end) == ([0, 1, 2, 3, 4, 5], "completed")
    with create_trial(path) as trial:
        assert trial.tensor_names() == ["weight"]


def test_forked_child_that_is_terminated_dies_at_once_and_touches_nothing(tmp_path):
    done, path = run(
        """
        hook = make_hook()
        train(hook)
        child = os.fork()
        if not child:
            hook.save_tensor("theirs", np.zeros(3))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        from smdwidgets.run_end import END_FILE
        assert not os.path.exists(os.path.join(RUN, END_FILE))
        train(hook, 1)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "fork" in done.stderr
    assert left(path) == ([0, 1, 2, 3, 4, 5], "completed")


def test_fork_while_other_threads_save(tmp_path):
    """The child inherits locks that nothing releases.

    Calls of the hook must not wait for them.
    """
    done, path = run(
        """
        hook = make_hook()
        stop = threading.Event()
        def forever():
            while not stop.is_set():
                hook.save_tensor("weight", np.zeros(10_000), "weights")
                hook.step()
        thread = threading.Thread(target=forever)
        thread.start()
        for _ in range(20):
            child = os.fork()
            if not child:
                hook.save_tensor("theirs", np.zeros(3))
                hook.set_mode("eval")
                hook.step()
                hook.flush()
                hook.close()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        stop.set()
        thread.join()
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    steps, end = left(path)
    assert steps == list(range(len(steps)))
    assert end == "completed"


def test_process_that_ends_while_another_writes_the_same_worker(tmp_path):
    """The second process trains unrecorded with a warning; the first run is unchanged."""
    path = tmp_path / "run"
    script = tmp_path / "train.py"
    script.write_text(HEAD + "hook = make_hook()\ntrain(hook)\nprint('trained', flush=True)\nsys.stdin.read()\n")
    first = subprocess.Popen(
        [sys.executable, script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert first.stdout.readline() == "trained\n"
    for options in ("", "overwrite=True", "resume=True"):
        (tmp_path / "second").mkdir(exist_ok=True)
        text = HEAD + f"hook = make_hook({options})\ntrain(hook)\nhook.save_scalar('loss', 1.0)\nprint(hook)"
        second = run_script(text, tmp_path / "second", path)
        assert second.returncode == 0, second.stderr
        assert "inactive" in second.stdout
        assert f"being written by process {first.pid} on " in second.stderr
        assert second.stderr.count("nothing is recorded") == 1
        assert not (path / END_FILE).exists()
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert left(path) == ([0, 1, 2, 3, 4], "completed")


def test_process_ids_that_come_again_do_not_keep_a_directory(tmp_path):
    """In a container every training is process 1, also the next one after a kill."""
    done, path = run(
        """
        import json, socket
        os.makedirs(RUN)
        claim = os.path.join(RUN, "claim_worker_0.smd")
        with open(claim, "w") as out:
            json.dump({"pid": os.getpid(), "host": socket.gethostname(), "worker": "worker_0"}, out)
        train(make_hook())
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert left(path) == ([0, 1, 2, 3, 4], "completed")


@pytest.mark.parametrize(("age", "recorded"), [(0, False), (1000, True)])
def test_claim_of_another_machine_counts_while_it_is_touched(age, recorded, tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    claim = path / "claim_worker_0.smd"
    claim.write_text(json.dumps({"pid": 1, "host": "another", "worker": "worker_0", "touched": 10.0}))
    os.utime(claim, (time.time() - age, time.time() - age))
    done, path = run("train(make_hook())", tmp_path)
    assert done.returncode == 0, done.stderr
    assert ("nothing is recorded" in done.stderr) is not recorded
    assert (path / END_FILE).exists() is recorded


def test_ctrl_c_while_the_hook_closes_loses_nothing(tmp_path):
    """A second Ctrl-C, or one in `close()`: the exit handler completes pending work."""
    done, path = run(
        """
        from smdwidgets.hooks.writing import step_files
        write = step_files.StepFiles.write
        def slow(self, at, captured):
            time.sleep(0.3)
            write(self, at, captured)
        step_files.StepFiles.write = slow
        hook = make_hook()
        train(hook)
        threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        hook.close()
        """,
        tmp_path,
    )
    assert done.returncode in (-signal.SIGINT, 1), done.stderr
    assert "KeyboardInterrupt" in done.stderr
    assert left(path) == ([0, 1, 2, 3, 4], "exception (KeyboardInterrupt)")


def test_steps_are_readable_while_training_sleeps(tmp_path):
    """Steps are written without another call of the hook."""
    path = tmp_path / "run"
    script = tmp_path / "train.py"
    script.write_text(HEAD + "train(make_hook())\nprint('trained', flush=True)\nsys.stdin.read()\n")
    with subprocess.Popen(
        [sys.executable, script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "trained\n"
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        while process.poll() is None and len(list(path.glob("index/*/*.json"))) < 5:
            time.sleep(0.01)
        process.kill()
        watchdog.cancel()
    with create_trial(path) as trial:
        assert trial.steps() == [0, 1, 2, 3, 4]
        assert not trial.loaded_all_steps
        assert trial.run_end() is None
