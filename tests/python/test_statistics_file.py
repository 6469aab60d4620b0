"""The writer and the reader of statistics files, from Python."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.counting import Store
from smdwidgets import _core
from smdwidgets.exceptions import TruncatedDataError
from smdwidgets.numpy import Hook
from smdwidgets.storage import LocalStorage, Range
from smdwidgets.trials.statistics.file import StatisticsFile


def reader(run: Path) -> StatisticsFile:
    """Return an up-to-date reader of a run."""
    file = StatisticsFile(LocalStorage(str(run)), _core.Files(run))
    file.refresh()
    return file


def append(writer: _core.StatisticsWriter, step: int, tensors: int = 2, **options: Any) -> None:
    """Append a step."""
    numbers = [writer.add(f"w{at}", "float64", (3,), "weights", at) for at in range(tensors)]
    arrays = [np.arange(3.0) + step + at for at in range(tensors)]
    writer.append(step, numbers, _core.statistics_of(arrays, [array - 1 for array in arrays]), **options)


def test_rows_come_back(tmp_path: Path) -> None:
    with _core.StatisticsWriter(tmp_path, "/job:worker/task:0") as writer:
        for step in range(10):
            append(writer, step, mode=1 + step % 2, mode_step=step // 2, flags=[0, 4])
    table = reader(tmp_path).read()
    assert table["name"].tolist() == ["w0"] * 10 + ["w1"] * 10
    assert table["step"].tolist() == [*range(10), *range(10)]
    assert table["mode"].tolist()[:4] == [1, 2, 1, 2]
    assert table["mode_step"].tolist()[:4] == [0, 0, 1, 1]
    assert set(table["worker"]) == {"_job-worker_task-0"}
    assert table["flags"].tolist() == [0] * 10 + [4] * 10
    exact = _core.statistics_of([np.arange(3.0) + step + at for at in range(2) for step in range(10)])
    for column, values in exact.items():
        expected = values if column != "update" else np.full(20, np.sqrt(3))
        np.testing.assert_allclose(table[column], expected, rtol=1e-7, err_msg=column)


def test_steps_that_are_appended_together_are_those_appended_alone(tmp_path: Path) -> None:
    steps, ids = [0, 0, 2, 5, 5, 5], [0, 1, 0, 1, 0, 2]
    values = _core.statistics_of([np.arange(3.0) * step + at for at, step in enumerate(steps)])
    with _core.StatisticsWriter(tmp_path / "together", steps=2) as writer:
        numbers = [writer.add(f"w{one}") for one in ids]
        writer.append_steps(steps, [1] * 6, [step // 2 for step in steps], numbers, values)
        for short in ([0], []):
            with pytest.raises(ValueError, match="rows for 6 tensors"):
                writer.append_steps(short, [1] * 6, steps, numbers, values)
    with _core.StatisticsWriter(tmp_path / "alone", steps=2) as writer:
        for step in (0, 2, 5):
            rows = [at for at, one in enumerate(steps) if one == step]
            numbers = [writer.add(f"w{ids[at]}") for at in rows]
            writer.append(step, numbers, {name: column[rows] for name, column in values.items()}, 1, step // 2)
    together, alone = (reader(tmp_path / name).read() for name in ("together", "alone"))
    for name in together:
        np.testing.assert_array_equal(together[name], alone[name], err_msg=name)


def test_rows_are_written_when_a_limit_is_reached(tmp_path: Path) -> None:
    by_steps = _core.StatisticsWriter(tmp_path, steps=3, seconds=1e6)
    for step in range(4):
        assert by_steps.pending == 2 * (step % 3)
        append(by_steps, step)
    assert (by_steps.path is not None, by_steps.pending) == (True, 2)
    assert 0 < (by_steps.seconds_until_flush() or 0) <= 1e6
    by_size = _core.StatisticsWriter(tmp_path, "worker_1", size=1000, seconds=1e6)
    append(by_size, 0, 41)
    assert by_size.pending == 41
    append(by_size, 1, 1)
    assert by_size.pending == 0
    by_time = _core.StatisticsWriter(tmp_path, "worker_2", seconds=0)
    append(by_time, 0)
    assert by_time.pending == 0
    assert by_time.seconds_until_flush() is None
    by_time.close()
    with pytest.raises(ValueError, match="closed"):
        append(by_time, 1)
    by_time.close()


def test_wrong_rows_are_errors(tmp_path: Path) -> None:
    writer = _core.StatisticsWriter(tmp_path)
    columns = _core.statistics_of([np.ones(3)])
    with pytest.raises(ValueError, match="invalid tensor 0"):
        writer.append(0, [0], columns)
    writer.add("w")
    with pytest.raises(ValueError, match="step -1"):
        writer.append(-1, [0], columns)
    with pytest.raises(ValueError, match="columns have 1 rows for 2 tensors"):
        writer.append(0, [0, 0], columns)
    with pytest.raises(ValueError, match="invalid mode 9"):
        writer.append(0, [0], columns, 9)
    with pytest.raises(ValueError, match="worker name"):
        _core.StatisticsWriter(tmp_path, "a?b")
    assert writer.pending == 0


def test_dropped_writer_writes_its_rows(tmp_path: Path) -> None:
    writer = _core.StatisticsWriter(tmp_path)
    append(writer, 5)
    del writer
    assert reader(tmp_path).read()["step"].tolist() == [5, 5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="requires fork")
def test_forked_process_leaves_rows_to_its_parent(tmp_path: Path, run_python: Any) -> None:
    code = f"""
import os, numpy as np
from smdwidgets import _core
writer = _core.StatisticsWriter({str(tmp_path)!r}, seconds=1e6)
def append(step):
    writer.append(step, [writer.add("w")], _core.statistics_of([np.full(2, step)]))
append(0)
writer.flush()
append(1)
if child := os.fork():
    os.waitpid(child, 0)
    append(2)
    writer.close()
else:
    append(100)
    writer.close()
    os._exit(0)
"""
    run_python(code)
    assert reader(tmp_path).read()["step"].tolist() == [0, 1, 2, 100]
    assert len(list(tmp_path.rglob("*.arrows"))) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="requires a limit on the size of files")
def test_rows_are_kept_until_there_is_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        writer = _core.StatisticsWriter(tmp_path, steps=1)
        append(writer, 0)
        written = sum(file.stat().st_size for file in tmp_path.rglob("*.arrows"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (written + 100, hard))
        for step in (1, 2):
            with pytest.raises(OSError, match="too large"):
                append(writer, step)
        assert (writer.pending, writer.lost) == (4, 0)
        assert reader(tmp_path).read()["step"].tolist() == [0, 0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        append(writer, 3)
        writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    file = reader(tmp_path)
    assert file.read(["w0"])["step"].tolist() == [0, 1, 2, 3]
    assert file.faults(ended=True) == []


def test_other_libraries_read_a_segment(tmp_path: Path) -> None:
    ipc = pytest.importorskip("pyarrow.ipc")
    writer = _core.StatisticsWriter(tmp_path, steps=4)
    for step in range(8):
        append(writer, step)
    # While the file grows there is no end mark.
    for _ in range(2):
        [path] = tmp_path.rglob("*.arrows")
        with ipc.open_stream(path) as stream:
            table = stream.read_all()
        table.validate(full=True)
        assert table.schema.metadata == {b"smdwidgets.statistics": b"1"}
        assert table.num_rows == 16
        assert table["step"].to_pylist() == [0, 1, 2, 3] * 2 + [4, 5, 6, 7] * 2
        np.testing.assert_array_equal(table["min"].to_numpy(), table["step"].to_numpy() + table["tensor"].to_numpy())
        writer.close()


def test_polars_reads_a_segment(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    with _core.StatisticsWriter(tmp_path) as writer:
        append(writer, 3)
    [path] = tmp_path.rglob("*.arrows")
    assert polars.read_ipc_stream(path)["max"].to_list() == [5.0, 6.0]


class Bucket(LocalStorage):
    """A storage that answers ranges beyond the end as S3 does."""

    def read_ranges(self, ranges: Sequence[Range]) -> Sequence[bytes | memoryview]:
        """Return the ranges."""
        found = super().read_ranges(ranges)
        if any(wanted.length and not data for wanted, data in zip(ranges, found, strict=True)):
            raise TruncatedDataError("range not satisfiable")
        return found


def test_statistics_are_read_through_a_storage(tmp_path: Path) -> None:
    file = StatisticsFile(Bucket(str(tmp_path)))
    for step in range(3):
        with _core.StatisticsWriter(tmp_path, "worker_1") as writer:
            append(writer, step)
        assert file.refresh()
        assert not file.refresh()
        assert file.read(["w1"])["step"].tolist() == list(range(step + 1))
    assert file.faults(ended=True) == []


@pytest.mark.parametrize("segments", [3, 7])
def test_a_compacted_run_in_a_store_opens_with_as_many_requests_however_many_segments_it_has(
    tmp_path: Path, segments: int
) -> None:
    with Hook(tmp_path, export_tensorboard=False) as hook:
        hook.save_scalar("loss", 0.5)
    for folder in tmp_path.glob("statistics/*/*"):
        folder.unlink()
    for step in range(segments):
        with _core.StatisticsWriter(tmp_path) as writer:
            append(writer, step)
    before = StatisticsFile(before_store := Store(str(tmp_path)))
    assert before.refresh()
    assert before_store.requests == 2 * segments
    assert not before.refresh()
    assert before_store.requests == 2 * segments
    smdwidgets.compact(tmp_path)
    file = StatisticsFile(store := Store(str(tmp_path)))
    assert file.refresh()
    assert store.requests == 1
    table, expected = file.read(), reader(tmp_path).read()
    for column, values in expected.items():
        np.testing.assert_array_equal(table[column], values, err_msg=column)
    index = next(tmp_path.rglob("segments.index"))
    made = index.stat().st_mtime_ns
    smdwidgets.compact(tmp_path)
    assert index.stat().st_mtime_ns == made
    index.write_bytes(index.read_bytes()[:-1])
    file = StatisticsFile(store := Store(str(tmp_path)))
    assert file.refresh()
    assert store.requests == 1 + 2 * segments
    assert file.read()["step"].tolist() == table["step"].tolist()
    assert [key for key, *_ in file.faults(ended=True)] == ["statistics/worker_0/segments.index"]


def test_tail_of_a_killed_writer_is_reported_when_it_cannot_grow(tmp_path: Path) -> None:
    with _core.StatisticsWriter(tmp_path) as writer:
        append(writer, 0)
    [path] = tmp_path.rglob("*.arrows")
    path.write_bytes(path.read_bytes()[:-8] + b"torn")
    file = reader(tmp_path)
    assert file.read()["step"].tolist() == [0, 0]
    assert file.faults(ended=False) == []
    [(key, offset, reason)] = file.faults(ended=True)
    assert (key, offset) == ("statistics/worker_0/000000.arrows", None)
    assert reason.startswith("4 bytes dropped")
    with _core.StatisticsWriter(tmp_path) as writer:
        append(writer, 1)
    assert len(reader(tmp_path).faults(ended=False)) == 1
