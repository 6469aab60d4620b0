"""Rules on real trainings with PyTorch, with planted faults and healthy.

Each training is saved by our hook and by smdebug's.

Where the first firing is not where the fault was planted by construction, it is worked out with plain numpy.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ruling import LIBRARIES, Trainings, both, first_firing, on_both
from torch_trainings import Net, classes, hooked, images, sentences, train, train_workers

from smdwidgets import create_trial, modes
from smdwidgets.rules import RuleRunner


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a training by function name and faults; train it once."""
    trainings = Trainings(tmp_path_factory.mktemp)
    return lambda faults, training=train: trainings(training, faults)


def first(path: Path, test: Callable[[dict[str, np.ndarray]], bool]) -> int:
    """The first step whose tensors pass a test, read without any rule."""
    trial = create_trial(path)
    return next(
        step
        for step in trial.steps()
        if test({name: np.asarray(trial.tensor(name).value(step)) for name in trial.tensor_names(step=step)})
    )


def part(tensors: dict[str, np.ndarray], *ends: str) -> list[np.ndarray]:
    return [value for name, value in tensors.items() if name.endswith(ends) and not name.startswith("gradient")]


# ----------------------------------------------------------------------------------------- faults that training plants


def freeze(model: Net, optimizer: torch.optim.Optimizer) -> None:
    model.fc1.requires_grad_(False)
    optimizer.param_groups[0]["params"] = [p for p in model.parameters() if p.requires_grad]
    optimizer.zero_grad()


def stop_learning(model: Net, optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["lr"] = 0.0


def learn_wildly(model: Net, optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["lr"] = 30.0


def kill(model: Net, optimizer: torch.optim.Optimizer) -> None:
    nn.init.constant_(model.fc0.bias, -50.0)


def times(factor: float) -> Callable[[Net, torch.optim.Optimizer], None]:
    def scale(model: Net, optimizer: torch.optim.Optimizer) -> None:
        with torch.no_grad():
            model.fc0.weight.mul_(factor)

    scale.__qualname__ = f"times {factor}"  # what the fixture knows a training by
    return scale


def collapse(model: Net, optimizer: torch.optim.Optimizer) -> None:
    with torch.no_grad():
        model.fc1.weight.mul_(1e-5)
        model.fc1.bias.fill_(1.0)


def resumed_without_its_schedule(step: int) -> float:
    return 0.9 ** (step if step < 12 else step - 12)


def non_finite(tensors: dict[str, np.ndarray]) -> bool:
    return any(not np.isfinite(value).all() for value in tensors.values() if value.dtype.kind == "f")


def mostly_zero_weights(tensors: dict[str, np.ndarray]) -> bool:
    return any((value == 0).all() for value in part(tensors, "relu0_output_0"))


#: Rule, faults of `train`, parameters, and the first firing: a step, or a test of a step's tensors.
FAULTS = [
    ("VanishingGradient", {"depth": 16, "activation": nn.Sigmoid, "steps": 4}, {}, 0),
    ("ExplodingTensor", {"rate": 1e3, "regression": True}, {}, non_finite),
    ("PoorWeightInitialization", {"scale": 8.0}, {}, 0),
    ("SaturatedActivation", {"activation": nn.Tanh, "change": {6: times(1e6)}}, {}, 6),
    ("DeadRelu", {"bias": -20.0, "steps": 3}, {}, 0),
    ("DeadRelu", {"change": {7: kill}}, {}, 7),
    ("WeightUpdateRatio", {"rate": 1e-12}, {}, 1),
    ("WeightUpdateRatio", {"frozen": True}, {}, 1),
    (
        "TensorVariance",
        {"change": {9: times(50.0)}, "clip": 1e-3},
        {"collection_names": "weights", "max_threshold": "10"},
        9,
    ),
    ("UnchangedTensor", {"frozen": True}, {"collection_names": "weights"}, 2),
    ("UnchangedTensor", {"change": {8: freeze}}, {"collection_names": "weights"}, 10),
    ("AllZero", {"scale": 0.0, "bias": 0.0, "steps": 3}, {"tensor_regex": "relu.*output"}, 0),
    ("AllZero", {"change": {7: kill}}, {"tensor_regex": "relu.*output"}, mostly_zero_weights),
    ("LossNotDecreasing", {"steps": 30, "change": {10: stop_learning}}, {}, 20),
    ("GradientNormSpike", {"spoilt": {17: 100.0}, "clip": None}, {}, 17),
    ("LossSpike", {"spoilt": {17: 100.0}}, {}, 17),
    ("LossSpike", {"rate": 1e18}, {}, lambda tensors: non_finite({"": part(tensors, "Loss_output_0")[0]})),
    (
        "WeightNormGrowth",
        {"change": {10: learn_wildly}, "clip": 1.0, "regression": True},
        {},
        lambda tensors: any(rms(value) > 1.0 and rms(value) > 10.0 * START[value.shape] for value in weights(tensors)),
    ),
    ("ActivationCollapse", {"change": {5: collapse}}, {}, 5),
    ("LearningRateSchedule", {"schedule": resumed_without_its_schedule}, {"shape": "decreasing"}, 12),
    ("LearningRateSchedule", {"schedule": lambda step: 1.0 if step < 9 else 50.0}, {}, 9),
]

#: The root mean square of each layer's initial weights, all drawn with the seed that the training has too.
START: dict[tuple[int, ...], float] = {}


def rms(value: np.ndarray) -> float:
    return float(np.sqrt((value.astype(np.float64) ** 2).mean()))


def weights(tensors: dict[str, np.ndarray]) -> list[np.ndarray]:
    return part(tensors, ".weight")


@pytest.mark.parametrize(
    ("rule", "faults", "reported", "step"), FAULTS, ids=[f"{case[0]}-{'-'.join(case[1])}" for case in FAULTS]
)
def test_a_planted_fault(trained, rule, faults, reported, step):
    training = trained(faults)
    if callable(step):
        if not START:
            torch.manual_seed(0)
            START.update((tuple(p.shape), rms(p.detach().numpy())) for p in Net().parameters() if p.ndim == 2)
        step = first(training("smdwidgets"), step)
    assert on_both(training, rule, **reported) == both(step)


HEALTHY = [
    ("VanishingGradient", {}),
    ("ExplodingTensor", {}),
    ("PoorWeightInitialization", {}),
    ("DeadRelu", {}),
    ("WeightUpdateRatio", {}),
    ("TensorVariance", {"collection_names": "weights", "max_threshold": 10, "min_threshold": 1e-5}),
    ("UnchangedTensor", {"collection_names": "weights"}),
    ("AllZero", {"collection_names": "weights"}),
    ("ClassImbalance", {"samples": 512, "threshold_misprediction": 1}),
    ("LossNotDecreasing", {"mode": "TRAIN"}),
    ("Overfit", {}),
    ("Overtraining", {}),
    ("GradientNormSpike", {}),
    ("LossSpike", {}),
    ("WeightNormGrowth", {}),
    ("ActivationCollapse", {}),
    ("LearningRateSchedule", {"shape": "decreasing"}),
]


@pytest.mark.parametrize(("rule", "reported"), HEALTHY, ids=[rule for rule, _ in HEALTHY])
def test_silence_on_a_healthy_training(trained, rule, reported):
    healthy = trained({"samples": 512, "evaluate": 5, "rate": 0.3, "schedule": (0.97).__pow__})
    assert on_both(healthy, rule, **reported) == both(None)


def test_silence_on_a_healthy_training_with_tanh(trained):
    assert on_both(trained({"activation": nn.Tanh}), "SaturatedActivation") == both(None)


# --------------------------------------------------------------------------------------------- training and validation


def losses(path: Path) -> list[tuple[int, modes, float]]:
    trial = create_trial(path)
    loss = trial.tensor("CrossEntropyLoss_output_0")
    return [(step, trial.mode(step), float(loss.value(step))) for step in trial.steps()]


def test_overfit(trained):
    training = trained({"steps": 60, "rate": 0.5, "evaluate": 5, "noise": 2.0})
    stretch: list[float] = []
    expected = None
    for step, mode, loss in losses(training("smdwidgets")):
        if mode is modes.TRAIN:
            stretch = [*(stretch if len(stretch) < 5 else []), loss]
        elif expected is None and (loss - np.mean(stretch)) / np.mean(stretch) > 0.1:
            expected = step
    assert expected
    assert on_both(training, "Overfit") == both(expected)


def test_overtraining(trained):
    training = trained({"steps": 60, "evaluate": 2, "samples": 512, "change": {20: stop_learning}})
    best, since = {modes.TRAIN: np.inf, modes.EVAL: np.inf}, {modes.TRAIN: 0, modes.EVAL: 0}
    expected = None
    for step, mode, loss in losses(training("smdwidgets")):
        better = loss <= best[mode] - 0.01
        best[mode], since[mode] = (loss, 0) if better else (best[mode], since[mode] + 1)
        if expected is None and since[modes.TRAIN] >= 5 and since[modes.EVAL] >= 10:
            expected = step
    assert expected
    assert on_both(training, "Overtraining") == both(expected)


def test_similar_across_runs(trained):
    def faster(model, optimizer):
        optimizer.param_groups[0]["lr"] = 0.06

    base, again, other = trained({}), trained({"change": {99: faster}}), trained({"change": {6: faster}})
    for library in LIBRARIES:
        reported = {"other_trials": str(base(library))}
        # Only our hook saves the learning rate, which differs a step before the weights do.
        assert first_firing(other(library), "SimilarAcrossRuns", **reported) == {"smdebug": 7, "smdwidgets": 6}[library]
        assert first_firing(again(library), "SimilarAcrossRuns", **reported) is None
    # What the two hooks save of one training is the same to the last bit.
    assert first_firing(base("smdebug"), "SimilarAcrossRuns", other_trials=str(base("smdwidgets"))) is None


# ----------------------------------------------------------------------------------------------------- data and classes


@pytest.mark.parametrize(
    ("rule", "training", "faults", "reported", "step"),
    [
        ("ClassImbalance", classes, {"rare": 0.03}, {"argmax": "True"}, 7),  # 512 labels
        (
            "Confusion",
            classes,
            {"swapped": 12},
            {"labels": "CrossEntropyLoss_input_1", "predictions": "CrossEntropyLoss_input_0"},
            12,
        ),
        ("CheckInputImages", images, {"mean": 0.5}, {}, 7),  # 512 images
        ("NLPSequenceRatio", sentences, {"padded_from": 5}, {}, 5),
    ],
)
def test_faults_in_the_data(trained, rule, training, faults, reported, step):
    assert on_both(trained(faults, training), rule, **reported) == both(step)
    assert on_both(trained({}, training), rule, **reported) == both(None)


@pytest.mark.timeout(900)  # processes that import two libraries are slow to start on a busy machine
def test_workers_that_no_longer_average_their_gradients(tmp_path):
    def run(library, lost_at):
        return tmp_path / f"{library}-{lost_at}"

    train_workers([(run(*each), *each) for each in product(LIBRARIES, (6, 99))], tmp_path / "store")
    assert on_both(lambda library: run(library, 6), "WorkerDivergence") == both(7)
    assert on_both(lambda library: run(library, 99), "WorkerDivergence") == both(None)
    assert len(create_trial(run("smdebug", 6)).workers()) == 2


# -------------------------------------------------------------------------------------------------------------- silence


@pytest.mark.parametrize("library", LIBRARIES)
def test_stalled_training(tmp_path, library):
    goes_on, stalls = threading.Event(), threading.Event()

    def training():
        torch.manual_seed(0)
        model, loss_of = Net(), nn.CrossEntropyLoss()
        hook, _ = hooked(tmp_path / "run", library, model, loss_of)
        for step in range(6):
            if step == 4:
                stalls.set()
                assert goes_on.wait(120)
            loss_of(model(torch.randn(8, 8)), torch.zeros(8, dtype=torch.long)).backward()
        hook.close()

    thread = threading.Thread(target=training)
    thread.start()
    try:
        assert stalls.wait(60)
        trial = create_trial(tmp_path / "run", wait=60)
        runner = RuleRunner(trial)
        runner.add("StalledTrainingRule", threshold="1")
        events = runner.events(timeout=120)
        runner.start()
        message = next(event.message for event in events if event.kind == "fired")
        assert "no new step for" in message
    finally:
        goes_on.set()
        thread.join(120)
    assert runner.wait(60)
    assert runner.status == {"StalledTrainingRule": "IssuesFound"}
    assert trial.steps() == list(range(6))
    # Now the run has ended: that nothing comes any more is as it should be.
    done = RuleRunner(create_trial(tmp_path / "run"))
    done.add("StalledTrainingRule", threshold="0")
    assert done.start().wait(60)
    assert done.status == {"StalledTrainingRule": "NoIssuesFound"}
