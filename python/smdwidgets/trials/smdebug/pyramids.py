"""Write pyramids of a run's statistics, and indexes of their segments.

`StatisticsFile` reads them.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from smdwidgets._atomic import replace_file
from smdwidgets.exceptions import RunFileMissing, RunIOError
from smdwidgets.naming.scalars import losses_of
from smdwidgets.storage.local import LocalStorage
from smdwidgets.trials.smdebug.run import SmdebugRun
from smdwidgets.trials.statistics.file import StatisticsFile, pyramid_key, segment_index_key

if TYPE_CHECKING:
    from smdwidgets.storage.remote import RemoteStorage

logger = logging.getLogger("smdwidgets.trials")

#: Rows of statistics up to which a reader holds all of them.
FEWEST_ROWS: Final = 2_000_000


def write_pyramids(run: SmdebugRun, progress: Callable[[int, int], object] | None = None) -> int:
    """Complete the pyramids that do not have all rows; return the size of all.

    A run with few rows needs none. A file gets all rows that are missing, or none of them.

    Args:
        run: a run in a directory or a store.
        progress: called with the number of rows read and their total, worker by worker.
    """
    file = run.statistics_file()
    if file is None or file.size()[1] <= FEWEST_ROWS:
        return 0
    return sum(_write(run, file, worker, progress) for worker in file.workers())


def write_segment_indexes(run: SmdebugRun) -> None:
    """Write the commit records of each worker's segments into one file.

    A reader of a store then asks for that file in place of two for each segment. It asks for what follows the records,
    so that the index of a run that grows stays valid.
    """
    file = run.statistics_file()
    if file is None:
        return
    for worker in file.workers():
        key, content = segment_index_key(worker), file.segment_index(worker)
        if content is None or content == _stored(run, key):
            continue
        if isinstance(run.storage, LocalStorage):
            replace_file(Path(run.path, *key.split("/")), content)
        else:
            storage: RemoteStorage = run.storage  # type: ignore[assignment]  # any other storage is remote
            storage.put(key, content)


def _stored(run: SmdebugRun, key: str) -> bytes | None:
    try:
        return run.storage.read(key)
    except RunFileMissing:
        return None


def _write(run: SmdebugRun, file: StatisticsFile, worker: str, progress: Callable[[int, int], object] | None) -> int:
    key, pyramid = pyramid_key(worker), file.pyramid(worker)
    # A call of Python is where Ctrl-C arrives.
    progress = progress or (lambda done, total: None)
    if pyramid is not None and file.has_current_pyramid(worker):
        return pyramid.size
    losses = sorted(losses_of(file.names()))
    try:
        if isinstance(run.storage, LocalStorage):
            file.write_pyramid(worker, Path(run.path, *key.split("/")), losses, progress)
        else:
            storage: RemoteStorage = run.storage  # type: ignore[assignment]  # any other storage is remote
            with tempfile.TemporaryDirectory(prefix="smdwidgets-") as folder:
                path = Path(folder, "pyramid")
                file.write_pyramid(worker, path, losses, progress)
                storage.put(key, path)
    except RunIOError:
        raise
    except ValueError as error:  # the explorer reads the statistics themselves
        logger.warning("no pyramid of the statistics of %s: %s", worker, error)
        return 0
    pyramid = file.pyramid(worker)
    return 0 if pyramid is None else pyramid.size
