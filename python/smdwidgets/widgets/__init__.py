"""Notebook widgets with a step slider for tensors, curves and rules.

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
