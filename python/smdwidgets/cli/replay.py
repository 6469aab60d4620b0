"""What `smdwidgets replay` does."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from smdwidgets._text import byte_size, json_number, listed, shown
from smdwidgets.cli._run import open_run, plain, table
from smdwidgets.cli.arguments._types import CommandParser
from smdwidgets.cli.arguments.replay import arguments
from smdwidgets.exceptions import CannotReplay, SMDebugValueError
from smdwidgets.incident import Incident
from smdwidgets.launch.command import after_separator
from smdwidgets.replay.incident_replay import IncidentReplay
from smdwidgets.replay.protocol import StepResult, sentence
from smdwidgets.replay.subprocesses import Rerunning, run_again
from smdwidgets.replay.task import Kind

#: Rows of a batch in the table.
_ROWS_SHOWN = 8


def run(args: argparse.Namespace) -> int:
    """Show the steps of an incident, or execute them."""
    args = _with_late_options(args)
    command = after_separator(args.command)
    with open_run(args.run) as trial:
        incidents = trial.incidents()
        if not incidents:
            raise SMDebugValueError(f"{shown(str(trial.path), 400)} has no incidents")
        if not 1 <= args.incident <= len(incidents):
            raise SMDebugValueError(f"--incident must be a number from 1 to {len(incidents)}, got {args.incident}")
        incident = incidents[args.incident - 1]
        replay = incident.replay
        if replay is None:
            raise CannotReplay(
                "nothing was recorded around this incident: the hook had replay=False, or is an older one"
            )
        asked = [name for name in ("--explain", "--what-if", "--rows") if getattr(args, name[2:].replace("-", "_"))]
        if asked and not command:
            raise SMDebugValueError(
                f"{asked[0]} executes the steps: add the command that trained, such as -- python train.py"
            )
        if args.explain and len(asked) > 1:
            raise SMDebugValueError(f"--explain and {asked[1]} cannot be combined; use two commands")
        if not command:
            print(json.dumps(_facts(incident, replay), indent=2) if args.json else _text(incident, replay))
            return 0
        if replay.why_not:
            raise CannotReplay(replay.why_not)
        if replay.workers > 1 and (args.what_if or args.rows):
            raise CannotReplay(f"changes and rows are tried in a training of one worker; this one had {replay.workers}")
        kind: Kind = "explain" if args.explain else "try" if asked else "run"
        step = incident.step if asked else None
        task = replay.task(str(trial.path), kind, step, changes=args.what_if, rows=args.rows)
        answers = run_again(task, command)
    if args.json:
        print(json.dumps(_executed(answers, replay, bool(asked))))
    else:
        print("\n".join(_lines(answers, replay, bool(asked))))
    return (
        1
        if any(one.equal is False for worker in answers.values() for one in worker.results) and not task.changes
        else 0
    )


def _executed(answers: Mapping[int, Rerunning], replay: IncidentReplay, asked: bool) -> dict[str, Any]:
    """Return what the worker that went wrong first executed, and each, as JSON."""
    first = _first_wrong(answers, replay.rank)
    content = _content(answers[first], replay, asked)
    if replay.workers > 1:
        content["worker"] = f"worker_{first}"
        content["workers"] = {
            f"worker_{rank}": {**_content(one, replay, asked), "error": one.error or None}
            for rank, one in sorted(answers.items())
        }
    return content


def _content(answer: Rerunning, replay: IncidentReplay, asked: bool) -> dict[str, Any]:
    content: dict[str, Any] = {
        "steps": [_result(one) for one in answer.results],
        "text": _sentence(answer, replay, asked),
    }
    for name in ("explanation", "what_if", "ranking"):
        if (value := getattr(answer, name)) is not None:
            content[name] = value
    return content


def _lines(answers: Mapping[int, Rerunning], replay: IncidentReplay, asked: bool) -> Iterator[str]:
    first = _first_wrong(answers, replay.rank)
    one = answers[first]
    if one.explanation is not None:
        if replay.workers > 1:
            yield f"worker_{first} goes wrong first:"
        yield from (plain(line, 2000) for line in str(one.explanation["text"]).splitlines())
    if one.what_if is not None:
        yield from (plain(outcome["text"], 2000) for outcome in one.what_if)
    if one.ranking is not None:
        yield from (plain(line, 2000) for line in str(one.ranking["text"]).splitlines())
    if not asked and replay.workers == 1:
        yield from map(_line, one.results)
        yield _sentence(one, replay, asked)
    for rank, each in sorted(answers.items()) if replay.workers > 1 else ():
        yield f"worker_{rank}: {plain(each.error, 300) or _sentence(each, replay, asked)}"


def _sentence(answer: Rerunning, replay: IncidentReplay, asked: bool) -> str:
    return sentence(answer.results, len(answer.results) if asked else replay.expected)


def _first_wrong(answers: Mapping[int, Rerunning], recorded: int) -> int:
    """Return the worker whose explanation is the earliest.

    Reduced gradients bring what is wrong to all workers, and a worker that fails ends the others. Without an
    explanation it is the one whose incident it is.
    """

    def order(rank: int) -> tuple[Any, ...]:
        about = answers[rank].explanation
        if about is None or about["kind"] == "nothing":
            return (1, bool(answers[rank].error), 0, rank != recorded, rank)
        return (0, about["step"], _phase(about), rank != recorded, rank)

    return min(answers, key=order)


def _phase(about: Mapping[str, Any]) -> int:
    """Return how early in its step something went wrong."""
    if about["kind"] == "given":  # an input that is no batch, parameter or buffer is a reduced gradient
        return 2 if str(about["operator"]).startswith("input ") else 0
    return {"forward": 1, "backward": 3, "optimizer": 4}.get(about["phase"], 1)


def _with_late_options(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments, with options that stand between the run and the command."""
    words = list(args.command)
    end = words.index("--") if "--" in words else len(words) if words and words[0].startswith("-") else 0
    parser = CommandParser(prog="smdwidgets replay")
    arguments(parser)
    return parser.parse_args(
        [*words[:end], args.run, *words[end:]], argparse.Namespace(**{**vars(args), "command": []})
    )


def _facts(incident: Incident, replay: IncidentReplay) -> dict[str, Any]:
    recording = replay.recording
    return {
        "step": incident.step,
        "text": str(incident),
        "why_not": replay.why_not or None,
        "bytes": (incident.recorded or {}).get("bytes"),
        "source": recording.about.get("source"),
        "lost": list(recording.lost),
        "steps": [
            {
                "step": one.step,
                "rows": recording.row_ids(one.step),
                "losses": list(map(json_number, one.losses)),
                "by_order": one.by_order,
            }
            for one in recording.recorded
        ],
    }


def _text(incident: Incident, replay: IncidentReplay) -> str:
    facts = _facts(incident, replay)
    rows = []
    for one in facts["steps"]:
        ids = one["rows"]
        names = "not known" if ids is None else listed([plain(str(each), 40) for each in ids], _ROWS_SHOWN)
        losses = ", ".join(f"{float(loss):.6g}" for loss in one["losses"])
        rows.append([f"{'>' if one['step'] == incident.step else ' '} {one['step']:,}", losses, names])
    source = facts["source"] if isinstance(facts["source"], dict) else {}
    where = f"loop: {plain(str(source.get('file')), 400)}:{source.get('line')}" if source else ""
    state = replay.why_not or f"the steps can be executed again ({byte_size(int(facts['bytes'] or 0))} were recorded)"
    return "\n".join(
        line
        for line in (
            plain(facts["text"], 2000),
            "",
            table([["step", "loss", "rows of the data set"], *rows]),
            "",
            where,
            state,
        )
        if line is not None
    )


def _result(one: StepResult) -> dict[str, Any]:
    losses = list(map(json_number, one.losses))
    return {"step": one.step, "losses": losses, "equal": one.equal, "detail": one.detail}


def _line(one: StepResult) -> str:
    mark = {True: "equal", False: "differs", None: "not compared"}[one.equal]
    losses = ", ".join(f"{loss:.9g}" for loss in one.losses)
    return f"step {one.step:,}: loss {losses}: {mark}{f' ({plain(one.detail, 300)})' if one.detail else ''}"
