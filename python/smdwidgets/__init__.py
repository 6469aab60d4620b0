"""Explore every saved tensor of a training run, live, in a notebook."""

from typing import TYPE_CHECKING, Any

from smdwidgets._core import __version__
from smdwidgets.compat import install_as_smdebug
from smdwidgets.config import CapturePlan, Collection, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.modes import ModeKeys, modes
from smdwidgets.trials import Trial, create_trial, create_trials, extensions

if TYPE_CHECKING:
    from smdwidgets.diagnosis import Diagnosis, diagnose
    from smdwidgets.plots import TensorPlots, TrialPlots
    from smdwidgets.trials.extensions import Exporter
    from smdwidgets.widgets import Explorer, RulePanel, ScalarPanel, StepSlider, TensorInspector, explore

__all__ = [
    "CapturePlan",
    "Collection",
    "CollectionKeys",
    "Diagnosis",
    "Explorer",
    "ModeKeys",
    "ReductionConfig",
    "RulePanel",
    "SaveConfig",
    "SaveConfigMode",
    "ScalarPanel",
    "StepSlider",
    "TensorInspector",
    "Trial",
    "__version__",
    "create_trial",
    "create_trials",
    "diagnose",
    "explore",
    "install_as_smdebug",
    "modes",
]

# Widgets bring ipywidgets and IPython along, which a training script and the command line have no use for.
_WIDGETS = frozenset({"Explorer", "RulePanel", "ScalarPanel", "StepSlider", "TensorInspector", "explore"})
_DIAGNOSIS = frozenset({"Diagnosis", "diagnose"})


def _tensor_plots() -> type["TensorPlots"]:
    from smdwidgets.plots import TensorPlots

    return TensorPlots


def _trial_plots() -> type["TrialPlots"]:
    from smdwidgets.plots import TrialPlots

    return TrialPlots


def _export() -> "Exporter":
    from smdwidgets.exports import export

    return export


# Imported at first use: plots bring the core's pictures along, exports the formats' writers.
extensions.tensor_plotter.register(_tensor_plots)
extensions.trial_plotter.register(_trial_plots)
extensions.exporter.register(_export)


def __getattr__(name: str) -> Any:
    if name in _WIDGETS:
        from smdwidgets import widgets

        return getattr(widgets, name)
    if name in _DIAGNOSIS:
        from smdwidgets import diagnosis

        return getattr(diagnosis, name)
    raise AttributeError(f"module 'smdwidgets' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
