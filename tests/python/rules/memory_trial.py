"""An in-memory trial with only the public methods that rules can rely on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from smdwidgets import modes
from smdwidgets.exceptions import InvalidWorker, TensorUnavailable, TensorUnavailableForStep


class MemoryTensor:
    def __init__(self, trial: MemoryTrial, name: str) -> None:
        self.trial, self.name = trial, name

    def _cells(self, step: int) -> dict[str, Any]:
        return self.trial.data.get(step, {}).get(self.name, {})

    def workers(self, step: int) -> list[str]:
        return sorted(self._cells(step))

    def value(self, step: int, worker: str | None = None) -> Any:
        cells = self._cells(step)
        if not cells:
            raise TensorUnavailableForStep(self.name, step)
        if worker is not None and worker not in cells:
            raise InvalidWorker(worker, cells)
        value = cells[worker or min(cells)]
        if isinstance(value, dict):
            raise TensorUnavailableForStep(self.name, step, has_reductions=True)
        return value

    def reduction_value(self, step: int, name: str, worker: str | None = None, abs: bool = False) -> Any:
        cells = self._cells(step)
        if not cells:
            raise TensorUnavailableForStep(self.name, step)
        value = cells[worker or min(cells)]
        if isinstance(value, dict):
            key = f"abs_{name}" if abs else name
            if key not in value:
                raise TensorUnavailableForStep(self.name, step, has_reductions=True)
            return value[key]
        flat = np.abs(value).reshape(-1) if abs else np.asarray(value).reshape(-1)
        if not flat.size and name not in ("sum", "prod", "l1", "l2"):
            return np.nan
        special = {
            "variance": np.var,
            "l1": lambda x: np.abs(x).sum(),
            "l2": lambda x: np.sqrt((np.abs(x.astype(np.float64)) ** 2).sum()),
        }
        with np.errstate(all="ignore"):
            return special[name](flat) if name in special else getattr(np, name)(flat)


class MemoryTrial:
    """In-memory trial; `put` saves a tensor.

    A dict instead of a value means that only these reductions were saved.
    """

    def __init__(self, **collections: Sequence[str]) -> None:
        self.name, self.path = "memory", "memory://run"
        self.loaded_all_steps = True
        self.restarts = 0
        self.data: dict[int, dict[str, dict[str, Any]]] = {}
        self._modes: dict[int, tuple[modes, int]] = {}
        self._collections = {name: list(members) for name, members in collections.items()}

    def put(self, step: int, name: str, value: Any, worker: str = "worker_0", mode: modes = modes.GLOBAL) -> None:
        value = value if isinstance(value, dict) else np.asarray(value)
        self.data.setdefault(step, {}).setdefault(name, {})[worker] = value
        if step not in self._modes:
            count = sum(each is mode for each, _ in self._modes.values())
            self._modes[step] = mode, step if mode is modes.GLOBAL else count

    def steps(self, mode: modes = modes.GLOBAL) -> list[int]:
        if mode is modes.GLOBAL:
            return sorted(self.data)
        return sorted(number for each, number in self._modes.values() if each is mode)

    def modes(self) -> list[modes]:
        return sorted(
            {mode for mode, _ in self._modes.values() if mode is not modes.GLOBAL}, key=lambda mode: mode.value
        )

    def mode(self, step: int) -> modes | None:
        return self._modes.get(step, (None, None))[0]

    def mode_step(self, step: int) -> int | None:
        return self._modes.get(step, (None, None))[1]

    def global_step(self, mode: modes, mode_step: int) -> int | None:
        return next((step for step, known in self._modes.items() if known == (mode, mode_step)), None)

    def workers(self) -> list[str]:
        return sorted({worker for names in self.data.values() for cells in names.values() for worker in cells})

    def collections(self) -> dict[str, Any]:
        return {name: SimpleNamespace(name=name) for name in self._collections}

    def modules(self) -> dict[str, list[str]]:
        return {}

    def tensor_names(
        self, step: int | None = None, regex: str | list[str] | None = None, collection: str | None = None
    ) -> list[str]:
        names = {name for at, each in self.data.items() if step in (None, at) for name in each}
        patterns = [regex] if isinstance(regex, str) else regex
        if collection is not None:
            patterns = self._collections[collection]
        if patterns is not None:
            names = {name for name in names if any(re.search(pattern, name) for pattern in patterns)}
        return sorted(names)

    def tensor(self, name: str) -> MemoryTensor:
        if not any(name in each for each in self.data.values()):
            raise TensorUnavailable(name)
        return MemoryTensor(self, name)

    @contextmanager
    def refreshing(self, on: bool) -> Iterator[MemoryTrial]:
        yield self


def fired(rule: Any, trial: MemoryTrial | None = None) -> list[int]:
    """Return the steps at which a rule fires."""
    return [step for step in (trial or rule.base_trial).steps() if rule.evaluate(step)]
