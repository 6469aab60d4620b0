"""The runs, rules and state of a widget, without its browser connection."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugTypeError, TensorUnavailable
from smdwidgets.pictures.view import TensorView
from smdwidgets.trials import Trial
from smdwidgets.widgets.live_diagnosis import LiveDiagnosis
from smdwidgets.widgets.rule_controller import RuleController
from smdwidgets.widgets.traits import ViewState


class RunView(ViewState):
    """The runs, rules and view state of a widget.

    Every public trait can be set and observed.

    The modules that draw a static image or write a page use this class.
    """

    KIND: ClassVar[str] = "explorer"

    trials: list[Trial]
    _rule_controller: RuleController
    _diagnosis: LiveDiagnosis | None

    @property
    def trial(self) -> Trial:
        """The displayed run."""
        return self.trials[min(max(0, self.run), len(self.trials) - 1)]

    def _step_shown(self) -> int:
        """Return the displayed step.

        This is the selected step, or the last earlier one that has the tensor.
        """
        steps = TensorView(self.trial, self.tensor, self.worker).steps()
        if not steps:
            raise TensorUnavailable(self.tensor)
        wanted = self.step if self.step >= 0 else steps[-1]
        earlier = [step for step in steps if step <= wanted]
        return earlier[-1] if earlier else steps[0]

    def value(self) -> NDArray[Any]:
        """Return the value of the displayed tensor at the displayed step.

        If that step does not have the tensor, the last earlier step that has it is used.
        """
        if not self.tensor:
            raise SMDebugTypeError("no tensor is selected; set widget.tensor, or select one in the widget")
        return TensorView(self.trial, self.tensor, self.worker).value(self._step_shown())
