"""The rows of a table of runs that are read in the background."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.logs.logs import log, scalars
from python.run_table.test_runs import hparams
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.pictures import unpack
from smdwidgets.run_table import curves, live
from smdwidgets.run_table.live import LiveTable, given_runs
from smdwidgets.run_table.table import RunTable
from smdwidgets.widgets.runs_packets import RunsPackets


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write six runs whose losses fall to lr + seed / 100."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "logs"
    for lr in (0.1, 0.01):
        for seed in range(3):
            write(root / f"lr_{lr}" / f"seed_{seed}", [3.0, math.nan, 1.0, lr + seed / 100], lr=lr, seed=float(seed))
    return root


def write(run: Path, losses: list[float], **given: Any) -> None:
    shutil.rmtree(run, ignore_errors=True)
    log(run, hparams(**given) + scalars({"loss": losses}))


def wait(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)


@pytest.fixture
def table(root: Path) -> Iterator[LiveTable]:
    """All runs, given as a list of paths: none of them was read."""
    given = sorted(run for run in root.glob("*/*"))
    made = LiveTable("runs", [(run, None) for run in given_runs(given)], lambda: given_runs(given))
    yield made
    made.close()


def read(table: LiveTable) -> None:
    table.check()
    wait(lambda: table.is_current)


def heads(packets: list[bytes]) -> list[dict[str, Any]]:
    return [unpack(packet)[0] for packet in packets]


def test_curves_are_binned_exactly() -> None:
    rng = np.random.default_rng(3)
    steps = np.sort(rng.choice(100_000, 5_000, replace=False)) - 700
    values = rng.normal(size=5_000)
    values[::7] = np.nan
    found = curves.unpack_curve(curves.bin_curve(steps, values))
    assert found is not None
    assert len(found.lo) <= 64
    share = (found.high - found.low) / 65534
    for k in range(len(found.lo)):
        inside = values[(steps >> found.level) == found.first + k]
        inside = inside[np.isfinite(inside)]
        assert found.low + (found.lo[k] - 1) * share == pytest.approx(inside.min(), abs=share)
        assert found.low + (found.hi[k] - 1) * share == pytest.approx(inside.max(), abs=share)


@pytest.mark.parametrize(
    ("steps", "values"),
    [
        ([0], [2.5]),
        ([-5, 2**62], [-1.7e308, 1.7e308]),
        ([3, 3, 2], [1.0, 2.0, math.inf]),
        (list(range(65)), [0.0] * 65),
    ],
)
def test_odd_curves(steps: list[int], values: list[float]) -> None:
    stored = curves.bin_curve(np.array(steps), np.array(values))
    found = curves.unpack_curve(stored)
    finite = [value for value in values if math.isfinite(value)]
    assert found is not None
    assert (found.low, found.high) == (min(finite), max(finite))
    assert found.lo.max() >= 1
    assert found.hi.max() <= 65535


@pytest.mark.parametrize(
    "damaged", [None, {}, {"codes": "é", "level": 0}, {"codes": "AA==", "level": 0, "first": 0, "low": 0, "high": 1}]
)
def test_damaged_curves_are_none(damaged: Any) -> None:
    assert curves.unpack_curve(damaged) is None
    assert curves.bin_curve(np.array([1]), np.array([math.nan])) is None


def test_rows_are_read_in_the_background(table: LiveTable) -> None:
    packets = RunsPackets(table)
    [first] = heads(packets.all())
    assert first["total"] == 6
    assert first["state"] == ["reading"]
    assert first["best"] == [None] * 6
    read(table)
    rows = heads(packets.updates())
    assert not rows[0]["append"]  # the curve to show is known now
    assert [table.names()[number] for number in rows[0]["numbers"]] == [
        "lr_0.01/seed_0", "lr_0.01/seed_1", "lr_0.01/seed_2", "lr_0.1/seed_0", "lr_0.1/seed_1", "lr_0.1/seed_2",
    ]  # fmt: skip
    assert rows[0]["best"] == [0.01, 0.02, 0.03, 0.1, 0.11, 0.12]
    assert rows[0]["not_finite"] == [1.0]
    assert rows[0]["hparams"]["lr"] == [0.01, 0.01, 0.01, 0.1, 0.1, 0.1]
    assert packets.updates() == []


def test_a_run_that_grows_is_read_again_and_a_vanished_one_stays(table: LiveTable, root: Path) -> None:
    packets = RunsPackets(table)
    read(table)
    packets.all()
    write(root / "lr_0.1" / "seed_2", [3.0, 2.0, 0.001, 5.0, 6.0], lr=0.1, seed=2.0)
    shutil.rmtree(root / "lr_0.01" / "seed_0")
    table._next_look = 0.0
    read(table)
    changed = [head for head in heads(packets.updates()) if head["numbers"]]
    grown = next(head for head in changed if head["name"] == ["lr_0.1/seed_2"] or "lr_0.1/seed_2" in head["name"])
    at = grown["name"].index("lr_0.1/seed_2")
    assert grown["append"]
    assert grown["best"][at] == 0.001
    assert len(table) == 6


@pytest.mark.parametrize(
    ("select", "added"),
    [
        (lambda table: table, True),
        (lambda table: table.sort("name", descending=True).columns_of("loss"), True),
        (lambda table: table.filter("hparams.lr < 1"), False),
        (lambda table: table.query("lr < 1"), False),
        (lambda table: table[:6], False),
    ],
)
def test_later_runs_are_added_to_a_table_of_all_runs(
    root: Path, select: Callable[[RunTable], RunTable], added: bool
) -> None:
    table = live.live_table(select(smdwidgets.runs(root, cache=False)))
    packets = RunsPackets(table)
    before = {name: number for number, name in enumerate(table.names())}
    packets.all()
    write(root / "lr_0.001" / "seed_0", [3.0, 0.001], lr=0.001, seed=0.0)
    table._next_look = 0.0
    read(table)
    rows = [
        (number, name)
        for head in heads(packets.updates())
        for number, name in zip(head["numbers"], head["name"], strict=True)
    ]
    assert rows == ([(6, "lr_0.001/seed_0")] if added else [])
    assert {name: number for number, name in enumerate(table.names()) if number < 6} == before
    table.close()


def test_the_first_run_of_an_empty_directory_is_added(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    explorer = smdwidgets.explore(smdwidgets.runs(tmp_path / "logs", cache=False))
    try:
        rows = explorer.live_table
        assert rows is not None
        packets = RunsPackets(rows)
        packets.all()
        write(tmp_path / "logs" / "first", [3.0, 0.5])
        wait(lambda: rows.check() or len(rows.read_runs()) == 1)
        [head] = [head for head in heads(packets.updates()) if head["numbers"]]
        assert (head["tag"], head["name"], head["best"], head["append"]) == ("loss", ["first"], [0.5], False)
        assert explorer.trials[0].name == "first"
    finally:
        explorer.close()


def test_findings_when_asked(table: LiveTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        live, "findings_of", lambda trial: [{"title": "The loss is bad."}] if trial.name.endswith("0") else []
    )
    packets = RunsPackets(table)
    read(table)
    packets.all()
    table.diagnose([0, 1])
    wait(lambda: table.is_current)
    found = {
        number: count
        for head in heads(packets.updates())
        for number, count in zip(
            head["numbers"], head["findings"] * (1 if len(head["findings"]) > 1 else 9), strict=False
        )
    }
    assert found == {0: 1, 1: 0}


def test_reading_can_be_stopped_and_continued(table: LiveTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_BATCH", 1)
    plain = live.summarize

    def stop_after_two(*given: Any, **more: Any) -> Any:
        if len(table.read_runs()) == 1:
            table.stop()
        return plain(*given, **more)

    monkeypatch.setattr(live, "summarize", stop_after_two)
    table.check()
    wait(lambda: not table._busy)
    assert len(table.read_runs()) == 2
    assert heads(RunsPackets(table).all())[0]["doing"] == "stopped"
    table.check()
    assert not table._busy
    table.resume()
    wait(lambda: table.is_current)
    assert len(table.read_runs()) == 6


def test_a_table_whose_diagnosis_was_stopped_follows_its_runs(
    table: LiveTable, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosed: list[str] = []

    def stop(trial: Any) -> list[str]:
        diagnosed.append(trial.name)
        table.stop()
        return []

    monkeypatch.setattr(live, "findings_of", stop)
    read(table)
    table.diagnose(range(6))
    wait(lambda: table.is_current)
    assert len(diagnosed) == 1
    write(root / "lr_0.1" / "seed_2", [3.0, 0.001], lr=0.1, seed=2.0)
    table._next_look = 0.0
    read(table)
    row = table.run(5)
    assert row is not None
    assert row.statistic("loss", "best") == pytest.approx(0.001)


def test_runs_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    given = given_runs([tmp_path / "gone", tmp_path / "empty", tmp_path / "gone"])
    table = LiveTable("runs", [(run, None) for run in given], lambda: given)
    table._work()
    [head] = heads(RunsPackets(table).all())
    assert head["state"] == ["error"]
    assert head["name"] == ["gone", "empty", "gone"]
    assert "gone" in head["notes"]["0"][0]


def test_packets_are_small_and_best_first(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    for number in range(250):
        write(
            root / f"run_{number}", [1.0 / (number + step + 1) for step in range(30)], lr=number / 7, seed=float(number)
        )
    packets = RunsPackets(smdwidgets.explore(smdwidgets.runs(root, cache=False)).live_table).all()  # type: ignore[arg-type]
    assert [len(head["numbers"]) for head in heads(packets)] == [100, 100, 50]
    best = [value for head in heads(packets) for value in head["best"]]
    assert best == sorted(best)
    assert sum(map(len, packets)) / 250 < 600


def test_long_and_odd_names_are_escaped_and_cut(tmp_path: Path) -> None:
    names = ["x" * 200 + "/" + "y" * 200, "<b>run</b>", "a\u202eb", "\u05e9\u05dc\u05d5\u05dd"]
    for name in names:
        write(tmp_path / "logs" / name, [1.0])
    table = smdwidgets.explore(smdwidgets.runs(tmp_path / "logs", cache=False)).live_table
    assert table is not None
    [head] = heads(RunsPackets(table).all())
    assert sorted(map(len, head["name"])) == [4, 8, 10, 300]
    assert "a\\u202eb" in head["name"]


def test_explore_opens_runs_when_they_are_used(root: Path) -> None:
    explorer = smdwidgets.explore(smdwidgets.runs(root))
    try:
        assert explorer.table
        assert explorer.runs_sort == []  # the best first
        assert len(explorer.trials) == 6
        assert explorer.trials.opened() == []
        assert "lr_0.01/seed_0" in repr(explorer)
        assert explorer.trials.opened() == []
        explorer.run = 4
        assert not explorer.table
        assert explorer.trial.name == "lr_0.1/seed_1"
        assert [number for number, _ in explorer.trials.opened()] == [4]
        assert explorer.trials.index(explorer.trial) == 4
        with pytest.raises(IndexError):
            explorer.trials[6]
    finally:
        explorer.close()


def test_a_sorted_table_keeps_its_order(root: Path) -> None:
    explorer = smdwidgets.explore(smdwidgets.runs(root).sort("name", descending=True))
    assert explorer.runs_sort == [{"by": "given"}]
    explorer.close()


def test_explore_of_a_list(root: Path, tmp_path: Path) -> None:
    paths = sorted(root.glob("*/*"))
    few = smdwidgets.explore(paths[:4])
    assert not few.table
    assert few.live_table is None
    few.close()
    given = [{"lr": 9.0, "seed": at} for at in range(6)]
    many = smdwidgets.explore(paths, hparams=given)
    try:
        assert many.table
        assert many.live_table is not None
        wait(lambda: many.live_table is not None and (many.live_table.check() or many.live_table.is_current))
        row = many.live_table.run(3)
        assert row is not None
        assert row.hparams == {"lr": 9.0, "seed": 3}
    finally:
        many.close()
    named = smdwidgets.explore(paths, run=5)
    assert not named.table
    assert named.trial.name == "lr_0.1/seed_2"
    named.close()
    with pytest.raises(SMDebugTypeError, match="6 runs"):
        smdwidgets.explore(paths, hparams=[{}])
    empty = tmp_path / "empty"
    empty.mkdir()
    none = smdwidgets.explore(smdwidgets.runs(empty))
    assert none.table
    assert len(none.trials) == 0
    none.close()


def test_hparams_beside_the_run(tmp_path: Path) -> None:
    log(tmp_path / "logs" / "a", scalars({"loss": [1.0]}))
    for text, expected in [
        ('{"lr": 0.1, "optimizer": {"name": "adam"}, "layers": [1, 2]}', {"lr": 0.1, "optimizer.name": "adam", "layers": "[1, 2]"}),
        ("not JSON", {}),
        ("[1]", {}),
        ("[" * 100_000, {}),
    ]:  # fmt: skip
        (tmp_path / "logs" / "a" / "hparams.json").write_text(text)
        assert smdwidgets.runs(tmp_path / "logs", cache=False)[0].hparams == expected
    (tmp_path / "logs" / "a" / "hparams.json").write_text('{"lr": 1}')
    assert smdwidgets.runs(tmp_path / "logs", cache=tmp_path / "runs.sqlite")[0].hparams == {"lr": 1}
    (tmp_path / "logs" / "a" / "hparams.json").write_text('{"lr": 2, "b": 1}')
    assert smdwidgets.runs(tmp_path / "logs", cache=tmp_path / "runs.sqlite")[0].hparams == {"lr": 2, "b": 1}
