"""Control the rules of a widget, and pack their results for the browser."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures.packet import LARGEST_STEP, pack
from smdwidgets.rules import RuleRunner, describe
from smdwidgets.rules.builtin import BUILTIN
from smdwidgets.rules.declared import parameters_of
from smdwidgets.rules.evaluation import Evaluation, RuleEvent, Snapshot
from smdwidgets.rules.registry import own_rules
from smdwidgets.trials.trial import Trial

_FIRINGS = 200


class RuleController:
    """The rules of one widget: a :class:`RuleRunner` for each run that has any."""

    def __init__(self, trials: Sequence[Trial], rules: Iterable[Any] = (), runner: RuleRunner | None = None) -> None:
        self._trials = list(trials)
        self._runners: dict[int, RuleRunner] = {}
        self._sent: dict[str, tuple[int, int, str, str]] = {}
        self._lock = threading.Lock()
        if runner is not None:
            self._runners[0] = runner
        for rule in rules:
            self._runner(0).add(rule)

    def _runner(self, run: int) -> RuleRunner:
        if run not in self._runners:
            self._runners[run] = RuleRunner(self._trials[run])
        return self._runners[run]

    @property
    def runners(self) -> dict[int, RuleRunner]:
        """The runner of each run that has rules."""
        return dict(self._runners)

    @property
    def active(self) -> bool:
        """Whether rules are running, so that more results may follow."""
        return any(runner.running for runner in self._runners.values())

    def start(self) -> None:
        """Start all runners."""
        for runner in self._runners.values():
            runner.start()

    def stop(self) -> None:
        """Stop all runners."""
        for runner in self._runners.values():
            runner.stop(timeout=0)

    def firing_steps(self, run: int = 0) -> list[int]:
        """Return the steps at which any rule fired."""
        runner = self._runners.get(run)
        if runner is None:
            return []
        return sorted({e.step for evaluation in runner for e in evaluation.firings if e.step is not None})

    # ------------------------------------------------------------------------------------------------------- requests

    def execute(self, request: dict[str, Any]) -> None:
        """Execute a command of the user: add, start, pause, stop, rerun, set or remove."""
        what = str(request.get("do"))
        run = int(request.get("run", 0) or 0)
        if what == "add":
            self._runner(run).add(str(request.get("class")), **_parameters(request))
            self._runner(run).start()
            return
        number, name = self._find(str(request.get("rule", "")))
        runners = [self._runners[number]] if name else list(self._runners.values())
        for runner in runners:
            if what == "start":
                runner.resume() if runner.paused else runner.start()
            elif what == "pause":
                runner.pause()
            elif what == "stop":
                runner.stop(timeout=0)
            elif what == "rerun" and name:
                runner.rerun(name)
                runner.start()
            elif what == "set" and name:
                runner.set_parameters(name, **_parameters(request))
                runner.start()
            elif what == "remove" and name:
                runner.remove(name)
                with self._lock:
                    self._sent.pop(_id(number, name), None)
            else:
                raise SMDebugError(f"unknown rule command {what!r}")

    def _find(self, rule_id: str) -> tuple[int, str]:
        if not rule_id:
            return 0, ""
        run, _, name = rule_id.partition("/")
        number = int(run) if run.isdigit() else -1
        if number not in self._runners or name not in {e.name for e in self._runners[number]}:
            raise SMDebugError(f"rule {name!r} does not exist; it may have been removed")
        return number, name

    def firings_at(self, rule_id: str, step: int) -> list[dict[str, Any]]:
        """Return the findings of a rule at one step."""
        number, name = self._find(rule_id)
        firings = self._runners[number][name].firings
        return [finding for event in firings if event.step == step for finding in _findings(event)]

    def classes(self) -> list[dict[str, Any]]:
        """Describe the rules that can be added, those defined in the notebook first."""
        found = {**own_rules(), **{name: rule for name, rule in BUILTIN.items() if name not in own_rules()}}
        described = []
        for rule in found.values():
            about = describe(rule)
            described.append(
                {
                    "name": about["name"],
                    "builtin": about["builtin"],
                    "help": about["summary"],
                    "params": about["parameters"],
                }
            )
        return described

    # --------------------------------------------------------------------------------------------------------- packets

    def full_update(self) -> list[bytes]:
        """Return packets with all rules, for a page that opens."""
        with self._lock:
            self._sent.clear()
            return [self._pack(list(self._all()), append=False)]

    def updates(self) -> list[bytes]:
        """Return packets with the rules that changed since the last packet."""
        with self._lock:
            changed = []
            for run, evaluation in self._all():
                now = evaluation.snapshot(after=evaluation.done, firings=0)
                sent = self._sent.get(_id(run, evaluation.name))
                if sent != (now.restarts, now.done, str(now.status), now.message):
                    changed.append((run, evaluation))
            return [self._pack(changed, append=True)] if changed else []

    def _all(self) -> Iterable[tuple[int, Evaluation]]:
        for run, runner in self._runners.items():
            for evaluation in runner:
                yield run, evaluation

    def _pack(self, evaluations: Sequence[tuple[int, Evaluation]], *, append: bool) -> bytes:
        rules: list[dict[str, Any]] = []
        arrays: dict[str, NDArray[Any]] = {}
        for i, (run, evaluation) in enumerate(evaluations):
            rule_id = _id(run, evaluation.name)
            sent = self._sent.get(rule_id)
            now = evaluation.snapshot(after=sent[1] if sent else 0)
            restarted = sent is not None and sent[0] != now.restarts
            if restarted:
                now = evaluation.snapshot()
            rules.append(self._describe(run, evaluation, now, restarted=restarted))
            steps = np.array(now.steps, np.int64)
            arrays[f"{i}.outcome"] = np.frombuffer(now.outcomes, np.uint8)[steps <= LARGEST_STEP]
            arrays[f"{i}.step"] = steps[steps <= LARGEST_STEP].astype(np.float64)
            self._sent[rule_id] = (now.restarts, now.done, str(now.status), now.message)
        return pack({"kind": "rules", "append": append, "rules": rules}, arrays)

    def _describe(self, run: int, evaluation: Evaluation, now: Snapshot, *, restarted: bool) -> dict[str, Any]:
        rule = evaluation.rule
        shown = [event for event in now.firings if event.step is None or event.step <= LARGEST_STEP]
        firings = [finding for event in shown[-_FIRINGS:] for finding in _findings(event)][-_FIRINGS:]
        described = {
            "id": _id(run, evaluation.name),
            "name": evaluation.name,
            "class": type(rule).__name__,
            "run": run,
            "status": str(now.status),
            "active": now.active,
            "done": now.done,
            "total": max(now.done, self._runners[run].steps_seen),
            "message": now.message[:2000],
            "params": [parameter.state(rule) for parameter in parameters_of(type(rule)).values()],
            "firings": firings,
            "firings_total": now.firings_total,
        }
        return {**described, "restarted": True} if restarted else described


def _id(run: int, name: str) -> str:
    return f"{run}/{name}"


def _parameters(request: dict[str, Any]) -> dict[str, Any]:
    given = request.get("params") or {}
    return {str(name): value for name, value in given.items()} if isinstance(given, dict) else {}


def _findings(event: RuleEvent) -> list[dict[str, Any]]:
    if not event.findings:
        return [{"step": event.step, "tensor": "", "worker": "", "message": event.message[:2000], "value": None}]
    return [
        {
            "step": event.step,
            "tensor": finding.tensor,
            "worker": finding.worker or "",
            "message": finding.message[:2000],
            "value": finding.value if finding.value is not None and math.isfinite(finding.value) else None,
        }
        for finding in event.findings[:20]
    ]
