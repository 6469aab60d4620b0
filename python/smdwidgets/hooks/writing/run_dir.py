"""The run directory of a hook: claim, earlier run, end marker.

Each writing process has a claim: a small file with its process id, which it deletes when the hook closes. Claims serve
three purposes: a second process detects that another one writes the same worker's files; the last worker to close knows
that it must write the end marker; and the run of a killed process has no end marker. The writer touches its claim every
few seconds, so that processes on other machines can detect an abandoned claim.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from smdwidgets import _core
from smdwidgets._text import listed
from smdwidgets.checks.record import CHECKS_PREFIX
from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX
from smdwidgets.exceptions import RunIOError, SMDebugRuntimeError, SMDebugValueError
from smdwidgets.hooks.writing.capture_log import CAPTURE
from smdwidgets.hooks.writing.compacted import forget_compacted
from smdwidgets.hooks.writing.samples import SAMPLES
from smdwidgets.hooks.writing.segments import SEGMENTS
from smdwidgets.incident import INCIDENTS_PREFIX, Incident
from smdwidgets.modes import ModeKeys
from smdwidgets.run_end import COMPLETED, END_FILE, LARGEST_END_FILE, RunEnd
from smdwidgets.signals.record import SIGNALS_PREFIX
from smdwidgets.stop import STOP_FILE, clear_stop
from smdwidgets.storage.address import is_address, scheme_of
from smdwidgets.storage.local import local_path

if TYPE_CHECKING:
    from smdwidgets.hooks.writing.bucket import Bucket

__all__ = ["DirectoryInUse", "Resumed", "RunDirectory"]

logger = logging.getLogger("smdwidgets.hooks")

#: Set in SageMaker training jobs, where the service writes the end marker.
_SAGEMAKER_JOB = "TRAINING_JOB_NAME"
#: Folder of the statistics files.
STATISTICS = "statistics"
#: The files of a step, also those that a killed process left unfinished.
_STEP_FILE = re.compile(r"^\.?(\d{12})_(.+)\.(json|csv|tfevents)(\.[0-9a-f]{8})?(\.tmp)?$")
#: Seconds between two touches of a claim, and the age at which the claim of another machine counts as abandoned.
_TOUCH_EVERY = 10.0
_ABANDONED_AFTER = 120.0


class DirectoryInUse(SMDebugRuntimeError):
    """Another process writes the files of this worker."""


@dataclass(frozen=True)
class Resumed:
    """The last global step of an earlier training, and its last step of each mode."""

    step: int = -1
    mode_steps: dict[ModeKeys, int] = field(default_factory=dict)


class RunDirectory:
    """The run directory, as used by one worker."""

    def __init__(self, path: str | os.PathLike[str], worker: str, num_workers: int) -> None:
        text = os.fspath(path)
        if not isinstance(text, str):
            raise SMDebugValueError("out_dir must be a string or a path, got bytes")
        self.bucket: Bucket | None = None
        if is_address(text):
            from smdwidgets.hooks.writing.bucket import Bucket  # imported for stores only

            self.bucket = Bucket(text)
            self.path = self.bucket.folder
        else:
            self.path = Path(local_path(text) if scheme_of(text) == "file" else text).expanduser().absolute()
        self.url = str(self.path) if self.bucket is None else self.bucket.url
        self.worker = worker
        self.num_workers = num_workers
        self._claim = self.path / f"claim_{worker}.smd"
        self._claimed = False
        #: Whether the directory is open.
        self._entered = False
        #: Whether this worker has ended the run.
        self.ended_run = False
        #: Content of the claim, which is unique. The inode is not: a new file may reuse that of a deleted one.
        self._content = ""
        #: What identifies the claim that was found to be this process's.
        self._verified: tuple[int, ...] | None = None
        self._touched = 0.0
        self._note = self.path / f"ended_{worker}.smd"

    def same_as(self, other: RunDirectory) -> bool:
        """Whether both are the same directory, links resolved."""
        if self.bucket is not None or other.bucket is not None:
            return self.url == other.url
        return os.path.realpath(self.path) == os.path.realpath(other.path)

    # ------------------------------------------------------------------------------------------------------- opening

    def open(self, *, overwrite: bool, resume: bool | int) -> Resumed:
        """Claim the directory.

        Raises an error if it contains a run, unless ``overwrite`` or ``resume`` is set.
        """
        if overwrite and resume is not False:
            raise SMDebugValueError("overwrite and resume exclude each other; set only one of them")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunIOError(error.errno, f"cannot create out_dir: {error.strerror}", str(self.path)) from error
        self._take_claim()
        self._note.unlink(missing_ok=True)  # of an earlier run
        try:
            resumed = self._enter(overwrite, resume) if self.bucket is None else self._enter_bucket(overwrite, resume)
            self._entered = True
            return resumed
        except BaseException:
            self._drop_claim()
            if self.bucket is not None:
                self.bucket.close(None)
            raise

    def _enter(self, overwrite: bool, resume: bool | int) -> Resumed:
        if not overwrite and resume is False and (found := self._used()):
            raise _holds_a_run(str(self.path), found)
        forget_compacted(self.path)
        resumed = Resumed()
        if overwrite:
            self._delete()
        elif resume is not False:
            with suppress(FileNotFoundError):
                (self.path / END_FILE).unlink()
            clear_stop(self.path)
            resumed = self._last_steps(None if resume is True else int(resume))
        # A compaction that began meanwhile may have listed files that are deleted now.
        forget_compacted(self.path)
        return resumed

    def _enter_bucket(self, overwrite: bool, resume: bool | int) -> Resumed:
        assert self.bucket is not None
        earlier = self.bucket.keys_of(self.worker if self.num_workers > 1 else None)
        if earlier and not overwrite and resume is False:
            raise _holds_a_run(self.url, earlier)
        self.bucket.forget_compacted()
        resumed = Resumed()
        if overwrite:
            self.bucket.delete(earlier)
        elif resume is not False:
            next_step = None if resume is True else int(resume)
            if next_step is not None:
                steps = {key: _STEP_FILE.match(key.rpartition("/")[2]) for key in earlier}
                self.bucket.delete(key for key, name in steps.items() if name and int(name[1]) >= next_step)
            resumed = _resumed(self.bucket.resume(), next_step)
        if overwrite or resume is not False:
            # A compaction that began meanwhile may have listed objects that are deleted now.
            self.bucket.forget_compacted()
        return resumed

    def _take_claim(self) -> None:
        me = json.dumps(
            {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "worker": self.worker,
                "touched": _TOUCH_EVERY,
                "id": secrets.token_hex(8),
            }
        )
        for _ in range(3):
            try:
                _create_whole(self._claim, me)
            except _Exists as found:
                other = _read_claim(self._claim)
                # A claim with our process id belongs to an earlier process with the same id (in a container, for
                # example), because a hook of this process on the same directory would have been closed before.
                ours = other.get("pid") == os.getpid() and other.get("host") == socket.gethostname()
                if not ours and _is_alive(other, found.now - _written(self._claim, found.now)):
                    who = f"process {other.get('pid', '?')} on {other.get('host', 'another machine')}"
                    raise DirectoryInUse(
                        f"{self.path} is being written by {who} as {self.worker}. Use a separate out_dir for each training. In "
                        "distributed training, create the hook after the process group, so that it knows its rank. If the "
                        f"process no longer exists, delete {self._claim.name}."
                    ) from None
                with suppress(FileNotFoundError):
                    self._claim.unlink()
            except OSError as error:
                raise RunIOError(error.errno, f"cannot write to out_dir: {error.strerror}", str(self.path)) from error
            else:
                self._claimed = True
                self._touched = time.monotonic()
                self._content, self._verified = me, None
                return
        raise DirectoryInUse(f"{self.path}: other processes keep creating and deleting {self._claim.name}")

    def touch(self) -> None:
        """Show other machines that the claim is in use.

        Touches the file if the last touch was some seconds ago.
        """
        if self._claimed and time.monotonic() - self._touched > _TOUCH_EVERY:
            self._touched = time.monotonic()
            with suppress(OSError):
                os.utime(self._claim)

    def lost(self) -> str | None:
        """Return None if this process still owns the directory, else the reason why not.

        A directory that was removed is created and claimed again, so that recording continues; the result is
        ``"removed"``.
        """
        if not self._claimed:
            return None
        identity = _identity(self._claim)  # which takes a tenth of reading it
        if identity is not None and identity == self._verified:
            return None
        if _read(self._claim) == self._content:
            self._verified = identity
            return None
        self._claimed = False
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_claim()
        except DirectoryInUse as error:
            return str(error)
        except OSError:
            self._claimed = True  # the file system does not respond, so the state is unknown
            return None
        return "removed"

    def _drop_claim(self) -> None:
        if self._claimed:
            with suppress(OSError):
                self._claim.unlink()
            self._claimed = False

    def _used(self) -> list[str]:
        """Return the names of files of an earlier run.

        With several workers, only this worker's files count, because other workers may have started to write. So do
        workers that save only their shards, beside one that saves the rest.
        """
        if self.num_workers > 1 or self._others():
            return [str(path.relative_to(self.path)) for path in self._files_of(lambda worker: worker == self.worker)]
        names = ("collections", "index", "events", END_FILE, STOP_FILE)
        return [name for name in names if (self.path / name).exists()]

    def _files_of(self, wanted: object) -> Iterator[Path]:
        matches = wanted if callable(wanted) else (lambda _worker: True)
        yield from self._step_files(self.path, matches)
        for found in _walk(self.path / COLLECTIONS_PREFIX):
            if found.name.endswith("_collections.json") and matches(found.name.removesuffix("_collections.json")):
                yield found

    def _step_files(self, root: Path, matches: Callable[[str], bool]) -> Iterator[Path]:
        for folder in (root / "index", root / "events"):
            for found in _walk(folder):
                name = _STEP_FILE.match(found.name)
                if name and matches(name[2]):
                    yield found

    def _delete(self) -> None:
        """Delete the earlier run, but no other files in the directory."""
        others = {claim.stem.removeprefix("claim_") for claim in self._others()}
        if self.num_workers > 1 or others:
            # Each worker deletes its own files. The first worker also deletes those of workers that no longer exist.
            mine = {self.worker}
            current = {f"worker_{rank}" for rank in range(self.num_workers)} | others
            first = self.worker == "worker_0"

            def deletes(worker: str) -> bool:
                return worker in mine or (first and worker not in current)

            for path in [*self._files_of(deletes), *self._step_files(self.path / SAMPLES, deletes)]:
                path.unlink(missing_ok=True)
            of_samples = (f"{SAMPLES}/{CAPTURE}", f"{SAMPLES}/{SEGMENTS}")
            for folder in (CAPTURE, INCIDENTS_PREFIX, SEGMENTS, STATISTICS, *of_samples):
                for worker in self.path.glob(f"{folder}/*"):
                    if deletes(worker.name):
                        shutil.rmtree(worker, ignore_errors=True)
            for file in [*self.path.glob(f"{CHECKS_PREFIX}/*.jsonl"), *self.path.glob(f"{SIGNALS_PREFIX}/*.jsonl")]:
                if deletes(file.stem):
                    file.unlink(missing_ok=True)
        else:
            for name in (
                "index",
                "events",
                "collections",
                CAPTURE,
                CHECKS_PREFIX,
                INCIDENTS_PREFIX,
                SAMPLES,
                SEGMENTS,
                SIGNALS_PREFIX,
                STATISTICS,
            ):
                target = self.path / name
                if target.is_symlink():
                    target.unlink()
                elif target.is_dir():
                    shutil.rmtree(target)
        (self.path / END_FILE).unlink(missing_ok=True)
        clear_stop(self.path)
        if self.num_workers == 1:
            for note in self.path.glob("ended_*.smd"):
                note.unlink(missing_ok=True)

    def size_of_steps(self) -> int:
        """Return the size of this worker's steps, as far as it can be read."""
        return self._size(self.path)

    def size_of_samples(self) -> int:
        """Return the size of this worker's samples, as far as it can be read."""
        return self._size(self.path / SAMPLES)

    def _size(self, root: Path) -> int:
        size = 0
        own = _core.worker_file_name(self.worker)
        files = self._step_files(root, lambda worker: worker == self.worker)
        for path in (*files, *_walk(root / SEGMENTS / own)):
            with suppress(OSError):
                size += path.stat().st_size
        return size

    def _last_steps(self, next_step: int | None) -> Resumed:
        """Delete this worker's steps from ``next_step`` on; return the last left."""
        if next_step is not None:
            for root in (self.path, self.path / SAMPLES):
                for path in list(self._step_files(root, lambda worker: worker == self.worker)):
                    name = _STEP_FILE.match(path.name)
                    if name and int(name[1]) >= next_step:
                        path.unlink(missing_ok=True)
                if (root / SEGMENTS).is_dir():
                    _core.SegmentWriter(str(root), self.worker).cut_steps(next_step)
            for record in self.path.glob(f"{INCIDENTS_PREFIX}/{self.worker}/*.json"):
                with suppress(OSError, ValueError):
                    if Incident.parse(record.read_bytes(), self.worker).step >= next_step:
                        record.unlink()
        catalog = _core.Catalog()
        catalog.list_local(str(self.path))
        catalog.load_local(str(self.path))
        return _resumed(catalog, next_step)

    def last_steps(self, resume: bool | int) -> Resumed:
        """Return the last steps of a run that another worker has opened.

        They count if the run is resumed. Deletes no files.
        """
        if resume is False:
            return Resumed()
        catalog = _core.Catalog()
        catalog.list_local(str(self.path))
        catalog.load_local(str(self.path))
        return _resumed(catalog, None if resume is True else int(resume))

    def rewind(self, mode: ModeKeys, mode_step: int) -> Resumed:
        """Delete this worker's steps from a step of a mode on; return the last left."""
        if self.bucket is None:
            catalog = _core.Catalog()
            catalog.list_local(str(self.path))
            catalog.load_local(str(self.path))
        else:
            catalog = self.bucket.resume()
        step = catalog.global_step(mode.value, mode_step)
        if step is None:
            return _resumed(catalog, None)
        if self.bucket is None:
            forget_compacted(self.path)
        return self._last_steps(step) if self.bucket is None else self._enter_bucket(False, step)

    # ------------------------------------------------------------------------------------------------------- closing

    def close(self, end: RunEnd = COMPLETED) -> None:
        """Release the directory. The last worker to release it writes the end marker."""
        if not self._entered:
            return
        if self.bucket is not None:
            self._drop_claim()
            # Workers on other machines are not visible here, so the first worker writes the end marker.
            self.ended_run = self._ends_run()
            self.bucket.close(end if self.ended_run else None)
        else:
            self._leave_note(end)
            taken_over = not self._claimed
            self._drop_claim()
            if not taken_over and not self._others() and self._ends_run():
                self._mark_end(end)
                self.ended_run = True
        self._entered = False

    def mark_end(self, end: RunEnd) -> None:
        """Write the end marker early.

        The hook stays open, but the process may end at any moment.
        """
        if not self._claimed or not self._ends_run():
            return
        if self.bucket is not None:
            self.bucket.mark_end(end)
        elif not self._others():
            self._mark_end(end)

    def withdraw_end(self) -> None:
        """Delete the marker that :meth:`mark_end` wrote, because the training continues."""
        if self.bucket is not None:
            self.bucket.withdraw_end()
        else:
            with suppress(OSError):
                (self.path / END_FILE).unlink()

    def _ends_run(self) -> bool:
        """Whether this worker may write the end marker.

        In SageMaker the service writes it.
        """
        return _SAGEMAKER_JOB not in os.environ and (self.bucket is None or self.worker == "worker_0")

    def _others(self) -> list[Path]:
        """Return the claims of other workers that are still writing."""
        now = _now_there(self.path)
        return [
            path
            for path in self.path.glob("claim_*.smd")
            if path != self._claim and _is_alive(_read_claim(path), now - _written(path, now))
        ]

    def _leave_note(self, end: RunEnd) -> None:
        """Tell the worker that ends the run how this worker ended, if it did not complete."""
        if end.how != "completed" and self.num_workers > 1:
            with suppress(OSError):
                self._note.write_bytes(end.to_json())

    def _mark_end(self, end: RunEnd) -> None:
        ends = {self.worker: end}
        notes = list(self.path.glob("ended_*.smd"))
        for note in notes:
            with suppress(OSError):
                ends[note.stem.removeprefix("ended_")] = RunEnd.parse(note.read_bytes())
        with suppress(OSError), (self.path / END_FILE).open("rb") as marker:
            # Two workers that close at the same time both write the marker.
            earlier = RunEnd.parse(marker.read(LARGEST_END_FILE))
            ends.setdefault("earlier", earlier)
        joined = _joined(ends)
        marker_path, temporary = self.path / END_FILE, self.path / f".{END_FILE}.{os.getpid()}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(joined.to_json())
                temporary.replace(marker_path)
            except OSError:  # a full disk may accept an empty file
                marker_path.touch()
            for note in notes:
                note.unlink(missing_ok=True)
        except OSError as error:
            logger.warning(
                "%s: cannot write the end marker (%s); readers will treat the run as unfinished",
                marker_path,
                error.strerror,
            )
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _joined(ends: dict[str, RunEnd]) -> RunEnd:
    """Return the worst end of several workers.

    An exception is worse than a signal.
    """
    order = ("exception", "signal", "completed", "ended")
    worst = min(ends.values(), key=lambda end: order.index(end.how))
    if len(ends) == 1 or worst.how in ("completed", "ended"):
        return worst
    workers = {name: str(end) for name, end in sorted(ends.items()) if name != "earlier" and end.how in order[:2]}
    return RunEnd(worst.how, worst.detail, {**worst.workers, **workers})


def _resumed(catalog: _core.Catalog, next_step: int | None) -> Resumed:
    """Return the last steps in a catalog, before ``next_step``."""
    last = catalog.last_step()
    step = -1 if last is None else last
    modes = {}
    for number in catalog.modes():
        steps = catalog.mode_steps(number)
        if steps and ModeKeys(number) is not ModeKeys.GLOBAL:
            modes[ModeKeys(number)] = steps[-1]
    return Resumed(step if next_step is None else next_step - 1, modes)


def _holds_a_run(where: str, found: Sequence[str]) -> SMDebugRuntimeError:
    return SMDebugRuntimeError(
        f"{where} already contains a run ({listed(found, 3)}); use another out_dir, overwrite=True to delete that "
        "run, or resume=True to continue after its last step"
    )


def _walk(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path))
            else:
                yield Path(entry.path)


class _Exists(FileExistsError):
    """The file exists. ``now`` is the time by the clock of its file system."""

    def __init__(self, now: float) -> None:
        self.now = now


def _create_whole(path: Path, content: str) -> None:
    """Create a file with its content atomically.

    A killed process then leaves no empty claim.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(content, encoding="utf-8")
    now = unfinished.stat().st_mtime
    try:
        try:
            os.link(unfinished, path)
        except FileExistsError:
            raise _Exists(now) from None
        except OSError:  # the file system does not support links
            try:
                with path.open("x", encoding="utf-8") as out:
                    out.write(content)
            except FileExistsError:
                raise _Exists(now) from None
    finally:
        unfinished.unlink(missing_ok=True)


def _now_there(folder: Path) -> float:
    """Return the current time of the folder's file system.

    It may be on a server with another clock.
    """
    probe = folder / f".now.{os.getpid()}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def _written(path: Path, otherwise: float) -> float:
    """Return when a file was last modified, or ``otherwise`` if it cannot be read."""
    try:
        return path.stat().st_mtime
    except OSError:
        return otherwise


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return None


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file is written or replaced; None without a file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _read_claim(path: Path) -> dict[str, object]:
    try:
        found = json.loads(_read(path) or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_alive(claim: dict[str, object], age: float) -> bool:
    """Whether the claim's process still runs.

    ``age`` is the time since the claim was touched.

    A claim of another machine is alive until it is too old. An incomplete claim is alive, and so is the claim of a
    version that does not touch its claims.
    """
    pid = claim.get("pid")
    if not isinstance(pid, int) or claim.get("host") != socket.gethostname():
        return not ("touched" in claim and age > _ABANDONED_AFTER)
    if pid == os.getpid():
        return True
    if os.name == "nt":  # on Windows, os.kill(pid, 0) would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
