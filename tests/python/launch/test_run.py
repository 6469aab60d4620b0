"""`smdwidgets run`: the script notices nothing, and its trainings are recorded."""

from __future__ import annotations

import json
import os
import shutil
import sys

import pytest

from python.launch.launching import FAKES, Place
from smdwidgets import create_trial

FIT = """
import keras
print(keras.Model().fit(), flush=True)
"""


@pytest.fixture
def place(tmp_path):
    """A directory with the fake framework on PYTHONPATH."""
    packages = tmp_path / "packages"
    packages.mkdir()
    shutil.copy(FAKES / "fake_keras.py", packages / "keras.py")
    folder = tmp_path / "here"
    folder.mkdir()
    return Place(folder, packages)


def losses(run):
    """The losses of a run by step."""
    with create_trial(run) as trial:
        return {step: trial.tensor("loss").value(step).item() for step in trial.tensor("loss").steps()}


EXPECTED = {0: 1.0, 1: 0.5, 2: pytest.approx(1 / 3)}


def test_an_unchanged_script_is_recorded(place):
    place.write("train.py", FIT)
    plain, done = place.python("train.py"), place.run("train.py")
    assert (done.code, done.out) == (plain.code, plain.out) == (0, "[1.0, 0.5, 0.3333333333333333]\n")
    assert done.own_err == ""
    begin, end = done.said
    assert (
        begin
        == "recording fake (1 parameters) to runs/train: losses, weights, gradients and activations within 20 times the size of the model (100 MB to 2 GB)"
    )
    assert end.startswith("recorded 3 steps in runs/train. Cannot tell: ")
    assert "smdwidgets diagnose runs/train" in end
    assert losses(place.folder / "runs/train") == EXPECTED


def test_two_dashes_may_stand_before_the_command(place):
    place.write("train.py", FIT)
    for words in (("--", "train.py"), ("--what=losses", "--", sys.executable, "train.py")):
        assert place.run(*words).code == 0
    assert sorted(one.name for one in (place.folder / "runs").iterdir()) == ["train", "train-2"]


SEEN = """
import sys, os
print(sys.argv, __name__, __file__, sys.path, sys.flags, sys.orig_argv[1:], __spec__, __builtins__, sys.modules["__main__"])
print("sitecustomize" in sys.modules, [name for name in sys.modules if "smdwidgets" in name and "_finder" not in name])
print(sorted(vars()))
print(sys.excepthook, sys.displayhook, sys.gettrace(), sys.getprofile(), len(sys.meta_path))
def f():
    raise ValueError("of the script")
"""


def test_a_script_without_a_framework_sees_what_python_shows_it(place):
    text = SEEN.replace(", len(sys.meta_path)", "")  # there is one finder more
    place.write("train.py", text)
    plain, done = place.python("train.py", "--lr", "-m", "--", "x"), place.run("train.py", "--lr", "-m", "--", "x")
    assert done.out == plain.out
    assert done.said == ["nothing was recorded: none of torch, keras, xgboost, lightgbm was imported"]
    assert not (place.folder / "runs").exists()


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('a message')", 1),
        ("import sys; f()", 1),
        ("import os; os._exit(5)", 5),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("raise KeyboardInterrupt", -2),
        ("import sys; sys.stderr.close()", 0),
        ("import os; os.close(2)", 0),
    ],
)
def test_a_script_ends_as_it_does_without(place, end, code):
    place.write("train.py", f"def f():\n    raise ValueError('of the script')\n{FIT}\n{end}\n")
    plain, done = place.python("train.py"), place.run("train.py")
    assert (done.code, done.out, done.own_err) == (plain.code, plain.out, plain.err)
    assert done.code == code
    assert done.said[0].startswith("recording ")
    run = place.folder / "runs/train"
    if "_exit" not in end and "SIGKILL" not in end:
        assert losses(run) == EXPECTED


def test_a_failing_training_ends_its_run(place):
    place.write("train.py", "import keras\nkeras.Model().fit('many')\n")
    plain, done = place.python("train.py"), place.run("train.py")
    assert done.code == plain.code == 1
    assert done.own_err.splitlines()[-1] == plain.err.splitlines()[-1]
    assert "nothing was recorded in runs/train" in done.said[-1]


def test_a_module_runs_as_with_python(place):
    place.write("package/__init__.py", "")
    place.write("package/train.py", FIT + "\nimport sys\nprint(sys.argv, __name__, __package__)")
    plain, done = place.python("-m", "package.train", "--lr", "1"), place.run("-m", "package.train", "--lr", "1")
    assert (done.code, done.out) == (plain.code, plain.out)
    assert losses(place.folder / "runs/train") == EXPECTED


def test_a_program_runs_with_its_python_children(place):
    place.write("train.py", FIT)
    place.write("start.py", f"import subprocess, sys\nsys.exit(subprocess.call([{sys.executable!r}, 'train.py']))")
    done = place.run(sys.executable, "-u", "start.py")
    assert (done.code, len(done.said)) == (0, 2)
    assert losses(place.folder / "runs/start") == EXPECTED


def test_children_that_multiprocessing_spawns_are_recorded(place):
    place.write(
        "train.py",
        "import multiprocessing\n"
        "def work(steps):\n    import keras\n    keras.Model().fit(steps)\n"
        "if __name__ == '__main__':\n"
        "    for steps in (2, 3):\n"
        "        child = multiprocessing.get_context('spawn').Process(target=work, args=(steps,))\n"
        "        child.start(); child.join(); print(child.exitcode)\n",
    )
    done = place.run("train.py")
    assert (done.code, done.out) == (0, "0\n0\n")
    assert [len(losses(place.folder / name)) for name in ("runs/train", "runs/train-2")] == [2, 3]
    assert [line.split(" ")[0] for line in done.said] == ["recording", "recorded"] * 2


def test_a_forked_child_records_nothing(place):
    place.write(
        "train.py",
        "import keras, os\nmodel = keras.Model()\n"
        "if os.fork() == 0:\n    print(model.fit(2), flush=True)\n    raise SystemExit(4)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\nmodel.fit(3)\n",
    )
    done = place.run("train.py")
    assert (done.code, done.out) == (0, "[1.0, 0.5]\n4\n")
    assert losses(place.folder / "runs/train") == EXPECTED
    assert len(done.said) == 2


def test_the_environments_own_sitecustomize_runs(place):
    place.write("own/sitecustomize.py", "import sys\nprint('own', __name__, __file__)\nMARK = 7\n")
    place.write("train.py", "import sitecustomize, sys\nprint(sitecustomize.MARK, sys.path)\n" + FIT)
    own = place.folder / "own"
    there = Place(place.folder, own, place.folder.parent / "packages")
    plain, done = there.python("train.py"), there.run("train.py")
    # It also runs in the process of the command, before that becomes the script.
    assert (done.code, done.out) == (plain.code, plain.out.splitlines(True)[0] + plain.out)
    assert "\n7 [" in done.out
    assert losses(place.folder / "runs/train") == EXPECTED


def test_a_failing_sitecustomize_is_reported_by_python(place):
    place.write("own/sitecustomize.py", "raise RuntimeError('of the environment')\n")
    place.write("train.py", FIT)
    there = Place(place.folder, place.folder / "own", place.folder.parent / "packages")
    plain, done = there.python("train.py"), there.run("train.py")
    assert (done.code, done.out) == (plain.code, plain.out)
    # Python reports it for the command smdwidgets as well.
    assert done.own_err == plain.err * 2
    assert losses(place.folder / "runs/train") == EXPECTED


@pytest.mark.slow
def test_several_trainings_have_a_directory_each(place):
    text = "import keras\nfor steps in (2, 3, 4):\n    keras.Model().fit(steps)\n"
    place.write("train.py", text)
    done = place.run("--out", "out", "train.py")
    assert [len(losses(place.folder / name)) for name in ("out", "out-2", "out-3")] == [2, 3, 4]
    assert len(done.said) == 6
    before = sorted(path for path in place.folder.rglob("*") if path.is_file())
    place.run("--out", "out", "train.py")
    assert [len(losses(place.folder / name)) for name in ("out-4", "out-5", "out-6")] == [2, 3, 4]
    assert all(path.exists() for path in before)


def test_fit_of_the_same_model_continues_its_run(place):
    place.write("train.py", "import keras\nmodel = keras.Model()\nmodel.fit(2)\nmodel.fit(3)\n")
    place.run("train.py")
    assert list(losses(place.folder / "runs/train")) == [0, 1, 2, 3, 4]
    assert not (place.folder / "runs/train-2").exists()


def test_a_script_with_a_hook_is_not_recorded_twice(place):
    place.write(
        "train.py",
        "import keras\nfrom smdwidgets.numpy import Hook, get_hook\nhook = Hook('own')\nprint(keras.Model().fit())\n"
        "assert get_hook() is hook\nhook.save_scalar('loss', 1.0)\nhook.step()\n",
    )
    done = place.run("train.py")
    assert done.code == 0
    assert done.said == ["nothing is recorded twice: the script has its own hook, which saves to own"]
    assert not (place.folder / "runs").exists()


def test_a_script_does_not_get_the_launchers_hook(place):
    place.write(
        "train.py",
        "import keras\nclass Look(keras.callbacks.Callback):\n"
        "    def on_train_begin(self):\n        from smdwidgets.keras import get_hook\n        print(get_hook())\n"
        "    def on_train_batch_begin(self, batch): pass\n"
        "    def on_train_batch_end(self, batch, logs): pass\n"
        "    def on_train_end(self): pass\n"
        "keras.Model().fit(callbacks=[Look()])\n",
    )
    assert place.run("train.py").out == "None\n"


def test_a_directory_that_cannot_be_written_leaves_the_script_running(place):
    place.write("train.py", FIT)
    place.write("file", "")
    done = place.run("--out", "file/run", "train.py")
    assert (done.code, done.out) == (0, "[1.0, 0.5, 0.3333333333333333]\n")
    assert len(done.said) == 1
    assert done.said[0].startswith("nothing is recorded from now on, and the script continues: ")


def test_a_framework_that_cannot_be_armed_leaves_the_script_running(place):
    place.write("torch.py", "VALUE = 3\n")
    place.write("train.py", "import torch\nprint(torch.VALUE)\n")
    done = place.run("train.py")
    assert (done.code, done.out, len(done.said)) == (0, "3\n", 1)


def test_a_framework_that_fails_to_import_fails_as_without(place):
    place.write("torch.py", "raise OSError('no library')\n")
    place.write("train.py", "try:\n    import torch\nexcept OSError as error:\n    print(error)\nimport torch\n")
    plain, done = place.python("train.py"), place.run("train.py")
    assert (done.code, done.out, done.own_err) == (plain.code, plain.out, plain.err)


def test_warnings_of_the_recording_are_not_on_stdout(place):
    place.write(
        "train.py",
        "import logging, sys\nlogging.basicConfig(stream=sys.stdout, level=0)\n" + FIT + "import os\n"
        "logging.getLogger('smdwidgets.hooks').warning('of a hook')\nlogging.warning('of the script')\n",
    )
    done = place.run("train.py")
    assert done.out == "[1.0, 0.5, 0.3333333333333333]\nWARNING:root:of the script\n"
    assert "of a hook" in done.said


def test_options_choose_what_is_recorded(place):
    place.write("train.py", FIT)
    done = place.run("--out", "out", "--what", "losses,weights", "--every", "50", "--budget", "1GB", "train.py")
    assert done.said[0] == "recording fake (1 parameters) to out: losses and weights within 1.0 GB"
    plan = json.loads((place.folder / "out/capture/worker_0/plan.jsonl").read_text().splitlines()[0])
    assert plan["plan"]["tensors"] == ["weights"]
    assert (plan["plan"]["every"], plan["plan"]["budget"]) == (50, 10**9)


def test_a_capture_plan_and_a_hook_configuration_are_read(place):
    place.write("train.py", FIT)
    place.write("plan.json", '{"budget": "5GB", "tensors": []}')
    assert place.run("--config", "plan.json", "train.py").said[0].endswith(": losses within 5.0 GB")
    place.write("hook.json", '{"LocalPath": "from-file", "HookParameters": {"save_interval": "2"}}')
    done = place.run("--config", "hook.json", "train.py")
    assert (
        done.said[0] == f"recording fake (1 parameters) to from-file: what {str(place.folder / 'hook.json')!r} selects"
    )
    assert list(losses(place.folder / "from-file")) == [0, 2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--evry", "5", "train.py"], "unknown option '--evry'. Did you mean '--every'?"),
        (["--every", "often", "train.py"], "invalid --every 'often'; give a number of steps such as 100"),
        (
            ["--what", "weights,tears", "train.py"],
            "invalid --what 'tears'; choose from losses, weights, gradients, activations",
        ),
        (["--budget", "big", "train.py"], "budget must be a number of bytes"),
        (["--checks=not_rest", "train.py"], "unknown check 'not_rest'. Did you mean 'not_reset'"),
        (["--config", "none.json", "train.py"], "cannot read --config 'none.json': No such file or directory"),
        (["--config", "none.yaml", "train.py"], "cannot read --config 'none.yaml': No such file or directory"),
        (["--every", "5", "--config", "hook.json", "train.py"], "cannot be combined with --every"),
        (["no_such.py"], "script 'no_such.py' does not exist"),
        (["no-such-program"], "'no-such-program' is neither a file nor a program on PATH"),
        ([], "no script was given"),
    ],
)
def test_invalid_options_are_errors_before_the_script_starts(place, words, message):
    place.write("train.py", "print('started')")
    place.write("hook.json", '{"HookParameters": {}}')
    done = place.run(*words)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""


def test_a_run_that_a_child_recorded_counts_as_recorded(place):
    place.write("train.py", FIT)
    place.write("start.py", f"import subprocess\nsubprocess.call([{sys.executable!r}, 'train.py'])")
    assert [line.split(" ")[0] for line in place.run("start.py").said] == ["recording", "recorded"]


@pytest.mark.skipif(os.name == "nt", reason="a process cannot be replaced")
def test_the_script_has_the_process_of_the_command(place):
    import subprocess

    place.write("train.py", "import os\nprint(os.getpid())\n")
    done = subprocess.Popen(
        [sys.executable, "-m", "smdwidgets", "run", "train.py"],
        cwd=place.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(place._path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = done.communicate(timeout=250)
    assert int(out) == done.pid
