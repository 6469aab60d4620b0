"""Base configurations of the built-in rules for a SageMaker training request.

>>> from smdwidgets.rules import rule_configs
>>> rule_configs.vanishing_gradient()["CollectionConfigurations"]
[{'CollectionName': 'gradients', 'CollectionParameters': {'save_interval': '500'}}]

A configuration names the rule and the collections that the hook must save for it. It omits the parameters' defaults,
which the rules define. `smdwidgets.rules.rules_from_json` creates rules from configurations. No function needs the
network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.rules import builtin
from smdwidgets.rules.builtin.base import BuiltinRule

__all__ = ["get_collection"]

Configuration = dict[str, Any]


def configuration(rule: type[BuiltinRule]) -> Configuration:
    """Return the base configuration of a rule."""
    made: Configuration = {
        "DebugRuleConfiguration": {
            "RuleConfigurationName": rule.__name__,
            "RuleParameters": {"rule_to_invoke": rule.__name__},
        }
    }
    if rule.collections:
        made["CollectionConfigurations"] = [
            {"CollectionName": name, "CollectionParameters": dict(parameters)}
            for name, parameters in rule.collections.items()
        ]
    return made


def _of(rule: type[BuiltinRule]) -> Callable[[], Configuration]:
    def make() -> Configuration:
        return configuration(rule)

    make.__doc__ = f"Return the base configuration of {rule.__name__}."
    return make


vanishing_gradient = _of(builtin.VanishingGradient)
exploding_tensor = _of(builtin.ExplodingTensor)
poor_weight_initialization = _of(builtin.PoorWeightInitialization)
saturated_activation = _of(builtin.SaturatedActivation)
dead_relu = _of(builtin.DeadRelu)
weight_update_ratio = _of(builtin.WeightUpdateRatio)
tensor_variance = _of(builtin.TensorVariance)
unchanged_tensor = _of(builtin.UnchangedTensor)
all_zero = _of(builtin.AllZero)
class_imbalance = _of(builtin.ClassImbalance)
confusion = _of(builtin.Confusion)
loss_not_decreasing = _of(builtin.LossNotDecreasing)
overfit = _of(builtin.Overfit)
overtraining = _of(builtin.Overtraining)
similar_across_runs = _of(builtin.SimilarAcrossRuns)
stalled_training_rule = _of(builtin.StalledTrainingRule)
check_input_images = _of(builtin.CheckInputImages)
nlp_sequence_ratio = _of(builtin.NLPSequenceRatio)
feature_importance_overweight = _of(builtin.FeatureImportanceOverweight)
tree_depth = _of(builtin.TreeDepth)
create_xgboost_report = _of(builtin.CreateXgboostReport)
gradient_norm_spike = _of(builtin.GradientNormSpike)
loss_spike = _of(builtin.LossSpike)
weight_norm_growth = _of(builtin.WeightNormGrowth)
activation_collapse = _of(builtin.ActivationCollapse)
learning_rate_schedule = _of(builtin.LearningRateSchedule)
worker_divergence = _of(builtin.WorkerDivergence)

_COLLECTIONS: dict[str, dict[str, str]] = {
    "weights": {"save_interval": "500"},
    "gradients": {"save_interval": "500"},
    "losses": {"save_interval": "500"},
    **{
        name: dict(parameters)
        for rule in (
            builtin.CheckInputImages,
            builtin.DeadRelu,
            builtin.PoorWeightInitialization,
            builtin.NLPSequenceRatio,
        )
        for name, parameters in rule.collections.items()
    },
}


def get_collection(name: str) -> dict[str, Any]:
    """Return the configuration of a collection that rules use.

    >>> get_collection("relu_output")["CollectionParameters"]["include_regex"]
    '.*relu_output'
    """
    if name not in _COLLECTIONS:
        known = ", ".join(_COLLECTIONS)
        raise SMDebugValueError(
            f"unknown collection {shown(name)}; choose from {known}.{did_you_mean(name, _COLLECTIONS)}"
        )
    return {"CollectionName": name, "CollectionParameters": dict(_COLLECTIONS[name])}
