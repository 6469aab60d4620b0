"""The tensors that a rule says it will need at a step, so that they can be fetched together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smdwidgets.trials import Tensor, Trial

__all__ = ["RequiredTensors", "RequiredTensorsForTrial"]


class RequiredTensorsForTrial:
    """What is needed of one trial."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._steps: dict[str, list[int]] = {}
        self._tensors: dict[str, Tensor] = {}

    def add(self, name: str, steps: Iterable[int], should_match_regex: bool = False) -> None:
        """Ask for a tensor at these steps; with `should_match_regex` for all whose names the pattern is found in."""
        wanted = [int(step) for step in steps]
        names = self.trial.tensor_names(regex=name) if should_match_regex else [name]
        for each in names:
            known = self._steps.setdefault(each, [])
            known.extend(step for step in wanted if step not in known)

    def fetch(self) -> None:
        """Look every tensor up. TensorUnavailable tells which one the run does not have."""
        for name in self._steps:
            if name not in self._tensors:
                self._tensors[name] = self.trial.tensor(name)

    def get(self) -> list[Tensor]:
        """The tensors asked for, in the order of asking."""
        self.fetch()
        return [self._tensors[name] for name in self._steps]

    def get_names(self) -> list[str]:
        """Names asked for."""
        return list(self._steps)

    def get_tensor_steps(self, name: str) -> list[int]:
        """Steps asked for of a tensor."""
        return list(self._steps.get(name, ()))

    def clear(self) -> None:
        """Forget everything asked for."""
        self._steps.clear()
        self._tensors.clear()


class RequiredTensors:
    """What a rule needs of its trials. `Rule.set_required_tensors` fills it, `Rule.invoke_at_step` reads it.

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
        """Ask for a tensor at some steps, of the base trial unless another one is given."""
        text = name.pattern if isinstance(name, re.Pattern) else name
        self._for(trial).add(text, steps, should_match_regex or isinstance(name, re.Pattern))

    def fetch(self) -> None:
        """Look every tensor up, in all trials."""
        for each in self._of.values():
            each.fetch()

    def get(self, trial: Trial | None = None) -> list[Tensor]:
        """The tensors asked for of a trial (the base trial unless another one is given)."""
        return self._for(trial).get()

    def get_names(self, trial: Trial | None = None) -> list[str]:
        """Names asked for, of a trial."""
        return self._for(trial).get_names()

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        """Steps asked for of a tensor, of a trial."""
        return self._for(trial).get_tensor_steps(name)

    def clear(self) -> None:
        """Forget everything asked for."""
        for each in self._of.values():
            each.clear()

    def _for(self, trial: Trial | None) -> RequiredTensorsForTrial:
        if trial is None:
            return self._of[id(self.base_trial)]
        # A trial that the rule was not made with is welcome too: it is only remembered from here on.
        return self._of.setdefault(id(trial), RequiredTensorsForTrial(trial))
