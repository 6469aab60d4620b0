"""The first operator that differs between two runs.

The step at which they part is executed again in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from smdwidgets._text import shown
from smdwidgets.exceptions import CannotReplay
from smdwidgets.replay.incident_replay import IncidentReplay
from smdwidgets.replay.operators import Executed, first_operator
from smdwidgets.replay.protocol import sentence
from smdwidgets.replay.subprocesses import run_again
from smdwidgets.trials.divergence import Divergence
from smdwidgets.trials.reader import RunReader

__all__ = ["Command", "with_operator"]

#: The command that trained; None: this process did.
Command = Sequence[str] | None
#: How much larger than rounding errors before it the difference of an operator is at least.
_GROWTH: Final = 64.0


def with_operator(
    divergence: Divergence, runs: tuple[RunReader, RunReader], commands: tuple[Command, Command]
) -> Divergence:
    """Return the divergence with the first operator that differs.

    Or why none is known.
    """
    first = divergence.first
    if first is None:
        return divergence
    # Parameters that differ were changed by the update of the step before.
    step = first.step if first.updated_after is None else first.updated_after
    tolerance = _GROWTH * divergence.noise_level if divergence.tolerance == "auto" else float(divergence.tolerance)
    try:
        a, b = (_executed(run, step, command) for run, command in zip(runs, commands, strict=True))
    except CannotReplay as error:
        return replace(divergence, no_operator=str(error))
    return replace(divergence, operator=first_operator(a, b, tolerance))


def _executed(run: RunReader, step: int, command: Command) -> Executed:
    replay = _recording(run, step)
    name = shown(run.path, 400)
    try:
        if command is not None:
            executed = run_again(replay.task(str(run.path), "operators", step), command)[replay.rank].operators
        else:
            execution = replay.execution
            from smdwidgets.replay.fingerprints import Fingerprints

            prints = Fingerprints(step)
            results = execution.run([prints], last=step)
            executed = prints.executed(sentence(results, len(results)))
    except CannotReplay as error:
        raise CannotReplay(f"{name}: {error}") from None
    if executed is None:
        raise CannotReplay(f"{name}: the execution ended before step {step:,}")
    return executed


def _recording(run: RunReader, step: int) -> IncidentReplay:
    """Return a recording that has a step."""
    reasons = []
    for incident in run.incidents():
        replay: IncidentReplay | None = incident.replay
        if replay is None:
            continue
        if not replay.why_not and step in replay.steps:
            return replay
        reasons.append(replay.why_not or f"steps {replay.steps[0]:,} to {replay.steps[-1]:,} were recorded")
    why = "; ".join(dict.fromkeys(reasons)) or "nothing was recorded to execute steps again (PyTorch: replay=True)"
    raise CannotReplay(f"{shown(run.path, 400)}: step {step:,} cannot be executed again: {why}")
