"""A run's tensors in the formats of other tools: ``npz``, ``parquet``, ``tensorboard``."""

from smdwidgets.exports.export import FORMATS, default_name, export
from smdwidgets.trials.extensions import Exported

__all__ = ["FORMATS", "Exported", "default_name", "export"]
