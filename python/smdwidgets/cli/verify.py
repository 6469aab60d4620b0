"""Check every record of a run: framing, checksums, names, shapes, the index against the events, and the collections.

A directory of TensorBoard's logs is read whole: framing and checksums of all runs in it.

Examples:
  smdwidgets verify runs/mlp
  smdwidgets verify runs/mlp --steps 100:200 --json

Exit codes: 0 sound, 1 a fault was found, 2 it could not be opened
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from smdwidgets import _core
from smdwidgets._text import byte_size
from smdwidgets.cli._run import bytes_progress, check_not_empty, plain, step_range
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.trials import TensorBoardTrial, create_trials
from smdwidgets.trials.local import LocalRun, local_path
from smdwidgets.trials.tensorboard import is_log

#: Faults that are listed for a person; JSON lists all.
SHOWN = 50


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("--steps", type=step_range, metavar="A:B", help="only these global steps; B is not one of them")
    parser.add_argument("--threads", type=int, metavar="N", help="how many read at once (default: all processors)")
    parser.add_argument("--json", action="store_true", help="as JSON, with every fault")


def run(args: argparse.Namespace) -> int:
    """Checks the run."""
    if "://" in args.run and not args.run.lower().startswith("file://"):
        raise SMDebugValueError("verify reads every byte of a run: copy it to a directory first.")
    check_not_empty(args.run)
    path = local_path(args.run)
    if is_log(path):
        found = check_log(path)
        print(json.dumps(found, indent=2) if args.json else text_of_log(found))
    else:
        found = check(path, args.steps, args.threads)
        print(json.dumps(found, indent=2) if args.json else text(found))
    return 1 if found["faults"] else 0


def check(path: str, steps: range | None = None, threads: int | None = None) -> dict[str, Any]:
    """Everything that is wrong with the run at a path, and what was looked at, as plain JSON."""
    run = LocalRun(path, None if steps is None else steps.start, None if steps is None else steps.stop, lazy=False)
    try:
        run.check()
        run.refresh()
        faults = _collections(run) + [_fault(key, None, message) for key, message in run.catalog.problems()]
        with bytes_progress("verify") as progress:
            told = _core.verify(run.catalog, run.files, threads=threads, progress=progress)
        faults += [_of_record(run.catalog, *error) for error in told.pop("errors")]
        if steps is None:
            faults += _not_in_the_index(run)
        return {
            "path": path,
            "ended": run.end_age() is not None,
            "steps": run.catalog.num_steps(),
            **{key: int(count) for key, count in told.items()},
            "faults": faults,
        }
    finally:
        run.close()


def check_log(path: str) -> dict[str, Any]:
    """What can't be used of a log of TensorBoard's, of all its runs, as plain JSON. Every checksum is looked at on opening."""
    runs = create_trials(path)
    faults, read, ended = [], 0, True
    for name, trial in runs.items():
        with trial:
            trial.maybe_refresh()
            ended &= trial.loaded_all_steps
            faults += [_fault(key, None, message, run=name) for key, message in trial.problems()]
            if isinstance(trial, TensorBoardTrial):
                read += sum(size for _, size, _ in trial._run.log.files())
    return {"path": path, "ended": ended, "runs": list(runs), "bytes": read, "faults": faults}


def text_of_log(found: dict[str, Any]) -> str:
    """The report on a log for a person."""
    lines = [plain(fault["message"], 2000) for fault in found["faults"][:SHOWN]]
    more = len(found["faults"]) - SHOWN
    lines += [f"… and {more:,} more faults: --json lists all"] if more > 0 else []
    count = len(found["faults"])
    runs = "1 run" if len(found["runs"]) == 1 else f"{len(found['runs']):,} runs"
    lines.append(f"{byte_size(found['bytes'])} of {runs} read, every checksum looked at")
    lines.append("No fault." if not count else "1 fault." if count == 1 else f"{count:,} faults.")
    return "\n".join(lines)


def _fault(file: str | None, offset: int | None, message: str, **where: Any) -> dict[str, Any]:
    return {"file": file, "offset": offset, "message": message, **where}


def _collections(run: LocalRun) -> list[dict[str, Any]]:
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


def _not_in_the_index(run: LocalRun) -> list[dict[str, Any]]:
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
    checked = found["footer_crc"] + found["index_crc"]
    lines.append(
        f"{found['records']:,} records ({byte_size(found['bytes'])}) of {found['steps']:,} steps read; the content of "
        f"{checked:,} held against a checksum, {found['unverifiable']:,} carry none"
    )
    count = len(found["faults"])
    lines.append("No fault." if not count else "1 fault." if count == 1 else f"{count:,} faults.")
    if not found["ended"]:
        lines.append("The run has not ended: it is being written, or was interrupted.")
    return "\n".join(lines)
