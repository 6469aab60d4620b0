"""The interface to the files of a run of a hook, as they are thinned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from smdwidgets.retention.saved_steps import SavedStep


class Left(NamedTuple):
    """An event file with values that no index file lists: a deletion was interrupted."""

    key: str
    #: Bytes that stay; 0: the file is deleted.
    keep: int
    freed: int


class RunFiles(Protocol):
    """The files of a run."""

    def close(self) -> None:
        """Close connections."""

    def size(self) -> int:
        """Return the bytes of all files."""

    def version(self) -> object:
        """Return a value that changes when the run is written."""

    def steps(self) -> list[SavedStep]:
        """Return the saved steps in order.

        Index files that cannot be read are skipped.
        """

    def thinned(self) -> frozenset[tuple[int, str]]:
        """Return the steps that were thinned, each with a worker by its name in files."""

    def left(self, steps: Sequence[SavedStep]) -> list[Left]:
        """Return what an interrupted deletion left, given all steps."""

    def thin(self, steps: Sequence[SavedStep], left: Sequence[Left], every: int) -> Iterator[int]:
        """Delete the large values of steps; yield how many are done.

        It can be interrupted at any time: each step is whole or thinned.
        """


def without_index(events: Mapping[str, int], thinned: Set[tuple[int, str]], steps: Sequence[SavedStep]) -> list[Left]:
    """Return the event files of thinned steps that no index file names.

    Args:
        events: sizes of event files by key.
        thinned: steps and workers.
        steps: all steps.
    """
    named = {step.events for step in steps if step.end}
    return [Left(key, 0, size) for key, size in sorted(events.items()) if key not in named and step_of(key) in thinned]


def damaged(index: Iterable[str], steps: Sequence[SavedStep]) -> set[tuple[int, str] | None]:
    """Return the steps whose index file could not be read: it may name any event file."""
    read = {step.key for step in steps}
    return {step_of(key) for key in index if key not in read}


def step_of(key: str) -> tuple[int, str] | None:
    """Return the step and worker of an index file or event file.

    >>> step_of("events/000000000005/kept/000000000005_worker_0.tfevents")
    (5, 'worker_0')
    """
    step, _, worker = key.rpartition("/")[2].rpartition(".")[0].partition("_")
    return (int(step), worker) if step.isdecimal() else None
