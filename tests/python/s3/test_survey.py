"""Surveys of runs in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from python.survey import runs
from smdwidgets.survey import Survey
from smdwidgets.survey import survey as survey_module


def test_a_run_in_a_bucket_is_read_or_sampled(
    endpoint: str,
    bucket: str,
    upload: Callable[[Path, str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = runs.written(tmp_path / "run", runs.dead, steps=100)
    upload(root, bucket, "run")
    near = Survey(smdwidgets.create_trial(root))
    near.update()
    with smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        far = Survey(trial)
        far.update()
        assert far.reading.state == "complete"
        for stat in ("surprise", "update"):
            mine, its = (each.bins(near.names(), "", 0, stat, 0, 0, 100).hi for each in (far, near))
            np.testing.assert_allclose(mine, its, atol=1e-4)
        monkeypatch.setattr(survey_module, "SAMPLE_BYTES", 40_000)
        sample = Survey(trial)
        sample.update()
        assert sample.reading.state == "sampled"
        assert 0 < sample.reading.done < sample.reading.total


def test_a_query_on_a_run_in_a_bucket(
    endpoint: str, bucket: str, upload: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    root = runs.written(tmp_path / "run", runs.dead, steps=40)
    upload(root, bucket, "run")
    text = "layers | l2 | steps 10 .. 30 | top 3 by change | surprise != nan"
    near = smdwidgets.query(root, text)
    with smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        far = smdwidgets.query(trial, text)
    assert far.names == near.names
    assert len(far.names) == 3
    for key in near.columns[1:]:
        np.testing.assert_allclose(far[key], near[key], rtol=1e-6)
