"""Tensors that a rule requires at a step, so that they can be fetched together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smdwidgets.trials import Tensor, Trial

__all__ = ["RequiredTensors", "RequiredTensorsForTrial"]


class RequiredTensorsForTrial:
    """Required tensors of one trial."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._steps: dict[str, list[int]] = {}
        self._tensors: dict[str, Tensor] = {}

    def add(self, name: str, steps: Iterable[int], should_match_regex: bool = False) -> None:
        """Require a tensor at these steps.

        With `should_match_regex`, `name` is a pattern and all tensors whose names contain a match are required.
        """
        wanted = [int(step) for step in steps]
        names = self.trial.tensor_names(regex=name) if should_match_regex else [name]
        for each in names:
            known = self._steps.setdefault(each, [])
            known.extend(step for step in wanted if step not in known)

    def fetch(self) -> None:
        """Look up every required tensor.

        Raises:
            TensorUnavailable: the run does not have one of the tensors.
        """
        for name in self._steps:
            if name not in self._tensors:
                self._tensors[name] = self.trial.tensor(name)

    def get(self) -> list[Tensor]:
        """Return the required tensors, in the order added."""
        self.fetch()
        return [self._tensors[name] for name in self._steps]

    def get_names(self) -> list[str]:
        """Return the names of the required tensors."""
        return list(self._steps)

    def get_tensor_steps(self, name: str) -> list[int]:
        """Return the required steps of a tensor."""
        return list(self._steps.get(name, ()))

    def clear(self) -> None:
        """Remove all required tensors."""
        self._steps.clear()
        self._tensors.clear()


class RequiredTensors:
    """Required tensors of a rule.

    `Rule.set_required_tensors` adds tensors, and `Rule.invoke_at_step` reads them.

    ::

        def set_required_tensors(self, step):
            for name in self.base_trial.tensor_names(collection="gradients"):
                self.req_tensors.add(name, steps=[step])

        def invoke_at_step(self, step):
            return any(t.reduction_value(step, "mean", abs=True) < 1e-7 for t in self.req_tensors.get())
    """

    def __init__(self, trial: Trial, other_trials: Sequence[Trial] | None = None) -> None:
        self.base_trial = trial
        self.trials = [trial, *(other_trials or ())]
        self._of = {id(each): RequiredTensorsForTrial(each) for each in self.trials}

    def add(
        self,
        name: str | re.Pattern[str],
        steps: Iterable[int],
        trial: Trial | None = None,
        should_match_regex: bool = False,
    ) -> None:
        """Require a tensor at some steps, of the base trial by default."""
        text = name.pattern if isinstance(name, re.Pattern) else name
        self._for(trial).add(text, steps, should_match_regex or isinstance(name, re.Pattern))

    def fetch(self) -> None:
        """Look up every required tensor in all trials."""
        for each in self._of.values():
            each.fetch()

    def get(self, trial: Trial | None = None) -> list[Tensor]:
        """Return the required tensors of a trial, by default the base trial."""
        return self._for(trial).get()

    def get_names(self, trial: Trial | None = None) -> list[str]:
        """Return the names of the required tensors of a trial."""
        return self._for(trial).get_names()

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        """Return the required steps of a tensor of a trial."""
        return self._for(trial).get_tensor_steps(name)

    def clear(self) -> None:
        """Remove all required tensors."""
        for each in self._of.values():
            each.clear()

    def _for(self, trial: Trial | None) -> RequiredTensorsForTrial:
        if trial is None:
            return self._of[id(self.base_trial)]
        # A trial that was not passed to the constructor is added on first use.
        return self._of.setdefault(id(trial), RequiredTensorsForTrial(trial))
