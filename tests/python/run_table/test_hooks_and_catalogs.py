"""Hooks that add their runs to a catalog when they end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import smdwidgets
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.numpy import Hook
from smdwidgets.run_table import update_catalog
from smdwidgets.run_table.catalog import add_run
from smdwidgets.run_table.catalog_file import CatalogFile
from smdwidgets.sources.parquet import CATALOG

parquet = pytest.importorskip("pyarrow.parquet")


def train(run: Path, steps: int = 3, **options: Any) -> None:
    with Hook(run, **options) as hook:
        for step in range(steps):
            hook.save_scalar("loss", 1 / (step + 1))
            hook.step()


def rows(root: Path) -> dict[str, dict[str, Any]]:
    return {row["run"]: row for row in parquet.read_table(root / CATALOG).to_pylist()}


def test_a_run_is_added_when_it_ends(tmp_path: Path) -> None:
    train(tmp_path / "before")
    train(tmp_path / "a" / "one", catalog=tmp_path)
    assert set(rows(tmp_path)) == {"before", "a/one"}
    train(tmp_path / "two", steps=5, catalog=str(tmp_path))
    added = rows(tmp_path)["two"]
    assert (added["state"], added["steps"], added["diagnosed"]) == ("ended", 5, False)
    assert [(curve["name"], curve["last"]) for curve in added["curves"]] == [("scalar/loss", pytest.approx(0.2))]
    table = smdwidgets.runs(tmp_path, cache=False)
    assert table.as_of
    assert [row.name for row in table] == ["a/one", "before", "two"]
    assert table[2].open().tensor("scalar/loss").value(1) == 0.5
    # An update reads no run again, but diagnoses those that a hook added.
    assert update_catalog(tmp_path, findings=False).changed == ()
    assert len(update_catalog(tmp_path).changed) == 3
    train(tmp_path / "two", steps=7, catalog=tmp_path, overwrite=True)
    assert rows(tmp_path)["two"]["steps"] == 7


def test_the_environment_names_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDWIDGETS_CATALOG", str(tmp_path))
    train(tmp_path / "run")
    assert set(rows(tmp_path)) == {"run"}


def test_hooks_that_end_at_the_same_time(tmp_path: Path) -> None:
    for number in range(8):
        train(tmp_path / str(number))
    update_catalog(tmp_path / "0", findings=False)
    (tmp_path / "0" / CATALOG).rename(tmp_path / CATALOG)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add_run(tmp_path, str(tmp_path / str(number))), range(8)))
    assert {str(number) for number in range(8)} <= set(rows(tmp_path))


def test_a_killed_program_locks_no_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "run", catalog=tmp_path)
    Path(f"{CatalogFile(str(tmp_path), {}).place}.lock").touch()
    monkeypatch.setattr("smdwidgets.run_table.catalog_file._STALE", -1.0)
    train(tmp_path / "other", catalog=tmp_path)
    assert set(rows(tmp_path)) == {"run", "other"}


@pytest.mark.parametrize("fault", ["elsewhere", "a file", "damaged"])
def test_a_catalog_that_cannot_be_written_harms_no_training(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = tmp_path / "elsewhere" if fault == "elsewhere" else tmp_path
    if fault == "a file":
        (tmp_path / "file").write_text("")
        catalog = tmp_path / "file"
    if fault == "damaged":
        (tmp_path / CATALOG).write_bytes(b"PAR1")
    train(tmp_path / "run", catalog=catalog)
    with smdwidgets.create_trial(tmp_path / "run") as trial:
        assert trial.run_end().how == "completed"
        assert len(trial.steps()) == 3


@pytest.mark.parametrize(
    ("root", "run"),
    [("runs", "runs2/one"), ("runs", "other"), ("runs", "runs"), ("s3://team/runs", "s3://team/runs2/one")],
)
def test_a_run_elsewhere_is_named(tmp_path: Path, root: str, run: str) -> None:
    root, run = (one if "://" in one else str(tmp_path / one) for one in (root, run))
    with pytest.raises(SMDebugValueError, match="is not below"):
        add_run(root, run)
