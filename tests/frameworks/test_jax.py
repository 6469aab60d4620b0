"""Loops with JAX that save trees of arrays, in whole scripts."""

from __future__ import annotations

import json

import pytest

from endings.running import run_script
from frameworks.trainer_scripts import diagnosed, run
from smdwidgets import create_trial

BEGIN = """
import json, sys
import jax, jax.numpy as jnp
import numpy as np
import optax

x = jax.random.normal(jax.random.key(1), (16, 4))
y = x.sum(axis=1, keepdims=True)
optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=0.01)
"""

LIBRARIES = {
    "linen": """
from flax import linen

class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.relu(linen.Dense(3)(x)))

net = Net()
model = net.init(jax.random.key(0), x)["params"]
predict = lambda model, x: net.apply({"params": model}, x)
rest = lambda model: model
""",
    "nnx": """
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(4, 3, rngs=rngs), nnx.Linear(3, 1, rngs=rngs)
        self.drop = nnx.Dropout(0.0, rngs=rngs)
    def __call__(self, x):
        return self.second(nnx.relu(self.first(x)))

graph, model, others = nnx.split(Net(nnx.Rngs(0)), nnx.Param, ...)
predict = lambda model, x: nnx.merge(graph, model, others)(x)
rest = lambda model: nnx.merge(graph, model, others)
""",
    "equinox": """
import equinox

whole = equinox.nn.MLP(4, 1, 3, 1, key=jax.random.key(0))
model, static = equinox.partition(whole, equinox.is_inexact_array)
predict = lambda model, x: jax.vmap(equinox.combine(model, static))(x)
rest = lambda model: equinox.combine(model, static)
""",
}

TRAIN = """
state = optimizer.init(model)

@jax.jit
def update(model, state):
    loss, gradient = jax.value_and_grad(lambda model: ((predict(model, x) - y) ** 2).mean())(model)
    change, state = optimizer.update(gradient, state, model)
    return optax.apply_updates(model, change), state, loss, gradient

hook = None
if sys.argv[1] != "none":
    from smdwidgets.jax import Hook
    hook = Hook(sys.argv[1])
losses = []
for step in range(5):
    before = rest(model)
    model, state, loss, gradient = update(model, state)
    losses.append(float(loss))
    if hook is not None:
        hook.save_tree("model", before)
        hook.save_tree("gradient/model", gradient)
        hook.save_tree("optimizer", state)
        hook.save_scalar("loss", loss)
        hook.step()
if hook is not None:
    hook.close()
print("out:", json.dumps([losses, [float(each.sum()) for each in jax.tree.leaves(model)]]))
print("out:", json.dumps([np.asarray(each).tolist() for each in jax.tree.leaves(gradient)]))
"""

NAMES = {
    "linen": {
        "Dense_0/kernel": "weights",
        "Dense_0/bias": "biases",
        "Dense_1/kernel": "weights",
        "Dense_1/bias": "biases",
    },
    "nnx": {"first/kernel": "weights", "first/bias": "biases", "second/kernel": "weights", "second/bias": "biases"},
    "equinox": {
        f"layers/{i}/{part}": kind for i in (0, 1) for part, kind in (("weight", "weights"), ("bias", "biases"))
    },
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_trees_are_saved_and_the_training_is_the_same(tmp_path, library):
    script = BEGIN + LIBRARIES[library] + TRAIN
    here, gradients = run(script, tmp_path, "run")
    assert run(script, tmp_path, "none") == [here, gradients]
    trial = create_trial(tmp_path / "run")
    assert trial.steps() == list(range(5))
    names = NAMES[library]
    for kind in ("weights", "biases"):
        assert trial.tensor_names(collection=kind) == sorted(
            f"model/{name}" for name, of in names.items() if of == kind
        )
    assert trial.tensor_names(collection="gradients") == sorted(f"gradient/model/{name}" for name in names)
    assert [trial.tensor(name).value(4).tolist() for name in trial.tensor_names(collection="gradients")] == (
        sorted_by_name(json.loads(gradients), names, library)
    )
    assert [trial.tensor("scalar/loss").value(step).item() for step in range(5)] == json.loads(here)[0]
    moments = [name for name in trial.tensor_names(collection="optimizer_state") if "/mu/" in name]
    assert len(moments) == len(names)
    kinds = diagnosed(trial)
    assert kinds["scalar/loss", "GLOBAL"][0] == "loss"
    assert kinds["optimizer/hyperparams/learning_rate", "GLOBAL"][0] == "learning rate"
    assert trial.tensor("optimizer/hyperparams/learning_rate").value(3).item() == pytest.approx(0.01)
    assert trial.notes() == []


def sorted_by_name(leaves, names, library):
    """Return leaves by name; JAX sorts the keys of dictionaries only."""
    in_order = list(names) if library == "equinox" else sorted(names)
    return [leaf for _, leaf in sorted(zip(in_order, leaves, strict=True))]


FAULTS = """
from smdwidgets.hooks.loops.jax import JaxCapture
from smdwidgets.jax import Hook, SaveConfig

tree = {"w": jnp.ones((2, 3), jnp.bfloat16), "b": [np.float32(2), None, "text", jnp.ones(3, jnp.int8)], "f": jnp.sin,
        "key": jax.random.key(0)}
copies = []
class Counting(JaxCapture):
    def copy(self, name, value):
        copies.append(name)
        return super().copy(name, value)

Hook.capture_class = Counting

hook = Hook("run", save_config=SaveConfig(save_interval=2))
gone = jnp.ones(3)
gone.delete()

@jax.jit
def inside(x):
    hook.save_tree("inside", {"x": x})
    return x + 1

for step in range(4):
    hook.save_tree("tree", tree)
    hook.save_tree("gone", {"x": gone})
    inside(jnp.ones(2))
    hook.save_tree("empty", {})
    hook.step()
print("out:", sorted(set(copies)), copies.count("tree/w"))
hook.close()
hook.save_tree("tree", tree)
"""


def test_what_is_no_array_is_skipped_and_nothing_raises(tmp_path):
    done = run_script(BEGIN + FAULTS, tmp_path)
    assert done.returncode == 0, done.stderr
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("out:")]
    assert said == "out: ['gone/x', 'inside/x', 'tree/b/0', 'tree/b/3', 'tree/w'] 2"
    assert done.stderr.count("inside a compiled function") == 1
    assert done.stderr.count("gone/x") == 1
    assert done.stderr.count("the tree has no arrays") == 1
    trial = create_trial(tmp_path / "run")
    assert trial.steps() == [0, 2]
    assert trial.tensor("tree/w").value(0).astype("f4").tolist() == [[1, 1, 1], [1, 1, 1]]
    assert trial.tensor("tree/b/3").value(0).tolist() == [1, 1, 1]
    assert trial.tensor_names(collection="weights") == ["tree/b/0", "tree/w"]
