"""Names of the built-in collections, by framework."""

from __future__ import annotations

from typing import Final


class CollectionKeys:
    """Names of built-in collections: ``CollectionKeys.LOSSES == "losses"``."""

    ALL: Final = "all"
    DEFAULT: Final = "default"
    WEIGHTS: Final = "weights"
    BIASES: Final = "biases"
    GRADIENTS: Final = "gradients"
    LOSSES: Final = "losses"
    INPUTS: Final = "inputs"
    OUTPUTS: Final = "outputs"
    LAYERS: Final = "layers"
    METRICS: Final = "metrics"
    SM_METRICS: Final = "sm_metrics"
    OPTIMIZER_VARIABLES: Final = "optimizer_variables"
    #: Inputs and outputs of modules, which a capture plan saves. smdebug does not have it.
    ACTIVATIONS: Final = "activations"
    #: Collections of the PyTorch hook. smdebug does not have them.
    OPTIMIZER_STATE: Final = "optimizer_state"
    UPDATES: Final = "updates"
    TENSORFLOW_SUMMARIES: Final = "tensorflow_summaries"
    #: Collection of `hook.save_scalar`. smdebug does not have it.
    SCALARS: Final = "scalars"
    # XGBoost
    HYPERPARAMETERS: Final = "hyperparameters"
    PREDICTIONS: Final = "predictions"
    LABELS: Final = "labels"
    FEATURE_IMPORTANCE: Final = "feature_importance"
    AVERAGE_SHAP: Final = "average_shap"
    FULL_SHAP: Final = "full_shap"
    TREES: Final = "trees"


#: All built-in names.
BUILT_IN: Final = frozenset(value for key, value in vars(CollectionKeys).items() if key.isupper())

#: Collections of scalars, which are not reduced and have no histograms.
SCALAR_COLLECTIONS: Final = frozenset(
    {"losses", "metrics", "feature_importance", "average_shap", "sm_metrics", "scalars", "updates"}
)
#: Collections of summaries instead of tensors.
SUMMARIES_COLLECTIONS: Final = frozenset({"tensorflow_summaries"})
#: Collections that SageMaker also reports as metrics.
SM_METRIC_COLLECTIONS: Final = frozenset({"losses", "metrics", "sm_metrics"})
NON_REDUCTION_COLLECTIONS: Final = SCALAR_COLLECTIONS | SUMMARIES_COLLECTIONS
NON_HISTOGRAM_COLLECTIONS: Final = SCALAR_COLLECTIONS | SUMMARIES_COLLECTIONS

_COMMON: Final = frozenset({"all", "default", "weights", "biases", "gradients", "losses"})
DEFAULT_PYTORCH_COLLECTIONS: Final = _COMMON
DEFAULT_MXNET_COLLECTIONS: Final = _COMMON
DEFAULT_TF_COLLECTIONS: Final = _COMMON | {
    "metrics", "inputs", "outputs", "layers", "sm_metrics", "optimizer_variables",
}  # fmt: skip
DEFAULT_XGBOOST_COLLECTIONS: Final = frozenset(
    {
        "all",
        "default",
        "hyperparameters",
        "predictions",
        "labels",
        "feature_importance",
        "average_shap",
        "full_shap",
        "trees",
    }
)
