"""Run the mechanisms of checks.

The first failure of one switches it off, and nothing is raised into the training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from smdwidgets._suspend import suspended
from smdwidgets.checks.log import CheckLog

__all__ = ["Mechanisms"]


class Mechanisms:
    """The mechanisms of a training's checks.

    Args:
        log: the checks that fired.
        checks: identifiers of the checks of each mechanism.

    >>> log = CheckLog(frozenset({"not_reset"}), lambda line: print(line.decode(), end=""))
    >>> Mechanisms(log, {"order": ("not_reset",)}).run("order", lambda: 1 / 0)
    {"id": "not_reset", "off": "ZeroDivisionError: division by zero"}
    """

    def __init__(self, log: CheckLog, checks: Mapping[str, tuple[str, ...]]) -> None:
        self._log = log
        self._checks = checks
        self._off: set[str] = set()

    def run(self, mechanism: str, call: Callable[..., object], *args: Any) -> None:
        """Call a mechanism. The first failure switches it off."""
        if mechanism in self._off or suspended():
            return
        try:
            call(*args)
        except Exception as error:
            self._off.add(mechanism)
            self._log.off(self._checks[mechanism], f"{type(error).__name__}: {error}"[:300])
