"""Keep the tensors of the last steps, and write them when something breaks.

The recorder retains the copies that the hook makes anyway: a copy is released when neither the recorder nor the writer
needs it any more. When something breaks, the steps in memory are written as ordinary steps, oldest first, then a record
of the incident; the next steps are written whole, too.

Everything runs on the writer's thread.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from smdwidgets import _core
from smdwidgets._text import byte_size, listed
from smdwidgets.hooks.capture.arrays import SLAB, Slab, Staging, TensorCopy
from smdwidgets.hooks.capture.capture import Capture
from smdwidgets.hooks.capture.captured import Captured, StepKey, StepStatistics
from smdwidgets.hooks.incidents.companion import Companion
from smdwidgets.hooks.incidents.incident_log import IncidentLog, OpenIncident
from smdwidgets.hooks.incidents.jumps import Jumps
from smdwidgets.hooks.incidents.source_rules import SourceRules
from smdwidgets.hooks.incidents.step_columns import NOT_FINITE, StepColumns
from smdwidgets.hooks.incidents.triggers import Cause, Triggers
from smdwidgets.hooks.writing.step_files import StepFiles
from smdwidgets.incident import MOST_STEPS, Jump
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.tensors import Kind, Kinds

__all__ = ["FlightRecorder"]

logger = logging.getLogger("smdwidgets.hooks")

#: What is not kept when two steps do not fit, in this order.
_LEFT_OUT_FIRST: Final = (
    *(
        Kind.OUTPUT,
        Kind.ACTIVATION,
        Kind.LABEL,
        Kind.OTHER,
        Kind.INPUT,
        Kind.OPTIMIZER,
        Kind.SCALAR,
        Kind.WEIGHT,
        Kind.BIAS,
    ),
    Kind.GRADIENT,
)
#: Steps between two copies of the weights that are kept when weights are left out.
WEIGHTS_EVERY: Final = 8


class HeldMemory:
    """Counts the memory of the copies that the recorder retains.

    A slab counts as a whole, because it is reused only after the last of its tensors.
    """

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._slabs: dict[Slab, int] = {}
        self.nbytes = 0

    def cost(self, copy: TensorCopy) -> int:
        """Return by how much the memory grows with this copy."""
        if copy.slab is None:
            return copy.nbytes
        return 0 if copy.slab in self._slabs else copy.slab.memory.nbytes

    def retain(self, copy: TensorCopy) -> None:
        """Keep a copy."""
        self.nbytes += self.cost(copy)
        if copy.slab is not None:
            self._slabs[copy.slab] = self._slabs.get(copy.slab, 0) + 1
            self._staging.retain(copy.slab)

    def release(self, copy: TensorCopy) -> None:
        """Give a copy back."""
        if copy.slab is None:
            self.nbytes -= copy.nbytes
            return
        self._slabs[copy.slab] -= 1
        if not self._slabs[copy.slab]:
            del self._slabs[copy.slab]
            self.nbytes -= copy.slab.memory.nbytes
        self._staging.release(copy.slab)


@dataclass(eq=False, slots=True)
class HeldStep:
    """A step in memory.

    Attributes:
        captured: the copies that are kept.
        whole: whether all tensors are kept that should be.
        nbytes: size of all tensors of the step by kind, kept or not.
    """

    key: StepKey
    captured: list[Captured] = field(default_factory=list)
    statistics: list[StepStatistics] = field(default_factory=list)
    whole: bool = True
    nbytes: dict[Kind, int] = field(default_factory=dict)


class FlightRecorder:
    """Observes the steps of a hook and writes the last ones when something breaks.

    Args:
        limit: bytes of copies that are kept at most.
        staging: memory of the copies.
        kinds: the kinds of the run's tensors.
        files: writer of steps.
        log: writer of the records.
        rules: rules that are evaluated on the statistics of each step.
        capture: captures all tensors of the steps after an incident, if a capture plan decides.
        keeps: whether steps are kept in memory, to be written; else they are judged only.
        companion: records beside it, in the same memory.
    """

    def __init__(
        self,
        limit: int,
        staging: Staging,
        kinds: Kinds,
        files: StepFiles,
        log: IncidentLog,
        rules: SourceRules | None = None,
        capture: Capture | None = None,
        keeps: bool = True,
        companion: Companion | None = None,
    ) -> None:
        self._whole_limit = limit
        self._companion = companion
        self._keeps = keeps
        self._memory = HeldMemory(staging)
        self._kinds = kinds
        self._files = files
        self._log = log
        self._triggers = Triggers(kinds)
        self._jumps = Jumps()
        self._rules = rules
        self._capture = capture
        #: Steps that have not ended: one, and a training step that an evaluation interrupts.
        self._open: dict[StepKey, HeldStep] = {}
        self._ring: deque[HeldStep] = deque()
        #: Number of these steps by mode.
        self._in_ring: Counter[ModeKeys] = Counter()
        #: The step with the last whole copy of the weights, if weights are left out of the others.
        self._weights: HeldStep | None = None
        self._left_out: set[Kind] = set()
        self._too_large: set[str] = set()
        #: Number of steps that are to fit: one if two steps have too many gradients.
        self._steps = 2
        self._incident: OpenIncident | None = None
        self._last: StepKey | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the copies that are kept."""
        return self._memory.nbytes

    @property
    def _limit(self) -> int:
        """Bytes of copies that are kept at most, besides what the companion keeps."""
        return self._whole_limit - (0 if self._companion is None else self._companion.nbytes)

    @property
    def steps(self) -> list[int]:
        """The steps in memory, oldest first."""
        return [held.key[0] for held in self._ring]

    # ------------------------------------------------------------------------------------------------------- observing

    def keeps(self, name: str, nbytes: int, before: int) -> bool:
        """Whether a copy of a tensor would be kept, so far as is known.

        Runs on the training's thread, and changes nothing.
        """
        kind = self._kinds[name]
        is_left_out = kind in self._left_out and (not kind.is_parameter or Kind.GRADIENT in self._left_out)
        # After the first step it is known what to leave out, and the rest fits.
        before = before if self._last is None else 0
        return self._keeps and not is_left_out and self._steps * (nbytes + before) <= self._limit

    def tensors(self, key: StepKey, captured: Sequence[Captured]) -> None:
        """Retain copies of a step that has not ended."""
        if not self._keeps:
            return
        step = self._open.get(key)
        if step is None:
            step = self._open[key] = HeldStep(key)
        limit = self._limit
        for one in captured:
            if one.copy is None:
                continue
            kind = self._kinds[one.name]
            step.nbytes[kind] = step.nbytes.get(kind, 0) + one.copy.whole_nbytes
            if not one.copy.is_whole:
                step.whole = step.whole and kind in self._left_out
                continue
            if one.name in self._too_large or (kind in self._left_out and not self._weights_due(kind, step)):
                continue
            if self._steps * one.copy.nbytes > limit:
                self._leave_out_tensor(one)
            elif self._make_room(self._memory.cost(one.copy), limit):
                self._memory.retain(one.copy)
                step.captured.append(one)
            else:
                step.whole = False

    def statistics(self, key: StepKey, statistics: StepStatistics) -> None:
        """Note statistics of a step that has not ended."""
        step = self._open.get(key)
        if step is None:
            step = self._open[key] = HeldStep(key)
        step.statistics.append(statistics)

    def finished(self, key: StepKey) -> None:
        """Judge a step that has ended, and keep it."""
        step = self._open.pop(key, None) or HeldStep(key)
        self._last = key
        columns = StepColumns(step.statistics)
        causes: list[Cause] = []
        jumps: tuple[Jump, ...] = ()
        if columns.names:
            causes += [self._located(step, cause) for cause in self._triggers.judge(key, columns)]
            causes += [] if self._rules is None else self._rules.judge(key, columns)
            if causes or self._incident is not None:
                jumps = self._jumps.largest(key[1], columns, self._triggers.places(columns.names))
            self._jumps.push(key[1], columns)
        step.statistics = []
        self._keep(step)
        if self._companion is not None:
            self._companion.judged(key[0])
        for cause in causes:
            self._begin_or_extend(key[0], cause, columns.names, jumps)
        incident = self._incident
        if incident is not None:
            # A step at which few tensors are captured may not have the one that jumped first.
            is_changed = incident.compare(columns.names, jumps)
            if incident.saves and step in self._ring and key[0] <= incident.dense_until:
                self._write([step], incident)
                is_changed = True
            if is_changed:
                incident.write()
            if key[0] >= incident.dense_until:
                incident.complete()
                self._incident = None
        if self._companion is not None and self._incident is None:
            self._files.took_incident(self._companion.follow(key[0], self._files.allows_incident))
        if not step.whole:
            self._leave_out_kinds(step)
        while self._steps == 1 and self._ring:
            self._evict()

    def _located(self, step: HeldStep, cause: Cause) -> Cause:
        """Return the cause by the first tensor of the step that is not finite.

        Statistics may be rarer than values: then a loss shows first what began in a layer.
        """
        if cause.trigger is None or cause.trigger.column not in NOT_FINITE:
            return cause
        copies = [(one.name, one.copy) for one in step.captured if one.copy is not None and one.copy.is_whole]
        chosen = [(name, copy) for name, copy in copies if copy.dtype != "str"]
        if not chosen:
            return cause
        columns = _core.statistics_of([copy.array for _, copy in chosen], dtypes=[copy.dtype for _, copy in chosen])
        table = StepColumns([StepStatistics([name for name, _ in chosen], columns)])
        return self._triggers.first_not_finite(table) or cause

    def dump(self, why: str, step: int | None = None) -> None:
        """Write the steps in memory, for a reason that the statistics do not show."""
        at = step if step is not None else self._last[0] if self._last is not None else 0
        self._begin_or_extend(at, Cause(why))

    def dump_at_end(self, why: str, step: int, is_error: bool) -> None:
        """Write the steps in memory, also incomplete ones, before training ends.

        An error of the training is an incident also where all steps were written before. The end marker tells as much
        of a signal.
        """
        unfinished = [held for held in self._open.values() if held.captured]
        if unfinished or any(held.captured for held in self._ring) or (is_error and self._last is not None):
            self.dump(why, step)
            for held in unfinished:
                self._write_unfinished(held)

    def _write_unfinished(self, step: HeldStep) -> None:
        """Write what is in memory of a step that has not ended; the rest may follow."""
        incident = self._incident
        if incident is None or not self._files.add(step.key, step.captured):
            return
        self._files.show(step.key)
        incident.add_steps([step.key[0]])
        incident.write()

    def close(self) -> None:
        """Complete the steps that were left open, and give all memory back."""
        steps = [*self._open.values(), *self._ring, *([self._weights] if self._weights else [])]
        if self._incident is not None:
            self._incident.complete()
        if self._companion is not None:
            self._companion.ends()
        self._weights = self._incident = None
        self._open.clear()
        self._ring.clear()
        self._in_ring.clear()
        for step in steps:
            self._drop(step)

    # ---------------------------------------------------------------------------------------------------------- memory

    def _weights_due(self, kind: Kind, step: HeldStep) -> bool:
        """Whether weights of this step replace the copy that is kept of them."""
        if not kind.is_parameter or Kind.GRADIENT in self._left_out or self._steps == 1:
            return False
        before = self._weights
        if before is None or (step.key[0] - before.key[0] >= WEIGHTS_EVERY and self._incident is None):
            self._weights = step
            if before is not None:
                self._drop(before)
        return self._weights is step

    def _make_room(self, nbytes: int, limit: int) -> bool:
        """Return whether so many bytes fit.

        The step before the current one is never given up for it, because it shows the cause of what breaks in this
        step.
        """
        while self._memory.nbytes + nbytes > limit and len(self._ring) > 1:
            self._evict()
        return self._memory.nbytes + nbytes <= limit

    def _evict(self) -> None:
        """Give up the oldest step, if possible of a mode that has more than two.

        After a long evaluation the last training step is still needed.
        """
        ring = self._ring
        counts = self._in_ring
        most = min(max(counts.values()), 3)
        oldest = next(held for held in ring if counts[held.key[1]] >= most)
        ring.remove(oldest)
        counts[oldest.key[1]] -= 1
        self._drop(oldest)

    def _keep(self, step: HeldStep) -> None:
        self._ring.append(step)
        self._in_ring[step.key[1]] += 1
        while len(self._ring) > MOST_STEPS:
            self._evict()
        if self._files.unwritten(step.key, step.captured):
            # What was written of the step is visible at once. The rest follows if something breaks while it is in
            # memory.
            self._files.hold(step.key)
        else:
            self._release(step.captured)
            step.captured = []

    def _leave_out_tensor(self, one: Captured) -> None:
        assert one.copy is not None
        self._too_large.add(one.name)
        logger.warning(
            "the flight recorder does not keep %s: two copies of %s are more than its %s; its statistics are recorded",
            one.name,
            byte_size(one.copy.nbytes),
            byte_size(self._limit),
        )

    def _leave_out_kinds(self, step: HeldStep) -> None:
        """Leave out kinds of tensors until two steps fit; of the gradients, one."""
        before = set(self._left_out)
        for kind in _LEFT_OUT_FIRST:
            left = sum(nbytes for each, nbytes in step.nbytes.items() if each not in self._left_out)
            if self._steps * (left + SLAB) <= self._limit:
                break
            if kind is Kind.GRADIENT and self._steps == 2 and left + SLAB <= self._limit:
                self._keep_one_step()
                break
            self._left_out.add(kind)
        if new := [kind for kind in _LEFT_OUT_FIRST if kind in self._left_out - before and kind in step.nbytes]:
            logger.warning(
                "the flight recorder keeps no %s%s: two steps of %s are more than its %s; their statistics are recorded",
                listed([kind.plural for kind in new], 6),
                ", and gradients of one step" if self._steps == 1 else "",
                byte_size(sum(step.nbytes.values())),
                byte_size(self._limit),
            )

    def _keep_one_step(self) -> None:
        """Keep the gradients of a step only until it has been judged."""
        self._steps = 1
        weights, self._weights = self._weights, None
        if weights is not None and weights not in self._ring:
            self._drop(weights)

    def _drop(self, step: HeldStep) -> None:
        """Release the memory of a step, and complete its files.

        The last copy of the weights is kept.
        """
        kept, rest = [], step.captured
        if step is self._weights:
            kept = [tensor for tensor in rest if self._kinds[tensor.name].is_parameter]
            rest = [tensor for tensor in rest if not self._kinds[tensor.name].is_parameter]
        self._release(rest)
        step.captured = kept
        if not kept:
            self._files.complete(step.key)

    def _release(self, captured: Iterable[Captured]) -> None:
        for one in captured:
            if one.copy is not None:
                self._memory.release(one.copy)

    # ---------------------------------------------------------------------------------------------------------
    # incidents

    def _begin_or_extend(
        self, step: int, cause: Cause, names: tuple[str, ...] = (), jumps: tuple[Jump, ...] = ()
    ) -> None:
        incident = self._incident
        if incident is not None:
            incident.extend(step, cause.why)
        else:
            incident = self._incident = self._log.open(step, cause.why, cause.trigger, cause.place)
            if incident is None:
                return
        incident.compare(names, jumps)
        if incident.saves:
            if self._capture is not None:
                self._capture.capture_densely(incident.dense_until)
            self._files.flush_statistics()
            held = (
                [*self._ring] if self._weights is None or self._weights in self._ring else [self._weights, *self._ring]
            )
            self._write(held, incident)
        if self._companion is not None:
            if self._companion.has_peers:
                incident.write()  # they look for it
            self._files.took_incident(incident.record(self._companion, self._files.allows_incident))
        incident.write()
        if not incident.is_open:
            self._incident = None

    def _write(self, steps: Sequence[HeldStep], incident: OpenIncident) -> None:
        """Write steps as ordinary steps, oldest first, and give their memory back."""
        written, missed = [], 0
        for step in sorted(steps, key=lambda each: each.key[0]):
            rest = self._files.unwritten(step.key, step.captured)
            nbytes = sum(one.copy.nbytes for one in rest if one.copy is not None)
            done = self._files.allows_incident(nbytes) and self._files.add(step.key, rest)
            if done:
                self._files.keep(step.key)
                done = self._files.complete(step.key)
            written += [step.key[0]] if done else []
            missed += not (done and step.whole)
            if step is self._weights:
                self._weights = None
            if step in self._ring:
                self._ring.remove(step)
                self._in_ring[step.key[1]] -= 1
            self._drop(step)
        incident.add_steps(written, missed)
