"""The package's logger, where smdebug has its own."""

from __future__ import annotations

import logging


def get_logger(name: str = "smdwidgets") -> logging.Logger:
    """The logger that everything here writes to.

    >>> get_logger().name
    'smdwidgets'
    """
    return logging.getLogger(name)
