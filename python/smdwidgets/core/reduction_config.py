"""Reduction configurations, under their import path in smdebug."""

from smdwidgets.config.reduction_config import ALLOWED_NORMS, ALLOWED_REDUCTIONS, ReductionConfig

__all__ = ["ALLOWED_NORMS", "ALLOWED_REDUCTIONS", "ReductionConfig"]
