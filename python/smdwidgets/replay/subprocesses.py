"""Execute recorded steps in another process, which runs the script again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdwidgets._text import shown
from smdwidgets.exceptions import CannotReplay, SMDebugValueError
from smdwidgets.replay.files import Recording
from smdwidgets.replay.operators import Executed
from smdwidgets.replay.protocol import StepResult

__all__ = ["Rerunning", "run_command"]


@dataclass(frozen=True)
class Rerunning:
    """What the other process found.

    The steps, and the operators of one of them or what explains the incident, as JSON.
    """

    results: list[StepResult]
    operators: Executed | None = None
    explanation: Mapping[str, Any] | None = None


def run_command(
    run: str, recording: Recording, command: Sequence[str], operators: int | None = None, explain: int | None = None
) -> Rerunning:
    """Run the script of a training again, and return what its recorded steps did.

    Args:
        run: directory of the run.
        recording: what was recorded.
        command: the command that trained: python, a file or ``-m`` module, and its arguments.
        operators: the step of which all operators are looked at, which is the last one that is executed.
        explain: the step of the incident that is explained, which is the last one that is executed.

    Raises:
        CannotReplay: the steps could not be executed.
        SMDebugValueError: the command runs no Python script.
    """
    program, *script = command
    if Path(program).suffix == ".py":
        program, script = sys.executable, list(command)
    elif not Path(program).name.startswith("python") or not script:
        raise SMDebugValueError(
            f"the command must be a Python file, or python with a file or a module, got {shown(' '.join(command), 200)}"
        )
    # The plain name means the Python of this command, which has smdwidgets.
    executable = sys.executable if program in ("python", "python3") else shutil.which(program) or program
    with tempfile.TemporaryDirectory(prefix="smdwidgets-") as folder:
        result = Path(folder) / "result.json"
        question = [] if operators is None else ["--operators", str(operators)]
        question = question if explain is None else ["--explain", str(explain)]
        words = [executable, "-m", "smdwidgets.replay.torch.rerun", *question, run, recording.folder, str(result)]
        try:
            subprocess.run([*words, *script], stdout=_output(), stderr=_output(), env=dict(os.environ), check=False)
        except OSError as error:
            raise SMDebugValueError(f"cannot run {shown(program, 400)}: {error.strerror}") from None
        if not result.exists():
            raise CannotReplay("the script ended before the recorded steps were executed")
        content: dict[str, Any] = json.loads(result.read_bytes())
    if "error" in content:
        raise CannotReplay(content["error"])
    results = [
        StepResult(one["step"], tuple(float(loss) for loss in one["losses"]), one["equal"], one["detail"])
        for one in content["steps"]
    ]
    seen = content.get("operators")
    return Rerunning(results, None if seen is None else Executed.from_json(seen), content.get("explanation"))


def _output() -> int:
    """Return where the script prints to.

    It is the standard error, or nowhere if that is no file, as in some notebooks.
    """
    try:
        return sys.stderr.fileno()
    except (OSError, AttributeError, ValueError):
        return subprocess.DEVNULL
