"""Formats of other programs: tables, trainer states, stores, checkpoints.

A format is one module with a :class:`Format`, which finds its files in a directory, and a :class:`Source`, which reads
the files of one run. ``docs/sources.md`` has an example of a format of another package.
"""

from smdwidgets.sources.registry import files_in, formats, open_source, register
from smdwidgets.sources.source import (
    Format,
    Refusal,
    Region,
    Scalars,
    Source,
    StoredHistogram,
    StoredTensor,
    TensorStatistics,
    Verified,
)
from smdwidgets.sources.tree import Tree

__all__ = [
    "Format",
    "Refusal",
    "Region",
    "Scalars",
    "Source",
    "StoredHistogram",
    "StoredTensor",
    "TensorStatistics",
    "Tree",
    "Verified",
    "files_in",
    "formats",
    "open_source",
    "register",
]
