"""Record the last steps such that they can be executed again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from torch import nn
from torch.optim import Optimizer

from smdwidgets._text import byte_size
from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.incidents.companion import Written
from smdwidgets.hooks.incidents.incident_log import MOST_A_RUN
from smdwidgets.hooks.incidents.peers import PeerIncidents
from smdwidgets.hooks.torch.quiet_steps import Happened
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.hooks.torch.short_way import MANY, Receiver
from smdwidgets.hooks.torch.training import TrainingLoop
from smdwidgets.incident import DENSE_STEPS
from smdwidgets.replay.live import is_executed, set_live
from smdwidgets.replay.torch.execution import LiveExecution
from smdwidgets.replay.torch.recording import ReplayRecorder
from smdwidgets.replay.torch.writing import IncidentRecording

__all__ = ["ReplayOption", "Replaying"]

logger = logging.getLogger("smdwidgets.hooks")

ReplayOption = Literal["auto", "ids"] | bool
#: Part of the flight recorder's memory that a recording takes with ``"auto"``.
_SHARE: Final = 2
#: Memory that an option sets, not the flight recorder, has at least.
_LEAST: Final = 1 << 20


class LiveTraining:
    """What this process knows of an incident's training.

    Args:
        recording: the recording of the incident.
        step: a function of the script that executes a step; None: the loop is executed.
    """

    def __init__(self, recording: IncidentRecording, step: Callable[[Any], object] | None) -> None:
        self._recording, self._step = recording, step
        frame = recording.snapshot.frame
        self._alive = recording.snapshot.world.all_objects
        self._objects = {} if frame is None else dict(frame.state.objects)
        for keep in self._objects.values():
            keep.hold()
        if recording.loop is not None:
            recording.loop.place.hold()

    @property
    def why_not(self) -> str:
        """Why the steps cannot be executed; empty if they can."""
        recording = self._recording
        return "" if self._step or recording.loop else f"{recording.why_no_loop}: pass hook.replayable(step)"

    @property
    def is_running(self) -> bool:
        """Whether another thread is in the loop of the training."""
        codes = [] if self._recording.loop is None else [self._recording.loop.place.code]
        code = getattr(self._step, "__code__", None)
        return is_executed([*codes, *([] if code is None else [code])])

    def execution(self, files: Any) -> LiveExecution:
        """Return the steps, which read the files of the recording.

        Raises:
            CannotReplay: they cannot be executed.
        """
        recording = self._recording
        return LiveExecution(
            files,
            recording.snapshot.world,
            self._objects,
            self._step or recording.loop or recording.why_no_loop,
            recording.skeletons,
        )


class Replaying(Receiver):
    """Listens to a training to record it, and writes recordings of incidents.

    Args:
        parts: the parts of the hook.
        models: the registered models.
        loop: knows the steps of the training.
        option: what is recorded.
        recorder_bytes: memory of the flight recorder, of which this takes a part.
    """

    def __init__(
        self, parts: Parts, models: RegisteredModels, loop: TrainingLoop, option: ReplayOption, recorder_bytes: int
    ) -> None:
        self._guard, self._loop, self._models = parts.guard, loop, models
        workers = self._workers = parts.recorder.num_workers
        self._parts = parts
        #: Notices incidents of other workers; those that were followed, and what is to be completed after a step.
        self._peers: PeerIncidents | None = None
        self._followed: list[str] = []
        self._open: list[tuple[int, Written]] = []
        self._last_incident = -DENSE_STEPS - 1
        budget = recorder_bytes if option is True else recorder_bytes // _SHARE
        self.recorder: ReplayRecorder | None = None
        #: A function of the script that executes a step.
        self.step: Callable[[Any], object] | None = None
        if option is not False and recorder_bytes:
            self.recorder = ReplayRecorder(
                lambda: (model for _, model in models.roots()),
                lambda: parts.steps.step,
                lambda: loop.is_in_step,
                max(budget, _LEAST),
                "ids" if option == "ids" else "full",
                workers,
            )
            parts.incidents.companion = self

    @property
    def is_on(self) -> bool:
        """Whether anything is recorded."""
        return self.recorder is not None

    def receivers(self) -> dict[str, Callable[..., None]]:
        """Return what receives the events of a training."""
        recorder = self.recorder
        if recorder is None:
            return {}
        of_recorder: dict[str, Callable[..., None]] = {
            "delivered": self._delivered,
            "exhausted": self._exhausted,
            "after_update": self._updated,
            "scaler_begins": self._scaler_begins,
            "scaler_ends": self._scaler_ends,
        }
        if recorder.mode == "full":
            of_recorder |= {
                "backward_begins": self._backward_begins,
                "scales": self._uses,
                "schedule_steps": self._uses,
            }
        return of_recorder

    # --------------------------------------------------------------------------------------------------------- events

    def _call(self, method: Callable[..., object], *args: Any) -> None:
        """Call a method of the recorder. The first failure ends the recording."""
        recorder = self.recorder
        if recorder is None:
            return
        try:
            method(recorder, *args)
        except Exception as error:
            self.recorder = None
            recorder.close()
            self._guard.report_error(error)

    def rests(self, optimizer: Optimizer) -> int:
        """Return whether what it needs of each step is enough."""
        return 0 if self.recorder is not None and self.recorder.mode == "full" else MANY

    def needed(self) -> Sequence[Callable[..., object] | None]:
        """Return what finds the rows of a step, if there are any."""
        if self.recorder is None or self.recorder.rest():
            return None, None
        return self.enters, self._updated

    def missed(self, steps: int, begun: Sequence[Happened]) -> None:
        """Record the steps late."""
        if self.recorder is not None and self.recorder.is_resting:
            self._call(ReplayRecorder.resume)
            if begun:
                self._call(ReplayRecorder.enters, (), True)

    def enters(self, module: nn.Module, inputs: Any, named_inputs: Any) -> None:
        """A registered model is called."""
        if self.recorder is None or self._loop.depth != 1:
            return
        training = self._loop.recorded and self._loop.is_in_step
        self._call(ReplayRecorder.enters, (inputs, named_inputs), training)

    def leaves(self, module: nn.Module, outputs: Any) -> None:
        """A registered model has returned."""

    def _delivered(self, iterator: Any, batch: Any, rows: tuple[Any, ...] | None) -> None:
        self._end_rest()
        self._call(ReplayRecorder.delivered, iterator, batch, rows)

    def _end_rest(self) -> None:
        if self.recorder is not None and self.recorder.is_resting:
            self._loop.short_way.end()

    def _exhausted(self, iterator: Any) -> None:
        self._end_rest()
        self._call(ReplayRecorder.exhausted, iterator)

    def _backward_begins(self, roots: Any) -> None:
        self._call(ReplayRecorder.backward_begins, roots)

    def _updated(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._stepped = True
        self._call(ReplayRecorder.updated, optimizer)

    def _scaler_begins(self, optimizer: Any) -> None:
        self._stepped = False

    def _scaler_ends(self, optimizer: Any) -> None:
        if not self._stepped and isinstance(optimizer, Optimizer):
            self._call(ReplayRecorder.updated, optimizer)

    def _uses(self, schedule: Any, metric: Any = None) -> None:
        self._call(ReplayRecorder.schedule_steps, schedule)

    _stepped = True

    # ------------------------------------------------------------------------------------------------------ incidents

    @property
    def nbytes(self) -> int:
        """Memory that the recording takes."""
        return 0 if self.recorder is None else self.recorder.nbytes

    @property
    def has_peers(self) -> bool:
        """Whether other workers record the same incidents."""
        return self._workers > 1

    def judged(self, step: int) -> None:
        """A step has been judged."""
        if self.recorder is not None:
            self.recorder.judged = step

    def follow(self, step: int, allows: Callable[[int], bool]) -> int:
        """Write what an incident of another worker needs, and what follows it."""
        try:
            return self._follow(step, allows)
        except Exception as error:
            self._workers = 1  # look for no other
            logger.warning("cannot record the steps of another worker's incident: %s: %s", type(error).__name__, error)
            return 0

    def _follow(self, step: int, allows: Callable[[int], bool]) -> int:
        if self._workers == 1 or self.recorder is None or self.recorder.mode == "ids":
            return 0
        nbytes = 0
        if self._peers is None:
            run = self._parts.recorder
            self._peers = PeerIncidents(run.run_dir.path, run.worker, self._workers)
        for name, at in self._peers.new():
            if len(self._followed) < MOST_A_RUN and at > self._last_incident + DENSE_STEPS:
                self._last_incident = at
                folder = self._peers.folder / name
                self._followed.append(name)
                written = self._begin(folder, at, allows)
                if written is not None:
                    nbytes += written.nbytes
                    self._open.append((max(at, step) + DENSE_STEPS, written))
        for one in [one for one in self._open if one[0] <= step]:
            self._open.remove(one)
            one[1].extend()
        return nbytes

    def ends(self) -> None:
        """Complete what was written for other workers."""
        still_open, self._open = self._open, []
        for _, written in still_open:
            try:
                written.extend()
            except Exception as error:
                logger.warning("cannot complete the steps of an incident: %s: %s", type(error).__name__, error)

    def begin(self, folder: Path, step: int, allows: Callable[[int], bool]) -> Written | None:
        """Write the recording of an incident into a folder."""
        self._last_incident = max(self._last_incident, step)
        return self._begin(folder, step, allows)

    def _begin(self, folder: Path, step: int, allows: Callable[[int], bool]) -> Written | None:
        if self.recorder is None:
            return None
        recording = IncidentRecording(self.recorder, folder, step, allows)
        if not recording.snapshot.steps:
            return None
        files = recording.begin()
        if not recording.why_not and self._workers == 1:
            set_live(folder, LiveTraining(recording, self.step))
        nbytes = sum((folder / name).stat().st_size for name in files)
        if any(recording.skeletons.values()):
            logger.info("%s: the batches of the last steps are in the run (%s)", folder, byte_size(nbytes))
        return Written(recording.rows, recording.summary(nbytes), files, recording.extend, nbytes)

    def close(self) -> None:
        """Give the memory back."""
        if self.recorder is not None:
            self.recorder.close()
