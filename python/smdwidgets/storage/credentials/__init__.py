"""What opens a bucket: options of the core, and credentials that are renewed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: Returns credentials by the names of the core. It is called again before they are a minute old.
Source = Callable[[], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Access:
    """Options of the core, a source of credentials, and the URL of the server.

    Without a source, the credentials are among the options, or the core finds them.

    >>> Access({"aws_region": "eu-west-1"}).credentials is None
    True
    """

    options: dict[str, str]
    credentials: Source | None = None
    endpoint: str = ""


__all__ = ["Access", "Source"]
