"""The options of a hook: keyword arguments, checked and completed once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, Self

from smdwidgets._suspend import suspended
from smdwidgets._text import did_you_mean, shown
from smdwidgets.checks.log import ChecksOption, chosen_checks
from smdwidgets.config import CapturePlan, ReductionConfig, SaveConfig
from smdwidgets.config._parse import texts
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.core.memory import Memory
from smdwidgets.hooks.incidents.source_rules import SourceRule
from smdwidgets.storage.address import is_address

__all__ = ["HookOptions", "PlanOption"]

#: The environment variable with the default of ``catalog``.
CATALOG_VARIABLE: Final = "SMDWIDGETS_CATALOG"
PlanOption = CapturePlan | Mapping[str, Any] | str | os.PathLike[str] | Literal[False] | None


@dataclass(frozen=True, kw_only=True)
class HookOptions:
    """The options of every hook, which :class:`Hook` documents.

    The hook of a framework that has further options extends this class.

    >>> HookOptions(out_dir="runs/mine").capture_plan.budget
    'auto'
    >>> HookOptions(out_dir="runs/mine", save_all=True).capture_plan is None
    True
    """

    out_dir: str | os.PathLike[str]
    export_tensorboard: bool = False
    tensorboard_dir: str | os.PathLike[str] | None = None
    dry_run: bool = False
    reduction_config: ReductionConfig | None = None
    save_config: Any = None
    include_regex: str | Iterable[str] | None = None
    include_collections: str | Iterable[str] | None = None
    save_all: bool = False
    include_workers: str = "one"
    plan: PlanOption = None
    overwrite: bool = False
    resume: bool | int = False
    recorder_bytes: int | None = None
    rules: Iterable[SourceRule] = ()
    queue_bytes: int | None = None
    flush_seconds: float = 1.0
    fsync: bool = False
    compact: bool = False
    catalog: str | os.PathLike[str] | None = None
    checks: ChecksOption = False
    #: Number of updates after which the training stops, if nothing but checks is recorded; None: everything is.
    checks_only: int | None = None
    #: The capture plan, or None if save configurations alone decide.
    capture_plan: CapturePlan | None = field(init=False, default=None)
    #: How much memory the copies of tensors take.
    memory: Memory = field(init=False, default=Memory(0, 0, 0))
    #: Whether the script selects tensors by name or collection.
    selects_tensors: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        if self.out_dir is None:
            raise SMDebugTypeError("out_dir is required: pass the directory of the run")
        if not (isinstance(self.flush_seconds, int | float) and self.flush_seconds > 0):
            raise SMDebugValueError(f"flush_seconds must be a positive number, got {shown(self.flush_seconds)}.")
        if self.include_workers not in ("one", "all"):
            raise SMDebugValueError(f'invalid include_workers {shown(self.include_workers)}; choose "one" or "all"')
        config = self.reduction_config
        if not (config is None or isinstance(config, ReductionConfig)):
            raise SMDebugTypeError(f"reduction_config takes a ReductionConfig, not {type(config).__name__}.")
        for name, nbytes, least in (("recorder_bytes", self.recorder_bytes, 0), ("queue_bytes", self.queue_bytes, 1)):
            if nbytes is not None and (isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < least):
                raise SMDebugTypeError(f"{name} must be a number of bytes >= {least}, got {shown(nbytes)}")
        chosen_checks(self.checks)
        if self.catalog is None:
            self._set("catalog", os.environ.get(CATALOG_VARIABLE) or None)
        names = self.include_collections
        self._set("dry_run", bool(self.dry_run) or self.checks_only is not None or suspended())
        self._set("save_all", bool(self.save_all))
        self._set("selects_tensors", self.save_all or names is not None or self.include_regex is not None)
        self._set("capture_plan", self._parse_plan())
        # A training would wait for a bucket with a smaller queue.
        is_bounded = self.capture_plan is not None and not is_address(self.out_dir)
        self._set("memory", Memory.of(self.recorder_bytes, self.queue_bytes, is_bounded))
        names = [names] if isinstance(names, str) else names or ()
        self._set("include_collections", texts(names, "include_collections"))
        if self.save_config is not None:
            self._set("save_config", SaveConfig.parse(self.save_config))

    def _set(self, name: str, value: object) -> None:
        """Complete a field while the options are created; they do not change later."""
        object.__setattr__(self, name, value)

    @classmethod
    def of(cls, owner: str, keywords: Mapping[str, Any]) -> Self:
        """Return the options that keyword arguments give.

        Raises:
            TypeError: there is no such option.
        """
        names = [one.name for one in fields(cls) if one.init]
        for name in keywords:
            if name not in names:
                hint = did_you_mean(name, names)
                raise TypeError(f"{owner}() got an unexpected keyword argument {name!r}.{hint}")
        return cls(**keywords)

    def _parse_plan(self) -> CapturePlan | None:
        configures = not (self.reduction_config is None and self.save_config is None)
        if self.plan is None:
            return None if configures or self.selects_tensors else CapturePlan()
        if self.plan is False:
            return None
        plan = CapturePlan.parse(self.plan)
        if configures:
            raise SMDebugValueError(
                "plan and save_config (or reduction_config) are mutually exclusive; set save_config on a collection to "
                "override the plan"
            )
        return plan

    def tensorboard(self, run: Path) -> str | None:
        """Return the directory of TensorBoard files of a run, or None if none are written."""
        if self.tensorboard_dir is not None:
            return str(Path(self.tensorboard_dir).expanduser().absolute())
        return str(run / "tensorboard") if self.export_tensorboard else None
