"""The callback for Transformers: ``from smdwidgets.transformers import Callback``."""

from typing import TYPE_CHECKING

from smdwidgets.hooks import names as _names
from smdwidgets.hooks.frameworks import FRAMEWORKS
from smdwidgets.hooks.names import *

if TYPE_CHECKING:
    from smdwidgets.hooks.torch.transformers import Callback
else:
    __getattr__, __dir__ = FRAMEWORKS["transformers"].lazy(__name__)

__all__ = ["Callback"]
__all__ += _names.__all__
