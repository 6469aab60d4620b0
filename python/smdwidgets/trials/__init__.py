"""Runs and their tensors."""

from typing import TYPE_CHECKING, Any

from smdwidgets.trials.columns import Columns
from smdwidgets.trials.difference import Difference
from smdwidgets.trials.local import LocalTrial
from smdwidgets.trials.queries import StepState
from smdwidgets.trials.sources import SourceTrial
from smdwidgets.trials.tensorboard import TensorBoardTrial
from smdwidgets.trials.trial import Tensor, Trial
from smdwidgets.trials.utils import create_trial, create_trials

if TYPE_CHECKING:
    from smdwidgets.trials.s3 import S3Trial

__all__ = [
    "Columns",
    "Difference",
    "LocalTrial",
    "S3Trial",
    "SourceTrial",
    "StepState",
    "Tensor",
    "TensorBoardTrial",
    "Trial",
    "create_trial",
    "create_trials",
]


def __getattr__(name: str) -> Any:
    # Imported at first use, since local runs do not need boto3.
    if name == "S3Trial":
        from smdwidgets.trials.s3 import S3Trial

        return S3Trial
    raise AttributeError(f"module 'smdwidgets.trials' has no attribute {name!r}")
