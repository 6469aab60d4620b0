"""Send an opened run to other processes: its path, and its catalog as columns.

A process that receives it reads no index files. It opens the run once, and reads all parts that it receives through it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.config.collection_manager import CollectionManager
from smdwidgets.exceptions import CorruptDataError, SMDebugError, VersionMismatch
from smdwidgets.storage.address import is_address
from smdwidgets.trials.reader import RunReader

#: Limit on a catalog's columns, above those of a run of 100,000 steps and 300 tensors.
LARGEST_COLUMNS: Final = 2 << 30
#: Total size of the columns of the catalogs that a process keeps.
KEPT_COLUMNS: Final = 16 << 20
#: Number of parts, and of runs, that a process keeps open.
_KEPT_PARTS: Final = 1000
_KEPT_RUNS: Final = 64


class _Snapshot(NamedTuple):
    """What the files of a run say beside the catalog."""

    #: None in a part of a run, which needs no collections.
    manager: CollectionManager | None
    num_workers: int
    workers: frozenset[str]
    until: int


@dataclass(frozen=True)
class Shipment:
    """An opened run, or a part of it, for another process. Made by :func:`pack`.

    It can be pickled and contains no credentials. It is a snapshot: steps that are written later are not in it.

    >>> import smdwidgets, pickle, tempfile
    >>> from smdwidgets.numpy import Hook
    >>> with Hook(folder := tempfile.mkdtemp()) as hook:
    ...     hook.save_scalar("loss", 0.5)
    >>> shipment = pack(smdwidgets.create_trial(folder).reader)
    >>> pickle.loads(pickle.dumps(shipment)).open().tensor("scalar/loss").value(0)
    array([0.5])
    """

    #: Version of smdwidgets that made it. Only the same version opens it.
    version: str
    #: Path or URL of the run.
    path: str
    #: Last global step of the snapshot; None if there are no steps.
    last_step: int | None
    #: Whether the run had ended, so that the snapshot is complete.
    ended: bool
    #: A hash of the content.
    identity: str
    #: A hash of what opens the run; all parts of a run have the same.
    run_identity: str
    #: Pickled function, arguments and options that open the run.
    reopening: bytes = field(repr=False)
    #: Compressed facts about the run that are not in the catalog.
    snapshot: bytes = field(repr=False)
    #: Compressed columns of the catalog; empty for a run that is reopened from its files.
    catalog: bytes = field(repr=False)
    #: Bytes of the columns, decompressed.
    columns: int = field(repr=False)

    def check_version(self) -> None:
        """Check that this version of smdwidgets made it.

        Raises :class:`~smdwidgets.exceptions.VersionMismatch`.
        """
        if self.version != _core.__version__:
            raise VersionMismatch(
                f"this process has smdwidgets {_core.__version__}, but got a run from smdwidgets {shown(self.version, 40)}; "
                "install the same version in both"
            )

    def open(self) -> Any:
        """Return the :class:`~smdwidgets.Trial` of the snapshot.

        It does not check for new steps. A process opens each run once, and keeps the catalogs used last.
        """
        self.check_version()
        return _opened.trial(self)

    @property
    def size(self) -> int:
        """Bytes that are sent."""
        return len(self.reopening) + len(self.snapshot) + len(self.catalog)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "smdwidgets.Shipment", self.identity

    def read_catalog(self) -> _core.Catalog:
        """Return the decompressed catalog."""
        if not 0 <= self.columns <= LARGEST_COLUMNS:
            raise CorruptDataError(f"the catalog of {shown(self.path)} has an invalid size of {self.columns} bytes")
        try:
            columns = zlib.decompressobj().decompress(self.catalog, self.columns + 1)
        except zlib.error as error:
            raise CorruptDataError(f"cannot decompress the catalog of {shown(self.path)}: {error}") from None
        return _core.Catalog.from_columns(columns)


def pack(reader: RunReader, names: Iterable[str] | None = None, steps: Iterable[int] | None = None) -> Shipment:
    """Return a run, or a part of it, to send to another process.

    A part has no collections. A run in another format is reopened whole.

    Args:
        reader: reader of an open run.
        names: names of tensors; None: all.
        steps: global steps; None: all.

    >>> client.submit(lambda shipment: shipment.open().steps(), pack(trial.reader))    # doctest: +SKIP
    """
    reader.maybe_refresh()
    reader.load()
    if reader.reopening is None:
        raise SMDebugError(f"cannot send the run {shown(reader.path)} to another process: it was not opened by a trial")
    *reopening, has_catalog = reader.reopening()
    compressed, columns = b"", 0
    if has_catalog and reader.run.catalog is not None:
        selection = (None if names is None else list(names)), (None if steps is None else list(steps))
        catalog = reader.run.catalog.to_columns(*selection)
        if len(catalog) > LARGEST_COLUMNS:
            raise SMDebugError(f"the catalog of {shown(reader.path)} is larger than 2 GiB; select names or steps")
        # A higher level saves 2 % in three times the time.
        compressed, columns = zlib.compress(catalog, 1), len(catalog)
    manager = reader.collection_manager if names is None and steps is None else None
    snapshot = _Snapshot(manager, reader.num_workers, reader.collection_workers, reader.complete_until)
    try:
        opens, about = pickle.dumps(tuple(reopening)), zlib.compress(pickle.dumps(snapshot))
    except Exception as error:
        raise SMDebugError(f"cannot send the trial of {shown(reader.path)} to another process: {error}") from error
    last, ended = reader.index.last_step(), reader.loaded_all_steps
    run_identity = hashlib.sha256(opens).hexdigest()
    identity = hashlib.sha256(b"".join((opens, about, compressed, repr((last, ended)).encode()))).hexdigest()
    version = _core.__version__
    return Shipment(version, reader.path, last, ended, identity, run_identity, opens, about, compressed, columns)


#: Options of a storage that shipped runs are read from, or a function that returns them for a URL.
StorageOptions = Mapping[str, Any] | Callable[[str], Mapping[str, Any]]


def use_storage_options(options: StorageOptions | None) -> None:
    """Set the options with which this process opens shipped runs in a bucket.

    They can be credentials. Without them a process finds credentials by itself, as :func:`smdwidgets.create_trial`
    does. None removes them.

    Args:
        options: keyword arguments of :func:`smdwidgets.create_trial`, or a function that returns them for a URL.

    >>> client.run(use_storage_options, {"endpoint_url": "http://10.0.0.5:9000"})    # doctest: +SKIP
    """
    _opened.options = options
    _opened.forget()


class _Opened:
    """The runs that this process has opened, and the parts of them."""

    def __init__(self) -> None:
        self.options: StorageOptions | None = None
        self.forget()

    def forget(self) -> None:
        """Open everything again.

        A forked child must not use the connections of its parent.
        """
        self._lock = threading.RLock()
        self._runs: OrderedDict[str, Any] = OrderedDict()
        self._parts: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def trial(self, shipment: Shipment) -> Any:
        with self._lock:
            known = self._parts.get(shipment.identity)
            if known is None:
                known = self._parts[shipment.identity] = self._part(shipment), shipment.columns
            self._parts.move_to_end(shipment.identity)
            kept = sum(size for _, size in self._parts.values())
            while len(self._parts) > 1 and (kept > KEPT_COLUMNS or len(self._parts) > _KEPT_PARTS):
                kept -= self._parts.popitem(last=False)[1][1]
            return known[0]

    def _part(self, shipment: Shipment) -> Any:
        opened = self._run(shipment)
        reader: RunReader = opened.reader
        manager, num_workers, workers, until = pickle.loads(zlib.decompress(shipment.snapshot))
        run: Any = reader.run
        if shipment.catalog:
            run = run.reading(shipment.read_catalog(), workers)
        manager = reader.collection_manager if manager is None else manager
        return opened.snapshot(reader.snapshot(run, manager, num_workers, workers, until, shipment.ended))

    def _run(self, shipment: Shipment) -> Any:
        opened = self._runs.get(shipment.run_identity)
        if opened is None:
            reopen, arguments, options = pickle.loads(shipment.reopening)
            if is_address(shipment.path) and self.options is not None:
                given = self.options(shipment.path) if callable(self.options) else self.options
                options = {**options, **given}
            opened = self._runs[shipment.run_identity] = reopen(*arguments, **options)
        self._runs.move_to_end(shipment.run_identity)
        while len(self._runs) > _KEPT_RUNS:
            self._runs.popitem(last=False)
        return opened


_opened = _Opened()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_opened.forget)
