"""The golden runs in memory: their files and all their values."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from python.trials import golden
from smdwidgets import _core
from smdwidgets.exceptions import SMDebugError

#: The constant that smdebug writes instead of a checksum.
CONSTANT = (0x062D_C0B3).to_bytes(4, "little")

Key = tuple[str, int, str]  # recorded name, step, worker


@dataclass
class InMemory:
    """A run's files by key, and the values that it has while it is intact."""

    name: str
    files: dict[str, bytes]
    entries: dict[Key, _core.Entry] = field(default_factory=dict)
    values: dict[Key, NDArray] = field(default_factory=dict)
    _doubled: dict[str, set[str]] = field(default_factory=dict)
    _facts: dict[Key, tuple[object, ...]] = field(default_factory=dict)

    @classmethod
    def load(cls, name: str, folder: Path) -> InMemory:
        root = golden.run(name, folder)
        files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        return cls.of(name, files)

    @classmethod
    def of(cls, name: str, files: dict[str, bytes]) -> InMemory:
        loaded = cls(name, files)
        for entry in entries_of(loaded.indexes()):
            try:
                value = entry.decode(loaded.record(entry))
            except SMDebugError:
                continue  # damaged on purpose: no correct values
            loaded.entries[key_of(entry)] = entry
            loaded.values[key_of(entry)] = value
            loaded._facts[key_of(entry)] = facts_of(entry)
        return loaded

    def indexes(self) -> dict[str, bytes]:
        return {
            key: content
            for key, content in self.files.items()
            if key.startswith("index/") and key.endswith((".json", ".csv"))
        }

    def doubled(self, file: str) -> set[str]:
        """Return the names that an index file contains more than once."""
        if file not in self._doubled:
            found = Counter(re.findall(rb'"tensorname": *"([^"]*)"', self.files[file]))
            self._doubled[file] = {name.decode() for name, times in found.items() if times > 1}
        return self._doubled[file]

    def is_as_it_was(self, entry: _core.Entry) -> bool:
        """Return whether an entry equals one of the intact run, whose value is known."""
        return self._facts.get(key_of(entry)) == facts_of(entry)

    def record(self, entry: _core.Entry, content: bytes | None = None) -> bytes:
        """Return the bytes at an entry's location, by default from the run's files."""
        if content is None:
            content = self.files.get(entry.event_key, b"")
        return content[entry.offset : entry.offset + entry.length]

    def is_vouched(self, entry: _core.Entry) -> bool:
        """Return whether the record's content has a checksum."""
        return entry.crc is not None or not self.record(entry).endswith(CONSTANT)


def key_of(entry: _core.Entry) -> Key:
    return entry.name, entry.step, entry.worker


def facts_of(entry: _core.Entry) -> tuple[object, ...]:
    """Return everything that determines how the record is decoded, and its location."""
    return (
        entry.name,
        entry.event_key,
        entry.offset,
        entry.length,
        entry.worker,
        entry.step,
        entry.mode,
        entry.mode_step,
        entry.crc,
    )


def entries_of(indexes: dict[str, bytes]) -> list[_core.Entry]:
    """Return all entries of these index files."""
    catalog = _core.Catalog()
    catalog.load_many(list(indexes.items()))
    found: list[_core.Entry] = []
    for name in catalog.names():
        for step in catalog.steps_of(name):
            for worker in catalog.workers_of(name, step):
                value = catalog.find(name, step, worker)
                found += [value] if value is not None else []
                found += [entry for _, _, entry in catalog.stored_reductions(name, step, worker)]
    return found


def same(one: NDArray, other: NDArray) -> bool:
    """Return whether values are equal bit by bit, with NaN equal to NaN."""
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and (bool(np.array_equal(one, other)) or one.tobytes() == other.tobytes())
    )
