"""Test hooks on compiled models.

The graph stays whole, the training is that without a hook, and every tensor is recorded.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from smdwidgets import create_trial
from smdwidgets.pytorch import Hook, SaveConfig

EVERY = SaveConfig(save_interval=1)


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    more: tuple


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.relu = nn.Linear(4, 4), nn.ReLU(inplace=True)

    def forward(self, x, *, scale):
        h = self.relu(self.linear(x))
        return Output(h * scale, (h + 1, {"sum": h.sum()}))


class Net(nn.Module):
    def __init__(self, recompute=False):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 4), Inner(), nn.Linear(4, 1)
        self.recompute = recompute

    def forward(self, x):
        x = checkpoint(self.first, x, use_reentrant=False) if self.recompute else self.first(x)
        return self.last(self.inner(x, scale=torch.tensor(2.0)).hidden)


def train(folder, compiled, warm_up=0, recompute=False, steps=2, calls=None, register=None):
    """Train; return the losses.

    `compiled` compiles the model, or is None; without a folder there is no hook.
    """
    torch.manual_seed(0)
    model = Net(recompute)
    inner = model
    model = model if compiled is None else compiled(model)
    batches = [torch.randn(3, 4) for _ in range(warm_up + steps)]
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    hook, losses = None, []
    for number, batch in enumerate(batches):
        if number == warm_up and folder is not None:
            hook = Hook(folder, save_all=True, save_config=EVERY)
            hook.register_module(model)
            hook.register_optimizer(optimizer)
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if hook is not None:
        hook.close()
    return losses


def in_place(**options):
    def compile_it(model):
        model.compile(**options)
        return model

    return compile_it


def content(folder):
    with create_trial(folder) as trial:
        return {
            (name, step): torch.from_numpy(trial.tensor(name).value(step))
            for name in trial.tensor_names()
            for step in trial.tensor(name).steps()
        }


COMPILED = {
    "eager": lambda model: torch.compile(model, backend="eager", fullgraph=True),
    "aot_eager": lambda model: torch.compile(model, backend="aot_eager", fullgraph=True),
    "inductor": lambda model: torch.compile(model, fullgraph=True),
    "in place": in_place(backend="aot_eager", fullgraph=True),
    "broken": lambda model: torch.compile(model, backend="aot_eager"),
}


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("warm_up", [0, 2])
@pytest.mark.parametrize("compiled", COMPILED)
def test_every_tensor_of_a_whole_graph(tmp_path, caplog, compiled, warm_up, recompute):
    if compiled in ("inductor", "eager") and recompute:
        pytest.skip("the same as aot_eager")
    bare = train(None, COMPILED[compiled], warm_up, recompute)
    torch._dynamo.reset()
    assert train(tmp_path / "compiled", COMPILED[compiled], warm_up, recompute) == bare
    train(tmp_path / "eager", None, warm_up, recompute)
    found, expected = content(tmp_path / "compiled"), content(tmp_path / "eager")
    assert {"inner.relu_input_0", "inner_output_2", "inner_input_1"} <= {name for name, _ in expected}
    assert sorted(found) == sorted(expected)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value)
    assert ("compiles it once more" in caplog.text) == (warm_up > 0)


def test_graph_is_not_split(tmp_path):
    torch.manual_seed(0)
    model = Net()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    with Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        compiled = torch.compile(model, backend=backend)
        hook.register_module(compiled)
        for _ in range(3):
            compiled(torch.randn(3, 4)).sum().backward()
    assert len(graphs) == 1
    assert len(content(tmp_path)) > 30


class Task(nn.Module):
    """A model whose submodules the hook follows from the start."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), nn.Linear(6, 1)

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, x, in_parts):
        return (self.head(self.body(x)) if in_parts else self(x)).square().mean()


@pytest.mark.parametrize("compiled", ["model", "part", "model after the hook"])
def test_followed_submodules_do_not_split_graphs(tmp_path, compiled):
    def train(folder):
        torch._dynamo.reset()
        torch.manual_seed(0)
        task = Task()
        optimizer = torch.optim.SGD(task.parameters(), lr=0.1)
        part = task.body if compiled == "part" else task
        hook = None if folder is None else Hook(folder, save_all=True, save_config=EVERY)
        if hook is not None and compiled == "model after the hook":
            hook.register_module(task)
        part.compile(backend="aot_eager", fullgraph=True)
        if hook is not None and compiled != "model after the hook":
            hook.register_module(task)
        losses = []
        for _ in range(6):
            loss = task.training_step(torch.randn(3, 4), in_parts=compiled == "part")
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        if hook is not None:
            hook.close()
        return losses

    assert train(tmp_path) == train(None)
    with create_trial(tmp_path) as trial:
        assert trial.steps() == list(range(6))
        assert trial.tensor("body.1_output_0").steps() == trial.tensor("body.0_input_0").steps() == list(range(6))
        assert "body_output_1" not in trial.tensor_names()


def test_closed_hook_leaves_compiled_code_that_works(tmp_path):
    model = Net()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(compiled)
        compiled(torch.randn(3, 4)).sum().backward()
    compiled(torch.randn(3, 4)).sum().backward()
    with create_trial(tmp_path) as trial:
        assert trial.steps() == [0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copy_of_a_hooked_model_is_compiled_without_the_hook(tmp_path, copied):
    with Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(model := Net())
        model(torch.randn(3, 4)).sum().backward()
        other = torch.compile(copied(model), backend="aot_eager", fullgraph=True)
        other(torch.randn(3, 4)).sum().backward()
    with create_trial(tmp_path) as trial:
        assert trial.steps() == [0]


def test_failing_hook_does_not_stop_a_compiled_training(tmp_path, caplog, monkeypatch):
    bare = train(None, COMPILED["aot_eager"])
    torch._dynamo.reset()
    monkeypatch.setattr(Hook, "_capture_all", lambda *_: 1 / 0)
    assert train(tmp_path, COMPILED["aot_eager"]) == bare
    assert caplog.text.count("ZeroDivisionError") == 1


def test_inference_mode_and_no_grad(tmp_path):
    model = Net()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(compiled)
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                x = torch.randn(3, 4)
                y = compiled(x)
        hook.close()
    if found := content(tmp_path):
        last = max(step for _, step in found)
        assert torch.equal(found["Net_output_0", last], y)
        assert torch.equal(found["Net_input_0", last], x)


def test_functional_call_does_not_record_the_values_passed_to_it(tmp_path):
    """`functional_call` returns the same with and without a hook.

    It is called with tensors, alone and under `torch.func.grad`.
    """
    torch.manual_seed(0)
    model = Net()
    x = torch.randn(3, 4)
    parameters = {name: p.detach() + 1 for name, p in model.named_parameters()}

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (x,)).sum()

    bare = loss(parameters), torch.func.grad(loss)(parameters)
    with Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(model)
        hooked = loss(parameters), torch.func.grad(loss)(parameters)
        model(x).sum().backward()
    assert torch.equal(bare[0], hooked[0])
    assert all(torch.equal(bare[1][name], hooked[1][name]) for name in parameters)
    found = content(tmp_path)
    last = max(step for _, step in found)
    assert torch.equal(found["Net_first.weight", last], model.first.weight.detach())
