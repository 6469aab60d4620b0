"""The callback for LightGBM: ``from smdwidgets.lightgbm import callback``."""

from typing import TYPE_CHECKING

from smdwidgets.hooks import names as _names
from smdwidgets.hooks.frameworks import FRAMEWORKS
from smdwidgets.hooks.names import *

if TYPE_CHECKING:
    from smdwidgets.hooks.boosting.lightgbm import Hook, callback
else:
    __getattr__, __dir__ = FRAMEWORKS["lightgbm"].lazy(__name__)

__all__ = ["Hook", "callback"]
__all__ += _names.__all__
