"""The built-in rules, one module per rule."""

from __future__ import annotations

from smdwidgets.rules.builtin.activation_collapse import ActivationCollapse
from smdwidgets.rules.builtin.all_zero import AllZero
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, SelectingRule
from smdwidgets.rules.builtin.check_input_images import CheckInputImages
from smdwidgets.rules.builtin.class_imbalance import ClassImbalance
from smdwidgets.rules.builtin.confusion import Confusion
from smdwidgets.rules.builtin.create_xgboost_report import CreateXgboostReport
from smdwidgets.rules.builtin.dead_relu import DeadRelu
from smdwidgets.rules.builtin.exploding_tensor import ExplodingTensor
from smdwidgets.rules.builtin.feature_importance_overweight import FeatureImportanceOverweight
from smdwidgets.rules.builtin.gradient_norm_spike import GradientNormSpike
from smdwidgets.rules.builtin.learning_rate_schedule import LearningRateSchedule
from smdwidgets.rules.builtin.loss_not_decreasing import LossNotDecreasing
from smdwidgets.rules.builtin.loss_spike import LossSpike
from smdwidgets.rules.builtin.nlp_sequence_ratio import NLPSequenceRatio
from smdwidgets.rules.builtin.overfit import Overfit
from smdwidgets.rules.builtin.overtraining import Overtraining
from smdwidgets.rules.builtin.poor_weight_initialization import PoorWeightInitialization
from smdwidgets.rules.builtin.saturated_activation import SaturatedActivation
from smdwidgets.rules.builtin.similar_across_runs import SimilarAcrossRuns
from smdwidgets.rules.builtin.stalled_training_rule import StalledTrainingRule
from smdwidgets.rules.builtin.tensor_variance import TensorVariance
from smdwidgets.rules.builtin.tree_depth import TreeDepth
from smdwidgets.rules.builtin.unchanged_tensor import UnchangedTensor
from smdwidgets.rules.builtin.vanishing_gradient import VanishingGradient
from smdwidgets.rules.builtin.weight_norm_growth import WeightNormGrowth
from smdwidgets.rules.builtin.weight_update_ratio import WeightUpdateRatio
from smdwidgets.rules.builtin.worker_divergence import WorkerDivergence

__all__ = [
    "BUILTIN",
    "ActivationCollapse",
    "AllZero",
    "BuiltinRule",
    "CheckInputImages",
    "ClassImbalance",
    "Confusion",
    "CreateXgboostReport",
    "DeadRelu",
    "ExplodingTensor",
    "FeatureImportanceOverweight",
    "GradientNormSpike",
    "LearningRateSchedule",
    "LossNotDecreasing",
    "LossSpike",
    "NLPSequenceRatio",
    "NothingToJudge",
    "Overfit",
    "Overtraining",
    "PoorWeightInitialization",
    "SaturatedActivation",
    "SelectingRule",
    "SimilarAcrossRuns",
    "StalledTrainingRule",
    "TensorVariance",
    "TreeDepth",
    "UnchangedTensor",
    "VanishingGradient",
    "WeightNormGrowth",
    "WeightUpdateRatio",
    "WorkerDivergence",
]

BUILTIN: dict[str, type[BuiltinRule]] = {
    rule.__name__: rule
    for rule in (
        VanishingGradient,
        ExplodingTensor,
        PoorWeightInitialization,
        SaturatedActivation,
        DeadRelu,
        WeightUpdateRatio,
        TensorVariance,
        UnchangedTensor,
        AllZero,
        ClassImbalance,
        Confusion,
        LossNotDecreasing,
        Overfit,
        Overtraining,
        SimilarAcrossRuns,
        StalledTrainingRule,
        CheckInputImages,
        NLPSequenceRatio,
        FeatureImportanceOverweight,
        TreeDepth,
        CreateXgboostReport,
        GradientNormSpike,
        LossSpike,
        WeightNormGrowth,
        ActivationCollapse,
        LearningRateSchedule,
        WorkerDivergence,
    )
}
"""Every built-in rule by name, in the order of the documentation: SageMaker's rules first."""
