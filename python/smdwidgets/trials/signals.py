"""Read the signals of a run as it grows."""

from __future__ import annotations

import re
from functools import partial

from smdwidgets._text import shown
from smdwidgets.exceptions import RunIOError
from smdwidgets.signals.record import LARGEST_SIGNALS, SIGNALS_PREFIX, SignalLog, Signals
from smdwidgets.storage.protocol import Storage, beginning

__all__ = ["SignalFiles"]

_FILE = re.compile(rf"{SIGNALS_PREFIX}/(?P<worker>[^/]+)\.jsonl")


class SignalFiles:
    """The files of all workers; an update reads what was added.

    Args:
        storage: the files of the run.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._logs: dict[str, SignalLog] = {}
        #: What the last update has returned.
        self.latest = Signals()

    def update(self) -> Signals:
        """Read what was added and return all signals."""
        problems: list[tuple[str, str]] = []
        changed, present = not self._logs, set[str]()
        for key in self._storage.list(f"{SIGNALS_PREFIX}/"):
            name = _FILE.fullmatch(key)
            if name is None:
                continue
            log = self._logs.setdefault(key, SignalLog(name["worker"]))
            present.add(key)
            try:
                changed |= log.update(partial(self._read, key))
            except FileNotFoundError:
                continue  # the run was deleted meanwhile
            except RunIOError as error:
                problems.append((key, f"cannot read the signals {shown(key)}: {error}"))
        changed |= present != self._logs.keys() or bool(problems)
        self._logs = {key: log for key, log in self._logs.items() if key in present}
        if changed:
            logs = self._logs.values()
            off = {kind: reason for log in logs for kind, reason in log.off.items()}
            problems += [problem for log in logs for problem in log.problems]
            self.latest = Signals([one for log in logs for one in log.signals()], off, problems)
        return self.latest

    def _read(self, key: str, offset: int, length: int) -> bytes:
        length = min(length, LARGEST_SIGNALS - offset)
        return beginning(self._storage, key, length, offset) if length > 0 else b""
