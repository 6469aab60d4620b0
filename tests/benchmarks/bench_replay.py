"""Measure what recording for a replay adds to a step, and the times of a replay.

Usage: `python tests/benchmarks/bench_replay.py` in an environment with PyTorch. It writes the section in RESULTS.md.

Recording: two equal trainings of a transformer, one bare and then one whose hook keeps batches and states. The result
is the CPU seconds of the training's thread in the calls that record, keyframes among them, as a mean over all steps,
beside the mean of a bare step. Other processes change the CPU seconds of a whole step by more than that.

Replay: GPT-2 with 124 million parameters and random weights, AdamW, short texts, of which one has no word, so that its
mean loss is 0 / 0. The time of each answer is wall time. The memory is the peak of the process less that of the same
training without a hook, beside the bound of the recorder.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean

from report import table, write_section

HERE = Path(__file__).resolve()
TITLES = {"recording": "Recording of steps for a replay", "replay": "Replay of GPT-2"}
MIB = 1 << 20
#: Steps that are not timed: the first ones allocate memory and find the objects of the training.
WARM = 12
#: Memory of the recorder, and steps and rows of a batch of the large model.
BOUND, STEPS, ROWS = 4 << 30, 9, 2


def transformer(width: int, layers: int, words: int, length: int):
    """Return a decoder as GPT-2 has it, with random weights."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, length, _ = x.shape
            heads = self.attend(self.ln_1(x)).view(rows, length, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
            x = x + self.project(y.transpose(1, 2).reshape(rows, length, width))
            return x + self.down(F.gelu(self.up(self.ln_2(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(layers))), nn.LayerNorm(width)
            for one in (self.words, self.places):
                nn.init.normal_(one.weight, 0, 0.02)

        def forward(self, texts: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
            x = self.words(texts) + self.places.weight[: texts.shape[1]]
            logits = self.norm(self.blocks(x)) @ self.words.weight.T
            losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), texts[:, 1:], reduction="none")
            weights = kept[:, 1:].float()
            return ((losses * weights).sum(1) / weights.sum(1)).mean()

    return Model()


def loader(rows: int, length: int, words: int, batch: int, bad: int):
    """Return a loader of random texts; the text of row `bad` has no word."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    kept = torch.ones(rows, length, dtype=torch.bool)
    if bad >= 0:
        kept[bad] = False
    texts = torch.randint(0, words, (rows, length))
    return DataLoader(TensorDataset(texts, kept), batch)


def timed_calls(add) -> None:
    """Have the CPU seconds of each call that records added."""
    from smdwidgets.hooks.torch.replaying import Replaying

    call = Replaying._call

    def timed(self: Replaying, *args: object) -> None:
        began = time.thread_time()
        call(self, *args)
        add(time.thread_time() - began)

    Replaying._call = timed


def recording_cost(width: int, layers: int, batch: int, steps: int, root: Path) -> dict[str, float]:
    """Return mean CPU seconds of a bare step, and of what records one."""
    import torch

    import smdwidgets.pytorch as smd

    recorded = [0.0]  # at each step
    timed_calls(lambda seconds: recorded.__setitem__(-1, recorded[-1] + seconds))
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    length, words = 32, 4096

    def training(replay: object):
        torch.manual_seed(0)
        model = transformer(width, layers, words, length)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
        data = loader((WARM + steps) * batch, length, words, batch, -1)
        hook = None if replay is None else smd.record(model, root / str(replay), replay=replay, recorder_bytes=1 << 30)
        began = time.thread_time()
        for texts, kept in data:
            optimizer.zero_grad()
            loss = model(texts, kept)
            loss.backward()
            optimizer.step()
            yield time.thread_time() - began
            began = time.thread_time()
        if hook is not None:
            yield hook._replaying.recorder.every

    result: dict[str, float] = {}
    gc.disable()
    # One training after the other, because states are paid from the time that passes.
    for name, replay in {"bare": None, "hooked": True}.items():
        steps_of_it = training(replay)
        recorded.clear()
        taken = []
        for _ in range(WARM + steps):
            recorded.append(0.0)
            taken.append(next(steps_of_it))
        result[name] = fmean(taken[WARM:])
    result["every"] = next(steps_of_it)
    result["recording"] = fmean(recorded[WARM:])
    result["later"] = fmean(recorded[WARM + steps // 2 :])
    result["parameters"] = sum(one.numel() for one in transformer(width, layers, words, length).parameters())
    return result


def replay_times(hooked: bool, root: Path) -> dict[str, float]:
    """Train GPT-2 until its loss is NaN; return times of answers, and memory."""
    import torch

    import smdwidgets.pytorch as smd
    from smdwidgets import create_trial

    logging.disable(logging.CRITICAL)
    torch.manual_seed(0)
    model = transformer(768, 12, 50257, 1024)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    hook = (
        smd.record(model, root / "run", replay=True, recorder_bytes=BOUND, plan={"budget": "40GB"}) if hooked else None
    )
    steps: list[float] = []
    cpu: list[float] = []
    recording = [0.0]
    timed_calls(lambda seconds: recording.__setitem__(-1, recording[-1] + seconds))
    began, thread = time.perf_counter(), time.thread_time()
    for texts, kept in loader(STEPS * ROWS, 32, 50257, ROWS, (STEPS - 3) * ROWS):
        optimizer.zero_grad()
        loss = model(texts, kept)
        loss.backward()
        optimizer.step()
        steps.append(time.perf_counter() - began)
        cpu.append(time.thread_time() - thread - recording[-1])
        recording.append(0.0)
        began, thread = time.perf_counter(), time.thread_time()
    result = {"parameters": sum(one.numel() for one in model.parameters()), "step": sorted(steps)[len(steps) // 2]}
    result["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if hook is None:
        return result
    world = hook._replaying.recorder.world
    result["recorded"] = hook._replaying.recorder.nbytes
    result["recording"] = sorted(recording)[len(recording) // 2]
    result["cpu"] = sorted(cpu)[len(cpu) // 2]
    hook.close()
    state = world.take()
    began = time.perf_counter()
    world.take(state)  # memory that is used again
    result["keyframe"] = time.perf_counter() - began
    del state
    with create_trial(root / "run") as trial:
        incident = trial.incidents()[0]
    replay = incident.replay
    if replay.why_not:
        sys.exit(replay.why_not)
    result["first"], result["steps"] = replay.steps[0], len(replay.steps)
    result["disk"] = sum(path.stat().st_size for path in (root / "run" / "incidents").rglob("*") if path.is_file())
    for name, work in {
        "run": lambda: replay.run(last=replay.steps[0] + 1),
        "explain": incident.explain,
        "what_if": lambda: incident.what_if(drop_rows=[1]),
    }.items():
        began = time.perf_counter()
        answer = work()
        result[name] = time.perf_counter() - began
        print(f"{name}: {result[name]:.1f} s", answer, file=sys.stderr, flush=True)
    return result


def apart(*arguments: object) -> dict[str, float]:
    """Measure in a separate process."""
    with tempfile.TemporaryDirectory() as root:
        command = [sys.executable, str(HERE), "--apart", root, *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    """Write the section."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--only", choices=("recording", "replay"))
    parser.add_argument("--apart", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.apart:
        root, what, *rest = arguments.apart
        numbers = [int(one) for one in rest]
        figures = (
            recording_cost(*numbers, Path(root)) if what == "recording" else replay_times(bool(numbers[0]), Path(root))
        )
        print(json.dumps(figures))
        return
    for name, rows_of in (("recording", recording_rows), ("replay", replay_rows)):
        if arguments.only in (None, name):
            rows = rows_of(arguments.steps)
            load = f"; load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
            body = f"`python tests/benchmarks/bench_replay.py --only {name}`. PyTorch on a CPU{load}.\n\n" + table(
                ("what", "beside", "ours", "target", "met"), rows
            )
            print(body)
            write_section(TITLES[name], body)


def recording_rows(steps: int) -> list[list[str]]:
    """Measure what recording takes."""
    rows = []
    for width, layers, batch in ((128, 2, 8), (256, 4, 4), (256, 4, 8)):
        figures = apart("recording", width, layers, batch, steps)
        step = f"a step of {figures['parameters'] / 1e6:.1f} M parameters and {batch} rows"
        # The first states may be copied before the time that pays for them has passed.
        for which, mean in ((f"{steps} steps", figures["recording"]), ("the later half of them", figures["later"])):
            share = mean / figures["bare"]
            rows.append(
                [
                    f"recording {step}, mean of {which}",
                    f"{figures['bare'] * 1e3:.1f} ms bare",
                    f"{mean * 1e3:.2f} ms, a state every {figures['every']:.0f} steps at the end ({share:+.1%})",
                    "<= 1 % of 100 ms or more",
                    "" if figures["bare"] < 0.1 else "yes" if share <= 0.01 else "**no**",
                ]
            )
    return rows


def replay_rows(steps: int) -> list[list[str]]:
    """Measure the answers about a large model."""
    bare, figures = apart("replay", 0), apart("replay", 1)
    beyond = figures["peak"] - bare["peak"]
    named = f"GPT-2, {figures['parameters'] / 1e6:.0f} M parameters"
    return [
        [f"{named}: a step", f"{bare['step']:.2f} s bare", f"{figures['step']:.2f} s with the hook", "", ""],
        [f"{named}: a keyframe", "", f"{figures['keyframe']:.2f} s", "", ""],
        [f"{named}: two steps executed again, state loaded and put back", "", f"{figures['run']:.1f} s", "", ""],
        [f"{named}: files of the incident", "", f"{figures['disk'] / MIB:,.0f} MiB", "", ""],
        [
            f"{named}: recording a step, without keyframes",
            "",
            f"{figures['recording'] * 1e3:.1f} ms CPU",
            "<= 1 % of 100 ms or more",
            "yes" if figures["recording"] <= 0.01 * figures["cpu"] else "**no**",
        ],
        [f"{named}: `explain`", "", f"{figures['explain']:.1f} s", "", ""],
        [f"{named}: `what_if` without a row, {figures['steps']:.0f} steps", "", f"{figures['what_if']:.1f} s", "", ""],
        [
            f"{named}: memory while training",
            f"{bare['peak'] / MIB:,.0f} MiB bare",
            f"{beyond / MIB:+,.0f} MiB, of which the recording has {figures['recorded'] / MIB:,.0f}",
            f"<= bound of {BOUND / MIB:,.0f} MiB + 10 %",
            "yes" if beyond <= 1.1 * BOUND else "**no**",
        ],
    ]


if __name__ == "__main__":
    main()
