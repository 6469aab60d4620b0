"""The run directory: new, existing, resumed, shared, unwritable, or abandoned."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

from faults import campaign
from python.hooks.written import Written
from smdwidgets import create_trial
from smdwidgets.exceptions import RunIOError, SMDebugRuntimeError
from smdwidgets.hooks.loops.numpy import Hook
from smdwidgets.hooks.writing import step_files
from smdwidgets.modes import modes
from smdwidgets.run_end import END_FILE, RunEnd
from smdwidgets.stop import request_stop


def train(root, steps, mode=modes.TRAIN, **options):
    with Hook(root, **options) as hook:
        hook.set_mode(mode)
        for _ in range(steps):
            hook.save_tensor("x", np.full(3, hook.global_step + 1))
            hook.step()
        return hook


def test_existing_run_raises_and_suggests_overwrite_or_resume(written):
    train(written.root, 2)
    with pytest.raises(SMDebugRuntimeError, match=r"already contains a run.*overwrite=True.*resume=True"):
        Hook(written.root)
    assert written.steps() == [0, 1]
    assert written.leftovers() == []


def test_directory_with_unrelated_files_is_accepted(written):
    written.root.mkdir()
    (written.root / "checkpoint.pt").write_bytes(b"mine")
    train(written.root, 1)
    train(written.root, 2, overwrite=True)
    assert (written.root / "checkpoint.pt").read_bytes() == b"mine"
    assert written.steps() == [0, 1]


def test_overwrite_removes_the_previous_run(written):
    train(written.root, 3)
    request_stop(written.root)
    hook = Hook(written.root, overwrite=True)
    assert not written.ended
    hook.save_tensor("y", 1)
    hook.close()
    assert written.steps() == [0]
    assert written.names(0) == ["y"]


def test_resume_continues_after_the_last_step(written):
    train(written.root, 3)
    train(written.root, 2, modes.EVAL, resume=True)
    hook = train(written.root, 2, resume=True)
    assert hook.mode_steps == {modes.TRAIN: 4, modes.EVAL: 1, modes.GLOBAL: 6}
    assert [written.mode(step) for step in written.steps()] == [
        ("TRAIN", 0),
        ("TRAIN", 1),
        ("TRAIN", 2),
        ("EVAL", 0),
        ("EVAL", 1),
        ("TRAIN", 3),
        ("TRAIN", 4),
    ]
    assert written.value("x", 6).tolist() == [6, 6, 6]


def test_resume_from_step_truncates_later_steps(written):
    train(written.root, 5)
    train(written.root, 1, resume=3)
    assert written.steps() == [0, 1, 2, 3]
    assert written.mode(3) == ("TRAIN", 3)


def test_resume_without_run_starts_a_new_one(written):
    train(written.root, 2, resume=True)
    assert written.steps() == [0, 1]


def test_second_hook_in_a_process_closes_the_first(written, caplog):
    first = Hook(written.root)
    first.save_tensor("x", 1)
    with pytest.raises(SMDebugRuntimeError, match=r"already contains a run.*overwrite=True.*resume=True"):
        Hook(written.root)
    assert written.steps() == [0]
    assert written.ended
    assert "because a new one was created" in caplog.text

    second = Hook(written.root, resume=True)
    link = written.root.with_name("link")
    link.symlink_to(written.root, target_is_directory=True)
    with Hook(link, overwrite=True) as third:
        assert "closed" in repr(first)
        assert "closed" in repr(second)
        third.save_tensor("y", 2)
    assert written.names(0) == ["y"]


def test_run_of_killed_training_is_readable_and_not_ended(written):
    done = script(
        """
        import os, signal, sys
        import numpy as np
        from smdwidgets.numpy import Hook
        hook = Hook(sys.argv[1])
        for i in range(3):
            hook.save_tensor("x", np.full(5, i))
            hook.step()
        hook.flush()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        written.root,
    )
    assert done.returncode == -signal.SIGKILL
    with create_trial(written.root) as trial:
        assert trial.steps() == [0, 1, 2]
        assert trial.tensor("x").value(2).tolist() == [2] * 5
        assert not trial.loaded_all_steps
    train(written.root, 1, resume=True)
    with create_trial(written.root) as trial:
        assert trial.steps() == [0, 1, 2, 3]
        assert trial.loaded_all_steps


def test_claim_of_dead_process_is_ignored(written):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    written.root.mkdir()
    claim = written.root / "claim_worker_0.smd"
    claim.write_text(json.dumps({"pid": dead.pid, "host": socket.gethostname(), "worker": "worker_0"}))
    train(written.root, 1)
    assert written.ended
    assert not claim.exists()


def test_last_worker_to_close_ends_the_run(written, monkeypatch):
    hooks = []
    for rank in range(2):
        monkeypatch.setattr(Hook, "current_worker", lambda self, rank=rank: (f"worker_{rank}", 2))
        hooks.append(Hook(written.root, include_workers="all"))
    for hook in hooks:
        hook.save_tensor("x", 1)
    try:
        raise ValueError("loss is NaN")
    except ValueError:
        hooks[1].close()
    assert not written.ended
    hooks[0].close()
    assert written.ended
    assert str(RunEnd.parse((written.root / END_FILE).read_bytes())) == (
        "exception (ValueError: loss is NaN); worker_1: exception (ValueError: loss is NaN)"
    )
    assert written.leftovers() == []
    assert written.steps("worker_0") == written.steps("worker_1") == [0]
    assert written.collections("worker_1")
    meta = json.loads((written.root / "collections/000000000/worker_1_collections.json").read_text())["_meta"]
    assert meta["num_workers"] == 2


def test_only_first_worker_writes_by_default(written, monkeypatch):
    monkeypatch.setattr(Hook, "current_worker", lambda self: ("worker_1", 2))
    with Hook(written.root) as hook:
        hook.save_tensor("x", 1)
    assert not written.root.exists()


def test_hook_does_not_end_the_run_in_sagemaker(written, monkeypatch):
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    train(written.root, 1)
    assert written.steps() == [0]
    assert not written.ended


def test_directory_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunIOError, match="cannot create out_dir"):
        Hook(tmp_path / "file" / "run")


@pytest.mark.skipif(os.name == "nt", reason="permissions are another matter there")
def test_directory_is_not_writable(tmp_path):
    tmp_path.chmod(0o500)
    superuser = os.geteuid() == 0
    if superuser:  # root can write anywhere
        os.seteuid(65534)
    try:
        for path in (tmp_path, tmp_path / "run"):
            with pytest.raises(RunIOError, match=r"cannot (create|write to) out_dir"):
                Hook(path)
    finally:
        if superuser:
            os.seteuid(0)


def script(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_run_ends_at_script_exit(written):
    done = script(
        """
        import sys
        import numpy as np
        from smdwidgets.numpy import Hook
        hook = Hook(sys.argv[1])
        for i in range(50):
            hook.save_tensor("x", np.full(10_000, i))
            hook.step()
        """,
        written.root,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert written.steps() == list(range(50))
    assert written.ended


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child_does_not_write(written):
    """A forked child inherits the hook. It logs one warning and saves nothing."""
    done = script(
        """
        import os, sys
        import numpy as np
        from smdwidgets.numpy import Hook
        hook = Hook(sys.argv[1])
        hook.save_tensor("x", np.zeros(3))
        hook.step()
        child = os.fork()
        hook.save_tensor("x", np.ones(3) if child else np.full(3, -1))
        hook.step()
        if not child:
            hook.save_scalar("y", 1)
            hook.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert not os.path.exists(os.path.join(sys.argv[1], "training_job_end.ts"))
        """,
        written.root,
    )
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "this process is a fork; only the process that created the hook records" in line
    assert written.steps() == [0, 1]
    assert written.value("x", 1).tolist() == [1, 1, 1]
    assert written.ended


FULL_DISK = """
    import errno, logging, os, shutil, sys
    import numpy as np
    from smdwidgets.numpy import Hook

    folder, target, how = sys.argv[1:]
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    ballast = os.path.join(folder, "ballast")

    def fill():
        if how == "limit":
            import resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            return
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
            file.truncate(file.tell() - 300_000)

    def make_room():
        if how == "limit":
            import resource
            most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        else:
            os.unlink(ballast)

    hook = Hook(os.path.join(folder, "run"), plan={"reserve": 0})
    for i in range(7):
        hook.flush()
        if i == 2:
            fill()
        if i == 5:
            make_room()
        hook.save_tensor("before", np.full(1000, i))
        hook.save_tensor("large", np.full((1000, 130), i))
        hook.save_tensor("after", np.full(1000, i))
        hook.step()
    hook.close()
    print("trained to the end:", hook.global_step)
    shutil.copytree(os.path.join(folder, "run"), target)
"""


def small_disk(folder):
    """Return a command prefix that mounts a private 16 MB file system on the folder.

    None if that is not possible.
    """
    inside = 'mount -t tmpfs -o size=16m smdwidgets "$0" && exec "$@"'
    for namespaces in ("-m", "-rm"):  # for root, and for other users if the kernel allows it
        command = ["unshare", namespaces, "sh", "-c", inside, str(folder)]
        try:
            if not subprocess.run([*command, "true"], capture_output=True, check=False, timeout=60).returncode:
                return command
        except OSError:
            break
    return None


@pytest.mark.skipif(os.name == "nt", reason="there is neither a small disk nor a limit to a file's size")
@pytest.mark.parametrize("how", ["disk", "limit"])
def test_full_disk_drops_only_the_affected_steps(written, tmp_path, how):
    """The file system is full within a step, or a file exceeds the size limit."""
    folder = tmp_path / "disk"
    folder.mkdir()
    prefix = small_disk(folder) if how == "disk" else []
    if prefix is None:
        warnings.warn("cannot mount a small file system; testing a file size limit instead", stacklevel=1)
        how, prefix = "limit", []
    command = [*prefix, sys.executable, "-c", textwrap.dedent(FULL_DISK), str(folder), str(written.root), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first.startswith("cannot save step 2: ")
    assert ("No space left on device" if how == "disk" else "File too large") in first
    assert first.endswith("; the training continues, and later steps are saved if possible")
    assert rest == ["saving works again from step 5", "trained to the end: 6"]
    assert written.steps() == [0, 1, 5, 6]
    for step in written.steps():
        values = written.values(step)
        assert list(values) == ["before", "large", "after"]
        assert all((value == step).all() for value in values.values())
    assert written.leftovers() == []
    assert written.ended


@pytest.mark.skipif(os.name == "nt", reason="there is neither a small disk nor a limit to a file's size")
def test_disk_is_full_at_close(written, tmp_path):
    """The last step is lost with a warning; run and training end normally."""
    folder = tmp_path / "disk"
    folder.mkdir()
    prefix = small_disk(folder)
    if prefix is None:
        pytest.skip("no small file system can be mounted here")
    code = """
        import os, shutil, sys
        import numpy as np
        from smdwidgets.numpy import Hook

        def main(folder):
            hook = Hook(os.path.join(folder, "run"), plan={"reserve": 0})
            hook.save_tensor("x", np.zeros(100_000))
            hook.step()
            hook.flush()
            with open(os.path.join(folder, "ballast"), "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(1 << 12))
                except OSError:
                    pass
            hook.save_tensor("x", np.ones(100_000))
            if sys.argv[3] == "close":
                hook.close()

        main(sys.argv[1])
        if sys.argv[3] == "end":
            from smdwidgets.hooks.core import process
            process.close_all()  # the interpreter calls this at exit; the disk is unmounted with the process
        shutil.copytree(os.path.join(sys.argv[1], "run"), sys.argv[2])
        print("trained to the end")
    """
    for how in ("close", "end"):
        command = [*prefix, sys.executable, "-c", textwrap.dedent(code), str(folder), str(written.root), how]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert (done.returncode, done.stdout) == (0, "trained to the end\n"), done.stderr
        assert "cannot save step 1: " in done.stderr
        assert "Traceback" not in done.stderr
        assert written.steps() == [0]
        assert written.ended
        shutil.rmtree(written.root)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_directory_removed_during_training(written, caplog, monkeypatch, seconds):
    """Also if the writer looks at the directory only when it closes it."""
    monkeypatch.setattr(step_files, "_LOOK_EVERY", seconds)
    with Hook(written.root) as hook:
        for step in range(6):
            if step == 3:
                hook.flush()
                shutil.rmtree(written.root)
            hook.save_tensor("x", np.full(3, step), "weights")
            hook.step()
    assert written.steps() == [3, 4, 5]
    assert written.value("x", 5).tolist() == [5, 5, 5]
    assert written.ended
    assert written.leftovers() == []
    with create_trial(written.root) as trial:
        assert trial.tensor_names(collection="weights") == ["x"]
    (line,) = [record.getMessage() for record in caplog.records]
    first = 5 if seconds else 3
    assert line == f"{written.root} was removed during the training; recording continues from step {first}"


def test_directory_taken_over_by_another_training(written, caplog):
    hook = Hook(written.root)
    hook.save_tensor("x", 1)
    hook.step()
    hook.flush()
    shutil.rmtree(written.root)
    done = script(
        """
        import sys
        from smdwidgets.numpy import Hook
        hook = Hook(sys.argv[1])
        hook.save_tensor("theirs", 1)
        hook.step()
        hook.flush()
        import os
        os._exit(0)
        """,
        written.root,
    )
    assert done.returncode == 0, done.stderr
    claim = written.root / "claim_worker_0.smd"
    claim.write_text(json.dumps({"pid": 1, "host": "another", "worker": "worker_0"}))
    for _ in range(3):
        hook.save_tensor("x", 2)
        hook.step()
    hook.close()
    assert written.steps() == [0]
    assert written.names(0) == ["theirs"]
    assert claim.exists()
    assert not written.ended
    assert caplog.text.count("recording stopped; no steps are saved") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_visible_steps_are_complete_after_sigkill(tmp_path):
    """Kill trainings at random times.

    Every step with an index file is readable and correct.
    """
    trainings = campaign.size(50, 200)
    done = script(
        """
        import os, random, signal, sys, time
        import numpy as np
        from smdwidgets.numpy import Hook
        rng = random.Random(0)
        for attempt in range(int(sys.argv[2])):
            root = os.path.join(sys.argv[1], str(attempt))
            pid = os.fork()
            if not pid:
                hook = Hook(root)
                for step in range(1_000_000):
                    for i in range(4):
                        hook.save_tensor(f"t{i}", np.full(rng.choice((1, 1000, 20_000)), step * 4 + i))
                    hook.step()
            deadline = time.monotonic() + 20
            while not os.path.exists(os.path.join(root, "index")) and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(rng.random() * 0.01)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        """,
        tmp_path,
        trainings,
    )
    assert (done.returncode, done.stderr) == (0, "")
    runs = [Written(tmp_path / str(attempt)) for attempt in range(trainings)]
    for run in runs:
        assert run.steps() == list(range(len(run.steps())))
        for step in run.steps():
            values = run.values(step)
            assert list(values) == [f"t{i}" for i in range(4)]
            assert all((values[f"t{i}"] == step * 4 + i).all() for i in range(4))
        assert not run.ended
    assert sum(len(run.steps()) for run in runs) > trainings  # not all trainings were killed before the first step
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_worker_that_begins_late_finds_the_shards_of_another(written, monkeypatch, overwrite):
    """The second worker saves its shards before the first one has opened the run."""
    monkeypatch.setattr(Hook, "current_worker", lambda self: ("worker_1", 2))
    with Hook(written.root, include_workers="all", plan=False, save_all=True) as second:
        second.save_tensor("shard_1", np.ones(3))
        second.step()
        second.save_tensor("shard_1", np.ones(3))  # which closes the first step
        monkeypatch.setattr(Hook, "current_worker", lambda self: ("worker_0", 2))
        with Hook(written.root, overwrite=overwrite, plan=False, save_all=True) as first:
            for _ in range(2):
                first.save_tensor("shard_0", np.ones(3))
                first.step()
        monkeypatch.setattr(Hook, "current_worker", lambda self: ("worker_1", 2))
        second.step()
    assert written.steps("worker_0") == written.steps("worker_1") == [0, 1]
    assert create_trial(written.root).tensor_names() == ["shard_0", "shard_1"]
    monkeypatch.setattr(Hook, "current_worker", lambda self: ("worker_0", 2))
    with pytest.raises(SMDebugRuntimeError, match="already contains a run"):
        Hook(written.root, plan=False)
