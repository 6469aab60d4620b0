"""Queries on the tensors of many runs, before something happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.exceptions import QueryError, SMDebugValueError
from smdwidgets.numpy import Hook
from smdwidgets.run_table import RunTable

STEPS, RISE = 120, 80


def train(run: Path, *, rises: bool, burst: int | None) -> None:
    """Save losses and gradients.

    Args:
        run: the directory.
        rises: whether the loss rises from step RISE on.
        burst: the step with a large gradient in layer 7.
    """
    noise = np.random.default_rng(1).normal(0, 0.01, STEPS)
    with Hook(run, plan=smdwidgets.CapturePlan(budget="1GB", statistics=1, time_share=1.0)) as hook:
        for step in range(STEPS):
            loss = 2.0 / (1 + step / 20) + noise[step]
            hook.save_scalar("loss", float(loss * (1 + (step - RISE) * 5) if rises and step >= RISE else loss))
            for layer in (6, 7):
                size = 100.0 if step == burst and layer == 7 else 1.0
                hook.save_tensor(f"gradient/layer{layer}.weight", np.full(16, size, np.float32))
            hook.step()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    train(root / "before", rises=True, burst=RISE - 5)
    train(root / "early", rises=True, burst=RISE - 60)
    train(root / "calm", rises=True, burst=None)
    train(root / "fine", rises=False, burst=RISE - 5)
    (root / "table").mkdir()
    (root / "table" / "metrics.csv").write_text("step,loss\n0,1\n1,0.5\n")
    return root


@pytest.fixture(scope="module")
def table(root: Path) -> RunTable:
    return smdwidgets.runs(root, cache=False, findings=True)


QUERY = "layer7 | l2 | worst > 50"


@pytest.mark.slow
def test_runs_with_large_gradients_before_the_loss_rose(table: RunTable, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {row.name: {one["kind"] for one in row.summary["findings"]} for row in table}
    assert "diverged" in kinds["before"] & kinds["early"] & kinds["calm"]
    assert "diverged" not in kinds["fine"] | kinds["table"]
    [one] = table.query_tensors(QUERY, before="diverged", within=20)
    assert (one.run.name, one.names) == ("before", ("gradient/layer7.weight",))
    assert one.finding is not None
    assert abs(one.finding["first"] - RISE) < 10
    assert str(one).startswith("before: gradient/layer7.weight, before step")
    assert [one.run.name for one in table.query_tensors(QUERY, before="div*", within=STEPS)] == ["before", "early"]
    assert [one.run.name for one in table.query_tensors(QUERY)] == ["before", "early", "fine"]


def test_runs_without_the_finding_are_not_opened(table: RunTable, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr("smdwidgets.run_table.tensors.call_many", lambda _, calls, *rest: called.extend(calls) or [])
    assert table.having({"fine", "table"}).query_tensors(QUERY, before="diverged") == []
    assert called == []


def test_on_a_cluster(table: RunTable) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = table.query_tensors(QUERY, before="diverged", within=20, client=client)
    assert [one.run.name for one in found] == ["before"]


def test_mistakes(table: RunTable, root: Path) -> None:
    with pytest.raises(QueryError, match="layer9"):
        table.query_tensors("layer9 | l2 | worst > 1")
    with pytest.raises(QueryError):
        table.query_tensors("layer7 | l2 | worst >")
    with pytest.raises(SMDebugValueError, match="not diagnosed"):
        smdwidgets.runs(root, cache=False).query_tensors(QUERY, before="diverged")
    with pytest.raises(SMDebugValueError, match="within"):
        table.query_tensors(QUERY, before="diverged", within=-1)


def test_the_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["runs", str(root), "--no-cache", "--tensors", QUERY]
    assert cli.main([*command, "--before", "diverged", "--within", "20", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["before"]
    assert cli.main([*command, "--before", "diverged", "--within", "20"]) == 0
    assert "before: gradient/layer7.weight, before step" in capsys.readouterr().out
    assert cli.main(["runs", str(root), "--before", "diverged"]) == 2
    assert "--before requires --tensors" in capsys.readouterr().err
