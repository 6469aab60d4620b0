"""Recognize tables of losses without a column of steps. Their rows are numbered.

All cells must be numbers, and the names those of a training: other data have columns of one of these names, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from smdwidgets.naming.scalars import Kind, Role, describe, words_of
from smdwidgets.sources.layout import BOM, ROWS, Layout, is_missing, line_end_of, number_of, split, without_controls

#: Columns of a table that is no data set.
_MOST_COLUMNS: Final = 60
#: Rows by which a file of one number a line is recognized; a file with one number is a result.
_FEWEST_NUMBERS: Final = 3
_SEPARATORS: Final = ("\t", ",", ";", "|", None)
#: Splits no line, because columns are separated by nothing that one column has.
_ONE_COLUMN: Final = "\t"
#: Words that name a loss or reward beside others, and alone also prices and measurements.
_OF_OTHER_DATA: Final = frozenset(["cost", "price", "err", "error", "return", "returns"])
_LETTER: Final = re.compile(r"[A-Za-z]")
_NAME: Final = re.compile(r"[#\s]*[A-Za-z_]")


def unnumbered(beginning: bytes, stem: str = "") -> Layout | None:
    """Return the layout of a table of losses without steps, or None for other files.

    ``stem`` is the name of the file without its ending: it names the numbers of a file that has one in each line.

    >>> unnumbered(b"loss,val_loss\\n0.5,0.75\\n").header, unnumbered(b"age,loss\\n37,0.5\\n")
    ('loss,val_loss', None)
    >>> unnumbered(b"2.5\\n1.5\\n1.25\\n", "train_loss").names
    ('train_loss',)
    """
    if b"\0" in beginning:
        return None
    line_end = line_end_of(beginning)
    ends_within = not beginning.endswith(line_end)
    start, header, header_end = 0, "", 0
    rows: list[str] = []
    is_comment = False
    for data in beginning.split(line_end)[: ROWS + 20]:
        start = min(start + len(data) + 1, len(beginning))
        text = without_controls(data.decode("utf-8", "replace")).removeprefix(BOM).strip(" \r")
        if not text.strip():
            continue
        may_be_header = not header or (is_comment and _NAME.match(text) is not None)
        if may_be_header and not rows and number_of(text) is None:
            is_comment = text.lstrip().startswith("#")
            header, header_end = text.lstrip("# "), start
        else:
            rows.append(text)
        if len(rows) > ROWS:
            break
    if ends_within and len(rows) > 1 and start == len(beginning):
        del rows[-1]  # it may be cut
    if not header or _step_and_number(header) is not None:
        return _without_names([header, *rows] if header else rows, line_end, stem)
    if not rows:
        return None
    if (names := _indexed(header, rows)) is not None:
        return Layout(False, header[0], header, header_end, line_end, names)
    separator = next((one for one in _separators(header) if _fits(header, rows, one)), "")
    return Layout(False, separator, header, header_end, line_end) if separator != "" else None


def _step_and_number(row: str) -> tuple[str | None, float] | None:
    """Return separator and step of a row with these and a number; None for other rows.

    >>> _step_and_number("0,2.5"), _step_and_number("0,2.5,1")
    ((',', 0.0), None)
    """
    for separator in _SEPARATORS:
        if separator is not None and separator not in row:
            continue
        cells = split(row, separator)
        step = number_of(cells[0]) if len(cells) == 2 and number_of(cells[1]) is not None else None
        if step is not None and step >= 0 and step.is_integer():
            return separator, step
    return None


def _without_names(rows: Sequence[str], line_end: bytes, stem: str) -> Layout | None:
    """Return the layout of numbers without names, maybe with steps before them.

    None if they may be both: "1,5" is a number in some countries.

    >>> _without_names(["0,2.5", "5,2.0", "9,1.5"], b"\\n", "train_loss").names
    ('step', 'train_loss')
    >>> _without_names(["0,2.5", "5,2.0", "9,1.5"], b"\\n", "ages")
    """
    if len(rows) < _FEWEST_NUMBERS or not is_measure(stem):
        return None
    is_list = all(number_of(row) is not None for row in rows)
    numbered = [one for row in rows if (one := _step_and_number(row)) is not None]
    separators = {separator for separator, _ in numbered}
    rises = all(one < other for (_, one), (_, other) in pairwise(numbered))
    if len(numbered) == len(rows) and len(separators) == 1 and rises:
        return None if is_list else Layout(False, separators.pop(), line_end=line_end, names=("step", stem))
    return Layout(False, _ONE_COLUMN, line_end=line_end, names=(stem,)) if is_list else None


def _indexed(header: str, rows: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names of columns behind an index without a name, as pandas writes it.

    >>> _indexed(",loss,accuracy", ["0,0.5,0.75", "1,0.25,1.0"])
    ('step', 'loss', 'accuracy')
    """
    separator = header[:1]
    if separator not in _SEPARATORS or not separator:
        return None
    names = _names(header[1:], separator)
    index = [number_of(split(row, separator)[0]) for row in rows]
    first = index[0]
    if first not in (0, 1) or index != [first + at for at in range(len(index))]:
        return None
    below = [row.partition(separator)[2] for row in rows]
    return ("step", *names) if _fits(separator.join(names), below, separator) else None


def _separators(header: str) -> list[str | None]:
    """Return what may separate the columns of a header, the best first."""
    present = [one for one in _SEPARATORS if one is not None and one in header]
    # A cell such as "1,5" is a number, too, so that a table with separators is no table of one column.
    return sorted(present, key=lambda one: -len(_names(header, one))) or [None, _ONE_COLUMN]


def _names(header: str, separator: str | None) -> list[str]:
    """Return the names of columns, without those that a separator at the end adds."""
    names = split(header, separator)
    while names and not names[-1]:
        del names[-1]
    return names


def _fits(header: str, rows: Sequence[str], separator: str | None) -> bool:
    """Return whether the names are those of a training, and all cells are numbers."""
    names = _names(header, separator)
    if not 0 < len(names) <= _MOST_COLUMNS or not all(map(_LETTER.search, names)):
        return False
    if not (is_measure(names[0]) if len(names) == 1 else _are_of_training(names)):
        return False
    return any(any(cell for cell in split(row, separator)) for row in rows) and all(
        _has_only_numbers(split(row, separator), len(names)) for row in rows
    )


def _has_only_numbers(cells: Sequence[str], width: int) -> bool:
    return not any(cells[width:]) and all(number_of(cell) is not None or is_missing(cell) for cell in cells[:width])


def _are_of_training(names: Sequence[str]) -> bool:
    """Return whether the columns of a table are those of a training.

    >>> _are_of_training(["loss", "acc"]), _are_of_training(["acc", "val_acc"]), _are_of_training(["acc", "f1"])
    (True, True, False)
    >>> _are_of_training(["cont1", "cont2", "loss"]), _are_of_training(["price", "cost"])
    (False, False)
    """
    said = [describe(name) for name in names]
    if 2 * sum(one.kind is not Kind.UNKNOWN for one in said) <= len(names):
        return False  # a data set with one such column
    has_roles = any(one.role is not Role.NONE for one in said)
    telling = (Kind.LOSS, Kind.REWARD, Kind.METRIC) if has_roles else (Kind.LOSS, Kind.REWARD)
    return any(one.kind in telling and _is_clear(name) for name, one in zip(names, said, strict=True))


def is_measure(name: str) -> bool:
    """Return whether a name alone says that numbers measure a training.

    >>> is_measure("loss_50000"), is_measure("training error"), is_measure("cost"), is_measure("age")
    (True, True, False, False)
    """
    return describe(name).kind in (Kind.LOSS, Kind.REWARD, Kind.METRIC) and _is_clear(name)


def _is_clear(name: str) -> bool:
    return not _OF_OTHER_DATA.issuperset(words_of(name))
