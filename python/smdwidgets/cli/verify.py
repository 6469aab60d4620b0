"""Check every record of a run: framing, checksums, names, shapes, the index against the events, and the collections.

Of TensorBoard's logs, all runs below the directory: framing, checksums, and what the records say.

Examples:
  smdwidgets verify runs/mlp
  smdwidgets verify runs/mlp --steps 100:200 --json
  smdwidgets verify s3://bucket/jobs/mnist
  smdwidgets verify logs

Exit codes: 0 sound, 1 a fault was found, 2 it could not be opened
"""

from __future__ import annotations

import argparse
import json
import re
from typing import TYPE_CHECKING, Any

from smdwidgets import _core
from smdwidgets._text import byte_size
from smdwidgets.cli._run import bytes_progress, check_not_empty, plain, step_range
from smdwidgets.exceptions import RunNotFound, SMDebugError, SMDebugValueError
from smdwidgets.rules.progress import Progress
from smdwidgets.storage import LocalStorage, Range, Storage
from smdwidgets.trials.local import LocalRun, local_path
from smdwidgets.trials.tensorboard import is_log
from smdwidgets.trials.tensorboard_layout import runs_of
from smdwidgets.trials.tensorboard_run import TensorBoardRun

if TYPE_CHECKING:
    from smdwidgets.trials.s3 import S3Run

_OFFSET = re.compile(r"\bbyte (\d+)")
#: Faults that are listed for a person; JSON lists all.
SHOWN = 50


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("run", metavar="RUN", help="a directory or an s3:// address")
    parser.add_argument("--steps", type=step_range, metavar="A:B", help="only these global steps; B is not one of them")
    parser.add_argument("--threads", type=int, metavar="N", help="how many read at once (default: all processors)")
    parser.add_argument("--json", action="store_true", help="as JSON, with every fault")


def run(args: argparse.Namespace) -> int:
    """Checks the run."""
    check_not_empty(args.run)
    found = check(args.run, args.steps, args.threads)
    print(json.dumps(found, indent=2) if args.json else text(found))
    return 1 if found["faults"] else 0


def check(path: str, steps: range | None = None, threads: int | None = None) -> dict[str, Any]:
    """Everything that is wrong with the run at a path, and what was looked at, as plain JSON."""
    if "://" not in path or path.lower().startswith("file://"):
        path = local_path(path)
        if is_log(path):
            return _check_log(LocalStorage(path), steps)
        return _check_run(LocalRun(path, *_ends(steps), lazy=False), steps, threads)
    from smdwidgets.storage.s3 import Connection  # boto3 is imported only for runs on S3
    from smdwidgets.trials.s3 import S3Run

    storage = Connection().storage(path)
    try:
        return _check_run(S3Run(storage, *_ends(steps), lazy=False), steps, threads or storage.concurrency)
    except RunNotFound:
        storage = Connection().storage(path)
        if not runs_of(storage.list("")):
            storage.close()
            raise
        return _check_log(storage, steps)


def _ends(steps: range | None) -> tuple[int | None, int | None]:
    return (None, None) if steps is None else (steps.start, steps.stop)


def _check_run(run: LocalRun | S3Run, steps: range | None, threads: int | None) -> dict[str, Any]:
    try:
        run.check()
        run.refresh()
        faults = _collections(run) + [_fault(key, None, message) for key, message in run.catalog.problems()]
        with bytes_progress("verify") as progress:
            told = _core.verify(run.catalog, run._source(), threads=threads, progress=progress)
        faults += [_of_record(run.catalog, *error) for error in told.pop("errors")]
        if steps is None:
            faults += _not_in_the_index(run)
        return {
            "path": run.path,
            "ended": run.end_age() is not None,
            "steps": run.catalog.num_steps(),
            **{key: int(count) for key, count in told.items()},
            "faults": faults,
        }
    finally:
        run.close()


def _check_log(storage: Storage, steps: range | None) -> dict[str, Any]:
    """All runs of TensorBoard's below a place. Opening one reads and checks all its records."""
    if steps is not None:
        storage.close()
        raise SMDebugValueError("--steps is for runs of smdebug's format: a log is read from its beginning.")
    found: dict[str, Any] = {"path": storage.url, "ended": True, "steps": 0, "files": 0, "bytes": 0, "faults": []}
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
                for key, message in run.index.problems():
                    at = _OFFSET.search(message)
                    said = message.removeprefix(f"{key}, byte {at[1]}: ") if at else message
                    found["faults"].append(_fault(key, int(at[1]) if at else None, said, run=name))
                for key, read, _ in run.log.files():
                    found["files"] += 1
                    found["bytes"] += read
                    # What is not whole in a log that grows is still being written.
                    if ended and next(iter(storage.read_ranges([Range(key, read, 1)])), b""):
                        found["faults"].append(_fault(key, read, "the file ends in the middle of a record", run=name))
        return found
    finally:
        storage.close()


def _fault(file: str | None, offset: int | None, message: str, **where: Any) -> dict[str, Any]:
    return {"file": file, "offset": offset, "message": message, **where}


def _collections(run: LocalRun | S3Run) -> list[dict[str, Any]]:
    try:
        if run.collections() is None:
            return [_fault("collections/", None, "there is no collection file, so that smdebug will not open the run")]
    except SMDebugError as error:
        return [_fault("collections/", None, str(error))]
    return []


def _of_record(
    catalog: _core.Catalog, name: str, step: int, worker: str | None, error: BaseException
) -> dict[str, Any]:
    places = [catalog.find(name, step, worker)]
    places += [place for _, _, place in catalog.stored_reductions(name, step, worker)]
    said = str(error)
    # The record at fault may be the value's or that of a stored reduction: its message names the offset.
    place = next((each for each in places if each and str(each.offset) in said), next(filter(None, places), None))
    return _fault(
        place.event_key if place else None,
        place.offset if place else None,
        said,
        tensor=name,
        step=step,
        worker=worker,
    )


def _not_in_the_index(run: LocalRun | S3Run) -> list[dict[str, Any]]:
    """Event files of a run that has ended for which there is no index file: nothing will ever read them."""
    if run.end_age() is None:
        return []  # the index of a step is written after its events
    indexed = {key.rpartition("/")[2].rpartition(".")[0] for key in run.storage.list("index/")}
    events = (key for key in run.storage.list("events/") if key.endswith(".tfevents"))
    return [
        _fault(key, None, "no index file speaks of this event file")
        for key in events
        if key.rpartition("/")[2].rpartition(".")[0] not in indexed
    ]


def text(found: dict[str, Any]) -> str:
    """The report for a person."""
    lines = []
    for fault in found["faults"][:SHOWN]:
        where = fault["file"] or "?"
        where += "" if fault["offset"] is None else f" at byte {fault['offset']:,}"
        what = f"{plain(fault['tensor'], 100)} at step {fault['step']}: " if "tensor" in fault else ""
        lines.append(plain(f"{where}: {what}{fault['message']}", 2000))
    more = len(found["faults"]) - SHOWN
    lines += [f"… and {more:,} more faults: --json lists all"] if more > 0 else []
    if "files" in found:
        runs = "1 run" if len(found["runs"]) == 1 else f"{len(found['runs']):,} runs"
        lines.append(
            f"{byte_size(found['bytes'])} of {runs} read, {found['steps']:,} steps in {found['files']:,} event files, every checksum looked at"
        )
    else:
        lines.append(_of_records(found))
    count = len(found["faults"])
    lines.append("No fault." if not count else "1 fault." if count == 1 else f"{count:,} faults.")
    if not found["ended"]:
        lines.append("The run has not ended: it is being written, or was interrupted.")
    return "\n".join(lines)


def _of_records(found: dict[str, Any]) -> str:
    checked = found["footer_crc"] + found["index_crc"]
    return (
        f"{found['records']:,} records ({byte_size(found['bytes'])}) of {found['steps']:,} steps read; the content of "
        f"{checked:,} held against a checksum, {found['unverifiable']:,} carry none"
    )
