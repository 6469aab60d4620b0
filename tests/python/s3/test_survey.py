"""Surveys of runs in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.survey import runs, test_stored
from smdwidgets.storage.remote import RemoteStorage
from smdwidgets.survey import Survey
from smdwidgets.survey import survey as survey_module
from smdwidgets.trials.smdebug import pyramids
from smdwidgets.widgets import survey_packets
from smdwidgets.widgets.survey_packets import Colour, Window


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


def test_a_map_of_stored_cells_in_a_bucket_takes_few_requests(
    endpoint: str,
    bucket: str,
    upload: Callable[[Path, str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, tensors = tmp_path / "run", 600
    test_stored.written(root, steps=200, tensors=tensors)
    for begin in range(200, 600, 50):  # each with another segment
        test_stored.append(root, range(begin, begin + 50), tensors, [])
    monkeypatch.setattr(pyramids, "FEWEST_ROWS", 1000)
    assert smdwidgets.compact(root).pyramids > 0
    upload(root, bucket, "run")
    asked: list[str] = []
    fetch = RemoteStorage._fetch_now

    def noted(storage: RemoteStorage, places: Any) -> Any:
        asked.extend(place.key.rpartition("/")[2] for place in places)
        return fetch(storage, places)

    monkeypatch.setattr(RemoteStorage, "_fetch_now", noted)
    near = test_stored.surveyed(root)
    with smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        far = Survey(trial)
        far.update()
        assert far.table.has_stored
        # The header, the directory, and all else; and no names, which the pyramid has.
        assert asked.count("survey.pyramid") == 3
        assert not [key for key in asked if key.endswith(".names.jsonl")]
        numbered = {name: at for at, name in enumerate(near.names())}
        window = survey_packets.poster_window(near, numbered)
        assert window is not None

        def packets(survey: Survey, stat: str, window: Window) -> list[bytes]:
            colour = Colour(stat=stat)
            return [
                survey_packets.poster(0, survey, colour, window, {}, append=False),
                *survey_packets.detail(0, survey, colour, window, {}, append=True),
            ]

        # In many parts, as all members of folded modules: counts and the measure, of the last steps and those before.
        monkeypatch.setattr(survey_packets, "LARGEST", 1 << 17)
        for stat in ("surprise", "update", "growth"):
            asked.clear()
            expected = packets(near, stat, window)
            assert len(expected) > 10
            assert packets(far, stat, window) == expected
            assert len(asked) <= 4, asked
        # What is near in steps and rows was read.
        asked.clear()
        some = Window(dict(list(numbered.items())[:40]), near.level, 0, 100)
        assert packets(far, "update", some) == packets(near, "update", some)
        assert len(asked) <= 2
        asked.clear()
        assert packets(far, "update", some) == packets(near, "update", some)
        assert not asked, "what was read is known"
