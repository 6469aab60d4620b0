"""The Parquet file that is the catalog of a team's runs.

A row is a run: where it lies, who made it, its settings, the extremes of its curves, its findings. DuckDB, Polars,
Spark and pandas read the file without this package.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from smdwidgets._atomic import replace_file
from smdwidgets._text import shown
from smdwidgets.exceptions import CorruptDataError, RunFileMissing, RunIOError
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.scalars import describe
from smdwidgets.run_table.discovery import FoundRun
from smdwidgets.run_table.summary import VERSION, Summary
from smdwidgets.sources.arrow import arrow_and_parquet
from smdwidgets.sources.parquet import CATALOG
from smdwidgets.storage.address import is_address
from smdwidgets.storage.conditional import put_if
from smdwidgets.trials.discovery import RunFiles
from smdwidgets.trials.tensorboard.layout import Directory

if TYPE_CHECKING:
    import pyarrow

#: Key of the metadata with the version of the columns that this package alone reads.
_VERSION_KEY: Final = b"smdwidgets.summaries"
#: Names of hyperparameters that say who made a run, or from which commit, by the last part of the name.
_OWNERS: Final = ("owner", "user", "author", "username")
_COMMITS: Final = ("git_commit", "git_sha", "commit", "commit_hash", "git_hash", "sha")
#: Seconds after which a program that replaces a catalog has been killed.
_STALE: Final = 60.0


class CatalogChanged(RunIOError):
    """Another program wrote the catalog since it was read."""


def schema() -> pyarrow.Schema:
    """Return the columns of a catalog."""
    pa, _ = arrow_and_parquet("a catalog of runs")
    text, number, whole = pa.string(), pa.float64(), pa.int64()
    setting = pa.struct([("name", text), ("value", text), ("number", number)])
    curve = pa.struct(
        [
            ("name", text),
            ("count", whole),
            ("first", number),
            ("last", number),
            ("min", number),
            ("min_step", whole),
            ("max", number),
            ("max_step", whole),
            ("best", number),
            ("not_finite", whole),
        ]
    )
    finding = pa.struct(
        [
            ("id", text),
            ("kind", text),
            ("level", text),
            ("confidence", text),
            ("subject", text),
            ("first", whole),
            ("last", whole),
            ("title", text),
            ("state", text),
        ]
    )
    when = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            ("run", text),
            ("name", text),
            ("format", text),
            ("title", text),
            ("owner", text),
            ("group", text),
            ("tags", pa.list_(text)),
            ("git_commit", text),
            ("state", text),
            ("steps", whole),
            ("last_step", whole),
            ("started", when),
            ("duration", number),
            ("written", when),
            ("error", text),
            ("settings", pa.list_(setting)),
            ("curves", pa.list_(curve)),
            ("diagnosed", pa.bool_()),
            ("findings", pa.list_(finding)),
            ("signature", text),
            ("summary", text),
        ],
        metadata={_VERSION_KEY: str(VERSION).encode()},
    )


def row_of(found: FoundRun, run: str, summary: Summary, state: str, states: Mapping[str, str]) -> dict[str, Any]:
    """Return the row of a run.

    Args:
        found: the run.
        run: its directory relative to the prefix.
        summary: what the table of runs shows.
        state: its state.
        states: states of findings by id, from an earlier row.
    """
    settings, identity = summary["hparams"], summary.get("identity", {})
    findings = [{**one, "state": states.get(one["id"], "open")} for one in summary.get("findings", ())]
    files = None if found.files is None else _files_to_json(found.files)
    started = summary.get("started")
    return {
        "run": run,
        "name": found.name,
        "format": found.kind,
        "title": identity.get("name") or _text_of(settings, "wandb.name"),
        "owner": identity.get("owner") or _by_last_part(settings, _OWNERS),
        "group": identity.get("group") or _text_of(settings, "wandb.group"),
        "tags": [tag.strip() for tag in str(settings.get("wandb.tags") or "").split(",") if tag.strip()],
        "git_commit": identity.get("commit") or _by_last_part(settings, _COMMITS),
        "state": state,
        "steps": summary.get("steps"),
        "last_step": summary.get("last_step"),
        "started": None if started is None else int(started * 1e6),
        "duration": summary.get("duration"),
        "written": int(found.written * 1e6) or None,
        "error": summary.get("error"),
        "settings": [
            {"name": name, "value": _plain(value), "number": _number(value)} for name, value in settings.items()
        ],
        "curves": [_curve(name, about) for name, about in summary["tags"].items()],
        "diagnosed": "findings" in summary,
        "findings": findings,
        "signature": found.signature,
        "summary": json.dumps({"summary": summary, "files": files}, separators=(",", ":")),
    }


def _curve(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    best = "max" if describe(name).better == "higher" else "min"
    numbers = {key: _number(about.get(key)) for key in ("first", "last", "min", "max")}
    whole = {key: about.get(key) for key in ("count", "min_step", "max_step", "not_finite")}
    return {"name": name, **numbers, **whole, "best": numbers[best]}


def _number(value: Any) -> float | None:
    """Return a number; NaN and infinities are strings in a summary."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if not isinstance(value, str) or not math.isfinite(number) else None


def _plain(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else json.dumps(value)


def _text_of(settings: Mapping[str, Any], name: str) -> str | None:
    value = settings.get(name)
    return None if value is None else str(value)


def _by_last_part(settings: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the first setting whose last part is one of these names.

    >>> _by_last_part({"env.git_commit": "1a2b"}, ("git_commit",))
    '1a2b'
    """
    last = {name.lower().replace("/", ".").rpartition(".")[2]: value for name, value in settings.items()}
    return next((str(last[name]) for name in names if isinstance(last.get(name), str | int)), None)


def _files_to_json(files: RunFiles) -> dict[str, Any]:
    return {
        "of_hook": files.of_hook,
        # One file of a format is enough to open it: it finds the others again.
        "sources": {name: list(keys[:1]) for name, keys in files.sources.items()},
        "layout": [[one.path, one.worker, one.mode.value, one.suffix] for one in files.layout],
        "in_file": files.in_file,
    }


def files_from_json(content: Mapping[str, Any]) -> RunFiles:
    """Return the files of a run that a catalog has.

    >>> files_from_json({"of_hook": True, "sources": {}, "layout": []}).of_hook
    True
    """
    layout = [Directory(path, worker, ModeKeys(mode), suffix) for path, worker, mode, suffix in content["layout"]]
    return RunFiles(bool(content["of_hook"]), content["sources"], layout, bool(content.get("in_file")))


class CatalogFile:
    """The file of a catalog below a directory or an address.

    Args:
        root: the directory or address.
        connection: for a store, the fields of :class:`~smdwidgets.storage.Connection`.
    """

    def __init__(self, root: str, connection: Mapping[str, Any]) -> None:
        self.place = f"{root.rstrip('/')}/{CATALOG}" if is_address(root) else str(Path(root, CATALOG))
        self._root = root
        self._connection = connection
        self._version: Any = None

    def read(self, names: Sequence[str] | None = None) -> pyarrow.Table | None:
        """Return the rows; None without a catalog, or if its columns changed since.

        Args:
            names: the columns to read; None: all.

        Raises :class:`~smdwidgets.exceptions.CorruptDataError` if it is damaged.
        """
        content = self._content()
        if content is None:
            return None
        pa, parquet = arrow_and_parquet(f"the catalog {shown(self.place, 400)}")
        try:
            # `read_table` imports pandas, which takes longer than reading 10,000 runs.
            file = parquet.ParquetFile(pa.BufferReader(content))
            is_known = (file.schema_arrow.metadata or {}).get(_VERSION_KEY) == str(VERSION).encode()
            if not is_known or not set(schema().names) <= set(file.schema_arrow.names):
                return None
            return file.read(columns=None if names is None else [*names])
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptDataError(
                f"{shown(self.place, 400)}: damaged catalog: {error}; delete it to make a new one"
            ) from error

    def _content(self) -> bytes | None:
        if not is_address(self._root):
            try:
                self._version = _version(self.place)
                return Path(self.place).read_bytes()
            except FileNotFoundError:
                self._version = None
                return None
            except OSError as error:
                raise RunIOError(f"{shown(self.place, 400)}: {error.strerror or error}") from error
        with self._storage() as storage:
            head = storage.head(CATALOG)
            self._version = "" if head is None else head[2]
            try:
                return None if head is None else bytes(storage.read(CATALOG))
            except RunFileMissing:
                self._version = ""
                return None

    def write(self, table: pyarrow.Table) -> None:
        """Replace the file that was read; another program's is not replaced.

        Raises :class:`CatalogChanged` if it is another one than :meth:`read` found.
        """
        _, parquet = arrow_and_parquet("a catalog of runs")
        content = io.BytesIO()
        parquet.write_table(table, content, compression="zstd")
        if is_address(self._root):
            with self._storage() as storage:
                if not put_if(storage, CATALOG, content.getvalue(), self._version):
                    raise CatalogChanged(f"{shown(self.place, 400)}: written by another program meanwhile")
            return
        with self._alone():
            if _version(self.place) != self._version:
                raise CatalogChanged(f"{shown(self.place, 400)}: written by another program meanwhile")
            replace_file(Path(self.place), content.getvalue())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other programs from replacing the file in a directory."""
        lock = Path(f"{self.place}.lock")
        try:
            lock.open("x").close()
        except FileExistsError as error:
            with suppress(OSError):
                if time.time() - lock.stat().st_mtime > _STALE:
                    lock.unlink()  # its program was killed
            raise CatalogChanged(f"{shown(self.place, 400)}: another program writes it") from error
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)

    @contextmanager
    def _storage(self) -> Iterator[Any]:
        from smdwidgets.storage.connection import Connection  # imported for stores only

        storage = Connection(**self._connection).storage(self._root)
        try:
            yield storage
        finally:
            storage.close()


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        about = Path(path).stat()
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns, about.st_ino
