"""The end marker of a run: the file ``training_job_end.ts``.

It records that training ended, and how.

Readers of smdebug only test whether the file exists, and smdebug leaves it empty. Hooks of this package write one JSON
object into it.

>>> end = RunEnd("exception", "ValueError: loss is NaN")
>>> print(end)
exception (ValueError: loss is NaN)
>>> RunEnd.parse(end.to_json()) == end
True
>>> print(RunEnd.parse(b""))
ended
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from smdwidgets._text import visible

__all__ = ["COMPLETED", "END_FILE", "LARGEST_END_FILE", "RunEnd"]

END_FILE: Final = "training_job_end.ts"
"""The marker's name, in the root of the run."""
LARGEST_END_FILE: Final = 64 * 1024
"""Bytes of the marker that are read at most."""

_KNOWN = ("completed", "exception", "signal")


@dataclass(frozen=True)
class RunEnd:
    """How a training ended.

    Attributes:
        how: ``"completed"``, ``"exception"``, ``"signal"``, or ``"ended"`` where the marker does not say.
        detail: the exception or the signal.
        workers: for a run of several workers, how each worker ended that did not complete.
    """

    how: str = "ended"
    detail: str = ""
    workers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException | None) -> RunEnd:
        """The end of a training that ``error`` left, or that no error left.

        >>> RunEnd.of(SystemExit(0)).how
        'completed'
        >>> print(RunEnd.of(KeyboardInterrupt()))
        exception (KeyboardInterrupt)
        """
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            return COMPLETED
        try:
            text = str(error)
        except Exception:  # an exception of the script's own whose __str__ fails
            text = ""
        name = type(error).__name__
        return cls("exception", visible(f"{name}: {text}" if text else name, 500))

    @classmethod
    def parse(cls, content: bytes) -> RunEnd:
        """The end that a marker's content describes.

        Content that is not ours, or empty, is an end without details.
        """
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(found, dict) or found.get("how") not in _KNOWN:
            return cls()
        workers = found.get("workers")
        known = {str(name): str(how) for name, how in workers.items()} if isinstance(workers, dict) else {}
        return cls(str(found["how"]), str(found.get("detail") or ""), known)

    def to_json(self) -> bytes:
        """The marker's content."""
        return json.dumps({key: value for key, value in asdict(self).items() if value}).encode()

    def __str__(self) -> str:
        text = self.how + (f" ({visible(self.detail, 500)})" if self.detail else "")
        return text + "".join(f"; {visible(name, 100)}: {visible(how, 500)}" for name, how in self.workers.items())


COMPLETED: Final = RunEnd("completed")
"""The end of a training that ran to completion."""
