"""Helpers shared by the commands: open a run, format names, show progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from smdwidgets._text import byte_size, shown, visible
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Trial, create_trial


def open_run(path: str) -> Trial:
    """Open a run and skip unreadable index files."""
    return create_trial(path, skip_bad_index=True)


def check_output(path: str, what: str) -> None:
    """Raise an error unless a file can be written there."""
    target = Path(path).absolute()
    if path == "-":
        raise SMDebugValueError(f"{what} cannot be written to standard output; give a file with -o")
    if target.is_dir():
        raise SMDebugValueError(f"cannot write {what}: {shown(path, 400)} is a directory; give a file with -o")
    if not target.parent.is_dir():
        raise SMDebugValueError(f"cannot write {what}: the directory {shown(str(target.parent), 400)} does not exist")
    if not os.access(target.parent, os.W_OK):
        raise SMDebugValueError(f"cannot write {what}: no permission to write in {shown(str(target.parent), 400)}")


def plain(text: object, limit: int = 200) -> str:
    """Escape control characters, so that the text is safe to print on a terminal.

    >>> plain("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    encoding = sys.stdout.encoding or "utf-8"
    return visible(text, limit).encode(encoding, "backslashreplace").decode(encoding)


def table(rows: list[list[str]]) -> str:
    """Format rows as aligned columns; the first row is the header.

    The first column is left-aligned, the others are right-aligned.
    """
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


@contextmanager
def bytes_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress in bytes, if standard error is a terminal."""
    with Progress(label, amount=byte_size) as progress:
        yield progress.update
