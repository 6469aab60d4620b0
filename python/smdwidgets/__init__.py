"""See why a training run went wrong: every saved tensor at every step, in a notebook cell, while it trains."""

from smdwidgets.modes import ModeKeys, modes

__all__ = ["ModeKeys", "modes"]
