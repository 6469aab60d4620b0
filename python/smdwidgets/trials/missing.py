"""Wait for event files that an index file names but that do not exist yet."""

from __future__ import annotations

from typing import Any

from smdwidgets.exceptions import TensorUnavailableForStep, WaitTimeout
from smdwidgets.modes import ModeKeys
from smdwidgets.trials.reader import RunReader
from smdwidgets.trials.wait import wait_until

#: Later steps of the same worker that are checked to tell a delayed file from a lost one.
_LATER = 3


def wait_for_event_file(reader: RunReader, location: Any, name: str, step_num: int, mode: ModeKeys) -> None:
    """Return once the event file at a location of the index exists.

    Uploaders do not preserve order, so an index file may arrive before its event file.
    :class:`TensorUnavailableForStep` is raised when the run has ended, when the same worker's file of a later step
    exists, or after SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT (100) retry intervals of 2 s.
    """
    run = reader.run
    key = location.event_key

    def lost(why: str) -> TensorUnavailableForStep:
        return TensorUnavailableForStep(name, step_num, mode, reason=f"the event file {key} {why}")

    def done() -> bool:
        if run.file_there(key):
            return True
        # Raises RunNotFound if the run was deleted.
        run.check()
        if reader.loaded_all_steps or run.end_age() is not None:
            if run.file_there(key):
                return True
            raise lost("is missing, and the run has ended")
        if any(run.file_there(later) for later in _later_files(reader, location)):
            if run.file_there(key):
                return True
            raise lost("is missing, but the file of a later step exists")
        return False

    try:
        wait_until(done, lambda: f"the event file {key} of {reader.path}", reader.event_file_patience)
    except WaitTimeout as timeout:
        raise lost(f"did not appear within {timeout.seconds:g} s") from None


def _later_files(reader: RunReader, location: Any) -> list[str]:
    index = reader.index
    this = f"{location.step:012d}"
    later = [step for step in index.steps() if step > location.step and location.worker in index.workers_at(step)]
    return [location.event_key.replace(this, f"{step:012d}") for step in later[:_LATER]]
