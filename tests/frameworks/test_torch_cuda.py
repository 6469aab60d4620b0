"""Trainings on a GPU.

Values are exact, results equal, nothing waits for the device, and statistics are those of the core. Without a GPU, only
the kernels are tested, by Triton's interpreter.
"""

from __future__ import annotations

import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from frameworks.wide_training import train_wide
from smdwidgets import CapturePlan, _core, create_trial, diagnose
from smdwidgets import pytorch as smd
from smdwidgets.hooks.torch.device import sample_of
from smdwidgets.pytorch import Hook, SaveConfig

EVERY = SaveConfig(save_interval=1)
#: Counts that only types of 8 and 4 bits have.
LIMITS = ("saturated", "subnormal")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def elements(tensor):
    """Return the elements as NumPy has them."""
    host = tensor.detach().cpu()
    return host.view(torch.int16).numpy().view(np.uint16) if host.dtype is torch.bfloat16 else host.numpy()


def of_core(tensor, before=None):
    """Return the statistics that the core computes."""
    earlier = None if before is None else [elements(before)]
    columns = _core.statistics_of([elements(tensor)], earlier, [str(tensor.dtype).removeprefix("torch.")])
    return {name: float(column[0]) for name, column in columns.items() if name not in LIMITS}


def assert_same(statistics, expected, change=1e-9, near=1e-9):
    for name, number in expected.items():
        within = change if name == "update" else near
        assert statistics[name] == pytest.approx(number, rel=within, abs=1e-9, nan_ok=True), name


KERNELS = """
import os

os.environ["TRITON_INTERPRET"] = "1"
import torch
from frameworks import test_torch_cuda as tests
from smdwidgets.hooks.torch import device_statistics

device_statistics._BLOCK, device_statistics._PROGRAMS, device_statistics._LAUNCH = 256, 3, 4096
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for number in (1, 255, 256, 257, 5000):
        for special in (None, "some", "all"):
            tests.compare(tests.values(number, dtype, special, "cpu"))
"""


def values(number, dtype, special, device):
    tensor = (3 * torch.randn(number, generator=torch.Generator().manual_seed(number))).to(dtype)
    tensor[number // 3] = 0
    if special == "some":
        tensor[0], tensor[-1], tensor[number // 2] = math.nan, math.inf, -math.inf
    elif special == "all":
        tensor[:] = math.nan
    return tensor.to(device)


def compare(tensor):
    """Compare statistics by the kernels with those by the core."""
    from smdwidgets.hooks.torch import device_statistics

    before = (tensor.float() * 1.01).to(tensor.dtype)
    sample = sample_of(tensor)
    device_statistics.describe(before, sample)
    sample.is_before = True
    numbers, combine = device_statistics.describe(tensor, sample)
    is_whole = sample.stride == 1
    assert_same(combine(numbers.cpu().numpy()), of_core(tensor, before), change=1e-9 if is_whole else 0.02)


def test_kernels_compute_the_statistics_of_the_core(repository):
    pytest.importorskip("triton")
    paths = f"import sys; sys.path[:0] = {[str(repository / 'tests'), *sys.path]!r}\n"
    done = subprocess.run([sys.executable, "-c", paths + KERNELS], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@on_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("special", [None, "some", "all"])
def test_statistics_on_the_gpu_are_those_of_the_core(dtype, special):
    for number in (1, 255, 2048, 2049, 300_001, 40_000_003):
        compare(values(number, dtype, special, "cuda"))
    compare(values(300 * 700, dtype, special, "cuda").reshape(300, 700).T)


def train(run, steps=6, autocast=None, aside=False, scaled=False, hook=None):
    """Train; return the losses, and the weights, gradients and outputs of each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 300), nn.LayerNorm(300), nn.ReLU(), nn.Linear(300, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0, enabled=scaled)
    outputs, expected, losses = [], {}, []
    model[3].register_forward_hook(lambda module, inputs, output: outputs.append(output.detach().clone()))
    recording = None if run is None else (hook or smd.record)(model, run)
    stream = torch.cuda.Stream() if aside else torch.cuda.current_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step in range(steps):
            optimizer.zero_grad()
            weights = {f"Sequential_{name}": one.detach().clone() for name, one in model.named_parameters()}
            with torch.autocast("cuda", autocast or torch.bfloat16, enabled=autocast is not None):
                loss = model(torch.randn(8, 300, device="cuda")).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            gradients = {f"gradient/Sequential_{name}": one.grad.clone() for name, one in model.named_parameters()}
            scaler.step(optimizer)
            scaler.update()
            expected[step] = weights | gradients | {"3_output_0": outputs[-1]}
            losses.append(loss.detach().clone())
    torch.cuda.synchronize()
    if recording is not None:
        recording.close()
    return [one.item() for one in losses], expected


def whole(model, run):
    """Record everything at every step."""
    hook = Hook(run, save_config=EVERY, save_all=True)
    hook.register_module(model)
    return hook


@on_gpu
@pytest.mark.parametrize(
    "options",
    [{}, {"autocast": torch.bfloat16}, {"autocast": torch.float16, "scaled": True}, {"aside": True}],
    ids=["float32", "bfloat16", "float16 with a scaler", "another stream"],
)
def test_values_are_those_of_the_training(tmp_path, options):
    bare, _ = train(None, **options)
    losses, expected = train(tmp_path, **options, hook=whole)
    assert losses == bare
    with create_trial(tmp_path) as trial:
        assert trial.steps() == [*expected]
        for step, tensors in expected.items():
            for name, tensor in tensors.items():
                assert np.asarray(trial.tensor(name).value(step)).tobytes() == elements(tensor).tobytes(), (step, name)


@on_gpu
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "complex64"])
def test_types_of_elements(tmp_path, name):
    hook = Hook(tmp_path, save_config=EVERY)
    dtype = getattr(torch, name)
    tensor = (3 * torch.randn(64, 64, device="cuda")).to(dtype)
    hook.save_tensor("saved", tensor)
    hook.step()
    hook.close()
    wide = torch.complex128 if dtype.is_complex else torch.float64
    with create_trial(tmp_path) as trial:
        expected = elements(tensor.to(wide))
        assert np.array_equal(np.asarray(trial.tensor("saved").value(0)).astype(expected.dtype), expected)


@on_gpu
def test_what_nobody_keeps_is_reduced_on_the_gpu(tmp_path):
    bare, _ = train_wide(None, device="cuda")
    plan = CapturePlan(statistics=1, every=4, budget="50MB")
    losses, kept = train_wide(tmp_path, device="cuda", plan=plan, recorder_bytes=1 << 20)
    assert losses == bare
    with create_trial(tmp_path) as trial:
        table = trial.statistics()
        before = None
        for step, tensors in kept.items():
            for name, tensor in tensors.items():
                row = [*zip(table["name"], table["step"], strict=True)].index((name, step))
                expected = of_core(tensor, before if name == "Wide_first.weight" else None)
                found = {column: float(table[column][row]) for column in expected}
                assert_same(found, expected, change=0.05, near=1e-6)
            before = tensors["Wide_first.weight"]


@on_gpu
def test_nan_is_named_although_nothing_was_copied(tmp_path):
    plan = CapturePlan(statistics=1, every=1024)
    train_wide(tmp_path, steps=12, breaks=9, device="cuda", plan=plan, recorder_bytes=1 << 20)
    finding = diagnose(tmp_path).findings[0]
    assert (finding.kind, finding.first) == ("input_not_finite", 9)


@on_gpu
def test_training_never_waits_for_the_device(tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.Embedding(50, 32), layer, nn.Linear(32, 50)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    tokens = torch.randint(0, 50, (100, 16, 20), device="cuda")
    hook = smd.record(model, tmp_path)
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for one in tokens:
                optimizer.zero_grad()
                F.cross_entropy(model(one).flatten(0, 1), one.flatten()).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    hook.close()
    assert [str(one.message) for one in caught if "called a synchronizing" in str(one.message)] == []


@on_gpu
def test_a_captured_graph_trains_as_without_a_hook(tmp_path, caplog):
    results = []
    for run in (None, tmp_path):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        hook = None if run is None else smd.record(model, run)
        inputs = torch.randn(16, 64, device="cuda")

        def step(model=model, optimizer=optimizer, inputs=inputs):
            optimizer.zero_grad(set_to_none=True)
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(4):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        losses = []
        for number in range(50):
            inputs.normal_(generator=torch.Generator("cuda").manual_seed(number))
            graph.replay()
            losses.append(loss.item())
        results.append(losses)
        if hook is not None:
            hook.close()
    assert results[0] == results[1]
    assert sum("while the graph is captured" in one.message for one in caplog.records) <= 2
