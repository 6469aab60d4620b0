"""Collections of a run and their JSON file."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Self

from smdwidgets._atomic import replace_file
from smdwidgets._text import shown
from smdwidgets.config._parse import integer, mapping, only
from smdwidgets.config.collection import Collection
from smdwidgets.exceptions import CollectionFileError, SMDebugError, SMDebugTypeError, UnknownCollection

#: Directory of collection files in a run.
COLLECTIONS_PREFIX = "collections/000000000"
#: Notes of a worker that are read at most.
_MOST_NOTES = 100


class CollectionManager:
    """Collections by name, and the number of workers of the training.

    >>> manager = CollectionManager()
    >>> manager.add("relu")
    >>> manager.get("relu").include("relu")
    >>> CollectionManager.load_from_string(manager.to_json()) == manager
    True
    """

    def __init__(self, collections: dict[str, Collection] | None = None, create_default: bool = False) -> None:
        self.collections: dict[str, Collection] = {} if collections is None else collections
        self._meta: dict[str, Any] = {"num_workers": 1}
        if create_default:
            self.add("default")

    def create_collection(self, name: str, cls: type[Collection] = Collection) -> None:
        """Create an empty collection if there is none of this name."""
        if name not in self.collections:
            self.collections[name] = cls(name)

    def add(self, arg: str | Collection) -> None:
        """Add or replace a collection; for a name, create an empty one if missing."""
        if isinstance(arg, str):
            self.create_collection(arg)
        elif isinstance(arg, Collection):
            self.collections[arg.name] = arg
        else:
            raise SMDebugTypeError(f"arg must be a string or a Collection, got {type(arg).__name__}")

    def get(self, name: str, create: bool = True) -> Collection:
        """Return a collection.

        If it does not exist, create it or raise (``create=False``).
        """
        if name not in self.collections:
            if not create:
                raise UnknownCollection(name, self.collections)
            self.create_collection(name)
        return self.collections[name]

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections by name."""
        return self.collections

    def get_num_workers(self) -> int:
        """Return the number of workers, which is the expected number of collection files."""
        return int(self._meta["num_workers"])

    def set_num_workers(self, num_workers: int) -> None:
        """Set the number of workers."""
        self._meta["num_workers"] = integer(num_workers, "num_workers", least=0)

    @property
    def modules(self) -> dict[str, list[str]]:
        """Class names of the modules whose inputs or outputs are saved.

        The most derived class is first. smdebug ignores them.
        """
        modules = self._meta.get("modules")
        return {
            str(name): [str(one) for one in classes]
            for name, classes in (modules.items() if isinstance(modules, dict) else ())
            if isinstance(classes, list)
        }

    @property
    def num_modules(self) -> int:
        """Number of modules in :attr:`modules`."""
        return len(self._meta.get("modules", ()))

    def add_modules(self, modules: Mapping[str, list[str]]) -> None:
        """Add modules with the names of their classes."""
        self._add("modules", modules)

    @property
    def aliases(self) -> dict[str, str]:
        """Names of tensors by their aliases, which contain a key.

        ``Model_output.logits`` is an alias of ``Model_output_1``. smdebug ignores them.
        """
        aliases = self._meta.get("aliases")
        return {
            alias: name
            for alias, name in (aliases.items() if isinstance(aliases, dict) else ())
            if isinstance(name, str)
        }

    @property
    def num_aliases(self) -> int:
        """Number of aliases in :attr:`aliases`."""
        return len(self._meta.get("aliases", ()))

    def add_aliases(self, aliases: Mapping[str, str]) -> None:
        """Add aliases of tensor names."""
        self._add("aliases", aliases)

    def _add(self, what: str, named: Mapping[str, Any]) -> None:
        """Add to a dictionary of the metadata.

        A file may have none, or something else in its place.
        """
        if named:
            if not isinstance(self._meta.get(what), dict):
                self._meta[what] = {}
            self._meta[what].update(named)

    @property
    def notes(self) -> dict[str, list[str]]:
        """What a worker's hook was to save and did not get, as texts by worker.

        smdebug ignores them.
        """
        notes = self._meta.get("notes")
        return {
            str(worker): [str(text) for text in texts[:_MOST_NOTES] if isinstance(text, str)]
            for worker, texts in (notes.items() if isinstance(notes, dict) else ())
            if isinstance(texts, list)
        }

    def set_notes(self, worker: str, notes: list[str]) -> None:
        """Set the notes of a worker."""
        if notes or "notes" in self._meta:
            self._meta["notes"] = {**self.notes, worker: list(notes)}

    def update_meta(self, meta: Mapping[str, Any]) -> None:
        """Update the metadata of the file."""
        if not isinstance(meta, Mapping):
            raise SMDebugTypeError(f"meta must be a dictionary, got {type(meta).__name__}")
        if "num_workers" in meta:
            integer(meta["num_workers"], "num_workers", least=0)
        self._meta.update(meta)

    def merge(self, other: CollectionManager) -> None:
        """Merge another worker's file: union of tensors, maximum number of workers."""
        for name, collection in other.collections.items():
            existing = self.collections.get(name)
            if existing is None:
                self.collections[name] = collection
                continue
            existing.tensor_names |= collection.tensor_names
            new = [regex for regex in collection.include_regex if regex not in existing.include_regex]
            existing.include_regex += new
        self.add_modules(other.modules)
        self.add_aliases(other.aliases)
        for worker, notes in other.notes.items():
            self.set_notes(worker, notes)
        self.set_num_workers(max(self.get_num_workers(), other.get_num_workers()))

    def to_json_dict(self, saved: Container[str] | None = None) -> dict[str, object]:
        """Return the content of the file as a dictionary.

        ``saved``: the names of the run's tensors. No collection lists another one.
        """
        collections = {name: collection.to_json_dict() for name, collection in self.collections.items()}
        if saved is not None:
            for name, collection in self.collections.items():
                collections[name]["tensor_names"] = sorted(one for one in collection.tensor_names if one in saved)
        return {"collections": collections, "_meta": self._meta}

    def to_json(self, saved: Container[str] | None = None) -> str:
        """Return the content of the file as JSON; see :meth:`to_json_dict`."""
        return json.dumps(self.to_json_dict(saved))

    def export(self, out_dir: str | os.PathLike[str], filename: str) -> None:
        """Write the file atomically into a local run."""
        replace_file(Path(out_dir, COLLECTIONS_PREFIX, filename), self.to_json())

    @classmethod
    def load(cls, filename: str | os.PathLike[str], collection_class: type[Collection] = Collection) -> Self:
        """Read a collection file."""
        return cls.load_from_string(Path(filename).read_bytes(), collection_class, str(filename))

    @classmethod
    def load_from_string(
        cls, s: str | bytes, collection_class: type[Collection] = Collection, source: str = "the collection file"
    ) -> Self:
        """Parse the content of a collection file; ``source`` names it in errors."""
        try:
            params = mapping(json.loads(s), "collection file")
            only(params, ("collections", "_meta"), "collection file")
            manager = cls()
            for name, given in mapping(params.get("collections", {}), "collections").items():
                collection = collection_class.from_dict(mapping(given, f"collection {shown(name)}"))
                manager.add(collection)
            manager.update_meta(mapping(params.get("_meta", {}), "_meta"))
        except (SMDebugError, ValueError, RecursionError) as error:
            prefix = "invalid JSON: " if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else ""
            raise CollectionFileError(f"{shown(source, 400)}: {prefix}{error}") from error
        return manager

    def __eq__(self, other: object) -> bool:
        return self.collections == other.collections if isinstance(other, CollectionManager) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"CollectionManager({sorted(self.collections)}, num_workers={self.get_num_workers()})"
