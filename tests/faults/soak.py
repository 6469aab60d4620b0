"""Watch a live run with an explorer and ten rules, and measure resources.

Usage: `python soak.py SECONDS BEGINNING [REPORT]`.

Another process writes BEGINNING steps as fast as it can, then 50 steps a second. This process receives packets as a
page does, reads values as a notebook does, and records memory, open files and threads every few seconds. SECONDS start
after rules and explorer have processed the beginning: by then every cache of fixed size is full. The last line printed
is the result as JSON.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import smdwidgets
from python.widgets.talk import Page
from smdwidgets.rules import RuleRunner, measurements

RATE = 50
#: Cache bytes of rules per step of the beginning: less than they need, so that this cache is full, too.
KEPT_A_STEP = measurements.CACHE_BYTES // 16_000
#: Steps that the training of a short soak may be ahead of the rules. A busy machine slows it down and does not fail the
#: test.
AHEAD = 250
#: Seconds for processing the beginning on a slow machine.
WARM_UP = 900
RULES: dict[str, dict[str, Any]] = {
    "VanishingGradient": {},
    "ExplodingTensor": {"tensor_regex": "weight"},
    "LossNotDecreasing": {},
    "WeightUpdateRatio": {},
    "AllZero": {"tensor_regex": "relu"},
    "DeadRelu": {},
    "TensorVariance": {"tensor_regex": "weight"},
    "UnchangedTensor": {"tensor_regex": "weight"},
    "GradientNormSpike": {},
    "LossSpike": {},
}
WANT = {
    "stats": True,
    "update": True,
    "hist": {"scale": "linear", "bins": 32, "edges": "shared"},
    "image": {"axes": [], "fixed": [], "pool": "mean", "cells": 1024},
    "percentiles": True,
}


def write(root: str, rate: float, beginning: int) -> None:
    """Train small layers with a falling loss.

    Each line of standard input is the next step that must not be saved yet.
    """
    from smdwidgets.config import SaveConfig
    from smdwidgets.hooks.loops.numpy import Hook

    chance = np.random.default_rng(1)
    weight, began = chance.normal(size=(32, 32)).astype(np.float32), time.monotonic()
    changed, limit, ended = threading.Condition(), float(beginning), False

    def listen() -> None:
        nonlocal limit, ended
        for line in sys.stdin:
            with changed:
                limit = float(line)
                changed.notify()
        with changed:
            ended = True
            changed.notify()

    def may_save(step: int) -> bool:
        """Wait until this step may be saved; return False if the training ends instead."""
        with changed:
            if step >= beginning:
                changed.wait_for(lambda: ended, max(0.0, began + (step - beginning) / rate - time.monotonic()))
            changed.wait_for(lambda: ended or step < limit)
            return not ended

    threading.Thread(target=listen, daemon=True).start()
    # Without a configuration, a plan thins the steps with values as the run grows.
    with Hook(
        root, save_config=SaveConfig(save_interval=1), include_collections=["weights", "gradients", "relu_activations"]
    ) as hook:
        step = 0
        while may_save(step):
            if step == beginning:
                began = time.monotonic()
            gradient = chance.normal(size=weight.shape).astype(np.float32) / 10
            weight -= gradient / 100
            hook.save_tensor("fc1.weight", weight, "weights")
            hook.save_tensor("gradient/fc1.weight", gradient, "gradients")
            hook.save_tensor("relu1_output_0", np.maximum(weight[:8], 0), "relu_activations")
            hook.save_tensor("loss_0", np.float32(1 + 1 / (1 + step / 100)), "losses")
            hook.step()
            step += 1
    print(step, flush=True)


class Browser(Page):
    """A page that records the newest step and keeps no packets."""

    def __init__(self, widget: Any) -> None:
        self.packets = 0
        self.newest = -1.0
        super().__init__(widget)

    def _receive(self, message: dict[str, Any], buffers: Any) -> None:
        super()._receive(message, buffers)
        self.packets += len(buffers)
        for head, arrays in self.updates:
            if head["kind"] == "frames":
                self.newest = max(self.newest, arrays["step"].max())
        del self.updates[:], self.sizes[:]


@dataclass
class Sample:
    """Resources at one moment."""

    seconds: float
    steps: int
    #: Steps by which the slowest rule was behind.
    behind: int
    refreshes: int
    resident: int
    files: int
    threads: int


def files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def slope(samples: list[Sample], of: str) -> float:
    """Return the growth per step in bytes or objects, by least squares."""
    x = [getattr(sample, of) for sample in samples]
    return float(np.polyfit(x, [sample.resident for sample in samples], 1)[0])


def soak(root: Path, seconds: float, beginning: int) -> dict[str, Any]:
    """Attach everything, wait, close everything; return the measurements."""
    before = files(), threading.active_count()
    command = [sys.executable, __file__, "write", str(root), str(RATE), str(beginning)]
    samples: list[Sample] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        trial = smdwidgets.create_trial(root, wait=60)
        trial.wait_for_steps([10], timeout=60)
        measurements.CACHED_STEPS = min(measurements.CACHED_STEPS, beginning)
        kept = measurements.measurements_of(trial)
        kept._cache_bytes = min(kept._cache_bytes, beginning * KEPT_A_STEP)
        runner = RuleRunner(trial)
        for name, parameters in RULES.items():
            runner.add(name, **parameters)
        explorer = smdwidgets.explore(trial, rules=runner)
        page = Browser(explorer)
        page.ask("hello", protocol=1, again=False)
        page.frames("fc1.weight", want=WANT)
        warming = next_report = time.monotonic()
        began, refreshes, wrong = math.inf, 0, 0
        while (now := time.monotonic()) < min(began + seconds, warming + seconds + WARM_UP):
            trial.refresh_data()
            refreshes += 1
            last = trial.steps()[-1]
            weight, loss = trial.tensor("fc1.weight").value(last), trial.tensor("loss_0").value(last)
            wrong += weight.shape != (32, 32) or loss.item() != np.float32(1 + 1 / (1 + last / 100))
            judged = min(evaluation.done for evaluation in runner)
            limit = max(beginning, judged + AHEAD) if seconds < 60 else math.inf
            print(limit, file=writer.stdin, flush=True)
            if began == math.inf and judged > beginning and page.newest >= beginning:
                began = now
            if now >= next_report:
                next_report = now + max(1.0, seconds / 360)
                found = Sample(
                    now - began, last + 1, last + 1 - judged, refreshes, resident(), files(), threading.active_count()
                )
                if began < math.inf:
                    samples.append(found)
                print(
                    f"{now - warming:7.0f} s  {found.steps:6} steps  {found.behind:6} behind  {found.resident / 2**20:7.1f} MB",
                    flush=True,
                )
            time.sleep(0.05)
        # No new steps are written: any growth comes from polling.
        writer.stdin.close()
        written = int(writer.stdout.readline())
    runner.wait(timeout=300)
    deadline = time.monotonic() + 300
    while not explorer.live_diagnosis.is_current and time.monotonic() < deadline:
        time.sleep(0.1)
    seen = trial.steps()
    rules = {evaluation.name: evaluation.status.name for evaluation in runner}
    judged = min(evaluation.snapshot().done for evaluation in runner)
    still = []
    for _ in range(2000):
        trial.refresh_data()
        still.append(resident())
    explorer.close()
    trial.close()
    packets, values = page.packets, (weight, loss)
    del explorer, page, trial, weight, loss, runner
    deadline = time.monotonic() + 30
    while (files(), threading.active_count()) > before and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.1)
    return {
        "seconds": round(samples[-1].seconds),
        "seconds of warming up": round(began - warming),
        "load of the machine": round(os.getloadavg()[2], 1),
        "steps written": written,
        "steps seen": len(seen),
        "steps judged by the slowest rule": judged,
        "steps that rules were behind, median and most": [
            round(float(np.median([sample.behind for sample in samples]))),
            max(sample.behind for sample in samples),
        ],
        "steps missed": written - len(seen),
        "wrong values": int(wrong),
        "refreshes": refreshes,
        "packets to the page": packets,
        "rules": rules,
        "resident after warm-up": samples[0].resident,
        "resident at the end": samples[-1].resident,
        "steps after warm-up": samples[-1].steps - samples[0].steps,
        "bytes for each further step": round(slope(samples, "steps")),
        "bytes for each further step of the second half": round(slope(samples[len(samples) // 2 :], "steps")),
        "growth over 2000 refreshes without news": still[-1] - still[0],
        "most open files": max(sample.files for sample in samples),
        "open files after warm-up": samples[0].files,
        "most threads": max(sample.threads for sample in samples),
        "threads after warm-up": samples[0].threads,
        "before and after (files, threads)": [before, (files(), threading.active_count())],
        "values outlive the trial": bool(values[0].shape == (32, 32)),
        "samples": [asdict(sample) for sample in samples],
    }


def main() -> None:
    if sys.argv[1] == "write":
        return write(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder) / "run", float(sys.argv[1]), int(sys.argv[2]))
        if len(sys.argv) > 3:
            Path(sys.argv[3]).parent.mkdir(parents=True, exist_ok=True)
            Path(sys.argv[3]).write_text(json.dumps(found))
        found.pop("samples")
        # Before the run is removed, which is slow.
        print(json.dumps(found), flush=True)
    return None


if __name__ == "__main__":
    main()
