"""Continue the pyramid of a worker's statistics while they grow.

A large run then opens fast before it has ended, also in a store that it is copied to: the index of the segments is
written with it. The rows that the file does not have yet are read back by a thread of low priority. The training and
the thread that writes its steps do not wait for it. What a process leaves when it is killed is not read by anyone, and
the next one continues the last state that is whole.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from smdwidgets import _core
from smdwidgets._atomic import replace_file
from smdwidgets.exceptions import SMDebugError
from smdwidgets.naming.scalars import losses_of
from smdwidgets.trials.statistics.file import DIRECTORY, pyramid_key, segment_index_key

__all__ = ["GrowingPyramid"]

logger = logging.getLogger("smdwidgets.hooks")

#: Rows of statistics from which on there is a pyramid. A reader merges fewer rows into cells that are finer than the
#: lowest bins of a pyramid that grows.
FEWEST_ROWS: Final = 8_000_000
#: New rows after which it is continued. With many tensors, these are several steps, because the file has the last sizes
#: of each tensor.
ROWS, STEPS = 1_000_000, 64
#: Rows that the file grows by at most.
_AT_ONCE: Final = 8_000_000
#: Difference to the priority of the training, where threads have priorities.
_NICE: Final = 10


class _Stopped(Exception):
    """The hook is being closed."""


class GrowingPyramid:
    """The pyramid of a worker.

    Args:
        root: directory of the run.
        worker: name of the worker.
    """

    def __init__(self, root: Path, worker: str) -> None:
        self._root, self._worker = root, _core.worker_file_name(worker)
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._begin()

    def _begin(self) -> None:
        self._stopped.clear()
        self._reader = _core.StatisticsReader()
        #: New rows until the statistics are looked at.
        self._left = ROWS
        self._failed = False
        #: Size of the file, as far as this process knows.
        self.size = 0

    def grew(self, rows: int, tensors: int) -> None:
        """Begin to continue the pyramid when enough rows were appended.

        Args:
            rows: rows that were appended now.
            tensors: tensors that have rows.
        """
        self._left -= rows
        if self._left > 0 or self._failed or (self._thread is not None and self._thread.is_alive()):
            return
        self._left = max(ROWS, STEPS * tensors)
        thread = threading.Thread(target=self._run, name="smdwidgets-pyramid", daemon=True)
        with suppress(RuntimeError):  # an interpreter that shuts down cannot start threads
            thread.start()
            self._thread = thread

    def stop(self) -> None:
        """End the work in progress; the file keeps what it had before."""
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def restart(self) -> None:
        """Begin with nothing, because the directory was removed."""
        self.stop()
        self._begin()

    def _run(self) -> None:
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            self._continue()
        except _Stopped:
            pass
        except OSError as error:
            self._failed = True
            logger.warning(
                "no pyramid of the statistics of %s is written from now on: %s; the statistics are complete, and "
                "smdwidgets compact writes it",
                self._worker,
                error,
            )
        except (SMDebugError, ValueError):  # steps are written again, or another process writes the pyramid
            logger.debug("the pyramid of %s was not continued", self._worker, exc_info=True)
        except Exception:
            self._failed = True
            logger.exception("no pyramid of the statistics is written from now on")

    def _continue(self) -> None:
        files = _core.Files(str(self._root))
        folder = self._root / DIRECTORY / self._worker
        if not folder.is_dir():  # the rows are still in memory
            return
        self._reader.refresh(files, sorted(f"{DIRECTORY}/{self._worker}/{path.name}" for path in folder.iterdir()))
        rows = self._reader.size()[1]
        if rows < FEWEST_ROWS:
            self._left = min(self._left, FEWEST_ROWS - rows)
            return
        index = self._reader.segment_index(self._worker)
        if index is not None:
            replace_file(self._path(segment_index_key(self._worker)), index)
        losses = sorted(losses_of(name for name, *_ in self._reader.names(files)))
        path = self._path(pyramid_key(self._worker))
        # What a run that is resumed has more of follows after the next rows.
        self.size = _core.Pyramid.write(
            files, self._reader, self._worker, str(path), losses, self._check, growing=_AT_ONCE
        )

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*key.split("/"))

    def _check(self, done: int, total: int) -> None:
        if self._stopped.is_set():
            raise _Stopped
