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

from smdwidgets import CapturePlan, create_trial
from smdwidgets.hooks.torch.module_calls import ModuleCalls
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


REGISTERED = ["wrapper", "model inside", "in place", "in place after the hook", "each part"]


def graphs_of_a_default_training(folder, registered, warm_up=0, hook_of=Hook):
    """Return the operators of the graphs and the losses of a default training."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    operators = []

    def backend(graph, inputs):
        operators.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    called, hook, losses = model, None, []
    if registered == "in place":
        model.compile(backend=backend, fullgraph=True)
    elif registered == "each part":
        model.inner.compile(backend=backend, fullgraph=True)
        model.last = torch.compile(model.last, backend=backend, fullgraph=True)
    elif registered != "in place after the hook":
        called = torch.compile(model, backend=backend, fullgraph=True)
    for step in range(warm_up + 4):
        if step == warm_up and folder is not None:
            hook = hook_of(folder)
            hook.register_module(model if registered != "wrapper" else called)
        if step == 0 and registered == "in place after the hook":
            model.compile(backend=backend, fullgraph=True)
        loss = called(torch.randn(3, 4)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if hook is not None:
        hook.close()
    return operators, losses


@pytest.mark.parametrize("warm_up", [0, 2])
@pytest.mark.parametrize("registered", REGISTERED)
def test_default_plan_leaves_graphs_as_they_are(tmp_path, caplog, registered, warm_up):
    if registered == "in place after the hook" and warm_up:
        pytest.skip("compiled after the hook was registered")
    bare = graphs_of_a_default_training(None, registered, warm_up)
    assert graphs_of_a_default_training(tmp_path, registered, warm_up) == bare
    assert "once more" not in caplog.text
    found = content(tmp_path)
    names = {name for name, _ in found}
    assert {"Net_input_0", "Net_output_0", "loss_output_0", "optimizer/SGD/learning_rate_0"} <= names
    assert {f"{prefix}Net_inner.linear.weight" for prefix in ("", "gradient/")} <= names
    inside = {name for name in names if name.startswith(("first_", "inner_", "inner.", "last_"))}
    if registered == "each part":
        assert {name.split("_")[0] for name in inside} == {"first", "last"}
    else:
        assert not inside
    for name in names:
        assert len([step for other, step in found if other == name]) == 4


CHOSEN = {
    "save_all": lambda folder: Hook(folder, save_all=True),
    "a collection": lambda folder: Hook(folder, include_collections=["activations"], plan=CapturePlan()),
    "a plan": lambda folder: Hook(folder, plan=CapturePlan(tensors=["weights", "activations"])),
    "modules": lambda folder: with_linear_layers(Hook(folder)),
}


def with_linear_layers(hook):
    hook.collection("linear", modules=nn.Linear)
    return hook


@pytest.mark.parametrize("chosen", CHOSEN)
def test_chosen_activations_of_compiled_models_are_saved(tmp_path, chosen):
    operators, _ = graphs_of_a_default_training(tmp_path, "wrapper", hook_of=CHOSEN[chosen])
    assert len(operators) == 1
    names = {name for name, _ in content(tmp_path)}
    assert {"first_output_0", "inner.linear_input_0", "Net_output_0"} <= names
    assert ("inner.relu_output_0" in names) == (chosen != "modules")


@pytest.mark.parametrize("chosen", [{}, {"save_all": True}])
@pytest.mark.parametrize("compiled", ["aot_eager", "in place"])
def test_graph_of_a_class_of_pytorch_is_not_split(tmp_path, compiled, chosen):
    """torch.compile traces the callbacks of these classes with their forward pass."""
    model = COMPILED[compiled](nn.Sequential(nn.Linear(4, 2), nn.ReLU()))
    with Hook(tmp_path, **chosen) as hook:
        hook.register_module(model)
        x = torch.randn(3, 4)
        y = model(x)
        y.sum().backward()
    found = content(tmp_path)
    assert torch.equal(found["Sequential_input_0", 0], x)
    assert torch.equal(found["Sequential_output_0", 0], y.detach())
    assert ("1_output_0" in {name for name, _ in found}) == bool(chosen)


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
    monkeypatch.setattr(ModuleCalls, "capture_all", lambda *_: 1 / 0)
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


def train_with_compiled_update(folder, what, **options):
    """Train with a compiled update or step; return the losses."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), torch.tensor(1e-2))
    hook = None if folder is None else Hook(folder, **options)
    if hook is not None:
        hook.register_module(model)

    def forward_and_backward(batch):
        loss = model(batch).square().mean()
        loss.backward()
        return loss

    def clipped_update():
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    update = optimizer.step
    if what == "update":
        update = torch.compile(optimizer.step, backend="eager")
    elif what == "clipped update":
        update = torch.compile(clipped_update, backend="aot_eager")
    else:
        forward_and_backward = torch.compile(forward_and_backward, backend="eager")
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        losses.append(forward_and_backward(torch.randn(3, 4)).item())
        update()
    if hook is not None:
        hook.close()
    return losses


@pytest.mark.parametrize("what", ["update", "clipped update", "forward and backward"])
def test_compiled_update_is_that_without_a_hook(tmp_path, caplog, what):
    assert train_with_compiled_update(tmp_path, what) == train_with_compiled_update(None, what)
    with create_trial(tmp_path) as trial:
        assert trial.steps() == list(range(5))
        for name in (
            "loss_output_0",
            "gradient/Net_inner.linear.weight",
            "optimizer/AdamW/gradient_norm",
            "Net_output_0",
        ):
            assert trial.tensor(name).steps() == list(range(5))
        assert not trial.notes()
    assert not [record for record in caplog.records if record.name.startswith("smdwidgets")]


def test_other_compiled_code_stays(tmp_path, caplog):
    """What else was compiled is not compiled again."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x.sin() + 1, backend=backend)
    other = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend=backend)
    x = torch.randn(3, 4)
    function(x), other(x)
    before = len(graphs)
    train(tmp_path, None)
    function(x), other(x)
    assert len(graphs) == before
    assert "once more" not in caplog.text


def test_only_the_compiled_model_is_compiled_again(tmp_path, caplog):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x.sin() + 1, backend=backend)
    x = torch.randn(3, 4)
    function(x)
    model = Net()
    called = torch.compile(model, backend=backend)
    called(x)
    assert len(graphs) == 2
    with Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(model)  # the wrapper is the script's
        called(x).sum().backward()
        function(x)
    assert len(graphs) == 3
    assert "once more" in caplog.text
    assert "inner.relu_input_0" in {name for name, _ in content(tmp_path)}
