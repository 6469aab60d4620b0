"""Runs of W&B and trackio: values, growth, damage, hostile content."""

from __future__ import annotations

import json
import math
import os
import random
import re
import sqlite3
import struct
import zlib
from contextlib import closing

import numpy as np
import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.exceptions import CorruptDataError, SMDebugError
from smdwidgets.sources.step_columns import StepColumns
from smdwidgets.sources.wandb import MAGIC

BLOCK = 32 << 10


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def message(number, content):
    """Return a field of a message that holds bytes."""
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def item(keys, text):
    names = [keys] if isinstance(keys, str) else keys
    return message(1, b"".join(message(2, name) for name in names) + message(16, text))


def history(step, **numbers):
    rows = [item(name.split("."), json.dumps(value)) for name, value in numbers.items()]
    rows += [item("_step", str(step)), item("_timestamp", str(1.7e9 + step))]
    return message(2, b"".join(rows))


def framed(records, data=MAGIC):
    """Return records in the framing of LevelDB's logs."""
    for record in records:
        begin, first = 0, True
        while first or begin < len(record):
            left = BLOCK - len(data) % BLOCK
            if left < 7:
                data, left = data + bytes(left), BLOCK
            part = record[begin : begin + left - 7]
            begin += len(part)
            last = begin == len(record)
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, last]
            data += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            first = False
    return data


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "wandb" / "offline-run-1" / "run-1.wandb"
    path.parent.mkdir(parents=True)
    return path


def values(trial, name):
    return {step: value.item() for step, value in trial.tensor(name).values().items()}


def test_history_settings_and_end(file):
    config = message(4, item("lr", "0.1") + item("model", '{"width": 64}') + item("_wandb", "{}"))
    run = message(
        17, message(1, "1") + config + message(6, "group") + message(8, "my run") + message(10, "a") + message(10, "b")
    )
    rows = [history(2 * step, **{"train/loss": 1 / (step + 1), "part.deep.x": step}) for step in range(300)]
    file.write_bytes(framed([run, *rows, message(18, b"\x08\x00")]))
    trial = smdwidgets.create_trial(file.parent)
    assert values(trial, "train/loss") == {2 * step: 1 / (step + 1) for step in range(300)}
    assert values(trial, "part.deep.x")[598] == 299
    assert trial.hparams() == {
        "lr": 0.1,
        "model/width": 64,
        "wandb.name": "my run",
        "wandb.group": "group",
        "wandb.tags": "a, b",
    }
    [row] = smdwidgets.runs(file.parent.parent.parent)
    assert (row["kind"], row["state"], row.name) == ("W&B run", "ended", "wandb/offline-run-1")
    assert trial.problems() == []


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '"NaN"', '"Infinity"', '"-Infinity"'])
def test_values_that_are_not_finite(file, text):
    rows = [message(2, item("loss", text if step == 3 else "1.5") + item("_step", str(step))) for step in range(5)]
    file.write_bytes(framed(rows))
    assert np.array_equal(values(smdwidgets.create_trial(file), "loss")[3], float(text.strip('"')), equal_nan=True)


def test_typed_values(file):
    def row(step):
        typed = message(1, message(2, "loss") + varint(6 << 3 | 1) + struct.pack("<d", step / 2))
        count = message(1, message(2, "count") + varint(5 << 3) + varint(2**64 - step if step else 0))
        return message(2, typed + count + item("_step", str(step)))

    file.write_bytes(framed(map(row, range(5))))
    trial = smdwidgets.create_trial(file)
    assert values(trial, "loss") == {step: step / 2 for step in range(5)}
    assert values(trial, "count") == {step: -step for step in range(5)}


def test_images_and_text_are_no_numbers(file):
    media = item(["image", "_type"], '"image-file"') + item(["image", "width"], "7")
    media += item("table", '{"_type": "table-file", "nrows": 3}')
    file.write_bytes(
        framed(
            message(2, media + item("note", '"5"') + item("ok", "true") + item("loss", "1") + item("_step", str(n)))
            for n in range(3)
        )
    )
    trial = smdwidgets.create_trial(file)
    assert trial.tensor_names() == ["loss"]
    [(_, note)] = trial.problems()
    assert note.endswith("images and tables are not read: 'image', 'table'")


def histogram(name, counts, bins):
    parts = {"_type": "histogram", "values": counts} | bins
    return b"".join(item([*name.split("."), *part.split(".")], json.dumps(value)) for part, value in parts.items())


def test_histograms_are_read_where_they_are(file):
    rows = []
    for step in range(40):
        own = histogram("h", [step, 1], {"bins": [0, 1, 2 + step]})
        own += histogram("part.packed", [1, 2], {"packedBins.min": -1, "packedBins.size": 0.5, "packedBins.count": 2})
        own += item("whole", json.dumps({"_type": "histogram", "values": [4], "bins": [1, 1]})) + item(
            ["part", "y"], "3"
        )
        rows.append(
            message(2, own + item("text", "x" * 3000) + item("_step", str(10 * step)) + item("_timestamp", "5"))
        )
    file.write_bytes(framed([*rows, message(18, b"")]))
    trial = smdwidgets.create_trial(file)
    assert trial.tensor_names() == ["h", "part.packed", "part.y", "whole"]
    assert trial.collection("histograms").tensor_names == {"h", "part.packed", "whole"}
    assert trial.tensor("h").value(390).tolist() == [[0, 1, 39], [1, 41, 1]]
    assert trial.tensor("part.packed").value(0).tolist() == [[-1, -0.5, 1], [-0.5, 0, 2]]
    assert trial.tensor("whole").value(0).tolist() == [[1, 1, 4]]
    every = trial.histograms("h")
    assert np.array(every["value"]).shape == (40, 2, 3)
    assert set(every["wall_time"]) == {5.0}
    table = trial.statistics("part.packed", 20)
    assert (table["count"][0], table["min"][0], table["max"][0]) == (3, -1, 0)
    assert trial.problems() == []


def test_damaged_histograms_are_errors_with_the_place(file):
    texts = {
        "short": {"values": [1, 2], "bins": [0, 1]},
        "text": {"values": "1", "bins": [0, 1]},
        "nested": {"values": [[1]], "bins": [0, 1]},
        "empty": {},
        "large": {"values": [1], "packedBins": {"min": 10**400, "size": 1}},
        "nothing": {"values": [None], "bins": [{}, 2]},
    }
    row = b"".join(item(name, json.dumps({"_type": "histogram"} | text)) for name, text in texts.items())
    row += item("deep", '{"_type": "histogram", "values": ' + "[" * 100_000 + "]" * 100_000 + "}")
    file.write_bytes(framed([message(2, row), history(1, loss=1.0), message(18, b"")]))
    trial = smdwidgets.create_trial(file)
    assert values(trial, "loss") == {1: 1}
    for name in (*texts, "deep"):
        with pytest.raises(CorruptDataError, match=rf"run-1.wandb, byte 7: histogram '{name}': is not a histogram"):
            trial.tensor(name).value(0)
    trial.statistics()
    assert cli.main(["verify", str(file.parent)]) == 1


def test_system_and_summary(file):
    def sample(at, **numbers):
        items = b"".join(message(3, message(1, name) + message(16, json.dumps(one))) for name, one in numbers.items())
        return message(7, message(2, varint(1 << 3) + varint(at)) + items)

    def summary(**numbers):
        return message(3, b"".join(item(name, json.dumps(one)) for name, one in numbers.items()))

    rows = [
        sample(100, cpu=1.0),
        history(0, loss=2.0, acc=1),
        sample(110, cpu=2.0, gpu=50),
        history(30, loss=1.0, acc=3),
    ]
    rows += [
        sample(120, cpu=3.0),
        sample(130, cpu=4.0),
        summary(loss=1.0, acc=3, best=7, gone=1, h={"_type": "histogram"}),
    ]
    rows += [message(3, message(2, message(2, "gone"))), summary(acc={"max": 3}, loss=0.5, large=10**400, flag=True)]
    file.write_bytes(framed(rows))
    trial = smdwidgets.create_trial(file)
    assert trial.tensor_names() == ["acc", "loss", "system.cpu", "system.gpu"]
    assert values(trial, "system.cpu") == {0: 2, 30: 4}
    assert trial.scalars("system.cpu")["wall_time"].tolist() == [110, 130]
    file.write_bytes(framed([*rows, message(18, b"")]))
    trial.refresh_data()
    assert values(trial, "best") == {30: 7}
    assert values(trial, "acc.max") == {30: 3}
    assert values(trial, "loss (summary)") == {30: 0.5}
    names = {"acc", "loss", "system.cpu", "system.gpu", "best", "acc.max", "loss (summary)"}
    assert set(trial.tensor_names()) == names
    assert trial.problems() == []


def test_verify_counts_checksums_and_names_what_is_lost(file, capsys):
    data = framed(history(step, loss=step, x="y" * 2000) for step in range(60))
    file.write_bytes(data)
    os.utime(file, (1e9, 1e9))
    assert cli.main(["verify", str(file.parent)]) == 0
    assert re.search(r"6\d checksums verified", capsys.readouterr().out)
    damaged = bytearray(data)
    damaged[BLOCK + 500] ^= 1
    file.write_bytes(damaged[:-5])
    os.utime(file, (1e9, 1e9))
    assert cli.main(["verify", str(file.parent), "--json"]) == 1
    faults = {one["offset"]: one["message"] for one in json.loads(capsys.readouterr().out)["faults"]}
    assert len(faults) == 2
    assert BLOCK < min(faults) < BLOCK + 501
    assert faults[min(faults)].startswith("record checksum mismatch")
    assert faults[max(faults)].endswith("bytes dropped: the process that wrote them did not finish")


def test_cut_and_flipped_files_never_raise_anything_else(file):
    rows = []
    for step in range(30):
        own = histogram("h", [step, 1], {"bins": [0, 1, 2 + step]}) + item("loss", str(step)) + item("_step", str(step))
        rows += [message(2, own), message(3, item("best", str(step)))]
    whole = framed([*rows, message(18, b"")])
    generator = random.Random(7)
    for number in range(300):
        data = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(len(MAGIC), len(data))] = generator.randrange(256)
        file.write_bytes(data[: generator.randrange(len(MAGIC), len(data))] if number % 3 == 0 else data)
        os.utime(file, (1e9, 1e9))
        try:
            with smdwidgets.create_trial(file) as trial:
                trial.scalars()
                trial.statistics()
                for step in trial.tensor("h").steps() if trial.has_tensor("h") else []:
                    assert trial.tensor("h").value(step).shape == (2, 3)
                assert all(step == value for step, value in values(trial, "loss").items())
        except SMDebugError as error:
            assert file.name in str(error) or "loss" in str(error)  # noqa: PT017


def test_records_across_blocks_and_padding(file):
    generator = random.Random(3)
    rows = []
    for step in range(400):
        rows.append(message(4, generator.randbytes(generator.choice([0, 10, 500, BLOCK, 3 * BLOCK]))))
        rows.append(history(step, loss=step / 7))
    file.write_bytes(framed(rows))
    trial = smdwidgets.create_trial(file)
    assert values(trial, "loss") == {step: step / 7 for step in range(400)}
    assert trial.problems() == []


def test_file_that_grows_at_any_byte(file):
    data = framed(history(step, loss=step / 7, x="y" * 2000) for step in range(60))
    file.write_bytes(data[: BLOCK + 100])
    trial = smdwidgets.create_trial(file)
    seen = []
    for end in range(BLOCK + 101, len(data) + 1, 997):
        file.write_bytes(data[:end])
        trial.refresh_data()
        seen.append(len(trial.tensor("loss").steps()))
    file.write_bytes(data)
    trial.refresh_data()
    assert seen == sorted(seen)
    assert values(trial, "loss") == {step: step / 7 for step in range(60)}
    assert trial.problems() == []


def test_file_that_is_written_again(file):
    file.write_bytes(framed(history(step, loss=1) for step in range(50)))
    trial = smdwidgets.create_trial(file)
    file.unlink()
    file.write_bytes(framed(history(step, loss=2) for step in range(60)))
    trial.refresh_data()
    assert values(trial, "loss") == dict.fromkeys(range(60), 2)


def test_damaged_block_is_skipped_and_named(file):
    data = bytearray(framed(history(step, loss=step, x="y" * 2000) for step in range(60)))
    data[BLOCK + 500] ^= 1
    file.write_bytes(data)
    trial = smdwidgets.create_trial(file)
    losses = values(trial, "loss")
    assert {0, 59} <= losses.keys()
    assert all(step == value for step, value in losses.items())
    [(name, text)] = trial.problems()
    assert name == "run-1.wandb"
    assert "record checksum mismatch" in text
    assert re.search(r"byte 3[23]\d{3}: ", text)


def test_every_flipped_byte_is_harmless(file):
    data = framed(history(step, loss=step) for step in range(3))
    for place in range(len(MAGIC), len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        file.write_bytes(damaged)
        try:
            losses = values(smdwidgets.create_trial(file), "loss")
        except smdwidgets.exceptions.SMDebugError:
            continue
        assert all(step == value for step, value in losses.items())


def test_messages_that_lie_are_harmless(file):
    generator = random.Random(5)
    rows = [message(2, generator.randbytes(generator.randrange(60))) for _ in range(500)]
    rows += [message(2, b"\x0a" + varint(2**40)), message(2, b"\xff" * 30), history(7, loss=1.0), history(8, loss=2.0)]
    file.write_bytes(framed(rows))
    assert values(smdwidgets.create_trial(file), "loss")[7] == 1


def test_console_text_of_a_run_is_no_separate_run(file):
    file.write_bytes(framed(history(step, loss=step) for step in range(5)))
    (file.parent / "files").mkdir()
    (file.parent / "files" / "output.log").write_text("".join(f"epoch {n}: loss {n}\n" for n in range(9)))
    assert [row.name for row in smdwidgets.runs(file.parent.parent)] == ["offline-run-1"]


# ----------------------------------------------------------------------------------------------------------- trackio


def project(path, runs, with_ids=True):
    """Write a database as trackio does."""
    columns = "run_id TEXT NOT NULL, " if with_ids else ""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            f"CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, {columns}timestamp TEXT NOT NULL, "
            "run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL)"
        )
        database.execute(
            f"CREATE TABLE IF NOT EXISTS configs (id INTEGER PRIMARY KEY, {columns}run_name TEXT NOT NULL, config TEXT NOT NULL, created_at TEXT NOT NULL)"
        )
        for name, rows in runs.items():
            identity = {"run_id": f"id-{name}"} if with_ids else {}
            for step, metrics in rows.items():
                row = identity | {
                    "timestamp": f"2026-01-01T00:00:{step % 60:02d}+00:00",
                    "run_name": name,
                    "step": step,
                    "metrics": metrics,
                }
                database.execute(
                    f"INSERT INTO metrics ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values())
                )
            row = identity | {"run_name": name, "config": '{"lr": 0.1, "_Username": "u"}', "created_at": ""}
            database.execute(
                f"INSERT INTO configs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values())
            )


@pytest.mark.parametrize("with_ids", [True, False])
def test_runs_of_a_project(tmp_path, with_ids):
    rows = {step: json.dumps({"loss": 1 / (step + 1), "nested": {"x": step}}) for step in range(20)}
    project(tmp_path / "p.db", {"a": rows, "b/c": {0: '{"loss": "NaN"}', 1: '{"loss": "-Infinity"}'}}, with_ids)
    trials = smdwidgets.create_trials(tmp_path / "p.db")
    assert list(trials) == ["a", "b_c"]
    assert trials["a"].hparams() == {"lr": 0.1}
    assert values(trials["a"], "loss") == {step: 1 / (step + 1) for step in range(20)}
    assert values(trials["a"], "nested/x")[19] == 19
    infinite = values(trials["b_c"], "loss")
    assert math.isnan(infinite[0])
    assert infinite[1] == -math.inf
    assert [row.name for row in smdwidgets.runs(tmp_path)] == ["p.db/a", "p.db/b_c"]


def test_every_name_of_a_large_project_is_read(tmp_path):
    rows = {step: json.dumps({f"layers.{at}.weight": 1.0 for at in range(12_000)}) for step in range(2)}
    project(tmp_path / "p.db", {"a": rows})
    trial = smdwidgets.create_trials(tmp_path / "p.db")["a"]
    assert values(trial, "layers.11999.weight") == {0: 1.0, 1: 1.0}


@pytest.mark.parametrize(("most", "notes"), [(2, []), (1, ["more than 1 names; the first are read"])])
def test_names_that_are_left_out_are_noted(most, notes):
    columns = StepColumns(most)
    columns.append([{"a": 1.0, "b": 2.0}], [0])
    assert len(columns.scalars()) == most
    assert columns.notes == notes


def test_project_that_grows(tmp_path):
    project(tmp_path / "p.db", {"a": {0: '{"loss": 3}'}})
    trial = smdwidgets.create_trials(tmp_path / "p.db")["a"]
    assert values(trial, "loss") == {0: 3}
    project(tmp_path / "p.db", {"a": {1: '{"loss": 2}'}})
    trial.refresh_data()
    assert values(trial, "loss") == {0: 3, 1: 2}


def test_rows_that_are_no_objects_and_media_are_left_out(tmp_path):
    rows = {
        0: '{"loss": 1, "image": {"_type": "trackio.image", "size": 3}}',
        1: "[1]",
        2: "x",
        3: "[" * 100_000,
        4: '{"loss": 2}',
    }
    project(tmp_path / "p.db", {"a": rows})
    trial = smdwidgets.create_trials(tmp_path / "p.db")["a"]
    assert values(trial, "loss") == {0: 1, 4: 2}
    assert trial.tensor_names() == ["loss"]


def test_other_databases_and_views_are_not_read(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other.db")) as database, database:
        database.execute("CREATE TABLE metrics (id INTEGER, name TEXT)")
    with closing(sqlite3.connect(tmp_path / "view.db")) as database, database:
        database.execute(
            "CREATE VIEW metrics AS SELECT 1 AS id, 'x' AS timestamp, 'r' AS run_name, 0 AS step, '{}' AS metrics"
        )
    with pytest.raises(smdwidgets.exceptions.RunNotFound):
        smdwidgets.create_trial(tmp_path)


def test_reading_changes_nothing(tmp_path):
    project(tmp_path / "p.db", {"a": {0: '{"loss": 3}', 1: '{"loss": 2}'}})
    before = (tmp_path / "p.db").read_bytes()
    smdwidgets.create_trials(tmp_path / "p.db")["a"].tensor("loss").values()
    assert (tmp_path / "p.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["p.db"]


def test_text_of_a_database_that_is_no_utf_8_is_a_clear_error(tmp_path):
    """A bit is flipped in the schema, which SQLite's messages quote, or in a value."""
    place = tmp_path / "p.db"
    project(place, {"speedy": {0: '{"loss": 1}', 1: '{"loss": 2}'}})
    whole = place.read_bytes()
    refused: list[str] = []
    for word in (b"CREATE TABLE", b"metrics", b"run_name", b"speedy", b'"loss"'):
        at = whole.find(word)
        while at >= 0:
            place.write_bytes(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :])
            try:
                for trial in smdwidgets.create_trials(place).values():
                    problems = [message for _, message in trial.problems()]
                    assert problems or values(trial, trial.tensor_names()[0])
                    refused += problems
            except smdwidgets.exceptions.SMDebugError as error:
                refused.append(str(error))
            at = whole.find(word, at + 1)
    assert len(refused) > 5
    assert all("p.db" in text for text in refused)
