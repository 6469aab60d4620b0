"""What a hook costs a PyTorch training: ours beside smdebug 1.0.34's, on the same model in the same run.

    make test-frameworks ARGS=torch          # once: makes .venv-torch
    PYTHONPATH=python .venv-torch/bin/python tests/benchmarks/bench_hooks.py

Two equal models are trained in one process, step by step in turn, one of them with the hook: what its steps take longer is
what the hook adds. Seconds are CPU seconds of the training's thread, which other processes on the machine stretch less
than the wall clock; beside them those of all other threads of the process, the writer's. The model is a residual network
on 32x32 images; weights, biases, gradients and losses are saved. ours and smdebug take turns, and medians are compared.
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
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve()
WHICH = ("ours", "smdebug")
COLLECTIONS = ["weights", "biases", "gradients", "losses"]


def train(which: str, interval: int, steps: int, width: int, batch: int, run: str) -> dict[str, float]:
    """One training beside a bare one; CPU seconds a step."""
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

    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            Block(width),
            stage(width, 2 * width),
            stage(2 * width, 4 * width),
            stage(4 * width, 8 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8 * width, 10),
        )

    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))

    def trainer(model: nn.Module, criterion: nn.Module) -> Callable[[], float]:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def step() -> float:
            began = time.thread_time()
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            return time.thread_time() - began

        return step

    if which == "ours":
        import smdwidgets.pytorch as smd
    else:
        import smdebug.pytorch as smd
    hooked, criterion = network(), nn.CrossEntropyLoss()
    hook = smd.Hook(out_dir=run, include_collections=COLLECTIONS, save_config=smd.SaveConfig(save_interval=interval))
    hook.register_module(hooked)
    hook.register_loss(criterion)
    with_hook, bare = trainer(hooked, criterion), trainer(network(), nn.CrossEntropyLoss())
    for _ in range(5):  # past the first, which find no buffers to use again
        with_hook(), bare()
    thread, process = time.thread_time(), time.process_time()
    pairs = [(with_hook(), bare()) for _ in range(steps)]
    thread = time.thread_time() - thread
    hook.close()  # what waits to be written is paid for too
    process = time.process_time() - process
    added = [long - short for long, short in pairs]
    return {
        # One saved step in a hundred must count: the mean. All steps alike: the median, which strangers disturb less.
        "added": statistics.median(added) if interval == 1 else statistics.fmean(added),
        "step": statistics.median(short for _, short in pairs),
        "others": (process - thread) / steps,
        "parameters": float(sum(parameter.numel() for parameter in hooked.parameters())),
        "tensors": float(sum(1 for _ in hooked.parameters())),
    }


def measure(which: str, interval: int, steps: int, width: int, batch: int, scratch: Path) -> dict[str, float]:
    """:func:`train` in a process of its own."""
    run = scratch / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, str(HERE), "--train", which, str(interval), str(steps), str(width), str(batch), str(run)]
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
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--train", nargs=6)
    arguments = parser.parse_args()
    if arguments.train:
        which, interval, steps, width, batch, run = arguments.train
        print(json.dumps(train(which, int(interval), int(steps), int(width), int(batch), run)))
        return
    scratch = Path(tempfile.mkdtemp())
    try:
        found: dict[tuple[str, int], list[dict[str, float]]] = {}
        for _ in range(arguments.turns):
            for interval, count in ((1, arguments.steps), (100, 200)):
                for which in WHICH:
                    batch = arguments.batch if interval == 1 else max(1, arguments.batch // 4)
                    one = measure(which, interval, count, arguments.width, batch, scratch)
                    found.setdefault((which, interval), []).append(one)
        model = found["ours", 1][0]
        print(f"model: {model['parameters']:,.0f} parameters in {model['tensors']:.0f} tensors")
        for interval in (1, 100):
            middle = {
                (which, key): statistics.median(one[key] for one in found[which, interval])
                for which in WHICH
                for key in ("added", "step", "others")
            }
            print(f"save_interval {interval}:")
            for which in WHICH:
                added, step = middle[which, "added"], middle[which, "step"]
                print(
                    f"  {which}: a step of {step * 1e3:.1f} ms takes {added * 1e3:.2f} ms more ({added / step:.2%}); "
                    f"other threads {middle[which, 'others'] * 1e3:.2f} ms"
                )
            print(f"  smdebug adds {middle['smdebug', 'added'] / middle['ours', 'added']:.1f} times what ours adds")
        ours, plain = throughput(scratch, 128)
        print(f"128 MB: ours {ours * 1e3:.0f} ms, one write call {plain * 1e3:.0f} ms: {ours / plain:.2f}x")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
