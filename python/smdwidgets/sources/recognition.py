"""Say why a file was not recognized as one of a training."""

from __future__ import annotations

import json
from pathlib import Path

from smdwidgets._text import listed, shown
from smdwidgets.sources.layout import BOM, distinct, json_row, split, step_column
from smdwidgets.sources.tree import HEAD

#: Endings of tables of text.
_TEXT = (".csv", ".tsv", ".tab", ".txt", ".log", ".jsonl", ".ndjson", ".json")
_READ = (
    "CSV, TSV and JSON lines with a column of steps, trainer_state.json, MLflow, W&B, trackio, safetensors, PyTorch checkpoints, "
    "text logs of trainings"
)
_SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a vertical bar"}
#: Marks at the beginning of a text in another encoding.
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def why_not_read(path: str) -> str:
    """Return what is wrong with a file that no format recognizes.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".csv") as empty:
    ...     why_not_read(empty.name)
    'the file is empty'
    """
    try:
        with Path(path).open("rb") as file:
            beginning = file.read(HEAD)
    except OSError as error:
        return f"cannot read the file: {error.strerror}"
    if not beginning:
        return "the file is empty"
    if not path.lower().endswith(_TEXT):
        ending = Path(path).suffix
        return f"files {f'that end in {shown(ending)}' if ending else 'of this kind'} are not read; read are {_READ}"
    return _why_no_text(beginning) or _why_no_table(beginning, path.lower().endswith((".jsonl", ".ndjson", ".json")))


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
