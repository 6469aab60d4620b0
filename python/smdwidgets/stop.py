"""Stop requests: a file in the run's directory that hooks check at every step.

The requester (a rule in a notebook, a CI job) and the training share only the run's directory, and the file persists
when either of them exits. Other readers of a run ignore it.

>>> import tempfile
>>> run = tempfile.mkdtemp()
>>> request_stop(run, reason="loss is NaN", by="ExplodingTensor", step=120).reason
'loss is NaN'
>>> stop_requested(run).by
'ExplodingTensor'
>>> clear_stop(run)
True
>>> stop_requested(run) is None
True
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from smdwidgets._atomic import replacing
from smdwidgets._text import visible
from smdwidgets.storage.files import open_file

__all__ = ["STOP_FILE", "StopRequest", "clear_stop", "request_stop", "stop_requested"]

STOP_FILE = "smdwidgets_stop.json"
"""Name of the file in the run's root directory (the ``out_dir`` of the hook)."""
#: Maximum bytes to read. A request has a few hundred bytes.
_LARGEST = 64 * 1024


@dataclass(frozen=True)
class StopRequest:
    """A stop request: requester, reason, step and time."""

    reason: str = ""
    by: str = ""
    step: int | None = None
    time: float = 0.0

    def __str__(self) -> str:
        who = visible(self.by, 200) or "an unnamed requester"
        at = f" at step {self.step}" if self.step is not None else ""
        return f"{who} requested a training stop{at}" + (f": {visible(self.reason, 2000)}" if self.reason else "")


def request_stop(
    run: str | os.PathLike[str], *, reason: str = "", by: str = "", step: int | None = None
) -> StopRequest:
    """Request that the training that writes ``run`` stops.

    An existing request is kept and returned, since it names the first cause.
    """
    root = Path(run)
    request = StopRequest(reason=reason, by=by, step=step, time=time.time())
    if (root / STOP_FILE).exists():
        return stop_requested(root) or request
    with replacing(root / STOP_FILE) as partial:
        partial.write_text(json.dumps(asdict(request)), encoding="utf-8")
    return request


def stop_requested(run: str | os.PathLike[str]) -> StopRequest | None:
    """Return the stop request of a run, or None.

    The cost is one failed ``open`` if there is no request. A file with invalid content still counts as a request.
    """
    path = Path(run) / STOP_FILE
    try:
        with open_file(path) as source:
            content = source.read(_LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        return StopRequest(reason=f"cannot read {STOP_FILE} ({error.strerror or error})")
    try:
        found = json.loads(content)
        known = {field.name for field in fields(StopRequest)}
        request = {key: value for key, value in found.items() if key in known}
    except (ValueError, AttributeError, RecursionError):
        return StopRequest(reason=content[:200].decode("utf-8", "replace").strip())
    step = request.get("step")
    when = request.get("time")
    return StopRequest(
        reason=str(request.get("reason", "")),
        by=str(request.get("by", "")),
        step=step if isinstance(step, int) and not isinstance(step, bool) else None,
        time=float(when) if isinstance(when, int | float) else 0.0,
    )


def clear_stop(run: str | os.PathLike[str]) -> bool:
    """Delete the stop request and return whether there was one.

    Otherwise a new training in the same directory stops at its first step.
    """
    try:
        (Path(run) / STOP_FILE).unlink()
    except FileNotFoundError:
        return False
    return True
