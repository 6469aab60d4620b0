"""The directory that a hook writes into: whose it is, what lies in it already, when it has ended.

Each writing process holds a claim, a small file with its process id that it takes away when it closes. So a second
process that would write the same worker's files is told at once, the last one to close ends the run, and a run whose
writer was killed stays without an end, which is what readers should see.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from smdwidgets import _core
from smdwidgets._text import listed, shown
from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX
from smdwidgets.exceptions import RunIOError, SMDebugRuntimeError, SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.stop import STOP_FILE, clear_stop

if TYPE_CHECKING:
    from smdwidgets.hooks.bucket import Bucket

__all__ = ["END_FILE", "Resumed", "RunDirectory"]

END_FILE = "training_job_end.ts"
#: Present while SageMaker runs the job, whose service writes the end file itself.
_SAGEMAKER_JOB = "TRAINING_JOB_NAME"
_STEP_FILE = re.compile(r"^(\d{12})_(.+)\.(json|csv|tfevents)(\.tmp)?$")


@dataclass(frozen=True)
class Resumed:
    """Where an earlier training stopped: the last global step, and the last step of each mode."""

    step: int = -1
    mode_steps: dict[ModeKeys, int] = field(default_factory=dict)


class RunDirectory:
    """``out_dir`` as one worker sees it."""

    def __init__(self, path: str | os.PathLike[str], worker: str, num_workers: int) -> None:
        text = os.fspath(path)
        if not isinstance(text, str):
            raise SMDebugValueError("out_dir must be text, not bytes.")
        self.bucket: Bucket | None = None
        scheme = re.match(r"^([A-Za-z][A-Za-z0-9+.-]+)://", text)
        if scheme and scheme[1].lower() in {"s3", "s3a", "s3n"}:
            from smdwidgets.hooks.bucket import Bucket  # boto3 is imported only for runs on S3

            self.bucket = Bucket(text)
            self.path = self.bucket.folder
        elif scheme and scheme[1].lower() != "file":
            raise SMDebugValueError(f"A hook writes to a directory or to s3://bucket/prefix, not to {shown(text)}.")
        else:
            self.path = Path(text.removeprefix("file://")).expanduser().absolute()
        self.url = str(self.path) if self.bucket is None else self.bucket.url
        self.worker = worker
        self.num_workers = num_workers
        self._claim = self.path / f"claim_{worker}.smd"
        self._claimed = False

    # ------------------------------------------------------------------------------------------------------- opening

    def open(self, *, overwrite: bool, resume: bool | int) -> Resumed:
        """Take possession of the directory, which must be fresh unless told what to do with what is in it."""
        if overwrite and resume is not False:
            raise SMDebugValueError("Give either overwrite=True or resume=True, not both.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunIOError(error.errno, f"out_dir can't be made: {error.strerror}", str(self.path)) from error
        self._take_claim()
        try:
            return self._enter(overwrite, resume) if self.bucket is None else self._enter_bucket(overwrite, resume)
        except BaseException:
            self._drop_claim()
            if self.bucket is not None:
                self.bucket.close(ended=False)
            raise

    def _enter(self, overwrite: bool, resume: bool | int) -> Resumed:
        if overwrite:
            self._delete()
        elif resume is not False:
            with suppress(FileNotFoundError):
                (self.path / END_FILE).unlink()
            clear_stop(self.path)
            return self._last_steps(None if resume is True else int(resume))
        elif found := self._used():
            raise _holds_a_run(str(self.path), found)
        return Resumed()

    def _enter_bucket(self, overwrite: bool, resume: bool | int) -> Resumed:
        assert self.bucket is not None
        earlier = self.bucket.keys_of(self.worker if self.num_workers > 1 else None)
        if overwrite:
            self.bucket.delete(earlier)
        elif resume is not False:
            next_step = None if resume is True else int(resume)
            if next_step is not None:
                steps = {key: _STEP_FILE.match(key.rpartition("/")[2]) for key in earlier}
                self.bucket.delete(key for key, name in steps.items() if name and int(name[1]) >= next_step)
            return _resumed(self.bucket.resume(), next_step)
        elif earlier:
            raise _holds_a_run(self.url, earlier)
        return Resumed()

    def _take_claim(self) -> None:
        me = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "worker": self.worker})
        for _ in range(3):
            try:
                _create_whole(self._claim, me)
            except FileExistsError:
                other = _read_claim(self._claim)
                if _is_alive(other):
                    who = f"process {other.get('pid', '?')} on {other.get('host', 'another machine')}"
                    raise SMDebugRuntimeError(
                        f"{self.path} is being written by {who} as {self.worker}: give each training an out_dir of its own. "
                        "In distributed training, make the hook after the process group, so that it knows its rank. If "
                        f"that process is gone, delete {self._claim.name}."
                    ) from None
                with suppress(FileNotFoundError):
                    self._claim.unlink()
            except OSError as error:
                raise RunIOError(
                    error.errno, f"out_dir can't be written to: {error.strerror}", str(self.path)
                ) from error
            else:
                self._claimed = True
                return
        raise SMDebugRuntimeError(f"{self.path}: other processes keep taking and leaving {self._claim.name}.")

    def _drop_claim(self) -> None:
        if self._claimed:
            with suppress(OSError):
                self._claim.unlink()
            self._claimed = False

    def _used(self) -> list[str]:
        """What there is of an earlier run. With several workers only this worker's: the others may be faster than this."""
        if self.num_workers > 1:
            return [str(path.relative_to(self.path)) for path in self._files_of(lambda worker: worker == self.worker)]
        names = ("collections", "index", "events", END_FILE, STOP_FILE)
        return [name for name in names if (self.path / name).exists()]

    def _files_of(self, wanted: object) -> Iterator[Path]:
        matches = wanted if callable(wanted) else (lambda _worker: True)
        for folder in (self.path / "index", self.path / "events"):
            for found in _walk(folder):
                name = _STEP_FILE.match(found.name)
                if name and matches(name[2]):
                    yield found
        for found in _walk(self.path / COLLECTIONS_PREFIX):
            if found.name.endswith("_collections.json") and matches(found.name.removesuffix("_collections.json")):
                yield found

    def _delete(self) -> None:
        """The earlier run, and nothing else that may lie in the directory."""
        if self.num_workers > 1:
            # The other workers see to their own files; those of workers that are no more are the first one's to delete.
            mine = {self.worker}
            current = {f"worker_{rank}" for rank in range(self.num_workers)}
            first = self.worker == "worker_0"
            for path in list(self._files_of(lambda worker: worker in mine or (first and worker not in current))):
                path.unlink(missing_ok=True)
        else:
            for name in ("index", "events", "collections"):
                target = self.path / name
                if target.is_symlink():
                    target.unlink()
                elif target.is_dir():
                    shutil.rmtree(target)
        (self.path / END_FILE).unlink(missing_ok=True)
        clear_stop(self.path)

    def _last_steps(self, next_step: int | None) -> Resumed:
        """The last steps that this worker saved, once those from ``next_step`` on have been deleted."""
        if next_step is not None:
            for path in list(self._files_of(lambda worker: worker == self.worker)):
                name = _STEP_FILE.match(path.name)
                if name and int(name[1]) >= next_step:
                    path.unlink(missing_ok=True)
        catalog = _core.Catalog()
        catalog.list_local(str(self.path))
        catalog.load_local(str(self.path))
        return _resumed(catalog, next_step)

    # ------------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Give the directory back; the last writer to do so ends the run."""
        if not self._claimed:
            return
        self._drop_claim()
        if self.bucket is not None:
            # Workers of other machines can't be seen from here: the first one speaks for all.
            self.bucket.close(ended=self.worker == "worker_0" and _SAGEMAKER_JOB not in os.environ)
            return
        others = [path for path in self.path.glob("claim_*.smd") if _is_alive(_read_claim(path))]
        if not others and _SAGEMAKER_JOB not in os.environ:
            with suppress(OSError):
                (self.path / END_FILE).touch()


def _resumed(catalog: _core.Catalog, next_step: int | None) -> Resumed:
    """Where the training that wrote these steps stopped."""
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
        f"{where} already holds a run ({listed(found, 3)}). Give another out_dir, or overwrite=True to delete that "
        "run, or resume=True to go on after its last step."
    )


def _walk(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path))
            else:
                yield Path(entry.path)


def _create_whole(path: Path, content: str) -> None:
    """A new file that has its content from the first moment: a process killed in between leaves no claim of nobody's."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(content, encoding="utf-8")
    try:
        try:
            os.link(unfinished, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with path.open("x", encoding="utf-8") as out:
                out.write(content)
    finally:
        unfinished.unlink(missing_ok=True)


def _read_claim(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_alive(claim: dict[str, object]) -> bool:
    """Whether the claim's process still runs. One of another machine, or one half written, counts as running."""
    pid = claim.get("pid")
    if not isinstance(pid, int) or claim.get("host") != socket.gethostname():
        return True
    if os.name == "nt":  # there os.kill(pid, 0) would end the process
        return pid != os.getpid()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
