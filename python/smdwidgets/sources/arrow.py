"""PyArrow, which reads and writes Parquet, and what to do where it is missing."""

from __future__ import annotations

from typing import Any

from smdwidgets.exceptions import SMDebugError


class MissingPyarrow(SMDebugError, ImportError):
    """Raised when pyarrow, which Parquet needs, is not installed."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self._what = what

    def _message(self) -> str:
        return f"{self._what} needs pyarrow, which is not installed; run: pip install 'smdwidgets[parquet]'"


def arrow_and_parquet(what: str) -> tuple[Any, Any]:
    """Return the modules ``pyarrow`` and ``pyarrow.parquet``.

    Raises MissingPyarrow, with what needs them.

    >>> arrow_and_parquet("the export")[1].__name__
    'pyarrow.parquet'
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPyarrow(what) from error
    return pyarrow, pyarrow.parquet
