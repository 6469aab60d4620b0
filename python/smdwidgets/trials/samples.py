"""Samples of tensors that a capture plan keeps where values are deleted."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from smdwidgets.exceptions import DataError, RunIOError, TensorUnavailableForStep
from smdwidgets.modes import ModeKeys
from smdwidgets.trials.reader import RunReader
from smdwidgets.trials.run import Run

__all__ = ["Sample", "names_with_samples", "sample_of", "sampled_steps", "steps_with_samples"]


class Sample(NamedTuple):
    """Elements of a tensor at equal distances, and the shape of the whole tensor."""

    elements: NDArray[Any]
    shape: tuple[int, ...]


def names_with_samples(reader: RunReader) -> list[str]:
    """Return the names of the tensors that have samples."""
    run = _refreshed(reader)
    return [] if run is None else run.index.names()


def sampled_steps(reader: RunReader) -> dict[int, tuple[ModeKeys, int]]:
    """Return mode and mode step of each global step with samples."""
    run = _refreshed(reader)
    if run is None:
        return {}
    places = ((step, run.index.mode_of(step)) for step in run.index.steps())
    return {step: (ModeKeys(place[0]), place[1]) for step, place in places if place is not None}


def steps_with_samples(reader: RunReader, name: str, mode: ModeKeys, worker: str | None) -> list[int]:
    """Return the steps of a mode with a sample of a tensor, in ascending order."""
    run = _refreshed(reader)
    if run is None:
        return []
    index = run.index
    steps = [step for step in index.steps_of(name) if worker is None or index.find(name, step, worker)]
    if mode == ModeKeys.GLOBAL:
        return steps
    places = (index.mode_of(step) for step in steps)
    return [place[1] for place in places if place is not None and place[0] == mode.value]


def sample_of(reader: RunReader, name: str, step: int, mode: ModeKeys, worker: str | None) -> Sample:
    """Return the sample of a tensor at a step of a mode.

    Raises :class:`TensorUnavailableForStep` if there is none, or the error of a damaged record.
    """
    damage: DataError | RunIOError | None = None
    for _ in range(2):  # samples are deleted and segments written again while a run grows
        run = _refreshed(reader, again=damage is not None)
        if run is None:
            break
        at = step if mode == ModeKeys.GLOBAL else run.index.global_step(mode.value, step)
        place = None if at is None else run.index.find(name, at, worker)
        if at is None or place is None:
            damage = None
            break
        try:
            elements = run.value(place)
        except (DataError, RunIOError) as error:
            damage = error
            run.reread(at)
            continue
        return Sample(elements, tuple(run.index.shape_of(name, at, place.worker) or elements.shape))
    if damage is not None:
        raise damage
    raise TensorUnavailableForStep(
        name, step, mode, False, "no sample was kept; tensor.sample_steps() lists the steps with one"
    )


def _refreshed(reader: RunReader, again: bool = False) -> Run | None:
    """Return the run of samples, which is refreshed with the run around it.

    ``again`` refreshes it in any case.
    """
    reader.maybe_refresh()
    run = reader.run.samples()
    if run is not None:
        if again:
            run.refresh()
        run.load()
    return run
