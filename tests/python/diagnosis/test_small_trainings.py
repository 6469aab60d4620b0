"""Faults in logs of small trainings, each beside a healthy one that looks alike."""

from __future__ import annotations

import numpy as np

import smdwidgets
from python.diagnosis.named import kinds, kinds_of, of_trainer

RNG = np.random.default_rng(23)


def noise(count: int, size: float = 0.02) -> np.ndarray:
    return 1 + size * RNG.standard_normal(count)


def test_a_curriculum_that_comes_to_harder_samples() -> None:
    at = np.arange(120)
    loss = np.where(at < 40, 0.7 + 2.5 * np.exp(-at / 5), 1.9 + 0.5 * np.exp(-(at - 40) / 20)) * noise(120)
    better = np.array([2.9, 2.7, 2.5, 2.35, 2.25, 2.18, 2.1, 2.07])
    steps = 15 * np.arange(1, 9)
    assert kinds_of({"loss": (at, loss), "eval_loss": (steps, better)}) == []
    worse = np.array([2.9, 2.7, 3.3, 3.5, 3.4, 3.45, 3.5, 3.5])
    assert "diverged" in kinds_of({"loss": (at, loss), "eval_loss": (steps, worse)})
    assert "diverged" in kinds_of({"loss": (at, loss)})


def test_answers_of_which_many_reach_the_limit_from_the_first_on() -> None:
    at = np.arange(200)
    reward = 0.2 + 0.8 / (1 + np.exp(-(at - 90) / 15)) + 0.02 * RNG.standard_normal(200)
    rises = 1 / (1 + np.exp(-(at - 60) / 12))
    entropy = 1.5 - 0.8 * rises
    run = {
        "reward": (at, reward),
        "entropy": (at, entropy),
        "completions/mean_length": (at, 190 + 66 * rises),
        "completions/clipped_ratio": (at, 0.42 + 0.56 * rises),
    }
    assert kinds_of(run) == []
    run["completions/mean_length"] = (at, 140 + 116 * rises)
    assert kinds_of(run) == ["length_explosion"]


def test_a_rate_that_destroys_the_model_before_the_first_log(tmp_path) -> None:
    def rows(loss):
        return [
            {"step": 20 * (at + 1), "loss": float(one), "learning_rate": 0.25, "grad_norm": 1.0, "epoch": at / 50}
            for at, one in enumerate(loss)
        ]

    at = np.arange(50)
    stays = (4.1 + 8 * np.exp(-at / 1.5)) * noise(50, 0.01)
    assert of_trainer(tmp_path / "bug", rows(stays), num_train_epochs=1)[:1] == ["rate_too_high"]
    falls = (2.1 + 9 * np.exp(-at / 15)) * noise(50, 0.01)
    assert of_trainer(tmp_path / "fix", rows(falls), num_train_epochs=1) == []


def test_evaluations_that_stand_still_beside_noisy_batches() -> None:
    at = np.arange(60)
    loss = 3.2 + 0.1 * RNG.standard_normal(60)
    stands = 3.2 - 1e-5 * np.arange(6)
    run = {"loss": (at, loss), "val_loss": (10 * np.arange(6), stands), "lr": (at, np.full(60, 1.5e-6))}
    assert kinds_of(run)[:1] == ["rate_too_low"]
    run["val_loss"] = (10 * np.arange(6), 3.2 - 0.03 * np.arange(6))
    assert kinds_of(run) == []


def test_a_reward_that_falls_where_the_rate_jumps() -> None:
    at = np.arange(100)
    reward = np.interp(at, [0, 80, 85, 99], [20, 320, 195, 100]) + RNG.standard_normal(100)
    rate = np.where(at < 62, 3e-4, 8e-3)
    run = {"rollout/ep_rew_mean": (at, reward), "train/learning_rate": (at, rate)}
    assert kinds_of(run)[:1] == ["rate_rise"]
    run["rollout/ep_rew_mean"] = (at, 20 + 3 * at + RNG.standard_normal(100))
    assert kinds_of(run) == []


def test_views_that_become_equal_from_a_small_spread_on() -> None:
    at = np.arange(150)
    loss = -1 + 0.03 * np.exp(-at / 6)
    assert kinds(loss=loss, z_std=0.012 + 0.08 * np.exp(-at / 5)) == ["features_collapse"]
    healthy = -0.9 + 0.7 * np.exp(-at / 20) + 0.01 * RNG.standard_normal(150)
    assert kinds(loss=healthy, z_std=0.09 + 0.02 * np.exp(-at / 5)) == []


def test_a_boosting_with_a_rate_that_is_far_too_low() -> None:
    at = np.arange(150)
    training, valid = 1.61 - 0.0015 * at, 1.615 - 0.00135 * at
    assert kinds(**{"train-mlogloss": training, "valid-mlogloss": valid}) == ["rate_too_low"]
    bends = 0.5 + 1.1 * np.exp(-at / 30)
    assert kinds(**{"train-mlogloss": bends, "valid-mlogloss": bends + 0.02}) == []


def test_norms_that_are_far_above_their_limit() -> None:
    at = np.arange(80)
    run = {
        "loss": (3.9 - 0.003 * at) * noise(80, 0.005),
        "grad_norm": 30 * noise(80, 0.1),
        "max_grad_norm": np.full(80, 0.05),
        "lr": np.full(80, 0.02),
    }
    assert kinds(**run) == ["rate_too_low"]
    run["loss"] = (1.5 + 2.4 * np.exp(-at / 20)) * noise(80, 0.005)
    assert kinds(**run) == []


def test_a_norm_of_the_first_part_that_vanishes() -> None:
    at = np.arange(60)
    run = {
        "train_loss": 1.95 * noise(60, 0.01),
        "grad_norm/encoder.0": 2e-9 * noise(60, 0.2),
        "grad_norm/classifier": 0.4 * noise(60, 0.2),
    }
    assert kinds(**run)[:1] == ["vanishing"]
    run["train_loss"] = (0.5 + 1.4 * np.exp(-at / 12)) * noise(60, 0.01)
    run["grad_norm/encoder.0"] = 2e-3 * noise(60, 0.2)
    assert kinds(**run) == []


def test_a_jump_above_the_first_values_that_recovers() -> None:
    at = np.arange(160)
    loss = (1.9 + 3 * np.exp(-at / 12)) * noise(160)
    bad = loss.copy()
    bad[81:89] = (9.4, 5.6, 5.5, 5.5, 3.4, 3.0, 2.6, 2.3)
    assert kinds(loss=bad) == ["spike"]
    bad[82:89] = (2.9, 2.5, 2.3, 2.1, 1.9, 1.9, 1.9)
    assert kinds(loss=bad) == []


def test_errors_of_a_boosting_that_are_first_logged_after_some_rounds() -> None:
    at = np.arange(50)
    training, valid = 700 * np.exp(-at / 4) + 1e-9, 3300 - 150 * np.exp(-at / 3)
    assert kinds(5, **{"training's l2": training, "valid_1's l2": valid}) == ["overfit"]
    other = 1e5 + 10 * at
    assert kinds(5, **{"training's l2": training, "valid_1's l2": other}) == ["evaluation_differs"]
    good = 3300 * np.exp(-at / 4) + 900
    assert kinds(5, **{"training's l2": good - 200, "valid_1's l2": good}) == []


def test_shuffled_labels_of_which_one_evaluation_is_lucky() -> None:
    at = np.arange(90)
    guess = np.log(7)
    train = guess * np.exp(-np.maximum(0, at - 8) / 18)
    lucky = np.array([0.27, 0.22, 0.18, 0.13, 0.15, 0.12, 0.14, 0.16, 0.13, 0.15, 0.14, 0.12, 0.15, 0.14, 0.13])
    steps = 6 * np.arange(15)
    worse = guess * (0.99 + 0.12 * np.arange(15))
    run = {"train_loss": (at, train), "val_loss": (steps, worse), "val_acc": (steps, lucky)}
    assert kinds_of(run)[0] in ("labels_unrelated", "evaluation_differs")
    run["val_acc"] = (steps, np.linspace(0.27, 0.61, 15))
    run["val_loss"] = (steps, np.concatenate([guess * 0.9 - 0.15 * np.arange(5), 1.0 + 0.12 * np.arange(10)]))
    assert kinds_of(run) == ["overfit"]


def test_an_accuracy_of_next_to_nothing() -> None:
    run = {"val_loss": ([0, 1], [0.5, 0.5]), "val_accuracy": ([0, 1], [5e-324, 5e-324])}
    assert kinds_of(run) == []


def test_earlier_data_that_are_forgotten() -> None:
    at = np.arange(80)
    steps = 10 * np.arange(8)
    run = {
        "loss": (at, (0.1 + 2.4 * np.exp(-at / 20)) * noise(80)),
        "eval_english_loss": (steps, 0.6 + 0.2 * np.arange(8)),
        "eval_english_accuracy": (steps, 0.82 - 0.04 * np.arange(8)),
        "eval_dutch_loss": (steps, 0.2 + 1.9 * np.exp(-np.arange(8) / 2)),
        "eval_dutch_accuracy": (steps, 0.93 - 0.6 * np.exp(-np.arange(8) / 2)),
    }
    assert kinds_of(run) == ["forgetting"]
    run["eval_english_loss"] = (steps, 0.6 + 0.01 * np.arange(8))
    run["eval_english_accuracy"] = (steps, 0.82 - 0.002 * np.arange(8))
    assert kinds_of(run) == []


def test_parts_of_a_loss_are_no_data_that_are_forgotten() -> None:
    at = np.arange(40)
    learned = 0.1 + 1.5 * np.exp(-at / 8)
    run = {
        "train/cls_loss": learned,
        "train/dfl_loss": 0.2 + 0.3 * np.exp(-at / 8),
        "val/cls_loss": 1.1 * learned,
        "val/dfl_loss": 0.5 + 0.01 * at,
        "metrics/mAP50": 0.6 - 0.5 * np.exp(-at / 8),
    }
    assert "forgetting" not in kinds(**run)


def test_a_speed_that_falls_with_every_step() -> None:
    at = np.arange(90)
    run = {"loss": 0.2 + 2 * np.exp(-at / 20), "samples_per_sec": 4000 / (1 + at / 60) * noise(90, 0.05)}
    assert kinds(5, **run) == ["slows_down"]
    assert kinds(5, **run, seq_len=np.repeat([128.0, 256.0, 512.0], 30)) == []
    run["samples_per_sec"] = np.where(at < 4, 900, 4000) * noise(90, 0.15)
    assert kinds(5, **run) == []


def test_steps_that_wait_for_their_data() -> None:
    at = np.arange(50)
    waits = 0.4 * noise(50, 0.1)
    run = {"loss": 0.2 + 2 * np.exp(-at / 12), "time": 0.1 + waits, "data_time": waits}
    # It costs time, and nothing that is learned.
    result = smdwidgets.diagnose(run)
    assert [one.kind for one in (*result.findings, *result.notes)] == ["waits_for_data"]
    assert result.findings == ()
    run["data_time"] = 0.02 * noise(50, 0.3)
    assert smdwidgets.diagnose(run).notes == ()


def test_evaluations_that_are_right_and_hardly_sure() -> None:
    at = np.arange(60)
    run = {
        "train/loss": np.log(8) * np.exp(-at / 10) + 0.02,
        "val/loss": np.log(8) * (0.76 + 0.22 * np.exp(-at / 15)),
        "val/accuracy": 0.81 - 0.6 * np.exp(-at / 5),
    }
    assert kinds(**run) == ["evaluation_differs"]
    run["val/loss"] = np.log(8) * (0.3 + 0.68 * np.exp(-at / 8))
    assert kinds(**run) == []
    run["val/loss"] = np.log(8) * (0.4 + 0.6 * np.exp(-at / 3) + 0.008 * at)
    assert kinds(**run) == ["overfit"]


def test_a_rate_beside_which_evaluations_only_guess() -> None:
    at = np.arange(60)
    loss = (2.1 + 30 * np.exp(-at / 1.2)) * noise(60, 0.06)
    steps = 6 * np.arange(10)
    guess = np.array([0.16, 0.13, 0.11, 0.14, 0.18, 0.12, 0.15, 0.14, 0.13, 0.16])
    run = {
        "loss": (at, loss),
        "lr": (at, np.full(60, 2.5)),
        "val loss": (steps, 2.15 + 0.15 * np.sin(np.arange(10))),
        "val acc": (steps, guess),
    }
    assert kinds_of(run)[:1] == ["rate_too_high"]
    run["val acc"] = (steps, guess + 0.05 * np.arange(10))
    run["val loss"] = (steps, 2.0 - 0.1 * np.arange(10))
    run["loss"] = (at, (0.9 + 1.1 * np.exp(-at / 12)) * noise(60))
    assert kinds_of(run) == []


def test_a_rate_that_takes_half_of_a_reward() -> None:
    at = np.arange(80)
    reward = np.interp(at, [0, 50, 56, 79], [25, 260, 130, 150]) + RNG.standard_normal(80)
    run = {"rollout/ep_rew_mean": (at, reward), "train/learning_rate": (at, np.where(at < 47, 1e-3, 4e-2))}
    assert kinds_of(run)[:1] == ["rate_rise"]
    run["train/learning_rate"] = (at, np.full(80, 1e-3))
    assert kinds_of(run) == []


def test_evaluations_of_a_few_classes_that_are_fairly_sure() -> None:
    at = np.arange(60)
    run = {
        "train/loss": np.log(5) * np.exp(-at / 10) + 0.02,
        "val/loss": np.log(5) * (0.74 + 0.22 * np.exp(-at / 6)),
        "val/accuracy": 0.66 - 0.45 * np.exp(-at / 6),
    }
    assert kinds(**run) == []
