"""Execute the commands of a widget's pages in order of arrival, each once.

A request may be superseded by a newer one, and then its reply is not needed. A command changes something, so it is
neither cancelled nor reordered. A page that gets no reply sends a command again with the same id.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

KNOWN = 1000
"""Number of latest commands whose outcome is kept."""


class CommandQueue:
    """A queue of commands with a separate thread, which long requests do not occupy."""

    def __init__(self, execute: Callable[[dict[str, Any]], None]) -> None:
        self._execute = execute
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="smdwidgets-commands")
        self._outcomes: dict[str, Exception | None] = {}

    def submit(self, task: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the queue's thread, after all earlier ones."""
        self._thread.submit(task, *arguments)

    def execute(self, command_id: str, command: dict[str, Any]) -> None:
        """Execute a command unless it was executed before.

        Raises the exception that the command raised. Call this only on the queue's thread.
        """
        if command_id not in self._outcomes:
            try:
                self._execute(command)
                self._outcomes[command_id] = None
            except Exception as error:
                self._outcomes[command_id] = error
            while len(self._outcomes) > KNOWN:
                self._outcomes.pop(next(iter(self._outcomes)))
        outcome = self._outcomes[command_id]
        if outcome is not None:
            raise outcome
