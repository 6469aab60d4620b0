"""What `smdwidgets verify` does."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from smdwidgets import _core
from smdwidgets._text import byte_size
from smdwidgets.cli._run import bytes_progress, plain
from smdwidgets.cli._terminal import show
from smdwidgets.cli._verify_files import check_sources, damaged_files, other_files, source_lines
from smdwidgets.exceptions import RunNotFound, SeveralRuns, SMDebugError, SMDebugValueError
from smdwidgets.executors import connect, current
from smdwidgets.rules.progress import Progress
from smdwidgets.sources import Tree
from smdwidgets.storage import LocalStorage, Range, Storage
from smdwidgets.storage.address import is_address
from smdwidgets.storage.local import local_path
from smdwidgets.storage.protocol import beginning
from smdwidgets.trials import create_trial
from smdwidgets.trials.discovery import RunFiles, runs_in
from smdwidgets.trials.remote_discovery import one_object, store_tree
from smdwidgets.trials.run import SweepOptions
from smdwidgets.trials.smdebug.compaction import compaction_faults
from smdwidgets.trials.smdebug.local import SAMPLES, LocalRun
from smdwidgets.trials.sources.run import SourceRun
from smdwidgets.trials.sweeps import verify as verify_records
from smdwidgets.trials.tensorboard.layout import foreign, is_event_file, runs_of
from smdwidgets.trials.tensorboard.run import TensorBoardRun
from smdwidgets.trials.utils import open_remote_run, remote_runs

if TYPE_CHECKING:
    from smdwidgets.trials.smdebug.remote import RemoteRun

_OFFSET = re.compile(r"\bbyte (\d+)")
#: How many faults are printed as text; --json lists all.
SHOWN = 50


def run(args: argparse.Namespace) -> int:
    """Verify the run and print the result."""
    with connect(args.scheduler):
        found = check(args.run, args.steps, args.threads)
    print(json.dumps(found, indent=2)) if args.json else show(text(found))
    return 1 if found["faults"] else 0


def check(path: str, steps: range | None = None, threads: int | None = None) -> dict[str, Any]:
    """Verify the run at a path and return the result as JSON-serializable objects."""
    if not is_address(path):
        return _check_local(local_path(path), steps, threads)
    from smdwidgets.storage.connection import Connection  # imported for stores only
    from smdwidgets.trials.smdebug.remote import RemoteRun

    storage = Connection().storage(path)
    try:
        return _check_run(RemoteRun(storage, *_ends(steps), lazy=False, trust="none"), steps, threads)
    except RunNotFound:
        return _check_store(path, steps)


def _check_store(path: str, steps: range | None) -> dict[str, Any]:
    """Verify the logs and files of other formats below an address."""
    from smdwidgets.storage.connection import Connection  # imported for stores only

    with closing(remote_runs(path, {})) as below:
        root, runs = below.root, below.runs
    if any(files.of_hook for files in runs.values()):
        raise SeveralRuns(path, sorted(runs))
    if steps is not None:
        raise SMDebugValueError(
            "--steps is not supported for TensorBoard logs and other files, which are read as a whole"
        )
    logs = any(files.layout for files in runs.values())
    log = _check_log(Connection().storage(path)) if logs else {}
    if not any(files.sources for files in runs.values()):
        return log

    def opened(name: str, files: RunFiles) -> SourceRun:
        trial = open_remote_run(root, name, files, None, None, {"lazy": True, "keep_orphans": True})
        return cast(SourceRun, trial.reader.run)

    is_file = any(files.in_file for files in runs.values())
    above, _, name = root.rstrip("/").rpartition("/")
    with closing(Connection().storage(above if is_file else root)) as storage:
        tree = one_object(storage, name) if is_file else store_tree(storage)
        part = check_sources(tree, runs, opened)
        part["others"] |= other_files(tree, runs)
        part["faults"] += damaged_files(tree, runs)
    if logs:
        part["steps"] += log["steps"]
        part["faults"] += log["faults"]
        part["ended"] &= log["ended"]
        part["others"] |= log["others"]
    return {"path": path, **log, **part, "runs": sorted(runs), "hooks": {}}


def _check_local(path: str, steps: range | None, threads: int | None) -> dict[str, Any]:
    tree = Tree(path) if os.path.exists(path) else None
    runs = {} if tree is None else runs_in(tree)
    others = {} if tree is None else other_files(tree, runs)
    damaged = [] if tree is None else damaged_files(tree, runs)
    if tree is None or "" in tree.hooks or not (runs or others or damaged):
        return _check_run(LocalRun(path, *_ends(steps), lazy=False, trust="none"), steps, threads)
    if steps is not None:
        raise SMDebugValueError("--steps is supported for one run of a hook only; other files are read as a whole")
    logs = any(files.layout for files in runs.values())
    found: dict[str, Any] = {"path": path, "ended": True, "steps": 0, "others": {}, "faults": damaged, "hooks": {}}
    parts = [check_sources(tree, runs), *([_check_log(LocalStorage(path))] if logs else [])]
    for run in tree.hooks:
        hook = _check_run(LocalRun(str(Path(path, run)), lazy=False, trust="none"), None, threads)
        found["hooks"][run] = {key: value for key, value in hook.items() if key not in ("path", "faults")}
        faults = [{**fault, "file": f"{run}/{fault['file']}", "run": run} for fault in hook["faults"]]
        parts.append({"ended": hook["ended"], "steps": hook["steps"], "faults": faults})
    for part in parts:
        for key, value in part.items():
            if key in ("ended", "steps", "faults"):
                found[key] = found[key] & value if key == "ended" else found[key] + value
            elif key != "path":
                found[key] = value
    found["others"] = {**others, **{key: what for part in parts for key, what in part.get("others", {}).items()}}
    found["runs"] = sorted(runs)
    return found


def _ends(steps: range | None) -> tuple[int | None, int | None]:
    return (None, None) if steps is None else (steps.start, steps.stop)


def _check_run(run: LocalRun | RemoteRun, steps: range | None, threads: int | None) -> dict[str, Any]:
    try:
        run.check()
        run.refresh()
        faults = _collections(run) + [_fault(key, None, message) for key, message in run.catalog.problems()]
        with bytes_progress("verify") as progress:
            counts = _records(run, steps, threads, progress)
        faults += [_record_fault(run.catalog, *error) for error in counts.pop("errors")]
        faults += _shard_faults(run)
        faults += [_fault(key, None, message) for key, message in compaction_faults(run)]
        if steps is None:
            faults += _unindexed_files(run)
        statistics = run.statistics_file()
        rows = 0
        if statistics is not None:
            faults += [_fault(key, at, reason) for key, at, reason in statistics.faults(run.end_age() is not None)]
            _, rows, _ = statistics.size()
        samples, sample_faults = _samples(run, steps, threads)
        faults += sample_faults
        return {
            "path": run.path,
            "ended": run.end_age() is not None,
            "steps": run.catalog.num_steps(),
            "statistics": rows,
            "samples": samples,
            **{key: int(count) for key, count in counts.items()},
            "faults": faults,
        }
    finally:
        run.close()


def _samples(run: LocalRun | RemoteRun, steps: range | None, threads: int | None) -> tuple[int, list[dict[str, Any]]]:
    """Verify the samples of a run; return the number of records, and the faults."""
    folder = Path(run.path, SAMPLES)
    if not isinstance(run, LocalRun) or not folder.is_dir():
        return 0, []
    samples = LocalRun(str(folder), *_ends(steps), lazy=False, trust="none")
    try:
        samples.refresh()
        faults = [_fault(key, None, message) for key, message in samples.catalog.problems()]
        counts = samples.verify(None, SweepOptions(threads, lambda done, total: None))
        faults += [_record_fault(samples.catalog, *error) for error in counts["errors"]]
        below = [{**fault, "file": f"{SAMPLES}/{fault['file']}" if fault["file"] else SAMPLES} for fault in faults]
        return int(counts["records"]), below
    finally:
        samples.close()


def _records(
    run: LocalRun | RemoteRun, steps: range | None, threads: int | None, progress: Callable[[int, int], object]
) -> dict[str, Any]:
    """Verify the records, with the workers of a cluster if one was given."""
    if current() is None:
        return run.verify(None, SweepOptions(threads, progress))
    with create_trial(run.path, range_steps=_ends(steps), skip_bad_index=True) as trial:
        return verify_records(trial.reader, SweepOptions(progress=progress))


def _check_log(storage: Storage) -> dict[str, Any]:
    """Verify all TensorBoard runs below a directory.

    Opening a run reads and checks all its records.
    """
    found: dict[str, Any] = {
        "path": storage.url,
        "ended": True,
        "steps": 0,
        "files": 0,
        "bytes": 0,
        "others": {},
        "faults": [],
    }
    try:
        runs = runs_of(storage.list(""))
        found["runs"] = sorted(runs)
        with Progress("verify") as progress:
            for done, (name, directories) in enumerate(sorted(runs.items())):
                progress.update(done, len(runs), name)
                run = TensorBoardRun(storage, directories, name, keep_orphans=True)
                run.refresh()
                ended = run.end_age() is not None
                found["ended"] &= ended
                found["steps"] += run.index.num_steps()
                others = {key: what for key, _, _ in run.log.files() if (what := _foreign(storage, key))}
                found["others"] |= others
                for key, message in run.index.problems():
                    if key in others:
                        continue
                    at = _OFFSET.search(message)
                    reason = message.removeprefix(f"{key}, byte {at[1]}: ") if at else message
                    found["faults"].append(_fault(key, int(at[1]) if at else None, reason, run=name))
                for key, read, _ in run.log.files():
                    if key in others:
                        continue
                    found["files"] += 1
                    found["bytes"] += read
                    # In a run that has not ended, an incomplete last record is still being written.
                    if ended and next(iter(storage.read_ranges([Range(key, read, 1)])), b""):
                        found["faults"].append(_fault(key, read, "the file ends in the middle of a record", run=name))
        return found
    finally:
        storage.close()


def _foreign(storage: Storage, key: str) -> str | None:
    """Return what a file is that is named like an event file and is none."""
    return foreign(beginning(storage, key, 256))


def _fault(file: str | None, offset: int | None, message: str, **where: Any) -> dict[str, Any]:
    return {"file": file, "offset": offset, "message": message, **where}


def _collections(run: LocalRun | RemoteRun) -> list[dict[str, Any]]:
    try:
        if run.collections() is None:
            return [_fault("collections/", None, "no collection file; smdebug cannot open the run without one")]
    except SMDebugError as error:
        return [_fault("collections/", None, str(error))]
    return []


def _record_fault(
    catalog: _core.Catalog, name: str, step: int, worker: str | None, error: BaseException
) -> dict[str, Any]:
    places = [catalog.find(name, step, worker)]
    places += [place for _, _, place in catalog.stored_reductions(name, step, worker)]
    message = str(error)
    # The damaged record is the value's or that of a stored reduction; the error message contains its offset.
    place = next((each for each in places if each and str(each.offset) in message), next(filter(None, places), None))
    return _fault(
        place.event_key if place else None,
        place.offset if place else None,
        message,
        tensor=name,
        step=step,
        worker=worker,
    )


def _shard_faults(run: LocalRun | RemoteRun) -> list[dict[str, Any]]:
    """Report missing or contradictory shards, and replicas with different values."""
    catalog = run.catalog
    faults: list[dict[str, Any]] = []
    for step in catalog.steps() if catalog.has_shards else []:
        if len(catalog.workers_at(step)) < len(catalog.workers()) and run.end_age() is None:
            continue  # a worker is still writing the step
        for name in catalog.names_at(step):
            if not run.is_sharded(name, step):
                continue
            where = {"tensor": name, "step": step, "worker": None}
            try:
                sharded = run.sharded(name, step)
                places = {worker: catalog.find(name, step, worker) for worker in sharded.shards} if sharded else {}
                if sharded is not None and any(places.values()):
                    sharded.select(lambda worker, places=places: places[worker] is not None)  # type: ignore[misc]
                    for one, other in sharded.replicas():
                        first, second = places[one], places[other]
                        # Checksums of records differ, because records contain the time.
                        if first and second and run.value(first).tobytes() != run.value(second).tobytes():
                            message = f"replicas differ: {one} and {other} saved different values of the same shard"
                            faults.append(_fault(second.event_key, second.offset, message, **where))
            except SMDebugError as error:
                faults.append(_fault(catalog.shards(name, step)[0][1], None, str(error), **where))
    return faults


def _unindexed_files(run: LocalRun | RemoteRun) -> list[dict[str, Any]]:
    """Report event files of an ended run without an index file.

    Such files are never read.
    """
    if run.end_age() is None:
        return []  # hooks write the index file of a step after its event file
    indexed = {key.rpartition("/")[2].rpartition(".")[0] for key in run.storage.list("index/")}
    events = (key for key in run.storage.list("events/") if key.endswith(".tfevents"))
    return [
        _fault(key, None, "no index file for this event file")
        for key in events
        if key.rpartition("/")[2].rpartition(".")[0] not in indexed
    ]


def text(found: dict[str, Any]) -> str:
    """Format the result as text."""
    lines = []
    for fault in found["faults"][:SHOWN]:
        where = fault["file"] or "?"
        where += "" if fault["offset"] is None else f" at byte {fault['offset']:,}"
        what = f"{plain(fault['tensor'], 100)} at step {fault['step']}: " if "tensor" in fault else ""
        lines.append(plain(f"{where}: {what}{fault['message']}", 2000))
    more = len(found["faults"]) - SHOWN
    lines += [f"… and {more:,} more faults: --json lists all"] if more > 0 else []
    lines += [plain(line, 2000) for line in source_lines(found.get("sources", []))]
    if "files" in found:
        runs = "1 run" if len(found["runs"]) == 1 else f"{len(found['runs']):,} runs"
        lines.append(
            f"{byte_size(found['bytes'])} of {runs} read, {found['steps']:,} steps in {found['files']:,} event files, "
            "all checksums verified"
        )
    lines += [plain(f"{run}: {_record_counts(one)}", 2000) for run, one in found.get("hooks", {}).items()]
    if "records" in found:
        lines.append(_record_counts(found))
    for key, what in found.get("others", {}).items():
        is_event = "is not an event file" if is_event_file(key) else "is not read"
        lines.append(plain(f"{key} {is_event}: {what}", 2000))
    count = len(found["faults"])
    lines.append("No faults." if not count else "1 fault." if count == 1 else f"{count:,} faults.")
    if not found["ended"]:
        lines.append("The run has not ended: it is running or was interrupted.")
    return "\n".join(lines)


def _record_counts(found: dict[str, Any]) -> str:
    checked = found["footer_crc"] + found["index_crc"]
    statistics = f"{found['statistics']:,} rows of statistics; " if found["statistics"] else ""
    samples = f"{found['samples']:,} samples; " if found.get("samples") else ""
    return (
        statistics
        + samples
        + (
            f"{found['records']:,} records ({byte_size(found['bytes'])}) of {found['steps']:,} steps read; "
            f"{checked:,} checksums verified, {found['unverifiable']:,} records without a checksum"
        )
    )
