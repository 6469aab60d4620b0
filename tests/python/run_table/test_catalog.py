"""The catalog of runs: its file, its updates, and `runs` with it."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.exceptions import CorruptDataError, RunNotFound, SMDebugValueError
from smdwidgets.run_table import catalog, runs, update_catalog
from smdwidgets.run_table.catalog_file import CatalogChanged, CatalogFile
from smdwidgets.sources.arrow import MissingPyarrow
from smdwidgets.sources.parquet import CATALOG


def table(folder: Path, losses: list[float], **settings: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{step},{loss}\n" for step, loss in enumerate(losses))
    (folder / "metrics.csv").write_text(f"step,loss\n{rows}")
    if settings:
        (folder / "hparams.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    table(tmp_path / "runs" / "good", [1 / (step + 1) for step in range(30)], lr=0.1, git_commit="1a2b3c", owner="ann")
    table(tmp_path / "runs" / "bad", [1.0] * 10 + [float("nan")] * 20, lr=10)
    return tmp_path / "runs"


def rows(root: Path) -> dict[str, dict[str, Any]]:
    """Return the rows as another program reads them."""
    return {row["run"]: row for row in parquet.read_table(root / CATALOG).to_pylist()}


def test_the_file_has_what_a_team_asks_for(root: Path, source_runs: Path) -> None:
    done = update_catalog(root)
    assert (done.runs, done.added, done.changed, done.removed) == (2, ("bad", "good"), (), ())
    by_run = rows(root)
    good = by_run["good"]
    assert (good["owner"], good["git_commit"], good["format"], good["steps"]) == ("ann", "1a2b3c", "table", 30)
    assert {"name": "lr", "value": "0.1", "number": 0.1} in good["settings"]
    [loss] = good["curves"]
    assert (loss["name"], loss["count"], loss["first"], loss["last"]) == ("loss", 30, 1.0, 1 / 30)
    assert (loss["min"], loss["min_step"], loss["max"], loss["max_step"], loss["best"]) == (1 / 30, 29, 1.0, 0, 1 / 30)
    assert good["findings"] == []
    finding = by_run["bad"]["findings"][0]
    assert finding["id"].startswith("not_finite:loss")
    assert (finding["kind"], finding["state"]) == ("not_finite", "open")
    assert by_run["bad"]["curves"][0]["not_finite"] == 10


def test_names_users_and_commits_of_mlflow(source_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(source_runs / "mlflow", tmp_path / "team")
    update_catalog(tmp_path / "team", findings=False)
    by_run = rows(tmp_path / "team")
    trials = smdwidgets.create_trials(source_runs / "mlflow")
    assert by_run.keys() == trials.keys()
    for run, trial in trials.items():
        assert isinstance(trial, smdwidgets.trials.SourceTrial)
        assert trial.identity()["name"] == by_run[run]["title"]
        assert trial.identity().get("owner") == by_run[run]["owner"]
    assert any(row["owner"] for row in by_run.values())


def test_only_runs_that_changed_are_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update_catalog(root)
    read: list[str] = []
    plain = catalog.summarize
    monkeypatch.setattr(catalog, "summarize", lambda found, **how: read.append(found.name) or plain(found, **how))
    assert update_catalog(root).added == ()
    assert read == []
    table(root / "good", [1.0] * 12 + [float("inf")] * 8)
    table(root / "new", [1.0, 0.5])
    done = update_catalog(root)
    assert sorted(read) == ["good", "new"]
    assert (done.added, done.changed) == (("new",), ("good",))
    assert list(rows(root)) == ["bad", "good", "new"]
    (root / "new" / "metrics.csv").unlink()
    assert update_catalog(root).removed == ("new",)


def test_findings_have_states(root: Path) -> None:
    update_catalog(root)
    [first, *_] = rows(root)["bad"]["findings"]
    update_catalog(root, accept=[("bad", first["id"])])
    assert rows(root)["bad"]["findings"][0]["state"] == "accepted"
    with (root / "bad" / "metrics.csv").open("a") as file:
        file.write("30,nan\n")
    assert update_catalog(root).changed == ("bad",)
    assert rows(root)["bad"]["findings"][0]["state"] == "accepted"
    table(root / "bad", [1 / (step + 1) for step in range(30)])
    done = update_catalog(root)
    assert {one["id"]: one["state"] for one in rows(root)["bad"]["findings"]}[first["id"]] == "gone"
    assert set(done.findings) == {"gone"}
    table(root / "bad", [1.0] * 10 + [float("nan")] * 20)
    assert update_catalog(root).findings["open"] >= 1
    with pytest.raises(SMDebugValueError, match="has no finding 'overfit:x:1'"):
        update_catalog(root, accept=[("bad", "overfit:x:1")])
    with pytest.raises(SMDebugValueError, match="no run 'worse'; the runs are bad, good"):
        update_catalog(root, accept=[("worse", "a")])


def test_runs_opens_the_catalog_in_place_of_the_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = runs(root, findings=True, cache=False)
    update_catalog(root)
    (root / "late").mkdir()
    table(root / "late", [1.0, 0.5])
    with monkeypatch.context() as patch:
        patch.setattr(smdwidgets.run_table, "find_runs", None)
        fast = runs(root, findings=True, cache=False)
    assert [row.name for row in fast] == [row.name for row in listed] == ["bad", "good"]
    assert fast.columns == listed.columns
    for one, other in zip(fast, listed, strict=True):
        assert repr([pair for pair in one.items() if pair[0] != "state"]) == repr(
            [pair for pair in other.items() if pair[0] != "state"]
        )
        assert one.findings == other.findings
        assert one.bins("loss") == other.bins("loss")
    assert fast.as_of
    assert f"by the catalog of {fast.as_of}" in fast.to_text()
    assert fast["good"].open().tensor("loss").value(0) == 1.0
    assert [row.name for row in fast.filter("lr > 1")] == ["bad"]
    assert [row.name for row in runs(root, cache=False, catalog=False)] == ["bad", "good", "late"]


def test_findings_are_added_where_the_catalog_has_none(root: Path) -> None:
    update_catalog(root, findings=False)
    assert [row["diagnosed"] for row in rows(root).values()] == [False, False]
    assert [len(row.findings or ()) > 0 for row in runs(root, findings=True, cache=False)] == [True, False]
    update_catalog(root)
    assert [row["diagnosed"] for row in rows(root).values()] == [True, True]
    update_catalog(root, findings=False)
    assert [row["diagnosed"] for row in rows(root).values()] == [True, True]


def test_rows_of_another_writer_are_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = CatalogFile.write
    between: list[int] = []

    def write(self: CatalogFile, content: Any) -> None:
        if not between:
            between.append(1)
            table(root / "other", [1.0, 0.5])
            update_catalog(root)
            between.append(2)
        plain(self, content)

    monkeypatch.setattr(CatalogFile, "write", write)
    update_catalog(root)
    assert between == [1, 2]
    # The other writer's run is not among those that this update listed: the next update has it.
    assert update_catalog(root).runs == 3
    assert list(rows(root)) == ["bad", "good", "other"]


def test_a_catalog_that_changed_is_not_replaced(root: Path) -> None:
    update_catalog(root)
    file = CatalogFile(str(root), {})
    content = file.read()
    (root / CATALOG).write_bytes(b"another")
    with pytest.raises(CatalogChanged, match="written by another program meanwhile"):
        file.write(content)
    assert (root / CATALOG).read_bytes() == b"another"


def test_damaged_and_foreign_catalogs(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    update_catalog(root)
    whole = (root / CATALOG).read_bytes()
    (root / CATALOG).write_bytes(whole[:-100])
    with pytest.raises(CorruptDataError, match=r"damaged catalog: .*; delete it to make a new one"):
        update_catalog(root)
    assert [row.name for row in runs(root, cache=False)] == ["bad", "good"]
    assert "damaged catalog" in caplog.text
    parquet.write_table(parquet.read_table(io.BytesIO(whole)).select(["run"]), root / CATALOG)
    assert runs(root, cache=False).as_of == ""
    assert update_catalog(root).added == ("bad", "good")


def test_without_pyarrow(root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    update_catalog(root)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert [row.name for row in runs(root, cache=False)] == ["bad", "good"]
    assert (
        "needs pyarrow, which is not installed; run: pip install 'smdwidgets[parquet]'; the runs are listed"
        in caplog.text
    )
    with pytest.raises(MissingPyarrow, match="a catalog of runs needs pyarrow"):
        update_catalog(root)


def test_command(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cli.main(["catalog", str(root)]) == 0
    said = capsys.readouterr().out
    assert f"{root / CATALOG}: 2 runs: 2 new, 0 changed, 0 removed" in said
    assert "findings: " in said
    finding = rows(root)["bad"]["findings"][0]["id"]
    assert cli.main(["catalog", str(root), "--json", "--accept", "bad", finding]) == 0
    assert json.loads(capsys.readouterr().out)["findings"]["accepted"] == 1
    assert cli.main(["runs", str(root)]) == 0
    assert "by the catalog of" in capsys.readouterr().out
    assert cli.main(["runs", str(root), "--no-catalog"]) == 0
    assert "by the catalog of" not in capsys.readouterr().out


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        update_catalog(tmp_path)
    with pytest.raises(RunNotFound):
        update_catalog(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []
