"""Save configurations, under their import path in smdebug."""

from smdwidgets.config.save_config import (
    ALLOWED_PARAMS,
    DEFAULT_SAVE_CONFIG_END_STEP,
    DEFAULT_SAVE_CONFIG_INTERVAL,
    DEFAULT_SAVE_CONFIG_START_STEP,
    SaveConfig,
    SaveConfigMode,
)

__all__ = [
    "ALLOWED_PARAMS",
    "DEFAULT_SAVE_CONFIG_END_STEP",
    "DEFAULT_SAVE_CONFIG_INTERVAL",
    "DEFAULT_SAVE_CONFIG_START_STEP",
    "SaveConfig",
    "SaveConfigMode",
]
