"""The packages of Dask, which are optional."""

from __future__ import annotations

import importlib
from typing import Any

from smdwidgets.exceptions import SMDebugRuntimeError


def package(name: str, what: str) -> Any:
    """Return an installed module, or raise an error that says how to install it.

    >>> package("no_such_package", "a test")  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
    ...
    smdwidgets.exceptions.SMDebugRuntimeError: a test needs no_such_package, which is not installed; run: pip install
    'smdwidgets[dask]'
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = error.name or name
        raise SMDebugRuntimeError(
            f"{what} needs {missing}, which is not installed; run: pip install 'smdwidgets[dask]'"
        ) from None
