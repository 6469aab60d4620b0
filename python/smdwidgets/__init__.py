"""See why a training run went wrong: every saved tensor at every step, in a notebook cell, while it trains."""

from smdwidgets.config import Collection, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.modes import ModeKeys, modes

__all__ = ["Collection", "CollectionKeys", "ModeKeys", "ReductionConfig", "SaveConfig", "SaveConfigMode", "modes"]
