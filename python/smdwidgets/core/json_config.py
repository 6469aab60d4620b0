"""Hooks from configuration files, under the names of `smdebug.core.json_config`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from smdwidgets.core.config_constants import (
    CONFIG_COLLECTION_CONFIG_KEY,
    CONFIG_COLLECTION_NAME_KEY,
    CONFIG_FILE_PATH_ENV_STR,
    DEFAULT_CONFIG_FILE_PATH,
    DEFAULT_SAGEMAKER_OUTDIR,
    DEFAULT_SAGEMAKER_TENSORBOARD_PATH,
    TENSORBOARD_CONFIG_FILE_PATH_ENV_STR,
)
from smdwidgets.hooks.core.hook import Hook
from smdwidgets.hooks.core.json_config import config_path, read

__all__ = [
    "CONFIG_FILE_PATH_ENV_STR",
    "DEFAULT_CONFIG_FILE_PATH",
    "DEFAULT_SAGEMAKER_OUTDIR",
    "DEFAULT_SAGEMAKER_TENSORBOARD_PATH",
    "TENSORBOARD_CONFIG_FILE_PATH_ENV_STR",
    "create_hook_from_json_config",
    "get_include_collections",
    "get_json_config_as_dict",
]

AnyHook = TypeVar("AnyHook", bound=Hook)


def create_hook_from_json_config(
    hook_cls: type[AnyHook],
    json_config_path: str | os.PathLike[str] | None,
    default_values: Mapping[str, Any] | None = None,
) -> AnyHook:
    """Create a hook from a configuration file.

    Args:
        hook_cls: the class of the hook.
        json_config_path: the file. By default the environment variable SMDEBUG_CONFIG_FILE_PATH names it.
        default_values: accepted for compatibility. Each hook class has its own default save interval.
    """
    return hook_cls.create_from_json_file(json_config_path)


def get_json_config_as_dict(json_config_path: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Return the content of a configuration file.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return dict(read(config_path(json_config_path)))


def get_include_collections(params_dict: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the configured collections, or None if there are none.

    >>> get_include_collections({"CollectionConfigurations": [{"CollectionName": "losses"}]})
    ['losses']
    """
    configured = params_dict.get(CONFIG_COLLECTION_CONFIG_KEY)
    return None if configured is None else [one[CONFIG_COLLECTION_NAME_KEY] for one in configured]
