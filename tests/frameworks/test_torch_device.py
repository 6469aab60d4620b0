"""Copies from an accelerator: values arrive only when they are waited for.

No GPU is needed. What PyTorch does with streams is not tested here.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import nn

from smdwidgets import _core, create_trial
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
        self.capturing = self.fails = False

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

        return wait


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
