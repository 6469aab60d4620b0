"""Invalid files of a run are rejected at once with an error that names them.

The rest of the run stays readable.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from faults.hostile import runs
from smdwidgets import cli, create_trial
from smdwidgets._patterns import Patterns, compile_pattern
from smdwidgets.exceptions import (
    CollectionFileError,
    OutsideRunError,
    RegexTooSlow,
    RunFileMissing,
    RunIOError,
    SMDebugError,
    SMDebugValueError,
    TensorUnavailableForStep,
)
from smdwidgets.hooks.core.json_config import read as read_hook_configuration
from smdwidgets.rules.actions import parse_actions
from smdwidgets.rules.config import read_configurations
from smdwidgets.stop import STOP_FILE, stop_requested

SECRET, ITS_NUMBER = "nobody may read this", 60481728.0  # of 24 bits, and not part of a path

pytestmark = pytest.mark.timeout(120)  # the test detects hanging


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A run next to the run: its content in an output proves a read from outside."""
    elsewhere = runs.plain(tmp_path / "elsewhere")
    # As long as the run's own step, so that only the path is wrong.
    runs.save(elsewhere, 1, {"w": np.full(6, ITS_NUMBER, np.float32), SECRET: np.float32(ITS_NUMBER)})
    (elsewhere / "secret.json").write_text(SECRET)
    return elsewhere


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return runs.plain(tmp_path / "run")


def everything(path: Path) -> str:
    """Return the results of all queries of a run as text: values and errors."""
    said: list[str] = []
    try:
        with create_trial(path, skip_bad_index=True) as trial:
            said += [repr(trial), trial._repr_html_(), repr(trial.problems()), repr(trial.collections())]
            for name in trial.tensor_names():
                for step in trial.tensor(name).steps():
                    try:
                        said.append(repr(trial.tensor(name).value(step).tolist()))
                    except SMDebugError as error:
                        said.append(f"{type(error).__name__}: {error}")
    except SMDebugError as error:
        said.append(f"{type(error).__name__}: {error}")
    return "\n".join(said)


def rewrite(run: Path, step: int, **meta: object) -> None:
    path = run / runs.index_key(step)
    index = json.loads(path.read_text())
    index["meta"].update(meta)
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(
    "event_file",
    [
        "../elsewhere/events/000000000001/000000000001_worker_0.tfevents",
        "events/../../elsewhere/events/000000000001/000000000001_worker_0.tfevents",
        "{elsewhere}/events/000000000001/000000000001_worker_0.tfevents",
        "..\\elsewhere\\events\\000000000001\\000000000001_worker_0.tfevents",
        "/proc/self/environ",
        "/dev/zero",
        "C:\\Windows\\win.ini",
        "events\0/x",
        "",
        ".",
        "events",
    ],
)
def test_index_entry_outside_the_run_is_rejected(run: Path, secret: Path, event_file: str) -> None:
    rewrite(run, 1, event_file_name=event_file.format(elsewhere=secret))
    with create_trial(run) as trial:
        with pytest.raises(SMDebugError):
            trial.tensor("w").value(1)
        assert trial.tensor("w").value(2).tolist() == [0, 2, 4, 6, 8, 10]
        table = trial.reductions(["w"], reductions=["max"])
        assert [failure.step for failure in table.errors] == [1]
    said = everything(run)
    assert str(ITS_NUMBER) not in said
    assert cli.main(["verify", str(run)]) == 1


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
@pytest.mark.parametrize(
    "part", ["event", "events of the step", "events", "index of the step", "collection", "collections"]
)
def test_link_out_of_the_run_is_not_followed(run: Path, secret: Path, part: str) -> None:
    replaced = {
        "event": run / runs.event_key(1),
        "events of the step": run / "events" / "000000000001",
        "events": run / "events",
        "index of the step": run / runs.index_key(1),
        "collection": run / "collections" / "000000000" / "worker_0_collections.json",
        "collections": run / "collections",
    }[part]
    target = {
        "event": secret / runs.event_key(9),
        "events of the step": secret / "events" / "000000000009",
        "events": secret / "events",
        "index of the step": secret / runs.index_key(9),
        "collection": secret / "secret.json",
        "collections": secret / "collections",
    }[part]
    rewrite(run, 1, event_file_name="events/000000000001/000000000009_worker_0.tfevents")
    replaced.rename(replaced.with_name("moved away"))
    replaced.symlink_to(target)
    said = everything(run)
    assert str(ITS_NUMBER) not in said
    assert SECRET not in said
    assert "Error" in said or "problems" in said or "UnavailableForStep" in said, said


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_link_in_a_log_is_not_followed(tmp_path: Path, secret: Path) -> None:
    log = runs.log(tmp_path / "log", {"a": "loss"})
    outside = runs.log(tmp_path / "other", {"a": SECRET})
    (log / "events.out.tfevents.1800000000.host").symlink_to(next(outside.iterdir()))
    (log / "train").symlink_to(outside)
    assert SECRET not in everything(log)


@pytest.mark.parametrize("part", [runs.index_key(1), "collections/000000000/worker_0_collections.json"])
def test_sparse_file_is_not_read_into_memory(run: Path, part: str) -> None:
    os.truncate(run / part, 3 << 30)
    said = everything(run)
    assert "is larger than 1 GiB" in said
    assert part in said or "index" not in part


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero: has no end


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # its path must be short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.skipif(os.name == "nt", reason="there are none in directories")
@pytest.mark.parametrize("put", [_fifo, _device, _socket])
@pytest.mark.parametrize("part", ["event", "index", "collection", "end", "stop", "log"])
def test_pipe_or_device_instead_of_a_file_does_not_block(run: Path, part: str, put) -> None:
    path = (
        run
        / {
            "event": runs.event_key(1),
            "index": runs.index_key(1),
            "collection": "collections/000000000/worker_0_collections.json",
            "end": "training_job_end.ts",
            "stop": STOP_FILE,
            "log": "events.out.tfevents.1.host",
        }[part]
    )
    path.unlink(missing_ok=True)
    try:
        put(path)
    except PermissionError:
        pytest.skip("this user may not make devices")
    if part == "stop":
        request = stop_requested(run)
        assert request is not None
        assert "cannot read" in request.reason
        return
    if part == "log":
        for child in list(run.iterdir()):
            if child != path:
                child.rename(run.parent / f"was {child.name}")
    said = everything(run)
    if part in ("event", "index", "collection", "log"):
        # A socket cannot be opened.
        assert "regular file" in said or "No such device" in said or "is missing" in said or "no run at" in said


@pytest.mark.skipif(os.name == "nt", reason="there are none in directories")
def test_commands_do_not_block_on_a_pipe(run: Path) -> None:
    for key in (runs.event_key(0), runs.index_key(1)):
        (run / key).unlink()
        os.mkfifo(run / key)
    for command in (["inspect"], ["verify"], ["check"], ["diagnose"], ["show", "w"]):
        arguments = [sys.executable, "-m", "smdwidgets", command[0], str(run), *command[1:]]
        done = subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr


DEEP = 100_000


def _nested() -> Iterator[str]:
    yield "[" * DEEP
    yield "[" * DEEP + "]" * DEEP
    yield '{"a":' * DEEP + "1" + "}" * DEEP
    yield '{"collections":' * DEEP + "1" + "}" * DEEP
    yield '{"meta":{"mode":' + "[" * DEEP + "]" * DEEP + "}}"
    yield '{"tensor_payload":' + "[" * DEEP


@pytest.mark.parametrize("text", list(_nested()), ids=["open", "lists", "objects", "collections", "meta", "payload"])
def test_deeply_nested_json_is_an_error(tmp_path: Path, run: Path, text: str) -> None:
    (run / runs.index_key(1)).write_text(text)
    with create_trial(run, skip_bad_index=True) as trial:
        assert len(trial.problems()) == 1
        assert trial.tensor("w").steps() == [0, 2]
    runs.collections(run, text)
    with pytest.raises(CollectionFileError):
        create_trial(run, skip_bad_index=True)
    config = tmp_path / "config.json"
    config.write_text(text)
    for read in (read_hook_configuration, read_configurations):
        with pytest.raises(SMDebugValueError):
            read(config)
    with pytest.raises(SMDebugValueError):
        parse_actions(text)
    (run / STOP_FILE).write_text(text)
    assert stop_requested(run) is not None


def test_steps_and_sizes_that_exceed_a_double(run: Path) -> None:
    index = json.loads((run / runs.index_key(1)).read_text())
    for step in (2**53 - 1, 2**53 + 1, 10**17 + 1):
        path = run / runs.index_key(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        index["meta"]["event_file_name"] = runs.event_key(step)
        path.write_text(json.dumps(index))
    with create_trial(run) as trial:
        assert trial.steps()[-3:] == [2**53 - 1, 2**53 + 1, 10**17 + 1]
        with pytest.raises(TensorUnavailableForStep, match=runs.event_key(2**53 + 1)):
            trial.tensor("w").value(2**53 + 1)
        assert trial.has_passed_step(2**53).name == "UNAVAILABLE"
    for numbers in ({"start_idx": 2**63}, {"length": 2**64 - 1}, {"start_idx": 2**53 + 1}, {"length": 10**400}):
        index = json.loads((run / runs.index_key(1)).read_text())
        index["tensor_payload"][0].update(numbers)
        (run / runs.index_key(1)).write_text(json.dumps(index))
        with create_trial(run, skip_bad_index=True) as trial:
            assert len(trial.problems()) == 1
    for name in (f"{10**19:012d}_worker_0.json", f"{'9' * 4000}_worker_0.json"[:250]):
        (run / "index" / "000000000" / name).write_text("{}")
    with create_trial(run, skip_bad_index=True) as trial:
        assert trial.steps()[-1] == 10**17 + 1


@pytest.mark.parametrize("workers", [2**63, 10**400, -1, "1e9", True, None, [1], 1.5])
def test_invalid_number_of_workers(run: Path, workers: object) -> None:
    path = run / "collections" / "000000000" / "worker_0_collections.json"
    content = json.loads(path.read_text())
    content["_meta"]["num_workers"] = workers
    path.write_text(json.dumps(content))
    with pytest.raises(SMDebugError), create_trial(run) as trial:
        trial.steps()


BACKTRACKS = {
    "nested": r"(a+)+$",
    "either": r"(a|aa)+$",
    "same": r"(a|a)*$",
    "many": r"a*a*a*a*a*a*a*a*a*a*[bc]",
    "ahead": r"(?=(a+)+$)\w",
    "again": r"(a*)*\1$",
    "lazy": r"(a+?)+?$",
}


@pytest.mark.parametrize("pattern", BACKTRACKS.values(), ids=BACKTRACKS.keys())
def test_pattern_with_exponential_backtracking_times_out(tmp_path: Path, pattern: str) -> None:
    run = tmp_path / "run"
    runs.save(run, 0, {"a" * 5000 + "!": np.float32(1), "w": np.float32(1)})
    runs.collections(run, {"default": {}, "evil": {"include_regex": [pattern]}})
    runs.end(run)
    with create_trial(run) as trial:
        trial._patterns = Patterns(limit=0.1)
        assert len(trial.tensor_names()) == 2
        for ask in ({"collection": "evil"}, {"regex": pattern}):
            with pytest.raises(RegexTooSlow, match="timed out after"):
                trial.tensor_names(**ask)
        assert trial.tensor_names(regex="^w$") == ["w"]


def test_commands_report_a_pattern_that_times_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    runs.save(run, 0, {"a" * 5000 + "!": np.float32(1), "w": np.float32(1)})
    runs.collections(run, {"default": {}, "evil": {"include_regex": ["(a+)+$"]}})
    runs.end(run)
    assert cli.main(["inspect", str(run)]) == 0
    assert cli.main(["inspect", str(run), "--tensors", "(a+)+$"]) == 2
    assert "timed out after 2 s" in capsys.readouterr().err


SWELLS = {
    "repetitions": "((a{1000}){1000}){1000}",
    "groups": "(" * 5000 + ")" * 5000,
    "length": "(a|b)" * 20_000,
    "count": "a{99999999999999999999}",
    "open": "(",
}


@pytest.mark.parametrize("pattern", SWELLS.values(), ids=SWELLS.keys())
def test_invalid_or_exploding_pattern_is_an_error_of_its_collection(tmp_path: Path, pattern: str) -> None:
    run = runs.plain(tmp_path / "run")
    runs.collections(run, {"default": {}, "evil": {"include_regex": [pattern]}})
    with create_trial(run) as trial:
        with pytest.raises(SMDebugValueError, match=r"attern|regular expression"):
            trial.tensor_names(collection="evil")
        assert trial.tensor_names() == ["loss", "w"]
        repr(trial)
    assert cli.main(["inspect", str(run)]) in (0, 2)


def test_patterns_match_as_in_re() -> None:
    assert compile_pattern("[{2}]{3}").search("2{}", timeout=1)
    assert not compile_pattern("a{e<=1}").search("b", timeout=1)


SURROGATE = "\ud800"


def test_lone_surrogates_are_text(tmp_path: Path) -> None:
    run = runs.plain(tmp_path / "run")
    (run / runs.index_key(1)).write_text((run / runs.index_key(1)).read_text().replace('"loss"', '"\\ud800"'))
    runs.collections(
        run,
        {
            "default": {},
            f"c{SURROGATE}": {"tensor_names": [f"t{SURROGATE}", "w"], "include_regex": [SURROGATE]},
        },
    )
    with create_trial(run, skip_bad_index=True) as trial:
        assert len(trial.problems()) == 1
        assert trial.tensor_names(collection=f"c{SURROGATE}") == ["w"]
        for ask in (
            lambda: trial.tensor(SURROGATE),
            lambda: trial.tensor("w").value(0, worker=SURROGATE),
            lambda: trial.tensor_names(collection=SURROGATE),
        ):
            with pytest.raises(SMDebugError) as raised:
                ask()
            assert "\\ud800" in str(raised.value)
        assert trial.has_tensor(SURROGATE) is False
        for text in (repr(trial), trial._repr_html_()):
            text.encode()
    with suppress(SystemExit):
        assert cli.main(["inspect", str(run)]) == 0


def test_deleted_or_closed_file_is_an_error(run: Path) -> None:
    (run / runs.event_key(1)).unlink()
    with create_trial(run) as trial, pytest.raises((RunIOError, SMDebugError)):
        trial.tensor("w").value(1)


def test_key_outside_the_run_is_rejected_by_the_storage(run: Path, secret: Path) -> None:
    from smdwidgets.storage import LocalStorage, Range

    storage = LocalStorage(run)
    for key in ("../elsewhere/secret.json", str(secret / "secret.json"), "collections/../../elsewhere/secret.json"):
        for ask in (
            lambda key=key: storage.read(key),
            lambda key=key: storage.read_ranges([Range(key, 0, 10)]),
        ):
            with pytest.raises((OutsideRunError, RunFileMissing)):
                ask()
    assert not storage.exists(str(secret / "secret.json"))
