"""Execute recorded steps in another process, which runs the script again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from smdwidgets._text import shown
from smdwidgets.exceptions import CannotReplay, SMDebugValueError
from smdwidgets.replay.operators import Executed
from smdwidgets.replay.protocol import StepResult
from smdwidgets.replay.task import Task

__all__ = ["Rerunning", "run_again", "run_command", "run_workers"]

#: The directory whose `sitecustomize` has workers execute their steps.
BOOTSTRAP: Final = Path(__file__).parent / "bootstrap"
#: Programs of PyTorch that start workers, and their modules.
_LAUNCHERS: Final = {"torchrun": "torch.distributed.run"}


@dataclass(frozen=True)
class Rerunning:
    """What a process found.

    The steps, and the operators of one of them, what explains the incident, outcomes of changes and the order of the
    rows, as JSON; or why the steps were not executed.
    """

    results: list[StepResult]
    operators: Executed | None = None
    explanation: Mapping[str, Any] | None = None
    what_if: Sequence[Mapping[str, Any]] | None = None
    ranking: Mapping[str, Any] | None = None
    error: str = ""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return what the file of a process says."""
        results = [
            StepResult(one["step"], tuple(float(loss) for loss in one["losses"]), one["equal"], one["detail"])
            for one in content.get("steps", ())
        ]
        seen = content.get("operators")
        return cls(
            results,
            None if seen is None else Executed.from_json(seen),
            content.get("explanation"),
            content.get("what_if"),
            content.get("ranking"),
            content.get("error", ""),
        )


def run_again(task: Task, command: Sequence[str]) -> dict[int, Rerunning]:
    """Run a training again, and return what each of its workers found, by rank."""
    if len(task.folders) > 1:
        return run_workers(task, command)
    return {next(iter(task.folders)): run_command(task, command)}


def run_command(task: Task, command: Sequence[str]) -> Rerunning:
    """Run the script of a training again, and return what its recorded steps did.

    Args:
        task: what is executed.
        command: the command that trained: python, a file or ``-m`` module, and its arguments.

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
    rank = next(iter(task.folders))
    answers = _run(task, lambda plan: [_program(program), "-m", _RERUN, "--plan", plan, str(rank), *script], {})
    if rank not in answers:
        raise CannotReplay("the script ended before the recorded steps were executed")
    if answers[rank].error:
        raise CannotReplay(answers[rank].error)
    return answers[rank]


def run_workers(task: Task, command: Sequence[str]) -> dict[int, Rerunning]:
    """Start the workers of a training again; return what each found, by rank.

    Args:
        task: what is executed.
        command: the command that trained, such as ``torchrun --nproc-per-node 2 train.py``.

    Raises:
        CannotReplay: no worker executed its steps.
    """
    program, *rest = command
    if (module := _LAUNCHERS.get(Path(program).name)) is not None:
        program, rest = "python", ["-m", module, *rest]
    path = [str(BOOTSTRAP), *filter(None, [os.environ.get("PYTHONPATH")])]
    answers = _run(task, lambda plan: [_program(program), *rest], {"PYTHONPATH": os.pathsep.join(path)})
    if not answers:
        raise CannotReplay(
            "the command started no worker that executed its steps; it must be one that gives workers their ranks, "
            f"such as torchrun --nproc-per-node {len(task.folders)} train.py"
        )
    if all(one.error for one in answers.values()):
        # One worker fails first, and the others because it does not answer.
        errors = [one.error for one in answers.values()]
        raise CannotReplay(next((one for one in errors if not one.startswith("the script failed")), errors[0]))
    return answers


_RERUN: Final = "smdwidgets.replay.torch.rerun"


def _program(name: str) -> str:
    # The plain name means the Python of this command, which has smdwidgets.
    return sys.executable if name in ("python", "python3", sys.executable) else shutil.which(name) or name


def _run(task: Task, words: Callable[[str], list[str]], variables: Mapping[str, str]) -> dict[int, Rerunning]:
    with tempfile.TemporaryDirectory(prefix="smdwidgets-") as folder:
        task, plan = replace(task, results=folder), Path(folder) / "plan.json"
        task.write(plan)
        environment = (
            {**os.environ, **variables, "SMDWIDGETS_REPLAY_PLAN": str(plan)} if variables else dict(os.environ)
        )
        command = words(str(plan))
        try:
            subprocess.run(command, stdout=_output(), stderr=_output(), env=environment, check=False)
        except OSError as error:
            raise SMDebugValueError(f"cannot run {shown(command[0], 400)}: {error.strerror}") from None
        return {
            rank: Rerunning.from_json(json.loads(path.read_bytes()))
            for rank in task.folders
            if (path := task.result(rank)).exists()
        }


def _output() -> int:
    """Return where the script prints to.

    It is the standard error, or nowhere if that is no file, as in some notebooks.
    """
    try:
        return sys.stderr.fileno()
    except (OSError, AttributeError, ValueError):
        return subprocess.DEVNULL
