"""Run a command for the checks of its trainings, and say what they found."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from smdwidgets.checks.record import CHECKS_PREFIX, CheckRecords
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.finding import LEVELS
from smdwidgets.launch.command import environment
from smdwidgets.launch.console import say
from smdwidgets.launch.options import Options

__all__ = ["check"]


def check(command: Sequence[str], options: Options) -> int:
    """Run a command; return 1 if a check found a problem.

    Else the result is the exit code of the command.

    Nothing is kept. The processes of the command print what fires at once, and end after the updates to check.
    """
    with tempfile.TemporaryDirectory(prefix="smdwidgets-") as folder:
        variables = environment(replace(options, out=str(Path(folder) / "run")))
        process = None
        try:
            process = subprocess.Popen(list(command), env=dict(variables))
            code = process.wait()
        except OSError as error:
            raise SMDebugValueError(f"cannot run {command[0]}: {error.strerror}") from None
        except KeyboardInterrupt:  # the command got it, too
            code = 130 if process is None else process.wait()
        runs: dict[Path, dict[str, bytes]] = {}
        for file in sorted(Path(folder).rglob(f"{CHECKS_PREFIX}/*.jsonl")):
            runs.setdefault(file.parent, {})[file.stem] = file.read_bytes()
        records = [CheckRecords.parse(files) for files in runs.values()]
    levels = [one.level for each in records for one in each.fired]
    updates = max((each.updates for each in records), default=0)
    if not records:
        say("no training was checked")
    else:
        counts = ", ".join(
            f"{levels.count(level)} {level}{'' if levels.count(level) == 1 else 's'}" for level in LEVELS
        )
        say(f"checked {updates:,} update{'' if updates == 1 else 's'}: {counts}")
        for each in records:
            for one in each.fired:
                if one.level == "note":
                    say(f"note at {one}. Try: {one.try_}")
            for name, reason in each.off.items():
                say(f"not checked: {name} ({reason})")
    return 1 if "problem" in levels else code
