"""The compacted index: what is compacted, when it is used, and what damage does."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil

import numpy as np
import pytest

import smdwidgets
from smdwidgets import _core, cli
from smdwidgets.cli.verify import check
from smdwidgets.exceptions import (
    CompactionSuperseded,
    CorruptDataError,
    RunNotFound,
    SMDebugValueError,
    TruncatedDataError,
)
from smdwidgets.numpy import Hook
from smdwidgets.run_end import END_FILE
from smdwidgets.trials.smdebug.compaction import compacted
from smdwidgets.trials.smdebug.local import LocalRun
from smdwidgets.trials.smdebug.manifest import LARGEST_ROOT, MANIFEST_PREFIX, PLACEHOLDER, ROOT, FolderEntry

STEPS = range(0, 3000, 10)


def index_path(root, step, worker="worker_0"):
    return root / "index" / f"{step // 1000:09d}" / f"{step:012d}_{worker}.json"


def write_index(root, step, worker="worker_0", tensors=3, **more):
    path = index_path(root, step, worker)
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [{"tensorname": f"w{n}", "start_idx": 30 + 100 * n, "length": 100} for n in range(tensors)]
    events = f"events/{step:012d}/{step:012d}_{worker}.tfevents"
    meta = {"mode": "TRAIN", "mode_step": step, "event_file_name": events}
    path.write_text(json.dumps({"meta": meta, "tensor_payload": entries, "shape_payload": [], **more}))


def folder_file(root, number):
    [path] = (root / MANIFEST_PREFIX).glob(f"{number:09d}-*.bin")
    return path


def write_run(root, steps=STEPS, workers=("worker_0",), ended=True):
    for step in steps:
        for worker in workers:
            write_index(root, step, worker)
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True)
    for worker in workers:
        content = {"collections": {}, "_meta": {"num_workers": len(workers)}}
        (folder / f"{worker}_collections.json").write_text(json.dumps(content))
    if ended:
        (root / END_FILE).touch()
    return root


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def read(root, trust="listing"):
    """Open and load a whole run; return what its catalog says."""
    opened = LocalRun(str(root), trust=trust)
    opened.refresh()
    opened.load()
    catalog = opened.catalog
    found = [
        (name, step, [(place.index_key, place.event_key, place.offset, place.length, place.crc, place.mode_step)])
        for name in sorted(catalog.names())
        for step in catalog.steps_of(name)
        if (place := catalog.find(name, step))
    ]
    return found, catalog.problems(), opened._manifest.problems


def garble(root, step):
    """Damage an index file without a change of its size and time."""
    path = index_path(root, step)
    about = path.stat()
    path.write_bytes(b"x" * about.st_size)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def repack(body, magic):
    """A file of the compacted index with this uncompressed body, in a valid frame."""
    # A zstd frame with one raw block: magic, descriptor with a 4-byte size, block header.
    block = len(body) << 3 | 1
    frame = b"\x28\xb5\x2f\xfd\xa0" + len(body).to_bytes(4, "little") + block.to_bytes(3, "little") + body
    rest = len(body).to_bytes(4, "little") + frame
    return magic + (1).to_bytes(4, "little") + _core.crc32c(rest).to_bytes(4, "little") + rest


def test_a_compacted_run_reads_as_before(run):
    before = read(run)
    done = smdwidgets.compact(run)
    assert (done.folders, done.written, done.files, done.steps, done.last_step) == (3, 3, 300, 300, 2990)
    assert (done.left, done.why) == (0, "")
    assert done.bytes == sum(path.stat().st_size for path in (run / MANIFEST_PREFIX).iterdir())
    for step in STEPS:
        garble(run, step)
    assert read(run, "root") == before
    # In a directory, only a trusted compacted index is used.
    assert [len(read(run, trust)[1]) for trust in ("listing", "none")] == [300, 300]


def test_everything_of_an_index_file_is_kept(run):
    write_index(run, 5, shard_payload=[{"tensorname": "w0", "shard": {"dim": 0, "parts": 2}}])
    write_index(run, 15, shape_payload=[{"tensorname": "w0", "originalname": "é", "shape": [2, 0, 7]}])
    entry = {"tensorname": "smdebug/reductions/min/w0", "start_idx": 1, "length": 2, "crc32c": 2**32 - 1}
    other = {"mode": "EVAL", "mode_step": 7, "event_file_name": "events/000000000025/000000000025_worker_0.tfevents"}
    write_index(run, 25, meta=other, tensor_payload=[entry, entry])
    before = read(run)
    smdwidgets.compact(run)
    opened = LocalRun(str(run), trust="root")
    opened.refresh()
    opened.load()
    assert read(run, "root") == before
    assert opened.catalog.shards("w0", 5) == [
        ("worker_0", "index/000000000/000000000005_worker_0.json", '{"dim": 0, "parts": 2}')
    ]
    assert opened.catalog.shape_of("w0", 15) == (2, 0, 7)
    assert opened.catalog.original_name("w0") == "é"
    assert opened.catalog.mode_of(25) == (2, 7)
    assert opened.catalog.stored_reduction("w0", 25, "min", False).crc == 2**32 - 1


def test_a_changed_folder_is_compacted_again(run):
    smdwidgets.compact(run)
    write_index(run, 1000, tensors=5)
    index_path(run, 1010).unlink()
    write_index(run, 5, tensors=4)
    found = read(run)
    assert {step for _, step, _ in found[0]} == {*STEPS, 5} - {1010}
    assert {"w4"} == {name for name, _, _ in found[0]} - {name for name, _, _ in read(run, "root")[0]}
    done = smdwidgets.compact(run)
    assert (done.written, done.folders, done.files) == (2, 3, 300)
    assert read(run, "root") == found


def test_compaction_is_idempotent_and_follows_a_growing_run(tmp_path):
    run = write_run(tmp_path / "run", ended=False)
    first = smdwidgets.compact(run)
    assert (first.folders, first.last_step, first.left) == (2, 1990, 100)
    names = sorted((run / MANIFEST_PREFIX).iterdir())
    before = [path.read_bytes() for path in names]
    written = [path.stat().st_mtime_ns for path in names]
    assert smdwidgets.compact(run).written == 0
    assert [path.stat().st_mtime_ns for path in names] == written
    for step in range(3000, 3500, 10):
        write_index(run, step)
    assert (smdwidgets.compact(run).written, [path.read_bytes() for path in names[:2]]) == (1, before[:2])
    (run / END_FILE).touch()
    last = smdwidgets.compact(run)
    assert (last.folders, last.written, last.last_step, last.left) == (4, 1, 3490, 0)


def test_incomplete_steps_of_a_running_run_are_left_out(tmp_path):
    run = write_run(tmp_path / "run", workers=("worker_0", "worker_1"), ended=False)
    index_path(run, 1500, "worker_1").unlink()
    assert smdwidgets.compact(run).last_step == 990
    (run / END_FILE).touch()
    assert smdwidgets.compact(run).files == 599


def test_malformed_and_foreign_files_are_read_by_themselves(run):
    index_path(run, 100).write_text('{"meta"')
    index_path(run, 200).with_suffix(".json.tmp").write_text("half")
    done = smdwidgets.compact(run)
    assert (done.folders, done.left, done.why) == (3, 0, "")
    [(key, message)] = read(run, "root")[1]
    assert key.endswith("000000000100_worker_0.json")
    assert "invalid index file" in message
    assert check(str(run))["faults"]


def damage_root(content):
    yield b""
    yield content[:30]
    yield content[:-1]
    yield content[:8] + b"\x02" + content[9:]
    yield b"\0" * 200
    yield repack(b"\xff" * 40, b"smdwroot")
    yield repack(b"\x01\x08worker_0\x01\x00\x05" + bytes(65) + b"\xff\xff\xff\x7f", b"smdwroot")
    yield b"x" * (LARGEST_ROOT + 10)


def test_a_damaged_root_file_is_reported_and_not_used(run, caplog):
    before = read(run)[:2]
    smdwidgets.compact(run)
    root = run / ROOT
    for content in damage_root(root.read_bytes()):
        root.write_bytes(content)
        caplog.clear()
        found, problems, [(key, _)] = read(run, "root")
        assert (found, problems, key) == (*before, ROOT)
        assert "reading the index files" in caplog.text
    root.unlink()
    assert read(run, "root") == (*before, [])
    assert smdwidgets.compact(run).written == 3


def test_a_damaged_folder_file_is_reported_and_not_used(run):
    before = read(run)[:2]
    smdwidgets.compact(run)
    folder = folder_file(run, 1)
    content, other = folder.read_bytes(), folder_file(run, 0).read_bytes()
    for damaged in (b"", content[:50], content[:-1] + b"x", other, content + b"x"):
        folder.write_bytes(damaged)
        found, problems, reported = read(run, "root")
        assert (found, problems) == before
        # What follows the size in the root file is not read.
        assert [key for key, _ in reported] == (
            [] if damaged == content + b"x" else [f"{MANIFEST_PREFIX}{folder.name}"]
        )
    folder.unlink()
    assert read(run, "root")[:2] == before
    assert smdwidgets.compact(run).written == 1
    assert read(run, "root") == (*before, [])


def test_a_hostile_folder_file_with_the_right_hash_is_not_used(run):
    before = read(run)[:2]
    smdwidgets.compact(run)
    root = _core.ManifestRoot(ROOT, (run / ROOT).read_bytes())
    folders = [FolderEntry(*each) for each in root.folders()]
    for body in (
        b"",
        b"\x01",
        b"\xff" * 60,
        b"\x00\xff\xff\x3f\x00\x00\x00\x00" + bytes(8),
        b"\x00\x00\x00\x00\x00\x7f" + bytes(8),
    ):
        hostile = repack(body, b"smdwfold")
        named = folders[0]._replace(size=len(hostile), content=hashlib.sha256(hostile).digest())
        (run / named.key).write_bytes(hostile)
        entries = [(tuple(each), root.keys(at)) for at, each in enumerate([named, *folders[1:]])]
        (run / ROOT).write_bytes(_core.manifest_root(entries))
        found, problems, [(key, message)] = read(run, "root")
        assert (found, problems, key) == (*before, named.key)
        assert f"{named.key}, byte " in message


def test_errors_name_file_and_offset(run):
    smdwidgets.compact(run)
    content = (run / ROOT).read_bytes()
    with pytest.raises(TruncatedDataError, match=r"^r\.bin, byte 0: .*expected 20 bytes, got 7"):
        _core.ManifestRoot("r.bin", content[:7])
    with pytest.raises(CorruptDataError, match=r"^r\.bin, byte 12: checksum mismatch"):
        _core.ManifestRoot("r.bin", content[:-1])
    with pytest.raises(CorruptDataError, match=r"^f\.bin, byte 20: invalid compacted index: .* at byte \d+ of the dec"):
        _core.Catalog().load_folder("f.bin", repack(b"\xff" * 40, b"smdwfold"))


def test_another_run_in_the_directory_is_never_read_through_the_old_index(tmp_path):
    for options in ({"overwrite": True}, {"resume": True}, {"resume": 5}):
        path = tmp_path / f"{next(iter(options))}{options}".translate({ord(c): "_" for c in "{}' :"})
        with Hook(path, compact=True) as hook:
            for step in range(20):
                hook.save_tensor("w", np.full(4, step, np.float32), "weights")
                hook.step()
        assert (path / ROOT).is_file()
        with pytest.raises(smdwidgets.exceptions.SMDebugRuntimeError):
            Hook(path)
        assert (path / ROOT).is_file()
        with Hook(path, **options) as hook:
            assert not (path / ROOT).exists()
            hook.save_tensor("other", np.full(4, 7, np.float32), "weights")
            hook.step()
        assert not (path / ROOT).exists()
    assert smdwidgets.create_trial(path).tensor_names(step=5) == ["other"]


def test_a_copied_old_index_does_not_hide_another_run(run, tmp_path):
    smdwidgets.compact(run)
    other = write_run(tmp_path / "other")
    for step in STEPS:
        write_index(other, step, tensors=1)
    shutil.copytree(run / MANIFEST_PREFIX, other / MANIFEST_PREFIX)
    assert {name for name, _, _ in read(other)[0]} == {"w0"}


def test_a_hook_compacts_a_run_that_has_ended(tmp_path):
    for compact in (False, True):
        path = tmp_path / str(compact)
        with Hook(path, compact=compact) as hook:
            hook.save_scalar("loss", 0.5)
        assert (path / ROOT).is_file() == compact
    assert smdwidgets.create_trial(path, trust="root").tensor("scalar/loss").value(0) == 0.5


def test_values_are_checked_against_their_records(tmp_path):
    with Hook(tmp_path / "run", compact=True) as hook:
        for step in range(300):
            hook.save_tensor("w", np.full(4, step, np.float32), "weights")
            hook.step()
    events = tmp_path / "run" / "events"
    shutil.copy(
        events / f"{7:012d}" / f"{7:012d}_worker_0.tfevents", events / f"{8:012d}" / f"{8:012d}_worker_0.tfevents"
    )
    trial = smdwidgets.create_trial(tmp_path / "run", trust="root", lazy=False)
    assert trial.tensor("w").value(9)[0] == 9
    with pytest.raises(CorruptDataError):
        trial.tensor("w").value(8)


def test_options_and_pickles(run, tmp_path):
    smdwidgets.compact(run)
    trial = pickle.loads(pickle.dumps(smdwidgets.create_trial(run, trust="root")))
    assert trial.reader.run._trust == "root"
    with pytest.raises(SMDebugValueError, match="invalid trust 'all'; choose from listing, root, none"):
        smdwidgets.create_trial(run, trust="all")
    with pytest.raises(RunNotFound):
        smdwidgets.compact(tmp_path / "missing")
    with pytest.raises(TypeError, match="endpoint_url requires a run in a bucket"):
        smdwidgets.compact(run, endpoint_url="http://127.0.0.1")
    ranged = smdwidgets.create_trial(run, range_steps=(1000, 2000), trust="root")
    assert ranged.steps() == list(range(1000, 2000, 10))


def test_verify_and_inspect_know_the_compacted_index(tmp_path, capsys):
    run = tmp_path / "run"
    with Hook(run) as hook:
        for step in range(3):
            hook.save_scalar("loss", step / 2)
            hook.step()
    assert smdwidgets.cli.main(["inspect", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["compacted_index"] is None
    smdwidgets.compact(run)
    assert cli.main(["inspect", str(run)]) == 0
    assert "compacted    3 steps up to step 2 in " in capsys.readouterr().out
    assert check(str(run))["faults"] == []
    path = index_path(run, 1)
    path.write_text(
        path.read_text().replace('"mode_step": 1', '"mode_step": 2').replace('"mode_step":1', '"mode_step":2')
    )
    messages = [
        (fault["file"], fault["message"]) for fault in check(str(run))["faults"] if "compacted" in fault["message"]
    ]
    key = "index/000000000/000000000001_worker_0.json"
    assert messages == [(key, "the compacted index has another content; run smdwidgets compact")]
    path.unlink()
    [fault] = [fault for fault in check(str(run))["faults"] if "compacted" in fault["message"]]
    assert fault["file"] == key
    (run / ROOT).write_bytes(b"damaged")
    assert ROOT in [fault["file"] for fault in check(str(run))["faults"]]


def while_compacting(run, work):
    """Compact a run; do some work when its first folder is about to be written."""
    todo = [work]
    return smdwidgets.compact(run, progress=lambda done, of, what: todo and todo.pop()())


def names_of(run):
    return {path.name for path in (run / MANIFEST_PREFIX).iterdir()}


def test_the_later_of_two_compactions_says_so_and_leaves_nothing(run):
    def other():
        write_index(run, 5, tensors=4)
        assert smdwidgets.compact(run).files == 301

    with pytest.raises(CompactionSuperseded, match="another compaction finished first, and its result is kept"):
        while_compacting(run, other)
    assert len(names_of(run)) == 4
    assert read(run, "root") == read(run)
    # A run that has a compacted index.
    write_index(run, 15, tensors=2)

    def again():
        write_index(run, 1005, tensors=5)
        assert smdwidgets.compact(run).written == 2

    with pytest.raises(CompactionSuperseded) as raised:
        while_compacting(run, again)
    assert (raised.value.run, raised.value.by_compaction) == (str(run), True)
    assert len(names_of(run)) == 4
    assert read(run, "root") == read(run)
    assert smdwidgets.compact(run).written == 0


@pytest.mark.parametrize("options", [{"overwrite": True}, {"resume": True}, {"resume": 5}])
@pytest.mark.parametrize("has_index", [False, True])
def test_a_hook_that_changes_a_run_wins_over_a_compaction(tmp_path, options, has_index):
    run = tmp_path / "run"
    with Hook(run) as hook:
        for _ in range(20):
            hook.save_scalar("loss", 0.5)
            hook.step()
    if has_index:
        smdwidgets.compact(run)
        write_index(run, 3, tensors=1)

    def change():
        with Hook(run, **options) as hook:
            hook.save_scalar("other", 0.5)

    with pytest.raises(CompactionSuperseded, match="a hook continued or overwrote the run meanwhile") as raised:
        while_compacting(run, change)
    assert not raised.value.by_compaction
    assert not (run / MANIFEST_PREFIX).exists()
    assert read(run, "root") == read(run)
    assert not list(run.rglob("*.tmp*"))
    smdwidgets.compact(run)
    assert read(run, "root") == read(run)


def test_a_compaction_that_was_killed_leaves_a_placeholder(tmp_path, caplog):
    run = write_run(tmp_path / "run")
    before = read(run)
    with pytest.raises(KeyboardInterrupt):
        while_compacting(run, interrupt)
    assert (run / ROOT).read_bytes().startswith(PLACEHOLDER)
    assert read(run, "root") == before
    assert compacted(smdwidgets.create_trial(run)) is None
    assert not caplog.records
    assert smdwidgets.compact(run).written == 3
    assert len(names_of(run)) == 4


def interrupt():
    raise KeyboardInterrupt


def test_command_of_the_later_compaction(run, capsys, monkeypatch):
    def superseded(path, progress):
        return while_compacting(path, lambda: smdwidgets.compact(path))

    monkeypatch.setattr("smdwidgets.cli.compact.compact", superseded)
    assert cli.main(["compact", str(run), "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out) == []
    assert err == f"superseded: {run}: another compaction finished first, and its result is kept\n"


def test_command(run, tmp_path, capsys):
    assert cli.main(["compact", str(run)]) == 0
    line = capsys.readouterr().out
    assert line.startswith(f"{run}: 300 steps up to step 2990 compacted in ")
    assert line.endswith("3 of 3 folders written now\n")
    assert cli.main(["compact", str(run), str(run), "--json"]) == 0
    [first, second] = json.loads(capsys.readouterr().out)
    assert first == second
    assert (first["folders"], first["written"], first["why"]) == (3, 0, "")
    index_path(run, 5).with_suffix(".csv").write_text("{}")
    assert cli.main(["compact", str(run)]) == 1
    assert "300 index files left out: folder 0 has files with other names" in capsys.readouterr().out.replace(
        "301", "300"
    )
    assert cli.main(["compact", str(tmp_path / "missing")]) == 2
    assert "error: " in capsys.readouterr().err
