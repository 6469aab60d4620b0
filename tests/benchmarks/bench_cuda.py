"""Measure what the hook costs a training on a GPU.

Usage: `make bench-hooks`, or `PYTHONPATH=python python tests/benchmarks/bench_cuda.py`. It writes the section in
RESULTS.md, in about two minutes, and does nothing on a machine without a GPU.

The model is a GPT of 110 million parameters, trained by AdamW with autocast to bfloat16. Each row is a separate
process, in which blocks of a bare training and of one with a hook alternate. Both end by waiting for the device, so
that the wall time of a block contains all of its work there. Before the first block, the training with the hook runs
for three seconds. Events on the stream of the training show how long each step takes on the device.

* Default plan: `smd.record(model, directory)`.
* All at every step: the statistics of every weight, gradient, input and output.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apart import apart
from report import table, write_section

HERE = Path(__file__).resolve()
TITLE = "Cost of the hook on a GPU"
#: Rows of 1,024 tokens of a batch, and which plan.
ROWS = ((16, "default"), (4, "default"), (1, "default"), (16, "every"))
TOKENS, WORDS, WIDTH, LAYERS, HEADS = 1024, 32768, 768, 12, 12
#: Seconds of training before the share is measured, of all blocks, and of a block.
BEFORE, WHILE, BLOCK = 3.0, 8.0, 0.5
SHARE = 0.01


def training(rows: int) -> tuple[Callable[[], None], Any]:
    """Return a function that trains for one step, and the model."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            shape = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
            q, k, v = (one.view(shape).transpose(1, 2) for one in self.qkv(self.norm1(x)).chunk(3, -1))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
            self.head.weight = self.tokens.weight
            nn.init.normal_(self.tokens.weight, std=0.02)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.places.weight
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    data = torch.randint(0, WORDS, (64, rows, TOKENS + 1), device="cuda")
    number = 0

    def step() -> None:
        nonlocal number
        batch = data[number % len(data)]
        number += 1
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    return step, model


class Clock:
    """Runs blocks of steps, and measures them."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        #: Seconds a step on the wall and on the training's thread, of each block.
        self.wall: list[float] = []
        self.thread: list[float] = []
        #: Milliseconds of each step on the device.
        self.device: list[float] = []

    def run(self, count: int) -> None:
        """Run a block."""
        import torch

        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        torch.cuda.synchronize()
        began, thread = time.perf_counter(), time.thread_time()
        events[0].record()
        for event in events[1:]:
            self._step()
            event.record()
        thread = time.thread_time() - thread  # waiting for the device would keep the thread busy
        torch.cuda.synchronize()
        self.wall.append((time.perf_counter() - began) / count)
        self.thread.append(thread / count)
        self.device += [one.elapsed_time(other) for one, other in itertools.pairwise(events)]


def measure(rows: int, plan: str, root: Path) -> dict[str, float]:
    """Return the figures of one row."""
    logging.disable(logging.CRITICAL)
    import torch

    import smdwidgets.pytorch as smd
    from smdwidgets import CapturePlan

    step, _ = training(rows)
    bare = Clock(step)
    bare.run(10)
    bare.run(10)
    count = max(round(BLOCK / bare.wall[-1]), 1)
    bare.device.clear()
    step, model = training(rows)
    torch.cuda.reset_peak_memory_stats()
    Clock(step).run(5)
    memory = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    hook = smd.record(model, root / "run", plan=CapturePlan(statistics=1, every=64) if plan == "every" else None)
    hooked = Clock(step)
    began = time.perf_counter()
    while time.perf_counter() - began < BEFORE:
        hooked.run(5)
    more = torch.cuda.max_memory_allocated() - memory
    hooked.wall.clear(), hooked.thread.clear(), hooked.device.clear()
    bare.wall.clear(), bare.thread.clear()
    inside, steps = hook.guard.gate.seconds, hook.global_step
    for _ in range(round(WHILE / BLOCK / 2)):
        bare.run(count)
        hooked.run(count)
    inside = (hook.guard.gate.seconds - inside) / (hook.global_step - steps)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        hooked.run(count)
    kinds: dict[str, float] = {}
    for event in profiler.key_averages():
        kind = "copies" if event.key.startswith("Memcpy DtoH") else "kernels"
        kinds[kind] = kinds.get(kind, 0.0) + event.self_device_time_total / count / 1e3
    intervals = hook.parts.plan.capture.time.intervals
    hook.close()
    return {
        "bare": statistics.fmean(bare.wall) * 1e3,
        "hooked": statistics.fmean(hooked.wall) * 1e3,
        "bare_thread": statistics.fmean(bare.thread) * 1e3,
        "hooked_thread": statistics.fmean(hooked.thread) * 1e3,
        "inside": inside * 1e3,
        "bare_device": statistics.median(bare.device),
        "hooked_device": statistics.median(hooked.device),
        "longest": max(hooked.device),
        "longest_bare": max(bare.device),
        "copies": kinds.get("copies", 0.0),
        "memory": more / 2**20,
        **{f"interval_{kind}": float(each) for kind, each in intervals.items()},
    }


def main() -> None:
    """Write the section."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--print", action="store_true", help="do not write the section")
    parser.add_argument("--apart", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.apart:
        rows, plan, root = arguments.apart
        print(json.dumps(measure(int(rows), plan, Path(root))))
        return
    import torch

    if not torch.cuda.is_available():
        print("There is no GPU: its section is not measured.")
        return
    rows = []
    for batch, plan in ROWS:
        one = apart(HERE, batch, plan)
        print(batch, plan, json.dumps({key: round(value, 3) for key, value in one.items()}), flush=True)
        share = one["hooked"] / one["bare"] - 1
        rows.append(
            (
                f"{batch} rows, {'default plan' if plan == 'default' else 'all at every step'}",
                f"{one['bare']:.1f} ms",
                f"{one['hooked']:.1f} ms",
                f"{share:.1%}",
                f"<= {SHARE:.0%}" if plan == "default" else "",
                ("yes" if share <= SHARE else "**no**") if plan == "default" else "–",
                f"{one['longest_bare']:.0f} and {one['longest']:.0f} ms",
                f"{one['inside']:.2f} ms",
                f"{one['copies']:.2f} ms",
                f"{one['memory']:.0f} MB",
            )
        )
    body = (
        "`python tests/benchmarks/bench_cuda.py`. A GPT of 110 million parameters with rows of 1,024 tokens, in bfloat16 by autocast. Wall time "
        "of a step, the mean of blocks of bare steps and of steps with the hook, in turn, after three seconds; the longest "
        "step of each on the device; time inside the hook on the training's thread; copies to the host on the device; GPU "
        "memory beyond that of the training.\n\n"
        + table(
            (
                "training",
                "bare",
                "with the hook",
                "adds",
                "target",
                "met",
                "longest step",
                "in the hook",
                "copies",
                "memory",
            ),
            rows,
        )
    )
    if not arguments.print:
        write_section(TITLE, body)


if __name__ == "__main__":
    main()
