"""Runs behind a plain web server, listed as HTML or in a file of the run.

Servers list folders as pages of links: Apache, nginx, rclone, Python's ``http.server``. Where they do not, the run
contains a file ``smdwidgets-files.txt`` with one key a line and, after tabs, its size and the time of its last write
since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from smdwidgets import _core
from smdwidgets.storage.objects import Entry, Objects

#: The file that lists a run, one object a line: key, size and time of the last write, separated by tabs.
LISTING = "smdwidgets-files.txt"
#: Maximum bytes of a listing, and maximum depth of folders.
_LARGEST, _DEEPEST = 256 << 20, 32


class WebObjects:
    """The objects of a web server: listings from its pages, the rest by the core.

    Args:
        objects: the server's objects by path.
        prefix: the path of the run.
    """

    def __init__(self, objects: Objects, prefix: str) -> None:
        #: The server's objects by path.
        self.core = objects
        self._prefix = prefix
        self.head = objects.head
        self.get = objects.get
        self.get_range = objects.get_range
        self.get_many = objects.get_many
        self.get_ranges = objects.get_ranges
        self.requests = objects.requests
        self.close = objects.close

    def pages(self, prefix: str, start_after: str = "") -> Iterator[list[Entry]]:
        """Yield the objects whose keys begin with ``prefix``, in the order of keys."""
        listed = self._listing_file()
        if listed is None:
            folder = prefix.rpartition("/")[0]
            yield from self._walk(folder, prefix, start_after, 0)
        else:
            found = sorted(entry for entry in listed if entry[0].startswith(prefix) and entry[0] > start_after)
            if found:
                yield found

    def folder(self, folder: str) -> tuple[list[str], list[Entry]]:
        """Return the folders and the files that are directly in a folder."""
        listed = self._listing_file()
        if listed is None:
            links = self._links(folder.rstrip("/"), is_first=folder.rstrip("/") == self._prefix)
            return [key for key, is_folder in links if is_folder], [
                (key, -1, 0.0, "") for key, is_folder in links if not is_folder
            ]
        inside = [entry for entry in listed if entry[0].startswith(folder)]
        names = {entry[0][len(folder) :].partition("/")[0] for entry in inside if "/" in entry[0][len(folder) :]}
        return sorted(folder + name for name in names), [
            entry for entry in inside if "/" not in entry[0][len(folder) :]
        ]

    def put(self, key: str, content: bytes, if_match: str | None = None) -> str:
        """Raise an error: the server is read only."""
        raise _core.StoreError(key, "other", "a web server can only be read")

    def put_file(self, key: str, path: str) -> str:
        """Raise an error: the server is read only."""
        return self.put(key, b"")

    def delete(self, keys: Sequence[str]) -> None:
        """Raise an error: the server is read only."""
        self.put(next(iter(keys), ""), b"")

    def _listing_file(self) -> list[Entry] | None:
        """Return the objects of the run's listing file; None without one."""
        key = f"{self._prefix}/{LISTING}".lstrip("/")
        try:
            content, _ = self.core.get(key, _LARGEST)
        except _core.StoreError as error:
            if error.args[1] == "missing":
                return None
            raise
        return [_line(line, number, key, self._prefix) for number, line in _lines(content)]

    def _walk(self, folder: str, prefix: str, start_after: str, depth: int) -> Iterator[list[Entry]]:
        """Yield the objects below a folder."""
        if depth > _DEEPEST:
            raise _core.StoreError(folder, "other", f"the folders are more than {_DEEPEST} deep")
        page: list[Entry] = []
        for key, is_folder in self._links(folder, is_first=depth == 0):
            if is_folder:
                inside = f"{key}/"
                if not (inside.startswith(prefix) or prefix.startswith(inside)):
                    continue
                # Folders before the start are skipped, so that the cost depends on the number of new objects only.
                if inside < start_after[: len(inside)]:
                    continue
                if page:
                    yield page
                    page = []
                yield from self._walk(key, prefix, start_after, depth + 1)
            elif key.startswith(prefix) and key > start_after:
                page.append((key, -1, 0.0, ""))
        if page:
            yield page

    def _links(self, folder: str, *, is_first: bool) -> list[tuple[str, bool]]:
        """Return the objects and folders in a folder, if it exists, in key order."""
        try:
            content, _ = self.core.get(f"{folder}/" if folder else "", _LARGEST)
        except _core.StoreError as error:
            if error.args[1] == "missing" or (error.args[1] == "denied" and not is_first):
                return []
            if error.args[1] == "denied":
                raise _core.StoreError(folder, "denied", _NO_LISTING) from error
            raise
        text = content.decode("utf-8", "replace")
        if "<" not in text[:1024]:
            raise _core.StoreError(folder, "other", _NO_LISTING)
        found = Links(folder)
        found.feed(text)
        # In the order of keys a folder has a slash at its end.
        return sorted(found.entries, key=lambda entry: entry[0] + "/" * entry[1])


_NO_LISTING = (
    "the web server does not list this folder: turn on listings (nginx: autoindex on; Apache: Options +Indexes), or put a file "
    f"{LISTING} with one path a line into the run"
)


class Links(HTMLParser):
    """The links of a page to files and folders that are directly in its folder.

    >>> links = Links("runs/mlp")
    >>> links.feed('<a href="../">up</a> <a href="index/">index</a>')
    >>> links.feed('<a href="a%20b.json">a b</a> <a href="?C=N">Name</a>')
    >>> sorted(links.entries)
    [('runs/mlp/a b.json', False), ('runs/mlp/index', True)]
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = f"{folder}/" if folder else ""
        self.entries: set[tuple[str, bool]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add the target of a link."""
        href = dict(attrs).get("href") if tag == "a" else None
        if not href:
            return
        try:
            parts = urlsplit(href)
        except ValueError:  # such as an invalid IPv6 address
            return
        if parts.scheme or parts.netloc or parts.query or parts.fragment:
            return
        path = unquote(parts.path)
        path = path.removeprefix("/" + self._folder) if path.startswith("/") else path.removeprefix("./")
        name = path.removesuffix("/")
        if name not in {"", ".", ".."} and "/" not in name and not any(char < " " for char in name):
            self.entries.add((self._folder + name, path.endswith("/")))


def _lines(content: bytes) -> Iterator[tuple[int, str]]:
    text = content.decode("utf-8", "replace")
    return ((number, line) for number, line in enumerate(text.splitlines(), 1) if line and not line.startswith("#"))


def _line(line: str, number: int, source: str, prefix: str) -> Entry:
    """Return the object of a line of a listing file.

    >>> _line("index/1.json\\t850\\t1700000000.5", 1, "run/smdwidgets-files.txt", "run")
    ('run/index/1.json', 850, 1700000000.5, '')
    """
    key, *rest = line.split("\t")
    try:
        size = int(rest[0]) if rest else -1
        written = float(rest[1]) if rest[1:] else 0.0
    except ValueError:
        size = -2
    if size < -1 or len(rest) > 2:
        raise _core.StoreError(source, "other", f"line {number} is not a key, a size and a time, separated by tabs")
    key = key.removeprefix("./")
    return (f"{prefix}/{key}" if prefix else key), size, written, ""
