"""Judge long series of losses with the rules on sequences.

Usage: python tests/benchmarks/bench_sequences.py [--dry]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import report
from clock import once

from smdwidgets import _core, create_trial
from smdwidgets.rules import RuleRunner

RULES = ("LossNotDecreasing", "LossSpike", "Overfit", "Overtraining")
STEPS = 15_000
TARGET = 0.020
ROUNDS = 7


def write(folder: Path, names: tuple[str, ...]) -> None:
    """Write noisy losses that fall."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    with (folder / "events.out.tfevents.1700000000.host").open("wb") as out:
        out.write(_core.version_record(1.0))
        for step in range(STEPS):
            for above, name in enumerate(names):
                loss = 2 / (1 + step / 1000) + 0.3 * above + 0.05 * random.random()
                out.write(_core.scalar_record(name, step, 1.7e9 + step, loss))


def seconds(folder: Path, rule: str) -> float:
    """Return the CPU seconds of judging all steps of a run that was just opened."""
    taken = []
    for _ in range(ROUNDS):
        with create_trial(folder, live=False) as trial:
            trial.steps()
            runner = RuleRunner(trial, [rule])

            def work(runner: RuleRunner = runner) -> None:
                runner.start()
                runner.wait()

            taken.append(once(work)[0])
            assert len(runner[rule].outcomes) == STEPS
    return min(taken)


def main() -> int:
    """Measure, print and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--dry", action="store_true", help="print, do not write")
    dry = asked.parse_args().dry
    rows = []
    with tempfile.TemporaryDirectory() as root:
        for what, names in (("a loss", ("loss",)), ("a training and a validation loss", ("loss", "val_loss"))):
            folder = Path(root, str(len(names)))
            write(folder, names)
            for rule in RULES:
                taken = seconds(folder, rule)
                met = "yes" if taken <= TARGET else "**no**"
                rows.append([f"{rule}: {what}", f"{taken * 1e3:.1f} ms", f"<= {TARGET * 1e3:.0f} ms", met])
                print("  ".join(rows[-1]), flush=True)
    if not dry:
        body = (
            f"`python tests/benchmarks/bench_sequences.py`. CPU seconds of judging {STEPS:,} steps of an open TensorBoard "
            f"log, with reading its columns and making the findings; the least of {ROUNDS}.\n\n"
        )
        report.write_section("Rules over long series", body + report.table(["what", "ours", "target", "met"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
