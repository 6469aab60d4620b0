"""A TensorBoard log in a bucket is a trial that continues to read grown objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import smdwidgets
from python.logs.logs import scalars, writer
from smdwidgets import modes
from smdwidgets.exceptions import SeveralRuns
from smdwidgets.trials import TensorBoardTrial


def test_log_in_a_bucket(
    tmp_path: Path, bucket: str, raw: Any, upload: Callable[[Path, str, str], None], endpoint: str
) -> None:
    with writer(tmp_path / "mine" / "train") as log:
        log.add_histogram("weights", [1.0, 2.0, 3.0], 1)
    [file] = (tmp_path / "mine" / "train").iterdir()
    file.write_bytes(file.read_bytes() + scalars({"loss": [3, 2, 1]}))
    upload(tmp_path / "mine", bucket, "logs/mine")
    with smdwidgets.create_trial(f"s3://{bucket}/logs", endpoint_url=endpoint, live=True) as trial:
        assert isinstance(trial, TensorBoardTrial)
        assert trial.tensor("weights").value(1, modes.TRAIN)[:, 2].sum() == 3
        loss = trial.tensor("loss")
        assert loss.steps(modes.TRAIN) == [0, 1, 2]
        file.write_bytes(file.read_bytes() + scalars({"loss": [0.5]}, first=3))
        upload(tmp_path / "mine", bucket, "logs/mine")
        assert loss.steps(modes.TRAIN) == [0, 1, 2, 3]
        assert loss.value(3, modes.TRAIN).item() == 0.5
        assert trial.problems() == []


def test_runs_below_a_prefix_and_the_cache(
    tmp_path: Path, bucket: str, raw: Any, upload: Callable[[Path, str, str], None], endpoint: str
) -> None:
    for at, name in enumerate(("a", "b/deep")):
        (tmp_path / "logs" / name).mkdir(parents=True)
        content = scalars({"loss": [float(at + step) for step in range(30_000)]})
        (tmp_path / "logs" / name / "events.out.tfevents.1.host").write_bytes(content)
    upload(tmp_path / "logs", bucket, "many")
    url = f"s3://{bucket}/many"
    with pytest.raises(SeveralRuns, match="2 runs"):
        smdwidgets.create_trial(url, endpoint_url=endpoint)
    for expected in (0, len(content)):
        trials = smdwidgets.create_trials(url, endpoint_url=endpoint, cache=tmp_path / "kept")
        assert list(trials) == ["a", "b/deep"]
        for at, trial in enumerate(trials.values()):
            assert isinstance(trial, TensorBoardTrial)
            assert trial.tensor("loss").value(29_999).item() == at + 29_999
            assert (trial.reader.run.log.cached_bytes() > 0) == (expected > 0)
        for trial in trials.values():
            trial.close()


def test_mode_that_appears_later_in_a_bucket(
    tmp_path: Path, bucket: str, raw: Any, upload: Callable[[Path, str, str], None], endpoint: str
) -> None:
    def write(mode: str) -> None:
        (tmp_path / mode).mkdir()
        (tmp_path / mode / "events.out.tfevents.1.host").write_bytes(scalars({"loss": [2, 1]}))
        upload(tmp_path, bucket, "keras")

    write("train")
    with smdwidgets.create_trial(f"s3://{bucket}/keras", endpoint_url=endpoint, live=True) as trial:
        assert trial.modes() == [modes.TRAIN]
        write("validation")
        assert trial.steps(modes.EVAL) == [0, 1]
        assert trial.modes() == [modes.TRAIN, modes.EVAL]
