"""Limits not covered by the published vectors, tested at and just beyond them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from python.rules.memory_trial import MemoryTrial, fired
from smdwidgets import modes
from smdwidgets.rules import (
    ActivationCollapse,
    CheckInputImages,
    ClassImbalance,
    Confusion,
    GradientNormSpike,
    LearningRateSchedule,
    LossNotDecreasing,
    LossSpike,
    Overfit,
    Overtraining,
    PoorWeightInitialization,
    SaturatedActivation,
    SimilarAcrossRuns,
    StalledTrainingRule,
    WeightNormGrowth,
    WeightUpdateRatio,
    WorkerDivergence,
)
from smdwidgets.rules.builtin.activation_collapse import spread


def series(name: str, values: list[Any] | dict[int, Any], **collections: Any) -> MemoryTrial:
    trial = MemoryTrial(**collections)
    for step, value in values.items() if isinstance(values, dict) else enumerate(values):
        trial.put(step, name, value)
    return trial


@pytest.mark.parametrize(("ratio", "fires"), [(9.0, False), (9.0001, True)])
def test_variance_ratio_between_layers(ratio: float, fires: bool) -> None:
    trial = MemoryTrial()
    trial.put(0, "relu0_input_0", np.array([-1.0, 1.0]))
    trial.put(0, "relu1_input_0", np.array([-1.0, 1.0]) * np.sqrt(ratio))
    assert bool(fired(PoorWeightInitialization(trial, threshold=9))) is fires


@pytest.mark.parametrize(("flat", "fires"), [(5, False), (6, True)])
def test_patience_for_the_first_losses(flat: int, fires: bool) -> None:
    trial = series("loss", [2.0] * flat + [1.0] * (flat < 6), losses=["loss"])
    assert bool(fired(PoorWeightInitialization(trial))) is fires


@pytest.mark.parametrize(
    ("saturated", "inside", "fires"), [(0.5, 0, False), (0.505, 0, True), (0.505, 10, False), (0.505, 9, True)]
)
def test_saturated_units_and_activity(saturated: float, inside: int, fires: bool) -> None:
    value = np.zeros((1000, 200))
    value[inside:, : round(200 * saturated)] = 50.0
    assert bool(fired(SaturatedActivation(series("tanh0_input_0", [value])))) is fires


@pytest.mark.parametrize(("back", "fires"), [(4, True), (5, False)])
def test_distance_of_compared_weights(back: int, fires: bool) -> None:
    trial = series("w", {0: np.ones(3), back: np.full(3, 2.0), 20: np.full(3, 2.0)}, weights=["w"])
    rule = WeightUpdateRatio(trial, num_steps=20 - 4, small_threshold=1e-8)
    rule.evaluate(20)
    assert bool(rule.findings) is True
    assert ("since step 4 " in rule.findings[0].text) is fires


@pytest.mark.parametrize(("labels", "fires"), [(499, False), (500, True)])
def test_minimum_number_of_labels(labels: int, fires: bool) -> None:
    trial = MemoryTrial()
    value = (np.arange(labels) < 10).astype(int)
    trial.put(0, "labels", value)
    trial.put(0, "predictions", value)
    assert bool(fired(ClassImbalance(trial))) is fires


@pytest.mark.parametrize(("images", "fires"), [(499, False), (500, True)])
def test_minimum_number_of_images(images: int, fires: bool) -> None:
    trial = series("hybridsequential0_input_0", [np.ones((images, 1, 2, 2))])
    assert bool(fired(CheckInputImages(trial))) is fires


@pytest.mark.parametrize(("others", "fires"), [(10, False), (11, True)])
def test_predictions_of_other_classes(others: int, fires: bool) -> None:
    labels = np.array([0] * (100 - others) + [1] * (others + 900))
    predictions = np.array([0] * 100 + [1] * 900)
    trial = MemoryTrial(labels=["labels"], predictions=["predictions"])
    trial.put(0, "labels", labels)
    trial.put(0, "predictions", predictions)
    assert bool(fired(Confusion(trial, min_diag=0))) is fires


@pytest.mark.parametrize(("distance", "fires"), [(9, False), (10, True)])
def test_distance_between_losses(distance: int, fires: bool) -> None:
    trial = series("loss", {0: 1.0, distance: 1.0}, losses=["loss"])
    assert bool(fired(LossNotDecreasing(trial))) is fires


@pytest.mark.parametrize(("validation", "fires"), [(5.0, False), (5.0001, True)])
def test_validation_above_training(validation: float, fires: bool) -> None:
    trial = MemoryTrial(losses=["rmse"])
    trial.put(0, "train-rmse", 4.0)
    trial.put(0, "validation-rmse", validation)
    assert bool(fired(Overfit(trial, ratio_threshold=0.25))) is fires


@pytest.mark.parametrize(("fall", "fires"), [(0.25, False), (0.2499, True)])
def test_minimum_improvement(fall: float, fires: bool) -> None:
    trial = series("loss", [10.0, *(10.0 - fall * (1 + step // 5) for step in range(5))], losses=["loss"])
    assert bool(fired(Overtraining(trial, delta=0.25))) is fires


@pytest.mark.parametrize(("more", "fires"), [(4, False), (5, True)])
@pytest.mark.parametrize("evaluated", [9, 10])
def test_both_patiences(more: int, fires: bool, evaluated: int) -> None:
    trial = MemoryTrial(losses=["loss"])
    for step in range(1 + more):
        trial.put(step, "loss", 1.0, mode=modes.TRAIN)
    for step in range(20, 21 + evaluated):
        trial.put(step, "loss", 1.0, mode=modes.EVAL)
    assert bool(set(fired(Overtraining(trial))) & set(range(20, 40))) is (fires and evaluated == 10)


@pytest.mark.parametrize(
    ("change", "options", "fires"),
    [
        (0.5, {"rtol": 0, "atol": 0.5}, False),
        (0.5001, {"rtol": 0, "atol": 0.5}, True),
        (2.0, {"rtol": 0.5, "atol": 0}, False),  # half of this run's 4
        (2.0001, {"rtol": 0.5, "atol": 0}, True),
    ],
)
def test_tolerances_between_runs(change: float, options: dict[str, float], fires: bool) -> None:
    other = series("w", [np.array([2.0])])
    assert bool(fired(SimilarAcrossRuns(series("w", [np.array([2.0 + change])]), other, **options))) is fires


@pytest.mark.parametrize(("seconds", "fires"), [(1799.9, False), (1800.0, True)])
def test_time_without_new_steps(seconds: float, fires: bool) -> None:
    rule = StalledTrainingRule(series("loss", [1.0]))
    rule.evaluate(0)
    assert rule.while_waiting(0, seconds) is fires
    assert not rule.while_waiting(0, seconds + 1) or not fires  # fires once until the next step


@pytest.mark.parametrize(("before", "judged"), [(14, False), (15, True)])
def test_minimum_number_of_steps_before_a_spike(before: int, judged: bool) -> None:
    trial = series("g", [np.ones(1)] * before + [np.full(1, 99.0)], gradients=["g"])
    assert fired(GradientNormSpike(trial)) == ([before] if judged else [])
    trial = series("loss", [1.0] * before + [99.0], losses=["loss"])
    assert fired(LossSpike(trial)) == ([before] if judged else [])


@pytest.mark.parametrize(("loss", "fires"), [(6.93, False), (6.931, True)])
def test_spike_threshold_above_noise(loss: float, fires: bool) -> None:
    # The median is 1, the median absolute deviation is 0.5, the robust standard deviation 0.5 * 1.4826.
    values = [0.5, 1.0, 1.5] * 6 + [loss]
    trial = series("loss", values, losses=["loss"])
    assert bool(fired(LossSpike(trial, sensitivity=0.9))) is False
    assert bool(fired(LossSpike(trial))) is fires
    trial = series("g", [np.array([value]) for value in values], gradients=["g"])
    assert bool(fired(GradientNormSpike(trial, sensitivity=0.9))) is False
    assert bool(fired(GradientNormSpike(trial))) is fires


@pytest.mark.parametrize(("rms", "fires"), [(1.0, False), (1.0001, True)])
def test_small_weights_are_ignored(rms: float, fires: bool) -> None:
    trial = series("w", [np.full(4, 0.01), np.full(4, rms)], weights=["w"])
    assert bool(fired(WeightNormGrowth(trial))) is fires


def test_variance_collapse() -> None:
    # Half of the samples are 1 + d, half are 1 - d: the variance is d², the mean square 1 + d².
    value = np.ones((8, 2)) + np.array([1.0, -1.0] * 4)[:, None] * 0.25
    relative = 0.25**2 / (1 + 0.25**2)
    trial = series("fc_output_0", [value])
    measured, _, _ = spread(value) or (0, 0, 0)
    assert measured == pytest.approx(relative)
    options = {"min_rank_percent": 0}
    assert fired(ActivationCollapse(trial, min_variance=measured, **options)) == [0]
    assert fired(ActivationCollapse(trial, min_variance=np.nextafter(measured, 0), **options)) == []


def test_rank_collapse() -> None:
    value = np.random.default_rng(0).normal(size=(16, 8))
    value[:, 1:] = value[:, :1] + 1e-3 * value[:, 1:]
    _, rank, possible = spread(value) or (0, 0, 0)
    percent = 100 * rank / possible
    assert 100 / 8 < percent < 15  # slightly more than one of eight directions
    trial = series("fc_output_0", [value])
    assert fired(ActivationCollapse(trial, min_rank_percent=percent)) == []
    assert fired(ActivationCollapse(trial, min_rank_percent=np.nextafter(percent, 100))) == [0]


@pytest.mark.parametrize(
    ("rates", "options", "fires"),
    [
        ([0.5, 5.0], {}, False),
        ([0.5, 5.01], {}, True),
        ([10.0], {}, False),
        ([10.01], {}, True),
        ([0.5], {"min_rate": 0.5}, False),
        ([0.49], {"min_rate": 0.5}, True),
        ([0.0, 9.0], {}, False),  # a previous rate of zero has no ratio
        ([1.0, 1.0 + 0.9e-6], {"shape": "constant"}, False),
        ([1.0, 1.0 + 1.1e-6], {"shape": "constant"}, True),
    ],
)
def test_learning_rates(rates: list[float], options: dict[str, Any], fires: bool) -> None:
    assert bool(fired(LearningRateSchedule(series("learning_rate", rates), **options))) is fires


@pytest.mark.parametrize(
    ("apart", "options", "fires"),
    [
        (0.5, {"rtol": 0, "atol": 0.5}, False),
        (0.5001, {"rtol": 0, "atol": 0.5}, True),
        (0.5, {"rtol": 0.125, "atol": 0}, False),  # an eighth of the largest magnitude, 4
        (0.5001, {"rtol": 0.125, "atol": 0}, True),
    ],
)
def test_tolerances_between_workers(apart: float, options: dict[str, float], fires: bool) -> None:
    trial = MemoryTrial(weights=["w"])
    for worker in range(3):
        trial.put(0, "w", np.array([4.0, 1.0 + (apart if worker == 2 else 0.0)]), worker=f"worker_{worker}")
    assert bool(fired(WorkerDivergence(trial, **options))) is fires
