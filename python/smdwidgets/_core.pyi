"""The compiled core. Private: the public API is `smdwidgets` and its modules."""

from collections.abc import Callable, Mapping, Sequence
from mmap import mmap
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__version__: str
"""Version of the package."""

FILE_TIME_GRANULARITY: int
"""Coarsest resolution of file times, in nanoseconds."""

# ---------------------------------------------------------------- records: framing, checksums, values

_Buffer: TypeAlias = bytes | bytearray | memoryview | mmap | NDArray[Any]
"""Any object with a C-contiguous buffer."""

def decode(data: _Buffer, offset: int = 0) -> NDArray[Any]:
    """Decode the tensor in the record at `offset`.

    The array is a writable copy. Verifies the checksum of the header, and that of the payload if the record has one.
    Strings are returned as an array of str. bfloat16, float8 and float4 require ml_dtypes.

    >>> with StepWriter("run", step=5) as step:
    ...     step.tensor("w", np.float32([0.5, 0.25]))
    >>> with open("run/events/000000000005/000000000005_worker_0.tfevents", "rb") as file:
    ...     decode(file.read())
    array([0.5 , 0.25], dtype=float32)
    """

def crc32c(data: _Buffer) -> int:
    """Compute the CRC32C (Castagnoli) of `data`.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """

def masked_crc(data: _Buffer) -> int:
    """Compute the masked CRC32C of `data`, as TFRecord files store it."""

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
        """A histogram as (buckets, 3): left edge, right edge, count.

        None for any other kind.
        """

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
    """Read the events of a TensorBoard log in memory, past damaged records.

    Checksums are verified.
    """

def is_event_file(key: str) -> bool:
    """Whether a key names an event file of TensorBoard, not a tensor file of smdebug."""

def write_record(payload: _Buffer) -> bytes:
    """Encode a record with the payload's checksum."""

def version_record(wall_time: float) -> bytes:
    """Encode the first record of a TensorBoard log."""

def scalar_record(tag: str, step: int, wall_time: float, value: float) -> bytes:
    """Encode a record with a scalar for TensorBoard."""

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
    """Encode a record with a histogram for TensorBoard.

    `limits` are the right edges of the buckets.
    """

# ---------------------------------------------------------------- TensorBoard logs

@final
class EventLog:
    """The log of a TensorBoard run: one directory of growing event files, or several.

    Each refresh continues where the last one stopped. An incomplete record is read once it is complete; a damaged one
    is a problem, and reading resumes after it. Checksums of all records are verified, except those of long graphs,
    which are skipped. The queries are those of `Catalog`. If a directory has a mode, global steps are four times the
    log's steps, plus 0 for TRAIN, 1 for EVAL, 2 for PREDICT, 3 for GLOBAL. Thread-safe.

    Args:
        directories: (path relative to the run, worker, mode, suffix of its tags) of each directory.
        keep_orphans: Keep superseded steps that were not written again.
        first_step: First step.
        end_step: End step (exclusive).
        cache: (directory, name of this log) of an on-disk cache of large files. Unchanged data is not read again.
        hold: Keep all values in memory, as differences between steps where that is smaller.
        files: Keys of the files to read; None: all.

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
        files: Sequence[str] | None = None,
    ) -> EventLog: ...
    def lay_out(self, directories: Sequence[tuple[str, str, int, str]]) -> None:
        """Change the set of directories. Keeps what was read of those that remain."""
    def refresh_local(self, root: str, threads: int | None = None) -> bool:
        """Read new data of the files below `root`. Returns whether there was any."""
    def add_keys(self, keys: Sequence[str]) -> None:
        """Add the keys of event files that are directly in one of the directories."""
    def refresh(self, source: Fetched, threads: int | None = None) -> bool:
        """Read new data of all known files. Returns whether there was any."""
    def set_rows(
        self,
        directory: str,
        key: str,
        rows: Sequence[
            tuple[
                str,
                NDArray[np.int64],
                NDArray[np.float64],
                NDArray[np.float64] | None,
                Sequence[tuple[int, int]] | None,
                bool,
            ]
        ],
    ) -> bool:
        """Set the rows of a file in another format. They replace those of an earlier call.

        Each series is (name, steps, wall times, numbers, None, False), or (name, steps, wall times, None, offset and
        size of each value in the file, whether these are histograms and not tensors). Returns whether the log has the
        directory."""
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
        """Values of superseded steps, in the order of `course(name, orphans=True)`."""
    def superseded(self) -> list[tuple[str, int]]:
        """Names with superseded values, and their number."""
    def stored_value(self, location: Logged) -> bytes | None:
        """The encoded value, if it is kept in memory."""
    def number(self, name: str, step: int, worker: str | None = None) -> float | None:
        """The value of a scalar; None if there is no value or it is not a scalar."""
    def stored_reductions(self, name: str, step: int, worker: str | None = None) -> list[tuple[str, bool, Any]]:
        """Always empty: a log has no stored reductions."""
    def stored_reduction(self, name: str, step: int, op: str, abs: bool, worker: str | None = None) -> Any: ...
    def shape_of(self, name: str, step: int, worker: str | None = None) -> tuple[int, ...] | None: ...
    def original_name(self, name: str) -> str | None:
        """The tag."""
    def problems(self) -> list[tuple[str, str]]:
        """Unusable records and files as (file, message).

        At most a thousand are listed per file, then their number.
        """
    def series(self) -> list[tuple[str, str, str, str, str]]:
        """(name, tag, kind, plugin, description) of each series, by first appearance.

        Kinds: "scalar", "histogram", "image", "audio", "text", "hparams", "pr_curve", "tensor"."""
    def num_names(self) -> int: ...
    def course(
        self, name: str, mode: int | None = None, orphans: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.uint32]]:
        """All rows of a name, as columns.

        The columns are global steps, mode steps, wall times, values (NaN unless scalar) and directory numbers.

        With `orphans`, only the superseded rows."""
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
        """Read the values of rows (name, global step, worker or None) in one pass.

        Errors are listed as (row, error).

        One array if all values are numbers, or histograms of equal size. Else a list: a number, the buckets of a
        histogram, (location, event) of any other value, or None if there is no value."""
    def directories(self) -> list[tuple[str, int]]:
        """(worker, mode) of each directory."""
    def files(self) -> list[tuple[str, int, str | None]]:
        """(key, bytes read, version of the writer) of each file."""
    def cached_bytes(self) -> int:
        """Bytes that were restored from the cache."""
    def memory(self) -> int:
        """Memory in bytes."""

@final
class ScalarCursor:
    """A position in the scalars of an `EventLog`. Thread-safe.

    >>> ScalarCursor().advance(EventLog([("", "worker_0", 4, "")]))
    []
    """

    def advance(self, log: EventLog) -> list[tuple[str, int, NDArray[np.int64], NDArray[np.float64], bool, int]]:
        """Move to the end of the log; return the rows of scalars since the last position.

        For each scalar and directory with new rows: name, directory number, steps of the log, values, whether these are
        all rows, and then the number of superseded rows. If earlier rows have changed, all rows are returned, which may
        be none.
        """

@final
class WandbReader:
    """Reads the records of a W&B file once, in pieces. Thread-safe.

    >>> reader = WandbReader(7, 10_000)
    >>> reader.feed(b":W&B\\xe1\\xbe\\x00", 0)
    >>> reader.at, reader.damage()
    (7, ([], 0))
    """

    BLOCK: int
    """Size of the blocks of a file."""

    def __new__(cls, at: int, most_names: int) -> Self:
        """Read the records from an offset on, and keep the numbers of the first names."""

    @property
    def at(self) -> int:
        """Offset of the first part that was not read.

        The next piece begins with its block.
        """

    def feed(self, piece: bytes, start: int) -> None:
        """Read the piece of the file at an offset; damage is noted."""

    def take(
        self,
    ) -> tuple[
        tuple[NDArray[np.int64], NDArray[np.float64], list[tuple[str, NDArray[np.int64], NDArray[np.float64]]]],
        tuple[NDArray[np.int64], NDArray[np.float64], list[tuple[str, NDArray[np.int64], NDArray[np.float64]]]],
        list[tuple[str, NDArray[np.int64], list[tuple[int, int]]]],
        list[tuple[str, bytes | None]],
        list[tuple[str, bytes]],
        list[tuple[str, str]],
        bool,
    ]:
        """Return what was read since the last call.

        These are the history, and the samples of the system: the step and the time (seconds since 1970, or NaN) of each
        row, and name, rows and numbers of each column; name and rows of histograms, with offset and length of their
        records; name and JSON of the summary, None where it was removed; name and JSON of settings; what the run says
        of itself; and whether it ended.
        """

    @staticmethod
    def parts(piece: bytes, at: int, name: str) -> list[tuple[str, bytes]]:
        """Return the parts of a value of the history.

        These are the rest of each name, and its JSON. The piece begins with a block; the record is at an offset in it.
        Raises an error unless its checksums match.
        """

    @property
    def checked(self) -> int:
        """The number of checksums that match."""

    def damage(self) -> tuple[list[tuple[int, str]], int]:
        """Return offset and reason of faults, and the number of further ones."""

    def media(self) -> list[str]:
        """Return the names of images and tables, which are not read."""

@final
class Logged:
    """A value of a log and its location."""

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
        """The value of a scalar; None for any other kind."""
    @property
    def offset(self) -> int:
        """Offset of its record; 0 for a scalar."""
    @property
    def length(self) -> int:
        """Size of its record; 0 for a scalar."""
    def checked(self, record: bytes) -> bytes:
        """Verify the current bytes of the record and return the encoded value.

        Raises:
            CorruptDataError: The checksum does not match, or the record has changed since it was scanned."""

def event_of(data: bytes, step: int = 0, wall_time: float = 0.0) -> Event:
    """Create an event from an encoded value: see `Logged.checked`."""

def hparams(content: bytes) -> dict[str, float | str | bool | None]:
    """Parse hyperparameters from the content of TensorBoard's plugin."""

def decode_png(encoded: bytes, max_pixels: int) -> NDArray[Any]:
    """Decode a PNG of at most `max_pixels` to an array (height, width, channels).

    The dtype is uint8 or uint16; alpha is included.
    """

def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode an array (height, width, 3) of uint8 as an RGB PNG.

    >>> encode_png(np.zeros((2, 3, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """

# ---------------------------------------------------------------- copying

def copy(source: _Buffer, target: bytearray | memoryview | NDArray[Any]) -> None:
    """Copy the bytes of `source` to `target`, which has the same number of bytes.

    Large blocks are written past the processor's caches, which takes two thirds of the time of an ordinary copy.

    >>> target = np.zeros(3, np.int16)
    >>> copy(np.arange(3, dtype=np.int16), target)
    >>> target
    array([0, 1, 2], dtype=int16)
    """

# ---------------------------------------------------------------- writing a step

@final
class StepWriter:
    """Write one step of one worker: its event file and its index file.

    Both files get their final names when the step is finished, the event file first. `mode` is TRAIN 1, EVAL 2,
    PREDICT 3 or GLOBAL 4; `mode_step` defaults to `step`. With `fsync`, a finished step survives a power failure. As a
    context manager, finishes the step, or discards it if the block raises. Thread-safe.

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
        in_memory: bool = False,
    ) -> StepWriter: ...
    @property
    def is_in_memory(self) -> bool:
        """Whether the step can be appended to a segment: it is small, without files."""
    @property
    def first(self) -> str | None:
        """The name of the first tensor, if any was written."""
    def tensor(self, name: str, value: ArrayLike, dtype: str | None = None) -> None:
        """Write a tensor: anything that numpy converts to an array, including strings.

        `dtype` overrides the dtype of the elements where numpy lacks it: "bfloat16" for an array of uint16. If a name
        is repeated, readers use the last one. A reduction is a tensor named by `reduction_name`."""
    def tensors(
        self,
        ready: Sequence[tuple[str, str, Sequence[int], _Buffer]],
        raw: bool = True,
        reductions: Sequence[tuple[str, bool]] = ...,
    ) -> None:
        """Write many tensors, each (name, dtype, shape, bytes in C order), in one call.

        `reductions` of each, by (name, of |x|), are written before it, or with `raw` false instead of it."""
    def shape(self, name: str, original: str, shape: Sequence[int]) -> None:
        """Record a tensor's shape, without its value.

        `original` is the framework's name of the tensor.
        """
    def shard(self, name: str, shard: str) -> None:
        """Record the position of this worker's part of a sharded tensor.

        The position is a JSON value in ASCII on one line."""
    def publish(self) -> None:
        """Make the step visible with the tensors written so far.

        More may follow until `finish`.

        The event file only grows and the index file is replaced at once: readers see one of both states."""
    def finish(self) -> tuple[str | None, str | None, int]:
        """Rename both files to their final names.

        Returns (event file, index file, total bytes).

        Names are relative to the run, and None for a file that was not needed."""
    def discard(self) -> None:
        """Remove the unfinished step. Does nothing if it is finished."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, class_: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class SegmentWriter:
    """Append steps of one worker to segments: many steps in two files.

    Other methods than `append` end the segment that grows. Thread-safe.

    >>> step = StepWriter("run", step=5, in_memory=True)
    >>> step.tensor("loss", 0.25)
    >>> SegmentWriter("run").append(step)[0]
    'segments/worker_0/000000.index'
    """

    def __new__(cls, root: str | PathLike[str], worker: str = "worker_0") -> SegmentWriter: ...
    def append(self, step: StepWriter) -> tuple[str, int]:
        """Append a step in memory, or all of it again if it has more tensors.

        Returns (index of the segment, bytes written: 0 if the step has not changed)."""
    def end(self) -> None:
        """Begin another segment with the next step."""
    def rewrite(self, segments: Sequence[tuple[str, Mapping[int, str | None]]]) -> tuple[str, int] | None:
        """Write segments, in order, as one, and remove the old files.

        With each: the steps of which something is deleted, and the first tensor that is, in the order of writing; None:
        all of the step. Returns (index of the new segment, its bytes); None: it is empty."""
    def cut_steps(self, first: int) -> None:
        """Delete the steps from this one on from all segments of the worker."""
    def show_steps(self, steps: Sequence[int]) -> None:
        """Write index files of steps in segments, for readers that know only these."""

def worker_file_name(worker: str) -> str:
    """Convert a worker's name to its form in file names.

    >>> worker_file_name("/job:worker/replica:0/task:1/device:GPU:0")
    '_job-worker_replica-0_task-1_device-GPU-0'
    """

def reduction_name(op: str, abs: bool, tensor: str) -> str:
    """The name of a stored reduction.

    >>> reduction_name("l2", True, "conv.weight")
    'smdebug/reductions/abs_l2/conv.weight'
    """

# ---------------------------------------------------------------- catalog

@final
class Catalog:
    """The catalog of a run: which tensor, step, mode and worker is stored where.

    File names are listed eagerly, index files are read on demand: `steps`, `workers`, `workers_at` and `complete_until`
    need names only; all queries about tensors, modes and locations cover the index files that have been read (see
    `load_local`, `load`, `has_local`). Thread-safe.

    Modes are numbers: TRAIN 1, EVAL 2, PREDICT 3, GLOBAL 4. For a `mode` parameter, None and 4 mean all global steps.
    Workers have smdebug's display names (`worker_0`, `/job:worker/replica:0/task:1/device:GPU:0`); parameters also
    accept the form in file names. Workers are sorted by display name, character by character.

    >>> catalog = Catalog()
    >>> catalog.add_keys(["index/000000000/000000000005_worker_0.json"])
    1
    >>> catalog.steps()
    [5]
    """

    def __new__(cls, first_step: int | None = None, end_step: int | None = None) -> Catalog: ...
    # filling
    def list_local(self, root: str) -> int:
        """List the run's index directory and return the number of new index files.

        Unchanged directories are not listed again. A missing directory counts as empty."""
    def add_keys(self, keys: Sequence[str]) -> int:
        """Add keys relative to the run and return the number of new index files.

        Other keys are ignored.
        """
    def unread(self, steps: Sequence[int] | None = None) -> list[str]:
        """Keys of unread index files: all, or those of these global steps."""
    def load_local(self, root: str, steps: Sequence[int] | None = None, threads: int | None = None) -> int:
        """Read index files that are unread, or failed and have changed since.

        Returns the number of files read.
        """
    def has_local(self, root: str, name: str) -> bool:
        """Check whether a tensor exists; read unread index files until it is found."""
    def refresh_local(self, root: str, steps: Sequence[int]) -> int:
        """Reload replaced index files of these steps and return their number.

        A restarted training repeats steps.
        """
    @staticmethod
    def from_columns(data: bytes) -> Catalog:
        """Return the catalog in the bytes of `to_columns`.

        They are checked as those of any file.

        >>> catalog = Catalog()
        >>> catalog.add_keys(["index/000000000/000000000005_worker_0.json"])
        1
        >>> Catalog.from_columns(catalog.to_columns()).steps()
        [5]
        """
    def to_columns(self, names: Sequence[str] | None = None, steps: Sequence[int] | None = None) -> bytes:
        """Return the catalog, or a part of it, as bytes that compress well.

        A part has some tensors and steps. It keeps all files of these steps, and hence their modes and workers."""
    def load(self, key: str, data: bytes) -> bool:
        """Load an index file from memory. False if it is malformed: see `problems`."""
    def load_many(self, files: Sequence[tuple[str, bytes]], threads: int | None = None) -> int:
        """Load many index files, parsed in parallel. Returns the number of valid ones."""
    def load_segment(self, key: str, data: bytes) -> tuple[int, int]:
        """Add the whole lines at the beginning of a part of a segment's index.

        Returns (new steps, size of the lines).
        """
    def load_folder(self, file: str, data: bytes) -> int:
        """Load the unread index files of a folder of the compacted index.

        ``file`` names it in errors. Returns the number of files. A malformed folder raises an error and loads nothing.
        """
    def problems(self) -> list[tuple[str, str]]:
        """Unreadable index files: (key, message), by key."""
    @property
    def generation(self) -> int:
        """Increases whenever a result may have changed; can serve as a cache key."""
    # steps and workers, from file names
    def steps(self, mode: int | None = None) -> list[int]:
        """Global steps, ascending; with a mode those of the mode in the index files read."""
    def num_steps(self) -> int: ...
    def last_step(self) -> int | None: ...
    def has_step(self, step: int) -> bool: ...
    def workers(self) -> list[str]: ...
    def workers_at(self, step: int) -> list[str]: ...
    def complete_until(self, num_workers: int) -> int:
        """The last global step that `num_workers` workers have written, or -1.

        All earlier steps count as complete.
        """
    def count_after(self, step: int) -> int:
        """The number of global steps after this one."""
    # modes, from index files read
    def modes(self) -> list[int]:
        """Modes of the index files read, ascending; GLOBAL (4) only if a file states it."""
    def mode_of(self, step: int) -> tuple[int, int] | None:
        """(mode, mode step) of a global step, from its first worker by name.

        None if not read.
        """
    def mode_steps(self, mode: int, name: str | None = None) -> list[int]:
        """Mode steps of a mode, ascending; with a name those that have the tensor."""
    def global_step(self, mode: int, mode_step: int, latest: bool = False) -> int | None:
        """The global step of a mode step.

        If a restart repeated it, this is the earliest, or with `latest` the latest.
        """
    # tensors, from index files read
    def names(self) -> list[str]:
        """Names of tensors, sorted. Stored reductions belong to their tensor."""
    def names_at(self, step: int, worker: str | None = None) -> list[str]: ...
    def extents(self, step: int) -> list[tuple[str, int, int]]:
        """The byte ranges of a step's records: (event file, start, end) for each worker."""
    def names_in_mode(self, mode: int) -> list[str]: ...
    def has(self, name: str) -> bool: ...
    def steps_of(self, name: str, mode: int | None = None) -> list[int]:
        """Global steps with a value, reduction or shape of the tensor, ascending."""
    def workers_of(self, name: str, step: int) -> list[str]:
        """Workers that saved the tensor at this global step: value, reduction or shape."""
    def find(self, name: str, step: int, worker: str | None = None) -> Entry | None:
        """The entry of the value.

        Without `worker`, that of the first worker by name that has one.
        """
    def stored_reductions(self, name: str, step: int, worker: str | None = None) -> list[tuple[str, bool, Entry]]:
        """Stored reductions (op, abs, entry).

        Without `worker`, those of the first worker by name that has any.
        """
    def stored_reduction(self, name: str, step: int, op: str, abs: bool, worker: str | None = None) -> Entry | None: ...
    def shape_of(self, name: str, step: int, worker: str | None = None) -> tuple[int, ...] | None:
        """The shape that `save_shape` stored; None if there is none."""
    def original_name(self, name: str) -> str | None:
        """The framework's name of the tensor, if its shape was saved."""
    @property
    def has_shards(self) -> bool:
        """Whether the index files read contain positions of shards."""
    def shards(self, name: str, step: int) -> list[tuple[str, str, str]]:
        """The parts of a sharded tensor: (worker, index file, position as JSON).

        They are sorted by worker; empty if the tensor is not sharded.
        """
    def num_entries(self) -> int: ...
    def memory(self) -> int:
        """Memory in bytes."""

@final
class Entry:
    """The location of a record and its expected metadata."""

    @property
    def name(self) -> str:
        """The name in the index file; for a stored reduction `smdebug/reductions/...`."""
    @property
    def event_key(self) -> str:
        """The event file, relative to the run."""
    @property
    def index_key(self) -> str:
        """The index file, relative to the run."""
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int:
        """Size of the whole record in bytes."""
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
        """CRC32C of the payload, if the index file has one."""
    def decode(self, data: bytes | bytearray | memoryview) -> NDArray[Any]:
        """Decode the value from the record's bytes, as a writable copy.

        Verifies name and checksums.
        """

@final
class Files:
    """Event files of a local run. Keeps the most recently used files open.

    Every call returns a writable array that owns its memory, independent of later changes to the file. Recent values of
    up to 64 KiB are cached (16 MB in total) and returned as copies. Verifies the checksum of every header, and that of
    the payload if the record or its index entry has one.
    """

    def __new__(cls, root: str, max_open: int = 256) -> Files: ...
    @property
    def root(self) -> str: ...
    def value(self, entry: Entry) -> NDArray[Any]: ...
    def get(
        self,
        catalog: Catalog,
        name: str,
        step: int,
        worker: str | None = None,
        cache: bool = True,
    ) -> NDArray[Any] | None:
        """`value(catalog.find(name, step, worker))` in one call.

        Reads the step's index files first if needed.

        None if there is no value, or without a worker for a sharded tensor. Without `cache`, only values of up to 4 KiB
        are cached."""
    def head(self, entry: Entry) -> tuple[str, tuple[int, ...]]:
        """(dtype name, shape), from the first bytes of the record."""
    def exists(self, entry: Entry) -> bool:
        """Check whether the event file exists."""
    def release(self) -> None:
        """Close all files and drop cached values. Existing arrays stay valid."""

@final
class Fetched:
    """Event files that a function reads, or in an object store.

    Accepted instead of `Files`. `fetch(key, offset, length)` returns bytes (fewer at the end of the file) and is called
    from several threads. A sweep reads `concurrency` times at once; by default as often as it has threads. With
    `direct`, the core reads the objects of a store below a prefix without Python; the function converts errors."""

    def __new__(
        cls,
        fetch: Callable[[str, int, int], bytes],
        concurrency: int | None = None,
        direct: tuple[ObjectStore, str, Callable[[Exception], Exception]] | None = None,
    ) -> Fetched: ...

# ---------------------------------------------------------------- sweeps over many records

@final
class Cancel:
    """A flag that cancels a sweep, from any thread."""

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
    """Compute reductions of many tensors at many steps, as columns.

    Each record is read once.

    One row per (name, step, worker) with a value or a stored reduction, ordered by names as given, steps, workers. A
    bad record is an error of its row. Ctrl-C cancels the sweep.

    Args:
        catalog: Catalog of the run.
        files: Event files of the run, or records that were fetched.
        names: Names of tensors.
        steps: Global steps; None for all.
        workers: None for the first worker by name that has the tensor, `[]` for all workers.
        reductions: As in collections' configurations ("min", "abs_mean", "l2", "abs_l1", ...); None for all 18.
        counts: Add the columns "size", "nan", "pos_inf", "neg_inf", "zero" (int64; -1 for stored reductions only).
        recompute: Ignore stored reductions.
        threads: Number of threads; None for one per core.
        progress: Called as `progress(bytes done, total bytes)` about ten times a second in the calling thread.
        cancel: Cancels the sweep from another thread.

    Returns:
        Columns "name", "worker" (object arrays of str), "step", "mode", "mode_step" (int64), one per reduction (common
        dtype of the results; NaN if missing), and "error": list of (row, exception).
    """

def sweep_statistics(
    catalog: Catalog,
    files: Files | Fetched,
    names: Sequence[str],
    steps: Sequence[int] | None = None,
    workers: Sequence[str] | None = None,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    cancel: Cancel | None = None,
) -> dict[str, Any]:
    """Compute statistics of many tensors at many steps, as columns.

    One row per (name, step, worker) with a numeric value, ordered as in `sweep`. `update` is the change since the
    previous one of `steps` at which the same worker saved the tensor with the same dtype and shape.

    Args:
        catalog: Catalog of the run.
        files: Event files of the run, or records that were fetched.
        names: Names of tensors.
        steps: Global steps; None for all.
        workers: None for the first worker by name that has the tensor, `[]` for all workers.
        threads: Number of threads; None for one per core.
        progress: Called as `progress(bytes done, total bytes)` about ten times a second in the calling thread.
        cancel: Cancels the sweep from another thread.

    Returns:
        Columns "name", "worker" (object arrays of str), "step", "mode", "mode_step" (int64), those of `statistics_of`,
        and "error": list of (name, step, worker, exception).
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
    """Read the values of many rows, and list errors as (row, exception).

    Each record is read once.

    One array (rows, *shape) if all dtypes and shapes agree and no row failed; else a list with None for rows without a
    value and for failed rows."""

def heads(
    catalog: Catalog,
    files: Files | Fetched,
    rows: Sequence[_Row],
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    cancel: Cancel | None = None,
) -> tuple[list[tuple[str, tuple[int, ...]] | None], list[tuple[int, BaseException]]]:
    """Read (dtype name, shape) of many rows, from the first bytes of each record."""

def part(files: Files | Fetched, entry: Entry, first: int, end: int, verify: bool = True) -> NDArray[Any] | None:
    """Read the rows `first` to `end` (exclusive) of one tensor, along its first axis.

    `verify` reads a record that has a checksum whole, in pieces of 8 MiB, and checks it; otherwise only the rows are
    read. None if the rows are no byte range of the record: a scalar, strings, numbers that are not stored as raw bytes,
    or no elements."""

def verify(
    catalog: Catalog,
    files: Files | Fetched,
    steps: Sequence[int] | None = None,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    cancel: Cancel | None = None,
) -> dict[str, Any]:
    """Verify every record of these steps: framing, names, checksums, shapes.

    Returns counts: "records", "bytes", "footer_constant", "footer_crc" (footers that are valid checksums), "index_crc"
    (verified against the index), "unverifiable" (without any checksum), and "errors": list of (name, step, worker,
    exception)."""

# ---------------------------------------------------------------- reductions

def reduce(
    buffer: _Buffer, dtype: str | None = None, names: Sequence[tuple[str, bool]] | None = None
) -> dict[tuple[str, bool], np.generic | None]:
    """Compute all 18 reductions of an array, or those in `names`, in one pass.

    The keys of the result are (name, of |x|).

    Values are numpy scalars with numpy's result dtypes; bfloat16 requires ml_dtypes, else it becomes float32. Those of
    types of 8 and 4 bits are float32. Norms are over all elements; std and variance divide by n. The minimum and the
    maximum of an empty array are None. `dtype` is required for bytes (little-endian).

    >>> reduce(np.array([3.0, -4.0], dtype=np.float32), names=[("l2", False), ("min", True)])
    {('l2', False): np.float32(5.0), ('min', True): np.float32(3.0)}
    """

def reduction(buffer: _Buffer, name: str, abs: bool = False, dtype: str | None = None) -> np.generic:
    """Compute one reduction of an array, or of its magnitudes.

    ValueError for the minimum or maximum of an empty array.

    >>> reduction(np.array([3.0, -4.0]), "l1")
    np.float64(7.0)
    """

def norm(buffer: _Buffer, dtype: str | None = None) -> float:
    """Compute the l2 norm of all elements in double precision.

    Of float32 this takes a third of the time of `reduction`.

    >>> norm(np.array([3.0, -4.0], dtype=np.float32))
    5.0
    """

def norm_of_gradients(parameters: list[Any], class_: type, most: int) -> float | None:
    """Compute the l2 norm of gradients of PyTorch in double precision.

    Args:
        parameters: the parameters.
        class_: the class that every gradient has: `torch.Tensor`.
        most: the largest number of elements.

    Returns:
        None if a gradient is missing, of another class, not contiguous, not float32 or not on the CPU, if there are
        more elements, or if this release of PyTorch lacks DLPack's exchange interface.
    """

def widen(buffer: _Buffer, dtype: str) -> NDArray[np.float32]:
    """Convert elements of a type that NumPy lacks to float32.

    The values are exact. The types are bfloat16 and those of 8 and 4 bits. The shape is that of an array whose elements
    have the size of the type.

    >>> widen(np.array([0x38, 0x7E], dtype=np.uint8), "float8_e4m3fn")
    array([  1., 448.], dtype=float32)
    """

def stats(buffer: _Buffer, dtype: str | None = None) -> dict[str, int | float]:
    """Compute counts (n, nan, pos_inf, neg_inf, zeros) and min, max, mean, std, l2.

    For complex arrays, these are of magnitudes.

    >>> stats(np.array([1.0, np.nan, 0.0]))["nan"]
    1
    """

# ---------------------------------------------------------------- compacted index

@final
class ManifestRoot:
    """The root file of a compacted index: its folders and their index files."""

    def __new__(cls, file: str, data: bytes) -> Self:
        """Parse and check the file; ``file`` names it in errors."""
    def folders(self) -> list[tuple[int, int, bytes, bytes, bytes | None]]:
        """The folders, ascending.

        Each is (number, size, SHA-256 of the content, of the ETags, of the modification times).
        """
    def keys(self, at: int) -> list[str]:
        """The keys of the index files of a folder, given its place in `folders`."""

def manifest_root(folders: Sequence[tuple[tuple[int, int, bytes, bytes, bytes | None], Sequence[str]]]) -> bytes:
    """Encode the root file of a compacted index.

    Takes the folders, and the keys of the index files of each.
    """

def manifest_folder(files: Sequence[tuple[str, bytes]], threads: int | None = None) -> bytes:
    """Encode index files (key, content) as a folder of a compacted index.

    Malformed ones are left out.
    """

def manifest_differences(file: str, data: bytes, files: Sequence[tuple[str, bytes]]) -> list[tuple[str, str]]:
    """Compare a folder of a compacted index with index files (key, content).

    Returns the differences as (key, what differs).
    """

# ---------------------------------------------------------------- statistics

def tensor_statistics(
    array: _Buffer, previous: _Buffer | None = None, dtype: str | None = None
) -> dict[str, int | float]:
    """Compute the statistics of a tensor in one pass.

    They are the counts of all elements (`count`, `nan`, `neg_inf`, `pos_inf`, `zeros`); `min`, `max`, `mean`, `std`
    (over n), `l1`, `l2` and `abs_max` of the finite elements; and `update`, the L2 norm of the change since `previous`,
    an array of the same shape and dtype. Numbers are float64, not rounded to the array's dtype. Complex elements count
    by magnitude. Without finite elements, norms are 0 and the other numbers NaN; without `previous`, `update` is NaN.
    For a type of 8 or 4 bits, `saturated` counts elements whose magnitude is the largest finite one, and `subnormal`
    those between zero and the least normal number; they are 0 for other types.

    >>> found = tensor_statistics(np.array([3.0, np.nan, -4.0]), np.array([0.0, 1.0, 0.0]))
    >>> found["count"], found["nan"], found["min"], found["l2"], found["update"]
    (3, 1, -4.0, 5.0, 5.0)
    """

def statistics_of(
    arrays: Sequence[_Buffer],
    previous: Sequence[_Buffer | None] | None = None,
    dtypes: Sequence[str] | None = None,
    threads: int = 1,
) -> dict[str, NDArray[Any]]:
    """Compute the statistics of many tensors, as columns with one row per array.

    The columns are those of `tensor_statistics`: int64 counts and float64 numbers. The GIL is released. `dtypes` is
    needed for buffers of bytes.

    >>> columns = statistics_of([np.ones(3), np.zeros((2, 2))])
    >>> columns["count"].tolist(), columns["l2"].tolist()
    ([3, 4], [1.7320508075688772, 0.0])
    """

def combine_statistics(
    columns: dict[str, NDArray[Any]], wholes: Sequence[int] | None = None
) -> dict[str, NDArray[Any]]:
    """Combine the statistics of distinct parts of tensors.

    `wholes` gives the number of the tensor to which each row belongs; by default, all rows are parts of one tensor. The
    result has one row per tensor, by ascending number. Counts and extremes are exact. `update` is NaN unless all parts
    have one. `l2` and `abs_max` are derived where their columns are missing; `saturated` and `subnormal` are then 0.

    >>> parts = statistics_of([np.array([1.0, 2.0]), np.array([9.0])])
    >>> whole = combine_statistics(parts)
    >>> whole["count"].item(), whole["mean"].item(), whole["max"].item()
    (3, 4.0, 9.0)
    """

@final
class StatisticsWriter:
    """Write the statistics of one worker's tensors.

    The files are `statistics/<worker>/<segment>.arrows`, `.commit` and `.names.jsonl`. Every writer begins a new
    segment; no file is created before the first flush. Rows are written after `steps` steps, at about `size` bytes, or
    `seconds` after the first of them was appended, whichever is first; and by `flush` and `close`. A segment ends at
    `segment` bytes. Thread-safe. After a failed write (such as on a full disk), rows stay pending until there are 16
    times `size` bytes; then they are discarded and counted in `lost`. A forked process leaves files and pending rows to
    its parent and begins another segment.

    >>> import tempfile
    >>> with StatisticsWriter(run := tempfile.mkdtemp()) as writer:
    ...     weight = writer.add("fc.weight", "float32", (2, 2), "weights")
    ...     writer.append(0, [weight], statistics_of([np.ones((2, 2), np.float32)]))
    """

    def __new__(
        cls,
        root: str | PathLike[str],
        worker: str = "worker_0",
        *,
        steps: int = 64,
        size: int = ...,
        seconds: float = 2.0,
        segment: int = ...,
        fsync: bool = False,
    ) -> Self: ...
    def add(
        self, name: str, dtype: str = "", shape: Sequence[int] = ..., collection: str = "", order: int | None = None
    ) -> int:
        """Return the number of a tensor. The other arguments describe it when it is new."""

    def append(
        self,
        step: int,
        tensors: Sequence[int],
        columns: dict[str, NDArray[Any]],
        mode: int = 4,
        mode_step: int | None = None,
        flags: Sequence[int] | None = None,
    ) -> None:
        """Append statistics of a step, one row per tensor, and write what is due.

        `columns` are those of `statistics_of`. Flags state why numbers are NaN: 1 absent, 2 skipped, 4 sampled, 8
        failed.
        """

    def append_steps(
        self,
        steps: Sequence[int],
        modes: Sequence[int],
        mode_steps: Sequence[int],
        tensors: Sequence[int],
        columns: dict[str, NDArray[Any]],
    ) -> None:
        """Append rows of several steps; those of one step follow each other."""

    def flush(self) -> None:
        """Write pending rows."""

    def seconds_until_flush(self) -> float | None:
        """Return when pending rows should be flushed, or None if there are none."""

    def close(self) -> None:
        """Write pending rows and end the segment. Repeated calls do nothing."""

    @property
    def path(self) -> Any:
        """The path of the current segment, or None before the first flush."""

    @property
    def written(self) -> int:
        """Bytes written."""

    @property
    def pending(self) -> int:
        """Rows that are not written yet."""

    @property
    def lost(self) -> int:
        """Rows that were discarded because they could not be written."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, class_: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class Pyramid:
    """Bins of a worker's tensors at all levels, and the records for findings.

    It is opened once; `bins` reads what a view needs.
    """

    def __new__(cls, files: Files | Fetched, worker: str) -> Self: ...
    @staticmethod
    def write(
        files: Files | Fetched,
        reader: StatisticsReader,
        worker: str,
        path: str,
        whole: Sequence[str] = ...,
        progress: Callable[[int, int], object] | None = None,
        growing: int | None = None,
    ) -> int:
        """Write the pyramid of a worker to a path, and return its size.

        A file that has the pyramid of earlier rows is continued. It keeps all records of the tensors in `whole`.
        `progress` is called with the rows done and their total; an exception ends the work and leaves the file as it
        was. With `growing`, rows of the last step may follow, and the file grows by about so many rows at most.

        Raises ValueError if another process writes the file, or if steps were written again in a way that cannot be
        merged in one pass.
        """

    def belongs_to(self, reader: StatisticsReader, worker: str) -> bool:
        """Return whether it was made of these statistics, which may have later steps."""

    def is_current(self, reader: StatisticsReader, worker: str) -> bool:
        """Return whether it has all of these statistics."""

    @property
    def covered(self) -> list[tuple[int, int, int, int]]:
        """Number, batches, end and checksum of each segment whose tensors it has."""

    @property
    def levels(self) -> tuple[int, int]:
        """The lowest and the highest level. Higher ones are merged when they are read."""

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last step."""

    @property
    def size(self) -> int:
        """Size of the file."""

    @property
    def rows(self) -> tuple[int, int]:
        """Number of rows of statistics, and of records for which there was no room."""

    def names(self) -> list[str]:
        """Return the names of the tensors."""

    def series(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the number of the tensor, and the mode, of each series."""

    def starts(self) -> dict[str, NDArray[Any]]:
        """Return where each tensor starts.

        The columns are the first size and norm, their steps, and whether the tensor has several elements.
        """

    def sizes(self) -> NDArray[np.float32]:
        """Return the last 32 sizes of each series, one series after the other.

        They are logarithms, from the oldest one on; NaN is none. What follows is compared with them.
        """

    def records(self) -> dict[str, NDArray[Any]]:
        """Return the records that findings are made of, as columns."""

    def bins(
        self, series: Sequence[int], owners: Sequence[int], measure: str, level: int, first: int, rows: int, count: int
    ) -> dict[str, NDArray[Any]]:
        """Merge series into the bins of rows.

        The columns lo, mid, hi, n and flag have one row after the other.
        """

    def read_ahead(self, series: Sequence[int], measure: str, level: int, first: int, count: int) -> None:
        """Read from a store at once what `bins` will ask for in several parts.

        Nothing is read if that is very much.
        """

@final
class StatisticsReader:
    """Read the statistics of a run, also while it grows. Thread-safe; never writes.

    >>> reader = StatisticsReader()
    >>> reader.refresh(Files("."), []), reader.workers()
    (False, [])
    """

    def __new__(cls) -> Self: ...
    def refresh(self, files: Files | Fetched, keys: Sequence[str], sizes: Sequence[int | None] | None = None) -> bool:
        """Read what is new, given the keys of the files under `statistics/`.

        Files of which sizes are given are not asked for if they have not grown. Returns whether there was anything.
        """

    def segment_index(self, worker: str) -> bytes | None:
        """Return the index of a worker's segments; None of a single segment."""

    def workers(self) -> list[str]:
        """Return the workers with statistics, by their names in files."""

    def names(
        self, files: Files | Fetched, pyramids: Sequence[tuple[str, list[tuple[int, int, int, int]], int]] = ...
    ) -> list[tuple[str, str, tuple[int, ...], str, int | None]]:
        """Return (name, dtype, shape, collection, order) of each tensor.

        Those of segments that the pyramids of workers cover up to a step are left out, and not read.
        """

    def size(self) -> tuple[int, int, int]:
        """Return the numbers of batches, rows and bytes."""

    def read(
        self,
        files: Files | Fetched,
        names: Sequence[str] | None = None,
        steps: Sequence[int] | None = None,
        workers: Sequence[str] | None = None,
        mode: int | None = None,
    ) -> dict[str, Any]:
        """Read rows as columns.

        They are name, step, mode (number), mode_step, worker, flags, and those of `statistics_of`.

        Rows are sorted by name (in the order of the file), step and worker. Where a step was written again, the later
        row counts. `error` is a list with an exception per batch that cannot be read.
        """

    def scan(
        self, files: Files | Fetched, after: int = ..., progress: Callable[[int, int], object] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the later steps with rows, and those at which values are first lost.

        At the latter, values of some tensor are not finite for the first time.

        Batches that cannot be read are left out. `progress` is called with the rows done and their total; what it
        raises ends the work, and so does Ctrl-C.
        """

    def dropped(self, files: Files | Fetched) -> list[tuple[str, int, bool]]:
        """Return what follows the last complete batch of streams.

        The result has (key, bytes, whether a later segment follows) for each stream with such bytes.

        In the last segment of a worker that is still running, they may be a batch that is being written.
        """

    def problems(self) -> list[tuple[str, str]]:
        """Return (key, reason) of each segment that cannot be read."""

    def verify(self, files: Files | Fetched) -> list[BaseException]:
        """Check every batch and return the errors."""

# ---------------------------------------------------------------- pictures

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
    """Compute a histogram with given edges, or a number of bins (256) over a range.

    The default range is that of the finite elements. `scale` is "linear", "log" (of positive elements; others count as
    under), "symlog" (linear up to about `linear`, logarithmic beyond; 0 for automatic) or "auto" (linear, or symlog if
    a few elements are far from the rest). Bins are half-open except the last, as in numpy. Complex elements, and with
    `magnitude` all elements, are counted by magnitude.

    The keys are edges, counts (arrays), under, over, n, nan, pos_inf, neg_inf, zeros, scale and linear. Zeros are also
    in their bin.

    >>> histogram(np.array([0.0, 1.0, 1.0, np.nan]), bins=2)["counts"].tolist()
    [1, 2]
    """

def precision_loss(buffer: _Buffer, format: str, scaled: bool = True) -> dict[str, Any]:
    """Count what a format of 4 or 8 bits makes of float32 elements.

    `format` is "e4m3", "e5m2", "mxfp8" or "nvfp4". `scaled`: whether e4m3 and e5m2 have a scale for the tensor. Returns
    "nonzero", "zeros", "not_finite", "flushed", "saturated", and the sums of squares "error" and "power".

    >>> precision_loss(np.array([1.0, 1e-9], np.float32), "e4m3")["flushed"]
    1
    """

def precision_cast(buffer: _Buffer, format: str) -> bytes:
    """Cast float32 elements to a format of 8 or 4 bits, as ml_dtypes does.

    The format is "e4m3", "e5m2" or "e2m1"; an element takes one byte.

    >>> precision_cast(np.array([1.0, -448.0], np.float32), "e4m3").hex()
    '38fe'
    """

def percentiles(buffer: _Buffer, q: Sequence[float], dtype: str | None = None) -> NDArray[np.float64]:
    """Compute exact percentiles (0 to 100), as numpy.nanpercentile, in bounded memory.

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
    """Pool a plane through an array to an image.

    The image has at most `size` (height, width) cells, by default 1024 x 1024.

    The plane has two axes (by default the last two), `fixed` indices on the others (by default 0), and is clipped to
    `rows` and `columns`. `pool` is "mean", "min", "max" or "maxabs" (largest magnitude, signed). A cell with a NaN is
    NaN, else one with an infinity is that infinity, +inf before -inf.

    The image is float32, or palette codes within `limits` (low, high; by default those of the image): "uint8" uses 0 to
    252 for finite cells, 253 for -inf, 254 for +inf, 255 for NaN; "uint16" 0 to 65532, 65533, 65534, 65535.

    The keys are image, rows, columns (shown range), min, max (of finite cells; NaN without any) and limits.

    >>> pooled(np.array([[1.0, 3.0], [5.0, 7.0]]), size=(2, 1))["image"].tolist()
    [[2.0], [6.0]]
    """

def difference(a: _Buffer, b: _Buffer, most: int = 0, dtypes: tuple[str, str] | None = None) -> dict[str, Any]:
    """Subtract `b` from `a`, and find the elements that changed most.

    Both have the same shape; their dtypes may differ. The difference is float64, complex128 if one of them is complex.
    Each element is rounded once; differences of 64-bit integers are those of integers.

    The keys are value (the difference), changed (number of elements that changed) and top: the positions in C order of
    the `most` (at most 65,536) elements that changed most, largest magnitude first, of equal ones the first. An element
    that is not finite in one of the two, or is another infinity, changed most of all; a NaN in both is unchanged.

    >>> found = difference(np.array([1, 2, 5], np.int8), np.array([1.0, 4.0, 4.5]), most=8)
    >>> found["value"].tolist(), found["changed"], found["top"].tolist()
    ([0.0, -2.0, 0.5], 2, [1, 2])
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
    """Copy a region of a plane through an array to a 2-D array.

    The region has at most 4,194,304 elements.

    The plane is selected as in `pooled`.

    >>> window(np.arange(12).reshape(3, 4), rows=(1, 3), columns=(0, 2)).tolist()
    [[4, 5], [8, 9]]
    """

def sample(buffer: _Buffer, most: int = 1000, dtype: str | None = None) -> tuple[NDArray[np.float64], int]:
    """Sample at most `most` elements, evenly spaced in C order.

    Returns them with their stride.

    >>> sample(np.arange(10), 4)
    (array([0., 3., 6., 9.]), 3)
    """

# ---------------------------------------------------------------- object stores

class StoreError(Exception):
    """A failed operation of an object store: key, code and reason.

    The codes: "missing", "no_bucket", "denied", "credentials", "expired", "changed" (another ETag than expected),
    "range" (no byte there), "busy" (503 or 429 until the time was over), "fault" (5xx), "connect", "timeout", "broken"
    (connections or answers ended early), "region", "too_large", "cancelled", "other".
    """

_Listed: TypeAlias = list[tuple[str, int, float, str]]
"""Key, size, seconds since 1970 and ETag of objects."""

_Read: TypeAlias = list[tuple[bytes, str] | StoreError]
"""Content and ETag, or the error, of each range."""

@final
class ObjectStore:
    """A bucket of S3, Google Cloud Storage or Azure, or a directory of a web server.

    `url` is `s3://bucket`, `gs://bucket`, `az://container`, `abfs[s]://container@account.dfs.core.windows.net` or
    `http[s]://host/path/`. `options` are those of the Rust crate object_store by name (`aws_region`, `aws_endpoint`,
    `allow_http`, `proxy_url`, ...), and: `timeout` (seconds of an operation with all repeats; 120), `read_timeout` (of
    silence; 10), `connect_timeout` (5), `ca_file`, `proxy_ca_file`, and `header:NAME` for a header of all requests.

    `credentials` returns {"key_id", "secret", "token"} for S3, {"token"} for Google Cloud Storage, and one of "token",
    "sas" and "key" for Azure. A thread that waits for an operation calls it: at the first operation, from 50 seconds
    after its last answer, and once after the server refused its credentials.

    Every wait ends with Ctrl-C, `close` and the time; failures that may pass are repeated. At most `concurrency`
    requests are in flight, fewer while the server asks for that. Objects may be used in forked children.

    Keys are used as they are. ETags are without quotes, except weak ones. Keys that begin or end with "/" or have "."
    or ".." as a component are only listed.
    """

    def __new__(
        cls,
        url: str,
        options: Mapping[str, str] = ...,
        *,
        credentials: Callable[[], Mapping[str, str | None]] | None = None,
        concurrency: int = 64,
    ) -> ObjectStore: ...
    def list(self, prefix: str, start_after: str = "", limit: int = 0) -> _Listed:
        """Return (key, size, seconds since 1970, ETag) of objects, in order.

        Their keys begin with `prefix` and are above `start_after`. At most `limit`, unless that is 0."""
    def pages(self, prefix: str, start_after: str = "") -> Pages:
        """Yield the same by pages of up to 1,000, each requested when it is needed.

        A page may be empty."""
    def folder(self, folder: str) -> tuple[Sequence[str], Sequence[tuple[str, int, float, str]]]:
        """Return the folders in a folder, and its objects as `list` does.

        Its name ends with a slash; that of the root is empty. The folders' names do not."""
    def head(self, key: str) -> tuple[int, float, str] | None:
        """Return (size, seconds since 1970, ETag) of an object, or None."""
    def get(self, key: str, limit: int) -> tuple[bytes, str]:
        """Return the content and the ETag of an object.

        An error, before its content is read, if it has more than `limit` bytes."""
    def get_range(self, key: str, offset: int, length: int, etag: str = "") -> tuple[bytes, str]:
        """Return the bytes of a range that exist, and the ETag.

        An error if that is not `etag`, unless `etag` is empty."""
    def get_many(self, keys: Sequence[str], limit: int) -> Contents:
        """Yield (key, content or StoreError) in the order of arrival.

        At most twice `concurrency` contents are in memory."""
    def get_ranges(self, ranges: Sequence[tuple[str, int, int]], etags: Mapping[str, str] = ...) -> _Read:
        """Return the result of `get_range` for each (key, offset, length), or its error.

        Ranges of an object that are at most 1 MiB apart are read together, in pieces of up to 8 MiB. `etags` are those
        expected by key. The ranges of an object that changes in between are errors."""
    def put(self, key: str, content: bytes, if_match: str | None = None) -> str:
        """Write an object and return its ETag.

        With an ETag as `if_match`, only over the object that has it; with "", only if there is none. Otherwise the
        error's code is "changed"."""
    def put_file(self, key: str, path: str | PathLike[str]) -> str:
        """Upload a file and return its ETag.

        Files above 16 MiB are uploaded in parts, which are removed if that fails."""
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are no error."""
    def requests(self) -> tuple[int, int, int, int, int, int, int]:
        """Return numbers of requests and of bytes received.

        Lists, GETs, HEADs, PUTs, DELETEs, repeats among these, bytes."""
    def close(self) -> None:
        """End all operations of this process; later ones fail with the code "cancelled"."""

@final
class Pages:
    """The pages of a listing."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _Listed: ...

@final
class Contents:
    """Contents of objects, in the order of arrival."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[str, bytes | StoreError]: ...
    def close(self) -> None:
        """Cancel the reads that are not done."""
