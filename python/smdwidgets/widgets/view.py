"""The runs, rules and state of a widget, without its browser connection."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray
from traitlets import Bool, Int, Unicode

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError, TensorUnavailable
from smdwidgets.widgets.traits import ViewState

if TYPE_CHECKING:
    from smdwidgets.diagnosis import Diagnosis
    from smdwidgets.pictures.view import TensorView
    from smdwidgets.run_table.live import LiveTable
    from smdwidgets.trials import Trial
    from smdwidgets.trials.difference import Difference
    from smdwidgets.widgets.live_diagnosis import LiveDiagnosis
    from smdwidgets.widgets.live_replay import LiveReplay
    from smdwidgets.widgets.live_survey import LiveSurvey
    from smdwidgets.widgets.open_runs import OpenRuns
    from smdwidgets.widgets.partings import Partings
    from smdwidgets.widgets.rule_controller import RuleController


class RunView(ViewState):
    """The runs, rules and view state of a widget.

    Every public trait can be set and observed.

    The modules that draw a static image or write a page use this class.
    """

    KIND: ClassVar[str] = "explorer"

    _fresh = Bool(False).tag(sync=True)
    _saves = Int(0).tag(sync=True)
    _notice = Unicode("").tag(sync=True)

    #: The runs; those of a table are opened when they are first used.
    trials: OpenRuns
    live_table: LiveTable | None
    rule_controller: RuleController
    live_diagnosis: LiveDiagnosis | None
    live_survey: LiveSurvey | None
    live_replay: LiveReplay | None
    partings: Partings

    @property
    def trial(self) -> Trial:
        """The displayed run."""
        return self.trials[min(max(0, self.run), len(self.trials) - 1)]

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What an explorer lists: diagnosis, survey and rules; None until it is known.

        See :func:`smdwidgets.diagnose`.
        """
        return self.live_diagnosis.of(self.trials.index(self.trial)) if self.live_diagnosis is not None else None

    @property
    def opens_on_finding(self) -> bool:
        """Whether a page opens on the first finding: nobody has chosen a place yet."""
        return bool(self._fresh)

    def run_names(self) -> list[str]:
        """Return the name of each run by number, without opening runs."""
        return [trial.name for trial in self.trials] if self.live_table is None else self.live_table.names()

    def step_shown(self) -> int:
        """Return the displayed step.

        This is the selected step, or the last earlier one that has the tensor.
        """
        steps = self._shown_tensor().steps()
        if not steps:
            raise TensorUnavailable(self.tensor)
        wanted = self.step if self.step >= 0 else steps[-1]
        earlier = [step for step in steps if step <= wanted]
        return earlier[-1] if earlier else steps[0]

    def _shown_tensor(self) -> TensorView:
        if not self.tensor:
            raise SMDebugTypeError("no tensor is selected; set widget.tensor, or select one in the widget")
        from smdwidgets.pictures.signal_view import view_of

        return view_of(self.trial, self.tensor, self.worker)

    def value(self) -> NDArray[Any]:
        """Return the value of the displayed tensor at the displayed step.

        If that step does not have the tensor, the last earlier step that has it is used.
        """
        return self._shown_tensor().value(self.step_shown())

    def difference(self) -> Difference:
        """Return A - B: the displayed value minus the one that ``compare`` selects.

        >>> explorer.compare = {"offset": -1}                              # doctest: +SKIP
        >>> explorer.difference().changed(3)                               # doctest: +SKIP
        """
        from smdwidgets.pictures.differences import saved
        from smdwidgets.trials.difference import Difference

        a, step = self._shown_tensor(), self.step_shown()
        return Difference(saved(a, step), saved(*self._compared(a, step)))

    def _compared(self, a: TensorView, at: int) -> tuple[TensorView, int]:
        """Return the tensor and the step of B, for A at a step."""
        compare = self.compare
        if not compare:
            raise SMDebugValueError(
                'nothing to compare with; set widget.compare, for example to {"offset": -1} for the saved step before'
            )
        run = compare.get("run", self.trials.index(self.trial))
        if run not in range(len(self.trials)):
            raise SMDebugValueError(f"run {run} of widget.compare does not exist; there are {len(self.trials)} runs")
        from smdwidgets.pictures.signal_view import view_of

        b = view_of(self.trials[run], str(compare.get("tensor", a.name)), str(compare.get("worker", a.worker)))
        if "step" in compare:
            at, offset = int(compare["step"]), 0
        else:
            offset = int(compare.get("offset", 0))
        steps = b.steps()
        # As in the page: of a tensor that lacks the step, the last one before it is 1 before.
        place = bisect_right(steps, at) - 1 + offset
        if offset < 0 and at not in steps:
            place += 1
        if not 0 <= place < len(steps):
            raise SMDebugValueError(
                f"{shown(b.name)} has no saved step {'at or before ' if not offset else f'{offset:+d} from '}step {at}"
            )
        return b, steps[place]
