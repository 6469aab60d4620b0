"""The base class of all widgets.

Traits synchronize the state of the view. A :class:`RequestHandler` answers the browser's requests for data.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anywidget
import traitlets

from smdwidgets._text import capitalized
from smdwidgets.exceptions import NoMoreData, SMDebugError, SMDebugTypeError
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.tensors import first_tensor
from smdwidgets.widgets import bundle, cell_state, state_string
from smdwidgets.widgets.notices import leave_out_unknown
from smdwidgets.widgets.open_runs import OpenRuns
from smdwidgets.widgets.protocol import PROTOCOL
from smdwidgets.widgets.still import Still, publish
from smdwidgets.widgets.traits import STATE
from smdwidgets.widgets.view import RunView

# The rest is imported where it is used: `smdwidgets.explore` needs neither rules nor diagnosis before it is called.
if TYPE_CHECKING:
    from smdwidgets.diagnosis import Diagnosis
    from smdwidgets.run_table.live import LiveTable
    from smdwidgets.trials import Tensor, Trial
    from smdwidgets.widgets.live_survey import LiveSurvey
    from smdwidgets.widgets.precision_panel import PrecisionPanel
    from smdwidgets.widgets.rule_controller import RuleController
    from smdwidgets.widgets.story import Story

Source: TypeAlias = "Trial | Tensor | str | os.PathLike[str]"


class RunWidget(anywidget.AnyWidget, RunView):
    """A widget for one or more runs. Every public trait can be set and observed.

    ``widget.step`` is the displayed step, ``widget.tensor`` the name of the tensor, and ``widget.value()`` its value.
    """

    _kind = traitlets.Unicode("explorer").tag(sync=True)
    _protocol = traitlets.Int(PROTOCOL).tag(sync=True)
    _parts = traitlets.Dict().tag(sync=True, echo_update=False)
    _many = traitlets.Bool(False).tag(sync=True)
    _boot = traitlets.List(traitlets.Bytes()).tag(sync=True, echo_update=False)

    #: Id of the thread that is applying state from the browser; 0 if there is none.
    _syncing_thread = 0
    _own_layout = False
    _constructed = False

    @property
    def _esm(self) -> str | Path:
        return bundle.module()

    def __init__(
        self,
        runs: Source | Sequence[Source],
        *,
        rules: Iterable[Any] | Any = (),
        state: str = "",
        _rows: LiveTable | None = None,
        **traits: Any,
    ) -> None:
        from smdwidgets.widgets.live_diagnosis import LiveDiagnosis
        from smdwidgets.widgets.live_replay import LiveReplay
        from smdwidgets.widgets.request_handler import RequestHandler
        from smdwidgets.widgets.runs_packets import RunsPackets

        unknown = [name for name in traits if name not in STATE and not self.has_trait(name)]
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no argument {unknown[0]!r}; choose from {', '.join(sorted(STATE))}"
            )
        self.live_table = _rows
        if _rows is None:
            trials, tensor = _open_trials(runs)
            self.trials = OpenRuns.of(trials)
            if tensor:
                traits.setdefault("tensor", tensor)
        else:
            self.trials = OpenRuns(_rows.__len__, _rows.open)
        notices: list[str] = []
        if _rows is None and self.KIND == "explorer":
            notices = leave_out_unknown(self.trials, traits)
        elif _rows is None and "step" in traits:
            _check_step(self.trials, traits["step"])
        if state:
            traits = {**self._restored(state), **traits}
        self.rule_controller = _make_controller(self.trials, rules, notices if self.KIND == "explorer" else None)
        paths = [str(trial.path) for _, trial in self.trials.opened()] if _rows is None else ["table", _rows.root]
        slot = cell_state.slot_of_this_cell(self.KIND, paths)
        if traits.get("step", -1) >= 0:
            traits.setdefault("follow", False)
        chosen = {**slot.state, **traits}
        is_fresh = self.KIND == "explorer" and not {"tensor", "step"} & chosen.keys()
        if "tensor" not in chosen and self.KIND in {"explorer", "inspector"} and not chosen.get("table"):
            chosen["tensor"] = _first_tensor(self.trials[int(chosen.get("run", 0)) if _rows is not None else 0])
        has_map = self.KIND == "explorer"
        self.live_survey = _make_survey(self.trials, self.rule_controller, chosen) if has_map else None
        self.live_replay = LiveReplay(self.trials) if has_map else None
        self.live_diagnosis = LiveDiagnosis(self.trials, self.live_survey, self.live_replay) if has_map else None
        self.request_handler = RequestHandler(
            self.trials,
            self.rule_controller,
            self._send_packets,
            self.live_diagnosis,
            self.live_survey,
            None if _rows is None else RunsPackets(_rows),
            self.live_replay,
        )
        self.partings = self.request_handler.partings
        self.trials.on_open = self.request_handler.add
        super().__init__(
            _kind=self.KIND,
            _many=_rows is not None,
            _fresh=is_fresh,
            _notice=" ".join(notices),
            _parts=bundle.carried.take(self.KIND, _rows is not None),
            _boot=self.request_handler.boot(self._lane(chosen)),
            **chosen,
        )
        self._own_layout = "layout" not in traits
        self.on_msg(_on_message)
        self._still = Still(self)
        slot.attach(self)
        self._constructed = True
        self.rule_controller.start()

    def _lane(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the curve above the step axis, before the traits are set."""
        run = state.get("run", 0)
        if self.KIND != "explorer" or state.get("table") or run not in range(len(self.trials)):
            return []
        from smdwidgets.widgets.first_view import lane_of

        return lane_of(self.trials[run], run, str(state.get("lane", "")))

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Apply state from the browser."""
        self._syncing_thread = threading.get_ident()
        try:
            super().set_state(sync_data)
        finally:
            self._syncing_thread = 0

    @traitlets.observe("comm")
    def _route_by_header(self, change: Any) -> None:
        # ipykernel 7 sends a message from the browser to the shell that last wrote to the comm. A comm is opened by a
        # cell, so with Run All every request would wait for the remaining cells. The browser names a subshell instead.
        if hasattr(change["new"], "_reply_subshell_for"):
            change["new"]._reply_subshell_for = _named_subshell

    @traitlets.observe("step")
    def _stop_following(self, change: Any) -> None:
        from smdwidgets.trials.refresh import no_refresh

        # Setting another step than the last one ends following. Ignore steps from the browser: it sets `follow` itself,
        # and the step that it sends while following can be older than the last step known to the kernel.
        if self._syncing_thread == threading.get_ident():
            return
        with no_refresh(self.trial):
            if self.follow and change["new"] >= 0 and change["new"] not in self.trial.steps()[-1:]:
                self.follow = False

    @traitlets.observe("run", "tensor", "step", "inspect")
    def _keep_choice(self, change: Any) -> None:
        # Who sets what is in view wants to see it rather than the first finding. The browser sets `_fresh` itself.
        if self._constructed and self._syncing_thread != threading.get_ident():
            self._fresh = False

    @traitlets.observe("run", "tensor", "step")
    def _clear_notice(self, change: Any) -> None:
        # The browser also sets them by itself, when it opens on a finding.
        if self._constructed and self._syncing_thread != threading.get_ident():
            self._notice = ""

    @traitlets.observe("run")
    def _show_run(self, change: Any) -> None:
        # Setting the run in Python shows it. The browser sets `table` itself.
        if self._syncing_thread != threading.get_ident():
            self.table = False

    def _send_packets(self, message: dict[str, Any], packets: Sequence[bytes]) -> None:
        if self.comm is not None:
            self.send(message, list(packets))

    def send_parts(self, names: object = (), has: object = ()) -> None:
        """Send parts of the front end; without names, those of the first picture."""
        if self.comm is not None:
            self.send(bundle.answer(self._kind, self._many, names, has))

    def push_parts(self) -> None:
        """Send all parts that this widget can reach, to a page without answers."""
        if self.comm is not None:
            self.send(bundle.everything(self._kind, self._many))

    # ------------------------------------------------------------------------------------------------------- Python API

    @property
    def rules(self) -> Any:
        """The rule runner of the displayed run, or None if there are no rules.

        See :class:`~smdwidgets.rules.RuleRunner`.
        """
        return self.rule_controller.runners.get(self.trials.index(self.trial))

    @property
    def state(self) -> str:
        """The view as a string, which opens the same view elsewhere.

        It has the settings that differ from their defaults in at most 2,048 characters, and names runs and tensors
        rather than paths. ``explore(run, state=...)`` opens it. Setting it changes the view; what the run lacks is left
        out, with a warning.

        >>> widget.state                                                   # doctest: +SKIP
        'smdw2.eyJzdGVwIjo0MDAsInRlbnNvciI6ImZjMS53ZWlnaHQifQ'
        """
        return state_string.encode({name: getattr(self, name) for name in STATE}, self.run_names())

    @state.setter
    def state(self, text: str) -> None:
        with self.hold_trait_notifications(), self.hold_sync():
            for name, value in self._restored(text).items():
                setattr(self, name, value)

    def _has_tensor(self, name: str) -> bool:
        from smdwidgets.pictures.signal_view import can_show

        opened = [trial for _, trial in self.trials.opened()]
        # The page selects another tensor if a run that is opened later does not have this one.
        return any(can_show(trial, name) for trial in opened) or not opened

    def _restored(self, text: str) -> dict[str, Any]:
        """Return all traits of a state string; none if it cannot be read."""
        if not isinstance(text, str):
            raise SMDebugTypeError(f"state must be a string such as widget.state, got {type(text).__name__}")
        given, missing = state_string.decode(
            text,
            self.run_names(),
            self._has_tensor,
            lambda run, step: step in self.trials[run].steps(),
        )
        if missing:
            warnings.warn(missing, stacklevel=3)
        if given is None:
            return {}
        # Traits that the string does not list have their defaults, but a tensor is always in view.
        defaults = {
            name: trait.default() for name, trait in self.traits().items() if name in STATE and name != "tensor"
        }
        return {**defaults, **given, "follow": given.get("step", -1) < 0}

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        tensors: Iterable[str] | None = None,
        limit: int = 20_000_000,
        diagnosis: Diagnosis | None = None,
    ) -> Path:
        """Write one HTML page with a working step slider, and return its path.

        The page makes no network requests and has a strict Content-Security-Policy.

        Args:
            path: the output file, which is overwritten.
            tensors: the tensors whose pictures the page contains. By default, in this order until the limit: those that
                findings and rules name, the displayed and the compared one, those of bookmarks, those that the query
                finds, and others by suspicion. The page contains map, timeline, findings and statistics of all tensors.
            limit: maximum size in bytes. To stay below it, steps are omitted at regular intervals.
            diagnosis: a diagnosis of the run, which is shown above the widget.
        """
        from smdwidgets.widgets import page

        chosen = list(tensors) if tensors is not None else None
        page.write_page(self, os.fspath(path), chosen, limit, diagnosis)
        return Path(path)

    def story(self, parts: Iterable[str] = ("current view",)) -> Story:
        """Return captioned pictures for a pull request or a report.

        Args:
            parts: names such as ``"finding 1"`` (as the widget numbers them), ``"bookmark 2"`` and ``"current view"``.

        Raises:
            SMDebugValueError: a part does not exist.

        >>> widget.story(["finding 1", "current view"]).to_markdown("story.md")   # doctest: +SKIP
        """
        from smdwidgets.widgets.story import make_story

        return make_story(self, parts)

    def precision(self, tensors: Iterable[str] | None = None, most: int = 10, *, scaled: bool = True) -> PrecisionPanel:
        """Return a table of what formats of 8 and 4 bits would make of tensors.

        It follows the slider: the share of values that E4M3, E5M2, MXFP8 and NVFP4 would flush or saturate at the step
        in view, and the relative error, of the tensor in view and of those that lose most.

        Args:
            tensors: names of tensors; None: all of several numbers, up to 256 MB.
            most: rows of tensors that are not in view.
            scaled: whether E4M3 and E5M2 have a scale.

        >>> smdwidgets.explore("runs/gpt", tensor="fc1.weight").precision()    # doctest: +SKIP
        """
        from smdwidgets.widgets.precision_panel import PrecisionPanel

        return PrecisionPanel(self, tensors, most, scaled=scaled)

    def close(self) -> None:
        """Remove the widget's views, and stop its rules and threads. The trials stay open."""
        handler = getattr(self, "request_handler", None)
        if handler is not None:
            handler.close()
            self.rule_controller.stop()
            # Garbage collection also closes a widget whose constructor has failed.
            if (still := getattr(self, "_still", None)) is not None:
                still.close()
        layout = self.layout if self._own_layout and self.comm is not None else None
        super().close()
        if layout is not None:  # the layout is a separate model, which ipywidgets keeps until it is closed
            layout.close()

    # --------------------------------------------------------------------------------------------------------- display

    def __repr__(self) -> str:
        from smdwidgets.widgets import static_repr

        try:
            return static_repr.text(self)
        except (SMDebugError, AttributeError):
            return f"<{type(self).__name__}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        from smdwidgets.widgets import static_repr

        made = super()._repr_mimebundle_(**kwargs)
        if made is None:
            return made
        self.request_handler.displayed(_first_requests_of(weakref.ref(self)))
        data, *rest = made if isinstance(made, tuple) else (made,)
        # GitHub, nbviewer and other viewers without widgets show this static image and text.
        data = {**data, **static_repr.bundle(self)}
        return (data, *rest) if rest else data

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Display the widget and its still as two outputs."""
        made = self._repr_mimebundle_(**kwargs)
        data = made[0] if isinstance(made, tuple) else made
        if not data or "application/vnd.jupyter.widget-view+json" not in data:
            print(repr(self))
            return
        publish({name: value for name, value in data.items() if name != "image/png"})
        self._still.display()


def _check_step(trials: OpenRuns, step: Any) -> None:
    """Raise an error for a step after the end of all runs.

    A step between two saved ones is none: the widget shows the nearest.
    """
    runs = [trial for _, trial in trials.opened()]
    if not isinstance(step, int) or not all(trial.loaded_all_steps for trial in runs):
        return
    last = max((trial.steps(show_incomplete_steps=True)[-1:] or [-1])[0] for trial in runs)
    if step > last:
        raise NoMoreData(step, ModeKeys.GLOBAL, last)


def _on_message(widget: RunWidget, content: Any, buffers: Any) -> None:
    # This is a function because a bound method would be a reference of the widget to itself, and keep it alive.
    if isinstance(content, dict) and content.get("kind") == "parts":
        widget.send_parts(content.get("names"), content.get("has"))
    else:
        widget.request_handler.handle_message(content)


def _first_requests_of(reference: weakref.ref[RunWidget]) -> Callable[[], list[dict[str, Any]]]:
    # This is a function because a closure of the widget would keep it alive.
    def requests() -> list[dict[str, Any]]:
        from smdwidgets.widgets.first_view import first_requests

        widget = reference()
        if widget is None:
            return []
        widget.push_parts()
        return first_requests(widget)

    return requests


def _named_subshell(data: Any, named: str | None) -> str | None:
    return named


def _open_trials(runs: Source | Sequence[Source]) -> tuple[list[Trial], str]:
    """Return the trials, and the tensor's name if a tensor was given instead of a run."""
    from smdwidgets.trials import Tensor, Trial

    if isinstance(runs, Tensor):
        return [runs.trial], runs.name
    given = [runs] if isinstance(runs, (Trial, str, os.PathLike)) else list(runs)
    if not given:
        raise SMDebugTypeError("no runs given; pass a path, a trial, or a non-empty list of them")
    trials = []
    for run in given:
        if isinstance(run, Trial):
            trials.append(run)
        elif isinstance(run, (str, os.PathLike)):
            trials.append(open_run(run))
        else:
            raise SMDebugTypeError(f"a run must be a path or a trial, got {type(run).__name__}")
    return trials, ""


def open_run(path: str | os.PathLike[str]) -> Trial:
    """Return the trial of a path; a run that does not exist yet has no steps."""
    from smdwidgets.trials import LocalTrial, create_trial
    from smdwidgets.trials.utils import has_started

    return create_trial(path) if has_started(path) else LocalTrial(None, path, unstarted=True)


def _make_controller(trials: Sequence[Trial], rules: Any, notices: list[str] | None) -> RuleController:
    """Return the controller of rules.

    Args:
        trials: the runs.
        rules: the rules.
        notices: takes what is said of unknown rules; None: they are errors.
    """
    from smdwidgets.widgets.rule_controller import RuleController

    if rules is None:
        return RuleController(trials)
    from smdwidgets.rules import RuleRunner

    if isinstance(rules, RuleRunner):
        return RuleController(trials, runner=rules)
    from smdwidgets.rules.registry import UnknownRule

    controller = RuleController(trials)
    for rule in [rules] if isinstance(rules, (str, type)) else rules:
        try:
            controller.add(0, rule)
        except UnknownRule as error:
            if notices is None:
                raise
            notices.append(f"{capitalized(str(error))}.")
    return controller


def _make_survey(trials: Sequence[Trial], rules: RuleController, state: dict[str, Any]) -> LiveSurvey:
    from smdwidgets.survey.bins import DOMAINS
    from smdwidgets.widgets.live_survey import LiveSurvey
    from smdwidgets.widgets.survey_packets import Colour

    worker, mode, stat = (str(state.get(name, "")) for name in ("worker", "mode", "map_stat"))
    colour = Colour(worker, mode if mode in ModeKeys.__members__ else "", stat if stat in DOMAINS else "growth")
    return LiveSurvey(trials, rules, colour)


def _first_tensor(trial: Trial) -> str:
    from smdwidgets.pictures.overview import collection_members

    names = trial.tensor_names()
    return first_tensor(names, collection_members(trial, names))
