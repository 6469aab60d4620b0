"""Options of a launch, which environment variables pass to every process of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from smdwidgets._text import shown
from smdwidgets.checks.log import ChecksOption, chosen_checks
from smdwidgets.config import CapturePlan
from smdwidgets.config.capture_plan import TENSORS
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.hooks.core.hook import Hook
from smdwidgets.hooks.core.json_config import HOOK_FILE_KEYS
from smdwidgets.storage.address import scheme_of

__all__ = ["WHAT", "Options"]

_H = TypeVar("_H", bound=Hook)

#: What `--what` may list.
WHAT: Final = ("losses", *TENSORS)
#: The environment variable of each option.
VARIABLES: Final[Mapping[str, str]] = {
    "out": "SMDWIDGETS_HOOK",
    "what": "SMDWIDGETS_WHAT",
    "every": "SMDWIDGETS_EVERY",
    "budget": "SMDWIDGETS_BUDGET",
    "config": "SMDWIDGETS_CONFIG",
    "checks": "SMDWIDGETS_CHECKS",
    "checks_only": "SMDWIDGETS_CHECKS_ONLY",
    "replay": "SMDWIDGETS_REPLAY",
}


@dataclass(frozen=True)
class Options:
    """What to record, and where. Every option is a text; an empty one is not given.

    Attributes:
        out: directory of the run, or the address of a store, such as ``s3://bucket/prefix``.
        what: comma-separated: losses, weights, gradients, activations. Losses are always saved.
        every: spacing of steps with whole tensors, to begin with.
        budget: disk space of the run, such as ``10GB``.
        config: a capture plan (JSON or YAML), or a hook configuration in smdebug's format (JSON).
        checks: which checks run: ``yes`` (the default), ``no``, or comma-separated identifiers; those with a minus sign
            do not run.
        checks_only: number of updates that are checked, if nothing else is recorded.
        replay: ``yes``: the batches and states of the last steps of PyTorch are kept, to execute them again.

    >>> Options(out="runs/mlp", what="weights", every="100").plan().every
    100
    """

    out: str = ""
    what: str = ""
    every: str = ""
    budget: str = ""
    config: str = ""
    checks: str = ""
    checks_only: str = ""
    replay: str = ""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the options that environment variables give."""
        return cls(**{name: environment.get(variable, "") for name, variable in VARIABLES.items()})

    def or_else(self, other: Options) -> Options:
        """Return these options, and those of another where these are not given."""
        return replace(self, **{one.name: getattr(self, one.name) or getattr(other, one.name) for one in fields(self)})

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the options, with absolute paths."""
        found = {variable: value for name, variable in VARIABLES.items() if (value := getattr(self, name))}
        for name in ("out", "config"):
            if (value := getattr(self, name)) and not scheme_of(value):
                found[VARIABLES[name]] = str(Path(value).expanduser().absolute())
        return found

    def check(self) -> Options:
        """Raise an error for an invalid option.

        Return the options with a directory from the configuration.
        """
        if (document := self._hook_file()) is not None:
            if given := [f"--{name}" for name in ("what", "every", "budget") if getattr(self, name)]:
                raise SMDebugValueError(
                    f"{shown(self.config, 200)} is a hook configuration in smdebug's format, which cannot be combined with "
                    f"{', '.join(given)}; set the intervals and collections in the file"
                )
            chosen_checks(self.chosen_checks)
            return replace(self, out=self.out or str(document.get("LocalPath") or ""))
        self.plan()
        chosen_checks(self.chosen_checks)
        if self.checks_only and not (self.checks_only.isdecimal() and int(self.checks_only)):
            raise SMDebugValueError(f"invalid --steps {shown(self.checks_only)}; give a number of updates such as 50")
        return self

    def plan(self) -> CapturePlan:
        """Return the capture plan that the options describe."""
        changes: dict[str, Any] = {}
        if self.what:
            named = [one.strip() for one in self.what.split(",") if one.strip()]
            if unknown := [one for one in named if one not in WHAT]:
                raise SMDebugValueError(f"invalid --what {shown(unknown[0])}; choose from {', '.join(WHAT)}")
            changes["tensors"] = tuple(one for one in named if one != "losses")
        if self.every:
            if not self.every.isdecimal():
                raise SMDebugValueError(f"invalid --every {shown(self.every)}; give a number of steps such as 100")
            changes["every"] = int(self.every)
        if self.budget:
            changes["budget"] = self.budget
        try:
            plan = CapturePlan.load(self.config) if self.config else CapturePlan()
        except OSError as error:
            raise SMDebugValueError(f"cannot read --config {shown(self.config, 200)}: {error.strerror}") from None
        return replace(plan, **changes)

    @property
    def chosen_checks(self) -> ChecksOption:
        """Which checks run, as a hook takes it.

        >>> Options().chosen_checks, Options(checks="no").chosen_checks, Options(checks="-untied").chosen_checks
        (True, False, ['-untied'])
        """
        if self.checks in ("", "yes", "no"):
            return self.checks != "no"
        return [one.strip() for one in self.checks.split(",") if one.strip()]

    def hook(self, kind: type[_H], out: str, **options: Any) -> _H:
        """Create a hook that records into a directory."""
        if self.replay == "yes" and hasattr(kind.options_class, "replay"):
            options = {"replay": "auto", **options}
        if self.checks_only:
            return kind(out, checks=self.chosen_checks, checks_only=int(self.checks_only), **options)
        if self._hook_file() is not None:
            return kind.create_from_json_file(self.config, out_dir=out, checks=self.chosen_checks, **options)
        return kind(out, plan=self.plan(), checks=self.chosen_checks, **options)

    def describe(self, kind: type[Hook]) -> str:
        """Return what a hook of some class records, in a few words.

        >>> from smdwidgets.numpy import Hook
        >>> Options(budget="10GB").describe(Hook)
        'losses within 10.0 GB'
        """
        if self.checks_only:
            return f"checks of the first {self.checks_only} updates"
        if self._hook_file() is not None:
            return f"what {shown(self.config, 200)} selects"
        plan = self.plan()
        *first, last = ("losses", *(one for one in plan.kinds if one in kind.kinds.values()))
        return f"{', '.join(first)}{' and ' if first else ''}{last} within {plan.budget_text}"

    def _hook_file(self) -> Mapping[str, Any] | None:
        """Return the content of the configuration if it is in smdebug's format, else None."""
        if not self.config.lower().endswith(".json"):
            return None
        try:
            content = json.loads(Path(self.config).expanduser().read_bytes())
        except OSError as error:
            raise SMDebugValueError(f"cannot read --config {shown(self.config, 200)}: {error.strerror}") from None
        except (ValueError, RecursionError):
            return None  # reading it as a capture plan gives the error
        return content if isinstance(content, dict) and any(key in content for key in HOOK_FILE_KEYS) else None
