"""Formats of other packages: registered, found by entry points, broken ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from smdwidgets.sources import Scalars, Source, formats, register, registry

FORMAT = """
import numpy as np
from smdwidgets.sources import Scalars, Source


class LossFile(Source):
    def __init__(self, tree, key):
        self.name, self.tree, self.version = key, tree, None

    def refresh(self):
        version = self.tree.version(self.name)
        changed, self.version = version != self.version, version
        return changed

    def scalars(self):
        losses = np.array(self.tree.read(self.name, 0, self.version[0]).split(), float)
        return {"loss": Scalars(np.arange(len(losses)), losses)}


class LossFiles:
    name = "loss file"

    def find(self, tree):
        return {key.rpartition("/")[0]: [key] for key in tree.named(".loss")}

    def open(self, tree, run, files):
        return LossFile(tree, files[0])
"""


@pytest.fixture
def run(tmp_path):
    """A directory with a file of an unknown format and a table."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a.loss").write_text("3\n2\n1\n")
    (folder / "metrics.csv").write_text("step,acc\n0,1\n")
    return folder


@pytest.fixture
def _restored(monkeypatch):
    formats()
    monkeypatch.setattr(registry, "_formats", dict(registry._formats))


def test_installed_package_adds_a_format(run, tmp_path):
    site = tmp_path / "site"
    about = site / "loss_files-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: loss-files\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[smdwidgets.sources]\nbroken = no_such_module:Format\nloss-file = loss_files:LossFiles\n"
    )
    (site / "loss_files.py").write_text(FORMAT)
    code = (
        "import sys, smdwidgets; trial = smdwidgets.create_trial(sys.argv[1]); "
        "print(trial.tensor_names(), trial.tensor('loss').value(1), trial.sources())"
    )
    package = str(Path(smdwidgets.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), package])}
    done = subprocess.run([sys.executable, "-c", code, run], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "['acc', 'loss'] 2.0 ['metrics.csv', 'a.loss']\n", done.stderr
    assert "cannot load the format no_such_module:Format: ModuleNotFoundError" in done.stderr


class Faulty(Source):
    """Fails where it is asked to."""

    def __init__(self, fails):
        self.name, self.fails = "a.loss", fails

    def refresh(self):
        if self.fails == "refresh":
            raise ZeroDivisionError("no rows")
        return True

    def scalars(self):
        return {"loss": Scalars(np.arange(2), np.ones(2))}


class FaultyFiles:
    """A format that fails where it is asked to."""

    name = "faulty"

    def __init__(self, fails):
        self.fails = fails

    def find(self, tree):
        if self.fails == "find":
            raise ZeroDivisionError("no files")
        return {"": tree.named(".loss")}

    def open(self, tree, run, files):
        if self.fails == "open":
            raise ZeroDivisionError("no file")
        return Faulty(self.fails)


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("fails", ["", "find", "open", "refresh"])
def test_broken_format_does_not_affect_the_others(run, fails, caplog):
    register(FaultyFiles(fails))
    trial = smdwidgets.create_trial(run)
    assert trial.tensor("acc").value(0) == 1
    assert trial.has_tensor("loss") == (fails in ("", "refresh"))
    messages = [message for _, message in trial.problems()]
    if fails in ("open", "refresh"):
        assert ["ZeroDivisionError: no" in message for message in messages] == [True]
    elif fails == "find":
        assert "the format faulty failed" in caplog.text


def test_built_in_formats():
    assert {"table", "trainer state", "mlflow files", "mlflow database", "safetensors", "torch checkpoint"} <= {
        one.name for one in formats()
    }
