"""Short answers about runs: each at most `LONGEST` characters, about 2,000 tokens."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import Final, ParamSpec

from smdwidgets._text import did_you_mean, listed, shown, visible
from smdwidgets.diagnosis import Diagnoser, Diagnosis, diagnose
from smdwidgets.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdwidgets.finding import KINDS, Finding, kind_of
from smdwidgets.finding.document import explanation
from smdwidgets.queries import query
from smdwidgets.queries.table import cell_of
from smdwidgets.run_table import runs
from smdwidgets.storage.address import is_address
from smdwidgets.trials import Trial, create_trial

LONGEST: Final = 6000
"""Characters of an answer."""
#: Trials that stay open, so that the next question about a run is answered at once.
_OPEN: Final = 8
#: Points of a curve in an answer.
_POINTS: Final = 12

P = ParamSpec("P")


def _short(answer: Callable[P, str]) -> Callable[P, str]:
    """Bound the length of an answer, and say that it was cut."""

    @wraps(answer)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> str:
        text = "\n".join(visible(line, LONGEST) for line in answer(*args, **kwargs).splitlines())
        if len(text) <= LONGEST:
            return text
        cut = text[: LONGEST - 100].rpartition("\n")[0] or text[: LONGEST - 100]
        return f"{cut}\n… {len(text) - len(cut):,} more characters; ask for less, or narrow the question."

    return bounded


class Answers:
    """Answers questions about the runs below some directories or addresses.

    >>> import tempfile
    >>> from smdwidgets.numpy import Hook
    >>> root = tempfile.mkdtemp()
    >>> with Hook(root + "/a") as hook:
    ...     for step in range(20):
    ...         hook.save_scalar("loss", 1 / (step + 1))
    ...         hook.step()
    >>> answers = Answers([root])
    >>> answers.diagnose("a")[:30]
    'Nothing wrong seen in 1 series'
    >>> answers.diagnose("/etc")
    Traceback (most recent call last):
    smdwidgets.exceptions.SMDebugValueError: '/etc' is not below the directories that this server was given
    """

    def __init__(self, roots: Sequence[str]) -> None:
        if not roots:
            raise SMDebugValueError("no directory was given; expected at least one")
        self._addresses = [root.rstrip("/") for root in roots if is_address(root)]
        self._folders = [Path(root).resolve() for root in roots if not is_address(root)]
        self._trials: OrderedDict[str, Trial] = OrderedDict()
        #: Of open trials; a further diagnosis costs what is new.
        self._diagnosers: dict[str, Diagnoser] = {}
        self._lock = RLock()

    def _place(self, run: str) -> str:
        """Return the path or address of a run.

        Raises SMDebugValueError if it is not below a root; links are followed first.
        """
        if is_address(run):
            parts = run.split("/")
            if ".." not in parts and any(f"{run}/".startswith(f"{root}/") for root in self._addresses):
                return run
        elif "\0" not in run:
            for folder in self._folders:
                path = (folder / run).resolve()
                if path == folder or folder in path.parents:
                    return str(path)
        raise SMDebugValueError(f"{shown(run, 200)} is not below the directories that this server was given")

    def _trial(self, run: str) -> Trial:
        place = self._place(run)
        with self._lock:
            trial = self._trials.pop(place, None)
            if trial is None:
                trial = create_trial(place, wait=0, skip_bad_index=True)
            self._trials[place] = trial
            while len(self._trials) > _OPEN:
                oldest, evicted = self._trials.popitem(last=False)
                self._diagnosers.pop(oldest, None)
                evicted.close()
        return trial

    def _diagnosis(self, run: str) -> Diagnosis:
        with self._lock:
            trial = self._trial(run)
            return self._diagnosers.setdefault(self._place(run), Diagnoser(trial)).update()

    def close(self) -> None:
        """Close the trials that are open."""
        while self._trials:
            self._trials.popitem()[1].close()

    @_short
    def list_runs(self, folder: str = "", limit: int = 20) -> str:
        """Return a table of the runs below a directory, without diagnosing them."""
        if folder:
            return runs(self._place(folder)).to_text(limit)
        places = [*map(str, self._folders), *self._addresses]
        return "\n\n".join(runs(place).to_text(limit) for place in places)

    @_short
    def diagnose(self, run: str, notes: bool = False) -> str:
        """Return the findings of a run with their ids, and what could not be judged."""
        result = self._diagnosis(run)
        listed_findings = result.listed if notes else result.findings
        lines = [result.summary]
        for number, finding in enumerate(listed_findings, 1):
            lines += ["", f"{number}. id: {finding.id}", _about(finding), *_consequences(result, finding)]
        if not notes and result.notes:
            lines += ["", f"{len(result.notes)} notes of low confidence: {listed([one.id for one in result.notes], 5)}"]
        if result.coverage.gaps:
            lines += ["", "Not recorded:", *result.coverage.gaps]
        return "\n".join(lines)

    @_short
    def explain(self, kind: str) -> str:
        """Return what a kind of finding means, what is healthy, and what to try."""
        name = kind.partition(":")[0]  # an id begins with its kind
        if name not in KINDS:
            raise SMDebugValueError(f"no kind of finding {shown(name, 100)}.{did_you_mean(name, KINDS)}")
        return "\n\n".join([kind_of(name).title, *explanation(kind_of(name))])

    @_short
    def evidence(self, run: str, id: str) -> str:
        """Return the observations behind a finding.

        They are a small table with the points of their curves.
        """
        finding = self._finding(run, id)
        rows = [("observation", "subject", "step", "value", "limit", "curve: step value")]
        for one in finding.evidence:
            points = ""
            if one.curve is not None:
                stride = max(1, len(one.curve.steps) // _POINTS)
                pairs = list(zip(one.curve.steps, one.curve.values, strict=True))[::stride]
                points = ", ".join(f"{step} {value:.4g}" for step, value in pairs)
            step = "" if one.step is None else str(one.step)
            rows.append((one.text, one.subject, step, _number(one.value), _number(one.limit), points))
        return "\n".join([_about(finding), "", *(" | ".join(row) for row in rows)])

    def _finding(self, run: str, id: str) -> Finding:
        result = self._diagnosis(run)
        by_id = {finding.id: finding for finding in (*result.listed, *result.explained)}
        if id not in by_id:
            raise SMDebugValueError(
                f"no finding {shown(id, 200)}.{did_you_mean(id, by_id)} Diagnose the run for its ids"
            )
        return by_id[id]

    @_short
    def query(self, run: str, text: str) -> str:
        """Return the tensors that a query selects.

        For example ``*.weight | l2 | top 5 by change``.
        """
        selected = query(self._trial(run), text)
        rows = [[str(cell_of(cell)) for cell in row] for row in zip(*selected.values(), strict=True)]
        lines = [" | ".join(row) for row in [[*selected], *rows]]
        return "\n".join([f"{len(rows)} of {selected.total} tensors; {selected.statistic}", *lines])

    @_short
    def compare(self, run: str, good: str) -> str:
        """Return what differs between a run and a good one.

        The answer has the first step that differs.
        """
        return diagnose(self._trial(run), against=self._trial(good)).text()

    def picture(self, run: str, tensor: str, step: int | None = None) -> bytes:
        """Return a PNG: the histogram of a tensor at a step, or the curve of a scalar."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise SMDebugRuntimeError("pictures require matplotlib; run: pip install 'smdwidgets[plots]'") from None
        trial = self._trial(run)
        names = trial.tensor_names()
        if tensor not in names:
            raise SMDebugValueError(f"no tensor {shown(tensor, 200)} in this run.{did_you_mean(tensor, names)}")
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        one = trial.tensor(tensor)
        if one.steps() and one.value(one.steps()[-1]).size == 1:
            values = one.values()
            axes.plot(list(values), [value.item() for value in values.values()])
            axes.set(title=visible(tensor, 80).replace("$", r"\$"), xlabel="step")
        else:
            one.plot.histogram(step, ax=axes)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        return buffer.getvalue()


def _about(finding: Finding) -> str:
    steps = "" if finding.first is None else f"steps {finding.first} to {finding.last}; "
    advice = f" Try: {finding.try_}" if finding.try_ else ""
    return f"{finding.level}, {finding.confidence} confidence; {steps}{finding.text}{advice}"


def _consequences(result: Diagnosis, finding: Finding) -> list[str]:
    sentence = result.consequences(finding)
    return [sentence] if sentence else []


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
