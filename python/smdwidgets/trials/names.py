"""Select tensors of a run by pattern or collection."""

from __future__ import annotations

import re
from collections.abc import Iterable

from smdwidgets._patterns import Patterns
from smdwidgets._text import did_you_mean, listed, misspelling_of, shown
from smdwidgets.config.collection import Collection
from smdwidgets.config.keys import BUILT_IN
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.modes import as_name
from smdwidgets.trials.reader import RunReader


class NameFilter:
    """Patterns and collections of a run, with the collections that users create."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._patterns = Patterns()
        #: Collections created by `collection` because the run does not have them.
        self._created: dict[str, Collection] = {}

    def matching(self, patterns: Iterable[str], names: list[str]) -> list[str]:
        """Return the names of which, or of whose aliases, a pattern matches a part."""
        aliases = self._reader.aliases()
        selected = set(self._patterns.matching(list(patterns), [*names, *aliases]))
        selected.update([name for alias, name in aliases.items() if alias in selected])
        return [name for name in names if name in selected]

    def known(self) -> list[str]:
        """Return the names and aliases of all saved tensors, to suggest similar ones."""
        return [*self._reader.names(), *self._reader.aliases()]

    def in_collection(self, collection: Collection | str, names: list[str]) -> list[str]:
        """Return the names of a collection.

        Raises SMDebugValueError if the run has none of this name.
        """
        if isinstance(collection, str):
            collections = self.collections()
            # Before a running training has written its collections, any of them can still come.
            if collections and collection not in collections and collection not in BUILT_IN:
                hint = did_you_mean(collection, collections) or f" Choose from {listed(sorted(collections), 20)}."
                raise SMDebugValueError(f"{shown(self._reader.name)} has no collection {shown(collection)}.{hint}")
            collection = self.collection(collection)
        if not isinstance(collection, Collection):
            raise TypeError(f"collection must be a string or Collection, got {type(collection).__name__}")
        try:
            selected = self._patterns.matching(collection.include_regex, names)
        except re.error as error:
            raise SMDebugValueError(
                f"invalid regular expression in collection {shown(collection.name)}: {error}"
            ) from None
        members = collection.tensor_names
        return [name for name in names if name in members or name in selected]

    def collections(self) -> dict[str, Collection]:
        """Return the collections of the run, and the created ones."""
        self._reader.maybe_refresh()
        filled = {name: collection for name, collection in self._created.items() if _is_filled(collection)}
        return {**self._created, **self._reader.collection_manager.collections, **filled}

    def collection(self, name: str) -> Collection:
        """Return a collection. If the run has none of this name, create an empty one."""
        as_name(name, "coll_name")
        collection = self._existing(name)
        if collection is None:
            self._reader.maybe_refresh()
            collection = self._existing(name)
        if collection is not None:
            return collection
        if name not in self._created and name not in BUILT_IN:
            meant = misspelling_of(name, [*BUILT_IN, *self._reader.collection_manager.collections])
            if meant is not None:
                self._reader.logger.warning(
                    "%s has no collection %s. Did you mean %s? An empty collection was created.",
                    shown(self._reader.name),
                    shown(name),
                    shown(meant),
                )
        return self._created.setdefault(name, Collection(name))

    def _existing(self, name: str) -> Collection | None:
        created = self._created.get(name)
        if created is not None and _is_filled(created):
            return created
        return self._reader.collection_manager.collections.get(name)


def _is_filled(collection: Collection) -> bool:
    return bool(collection.include_regex or collection.tensor_names)
