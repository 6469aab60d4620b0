"""What an incident offers to look into its steps and to execute them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from smdwidgets._text import listed
from smdwidgets.exceptions import CannotReplay
from smdwidgets.replay.files import Recording
from smdwidgets.replay.live import find_live
from smdwidgets.replay.protocol import Execution, StepObserver, StepResult
from smdwidgets.replay.task import Kind, Task
from smdwidgets.replay.watched import Watch, Watched
from smdwidgets.storage.protocol import Storage

if TYPE_CHECKING:
    import torch

    from smdwidgets.replay.explanation import Explanation
    from smdwidgets.replay.outcomes import Course, WhatIf, WhatIfTable
    from smdwidgets.replay.ranking import RowRanking

__all__ = ["IncidentReplay", "open_replay"]


class IncidentReplay:
    """The recorded steps of an incident.

    The process that trained can execute them again.

    Reading needs no PyTorch. In another process, run the script again: ``smdwidgets replay RUN -- python train.py``.

    Args:
        recording: what was recorded.
        folder: the folder of the recording in this process's file system.
        rank: rank of the worker that recorded it.
        find_others: finds what the other workers of the training recorded, by rank.
    """

    def __init__(
        self,
        recording: Recording,
        folder: str,
        rank: int = 0,
        find_others: Callable[[], Mapping[int, IncidentReplay]] = dict,
    ) -> None:
        self.recording = recording
        self.rank = rank
        self._folder, self._find_others = folder, find_others
        self._others: Mapping[int, IncidentReplay] | None = None
        self._execution: Execution | None = None

    def watched(self, watch: Watch) -> Self:
        """Return the same steps, of which a watch sees each.

        An execution stops when the watch says so.
        """
        return self.executed_by(Watched(self.execution, watch))

    def executed_by(self, execution: Execution) -> Self:
        """Return the same steps, which are executed in this way."""
        one = type(self)(self.recording, self._folder, self.rank, self._find_others)
        one._execution = execution  # noqa: SLF001 - of the same class
        return one

    @property
    def workers(self) -> int:
        """The number of workers, which execute the steps again together."""
        workers = self.recording.about.get("workers", 1)
        return workers if type(workers) is int and workers > 0 else 1

    @property
    def others(self) -> Mapping[int, IncidentReplay]:
        """What the other workers recorded around the incident, by rank."""
        if self._others is None:
            self._others = self._find_others() if self.workers > 1 else {}
        return self._others

    @property
    def last(self) -> int:
        """The last step that all workers recorded."""
        return min(
            (one.recording.steps[-1] for one in (self, *self.others.values()) if one.recording.steps), default=-1
        )

    @property
    def steps(self) -> range:
        """The global steps that can be executed again."""
        steps = self.recording.steps
        return steps if self.workers == 1 or not steps else range(steps[0], max(self.last + 1, steps[0]))

    @property
    def expected(self) -> int:
        """The number of training steps among them; the others are evaluations."""
        return sum(one.step in self.steps for one in self.recording.recorded)

    @property
    def why_not(self) -> str:
        """Why the steps cannot be executed again, whatever the process; empty if they can."""
        if self.recording.why_not or self.workers == 1:
            return self.recording.why_not
        missing = [f"worker_{rank}" for rank in range(self.workers) if rank != self.rank and rank not in self.others]
        if missing:
            return f"{listed(missing)} recorded no steps around the incident"
        for rank, one in sorted(self.others.items()):
            if one.recording.why_not:
                return f"worker_{rank}: {one.recording.why_not}"
            if one.recording.keyframe != self.recording.keyframe:
                return (
                    f"worker_{self.rank} recorded a state at step {self.recording.keyframe}, and worker_{rank} one at "
                    f"step {one.recording.keyframe}"
                )
        return ""

    @property
    def is_live(self) -> bool:
        """Whether this process trained, so that it can execute the steps."""
        return find_live(self._folder) is not None

    @property
    def why_not_here(self) -> str:
        """Why this process cannot execute the steps again; empty if it can."""
        if self.why_not:
            return self.why_not
        if self.workers > 1:
            return f"gradients are reduced over {self.workers} workers, which must execute the steps together"
        live = find_live(self._folder)
        if live is None:
            return "this process did not train, or another incident followed"
        return str(live.why_not)

    @property
    def loop_text(self) -> str:
        """The text of the recorded loop, to be shown; empty if it is not known."""
        source = self.recording.about.get("source")
        return str(source.get("text", "")) if isinstance(source, dict) else ""

    @property
    def is_training(self) -> bool:
        """Whether another thread of this process is in the loop of the training."""
        live = find_live(self._folder)
        return live is not None and bool(live.is_running)

    def batch(self, step: int) -> Any:
        """Return the batch of a step, with arrays in place of tensors.

        A list if it had several.
        """
        return self.recording.batch(step)

    def row_ids(self, step: int) -> list[Any] | None:
        """Return the rows of the data set in the batches of a step.

        None if they are not known.
        """
        return self.recording.row_ids(step)

    @property
    def execution(self) -> Execution:
        """The steps, in the process that trained.

        Raises:
            CannotReplay: they cannot be executed in this process; the message says why.
        """
        if self._execution is None:
            if self.why_not:
                raise CannotReplay(self.why_not)
            live = find_live(self._folder)
            if live is None:
                command = (
                    "python train.py" if self.workers == 1 else f"torchrun --nproc-per-node {self.workers} train.py"
                )
                raise CannotReplay(f"{self.why_not_here}; run the script again: smdwidgets replay RUN -- {command}")
            execution: Execution = live.execution(self.recording)
            self._execution = execution
        return self._execution

    @property
    def modules(self) -> Sequence[torch.nn.Module]:
        """The models of the training."""
        return self.execution.modules

    @property
    def optimizers(self) -> Sequence[torch.optim.Optimizer]:
        """The optimizers that update them."""
        return self.execution.optimizers

    def task(self, run: str, kind: Kind = "run", step: int | None = None, **more: Any) -> Task:
        """Return what processes that run the training again are to do; see `Task`.

        Args:
            run: directory of the run.
            kind: what is executed.
            step: the step of the question.
            more: further fields of the task.
        """
        folders = {rank: one.recording.folder for rank, one in sorted({self.rank: self, **self.others}.items())}
        return Task(run, folders, kind=kind, step=step, last=self.last, **more)

    def run(self, observers: Sequence[StepObserver] = (), *, last: int | None = None) -> list[StepResult]:
        """Execute the steps again, and put the live state back; see `Execution.run`."""
        return self.execution.run(observers, last=last)

    # ----------------------------------------------------------------------------------------------------- answers

    def explain(self, step: int) -> Explanation:
        """Return what explains an incident at a step; see `Incident.explain`."""
        from smdwidgets.replay import blame

        self._check(step)
        explanation = blame.explain(self.execution, step)
        identities = self._identities(explanation.step)
        if identities is None or not explanation.rows or max(explanation.rows) >= len(identities):
            return explanation
        return replace(explanation, dataset_rows=tuple(identities[row] for row in explanation.rows))

    def rank_rows(self, step: int, loss: Callable[..., Any] | None = None) -> RowRanking:
        """Return the rows of a step's batch in order of suspicion.

        See `Incident.rank_rows`.
        """
        from smdwidgets.replay import rows

        self._check(step)
        identities = self._identities(step)
        if loss is None:
            return rows.execute_rows(self.execution, step, identities)
        return rows.rank_step(self.execution, step, loss, identities)

    def what_if(self, step: int, recorded: Course | None = None, **change: Any) -> WhatIf:
        """Return what a change from a step on does; see `Incident.what_if`.

        ``recorded`` has the steps without the change, of an earlier outcome; None: they are executed, too.
        """
        from smdwidgets.replay import what_if

        self._check(step)
        return what_if.what_if(self.execution, step, recorded=recorded, **change)

    def try_all(self, step: int, rows: Sequence[int] = ()) -> WhatIfTable:
        """Return what usual changes from a step on do; see `Incident.try_all`."""
        from smdwidgets.replay import what_if

        self._check(step)
        return what_if.try_all(self.execution, step, rows)

    def _check(self, step: int) -> None:
        if step not in self.execution.steps:
            raise CannotReplay(f"step {step} was not recorded; steps {self.steps[0]} to {self.steps[-1]} were")

    def _identities(self, step: int) -> list[Any] | None:
        try:
            return self.row_ids(step)
        except LookupError:
            return None

    def __repr__(self) -> str:
        steps = self.steps
        if not steps:
            return f"<replay: {self.why_not or 'no steps'}>"
        return f"<replay of steps {steps[0]:,} to {steps[-1]:,}{'' if self.is_live else ', in another process'}>"


def open_replay(
    storage: Storage,
    folder: str,
    rank: int = 0,
    find_others: Callable[[], Mapping[int, IncidentReplay]] = dict,
) -> IncidentReplay | None:
    """Return what was recorded in the folder of an incident; None if nothing was.

    Args:
        storage: the storage of the run.
        folder: the folder.
        rank: rank of the worker that recorded it.
        find_others: finds what other workers recorded; see `IncidentReplay`.
    """
    recording = Recording.open(storage, folder)
    return None if recording is None else IncidentReplay(recording, f"{storage.url}/{folder}", rank, find_others)
