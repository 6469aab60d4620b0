"""`smdwidgets env`: SMDWIDGETS_HOOK records the trainings of an environment."""

from __future__ import annotations

import os
import shutil
import sysconfig
import venv
from pathlib import Path

import pytest

from python.launch.launching import FAKES, Place
from smdwidgets import create_trial

pytestmark = pytest.mark.slow

FIT = "import keras\nprint(keras.Model().fit())\n"
LOOK = "import sys\nprint([name for name in sys.modules if 'smdwidgets' in name], len(sys.meta_path))\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with the packages of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=os.name != "nt", with_pip=False)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


@pytest.fixture
def place(tmp_path, environment):
    """A directory with the fake framework; `place.own` runs the environment's Python."""
    packages = tmp_path / "packages"
    packages.mkdir()
    shutil.copy(FAKES / "fake_keras.py", packages / "keras.py")
    folder = tmp_path / "here"
    folder.mkdir()
    found = Place(folder, packages, Path(sysconfig.get_path("purelib")))
    found.own = lambda *words, **env: found.command(environment, *words, env=env)
    yield found
    found.own("-m", "smdwidgets", "env", "uninstall")


def test_nothing_is_installed_by_default(place):
    assert place.own("-m", "smdwidgets", "env", "status").out == "not installed\n"
    place.write("train.py", FIT)
    assert place.own("train.py", SMDWIDGETS_HOOK="out").said == []
    assert not (place.folder / "out").exists()


def test_the_variable_records_after_install_and_not_after_uninstall(place, environment):
    installed = place.own("-m", "smdwidgets", "env", "install")
    assert installed.code == 0
    file = Path(installed.out.removeprefix("wrote ").strip())
    assert file.is_file()
    assert environment.parents[1] in file.parents
    assert place.own("-m", "smdwidgets", "env", "status").out == f"installed: {file}\n"

    place.write("train.py", FIT)
    done = place.own("train.py", SMDWIDGETS_HOOK="out", SMDWIDGETS_EVERY="2")
    assert (done.code, done.out) == (0, "[1.0, 0.5, 0.3333333333333333]\n")
    assert done.said[0].startswith("recording fake (1 parameters) to out: ")
    with create_trial(place.folder / "out") as trial:
        assert trial.steps() == [0, 1, 2]

    assert place.own("-m", "smdwidgets", "env", "uninstall").out == f"removed {file}\n"
    assert not file.exists()
    assert place.own("train.py", SMDWIDGETS_HOOK="again").said == []
    assert place.own("-m", "smdwidgets", "env", "uninstall").out == f"{file} does not exist\n"


def test_without_the_variable_nothing_changes(place):
    place.write("look.py", LOOK)
    before = place.own("look.py")
    place.own("-m", "smdwidgets", "env", "install")
    assert place.own("look.py") == before


def test_a_process_without_a_framework_prints_no_line(place):
    place.own("-m", "smdwidgets", "env", "install")
    done = place.own("-c", "print(1)", SMDWIDGETS_HOOK="out")
    assert (done.code, done.out, done.err) == (0, "1\n", "")
    place.write("train.py", "import keras\n")
    [said] = place.own("train.py", SMDWIDGETS_HOOK="out").said
    assert said.startswith("nothing was recorded: keras was imported, but no training was seen")


def test_run_and_the_variable_together_record_once(place):
    place.own("-m", "smdwidgets", "env", "install")
    place.write("train.py", FIT)
    done = place.own("-m", "smdwidgets", "run", "train.py")
    assert [line.split(" ")[0] for line in done.said] == ["recording", "recorded"], done.err
    assert sorted(path.name for path in (place.folder / "runs").iterdir()) == ["train"]


def test_invalid_variables_leave_the_script_running(place):
    place.own("-m", "smdwidgets", "env", "install")
    place.write("train.py", FIT)
    done = place.own("train.py", SMDWIDGETS_HOOK="out", SMDWIDGETS_EVERY="often")
    assert (done.code, done.out) == (0, "[1.0, 0.5, 0.3333333333333333]\n")
    assert done.said == [
        "nothing is recorded from now on, and the script continues: invalid --every 'often'; give a number of steps such as 100"
    ]


def test_the_file_outlives_the_package(place):
    file = Path(place.own("-m", "smdwidgets", "env", "install").out.removeprefix("wrote ").strip())
    file.write_text(file.read_text().replace("bootstrap", "removed"))
    done = place.own("-c", "print(1)", SMDWIDGETS_HOOK="out")
    assert (done.code, done.out, done.err) == (0, "1\n", "")


def test_an_environment_that_cannot_be_written_is_an_error(place, environment):
    if os.name == "nt" or os.geteuid() == 0:
        folder = environment.parents[1] / "lib"
        path = next(folder.glob("python*")) / "site-packages" / "smdwidgets_hook.pth"
        path.mkdir()  # a directory in its place
        try:
            done = place.own("-m", "smdwidgets", "env", "install")
        finally:
            path.rmdir()
    else:
        folder = next((environment.parents[1] / "lib").glob("python*")) / "site-packages"
        folder.chmod(0o500)
        try:
            done = place.own("-m", "smdwidgets", "env", "install")
        finally:
            folder.chmod(0o700)
    assert done.code == 2
    assert done.err.startswith("error: ")
