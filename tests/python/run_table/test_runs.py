"""The table of runs: content, sorting, filters, groups, index in the cache."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pandas
import pytest

import smdwidgets
from python.logs.logs import event, field, log, scalars, value
from smdwidgets import cli
from smdwidgets.exceptions import RunNotFound, SMDebugValueError
from smdwidgets.numpy import Hook
from smdwidgets.run_table import RunIndex, discovery, runs
from smdwidgets.trials import Trial


def hparams(**given: Any) -> bytes:
    """A record with hyperparameters, as TensorBoard's plugin writes it."""

    def one(found: Any) -> bytes:
        if isinstance(found, str):
            return field(3, found)
        return b"\x20\x01" if found is True else b"\x11" + struct.pack("<d", found)

    pairs = b"".join(field(1, field(1, key) + field(2, one(found))) for key, found in given.items())
    return event(value("_hparams_/session_start_info", b"", plugin="hparams", plugin_content=field(3, pairs)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write six runs: two learning rates with three seeds.

    The losses fall to lr + seed / 100.
    """
    root = tmp_path / "logs"
    for lr in (0.1, 0.01):
        for seed in range(3):
            losses = [3.0, math.nan, 1.0, lr + seed / 100]
            content = hparams(lr=lr, name="adam", amp=True) + scalars({"loss": losses, "val/acc": [0.1, 0.9, 0.5, 0.4]})
            log(root / f"lr_{lr}" / f"seed_{seed}", content)
    return root


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "runs.sqlite"


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the names of runs are added that are opened from now on."""
    names: list[str] = []
    plain = discovery.FoundRun.__getattribute__

    def spy(self: Any, name: str) -> Any:
        if name == "open":
            names.append(plain(self, "name"))
        return plain(self, name)

    monkeypatch.setattr(discovery.FoundRun, "__getattribute__", spy)
    return names


def test_columns_and_values(root: Path, cache: Path) -> None:
    table = runs(root, cache=cache)
    assert [row.name for row in table] == [f"lr_{lr}/seed_{seed}" for lr in ("0.01", "0.1") for seed in range(3)]
    assert table.tags == ["loss", "val/acc"]
    assert table.columns == [
        "name", "kind", "state", "steps", "started", "duration", "loss", "val/acc", "hparams.lr", "hparams.amp", "hparams.name",
    ]  # fmt: skip
    row = table["lr_0.1/seed_2"]
    assert (row["kind"], row["steps"], row["started"], row["duration"]) == ("TensorBoard", 4, 100.0, 3.0)
    assert row["loss"] == pytest.approx(0.12)
    assert (row.statistic("loss", "first"), row.statistic("loss", "max"), row.statistic("loss", "count")) == (3, 3, 4)
    assert row.statistic("loss", "best") == row.statistic("loss", "min") == pytest.approx(0.12)
    assert row.statistic("val/acc", "best") == pytest.approx(0.9)
    assert row.hparams == {"lr": 0.1, "name": "adam", "amp": True}
    assert len(row.curve("loss")) == 3
    with row.open() as trial:
        assert isinstance(trial, Trial)
        assert trial.tensor("loss").steps() == [0, 1, 2, 3]


def test_sort_filter_and_slices(root: Path) -> None:
    table = runs(root, cache=False)
    ordered = table.sort("min(loss)")
    assert [row.name for row in ordered][:2] == ["lr_0.01/seed_0", "lr_0.01/seed_1"]
    assert [row.name for row in table.sort("min(loss)", descending=True)] == [row.name for row in ordered][::-1]
    assert len(table.filter("hparams.lr < 0.05 and loss < 0.025")) == 2
    assert len(table.filter("lr == 0.1 and name ~ /seed_[12]/")) == 2
    assert len(table[1:3]) == 2
    with pytest.raises(SMDebugValueError, match="Did you mean 'loss'"):
        table.sort("losss")
    with pytest.raises(KeyError, match="lr_0"):
        table["lr_0.1/seed_9"]


def test_runs_without_a_value_come_last(root: Path) -> None:
    log(root / "other", scalars({"reward": [1.0]}))
    for descending in (False, True):
        assert [row.name for row in runs(root, cache=False).sort("loss", descending)][-1] == "other"


def test_groups_have_mean_and_deviation(root: Path) -> None:
    table = runs(root, cache=False)
    for groups in (
        table.group(),
        table.group("hparams.lr"),
        table.group(pattern=r"/seed_\d+"),
        table.group(pattern=r"lr_(?P<lr>[0-9.]+)"),
    ):
        assert len(groups) == 2
        group = groups[0]
        assert len(group.runs) == 3
        assert group.numbers["loss"].mean == pytest.approx(0.02)
        assert group.numbers["loss"].std == pytest.approx(0.01)
        assert "0.02 ± 0.01" in repr(groups)
        assert "0.02 ± 0.01" in groups._repr_html_()
        frame = groups.to_pandas()
        assert frame["loss.std"].tolist() == pytest.approx([0.01, 0.01])
    assert table.group(pattern=r"lr_(?P<lr>[0-9.]+)").names == ["lr"]
    assert table.group(pattern=r"/seed_\d+")[0].key == ("lr_0.01*",)
    with pytest.raises(SMDebugValueError, match="pattern"):
        table[:1].group()  # no hyperparameter differs


def test_pandas_and_reprs(root: Path) -> None:
    log(root / "<b>evil</b>", scalars({"loss": [1.0, 2.0]}))
    table = smdwidgets.runs(root, tags=["min(loss)", "val/acc"], cache=False)
    frame = table.to_pandas()
    assert frame.loc["lr_0.1/seed_0", "min(loss)"] == pytest.approx(0.1)
    assert frame.loc["lr_0.1/seed_0", "duration"] == pandas.Timedelta(seconds=3)
    assert pandas.isna(frame.loc["<b>evil</b>", "val/acc"])
    assert repr(table).startswith("7 runs in ")
    page = table._repr_html_()
    assert "<b>evil" not in page
    assert "&lt;b&gt;evil" in page
    assert "<svg" in smdwidgets.runs(root, cache=False)._repr_html_()


def test_only_changed_runs_are_read_again(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = runs(root, cache=cache)
    names = opened(monkeypatch)
    again = runs(root, cache=cache)
    assert names == []
    assert [dict(row) for row in again] == [dict(row) for row in before]
    log(root / "lr_0.1" / "seed_1", scalars({"loss": [0.5]}, first=4))
    log(root / "new", scalars({"loss": [0.5]}))
    changed = runs(root, cache=cache)
    assert sorted(names) == ["lr_0.1/seed_1", "new"]
    assert changed["lr_0.1/seed_1"]["loss"] == 0.5
    del names[:]
    os.utime(next((root / "new").iterdir()), (1, 1))
    runs(root, cache=cache)
    assert names == ["new"]


def test_a_restarted_layout_is_read_again(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(root, cache=cache)
    names = opened(monkeypatch)
    log(root / "lr_0.1" / "seed_1" / "validation", scalars({"loss": [0.7]}))
    assert runs(root, cache=cache)["lr_0.1/seed_1"].statistic("validation/loss") == pytest.approx(0.7)
    assert names == ["lr_0.1/seed_1"]


@pytest.mark.parametrize("damage", ["text", "truncated", "not json", "wrong json", "directory", "other table"])
def test_a_damaged_cache_is_no_error(damage: str, root: Path, cache: Path) -> None:
    expected = [dict(row) for row in runs(root, cache=cache)]
    if damage == "text":
        cache.write_text("this is no database, but long enough to look like one" * 100)
    elif damage == "truncated":
        cache.write_bytes(cache.read_bytes()[:5000])
    elif damage == "directory":
        cache.unlink()
        cache.mkdir()
    else:
        with sqlite3.connect(cache) as database:
            if damage == "other table":
                database.execute("DROP TABLE runs")
                database.execute("CREATE TABLE runs (a, b)")
            else:
                text = "{" if damage == "not json" else json.dumps({"tags": {"loss": 3}, "hparams": []})
                database.execute("UPDATE runs SET summary = ?", (text,))
        database.close()
    assert [dict(row) for row in runs(root, cache=cache)] == expected
    assert [dict(row) for row in runs(root, cache=cache)] == expected


def test_a_locked_or_read_only_cache_is_no_error(root: Path, cache: Path, tmp_path: Path) -> None:
    expected = [dict(row) for row in runs(root, cache=cache)]
    database = sqlite3.connect(cache, isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    log(root / "new", scalars({"loss": [0.5]}))
    assert len(runs(root, cache=cache)) == len(expected) + 1
    database.execute("ROLLBACK")
    database.close()
    (tmp_path / "file").write_text("")
    assert len(runs(root, cache=tmp_path / "file" / "runs.sqlite")) == len(expected) + 1


def test_entries_of_other_versions_are_ignored(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(root, cache=cache)
    with sqlite3.connect(cache) as database:
        database.execute("UPDATE runs SET version = -1")
    database.close()
    assert RunIndex(cache).read(str(root)) == {}
    names = opened(monkeypatch)
    runs(root, cache=cache)
    assert len(names) == 6


def test_findings_are_requested_and_kept(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(root, cache=cache)
    bad = [1.0] * 30
    bad[20:] = [math.nan] * 10
    log(root / "bad", scalars({"loss": bad}))
    table = runs(root, findings=True, cache=cache)
    assert "findings" in table.columns
    [found] = [row for row in table if row.name == "bad"]
    assert found["findings"] >= 1
    assert found.findings is not None
    assert "NaN" in found.findings[0]
    names = opened(monkeypatch)
    assert runs(root, findings=True, cache=cache)["bad"].findings == found.findings
    assert names == []


def test_runs_of_hooks(tmp_path: Path, cache: Path) -> None:
    for number in range(2):
        with Hook(tmp_path / "root" / f"run_{number}") as hook:
            for step in range(5):
                hook.save_scalar("loss", 1.0 / (step + 1 + number))
                hook.step()
    log(tmp_path / "root" / "log", scalars({"loss": [0.5]}))
    table = runs(tmp_path / "root", cache=cache)
    assert [(row.name, row["kind"]) for row in table] == [
        ("log", "TensorBoard"), ("run_0", "smdebug"), ("run_1", "smdebug"),
    ]  # fmt: skip
    assert table["run_0"]["state"] == "ended"
    assert table["run_0"].statistic("scalar/loss", "first") == 1.0
    with table["run_0"].open() as trial:
        assert trial.has_tensor("scalar/loss")
    assert [row.name for row in runs(tmp_path / "root" / "run_0", cache=False)] == ["run_0"]


def test_runs_of_other_formats(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"run_{number}").mkdir()
        rows = "".join(f"{step},{1 / (step + 1 + number)}\n" for step in range(20))
        (tmp_path / f"run_{number}" / "metrics.csv").write_text("step,loss\n" + rows)
    log(tmp_path / "run_1", scalars({"val/acc": [0.5, 0.6]}))
    log(tmp_path / "log", scalars({"loss": [1.0]}))
    table = runs(tmp_path, cache=cache)
    assert [row.name for row in table] == ["log", "run_0", "run_1", "run_2"]
    assert table["run_1"]["kind"].endswith(", TensorBoard")
    assert table["run_1"].statistic("val/acc") == pytest.approx(0.6)
    assert table["run_2"].statistic("loss", "count") == 20
    names = opened(monkeypatch)
    runs(tmp_path, cache=cache)
    assert names == []
    (tmp_path / "run_0" / "metrics.csv").write_text("step,loss\n0,7\n")
    assert runs(tmp_path, cache=cache)["run_0"]["loss"] == 7
    assert names == ["run_0"]


def test_event_files_beside_a_table_are_part_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n0,1\n")
    log(tmp_path, scalars({"val/acc": [0.5]}))
    [row] = runs(tmp_path, cache=False)
    assert row["kind"] == "table, TensorBoard"


def test_a_directory_without_runs_and_a_missing_one(tmp_path: Path) -> None:
    table = runs(tmp_path, cache=False)
    assert len(table) == 0
    assert "0 runs" in repr(table)
    assert "0 runs" in table._repr_html_()
    with pytest.raises(RunNotFound):
        runs(tmp_path / "missing")


def test_an_unreadable_run_is_a_row(root: Path, cache: Path) -> None:
    (root / "broken" / "index" / "000000000").mkdir(parents=True)
    (root / "broken" / "collections").write_text("no directory")
    row = runs(root, cache=cache)["broken"]
    assert row["state"] in ("unreadable", "running")
    assert row["loss" if "loss" in row else "state"] is not None


def test_progress_is_reported(root: Path) -> None:
    calls: list[tuple[int, int]] = []
    runs(root, cache=False, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(number, 6) for number in range(1, 7)]


def test_command(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "home"))
    assert cli.main(["runs", str(root), "--sort", "min(loss)", "--limit", "2"]) == 0
    assert "lr_0.01/seed_0" in capsys.readouterr().out
    assert (tmp_path / "home" / "smdwidgets" / "runs.sqlite").exists()
    assert cli.main(["runs", str(root), "--filter", "lr > 0.05", "--json", "--tags", "min(loss)"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["hparams.lr"] for row in found] == [0.1] * 3
    assert cli.main(["runs", str(root), "--csv", "--group", "hparams.lr"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("hparams.lr,runs,steps,steps.std")
    assert len(lines) == 3
    assert cli.main(["runs", str(root), "--filter", "lr >"]) == 2
    assert "Expected a value after '>'" in capsys.readouterr().err
