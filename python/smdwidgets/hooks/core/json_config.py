"""Read a hook's configuration from a JSON file in SageMaker's format.

::

    {"LocalPath": "/tmp/run",
     "HookParameters": {"save_interval": "100", "include_regex": "relu,tanh", "save_all": "false"},
     "CollectionConfigurations": [
         {"CollectionName": "gradients", "CollectionParameters": {"train.save_interval": "50", "reductions":
         "l2_norm"}}]}

Numbers, booleans and lists may be given as strings, because SageMaker writes only strings.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.config import Collection, ModeKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.config._parse import mapping, texts, truth
from smdwidgets.config.save_config import ALLOWED_PARAMS
from smdwidgets.exceptions import SMDebugError, SMDebugValueError

__all__ = ["CONFIG_FILE_PATH_ENV", "DEFAULT_CONFIG_FILE", "HOOK_FILE_KEYS", "HookFile", "config_path", "read"]

logger = logging.getLogger("smdwidgets.hooks")

CONFIG_FILE_PATH_ENV = "SMDEBUG_CONFIG_FILE_PATH"
DEFAULT_CONFIG_FILE = "/opt/ml/input/config/debughookconfig.json"
#: The directory that SageMaker uploads tensors from; used if the file contains no directory.
DEFAULT_OUT_DIR = "/opt/ml/output/tensors"
TENSORBOARD_CONFIG_FILE_PATH_ENV = "TENSORBOARD_CONFIG_FILE_PATH"
DEFAULT_TENSORBOARD_CONFIG_FILE = "/opt/ml/input/config/tensorboardoutputconfig.json"

#: Keys of a configuration file.
HOOK_FILE_KEYS = ("S3Path", "S3OutputPath", "LocalPath", "HookParameters", "CollectionConfigurations")
_STEPS = tuple(
    f"{prefix}{key}" for prefix in ("", *(f"{mode.name.lower()}." for mode in ModeKeys)) for key in ALLOWED_PARAMS
)
_REDUCTIONS = ("reductions", "save_raw_tensor", "save_shape")
_HOOK = (
    *_STEPS, *_REDUCTIONS, "include_regex", "include_collections", "save_all", "include_workers", "export_tensorboard", "tensorboard_dir", "dry_run",
)  # fmt: skip
_COLLECTION = (*_STEPS, *_REDUCTIONS, "include_regex", "save_histogram")


class HookFile:
    """The hook configuration in a JSON file."""

    def __init__(self, path: str | os.PathLike[str] | None, save_interval: int) -> None:
        path = config_path(path)
        config = read(path)
        self._default = {"save_interval": save_interval}
        try:
            parameters = mapping(config.get("HookParameters") or {}, "HookParameters")
            _warn_unknown(parameters, _HOOK, f"{shown(str(path), 200)}: HookParameters")
            steps = _steps(parameters)
            self._collections = [
                _collection(one, steps, shown(str(path), 200)) for one in config.get("CollectionConfigurations") or []
            ]
            #: Arguments for the hook's constructor.
            self.arguments = _arguments(config, parameters)
            if any(steps.values()):
                by_mode = {mode: {**self._default, **one} for mode, one in steps.items()}
                self.arguments["save_config"] = SaveConfig.from_dict(by_mode)
            included = [name for name, _, _ in self._collections]
            included += texts(parameters.get("include_collections") or (), "include_collections")
            self.arguments["include_collections"] = list(dict.fromkeys(included))
        except (SMDebugError, TypeError) as error:
            raise SMDebugValueError(f"{shown(str(path), 200)}: {error}") from error

    def configure(self, get_collection: Callable[[str], Collection]) -> None:
        """Apply the file's collection configurations to the hook's collections."""
        for name, own_steps, given in self._collections:
            collection = get_collection(name)
            if any(own_steps.values()):
                collection.save_config = SaveConfig(
                    {mode: SaveConfigMode(**{**self._default, **one}) for mode, one in own_steps.items()}
                )
            if "include_regex" in given:
                collection.include(texts(given["include_regex"], "include_regex"))
            if "save_histogram" in given:
                collection.save_histogram = truth(given["save_histogram"], "save_histogram")
            if reductions := _reductions(given):
                collection.reduction_config = reductions


def config_path(path: str | os.PathLike[str] | None) -> Path:
    """Return the path of the configuration file.

    The default is the value of SMDEBUG_CONFIG_FILE_PATH, or else SageMaker's path.
    """
    return Path(os.environ.get(CONFIG_FILE_PATH_ENV, DEFAULT_CONFIG_FILE) if path is None else path).expanduser()


def read(path: Path) -> Mapping[str, Any]:
    """Read the file, and check that it contains a JSON object."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(
            f"hook configuration file {shown(str(path), 200)} does not exist; "
            f"pass json_file_path or set {CONFIG_FILE_PATH_ENV}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise SMDebugValueError(f"invalid JSON in {shown(str(path), 200)}: {error}") from None
    if not isinstance(content, dict):
        raise SMDebugValueError(f"{shown(str(path), 200)} must contain a JSON object, got {type(content).__name__}")
    _warn_unknown(content, HOOK_FILE_KEYS, shown(str(path), 200))
    return content


def _warn_unknown(given: Mapping[str, object], known: Sequence[str], where: str) -> None:
    """Warn about unknown keys.

    They are not an error, because smdebug ignores them and files with such keys exist.
    """
    for key in given:
        if key not in known:
            hint = did_you_mean(str(key), known)
            logger.warning("%s: unknown key %s is ignored.%s", where, shown(key), hint)


def _arguments(config: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"out_dir": config.get("LocalPath") or DEFAULT_OUT_DIR}
    if reductions := _reductions(parameters):
        arguments["reduction_config"] = reductions
    if "include_regex" in parameters:
        arguments["include_regex"] = texts(parameters["include_regex"], "include_regex")
    for name in ("save_all", "dry_run"):
        if name in parameters:
            arguments[name] = truth(parameters[name], name)
    if "include_workers" in parameters:
        arguments["include_workers"] = parameters["include_workers"]
    if "TRAINING_JOB_NAME" in os.environ:
        # In a SageMaker job, a separate file determines whether and where to write TensorBoard files.
        directory = _sagemaker_tensorboard()
        arguments.update(export_tensorboard=directory is not None, tensorboard_dir=directory)
    else:
        arguments["export_tensorboard"] = truth(parameters.get("export_tensorboard", False), "export_tensorboard")
        arguments["tensorboard_dir"] = parameters.get("tensorboard_dir")
    return arguments


def _sagemaker_tensorboard() -> str | None:
    path = Path(os.environ.get(TENSORBOARD_CONFIG_FILE_PATH_ENV, DEFAULT_TENSORBOARD_CONFIG_FILE))
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    local = found.get("LocalPath") if isinstance(found, dict) else None
    return local if isinstance(local, str) else None


def _collection(
    given: object, steps: Mapping[ModeKeys, Mapping[str, Any]], where: str
) -> tuple[str, dict[ModeKeys, dict[str, Any]], Mapping[str, Any]]:
    config = mapping(given, "each entry of CollectionConfigurations")
    _warn_unknown(config, ("CollectionName", "CollectionParameters"), f"{where}: CollectionConfigurations")
    name = config.get("CollectionName")
    if not isinstance(name, str) or not name:
        raise SMDebugValueError(
            f"missing CollectionName in an entry of CollectionConfigurations; it must be a non-empty string, got {shown(name)}"
        )
    parameters = mapping(config.get("CollectionParameters") or {}, f"CollectionParameters of {shown(name)}")
    _warn_unknown(parameters, _COLLECTION, f"{where}: CollectionParameters of {shown(name)}")
    own = {mode: {**steps[mode], **one} for mode, one in _steps(parameters).items()}
    return name, own, parameters


def _steps(parameters: Mapping[str, Any]) -> dict[ModeKeys, dict[str, Any]]:
    """Return the save parameters of each mode.

    ``save_interval`` applies to all modes, ``train.save_interval`` to one.
    """
    return {
        mode: {
            key: parameters[name]
            for key in ALLOWED_PARAMS
            for name in (key, f"{mode.name.lower()}.{key}")
            if name in parameters
        }
        for mode in ModeKeys
    }


def _reductions(parameters: Mapping[str, Any]) -> ReductionConfig | None:
    if not any(key in parameters for key in _REDUCTIONS):
        return None
    if "reductions" not in parameters and "save_raw_tensor" not in parameters:
        # save_shape alone means: save the shape instead of the value.
        return ReductionConfig(save_shape=truth(parameters["save_shape"], "save_shape"))
    return ReductionConfig.from_dict(parameters)
