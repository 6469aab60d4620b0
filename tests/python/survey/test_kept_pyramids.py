"""Large statistics of a run that has ended get a pyramid in the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

import smdwidgets
from python.survey.test_stored import STEPS, TENSORS, append, surveyed, written
from smdwidgets.survey import Survey
from smdwidgets.trials.statistics import feed, kept_pyramids


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(feed, "FEWEST_ROWS", 1000)
    monkeypatch.setattr(kept_pyramids, "user_cache", lambda name: tmp_path / name)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    written(tmp_path / "run")
    return tmp_path / "run"


def kept(run: Path) -> list[Path]:
    return sorted((run.parent / "pyramids").rglob("survey.pyramid"))


def test_it_is_built_once_and_shows_what_all_rows_show(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "FEWEST_ROWS", 10**9)
    rows = surveyed(run)
    assert not rows.table.has_stored
    assert kept(run) == []
    monkeypatch.setattr(feed, "FEWEST_ROWS", 1000)
    first = surveyed(run)
    [file] = kept(run)
    modified = file.stat().st_mtime_ns
    again = surveyed(run)
    assert file.stat().st_mtime_ns == modified
    assert not list(run.rglob("*.pyramid"))  # the run stays as it is
    for survey in (first, again):
        assert survey.table.has_stored
        assert survey.sentence(survey.findings()) == rows.sentence(rows.findings())


def test_what_is_kept_is_read_at_once(run: Path) -> None:
    survey = Survey(smdwidgets.create_trial(run))
    survey.read_stored(1000)
    assert not survey.collected  # its rows are many
    survey.update()
    opened = Survey(smdwidgets.create_trial(run))
    opened.read_stored(1000)
    assert opened.collected
    assert len(opened.table) == STEPS * TENSORS


def test_a_run_that_grows_is_compared_row_by_row(run: Path) -> None:
    (run / "training_job_end.ts").unlink()
    assert not surveyed(run).table.has_stored
    assert kept(run) == []


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_one_that_is_damaged_or_of_another_run_is_made_again(run: Path, damage: str) -> None:
    surveyed(run)
    [file] = kept(run)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        for each in (run / "statistics/worker_0").iterdir():
            each.unlink()
        append(run, range(STEPS // 2), TENSORS, [])
    survey = surveyed(run)
    assert survey.table.has_stored
    assert len(survey.table) == (STEPS if damage == "cut" else STEPS // 2) * TENSORS


def test_without_room_for_it_rows_are_read(run: Path) -> None:
    (run.parent / "pyramids").write_text("a file in the place of the directory")
    survey = surveyed(run)
    assert not survey.table.has_stored
    assert len(survey.table) == STEPS * TENSORS


def test_reading_can_be_stopped_while_it_is_built(run: Path) -> None:
    survey = Survey(smdwidgets.create_trial(run))
    survey.stop()
    survey.update()
    assert survey.reading.state == "stopped"
    assert kept(run) == []
    survey.read_all()
    survey.update()
    assert survey.reading.state == "complete"
    assert survey.table.has_stored
