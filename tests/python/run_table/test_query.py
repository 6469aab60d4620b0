"""Queries on the table of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from python.logs.logs import log, scalars
from python.run_table.test_runs import hparams
from smdwidgets import cli
from smdwidgets.exceptions import QueryError
from smdwidgets.run_table import RunTable, runs


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("queries") / "logs"
    for lr in (0.1, 0.01, 0.001):
        for seed in range(2):
            curves = {"loss/train": [3.0, lr + seed / 100, 2.0], "val/acc": [0.1, 0.5 + lr, 0.2]}
            log(root / f"lr_{lr}" / f"seed_{seed}", hparams(lr=lr, name="Adam") + scalars(curves))
    return root


@pytest.fixture(scope="module")
def table(root: Path) -> RunTable:
    return runs(root, cache=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr < 0.05 | top 2 by loss", ["lr_0.001/seed_0", "lr_0.01/seed_0"]),
        ("lr < 0.05 | top 2 by best desc", ["lr_0.01/seed_1", "lr_0.001/seed_1"]),
        ("hparams.lr = 0.1", ["lr_0.1/seed_0", "lr_0.1/seed_1"]),
        ("seed_1 | sort by loss/train", ["lr_0.001/seed_1", "lr_0.01/seed_1", "lr_0.1/seed_1"]),
        ("/seed_1$/ | top 1 by val/acc", ["lr_0.1/seed_1"]),
        ("name = lr_0.1/seed_0", ["lr_0.1/seed_0"]),
        ("hparams.name = adam | last(loss/train) = 2 | max(val/acc) > 0.55 | seed_0 = 1", None),
        ("hparams.name = adam | last(loss/train) = 2 | max(val/acc) > 0.55", ["lr_0.1/seed_0", "lr_0.1/seed_1"]),
        ("last = 2 | train < 0.105 | train > 0.05", ["lr_0.1/seed_0"]),
        ("count(loss/train) != 3", []),
        ("state = nan", []),
        ("steps = 3 | lr = 0.1 | top 1 by name desc", ["lr_0.1/seed_1"]),
    ],
)
def test_selection_and_order(table: RunTable, text: str, expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(QueryError, match="Unknown key 'seed_0'"):
            table.query(text)
    else:
        assert [row.name for row in table.query(text)] == expected


def test_the_table_keeps_its_columns(table: RunTable) -> None:
    assert table.query("lr < 0.05").columns == table.columns
    assert len(table.query("nothing").query("top 1 by lr")) == 0


def test_a_misspelt_key_is_named(table: RunTable) -> None:
    with pytest.raises(QueryError) as caught:
        table.query("sort by loss/trian")
    assert (caught.value.start, caught.value.end, caught.value.suggestion) == (8, 18, "loss/train")


def test_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(root), "--no-cache", "--query", "lr<0.05 | top 2 by loss", "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["name", "lr_0.001/seed_0", "lr_0.01/seed_0"]
    assert cli.main(["runs", str(root), "--no-cache", "--query", "tpo 2 by loss"]) == 0
    assert cli.main(["runs", str(root), "--no-cache", "--query", "| tpo 2 by loss"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: Unknown word 'tpo'. Did you mean 'top'?",
        "| tpo 2 by loss",
        "  ^^^",
    ]
