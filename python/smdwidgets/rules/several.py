"""Evaluate rules on many runs, each on one worker of a cluster or in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, overload

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.executors import call_many
from smdwidgets.executors.scope import HERE
from smdwidgets.rules.registry import find_rule
from smdwidgets.rules.rule import Rule
from smdwidgets.rules.runner import RuleRunner
from smdwidgets.trials import Trial, create_trials

__all__ = ["CheckedRun", "CheckedRuns", "RuleOutcome", "check_all"]

_Rules = Iterable[str | type[Rule]] | Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class RuleOutcome:
    """What a rule found in a run.

    Attributes:
        rule: name of the rule.
        status: "fired", "passed", "not judged" or "error".
        first_step: first global step at which it fired, or None.
        firings: number of steps at which it fired.
        judged: number of steps that it judged.
        message: message of the first firing, of the error, or why nothing was judged.
    """

    rule: str
    status: str
    first_step: int | None
    firings: int
    judged: int
    message: str


@dataclass(frozen=True)
class CheckedRun:
    """Outcomes of all rules on a run.

    Attributes:
        run: path of the run.
        outcomes: one per rule.
        last_step: last global step that was judged, -1 if there was none.
        error: why the run could not be read; empty if it was.
    """

    run: str
    outcomes: tuple[RuleOutcome, ...] = ()
    last_step: int = -1
    error: str = ""

    @property
    def fired(self) -> tuple[RuleOutcome, ...]:
        """Outcomes of the rules that fired, earliest first."""
        fired = [one for one in self.outcomes if one.status == "fired"]
        return tuple(sorted(fired, key=lambda one: (one.first_step or 0, one.rule)))

    def rank(self) -> tuple[Any, ...]:
        """Return a key that sorts the run in which most rules fired first."""
        fired = self.fired
        return -len(fired), -sum(one.firings / max(1, one.judged) for one in fired), not self.error, self.run

    def __str__(self) -> str:
        if self.error:
            return f"{self.run}: cannot be read: {self.error}"
        if not self.fired:
            judged = sum(one.judged > 0 for one in self.outcomes)
            return f"{self.run}: no rule fired; {judged} of {len(self.outcomes)} rules judged"
        return f"{self.run}: " + "; ".join(f"{one.rule} at step {one.first_step}" for one in self.fired)


class CheckedRuns(Sequence[CheckedRun]):
    """Results of :func:`smdwidgets.check_all`, ranked.

    The runs in which most rules fired come first.

    >>> CheckedRuns([CheckedRun("a"), CheckedRun("b", (RuleOutcome("AllZero", "fired", 3, 1, 4, ""),))])
    b: AllZero at step 3
    a: no rule fired; 0 of 0 rules judged
    """

    def __init__(self, runs: Iterable[CheckedRun]) -> None:
        self._runs = sorted(runs, key=CheckedRun.rank)

    @overload
    def __getitem__(self, at: int) -> CheckedRun: ...
    @overload
    def __getitem__(self, at: slice) -> list[CheckedRun]: ...
    def __getitem__(self, at: int | slice) -> CheckedRun | list[CheckedRun]:
        return self._runs[at]

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return "\n".join(str(run) for run in self._runs)


def check_all(
    runs: Iterable[Trial | str | PathLike[str]],
    rules: _Rules,
    client: Any = None,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> CheckedRuns:
    """Evaluate rules on many runs in parallel, each run on one worker.

    Steps that were saved so far are judged. A run that cannot be read does not stop the others. User-defined rules must
    be importable on the workers, or the package ``cloudpickle`` must be installed.

    Args:
        runs: trials, or paths of runs; a directory of TensorBoard logs has several.
        rules: names or classes of rules, or a dictionary from names to parameters.
        client: a ``distributed.Client``; None: that of :func:`smdwidgets.use`, else processes of this machine.
        progress: called with the number of finished runs and their total.

    >>> smdwidgets.check_all(["runs/a", "runs/b"], ["VanishingGradient", "AllZero"])     # doctest: +SKIP
    runs/b: AllZero at step 30
    runs/a: no rule fired; 2 of 2 rules judged
    """
    chosen = _checked(rules)
    if isinstance(runs, Trial | str | PathLike):
        runs = [runs]
    calls = [(run if isinstance(run, Trial) else fspath(run), chosen) for run in runs]
    return CheckedRuns(one for many in call_many(_check, calls, client, progress) for one in many)


def _checked(rules: _Rules) -> list[tuple[str | type[Rule], dict[str, Any]]]:
    """Return rules with their parameters; raise for unknown names."""
    if isinstance(rules, str):
        rules = [rules]
    pairs: Iterable[tuple[Any, Mapping[str, Any]]] = (
        rules.items() if isinstance(rules, Mapping) else ((rule, {}) for rule in rules)
    )
    chosen: list[tuple[str | type[Rule], dict[str, Any]]] = []
    for rule, parameters in pairs:
        if isinstance(rule, str):
            find_rule(rule)
        elif not (isinstance(rule, type) and issubclass(rule, Rule)):
            raise SMDebugTypeError(f"invalid rule {shown(rule)}; pass names or classes, which each run gets its own of")
        chosen.append((rule, dict(parameters)))
    return chosen


def _check(run: Trial | str, rules: Any, *, cancel: _core.Cancel) -> list[CheckedRun]:
    """Evaluate rules on one run or on all runs of a directory, on a worker."""
    path = run if isinstance(run, str) else str(run.path)
    try:
        trials = list(create_trials(run, wait=0, skip_bad_index=True).values()) if isinstance(run, str) else [run]
    except Exception as error:
        return [CheckedRun(path, error=_text(error))]
    return list(_judged(trials, rules, cancel, close=isinstance(run, str)))


def _judged(trials: Iterable[Trial], rules: Any, cancel: _core.Cancel, *, close: bool) -> Iterator[CheckedRun]:
    for trial in trials:
        try:
            yield _judge(trial, rules, cancel)
        except Exception as error:
            yield CheckedRun(str(trial.path), error=_text(error))
        finally:
            if close:
                trial.close()


def _judge(trial: Trial, rules: Any, cancel: _core.Cancel) -> CheckedRun:
    runner = RuleRunner(trial, follow=False, client=HERE)
    outcomes: dict[str, RuleOutcome] = {}
    for rule, parameters in rules:
        name = rule if isinstance(rule, str) else rule.__name__
        try:
            runner.add(rule, **parameters)
        except Exception as error:  # a required tensor or parameter is missing in this run
            outcomes[name] = RuleOutcome(name, "error", None, 0, 0, _text(error))
    runner.start()
    while not runner.wait(0.1):
        if cancel.is_set():
            runner.stop(timeout=5.0)
            raise KeyboardInterrupt("cancelled")
    for one in runner.evaluations:
        first = one.first_firing
        status = "fired" if first else "error" if one.errors else "passed" if one.judged else "not judged"
        message = first.message if first else one.message
        firings = one.snapshot().firings_total
        outcomes[one.name] = RuleOutcome(one.name, status, first.step if first else None, firings, one.judged, message)
    return CheckedRun(str(trial.path), tuple(outcomes.values()), trial.last_complete_step)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
