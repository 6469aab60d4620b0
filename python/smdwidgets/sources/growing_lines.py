"""The lines of a text file that grows, each read once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from smdwidgets.sources.layout import without_controls
from smdwidgets.sources.tree import TAIL, Tree
from smdwidgets.sources.utf16 import as_utf8, encoding_of, whole_lines

#: Bytes that are read at once.
_PIECE: Final = 4 << 20
#: Seconds after which a last line without a line end counts as complete.
_COMPLETE_AFTER: Final = 5.0
#: Where a terminal begins a line again: progress bars overwrite their lines.
_LINE_END: Final = re.compile(r"\r\n|\n|\r|\x08+")


class GrowingLines:
    """The lines of one file.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "a.log")
    ...     _ = file.write_text("one\\ntw")
    ...     lines = GrowingLines(Tree(folder), "a.log")
    ...     first = lines.changed(), list(lines.new())
    ...     _ = file.write_text("one\\ntwo\\n")
    ...     first, lines.changed(), list(lines.new())
    ((True, [(1, 'one')]), True, [(2, 'two')])
    """

    def __init__(self, tree: Tree, key: str) -> None:
        self.key = key
        self._tree = tree
        self._version: tuple[int, int, int] | None = None
        #: Whether the last line may still change.
        self._pending = False
        self._start_over()

    def _start_over(self) -> None:
        self._end = 0
        self._tail = b""
        self._encoding = ""
        self._number = 0

    def changed(self) -> bool:
        """Return whether there may be lines that were not read."""
        version = self._tree.version(self.key)
        return version is not None and (version != self._version or self._pending)

    def rewritten(self) -> bool:
        """Return whether the file is another one than before; then all lines are new.

        Raises :class:`~smdwidgets.exceptions.RunIOError`.
        """
        version = self._tree.version(self.key)
        if version is None or not self._end:
            return False
        same = version[0] >= self._end and self._tree.still_has(self.key, self._tail, self._end)
        if not same:
            self._start_over()
        return not same

    def new(self) -> Iterator[tuple[int, str]]:
        """Yield the complete lines that were not read, with their numbers from 1.

        What a progress bar overwrites in a line are lines of the same number.

        Raises :class:`~smdwidgets.exceptions.RunIOError`.
        """
        self._version = self._tree.version(self.key)
        size = _PIECE
        while True:
            piece = self._tree.read(self.key, self._end, size)
            if not self._end:
                self._encoding = encoding_of(piece)
            whole = whole_lines(piece, self._encoding)
            is_last = len(piece) < size
            if is_last and len(whole) < len(piece):
                self._pending = (self._tree.age([self.key]) or 0.0) < _COMPLETE_AFTER
                whole = whole if self._pending else piece
            elif is_last:
                self._pending = False
            elif not whole:
                whole = piece  # a line longer than any that has numbers
            yield from self._lines(whole)
            if is_last:
                return

    def _lines(self, data: bytes) -> Iterator[tuple[int, str]]:
        if not data:
            return
        self._end += len(data)
        self._tail = (self._tail + data)[-TAIL:]
        for line in as_utf8(data, self._encoding).removesuffix(b"\n").split(b"\n"):
            self._number += 1
            yield from ((self._number, part) for part in parts_of(line))


def parts_of(line: bytes) -> Iterator[str]:
    """Yield what a terminal showed in a line, one after the other.

    >>> list(parts_of(b"10%\\r20%\\r\\x1b[32mstep 1\\x1b[0m"))
    ['10%', '20%', 'step 1']
    """
    text = line.decode("utf-8", "replace")
    yield from (part for part in _LINE_END.split(without_controls(text)) if part)
