"""Write the compacted index of a run; `manifest` reads it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.exceptions import DataError, RunNotFound
from smdwidgets.run_end import END_FILE
from smdwidgets.storage.address import is_address
from smdwidgets.storage.local import local_path
from smdwidgets.trials.smdebug.local import LocalRun
from smdwidgets.trials.smdebug.manifest import (
    FolderEntry,
    Manifest,
    Stamp,
    by_folder,
    digest,
    local_stamps,
    plain_etag,
)
from smdwidgets.trials.smdebug.manifest_files import BucketFiles, LocalFiles
from smdwidgets.trials.smdebug.pyramids import write_pyramids, write_segment_indexes
from smdwidgets.trials.smdebug.run import SmdebugRun
from smdwidgets.trials.trial import Trial

if TYPE_CHECKING:
    from smdwidgets.trials.smdebug.remote import RemoteRun

__all__ = ["Compacted", "compact", "compacted", "compaction_faults"]

#: Index files with the name that smdebug gives them. Others are not compacted.
_USUAL = re.compile(r"index/(\d{9,})/(\d{12,18})_(.+)\.json")
#: Maximum bytes of the index files of a folder that is compacted.
LARGEST_FOLDER = 512 << 20


@dataclass(frozen=True)
class Compacted:
    """What :func:`compact` did.

    Attributes:
        path: the run.
        folders: number of folders in the compacted index, each of up to 1,000 steps.
        written: number of folders that were written now; the others were there.
        files: number of index files in the compacted index.
        steps: number of steps in the compacted index.
        last_step: the last step in the compacted index, or None if it is empty.
        bytes: size of the compacted index.
        left: number of index files that are not in it, because their steps may still grow or for the reason in ``why``.
        why: why a complete folder, and those after it, were not compacted; empty if all were.
        pyramids: size of the pyramids of the statistics, by which the explorer shows a run of any size.
    """

    path: str
    folders: int
    written: int
    files: int
    steps: int
    last_step: int | None
    bytes: int
    left: int
    why: str = ""
    pyramids: int = 0


def compact(
    run: str | os.PathLike[str], *, progress: Callable[[int, int, str], object] | None = None, **options: Any
) -> Compacted:
    """Write a compacted index of a run's complete steps, so that the run opens faster.

    The index files of 1,000 steps become one small file. Readers of smdwidgets use it as long as the index files are
    unchanged; the run's other files stay as they are, and other readers ignore the new ones. Steps that may still grow
    are left out: of a running run, the last 1,000 steps, and all steps from the first incomplete one on. Call it again
    as the run grows; folders that did not change are not written again.

    Of statistics with more than 2 million rows, a pyramid is written beside them, or that of the hook is completed:
    bins at all zooms, so that the explorer reads only what it shows. Of statistics in several segments, an index is
    written, so that a reader of a store asks once and not for each segment.

    Args:
        run: a directory or the address of a run.
        progress: called with what is done, how much there is, and of what: ``"folders"``, then ``"rows"`` of
            statistics.
        **options: for a run in a bucket, the fields of :class:`~smdwidgets.storage.Connection`.

    Raises:
        RunNotFound: there is no run of a hook at the path.
        smdwidgets.exceptions.CompactionSuperseded: another compaction finished first, or a hook continued or overwrote
            the run meanwhile.

    >>> import tempfile
    >>> from smdwidgets.numpy import Hook
    >>> with Hook(folder := tempfile.mkdtemp()) as hook:
    ...     hook.save_scalar("loss", 0.5)
    >>> compact(folder).steps
    1
    """
    opened = _open(os.fspath(run), options)
    try:
        opened.check()
        if isinstance(opened, LocalRun) and not Path(opened.path, "index").is_dir():
            raise RunNotFound(opened.path, "no index files of a hook; only runs of hooks have an index")
        done = _Compaction(opened).write(progress)
        rows = None if progress is None else lambda now, total: progress(now, total, "rows")
        write_segment_indexes(opened)
        return replace(done, pyramids=write_pyramids(opened, rows))
    finally:
        opened.close()


def _open(path: str, options: dict[str, Any]) -> LocalRun | RemoteRun:
    if not is_address(path):
        if options:
            raise TypeError(f"{next(iter(options))} requires a run in a bucket, got {shown(path, 400)}")
        return LocalRun(local_path(path), lazy=True)
    from smdwidgets.storage.connection import Connection  # imported only for runs in a store
    from smdwidgets.trials.smdebug.remote import RemoteRun

    return RemoteRun(Connection(**options).storage(path), lazy=True)


class _Compaction:
    """Compaction of one run."""

    def __init__(self, run: LocalRun | RemoteRun) -> None:
        self.run = run
        self.is_local = isinstance(run, LocalRun)
        self.why = ""
        self._files = LocalFiles(run.storage, run.path) if isinstance(run, LocalRun) else BucketFiles(run.storage)

    def write(self, progress: Callable[[int, int, str], object] | None) -> Compacted:
        """Write what is new."""
        # A hook that changes index files later deletes the file that is noted here, so that this compaction fails.
        self._files.begin()
        # The end marker is looked for first: steps that are listed after it are complete.
        ended = self.run.storage.exists(END_FILE)
        folders = list(by_folder(self._stamps()))
        sealed = list(self._sealed(folders, ended))
        known, intact = self._known()
        written: list[tuple[FolderEntry, list[str]]] = []
        new = 0
        for done, (number, some) in enumerate(sealed):
            if progress is not None:
                progress(done, len(sealed), "folders")
            entry = known.get(number)
            if entry is None or number not in intact or digest(some) != (entry.times if self.is_local else entry.etags):
                entry = self._write_folder(number, some)
                if entry is None:
                    break
                new += 1
            written.append((entry, [one.key for one in some]))
        root = _core.manifest_root(written) if written else b""
        if written and (new or len(written) != len(known)):
            named = {entry.key for entry, _ in written}
            self._files.end(root, [folder.key for folder in known.values() if folder.key not in named])
        elif self.why:
            self._files.check()
        if progress is not None:
            progress(len(sealed), len(sealed), "folders")
        return _summary(
            self.run.path, written, len(root), new=new, of=sum(len(some) for _, some in folders), why=self.why
        )

    def _stamps(self) -> list[Stamp]:
        if isinstance(self.run, LocalRun):
            return local_stamps(self.run.path)
        return [Stamp(one.key, one.size or 0, plain_etag(one.etag)) for one in self.run.storage.listing("index/")]

    def _sealed(self, folders: Sequence[tuple[int, list[Stamp]]], ended: bool) -> Iterator[tuple[int, list[Stamp]]]:
        """Yield the folders whose steps are complete, up to the first other one."""
        found = self.run.collections()
        workers = {match[3] for _, some in folders for one in some if (match := _USUAL.fullmatch(one.key))}
        count = len(workers) if found is None else max(len(workers), found.manager.get_num_workers())
        for number, some in folders if ended else folders[:-1]:
            parsed = [_USUAL.fullmatch(one.key) for one in some]
            if not all(match and int(match[2]) // 1000 == int(match[1]) == number for match in parsed):
                self.why = f"folder {number} has files with other names than index files"
                return
            if sum(one.size for one in some) > LARGEST_FOLDER:
                self.why = f"the index files of folder {number} are larger than {LARGEST_FOLDER >> 20} MiB"
                return
            if not ended:
                steps = [match[2] for match in parsed if match]
                if any(len(list(same)) < count for _, same in groupby(steps)):
                    return
            yield number, some

    def _known(self) -> tuple[dict[int, FolderEntry], set[int]]:
        """Return the folders that are compacted already, and which files are intact."""
        manifest = Manifest(self.run.storage)
        manifest.read_root()
        intact = {folder.number for folder in manifest.folders if manifest.content_of(folder) is not None}
        return {folder.number: folder for folder in manifest.folders}, intact

    def _write_folder(self, number: int, some: Sequence[Stamp]) -> FolderEntry | None:
        contents = dict(self.run.storage.read_many([one.key for one in some]))
        if len(contents) < len(some):
            self.why = f"index files of folder {number} were deleted meanwhile"
            return None
        files = [(one.key, contents[one.key]) for one in some]
        try:
            content = _core.manifest_folder(files)
        except ValueError as error:  # it exceeds a limit of the format
            self.why = f"folder {number}: {error}"
            return None
        if self.is_local:
            # Objects that are uploaded in one part have the MD5 hash as ETag, so the compacted index can be uploaded,
            # too.
            etags = [Stamp(key, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest()) for key, data in files]
            times = digest(some)
        else:
            etags, times = list(some), None
        entry = FolderEntry(number, len(content), hashlib.sha256(content).digest(), digest(etags), times)
        self._files.add(entry, content)
        return entry


def compacted(trial: Trial) -> Compacted | None:
    """Return the size of the compacted index of a run, or None if it has none.

    >>> from smdwidgets import create_trial
    >>> compacted(create_trial("runs/mlp"))    # doctest: +SKIP
    """
    run = trial.reader.run
    if not isinstance(run, SmdebugRun):
        return None
    manifest = Manifest(run.storage)
    if not manifest.read_root():
        return None
    folders = [(folder, manifest.keys_of(at)) for at, folder in enumerate(manifest.folders)]
    return _summary(run.path, folders, manifest.root_size)


def compaction_faults(run: SmdebugRun) -> list[tuple[str, str]]:
    """Compare the compacted index of a run with its index files.

    Returns the faults as (file, message). A folder that differs is no danger for readers that compare it with a
    listing, but for those that trust the root file.
    """
    manifest = Manifest(run.storage)
    manifest.read_root()
    faults = []
    for at, folder in enumerate(manifest.folders):
        content = manifest.content_of(folder)
        if content is not None:
            files = list(run.storage.read_many(manifest.keys_of(at)))
            try:
                found = _core.manifest_differences(folder.key, content, files)
            except DataError as error:
                found = [(folder.key, str(error))]
            faults += [(key, f"{message}; run smdwidgets compact") for key, message in found]
    return manifest.problems + faults


def _summary(
    path: str, folders: Sequence[tuple[FolderEntry, list[str]]], root: int, *, new: int = 0, of: int = 0, why: str = ""
) -> Compacted:
    keys = [key for _, some in folders for key in some]
    steps = {_step(key) for key in keys}
    return Compacted(
        path=path,
        folders=len(folders),
        written=new,
        files=len(keys),
        steps=len(steps),
        last_step=max(steps, default=None),
        bytes=root + sum(entry.size for entry, _ in folders),
        left=max(0, of - len(keys)),
        why=why,
    )


def _step(key: str) -> int:
    return int(key.rpartition("/")[2].partition("_")[0])
