"""Runs and their tensors."""

from typing import TYPE_CHECKING, Any

from smdwidgets.trials.columns import Columns
from smdwidgets.trials.difference import Difference
from smdwidgets.trials.reader import StepState
from smdwidgets.trials.smdebug.compaction import Compacted, compact
from smdwidgets.trials.smdebug.local import LocalTrial
from smdwidgets.trials.sources.trial import SourceTrial
from smdwidgets.trials.tensorboard.trial import TensorBoardTrial
from smdwidgets.trials.trial import Tensor, Trial
from smdwidgets.trials.utils import create_trial, create_trials

if TYPE_CHECKING:
    from smdwidgets.trials.smdebug.remote import RemoteTrial

__all__ = [
    "Columns",
    "Compacted",
    "Difference",
    "LocalTrial",
    "RemoteTrial",
    "SourceTrial",
    "StepState",
    "Tensor",
    "TensorBoardTrial",
    "Trial",
    "compact",
    "create_trial",
    "create_trials",
]


def __getattr__(name: str) -> Any:
    # Imported at first use, since local runs do not need stores. S3Trial is its name in smdebug.
    if name in {"RemoteTrial", "S3Trial"}:
        from smdwidgets.trials.smdebug.remote import RemoteTrial

        return RemoteTrial
    raise AttributeError(f"module 'smdwidgets.trials' has no attribute {name!r}")
