"""Time and memory of the survey behind the Run Map.

    python tests/benchmarks/bench_survey.py [--steps N]

Prints each figure beside its target. CPU time is that of this process, the minimum of several runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import smdwidgets  # noqa: E402
from python.widgets.talk import begin, end  # noqa: E402
from smdwidgets import _core  # noqa: E402
from smdwidgets.pictures.overview import nothing_sent  # noqa: E402
from smdwidgets.survey import Survey  # noqa: E402
from smdwidgets.survey.bins import NAN, level_of  # noqa: E402
from smdwidgets.survey.findings import findings  # noqa: E402
from smdwidgets.survey.sentence import sentence, text  # noqa: E402
from smdwidgets.survey.table import SurveyTable  # noqa: E402
from smdwidgets.widgets.live_survey import LiveSurvey  # noqa: E402
from smdwidgets.widgets.rule_controller import RuleController  # noqa: E402


def report(what: str, measured: str, target: str = "") -> None:
    print(f"{what:<64} {measured:>14}   {target}", flush=True)


def cpu(action: Callable[[], object], times: int = 3) -> float:
    """Return the least CPU time of an action in seconds."""
    least = float("inf")
    for _ in range(times):
        begin = time.process_time()
        action()
        least = min(least, time.process_time() - begin)
    return least


def transformer(root: Path, steps: int, tensors: int = 300, shape: tuple[int, int] = (46, 46)) -> Path:
    """Write a run of about 325 MB, in which one weight turns NaN."""
    begin(root)
    rng = np.random.default_rng(0)
    values = {
        f"layers.{i // 12}.block{i % 12}.weight": rng.normal(0, 0.1, shape).astype(np.float32) for i in range(tensors)
    }
    for step in range(steps):
        if step == steps * 3 // 4:
            values["layers.7.block3.weight"][0, 0] = np.nan
        with _core.StepWriter(root, step, "worker_0", 1) as writer:
            for name, value in values.items():
                writer.tensor(name, value)
        for value in values.values():
            value += np.float32(1e-4)
    return end(root)


def reading(folder: Path, steps: int) -> None:
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    root = transformer(folder / "run", steps)
    size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    report(f"run: 300 tensors, {steps} steps", f"{size / 1e6:.0f} MB")

    trial = smdwidgets.create_trial(root)
    survey, first = Survey(trial), []
    clock, used = time.monotonic(), time.process_time()
    survey.update(lambda: first.append(time.monotonic() - clock) if len(survey.table) and not first else None)
    report("uncached: first columns", f"{first[0]:.2f} s", "<= 1 s")
    report("uncached: all records read", f"{time.monotonic() - clock:.2f} s", "<= 3 s")
    report("uncached: CPU", f"{time.process_time() - used:.2f} s")

    clock, used = time.monotonic(), time.process_time()
    widget = smdwidgets.explore(smdwidgets.create_trial(root))
    report("cached: cell executed -> poster in the widget's state", f"{time.monotonic() - clock:.2f} s", "<= 1 s")
    report("cached: CPU", f"{time.process_time() - used:.2f} s")
    report("cached: bytes of the widget's state", f"{sum(map(len, widget._boot)) / 1e3:.0f} KB", "<= 1 MB")
    widget.close()


def large_table(tensors: int = 5000, steps: int = 100_000, records: int = 10_000_000) -> SurveyTable:
    """Return a table of a long run in which one tensor is NaN at one step."""
    saved = np.arange(0, steps, steps * tensors // records)
    table = SurveyTable()
    rng = np.random.default_rng(0)
    portion = 250
    for start in range(0, tensors, portion):
        names = [f"layers.{i // 12}.m{i % 12}.weight" for i in range(start, start + portion)]
        rows = portion * len(saved)
        zeros, ones = np.zeros(rows, np.int64), np.ones(rows)
        nan = zeros.copy()
        if start <= 2500 < start + portion:
            nan[(2500 - start) * len(saved) + len(saved) // 2] = 3
        table.add(
            {
                "name": np.repeat(np.array(names, object), len(saved)),
                "worker": np.full(rows, "worker_0", object),
                "step": np.tile(saved, portion),
                "mode": np.ones(rows, np.int64),
                "count": np.full(rows, 64),
                "nan": nan,
                "neg_inf": zeros,
                "pos_inf": zeros,
                "zeros": zeros,
                "mean": ones * 0,
                "std": ones,
                "l2": 8 * np.exp(rng.normal(0, 0.02, rows)),
                "update": ones * 0.01,
                "flags": np.zeros(rows, np.uint16),
                "error": [],
            }
        )
    return table


def large() -> None:
    table = large_table()
    report("table made directly: 5,000 tensors x 100,000 steps", f"{len(table) / 1e6:.1f} M records")
    used = time.process_time()
    table.records()
    report("merge and surprise of all records: CPU", f"{time.process_time() - used:.1f} s")
    records = table.records()
    held = sum(column.nbytes for column in records.values())
    report("memory of the records", f"{held / len(table):.0f} B each", "40 B (design)")
    names = table.names()
    level = level_of(0, 99_999, 64)
    whole: list[Any] = []
    report(
        "all rows, 49 bins: CPU",
        f"{cpu(lambda: whole.append(table.bins(names, '', 0, 'surprise', level, 0, 64))):.2f} s",
    )
    bad = np.argwhere(whole[0].flag & NAN)
    report("NaN at one step survives merging", f"{len(bad)} bin", "1 bin")
    level = level_of(0, 99_999, 1024)
    visible = names[2490:2514]
    used = cpu(lambda: table.bins(visible, "", 0, "surprise", level, 0, 782), 5)
    report("question: 24 rows x 782 bins: CPU", f"{1e3 * used:.1f} ms", "<= 150 ms with drawing")
    steps = sorted(set(records["step"][:2000].tolist()))
    found: list[Any] = []
    report("findings: CPU", f"{cpu(lambda: found.append(findings(table, steps, ())), 2):.2f} s")
    report("sentence", text(sentence(found[0], table, steps)))


def live(folder: Path, seconds: float = 10.0, rate: int = 20) -> None:
    """Measure the traffic of a live run of 300 tensors with 20 steps a second."""
    root = begin(folder / "live")
    rng = np.random.default_rng(0)
    values = {f"layers.{i // 12}.block{i % 12}.weight": rng.normal(0, 1, (8, 8)).astype(np.float32) for i in range(300)}

    def save(step: int) -> None:
        with _core.StepWriter(root, step, "worker_0", 1) as writer:
            for name, value in values.items():
                writer.tensor(name, value)

    for step in range(500):
        save(step)
    trial = smdwidgets.create_trial(root)
    survey = LiveSurvey([trial], RuleController([trial]))
    survey.complete()
    sent = nothing_sent([(0, trial)])
    sent[0].names = trial.tensor_names()
    survey.packets(sent)
    asked = {"run": 0, "worker": "", "mode": "", "stat": "surprise", "tensors": list(range(24)), "from": 0, "to": 1e9}
    survey.answer({**asked, "bins": 1024}, sent[0])
    size, step, saving = 0, 500, 0.0
    clock, used = time.monotonic(), time.process_time()
    while (now := time.monotonic() - clock) < seconds:
        before = time.thread_time()
        while step < 500 + now * rate:
            save(step)
            step += 1
        saving += time.thread_time() - before
        survey.check()
        size += sum(map(len, survey.updates(sent)))
        time.sleep(0.25)
    used = time.process_time() - used - saving
    survey.close()
    report(f"live, {rate} steps/s: pushed", f"{size / seconds / 1e3:.1f} KB/s", "<= 120 KB/s")
    report(f"live, {rate} steps/s: CPU", f"{100 * used / seconds:.1f} % of a core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("reading", "live", "large"))
    parser.add_argument("--steps", type=int, default=125, help="steps of the run on disk; 125 are 325 MB")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only in (None, "reading"):
            reading(Path(folder), arguments.steps)
        if arguments.only in (None, "live"):
            live(Path(folder))
    if arguments.only in (None, "large"):
        large()
    report("peak memory", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
