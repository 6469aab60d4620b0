"""SQLite databases of other programs, which are only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from smdwidgets._text import shown
from smdwidgets.exceptions import RunIOError
from smdwidgets.sources.tree import Tree

SUFFIXES: Final = (".db", ".sqlite", ".sqlite3")
"""Endings of databases."""
_MAGIC: Final = b"SQLite format 3\0"
#: Seconds to wait for a database that a server is writing.
_PATIENCE: Final = 2.0


def is_database(tree: Tree, key: str) -> bool:
    """Return whether a file is a SQLite database, by its beginning."""
    return tree.head(key, len(_MAGIC)) == _MAGIC


def tables_of(tree: Tree, key: str) -> set[str]:
    """Return the names of the tables of a database.

    Raises :class:`~smdwidgets.exceptions.RunIOError`.
    """
    return {str(name) for (name,) in query(tree, key, "SELECT name FROM sqlite_master WHERE type = 'table'")}


def databases(tree: Tree) -> Iterator[tuple[str, set[str]]]:
    """Yield the databases of a tree, with the names of their tables.

    A damaged database is left out, unless it is the file that was opened; then this raises
    :class:`~smdwidgets.exceptions.RunIOError`.
    """
    for key in tree.named(*SUFFIXES):
        if not is_database(tree, key):
            continue
        try:
            yield key, tables_of(tree, key)
        except RunIOError:
            if tree.is_file:
                raise


def columns_of(tree: Tree, key: str, table: str) -> set[str]:
    """Return the names of the columns of a table.

    Raises :class:`~smdwidgets.exceptions.RunIOError`.
    """
    return {str(name) for (name,) in query(tree, key, "SELECT name FROM pragma_table_info(?)", table)}


def query(tree: Tree, key: str, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query on a database that is opened for reading only.

    Raises :class:`~smdwidgets.exceptions.RunIOError`, with the path, also if the database stays locked.
    """
    import sqlite3  # which some builds of Python lack

    uri = f"file:{quote(Path(tree.local_file(key)).as_posix())}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            return connection.execute(statement, parameters).fetchall()
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise RunIOError(f"{shown(tree.path(key), 400)}: cannot read the SQLite database: {error}") from error
