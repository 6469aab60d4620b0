"""Names of tensors and workers, which are any text, as names of files."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

#: Longer names are cut, and told apart by a digest.
_LONGEST = 120


def file_name(name: str) -> str:
    """One part of a path that holds nothing but letters, digits and ``_.-~%``, another one for each name.

    >>> file_name("relu/x:0"), file_name(".."), len(file_name("x" * 1000))
    ('relu%2Fx%3A0', '%2E%2E', 137)
    """
    safe = quote(name, safe="", errors="surrogatepass")
    if not safe.strip("."):
        safe = safe.replace(".", "%2E") or "%"
    if len(safe) <= _LONGEST:
        return safe
    return f"{safe[:_LONGEST]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
