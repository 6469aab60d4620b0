"""Where sweeps run: in this process, in a pool of processes, or on a Dask cluster.

A sweep is cut into tasks. An executor calls one function for each task and yields the results in the order of
completion. The number of a task is its identity: a task that is repeated after its worker was lost has one result. This
package knows neither runs nor tensors.

:func:`use` selects a cluster for all following calls, the parameter ``client=`` of a function for one call.
"""

from smdwidgets.executors.dask_client import DaskExecutor
from smdwidgets.executors.many import call_many
from smdwidgets.executors.processes import ProcessExecutor
from smdwidgets.executors.protocol import Executor, Task
from smdwidgets.executors.selection import connect, current, executor_of, use, using

__all__ = [
    "DaskExecutor",
    "Executor",
    "ProcessExecutor",
    "Task",
    "call_many",
    "connect",
    "current",
    "executor_of",
    "use",
    "using",
]
