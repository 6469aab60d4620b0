"""Call the public API of smdebug or smdwidgets on runs.

Usage: `python ask.py MODULE RUN ...`; prints one JSON object.

Runs in the peers' environment with `smdebug` and in ours with `smdwidgets`. The key of each result is the call, so that
both packages are compared call by call.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import sys
from typing import Any

import numpy as np

REGEXES = [".*", "weight", "^(?!gradient).*weight", "a$", ["^a", "^b"], "[", "nothing like it"]
REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2", "median"]


def plain(value: Any) -> Any:
    """Convert a result to JSON types."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind in "US":
            return {"str": array.shape, "is": array.reshape(-1).tolist()}
        if array.size == 1 and array.dtype.kind in "iufb":
            return {array.dtype.name: list(array.shape), "is": repr(float(array.reshape(-1)[0]))}
        return {
            array.dtype.name: list(array.shape),
            "is": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
        }
    if isinstance(value, dict):
        return {str(getattr(key, "name", key)): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set) or type(value).__name__ == "dict_keys":
        return [plain(one) for one in value]
    if hasattr(value, "to_json_dict"):
        return value.to_json_dict()
    if hasattr(value, "name") and not isinstance(value, str):
        return value.name
    return value


class Asked(dict):
    """Results by call."""

    def ask(self, call: str, **names: Any) -> Any:
        try:
            answer = eval(call, names)
            self[self.spelled(call, names)] = plain(answer)
        except Exception as error:
            answer = None
            self[self.spelled(call, names)] = {"raises": type(error).__name__}
        return answer

    @staticmethod
    def spelled(call: str, names: dict[str, Any]) -> str:
        arguments = {
            name: getattr(value, "name", value)
            for name, value in names.items()
            if name not in ("trial", "t", "open", "__builtins__")
        }
        tensor = names.get("t")
        return " ".join(
            [call, *(f"{name}={value}" for name, value in arguments.items()), f"of {tensor.name}" if tensor else ""]
        )


def about(module: str, path: str) -> dict[str, Any]:
    """Return the results of all calls about one run."""
    trials = importlib.import_module(f"{module}.trials")
    modes = importlib.import_module(f"{module}.core.modes").ModeKeys
    asked = Asked()
    try:
        trial = trials.create_trial(path)
    except Exception as error:
        return {"create_trial": {"raises": type(error).__name__}}
    ask = lambda call, **names: asked.ask(call, trial=trial, **names)  # noqa: E731
    ask("trial.name")
    ask("trial.workers()")
    ask("sorted(mode.name for mode in trial.modes())")
    every = ask("trial.steps(show_incomplete_steps=True)") or []
    some = sorted({*every, *(step + 1 for step in every), -1, 0, 10**6})
    for mode in modes:
        ask("trial.steps(mode=mode)", mode=mode)
        of_mode = ask("trial.steps(mode=mode, show_incomplete_steps=True)", mode=mode) or []
        ask("trial.tensor_names(mode=mode)", mode=mode)
        for step in sorted({*of_mode, *(step + 1 for step in of_mode), 0}):
            ask("trial.has_passed_step(step, mode)", step=step, mode=mode)
            ask("trial.global_step(mode, step)", step=step, mode=mode)
            ask("trial.tensor_names(step=step, mode=mode)", step=step, mode=mode)
    for step in some:
        ask("trial.mode(step)", step=step)
        ask("trial.mode_step(step)", step=step)
        ask("trial.has_passed_step(step)", step=step)
        ask("trial.tensor_names(step=step)", step=step)
    for regex in REGEXES:
        ask("trial.tensor_names(regex=regex)", regex=regex)
    collections = ask("trial.collections()") or {}
    for name in collections:
        ask("trial.tensor_names(collection=name)", name=name)
        ask("trial.tensor_names(collection=trial.collection(name))", name=name)
        ask("trial.tensor_names(step=0, collection=name)", name=name)
    ask("trial.tensor_names(regex='a', collection='default')")
    ask("trial.has_tensor('nothing')")
    ask("trial.tensor('nothing')")
    for begin, end in ((None, 10), (10, None), (5, 20), (20, 5), (-1, None)):
        limited = functools.partial(trials.create_trial, path)
        asked.ask("open(range_steps=(begin, end)).steps()", open=limited, begin=begin, end=end)
    for name in ask("trial.tensor_names()") or []:
        about_tensor(asked, trial, trial.tensor(name), modes, some)
    return dict(asked)


def about_tensor(asked: Asked, trial: Any, t: Any, modes: Any, some: list[int]) -> None:
    """Return the results of all calls about one tensor."""
    ask = lambda call, **names: asked.ask(call, t=t, **names)  # noqa: E731
    for mode in modes:
        ask("t.steps(mode)", mode=mode)
        of_mode = ask("t.steps(mode, show_incomplete_steps=True)", mode=mode) or []
        ask("t.values(mode)", mode=mode)
        for step in of_mode[:3]:
            for n in (None, 1, 3):
                ask("t.prev_steps(step, n, mode)", step=step, n=n, mode=mode)
            ask("t.value(step, mode)", step=step, mode=mode)
            ask("t.workers(step, mode)", step=step, mode=mode)
            ask("t.shape(step, mode)", step=step, mode=mode)
    there = t.steps(show_incomplete_steps=True)
    for step in {*there[:3], *there[-2:], *some[:2], *some[-2:]}:
        ask("t.value(step)", step=step)
        ask("t.shape(step)", step=step)
        ask("t.workers(step)", step=step)
        ask("t.reduction_values(step)", step=step)
        ask("t.value(step, worker='worker_1')", step=step)
        for name in REDUCTIONS:
            ask("t.reduction_value(step, name)", step=step, name=name)
            ask("t.reduction_value(step, name, abs=True)", step=step, name=name)


if __name__ == "__main__":
    package, *paths = sys.argv[1:]
    print(json.dumps({path: about(package, path) for path in paths}))
