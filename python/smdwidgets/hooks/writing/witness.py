"""Follow the steps of a worker that saves no tensors.

In a data parallel training the first worker saves. What breaks may begin in another one, with its own batch: so every
worker has its losses and norms in its statistics file, and the records of its incidents. No file of a step is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smdwidgets.hooks.capture.arrays import Staging
from smdwidgets.hooks.capture.captured import Captured, StepKey
from smdwidgets.hooks.capture.disk_budget import DiskBudget
from smdwidgets.hooks.writing.step_files import StepFiles
from smdwidgets.hooks.writing.step_statistics import StatisticsRecorder

__all__ = ["Witness"]


class Witness(StepFiles):
    """Tells observers of the steps, and writes statistics only.

    Args:
        root: directory of the run, which another worker has opened.
        worker: name of this worker.
        staging: owns the memory of the copies.
        statistics: appends the statistics.
        disk: the budget of what incidents take.
    """

    def __init__(
        self, root: Path, worker: str, staging: Staging, statistics: StatisticsRecorder, disk: DiskBudget
    ) -> None:
        super().__init__(root, worker, staging, None, False, statistics=statistics)
        self._disk = disk

    def allows_incident(self, nbytes: int) -> bool:
        """Whether what a companion writes fits.

        The largest of it stands for the size of the model.
        """
        self._disk.fit(nbytes)
        self._disk.look()
        return self._disk.allows_incident(nbytes)

    def took_incident(self, nbytes: int) -> None:
        """So many bytes were written."""
        self._disk.took_incident(nbytes)

    def add(self, key: StepKey, captured: Sequence[Captured]) -> bool:
        """Write nothing, and return that nothing was written."""
        return False

    def collections(self, content: str) -> None:
        """Write no collection file."""

    def _write(self, key: StepKey, captured: Sequence[Captured]) -> None:
        """Write no tensors of a step."""
