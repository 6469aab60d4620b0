"""Evaluate several rules on one run in the background until the run ends."""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from smdwidgets._text import did_you_mean, markup, shown, visible
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.executors import using
from smdwidgets.finding import Finding, ordered
from smdwidgets.rules.config import rules_from_json
from smdwidgets.rules.creation import make_rule, recreate_rule
from smdwidgets.rules.evaluation import Evaluation, Outcome, RuleEvent, Status
from smdwidgets.rules.event_publisher import EventPublisher, Listener
from smdwidgets.rules.invoke import UNAVAILABLE
from smdwidgets.rules.prefetch import needs_of, portions
from smdwidgets.rules.rule import Rule
from smdwidgets.rules.step_poller import StepPoller
from smdwidgets.rules.sweep import Cancelled
from smdwidgets.trials.refresh import no_refresh

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["RuleRunner"]

_log = logging.getLogger("smdwidgets.rules")
#: Fewest and most steps that are evaluated at once.
MANY, MOST_AT_ONCE = 256, 65_536


class RuleRunner:
    """Evaluate several rules on one run in one pass.

    Each record is read once for all rules. New steps are evaluated until the run ends. Rules are names, classes or
    objects. Evaluation happens on a background thread. All methods are thread-safe, and all except `wait` and `stop`
    return immediately.

    ::

        runner = RuleRunner(create_trial("runs/mlp"), ["VanishingGradient", LossNotDecreasing])
        runner.start()
        for event in runner.events():      # or runner.wait()
            if event.kind == "fired":
                print(event)
        runner.summary()
        runner.set_parameters("VanishingGradient", threshold=1e-5)   # evaluates all seen steps again

    With `follow=False`, evaluates the steps saved so far and stops, even if the run continues. With `stop_at_first`, a
    rule finishes at its first firing, as in SageMaker. With `client`, a `distributed.Client`, its workers read the
    columns that built-in rules need; values that rules read themselves are read by this process.
    """

    def __init__(
        self,
        trial: Trial,
        rules: Iterable[str | type[Rule] | Rule] = (),
        *,
        start_step: int = 0,
        end_step: int | None = None,
        follow: bool = True,
        stop_at_first: bool = False,
        client: Any = None,
    ) -> None:
        self.trial = trial
        self._client = client
        self.follow = follow
        self.stop_at_first = stop_at_first
        self._range = start_step, end_step
        self._poller = StepPoller(trial, start_step, end_step)
        #: `trial.restarts` of the run that is evaluated.
        self._restarts = trial.restarts
        #: Steps seen so far. Only the background thread appends.
        self._seen = array("q")
        #: How often all steps known were evaluated while the run was live.
        self._passes = 0
        #: Number of evaluated steps for each rule.
        self._at: dict[str, int] = {}
        self._evaluations: dict[str, Evaluation] = {}
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._changed = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._publisher = EventPublisher()
        for rule in [rules] if isinstance(rules, str | Rule | type) else rules:
            self.add(rule)

    @classmethod
    def from_json(cls, trial: Trial, config: Any, *, allow_custom: bool = False, **options: Any) -> Self:
        """Create a runner from rule configurations.

        See `smdwidgets.rules.rules_from_json`. `options` are passed to the constructor.
        """
        runner = cls(trial, **options)
        for name, rule in rules_from_json(config, trial, allow_custom=allow_custom).items():
            runner.add(rule, name=name)
        return runner

    # --------------------------------------------------------------------------------------------------------- rules

    def add(self, rule: str | type[Rule] | Rule, *, name: str | None = None, **parameters: object) -> Evaluation:
        """Add a rule by name, class or object.

        If the runner is running, the rule is evaluated from the first step. `name` defaults to the class name, with a
        suffix for further rules of the same class (`AllZero`, `AllZero-2`).
        """
        made = make_rule(rule, self.trial, parameters)
        if made.base_trial is not self.trial:
            raise SMDebugValueError(
                f"rule {made.rule_name} was created for another trial; create it with the runner's trial {shown(self.trial.name)}"
            )
        with self._lock:
            if name is None:
                name = made.rule_name
                number = 1
                while name in self._evaluations:
                    number += 1
                    name = f"{made.rule_name}-{number}"
            elif name in self._evaluations:
                raise SMDebugValueError(f"rule {shown(name)} already exists in the runner; choose another name")
            evaluation = self._evaluations[name] = Evaluation(name, made)
            self._at[name] = 0
            self._publish(RuleEvent(name, None, "started"))
            self._continue()
        return evaluation

    def remove(self, name: str) -> None:
        """Remove a rule."""
        with self._lock:
            self[name].end(Status.STOPPED)
            del self._evaluations[name], self._at[name]
            self._changed.set()

    def set_parameters(self, name: str, **parameters: object) -> Evaluation:
        """Change parameters of a rule and evaluate all seen steps again.

        Cached measurements are reused. Values may be strings. An invalid value raises and leaves the rule unchanged.
        """
        with self._lock:
            evaluation = self[name]
            rule = recreate_rule(evaluation.rule, parameters)
            self._restart(evaluation, rule)
        return evaluation

    def rerun(self, name: str) -> Evaluation:
        """Evaluate a rule at all seen steps again, with the same parameters."""
        return self.set_parameters(name)

    def _restart(self, evaluation: Evaluation, rule: Rule) -> None:
        evaluation.restart(rule)
        self._at[evaluation.name] = 0
        self._publish(RuleEvent(evaluation.name, None, "restarted"))
        self._continue()

    def _continue(self) -> None:
        """Continue after a change of the rules, if the runner was started."""
        self._changed.set()
        self._wake.set()
        if self._thread is not None and self._idle.is_set():
            self._begin()

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluation of each rule, in the order added."""
        with self._lock:
            return list(self._evaluations.values())

    def __getitem__(self, name: str) -> Evaluation:
        with self._lock:
            if name not in self._evaluations:
                raise SMDebugValueError(
                    f"the runner has no rule {shown(name)}; choose from {', '.join(self._evaluations) or 'none'}."
                    f"{did_you_mean(name, self._evaluations)}"
                )
            return self._evaluations[name]

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self._evaluations)

    # ----------------------------------------------------------------------------------------------------- evaluation

    def start(self) -> Self:
        """Start the background thread, or continue rules that were stopped.

        Rules that are running are not affected.
        """
        with self._lock:
            for evaluation in self._evaluations.values():
                evaluation.unstop()
            self._changed.set()
            if self._idle.is_set():
                self.resume()
                self._begin()
        return self

    def _begin(self) -> None:
        self._idle.clear()
        self._thread = threading.Thread(target=self._work, name=f"rules of {self.trial.name}", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Pause all rules after the current step."""
        for evaluation in self.evaluations:
            self.pause_rule(evaluation.name)

    def resume(self) -> None:
        """Resume all rules after a pause."""
        for evaluation in self.evaluations:
            evaluation.set_paused(False)
        self._changed.set()
        self._wake.set()

    def start_rule(self, name: str) -> None:
        """Start one rule, or continue it after a pause or a stop.

        Does nothing if the rule has finished; see `rerun`.
        """
        with self._lock:
            evaluation = self[name]
            evaluation.unstop()
            evaluation.set_paused(False)
            self._changed.set()
            self._wake.set()
            if evaluation.active and self._idle.is_set():
                self._begin()

    def pause_rule(self, name: str) -> None:
        """Pause one rule after the current step; the others continue."""
        self[name].set_paused(True)
        self._changed.set()

    def stop_rule(self, name: str) -> None:
        """Stop one rule after the current step; the others continue.

        Its status stays Stopping until it returns.
        """
        with self._lock:
            if self[name].active:
                self[name].set_status(Status.STOPPING)
            if self._idle.is_set():
                self._end_stopping()  # the runner was not started
            self._changed.set()
            self._wake.set()

    @property
    def paused(self) -> bool:
        """Whether all rules that have not finished are paused."""
        active = self._active()
        return bool(active) and all(evaluation.paused for evaluation in active)

    @property
    def running(self) -> bool:
        """Whether the background thread is evaluating or waiting for steps."""
        return not self._idle.is_set()

    def stop(self, timeout: float | None = 10.0) -> bool:
        """Stop after the current step.

        Returns False if a rule has not returned within `timeout` seconds. Its status stays Stopping until it returns.
        """
        with self._lock:
            if not self._idle.is_set():
                for evaluation in self._active():
                    evaluation.set_status(Status.STOPPING)
            self._changed.set()
            self._wake.set()
        if threading.current_thread() is self._thread:  # a listener, or a rule, stops its own runner
            return False
        return self._idle.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all rules have finished or were stopped.

        Returns False after `timeout` seconds. Ctrl-C interrupts the wait.
        """
        if timeout is not None:
            return self._idle.wait(timeout)
        while not self._idle.wait(0.5):
            pass
        return True

    def catch_up(self) -> None:
        """Wait until all rules that are running have evaluated the steps saved so far.

        Unlike `wait`, it does not wait for the end of a live run. Ctrl-C interrupts the wait.
        """
        # The pass during this call may have polled before it.
        enough = self._passes + 2
        while self._passes < enough and not self.paused and not self._idle.wait(0.02):
            self._wake.set()

    def _work(self) -> None:
        try:
            if self.trial.restarts != self._restarts:
                self._start_over()
            while self._active():
                self._changed.clear()
                self._wake.clear()
                self._end_stopping()
                if self.paused:
                    self._wake.wait(0.5)
                    continue
                self._poll()
                with using(self._client):
                    if self._judge_some():
                        continue
                if self._poller.ended or not self.follow:
                    self._end_complete()
                else:
                    self._passes += 1
                    self._while_waiting()
                    if self._active():
                        self._wake.wait(self._poller.pause)
        except Exception as error:
            # The run itself failed, for example because it was deleted. All active rules end with this error.
            _log.exception("cannot evaluate the rules of run %s", shown(self.trial.name))
            for evaluation in self._active():
                evaluation.end(Status.ERROR, f"{type(error).__name__}: {error}")
                self._publish_end(evaluation)
        finally:
            with self._lock:
                if self._active():  # a rule was added or started just now
                    self._begin()  # stays non-idle, so that `wait` does not return
                else:
                    self._idle.set()
                    self._publisher.publish_idle()

    def check_replaced(self) -> None:
        """Evaluate all steps again if another run was started in the directory of the run.

        A runner that is running checks this itself.
        """
        with self._lock:
            if self.trial.restarts != self._restarts and self._thread is not None and self._idle.is_set():
                self._begin()

    def _start_over(self) -> None:
        """Discard the results of the earlier run, and the state that rules hold of it."""
        with self._lock:
            self._restarts = self.trial.restarts
            self._poller = StepPoller(self.trial, *self._range)
            self._seen = array("q")
            for evaluation in self._evaluations.values():
                evaluation.restart(recreate_rule(evaluation.rule, {}))
                self._at[evaluation.name] = 0
                self._publish(RuleEvent(evaluation.name, None, "restarted"))

    def _poll(self) -> None:
        if not self._poller.ended and not (self._seen and not self.follow):
            new = self._poller.poll()
            if self.trial.restarts != self._restarts:
                self._start_over()
                new = self._poller.poll()
            self._seen.extend(new)
            for trial in {id(each): each for rule in self._active() for each in rule.rule.other_trials or ()}.values():
                trial.steps()  # refreshes the other trials, which are not refreshed while a step is judged

    def _active(self) -> list[Evaluation]:
        return [evaluation for evaluation in self.evaluations if evaluation.active]

    def _evaluating(self) -> list[Evaluation]:
        """Return the rules that evaluate steps as they come."""
        return [each for each in self.evaluations if each.evaluating]

    def _judge_some(self) -> bool:
        """Evaluate a portion of steps with the rules that are furthest behind.

        Returns False if no rule is behind.
        """
        with self._lock:
            behind = {
                each.name: self._at[each.name] for each in self._evaluating() if self._at[each.name] < len(self._seen)
            }
            if not behind:
                return False
            first = min(behind.values())
            group = [self._evaluations[name] for name, at in behind.items() if at == first]
            # Stop where the next rule continues, so that it can join the group.
            end = min((at for at in behind.values() if at > first), default=len(self._seen))
            steps = self._seen[first:end]
            rules = [(each, each.rule, each.restarts) for each in group]
        rules = [each for each in rules if not self._judge_many(steps, *each)]
        if not rules:
            return True
        try:
            for portion in portions(self.trial, needs_of(rule for _, rule, _ in rules), steps, self._interrupted):
                for step in portion:
                    if not self._judge(step, rules):
                        return True
        except Cancelled:
            pass
        return True

    def _interrupted(self) -> bool:
        return self._changed.is_set()

    def _judge_many(self, steps: Sequence[int], evaluation: Evaluation, rule: Rule, restarts: int) -> bool:
        """Evaluate many steps at once; return False if they must be evaluated one by one."""
        if len(steps) < MANY or self.stop_at_first or self._publisher.has_listeners or rule.actions:
            return False
        with no_refresh(rule.trials):
            for begin in range(0, len(steps), MOST_AT_ONCE):
                portion = steps[begin : begin + MOST_AT_ONCE]
                try:
                    verdicts = rule.evaluate_many(portion)
                except Exception:
                    _log.debug("cannot evaluate rule %s at many steps", rule.rule_name, exc_info=True)
                    return begin > 0
                if verdicts is None:
                    return False
                with self._lock:
                    if evaluation.restarts != restarts or self._evaluations.get(evaluation.name) is not evaluation:
                        break  # the rule was restarted or removed during the evaluation
                    evaluation.note_many(portion, verdicts)
                    self._at[evaluation.name] += len(portion)
                if self._interrupted():
                    break
        return True

    def _judge(self, step: int, rules: Sequence[tuple[Evaluation, Rule, int]]) -> bool:
        """Evaluate one step with a group of rules; return False if interrupted."""
        trials = list({id(trial): trial for _, rule, _ in rules for trial in rule.trials}.values())
        together = True
        with no_refresh(trials):
            for evaluation, rule, restarts in rules:
                if not evaluation.evaluating:
                    together = False  # it continues at this step when it is started, and must not skip it
                    continue
                outcome, message = _evaluate(rule, step)
                with self._lock:
                    if evaluation.restarts != restarts or self._evaluations.get(evaluation.name) is not evaluation:
                        continue  # the rule was restarted or removed during the evaluation
                    event = evaluation.note(
                        step, outcome, message, tuple(rule.findings) if outcome == Outcome.FIRED else ()
                    )
                    self._at[evaluation.name] += 1
                self._publish(event)
                if outcome == Outcome.FIRED:
                    rule.act(step)
                    if self.stop_at_first:
                        evaluation.end()
                        self._publish_end(evaluation)
        return together and not self._interrupted()

    def _while_waiting(self) -> None:
        for evaluation in self._evaluating():
            rule = evaluation.rule
            try:
                fired = rule.while_waiting(self._poller.last_step, self._poller.silence)
            except Exception as error:
                _log.warning("%s: %s", visible(evaluation.name, 200), visible(error, 2000))
                continue
            if fired:
                step = self._poller.last_step
                self._publish(evaluation.note_silence(step, rule.explain(step), tuple(rule.findings)))
                rule.act(step)

    def _end_stopping(self) -> None:
        """End the rules that are to be stopped."""
        for evaluation in self._active():
            if evaluation.status == Status.STOPPING:
                self._end(evaluation, Status.STOPPED)

    def _end_complete(self) -> None:
        """End the rules that have evaluated all steps; no more steps will come."""
        if not self.follow and not self._poller.ended:
            self._while_waiting()
        for evaluation in self._evaluating():
            if self._at.get(evaluation.name, 0) >= len(self._seen):
                self._end(evaluation)

    def _end(self, evaluation: Evaluation, status: Status | None = None) -> None:
        rule, stopping, details = evaluation.rule, evaluation.status == Status.STOPPING, ""
        try:
            rule.finish(self._seen[-1] if self._seen else None)
        except Exception as error:
            _log.debug("%s", evaluation.name, exc_info=True)
            status, details = Status.ERROR, f"{type(error).__name__}: {error}"
        with self._lock:
            if evaluation.rule is not rule or (evaluation.status == Status.STOPPING) != stopping:
                return  # the rule was restarted, stopped or started again meanwhile
            evaluation.end(status, details)
        self._publish_end(evaluation)

    # --------------------------------------------------------------------------------------------------------- events

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event.

        The function runs on the background thread and should return quickly. Returns a function that unsubscribes.
        """
        return self._publisher.subscribe(listener)

    def events(self, timeout: float | None = None) -> Iterator[RuleEvent]:
        """Yield events until the runner is idle or no event arrives for `timeout` seconds."""
        return self._publisher.stream(self._idle.is_set, timeout)

    def _publish(self, event: RuleEvent) -> None:
        self._publisher.publish(event)

    def _publish_end(self, evaluation: Evaluation) -> None:
        self._publish(RuleEvent(evaluation.name, None, "finished", evaluation.message, (), evaluation.status))

    # --------------------------------------------------------------------------------------------------------- status

    @property
    def status(self) -> dict[str, Status]:
        """The status of each rule, with SageMaker's values."""
        return {evaluation.name: evaluation.status for evaluation in self.evaluations}

    @property
    def progress(self) -> tuple[int, int]:
        """Number of evaluated steps and of all steps seen so far, summed over the rules."""
        with self._lock:
            return sum(self._at.values()), len(self._seen) * len(self._at)

    @property
    def steps_seen(self) -> int:
        """Number of steps of the run seen so far."""
        return len(self._seen)

    @property
    def findings(self) -> list[Finding]:
        """One finding for each rule that fired, in the order of `finding.ordered`."""
        return ordered(finding for each in self.evaluations if (finding := each.finding) is not None)

    def summary(self) -> list[dict[str, Any]]:
        """Return the rules' statuses in the form of SageMaker's `rule_job_summary()`."""
        return [evaluation.summary() for evaluation in self.evaluations]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        rules = ", ".join(f"{name}: {status}" for name, status in self.status.items())
        return f"<RuleRunner of {self.trial.name}: {rules or 'no rules'}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'>{markup(each.name)}</td><td>{each.label}</td><td>{each.done}</td>"
            f"<td style='text-align:left'>{markup(each.message)}</td></tr>"
            for each in self.evaluations
        )
        head = "<tr><th>rule</th><th>status</th><th>steps</th><th style='text-align:left'>last message</th></tr>"
        return f"<table>{head}{rows}</table>"


def _evaluate(rule: Rule, step: int) -> tuple[Outcome, str]:
    """Evaluate a rule at a step; exceptions become outcomes."""
    try:
        fired = rule.evaluate(step)
    except UNAVAILABLE as missing:
        return Outcome.SKIPPED, str(missing)
    except Exception as error:
        _log.debug("%s at step %d", rule.rule_name, step, exc_info=True)
        return Outcome.ERROR, f"{type(error).__name__}: {error}"
    if fired:
        return Outcome.FIRED, rule.explain(step)
    if rule.skipped is not None:
        return Outcome.SKIPPED, rule.skipped
    return Outcome.PASSED, ""
