"""The executor of one call.

A task reads in its own process. A worker of Dask can be a thread of the process that called :func:`smdwidgets.use`; a
task there that used the cluster would wait for tasks that wait for its thread.
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from typing import Final

from smdwidgets.executors.protocol import Executor


class Here(Enum):
    """Selects this process, whatever :func:`smdwidgets.use` says."""

    HERE = "here"


HERE: Final = Here.HERE
#: None: that of :func:`smdwidgets.use`.
of_call: ContextVar[Executor | Here | None] = ContextVar("smdwidgets_executor", default=None)
