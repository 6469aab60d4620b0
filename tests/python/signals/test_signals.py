"""Files of signals, and how a trial reads them."""

import numpy as np
import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError
from smdwidgets.numpy import Hook
from smdwidgets.signals.file import SignalFile, SignalWriter
from smdwidgets.signals.record import SignalLog, parsed_line, plain_values, written_line

HEADS = ("attention_max", "blocks.0")


@pytest.fixture
def run(tmp_path):
    with Hook(tmp_path / "run") as hook:
        for step in range(3):
            hook.save_scalar("loss", float(step))
            hook.step()
    return tmp_path / "run"


def writer_of(run, worker="worker_0"):
    return SignalWriter(SignalFile(run, worker).append)


def path_of(run):
    return run / "signals" / "worker_0.jsonl"


def test_values_are_read_as_they_were_written(run):
    writer = writer_of(run)
    writer.write(0, {HEADS: [1 / 3, -2.0], ("log_z", ""): [4.5]})
    writer.write(8, {HEADS: [float("inf"), float("nan")]})
    trial = smdwidgets.create_trial(run)
    signal = trial.signal("attention_max/blocks.0")
    assert signal.steps.tolist() == [0, 8]
    np.testing.assert_allclose(signal.values, [[0.33333, -2], [np.inf, np.nan]], rtol=1e-6)
    assert signal.at(7).tolist() == signal.values[0].tolist()
    assert trial.signals("log_z").values.tolist() == [[[4.5]]]
    assert trial.signals().kinds == ["attention_max", "log_z"]
    assert trial.problems() == []
    with pytest.raises(SMDebugValueError, match=r"Did you mean 'attention_max/blocks\.0'"):
        trial.signal("attention_max/blocks.1")
    with pytest.raises(SMDebugValueError, match="Did you mean 'router_load'"):
        trial.signals("router_lod")
    with pytest.raises(SMDebugValueError, match="no value up to step -1"):
        signal.at(-1)


def test_a_script_saves_signals_at_its_steps(tmp_path):
    with Hook(tmp_path / "run") as hook:
        for step in range(4):
            hook.save_signal("router_load", "moe", np.array([step, 1, 0.5, 0.5], np.float32), most=2)
            hook.save_signal("log_z", "", 4)
            hook.save_signal("stale", "Adam", [1, 2], names=["w", "b"])
            hook.step()
    trial = smdwidgets.create_trial(tmp_path / "run")
    load = trial.signal("router_load/moe")
    assert (load.steps.tolist(), load.most, load.values[:, 0].tolist()) == ([0, 1, 2, 3], 2.0, [0, 1, 2, 3])
    assert trial.signal("log_z").values.tolist() == [[4.0]] * 4
    assert trial.signal("stale/Adam").row_name(1) == "b"
    assert trial.problems() == []


def test_a_resumed_script_continues_its_signals(tmp_path):
    for resume in (False, True):
        with Hook(tmp_path / "run", resume=resume) as hook:
            for _ in range(3):
                hook.save_signal("log_z", "", 1.0)
                hook.save_scalar("loss", 1.0)
                hook.step()
    assert smdwidgets.create_trial(tmp_path / "run").signal("log_z").steps.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("router_lod", "moe", [1.0]), {}, "Did you mean 'router_load'"),
        ((None, "moe", [1.0]), {}, "unknown kind"),
        (("router_load", 3, [1.0]), {}, "must be a string"),
        (("router_load", "moe", []), {}, "numbers in one row"),
        (("router_load", "moe", [[1.0], [2.0]]), {}, "numbers in one row"),
        (("router_load", "moe", ["one"]), {}, "numbers in one row"),
        (("router_load", "moe", [1.0]), {"most": float("nan")}, "invalid most"),
        (("router_load", "moe", [1.0]), {"names": [1]}, "must be a string"),
    ],
)
def test_a_wrong_call_of_save_signal_says_what_is_wrong(tmp_path, arguments, options, message):
    with Hook(tmp_path / "run") as hook, pytest.raises((SMDebugTypeError, SMDebugValueError), match=message):
        hook.save_signal(*arguments, **options)
    assert not (tmp_path / "run" / "signals").exists()


def test_a_hook_that_writes_nothing_or_is_closed_writes_no_signals(tmp_path):
    hook = Hook(tmp_path / "dry", dry_run=True)
    hook.save_signal("log_z", "", 1.0)
    hook.close()
    hook = Hook(tmp_path / "closed")
    hook.close()
    hook.save_signal("log_z", "", 1.0)
    assert not list(tmp_path.rglob("signals"))


def test_values_that_arrive_late_do_not_delete_later_ones():
    lines = []
    writer, log = SignalWriter(lines.append), SignalLog("worker_0")
    for step in (0, 9, 8, 10):
        writer.write(step, {HEADS: [float(step)], ("log_z", ""): [float(step)]})
    log.update(lambda offset, length: b"".join(lines)[offset : offset + length])
    assert [one.steps.tolist() for one in log.signals()] == [[0, 9, 10]] * 2


def test_values_have_the_axes_layer_row_and_step(run):
    writer = writer_of(run)
    writer.write(0, {("attention_max", "a"): [1.0, 2.0], ("attention_max", "b"): [3.0]})
    writer.write(4, {("attention_max", "a"): [5.0, 6.0]})
    values = smdwidgets.create_trial(run).signals("attention_max").values
    np.testing.assert_array_equal(values, [[[1, 5], [2, 6]], [[3, np.nan], [np.nan, np.nan]]])
    array = smdwidgets.create_trial(run).signals("attention_max").to_xarray()
    assert array.sel(layer="a", row=1, step=4) == 6
    assert array.dims == ("layer", "row", "step")


def test_a_table_has_a_line_for_each_value(run):
    pyarrow = pytest.importorskip("pyarrow")
    trial = smdwidgets.create_trial(run)
    assert trial.signals().to_arrow().num_rows == 0
    writer = writer_of(run)
    writer.declare("stale", "Adam", ["w", "b"])
    writer.write(0, {("stale", "Adam"): [1.0, 2.0], HEADS: [3.0, 4.0]})
    writer.write(4, {("stale", "Adam"): [5.0, 6.0], ("log_z", ""): [7.0]})
    table = trial.signals().to_arrow()
    assert table.schema.field("value").type == pyarrow.float32()
    lines = [tuple(one.values()) for one in table.to_pylist()]
    assert lines == [
        ("attention_max", "blocks.0", 0, "head 0", "worker_0", 0, 3.0),
        ("attention_max", "blocks.0", 1, "head 1", "worker_0", 0, 4.0),
        ("log_z", "", 0, "", "worker_0", 4, 7.0),
        ("stale", "Adam", 0, "w", "worker_0", 0, 1.0),
        ("stale", "Adam", 1, "b", "worker_0", 0, 2.0),
        ("stale", "Adam", 0, "w", "worker_0", 4, 5.0),
        ("stale", "Adam", 1, "b", "worker_0", 4, 6.0),
    ]
    assert {*trial.signals("log_z").table()} == {*table.column_names}


def test_a_growing_file_is_read_from_where_reading_ended(run):
    writer = writer_of(run)
    writer.write(0, {HEADS: [1.0]})
    trial = smdwidgets.create_trial(run)
    assert len(trial.signal("attention_max/blocks.0")) == 1
    with path_of(run).open("ab") as file:
        line = written_line({"step": 1, "values": {"0": [2.0]}})
        file.write(line[:20])
        file.flush()
        assert len(trial.signal("attention_max/blocks.0")) == 1
        assert trial.problems() == []
        file.write(line[20:])
    assert trial.signal("attention_max/blocks.0").values.tolist() == [[1.0], [2.0]]


def test_reading_continues_at_the_first_new_byte():
    lines = []
    writer = SignalWriter(lines.append)
    log = SignalLog("worker_0")
    asked = []

    def read(offset, length):
        asked.append(offset)
        return b"".join(lines)[offset : offset + length]

    for step in range(3):
        writer.write(step, {HEADS: [float(step)]})
        before = len(b"".join(lines[:-1]))
        asked.clear()
        assert log.update(read)
        assert {one for one in asked if one} <= {before, len(b"".join(lines))}
    assert not log.update(read)
    assert [one.values.ravel().tolist() for one in log.signals()] == [[0, 1, 2]]


def test_a_file_that_another_run_has_replaced_is_read_again(run):
    writer_of(run).write(0, {HEADS: [1.0]})
    trial = smdwidgets.create_trial(run)
    assert len(trial.signals()) == 1
    path_of(run).unlink()
    writer_of(run).write(5, {("log_z", ""): [1.0]})
    assert trial.signals().kinds == ["log_z"]


@pytest.mark.parametrize(
    "damaged",
    [
        b"\x00\xff damaged\n",
        b"00000000 {}\n",
        written_line({"step": "x", "values": {}}),
        written_line({"step": -1, "values": {}}),
        written_line({"step": 1, "values": {"7": [1.0]}}),
        written_line({"step": 1, "values": {"0": [[1.0]]}}),
        written_line({"step": 1, "values": [1.0]}),
        written_line({"kind": "unknown", "id": 3}),
        written_line({"kind": "log_z", "id": None}),
        written_line({"kind": "log_z", "off": "x"}).replace(b"x", b"y"),
        b"[" * 100_000 + b"\n",
    ],
)
@pytest.mark.slow
def test_a_damaged_line_is_a_problem_and_the_others_are_read(run, damaged):
    writer_of(run).write(0, {HEADS: [1.0]})
    with path_of(run).open("ab") as file:
        file.write(damaged)
    writer = SignalWriter(SignalFile(run, "worker_0").append)
    writer.write(1, {HEADS: [2.0]})
    trial = smdwidgets.create_trial(run)
    assert trial.signal("attention_max/blocks.0").values.tolist() == [[1.0], [2.0]]
    [(file, message)] = trial.problems()
    assert file == "signals/worker_0.jsonl"
    assert "line 3" in message


def test_every_flipped_byte_is_a_problem_or_an_incomplete_end():
    lines = []
    SignalWriter(lines.append).write(0, {HEADS: [1.0, 2.0]})
    content = b"".join(lines)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        log = SignalLog("worker_0")
        log.update(lambda offset, length, changed=changed: bytes(changed[offset : offset + length]))
        values = [one.values.tolist() for one in log.signals()]
        assert values == []
        assert log.problems or b"\n" not in bytes(changed[-1:])


def test_a_line_that_a_killed_process_left_does_not_damage_the_next_one(run):
    writer_of(run).write(0, {HEADS: [1.0]})
    with path_of(run).open("ab") as file:
        file.write(b"12345678 {")
    writer_of(run).write(1, {HEADS: [2.0]})
    trial = smdwidgets.create_trial(run)
    assert trial.signal("attention_max/blocks.0").steps.tolist() == [0, 1]
    assert len(trial.problems()) == 1


def test_steps_that_a_resumed_training_executes_again_replace_the_earlier_ones(run):
    first = writer_of(run)
    for step in (0, 8, 16):
        first.write(step, {HEADS: [float(step)]})
    writer_of(run).write(8, {("log_z", ""): [2.0], HEADS: [9.0]})
    signals = smdwidgets.create_trial(run).signals()
    assert signals.of("attention_max")[0].steps.tolist() == [0, 8]
    assert signals.of("attention_max")[0].values.ravel().tolist() == [0, 9]


def test_why_a_kind_was_not_recorded_is_said(run):
    writer = writer_of(run)
    writer.off("router_load", "no router")
    writer.off("router_load", "again")
    trial = smdwidgets.create_trial(run)
    assert trial.signals().off == {"router_load": "no router"}
    assert "router_load was not recorded: no router" in repr(trial.signals())
    [unjudged] = [one for one in smdwidgets.diagnose(trial).unjudged if "router_load" in one.name]
    assert unjudged.reason == "no router"


def test_an_overwritten_run_has_no_earlier_signals(run):
    writer_of(run).write(0, {HEADS: [1.0]})
    with Hook(run, overwrite=True) as hook:
        hook.save_scalar("loss", 1.0)
    assert len(smdwidgets.create_trial(run).signals()) == 0


def test_a_line_has_its_checksum_and_json_without_special_numbers():
    line = written_line({"step": 0, "values": {"0": plain_values([float("nan"), float("-inf"), 1e-30])}})
    assert b"NaN" not in line
    assert parsed_line(line[:-1])["values"]["0"] == [None, "-inf", 1e-30]
    with pytest.raises(ValueError, match="checksum"):
        parsed_line(line[:-2])


def saved(folder):
    with Hook(folder) as hook:
        for step in range(4):
            hook.save_signal("attention_max", "blocks.0", [step, 2.0 * step])
            hook.save_signal("log_z", "", float("nan") if step == 2 else 4.5)
            hook.save_scalar("loss", 1.0)
            hook.step()
    return folder


def test_signals_are_exported_as_csv_and_parquet(tmp_path, capsys):
    run = str(saved(tmp_path / "run"))
    assert cli.main(["export", run, "--to", "csv", "--signals", "-o", str(tmp_path / "a.csv"), "--steps", "1:3"]) == 0
    assert "6 values of 2 signals at 2 steps" in capsys.readouterr().out
    assert (tmp_path / "a.csv").read_text().splitlines() == [
        "kind,layer,row,name,worker,step,value",
        "attention_max,blocks.0,0,head 0,worker_0,1,1",
        "attention_max,blocks.0,1,head 1,worker_0,1,2",
        "attention_max,blocks.0,0,head 0,worker_0,2,2",
        "attention_max,blocks.0,1,head 1,worker_0,2,4",
        "log_z,,0,,worker_0,1,4.5",
        "log_z,,0,,worker_0,2,nan",
    ]
    parquet = pytest.importorskip("pyarrow.parquet")
    trial = smdwidgets.create_trial(run)
    done = trial.export("parquet", tmp_path / "a.parquet", signals=True)
    assert (done.records, done.tensors, done.steps) == (12, 2, 4)
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == list(trial.signals().table())
    assert table.column("value").to_pylist()[:8] == [0, 0, 1, 2, 2, 4, 3, 6]


def test_a_wrong_export_of_signals_says_what_is_wrong(run, tmp_path):
    trial = smdwidgets.create_trial(run)
    writer_of(run).off("router_load", "no router")
    for options, message in (
        ({"to": "csv"}, "has no signals; router_load: no router"),
        ({"to": "npz"}, "signals cannot be exported as npz; choose from parquet, csv"),
        ({"to": "csv", "tensors": "w"}, "signals have no tensors and modes"),
        ({"to": "csv", "workers": "worker_7"}, "worker_7"),
    ):
        with pytest.raises(SMDebugError, match=message):
            trial.export(options.pop("to"), tmp_path / "out", signals=True, **options)
    assert not (tmp_path / "out").exists()
    saved(tmp_path / "other")
    with pytest.raises(SMDebugValueError, match="no signals at these steps and workers"):
        smdwidgets.create_trial(tmp_path / "other").export("csv", tmp_path / "out", signals=True, steps=[9])


def test_signals_of_a_compacted_run_are_read(tmp_path):
    run = saved(tmp_path / "run")
    smdwidgets.compact(run)
    trial = smdwidgets.create_trial(run)
    assert trial.signal("attention_max/blocks.0").values[:, 1].tolist() == [0, 2, 4, 6]
    assert trial.problems() == []
