"""What the built-in rules share: declared parameters, selectors, measurements, and silence where there is nothing to judge."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from smdwidgets._text import shown
from smdwidgets.exceptions import InsufficientInformationForRuleInvocation, SMDebugTypeError
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.declared import HasParameters
from smdwidgets.rules.measurements import Measurements, measurements_of
from smdwidgets.rules.parameters import Patterns, Words
from smdwidgets.rules.rule import Rule
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need, StepTable

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["BuiltinRule", "NothingToJudge", "SelectingRule", "collections_parameter", "regex_parameter"]


class NothingToJudge(Exception):
    """This step has nothing that the rule could judge. The message says what is missing."""


class BuiltinRule(HasParameters, Rule):
    """A rule with declared parameters. A subclass gives `judge`, which blames the tensors at fault.

    A built-in rule looks at every worker of a run, and its verdict on a step depends on nothing but what was saved until then.
    """

    #: Collections that the base configuration asks the hook to save, with their parameters (as SageMaker's rule configs do).
    collections: ClassVar[dict[str, dict[str, str]]] = {}
    #: Whether the rule is one of SageMaker's.
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
        **given: object,
    ) -> None:
        super().__init__(base_trial, action_str, other_trials)
        if len(args) > len(self._parameters):
            raise SMDebugTypeError(
                f"{self.rule_name} takes {len(self._parameters)} parameters ({', '.join(self._parameters)}), {len(args)} were given."
            )
        by_place = dict(zip(self._parameters, args, strict=False))
        if twice := by_place.keys() & given.keys():
            raise SMDebugTypeError(f"{self.rule_name}: {shown(min(twice))} was given twice.")
        self.set_parameters({**by_place, **given})
        self.check()

    def check(self) -> None:
        """Refuse parameters that make no sense together."""

    @property
    def measurements(self) -> Measurements:
        """The columns of the base trial, shared with the other rules on it."""
        return measurements_of(self.base_trial)

    def needs(self) -> Sequence[Need]:
        """The columns that `judge` will ask for, so that they can be fetched for many steps at once."""
        return ()

    @abstractmethod
    def judge(self, step: int) -> None:
        """Blame the tensors at fault at this step; raise `NothingToJudge` where there is nothing to look at."""

    def invoke_at_step(self, step: int) -> bool:
        self.findings = []
        self.skipped = None
        try:
            self.judge(step)
        except NothingToJudge as reason:
            self.skipped = str(reason)
        return bool(self.findings)

    # ------------------------------------------------------------------------------------- what most of them begin with

    def look(self, need: Need, step: int) -> StepTable:
        """The columns needed of this step; `NothingToJudge` where no selected tensor was saved."""
        table = self.measurements.table(need.selector, step, need.columns)
        if not len(table):
            raise NothingToJudge(_nothing(need.selector, table))
        return table

    def rows(self, selector: Selector, step: int) -> list[tuple[str, str | None]]:
        """The selected tensors of this step and the workers that wrote them, for rules that read whole tensors."""
        measurements = self.measurements
        found = [
            (name, worker) for name in measurements.names(selector, step) for worker in measurements.workers(name, step)
        ]
        if not found:
            raise NothingToJudge(_nothing(selector, None))
        return found

    def training_steps_only(self, step: int) -> ModeKeys:
        """The step's mode, for rules on what training changes.

        Where the run has steps of TRAIN, the others are not judged: weights do not move while a model is evaluated.
        """
        mode = self.measurements.mode(step)
        if mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
            raise NothingToJudge(f"a step of {mode.name}, in which nothing is trained")
        return mode


def _nothing(selector: Selector, table: StepTable | None) -> str:
    if table is not None and table.unreadable:
        name, why = table.unreadable[0]
        return f"{shown(name)} could not be read: {why}"
    return "no tensor at this step" if selector.everything else f"no tensor of {selector} at this step"


def collections_parameter(default: Iterable[str] = ()) -> Words:
    """The parameter `collection_names`."""
    return Words(tuple(default), "Collections whose tensors are looked at.")


def regex_parameter(default: Iterable[str] = (), documented: str | None = None) -> Patterns:
    """The parameter `tensor_regex`."""
    return Patterns(
        tuple(default), "Patterns found anywhere in the names of tensors that are looked at.", documented=documented
    )


class SelectingRule(BuiltinRule):
    """A rule on whatever tensors the person chooses, by `collection_names`, `tensor_regex` or both."""

    #: Whether one of the two has to be given.
    needs_selector: ClassVar[bool] = True

    collection_names = collections_parameter()
    tensor_regex = regex_parameter()

    @property
    def selector(self) -> Selector:
        return Selector(self.collection_names, self.tensor_regex)

    def check(self) -> None:
        if self.needs_selector and self.selector.everything:
            raise InsufficientInformationForRuleInvocation(
                self.rule_name, "say which tensors it should look at, by collection_names= or tensor_regex=."
            )
