"""Examine the diagnosis on programs and logs that others wrote.

Usage: `make exam ARGS=DIRECTORY`, or
`python tests/diagnosis/exam.py DIRECTORY [--python PYTHON] [--only WORD] [--runs FOLDER]`.

With `--runs`, recorded runs are kept in FOLDER, and those that are there already are only diagnosed again.

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
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import smdwidgets
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.finding import CONFIDENCES

ROOT = Path(__file__).parents[2]
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
    "scheduler": ("rate_zero", "schedule_over", "other_schedule", "schedule_first"),
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

    >>> expected_of("my_same_batch", {})
    ('same_batch',)
    """
    given = labels.get(name)
    if isinstance(given, list):
        return tuple(map(str, given))
    text = f"{name} {given or ''}".lower()
    return next((kinds for word, kinds in BY_WORD.items() if word in text), ("unlabelled",))


def programs(directory: Path, python: str, only: str, keep: Path | None) -> Iterator[Result]:
    """Run and diagnose every program of a directory."""
    labels = _labels(directory)
    for path in sorted(directory.glob("*.py")):
        name, _, what = path.stem.rpartition("_")
        if what not in ("bug", "fix") or only not in path.stem:
            continue
        expected = expected_of(name, labels) if what == "bug" else ()
        with tempfile.TemporaryDirectory(prefix="exam-") as temporary:
            folder = Path(temporary) if keep is None else keep.resolve() / path.stem
            known = folder.exists() and keep is not None
            folder.mkdir(parents=True, exist_ok=True)
            failure = "" if known else _run(path, folder / "run", python)
            runs = sorted(one.parent for one in folder.rglob("collections"))
            if not runs:
                yield Result(path.stem, what, expected, None, failure=failure)
            for run in runs[-1:]:
                with smdwidgets.create_trial(run, wait=0, skip_bad_index=True) as trial:
                    yield Result(path.stem, what, expected, smdwidgets.diagnose(trial), failure=failure)


def _run(program: Path, out: Path, python: str) -> str:
    """Run a program under the recorder; return the last line of its error output."""
    paths = os.pathsep.join((str(ROOT / "python"), str(program.parent), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [python, "-m", "smdwidgets", "run", "--out", str(out), str(program)]
    try:
        ended = subprocess.run(
            command, cwd=out.parent, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return f"longer than {LONGEST} s"
    return (ended.stderr.strip().splitlines() or [""])[-1]


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
        for trial in smdwidgets.create_trials(state if state.exists() else path).values():
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
    args = parser.parse_args()
    exam = Exam()
    for group, results in (
        ("programs", programs(args.directory / "programs", args.python, args.only, args.runs)),
        ("logs", logs(args.directory / "logs", args.only)),
    ):
        for one in results:
            exam.results.setdefault(group, []).append(one)
            print(f"{'right' if one.right else 'other':6} {one.line()}", file=sys.stderr, flush=True)
    print(exam.report())


if __name__ == "__main__":
    main()
