"""Compare ten rules over runs A and C with the same rules in smdebug.

Usage: python tests/benchmarks/bench_rules.py

Each side runs in a separate process on one thread. CPU seconds of the evaluation are measured, without opening the run.
smdebug evaluates the first steps of a run and its time is scaled up to all; both sides must fire at the same steps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

import report
import trials
from clock import once, print_result
from run import Row, ask, times

from smdwidgets import create_trial
from smdwidgets.rules import RuleRunner

PEERS = (
    Path(__file__).resolve().parents[2] / ".venv-peers" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
)
#: Steps that smdebug evaluates.
SAMPLES = {"A": 8, "C": 10}
COLLECTIONS = {"weights": r"\.(weight|bias)$", "gradients": r"\.grad_(weight|bias)$", "all": "."}
LEAST = 50


def with_collections(run: Path) -> Path:
    """Link the run with added collections of weights and gradients."""
    target = run.with_name(run.name + "_rules")
    if target.is_dir():
        return target
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for folder in ("events", "index"):
        shutil.copytree(run / folder, partial / folder, copy_function=os.link)
    for file in (run / "collections").rglob("*.json"):
        content = json.loads(file.read_text())
        like = content["collections"]["default"]
        for name, pattern in COLLECTIONS.items():
            content["collections"][name] = {**like, "name": name, "include_regex": [pattern], "tensor_names": []}
        copy = partial / file.relative_to(run)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(json.dumps(content))
    (partial / "training_job_end.ts").touch()
    partial.rename(target)
    return target


def runner_of(run: str) -> RuleRunner:
    """Return the ten rules."""
    runner = RuleRunner(create_trial(run))
    runner.add("VanishingGradient", threshold=0.65)
    runner.add("ExplodingTensor", collection_names="all")
    runner.add("TensorVariance", collection_names="weights", max_threshold=1.8)
    runner.add("TensorVariance", collection_names="gradients", max_threshold=1.8)
    runner.add("AllZero", collection_names="weights")
    runner.add("AllZero", collection_names="gradients")
    runner.add("UnchangedTensor", collection_names="weights")
    runner.add("WeightUpdateRatio", large_threshold=2.2)
    runner.add("WeightNormGrowth", threshold=1.5)
    runner.add("GradientNormSpike", sensitivity=20.0)
    return runner


def judge(run: str) -> None:
    """Evaluate all rules over all steps, then one of them again with another limit."""
    runner = runner_of(run)
    runner.trial.steps()

    def work() -> None:
        runner.start()
        runner.wait()

    def again() -> None:
        runner.set_parameters("VanishingGradient", threshold=0.6)
        runner.wait()

    cpu, wall = once(work)
    fired = {each.name: [step for step, outcome in each.outcomes.items() if outcome == 2] for each in runner}
    assert not any(each.errors for each in runner)
    print_result({"cpu": cpu, "wall": wall, "again": once(again)[1], "fired": fired})


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--judge", metavar="RUN", help=argparse.SUPPRESS)
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    options = asked.parse_args()
    if options.judge:
        judge(options.judge)
        return 0
    runs, shapes = trials.ensure(0.25), trials.shapes(0.25)
    rows: list[Row] = []
    for name, sample in SAMPLES.items():
        run = with_collections(runs[name])
        mine = ask(sys.executable, "bench_rules.py", "--judge", str(run))
        theirs = ask(PEERS, "peer_rules.py", str(run), str(sample))
        for rule, steps in theirs["fired"].items():
            ours = [step for step in mine["fired"][rule] if step < sample]
            assert ours == steps, f"{rule} on {name}: ours fires at {ours}, theirs at {steps}"
        scaled = theirs["cpu"] * shapes[name].steps / sample
        note = f" ({sample} of {shapes[name].steps} steps timed)"
        rows.append(times(f"ten rules over all of {name}", mine["cpu"], scaled, "smdebug", LEAST, note))
        rows.append(
            Row(
                f"one rule again over {name}, another limit",
                f"{mine['again'] * 1e3:.0f} ms wall",
                "",
                "",
                "< 1 s",
                mine["again"] < 1,
            )
        )
        for row in rows[-2:]:
            print("  ".join(row.cells()), flush=True)
    if not options.dry:
        head = ["what", "ours", "peer", "ratio", "target", "met"]
        body = (
            "`make bench`. CPU seconds of judging, one thread, the run open and in the page cache. Both judge every worker "
            "of C, and fire at the same steps.\n\n"
        )
        report.write_section("Rules", body + report.table(head, [row.cells() for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
