"""Helpers under the names of `smdebug.core.utils`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets._patterns import is_found
from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX
from smdwidgets.exceptions import SMDebugTypeError

__all__ = [
    "FRAMEWORK",
    "ensure_dir",
    "flatten",
    "get_path_to_collections",
    "is_s3",
    "make_numpy_array",
    "match_inc",
    "merge_two_dicts",
    "split",
]


class FRAMEWORK(Enum):
    """The frameworks that smdebug has hooks for."""

    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"
    XGBOOST = "xgboost"


def ensure_dir(file_path: str | os.PathLike[str], is_file: bool = True) -> None:
    """Create a directory, or the directory of a file, with its parents."""
    path = Path(file_path)
    (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)


def flatten(lis: Iterable[Any]) -> list[Any]:
    """Return the items of nested lists as one list.

    >>> flatten([1, [2, [3]]])
    [1, 2, 3]
    """
    flat: list[Any] = []
    for item in lis:
        flat.extend(flatten(item) if isinstance(item, list) else [item])
    return flat


def get_path_to_collections(path: str | os.PathLike[str]) -> str:
    """Return the directory of a run's collection files.

    >>> get_path_to_collections("run")
    'run/collections/000000000'
    """
    return os.path.join(path, *COLLECTIONS_PREFIX.split("/"))  # noqa: PTH118 - a URL keeps its two slashes


def is_s3(path: str) -> tuple[bool, str | None, str | None]:
    """Return whether a path is an S3 URL, its bucket and its key.

    >>> is_s3("s3://bucket/jobs/run"), is_s3("/tmp/run")
    ((True, 'bucket', 'jobs/run'), (False, None, None))
    """
    if not path.startswith("s3://"):
        return False, None, None
    bucket, _, key = path.removeprefix("s3://").partition("/")
    return True, bucket, key


def make_numpy_array(x: Any) -> NDArray[Any]:
    """Return an array, a number, a list, a tuple or a dictionary as a NumPy array.

    >>> make_numpy_array(3)
    array([3])
    """
    if isinstance(x, np.ndarray):
        return x
    if np.isscalar(x):
        return np.array([x])
    if isinstance(x, list | tuple | dict):
        return np.array(x)
    raise SMDebugTypeError(f"cannot convert {type(x).__name__} to an array")


def match_inc(tname: str, include: Iterable[str]) -> bool:
    """Return whether any of the patterns matches anywhere in a name (`re.search`).

    >>> match_inc("fc1.weight", ["bias", "weight"])
    True
    """
    return any(is_found(pattern, tname) for pattern in include)


def merge_two_dicts(x: dict[Any, Any], y: dict[Any, Any]) -> dict[Any, Any]:
    """Return the union of two dictionaries; the second one takes precedence.

    >>> merge_two_dicts({"a": 1, "b": 1}, {"b": 2})
    {'a': 1, 'b': 2}
    """
    return {**x, **y}


def split(comma_separated_string: str) -> Sequence[str]:
    """Return the parts of a comma-separated string, without surrounding spaces.

    >>> split("foo, bar")
    ['foo', 'bar']
    """
    return [part.strip() for part in comma_separated_string.split(",")]
