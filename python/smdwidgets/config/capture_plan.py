"""CapturePlan: what a hook saves within a budget of time and disk space."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from smdwidgets._text import byte_size, did_you_mean, shown
from smdwidgets.config._parse import integer, mapping, only, texts
from smdwidgets.exceptions import SMDebugRuntimeError, SMDebugTypeError, SMDebugValueError

__all__ = ["AUTO", "TENSORS", "CapturePlan"]

#: Kinds of tensors that a plan captures, the most important first.
TENSORS: Final = ("weights", "gradients", "activations")
#: Statistics as often as the time share allows; all tensors but those inside of compiled modules; a budget that follows
#: the size of the model.
AUTO: Final = "auto"

#: Shares of the disk budget.
STATISTICS_SHARE: Final = 0.10
INCIDENTS_SHARE: Final = 0.30
SCALARS_SHARE: Final = 0.10
STEPS_SHARE: Final = 0.40
SAMPLES_SHARE: Final = 0.10

_UNITS: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_LEAST_BUDGET: Final = 10**6
#: The budget by default: so many times the size of the model, but at least and at most so much.
_MODELS, _LEAST_OF_MODEL, _MOST_OF_MODEL = 20, 10**8, 2 * 10**9
_LARGEST_INTERVAL: Final = 1 << 20


@dataclass(frozen=True, repr=False)
class CapturePlan:
    """What a hook saves within a budget of time and disk space.

    Losses, metrics, learning rates and the norm of all gradients are saved at every step. Statistics of weights,
    gradients and activations are saved at every step, or as often as the time share allows. Their values are saved at
    steps 0, 1, 2, 3, …; before their share of the disk budget is used up, the spacing doubles, and steps that are not
    multiples of it are thinned: their values are deleted.

    Args:
        budget: disk space of the run: a number of bytes, a text such as ``"10GB"``, or ``"auto"``: 20 times the size of
            the model, but at least 100 MB and at most 2 GB.
        keep_last: number of last steps whose values are kept, whatever the spacing.
        reserve: free disk space that is never used, like ``budget``; default: 5 % of the disk, at least 1 GB, but no
            more than half of what is free when the run begins.
        time_share: share of a step's time that the hook may take on the training's thread.
        statistics: ``"auto"``: at every step, or less often if the time share requires it; a number: at every nth step;
            0: no statistics.
        every: spacing of steps with values, to begin with; 0: no values.
        tensors: what to capture besides scalars: ``"weights"`` (and biases), ``"gradients"``, ``"activations"`` (inputs
            and outputs of modules). ``"auto"``: all of them, but of a module that ``torch.compile`` has compiled no
            activations inside, because capturing them costs part of what compiling gains.

    >>> CapturePlan(budget="10GB", every=100).budget
    10000000000
    >>> CapturePlan.from_dict({"budget": "500 MB", "statistics": 10, "every": 100}).to_dict()["every"]
    100
    """

    budget: int | str = AUTO
    keep_last: int = 2
    reserve: int | str | None = None
    time_share: float = 0.01
    statistics: int | str = AUTO
    every: int = 1
    tensors: tuple[str, ...] | str = AUTO

    def __post_init__(self) -> None:
        budget = AUTO if self.budget == AUTO else parse_size(self.budget, "budget")
        if isinstance(budget, int) and budget < _LEAST_BUDGET:
            raise SMDebugValueError(f"budget must be at least 1 MB, got {shown(self.budget)}")
        share = self.time_share
        if isinstance(share, bool) or not isinstance(share, int | float) or not (0 < share <= 1):
            raise SMDebugValueError(f"time_share must be a number above 0 and at most 1, got {shown(share)}")
        self._set(
            budget=budget,
            keep_last=integer(self.keep_last, "keep_last", least=0),
            reserve=None if self.reserve is None else parse_size(self.reserve, "reserve"),
            time_share=float(share),
            every=_interval(self.every, "every"),
        )
        if self.tensors != AUTO:
            self._set(tensors=_kinds(self.tensors))
        if self.statistics != AUTO:
            self._set(statistics=_interval(self.statistics, 'statistics, if not "auto",'))

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def budget_of(self, model_bytes: int) -> int:
        """Return the budget in bytes for a model of this size.

        >>> [CapturePlan().budget_of(size) for size in (0, 10**7, 10**9)]
        [100000000, 200000000, 2000000000]
        >>> CapturePlan(budget="5GB").budget_of(10**7)
        5000000000
        """
        if self.budget == AUTO:
            return min(max(_MODELS * model_bytes, _LEAST_OF_MODEL), _MOST_OF_MODEL)
        return int(self.budget)

    @property
    def budget_text(self) -> str:
        """The budget in words, for descriptions of a plan."""
        if self.budget == AUTO:
            return f"{_MODELS} times the size of the model (100 MB to 2 GB)"
        return byte_size(int(self.budget))

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is captured besides scalars."""
        return TENSORS if isinstance(self.tensors, str) else self.tensors

    # ------------------------------------------------------------------------------------------------- reading

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> Self:
        """Create a plan from a dictionary of its arguments. Unknown keys are an error."""
        params = mapping(params, "plan")
        only(params, [field.name for field in fields(cls)], "plan")
        return cls(**params)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Create a plan from JSON text.

        >>> CapturePlan.from_json('{"budget": "10GB"}') == CapturePlan(budget=10**10)
        True
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SMDebugValueError(f"invalid JSON of a capture plan: {error}") from None
        return cls.from_dict(found)

    @classmethod
    def from_yaml(cls, text: str | bytes) -> Self:
        """Create a plan from YAML text. Needs the package PyYAML."""
        try:
            import yaml
        except ImportError:
            raise SMDebugRuntimeError(
                "reading a capture plan from YAML needs the package PyYAML: pip install pyyaml. JSON needs no package"
            ) from None
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SMDebugValueError(f"invalid YAML of a capture plan: {error}") from None
        return cls.from_dict({} if found is None else found)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan from a ``.json``, ``.yaml`` or ``.yml`` file."""
        file = Path(path).expanduser()
        suffix = file.suffix.lower()
        if suffix not in (".json", ".yaml", ".yml"):
            raise SMDebugValueError(f"a capture plan is a .json, .yaml or .yml file, got {shown(str(file), 200)}")
        content = file.read_bytes()
        try:
            return cls.from_json(content) if suffix == ".json" else cls.from_yaml(content)
        except SMDebugValueError as error:
            raise SMDebugValueError(f"{shown(str(file), 200)}: {error}") from None

    @classmethod
    def parse(cls, given: object) -> CapturePlan:
        """Return a plan given as a plan, a dictionary, or the path of a file."""
        if isinstance(given, CapturePlan):
            return given
        if isinstance(given, Mapping):
            return cls.from_dict(given)
        if isinstance(given, str | os.PathLike):
            return cls.load(given)
        raise SMDebugTypeError(
            f"plan must be a CapturePlan, a dictionary or the path of a file, got {type(given).__name__}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments as a dictionary that JSON can hold."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    # ------------------------------------------------------------------------------------------------- describing

    def __repr__(self) -> str:
        what = _listing(self.kinds)
        parts = ["losses, metrics, learning rates and gradient norms at every step"]
        if what and self.statistics == AUTO:
            percent = f"{100 * self.time_share:g} % of a step's time"
            parts.append(f"statistics of {what} at every step, or less often if the hook takes more than {percent}")
        elif what and self.statistics:
            parts.append(f"statistics of {what} at {_every(int(self.statistics))}")
        free = (
            "5 % of the disk, at least 1 GB," if self.reserve is None else f"{byte_size(int(self.reserve))} of the disk"
        )
        shares = [("statistics", STATISTICS_SHARE), ("scalars", SCALARS_SHARE)]
        if what and self.every:
            thinned = ", ".join(ordinal(self.every * n) for n in (2, 4))
            last = f" and the last {self.keep_last} are kept" if self.keep_last else " is kept"
            parts.append(
                f"values of {what} at {_every(self.every)}, thinned to every {thinned}, … step as the budget fills; the first "
                f"step{last}; samples of 4,096 elements of each stay longer"
            )
            shares = [
                ("steps with values", STEPS_SHARE),
                ("steps around incidents", INCIDENTS_SHARE),
                ("samples", SAMPLES_SHARE),
                *shares,
            ]
        sizes = ", ".join(
            f"{name} {share:.0%}" if self.budget == AUTO else f"{name} {byte_size(int(share * int(self.budget)))}"
            for name, share in shares
        )
        parts.append(f"the run stays below {self.budget_text} ({sizes}), and {free} stay free")
        return f"CapturePlan: {'; '.join(parts)}."


def parse_size(value: object, name: str) -> int:
    """Return a number of bytes, also from a text with a unit.

    >>> parse_size("10GB", "budget"), parse_size("1.5 MiB", "budget"), parse_size(1e9, "budget")
    (10000000000, 1572864, 1000000000)
    """
    if isinstance(value, str) and (found := _SIZE.fullmatch(value)) and found[2].lower() in _UNITS:
        return int(float(found[1]) * _UNITS[found[2].lower()])
    if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value) and value >= 0:
        return int(value)
    raise SMDebugValueError(f'{name} must be a number of bytes or a text such as "10GB", got {shown(value)}')


def _kinds(given: object) -> tuple[str, ...]:
    """Return the kinds of tensors that are named, the most important first."""
    named = texts(given, "tensors")
    for kind in named:
        if kind not in TENSORS:
            hint = did_you_mean(kind, TENSORS)
            raise SMDebugValueError(f"invalid tensors {shown(kind)}; choose from {', '.join(TENSORS)}.{hint}")
    return tuple(kind for kind in TENSORS if kind in named)


def _interval(value: object, name: str) -> int:
    number = integer(value, name, least=0)
    if number > _LARGEST_INTERVAL:
        raise SMDebugValueError(f"{name} must be at most {_LARGEST_INTERVAL:,}, got {number}")
    return number


def _every(interval: int) -> str:
    return "every step" if interval == 1 else f"every {ordinal(interval)} step"


def ordinal(number: int) -> str:
    """Return ``2nd``, ``4th``.

    >>> [ordinal(number) for number in (2, 3, 4, 11, 21, 112)]
    ['2nd', '3rd', '4th', '11th', '21st', '112th']
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _listing(names: Iterable[str]) -> str:
    first, last = list(names)[:-1], list(names)[-1:]
    return f"{', '.join(first)} and {last[0]}" if first else "".join(last)
