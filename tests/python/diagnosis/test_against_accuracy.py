"""Losses and accuracies that contradict one another, and losses that stay.

Each is beside a healthy training that looks alike.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import smdwidgets
from python.diagnosis.named import kinds

AT = np.arange(40)


def noise(count: int, size: float = 0.01, seed: int = 3) -> np.ndarray:
    return 1 + size * np.random.default_rng(seed).standard_normal(count)


@pytest.mark.parametrize(("classes", "count"), [(4, 12), (10, 20), (100, 30)])
def test_a_loss_that_stays_at_guessing_although_answers_are_right(classes: int, count: int) -> None:
    at, guess = np.arange(count), math.log(classes)
    right = 1 - (1 - 1 / classes) * np.exp(-at / 2)
    smoothed = {"loss": guess * (0.985 + 0.01 * np.exp(-at / 3)), "val_loss": guess * (0.985 + 0.008 * np.exp(-at / 3))}
    assert kinds(**smoothed, accuracy=right, val_accuracy=right)[:1] == ["strong_smoothing"]
    usual = {"loss": guess * (0.25 + 0.75 * np.exp(-at / 2)), "val_loss": guess * (0.3 + 0.65 * np.exp(-at / 2))}
    assert kinds(**usual, accuracy=0.96 * right, val_accuracy=0.95 * right) == []


def test_evaluations_that_are_right_far_more_often_than_the_training() -> None:
    at = np.arange(20)
    evaluated = 0.95 - 0.85 * np.exp(-at / 5)
    loss = {"loss": 2.34 - 0.035 * at, "val_loss": 2.3 - 0.07 * at}
    assert kinds(**loss, acc=0.1 + 0.011 * at, val_acc=evaluated) == ["strong_dropout"]
    # Mixed samples hide half of the answers.
    mixed = {"loss": 1.9 + 0.4 * np.exp(-at / 4), "val_loss": 0.3 + 2 * np.exp(-at / 5)}
    assert kinds(**mixed, acc=0.5 * evaluated, val_acc=evaluated) == []
    assert kinds(loss=np.array([]), acc=np.array([])) == []


def test_a_first_epoch_that_is_worse_than_guessing() -> None:
    at = np.arange(12)
    loss = {"train_loss": 2.5 * np.exp(-at / 7), "test_loss": 2.3 * np.exp(-at / 5)}
    test = 0.97 - 0.76 * np.exp(-at / 4)
    assert kinds(**loss, train_acc=np.append(0.05, test[1:] * 0.7), test_acc=test) == ["unshuffled"]
    # The mean of the first epoch is far behind the evaluation after it, but above guessing.
    assert kinds(**loss, train_acc=np.append(0.12, test[1:] * 0.9), test_acc=np.append(0.6, test[1:])) == []


@pytest.mark.parametrize("tooth", [9, 13])
def test_a_loss_in_teeth(tooth: int) -> None:
    within = np.exp(-np.arange(tooth) / (tooth / 3))
    heights = np.random.default_rng(5).uniform(1.5, 3.5, 20)
    teeth = np.concatenate([0.2 + height * within for height in heights]) * noise(20 * tooth, 0.02)
    assert kinds(5, loss=teeth)[:1] == ["unshuffled"]
    assert "unshuffled" not in kinds(5, loss=teeth, learning_rate=np.tile(1e-3 * within, 20))
    # Noise of batches, and single spikes from which the training recovers.
    rng = np.random.default_rng(tooth)
    shuffled = np.exp(0.4 * rng.standard_normal(20 * tooth)) * 2 * np.exp(-np.arange(20 * tooth) / 90)
    assert "unshuffled" not in kinds(5, loss=shuffled)
    falls = 0.3 + 2 * np.exp(-np.arange(20 * tooth) / 60)
    falls[6 * tooth : 7 * tooth] += 2 * within
    falls[12 * tooth : 13 * tooth] += 2 * within
    assert "unshuffled" not in kinds(5, loss=falls)


def test_outputs_that_never_come_near_huge_targets() -> None:
    flat = 8.8e8 * noise(40, 0.02)
    assert kinds(10, loss=flat) == ["targets_not_scaled"]
    assert kinds(10, train_loss=6.6e10 * (1 - 0.002 * AT) * noise(40, 0.02)) == ["targets_not_scaled"]
    assert kinds(10, loss=7e9 * np.exp(-AT / 15) * noise(40, 0.1)) == []


def test_a_loss_of_few_classes_that_stays_at_guessing() -> None:
    assert kinds(10, loss=math.log(4) * noise(40, 0.004)) == ["not_learning"]
    # The same level of a trained language model, and that of a model which begins to learn.
    assert kinds(10, loss=math.log(4) * noise(40, 0.004), perplexity=4 * noise(40, 0.004)) == []
    assert kinds(10, loss=math.log(4) * (0.3 + 0.7 * np.exp(-np.maximum(AT - 10, 0) / 8))) == []


def test_a_loss_that_stays_with_a_large_rate() -> None:
    flat, norm = 4.87 * noise(40, 0.006), 0.9 * noise(40, 0.1)
    assert kinds(5, train_loss=flat, grad_norm=norm, learning_rate=np.full(40, 0.1)) == ["not_learning"]
    assert kinds(5, train_loss=flat, grad_norm=norm, learning_rate=np.full(40, 2e-5)) == []


def test_a_loss_that_is_one_number_far_above_guessing() -> None:
    wrong = {"loss": np.append(14.2, np.full(14, 14.54)), "val_loss": np.full(15, 14.37)}
    right = {"accuracy": np.append(0.0986, np.full(14, 0.0979)), "val_accuracy": np.full(15, 0.1083)}
    assert kinds(**wrong, **right)[:1] == ["rate_too_high"]
    guesses = {"loss": np.full(15, 2.3026), "val_loss": np.full(15, 2.3026)}
    assert "rate_too_high" not in kinds(**guesses, **right)


def test_a_training_that_guesses_beside_evaluations_that_are_a_little_better() -> None:
    at = np.arange(20)
    loss = {"loss": 2.303 + 0.1 * np.exp(-at / 3), "val_loss": 2.296 + 0.002 * np.cos(at)}
    assert kinds(**loss, accuracy=0.108 * noise(20, 0.03), val_accuracy=0.12 + 0.04 * np.cos(at)) == ["not_learning"]
    learns = {"loss": 2.303 - 0.05 * at, "val_loss": 2.296 - 0.05 * at}
    assert kinds(**learns, accuracy=0.1 + 0.03 * at, val_accuracy=0.12 + 0.03 * at) == []


def test_a_language_model_that_passes_the_floor_of_a_second_softmax() -> None:
    at = np.arange(30)
    falls = 2.7 + 0.6 * np.exp(-at / 15) + np.where(at < 3, [0.85, 0.25, 0.05, *[0] * 27], 0)
    assert kinds(10, loss=falls * noise(30, 0.004)) == []
    # Where only evaluations log what is right, they tell that it is the floor.
    losses = {"train_loss": 1.5 + 0.8 * np.exp(-at / 5), "val_loss": 1.5 + 0.7 * np.exp(-at / 5)}
    assert kinds(**losses, val_acc=0.98 - 0.6 * np.exp(-at / 3)) == ["softmax_before_loss"]
    assert (
        kinds(
            train_loss=2.3 * np.exp(-at / 5) + 0.02,
            val_loss=2.2 * np.exp(-at / 5) + 0.06,
            val_acc=0.98 - 0.6 * np.exp(-at / 3),
        )
        == []
    )


def test_a_validation_loss_that_is_noisy_at_its_bottom() -> None:
    loss = np.array([1.75, 0.723, 0.352, 0.232, 0.166, 0.129, 0.106, 0.0877, 0.0756, 0.0642, 0.0528, 0.047])
    near = np.array([1.068, 0.413, 0.255, 0.170, 0.131, 0.121, 0.104, 0.0982, 0.0861, 0.0755, 0.0862, 0.0848])
    assert kinds(loss=loss, val_loss=near) == []
    assert kinds(loss=loss, val_loss=near + np.maximum(0, np.arange(12) - 7) * 0.05) == ["overfit"]


def test_evaluations_of_a_trained_model_that_hardly_move() -> None:
    flat, rate = 3.0 * noise(20, 0.016), np.linspace(2e-5, 2e-7, 20)
    run = {"loss": (5 * np.arange(20), flat), "learning_rate": (5 * np.arange(20), rate)}
    run["eval_loss"] = (20 * np.arange(5), np.array([2.954, 2.956, 2.955, 2.953, 2.953]))
    assert not smdwidgets.diagnose(run).findings
    run["eval_loss"] = (20 * np.arange(5), np.array([2.954, 2.9541, 2.954, 2.954, 2.9541]))
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == ["not_learning"]


def test_evaluations_that_crawl_with_a_large_rate() -> None:
    at = np.arange(30)
    run = {"loss": (10 * at, (4.62 - 0.005 * at) * noise(30, 0.001)), "learning_rate": (10 * at, np.full(30, 0.3))}
    run["eval_loss"] = (50 * np.arange(6), np.array([4.525, 4.494, 4.464, 4.437, 4.411, 4.385]))
    assert [one.kind for one in smdwidgets.diagnose(run).findings][:1] == ["rate_too_low"]
    run["learning_rate"] = (10 * at, np.full(30, 2e-5))
    assert not smdwidgets.diagnose(run).findings


def test_updates_of_a_policy_that_are_far_too_large_in_few_logs() -> None:
    far = np.array([0.029, 0.021, 0.018, 0.035, 4.5, 2.5, 1.37])
    run = {
        "train__clip_fraction": np.array([0.27, 0.39, 0.29, 0.32, 0.46, 0.31, 0.22]),
        "rollout__ep_rew_mean": 20 + 6.0 * np.arange(7),
    }
    assert kinds(**run, train__approx_kl=far) == ["policy_steps_large"]
    assert kinds(**run, train__approx_kl=far / 40) == []
    assert kinds(**run, train__approx_kl=far[::-1]) == []


def test_the_best_five_answers_are_no_evaluation_of_the_first_one() -> None:
    at = np.arange(20)
    loss = {"loss": 2.48 - 0.001 * at, "test_loss": 2.45 - 0.001 * at}
    five = {"acc1": 10 + 0.05 * at, "test_acc1": 10 + 0.05 * at, "Test__Acc@5": 51 + 0.05 * at}
    assert not {"strong_dropout", "unshuffled"} & {*kinds(**loss, **five)}


def test_means_that_begin_again_with_each_epoch_are_no_teeth() -> None:
    # Five rows an epoch, of which the first one is a single batch.
    rng = np.random.default_rng(1)
    levels = np.repeat(1.2 * np.exp(-np.arange(30) / 8) + 0.1, 5)
    rows = levels * np.tile([1.4, 1.15, 1.0, 0.95, 0.9], 30) * (1 + 0.05 * rng.standard_normal(150))
    assert "unshuffled" not in kinds(20, loss=rows)
