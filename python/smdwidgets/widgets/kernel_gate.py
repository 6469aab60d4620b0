"""Hold the cells of a notebook back.

Another thread changes the objects of the kernel meanwhile.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from smdwidgets.exceptions import SMDebugError

__all__ = ["NO_CELLS", "no_cells", "runs_cells"]

NO_CELLS = "open the explorer in the notebook that trained, or call incident.explain()"
"""What to do in a process without cells."""

_one = threading.Lock()


def runs_cells() -> bool:
    """Whether this process runs cells of IPython, which can be held back."""
    return _shell() is not None


@contextmanager
def no_cells(interrupted: Callable[[], None]) -> Iterator[None]:
    """Hold cells back that are run meanwhile, until the block has ended.

    Args:
        interrupted: is called if the user interrupts a cell that waits.

    Raises:
        SMDebugError: a cell is running, another block of this kind is, or the process runs no cells.
    """
    shell = _shell()
    if shell is None:
        raise SMDebugError(f"this process runs no cells of a notebook; {NO_CELLS}")
    if not _one.acquire(blocking=False):
        raise SMDebugError("other steps are being executed again; try again when they have ended")
    ended = threading.Event()

    def wait(*_: Any) -> None:
        while not ended.is_set():
            try:
                ended.wait()
            except KeyboardInterrupt:
                interrupted()

    try:
        shell.events.register("pre_execute", wait)
        try:
            # A cell that begins from now on waits.
            if _runs_a_cell():
                raise SMDebugError("a cell is running; try again when it has ended")
            yield
        finally:
            shell.events.unregister("pre_execute", wait)
            ended.set()
    finally:
        _one.release()


def _shell() -> Any:
    """Return the shell of IPython; None without one. IPython is not imported for it."""
    interactive = sys.modules.get("IPython.core.interactiveshell")
    kind = getattr(interactive, "InteractiveShell", None)
    return kind.instance() if kind is not None and kind.initialized() else None


def _runs_a_cell() -> bool:
    """Whether another thread executes the code of a cell."""
    this = threading.get_ident()
    for thread, innermost in sys._current_frames().items():
        frame: FrameType | None = innermost if thread != this else None
        while frame is not None:
            if frame.f_code.co_name == "run_code" and "interactiveshell" in frame.f_code.co_filename:
                return True
            frame = frame.f_back
    return False
