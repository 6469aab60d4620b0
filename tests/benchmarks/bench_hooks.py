"""What a hook costs a PyTorch training: ours beside smdebug 1.0.34's, on the same model in the same run.

    make test-frameworks ARGS=torch          # once: makes .venv-torch
    PYTHONPATH=python .venv-torch/bin/python tests/benchmarks/bench_hooks.py

Each training is a process of its own with one thread for arithmetic; ours, smdebug's and the bare one take turns, and medians
are compared. Seconds are CPU seconds, which other processes on the machine do not stretch: those of the training's own thread
(what a step is longer by, as long as the disk keeps up) and those of the whole process, the writer's thread included. The
model is a residual network on small images; weights, biases, gradients and losses are saved.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
WHICH = ("none", "ours", "smdebug")
COLLECTIONS = ["weights", "biases", "gradients", "losses"]


def train(which: str, interval: int, steps: int, width: int, run: str) -> dict[str, float]:
    """One training; CPU seconds a step, after the first few."""
    import logging

    logging.disable(logging.CRITICAL)
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)

    class Block(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(channels)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.bn1(self.conv1(x)))
            return torch.relu(x + self.bn2(self.conv2(y)))

    def stage(before: int, channels: int) -> nn.Module:
        down = nn.Conv2d(before, channels, 3, stride=2, padding=1)
        return nn.Sequential(down, Block(channels), Block(channels))

    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        Block(width),
        stage(width, 2 * width),
        stage(2 * width, 4 * width),
        stage(4 * width, 8 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8 * width, 10),
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    hook = None
    if which != "none":
        if which == "ours":
            import smdwidgets.pytorch as smd
        else:
            import smdebug.pytorch as smd
        hook = smd.Hook(
            out_dir=run, include_collections=COLLECTIONS, save_config=smd.SaveConfig(save_interval=interval)
        )
        hook.register_module(model)
        hook.register_loss(criterion)
    x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()

    for _ in range(3):
        step()
    thread, process = time.thread_time(), time.process_time()
    for _ in range(steps):
        step()
    thread = time.thread_time() - thread
    if hook is not None:
        hook.close()  # what waits to be written is paid for too
    process = time.process_time() - process
    return {
        "thread": thread / steps,
        "process": process / steps,
        "parameters": float(sum(parameter.numel() for parameter in model.parameters())),
        "tensors": float(sum(1 for _ in model.parameters())),
    }


def measure(which: str, interval: int, steps: int, width: int, scratch: Path) -> dict[str, float]:
    """:func:`train` in a process of its own."""
    run = scratch / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, str(HERE), "--train", which, str(interval), str(steps), str(width), str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    shutil.rmtree(run, ignore_errors=True)
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def throughput(scratch: Path, megabytes: int) -> tuple[float, float]:
    """Seconds to save one step of that size through the hook, and to write the same bytes with one call; medians."""
    import numpy as np

    from smdwidgets.numpy import Hook

    tensors = [np.random.default_rng(i).random(1 << 19, dtype=np.float32) for i in range(megabytes // 2)]
    block = b"".join(tensor.tobytes() for tensor in tensors)
    ours, plain = [], []
    for turn in range(7):
        run = scratch / f"throughput{turn}"
        hook = Hook(run)
        for _ in range(2):  # the first step finds no buffers to use again
            began = time.perf_counter()
            for i, tensor in enumerate(tensors):
                hook.save_tensor(f"t{i}", tensor)
            hook.step()
            hook.flush()
            took = time.perf_counter() - began
        hook.close()
        ours.append(took)
        began = time.perf_counter()
        with (scratch / "plain").open("wb", buffering=0) as file:
            file.write(block)
        plain.append(time.perf_counter() - began)
        shutil.rmtree(run)
        (scratch / "plain").unlink()
    return statistics.median(ours), statistics.median(plain)


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--train", nargs=5)
    arguments = parser.parse_args()
    if arguments.train:
        which, interval, steps, width, run = arguments.train
        print(json.dumps(train(which, int(interval), int(steps), int(width), run)))
        return
    scratch = Path(tempfile.mkdtemp())
    try:
        found: dict[tuple[str, int], list[dict[str, float]]] = {}
        for _ in range(arguments.turns):
            for interval, count in ((1, arguments.steps), (100, max(100, arguments.steps // 100 * 100))):
                for which in ("none", "ours", "smdebug"):
                    one = measure(which, interval, count, arguments.width, scratch)
                    found.setdefault((which, interval), []).append(one)
        model = found["ours", 1][0]
        print(f"model: {model['parameters']:,.0f} parameters in {model['tensors']:.0f} tensors")
        for interval in (1, 100):
            for clock in ("thread", "process"):
                step = {which: statistics.median(one[clock] for one in found[which, interval]) for which in WHICH}
                ours, theirs = step["ours"] - step["none"], step["smdebug"] - step["none"]
                print(
                    f"save_interval {interval}, CPU of the {clock}: a step takes {step['none'] * 1e3:.1f} ms; ours adds "
                    f"{ours * 1e3:.2f} ms ({ours / step['none']:.2%}), smdebug {theirs * 1e3:.2f} ms "
                    f"({theirs / step['none']:.2%}), {theirs / max(ours, 1e-9):.1f} times as much"
                )
        ours, plain = throughput(scratch, 128)
        print(f"128 MB: ours {ours * 1e3:.0f} ms, one write call {plain * 1e3:.0f} ms: {ours / plain:.2f}x")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
