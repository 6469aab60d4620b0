"""What the commands share: opening a run, naming steps, showing names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from smdwidgets._text import byte_size, visible
from smdwidgets.exceptions import RunNotFound
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Trial, create_trial
from smdwidgets.trials.local import local_path


def open_run(path: str) -> Trial:
    """The run, index files that can't be read left out; an empty directory is not waited for."""
    check_not_empty(path)
    return create_trial(path, skip_bad_index=True)


def check_not_empty(path: str) -> None:
    """Raise for an empty directory: at a terminal, a run that may begin later is a mistake in the path."""
    if "://" in path and not path.lower().startswith("file://"):
        return
    folder = Path(local_path(path))
    if folder.is_dir() and not any(folder.iterdir()):
        raise RunNotFound(path, "the directory is empty")


def plain(text: object, limit: int = 200) -> str:
    """Text that does nothing to a terminal: control and escape characters are spelled out.

    >>> plain("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    encoding = sys.stdout.encoding or "utf-8"
    return visible(text, limit).encode(encoding, "backslashreplace").decode(encoding)


def table(rows: list[list[str]]) -> str:
    """Rows in columns, the first row their heads; the first column to the left, the others to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def step_range(text: str) -> range:
    """An argument such as ``100``, ``100:200``, ``100:`` or ``:200``; the end is not part of it."""
    begin, colon, end = text.partition(":")
    try:
        first = int(begin) if begin else 0
        last = (int(end) if end else sys.maxsize) if colon else first + 1
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a step nor a range of steps such as 100:200") from None
    if first < 0 or last <= first:
        raise argparse.ArgumentTypeError(f"{text!r} holds no step")
    return range(first, last)


@contextmanager
def bytes_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Progress in bytes, on a terminal."""
    with Progress(label) as progress:

        def update(done: int, total: int) -> None:
            progress.update(done, total, f"bytes ({byte_size(done)} of {byte_size(total)})")

        yield update
