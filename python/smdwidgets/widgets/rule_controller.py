"""Control the rules of a widget, and pack their results for the browser."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.pictures.packet import LARGEST_STEP, pack

# Rules are imported where they are used, because most widgets have none.
if TYPE_CHECKING:
    from smdwidgets.rules import RuleRunner
    from smdwidgets.rules.evaluation import Evaluation, RuleEvent, Snapshot
    from smdwidgets.survey import RuleFirings
    from smdwidgets.trials.trial import Trial

_FIRINGS = 200


class _Sent(NamedTuple):
    """What the pages know of a rule."""

    evaluation: Evaluation
    restarts: int
    done: int
    state: tuple[str, bool, bool, str]


class RuleController:
    """The rules of one widget, with a :class:`RuleRunner` per run. Thread-safe."""

    def __init__(self, trials: Sequence[Trial], rules: Iterable[Any] = (), runner: RuleRunner | None = None) -> None:
        self._trials = trials
        self._runners: dict[int, RuleRunner] = {}
        self._sent: dict[str, _Sent] = {}
        self._lock = threading.RLock()
        if runner is not None:
            self._runners[0] = runner
        for rule in rules:
            self.add(0, rule)

    def _runner(self, run: int) -> RuleRunner:
        from smdwidgets.rules import RuleRunner

        if not 0 <= run < len(self._trials):
            raise SMDebugValueError(f"run index {run} is out of range")
        with self._lock:
            if run not in self._runners:
                self._runners[run] = RuleRunner(self._trials[run])
            return self._runners[run]

    def add(self, run: int, rule: Any, parameters: dict[str, Any] | None = None) -> Evaluation:
        """Add a rule to a run; parameters that it lacks can be set in the panel."""
        from smdwidgets.rules.creation import make_rule

        runner = self._runner(run)
        return runner.add(make_rule(rule, self._trials[run], parameters, may_be_incomplete=True))

    @property
    def runners(self) -> dict[int, RuleRunner]:
        """The runner of each run that has rules."""
        with self._lock:
            return dict(self._runners)

    @property
    def active(self) -> bool:
        """Whether rules are running, so that more results may follow."""
        return any(runner.running for runner in self.runners.values())

    def start(self) -> None:
        """Start all runners."""
        for runner in self.runners.values():
            runner.start()

    def stop(self) -> None:
        """Stop all runners."""
        for runner in self.runners.values():
            runner.stop(timeout=0)

    def check_replaced(self) -> None:
        """Evaluate runs again that another run has replaced."""
        for runner in self.runners.values():
            runner.check_replaced()

    def evaluate_saved_steps(self) -> None:
        """Wait until the rules that run have evaluated the steps saved so far."""
        for runner in self.runners.values():
            runner.catch_up()

    def blamed(self) -> list[str]:
        """Return the tensors that rules name at their first firings, the earliest first."""
        return list(dict.fromkeys(one.subject for event in self._first() for one in event.findings if one.subject))

    def first_firings(self) -> list[int]:
        """Return the steps at which rules fired first, ascending."""
        return [event.step for event in self._first() if event.step is not None]

    def _first(self) -> list[RuleEvent]:
        firings = [evaluation.first_firing for runner in self.runners.values() for evaluation in runner]
        known = [event for event in firings if event is not None]
        return sorted(known, key=lambda event: -1 if event.step is None else event.step)

    def fired(self, run: int) -> list[RuleFirings]:
        """Return the firings of each rule that fired."""
        runner = self.runners.get(run)
        if runner is None:
            return []
        from smdwidgets.rules.evaluation import Outcome
        from smdwidgets.survey import RuleFirings

        found = []
        for evaluation in runner:
            events = [event for event in (evaluation.first_firing, *evaluation.firings) if event is not None]
            tensors: dict[str, set[int]] = {}
            for event in events:
                for finding in event.findings:
                    if finding.subject and event.step is not None:
                        tensors.setdefault(finding.subject, set()).add(event.step)
            now = evaluation.snapshot(firings=0)
            outcomes = zip(now.steps, now.outcomes, strict=True)
            steps = {step for step, outcome in outcomes if outcome == Outcome.FIRED}
            if steps:
                by_tensor = {name: tuple(sorted(mine)) for name, mine in tensors.items()}
                found.append(RuleFirings(evaluation.name, tuple(sorted(steps)), by_tensor))
        return found

    # ------------------------------------------------------------------------------------------------------- requests

    def execute(self, request: dict[str, Any]) -> None:
        """Execute a command of the user: add, start, pause, stop, rerun, set or remove."""
        what = str(request.get("do"))
        if what == "add":
            number = _run_of(request)
            added = self.add(number, str(request.get("class")), _parameters(request))
            self.runners[number].start_rule(added.name)  # rules that were stopped stay stopped
            return
        number, name = self._find(str(request.get("rule", "")))
        runner = self.runners[number]
        commands: dict[str, Callable[[], object]] = {
            "start": lambda: runner.start_rule(name),
            "pause": lambda: runner.pause_rule(name),
            "stop": lambda: runner.stop_rule(name),
            "rerun": lambda: runner.rerun(name),
            "set": lambda: runner.set_parameters(name, **_parameters(request)),
            "remove": lambda: runner.remove(name),
        }
        if what not in commands:
            raise SMDebugError(f"unknown rule command {what!r}; choose from add, {', '.join(commands)}")
        commands[what]()
        if what in {"rerun", "set"}:
            runner.start_rule(name)

    def _find(self, rule_id: str) -> tuple[int, str]:
        run, _, name = rule_id.partition("/")
        runner = self.runners.get(int(run)) if run.isdecimal() else None
        if runner is None or name not in {evaluation.name for evaluation in runner}:
            raise SMDebugError(f"rule {name or rule_id!r} does not exist; it may have been removed")
        return int(run), name

    def firings_at(self, rule_id: str, step: int) -> list[dict[str, Any]]:
        """Return the findings of a rule at one step."""
        number, name = self._find(rule_id)
        firings = self.runners[number][name].firings
        return [finding for event in firings if event.step == step for finding in _findings(event)]

    def classes(self) -> list[dict[str, Any]]:
        """Describe the rules that can be added, those defined in the notebook first."""
        from smdwidgets.rules import describe
        from smdwidgets.rules.builtin import BUILTIN
        from smdwidgets.rules.registry import own_rules

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

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Lock the packets: a page must receive them in the order in which they were made."""
        with self._lock:
            yield

    def packets(self) -> list[bytes]:
        """Return packets with all rules, for an exported page.

        Nothing is running there: a rule that waits for steps has the status of those that it judged.
        """
        return [_pack(list(self._all()), {}, append=False, saved=True)]

    def full_update(self) -> list[bytes]:
        """Return packets with all rules, for a page that opens."""
        with self._lock:
            self._sent.clear()
            return [_pack(list(self._all()), self._sent, append=False)]

    def updates(self) -> list[bytes]:
        """Return packets with the rules that changed since the last packet."""
        with self._lock:
            rules = list(self._all())
            known = {sent.evaluation for sent in self._sent.values()}
            if known - {
                evaluation for _, _, evaluation in rules
            }:  # the page removes the rules that are not in a full list
                return self.full_update()
            changed = [rule for rule in rules if self._has_changed(rule[0], rule[2])]
            return [_pack(changed, self._sent, append=True)] if changed else []

    def _has_changed(self, run: int, evaluation: Evaluation) -> bool:
        sent = self._sent.get(_id(run, evaluation.name))
        return sent != _sent(evaluation, evaluation.snapshot(after=evaluation.done, firings=0))

    def _all(self) -> Iterable[tuple[int, RuleRunner, Evaluation]]:
        for run, runner in self.runners.items():
            for evaluation in runner:
                yield run, runner, evaluation


def _pack(
    rules: Sequence[tuple[int, RuleRunner, Evaluation]], known: dict[str, _Sent], *, append: bool, saved: bool = False
) -> bytes:
    """Pack what the pages do not know of rules, and add it to what they know."""
    heads: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for i, (run, runner, evaluation) in enumerate(rules):
        sent = known.get(_id(run, evaluation.name))
        now = evaluation.snapshot(after=sent.done if sent else 0)
        restarted = sent is not None and sent.restarts != now.restarts
        if restarted:
            now = evaluation.snapshot()
        from smdwidgets.rules.evaluation import Status

        head = _describe(run, runner, evaluation, now, restarted=restarted)
        if saved and now.active:
            waiting = now.status == Status.IN_PROGRESS and not now.paused and now.done == head["total"]
            head |= {"active": False} | ({"status": str(Status.NO_ISSUES_FOUND)} if waiting else {})
        heads.append(head)
        steps = np.array(now.steps, np.int64)
        arrays[f"{i}.outcome"] = np.frombuffer(now.outcomes, np.uint8)[steps <= LARGEST_STEP]
        arrays[f"{i}.step"] = steps[steps <= LARGEST_STEP].astype(np.float64)
        known[_id(run, evaluation.name)] = _sent(evaluation, now)
    return pack({"kind": "rules", "append": append, "rules": heads}, arrays)


def _sent(evaluation: Evaluation, now: Snapshot) -> _Sent:
    return _Sent(evaluation, now.restarts, now.done, (str(now.status), now.active, now.paused, now.message))


def _describe(
    run: int, runner: RuleRunner, evaluation: Evaluation, now: Snapshot, *, restarted: bool
) -> dict[str, Any]:
    from smdwidgets.rules.declared import parameters_of

    rule = evaluation.rule
    shown = [event for event in now.firings if event.step is None or event.step <= LARGEST_STEP]
    firings = [finding for event in shown[-_FIRINGS:] for finding in _findings(event)][-_FIRINGS:]
    first = [] if evaluation.first_firing is None else _findings(evaluation.first_firing)[:1]
    if firings and first and (first[0]["step"] or 0) < (firings[0]["step"] or 0):
        firings = [*first, *firings[1 - _FIRINGS :]]  # the onset matters most
    described = {
        "id": _id(run, evaluation.name),
        "name": evaluation.name,
        "class": type(rule).__name__,
        "run": run,
        "status": str(now.status),
        "active": now.active,
        "paused": now.paused,
        "done": now.done,
        "total": max(now.done, runner.steps_seen),
        "message": now.message[:2000],
        "params": [parameter.state(rule) for parameter in parameters_of(type(rule)).values()],
        "firings": firings,
        "firings_total": now.firings_total,
    }
    return {**described, "restarted": True} if restarted else described


def _id(run: int, name: str) -> str:
    return f"{run}/{name}"


def _run_of(request: dict[str, Any]) -> int:
    number = request.get("run", 0)
    if not isinstance(number, int):
        raise SMDebugValueError(f"run index must be an integer, got {number!r:.50}")
    return number


def _parameters(request: dict[str, Any]) -> dict[str, Any]:
    given = request.get("params") or {}
    return {str(name): value for name, value in given.items()} if isinstance(given, dict) else {}


def _findings(event: RuleEvent) -> list[dict[str, Any]]:
    if not event.findings:
        return [{"step": event.step, "tensor": "", "worker": "", "message": event.message[:2000], "value": None}]
    return [
        {
            "step": event.step,
            "tensor": finding.subject,
            "worker": finding.worker,
            "message": finding.text[:2000],
            "value": finding.value if finding.value is not None and math.isfinite(finding.value) else None,
        }
        for finding in event.findings[:20]
    ]
