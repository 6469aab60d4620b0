"""Logger of the package, under its import path in smdebug."""

from __future__ import annotations

import logging


def get_logger(name: str = "smdwidgets") -> logging.Logger:
    """Return the logger of the package.

    >>> get_logger().name
    'smdwidgets'
    """
    return logging.getLogger(name)
