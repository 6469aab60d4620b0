"""Write an object only over the one that was read."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from smdwidgets.storage.errors import ObjectChanged, ObjectMissing, StoreError

if TYPE_CHECKING:
    from smdwidgets.storage.remote import RemoteStorage


def put_if(storage: RemoteStorage, key: str, content: bytes, etag: str | None) -> bool:
    """Write an object over the one with this ETag; over none if it is empty.

    Returns whether it was written. None writes in any case, and so does a server that refuses conditions.
    """
    try:
        storage.put(key, content, if_match=etag)
    except (ObjectChanged, ObjectMissing):
        # An upload whose answer was lost is repeated, and then finds itself.
        with suppress(ObjectMissing):
            return storage.read(key) == content
        return False
    except StoreError as error:
        if error.code not in {"other", "fault"}:
            raise
        storage.put(key, content)  # the server refuses conditions
    return True
