"""Text in UTF-16, which PowerShell writes where it redirects an output."""

from __future__ import annotations

from typing import Final

#: Encodings by the mark at the beginning of a file.
_MARKS: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def encoding_of(beginning: bytes) -> str:
    """Return the encoding that the mark at the beginning of a file names.

    It is empty for text without such a mark, which is UTF-8.

    >>> encoding_of("loss".encode("utf-16")), encoding_of(b"loss")
    ('utf-16-le', '')
    """
    return _MARKS.get(beginning[:2], "")


def as_utf8(data: bytes, encoding: str) -> bytes:
    """Return text in UTF-8, without the mark. Half a character at the end is left out.

    >>> as_utf8("loss\\n".encode("utf-16"), "utf-16-le"), as_utf8(b"loss", "")
    (b'loss\\n', b'loss')
    """
    if not encoding:
        return data
    text = data[: len(data) // 2 * 2].decode(encoding, "replace")
    return text.removeprefix("\ufeff").encode("utf-8", "replace")


def whole_lines(data: bytes, encoding: str) -> bytes:
    """Return the lines that end in data, which begin with a character.

    >>> whole_lines("a\\nb".encode("utf-16-le"), "utf-16-le"), whole_lines(b"a\\nb", "")
    (b'a\\x00\\n\\x00', b'a\\n')
    """
    line_end = "\n".encode(encoding or "utf-8")
    at = data.rfind(line_end)
    while at >= 0 and at % len(line_end):  # the halves of two characters
        at = data.rfind(line_end, 0, at + len(line_end) - 1)
    return data[: at + len(line_end)] if at >= 0 else b""
