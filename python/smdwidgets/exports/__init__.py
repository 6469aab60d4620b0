"""Export a run's tensors to ``npz``, ``parquet`` or ``tensorboard``."""

from smdwidgets.exports.export import FORMATS, default_name, export
from smdwidgets.trials.extensions import Exported

__all__ = ["FORMATS", "Exported", "default_name", "export"]
