"""The widgets: one step slider that moves everything, and rules beside their evidence.

>>> import smdwidgets
>>> smdwidgets.explore("runs/mlp")                                         # doctest: +SKIP
"""

from smdwidgets.widgets.classes import (
    Explorer,
    RulePanel,
    ScalarPanel,
    StepSlider,
    TensorInspector,
    explore,
)

__all__ = ["Explorer", "RulePanel", "ScalarPanel", "StepSlider", "TensorInspector", "explore"]
