"""The gradient noise scale that the hook of PyTorch measures.

The problems have a known noise scale.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import smdwidgets
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.pytorch import record

#: The gradient of an example is ``place - example``: the norm of ``place`` squared is 4, an example has variance 9.
SHAPE, DEVIATION, SQUARED_NORM = (32, 40), 0.5, 4.0
EXACT = 32 * 40 * DEVIATION**2 / SQUARED_NORM


class Quadratic(nn.Module):
    """Half the squared distance of a point from examples around zero."""

    def __init__(self):
        super().__init__()
        elements = SHAPE[0] * SHAPE[1]
        self.place = nn.Parameter(torch.full(SHAPE, (SQUARED_NORM / elements) ** 0.5))
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, examples):
        return 0.5 * (self.place - examples).square().sum((1, 2)).mean()


def train(directory, updates=60, examples=8, micro_batches=4, each=None, model=None, **options):
    """Train at a rate of 0, so that the noise scale stays the same; return the model."""
    torch.manual_seed(0)
    model = Quadratic() if model is None else model
    generator = torch.Generator().manual_seed(options.pop("seed", 0))
    hook = None if directory is None else record(model, directory, recorder_bytes=0, **options)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    for update in range(updates):
        for _ in range(micro_batches):
            batch = DEVIATION * torch.randn(examples, *SHAPE, generator=generator)
            (model(batch) / micro_batches).backward()
        if each is not None:
            each(update, model)
        optimizer.step()
        optimizer.zero_grad()
    if hook is not None:
        hook.close()
    return model


def scale_of(run, window=1000):
    return smdwidgets.create_trial(run).noise_scale(window)


def test_the_noise_scale_of_a_known_problem_is_measured(tmp_path):
    train(tmp_path / "run")
    found = scale_of(tmp_path / "run")
    assert found.low[-1] < EXACT < found.high[-1]
    assert found.value == pytest.approx(EXACT, rel=0.1)
    assert found.signal.mean() * 16 == pytest.approx(SQUARED_NORM, rel=0.05)  # the loss was divided by 4
    assert (found.batch, found.unit) == (32, "examples")


def test_elements_of_large_tensors_stand_for_all(tmp_path, monkeypatch):
    monkeypatch.setattr("smdwidgets.signals.torch.micro_batches._ELEMENTS", 64)
    train(tmp_path / "run", 120, 16, 8)
    found = scale_of(tmp_path / "run")
    assert found.value == pytest.approx(EXACT, rel=0.15)
    assert found.noise.mean() * 64 == pytest.approx(EXACT * SQUARED_NORM, rel=0.1)


def test_gradients_are_read_before_they_are_clipped(tmp_path):
    train(
        tmp_path / "run", each=lambda update, model: nn.utils.clip_grad_norm_(model.parameters(), 1e-3 * (update + 1))
    )
    assert scale_of(tmp_path / "run").value == pytest.approx(EXACT, rel=0.1)


def test_the_training_is_bit_equal_and_no_hook_stays(tmp_path):
    def trained(directory):
        gradients = []
        train(directory, 20, each=lambda update, model: gradients.append(model.place.grad.clone()))
        return gradients

    alone, recorded = trained(None), trained(tmp_path / "run")
    assert all(torch.equal(one, two) for one, two in zip(alone, recorded, strict=True))
    model = train(tmp_path / "other", 20)
    assert not model.place._backward_hooks
    assert len(scale_of(tmp_path / "other").steps) > 3


def test_one_backward_pass_for_an_update_shows_no_noise(tmp_path):
    train(tmp_path / "run", 12, micro_batches=1)
    with pytest.raises(SMDebugValueError, match=r"one backward pass in one process.*accumulate the gradients"):
        scale_of(tmp_path / "run")


def test_backward_passes_of_several_losses_are_no_micro_batches(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.place = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return (self.place * x).sum(), (self.place**2).sum()

    model = Two()
    hook = record(model, tmp_path / "run", recorder_bytes=0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(12):
        for loss in model(torch.ones(3, 4)):
            loss.backward()
        optimizer.step()
    hook.close()
    with pytest.raises(SMDebugValueError, match="several backward passes belong to one pass"):
        scale_of(tmp_path / "run")


def test_micro_batches_of_several_sizes_are_left_out(tmp_path):
    model = Quadratic()
    hook = record(model, tmp_path / "run", recorder_bytes=0)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    for update in range(24):
        for size in (8, 8 if update % 2 else 3):
            model(torch.randn(size, *SHAPE)).backward()
        optimizer.step()
        optimizer.zero_grad()
    hook.close()
    found = scale_of(tmp_path / "run")
    assert set(found.steps % 2) <= {1}


def test_two_optimizers_end_one_update(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    hook = record(model, tmp_path / "run", recorder_bytes=0)
    optimizers = [torch.optim.SGD(one.parameters(), 0.01) for one in model]
    for _ in range(20):
        for _ in range(2):
            model(torch.randn(16, 4)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    hook.close()
    found = scale_of(tmp_path / "run")
    assert len(found.steps) > 3
    assert found.batch == 32


def test_recomputed_activations_and_shared_weights_give_whole_gradients(tmp_path):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Quadratic):
        def forward(self, examples):
            def part(x):
                return 0.25 * (self.place - x).square().sum((1, 2)).mean()

            return part(examples) + checkpoint(part, examples.requires_grad_(), use_reentrant=True)

    train(tmp_path / "run", model=Checkpointed())
    assert scale_of(tmp_path / "run").value == pytest.approx(EXACT, rel=0.1)


def test_a_failure_is_said_and_does_not_reach_the_training(tmp_path, monkeypatch):
    def fails(*args):
        raise RuntimeError("planted")

    monkeypatch.setattr("smdwidgets.signals.torch.micro_batches._read", fails)
    model = train(tmp_path / "run", 20)
    assert not model.place._backward_hooks
    signals = smdwidgets.create_trial(tmp_path / "run").signals()
    assert "planted" in signals.off["gradient_noise"]
    assert "update_ratio" in signals.kinds


def test_a_compiled_model_is_measured_without_a_second_graph(tmp_path):
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    model = torch.compile(Quadratic(), backend=count)
    train(tmp_path / "run", model=model)
    assert len(graphs) == 1
    assert scale_of(tmp_path / "run").value == pytest.approx(EXACT, rel=0.1)


def rank(number, folder, micro_batches):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}.store", rank=number, world_size=2)
    model = DistributedDataParallel(Quadratic(), find_unused_parameters=True)
    hook = record(model, folder, recorder_bytes=0, include_workers="all")
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    generator = torch.Generator().manual_seed(number)
    for _ in range(40):
        for place in range(micro_batches):
            model.require_backward_grad_sync = place == micro_batches - 1
            batch = DEVIATION * torch.randn(8, *SHAPE, generator=generator)
            (model(batch) / micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad()
    hook.close()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_processes_that_average_gradients_are_measured(tmp_path, micro_batches):
    torch.multiprocessing.spawn(rank, (str(tmp_path / "run"), micro_batches), nprocs=2)
    trial = smdwidgets.create_trial(tmp_path / "run")
    assert {one.worker for one in trial.signals("gradient_noise")} == {"worker_0", "worker_1"}
    found = trial.noise_scale(1000)
    assert found.batch == 16 * micro_batches
    assert found.value == pytest.approx(EXACT, rel=0.15)
