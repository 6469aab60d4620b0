"""Replace a file, so that a reader sees the old content or the new one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces the file if the block succeeds."""
    partial = temporary_sibling(target)
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def replace_file(target: Path, content: str | bytes) -> None:
    """Write a file, and its directory if it is missing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     replace_file(Path(root, "runs", "note.txt"), "done")
    ...     Path(root, "runs", "note.txt").read_text()
    'done'
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as partial:
        partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def temporary_sibling(target: Path, ending: str = "tmp") -> Path:
    """Return a path beside a file that no other thread or process uses."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.{ending}")
