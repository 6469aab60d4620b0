"""The log of a hook's checks: which of them run, and their file in the run."""

from __future__ import annotations

from collections.abc import Callable

from smdwidgets.checks.file import CheckFile
from smdwidgets.checks.log import CheckLog, chosen_checks
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.core.recorder import Recorder

__all__ = ["check_log", "stop_after"]


class _Lines:
    """Appends lines to the file of the checks, which the first ones create."""

    def __init__(self, recorder: Recorder, writes: bool) -> None:
        self._recorder = recorder
        self._writes = writes
        self._file: CheckFile | None = None

    def append(self, lines: bytes) -> None:
        """Append lines, if anything is written."""
        if not self._writes:
            return
        if self._file is None:
            run_dir = self._recorder.run_dir  # which is another one for a worker that saves shards only
            bucket = run_dir.bucket
            self._file = CheckFile(run_dir.path, self._recorder.worker, None if bucket is None else bucket.copy)
        self._file.append(lines)


def check_log(recorder: Recorder, options: HookOptions) -> CheckLog | None:
    """Return the log of a hook's checks; None if no check was chosen."""
    chosen = chosen_checks(options.checks)
    if not chosen:
        return None
    lines = _Lines(recorder, options.checks_only is not None or not options.dry_run)
    return CheckLog(chosen, lines.append, recorder.run_dir.url)


def stop_after(options: HookOptions) -> Callable[[int], None]:
    """Return a function that ends the process after the updates to check.

    It does nothing if the hook also records.
    """
    limit = options.checks_only

    def updated(updates: int) -> None:
        if limit is not None and updates >= limit:
            raise SystemExit(0)

    return updated
