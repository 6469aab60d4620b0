"""No rule raises on empty runs, NaN values or unexpected types and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from python.rules.memory_trial import MemoryTrial
from smdwidgets import modes
from smdwidgets.rules import BUILTIN, RuleRunner
from smdwidgets.rules.builtin import SelectingRule

#: Names that include a match for every rule.
NAMES = [
    "gradient/fc.weight", "fc.weight", "loss_output_0", "train-rmse", "validation-rmse", "relu0_input_0", "relu0_output_0",
    "tanh0_input_0", "labels", "predictions", "Net_input_0", "embedding0_input_0", "feature_importance/weight/f0",
    "feature_importance/weight/f1", "feature_importance/weight/f2", "feature_importance/weight/f3", "trees/ID", "trees/Yes",
    "trees/No", "trees/Node", "learning_rate",
]  # fmt: skip
COLLECTIONS = {
    "gradients": ["^gradient"],
    "weights": ["^fc"],
    "losses": ["loss", "rmse"],
    "trees": ["^trees"],
    "labels": ["^labels"],
    "predictions": ["^predictions"],
    "metrics": ["rmse"],
}


def run_of(value: Any, steps: int = 25, workers: int = 2) -> MemoryTrial:
    trial = MemoryTrial(**COLLECTIONS)
    for step in range(steps):
        mode = modes.EVAL if step % 5 == 4 else modes.TRAIN
        for name in NAMES:
            for worker in range(workers):
                trial.put(step, name, value, f"worker_{worker}", mode)
    return trial


def judged(trial: MemoryTrial) -> RuleRunner:
    """Run every rule on a run and check that none raises."""
    runner = RuleRunner(trial)
    for name, rule in BUILTIN.items():
        parameters: dict[str, Any] = {}
        if name == "SimilarAcrossRuns":
            parameters["other_trials"] = [trial]
        elif name == "CreateXgboostReport":
            continue  # tested separately on such runs
        elif issubclass(rule, SelectingRule) and rule.needs_selector:
            parameters["tensor_regex"] = "."
        if name == "TensorVariance":
            parameters |= {"min_threshold": 0, "max_threshold": 1e9}
        runner.add(name, **parameters)
    assert runner.start().wait(60)
    assert {each.name: each.message for each in runner if each.errors} == {}
    return runner


def fired(runner: RuleRunner) -> set[str]:
    return {each.name for each in runner if each.fired}


def test_nan_everywhere() -> None:
    # Rules that detect NaN fire. Comparisons with NaN are false. A unit whose inputs are NaN is outside its limits.
    looking = {"ExplodingTensor", "LossSpike", "LearningRateSchedule", "GradientNormSpike"}
    for value in (np.full((20, 4), np.nan), np.float32(np.nan)):
        found = fired(judged(run_of(value)))
        assert "ExplodingTensor" in found
        assert found <= looking | {
            "SaturatedActivation",
            "LossNotDecreasing",
            "Overtraining",
            "PoorWeightInitialization",
        }
    # Scalars count as losses, and losses that are NaN fire.
    assert looking <= found


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0, 2)])
@pytest.mark.slow
def test_tensors_without_elements(shape: tuple[int, ...]) -> None:
    runner = judged(run_of(np.empty(shape)))
    # Empty tensors are equal.
    assert fired(runner) <= {"UnchangedTensor"}


@pytest.mark.parametrize(
    "value",
    [
        np.array(["some", "text"]),
        np.array("text"),
        np.array([1 + 2j, 3j]),
        np.array([True, False]),
        np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max]),
        np.array([np.finfo(np.float64).max] * 40).reshape(20, 2),
        np.array([-np.inf, np.inf]),
        np.zeros((1, 1, 1, 1, 1, 1, 1)),
        {"std": 1.0},
    ],
    ids=["text", "one text", "complex", "bool", "int64", "largest", "infinite", "7-d", "one reduction only"],
)
@pytest.mark.slow
def test_unexpected_values_do_not_raise(value: Any) -> None:
    judged(run_of(value))


def test_empty_runs() -> None:
    for trial in (MemoryTrial(), MemoryTrial(**{name: [] for name in COLLECTIONS}), run_of(1.0, steps=0)):
        runner = judged(trial)
        assert not fired(runner)
        assert {each.judged for each in runner} == {0}


def test_message_names_missing_collections_and_tensors() -> None:
    trial = MemoryTrial(gradients=[])
    trial.put(0, "a", np.ones(3))
    runner = judged(trial)
    messages = {each.name: each.message for each in runner}
    assert messages["VanishingGradient"] == "judged no step: no tensor of collection 'gradients' at this step"
    assert messages["FeatureImportanceOverweight"].startswith("judged no step: no tensor of names matching ")
    assert "judged no step" in messages["LossNotDecreasing"]
