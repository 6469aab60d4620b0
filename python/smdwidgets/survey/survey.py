"""Survey of a run: the statistics of all its tensors, read in the background."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.exceptions import ExecutorError, SMDebugError
from smdwidgets.executors import Executor, current
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import losses_of
from smdwidgets.survey.bins import SAMPLED, UNREAD, Bins
from smdwidgets.survey.cluster import ClusterWatch, failure_text
from smdwidgets.survey.findings import RuleFirings, findings
from smdwidgets.survey.sentence import Clause, sentence
from smdwidgets.survey.signals import SignalFeed
from smdwidgets.survey.spans import Span
from smdwidgets.survey.table import MOST_RECORDS, SurveyTable
from smdwidgets.trials import Trial
from smdwidgets.trials.statistics.feed import Block, StatisticsFeed, sampled

logger = logging.getLogger("smdwidgets.survey")

#: Bytes of local values that are read without being asked; of larger and of remote runs, a sample is read.
LARGEST_RUN = 20 << 30
#: Largest sample in bytes, and in seconds of reading.
SAMPLE_BYTES, SAMPLE_SECONDS = 256 << 20, 10.0


@dataclass(frozen=True)
class Reading:
    """How much of a run was read.

    Attributes:
        state: "reading", "sampled" (a sample was read), "complete", "stopped" or "failed".
        done: records read.
        total: records of the run.
        bytes_left: approximate size of the values that were not read.
        seconds_left: estimate of the time to read them.
        message: the reason of a failure, or why the cluster does not read.
        workers: processes of a cluster that read; None: this process reads.
    """

    state: str = "reading"
    done: int = 0
    total: int = 0
    bytes_left: float = 0.0
    seconds_left: float = 0.0
    message: str = ""
    workers: int | None = None


class Stopped(Exception):
    """Reading was stopped."""


class Survey:
    """The statistics of all tensors of a run, in bins of steps.

    Thread-safe; only one thread at a time may call `update`. If a cluster was selected (:func:`smdwidgets.use`), when
    the survey was made or later, its workers read.

    >>> survey = Survey(trial)                                              # doctest: +SKIP
    >>> survey.update()                                                     # doctest: +SKIP
    >>> survey.reading.state                                                # doctest: +SKIP
    'complete'
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        #: Increases when another run takes the place of this one, which invalidates earlier bins.
        self.edition = 0
        self.reading = Reading()
        self._cancel = _core.Cancel()
        self._stopped = threading.Event()
        self._read_all = False
        #: The cluster at this moment: `update` runs later, maybe after a block that selected it.
        self._selected = current()
        self._watch: ClusterWatch | None = None
        #: A cluster that failed, which is not asked again, and why.
        self._failed: Executor | None = None
        self._failure = ""
        self._start()

    def _start(self) -> None:
        self.table = SurveyTable(MOST_RECORDS)
        self.restarts = self.trial.restarts
        self._feed = StatisticsFeed(self.trial.reader)
        self._signals = SignalFeed(self.trial)
        self._blocks: list[Block] = []
        self._speed = 0.0
        self._sampled = False
        #: Whether what is stored was read.
        self.collected = False

    # --------------------------------------------------------------------------------------------------------- reading

    def update(self, changed: Callable[[], object] | None = None, largest: int | None = None) -> None:
        """Read what is new.

        Args:
            changed: called after each portion.
            largest: bytes of values beyond which a sample is read; None: 20 GB, or 256 MB of a run that is not local.
        """
        try:
            self.trial.maybe_refresh()
            if self.trial.restarts != self.restarts:
                self.edition += 1
                self._start()
            self._update(changed or (lambda: None), largest)
        except (Stopped, KeyboardInterrupt):  # a cancelled sweep raises KeyboardInterrupt
            if not self._stopped.is_set():
                raise
            self._report("stopped")
        except Exception as error:
            self._report("failed", f"{type(error).__name__}: {error}"[:500])
            raise

    def _executor(self) -> Executor | None:
        """Return the cluster whose workers read, or None if this process does."""
        executor = current() or self._selected
        return executor if executor is not self._failed and self._feed.can_be_sent else None

    def read_stored(self, most: int) -> None:
        """Read the statistics that are stored, unless there are more than so many records."""
        if self._feed.stored_records() <= most:
            self._collect()
            self._report("reading" if self._blocks else "complete")

    def _collect(self) -> None:
        """Read what is stored, and plan to read the rest."""
        self._signals.add_to(self.table)
        for worker, pyramid in self._feed.pyramids(self._building):
            self.table.add_stored(worker, pyramid)
        # Before the index, so that a step whose statistics are stored is not read from its values.
        for table, before in self._feed.stored():
            worker = str(table["worker"][0])
            self.table.add(table, span=Span(("stored", worker), before, int(table["step"].max())))
        try:
            known, blocks = self._feed.plan(executor=self._executor())
        except ExecutorError as error:
            self._give_up_cluster(error)
            known, blocks = self._feed.plan()
        for table in known:
            self._add(table)
        self._blocks += blocks
        self.table.keep_whole(self._losses)
        if not self.collected:
            self.collected = True
            self.table.set_changed()  # bins without records were shown as unread until now

    def _building(self, done: int, total: int) -> None:
        self._check()
        self.reading = Reading("reading", done, total)

    def _update(self, changed: Callable[[], object], largest: int | None) -> None:
        self._collect()
        executor = self._executor()
        if self._blocks and executor is not None:
            try:
                self._read_by(executor, changed)
            except (Stopped, KeyboardInterrupt):
                raise
            except Exception as error:  # whatever happens there, this process shows what it can
                self._give_up_cluster(error)
            finally:
                self._watch = None
        size = sum(block.size for block in self._blocks)
        usual = LARGEST_RUN if self._is_local else SAMPLE_BYTES
        if self._read_all or size <= (usual if largest is None else min(usual, largest)):
            self._read(changed)
        elif not self._sampled:
            self._sample(changed)
            self._sampled = True
        self._report("sampled" if self._blocks else "complete")
        changed()

    def _give_up_cluster(self, error: Exception) -> None:
        """Read without the cluster from now on, and say why."""
        logger.debug("the cluster cannot read %s", self.trial.path, exc_info=True)
        self._failed, self._failure = self._executor(), failure_text(error)
        self._read_all = False  # of the cluster, not of this process, everything was asked
        self._speed = 0.0

    def _read_by(self, executor: Executor, changed: Callable[[], object]) -> None:
        """Let workers read all blocks."""
        watch = self._watch = ClusterWatch(executor)

        def cancelled() -> bool:
            if watch.look():
                self._report("reading")
            return self._stopped.is_set()

        self._report("reading")
        changed()
        begin, size = time.monotonic(), 0.0
        for block, table in self._feed.read_all(list(self._blocks), executor, cancelled):
            self._blocks = [each for each in self._blocks if each is not block]
            self._add(table, block)
            size += block.size
            self._speed = size / max(time.monotonic() - begin, 1e-6)
            self._report("reading")
            changed()

    @property
    def _is_local(self) -> bool:
        return self.trial.is_local

    def _read(self, changed: Callable[[], object]) -> None:
        """Read all blocks."""
        self._report("reading")
        changed()
        while self._blocks:
            self._check()
            block = self._blocks[0]
            begin = time.monotonic()
            table = self._feed.read(block, self._threads, self._cancel)
            self._blocks.pop(0)  # before its records arrive, so that a picture of them does not mark them as unread
            self._add(table, block)
            self._measure(block.size, time.monotonic() - begin)
            self._report("reading")
            changed()

    def _sample(self, changed: Callable[[], object]) -> None:
        """Read a part of the steps."""
        end = time.monotonic() + SAMPLE_SECONDS
        for part in sampled(self._blocks, SAMPLE_BYTES):
            self._check()
            begin = time.monotonic()
            if begin > end:
                break
            self._add(self._feed.read(part, self._threads, self._cancel))
            self._measure(part.size, time.monotonic() - begin)
            for block in self._blocks:
                if block.names is part.names and part.steps[0] in block.steps:
                    block.sampled.add(part.steps[0])
            self._report("reading")
            changed()

    def _add(self, table: dict[str, object], block: Block | None = None) -> None:
        span = None if block is None else Span(block.group, block.before, block.steps[-1])
        self.table.add(table, span=span)
        whole = self._feed.assembled(table)
        if whole is not None:
            self.table.add(whole, assembled=True, span=span)

    def _measure(self, size: float, seconds: float) -> None:
        speed = size / max(seconds, 1e-6)
        self._speed = speed if not self._speed else 0.8 * self._speed + 0.2 * speed

    @property
    def _threads(self) -> int:
        # A training that runs on this machine needs its cores.
        return min(4, os.cpu_count() or 1) if self.trial.loaded_all_steps else 1

    def _report(self, state: str, message: str = "") -> None:
        left = sum(block.records for block in self._blocks)
        size = sum(block.size for block in self._blocks)
        done = len(self.table)
        seconds = size / self._speed if self._speed else 0.0
        workers = None if self._watch is None else self._watch.workers
        self.reading = Reading(state, done, done + left, size, seconds, message or self._failure, workers)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Stopped

    def read_all(self) -> None:
        """Let the next `update` read everything, whatever it costs."""
        self._stopped.clear()
        self._cancel = _core.Cancel()
        self._read_all = True

    def stop(self) -> None:
        """Stop reading; `read_all` continues."""
        self._read_all = False
        self._stopped.set()
        self._cancel.set()

    # ------------------------------------------------------------------------------------------------------------ bins

    def names(self) -> list[str]:
        """Return the names of the tensors that have statistics, or will have."""
        waiting = {name for block in list(self._blocks) for name in block.names}
        return [*self.table.names(), *waiting.difference(self.table.names())] if waiting else self.table.names()

    def known(self) -> set[str]:
        """Return the names of `names` without their order."""
        return self.table.known().union(*(block.names for block in list(self._blocks)))

    def steps(self) -> tuple[int, int] | None:
        """Return the first and the last step, or None before the first one."""
        saved = self.trial.reader.index.steps()
        ends = [saved[0], saved[-1]] if saved else []
        ends += self.table.ends() or []
        return (min(ends), max(ends)) if ends else None

    @property
    def level(self) -> int:
        """Lowest level of exact bins: 0 unless there are too many records to hold."""
        return self.table.level

    def bins(self, names: Sequence[str], worker: str, mode: int, stat: str, level: int, first: int, count: int) -> Bins:
        """Return bins with the flags of unread steps; see `SurveyTable.bins`."""
        found = self.table.bins(names, worker, mode, stat, level, first, count)
        if not self.collected:
            found.flag[found.n == 0] |= np.uint8(UNREAD)
        for tensors, steps in self._unread(mode):
            rows = np.flatnonzero(np.isin(names, tensors))
            places = np.unique((steps >> level) - first)
            places = places[(places >= 0) & (places < count)]
            if len(rows) and len(places):
                at = np.ix_(rows, places)
                found.flag[at] |= np.where(found.n[at] == 0, UNREAD, SAMPLED).astype(np.uint8)
        return found

    def _unread(self, mode: int) -> list[tuple[list[str], NDArray[np.int64]]]:
        """Return tensors with their steps that were not read."""
        waiting: dict[int, tuple[list[str], list[int]]] = {}
        for block in list(self._blocks):
            waiting.setdefault(id(block.names), (block.names, []))[1].extend(block.unread)
        of_mode = self.trial.reader.index.steps(mode) if mode and waiting else None
        found = []
        for names, steps in waiting.values():
            array = np.array(steps, np.int64)
            found.append((names, array if of_mode is None else array[np.isin(array, of_mode)]))
        return found

    def findings(self, rules: Iterable[RuleFirings] = (), until: int | None = None) -> list[Finding]:
        """Return what stands out, and what rules found, in the order of every list.

        Args:
            rules: what rules found.
            until: last step to judge; None: all.
        """
        unread = [steps for _, steps in self._unread(0)]
        skipped = np.unique(np.concatenate(unread)) if unread else None
        finite = self._members("gradients", "weights", "biases")
        return findings(self.table, self._steps(), self._losses(), rules, skipped, finite, until)

    def sentence(self, listed: Sequence[Finding]) -> list[Clause]:
        """Return the sentence about these findings, in parts with tensor and step."""
        return sentence(listed, self.table, self._steps(), self.share_read, self._signals.names)

    def _steps(self) -> Sequence[int]:
        return self.trial.reader.index.steps()

    def _losses(self) -> set[str]:
        return losses_of(self.known()) | self._members("losses")

    def _members(self, *collections: str) -> set[str]:
        members: set[str] = set()
        for collection in collections:
            with suppress(SMDebugError):  # there is no such collection, or its pattern is invalid
                members.update(self.trial.tensor_names(collection=collection))
        return members

    @property
    def share_read(self) -> float:
        """Share of the records that was read."""
        reading = self.reading
        return 1.0 if math.isclose(reading.total, reading.done) or not reading.total else reading.done / reading.total
