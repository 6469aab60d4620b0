"""Checks of trainings with JAX, in whole scripts.

The examples of docs/checks.md, planted faults and their repair, healthy trainings, equal results.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from frameworks.check_examples import PAGE, is_right, outcomes, run_scripts, runner_of
from python.launch.launching import Place
from smdwidgets import create_trial, diagnose
from smdwidgets.finding import CHECKS

TEXT = PAGE.read_text(encoding="utf-8")
WITH_EXAMPLE = [one.id for one in CHECKS if runner_of(TEXT, one.id) == Path(__file__).name]

BEGIN = """
import jax, jax.numpy as jnp
import numpy as np
import optax
import tempfile
from flax import linen
from smdwidgets.jax import Hook

CHECKS = globals().get("CHECKS", True)
x = jax.random.normal(jax.random.key(0), (64, 4))
y = x.sum(1, keepdims=True)
class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.relu(linen.Dense(8)(x)))
net = Net()
predict = lambda params, x: net.apply({"params": params}, x)
start = net.init(jax.random.key(1), x)["params"]
error = lambda params, x: ((predict(params, x) - y) ** 2).mean()
scaled = optax.inject_hyperparams(optax.adam)(learning_rate=0.01)

def train(optimizer=scaled, params=start, loss=error, keep=True, steps=20, saves=("model", "gradient/model", "optimizer"), change=None,
          inputs=None, updates=None):
    state = optimizer.init(params)
    @jax.jit
    def update(params, state):
        gradient = jax.grad(loss)(params, x)
        change, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, change), state, gradient, change
    with Hook(tempfile.mkdtemp() + "/run", checks=CHECKS) as hook:
        for step in range(steps):
            new, state, gradient, changes = update(params, state)
            trees = {"model": params, "gradient/model": change(gradient) if change else gradient, "optimizer": state}
            for name in saves:
                hook.save_tree(name, trees[name])
            if updates is not None:
                hook.save_tree("update/model", updates(changes))
            if inputs is not None:
                hook.save_tensor("x", inputs(step), "inputs")
            hook.step()
            params = new if keep else params
    return params

def show(params):
    print(*[float(one.sum()).hex() for one in jax.tree.leaves(params)])
"""

FLAT = "lambda g: jax.tree.map(lambda one: one.reshape(-1), g)"
#: What fires, the fault, and its repair.
PLANTED = {
    "new weights are not kept": ("weights_unchanged", "train(keep=False)", "train()"),
    "all updates are masked": (
        "weights_unchanged",
        "train(optax.masked(optax.set_to_zero(), True))",
        "train(optax.masked(optax.sgd(0.1), True))",
    ),
    "updates of 0": (
        "weights_unchanged",
        "train(optax.scale(0.0), saves=('model', 'gradient/model'), updates=lambda u: u)",
        "train(optax.scale(-0.01), saves=('model', 'gradient/model'), updates=lambda u: u)",
    ),
    "no gradient": (
        "no_gradient",
        "train(loss=lambda p, x: error(jax.lax.stop_gradient(p), x))",
        "train(loss=error)",
    ),
    "rounded": (
        "no_gradient",
        "train(loss=lambda p, x: jnp.round(error(p, x)))",
        "train(loss=error)",
    ),
    "flat gradients": ("tree_mismatch", f"train(change={FLAT})", "train()"),
    "flat updates": (
        "tree_mismatch",
        f"train(updates={FLAT})",
        "train(updates=lambda u: u)",
    ),
    "by the inputs": (
        "tree_mismatch",
        "train(change=lambda g: jax.grad(error, argnums=1)(start, x))",
        "train(change=lambda g: jax.grad(error)(start, x))",
    ),
    "broadcast by an update": (
        "tree_mismatch",
        """
w = jnp.zeros((4, 1))
with Hook(tempfile.mkdtemp() + "/run", checks=True) as hook:
    for step in range(4):
        gradient = jax.grad(lambda w: ((x @ w).mean(1, keepdims=True) - y).var())(w)
        hook.save_tree("model", {"w": w}), hook.save_tree("gradient/model", {"w": gradient}), hook.step()
        w = optax.apply_updates(w, -0.1 * gradient[:, 0])
""",
        "train()",
    ),
    "equal rows": (
        "equal_rows",
        "train(inputs=lambda step: jnp.broadcast_to(x[step], x.shape))",
        "train(inputs=lambda step: x)",
    ),
    "zeros": (
        "zero_batch",
        "train(inputs=lambda step: x * (step % 4 == 0))",
        "train(inputs=lambda step: x + step)",
    ),
}
HEALTHY = {
    "adam": "show(train())",
    "sgd": "show(train(optax.sgd(0.1)))",
    "warms up": "show(train(optax.inject_hyperparams(optax.adam)(optax.linear_schedule(0.0, 0.01, 10))))",
    "cosine": "show(train(optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.01, 5, 20))))",
    "accumulates": "show(train(optax.MultiSteps(optax.adam(0.01), 10)))",
    "frozen part": """
labels = {"Dense_0": "frozen", "Dense_1": "trained"}
show(train(optax.multi_transform({"frozen": optax.set_to_zero(), "trained": optax.adam(0.01)}, labels)))
""",
    "stopped part": """
def loss(p, x):
    return error({**p, "Dense_0": jax.lax.stop_gradient(p["Dense_0"])}, x)
show(train(loss=loss))
""",
    "weights only": "show(train(saves=('model',)))",
    "gradients only": "show(train(saves=('gradient/model',)))",
    "updates": "show(train(updates=lambda u: u))",
    "inputs": "show(train(inputs=lambda step: x))",
    "half": "show(train(optax.sgd(0.05), jax.tree.map(lambda one: one.astype(jnp.bfloat16), start)))",
    "target network": """
params, target = start, start
optimizer = optax.adam(0.01); state = optimizer.init(params)
with Hook(tempfile.mkdtemp() + "/run", checks=CHECKS) as hook:
    for step in range(24):
        gradient = jax.grad(lambda p: ((predict(p, x) - predict(target, x) - y) ** 2).mean())(params)
        hook.save_tree("online", params), hook.save_tree("target", target)
        hook.save_tree("gradient/online", gradient), hook.save_tree("optimizer", state), hook.step()
        change, state = optimizer.update(gradient, state)
        params = optax.apply_updates(params, change)
show(params)
""",
    "evaluation": """
from smdwidgets.jax import modes
params = start
optimizer = optax.sgd(0.1); state = optimizer.init(params)
with Hook(tempfile.mkdtemp() + "/run", checks=CHECKS) as hook:
    for step in range(12):
        gradient = jax.grad(error)(params, x)
        for mode in (modes.TRAIN, *[modes.EVAL] * 12):
            hook.set_mode(mode)
            hook.save_tree("model", params), hook.save_tree("gradient/model", gradient), hook.step()
        change, state = optimizer.update(gradient, state)
        params = optax.apply_updates(params, change)
show(params)
""",
    "donated": """
optimizer = optax.adam(0.01)
def update(params, state):
    gradient = jax.grad(error)(params, x)
    change, state = optimizer.update(gradient, state)
    return optax.apply_updates(params, change), state, gradient
compiled = jax.jit(update, donate_argnums=(0, 1))
params = jax.tree.map(jnp.copy, start); state = optimizer.init(params)
with Hook(tempfile.mkdtemp() + "/run", checks=CHECKS) as hook:
    for step in range(12):
        hook.save_tree("model", params), hook.save_tree("optimizer", state)
        params, state, gradient = compiled(params, state)
        hook.save_tree("gradient/model", gradient), hook.step()
show(params)
""",
    "nnx": """
from flax import nnx
model = nnx.Linear(4, 1, rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
with Hook(tempfile.mkdtemp() + "/run", checks=CHECKS) as hook:
    for step in range(12):
        gradient = nnx.grad(lambda model: ((model(x) - y) ** 2).mean())(model)
        hook.save_tree("model", model), hook.save_tree("gradient/model", gradient), hook.step()
        optimizer.update(model, gradient)
show(nnx.state(model))
""",
    "equinox": """
import equinox
model = equinox.nn.MLP(4, 1, 8, 1, key=jax.random.key(0))
optimizer = optax.sgd(0.1); state = optimizer.init(equinox.filter(model, equinox.is_inexact_array))
with Hook(tempfile.mkdtemp() + "/run", checks=CHECKS) as hook:
    for step in range(12):
        gradient = equinox.filter_grad(lambda model: ((jax.vmap(model)(x) - y) ** 2).mean())(model)
        hook.save_tree("model", model), hook.save_tree("gradient/model", gradient), hook.step()
        change, state = optimizer.update(gradient, state)
        model = equinox.apply_updates(model, change)
show(equinox.filter(model, equinox.is_inexact_array))
""",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return outcomes(Place(tmp_path_factory.mktemp("examples")), "jax", WITH_EXAMPLE)


@pytest.fixture(scope="module")
def fired(tmp_path_factory):
    """Return what fired in all scripts."""
    scripts = {f"{name}/{n}": case[1 + n] for name, case in PLANTED.items() for n in (0, 1)}
    return run_scripts(tmp_path_factory.mktemp("scripts"), BEGIN, {**scripts, **HEALTHY})


@pytest.mark.parametrize("check", WITH_EXAMPLE)
def test_the_example_of_a_check_fires_and_its_fix_does_not(page, check):
    is_right(check, page)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named_and_its_repair_is_silent(fired, name):
    (broken, _), (fixed, off) = fired[f"{name}/0"], fired[f"{name}/1"]
    assert PLANTED[name][0] in broken
    assert not fixed
    assert not off


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_is_silent(fired, name):
    levels, off = fired[name]
    assert {*levels.values()} <= {"note"}, levels
    assert not any("Error" in reason for reason in off.values()), off


#: Trainings that two processes repeat, one of them with checks.
AT_ONCE = 6


@pytest.mark.parametrize("begin", range(0, len(HEALTHY), AT_ONCE))
def test_trainings_with_checks_have_the_same_bits(begin, tmp_path):
    place = Place(tmp_path)
    some = [*HEALTHY.values()][begin : begin + AT_ONCE]
    calls = [f"exec(BEGIN)\nexec({script!r})" for script in some]
    place.write("train.py", "\n".join(["import sys", "CHECKS = sys.argv[1] == 'on'", f"BEGIN = {BEGIN!r}", *calls]))
    plain, checked = (place.python("train.py", word, env={"OMP_NUM_THREADS": "1"}) for word in ("off", "on"))
    assert plain.code == checked.code == 0, checked.err
    assert checked.out == plain.out
    assert len(plain.out.splitlines()) == len(some)


def test_the_fault_is_printed_within_the_first_20_updates_and_is_a_finding(tmp_path):
    place = Place(tmp_path)
    train = BEGIN.replace('tempfile.mkdtemp() + "/run"', '"run"').replace(
        "            hook.step()\n",
        "            hook.step()\n            print('update', step, file=sys.stderr, flush=True)\n",
    )
    place.write("train.py", f"import sys\n{train}\ntrain(keep=False, steps=40)\n")
    done = place.python("train.py", env={"OMP_NUM_THREADS": "1"})
    lines = done.err.splitlines()
    assert done.code == 0, done.err
    [said] = [number for number, line in enumerate(lines) if "No weight changed in 8 updates" in line]
    assert said < lines.index("update 20")
    assert lines[said].endswith("(smdwidgets explain weights_unchanged)")
    assert [one.id for one in create_trial(place.folder / "run").checks()] == ["weights_unchanged"]
    first = diagnose(place.folder / "run").findings[0]
    assert (first.kind, first.confidence) == ("weights_unchanged", "proof")
