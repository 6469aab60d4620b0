"""Runs in a local directory: the Rust core lists, reads and maps the files."""
# Methods are described in `Run`.
# ruff: noqa: D102

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.exceptions import EMPTY_DIRECTORY, RunNotFound
from smdwidgets.incident import INCIDENTS_PREFIX
from smdwidgets.run_end import END_FILE
from smdwidgets.sources.recognition import why_no_run, why_not_read
from smdwidgets.sources.tree import of_hook
from smdwidgets.storage.local import LocalStorage, local_path
from smdwidgets.trials.reader import Reopening, checked_range, reopened
from smdwidgets.trials.run import Getter
from smdwidgets.trials.smdebug.first_files import FirstFiles
from smdwidgets.trials.smdebug.manifest import WORTHWHILE, as_trust
from smdwidgets.trials.smdebug.run import SmdebugRun
from smdwidgets.trials.smdebug.thinned import ThinnedSteps
from smdwidgets.trials.statistics.cache import StatisticsCache
from smdwidgets.trials.statistics.kept_pyramids import KeptPyramids
from smdwidgets.trials.tensorboard.layout import is_event_file
from smdwidgets.trials.trial import Trial

#: Folder of the samples that a capture plan keeps, which has the format of a run.
SAMPLES = "samples"
#: Further entries that identify the directory of a run, or of a run that is about to start.
_SIGNS = ("events", "tensorboard")


def _sibling_directories(path: str) -> list[str]:
    """Return the names of sibling directories, candidates for a misspelled path."""
    try:
        with os.scandir(os.path.dirname(path)) as entries:
            return [entry.name for entry in itertools.islice(entries, 1000) if entry.is_dir()]
    except OSError:
        return []


class LocalRun(SmdebugRun):
    """A run in a local directory."""

    def __init__(self, root: str, *args: Any, **options: Any) -> None:
        super().__init__(LocalStorage(root), *args, **options)
        self._collections_dir = os.path.join(self.path, "collections", "000000000")
        self._incidents_dir = os.path.join(self.path, INCIDENTS_PREFIX)
        self._end = os.path.join(self.path, END_FILE)

    def check(self) -> None:
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            raise RunNotFound(self.path, siblings=_sibling_directories(self.path)) from None
        except NotADirectoryError:
            raise RunNotFound(self.path, _why_no_run(self.path)) from None
        except OSError as error:
            raise RunNotFound(self.path, str(error.strerror)) from error
        if not names:
            raise RunNotFound(self.path, EMPTY_DIRECTORY)
        if not any(of_hook(name) or name in _SIGNS for name in names):
            if any(is_event_file(name) for name in names):
                raise RunNotFound(
                    self.path, "the directory contains TensorBoard event files; open them with smdwidgets.create_trial"
                )
            raise RunNotFound(self.path, why_no_run(self.path))

    def start_over(self) -> None:
        super().start_over()
        self.files = _core.Files(self.path)
        self._first_files = FirstFiles(self.path)
        self._thinned = ThinnedSteps(self.storage)
        self._workers = -1
        self._samples: LocalRun | None = None
        self._caches: dict[str, StatisticsCache] = {}
        self._pyramids: KeptPyramids | None = None

    def samples(self) -> LocalRun | None:
        if self._samples is None and os.path.isdir(folder := os.path.join(self.path, SAMPLES)):
            samples = LocalRun(folder, *self._range, False)
            samples.refresh()
            self._samples = samples
        return self._samples

    def replaced_at(self) -> float | None:
        return self._first_files.replaced_at()

    def _list(self) -> int:
        workers = len(self.catalog.workers())
        if workers != self._workers or not workers:
            self._workers = workers
            self._first_files.remember()
        return self.catalog.list_local(self.path)

    def _load(self, steps: Sequence[int] | None) -> None:
        if steps is None and self._trust == "root":
            self._load_compacted()
        self.catalog.load_local(self.path, steps)

    def _load_compacted(self) -> None:
        """Load what the compacted index has, if many index files are unread."""
        # A comparison with the files takes longer than reading them.
        unread = self.catalog.unread()
        if len(unread) >= WORTHWHILE and self._manifest.read_root():
            self._manifest.trust()
            self._manifest.load(self.catalog, unread)

    def refresh(self) -> None:
        super().refresh()
        self.incidents()

    def _incidents_version(self) -> object:
        found = []
        with suppress(OSError), os.scandir(self._incidents_dir) as workers:  # usually the run has no incidents
            for worker in workers:
                with suppress(OSError), os.scandir(worker.path) as files:
                    found += [(file.path, file.inode(), file.stat().st_mtime_ns) for file in files]
        return sorted(found) or None

    def _source(self) -> _core.Files:
        return self.files

    def has(self, name: str) -> bool:
        return self.catalog.has_local(self.path, name) if self.partly_read else self.catalog.has(name)

    def reread(self, step: int) -> bool:
        self.catalog.refresh_local(self.path, [step])
        # A file that is held open may have been replaced.
        self.files.release()
        return True

    def deleted(self, step: int) -> int | None:
        return self._thinned.every(step)

    def end_age(self) -> float | None:
        # Called at every query of a running job, so the common case is a single stat.
        return self.storage.age(END_FILE) if os.path.exists(self._end) else None

    def _collections_version(self) -> object:
        # Files are added by renaming, which changes the directory's time, except within its resolution.
        try:
            about = os.stat(self._collections_dir)
            if abs(time.time_ns() - about.st_mtime_ns) > _core.FILE_TIME_GRANULARITY:
                # Copy tools that preserve times can set mtime back, but not ctime.
                return about.st_mtime_ns, about.st_ctime_ns
            with os.scandir(self._collections_dir) as files:
                return sorted((file.name, file.inode(), file.stat().st_mtime_ns) for file in files)
        except OSError:
            return None

    def statistics_cache(self, scope: str) -> StatisticsCache | None:
        if scope not in self._caches:
            self._caches[scope] = StatisticsCache(self.path, scope)
        return self._caches[scope]

    def kept_pyramids(self) -> KeptPyramids:
        if self._pyramids is None:
            self._pyramids = KeptPyramids(self.path)
        return self._pyramids

    def getter(self) -> Getter:
        return functools.partial(self.files.get, self.catalog)

    def passing(self) -> Getter:
        return functools.partial(self.files.get, self.catalog, cache=False)

    def value(self, place: Any) -> NDArray[Any]:
        return self.files.value(place)

    def head(self, place: Any) -> tuple[str, tuple[int, ...]]:
        return self.files.head(place)

    def close(self) -> None:
        self.files.release()
        super().close()


class LocalTrial(Trial):
    """A run in a local directory. Usually created by :func:`smdwidgets.create_trial`.

    With ``unread``, nothing is read before the first query. With ``unstarted``, the run may start later: until then it
    has no steps, and nothing waits for it.

    >>> import smdwidgets.exceptions
    >>> try:
    ...     LocalTrial("mlp", "/no/such/run")
    ... except FileNotFoundError as error:
    ...     print(type(error).__name__)
    RunNotFound
    """

    def __init__(
        self,
        name: str | None = None,
        dirname: str | os.PathLike[str] = "",
        range_steps: tuple[int | None, int | None] | None = None,
        *,
        lazy: bool | None = None,
        wait: float | None = None,
        skip_bad_index: bool = False,
        unread: bool = False,
        trust: str = "listing",
        unstarted: bool = False,
    ) -> None:
        path = local_path(dirname)
        options = {"lazy": lazy, "wait": wait, "skip_bad_index": skip_bad_index, "trust": trust}
        self._opened_with = {"name": name, "dirname": path, "range_steps": range_steps, **options}
        first, end = checked_range(range_steps)
        name = os.path.basename(path) if name is None else name
        reopening = Reopening(type(self), (name, path, range_steps), {**options, "unread": True}, has_catalog=True)
        super().__init__(
            LocalRun(path, first, end, lazy, as_trust(trust)),
            name,
            range_steps,
            wait=wait,
            skip_bad_index=skip_bad_index,
            lazy=unread,
            unstarted=unstarted,
            reopening=lambda: reopening,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (type(self), self._opened_with)


def _why_no_run(path: str) -> str:
    """Say why a file, or a path below a file, is no run."""
    if os.path.isfile(path):
        return why_not_read(path)
    above = next((str(one) for one in Path(path).parents if one.is_file()), path)
    return f"{shown(above, 400)} is a file, not a directory"
