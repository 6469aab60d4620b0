"""`trial.statistics`: read from statistics files, or computed and cached."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import smdwidgets
from smdwidgets import _core
from smdwidgets.exceptions import TensorUnavailable
from smdwidgets.trials.run import Run, Selection
from smdwidgets.trials.statistics.cache import StatisticsCache
from smdwidgets.trials.statistics.table import STATISTICS

SHAPE = (16, 8)


def values(step: int) -> dict[str, NDArray[Any]]:
    """Return the tensors of a step."""
    rng = np.random.default_rng(step)
    weight = rng.normal(size=SHAPE).astype(np.float32)
    gradient = rng.normal(size=SHAPE)
    if step % 3 == 1:
        gradient[0, 0] = np.nan
    return {"weight": weight, "gradient": gradient, "loss": np.array(1 / (1 + step))}


def write(run: Path, steps: range, worker: str = "worker_0", mode: int = 1) -> None:
    """Write steps of a run."""
    collections = run / "collections" / "000000000"
    collections.mkdir(parents=True, exist_ok=True)
    (collections / f"{worker}_collections.json").write_text('{"collections": {}, "_meta": {"num_workers": 1}}')
    for step in steps:
        with _core.StepWriter(run, step, worker, mode, step // 10) as writer:
            for name, value in values(step).items():
                writer.tensor(name, value)


def expected(name: str, steps: list[int], every: int = 10) -> dict[str, NDArray[Any]]:
    """Return the statistics of a tensor, with the change since the saved step before."""
    now = [values(step)[name] for step in steps]
    before = [values(step - every)[name] if step else None for step in steps]
    columns = _core.statistics_of(now, before)
    return {name: columns[name] for name in STATISTICS}


def check(table: smdwidgets.Columns, name: str, steps: list[int]) -> None:
    """Compare the rows of one tensor with statistics of its values."""
    rows = np.flatnonzero(table["name"] == name)
    assert table["step"][rows].tolist() == steps
    for column, numbers in expected(name, steps).items():
        np.testing.assert_allclose(table[column][rows], numbers, rtol=1.3e-7, atol=0, err_msg=column)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of ten steps without a statistics file."""
    write(tmp_path / "run", range(0, 100, 10))
    return tmp_path / "run"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The steps of each sweep."""
    made: list[list[int]] = []
    from smdwidgets.trials.smdebug.local import LocalRun

    original = LocalRun.statistics

    def statistics(self: Run, selection: Selection, *options: Any) -> Any:
        made.append(list(selection.steps or ()))
        return original(self, selection, *options)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalRun, "statistics", statistics)
    return made


def test_statistics_of_saved_values_are_computed_once(run: Path, reads: list[list[int]]) -> None:
    steps = list(range(0, 100, 10))
    for _ in range(2):
        with smdwidgets.create_trial(run) as trial:
            table = trial.statistics()
            assert list(table)[:5] == ["name", "step", "mode", "mode_step", "worker"]
            assert list(table)[5:] == [*STATISTICS, "coverage", "flags"]
            for name in ("weight", "gradient", "loss"):
                check(table, name, steps)
            assert set(table["mode"]) == {"TRAIN"}
            assert set(table["worker"]) == {"worker_0"}
            assert table["mode_step"].tolist() == [step // 10 for step in table["step"]]
            trial.statistics(["weight"], steps=[30])
    assert reads == [steps]


def test_computed_and_cached_statistics_are_the_same_numbers(run: Path) -> None:
    with smdwidgets.create_trial(run) as trial:
        tables = [trial.statistics(cache=cache) for cache in (False, True, True)]
    for name in STATISTICS:
        for other in tables[1:]:
            np.testing.assert_array_equal(other[name], tables[0][name], err_msg=name)


def test_selection_of_names_steps_columns_and_mode(run: Path) -> None:
    with smdwidgets.create_trial(run) as trial:
        for cache in (False, True, True):
            table = trial.statistics(["gradient", "weight"], steps=[30, 70, 75], cache=cache)
            assert table["name"].tolist() == ["gradient"] * 2 + ["weight"] * 2
            check(table, "weight", [30, 70])
            check(table, "gradient", [30, 70])
        by_mode = trial.statistics("weight", steps=[3, 7], mode="TRAIN", columns=["l2", "update_ratio", "rms"])
        assert list(by_mode)[5:] == ["l2", "update_ratio", "rms"]
        assert by_mode["step"].tolist() == [30, 70]
        np.testing.assert_allclose(by_mode["update_ratio"], table["update"][2:] / table["l2"][2:])
        np.testing.assert_allclose(by_mode["rms"], table["l2"][2:] / np.sqrt(128))
        assert trial.statistics("weight", mode="EVAL").num_rows == 0
        with pytest.raises(ValueError, match=r"invalid column 'meen'.*Did you mean 'mean'"):
            trial.statistics("weight", columns="meen")
        with pytest.raises(TensorUnavailable, match="wieght"):
            trial.statistics("wieght")


def test_cache_is_extended_while_the_run_grows(run: Path, reads: list[list[int]]) -> None:
    with smdwidgets.create_trial(run) as trial:
        trial.statistics()
        write(run, range(100, 130, 10))
        table = trial.statistics()
        check(table, "weight", list(range(0, 130, 10)))
        # The step before the first new one is read for the change.
        assert reads == [list(range(0, 100, 10)), [90, 100, 110, 120]]
    (run / "training_job_end.ts").write_text("")
    with smdwidgets.create_trial(run) as trial:
        check(trial.statistics(), "gradient", list(range(0, 130, 10)))
        trial.statistics()
    # The last step of a run that has not ended may be incomplete, so it was not cached.
    assert reads[2:] in ([], [[110, 120]])


def test_rewritten_step_drops_the_cache(run: Path, reads: list[list[int]]) -> None:
    with smdwidgets.create_trial(run) as trial:
        trial.statistics()
    changed = np.full(SHAPE, 7.0, np.float32)
    with _core.StepWriter(run, 50, "worker_0", 1, 5) as writer:
        writer.tensor("weight", changed)
    with smdwidgets.create_trial(run) as trial:
        table = trial.statistics("weight")
    assert len(reads) == 2
    assert table["mean"][table["step"] == 50].tolist() == [7.0]


def test_another_run_in_the_same_directory_has_its_own_statistics(run: Path, reads: list[list[int]]) -> None:
    with smdwidgets.create_trial(run) as trial:
        trial.statistics()
    shutil.rmtree(run)
    write(run, range(0, 30, 10))
    with smdwidgets.create_trial(run) as trial:
        assert trial.statistics()["step"].max() == 20
    assert len(reads) == 2


def test_damaged_cache_is_computed_again(run: Path, tmp_path: Path, reads: list[list[int]]) -> None:
    with smdwidgets.create_trial(run) as trial:
        trial.statistics()
    [file] = StatisticsCache(str(run), "first")._directory.rglob("*.arrows")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with smdwidgets.create_trial(run) as trial:
        check(trial.statistics(), "weight", list(range(0, 100, 10)))
    assert len(reads) == 2


def test_unwritable_cache_is_no_error(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("smdwidgets.trials.statistics.cache")
    monkeypatch.setattr(module, "user_cache", lambda name: Path("/dev/null/cache"))
    with smdwidgets.create_trial(run) as trial:
        check(trial.statistics(), "weight", list(range(0, 100, 10)))


def test_unreadable_records_are_listed(run: Path) -> None:
    [event] = (run / "events" / f"{50:012d}").iterdir()
    content = bytearray(event.read_bytes())
    content[60] ^= 1
    event.write_bytes(content)
    with smdwidgets.create_trial(run) as trial:
        for _ in range(2):
            table = trial.statistics()
            assert [(failure.name, failure.step) for failure in table.errors] == [("weight", 50)]
            assert 50 not in table["step"][table["name"] == "weight"]
            assert np.isnan(table["update"][(table["name"] == "weight") & (table["step"] == 60)]).all()


def rows_of(run: Path, worker: str, steps: range, scale: float = 1.0, names: tuple[str, ...] = ("weight",)) -> None:
    """Write a statistics file."""
    with _core.StatisticsWriter(run, worker) as writer:
        for step in steps:
            now = [values(step)[name] * scale for name in names]
            before = [values(step - 1)[name] * scale if step else None for name in names]
            numbers = [writer.add(name, "float32", SHAPE, "weights") for name in names]
            writer.append(step, numbers, _core.statistics_of(now, before), 1, step)


def test_written_statistics_are_read_and_others_computed(run: Path, reads: list[list[int]]) -> None:
    rows_of(run, "worker_0", range(100))
    with smdwidgets.create_trial(run) as trial:
        table = trial.statistics()
        assert set(table["name"]) == {"weight"}
        assert table["step"].tolist() == list(range(100))
        assert not reads
        for column, numbers in expected("weight", list(range(100)), 1).items():
            np.testing.assert_allclose(table[column], numbers, rtol=1.3e-7, err_msg=column)
        table = trial.statistics(["loss", "weight"], steps=range(5, 15))
        assert table["name"].tolist() == ["loss"] + ["weight"] * 10
        assert table["step"][0] == 10
        assert trial.statistics(steps=[3], mode="TRAIN")["step"].tolist() == [3]


def test_statistics_follow_a_growing_file(run: Path) -> None:
    with smdwidgets.create_trial(run) as trial:
        rows_of(run, "worker_0", range(5))
        assert trial.statistics("weight").num_rows == 5
        rows_of(run, "worker_0", range(3, 9), scale=2.0)
        table = trial.statistics("weight")
        assert table["step"].tolist() == list(range(9))
        # The later segment counts.
        single = expected("weight", [2, 3], 1)["l2"]
        np.testing.assert_allclose(table["l2"][2:4], [single[0], 2 * single[1]], rtol=1e-6)


def test_first_of_several_workers_counts_unless_one_is_chosen(run: Path) -> None:
    rows_of(run, "worker_1", range(6), scale=3.0)
    rows_of(run, "worker_0", range(4))
    with smdwidgets.create_trial(run) as trial:
        table = trial.statistics()
        assert table["worker"].tolist() == ["worker_0"] * 4 + ["worker_1"] * 2
        assert trial.statistics(worker="*").num_rows == 10
        assert trial.statistics(worker="worker_1")["step"].tolist() == list(range(6))
        assert trial.statistics(worker="worker_7").num_rows == 0


def halves(run: Path, workers: list[int], steps: range) -> None:
    """Write the rows of a tensor in two shards, and their statistics at every step."""
    for worker in workers:
        name = f"worker_{worker}"
        collections = run / "collections" / "000000000"
        collections.mkdir(parents=True, exist_ok=True)
        (collections / f"{name}_collections.json").write_text('{"collections": {}, "_meta": {"num_workers": 2}}')
        part = slice(0, 6) if worker == 0 else slice(6, 16)
        position = f'{{"global_shape": [16, 8], "offsets": [{part.start}, 0], "sizes": [{part.stop - part.start}, 8]}}'
        with _core.StatisticsWriter(run, name) as statistics:
            for step in steps:
                shard = values(step)["weight"][part]
                before = [values(step - 1)["weight"][part] if step else None]
                statistics.append(step, [statistics.add("weight")], _core.statistics_of([shard], before))
                if step % 10 == 0:
                    with _core.StepWriter(run, step, name, 1) as writer:
                        writer.tensor("weight", shard)
                        writer.shard("weight", position)


@pytest.mark.parametrize("is_written", [True, False])
def test_shards_are_combined(tmp_path: Path, is_written: bool) -> None:
    halves(tmp_path, [0, 1], range(20))
    if not is_written:
        shutil.rmtree(tmp_path / "statistics")
    steps = list(range(20)) if is_written else [0, 10]
    with smdwidgets.create_trial(tmp_path) as trial:
        for _ in range(2):
            table = trial.statistics()
            assert table["step"].tolist() == steps
            assert set(table["worker"]) == {"all"}
            assert (table["coverage"] == 1).all()
            for column, numbers in expected("weight", steps, 1 if is_written else 10).items():
                np.testing.assert_allclose(table[column], numbers, rtol=3e-7, atol=1e-8, err_msg=column)
        assert trial.statistics(worker="worker_1")["count"].tolist() == [80] * len(steps)
        assert trial.statistics(worker="*").num_rows == 2 * len(steps)


def test_missing_shard_lowers_the_coverage(tmp_path: Path) -> None:
    halves(tmp_path, [0, 1], range(20))
    shutil.rmtree(tmp_path / "statistics" / "worker_1")
    with smdwidgets.create_trial(tmp_path) as trial:
        table = trial.statistics()
    assert table["coverage"].tolist() == [6 / 16] * 20
    assert table["count"].tolist() == [48] * 20


def test_tensorboard_numbers_are_exact_and_histograms_approximate(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(2, 0.5, 10_000)
    counts, edges = np.histogram(data, 200)
    limits = {"min": data.min(), "max": data.max(), "num": data.size, "sum": data.sum(), "sum_squares": (data**2).sum()}
    records = [_core.version_record(0.0)]
    losses = [1.0, 0.5, np.nan]
    records += [_core.scalar_record("loss", step, float(step), loss) for step, loss in enumerate(losses)]
    records.append(_core.histogram_record("weight", 1, 1.0, edges[1:].tolist(), counts.tolist(), **limits))
    (tmp_path / "events.out.tfevents.1").write_bytes(b"".join(records))
    with smdwidgets.create_trial(tmp_path) as trial:
        loss = trial.statistics("loss")
        assert loss["max"].tolist()[:2] == [1.0, 0.5]
        assert np.isnan(loss["max"][2])
        assert loss["l2"][2] == 0
        assert loss["count"].tolist() == [1, 1, 1]
        assert loss["nan"].tolist() == [0, 0, 1]
        assert loss["flags"].tolist() == [0, 0, 0]
        [weight] = trial.statistics("weight").to_pandas().to_dict("records")
        assert weight["flags"] == 16
        assert weight["count"] == 10_000
        exact = _core.tensor_statistics(data)
        for column in ("mean", "std", "l1", "l2"):
            assert weight[column] == pytest.approx(exact[column], rel=0.01), column
        # The first bucket has no left edge.
        assert weight["max"] == pytest.approx(exact["max"], rel=0.05)


def test_saved_reductions_are_statistics_without_counts(run: Path) -> None:
    with _core.StepWriter(run, 100, "worker_0", 1, 10) as writer:
        content = [("scale", "float64", [3], np.array([3.0, -4.0, 0.0]).view(np.uint8))]
        writer.tensors(content, raw=False, reductions=[("l2", False), ("min", False), ("max", False)])
    with smdwidgets.create_trial(run) as trial:
        for _ in range(2):
            table = trial.statistics(["scale", "loss"], steps=[90, 100])
            assert table["name"].tolist() == ["scale", "loss"]
            assert table["flags"].tolist() == [32, 0]
            assert (table["l2"][0], table["abs_max"][0], table["count"][0]) == (5.0, 4.0, -1)
            assert np.isnan(table["mean"][0])
            assert np.isnan(table["update"][0])


def test_table_converts_to_arrow(run: Path) -> None:
    pytest.importorskip("pyarrow")
    with smdwidgets.create_trial(run) as trial:
        table = trial.statistics("weight", columns=["l2", "nan"]).to_arrow()
    assert table.column_names == ["name", "step", "mode", "mode_step", "worker", "l2", "nan"]
    assert table.num_rows == 10


def test_change_of_tensors_that_are_saved_at_other_steps(tmp_path: Path) -> None:
    runs = {"often": range(9), "rarely": range(0, 9, 4)}
    (tmp_path / "collections" / "000000000").mkdir(parents=True)
    content = '{"collections": {}, "_meta": {"num_workers": 1}}'
    (tmp_path / "collections" / "000000000" / "worker_0_collections.json").write_text(content)
    for step in range(9):
        with _core.StepWriter(tmp_path, step, "worker_0", 1, step) as writer:
            for name, steps in runs.items():
                if step in steps:
                    writer.tensor(name, np.array([step, 2.0 * step]))
    with smdwidgets.create_trial(tmp_path) as trial:
        whole = trial.statistics(cache=False)
        some = trial.statistics(steps=[8], cache=False)
        last = [row for row in range(whole.num_rows) if whole["step"][row] == 8]
        assert some["update"].tolist() == whole["update"][last].tolist()
        assert some["update"][some["name"] == "rarely"] == pytest.approx(4 * 5**0.5)
