"""Arm the frameworks that a script imports."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any, Final

from smdwidgets.launch.options import Options
from smdwidgets.launch.recording import Recording

__all__ = ["arm"]

#: The module that arms a framework, by the name of the module to arm.
_MODULES: Final = {
    "torch": "smdwidgets.launch.torch_trainings",
    "transformers.trainer": "smdwidgets.launch.trainers",
    "lightning.pytorch.trainer.trainer": "smdwidgets.launch.trainers",
    "pytorch_lightning.trainer.trainer": "smdwidgets.launch.trainers",
    "keras": "smdwidgets.launch.keras_fits",
    "xgboost": "smdwidgets.launch.boostings",
    "lightgbm": "smdwidgets.launch.boostings",
}

_recording: Recording | None = None


def arm(name: str, framework: ModuleType) -> None:
    """Have the trainings of a framework recorded. Never raises.

    Args:
        name: the name of the module.
        framework: the module, imported.
    """
    recording = _the_recording()
    recording.guarded(_arm)(recording, name, framework)


def _arm(recording: Recording, name: str, framework: ModuleType) -> None:
    importlib.import_module(_MODULES[name]).arm(recording, framework)


def _the_recording() -> Recording:
    global _recording
    if _recording is None:
        options = Options.of_environment()
        noticed: Any = sys.modules["_smdwidgets_finder"].noticed
        _recording = Recording(options, os.environ.get("SMDWIDGETS_LAUNCH", ""), noticed)
        _recording.guarded(options.check)()
    return _recording
