"""Exports hold the tensors of the run, read back with the tools of each format."""

from __future__ import annotations

import itertools
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fixtures import unpacked
from python import tfrecords
from smdwidgets import _core, cli, create_trial
from smdwidgets.exceptions import SMDebugError
from smdwidgets.exports import FORMATS, records
from smdwidgets.exports.names import file_name
from smdwidgets.modes import ModeKeys

GOLDEN = unpacked("golden")
NAMES = [
    "w",
    "loss",
    "dir/../../x",
    "..",
    "evil\x1b[2J\rname",
    "ü€😀 a b",
    "C:\\con",
    "x" * 600,
    "x" * 600 + "y",
    "a",
    "A",
]
VALUES = {name: np.arange(6, dtype=np.float32).reshape(2, 3) + at for at, name in enumerate(NAMES)}
VALUES["loss"] = np.float64(0.1)


def write(root: Path, steps: range, values: dict[str, object], workers: int = 1) -> Path:
    for step, worker in itertools.product(steps, range(workers)):
        mode = ModeKeys.TRAIN if step % 2 == 0 else ModeKeys.EVAL
        with _core.StepWriter(root, step, f"worker_{worker}", mode.value, step // 2) as writer:
            for name, value in values.items():
                writer.tensor(name, np.asarray(value) + np.asarray(value).dtype.type(step))
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True)
    for worker in range(workers):
        content = {"collections": {}, "_meta": {"num_workers": workers}}
        (folder / f"worker_{worker}_collections.json").write_text(json.dumps(content))
    (root / "training_job_end.ts").touch()
    return root


@pytest.fixture
def run(tmp_path):
    return write(tmp_path / "run", range(6), VALUES, workers=2)


@pytest.fixture
def trial(run):
    with create_trial(run) as opened:
        yield opened


def saved_values(trial):
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        for step in tensor.steps():
            for worker in tensor.workers(step):
                yield name, step, worker, tensor.value(step, worker=worker)


def run_cli(capsys, *arguments):
    code = cli.main([str(each) for each in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# ------------------------------------------------------------------------------------------------------------- npz


def test_npz_holds_every_array_under_a_safe_member_name(trial, tmp_path):
    done = trial.export("npz", tmp_path / "out.npz")
    assert (done.records, done.tensors, done.steps) == (len(NAMES) * 6 * 2, len(NAMES), 6)
    assert done.bytes == (tmp_path / "out.npz").stat().st_size
    with np.load(tmp_path / "out.npz") as archive:
        index = [json.loads(line) for line in archive["index.jsonl"].splitlines()]
        by_record = {(each["tensor"], each["step"], each["worker"]): each for each in index}
        for name, step, worker, value in saved_values(trial):
            each = by_record[name, step, worker]
            np.testing.assert_array_equal(archive[each["member"]], value, strict=True)
            assert (each["mode"], each["mode_step"]) == ("EVAL" if step % 2 else "TRAIN", step // 2)
            assert (each["dtype"], tuple(each["shape"])) == (value.dtype.name, value.shape)
        np.testing.assert_array_equal(archive["w/000000000004.worker_1"], VALUES["w"] + 4)
    members = zipfile.ZipFile(tmp_path / "out.npz").namelist()
    assert len(set(members)) == len(members) == done.records + 1
    assert all(not {"..", ".", ""} & set(name.split("/")) and "\\" not in name for name in members)
    assert all(len(part) < 200 for name in members for part in name.split("/"))
    zipfile.ZipFile(tmp_path / "out.npz").extractall(tmp_path / "unpacked")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out.npz", "unpacked"}


def test_file_names_are_unique():
    odd = ["", ".", "..", "...", "%", "%2E", "a/b", "a%2Fb", "a b", "\ud800", "x" * 200, "x" * 201]
    assert len({file_name(name) for name in odd}) == len(odd)
    assert all(file_name(name).strip(".") and file_name(name).isascii() for name in odd)


@pytest.mark.parametrize("golden", ["core_dtypes", "core_strings", "core_special_values", "core_scalars_and_empty"])
def test_every_dtype_in_npz_and_parquet(golden, tmp_path):
    import pyarrow.parquet

    with create_trial(GOLDEN / golden / "run") as trial:
        trial.export("npz", tmp_path / "out.npz")
        trial.export("parquet", tmp_path / "out.parquet")
        trial.export("tensorboard", tmp_path / "out")
        expected = {(name, step): value for name, step, _, value in saved_values(trial)}
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert {(row["tensor"], row["step"]) for row in table} == set(expected)
    for row in table:
        value = expected[row["tensor"], row["step"]]
        assert row["shape"] == list(value.shape)
        flat = value.reshape(-1)
        if row["text"] is None:
            np.testing.assert_array_equal(np.array(row["values"]), flat.astype(np.float64))
        else:
            assert row["values"] is None
            assert row["text"] == [cell.decode() if isinstance(cell, bytes) else str(cell) for cell in flat.tolist()]
    with np.load(tmp_path / "out.npz", allow_pickle=False) as archive:
        for line in archive["index.jsonl"].splitlines():
            each = json.loads(line)
            value = expected[each["tensor"], each["step"]]
            array = archive[each["member"]]
            if value.dtype.kind in "OV":
                assert (
                    array.reshape(-1).astype(str).tolist() == value.reshape(-1).astype(array.dtype).astype(str).tolist()
                )
            else:
                np.testing.assert_array_equal(array, value, strict=True)


# --------------------------------------------------------------------------------------------------------- parquet


def test_parquet_has_one_row_per_record(trial, tmp_path):
    import pandas

    trial.export("parquet", tmp_path / "out.parquet")
    table = pandas.read_parquet(tmp_path / "out.parquet").set_index(["tensor", "step", "worker"])
    assert list(table.columns) == ["mode", "mode_step", "dtype", "shape", "values", "text", "reductions", "wall_time"]
    assert len(table) == len(NAMES) * 6 * 2
    for name, step, worker, value in saved_values(trial):
        row = table.loc[(name, step, worker)]
        assert row["values"].tolist() == value.reshape(-1).tolist()
        assert row["shape"].tolist() == list(value.shape)
        assert row["dtype"] == value.dtype.name


def test_parquet_exports_saved_reductions_and_shapes(tmp_path):
    import pyarrow.parquet

    with create_trial(GOLDEN / "pt_reductions" / "run") as trial:
        trial.export("parquet", tmp_path / "r.parquet")
        rows = [row for row in pyarrow.parquet.read_table(tmp_path / "r.parquet").to_pylist() if row["reductions"]]
        assert rows
        for row in rows:
            tensor = trial.tensor(row["tensor"])
            for name, value in row["reductions"]:
                absolute = name.startswith("abs_")
                expected = tensor.reduction_value(row["step"], name.removeprefix("abs_"), abs=absolute)
                assert value == pytest.approx(float(expected), nan_ok=True)
    with create_trial(GOLDEN / "pt_save_shape" / "run") as trial:
        trial.export("parquet", tmp_path / "s.parquet")
        shapes = [
            row for row in pyarrow.parquet.read_table(tmp_path / "s.parquet").to_pylist() if row["values"] is None
        ]
        assert shapes
        assert all(tuple(row["shape"]) == trial.tensor(row["tensor"]).shape(row["step"]) for row in shapes)


def test_integers_beyond_float64_are_exported_as_text(tmp_path):
    import pyarrow.parquet

    run = write(tmp_path / "run", range(1), {"n": np.array([2**62 + 1, -3], np.int64), "m": np.array([7], np.int64)})
    with create_trial(run) as trial:
        trial.export("parquet", tmp_path / "out.parquet")
    rows = {row["tensor"]: row for row in pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()}
    assert (rows["n"]["text"], rows["n"]["values"]) == ([str(2**62 + 1), "-3"], None)
    assert (rows["m"]["text"], rows["m"]["values"]) == (None, [7.0])


def test_missing_pyarrow_error_names_the_extra(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = run_cli(capsys, "export", run, "--to", "parquet", "-o", tmp_path / "out.parquet")
    assert code == 2
    assert "smdwidgets[parquet]" in err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# ----------------------------------------------------------------------------------------------------- tensorboard


def accumulated(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0}).Reload()


def test_tensorboard_reads_equal_values(trial, run, tmp_path):
    trial.export("tensorboard", tmp_path / "logs")
    for worker, mode in itertools.product(("worker_0", "worker_1"), ("TRAIN", "EVAL")):
        log = accumulated(tmp_path / "logs" / worker / mode)
        odd = mode == "EVAL"
        scalars = log.Scalars("loss")
        assert [event.step for event in scalars] == [0, 1, 2]
        assert [event.value for event in scalars] == [float(np.float32(0.1 + 2 * n + odd)) for n in range(3)]
        written = next(run.rglob("000000000000_worker_0.tfevents")).stat().st_mtime
        assert scalars[0].wall_time == pytest.approx(written, abs=120)
        for name in set(NAMES) - {"loss"}:
            for event in log.Histograms(name):
                value = VALUES[name] + 2 * event.step + odd
                histogram = event.histogram_value
                assert (histogram.min, histogram.max, histogram.num) == (value.min(), value.max(), value.size)
                assert histogram.sum == pytest.approx(float(value.sum()))
                assert sum(histogram.bucket) == value.size
    for file in (tmp_path / "logs").rglob("*.tfevents"):
        assert all(record.checked for record in tfrecords.records(file.read_bytes()))


def test_tensorboard_exports_text_and_saved_reductions(tmp_path):
    from tensorboard.util.tensor_util import make_ndarray

    with create_trial(GOLDEN / "core_strings" / "run") as trial:
        trial.export("tensorboard", tmp_path / "text")
        texts = {name: value for name, _, _, value in saved_values(trial) if value.dtype.kind in "OSU" and value.size}
    [folder] = {path.parent for path in (tmp_path / "text").rglob("*.tfevents")}
    log = accumulated(folder)
    assert texts
    for name, value in texts.items():
        proto = log.Tensors(name)[-1].tensor_proto
        expected = [cell.encode() if isinstance(cell, str) else cell for cell in value.reshape(-1).tolist()]
        assert make_ndarray(proto).reshape(-1).tolist() == expected
    with create_trial(GOLDEN / "pt_reductions" / "run") as trial:
        trial.export("tensorboard", tmp_path / "reductions")
    folder = next((tmp_path / "reductions").rglob("*.tfevents")).parent
    assert any(tag.endswith("/mean") for tag in accumulated(folder).Tags()["scalars"])


def test_tensorboard_log_round_trip(trial, tmp_path):
    trial.export("tensorboard", tmp_path / "logs", workers="worker_0", mode="TRAIN", tensors="loss")
    with create_trial(tmp_path / "logs") as log:
        log.export("tensorboard", tmp_path / "again")
    [first], [second] = ([*(tmp_path / each).rglob("*.tfevents")] for each in ("logs", "again"))
    before, after = accumulated(first.parent).Scalars("loss"), accumulated(second.parent).Scalars("loss")
    assert before == after


# --------------------------------------------------------------------------------------- selection and output path


def test_export_writes_only_the_selected_records(trial, tmp_path):
    done = trial.export(
        "npz", tmp_path / "out.npz", tensors="^w$", mode="EVAL", steps=range(1, 3), workers=["worker_1"]
    )
    assert (done.records, done.tensors, done.steps) == (2, 1, 2)
    with np.load(tmp_path / "out.npz") as archive:
        assert set(archive.files) == {"w/000000000003.worker_1", "w/000000000005.worker_1", "index.jsonl"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "npy"}, "Did you mean 'npz'"),
        ({"tensors": "no such"}, "no tensor of run 'run' matches 'no such'"),
        ({"steps": range(90, 100)}, "no saved step of run 'run' matches mode=GLOBAL"),
        ({"workers": "worker_7"}, "worker_7"),
        ({"out": "no/such/folder/x.npz"}, "no directory"),
    ],
)
def test_invalid_arguments_write_nothing(trial, tmp_path, options, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SMDebugError, match=message):
        trial.export(**{"to": "npz", "out": "x.npz", **options})
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("to", FORMATS)
def test_existing_output_is_replaced_only_with_force(trial, tmp_path, to, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = trial.export(to)
    assert first.path.name == "run" + FORMATS[to][2]
    with pytest.raises(SMDebugError, match="--force"):
        trial.export(to)
    second = trial.export(to, force=True, tensors="^w$")
    assert second.records < first.records
    assert {path.name for path in tmp_path.iterdir()} == {"run", first.path.name}


def test_folder_with_other_files_is_not_replaced_even_with_force(trial, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    for force in (False, True):
        with pytest.raises(SMDebugError, match=r"choose another name"):
            trial.export("tensorboard", tmp_path / "mine", force=force)
    with pytest.raises(SMDebugError, match="is a directory"):
        trial.export("npz", tmp_path / "mine", force=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years"


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.slow
def test_failed_export_keeps_the_previous_output(trial, tmp_path, to, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = trial.export(to)
    before = {path: path.read_bytes() for path in done.path.parent.rglob("*") if path.is_file()}
    monkeypatch.setattr(records, "BATCH_ROWS", 4)
    real = records._read
    left = iter(range(3))

    def fails(*arguments):
        next(left)  # raises StopIteration, which a generator turns into RuntimeError
        return real(*arguments)

    monkeypatch.setattr(records, "_read", fails)
    with pytest.raises(RuntimeError):
        trial.export(to, force=True)
    assert {path: path.read_bytes() for path in done.path.parent.rglob("*") if path.is_file()} == before


def test_memory_is_bounded_by_the_batch_size(tmp_path, monkeypatch):
    run = write(tmp_path / "run", range(40), {"w": np.zeros(50_000, np.float32)})
    monkeypatch.setattr(records, "BATCH_BYTES", 1 << 20)
    sizes = []
    real = records._read

    def measured(trial, rows, failed, times):
        found = real(trial, rows, failed, times)
        sizes.append(sum(record.value.nbytes for record in found))
        return found

    monkeypatch.setattr(records, "_read", measured)
    calls = []
    with create_trial(run) as trial:
        assert trial.export("npz", tmp_path / "o.npz", progress=lambda *done: calls.append(done)).records == 40
    assert max(sizes) <= 1 << 20
    assert len(sizes) >= 8
    assert calls[-1] == (40, 40)
    assert calls == sorted(calls)


# --------------------------------------------------------------------------------------------------------- command


def test_export_command_and_summary(run, tmp_path, capsys):
    code, out, err = run_cli(
        capsys, "export", run, "--to", "npz", "-o", tmp_path / "a.npz", "--tensors", "^w$", "--json"
    )
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "path": str(tmp_path / "a.npz"),
        "format": "npz",
        "records": 12,
        "tensors": 1,
        "steps": 6,
        "bytes": (tmp_path / "a.npz").stat().st_size,
        "left_out": [],
    }
    code, out, err = run_cli(capsys, "export", run, "--to", "npz", "-o", tmp_path / "a.npz")
    assert (code, out) == (2, "")
    assert "--force" in err
    code, out, _ = run_cli(
        capsys, "export", run, "--to", "parquet", "-o", tmp_path / "b.parquet",
        "--mode", "EVAL", "--steps", "1:2", "--workers", "worker_1", "--tensors", "^(w|loss)$",
    )  # fmt: skip
    assert code == 0
    assert "2 records of 2 tensors at 1 steps" in out


def test_damaged_record_is_skipped_and_reported(run, tmp_path, capsys):
    [victim] = run.rglob("000000000002_worker_0.tfevents")
    data = bytearray(victim.read_bytes())
    data[data.rindex((VALUES["w"] + 2).tobytes())] ^= 1
    victim.write_bytes(data)
    code, out, _ = run_cli(capsys, "export", run, "--to", "npz", "-o", tmp_path / "out.npz", "--json")
    summary = json.loads(out)
    assert code == 1
    [left] = summary["left_out"]
    assert (left["tensor"], left["step"]) == ("w", 2)
    assert summary["records"] == len(NAMES) * 12 - 1
    code, _, err = run_cli(capsys, "export", run, "--to", "npz", "-o", tmp_path / "out.npz", "--force")
    assert code == 1
    assert "skipped: w at step 2" in err
