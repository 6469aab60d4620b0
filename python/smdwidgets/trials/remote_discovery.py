"""Find the runs below a prefix of a store.

Each folder is listed by itself, many at the same time, and the folders of a hook's run are not listed. The runs of 200
trainings with 100,000 steps each hence take 201 listings. No files of hooks are read, and of others the beginnings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugError
from smdwidgets.run_end import END_FILE
from smdwidgets.sources.store_tree import Listing, StoreTree
from smdwidgets.sources.tree import holds_steps, is_searched, of_hook
from smdwidgets.storage.remote import Listed, RemoteStorage
from smdwidgets.trials.discovery import RunFiles, runs_in
from smdwidgets.trials.tensorboard.layout import is_event_file

#: Folders that are listed at most, beside those in which a hook writes steps.
MOST_FOLDERS = 20_000


@dataclass
class RemoteTree:
    """The objects below a prefix, without those of hooks' runs."""

    #: Objects and folders directly in the folder of each run of a hook, by run.
    hooks: dict[str, list[Listed]] = field(default_factory=dict)
    #: All other objects by key.
    files: dict[str, Listed] = field(default_factory=dict)

    def event_files(self) -> list[str]:
        """Return the keys of TensorBoard's event files."""
        return sorted(filter(is_event_file, self.files))

    def listing(self) -> Listing:
        """Return the runs of hooks and the other objects."""
        return self.hooks, self.files


def walk(storage: RemoteStorage, progress: Callable[[int, int], object] | None = None) -> RemoteTree:
    """List the folders below the prefix of a storage, without those of hooks' runs.

    Args:
        storage: the storage.
        progress: called with the number of listed folders and of the folders known so far.

    Raises :class:`~smdwidgets.exceptions.SMDebugError` if there are more than 20,000 folders.
    """
    tree = RemoteTree()
    level, listed = [""], 0
    pool = ThreadPoolExecutor(storage.concurrency, thread_name_prefix="smdwidgets-discovery")
    try:
        while level:
            if listed + len(level) > MOST_FOLDERS:
                raise SMDebugError(
                    f"{shown(storage.url, 400)} has more than {MOST_FOLDERS:,} folders; give the address of a folder below it"
                )
            below: list[str] = []
            for base, (folders, files, is_run) in zip(
                level, pool.map(lambda one: _look(storage, one), level), strict=True
            ):
                listed += 1
                if is_run:
                    tree.hooks[base.rstrip("/")] = [*files, *(Listed(name, None, None) for name in folders)]
                else:
                    tree.files |= {file.key: file for file in files}
                    below += [f"{name}/" for name in folders if is_searched(name.rpartition("/")[2])]
                if progress is not None:
                    progress(listed, len(level) + len(below))
            level = below
    finally:
        # Also after Ctrl-C: listings that have begun end in the background.
        pool.shutdown(wait=False, cancel_futures=True)
    return tree


def _look(storage: RemoteStorage, base: str) -> tuple[Sequence[str], Sequence[Listed], bool]:
    """List a folder; return its folders and objects, and whether a hook wrote it."""
    folders, files = storage.folder(base)
    names = [key[len(base) :] for key in itertools.chain(folders, (file.key for file in files))]
    signs = list(filter(of_hook, names))
    if not base or any(sign not in {"collections", "index"} for sign in signs):
        return folders, files, bool(signs)
    return folders, files, any(_has_steps(storage, f"{base}{sign}/") for sign in signs)


def _has_steps(storage: RemoteStorage, folder: str) -> bool:
    """Return whether a folder has those of a hook: others may have its name."""
    folders, files = storage.folder(folder)
    return holds_steps(key[len(folder) :] for key in itertools.chain(folders, (file.key for file in files)))


def runs_below(storage: RemoteStorage, tree: RemoteTree) -> dict[str, RunFiles]:
    """Return the runs in a tree, in natural order of their folders.

    If a log lies within another log, the first 4 KiB of its event files are read: they may be a curve of the other one.
    Of files that may be of another format, the first 64 KiB are read.
    """
    return runs_in(store_tree(storage, tree))


def store_tree(storage: RemoteStorage, tree: RemoteTree | None = None) -> StoreTree:
    """Return the objects below the prefix of a storage as files.

    They are listed now unless they were listed before.
    """
    return StoreTree(storage, lambda: walk(storage).listing(), None if tree is None else tree.listing())


def one_object(storage: RemoteStorage, name: str) -> StoreTree:
    """Return an object directly below the prefix of a storage as a file.

    The tree is empty if the object does not exist.
    """

    def look() -> Listing:
        about = storage.head(name)
        return (), {} if about is None else {name: Listed(name, *about)}

    return StoreTree(storage, look, only=name)


def last_write(storage: RemoteStorage, run: str, entries: Sequence[Listed]) -> list[Listed]:
    """Return objects of a hook's run that change whenever the run grows.

    A run that has ended does not grow. Of another one they are the newest index objects, which takes two listings.
    """
    base = f"{run}/" if run else ""
    if any(entry.key == base + END_FILE for entry in entries):
        return list(entries)
    folders, _ = storage.folder(f"{base}index/")
    newest = storage.folder(f"{max(folders)}/")[1] if folders else []
    return [*entries, *newest]


def newest(entries: Iterable[Listed]) -> float:
    """Return when the last of the objects was written; 0 if that is unknown."""
    return max((entry.written or 0.0 for entry in entries), default=0.0)
