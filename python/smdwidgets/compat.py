"""Run scripts written for smdebug: ``import smdebug`` imports this package.

>>> import smdwidgets
>>> smdwidgets.install_as_smdebug()                  # doctest: +SKIP
>>> from smdebug.trials import create_trial          # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final, NamedTuple

from smdwidgets._text import did_you_mean
from smdwidgets.exceptions import SMDebugRuntimeError

__all__ = ["MODULES", "Mapped", "install_as_smdebug"]

_THEIRS: Final = "smdebug"
_OURS: Final = "smdwidgets"


class Mapped(NamedTuple):
    """The counterpart of one module of smdebug."""

    #: The module below smdwidgets that is imported instead; empty for the package itself.
    module: str
    #: The names of smdebug that it offers.
    names: tuple[str, ...]


def _mapped(module: str, names: str) -> Mapped:
    return Mapped(module, tuple(names.split()))


_HOOKS: Final = "del_hook get_hook set_hook"
_FRAMEWORK: Final = (
    f"Collection CollectionKeys Hook ReductionConfig SaveConfig SaveConfigMode create_trial modes {_HOOKS}"
)
_KERAS: Final = _FRAMEWORK.replace(" Hook ", " KerasHook ")
_EXCEPTIONS: Final = """
    IndexReaderException InsufficientInformationForRuleInvocation InvalidCollectionConfiguration InvalidWorker
    MissingCollectionFiles NoMoreData NoMoreProfilerData RuleEvaluationConditionMet SMDebugCustomerError SMDebugError
    SMDebugNotImplementedError SMDebugRuntimeError SMDebugTypeError SMDebugValueError ShapeUnavailableForStep
    StepNotYetAvailable StepUnavailable TensorUnavailable TensorUnavailableForStep
"""

MODULES: Final[Mapping[str, Mapped]] = {
    "": _mapped("", "CollectionKeys ReductionConfig SaveConfig SaveConfigMode __version__ modes"),
    "analysis": _mapped("analysis", ""),
    "analysis.utils": _mapped("analysis.utils", "no_refresh parse_bool parse_list_from_str refresh"),
    "core": _mapped("core", ""),
    "core.collection": _mapped(
        "core.collection",
        """Collection CollectionKeys DEFAULT_MXNET_COLLECTIONS DEFAULT_PYTORCH_COLLECTIONS DEFAULT_TF_COLLECTIONS
        DEFAULT_XGBOOST_COLLECTIONS NON_HISTOGRAM_COLLECTIONS NON_REDUCTION_COLLECTIONS SCALAR_COLLECTIONS
        SM_METRIC_COLLECTIONS SUMMARIES_COLLECTIONS""",
    ),
    "core.collection_manager": _mapped("core.collection_manager", "CollectionManager"),
    "core.config_constants": _mapped(
        "core.config_constants",
        """CONFIG_COLLECTION_CONFIG_KEY CONFIG_COLLECTION_NAME_KEY CONFIG_COLLECTION_PARAMS_KEY CONFIG_FILE_PATH_ENV_STR
        CONFIG_HOOK_PARAMS_KEY CONFIG_INCLUDE_REGEX_KEY CONFIG_INCLUDE_WORKERS_KEY CONFIG_OUTDIR_KEY CONFIG_SAVE_ALL_KEY
        DEFAULT_COLLECTIONS_FILE_NAME DEFAULT_CONFIG_FILE_PATH DEFAULT_SAGEMAKER_OUTDIR DEFAULT_SAGEMAKER_TENSORBOARD_PATH
        DEFAULT_SAVED_COLLECTIONS DEFAULT_WORKER_NAME EXPORT_TENSORBOARD_KEY INCOMPLETE_STEP_WAIT_WINDOW_DEFAULT
        INCOMPLETE_STEP_WAIT_WINDOW_KEY MISSING_EVENT_FILE_RETRY_LIMIT MISSING_EVENT_FILE_RETRY_LIMIT_KEY
        TENSORBOARD_CONFIG_FILE_PATH_ENV_STR TENSORBOARD_DIR_KEY TRAINING_END_DELAY_REFRESH_DEFAULT
        TRAINING_END_DELAY_REFRESH_KEY""",
    ),
    "core.json_config": _mapped(
        "core.json_config",
        """CONFIG_FILE_PATH_ENV_STR DEFAULT_CONFIG_FILE_PATH DEFAULT_SAGEMAKER_OUTDIR DEFAULT_SAGEMAKER_TENSORBOARD_PATH
        TENSORBOARD_CONFIG_FILE_PATH_ENV_STR create_hook_from_json_config get_include_collections
        get_json_config_as_dict""",
    ),
    "core.logger": _mapped("core.logger", "get_logger"),
    "core.modes": _mapped(
        "core.modes",
        "ALLOWED_MODES ALLOWED_MODE_NAMES MODE_PLUGIN_NAME MODE_STEP_PLUGIN_NAME ModeKeys str_to_mode_keys",
    ),
    "core.reader": _mapped("core.reader", "FileReader"),
    "core.reduction_config": _mapped("core.reduction_config", "ALLOWED_NORMS ALLOWED_REDUCTIONS ReductionConfig"),
    "core.save_config": _mapped(
        "core.save_config",
        """ALLOWED_PARAMS DEFAULT_SAVE_CONFIG_END_STEP DEFAULT_SAVE_CONFIG_INTERVAL DEFAULT_SAVE_CONFIG_START_STEP SaveConfig
        SaveConfigMode""",
    ),
    "core.tensor": _mapped("core.tensor", "StepState Tensor"),
    "core.utils": _mapped(
        "core.utils",
        "FRAMEWORK ensure_dir flatten get_path_to_collections is_s3 make_numpy_array match_inc merge_two_dicts split",
    ),
    "exceptions": _mapped("exceptions", _EXCEPTIONS),
    "mxnet": _mapped("mxnet", _FRAMEWORK),
    "mxnet.collection": _mapped("mxnet", "Collection CollectionKeys"),
    "mxnet.hook": _mapped("mxnet", "Hook"),
    "mxnet.singleton_utils": _mapped("mxnet", _HOOKS),
    "profiler": _mapped("profiler", ""),
    "profiler.utils": _mapped("profiler.utils", "str2bool"),
    "pytorch": _mapped("pytorch", _FRAMEWORK),
    "pytorch.collection": _mapped("pytorch", "Collection CollectionKeys"),
    "pytorch.hook": _mapped("pytorch", "Hook"),
    "pytorch.singleton_utils": _mapped("pytorch", _HOOKS),
    "rules": _mapped("rules", "RequiredTensors RequiredTensorsForTrial Rule invoke_rule"),
    "rules.action": _mapped("rules.smdebug_actions", "Actions"),
    "rules.action.action": _mapped("rules.smdebug_actions", "ALLOWED_ACTIONS Actions"),
    "rules.action.message_action": _mapped("rules.smdebug_actions", "MessageAction"),
    "rules.action.stop_training_action": _mapped("rules.smdebug_actions", "StopTrainingAction"),
    "rules.req_tensors": _mapped("rules.required", "RequiredTensors RequiredTensorsForTrial"),
    "rules.rule": _mapped("rules.rule", "Rule"),
    "rules.rule_invoker": _mapped("rules.invoke", "invoke_rule"),
    "tensorflow": _mapped("tensorflow", _KERAS),
    "tensorflow.collection": _mapped("tensorflow", "Collection CollectionKeys"),
    "tensorflow.keras": _mapped("tensorflow", "KerasHook"),
    "tensorflow.session": _mapped("tensorflow", ""),
    "tensorflow.singleton_utils": _mapped("tensorflow", _HOOKS),
    "trials": _mapped("trials", "LocalTrial S3Trial Trial create_trial"),
    "trials.local_trial": _mapped("trials", "LocalTrial"),
    "trials.s3_trial": _mapped("trials", "S3Trial"),
    "trials.trial": _mapped("trials.trial", "Trial"),
    "trials.utils": _mapped("trials.utils", "create_trial"),
    "xgboost": _mapped("xgboost", _FRAMEWORK),
    "xgboost.collection": _mapped("xgboost", "CollectionKeys"),
    "xgboost.hook": _mapped("xgboost", "Hook"),
    "xgboost.singleton_utils": _mapped("xgboost", _HOOKS),
}
"""Every module of smdebug that is offered, relative to `smdebug`, and the names in it.

`Hook` and `KerasHook`, and `Collection` of PyTorch and TensorFlow, need their framework; all others do not.
"""


def install_as_smdebug() -> None:
    """Make ``import smdebug``, and the imports of its submodules, import this package.

    Calling it again changes nothing.

    Raises:
        SMDebugRuntimeError: the real smdebug was imported before. Objects of both cannot be mixed.
    """
    real = sys.modules.get(_THEIRS)
    if real is not None and real is not sys.modules[_OURS]:
        where = getattr(real, "__file__", None) or "?"
        raise SMDebugRuntimeError(
            f"The real smdebug is already imported (from {where}). Call smdwidgets.install_as_smdebug() before the first "
            "import of smdebug, in a fresh process or after restarting the notebook's kernel."
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder, Loader):
    """Imports ``smdebug`` and everything below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _THEIRS and not fullname.startswith(_THEIRS + "."):
            return None
        name = self._ours(fullname)
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise _not_offered(fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        ours = importlib.import_module(self._ours(module.__name__))
        if not hasattr(ours, "__path__"):
            # smdebug.pytorch is a package, smdwidgets.pytorch is not. Only a package can have submodules.
            ours.__path__ = []
        # The import system returns what sys.modules holds after this: our own module, under a second name.
        sys.modules[module.__name__] = ours

    @staticmethod
    def _ours(fullname: str) -> str:
        tail = fullname[len(_THEIRS) + 1 :]
        module = MODULES[tail].module if tail in MODULES else tail
        return f"{_OURS}.{module}" if module else _OURS


def _not_offered(fullname: str) -> ModuleNotFoundError:
    tail = fullname[len(_THEIRS) + 1 :]
    top, _, below = tail.partition(".")
    if top == "profiler":
        from smdwidgets.profiler import explain

        return ModuleNotFoundError(explain(below), name=fullname)
    hint = did_you_mean(tail, [name for name in MODULES if name])
    return ModuleNotFoundError(
        f"{fullname} is not available in smdwidgets.{hint} See docs/moving.md for the modules that are.", name=fullname
    )
