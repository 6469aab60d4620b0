"""Examine the diagnosis on programs and logs that others wrote.

Usage: `make exam ARGS=DIRECTORY`, or
`python tests/diagnosis/exam.py DIRECTORY [--python PYTHON] [--only WORD] [--runs FOLDER] [--jobs NUMBER]`.

With `--runs`, recorded runs are kept in FOLDER, and those that are there already are only diagnosed again. With
`--jobs`, so many processes import PyTorch once, and record each program in a fork, which is several times as fast.

DIRECTORY has `programs/`, `logs/`, or both. `programs/NAME_bug.py` has one fault, its twin `NAME_fix.py` has none; a
program runs as `smdwidgets run` records it, with PYTHON, which has PyTorch. `programs/labels.json` has the kinds that
name the fault, by NAME; without it, words of the name tell. Each directory in `logs/` is a log; `logs/labels.json` says
"healthy", "borderline", or what is wrong, as words or as the kinds that name it.

The table that is printed has, for programs: any finding, the cause first, false alarms on twins; for logs the same; and
for each confidence how often it was right. Every miss follows, with what was recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import smdwidgets
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.exceptions import RunNotFound
from smdwidgets.finding import CONFIDENCES

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from diagnosis.forked import reason_in  # noqa: E402

#: Seconds that one program may take.
LONGEST = 300
#: Kinds that name a fault, by a word of the name of its program or log; the first word that fits decides.
BY_WORD = {
    "zero_grad": ("not_reset", "gradients_add_up"),
    "no_step": ("no_step", "no_update", "rate_zero"),
    "115607": ("no_step", "no_update", "rate_zero"),
    "stale_optimizer": ("stale_optimizer", "not_in_optimizer", "no_update", "no_step"),
    "optimizer_part": ("not_in_optimizer", "frozen"),
    "frozen": ("frozen", "mostly_frozen", "not_in_optimizer", "no_gradient", "some_not_updated"),
    "detached": ("no_gradient", "frozen"),
    "same_batch": ("same_batch",),
    "scheduler": ("rate_zero", "schedule_over", "other_schedule", "schedule_first", "schedule_per_batch"),
    "dropout_eval": ("dropout_in_eval",),
    "eval_left_on": ("train_in_eval_mode",),
    "clip_before": ("clip_before_backward", "clip_too_early", "clip_after_step", "clip_before_unscale"),
    "accum": ("undivided", "rate_too_high"),
    "dataloss": ("bad_batch", "zero_batch"),
    "autocast": ("autocast_lost",),
    "bf16": ("update_lost", "no_update", "some_not_updated"),
    "spectral": ("spectral_norm_stale",),
    "unfrozen": ("frozen_norm_moves", "mostly_frozen"),
    "rate zero": ("rate_zero",),
    "diverged": ("diverged", "rate_too_high", "not_finite"),
    "overfit": ("overfit",),
    "collapse": ("collapsed",),
    "not learning": ("not_learning", "labels_unrelated"),
}
#: Kinds that are one fault with one fix: a check proves the one while training, a diagnosis infers the other. A label
#: that has one of them accepts the other. Kinds that follow from one another, or have different fixes, do not belong
#: here.
SAME = (
    frozenset({"loss_sign", "loss_negated", "policy_negated"}),  # change the sign, or remove `maximize`
    frozenset({"decay_too_strong", "strong_decay"}),  # reduce the weight decay
    frozenset({"clip_before_backward", "clip_too_early"}),  # clip after `backward()`
    frozenset({"gradients_add_up", "not_reset"}),  # call `zero_grad()`
    frozenset({"output_constant", "constant_output"}),  # find where the rows become equal
)
#: Labels of logs at which silence is right, and at which any answer is.
HEALTHY, ANY = ("healthy",), ("borderline", "invisible")


@dataclass(frozen=True)
class Result:
    """A program or log with what its diagnosis says.

    Attributes:
        expected: kinds of which the first finding should be one; empty if none should be.
        counts: whether the answer counts, which that to a borderline log does not.
        failure: why there is no run to diagnose.
    """

    name: str
    group: str
    expected: tuple[str, ...]
    diagnosis: Diagnosis | None
    counts: bool = True
    failure: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        return () if self.diagnosis is None else tuple(one.kind for one in self.diagnosis)

    @property
    def right(self) -> bool:
        if self.diagnosis is None:  # a program that was not recorded shows neither a fault nor silence
            return False
        if not self.expected:
            return not self.kinds
        return bool(self.kinds) and self.kinds[0] in self.expected

    def line(self) -> str:
        """Return what was said, and if it is wrong, what was recorded."""
        if self.diagnosis is None:
            return f"{self.name}: no run ({self.failure})"
        said = ", ".join(f"{one.kind} ({one.confidence}) at {one.first}" for one in self.diagnosis) or "nothing"
        notes = ", ".join(one.kind for one in self.diagnosis.notes)
        wanted = " or ".join(self.expected) or "nothing"
        recorded = self.diagnosis.summary.partition(" in ")[2].rstrip(".")
        gaps = "; ".join(gap.partition(":")[0] for gap in self.diagnosis.coverage.gaps)
        return f"{self.name}: {said}, expected {wanted}; notes: {notes or 'none'}; recorded: {recorded}; {gaps}"


def expected_of(name: str, labels: dict[str, object]) -> tuple[str, ...]:
    """Return the kinds that name the fault of a program or log.

    >>> expected_of("my_same_batch", {}), expected_of("ascent", {"ascent": ["loss_sign"]})
    (('same_batch',), ('loss_sign', 'loss_negated'))
    """
    given = labels.get(name)
    text = f"{name} {given or ''}".lower()
    kinds = (
        tuple(map(str, given))
        if isinstance(given, list)
        else next((kinds for word, kinds in BY_WORD.items() if word in text), ("unlabelled",))
    )
    same = (kind for one in SAME if one & {*kinds} for kind in sorted(one))
    return tuple(dict.fromkeys((*kinds, *same)))


class _Program(NamedTuple):
    """A program, the kinds that name its fault, and the folder of its run."""

    path: Path
    what: str
    expected: tuple[str, ...]
    folder: Path


#: Records a program with its output in a folder; returns the last line of its error output.
Record = Callable[[Path, Path], str]


def programs(directory: Path, python: str, only: str, keep: Path | None, jobs: int = 0) -> Iterator[Result]:
    """Run and diagnose every program of a directory.

    Args:
        directory: the programs.
        python: Python with PyTorch.
        only: a part of the names.
        keep: folder of recorded runs; None: they are deleted.
        jobs: number of processes that fork for each program; 0: each program is started separately.
    """
    labels = _labels(directory)
    with ExitStack() as stack:
        base = keep.resolve() if keep else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exam-")))
        chosen = []
        for path in sorted(directory.resolve().glob("*.py")):
            name, _, what = path.stem.rpartition("_")
            if what in ("bug", "fix") and only in path.stem:
                expected = expected_of(name, labels) if what == "bug" else ()
                chosen.append(_Program(path, what, expected, base / path.stem))
        local = threading.local()
        forks: list[_Fork] = []
        stack.callback(lambda: [one.close() for one in forks])

        def record(one: _Program) -> str:
            if keep is not None and one.folder.exists():
                return ""
            one.folder.mkdir(parents=True, exist_ok=True)
            if not jobs:
                return _run(one.path, one.folder, python)
            if not hasattr(local, "fork"):
                local.fork = _Fork(directory, python)
                forks.append(local.fork)
            return str(local.fork.record(one.path, one.folder))

        pool = stack.enter_context(ThreadPoolExecutor(max(1, jobs)))
        for one, failure in zip(chosen, pool.map(record, chosen), strict=True):
            yield _diagnosed(one, failure)
            if keep is None:
                shutil.rmtree(one.folder)


def _diagnosed(one: _Program, failure: str) -> Result:
    runs = sorted(each.parent for each in one.folder.rglob("collections"))
    if not runs:
        return Result(one.path.stem, one.what, one.expected, None, failure=failure)
    results = []
    for run in runs:
        with smdwidgets.create_trial(run, wait=0, skip_bad_index=True) as trial:
            results.append(Result(one.path.stem, one.what, one.expected, smdwidgets.diagnose(trial), failure=failure))
    # A program that trains two models has two runs, and a user sees what is wrong with either.
    return next((result for result in results if result.kinds), results[-1])


def _environment(directory: Path) -> dict[str, str]:
    paths = os.pathsep.join((str(ROOT / "python"), str(directory.resolve()), os.environ.get("PYTHONPATH", "")))
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def _run(program: Path, folder: Path, python: str) -> str:
    """Run a program under the recorder; return its error or its last message."""
    command = [python, "-m", "smdwidgets", "run", "--out", str(folder / "run"), str(program)]
    environment = _environment(program.parent)
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return f"longer than {LONGEST} s"
    return reason_in(ended.stderr)


class _Fork:
    """A process that records each program in a separate fork."""

    def __init__(self, directory: Path, python: str) -> None:
        script = str(Path(__file__).with_name("forked.py"))
        self._process = subprocess.Popen(
            [python, script, str(LONGEST)],
            env=_environment(directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def record(self, program: Path, folder: Path) -> str:
        """Record a program; return the last line of its error output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(program), str(folder)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return str(json.loads(answer)) if answer else "the process that forks has ended"

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def logs(directory: Path, only: str) -> Iterator[Result]:
    """Diagnose every log of a directory."""
    for name, label in _labels(directory).items():
        path = directory / name
        if not path.exists() or only not in name:
            continue
        state = path / "trainer_state.json"
        healthy, text = label in HEALTHY, str(label)
        expected = () if healthy or any(word in text for word in ANY) else expected_of("", {"": label})
        counts = healthy or bool(expected)
        try:
            trials = smdwidgets.create_trials(state if state.exists() else path)
        except RunNotFound:
            yield Result(name, "fix" if not expected else "bug", expected, None, counts)
            continue
        for trial in trials.values():
            with trial:
                yield Result(name, "fix" if not expected else "bug", expected, smdwidgets.diagnose(trial), counts)


def _labels(directory: Path) -> dict[str, object]:
    path = directory / "labels.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


@dataclass
class Exam:
    """All results, and the tables of them."""

    results: dict[str, list[Result]] = field(default_factory=dict)

    def report(self) -> str:
        """Return the tables and every miss."""
        lines = ["| measure | measured |", "|---|---|"]
        for group, results in self.results.items():
            faulty = [one for one in results if one.group == "bug"]
            healthy = [one for one in results if one.group == "fix" and one.counts]
            lines += [
                _row(f"{group}: any finding", sum(bool(one.kinds) for one in faulty), len(faulty)),
                _row(f"{group}: the cause first", sum(one.right for one in faulty), len(faulty)),
                _row(f"{group}: false alarms without a fault", sum(bool(one.kinds) for one in healthy), len(healthy)),
            ]
        every = [one for results in self.results.values() for one in results if one.counts and one.diagnosis]
        for confidence in CONFIDENCES[:3]:
            first = [one for one in every if one.kinds and one.diagnosis.findings[0].confidence == confidence]
            lines.append(
                _row(f"claimed {confidence}: right", sum(one.right and bool(one.expected) for one in first), len(first))
            )
        wrong = [one for results in self.results.values() for one in results if one.counts and not one.right]
        return "\n".join([*lines, "", "Misses:", *([f"- {one.line()}" for one in wrong] or ["- none"])])


def _row(name: str, count: int, total: int) -> str:
    return f"| {name} | {count} of {total}{f' ({count / total:.0%})' if total else ''} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--python", default=str(ROOT / ".venv-torch" / "bin" / "python"), help="Python with PyTorch")
    parser.add_argument("--only", default="", help="only programs and logs whose name contains this")
    parser.add_argument("--runs", type=Path, help="folder of recorded runs, to keep them and to use them again")
    parser.add_argument("--jobs", type=int, default=0, help="processes that fork for each program; 0: no fork")
    args = parser.parse_args()
    exam = Exam()
    for group, results in (
        ("programs", programs(args.directory / "programs", args.python, args.only, args.runs, args.jobs)),
        ("logs", logs(args.directory / "logs", args.only)),
    ):
        for one in results:
            exam.results.setdefault(group, []).append(one)
            print(f"{'right' if one.right else 'other':6} {one.line()}", file=sys.stderr, flush=True)
    print(exam.report())


if __name__ == "__main__":
    main()
