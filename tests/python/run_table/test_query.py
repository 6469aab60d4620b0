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
    assert len(table.query("lr > 9").query("top 1 by lr")) == 0


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("loss < 0.015", 3),
        ("train < 0.015", 3),
        ("hparams.lr < 0.05 and loss < 0.015", 3),
        ("lr < 0.05 or val/acc > 0.55", 6),
        ("not state = ended", 6),
        ("not lr < 0.05 and not (seed_0 or state = ended)", 1),
        ("state ~ /^run/ | top 2 by lr", 2),
        ("min(`loss/train`) < 0.005", 1),
    ],
)
def test_a_filter_is_a_query(table: RunTable, text: str, runs: int) -> None:
    assert [row.name for row in table.filter(text)] == [row.name for row in table.query(text)]
    assert len(table.filter(text)) == runs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lss < 1", "Unknown key 'lss'. Did you mean 'loss'?"),
        ("loss < 1 and stat = ended", "Unknown key 'stat'. Did you mean 'state'?"),
        ("sede_0", "No name contains 'sede_0'. Did you mean 'seed_0'?"),
        ("not sede_0", "No name contains 'sede_0'. Did you mean 'seed_0'?"),
        ("tpo 2 by loss", "Unknown word 'tpo'. Did you mean 'top'?"),
        ("name = lr_0.1/sede_0", "No name is 'lr_0.1/sede_0'. Did you mean 'lr_0.1/seed_0'?"),
    ],
)
@pytest.mark.parametrize("option", ["--filter", "--query"])
def test_an_unknown_name_is_an_error(
    root: Path, table: RunTable, text: str, message: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(QueryError) as caught:
        table.filter(text)
    assert str(caught.value).splitlines()[0] == message
    assert cli.main(["runs", str(root), "--no-cache", option, text]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.splitlines()[0]) == ("", f"error: {message}")


def test_a_misspelt_key_is_named(table: RunTable) -> None:
    with pytest.raises(QueryError) as caught:
        table.query("sort by loss/trian")
    assert (caught.value.start, caught.value.end, caught.value.suggestion) == (8, 18, "loss/train")


def test_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(root), "--no-cache", "--query", "lr<0.05 | top 2 by loss", "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["name", "lr_0.001/seed_0", "lr_0.01/seed_0"]
    assert cli.main(["runs", str(root), "--no-cache", "--query", "seed_7"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "error: No name contains 'seed_7'. Did you mean 'seed_0'?"
    assert cli.main(["runs", str(root), "--no-cache", "--query", "| tpo 2 by loss"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: Unknown word 'tpo'. Did you mean 'top'?",
        "| tpo 2 by loss",
        "  ^^^",
    ]
