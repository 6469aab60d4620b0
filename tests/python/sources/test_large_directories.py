"""A directory with many other files costs one listing: none of them is opened."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import smdwidgets
from smdwidgets import cli


@pytest.fixture(params=["metrics.csv", "events.out.tfevents.1.host"])
def crowd(request: pytest.FixtureRequest, tmp_path: Path, source_runs: Path) -> Path:
    """A run among images."""
    if request.param.endswith(".csv"):
        (tmp_path / request.param).write_text("step,loss\n0,1\n1,2\n")
    else:
        with smdwidgets.create_trial(source_runs / "keras") as trial:
            assert trial.steps()
        cli.main(["export", str(source_runs / "keras"), "--to", "tensorboard", "-o", str(tmp_path / "log")])
    return tmp_path


def counting(plain: Any, name: str, folder: Path, counted: Counter[str]) -> Any:
    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        if str(folder) in str(path):
            counted[name] += 1
        return plain(path, *arguments, **options)

    return call


def calls(monkeypatch: pytest.MonkeyPatch, folder: Path, images: int) -> Counter[str]:
    """Return the calls on files of this directory, after images were added."""
    for number in range(images):
        (folder / f"image_{number:05d}.png").write_bytes(b"")
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (1e9, 1e9))  # a directory that was just written is listed again
    counted: Counter[str] = Counter()
    with monkeypatch.context() as patched:
        for name in ("stat", "lstat", "open", "scandir", "listdir"):
            patched.setattr(os, name, counting(getattr(os, name), name, folder, counted))
        trial = smdwidgets.create_trial(folder)
        assert trial.steps()
        trial.close()
        assert len(smdwidgets.runs(folder, cache=False)) == 1
        assert cli.main(["verify", str(folder)]) == 0
    return counted


def test_other_files_are_listed_only(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = calls(monkeypatch, crowd, 3)
    many = calls(monkeypatch, crowd, 2000)
    assert few["scandir"]
    assert many == few
