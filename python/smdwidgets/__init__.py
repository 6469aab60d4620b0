"""See why a training run went wrong: every saved tensor at every step, in a notebook cell, while it trains."""

from smdwidgets._core import __version__
from smdwidgets.config import Collection, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.modes import ModeKeys, modes

__all__ = [
    "Collection",
    "CollectionKeys",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "__version__",
    "modes",
]
