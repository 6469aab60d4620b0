"""smdebug's profiler, which smdwidgets does not have.

Its names raise an ImportError that says where to look.

`smdwidgets.profiler.utils.str2bool` is the exception: training scripts use it to parse command-line flags.

>>> try:
...     from smdwidgets.profiler import TraceEventParser
... except ImportError as error:
...     print(str(error).partition(":")[0])
smdebug.profiler.TraceEventParser is not available
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

__all__: list[str] = []

_WHERE_TO_LOOK: Final = (
    "smdwidgets has no profiler: it reads and writes saved tensors only. smdebug.profiler read the system metrics (CPU, GPU, "
    "network, disk) and the framework timelines of SageMaker training jobs. To profile a training, use torch.profiler, the "
    "TensorFlow profiler or NVIDIA Nsight Systems. To read the profiler output of an existing SageMaker job, use smdebug "
    '1.0.34 in a separate environment. See docs/moving.md, "Not offered".'
)


def explain(name: str) -> str:
    """Return the message of the ImportError for a name below `smdebug.profiler`.

    >>> explain("analysis").startswith("smdebug.profiler.analysis is not available: smdwidgets has no profiler")
    True
    """
    return f"smdebug.profiler.{name} is not available: {_WHERE_TO_LOOK}"


def missing(names: str, prefix: str = "") -> Callable[[str], NoReturn]:
    """Return a module's `__getattr__` that raises ImportError for names of smdebug."""
    known = frozenset(names.split())

    def __getattr__(name: str) -> NoReturn:  # noqa: N807
        # Only for known names: tools look up arbitrary attributes, and expect an AttributeError.
        raise ImportError(explain(prefix + name)) if name in known else AttributeError(explain(prefix + name))

    return __getattr__


if not TYPE_CHECKING:
    __getattr__ = missing(
        """HorovodProfilerEvents LocalAlgorithmMetricsReader LocalSystemMetricsReader MetricsReaderBase ProfilerSystemEvents
        S3AlgorithmMetricsReader S3NumpySystemMetricsReader S3SystemMetricsReader SMDataParallelProfilerEvents SMProfilerEvents
        SystemProfilerEventParser TensorboardProfilerEvents TraceEvent TraceEventParser"""
    )
