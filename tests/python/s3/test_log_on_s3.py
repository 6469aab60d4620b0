"""A TensorBoard log in a bucket is a trial, and reads on where the object has grown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import smdwidgets
from python.logs.logs import scalars, writer
from smdwidgets import modes
from smdwidgets.trials import TensorBoardTrial


def test_a_log_in_a_bucket(
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
