"""Whether activations keep their size when a model becomes wider."""

from smdwidgets.coordinate_check.check import coordcheck
from smdwidgets.coordinate_check.result import CoordinateCheck, LayerScaling

__all__ = ["CoordinateCheck", "LayerScaling", "coordcheck"]
