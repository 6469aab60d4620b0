"""Faults in the course of series, beside healthy trainings that look alike."""

from __future__ import annotations

import numpy as np
import pytest

import smdwidgets

SEEDS = [3, 11, 29]


def kinds(run) -> list[str]:
    """Return the kinds that are problems or warnings of some series with their steps."""
    return [one.kind for one in smdwidgets.diagnose(run).findings]


@pytest.mark.parametrize("seed", SEEDS)
def test_norms_of_gradients_that_are_not_reset(seed) -> None:
    rng = np.random.default_rng(seed)
    at = np.arange(1, 81)
    loss = 0.9 * np.exp(0.5 * rng.standard_normal(80))
    sums = 110 * (1 - np.exp(-at / 30)) * (1 + 0.005 * rng.standard_normal(80))
    assert kinds({"train_loss": (4 * at, loss), "grad_norm": (4 * at, sums)}) == ["gradients_add_up"]
    # Gradients of batches differ, and a small norm is steady.
    of_batches = sums * np.exp(0.3 * rng.standard_normal(80))
    assert "gradients_add_up" not in kinds({"train_loss": (4 * at, loss), "grad_norm": (4 * at, of_batches)})
    steady = 1.5 * (1 + 0.005 * rng.standard_normal(80))
    assert "gradients_add_up" not in kinds({"train_loss": (4 * at, loss), "grad_norm": (4 * at, steady)})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loss_that_is_lost_and_comes_back_with_the_rate(seed) -> None:
    rng = np.random.default_rng(seed)
    at = np.arange(1, 61)
    rate = 2.0 * (1 - at / 60)
    lost = np.where(at < 2, 9.0, 5.2 + 90 * np.exp(-at / 15)) * np.exp(0.1 * rng.standard_normal(60))
    assert "rate_too_high" in kinds({"loss": (at, lost), "learning_rate": (at, rate)})
    # Losses of small batches are often above twice the first one, but not in succession.
    noisy = 0.9 * np.exp(0.9 * rng.standard_normal(60) - at / 60)
    noisy[0] = 0.4
    assert "rate_too_high" not in kinds({"loss": (at, noisy), "learning_rate": (at, rate / 1000)})


@pytest.mark.parametrize("seed", SEEDS)
def test_evaluations_far_above_the_training_in_its_first_epoch(seed) -> None:
    rng = np.random.default_rng(seed)
    at = np.arange(5, 205, 5)
    loss = (0.3 + np.exp(-at / 8)) * (1 + 0.05 * rng.standard_normal(40))
    evaluated = 25 * np.arange(1, 9)
    far = 2.0 * (1 + 0.04 * rng.standard_normal(8))

    def found(rows_in_an_epoch, evaluations):
        run = {"loss": (at, loss), "epoch": (at, at / rows_in_an_epoch), "eval_loss": (evaluated, evaluations)}
        return kinds(run)

    assert "evaluation_differs" in found(100, far)
    # Rows that have come again before are learned by heart, and evaluations may follow the training.
    assert "evaluation_differs" not in found(10, far)
    assert found(100, 0.36 + np.exp(-evaluated / 9)) == []


def test_few_rows_that_are_learned_by_heart() -> None:
    at = np.arange(5, 305, 5)
    loss = 0.02 + 1.4 * np.exp(-(np.maximum(at - 40, 0) / 15))
    evaluated = np.arange(20, 320, 20)
    held_out = 3.55 - 2.16 * np.exp(-np.maximum(evaluated - 20, 0) / 80)
    share = np.array([0.235, 0.25, 0.325, 0.355, 0.325, 0.33, *[0.315] * 9])
    run = {
        "loss": (at, loss),
        "epoch": (at, at / 5),
        "eval_loss": (evaluated, held_out),
        "eval_accuracy": (evaluated, share),
    }
    assert kinds(run)[:1] == ["overfit"]


def test_evaluations_that_get_worse_than_chance() -> None:
    at = np.arange(1, 65)
    evaluated = np.arange(8, 72, 8)
    run = {
        "loss": (at, 1.39 * np.exp(-at / 170)),
        "eval_loss": (evaluated, np.linspace(1.39, 2.2, 8)),
        "eval_accuracy": (evaluated, np.array([0.25, 0.22, 0.16, 0.14, 0.12, 0.1, 0.09, 0.07])),
    }
    assert kinds(run)[:1] == ["evaluation_differs"]


def test_a_loss_of_large_first_outputs_that_falls_to_guessing() -> None:
    at = np.arange(4, 248, 4)
    rng = np.random.default_rng(5)
    loss = np.log(10) * (1 + 0.012 * rng.standard_normal(61)) + 315 * np.exp(-(at - 4.0))
    evaluated = np.arange(40, 280, 40)
    run = {
        "loss": (at, loss),
        "val_loss": (evaluated, np.array([2.339, 2.372, 2.345, 2.328, 2.31, 2.314])),
        "val_acc": (evaluated, np.array([0.0905, 0.0885, 0.0966, 0.0885, 0.0946, 0.0966])),
    }
    assert kinds(run)[:1] == ["not_learning"]


def test_three_evaluations_that_are_all_the_same() -> None:
    at = np.arange(5, 155, 5)
    rng = np.random.default_rng(7)
    loss = 5.2 + 0.06 * rng.standard_normal(30)

    def found(evaluations):
        run = {"loss": (at, loss), "learning_rate": (at, 1e-6 * (1 - at / 155)), "eval_loss": (at[9::10], evaluations)}
        return kinds(run)

    assert found([5.267, 5.267, 5.266]) == ["not_learning"]
    assert found([5.267, 5.21, 5.16]) == []


def test_a_poor_model_whose_training_rows_are_known() -> None:
    """Its loss of other data hardly rises."""
    at = np.arange(4, 324, 4)
    loss = 0.0016 + 2.34 * np.exp(-at / 8)
    evaluated = np.arange(20, 340, 20)

    def found(share):
        held_out = 2.06 - 0.17 * np.exp(-np.maximum(evaluated - 40, 0) / 100) + 0.2 * (evaluated < 40)
        return kinds({"train_loss": (at, loss), "val_loss": (evaluated, held_out), "val_accuracy": (evaluated, share)})

    assert found(0.49 - 0.22 * np.exp(-np.arange(16) / 0.7)) == ["overfit"]


@pytest.mark.parametrize("seed", SEEDS)
def test_preferred_answers_of_pairs_in_small_batches(seed) -> None:
    rng = np.random.default_rng(seed)
    at = np.arange(2, 122, 2)
    margins = 2.5 * (1 - np.exp(-at / 20)) + 0.5 * rng.standard_normal(60)

    def found(chosen):
        return kinds(
            {"logps/chosen": (at, chosen), "rewards/margins": (at, margins), "loss": (at, 0.69 - 0.1 * margins)}
        )

    # Long and short answers take turns.
    assert "metric_falls" not in found(-np.abs(rng.choice([2.0, 50.0, 90.0], 60)))
    assert "metric_falls" in found(-40 - 2.5 * at + 3 * rng.standard_normal(60))


def test_groups_of_which_some_still_differ() -> None:
    at = np.arange(1, 46)
    equal = np.where(at < 7, 0.0, 1.0)
    equal[[9, 11, 40]] = 0.5
    reward = -0.66 * np.exp(-at / 2) - 0.025
    run = {"reward": (at, reward), "frac_reward_zero_std": (at, equal), "grad_norm": (at, np.where(at < 7, 1.0, 1e-6))}
    assert "zero_advantage" in kinds(run)
