"""The view of a widget: its runs, rules and state, without the browser."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugTypeError, TensorUnavailable
from smdwidgets.pictures.view import TensorView
from smdwidgets.trials import Trial
from smdwidgets.widgets.rule_desk import RuleDesk
from smdwidgets.widgets.traits import ViewState


class RunView(ViewState):
    """What a widget shows. The modules that draw it once or write it as a page use this class.

    Every public trait can be set and observed.
    """

    KIND: ClassVar[str] = "explorer"

    trials: list[Trial]
    _desk: RuleDesk | None

    @property
    def trial(self) -> Trial:
        """The run in view."""
        return self.trials[min(max(0, self.run), len(self.trials) - 1)]

    def _step_shown(self) -> int:
        """The step that a picture of the tensor is of: the one chosen, or the latest earlier one that has it."""
        steps = TensorView(self.trial, self.tensor, self.worker).steps()
        if not steps:
            raise TensorUnavailable(self.tensor)
        wanted = self.step if self.step >= 0 else steps[-1]
        earlier = [step for step in steps if step <= wanted]
        return earlier[-1] if earlier else steps[0]

    def value(self) -> NDArray[Any]:
        """The array shown: of the tensor in view, at the step in view (or the latest earlier one that has it)."""
        if not self.tensor:
            raise SMDebugTypeError("No tensor is in view: set widget.tensor, or choose one in the widget.")
        return TensorView(self.trial, self.tensor, self.worker).value(self._step_shown())
