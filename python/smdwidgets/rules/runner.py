"""Many rules over one run, in the background, for as long as the run goes on."""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from smdwidgets._text import did_you_mean, markup, shown, visible
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.rules.config import rules_from_json
from smdwidgets.rules.evaluation import Evaluation, Outcome, RuleEvent, Status
from smdwidgets.rules.follow import Feed
from smdwidgets.rules.invoke import UNAVAILABLE
from smdwidgets.rules.making import make_rule, remade
from smdwidgets.rules.news import Listener, News
from smdwidgets.rules.prefetch import needs_of, portions
from smdwidgets.rules.rule import Rule
from smdwidgets.rules.sweep import Cancelled
from smdwidgets.trials.refresh import no_refresh

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["RuleRunner"]

_log = logging.getLogger("smdwidgets.rules")


class RuleRunner:
    """Runs many rules over one run in one pass, each record read once, and follows the run to its end.

    Rules are given as names, classes or objects. Work is done on a background thread; everything here may be called from any
    thread, and returns at once but for `wait` and `stop`.

    ::

        runner = RuleRunner(create_trial("runs/mlp"), ["VanishingGradient", LossNotDecreasing])
        runner.start()
        for event in runner.events():      # or runner.wait()
            if event.kind == "fired":
                print(event)
        runner.summary()
        runner.set_parameters("VanishingGradient", threshold=1e-5)   # runs this rule anew, over what was seen

    `follow=False` judges the steps that are there and ends, though the run may go on. `stop_at_first` ends a rule at its first firing,
    as SageMaker does.
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
    ) -> None:
        self.trial = trial
        self.follow = follow
        self.stop_at_first = stop_at_first
        self._feed = Feed(trial, start_step, end_step)
        #: Steps seen so far. Only the working thread adds to it.
        self._seen = array("q")
        #: For each rule how many of the steps seen it has been asked about.
        self._at: dict[str, int] = {}
        self._evaluations: dict[str, Evaluation] = {}
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._paused = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._news = News()
        for rule in [rules] if isinstance(rules, str | Rule | type) else rules:
            self.add(rule)

    @classmethod
    def from_json(cls, trial: Trial, config: Any, *, allow_custom: bool = False, **options: Any) -> Self:
        """A runner of configured rules: see `smdwidgets.rules.rules_from_json`. Options are those of the class."""
        runner = cls(trial, **options)
        for name, rule in rules_from_json(config, trial, allow_custom=allow_custom).items():
            runner.add(rule, name=name)
        return runner

    # --------------------------------------------------------------------------------------------------------- rules

    def add(self, rule: str | type[Rule] | Rule, *, name: str | None = None, **parameters: object) -> Evaluation:
        """Add a rule, by name, class or object; while the runner works it begins with the first step at once.

        Two rules of one class get names of their own (`AllZero`, `AllZero-2`), unless `name` says otherwise.
        """
        made = make_rule(rule, self.trial, parameters)
        if made.base_trial is not self.trial:
            raise SMDebugValueError(f"{made.rule_name} was made for another trial than the runner's.")
        with self._lock:
            if name is None:
                name = made.rule_name
                number = 1
                while name in self._evaluations:
                    number += 1
                    name = f"{made.rule_name}-{number}"
            elif name in self._evaluations:
                raise SMDebugValueError(f"There is a rule {shown(name)} already: names have to be different.")
            evaluation = self._evaluations[name] = Evaluation(name, made)
            self._at[name] = 0
            self._tell(RuleEvent(name, None, "started"))
            self._go_on()
        return evaluation

    def remove(self, name: str) -> None:
        """Take a rule away."""
        with self._lock:
            self[name].end(Status.STOPPED)
            del self._evaluations[name], self._at[name]
            self._changed.set()

    def set_parameters(self, name: str, **parameters: object) -> Evaluation:
        """Change parameters of a rule and run it anew over all steps seen. What was computed before is not computed again.

        Values may be strings. A wrong one raises, and the rule goes on as it was.
        """
        with self._lock:
            evaluation = self[name]
            rule = remade(evaluation.rule, parameters)
            self._restart(evaluation, rule)
        return evaluation

    def rerun(self, name: str) -> Evaluation:
        """Run a rule anew over all steps seen, as it is."""
        return self.set_parameters(name)

    def _restart(self, evaluation: Evaluation, rule: Rule) -> None:
        evaluation.restart(rule)
        self._at[evaluation.name] = 0
        self._tell(RuleEvent(evaluation.name, None, "restarted"))
        self._go_on()

    def _go_on(self) -> None:
        """Have the changed rules worked on, if the runner was started at all."""
        self._changed.set()
        self._wake.set()
        if self._thread is not None and self._idle.is_set():
            self._begin()

    @property
    def evaluations(self) -> list[Evaluation]:
        """How each rule stands, in the order of adding."""
        with self._lock:
            return list(self._evaluations.values())

    def __getitem__(self, name: str) -> Evaluation:
        with self._lock:
            if name not in self._evaluations:
                raise SMDebugValueError(
                    f"The runner has no rule {shown(name)}.{did_you_mean(name, self._evaluations)} It has: "
                    f"{', '.join(self._evaluations) or 'none'}."
                )
            return self._evaluations[name]

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self._evaluations)

    # -------------------------------------------------------------------------------------------------------- working

    def start(self) -> Self:
        """Begin, in the background. Starting a runner that works does nothing."""
        with self._lock:
            if self._idle.is_set():
                self._stop.clear()
                self._paused.clear()
                for evaluation in self._evaluations.values():
                    if evaluation.status == Status.STOPPED:
                        evaluation.set_status(Status.ISSUES_FOUND if evaluation.fired else Status.IN_PROGRESS)
                        evaluation.active = True
                self._begin()
        return self

    def _begin(self) -> None:
        self._idle.clear()
        self._thread = threading.Thread(target=self._work, name=f"rules of {self.trial.name}", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Hold after the step that is being judged."""
        self._paused.set()
        self._changed.set()

    def resume(self) -> None:
        """Go on after a pause."""
        self._paused.clear()
        self._wake.set()

    @property
    def paused(self) -> bool:
        """Whether the runner holds."""
        return self._paused.is_set()

    @property
    def running(self) -> bool:
        """Whether the background thread is at work, or waits for steps."""
        return not self._idle.is_set()

    def stop(self, timeout: float | None = 10.0) -> bool:
        """End after the step that is being judged. False if a rule has not returned within `timeout` seconds: its status stays Stopping until
        it does."""
        with self._lock:
            self._stop.set()
            self._changed.set()
            self._wake.set()
            if not self._idle.is_set():
                for evaluation in self._evaluations.values():
                    if evaluation.active:
                        evaluation.set_status(Status.STOPPING)
        if threading.current_thread() is self._thread:  # a listener, or a rule, stops its own runner
            return False
        return self._idle.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Return once all rules are done with the run (or the runner was stopped); False after `timeout` seconds. Ctrl-C works."""
        if timeout is not None:
            return self._idle.wait(timeout)
        while not self._idle.wait(0.5):
            pass
        return True

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._changed.clear()
                self._wake.clear()
                if self._paused.is_set():
                    self._wake.wait(0.5)
                    continue
                self._look()
                if self._judge_some():
                    continue
                if self._over():
                    break
                self._while_waiting()
                if not self._over():
                    self._wake.wait(self._feed.pause)
        except Exception as error:
            # The run itself failed (it was deleted, its storage is gone): said by every rule that was still at work.
            _log.exception("The rules of %s can't go on.", shown(self.trial.name))
            for evaluation in self.evaluations:
                if evaluation.active:
                    evaluation.end(Status.ERROR, f"{type(error).__name__}: {error}")
                    self._tell_end(evaluation)
        finally:
            self._finish()

    def _look(self) -> None:
        if not self._feed.ended and not (self._seen and not self.follow):
            self._seen.extend(self._feed.look())
            for trial in {id(each): each for rule in self._active() for each in rule.rule.other_trials or ()}.values():
                trial.steps()  # has them look for news, which they do not while a step is judged

    def _active(self) -> list[Evaluation]:
        return [evaluation for evaluation in self.evaluations if evaluation.active]

    def _over(self) -> bool:
        """Whether nothing is left to do, now or later."""
        with self._lock:
            behind = any(self._at[each.name] < len(self._seen) for each in self._active())
        return not behind and (self._feed.ended or not self.follow or not self._evaluations)

    def _judge_some(self) -> bool:
        """Judge a portion of steps with those rules that are furthest behind. False where no rule is behind."""
        with self._lock:
            behind = {
                each.name: self._at[each.name] for each in self._active() if self._at[each.name] < len(self._seen)
            }
            if not behind:
                return False
            first = min(behind.values())
            group = [self._evaluations[name] for name, at in behind.items() if at == first]
            # Those ahead join in where they are.
            end = min((at for at in behind.values() if at > first), default=len(self._seen))
            steps = self._seen[first:end]
            rules = [(each, each.rule, each.restarts) for each in group]
        try:
            for portion in portions(self.trial, needs_of(rule for _, rule, _ in rules), steps, self._interrupted):
                for step in portion:
                    if not self._judge(step, rules):
                        return True
        except Cancelled:
            pass
        return True

    def _interrupted(self) -> bool:
        return self._stop.is_set() or self._changed.is_set()

    def _judge(self, step: int, rules: Sequence[tuple[Evaluation, Rule, int]]) -> bool:
        """One step with all rules of a group. False if something has changed in between."""
        trials = list({id(trial): trial for _, rule, _ in rules for trial in rule.trials}.values())
        with no_refresh(trials):
            for evaluation, rule, restarts in rules:
                if self._stop.is_set():
                    return False
                if not evaluation.active:
                    continue
                outcome, message = _ask(rule, step)
                with self._lock:
                    if evaluation.restarts != restarts or self._evaluations.get(evaluation.name) is not evaluation:
                        continue  # it was begun anew, or removed, while it was asked
                    event = evaluation.note(
                        step, outcome, message, tuple(rule.findings) if outcome == Outcome.FIRED else ()
                    )
                    self._at[evaluation.name] += 1
                self._tell(event)
                if outcome == Outcome.FIRED:
                    rule.act(step)
                    if self.stop_at_first:
                        evaluation.end()
                        self._tell_end(evaluation)
        return not self._interrupted()

    def _while_waiting(self) -> None:
        for evaluation in self._active():
            rule = evaluation.rule
            try:
                fired = rule.while_waiting(self._feed.last_step, self._feed.silence)
            except Exception as error:
                _log.warning("%s: %s", visible(evaluation.name, 200), visible(error, 2000))
                continue
            if fired:
                step = self._feed.last_step
                self._tell(evaluation.note_silence(step, rule.explain(step), tuple(rule.findings)))
                rule.act(step)

    def _finish(self) -> None:
        stopped = self._stop.is_set()
        if not stopped and not self.follow and not self._feed.ended:
            self._while_waiting()
        last = self._seen[-1] if self._seen else None
        for evaluation in self._active():
            if not stopped and self._at.get(evaluation.name, 0) < len(self._seen):
                continue  # added or begun anew in the last moment: its turn comes below
            try:
                evaluation.rule.finish(last)
            except Exception as error:
                _log.debug("%s", evaluation.name, exc_info=True)
                evaluation.end(Status.ERROR, f"{type(error).__name__}: {error}")
            else:
                evaluation.end(Status.STOPPED if stopped else None)
            self._tell_end(evaluation)
        with self._lock:
            if not stopped and any(each.active for each in self._evaluations.values()):
                self._begin()  # without being idle in between: whoever waits goes on waiting
            else:
                self._idle.set()
                self._news.idle()

    # --------------------------------------------------------------------------------------------------------- events

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have a function called with every event, on the working thread, so it should be quick. Returns what ends it."""
        return self._news.subscribe(listener)

    def events(self, timeout: float | None = None) -> Iterator[RuleEvent]:
        """Events from now on, until the runner has nothing left to do; `timeout` ends after that many seconds without one."""
        return self._news.stream(self._idle.is_set, timeout)

    def _tell(self, event: RuleEvent) -> None:
        self._news.tell(event)

    def _tell_end(self, evaluation: Evaluation) -> None:
        self._tell(RuleEvent(evaluation.name, None, "finished", evaluation.message, (), evaluation.status))

    # --------------------------------------------------------------------------------------------------- for a person

    @property
    def status(self) -> dict[str, Status]:
        """Each rule's status, in one of SageMaker's six words."""
        return {evaluation.name: evaluation.status for evaluation in self.evaluations}

    @property
    def progress(self) -> tuple[int, int]:
        """Steps judged and to judge, over all rules, as far as is known."""
        with self._lock:
            return sum(self._at.values()), len(self._seen) * len(self._at)

    @property
    def steps_seen(self) -> int:
        """How many steps of the run have been seen: the total of each rule's progress."""
        return len(self._seen)

    def summary(self) -> list[dict[str, Any]]:
        """The rules' statuses as SageMaker's `rule_job_summary()` gives them."""
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
            f"<tr><td style='text-align:left'>{markup(each.name)}</td><td>{each.status}</td><td>{each.done}</td>"
            f"<td style='text-align:left'>{markup(each.message)}</td></tr>"
            for each in self.evaluations
        )
        head = "<tr><th>rule</th><th>status</th><th>steps</th><th style='text-align:left'>last message</th></tr>"
        return f"<table>{head}{rows}</table>"


def _ask(rule: Rule, step: int) -> tuple[Outcome, str]:
    """What a rule says of a step, and why. Whatever it raises is an answer."""
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
