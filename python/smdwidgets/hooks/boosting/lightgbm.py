"""A hook for LightGBM: ``lightgbm.train``, ``lightgbm.cv`` and its estimators.

::

    from smdwidgets.lightgbm import callback

    lightgbm.train(params, data, valid_sets=[data, valid], callbacks=[callback("runs/mine")])

A step is a boosting round. Metrics, such as ``valid_0-l2``, and the learning rate are always saved.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from lightgbm.basic import Booster, Dataset
from lightgbm.callback import EarlyStopException

from smdwidgets.checks.boosting import MECHANISMS, BoostingChecks
from smdwidgets.config import CollectionKeys
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.boosting.lightgbm_data import stops_early, table_of, task_of, validation_of
from smdwidgets.hooks.core.checking import check_log, stop_after
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.hooks.core.hook import guarded
from smdwidgets.stop import StopRequest

__all__ = ["Hook", "callback"]

logger = logging.getLogger("smdwidgets.hooks")

IMPORTANCE_TYPES = ("split", "gain")
_RATES = ("learning_rate", "eta", "shrinkage_rate")
_DEFAULT_RATE = 0.1


def callback(out_dir: str | os.PathLike[str] | Hook, **options: Any) -> Hook:
    """Return a callback for the ``callbacks`` of LightGBM.

    Args:
        out_dir: directory of the run, or a hook of ``smdwidgets.lightgbm`` that exists.
        **options: further arguments of :class:`Hook`.
    """
    if not isinstance(out_dir, Hook):
        return Hook(out_dir, **options)
    if options:
        raise SMDebugTypeError(
            f"cannot combine {next(iter(options))} with an existing hook; pass it when creating the hook"
        )
    return out_dir


class Hook(BaseHook):
    """Save tensors of a LightGBM training.

    These are metrics, the learning rate, hyperparameters and feature importances.
    """

    __doc__ += "\n\n    " + "".join((BaseHook.__doc__ or "").partition("Args:")[1:])

    built_in: ClassVar[Mapping[str, Sequence[str]]] = {
        CollectionKeys.ALL: (),
        CollectionKeys.DEFAULT: (),
        CollectionKeys.HYPERPARAMETERS: ("^hyperparameters/",),
        CollectionKeys.METRICS: (),
        CollectionKeys.LOSSES: (),
        CollectionKeys.FEATURE_IMPORTANCE: ("^feature_importance/",),
    }
    always_saved: ClassVar[tuple[str, ...]] = (CollectionKeys.METRICS, CollectionKeys.LOSSES)
    save_interval: ClassVar[int] = 10

    before_iteration = False

    def _attach(self) -> None:
        #: LightGBM calls callbacks in this order, and reads it from the instance alone. Early stopping, which may end
        #: the training, is the 30th.
        self.order = 25
        self._stop: StopRequest | None = None
        log = check_log(self.parts.recorder, self.options)
        self._checks = None if log is None else BoostingChecks(log, stop_after(self.options))
        self._stops_early = False
        self.parts.stopping.end_loop = self._keep_request

    def _keep_request(self, request: StopRequest) -> bool:
        self._stop = request
        return True

    @guarded
    def __call__(self, env: Any) -> None:
        """Called by LightGBM after each round.

        Raises:
            EarlyStopException: a rule requested a stop; LightGBM then ends the training.
        """
        if not self.is_open:
            return
        self._check_round(env)
        try:
            if self._begin_step():
                self._save_round(env)
        except Exception as error:
            self.guard.report_error(error)
        finally:
            self._end_step()
        stop, self._stop = self._stop, None
        if env.iteration + 1 == env.end_iteration or stop is not None:
            self.rest()
        if stop is not None:
            logger.warning("stopping the training after round %d: %s", env.iteration, stop)
            raise EarlyStopException(env.iteration, env.evaluation_result_list or [])

    @guarded
    def training_begins(self, arguments: Mapping[str, Any]) -> None:
        """Check the data of a call of ``lightgbm.train`` before it begins.

        `smdwidgets run` calls this method. A hook that a script creates checks what the first round shows.

        Args:
            arguments: the arguments of the call by name.
        """
        checks, data = self._checks, arguments.get("train_set")
        if checks is None or not self.is_open or not isinstance(data, Dataset):
            return
        if self.num_workers > 1:
            checks.log.off(MECHANISMS["data"], "the data are distributed")
            return
        parameters = {**(data.params or {}), **(arguments.get("params") or {})}
        self._stops_early = stops = stops_early(parameters, arguments.get("callbacks") or ())
        sets = arguments.get("valid_sets") or ()
        sets = [sets] if isinstance(sets, Dataset) else list(sets)
        names = arguments.get("valid_names") or ()
        names = [names] if isinstance(names, str) else list(names)
        task, classes, merges = task_of(parameters)
        checks.begins(lambda: table_of(data), lambda: validation_of(data, sets, names, stops), task, classes, merges)

    def _check_round(self, env: Any) -> None:
        checks = self._checks
        if checks is None:
            return
        model = env.model
        is_booster = isinstance(model, Booster)
        if is_booster and not checks.began:
            sets, names = list(model.valid_sets), list(model.name_valid_sets)
            arguments = {"params": env.params, "train_set": model.train_set, "valid_sets": sets, "valid_names": names}
            self.training_begins(arguments)
        checks.rate(_rate(env.params))
        if self._stops_early:
            self._stops_early = False
            for _, metric, _, maximizes, *_ in env.evaluation_result_list or ():
                checks.stops_by(metric, maximizes)
        checks.round(lambda: _leaves(model, env.iteration) if is_booster else [])

    def _detach(self) -> None:
        if self._checks is not None:
            self._checks.close()

    def _save_round(self, env: Any) -> None:
        for result in env.evaluation_result_list or ():
            self._save_metric(*result)
        rate = _rate(env.params)
        if rate is not None:
            self.save_scalar("learning_rate", rate)
        if self._wants(CollectionKeys.HYPERPARAMETERS):
            for name, value in env.params.items():
                plain = value if isinstance(value, int | float | str) else str(value)
                self._capture(f"hyperparameters/{name}", plain)
        if self._wants(CollectionKeys.FEATURE_IMPORTANCE) and hasattr(env.model, "feature_name"):
            for kind in IMPORTANCE_TYPES:
                scores = np.asarray(env.model.feature_importance(kind), np.float64)
                for feature, score in zip(env.model.feature_name(), scores / (scores.sum() or 1.0), strict=True):
                    self._capture(f"feature_importance/{kind}/{feature}", float(score))

    def _save_metric(
        self, data: str, metric: str, value: float, maximize: bool, deviation: float | None = None, *_: object
    ) -> None:
        """Save a metric; ``deviation`` is over the folds of a cross-validation."""
        if data == "cv_agg":  # before version 4.7 the name of the data is part of the metric
            data, metric = metric.split(" ", 1)
        name = f"{data}-{metric}"
        collections = [CollectionKeys.METRICS, *([] if maximize else [CollectionKeys.LOSSES])]
        for collection in collections:
            self.get_collection(collection).add_tensor_name(name)
        self._capture(name, float(value))
        if deviation is not None:
            self.get_collection(CollectionKeys.METRICS).add_tensor_name(f"{name}-std")
            self._capture(f"{name}-std", float(deviation))

    def _wants(self, name: str) -> bool:
        names = (name, CollectionKeys.ALL, CollectionKeys.DEFAULT)
        return any(collection.name in names for collection in self.parts.plan.saving)

    def _why_missing(self, name: str) -> str:
        if name == CollectionKeys.LOSSES:
            return "LightGBM evaluated no metric that is minimised; pass valid_sets (or eval_set) to the training"
        return super()._why_missing(name)


def _leaves(model: Any, iteration: int) -> list[int]:
    """Return the number of leaves of each tree of a round."""
    trees = model.dump_model(num_iteration=1, start_iteration=iteration)["tree_info"]
    # A round without a split has no tree.
    return [int(one["num_leaves"]) for one in trees] or [1]


def _rate(params: Mapping[str, Any]) -> float | None:
    """Return the learning rate of a round; None for a random forest, which has none."""
    boosting = {str(params[name]) for name in ("boosting", "boosting_type", "boost") if name in params}
    if boosting & {"rf", "random_forest"}:
        return None
    return float(next((params[name] for name in _RATES if params.get(name) is not None), _DEFAULT_RATE))
