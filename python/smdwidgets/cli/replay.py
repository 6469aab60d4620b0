"""What `smdwidgets replay` does."""

from __future__ import annotations

import argparse
import json
from typing import Any

from smdwidgets._text import byte_size, json_number, listed, shown
from smdwidgets.cli._run import open_run, plain, table
from smdwidgets.cli.arguments._types import CommandParser
from smdwidgets.cli.arguments.replay import arguments
from smdwidgets.exceptions import CannotReplay, SMDebugValueError
from smdwidgets.incident import Incident
from smdwidgets.replay.incident_replay import IncidentReplay
from smdwidgets.replay.protocol import StepResult, sentence
from smdwidgets.replay.subprocesses import run_command

#: Rows of a batch in the table.
_ROWS_SHOWN = 8


def run(args: argparse.Namespace) -> int:
    """Show the steps of an incident, or execute them."""
    args = _with_late_options(args)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
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
        if args.explain and not command:
            raise SMDebugValueError(
                "--explain executes the steps: add the command that trained, such as -- python train.py"
            )
        if not command:
            print(json.dumps(_facts(incident, replay), indent=2) if args.json else _text(incident, replay))
            return 0
        if replay.why_not:
            raise CannotReplay(replay.why_not)
        explain = incident.step if args.explain else None
        done = run_command(str(trial.path), replay.recording, command, explain=explain)
    results, expected = done.results, replay.expected if explain is None else len(done.results)
    if args.json:
        content = {"steps": [_result(one) for one in results], "text": sentence(results, expected)}
        print(json.dumps(content if done.explanation is None else {**content, "explanation": done.explanation}))
    elif done.explanation is not None:
        print(*(plain(line, 2000) for line in str(done.explanation["text"]).splitlines()), sep="\n")
    else:
        print(*(_line(one) for one in results), sentence(results, replay.expected), sep="\n")
    return 1 if any(one.equal is False for one in results) else 0


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
