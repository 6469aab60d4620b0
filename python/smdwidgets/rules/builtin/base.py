"""Base classes of the built-in rules: parameters, selectors and measurements."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from smdwidgets._text import shown
from smdwidgets.exceptions import InsufficientInformationForRuleInvocation, SMDebugTypeError
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.declared import HasParameters
from smdwidgets.rules.measurements import Measurements, measurements_of
from smdwidgets.rules.parameters import Patterns, Words
from smdwidgets.rules.rule import Rule
from smdwidgets.rules.selector import ModuleTensors, Selector
from smdwidgets.rules.tables import Need, StepTable
from smdwidgets.rules.verdicts import Outcome, Verdicts

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = [
    "BuiltinRule",
    "NothingToJudge",
    "SelectingRule",
    "collections_parameter",
    "no_tensor_message",
    "regex_parameter",
    "unless_given",
]


class NothingToJudge(Exception):
    """Raised when a step has no data that the rule can judge.

    The message names the missing data.
    """


class BuiltinRule(HasParameters, Rule):
    """A rule with declared parameters. Subclasses implement `judge`.

    A built-in rule judges every worker of a run. Its result at a step depends only on data saved up to that step.
    """

    #: Collections that the base configuration saves, with their parameters, as in SageMaker's rule configurations.
    collections: ClassVar[dict[str, dict[str, str]]] = {}
    #: Whether SageMaker has this rule.
    sagemaker: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        arguments = [
            inspect.Parameter("base_trial", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Trial"),
            *(
                inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=parameter.default)
                for name, parameter in cls._parameters.items()
            ),
            inspect.Parameter("action_str", inspect.Parameter.KEYWORD_ONLY, default="", annotation="str"),
            inspect.Parameter(
                "other_trials", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="list[Trial] | None"
            ),
        ]
        cls.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]

    def __init__(
        self,
        base_trial: Trial,
        *args: object,
        action_str: str = "",
        other_trials: Trial | Sequence[Trial] | None = None,
        may_be_incomplete: bool = False,
        **given: object,
    ) -> None:
        super().__init__(base_trial, action_str, other_trials)
        if len(args) > len(self._parameters):
            raise SMDebugTypeError(
                f"{self.rule_name} takes at most {len(self._parameters)} positional parameters, got {len(args)}; "
                f"its parameters are {', '.join(self._parameters) or 'none'}"
            )
        positional = dict(zip(self._parameters, args, strict=False))
        if twice := positional.keys() & given.keys():
            raise SMDebugTypeError(
                f"{self.rule_name} got multiple values for parameter {shown(min(twice))}; pass it once"
            )
        self.set_parameters({**positional, **given})
        try:
            self.check()
        except InsufficientInformationForRuleInvocation as error:
            if not may_be_incomplete:
                raise
            self.incomplete = error.message

    def check(self) -> None:
        """Raise if the parameters are invalid in combination."""

    @property
    def measurements(self) -> Measurements:
        """The measurements of the base trial, shared with its other rules."""
        return measurements_of(self.base_trial)

    def needs(self) -> Sequence[Need]:
        """Return the columns that `judge` reads, for prefetching over many steps."""
        return ()

    @abstractmethod
    def judge(self, step: int) -> None:
        """Report findings at this step with `blame`.

        Raises:
            NothingToJudge: the step has no data that the rule can judge.
        """

    def invoke_at_step(self, step: int) -> bool:
        self.findings = []
        self.skipped = None
        try:
            self.judge(step)
        except NothingToJudge as reason:
            self.skipped = str(reason)
        return bool(self.findings)

    def judge_many(self, steps: Sequence[int]) -> Verdicts | None:
        if self._finds_no_tensor():
            nothing = np.zeros(len(steps), np.int64)
            skipped = np.full(len(steps), Outcome.SKIPPED, np.uint8)
            return Verdicts(skipped, nothing, lambda row: self._reason_at(steps[row]), lambda row: [])
        return self.judge_steps(steps)

    def judge_steps(self, steps: Sequence[int]) -> Verdicts | None:
        """Judge consecutive steps at once; None if the rule judges steps one by one."""
        return None

    def _finds_no_tensor(self) -> bool:
        """Whether the rule needs tensors and the run has none of them."""
        selectors = [need.selector for need in self.needs()]
        own = getattr(self, "selector", None)
        selectors += [own] if isinstance(own, Selector) else []
        return bool(selectors) and not any(selector.names(self.base_trial) for selector in selectors)

    def _reason_at(self, step: int) -> str:
        self.invoke_at_step(step)
        return self.skipped or ""

    # ---------------------------------------------------------------------------------------- helpers for subclasses

    def required_table(self, need: Need, step: int) -> StepTable:
        """Return the needed columns at this step.

        Raises:
            NothingToJudge: no selected tensor was saved at this step.
        """
        table = self.measurements.table(need.selector, step, need.columns)
        if not len(table):
            raise NothingToJudge(no_tensor_message(need.selector, table))
        return table

    def rows(self, selector: Selector, step: int) -> list[tuple[str, str | None]]:
        """Return (name, worker) of the selected tensors, for rules that read values.

        Raises:
            NothingToJudge: no selected tensor was saved at this step.
        """
        measurements = self.measurements
        found = [
            (name, worker) for name in measurements.names(selector, step) for worker in measurements.workers(name, step)
        ]
        if not found:
            raise NothingToJudge(no_tensor_message(selector, None))
        return found

    def training_steps_only(self, step: int) -> ModeKeys:
        """Return the step's mode; skip EVAL and PREDICT steps.

        Weights do not change during evaluation.
        """
        mode = self.measurements.mode(step)
        if mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
            raise NothingToJudge(f"steps of mode {mode.name} do not train")
        return mode


def no_tensor_message(selector: Selector, table: StepTable | None = None) -> str:
    """Return why a step without a selected tensor is skipped."""
    if table is not None and table.unreadable:
        name, why = table.unreadable[0]
        return f"{shown(name)} could not be read: {why}"
    return "no tensor at this step" if selector.everything else f"no tensor of {selector} at this step"


def collections_parameter(default: Iterable[str] = ()) -> Words:
    """Create the parameter `collection_names`."""
    return Words(tuple(default), "Collections whose tensors are selected.")


def regex_parameter(default: Iterable[str] = (), documented: str | None = None) -> Patterns:
    """Create the parameter `tensor_regex`."""
    return Patterns(
        tuple(default), "Patterns of tensor names to select, matched anywhere in the name.", documented=documented
    )


def unless_given(rule: BuiltinRule, modules: ModuleTensors) -> ModuleTensors | None:
    """Return ``modules``, or None if the rule selects other tensors.

    A rule selects tensors with `tensor_regex` or `collection_names`.
    """
    given = any(
        getattr(rule, name) != parameter.default
        for name, parameter in rule.parameters().items()
        if name in ("tensor_regex", "collection_names")
    )
    return None if given else modules


class SelectingRule(BuiltinRule):
    """A rule on tensors selected with `collection_names`, `tensor_regex` or both."""

    #: Whether at least one of the two is required.
    needs_selector: ClassVar[bool] = True

    collection_names = collections_parameter()
    tensor_regex = regex_parameter()

    @property
    def selector(self) -> Selector:
        return Selector(self.collection_names, self.tensor_regex)

    def check(self) -> None:
        if self.needs_selector and self.selector.everything:
            raise InsufficientInformationForRuleInvocation(
                self.rule_name, "needs parameter collection_names or tensor_regex"
            )
