"""Copies from an accelerator: values arrive only when they are waited for.

No GPU is needed. What PyTorch does with streams is not tested here.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import nn

from frameworks.wide_training import train_wide
from smdwidgets import CapturePlan, _core, create_trial, diagnose
from smdwidgets.hooks.torch import reduce as torch_reduce
from smdwidgets.hooks.torch.device import DeviceCopies
from smdwidgets.pytorch import Hook, ReductionConfig, SaveConfig

EVERY = SaveConfig(save_interval=1)


class Late:
    """An accelerator whose copies are made when they are waited for.

    They have the values of the time when they were queued.
    """

    def __init__(self):
        self.queued = self.waits = self.allocated = self.bytes = 0
        self.waited_by = set()
        self.described = []
        self.capturing = self.fails = self.cannot_describe = False

    def has(self, tensor):
        return True

    def is_capturing(self):
        return self.capturing

    def host_memory(self, size):
        self.allocated += size
        return np.full(size, 0xEE, np.uint8)

    def copy(self, tensor, room):
        if self.fails:
            raise RuntimeError("out of page-locked memory")
        self.queued += 1
        self.bytes += tensor.nbytes
        values = tensor.clone()
        room.view(-1).view(torch.uint8).fill_(0xEE) if room.numel() else None

        def wait():
            self.waits += 1
            self.waited_by.add(threading.current_thread().name)
            room.copy_(values)
            return 0.0

        return wait

    def statistics(self, tensor, sample):
        if self.cannot_describe:
            raise RuntimeError("no compiler")
        self.described.append(tuple(tensor.shape))
        columns = _core.statistics_of([tensor.detach().numpy()])
        numbers = {name: float(column[0]) for name, column in columns.items()}
        if sample is not None:
            now = tensor.detach().flatten()[:: sample.stride][: len(sample.values)]
            if sample.is_before:
                scale = tensor.numel() / len(now)
                numbers["update"] = float((now - sample.values).double().square().sum() * scale) ** 0.5
            sample.values.copy_(now)
        return torch.tensor([*numbers.values()], dtype=torch.float64), lambda array: dict(
            zip(numbers, array, strict=True)
        )


def train(run, accelerator, steps=4, **options):
    """Train; return the losses, and the weights and gradients of each step."""
    torch.manual_seed(0)
    model, expected = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 1)), {}
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    hook = None
    if run is not None:
        hook = Hook(run, save_config=EVERY, **options)
        if accelerator is not None:
            hook.parts.tensors.devices = DeviceCopies(accelerator)
        hook.register_module(model)
    for step in range(steps):
        optimizer.zero_grad()
        weights = {f"Sequential_{name}": p.detach().clone() for name, p in model.named_parameters()}
        loss = model(torch.randn(8, 300)).square().mean()
        loss.backward()
        gradients = {f"gradient/Sequential_{name}": p.grad.clone() for name, p in model.named_parameters()}
        expected[step] = weights | gradients | {"loss_output_0": loss.detach().clone()}
        norm = torch.linalg.vector_norm(torch.cat([one.flatten().double() for one in gradients.values()]))
        expected[step]["optimizer/SGD/gradient_norm"] = norm.float()
        optimizer.step()
        losses.append(loss.item())
    if hook is not None:
        hook.close()
    return losses, expected


@pytest.mark.parametrize("accelerator", [None, Late()], ids=["memory", "accelerator"])
def test_values_are_those_of_the_training(tmp_path, accelerator):
    bare, _ = train(None, None)
    losses, expected = train(tmp_path, accelerator, include_collections=["weights", "biases", "gradients"])
    assert losses == bare
    with create_trial(tmp_path) as trial:
        assert trial.steps() == list(range(4))
        for step, values in expected.items():
            for name, tensor in values.items():
                found = np.asarray(trial.tensor(name).value(step))
                assert found.tobytes() == tensor.numpy().tobytes(), (step, name)
    if accelerator is not None:
        assert 0 < accelerator.waits <= accelerator.queued  # the copy of a loss that the script names is dropped
        # The losses are averaged where they arise. For everything else, the writer waits.
        assert "smdwidgets-writer" in accelerator.waited_by


@pytest.mark.parametrize("recorder_bytes", [0, 1 << 20])
def test_reductions_are_those_of_the_values(tmp_path, recorder_bytes):
    reductions = ReductionConfig(
        reductions=["min", "max", "mean", "std", "sum", "variance"],
        abs_reductions=["min", "max", "mean", "std"],
        norms=["l1", "l2"],
        abs_norms=["l2"],
    )
    stored = []
    accelerators = Late(), Late()
    for name, accelerator in (("memory", None), ("accelerator", accelerators[1])):
        options = {"include_collections": ["weights", "gradients"], "reduction_config": reductions}
        train(tmp_path / name, accelerator, recorder_bytes=recorder_bytes, **options)
        with create_trial(tmp_path / name) as trial:
            stored.append(
                {
                    (one, step, *pair): trial.tensor(one).reduction_value(step, pair[0], abs=pair[1])
                    for one in trial.tensor_names(regex="weight$")
                    for step in trial.steps()
                    for pair in reductions.pairs()
                }
            )
    assert len(stored[0]) == 4 * 4 * 13
    for key, value in stored[0].items():
        assert stored[1][key].dtype == value.dtype == np.float32
        np.testing.assert_allclose(stored[1][key], value, rtol=1e-6)
    if not recorder_bytes:  # the flight recorder needs the values
        assert accelerators[1].bytes < 10_000


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("special", [None, float("nan"), float("inf"), -float("inf")])
def test_reductions_by_torch_are_those_of_the_core(dtype, special, monkeypatch):
    monkeypatch.setattr(torch_reduce, "_PART", 100)
    values = torch.randn(7, 301, generator=torch.Generator().manual_seed(1)).to(dtype)
    if special is not None:
        values[3, 5] = special
    wanted = [(op, of) for op in ("min", "max", "mean", "std", "variance", "sum", "l1", "l2") for of in (False, True)]
    assert torch_reduce.can_reduce(values, wanted)
    expected = _core.reduce(values.numpy(), names=wanted)
    for pair, number in zip(wanted, torch_reduce.reduce(values.T, wanted).numpy(), strict=True):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_max_ulp(number.astype(values.numpy().dtype), expected[pair], 1)
    assert not torch_reduce.can_reduce(values.double(), wanted)
    assert not torch_reduce.can_reduce(values[:0], wanted)
    assert not torch_reduce.can_reduce(values, [("prod", False)])


def test_copies_that_fail_are_waited_for(tmp_path, caplog):
    accelerator = Late()
    accelerator.fails = True
    _, expected = train(tmp_path, accelerator, include_collections=["weights"])
    with create_trial(tmp_path) as trial:
        for step, values in expected.items():
            found = trial.tensor("Sequential_0.weight").value(step)
            assert torch.equal(torch.from_numpy(found), values["Sequential_0.weight"])
    assert sum("the training waits for copies from its device" in one.message for one in caplog.records) == 1


def test_memory_is_reused(tmp_path):
    accelerator = Late()
    train(tmp_path, accelerator, steps=40, include_collections=["weights", "gradients"], recorder_bytes=0)
    assert accelerator.allocated <= 40 << 20  # five slabs; 40 steps are 29 MB of weights and gradients each 40


def test_nothing_is_copied_while_a_graph_is_captured(tmp_path, caplog):
    accelerator = Late()
    accelerator.capturing = True
    bare, _ = train(None, None)
    losses, _ = train(tmp_path, accelerator, include_collections=["weights"])
    assert losses == bare
    assert accelerator.queued == 0
    assert sum("while the graph is captured" in one.message for one in caplog.records) <= 2


def test_statistics_of_what_nobody_keeps_come_from_the_device(tmp_path):
    accelerator = Late()
    bare, _ = train_wide(None, None)
    plan = CapturePlan(statistics=1, every=4, budget="40MB")
    losses, expected = train_wide(tmp_path, accelerator, plan=plan, recorder_bytes=1 << 20)
    assert losses == bare
    large = (4096, 80), (128, 4096)
    assert {*accelerator.described} == {*large}
    with create_trial(tmp_path) as trial:
        table = trial.statistics(columns=[*_core.statistics_of([])])
        before = None
        for step, tensors in expected.items():
            for name, tensor in tensors.items():
                row = [*zip(table["name"], table["step"], strict=True)].index((name, step))
                earlier = before if name == "Wide_first.weight" else None
                columns = _core.statistics_of([tensor.numpy()], None if earlier is None else [earlier.numpy()])
                for column, numbers in columns.items():
                    near = 0.03 if column == "update" else 1e-6
                    assert float(table[column][row]) == pytest.approx(float(numbers[0]), rel=near, nan_ok=True)
            before = tensors["Wide_first.weight"]
        for name in ("Wide_first.weight", "first_output_0"):
            assert {0, 4} <= {*trial.tensor(name).steps()} < {*expected}
            for step in trial.tensor(name).steps():
                assert torch.equal(torch.from_numpy(np.asarray(trial.tensor(name).value(step))), expected[step][name])
    copied = accelerator.bytes
    assert copied < sum(one.nbytes for tensors in expected.values() for one in tensors.values()) / 2


def test_what_the_flight_recorder_keeps_is_copied(tmp_path):
    accelerator = Late()
    _, expected = train_wide(tmp_path, accelerator, breaks=6, plan=CapturePlan(statistics=1, every=1024, budget="1GB"))
    assert accelerator.described == []
    with create_trial(tmp_path) as trial:
        assert trial.incidents()[0].step == 6
        gradient = np.asarray(trial.tensor("gradient/Wide_first.weight").value(5))
        assert torch.equal(torch.from_numpy(gradient), expected[5]["gradient/Wide_first.weight"])


def test_an_incident_is_found_in_what_was_not_copied(tmp_path):
    accelerator = Late()
    plan = CapturePlan(statistics=1, every=1024)
    train_wide(tmp_path, accelerator, breaks=6, plan=plan, recorder_bytes=1 << 20)
    assert (128, 4096) in accelerator.described
    finding = diagnose(tmp_path).findings[0]
    assert (finding.kind, finding.first) == ("input_not_finite", 6)


def test_values_of_the_first_step_fit_the_plan(tmp_path):
    accelerator = Late()
    plan = CapturePlan(statistics=1, every=4, budget="4MB")
    train_wide(tmp_path, accelerator, plan=plan, recorder_bytes=1 << 20)
    with create_trial(tmp_path) as trial:
        assert trial.tensor("Wide_last.weight").steps()
    assert accelerator.bytes < 8 << 20


def test_statistics_that_the_device_cannot_compute_are_computed_on_the_cpu(tmp_path, caplog):
    accelerator = Late()
    accelerator.cannot_describe = True
    plan = CapturePlan(statistics=1, every=1024)
    _, expected = train_wide(tmp_path, accelerator, plan=plan, recorder_bytes=1 << 20)
    with create_trial(tmp_path) as trial:
        table = trial.statistics()
        row = [*zip(table["name"], table["step"], strict=True)].index(("first_output_0", 3))
        assert table["l2"][row] == pytest.approx(float(expected[3]["first_output_0"].double().norm()))
    assert sum("statistics are computed on the CPU" in one.message for one in caplog.records) == 1
