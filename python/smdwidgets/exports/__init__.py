"""A run's tensors in the formats of other tools: ``npz``, ``parquet``, ``tensorboard``."""

from smdwidgets.exports.export import FORMATS, Exported, default_name, export

__all__ = ["FORMATS", "Exported", "default_name", "export"]
