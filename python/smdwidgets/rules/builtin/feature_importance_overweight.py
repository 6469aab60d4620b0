"""FeatureImportanceOverweight."""

from __future__ import annotations

import math

from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, regex_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need


class FeatureImportanceOverweight(BuiltinRule):
    """Detect XGBoost models in which a few features have most of the importance.

    Fires when the `nfeatures` largest importances at a step exceed the share `threshold` of the sum of all importances.
    A model that uses at most `nfeatures` features is not judged, because their share is always 1. A model whose
    importances sum to zero is not judged.

    What to do: check whether the feature leaks the label and whether the trees are too shallow. Train without the
    feature.
    """

    collections = {"feature_importance": {"save_interval": "500"}}

    threshold = Real(0.8, "Maximum share of the importance.", minimum=0.0, maximum=1.0)
    nfeatures = Integer(3, "Number of largest importances to sum.", minimum=1)
    tensor_regex = regex_parameter((".*feature_importance/weight",))

    @property
    def selector(self) -> Selector:
        return Selector((), self.tensor_regex)

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("mean", "size"))]

    def judge(self, step: int) -> None:
        found = self.required_table(self.needs()[0], step).scalars()
        importances = {name: value for name, value in found.items() if math.isfinite(value)}
        total = sum(importances.values())
        if len(importances) <= self.nfeatures:
            raise NothingToJudge(
                f"only {len(importances)} features have an importance; judging needs more than nfeatures={self.nfeatures}"
            )
        if total <= 0:
            raise NothingToJudge("the importances sum to zero")
        top = sorted(importances, key=lambda name: (-importances[name], name))[: self.nfeatures]
        share = sum(importances[name] for name in top) / total
        if share > self.threshold:
            names = ", ".join(name.rpartition("/")[2] for name in top)
            message = f"{names} have {number(100 * share)} % of the importance, limit {number(100 * self.threshold)} %"
            self.blame(top[0], step, share, self.threshold, message)
