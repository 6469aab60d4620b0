"""What all widgets are: traits for what a person chose, a conversation for what was read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from smdwidgets.exceptions import SMDebugError, SMDebugTypeError
from smdwidgets.rules import RuleRunner
from smdwidgets.trials import Trial, create_trial
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.trials.tensor import Tensor
from smdwidgets.widgets import bundle, memory, page, still
from smdwidgets.widgets.conversation import PROTOCOL, Conversation
from smdwidgets.widgets.rule_desk import RuleDesk
from smdwidgets.widgets.traits import STATE
from smdwidgets.widgets.view import RunView

Source = Trial | Tensor | str | os.PathLike[str]


class RunWidget(anywidget.AnyWidget, RunView):
    """A widget over one run or several. Every public trait can be set and observed.

    ``widget.step`` is the step shown, ``widget.tensor`` the name of the tensor, ``widget.value()`` the array itself.
    """

    _kind = traitlets.Unicode("explorer").tag(sync=True)
    _protocol = traitlets.Int(PROTOCOL).tag(sync=True)
    _module = traitlets.Unicode().tag(sync=True, echo_update=False)
    _boot = traitlets.List(traitlets.Bytes()).tag(sync=True, echo_update=False)

    #: The thread that takes over what the browser says, while it does.
    _hearing = 0
    _own_layout = False

    @property
    def _esm(self) -> str | Path:
        return bundle.module()

    @property
    def _css(self) -> str | Path:
        return bundle.style()

    def __init__(
        self,
        runs: Source | Sequence[Source],
        *,
        rules: Iterable[Any] | Any = (),
        **state: Any,
    ) -> None:
        unknown = [name for name in state if name not in STATE and not self.has_trait(name)]
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no argument {unknown[0]!r}; it takes {', '.join(sorted(STATE))}"
            )
        self.trials, tensor = _opened(runs)
        if tensor:
            state.setdefault("tensor", tensor)
        self._desk = _desk(self.trials, rules)
        self._conversation = Conversation(self.trials, self._desk, self._send_packets)
        kept = memory.of_this_cell(self.KIND, [str(trial.path) for trial in self.trials])
        if state.get("step", -1) >= 0:
            state.setdefault("follow", False)
        chosen = {**kept.state, **state}
        if "tensor" not in chosen and self.KIND in {"explorer", "inspector"}:
            chosen["tensor"] = _first_tensor(self.trials[0])
        super().__init__(
            _kind=self.KIND,
            _module=bundle.loaded(),
            _boot=self._conversation.boot(),
            **chosen,
        )
        self._own_layout = "layout" not in state
        self.on_msg(_pass_on)
        kept.now_shown_by(self)
        if self._desk is not None:
            self._desk.start()

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take over what the browser says."""
        self._hearing = threading.get_ident()
        try:
            super().set_state(sync_data)
        finally:
            self._hearing = 0

    @traitlets.observe("step")
    def _lets_go(self, change: Any) -> None:
        # Following ends where somebody goes elsewhere. The browser says so itself: the step that it tells while it follows
        # may be older than what is known here.
        if self._hearing == threading.get_ident():
            return
        with no_refresh(self.trial):
            if self.follow and change["new"] >= 0 and change["new"] not in self.trial.steps()[-1:]:
                self.follow = False

    def _send_packets(self, message: dict[str, Any], packets: Sequence[bytes]) -> None:
        if self.comm is not None:
            self.send(message, list(packets))

    # ------------------------------------------------------------------------------------------------------- for Python

    @property
    def rules(self) -> Any:
        """The :class:`~smdwidgets.rules.RuleRunner` of the run in view; None where there are no rules."""
        return None if self._desk is None else self._desk.runners.get(self.trials.index(self.trial))

    def to_html(
        self, path: str | os.PathLike[str], *, tensors: Iterable[str] | None = None, limit: int = 20_000_000
    ) -> int:
        """Write one self-contained page in which the slider still moves; its size in bytes.

        It asks nothing of the network and carries a strict Content-Security-Policy. ``tensors`` are those that can be looked at in it (the one
        in view unless said). Steps are left out evenly where the page would grow beyond ``limit`` bytes.
        """
        return page.write_page(self, os.fspath(path), list(tensors) if tensors is not None else None, limit)

    def close(self) -> None:
        """Take the widget away: its views go, and its rules and threads end. The trials stay open."""
        conversation = getattr(self, "_conversation", None)
        if conversation is not None:
            conversation.close()
            if self._desk is not None:
                self._desk.stop()
        layout = self.layout if self._own_layout and self.comm is not None else None
        super().close()
        if layout is not None:  # a model of its own, which ipywidgets would keep for ever
            layout.close()

    # ----------------------------------------------------------------------------------------------------------- shown

    def __repr__(self) -> str:
        try:
            return still.text(self)
        except (SMDebugError, AttributeError):
            return f"<{type(self).__name__}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        made = super()._repr_mimebundle_(**kwargs)
        if made is None:
            return made
        data, *rest = made if isinstance(made, tuple) else (made,)
        # What GitHub, nbviewer and a notebook without a kernel show: something true, if still.
        data = {**data, **still.bundle(self)}
        return (data, *rest) if rest else data


def _pass_on(widget: RunWidget, content: Any, buffers: Any) -> None:
    # A function and not a bound method: the widget must not hold itself alive.
    widget._conversation.heard(content)


def _opened(runs: Source | Sequence[Source]) -> tuple[list[Trial], str]:
    """The runs meant, and the tensor that was given in place of one."""
    if isinstance(runs, Tensor):
        return [runs.trial], runs.name
    given = [runs] if isinstance(runs, (Trial, str, os.PathLike)) else list(runs)
    if not given:
        raise SMDebugTypeError("Give a run: a path, a trial, or a list of them.")
    trials = []
    for run in given:
        if isinstance(run, Trial):
            trials.append(run)
        elif isinstance(run, (str, os.PathLike)):
            trials.append(create_trial(run))
        else:
            raise SMDebugTypeError(f"A run is a path or a trial, not {type(run).__name__}.")
    return trials, ""


def _desk(trials: list[Trial], rules: Any) -> RuleDesk | None:
    if rules is None:
        return None
    if isinstance(rules, RuleRunner):
        return RuleDesk(trials, runner=rules)
    return RuleDesk(trials, [rules] if isinstance(rules, (str, type)) else rules)


def _first_tensor(trial: Trial) -> str:
    """The tensor to begin with: a weight if there is one, which has the most to show; else a gradient, else a loss."""
    names = trial.tensor_names()
    for collection in ("weights", "gradients", "losses"):
        try:
            members = trial.tensor_names(collection=collection)
        except SMDebugError:
            continue
        if members:
            return members[0]
    return names[0] if names else ""
