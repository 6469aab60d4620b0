"""The collections of a run, and the file that holds them."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from smdwidgets._text import shown
from smdwidgets.config._parse import integer, mapping, only
from smdwidgets.config.collection import Collection
from smdwidgets.exceptions import CollectionFileError, SMDebugError, SMDebugTypeError, UnknownCollection

#: Where collection files lie in a run.
COLLECTIONS_PREFIX = "collections/000000000"


class CollectionManager:
    """Collections by name, with the number of workers that the training has.

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
        """Make an empty collection if there is none of this name."""
        if name not in self.collections:
            self.collections[name] = cls(name)

    def add(self, arg: str | Collection) -> None:
        """Add a collection in place of one of the same name, or make an empty one if there is none."""
        if isinstance(arg, str):
            self.create_collection(arg)
        elif isinstance(arg, Collection):
            self.collections[arg.name] = arg
        else:
            raise SMDebugTypeError(f"add takes a name or a Collection, not {type(arg).__name__}.")

    def get(self, name: str, create: bool = True) -> Collection:
        """The collection of this name, made if there is none (writing) or an error (``create=False``)."""
        if name not in self.collections:
            if not create:
                raise UnknownCollection(name, self.collections)
            self.create_collection(name)
        return self.collections[name]

    def get_collections(self) -> dict[str, Collection]:
        """All of them, by name."""
        return self.collections

    def get_num_workers(self) -> int:
        """How many workers the training has: as many collection files are expected."""
        return int(self._meta["num_workers"])

    def set_num_workers(self, num_workers: int) -> None:
        """Say how many workers the training has."""
        self._meta["num_workers"] = integer(num_workers, "num_workers", least=0)

    def update_meta(self, meta: Mapping[str, Any]) -> None:
        """Add to what the file says beside the collections."""
        if not isinstance(meta, Mapping):
            raise SMDebugTypeError(f"meta must be a dictionary, not {type(meta).__name__}.")
        if "num_workers" in meta:
            integer(meta["num_workers"], "num_workers", least=0)
        self._meta.update(meta)

    def merge(self, other: CollectionManager) -> None:
        """Take in what another worker's file says: the union of the tensors, and the larger number of workers."""
        for name, collection in other.collections.items():
            mine = self.collections.get(name)
            if mine is None:
                self.collections[name] = collection
                continue
            mine.tensor_names |= collection.tensor_names
            mine.include_regex += [regex for regex in collection.include_regex if regex not in mine.include_regex]
        self.set_num_workers(max(self.get_num_workers(), other.get_num_workers()))

    def to_json_dict(self) -> dict[str, object]:
        """The form of the file."""
        return {
            "collections": {name: collection.to_json_dict() for name, collection in self.collections.items()},
            "_meta": self._meta,
        }

    def to_json(self) -> str:
        """The content of the file."""
        return json.dumps(self.to_json_dict())

    def export(self, out_dir: str | os.PathLike[str], filename: str) -> None:
        """Write the file into a run on this machine, all at once: a reader sees the old one or the new one."""
        folder = Path(out_dir, COLLECTIONS_PREFIX)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"{filename}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            temporary.write_text(self.to_json(), encoding="utf-8")
            os.replace(temporary, folder / filename)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, filename: str | os.PathLike[str], collection_class: type[Collection] = Collection) -> Self:
        """Read a collection file."""
        return cls.load_from_string(Path(filename).read_bytes(), collection_class, str(filename))

    @classmethod
    def load_from_string(
        cls, s: str | bytes, collection_class: type[Collection] = Collection, source: str = "the collection file"
    ) -> Self:
        """Read the content of a collection file; ``source`` names it in errors."""
        try:
            params = mapping(json.loads(s), "A collection file")
            only(params, ("collections", "_meta"), "A collection file")
            manager = cls()
            for name, given in mapping(params.get("collections", {}), "collections").items():
                collection = collection_class.from_dict(mapping(given, f"Collection {shown(name)}"))
                manager.add(collection)
            manager.update_meta(mapping(params.get("_meta", {}), "_meta"))
        except (SMDebugError, ValueError, RecursionError) as error:
            what = "not JSON: " if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else ""
            raise CollectionFileError(f"{shown(source, 400)}: {what}{error}") from error
        return manager

    def __eq__(self, other: object) -> bool:
        return self.collections == other.collections if isinstance(other, CollectionManager) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"CollectionManager({sorted(self.collections)}, num_workers={self.get_num_workers()})"
