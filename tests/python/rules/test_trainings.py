"""First firing of every rule on faulty and healthy trainings, checked with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python.rules.trainings import Array, History, train_and_validate
from smdwidgets import create_trial, modes
from smdwidgets.exceptions import NoMoreData, RuleEvaluationConditionMet
from smdwidgets.numpy import Hook
from smdwidgets.rules import BUILTIN, RuleRunner, invoke_rule

Trained = Callable[..., History]


def first_firing(rule: str, path: Path, **parameters: Any) -> int | None:
    """Return the first firing; both ways of running a rule must agree."""
    trial = create_trial(path)
    runner = RuleRunner(trial).start()
    evaluation = runner.add(rule, **parameters)
    assert runner.wait(60)
    assert not evaluation.errors, evaluation.message
    fired = evaluation.first_firing
    again = BUILTIN[rule](create_trial(path), **parameters)
    if fired is None:
        with pytest.raises(NoMoreData):
            invoke_rule(again, raise_eval_cond=True)
    else:
        with pytest.raises(RuleEvaluationConditionMet) as met:
            invoke_rule(again, raise_eval_cond=True)
        assert met.value.step == fired.step
    assert fired is not None or evaluation.judged, f"{rule} is silent because it judged nothing: {evaluation.message}"
    return fired.step if fired else None


def ending(tensors: dict[str, Array], end: str, start: str = "") -> dict[str, Array]:
    return {name: value for name, value in tensors.items() if name.endswith(end) and name.startswith(start)}


def test_vanishing_gradient(trained: Trained) -> None:
    sick = trained(widths=(6, *[12] * 14, 3), activation="sigmoid", scale=0.5, steps=8)
    expected = sick.first(
        lambda _, saved: any(np.abs(g).mean() < 1e-7 for g in ending(saved, "", "gradient/").values())
    )
    assert expected is not None
    assert first_firing("VanishingGradient", sick.path) == expected
    assert first_firing("VanishingGradient", trained().path) is None


def test_vanishing_gradient_in_mid_run(trained: Trained) -> None:
    sick = trained(at={17: {"label_scale": 0.0}, 12: {"rate": 0.0, "activation": "sigmoid"}})
    smallest = [min(np.abs(g).mean() for g in ending(saved, "", "gradient/").values()) for saved in sick.saved.values()]
    before, after = min(smallest[:17]), smallest[17]
    assert after < 0.9 * before
    limit = (before + after) / 2
    expected = sick.first(lambda step, _: smallest[step] < limit)
    assert expected == 17
    assert first_firing("VanishingGradient", sick.path, threshold=limit) == expected


def test_exploding_tensor(trained: Trained) -> None:
    sick = trained(widths=(6, 3), rate=1e3, steps=150)
    expected = sick.first(lambda _, saved: any(not np.isfinite(value).all() for value in saved.values()))
    assert expected
    assert first_firing("ExplodingTensor", sick.path) == expected
    only_nan = sick.first(lambda _, saved: any(np.isnan(value).any() for value in saved.values()))
    assert only_nan is not None
    assert first_firing("ExplodingTensor", sick.path, only_nan=True) == only_nan
    assert first_firing("ExplodingTensor", trained().path) is None


def test_poor_weight_initialization(trained: Trained) -> None:
    sick = trained(scale=6.0, rate=1e-6)
    variances = [value.var() for value in ending(sick.saved[0], "_input_0").values()]
    assert max(variances) / min(variances) > 10
    assert first_firing("PoorWeightInitialization", sick.path) == 0
    stuck = trained(rate=0.0)
    assert first_firing("PoorWeightInitialization", stuck.path) == 5  # five saved steps without a lower loss
    flat = trained(label_scale=1e-3, scale=1e-3)
    assert first_firing("PoorWeightInitialization", flat.path) == 0
    assert first_firing("PoorWeightInitialization", trained().path) is None


def test_saturated_activation(trained: Trained) -> None:
    sick = trained(activation="tanh", at={7: {"rate": 1e4}, 8: {"rate": 0.0}})

    def saturated(_: int, saved: dict[str, Array]) -> bool:
        layers = ending(saved, "_input_0", "tanh").values()
        return any(((np.abs(layer) <= 9.4999).mean(axis=0) < 0.01).mean() > 0.5 for layer in layers)

    expected = sick.first(saturated)
    assert expected == 8
    assert first_firing("SaturatedActivation", sick.path) == expected
    assert first_firing("SaturatedActivation", trained(activation="tanh").path) is None


def test_dead_relu(trained: Trained) -> None:
    assert first_firing("DeadRelu", trained(bias=-30.0, steps=5).path) == 0
    assert first_firing("DeadRelu", trained(scale=0.0, steps=5).path) == 0
    killed = trained(at={10: {"kick": -50.0}})

    def dead(_: int, saved: dict[str, Array]) -> bool:
        return any(
            ((layer != 0).mean(axis=0) < 0.01).mean() > 0.5 for layer in ending(saved, "_output_0", "relu").values()
        )

    assert killed.first(dead) == 10
    assert first_firing("DeadRelu", killed.path) == 10
    assert first_firing("DeadRelu", trained().path) is None


def test_weight_update_ratio(trained: Trained) -> None:
    assert first_firing("WeightUpdateRatio", trained(rate=1e-10, steps=5).path) == 1
    assert first_firing("WeightUpdateRatio", trained(rate=1e4, steps=5).path) == 1
    assert first_firing("WeightUpdateRatio", trained(frozen=(1,), steps=5).path) == 1
    assert first_firing("WeightUpdateRatio", trained(at={11: {"rate": 1e-11}}).path) == 12
    assert first_firing("WeightUpdateRatio", trained().path) is None
    assert first_firing("WeightUpdateRatio", trained().path, num_steps=4) is None


def test_tensor_variance(trained: Trained) -> None:
    sick = trained(at={14: {"rate": 20.0}}, clip=1.0)
    weights = [max(w.var() for w in ending(saved, "weight", "fc").values()) for saved in sick.saved.values()]
    expected = sick.first(lambda step, _: weights[step] > 10.0)
    assert expected is not None
    assert first_firing("TensorVariance", sick.path, collection_names="weights", max_threshold="10") == expected
    kept = {"collection_names": "weights", "max_threshold": 10, "min_threshold": 1e-5}
    assert first_firing("TensorVariance", trained().path, **kept) is None
    assert first_firing("TensorVariance", trained(scale=1e-4, rate=0.0).path, **kept) == 0


def test_unchanged_tensor(trained: Trained) -> None:
    assert first_firing("UnchangedTensor", trained(at={12: {"frozen": (0,)}}).path, collection_names="weights") == 14
    assert first_firing("UnchangedTensor", trained(frozen=(2,)).path, tensor_regex=r"fc\d.weight", num_steps=5) == 4
    assert first_firing("UnchangedTensor", trained().path, collection_names="weights") is None


def test_all_zero(trained: Trained) -> None:
    assert first_firing("AllZero", trained(scale=0.0, steps=5).path, tensor_regex="relu.*output") == 0
    assert first_firing("AllZero", trained().path, collection_names="weights,gradients") is None


def test_loss_not_decreasing(trained: Trained) -> None:
    assert first_firing("LossNotDecreasing", trained(rate=0.0).path) == 10
    sick = trained(at={15: {"rate": -0.3}})
    loss = [float(saved["loss_output_0"]) for saved in sick.saved.values()]
    expected = next(s for s in (10, 20) if not loss[s] < loss[s - 10] * 0.999)
    assert first_firing("LossNotDecreasing", sick.path) == expected
    assert first_firing("LossNotDecreasing", trained().path) is None


def test_overfit(tmp_path: Path) -> None:
    losses = train_and_validate(tmp_path / "sick", noise=3.0, epochs=40)
    expected = _first_overfit(losses, 0.1, 1)
    assert expected is not None
    assert first_firing("Overfit", tmp_path / "sick") == expected
    assert first_firing("Overfit", tmp_path / "sick", patience=5) == _first_overfit(losses, 0.1, 5)
    assert first_firing("Overfit", tmp_path / "sick", ratio_threshold=4.0) == _first_overfit(losses, 4.0, 1)
    losses = train_and_validate(tmp_path / "healthy", noise=0.0, epochs=3, seed=4)
    assert _first_overfit(losses, 0.5, 1) is None
    assert first_firing("Overfit", tmp_path / "healthy", ratio_threshold=0.5) is None


def _first_overfit(losses: dict[int, tuple[modes, float]], limit: float, patience: int) -> int | None:
    """Reference: compare each validation phase with the training phase before."""
    count = 0
    for step, (mode, _) in losses.items():
        if mode is not modes.EVAL:
            continue
        start = max(s for s in losses if s <= step and losses[s][0] is modes.TRAIN)
        before = [s for s in losses if s <= start and all(losses[k][0] is modes.TRAIN for k in range(s, start + 1))]
        training = np.mean([losses[s][1] for s in before])
        validation = np.mean([losses[s][1] for s in range(start + 1, step + 1)])
        count = count + 1 if (validation - training) / training > limit else 0
        if count >= patience:
            return step
    return None


def test_overtraining(tmp_path: Path) -> None:
    losses = train_and_validate(tmp_path / "sick", noise=1.0, epochs=30, rate=0.3)
    best, since = {modes.TRAIN: np.inf, modes.EVAL: np.inf}, {modes.TRAIN: 0, modes.EVAL: 0}
    expected = None
    for step, (mode, loss) in losses.items():
        better = loss <= best[mode] - 0.01
        best[mode], since[mode] = (loss, 0) if better else (best[mode], since[mode] + 1)
        if expected is None and since[modes.TRAIN] >= 5 and since[modes.EVAL] >= 10:
            expected = step
    assert expected is not None
    assert first_firing("Overtraining", tmp_path / "sick") == expected
    train_and_validate(tmp_path / "healthy", noise=0.0, epochs=8)
    assert first_firing("Overtraining", tmp_path / "healthy") is None


def test_similar_across_runs(trained: Trained) -> None:
    healthy = trained()
    other = trained(at={6: {"rate": 0.1001}})
    assert first_firing("SimilarAcrossRuns", other.path, other_trials=str(healthy.path)) == 7
    again = trained(at={99: {}})  # the same training in a separate run
    assert again.path != healthy.path
    assert first_firing("SimilarAcrossRuns", again.path, other_trials=str(healthy.path)) is None


def test_gradient_norm_spike(trained: Trained) -> None:
    sick = trained(at={21: {"label_scale": 60.0}, 22: {"label_scale": 1.0}}, rate=0.01, clip=0.05)
    assert first_firing("GradientNormSpike", sick.path) == 21
    assert first_firing("GradientNormSpike", trained().path) is None


def test_loss_spike(trained: Trained) -> None:
    sick = trained(at={21: {"label_scale": 30.0}, 22: {"label_scale": 1.0}}, rate=0.01, clip=0.05)
    assert first_firing("LossSpike", sick.path) == 21
    diverged = trained(widths=(6, 3), rate=1e3, steps=150)
    expected = diverged.first(lambda _, saved: not np.isfinite(saved["loss_output_0"]))
    found = first_firing("LossSpike", diverged.path)
    assert expected is not None
    assert found is not None
    assert found <= expected  # it can spike before it is infinite
    assert first_firing("LossSpike", trained().path) is None


def test_weight_norm_growth(trained: Trained) -> None:
    sick = trained(at={10: {"rate": 20.0}}, clip=0.5)
    norms = [{n: np.linalg.norm(w) for n, w in ending(s, "weight", "fc").items()} for s in sick.saved.values()]
    expected = sick.first(
        lambda step, saved: any(
            norm > 10 * norms[0][n] and norm / np.sqrt(saved[n].size) > 1 for n, norm in norms[step].items()
        )
    )
    assert expected is not None
    assert first_firing("WeightNormGrowth", sick.path) == expected
    assert first_firing("WeightNormGrowth", trained().path) is None


def test_activation_collapse(trained: Trained) -> None:
    # Weights that are almost zero and a bias: the output is the same for every input.
    assert first_firing("ActivationCollapse", trained(scale=1e-6, bias=1.0, rate=0.0, activation="tanh").path) == 0
    assert first_firing("ActivationCollapse", trained(activation="tanh").path) is None


@pytest.mark.parametrize(
    ("schedule", "parameters", "expected"),
    [
        (lambda step: 0.1 * 0.9**step, {"shape": "decreasing"}, None),
        (lambda step: min(0.1, 0.01 * (step + 1)) * (0.9 ** max(0, step - 10)), {"shape": "warmup"}, None),
        (lambda step: 0.1 if step < 12 else 5.0, {}, 12),
        (lambda step: 0.1 if step < 12 else 0.2, {}, None),
        (lambda step: 0.1 if step < 12 else 0.2, {"shape": "decreasing"}, 12),
        (lambda step: 0.1 if step < 12 else 0.05, {"shape": "constant"}, 12),
        (lambda step: [0.1, 0.2, 0.1, 0.2][min(step, 3)], {"shape": "warmup"}, 3),
        (lambda step: -0.1 if step == 4 else 0.1, {}, 4),
        (lambda step: np.nan if step == 4 else 0.1, {}, 4),
        (lambda step: 0.1 / (step + 1), {"min_rate": 0.021}, 4),
        (lambda step: 11.0 if step == 3 else 10.0, {}, 3),
    ],
)
def test_learning_rate_schedule(
    tmp_path: Path, schedule: Callable[[int], float], parameters: dict[str, Any], expected: int | None
) -> None:
    weight = np.ones(3)
    with Hook(tmp_path / "run") as hook:
        for step in range(20):
            rate = schedule(step)
            weight -= np.nan_to_num(rate) * 2 * weight
            hook.save_scalar("learning_rate", rate)
            hook.step()
    assert first_firing("LearningRateSchedule", tmp_path / "run", **parameters) == expected
