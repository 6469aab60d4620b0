"""Say which files are in a place without a run, and why none of them is one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from smdwidgets._text import listed, shown
from smdwidgets.exceptions import EMPTY_DIRECTORY, RunIOError
from smdwidgets.sources.layout import BOM, distinct, json_row, split, step_column
from smdwidgets.sources.registry import formats
from smdwidgets.sources.source import Refusal
from smdwidgets.sources.tables import SUFFIXES as TABLES
from smdwidgets.sources.text_logs import ENOUGH, MARKDOWN
from smdwidgets.sources.text_logs import SUFFIXES as LOGS
from smdwidgets.sources.tree import HEAD, Tree

#: Endings of tables and logs of text.
_TEXT: Final = (*TABLES, *(ending for ending in LOGS if ending not in TABLES))
_READ: Final = (
    "CSV, TSV, Parquet and JSON lines with a column of steps, CSV and TSV of losses, trainer_state.json, JSON histories, MLflow, W&B, trackio, Comet's archives, Neptune's "
    "exports, safetensors, PyTorch "
    "checkpoints, also distributed ones, NumPy archives of a step, "
    "text logs of trainings, and tables of Markdown"
)
_SEPARATORS: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a vertical bar"}
_NO_LOG: Final = (
    f"no log of a training: no name of a loss, metric or learning rate has a number in {ENOUGH} lines or more, as in "
    "'epoch 3: train loss = 0.5'."
)
#: Marks at the beginning of a text in another encoding.
_MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
#: Files by their first bytes that are of no use as they are, and what to do.
_KINDS: Final = {
    b"\x1f\x8b": "a gzip file; unpack it with: gunzip",
    b"\x28\xb5\x2f\xfd": "a Zstandard file; unpack it with: unzstd",
    b"\xfd7zXZ": "an xz file; unpack it with: unxz",
    b"\x89HDF": "an HDF5 file, which is not read",
    b"version https://git-lfs": "a pointer of Git LFS; get the file with: git lfs pull",
    b"<!DOCTYPE": "an HTML page",
    b"<html": "an HTML page",
}
#: The hidden directory of Aim's storage.
_AIM: Final = ".aim"
#: Endings of files that are opened to say why they are not read. Images and other data are only counted.
_OPENED: Final = (
    *_TEXT,
    *(
        ".safetensors",
        ".pt",
        ".pth",
        ".ckpt",
        ".bin",
        ".distcp",
        ".npz",
        ".pkl",
        ".db",
        ".sqlite",
        ".sqlite3",
        ".wandb",
    ),
    *(".gz", ".zst", ".xz", ".zip", ".h5", ".hdf5", ".keras", ".parquet"),
)
#: Files whose reasons are listed, and files that are opened to find them.
_LISTED: Final = 4
_MOST_OPENED: Final = 100


class NotRead(NamedTuple):
    """A file that no format reads."""

    key: str
    refusal: Refusal


def why_not_read(path: str) -> str:
    """Return what is wrong with a file that no format recognizes.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".csv") as empty:
    ...     why_not_read(empty.name)
    'the file is empty'
    """
    tree = Tree(path)
    return _refusal(tree, tree.keys[0]).reason if tree.keys else "cannot read the file"


def why_no_run(path: str) -> str:
    """Return what a directory has in place of a run: its files, and why none is read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "trainer_state.json").write_text('{"log_history": [{"step": 1, "lo')
    ...     why_no_run(folder)
    "none of its files is one of a run: 'trainer_state.json': JSON ends at byte 32: Unterminated string"
    """
    storage = next((one for one in (Path(path), Path(path, _AIM)) if one.name == _AIM and one.is_dir()), None)
    if storage is not None:
        return (
            f"{shown(str(storage), 400)} is the storage of Aim, a RocksDB database, which is not read; write its metrics to "
            "tables as docs/sources.md shows, in the section on Aim"
        )
    tree = Tree(path)
    if not tree.keys:
        return "the directory contains no files" if any(Path(path).iterdir()) else EMPTY_DIRECTORY
    return of_files(refused_files(tree), tree.keys)


def of_objects(keys: Sequence[str]) -> str:
    """Return what is below a prefix of a store without a run.

    >>> of_objects([]), of_objects(["a.png", "b.png"])[:53]
    ('no object has this prefix', 'none of its 2 objects (2 *.png) is one of a run; read')
    """
    return of_files([], keys, "objects") if keys else "no object has this prefix"


def of_store(tree: Tree) -> str:
    """Return which objects are below a prefix without a run, and why."""
    return of_files(refused_files(tree), tree.keys, "objects")


def of_files(refused: Sequence[NotRead], keys: Sequence[str], what: str = "files") -> str:
    """Return which files are in a place without a run, and why some are not read."""
    named = [f"{shown(one.key, 200)}: {one.refusal.reason.removesuffix('.')}" for one in refused[:_LISTED]]
    others = Counter(_ending(key) for key in keys)
    others.subtract(_ending(one.key) for one in refused[:_LISTED])
    rest = [f"{count:,} {ending}" for ending, count in others.most_common() if count > 0]
    more = f"{len(keys) - len(named):,} more ({listed(rest, 5)})" if rest and named else ""
    if not named:
        return f"none of its {len(keys):,} {what} ({listed(rest, 5)}) is one of a run; read are {_READ}"
    return "none of its files is one of a run: " + "; ".join([*named, *([more] if more else [])])


def _ending(key: str) -> str:
    ending = Path(key).suffix
    return f"*{ending}" if ending else "without an ending"


def refused_files(tree: Tree, read: Collection[str] = ()) -> list[NotRead]:
    """Return files that look like those of a training, the damaged ones first.

    Files that are ``read`` are left out.
    """
    refused = []
    keys = [key for key in tree.keys if key.lower().endswith(_OPENED) and key not in read]
    for key in sorted(keys, key=lambda key: (key.count("/"), key))[:_MOST_OPENED]:
        refusal = _of_formats(tree, key) or _of_kind(tree.head(key, 64))
        if refusal is None and key.lower().endswith(_TEXT):
            refusal = _of_text(tree, key)
        if refusal is not None:
            refused.append(NotRead(key, refusal))
    return sorted(refused, key=lambda one: not one.refusal.is_damaged)


def _refusal(tree: Tree, key: str) -> Refusal:
    if not tree.size(key):
        return Refusal("the file is empty" if tree.size(key) == 0 else "cannot read the file")
    try:
        tree.read(key, 0, 1)
    except RunIOError as error:
        return Refusal(str(error))
    refusal = _of_formats(tree, key) or _of_kind(tree.head(key, 64))
    if refusal is not None:
        return refusal
    if key.lower().endswith(MARKDOWN):
        return Refusal(
            f"no table of {ENOUGH} rows or more has a column of steps or epochs and one of a loss, metric or rate"
        )
    if not key.lower().endswith(_TEXT):
        ending = Path(key).suffix
        return Refusal(
            f"files {f'that end in {shown(ending)}' if ending else 'of this kind'} are not read; read are {_READ}"
        )
    return _of_text(tree, key)


def _of_formats(tree: Tree, key: str) -> Refusal | None:
    """Return the reason of the format that reads files like this one."""
    for one in formats():
        why_not = getattr(one, "why_not", None)
        refusal: Refusal | None = None if why_not is None else why_not(tree, key)
        if refusal is not None:
            return refusal
    return None


def _of_kind(beginning: bytes) -> Refusal | None:
    kind = next((kind for start, kind in _KINDS.items() if beginning.startswith(start)), None)
    return None if kind is None else Refusal(kind)


def _of_text(tree: Tree, key: str) -> Refusal:
    beginning = tree.head(key)
    if not beginning:
        return Refusal("the file is empty")
    if not key.lower().endswith(TABLES):
        return Refusal(_why_no_text(beginning) or _NO_LOG + _not_utf8(beginning))
    is_json = key.lower().endswith((".jsonl", ".ndjson", ".json"))
    return Refusal(_why_no_text(beginning) or _why_no_table(beginning, is_json))


def _why_no_text(beginning: bytes) -> str:
    encoding = _MARKS.get(beginning[:2], "")
    if encoding:
        return f"the file is encoded in {encoding}, not UTF-8; convert it with: iconv -f {encoding} -t UTF-8"
    if b"\0" in beginning:
        return f"the file is binary (byte {beginning.index(0):,} is zero), not text in UTF-8"
    return ""


def _not_utf8(beginning: bytes) -> str:
    try:
        # The last character may be cut.
        beginning[: len(beginning) - 4 if len(beginning) == HEAD else None].decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start
        return f" The file is not valid UTF-8: byte {at:,} is 0x{beginning[at]:02x}."
    return ""


def _why_no_table(beginning: bytes, is_json: bool) -> str:
    lines = beginning.decode("utf-8", "replace").removeprefix(BOM).splitlines()
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        return "the file has no line with text"
    number, first = rows[0]
    if is_json or first.lstrip().startswith("{"):
        return _why_no_json_lines(rows) + _not_utf8(beginning)
    found = {mark: split(first.lstrip("#").strip(), mark) for mark in _SEPARATORS if mark in first}
    separator = max(found, key=lambda mark: len(found[mark]), default=",")
    names = distinct(found.get(separator, [first.strip()]))
    what = f"line {number} has {_columns(names)}, separated by {_SEPARATORS[separator]}"
    if len(names) == 1:
        what = f"line {number} has one column, {shown(names[0], 80)}"
    if step_column(names) is None:
        advice = "none of them is named step, epoch or iteration; give the column of steps one of these names"
        return f"no table of a training: {what}; {advice}.{_not_utf8(beginning)}"
    return (
        f"no table of a training: {what}, but no row below has a number for a step and a value.{_not_utf8(beginning)}"
    )


def _columns(names: list[str]) -> str:
    return f"{len(names)} columns ({listed([shown(name, 40) for name in names], 6)})"


def _why_no_json_lines(rows: list[tuple[int, str]]) -> str:
    for number, line in rows:
        try:
            found = json.loads(line)
        except RecursionError:
            return f"line {number} is not valid JSON: it is nested too deeply."
        except ValueError as error:
            reason = getattr(error, "msg", str(error))
            return f"line {number} is not valid JSON: {reason}, at column {getattr(error, 'colno', 1)}; each line must be one JSON object."
        if not isinstance(found, dict):
            return (
                f"line {number} is not a JSON object, but {shown(line.strip(), 60)}; each line must be one JSON object."
            )
        if step_column(json_row(line) or ()) is not None:
            return f"line {number} has a step, but no number beside it."
    return "no line has a key step, epoch or iteration."
