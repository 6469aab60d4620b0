"""Convert names of tensors and workers, which can be any text, to file names."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

#: Longer names are truncated and made unique with a digest.
_MAX_LENGTH = 120


def file_name(name: str) -> str:
    """Return a unique path component of letters, digits and ``_.-~%`` for a name.

    >>> file_name("relu/x:0"), file_name(".."), len(file_name("x" * 1000))
    ('relu%2Fx%3A0', '%2E%2E', 137)
    """
    safe = quote(name, safe="", errors="surrogatepass")
    if not safe.strip("."):
        safe = safe.replace(".", "%2E") or "%"
    if len(safe) <= _MAX_LENGTH:
        return safe
    return f"{safe[:_MAX_LENGTH]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
