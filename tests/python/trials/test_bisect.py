"""The first difference of two runs, and rounding errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smdwidgets import CapturePlan, Trial, create_trial
from smdwidgets.cli import main
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.numpy import Hook

STEPS = 12


@dataclass(frozen=True)
class Training:
    """A network of three layers, and what differs in it."""

    seed: int = 0
    rate: Callable[[int], float] = lambda step: 0.05
    momentum: float = 0.9
    decay: float = 0.0
    activation: str = "relu"
    labels: int | None = None
    swapped: int | None = None
    scaled_gradient: tuple[str, int, float] | None = None
    rounded: str | None = None
    missing_zero_grad: int | None = None
    clip: float | None = None
    loss_scale: float = 1.0
    smoothing: float = 0.0
    kept: float = 1.0
    normalized: bool = False
    poisoned: tuple[int, int, float] | None = None
    weight_at: tuple[str, int, float] | None = None
    wide: bool = False
    dtype: Any = np.float32
    order: int = 0
    records_gradients: bool = True
    steps: int = STEPS
    target: float = 1.0

    def run(self, folder: Path) -> Trial:
        """Train and return the recorded trial."""
        data = np.random.default_rng(7)
        x = data.standard_normal((STEPS * 8, 6)).astype(self.dtype)
        y = (x @ data.standard_normal((6, 3)).astype(self.dtype) * self.target).astype(self.dtype)
        if self.normalized:
            x = ((x - x.mean(0)) / x.std(0)).astype(self.dtype)
        if self.labels is not None:
            y[self.labels] += 1
        if self.swapped is not None:
            pair = [self.swapped, self.swapped + 8]
            x[pair], y[pair] = x[pair[::-1]], y[pair[::-1]]
        if self.poisoned is not None:
            x[self.poisoned[0], self.poisoned[1]] = self.poisoned[2]
        init = np.random.default_rng(100 + self.seed)
        sizes = [6, 20 if self.wide else 16, 16, 3]
        weights = {
            f"layer{n}.weight": (init.standard_normal((sizes[n], sizes[n + 1])) / np.sqrt(sizes[n])).astype(self.dtype)
            for n in range(3)
        }
        if self.wide:
            weights["layer1.weight"] = weights["layer1.weight"][:, :16]
        speed = {name: np.zeros_like(value) for name, value in weights.items()}
        dropout = np.random.default_rng(5)
        gradients = {name: np.zeros_like(value) for name, value in weights.items()}
        with Hook(folder) as hook:
            for step in range(self.steps):
                rows = slice(8 * (step % STEPS), 8 * (step % STEPS) + 8)
                if self.weight_at is not None and self.weight_at[1] == step:
                    weights[self.weight_at[0]].flat[0] += self.weight_at[2]
                for name, value in weights.items():
                    hook.save_tensor(name, value, "weights")
                hook.save_tensor("input_0", x[rows], "inputs")
                hidden, values = x[rows], []
                for n in range(3):
                    values.append(hidden)
                    hidden = self._product(hidden, weights[f"layer{n}.weight"])
                    if n < 2:
                        hidden = self._activated(hidden)
                        if n == 1 and self.kept < 1:
                            hidden = hidden * (dropout.random(hidden.shape) < self.kept).astype(self.dtype)
                    if self.rounded == f"layer{n}":
                        hidden = hidden.astype(np.float16).astype(self.dtype)
                    hook.save_tensor(f"layer{n}_output_0", hidden, "outputs")
                target = y[rows] * (1 - self.smoothing)
                hook.save_tensor("target", target, "labels")
                error = hidden - target
                hook.save_tensor("loss", self.loss_scale * np.mean(error**2), "losses")
                delta = (2 * self.loss_scale / error.size * error).astype(self.dtype)
                for n in (2, 1, 0):
                    name = f"layer{n}.weight"
                    new = self._product(values[n].T, delta)
                    gradients[name] = gradients[name] + new if step == self.missing_zero_grad else new
                    if self.scaled_gradient is not None and self.scaled_gradient[:2] == (name, step):
                        gradients[name] = gradients[name] * self.dtype(self.scaled_gradient[2])
                    delta = self._product(delta, weights[name].T) * (values[n] > 0)
                if self.clip is not None:
                    norm = np.sqrt(sum(float((g.astype(float) ** 2).sum()) for g in gradients.values()))
                    gradients = {k: (g * self.dtype(min(1.0, self.clip / norm))) for k, g in gradients.items()}
                if self.records_gradients:
                    for name, value in gradients.items():
                        hook.save_tensor(f"gradient/{name}", value, "gradients")
                hook.save_scalar("learning_rate", self.rate(step))
                for name in weights:
                    speed[name] = self.momentum * speed[name] + gradients[name] + self.decay * weights[name]
                    speed[name] = speed[name].astype(self.dtype)
                    weights[name] = (weights[name] - self.rate(step) * speed[name]).astype(self.dtype)
                hook.step()
        return create_trial(folder)

    def _product(self, a: Any, b: Any) -> Any:
        """Multiply; the order of summation is that of the columns."""
        if not self.order:
            return (a @ b).astype(self.dtype)
        order = np.random.default_rng(self.order).permutation(a.shape[1])
        total = np.zeros((len(a), b.shape[1]), self.dtype)
        for column in order:
            total += a[:, column : column + 1] * b[column : column + 1]
        return total

    def _activated(self, hidden: Any) -> Any:
        if self.activation == "tanh":
            return np.tanh(hidden)
        return np.maximum(hidden, 0.01 * hidden if self.activation == "leaky" else 0)


BASE = Training()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return BASE.run(tmp_path_factory.mktemp("base") / "run")


#: What differs; the step, the tensor, and the compared step before if it is an update.
PAIRS: dict[str, tuple[Training, int, str, int | None]] = {
    "seed of the initialization": (replace(BASE, seed=1), 0, "layer0.weight", None),
    "learning rate from step 5": (
        replace(BASE, rate=lambda step: 0.05 if step < 5 else 0.075),
        5,
        "scalar/learning_rate",
        None,
    ),
    "a slow warm-up": (replace(BASE, rate=lambda step: 0.05 * min(1, (step + 1) / 3)), 0, "scalar/learning_rate", None),
    "leaky activations": (replace(BASE, activation="leaky"), 0, "layer0_output_0", None),
    "tanh": (replace(BASE, activation="tanh"), 0, "layer0_output_0", None),
    "rows 40 and 48 exchanged": (replace(BASE, swapped=40), 5, "input_0", None),
    "rows 3 and 11 exchanged": (replace(BASE, swapped=3), 0, "input_0", None),
    "target 77": (replace(BASE, labels=77), 9, "target", None),
    "target 8": (replace(BASE, labels=8), 1, "target", None),
    "gradient of layer 1 x 1.01 at step 7": (
        replace(BASE, scaled_gradient=("layer1.weight", 7, 1.01)),
        7,
        "gradient/layer1.weight",
        None,
    ),
    "gradient of layer 0 x -1 at step 2": (
        replace(BASE, scaled_gradient=("layer0.weight", 2, -1)),
        2,
        "gradient/layer0.weight",
        None,
    ),
    "layer 1 rounded to 16 bits": (replace(BASE, rounded="layer1"), 0, "layer1_output_0", None),
    "layer 2 rounded to 16 bits": (replace(BASE, rounded="layer2"), 0, "layer2_output_0", None),
    "gradients not reset at step 4": (replace(BASE, missing_zero_grad=4), 4, "gradient/layer2.weight", None),
    "clipped gradients": (replace(BASE, clip=0.05), 0, "gradient/layer2.weight", None),
    "momentum": (replace(BASE, momentum=0.8), 2, "layer0.weight", 1),
    "weight decay": (replace(BASE, decay=0.01), 1, "layer0.weight", 0),
    "loss x 2": (replace(BASE, loss_scale=2.0), 0, "loss", None),
    "label smoothing": (replace(BASE, smoothing=0.1), 0, "target", None),
    "dropout": (replace(BASE, kept=0.9), 0, "layer1_output_0", None),
    "normalized data": (replace(BASE, normalized=True), 0, "input_0", None),
    "NaN in row 50": (replace(BASE, poisoned=(50, 2, np.nan)), 6, "input_0", None),
    "row 95 x 1e4": (replace(BASE, poisoned=(95, 0, 1e4)), 11, "input_0", None),
    "weight changed by hand at step 6": (replace(BASE, weight_at=("layer1.weight", 6, 0.01)), 6, "layer1.weight", 5),
    "a wider layer": (replace(BASE, wide=True), 0, "layer0.weight", None),
    "double precision": (replace(BASE, dtype=np.float64), 0, "layer0.weight", None),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.slow
def test_first_difference_is_named(name: str, base: Trial, tmp_path: Path) -> None:
    training, step, tensor, after = PAIRS[name]
    divergence = base.bisect(training.run(tmp_path / "run"))
    assert divergence.first is not None
    assert (divergence.first.step, divergence.first.tensor, divergence.first.updated_after) == (step, tensor, after)
    assert divergence.first.exact
    assert divergence.noise is None
    assert not divergence.equal


#: Runs whose only difference is the order of summation.
NOISE = {
    "two orders": (replace(BASE, order=1), replace(BASE, order=2)),
    "library and loop": (BASE, replace(BASE, order=1)),
    "long": (replace(BASE, order=1, steps=60), replace(BASE, order=2, steps=60)),
    "converged": (replace(BASE, order=3, steps=150, target=0.1), replace(BASE, order=4, steps=150, target=0.1)),
    "large rate": (
        replace(BASE, order=1, rate=lambda step: 0.2, steps=40),
        replace(BASE, order=2, rate=lambda step: 0.2, steps=40),
    ),
    "tanh": (replace(BASE, order=1, activation="tanh", steps=30), replace(BASE, order=5, activation="tanh", steps=30)),
    "dropout": (replace(BASE, order=1, kept=0.8, steps=30), replace(BASE, order=2, kept=0.8, steps=30)),
    "clipped": (replace(BASE, order=1, clip=0.5, steps=30), replace(BASE, order=2, clip=0.5, steps=30)),
    "no momentum": (replace(BASE, order=6, momentum=0.0, steps=30), replace(BASE, order=7, momentum=0.0, steps=30)),
    "16-bit layer": (
        replace(BASE, order=1, rounded="layer1", steps=20),
        replace(BASE, order=2, rounded="layer1", steps=20),
    ),
}


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.slow
def test_rounding_errors_are_no_difference(name: str, tmp_path: Path) -> None:
    one, other = (training.run(tmp_path / str(n)) for n, training in enumerate(NOISE[name]))
    divergence = one.bisect(other)
    assert divergence.equal, str(divergence)
    assert divergence.noise is not None
    assert divergence.noise.step == 0
    exact = one.bisect(other, 0)
    assert exact.first is not None
    assert (exact.first.step, exact.first.tensor) == (0, divergence.noise.tensor)


@pytest.mark.parametrize("seed", range(5))
def test_same_training_has_no_difference(seed: int, tmp_path: Path) -> None:
    training = replace(BASE, seed=seed, kept=0.9)
    divergence = training.run(tmp_path / "a").bisect(training.run(tmp_path / "b"), 0)
    assert divergence.equal
    assert divergence.noise is None
    assert (divergence.steps, divergence.tensors) == (STEPS, 13)
    assert str(divergence) == "no difference\ncompared 13 tensors at 12 steps"


@pytest.mark.parametrize(
    ("change", "step", "tensor"),
    [
        ({"swapped": 40}, 5, "input_0"),
        ({"labels": 77}, 9, "target"),
        ({"scaled_gradient": ("layer1.weight", 7, 1.05)}, 7, "gradient/layer1.weight"),
        ({"rate": lambda step: 0.05 if step < 5 else 0.075}, 5, "scalar/learning_rate"),
        ({"weight_at": ("layer1.weight", 6, 0.1)}, 6, "layer1.weight"),
    ],
)
def test_difference_is_found_beyond_rounding_errors(
    change: dict[str, Any], step: int, tensor: str, tmp_path: Path
) -> None:
    one, other = replace(BASE, order=1).run(tmp_path / "a"), replace(BASE, order=2, **change).run(tmp_path / "b")
    divergence = one.bisect(other)
    assert divergence.first is not None
    assert (divergence.first.step, divergence.first.tensor) == (step, tensor)
    assert divergence.noise is not None
    assert divergence.noise.step == 0
    assert f"before it, within the tolerance since step 0: {divergence.noise.difference}" in str(divergence)


def test_update_is_said_with_what_its_gradients_show(base: Trial, tmp_path: Path) -> None:
    divergence = base.bisect(replace(BASE, decay=0.01).run(tmp_path / "a"))
    assert divergence.first is not None
    assert divergence.first.gradients_equal
    assert "the gradients of step 0 are equal: the optimizer or its settings differ" in str(divergence)
    divergence = replace(BASE, records_gradients=False).run(tmp_path / "b").bisect(base)
    assert divergence.equal
    assert divergence.only_b == tuple(f"gradient/layer{n}.weight" for n in range(3))
    one, other = (
        replace(BASE, records_gradients=False, momentum=momentum).run(tmp_path / str(momentum))
        for momentum in (0.9, 0.5)
    )
    divergence = one.bisect(other)
    assert divergence.first is not None
    assert not divergence.first.gradients_equal
    assert "no recorded gradient shows why" in str(divergence)


def _write(folder: Path, series: dict[int, dict[str, Any]]) -> Trial:
    with Hook(folder) as hook:
        for step in range(max(series) + 1):
            for name, value in series.get(step, {}).items():
                hook.save_tensor(name, value, "weights" if name == "w" else "outputs")
            hook.step()
    return create_trial(folder)


def test_nan_and_infinities_of_both_are_equal(tmp_path: Path) -> None:
    value = np.float32([np.nan, np.inf, -np.inf, 0.0])
    one = _write(tmp_path / "a", {0: {"w": value}})
    assert one.bisect(_write(tmp_path / "b", {0: {"w": -np.float32([-np.nan, -np.inf, np.inf, 0.0])}}), 0).equal
    divergence = one.bisect(_write(tmp_path / "c", {0: {"w": np.float32([1, np.inf, -np.inf, 0.0])}}))
    assert divergence.first is not None
    assert (divergence.first.index, divergence.first.relative, divergence.first.changed) == ((0,), float("inf"), 1)


@pytest.mark.parametrize(
    ("a", "b", "what"),
    [
        (np.zeros(3), np.zeros(4), "has shape (3,) and (4,)"),
        (np.zeros(3), np.zeros(3, np.float32), "has dtype float64 and float32"),
        (np.int64([1, 2]), np.int64([1, 3]), "'w'[1] = 2 and 3; 1 of 2 elements differ"),
        (np.array("left"), np.array("right"), "'w' = 'left' and 'right'"),
        (np.array([True, False]), np.array([True, True]), "'w'[1] = False and True"),
        (np.complex64([1j, 2]), np.complex64([1j, 3]), "'w'[1] = (2+0j) and (3+0j)"),
        (np.float32(0.0), np.float32(1e-30), "'w' = 0 and 1e-30"),
    ],
)
@pytest.mark.slow
def test_any_type_is_compared(a: Any, b: Any, what: str, tmp_path: Path) -> None:
    divergence = _write(tmp_path / "a", {0: {"w": a}}).bisect(_write(tmp_path / "b", {0: {"w": b}}))
    assert what in str(divergence)
    json.dumps(divergence.to_json(), allow_nan=False)


def test_tolerance_is_relative_to_the_largest_magnitude(tmp_path: Path) -> None:
    one = _write(tmp_path / "a", {0: {"w": np.float32([100, 1.0])}})
    other = _write(tmp_path / "b", {0: {"w": np.float32([100, 1.5])}})
    assert one.bisect(other, 0.006).equal
    assert not one.bisect(other, 0.004).equal
    assert one.bisect(other, 0.006).noise_level == 0.005


@pytest.mark.parametrize("tolerance", [-1, float("inf"), float("nan"), "much", None])
def test_invalid_tolerance_is_an_error(tolerance: Any, base: Trial) -> None:
    with pytest.raises(SMDebugValueError, match="invalid tolerance"):
        base.bisect(base, tolerance)


def test_runs_that_cannot_be_compared_are_an_error(base: Trial, tmp_path: Path) -> None:
    with pytest.raises(SMDebugTypeError, match="must be a Trial, got str"):
        base.bisect("runs/other")  # type: ignore[arg-type]
    with pytest.raises(SMDebugValueError, match="no tensor in common"):
        base.bisect(_write(tmp_path / "a", {0: {"elsewhere": np.zeros(2)}}))
    late = _write(tmp_path / "b", {30: {"layer0.weight": np.zeros(2)}})
    with pytest.raises(SMDebugValueError, match=r"no step in common \(steps 0 to 11, and steps 30 to 30\)"):
        base.bisect(late)


def test_lengths_and_other_tensors_are_said(base: Trial, tmp_path: Path) -> None:
    shorter = replace(BASE, steps=4).run(tmp_path / "a")
    divergence = base.bisect(shorter)
    assert divergence.equal
    assert str(divergence) == "no difference\ncompared 13 tensors at 4 steps\nlast steps: 11 and 3"


def test_step_of_another_mode_is_a_difference(tmp_path: Path) -> None:
    for name, mode in (("a", "TRAIN"), ("b", "EVAL")):
        with Hook(tmp_path / name) as hook:
            for step in range(3):
                hook.set_mode("TRAIN" if step < 2 else mode)
                hook.save_tensor("x", np.ones(2), "outputs")
                hook.step()
    divergence = create_trial(tmp_path / "a").bisect(create_trial(tmp_path / "b"))
    assert "first difference at step 2: the mode is TRAIN and EVAL" in str(divergence)


def test_statistics_are_compared_where_values_are_missing(tmp_path: Path) -> None:
    trials = []
    for name, since in (("a", 99), ("b", 5), ("c", 8)):
        with Hook(tmp_path / name, plan=CapturePlan(statistics=1, every=4)) as hook:
            for step in range(12):
                hook.save_tensor("x", np.arange(4.0) + step + (step >= since), "outputs")
                hook.step()
        trials.append(create_trial(tmp_path / name))
    assert trials[0].tensor("x").steps() == [0, 4, 8]
    divergence = trials[0].bisect(trials[1])
    assert divergence.first is not None
    assert (divergence.first.step, divergence.first.what, divergence.first.exact, divergence.first.equal_until) == (
        5,
        "l1",
        False,
        0,
    )
    assert "first difference seen at step 5: l1 of 'x' is 26 and 30" in str(divergence)
    assert "all values are equal until step 0; after it, not all of them were recorded" in str(divergence)
    divergence = trials[0].bisect(trials[2])
    assert divergence.first is not None
    assert (divergence.first.step, divergence.first.what, divergence.first.exact) == (8, "value", False)


def test_damaged_value_is_skipped_and_counted(base: Trial, tmp_path: Path) -> None:
    damaged = BASE.run(tmp_path / "run")
    event = sorted((tmp_path / "run" / "events").rglob("*.tfevents"))[3]
    content = bytearray(event.read_bytes())
    place = damaged.reader.index.find("input_0", 3)
    assert place is not None
    content[place.offset + place.length - 8] ^= 0xFF
    event.write_bytes(content)
    divergence = base.bisect(create_trial(tmp_path / "run"))
    assert divergence.unreadable == 1
    assert "1 value could not be read" in str(divergence)
    assert divergence.equal


def test_command(base: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace(BASE, labels=77).run(tmp_path / "other")
    assert main(["bisect", base.path, base.path, "--tolerance", "0"]) == 0
    assert capsys.readouterr().out == "no difference\ncompared 13 tensors at 12 steps\n"
    assert main(["bisect", base.path, str(tmp_path / "other"), "--json"]) == 1
    divergence = json.loads(capsys.readouterr().out)
    assert (divergence["first"]["step"], divergence["first"]["tensor"], divergence["equal"]) == (9, "target", False)
    assert main(["bisect", base.path, str(tmp_path / "missing")]) == 2
    assert main(["bisect", base.path, base.path, "--tolerance", "some"]) == 2
    assert "invalid --tolerance 'some'" in capsys.readouterr().err
