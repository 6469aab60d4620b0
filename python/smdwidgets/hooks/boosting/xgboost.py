"""A hook for XGBoost, for ``xgboost.train`` and scikit-learn estimators.

::

    from smdwidgets.xgboost import Hook

    hook = Hook("/tmp/run", train_data=dtrain, validation_data=dval, hyperparameters=params)
    xgboost.train(params, dtrain, evals=[(dval, "validation")], callbacks=[hook])

A step is a boosting round. Metrics, such as ``validation-rmse``, are always saved. To save other collections, list them
in ``include_collections`` or pass ``save_all=True``.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import xgboost
from numpy.typing import NDArray

from smdwidgets.checks.boosting import MECHANISMS, BoostingChecks
from smdwidgets.config import CollectionKeys
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.boosting.xgboost_data import Stopping, rate_of, table_of, task_of, validation_of
from smdwidgets.hooks.core.checking import check_log, stop_after
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.hooks.core.hook import guarded
from smdwidgets.hooks.core.options import HookOptions

__all__ = ["Hook"]

logger = logging.getLogger("smdwidgets.hooks")

IMPORTANCE_TYPES = ("weight", "gain", "cover", "total_gain", "total_cover")
#: A node of a dumped tree: ``0:[f1<0.5] yes=1,no=2,missing=1,gain=3,cover=9`` or ``3:leaf=0.1,cover=4``.
_NODE = re.compile(r"^\s*(\d+):(?:leaf=([^,]+)|\[(.*)\]\s+(.*?))(?:,cover=([^,]+))?$")


@dataclass(frozen=True, kw_only=True)
class XGBoostOptions(HookOptions):
    """The options of the XGBoost hook, which documents them."""

    hyperparameters: Mapping[str, Any] | None = None
    train_data: Any = None
    validation_data: Any = None

    def __post_init__(self) -> None:
        for name, data in (("train_data", self.train_data), ("validation_data", self.validation_data)):
            if not (data is None or isinstance(data, xgboost.DMatrix)):
                raise SMDebugTypeError(f"{name} must be an xgboost.DMatrix or None, got {type(data).__name__}")
        parameters = self.hyperparameters
        if not (parameters is None or isinstance(parameters, Mapping)):
            raise SMDebugTypeError(f"hyperparameters must be a dictionary or None, got {type(parameters).__name__}")
        super().__post_init__()


class Hook(BaseHook, xgboost.callback.TrainingCallback):  # type: ignore[misc, unused-ignore]  # the base is Any if xgboost is not installed
    """Save tensors of an XGBoost training.

    These are metrics, predictions, feature importances, SHAP values and trees.

    Accepts the arguments of every hook, and the following:

    Args:
        hyperparameters: a dictionary, saved as ``hyperparameters/<name>``.
        train_data: the DMatrix whose SHAP values are saved.
        validation_data: the DMatrix whose labels and predictions are saved.
    """

    built_in: ClassVar[Mapping[str, Sequence[str]]] = {
        CollectionKeys.ALL: (),
        CollectionKeys.DEFAULT: (),
        CollectionKeys.HYPERPARAMETERS: ("^hyperparameters/.*$",),
        CollectionKeys.METRICS: ("^[a-zA-Z_0-9]+-[^/]+$",),
        CollectionKeys.LOSSES: (r"^[a-zA-Z_0-9]+-[^/]+(?<!auc)(?<!aucpr)(?<!map)(?<!ndcg)(?<!pre)$",),
        CollectionKeys.PREDICTIONS: ("^predictions$",),
        CollectionKeys.LABELS: ("^labels$",),
        CollectionKeys.FEATURE_IMPORTANCE: ("^feature_importance/.*",),
        # The bias is not a feature. As in smdebug, it is saved with save_all or by a pattern that matches it.
        CollectionKeys.AVERAGE_SHAP: ("^average_shap/(?!bias$)",),
        CollectionKeys.FULL_SHAP: ("^full_shap/(?!bias$)",),
        CollectionKeys.TREES: ("^trees/.*",),
    }
    always_saved: ClassVar[tuple[str, ...]] = (CollectionKeys.METRICS,)
    save_interval: ClassVar[int] = 10

    options_class: ClassVar[type[HookOptions]] = XGBoostOptions

    def _attach(self) -> None:
        options = self.options
        assert isinstance(options, XGBoostOptions)
        self.hyperparameters = options.hyperparameters
        self.train_data = options.train_data
        self.validation_data = options.validation_data
        self._lacking: set[str] = set()
        log = check_log(self.parts.recorder, options)
        self._checks = None if log is None else BoostingChecks(log, stop_after(options))
        self._stopping: Stopping | None = None
        xgboost.callback.TrainingCallback.__init__(self)

    @classmethod
    def hook_from_config(cls, json_config_path: str | os.PathLike[str] | None = None) -> Self:
        """Create a hook from a configuration file.

        SageMaker's XGBoost container calls this method.
        """
        return cls.create_from_json_file(json_config_path)

    @classmethod
    def current_worker(cls) -> tuple[str, int]:
        """Return the name of this worker and the number of workers."""
        size = xgboost.collective.get_world_size()
        return f"worker_{xgboost.collective.get_rank()}", size

    # ------------------------------------------------------------------------------------------------------- rounds

    def before_training(self, model: Any) -> Any:
        """Called by XGBoost before the first round."""
        if self._checks is not None and not self._checks.began:
            evals = [] if self.validation_data is None else [(self.validation_data, "validation_data")]
            self.training_begins({"params": self.hyperparameters, "dtrain": self.train_data, "evals": evals})
        return model

    @guarded
    def training_begins(self, arguments: Mapping[str, Any]) -> None:
        """Check the data of a call of ``xgboost.train`` before it begins.

        `smdwidgets run` calls this method. A hook that a script creates checks its ``train_data`` and
        ``validation_data``.

        Args:
            arguments: the arguments of the call by name.
        """
        checks, data = self._checks, arguments.get("dtrain")
        if checks is None or not self.is_open:
            return
        parameters = arguments.get("params")
        if not isinstance(data, xgboost.DMatrix) or self.num_workers > 1:
            why = "the data are distributed" if self.num_workers > 1 else "pass train_data to the hook"
            checks.log.off(MECHANISMS["data"], why)
            return
        self._stopping = stopping = Stopping.of(arguments)
        task, classes = task_of(parameters, arguments.get("obj"))
        checks.begins(lambda: table_of(data), lambda: validation_of(arguments, stopping), task, classes)
        checks.rate(rate_of(parameters))

    @guarded
    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        """Called by XGBoost after each round.

        Returns True to stop the training if a rule requested it.
        """
        if not self.is_open:
            return False
        self._check_round(model, evals_log)
        try:
            stopping = self.parts.stopping
            if not stopping.seen and (request := stopping.request) is not None:
                stopping.seen = True
                logger.warning("stopping the training after round %d: %s", epoch, request)
                return True
            if self._begin_step():
                self._save_round(model, epoch, evals_log)
        finally:
            self._end_step()
        return False

    def _check_round(self, model: Any, evals_log: Mapping[str, Mapping[str, Any]]) -> None:
        checks = self._checks
        if checks is None:
            return
        stopping, self._stopping = self._stopping, None
        if stopping is not None and (watched := stopping.watched(evals_log)) is not None:
            checks.stops_by(*watched)
        checks.round(lambda: self._leaves(model))

    def _leaves(self, model: Any) -> list[int]:
        """Return the number of leaves of each tree of the last round, if it has trees."""
        if not isinstance(model, xgboost.Booster) or not self._has_trees(model):
            return []
        last = model.num_boosted_rounds()
        return [tree.count("leaf=") for tree in model[last - 1 : last].get_dump()]

    def _why_missing(self, name: str) -> str:
        if name == CollectionKeys.METRICS:
            return "no data were evaluated; pass evals to xgboost.train, or eval_set to fit"
        return super()._why_missing(name)

    def _detach(self) -> None:
        if self._checks is not None:
            self._checks.close()

    def after_training(self, model: Any) -> Any:
        """Called by XGBoost after the last round.

        The hook stays open for further trainings, until :meth:`close` is called or the script exits.
        """
        if self.is_open:
            self._end_step()
            self.flush()  # scripts read the run right after training, often without closing the hook
        return model

    def _save_round(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> None:
        for data, results in evals_log.items():
            for metric, history in results.items():
                latest = history[-1]
                if isinstance(latest, tuple):  # mean and deviation over the folds of a cross-validation
                    latest, deviation = latest
                    self._capture(f"{data}-{metric}-std", deviation)
                self._capture(f"{data}-{metric}", latest)
        wanted = {collection.name for collection in self.parts.plan.saving}
        every = CollectionKeys.ALL in self.include_collections or CollectionKeys.DEFAULT in self.include_collections
        for name, save in (
            (CollectionKeys.HYPERPARAMETERS, self._save_hyperparameters),
            (CollectionKeys.PREDICTIONS, self._save_predictions),
            (CollectionKeys.LABELS, self._save_labels),
            (CollectionKeys.FEATURE_IMPORTANCE, self._save_importances),
            (CollectionKeys.TREES, self._save_trees),
        ):
            if name in wanted or (every and self.parts.plan.saving):
                save(model)
        full, average = CollectionKeys.FULL_SHAP, CollectionKeys.AVERAGE_SHAP
        if full in wanted or average in wanted or (every and self.parts.plan.saving):
            self._save_shap(model)

    def _save_hyperparameters(self, _model: Any) -> None:
        if self._has("hyperparameters", self.hyperparameters, CollectionKeys.HYPERPARAMETERS):
            for name, value in (self.hyperparameters or {}).items():
                self._capture(f"hyperparameters/{name}", value if isinstance(value, int | float | str) else str(value))

    def _save_predictions(self, model: Any) -> None:
        if self._has("validation_data", self.validation_data, CollectionKeys.PREDICTIONS):
            self._capture("predictions", model.predict(self.validation_data))

    def _save_labels(self, _model: Any) -> None:
        if self.validation_data is not None and self._has("validation_data", True, CollectionKeys.LABELS):
            self._capture("labels", self.validation_data.get_label())

    def _save_importances(self, model: Any) -> None:
        if not self._has_trees(model):
            return
        for kind in IMPORTANCE_TYPES:
            scores = model.get_score(importance_type=kind)
            total = sum(scores.values())
            for feature, score in scores.items():
                self._capture(f"feature_importance/{kind}/{feature}", score / total if total else 0.0)

    def _save_shap(self, model: Any) -> None:
        """Save the contributions of each feature and of the bias to each prediction.

        They are computed on the training data.

        ``full_shap/<feature>`` is the whole matrix for every feature, because scripts for smdebug index its columns.
        """
        if self.train_data is None:
            self._has("train_data", None, "SHAP values")
            return
        values = np.asarray(model.predict(self.train_data, pred_contribs=True))
        mean = values.mean(axis=tuple(range(values.ndim - 1)))
        names = model.feature_names or [f"f{i}" for i in range(model.num_features())]
        for i, name in enumerate([*names, "bias"]):
            self._capture(f"full_shap/{name}", values)
            self._capture(f"average_shap/{name}", mean[i])

    def _save_trees(self, model: Any) -> None:
        if self._has_trees(model):
            # A round has several trees for multi-class models and for parallel trees.
            rounds = model.num_boosted_rounds()
            first = 0
            per_round = len(model[rounds - 1 : rounds].get_dump())
            first = (rounds - 1) * per_round
            for column, values in tree_table(model[rounds - 1 : rounds].get_dump(with_stats=True), first).items():
                self._capture(f"trees/{column}", values)

    def _has(self, argument: str, value: object, what: str) -> bool:
        if value is None and argument not in self._lacking:
            self._lacking.add(argument)
            logger.warning("cannot save %s; pass %s to the hook", what, argument)
        return value is not None

    def _has_trees(self, model: Any) -> bool:
        try:
            return bool(model.num_boosted_rounds()) and "gblinear" not in model.save_config()
        except xgboost.core.XGBoostError:
            return False


def tree_table(dump: Sequence[str], first: int = 0) -> dict[str, NDArray[Any]]:
    """Convert dumped trees to columns with one row per node, ordered by tree and node.

    The result equals ``trees_to_dataframe``, but does not require pandas.
    """
    rows = sorted(_nodes(dump, first), key=lambda row: (row[0], row[1]))
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(11)]
    names = ("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing", "Gain", "Cover", "Category")
    kinds = (
        np.int64,
        np.int64,
        np.str_,
        np.str_,
        np.float64,
        np.str_,
        np.str_,
        np.str_,
        np.float64,
        np.float64,
        np.str_,
    )
    return {name: np.array(column, kind) for name, column, kind in zip(names, columns, kinds, strict=True)}


def _nodes(dump: Sequence[str], first: int) -> Iterator[tuple[Any, ...]]:
    for tree, text in enumerate(dump, first):
        for line in text.splitlines():
            found = _NODE.match(line)
            if found is None:
                continue
            node, leaf, condition, rest, cover = found.groups()
            head = (tree, int(node), f"{tree}-{node}")
            if leaf is not None:
                none = float("nan")
                yield (*head, "Leaf", none, "nan", "nan", "nan", float(leaf), float(cover or "nan"), "nan")
                continue
            stats = dict(part.split("=", 1) for part in rest.split(",") if "=" in part)
            ways = [f"{tree}-{stats[way]}" if way in stats else "nan" for way in ("yes", "no", "missing")]
            feature, split, category = _condition(condition)
            yield (*head, feature, split, *ways, float(stats.get("gain", "nan")), float(cover or "nan"), category)


def _condition(text: str) -> tuple[str, float, str]:
    """Parse a split condition.

    ``f1<0.5`` is a number, ``f1:{0,3}`` are categories, and ``f1`` is an indicator.
    """
    if text.endswith("}") and ":{" in text:
        feature, _, categories = text.rpartition(":{")
        return feature, float("nan"), categories[:-1]
    feature, less, split = text.rpartition("<")
    return (feature, float(split), "nan") if less else (text, float("nan"), "nan")
