"""Record trainings of XGBoost and LightGBM in scripts without a callback.

The estimators of scikit-learn call ``train``, too. Each call is a run, and so is each cross-validation, with the means
over its folds.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from smdwidgets.launch.recording import Recording
from smdwidgets.launch.wrapping import replace_everywhere, with_argument

__all__ = ["arm"]


def arm(recording: Recording, framework: ModuleType) -> None:
    """Record the calls of ``train`` and ``cv`` of this process."""
    open_hook = {"xgboost": _xgboost_hook, "lightgbm": _lightgbm_hook}[framework.__name__]

    def make(name: str, train: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            what = "boosting" if name == "train" else "cross-validation"
            hook = recording.guarded(open_hook)(recording, what, args, kwargs)
            if hook is None:
                return train(*args, **kwargs)
            error: BaseException | None = None
            try:
                if name == "train":  # a cross-validation divides its data itself
                    recording.guarded(_check_data)(hook, train, args, kwargs)
                found = recording.guarded(with_argument)(
                    train, "callbacks", lambda given: [*(given or ()), hook], args, kwargs
                )
                args, kwargs = found or (args, kwargs)
                return train(*args, **kwargs)
            except BaseException as raised:
                error = raised
                raise
            finally:
                recording.guarded(recording.end)(hook, error)
                del error

        return recorded

    for name in ("train", "cv"):
        replace_everywhere(framework.__name__, name, functools.partial(make, name))


def _check_data(hook: Any, train: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    hook.training_begins(inspect.signature(train).bind(*args, **kwargs).arguments)


def _xgboost_hook(recording: Recording, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import xgboost

    from smdwidgets.hooks.boosting.xgboost import Hook

    params = args[0] if args else kwargs.get("params")
    data = args[1] if len(args) > 1 else kwargs.get("dtrain")
    evaluated = [one for one, _ in kwargs.get("evals") or () if isinstance(one, xgboost.DMatrix)]
    return recording.begin(
        Hook,
        f"{what} of {data.num_row():,} rows, {data.num_col():,} features"
        if isinstance(data, xgboost.DMatrix)
        else what,
        hyperparameters=params if isinstance(params, dict) else None,
        train_data=data if isinstance(data, xgboost.DMatrix) else None,
        validation_data=evaluated[-1] if evaluated else None,
    )


def _lightgbm_hook(recording: Recording, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from smdwidgets.hooks.boosting.lightgbm import Hook

    return recording.begin(Hook, what)
