"""Explore every saved tensor of a training run, live, in a notebook."""

import importlib
from typing import TYPE_CHECKING, Any

from smdwidgets import _extensions
from smdwidgets._core import __version__
from smdwidgets._text import did_you_mean
from smdwidgets.compat import install_as_smdebug
from smdwidgets.modes import ModeKeys, modes

if TYPE_CHECKING:
    # isort: off
    from smdwidgets import (
        analysis as analysis,
        anomalies as anomalies,
        checks as checks,
        checkup as checkup,
        compat as compat,
        config as config,
        coordinate_check as coordinate_check,
        dask as dask,
        demo as demo,
        diagnosis as diagnosis,
        exceptions as exceptions,
        executors as executors,
        exports as exports,
        finding as finding,
        incident as incident,
        jax as jax,
        keras as keras,
        lightgbm as lightgbm,
        lightning as lightning,
        mxnet as mxnet,
        naming as naming,
        numpy as numpy,
        pictures as pictures,
        plots as plots,
        pytorch as pytorch,
        queries as queries,
        replay as replay,
        rules as rules,
        run_end as run_end,
        run_table as run_table,
        sources as sources,
        stop as stop,
        storage as storage,
        survey as survey,
        tensorflow as tensorflow,
        transformers as transformers,
        trials as trials,
        widgets as widgets,
        xgboost as xgboost,
    )

    # isort: on
    from smdwidgets.checkup import Checkup, doctor
    from smdwidgets.config import CapturePlan, Collection, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
    from smdwidgets.coordinate_check import CoordinateCheck, coordcheck
    from smdwidgets.diagnosis import Diagnosis, diagnose
    from smdwidgets.executors import use
    from smdwidgets.plots import TensorPlots, TrialPlots
    from smdwidgets.queries import QueryResult, query
    from smdwidgets.rules.several import check_all
    from smdwidgets.run_table import RunTable, runs
    from smdwidgets.trials import Compacted, Trial, compact, create_trial, create_trials
    from smdwidgets.widgets import Explorer, RulePanel, ScalarPanel, StepSlider, TensorInspector, explore

__all__ = [
    "CapturePlan",
    "Checkup",
    "Collection",
    "CollectionKeys",
    "Compacted",
    "CoordinateCheck",
    "Diagnosis",
    "Explorer",
    "ModeKeys",
    "QueryResult",
    "ReductionConfig",
    "RulePanel",
    "RunTable",
    "SaveConfig",
    "SaveConfigMode",
    "ScalarPanel",
    "StepSlider",
    "TensorInspector",
    "Trial",
    "__version__",
    "check_all",
    "compact",
    "coordcheck",
    "create_trial",
    "create_trials",
    "diagnose",
    "doctor",
    "explore",
    "install_as_smdebug",
    "modes",
    "query",
    "runs",
    "use",
]

# Imported at first use: `smdwidgets --help` needs no numpy, and a training script no IPython.
_MODULES = {
    "checkup": ("Checkup", "doctor"),
    "config": ("CapturePlan", "Collection", "CollectionKeys", "ReductionConfig", "SaveConfig", "SaveConfigMode"),
    "coordinate_check": ("CoordinateCheck", "coordcheck"),
    "diagnosis": ("Diagnosis", "diagnose"),
    "executors": ("use",),
    "queries": ("QueryResult", "query"),
    "rules.several": ("check_all",),
    "run_table": ("RunTable", "runs"),
    "trials": ("Compacted", "Trial", "compact", "create_trial", "create_trials"),
    "widgets": ("Explorer", "RulePanel", "ScalarPanel", "StepSlider", "TensorInspector", "explore"),
}
# `import smdwidgets` is enough to use these, as in `smdwidgets.pytorch.record(model)`. None imports a framework.
_SUBMODULES = frozenset(
    {
        "analysis",
        "anomalies",
        "checks",
        "checkup",
        "compat",
        "config",
        "coordinate_check",
        "dask",
        "demo",
        "diagnosis",
        "exceptions",
        "executors",
        "exports",
        "finding",
        "incident",
        "jax",
        "keras",
        "lightgbm",
        "lightning",
        "mxnet",
        "naming",
        "numpy",
        "pictures",
        "plots",
        "pytorch",
        "queries",
        "replay",
        "retention",
        "rules",
        "run_end",
        "run_table",
        "signals",
        "sources",
        "stop",
        "storage",
        "survey",
        "tensorflow",
        "transformers",
        "trials",
        "widgets",
        "xgboost",
    }
)
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def _tensor_plots() -> type["TensorPlots"]:
    from smdwidgets.plots import TensorPlots

    return TensorPlots


def _trial_plots() -> type["TrialPlots"]:
    from smdwidgets.plots import TrialPlots

    return TrialPlots


def _export() -> Any:
    from smdwidgets.exports import export

    return export


def _lazy_reader() -> Any:
    import smdwidgets.dask

    return smdwidgets.dask


def _explorer() -> Any:
    from smdwidgets.widgets import explore

    return explore


def _catalog_writer() -> Any:
    from smdwidgets.run_table.catalog import add_run

    return add_run


_extensions.tensor_plotter.register(_tensor_plots)
_extensions.trial_plotter.register(_trial_plots)
_extensions.exporter.register(_export)
_extensions.lazy_reader.register(_lazy_reader)
_extensions.explorer.register(_explorer)
_extensions.catalog_writer.register(_catalog_writer)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"smdwidgets.{name}")
    if name not in _MODULE_OF:
        hint = did_you_mean(name, [*__all__, *_SUBMODULES])
        raise AttributeError(f"module 'smdwidgets' has no attribute {name!r}.{hint}".removesuffix("."))
    found = getattr(importlib.import_module(f"smdwidgets.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES})
