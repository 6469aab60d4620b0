"""FeatureImportanceOverweight."""

from __future__ import annotations

import math

from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, regex_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need


class FeatureImportanceOverweight(BuiltinRule):
    """A few features of an XGBoost model carry nearly all of the importance.

    Fires when the `nfeatures` largest importances of a step are more than the share `threshold` of their sum. A model that uses no more than
    `nfeatures` features is not judged (their share is always 1), nor one whose importances sum to zero.

    What to do: is the feature a leak of the label? Is the tree too shallow? Try it without the feature.
    """

    collections = {"feature_importance": {"save_interval": "500"}}

    threshold = Real(0.8, "Largest tolerated share.", minimum=0.0, maximum=1.0)
    nfeatures = Integer(3, "How many features count as few.", minimum=1)
    tensor_regex = regex_parameter((".*feature_importance/weight",))

    @property
    def selector(self) -> Selector:
        return Selector((), self.tensor_regex)

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("mean", "size"))]

    def judge(self, step: int) -> None:
        found = self.look(self.needs()[0], step).scalars()
        importances = {name: value for name, value in found.items() if math.isfinite(value)}
        total = sum(importances.values())
        if len(importances) <= self.nfeatures:
            raise NothingToJudge(
                f"{len(importances)} features have an importance, {self.nfeatures} of them always carry all"
            )
        if total <= 0:
            raise NothingToJudge("the importances sum to zero")
        top = sorted(importances, key=lambda name: (-importances[name], name))[: self.nfeatures]
        share = sum(importances[name] for name in top) / total
        if share > self.threshold:
            names = ", ".join(name.rpartition("/")[2] for name in top)
            message = f"{names} carry {number(100 * share)} % of the importance, {number(100 * self.threshold)} % is tolerated"
            self.blame(top[0], step, share, self.threshold, message)
