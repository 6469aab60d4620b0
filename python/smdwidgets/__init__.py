"""See why a training run went wrong: every saved tensor at every step, in a notebook cell, while it trains."""

from smdwidgets._core import __version__
from smdwidgets.compat import install_as_smdebug
from smdwidgets.config import Collection, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.modes import ModeKeys, modes
from smdwidgets.trials import Trial, create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "Trial",
    "__version__",
    "create_trial",
    "install_as_smdebug",
    "modes",
]
