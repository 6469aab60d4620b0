"""The compiled core. Private: the public API is `smdwidgets` and its modules."""

from collections.abc import Callable, Sequence
from mmap import mmap
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__version__: str

FILE_TIME_GRANULARITY: int
"""Coarsest resolution of file times, in nanoseconds."""

# ---------------------------------------------------------------- records: framing, checksums, values

_Buffer: TypeAlias = bytes | bytearray | memoryview | mmap | NDArray[Any]
"""Anything whose bytes lie in one piece."""

def decode(data: _Buffer, offset: int = 0) -> NDArray[Any]:
    """The tensor in the record that starts `offset` bytes into `data`.

    The array is a writable copy. The header's checksum is checked, and the payload's where the record carries one. Text comes as an array of str. bfloat16 needs ml_dtypes.

    >>> with StepWriter("run", step=5) as step:
    ...     step.tensor("w", np.float32([0.5, 0.25]))
    >>> with open("run/events/000000000005/000000000005_worker_0.tfevents", "rb") as file:
    ...     decode(file.read())
    array([0.5 , 0.25], dtype=float32)
    """

def crc32c(data: _Buffer) -> int:
    """The CRC32C (Castagnoli) of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """

def masked_crc(data: _Buffer) -> int:
    """The CRC32C of some bytes as it stands in a TFRecord file: rotated and shifted."""

# ---------------------------------------------------------------- TensorBoard events

@final
class Event:
    """A value of a TensorBoard log that is not a scalar, decoded on access."""

    @property
    def step(self) -> int: ...
    @property
    def wall_time(self) -> float:
        """Seconds since 1970."""
    @property
    def tag(self) -> str: ...
    @property
    def kind(self) -> str:
        """ "tensor", "histogram", "image", "audio", "scalar" or "unknown"."""
    @property
    def plugin(self) -> str:
        """The TensorBoard plugin of the value; empty if it names none."""
    @property
    def plugin_content(self) -> bytes: ...
    @property
    def display_name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def value(self) -> Any:
        """The decoded value.

        A tensor is a writable copy (strings: an object array of bytes). A histogram, an image or audio is a dict of its
        fields."""
    @property
    def buckets(self) -> NDArray[np.float64] | None:
        """A histogram as (buckets, 3): left edge, right edge, count. None for any other kind."""

@final
class Events:
    """The content of a TensorBoard log."""

    @property
    def version(self) -> str | None:
        """The version of the writer, if the log states it."""
    @property
    def scalars(self) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]]:
        """(steps, wall times, values) by tag, in the order of first appearance."""
    @property
    def others(self) -> list[Event]:
        """All other values but graphs, in the order of the log."""
    @property
    def problems(self) -> list[tuple[int, str]]:
        """Unusable records: (offset, message)."""
    @property
    def end(self) -> int:
        """Offset of the first byte that was not read: the end of the last complete record."""

def read_events(data: _Buffer) -> Events:
    """Read the events of a TensorBoard log in memory, past damaged records. Checksums are verified."""

def is_event_file(key: str) -> bool:
    """Whether a key names an event file of TensorBoard, and not a tensor file of smdebug."""

def write_record(payload: _Buffer) -> bytes:
    """A whole record around a payload, with the payload's true checksum."""

def version_record(wall_time: float) -> bytes:
    """The first record of a TensorBoard log."""

def scalar_record(tag: str, step: int, wall_time: float, value: float) -> bytes:
    """A record with a scalar, as TensorBoard reads it."""

def histogram_record(
    tag: str,
    step: int,
    wall_time: float,
    limits: Sequence[float],
    counts: Sequence[float],
    *,
    min: float,
    max: float,
    num: float,
    sum: float,
    sum_squares: float,
) -> bytes:
    """A record with a histogram, as TensorBoard reads it: `limits` are the buckets' right edges."""

# ---------------------------------------------------------------- TensorBoard's logs

@final
class EventLog:
    """What lies where in one run of TensorBoard's: one directory of growing event files, or several.

    `directories` are (path relative to the run, worker's name, mode's number, what is put behind its tags). Files are read on from where they were left;
    a record that is not whole is not there yet, one that is damaged is a problem, and reading goes on after it. Checksums of
    all records are verified, but of graphs longer than a piece, which are passed over by their length. The questions are those
    of `Catalog`. Where a directory has a mode, global steps are four times the log's, plus 0 for TRAIN, 1 for EVAL, 2 for PREDICT,
    3 for others. `cache` is a directory that keeps what is read of large files, and what to call this log there: what fits a
    file as it is now is not read again. With `hold` all values are kept in memory as they were written, in little more than
    what changes from step to step. Safe to use from many threads.

    >>> log = EventLog([("", "worker_0", 4, "")])
    >>> log.refresh_local("run")
    False
    >>> log.names()
    []
    """

    def __new__(
        cls,
        directories: Sequence[tuple[str, str, int, str]],
        keep_orphans: bool = False,
        first_step: int | None = None,
        end_step: int | None = None,
        cache: tuple[str, str] | None = None,
        hold: bool = False,
    ) -> EventLog: ...
    def lay_out(self, directories: Sequence[tuple[str, str, int, str]]) -> None:
        """The log is found to be one of these directories. What was read of those that it had is kept."""
    def refresh_local(self, root: str, threads: int | None = None) -> bool:
        """Read what is new of the files in the directories below `root`. Whether there was anything."""
    def add_keys(self, keys: Sequence[str]) -> None:
        """Files of a storage: those that lie directly in one of the directories are taken in."""
    def refresh(self, source: Fetched, threads: int | None = None) -> bool:
        """Read what is new of all files known."""
    @property
    def generation(self) -> int: ...
    def steps(self, mode: int | None = None) -> list[int]: ...
    def num_steps(self) -> int: ...
    def last_step(self) -> int | None: ...
    def has_step(self, step: int) -> bool: ...
    def count_after(self, step: int) -> int: ...
    def complete_until(self, num_workers: int) -> int: ...
    def workers(self) -> list[str]: ...
    def workers_at(self, step: int) -> list[str]: ...
    def modes(self) -> list[int]: ...
    def mode_of(self, step: int) -> tuple[int, int] | None: ...
    def mode_steps(self, mode: int, name: str | None = None) -> list[int]: ...
    def global_step(self, mode: int, mode_step: int, latest: bool = False) -> int | None: ...
    def names(self) -> list[str]: ...
    def names_at(self, step: int, worker: str | None = None) -> list[str]: ...
    def names_in_mode(self, mode: int) -> list[str]: ...
    def has(self, name: str) -> bool: ...
    def steps_of(self, name: str, mode: int | None = None) -> list[int]: ...
    def workers_of(self, name: str, step: int) -> list[str]: ...
    def find(self, name: str, step: int, worker: str | None = None) -> Logged | None: ...
    def orphans(self, name: str) -> list[Logged]:
        """Rows that restarts have made void, in the order of `course(name, orphans=True)`."""
    def held(self, place: Logged) -> bytes | None:
        """The bytes of a value, if it is held in memory."""
    def number(self, name: str, step: int, worker: str | None = None) -> float | None:
        """The value of a scalar; None where there is none, or it is no scalar."""
    def stored_reductions(self, name: str, step: int, worker: str | None = None) -> list[tuple[str, bool, Any]]:
        """None: a log has no reductions."""
    def stored_reduction(self, name: str, step: int, op: str, abs: bool, worker: str | None = None) -> Any: ...
    def shape_of(self, name: str, step: int, worker: str | None = None) -> tuple[int, ...] | None: ...
    def original_name(self, name: str) -> str | None:
        """The tag."""
    def problems(self) -> list[tuple[str, str]]:
        """Records and files that could not be used: (file, message), at most a thousand of a file, then their number."""
    def series(self) -> list[tuple[str, str, str, str, str]]:
        """(name, tag, kind, plugin, description) of each, in the order of first appearance. Kinds: "scalar", "histogram",
        "image", "audio", "text", "hparams", "pr_curve", "tensor"."""
    def num_names(self) -> int: ...
    def course(
        self, name: str, mode: int | None = None, orphans: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.uint32]]:
        """All rows of a name: global steps, steps in the modes' own counts, wall times, values (NaN for what is no number),
        and which of the directories. With `orphans` only rows that restarts have made void."""
    def values(
        self,
        files: Files | Fetched,
        rows: Sequence[tuple[str, int, str | None]],
        *,
        threads: int | None = None,
        progress: Callable[[int, int], object] | None = None,
        cancel: Cancel | None = None,
    ) -> tuple[
        NDArray[np.float64] | list[float | NDArray[np.float64] | tuple[Logged, Event] | None],
        list[tuple[int, BaseException]],
    ]:
        """Values of rows (name, global step, worker or None), in one pass over the files if they are not held, and what failed:
        (row, error).

        One array where all are numbers, or histograms of as many buckets. Else each as it is: a number, the buckets of a
        histogram, where it lies and what was written, None where there is nothing."""
    def directories(self) -> list[tuple[str, int]]:
        """(worker, mode's number)."""
    def files(self) -> list[tuple[str, int, str | None]]:
        """(key, bytes read, the writer's version)."""
    def cached_bytes(self) -> int:
        """Bytes of the files that were not read, because the cache knew what is in them."""
    def memory(self) -> int:
        """Bytes held."""

@final
class Logged:
    """A value of a log, and where it lies."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def event_key(self) -> str: ...
    @property
    def worker(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def wall_time(self) -> float: ...
    @property
    def number(self) -> float | None:
        """A scalar's value."""
    @property
    def offset(self) -> int:
        """Where its record starts; 0 of a scalar."""
    @property
    def length(self) -> int:
        """How many bytes its record takes; 0 of a scalar."""
    def checked(self, record: bytes) -> bytes:
        """The bytes of the value, in those that its record has now: they are held against its checksum, and must be the
        record that was read when the log was opened."""

def event_of(data: bytes, step: int = 0, wall_time: float = 0.0) -> Event:
    """The event of a value whose bytes are these: see `Logged.checked`."""

def hparams(content: bytes) -> dict[str, float | str | bool | None]:
    """Hyperparameters of a run, from the content of TensorBoard's plugin."""

def decode_png(encoded: bytes, max_pixels: int) -> NDArray[Any]:
    """A PNG as an array (height, width, channels) of uint8 or uint16, with its alpha. A larger one is an error."""

# ---------------------------------------------------------------- writing a step

@final
class StepWriter:
    """Writes one step of one worker: its event file and the index file that says what lies where in it.

    Both appear under their final names when the step is finished, the event file first, or not at all. `mode` is
    TRAIN 1, EVAL 2, PREDICT 3, GLOBAL 4; `mode_step` is `step` where not given. With `fsync` a finished step survives a
    power cut. As a context manager it finishes the step, or discards it when the block fails. Safe to use from many
    threads.

    >>> with StepWriter("run", step=5) as step:
    ...     step.tensor("loss", 0.25)
    """

    def __new__(
        cls,
        root: str | PathLike[str],
        step: int,
        worker: str = "worker_0",
        mode: int = 4,
        mode_step: int | None = None,
        fsync: bool = False,
    ) -> StepWriter: ...
    def tensor(self, name: str, value: ArrayLike, dtype: str | None = None) -> None:
        """Write a tensor: an array, or what numpy makes one of. Text may be of any rank.

        `dtype` says what the elements really are where numpy has no name for it: "bfloat16" for an array of uint16. A name may come again: readers take the last. A reduction is a tensor named by `reduction_name`."""
    def tensors(
        self,
        ready: Sequence[tuple[str, str, Sequence[int], _Buffer]],
        raw: bool = True,
        reductions: Sequence[tuple[str, bool]] = ...,
    ) -> None:
        """Write many tensors, each (name, dtype's name, shape, its bytes in C order), in one go.

        `reductions` of each, by (name, of |x|), are written before it; with `raw` false, in its place."""
    def shape(self, name: str, original: str, shape: Sequence[int]) -> None:
        """Note a tensor's shape in place of, or beside, its value. `original` is the name its framework gave it."""
    def publish(self) -> None:
        """Make the step visible with the tensors written so far; more may follow until `finish`.

        The event file only grows and the index file is replaced at once: readers see one of both states."""
    def finish(self) -> tuple[str | None, str | None, int]:
        """Give both files their final names; the event file's, the index file's, and the bytes of both.

        Names are relative to the run, None for a file that wasn't needed: a step in which nothing was saved has none."""
    def discard(self) -> None:
        """Leave nothing of the step. Does nothing if it is finished."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, class_: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

def worker_file_name(worker: str) -> str:
    """A worker's name as it stands in file names.

    >>> worker_file_name("/job:worker/replica:0/task:1/device:GPU:0")
    '_job-worker_replica-0_task-1_device-GPU-0'
    """

def reduction_name(op: str, abs: bool, tensor: str) -> str:
    """The name under which a reduction of a tensor is saved.

    >>> reduction_name("l2", True, "conv.weight")
    'smdebug/reductions/abs_l2/conv.weight'
    """

# ---------------------------------------------------------------- catalog: what lies where

@final
class Catalog:
    """Which tensor, step, mode and worker lies where in a run.

    File names are listed eagerly, index files are read only when asked for: `steps`, `workers`, `workers_at` and
    `complete_until` answer from names alone; everything about names of tensors, modes and places answers from the index
    files that have been read (see `load_local`, `load`, `has_local`). Safe to use from many threads.

    Modes are numbers: TRAIN 1, EVAL 2, PREDICT 3, GLOBAL 4. Where a `mode` is asked for, None and 4 mean all global steps.
    Workers are shown as smdebug shows them (`worker_0`, `/job:worker/replica:0/task:1/device:GPU:0`) and may be given in
    that form or as file names spell them. Their order is that of the shown name, character by character.

    >>> catalog = Catalog()
    >>> catalog.add_keys(["index/000000000/000000000005_worker_0.json"])
    1
    >>> catalog.steps()
    [5]
    """

    def __new__(cls, first_step: int | None = None, end_step: int | None = None) -> Catalog: ...
    # filling
    def list_local(self, root: str) -> int:
        """List the run's index directory; the number of index files not seen before. Unchanged directories are not listed
        again. A directory that does not exist (yet) holds nothing: 0."""
    def add_keys(self, keys: Sequence[str]) -> int:
        """The same from a bucket's listing: keys relative to the run. Keys that are no index files are ignored."""
    def unread(self, steps: Sequence[int] | None = None) -> list[str]:
        """Keys of listed index files whose content has not been read: all, or those of these global steps."""
    def load_local(self, root: str, steps: Sequence[int] | None = None, threads: int | None = None) -> int:
        """Read index files that are unread, or failed before and have changed since; the number of files read now."""
    def has_local(self, root: str, name: str) -> bool:
        """Whether a tensor of this name exists, reading unread index files newest first until it is found."""
    def refresh_local(self, root: str, steps: Sequence[int]) -> int:
        """Read index files of these steps again if they were replaced since (a restarted training writes steps twice);
        the number that had been."""
    def load(self, key: str, data: bytes) -> bool:
        """Take in one index file's content from elsewhere. False if it could not be understood: see `problems`."""
    def load_many(self, files: Sequence[tuple[str, bytes]], threads: int | None = None) -> int:
        """The same for many, parsed in parallel; the number understood."""
    def problems(self) -> list[tuple[str, str]]:
        """Index files that could not be read: (key, message), in the order of keys."""
    @property
    def generation(self) -> int:
        """Grows whenever an answer may have changed: a key for caches."""
    # steps and workers, from file names
    def steps(self, mode: int | None = None) -> list[int]:
        """Global steps, ascending; with a mode those of that mode (of the index files read)."""
    def num_steps(self) -> int: ...
    def last_step(self) -> int | None: ...
    def has_step(self, step: int) -> bool: ...
    def workers(self) -> list[str]: ...
    def workers_at(self, step: int) -> list[str]: ...
    def complete_until(self, num_workers: int) -> int:
        """The last global step that `num_workers` distinct workers have written, -1 if there is none. Every step up to it
        counts as complete."""
    def count_after(self, step: int) -> int:
        """How many global steps come after this one."""
    # modes, from index files read
    def modes(self) -> list[int]:
        """Modes of the index files read, ascending; GLOBAL (4) only if a file says so."""
    def mode_of(self, step: int) -> tuple[int, int] | None:
        """(mode, mode step) of a global step: that of its first worker by name. None if not read."""
    def mode_steps(self, mode: int, name: str | None = None) -> list[int]:
        """Mode steps of a mode, ascending; with a name those at which the tensor has something."""
    def global_step(self, mode: int, mode_step: int, latest: bool = False) -> int | None:
        """The global step of a mode step; of several (a restarted training repeated it) the earliest, or the latest."""
    # tensors, from index files read
    def names(self) -> list[str]:
        """Names of tensors, sorted. Stored reductions show under the tensor they are of."""
    def names_at(self, step: int, worker: str | None = None) -> list[str]: ...
    def extents(self, step: int) -> list[tuple[str, int, int]]:
        """The bytes that the records of a step span together: (event file, first byte, end) for each worker that has any."""
    def names_in_mode(self, mode: int) -> list[str]: ...
    def has(self, name: str) -> bool: ...
    def steps_of(self, name: str, mode: int | None = None) -> list[int]:
        """Global steps at which the tensor has a value, a stored reduction or a shape, ascending."""
    def workers_of(self, name: str, step: int) -> list[str]:
        """Workers that wrote a value, a reduction or a shape of the tensor at this global step."""
    def find(self, name: str, step: int, worker: str | None = None) -> Entry | None:
        """Where the value lies; without a worker that of the first worker by name that has one."""
    def stored_reductions(self, name: str, step: int, worker: str | None = None) -> list[tuple[str, bool, Entry]]:
        """Stored reductions (op, abs, where); without a worker those of the first worker by name that has any."""
    def stored_reduction(self, name: str, step: int, op: str, abs: bool, worker: str | None = None) -> Entry | None: ...
    def shape_of(self, name: str, step: int, worker: str | None = None) -> tuple[int, ...] | None:
        """The shape that was saved in place of, or beside, the value (`save_shape`); None if none was."""
    def original_name(self, name: str) -> str | None:
        """The name the framework gave the tensor, if a shape was saved with it."""
    def num_entries(self) -> int: ...
    def memory(self) -> int:
        """Bytes held."""

@final
class Entry:
    """Where one record lies, and what it should be."""

    @property
    def name(self) -> str:
        """The name in the index file: for a stored reduction the full `smdebug/reductions/...` one."""
    @property
    def event_key(self) -> str:
        """The event file, relative to the run."""
    @property
    def index_key(self) -> str:
        """The index file that says so, relative to the run."""
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int:
        """Bytes of the whole record: one ranged read gives it all."""
    @property
    def worker(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def mode(self) -> int: ...
    @property
    def mode_step(self) -> int: ...
    @property
    def crc(self) -> int | None:
        """CRC32C of the record's payload, if the index file carries one."""
    def decode(self, data: bytes | bytearray | memoryview) -> NDArray[Any]:
        """The value from this record's bytes, got elsewhere (a bucket). Name and checksums are checked; the array is a
        writable copy."""

@final
class Files:
    """Event files of one local run, kept open (the most recently used ones).

    Every call returns a writable array with memory of its own, which keeps its content whatever becomes of the file.
    Recently read values up to 64 KiB are cached (16 MB in all); a call for one of them returns a copy.
    Checksums: a record's header always; its content if it or its index entry carries a checksum.
    """

    def __new__(cls, root: str, max_open: int = 32) -> Files: ...
    @property
    def root(self) -> str: ...
    def value(self, entry: Entry) -> NDArray[Any]: ...
    def get(
        self,
        catalog: Catalog,
        name: str,
        step: int,
        worker: str | None = None,
        keep: bool = True,
    ) -> NDArray[Any] | None:
        """`value(catalog.find(name, step, worker))` in one call, reading the step's index files first if they are unread.
        None if there is no value. Without `keep` only values up to 4 KiB are cached."""
    def head(self, entry: Entry) -> tuple[str, tuple[int, ...]]:
        """(dtype name, shape), from the record's first bytes."""
    def exists(self, entry: Entry) -> bool:
        """Whether the event file is there."""
    def forget(self) -> None:
        """Close all files. Arrays handed out stay valid."""

@final
class Fetched:
    """Event files elsewhere: `fetch(key, offset, length)` returns bytes (fewer at the file's end), and is called from
    several threads at once. What `sweep`, `values` and `heads` take in the place of `Files`."""

    def __new__(cls, fetch: Callable[[str, int, int], bytes]) -> Fetched: ...

# ---------------------------------------------------------------- sweep: many records, each read once

@final
class Cancel:
    """A flag that ends a sweep early when set, from any thread."""

    def __new__(cls) -> Cancel: ...
    def set(self) -> None: ...
    def is_set(self) -> bool: ...

# (name, global step, worker or None for the first that has the tensor)
_Row: TypeAlias = tuple[str, int, str | None]

def sweep(
    catalog: Catalog,
    files: Files | Fetched,
    names: Sequence[str],
    steps: Sequence[int] | None = None,
    workers: Sequence[str] | None = None,
    reductions: Sequence[str] | None = None,
    *,
    counts: bool = False,
    recompute: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    cancel: Cancel | None = None,
) -> dict[str, Any]:
    """Reductions of many tensors at many steps, as columns; each record is read once.

    One row for each (name, step, worker) that has a value or a stored reduction, in the order of names given, then steps,
    then workers. `workers` None: the first worker by name that has the tensor; a list: each of those; `[]`: every worker.
    `reductions`: as in collections' configurations ("min", "abs_mean", "l2", "abs_l1" ...; None: all 18). A stored
    reduction is used where there is one unless `recompute`.

    Columns: "name", "worker" (object arrays of str), "step", "mode", "mode_step" (int64), one for each reduction (the
    results' common dtype; where a row has none it is NaN, and the column a float one), with `counts` also "size", "nan",
    "pos_inf", "neg_inf", "zero" (int64; -1 where only reductions were stored); "error": list of (row, exception). One bad record is one error, never the
    end. `progress(bytes done, bytes in all)` is called about ten times a second in the calling thread; Ctrl-C ends the
    sweep.
    """

def values(
    catalog: Catalog,
    files: Files | Fetched,
    rows: Sequence[_Row],
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    cancel: Cancel | None = None,
) -> tuple[NDArray[Any] | list[NDArray[Any] | None], list[tuple[int, BaseException]]]:
    """The values of many rows, each record read once into fresh memory: one array (rows, *shape) if all dtypes and shapes
    agree and no row failed, else a list with None for rows that have no value or failed; and the errors as (row, exception)."""

def heads(
    catalog: Catalog,
    files: Files | Fetched,
    rows: Sequence[_Row],
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    cancel: Cancel | None = None,
) -> tuple[list[tuple[str, tuple[int, ...]] | None], list[tuple[int, BaseException]]]:
    """(dtype name, shape) of many rows, from the first bytes of each record."""

def verify(
    catalog: Catalog,
    files: Files | Fetched,
    steps: Sequence[int] | None = None,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    cancel: Cancel | None = None,
) -> dict[str, Any]:
    """Check every record of these steps: framing, names, checksums, shapes. Returns counts: "records", "bytes", "footer_constant",
    "footer_crc" (true CRCs that hold), "index_crc" (verified against the index), "unverifiable" (nothing to check the content against), and "errors": list of
    (name, step, worker, exception)."""

# ---------------------------------------------------------------- reductions

def reduce(
    buffer: _Buffer, dtype: str | None = None, names: Sequence[tuple[str, bool]] | None = None
) -> dict[tuple[str, bool], np.generic | None]:
    """All 18 reductions of an array, or those in `names`, by (name, of |x|), from one pass over its elements.

    The values are numpy scalars of the dtype numpy gives; bfloat16 where ml_dtypes is installed, else float32. Norms are over
    all elements, std and variance divide by n. The minimum and maximum of an array without elements are None. An array says
    its dtype itself; plain bytes (little-endian) need its name.

    >>> reduce(np.array([3.0, -4.0], dtype=np.float32), names=[("l2", False), ("min", True)])
    {('l2', False): np.float32(5.0), ('min', True): np.float32(3.0)}
    """

def reduction(buffer: _Buffer, name: str, abs: bool = False, dtype: str | None = None) -> np.generic:
    """One reduction of an array, or of its magnitudes. ValueError for the minimum and maximum of no elements.

    >>> reduction(np.array([3.0, -4.0]), "l1")
    np.float64(7.0)
    """

def stats(buffer: _Buffer, dtype: str | None = None) -> dict[str, int | float]:
    """Counts (n, nan, pos_inf, neg_inf, zeros) and min, max, mean, std, l2 of an array; of a complex one's magnitudes.

    >>> stats(np.array([1.0, np.nan, 0.0]))["nan"]
    1
    """

# ---------------------------------------------------------------- pictures: bounded by what is asked for, never by the tensor

_Cut: TypeAlias = tuple[int, int] | None
_Axis: TypeAlias = int | None

def histogram(
    buffer: _Buffer,
    bins: int | Sequence[float] | NDArray[Any] | None = None,
    range: tuple[float, float] | None = None,
    scale: str = "linear",
    linear: float = 0.0,
    magnitude: bool = False,
    dtype: str | None = None,
) -> dict[str, Any]:
    """How many elements lie between which edges: given ones, or so many bins (256) over a range.

    Without a range it runs from the smallest to the largest finite element. `scale` is "linear", "log" (of positive elements;
    others are under), "symlog" (even up to about `linear`, logarithmic beyond; 0 chooses) or "auto" (linear, or symlog where
    a few elements are far from the rest). Bins are half-open but for the last, as numpy's. Complex elements count by
    magnitude, others too if `magnitude`.

    The keys are edges, counts (arrays), under, over, n, nan, pos_inf, neg_inf, zeros, scale and linear. Zeros are also in
    their bin; every other element is in exactly one place.

    >>> histogram(np.array([0.0, 1.0, 1.0, np.nan]), bins=2)["counts"].tolist()
    [1, 2]
    """

def percentiles(buffer: _Buffer, q: Sequence[float], dtype: str | None = None) -> NDArray[np.float64]:
    """Percentiles (0 to 100) of the elements that are not NaN: exact, between elements linear, as numpy.nanpercentile.

    The memory is bounded whatever the size: a few passes count elements by the bits of their place in the order.

    >>> percentiles(np.arange(5.0), [0, 50])
    array([0., 2.])
    """

def pooled(
    buffer: _Buffer,
    size: tuple[int, int] | None = None,
    pool: str = "mean",
    row_axis: _Axis = None,
    column_axis: _Axis = None,
    fixed: Sequence[int] | None = None,
    rows: _Cut = None,
    columns: _Cut = None,
    codes: str | None = None,
    limits: tuple[float, float] | None = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
) -> dict[str, Any]:
    """A plane through an array as an image of at most `size` (height, width) cells, 1024 x 1024 unless said.

    The plane is that of two axes (the last two), with `fixed` indices on the others (0), cut to `rows` and `columns`.
    `pool` is "mean", "min", "max" or "maxabs" (largest magnitude, with its sign). A cell over a NaN is NaN, else one over
    an infinity is that, +inf before -inf.

    The image is float32, or palette codes from `limits` (low, high; the image's own): "uint8" has colours 0 to 252 and 253
    -inf, 254 +inf, 255 NaN; "uint16" 0 to 65532 and 65533, 65534, 65535.

    The keys are image, rows, columns (what it shows), min, max (of finite cells; NaN for none) and limits.

    >>> pooled(np.array([[1.0, 3.0], [5.0, 7.0]]), size=(2, 1))["image"].tolist()
    [[2.0], [6.0]]
    """

def window(
    buffer: _Buffer,
    rows: _Cut = None,
    columns: _Cut = None,
    row_axis: _Axis = None,
    column_axis: _Axis = None,
    fixed: Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
) -> NDArray[Any]:
    """The exact elements of some rows and columns of a plane through an array, as an array of two dimensions.

    At most 4,194,304 elements; the plane is chosen as for `pooled`.

    >>> window(np.arange(12).reshape(3, 4), rows=(1, 3), columns=(0, 2)).tolist()
    [[4, 5], [8, 9]]
    """

def sample(buffer: _Buffer, most: int = 1000, dtype: str | None = None) -> tuple[NDArray[np.float64], int]:
    """At most `most` elements, evenly picked in C order, and how many elements apart they lie.

    >>> sample(np.arange(10), 4)
    (array([0., 3., 6., 9.]), 3)
    """
