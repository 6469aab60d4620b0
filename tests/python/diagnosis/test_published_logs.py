"""Faults in logs of strangers, each beside a healthy training that looks alike.

The numbers are invented after logs that people have published with their models.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import smdwidgets
from python.diagnosis.named import kinds, kinds_of, of_trainer

RNG = np.random.default_rng(11)


def noise(count: int, size: float = 0.02) -> np.ndarray:
    return 1 + size * RNG.standard_normal(count)


def test_a_validation_loss_that_doubles_beside_few_training_losses() -> None:
    at = np.arange(45)
    rises = np.where(at < 5, 1.5 - 0.14 * at, 0.82 + 0.012 * (at - 5)) * noise(45, 0.01)
    few = np.array([0.93, 0.08, 0.012, 0.003, 0.0014, 0.001, 0.0007, 0.0006, 0.0004])
    run = {"eval_loss": (100 * (at + 1), rises), "loss": (500 * np.arange(1, 10), few)}
    assert kinds_of(run) == ["overfit"]
    run["eval_loss"] = (100 * (at + 1), 0.82 + 0.7 * np.exp(-at / 3) * noise(45, 0.01))
    assert kinds_of(run) == []


def test_a_training_that_goes_on_with_a_trained_model() -> None:
    """Its loss is small from the first value on, which is none of an untrained model."""
    training = 0.06 * np.exp(-np.arange(250) / 120) * np.abs(noise(250, 0.5))
    assert kinds(loss=training, eval_loss=np.linspace(0.69, 1.58, 250) * noise(250)) == ["overfit"]
    untrained = 1.1 * np.exp(-np.arange(250) / 60) * noise(250)
    assert kinds(loss=untrained, eval_loss=np.linspace(4.0, 9.0, 250) * noise(250)) == ["evaluation_differs"]


def test_a_rise_of_a_nat_of_a_large_loss() -> None:
    at = np.arange(23)
    training = np.linspace(9.76, 7.4, 230) * noise(230, 0.003)
    run = {
        "loss": (10 * np.arange(230), training),
        "eval_loss": (100 * at, np.minimum(9.76 + 0.15 * at, 10.7) * noise(23, 0.001)),
        "eval_accuracy": (100 * at, 0.0005 * at),
    }
    assert kinds_of(run) == ["overfit"]
    run["eval_loss"] = (100 * at, 9.76 * np.exp(-at / 60) * noise(23, 0.002))
    assert kinds_of(run) == []


def test_a_loss_that_rises_from_value_to_value() -> None:
    rises = np.array([1.0, 4.3, 8.8, 13.5, 15.7, 15.0, 18.8, 20.8, 25.6, 29.6])
    assert kinds(10, loss=rises, learning_rate=np.full(10, 5e-3)) == ["diverged"]
    assert kinds(10, loss=rises[::-1].copy()) == []


def test_a_noisy_loss_that_is_mostly_far_above_its_first_values() -> None:
    bursts = np.where(np.arange(600) < 200, 6.0, 24.0) * np.exp(0.3 * RNG.standard_normal(600))
    assert kinds(loss=bursts) == ["diverged"]
    assert kinds(loss=6 * np.exp(-np.arange(600) / 200) * np.exp(0.4 * RNG.standard_normal(600))) == []


def test_batches_that_vary_beside_a_mean_of_epochs_that_falls() -> None:
    batches = 0.1 + 0.1 * np.abs(RNG.standard_normal(40)) * np.linspace(0.2, 1.2, 40)
    falls = 2.3 * np.exp(-np.arange(30) / 8)
    run = {"loss": (np.arange(40), batches), "Loss": (np.arange(30), falls)}
    assert "diverged" not in kinds_of(run)


def test_a_loss_that_stays_at_that_of_guessing_a_token() -> None:
    level = math.log(50257) * noise(10, 1e-4)
    assert kinds(10, loss=level, learning_rate=np.linspace(5e-5, 1e-6, 10)) == ["not_learning"]
    assert kinds(10, loss=np.linspace(10.8, 6.1, 10)) == []


def test_two_evaluations_that_confirm_a_loss_of_guessing() -> None:
    guessed = np.linspace(1.13, 1.1, 50) * noise(50, 0.01)
    run = {
        "loss": (10 * np.arange(50), guessed),
        "eval_loss": ([250, 500], [1.117, 1.105]),
        "eval_accuracy": ([250, 500], [0.33, 0.3315]),
    }
    assert kinds_of(run) == ["not_learning"]
    run["loss"] = (10 * np.arange(50), np.linspace(1.13, 0.8, 50) * noise(50, 0.01))
    run |= {"eval_loss": ([250, 500], [0.98, 0.85]), "eval_accuracy": ([250, 500], [0.55, 0.62])}
    assert kinds_of(run) == []


@pytest.mark.parametrize("every", [1, 10])
def test_a_reward_of_answers_that_stays_where_it_was(every) -> None:
    count = 200 // every
    flat = 1.4 + 0.03 * np.sin(7 * np.arange(count))
    others = {"completions__mean_length": 300 * noise(count), "kl": 0.002 * np.abs(noise(count))}
    assert kinds(every, reward=flat, **others) == ["not_learning"]
    assert kinds(every, reward=flat + np.linspace(0, 0.6, count), **others) == []
    # Nothing more can be earned.
    assert kinds(every, reward=np.where(np.arange(count) % 7, 2.0, 1.9), **others) == []


def test_a_policy_that_was_best_before_it_was_trained() -> None:
    worse = np.append([-4800, -4850, -4900], -6200 + 300 * RNG.standard_normal(400))
    assert kinds(rollout__ep_rew_mean=worse) == ["not_learning"]
    better = np.append([-4800, -4850, -4900], np.linspace(-6000, -2000, 400) + 300 * RNG.standard_normal(400))
    assert kinds(rollout__ep_rew_mean=better) == []


def test_very_many_episodes_of_which_the_first_ones_are_as_good() -> None:
    flat = -103 + 8 * RNG.standard_normal(5000)
    assert kinds(50, **{"episode reward": flat}) == ["not_learning"]
    assert kinds(50, **{"episode reward": flat + np.linspace(0, 60, 5000)}) == []


def test_a_goal_that_is_reached_by_chance_only() -> None:
    rate = 0.06 + 0.02 * np.abs(RNG.standard_normal(43))
    assert kinds(test__success_rate=rate, train__success_rate=rate[::-1]) == ["not_learning"]
    assert kinds(test__success_rate=np.linspace(0.05, 0.9, 43)) == []


def test_a_part_of_the_reward_that_was_good_by_luck() -> None:
    """Small and noisy at first, and 0 later: it was never learned."""
    luck = np.where(np.arange(250) < 90, 0.05 * RNG.standard_normal(250), 0.0)
    learned = np.linspace(0.2, 1.5, 250) * noise(250, 0.2)
    run = {"reward": learned, "rewards__correctness": learned, "rewards__format": luck}
    assert kinds(**run) == []
    run["rewards__format"] = np.where(np.arange(250) < 90, 0.4, 0.0) + 0.02 * RNG.standard_normal(250)
    assert kinds(**run) == ["collapsed"]


def test_a_warm_up_that_is_as_long_as_the_training(tmp_path) -> None:
    rows = [{"step": 10 * n, "loss": 2 - 0.01 * n, "learning_rate": 1e-7 * n} for n in range(1, 31)]
    assert of_trainer(tmp_path / "long", rows) == ["warm_up_too_long"]
    # One that goes on is still in its warm-up.
    assert of_trainer(tmp_path / "begun", rows, max_steps=5000) == []
    decays = [row | {"learning_rate": 1e-7 * min(n, 31 - n)} for n, row in enumerate(rows, 1)]
    assert of_trainer(tmp_path / "decays", decays) == []


def test_a_rate_of_another_unit() -> None:
    falls = np.linspace(0.21, 0.15, 60) * noise(60, 0.1)
    assert kinds(10, loss=falls, learning_rate=np.linspace(1e-8, 1e-10, 60)) == ["rate_too_low"]
    assert kinds(10, loss=falls, learning_rate=np.linspace(1e-6, 1e-8, 60)) == []


def test_a_rate_that_is_printed_as_zero() -> None:
    """Some programs print five digits after the point."""
    assert kinds(loss=np.linspace(0.9, 0.6, 60) * noise(60), lr=np.zeros(60)) == []
    assert kinds(loss=0.9 * noise(60), lr=np.zeros(60)) == ["rate_zero"]


def test_evaluations_that_get_worse_with_the_rate() -> None:
    rate = np.minimum(np.arange(60) / 20, 1) * 1e-4
    loss = np.interp(np.arange(60), [0, 5, 20, 45, 59], [0.83, 0.13, 0.31, 0.28, 0.18]) * noise(60, 0.01)
    run = {
        "loss": (25 * np.arange(60), loss),
        "learning_rate": (25 * np.arange(60), rate),
        "eval_loss": (250 * np.arange(1, 7), [0.219, 0.416, 0.423, 0.41, 0.438, 0.402]),
    }
    assert kinds_of(run) == ["peak_rate_too_high"]
    run["eval_loss"] = (250 * np.arange(1, 7), [0.42, 0.38, 0.36, 0.35, 0.34, 0.34])
    run["loss"] = (25 * np.arange(60), np.linspace(0.83, 0.3, 60))
    assert kinds_of(run) == []


def test_gradients_of_tens_of_millions() -> None:
    level = np.linspace(2.12, 2.05, 100) * noise(100)
    assert kinds(100, loss=level, grad_norm=4e7 * noise(100)) == ["gradient_huge"]
    assert kinds(100, loss=level, grad_norm=4e3 * noise(100)) == []
    assert kinds(100, loss=1e7 * np.linspace(2.12, 1.05, 100) * noise(100), grad_norm=4e7 * noise(100)) == []


def test_pairs_that_are_ordered_by_chance() -> None:
    run = {"rewards__margins": noise(200), "rewards__chosen": noise(200)}
    assert kinds(loss=2.8 * noise(200), rewards__accuracies=0.55 * noise(200, 0.1), **run) == ["preferences_by_chance"]
    learns = np.linspace(0.5, 0.8, 200) * noise(200, 0.1)
    assert kinds(loss=np.linspace(0.69, 0.5, 200) * noise(200), rewards__accuracies=learns, **run) == []


def test_new_samples_that_are_predicted_with_certainty_in_the_first_epoch(tmp_path) -> None:
    def rows(losses):
        return [{"step": 10 * n, "epoch": n / 100, "loss": float(one)} for n, one in enumerate(losses, 1)]

    certain = 9.2 * np.exp(-np.arange(90) / 3) + 1e-4
    assert of_trainer(tmp_path / "certain", rows(certain)) == ["evaluation_too_good"]
    assert of_trainer(tmp_path / "usual", rows(1.2 + 8 * np.exp(-np.arange(90) / 9))) == []


def test_held_out_samples_that_are_predicted_with_certainty(tmp_path) -> None:
    rows = [{"step": 100 * n, "epoch": n / 3, "loss": 2.4 * 0.7**n + 7e-4} for n in range(1, 31)]
    evaluated = [{"step": 500 * n, "epoch": 5 * n / 3, "eval_loss": 1e-2 * 0.3**n + 6e-4} for n in range(1, 7)]
    assert of_trainer(tmp_path / "certain", [*rows, *evaluated]) == ["evaluation_too_good"]
    usual = [row | {"eval_loss": 0.3} for row in evaluated]
    assert of_trainer(tmp_path / "usual", [*[row | {"loss": row["loss"] + 0.3} for row in rows], *usual]) == []


def test_every_metric_is_perfect_from_the_first_evaluation_on() -> None:
    loss = 0.7 * np.exp(-np.arange(50) / 6) + 2e-4
    perfect = {"eval_accuracy": np.ones(5), "eval_f1": np.ones(5), "eval_loss": np.array([16, 4, 2, 1.5, 1.4]) * 1e-4}
    run = {"loss": (10 * np.arange(50), loss)} | {name: (100 * np.arange(1, 6), one) for name, one in perfect.items()}
    assert kinds_of(run) == ["evaluation_too_good"]
    run["eval_f1"] = (100 * np.arange(1, 6), np.linspace(0.8, 0.93, 5))
    assert kinds_of(run) == []


def test_generated_texts_that_do_not_end() -> None:
    run = {
        "loss": (10 * np.arange(100), 32 * np.exp(-np.arange(100) / 40) * noise(100)),
        "eval_score": (np.arange(1, 5) * 250, [0.02, 0.017, 0.021, 0.022]),
        "eval_ref_len": (np.arange(1, 5) * 250, np.full(4, 14290.0)),
        "eval_sys_len": (np.arange(1, 5) * 250, [249700.0, 240000.0, 227600.0, 218500.0]),
    }
    assert kinds_of(run) == ["metric_stuck"]
    run["eval_sys_len"] = (np.arange(1, 5) * 250, [16000.0, 15000.0, 14500.0, 14400.0])
    assert kinds_of(run) == []


def test_many_epochs_without_an_evaluation(tmp_path) -> None:
    def rows(epochs, loss):
        return [{"step": 10 * n, "epoch": n * epochs / 100, "loss": float(one)} for n, one in enumerate(loss, 1)]

    by_heart = 4.2 * np.exp(-np.arange(100) / 12) + 0.003
    assert of_trainer(tmp_path / "many", rows(130, by_heart)) == ["overfit"]
    assert of_trainer(tmp_path / "few", rows(3, by_heart + 0.4)) == []
    judged = [*rows(130, by_heart), {"step": 1000, "epoch": 130, "eval_accuracy": 0.9}]
    assert of_trainer(tmp_path / "judged", judged) == []


def test_an_accuracy_that_falls_while_the_training_loss_vanishes() -> None:
    at = np.arange(50)
    training = 2.4 * np.exp(-at / 15)
    falls = np.interp(at, [0, 12, 50], [0.36, 0.75, 0.61]) * noise(50, 0.01)
    assert kinds(train__loss=training, val__loss=2.1 * noise(50, 0.01), metrics__accuracy_top1=falls) == ["overfit"]
    stays = np.interp(at, [0, 12, 50], [0.36, 0.72, 0.75]) * noise(50, 0.01)
    assert kinds(train__loss=training, val__loss=2.1 * noise(50, 0.01), metrics__accuracy_top1=stays) == []


def test_an_accuracy_that_stays_poor_beside_a_training_loss_of_nearly_0() -> None:
    """It is one of other data, whatever its name."""
    at = np.arange(100)
    run = {"Loss": 0.5 * np.exp(-at / 15), "Accuracy": np.interp(at, [0, 20, 100], [0.24, 0.4, 0.4]) * noise(100)}
    assert kinds(**run) == ["overfit"]
    run["Accuracy"] = np.interp(at, [0, 20, 100], [0.24, 0.8, 0.9])
    assert kinds(**run) == []


def test_a_rate_of_errors_of_nearly_all_letters() -> None:
    errors = np.array([485.9, 158, 110, 100, 100, 100, 100, 100, 100, 100, 99.1, 99.0, 98.9, 98.4])
    falls = np.array([2001, 1894, 1500, 1208, 825, 400, 185, 135, 148, 140, 139, 138, 138, 133.0])
    assert kinds(loss=falls, val_cer=errors) == ["metric_stuck"]
    assert kinds(loss=falls, val_cer=np.linspace(100, 30, 14)) == []


@pytest.mark.parametrize(("height", "expected"), [(0.02, []), (0.4, ["spike"])])
def test_a_bump_that_is_small_for_what_was_learned(height, expected) -> None:
    loss = (0.017 + 1.5 * np.exp(-np.arange(2000) / 15)) * noise(2000, 0.05)
    loss[1200:1208] += height
    assert kinds(10, loss=loss) == expected


def test_a_threshold_is_no_metric() -> None:
    loss = np.linspace(1.4, 0.6, 11)
    run = {"loss": loss, "eval_f1": np.linspace(72, 82, 11), "eval_best_f1_thresh": np.zeros(11)}
    assert kinds(2000, **run) == []


def test_held_out_losses_below_the_floor_of_a_second_softmax() -> None:
    """A softmax of probabilities has a least loss, which no data are below."""
    at = np.arange(39)
    training = 1.56 + 1.3 * np.exp(-at / 7) * noise(39, 0.003)
    run = {"loss": (500 * at, training), "eval_loss": (2000 * np.arange(10), 1.46 + 0.5 * np.exp(-np.arange(10) / 3))}
    assert "softmax_before_loss" not in kinds_of(run)


def test_a_log_without_a_finite_evaluation(tmp_path) -> None:
    """The best metric is then infinite, and no evaluation has a value."""
    rows = [{"step": 10 * n, "loss": 2 - 0.02 * n} for n in range(1, 31)]
    rows += [{"step": 50 * n, "eval_loss": float("nan")} for n in range(1, 7)]
    assert of_trainer(tmp_path / "run", rows, best_metric=float("inf"), best_global_step=50) == ["not_finite"]


def epochs(losses, **evaluations) -> list[dict[str, float]]:
    """Return the logs of a trainer that logs and evaluates once an epoch."""
    rows: list[dict[str, float]] = []
    for at, loss in enumerate(losses):
        place = {"epoch": at + 1.0, "step": 250 * (at + 1)}
        rows.append({**place, "loss": float(loss), "learning_rate": 2e-5 * (1 - at / len(losses))})
        if evaluations:
            rows.append({**place, **{f"eval_{name}": float(values[at]) for name, values in evaluations.items()}})
    return rows


def test_few_evaluations_that_rise_while_the_training_loss_falls(tmp_path) -> None:
    falls = [0.46, 0.25, 0.12, 0.045, 0.011]
    # The loss grows nearly threefold, which a metric that creeps up does not outweigh.
    far = of_trainer(
        tmp_path, epochs(falls, loss=[0.36, 0.4, 0.6, 0.93, 1.0], accuracy=[0.84, 0.83, 0.84, 0.845, 0.85])
    )
    assert far == ["overfit"]
    assert of_trainer(tmp_path, epochs(falls, loss=[0.41, 0.44, 0.46, 0.45, 0.48])) == ["overfit"]
    # One that improves beside a rise of a fifth may be over-confidence only.
    improves = epochs(falls, loss=[0.36, 0.3, 0.32, 0.34, 0.35], accuracy=[0.75, 0.8, 0.83, 0.85, 0.86])
    assert of_trainer(tmp_path, improves) == []
    assert of_trainer(tmp_path, epochs(falls, loss=[0.36, 0.31, 0.29, 0.28, 0.285])) == []
    assert of_trainer(tmp_path, epochs([0.46, 0.45, 0.44, 0.44, 0.43], loss=[0.4, 0.47, 0.43, 0.48, 0.46])) == []


def test_two_evaluations_of_a_training_that_halves_its_loss(tmp_path) -> None:
    def run(second: float, later: float) -> list[str]:
        losses = np.where(np.arange(40) < 20, 0.4, later) * noise(40, 0.1)
        rows = [{"step": 50 * (at + 1), "loss": loss, "learning_rate": 1e-5} for at, loss in enumerate(losses)]
        rows += [{"step": 1000, "eval_loss": 0.37}, {"step": 2000, "eval_loss": second}]
        return of_trainer(tmp_path, sorted(rows, key=lambda row: row["step"]))

    assert run(0.46, 0.18) == ["overfit"]
    assert run(0.39, 0.18) == []
    assert run(0.46, 0.37) == []


def test_evaluations_that_are_never_finite(tmp_path) -> None:
    rows = epochs([5.9, 5.6, 5.4, 5.3], loss=[np.nan] * 4)
    assert of_trainer(tmp_path, [row for row in rows if row["epoch"] != 1 or "loss" in row]) == ["not_finite"]
    few = [row for row in rows if "loss" in row or row["epoch"] in (2, 4)]
    assert of_trainer(tmp_path, few) == ["not_finite"]


def test_a_loss_of_nothing_that_no_evaluation_explains(tmp_path) -> None:
    at = np.arange(60)

    def run(end: float, first: float = 0.7, epochs: float = 2.0) -> list[str]:
        losses = (first * np.exp(-at / 2) + end) * np.exp(0.3 * RNG.standard_normal(60))
        shares = (at + 1) / 60
        rows = [
            {"step": 50 * (i + 1), "epoch": epochs * shares[i], "loss": float(losses[i]), "learning_rate": 1e-5}
            for i in range(60)
        ]
        return of_trainer(tmp_path, rows)

    assert run(0.0003) == ["evaluation_too_good"]  # within the first epoch, in which all samples are new
    assert run(0.0003, 0.18, 500.0) == ["overfit"]
    assert run(0.1) == []
    assert run(0.4, 8.6, 10.0) == []  # a twentieth of a loss that began far above guessing


def test_a_training_loss_of_exactly_zero() -> None:
    at = np.arange(200)
    losses = np.where(at < 60, 0.7 * np.exp(-at / 6), 0.0)
    assert kinds(10, train_loss=losses) == ["overfit"]
    assert kinds(10, train_loss=losses, val_accuracy=0.6 + 0.35 * (1 - np.exp(-at / 9))) == []
    assert kinds(10, train_loss=0.7 * np.exp(-at / 6)) == []


def tuned(loss, entropy, accuracy) -> list[dict[str, float]]:
    """Return the logs of a trainer of TRL."""
    rates = np.linspace(5e-5, 0, len(loss))
    names = ("loss", "entropy", "mean_token_accuracy", "learning_rate")
    return [
        {"step": 20 * (at + 1), **dict(zip(names, map(float, row), strict=True))}
        for at, row in enumerate(zip(loss, entropy, accuracy, rates, strict=True))
    ]


def test_a_language_model_that_does_not_move(tmp_path) -> None:
    still = tuned(4.69 * noise(34, 0.0015), 1.76 * noise(34, 0.001), 0.484 * noise(34, 0.003))
    assert of_trainer(tmp_path, still) == ["not_learning"]
    at = np.arange(34)
    learns = tuned(1.9 - 0.3 * at / 33 + 0.003 * noise(34), 1.76 - 0.1 * at / 33, 0.55 + 0.05 * at / 33)
    assert of_trainer(tmp_path, learns) == []
    varies = tuned(
        1.2 * noise(34, 0.04), 1.1 * noise(34, 0.03), 0.7 * noise(34, 0.02)
    )  # of a model that knows its data
    assert of_trainer(tmp_path, varies) == []


def test_two_classes_by_a_coin(tmp_path) -> None:
    level = [0.686, 0.688, 0.684, 0.678, 0.682, 0.679]
    guesses = epochs(level, loss=[0.669, 0.67, 0.668, 0.667, 0.665, 0.666], accuracy=[0.6] * 3 + [0.604] * 3)
    assert of_trainer(tmp_path, guesses) == ["not_learning"]
    learns = epochs(level, loss=[0.66, 0.65, 0.63, 0.61, 0.6, 0.59], accuracy=[0.6, 0.62, 0.64, 0.66, 0.68, 0.7])
    assert of_trainer(tmp_path, learns) == []


def test_hundreds_of_classes_of_which_none_is_learned(tmp_path) -> None:
    losses = [4.9, 4.8, 4.78, 4.75, 4.71, 4.7, 4.69, 4.66]
    evaluated = [4.98, 5.2, 5.3, 5.26, 5.3, 5.36, 5.33, 5.35]
    stuck = epochs(losses, loss=evaluated, accuracy=[0.021, 0.026, 0.022, 0.022, 0.014, 0.022, 0.022, 0.014])
    assert of_trainer(tmp_path, stuck)[0] == "not_learning"
    begins = epochs(np.linspace(5.2, 3.1, 8), loss=np.linspace(5.1, 3.4, 8), accuracy=np.linspace(0.01, 0.05, 8))
    assert of_trainer(tmp_path, begins) == []


def test_a_probe_that_stays_near_guessing() -> None:
    at = np.arange(26)
    assert kinds(accuracy=100 * (0.115 + 0.01 * at / 25) * noise(26, 0.01)) == ["not_learning"]
    assert kinds(accuracy=100 * (0.115 + 0.3 * (1 - np.exp(-at / 8)))) == []


def test_overlaps_of_nothing_beside_a_loss_that_falls() -> None:
    losses = 1.3 + 4.4 * np.exp(-np.arange(300) / 40)
    run = {
        "loss": (50 * np.arange(300), losses * noise(300, 0.05)),
        "mean_dice": (1250 * np.arange(10), np.array([0, 4, 2700, 0, 455, 186, 317, 506, 108, 120]) * 1e-6),
    }
    assert kinds_of(run) == ["metric_stuck"]
    run["mean_dice"] = (1250 * np.arange(10), np.linspace(0.001, 0.6, 10))
    assert kinds_of(run) == []


def test_four_classes_by_their_loss_and_one_evaluation(tmp_path) -> None:
    def run(level: float, accuracy: float) -> list[str]:
        losses = level + 0.08 * np.exp(-np.arange(75) / 20) + 0.004 * RNG.standard_normal(75)
        rows = [{"step": 100 * (at + 1), "loss": loss, "learning_rate": 1e-2} for at, loss in enumerate(losses)]
        return of_trainer(tmp_path, [*rows, {"step": 7500, "eval_loss": level - 0.008, "eval_accuracy": accuracy}])

    assert run(1.393, 0.2512) == ["not_learning"]
    assert "not_learning" not in run(1.1, 0.5)


def test_a_rate_that_ends_before_words_are_learned(tmp_path) -> None:
    def run(first: float, last: float) -> list[str]:
        at = np.arange(75)
        losses = (last + (first - last) * np.exp(-at / 35)) * noise(75, 0.015)
        rows = [
            {"step": 10 * (i + 1), "loss": float(losses[i]), "learning_rate": 5e-5 * (1 - i / 75), "epoch": i / 25}
            for i in range(75)
        ]
        return of_trainer(tmp_path, rows)

    assert run(10.7, 6.9) == ["rate_too_low"]
    assert run(3.4, 1.9) == []


def test_losses_of_adversaries_that_both_fall_without_bound() -> None:
    at = np.arange(300)
    wins, loses = -0.1 - 0.016 * at**2.0, -0.05 - 0.015 * at**2.0
    assert kinds(critic_loss=wins * noise(300), generator_loss=loses * noise(300)) == ["loss_sign"]
    assert kinds(critic_loss=-0.1 - 0.3 * np.exp(-at / 50), generator_loss=0.3 * RNG.standard_normal(300)) == []


def test_a_validation_loss_that_creeps_up_while_the_training_loss_falls() -> None:
    at = np.arange(18)
    falls = 0.68 * np.exp(-at / 13)
    rises = np.where(at < 6, 0.69 - 0.034 * at, 0.52 + 0.0055 * (at - 5)) * noise(18, 0.006)
    assert kinds(loss=falls, val_loss=rises) == ["overfit"]
    assert kinds(loss=0.42 + 0.26 * np.exp(-at / 3), val_loss=rises) == []
    better = (0.57 + 0.011 * at) * noise(18, 0.005)
    assert kinds(loss=falls, val_loss=rises, val_accuracy=better) == []


def test_updates_of_a_policy_that_go_far_beyond_their_clipping() -> None:
    at = np.arange(66)
    reward = 28 + 210 * (1 - np.exp(-at / 18))
    far = {"rollout__ep_rew_mean": reward, "train__approx_kl": np.minimum(0.5, 0.008 + 0.011 * at) * noise(66, 0.3)}
    assert kinds(**far, train__clip_fraction=np.minimum(0.6, 0.09 + 0.02 * at)) == ["policy_steps_large"]
    assert kinds(**far, train__clip_fraction=0.15 * noise(66, 0.2)) == []
    near = {"rollout__ep_rew_mean": reward, "train__approx_kl": 0.02 * noise(66, 0.4)}
    assert kinds(**near, train__clip_fraction=0.2 * noise(66, 0.2)) == []


def test_a_part_of_a_loss_that_is_never_computed() -> None:
    at = np.arange(60)
    falls = 1.4 * np.exp(-at / 20) + 0.1
    assert (
        kinds(train__loss=falls, train__adv_loss=np.full(60, np.nan), val__acc=0.5 + 0.4 * (1 - np.exp(-at / 9))) == []
    )
    assert kinds(train__loss=np.full(60, np.nan)) == ["not_finite"]


def test_two_classes_that_are_learned_by_heart_slowly() -> None:
    at = np.arange(10)
    losses, evaluated = (
        np.linspace(0.517, 0.316, 10),
        np.array([51, 48, 47, 47.5, 47, 46.5, 48.4, 49, 49.8, 50.5]) / 100,
    )
    run = {"loss": losses, "accuracy": np.linspace(0.758, 0.862, 10), "val_loss": evaluated}
    assert kinds(**run, val_accuracy=0.78 + 0.02 * (1 - np.exp(-at / 2))) == ["overfit"]


def test_evaluations_that_are_the_same_in_every_digit(tmp_path) -> None:
    def run(evaluated) -> list[str]:
        return of_trainer(tmp_path, [{"step": 10 * (i + 1), "eval_loss": float(v)} for i, v in enumerate(evaluated)])

    assert run([5.266577] * 7) == ["not_learning"]
    assert run([5.27, 5.1, 5.0, 4.9, 4.8, 4.75, 4.7]) == []


def test_few_evaluations_that_rise_without_a_training_loss(tmp_path) -> None:
    def run(*values: float) -> list[str]:
        return of_trainer(tmp_path, [{"step": i + 1, "eval_loss": value} for i, value in enumerate(values)])

    assert run(0.416, 0.368, 0.297, 0.261, 0.259, 0.27, 0.291, 0.308, 0.316) == ["overfit"]
    assert run(0.416, 0.368, 0.297, 0.261, 0.259, 0.27, 0.262, 0.268, 0.271) == []


def of_reward(reward: np.ndarray, **others: np.ndarray) -> list[str]:
    return kinds(episode_reward=reward, train__loss=np.abs(RNG.normal(1, 0.2, len(reward))), **others)


def test_rewards_that_are_the_same_to_the_end() -> None:
    assert of_reward(np.full(100, -10.0)) == ["not_learning"]
    assert of_reward(np.full(100, 500.0)) == []  # perhaps all that can be earned
    assert kinds(rollout__ep_rew_mean=RNG.normal(-150, 10, 100), train__loss=RNG.normal(1, 0.2, 100)) == []
    assert kinds(episode_reward=np.full(100, -10.0)) == []  # perhaps a number that is logged


def test_many_rewards_without_any_gain() -> None:
    level = RNG.normal(20, 8, 700)
    assert of_reward(level) == ["not_learning"]
    assert of_reward(level + np.linspace(0, 10, 700)) == []
    assert of_reward(level[:200]) == []


def test_actions_that_are_random_to_the_end() -> None:
    reward, rate = RNG.normal(21, 2, 60), np.ones(60)
    assert of_reward(reward, exploration_rate=rate) == ["not_learning"]
    assert of_reward(reward + np.linspace(0, 40, 60), exploration_rate=np.geomspace(1, 0.05, 60)) == []


def test_a_critic_of_few_values_without_bound() -> None:
    loss, reward = np.geomspace(4e4, 9e9, 14), RNG.normal(-1300, 150, 14)
    assert kinds(episode_reward=reward, train__critic_loss=loss) == ["diverged"]
    assert kinds(episode_reward=reward, train__critic_loss=np.geomspace(4, 40, 14)) == []


def test_an_area_below_that_of_chance() -> None:
    falls = 0.3 + 0.4 * np.exp(-np.arange(40) / 8)
    assert "evaluation_differs" in kinds(train__loss=falls, valid__auc=0.39 + 0.005 * RNG.standard_normal(40))
    assert kinds(train__loss=falls, valid__auc=0.6 + 0.2 * (1 - np.exp(-np.arange(40) / 8))) == []


def test_errors_that_are_never_made() -> None:
    losses = {
        "train__mlogloss": 0.001 + np.exp(-np.arange(60) / 3),
        "valid__mlogloss": 0.001 + np.exp(-np.arange(60) / 3),
    }
    assert kinds(**losses, valid__merror=np.zeros(60)) == ["evaluation_too_good"]
    losses["valid__mlogloss"] = losses["valid__mlogloss"] * 1.1 + 0.02
    assert kinds(**losses, valid__merror=0.2 * np.exp(-np.arange(60) / 9) + 0.01) == []


def test_errors_of_guessing_beside_a_loss_that_is_learned_by_heart() -> None:
    at = np.arange(150)
    losses = {"train__logloss": 0.4 + 0.29 * np.exp(-at / 70), "valid__logloss": 0.694 + 0.0002 * at}
    assert kinds(**losses, valid__error=0.49 + 0.01 * RNG.standard_normal(150))[:1] == ["labels_unrelated"]
    losses["valid__logloss"] = 0.5 + 0.19 * np.exp(-at / 70)
    assert kinds(**losses, valid__error=0.2 + 0.3 * np.exp(-at / 70)) == []


def test_a_loss_that_falls_in_a_line_by_next_to_nothing() -> None:
    at = np.arange(60)
    assert kinds(loss=1.534 - 0.0004 * at) == ["rate_too_low"]
    assert kinds(loss=0.5 + 1.034 * np.exp(-at / 12)) == []


def test_a_loss_of_large_first_outputs_that_falls_to_that_of_guessing() -> None:
    at = np.arange(80)
    loss = math.log(4) + 10 * np.exp(-at / 5)
    assert kinds(loss=loss, validation_accuracy=0.25 + 0.005 * RNG.standard_normal(80)) == ["not_learning"]
    assert kinds(loss=loss - 1.2 * (1 - np.exp(-at / 20)), validation_accuracy=0.9 - 0.65 * np.exp(-at / 20)) == []


def test_a_metric_that_is_never_finite_and_all_that_is_logged() -> None:
    assert kinds(train__accuracy=np.full(60, np.nan)) == ["not_finite"]


def test_a_rate_that_jumps_far_above_what_it_was() -> None:
    at = np.arange(24)
    rate = np.where(at < 15, 0.002 * (1 - at / 24), 0.08)
    before = 1.9 + 2.1 * np.exp(-at / 4)
    assert kinds(every=10, loss=np.where(at < 15, before, 2.3) * noise(24, 0.01), lr=rate)[:1] == ["rate_rise"]
    assert kinds(every=10, loss=before * noise(24, 0.01), lr=0.002 * (1 - at / 24)) == []


@pytest.mark.parametrize("classes", [2, 6])
def test_f1_and_accuracy_of_one_class(tmp_path, classes) -> None:
    losses = np.linspace(0.9, 0.6, 40) * math.log(classes) * noise(40, 0.01)

    def run(f1) -> list[str]:
        rows = [{"step": 10 * (at + 1), "loss": loss, "learning_rate": 3e-5} for at, loss in enumerate(losses)]
        for at, share in enumerate((0.4, 0.41, 0.4)):
            rows.append({"step": 100 * (at + 2), "eval_accuracy": share, "eval_f1": f1(share), "eval_loss": 0.5})
        return of_trainer(tmp_path, rows)

    assert run(lambda share: 2 * share / (1 + share) / classes) == ["one_class"]
    assert run(lambda share: 1.05 * 2 * share / (1 + share) / classes) == []


def test_a_recall_of_nothing_and_samples_that_are_only_ranked() -> None:
    recall = np.array([0.3, 0.05, 0, 0, 0, 0, 0, 0, 0, 0])
    run = {
        "loss": np.linspace(1.0, 0.18, 10),
        "val_loss": np.linspace(0.6, 0.15, 10),
        "val_accuracy": np.full(10, 0.967),
    }
    assert kinds(**run, val_recall=recall)[0] == "one_class"
    run["val_accuracy"] = np.linspace(0.92, 0.967, 10)
    assert "one_class" not in kinds(**run, val_recall=np.where(recall, recall, 0.2))
    errors = {"eval-error": np.linspace(0.58, 0.51, 16), "train-error": np.linspace(0.58, 0.49, 16)}
    run = {"eval-auc": np.linspace(0.68, 0.85, 16), "eval-logloss": np.linspace(1.3, 1.9, 16), **errors}
    assert [one.kind for one in smdwidgets.diagnose(run).findings][:1] == ["one_class"]
    run["eval-error"] = run["eval-error"] - 0.3
    assert "one_class" not in kinds_of({name: (np.arange(16), values) for name, values in run.items()})


def test_areas_of_equal_answers() -> None:
    level = np.full(20, 0.6625)
    assert kinds(train_loss=level, train_auc=np.full(20, 0.5), val_auc=np.full(20, 0.5)) == ["not_learning"]
    assert kinds(train_loss=level, train_auc=np.full(20, 0.7), val_auc=np.full(20, 0.7)) == []


def test_a_loss_that_is_never_below_that_of_guessing() -> None:
    at = np.arange(14)
    accuracy = 0.1 * noise(14, 0.08)
    loss = np.where(at, 2.36, 36.0) * (1 + 0.01 * np.abs(RNG.standard_normal(14)))
    assert kinds(loss=loss, acc=accuracy) == ["not_learning"]
    assert kinds(loss=2.3 * np.exp(-at / 10), acc=np.minimum(0.9, 0.1 * np.exp(at / 5))) == []


def test_a_rate_with_which_adamw_does_not_learn(tmp_path) -> None:
    at = np.arange(40)

    def run(rate: float, losses: np.ndarray) -> list[str]:
        rows = [{"step": 10 * (i + 1), "loss": losses[i], "learning_rate": rate, "epoch": i / 40} for i in range(40)]
        return of_trainer(tmp_path, rows)

    stays = (6.25 + 1.2 * np.exp(-at / 2)) * noise(40, 0.003)
    assert run(0.05, stays) == ["rate_too_high"]
    assert run(0.05, (2.0 + 5 * np.exp(-at / 12)) * noise(40, 0.01)) == []
    assert "rate_too_high" not in run(5e-5, stays)


def test_a_loss_whose_accuracy_is_lost_for_good() -> None:
    at = np.arange(25)
    loss = np.where(at < 4, 2.0 - 0.3 * at, 2.65) * noise(25, 0.02)
    accuracy = np.where(at < 4, 0.3 + 0.13 * at, 0.1) * noise(25, 0.05)
    assert kinds(train_loss=loss, train_acc=accuracy) == ["diverged"]
    assert kinds(train_loss=2.0 * np.exp(-at / 6), train_acc=1 - 0.7 * np.exp(-at / 6)) == []


def test_evaluations_that_leave_the_loss_of_guessing_at_once() -> None:
    at = np.arange(15)
    run = {"train_loss": 2.3 * np.exp(-at / 8), "train_acc": 1 - 0.9 * np.exp(-at / 6)}
    run["val_acc"] = np.linspace(0.1, 0.44, 15)
    assert kinds(**run, val_loss=np.array([2.3, 2.2, 3.6, 8.5, 15.0, *np.linspace(14, 12, 10)])) == [
        "evaluation_differs"
    ]
    assert "evaluation_differs" not in kinds(**run, val_loss=np.linspace(2.2, 2.9, 15))


def test_held_out_data_that_end_worse_than_at_first() -> None:
    at = np.arange(31)
    training = 0.69 * np.exp(-at / 40)
    worse = np.where(at < 4, 0.692 - 0.002 * at, 0.684 + 0.0015 * (at - 4)) * noise(31, 0.0005)
    assert kinds(train_loss=training, validation_loss=worse) == ["overfit"]
    assert kinds(train_loss=training, validation_loss=0.5 + 0.19 * np.exp(-at / 8)) == []


def test_a_model_that_explains_nothing() -> None:
    explained = 0.025 * (1 - np.exp(-np.arange(30) / 5)) * noise(30, 0.1)
    run = {"train_mse": 1.028 * noise(30, 0.001), "val_mse": 0.895 * noise(30, 0.004)}
    assert kinds(**run, val_r2=explained) == ["not_learning"]
    run = {"train_mse": np.linspace(1.0, 0.3, 30), "val_mse": np.linspace(1.0, 0.4, 30)}
    assert kinds(**run, val_r2=np.linspace(0.0, 0.6, 30)) == []


def test_pairs_of_a_batch_that_are_guessed(tmp_path) -> None:
    at = np.arange(25)

    def run(losses: np.ndarray, last: float) -> list[str]:
        rows = [{"step": 5 * (i + 1), "loss": losses[i], "learning_rate": 2e-4, "epoch": i / 8} for i in range(25)]
        rows += [{"step": 20 * (i + 1), "eval_loss": float(one)} for i, one in enumerate(np.linspace(2.08, last, 6))]
        return of_trainer(tmp_path, rows, train_batch_size=32)

    assert run((math.log(32) - 0.002 * at) * noise(25, 0.002), 2.11) == ["not_learning"]
    assert run(0.9 + 2.5 * np.exp(-at / 8), 0.9) == []


def test_a_trained_model_that_knows_the_data(tmp_path) -> None:
    """It gets better at every evaluation, however little, with a usual rate."""

    def run(rate: float, evaluations: np.ndarray) -> list[str]:
        losses = 4.7 * noise(24, 0.008)
        rows = [{"step": 5 * (at + 1), "loss": loss, "learning_rate": rate} for at, loss in enumerate(losses)]
        rows += [{"step": 20 * (at + 1), "eval_loss": float(loss)} for at, loss in enumerate(evaluations)]
        return of_trainer(tmp_path, rows)

    assert run(2e-5, 4.85 + 0.004 * np.exp(-np.arange(6) / 2)) == []
    assert run(1e-8, np.full(6, 4.85)) == ["rate_too_low"]


def test_preferences_that_are_learned_slowly(tmp_path) -> None:
    def run(margins: np.ndarray) -> list[str]:
        losses = 0.69 - 0.4 * margins * np.ones(14) + 0.002 * RNG.standard_normal(14)
        rows = [
            {"step": 5 * (at + 1), "loss": losses[at], "rewards/margins": margins[at], "rewards/accuracies": 0.55}
            for at in range(14)
        ]
        return of_trainer(tmp_path, rows)

    assert "not_learning" not in run(np.linspace(0.0, 0.06, 14) * noise(14, 0.2))
    assert run(0.002 * RNG.standard_normal(14)) == ["not_learning"]


def test_an_entropy_that_stays_that_of_random_actions() -> None:
    reward = np.linspace(20, 24, 30) * noise(30, 0.05)
    run = {
        "rollout__ep_rew_mean": reward,
        "train__approx_kl": 5e-4 * np.abs(noise(30, 0.5)),
        "train__clip_fraction": 0 * reward,
    }
    assert "policy_stuck" in kinds(**run, train__entropy_loss=np.linspace(-0.693, -0.68, 30))
    assert "policy_stuck" not in kinds(**run, train__entropy_loss=np.linspace(-0.693, -0.4, 30))


def test_pairs_that_evaluations_order_the_wrong_way_round() -> None:
    learned = np.minimum(0.9, 0.6 + 0.02 * np.arange(30))
    run = {"loss": 0.69 * np.exp(-np.arange(30) / 40) * noise(30), "rewards__accuracies": learned}
    wrong = np.array([0.08, 0.06, 0.07, 0.06])
    assert kinds(**run, eval_rewards__accuracies=wrong, eval_loss=1 + 0.1 * np.arange(4))[0] == "evaluation_differs"
    assert "evaluation_differs" not in kinds(
        **run, eval_rewards__accuracies=1 - wrong, eval_loss=0.6 - 0.02 * np.arange(4)
    )


def test_areas_of_chance_beside_a_training_that_learns_all() -> None:
    at = np.arange(60)
    trained = 1 - 0.33 * np.exp(-at / 12)
    assert kinds(training__auc=trained, valid_0__auc=0.51 * noise(60, 0.01)) == ["labels_unrelated"]
    assert "labels_unrelated" not in kinds(training__auc=trained, valid_0__auc=0.75 - 0.1 * np.exp(-at / 8))
    assert "labels_unrelated" not in kinds(training__auc=0.5 + 0.1 * trained, valid_0__auc=0.51 * noise(60, 0.01))


def test_an_accuracy_that_falls_to_nothing_while_the_loss_of_the_same_data_falls() -> None:
    loss = np.repeat([1.1, 0.9, 0.6, 0.55, 0.53], 3)
    lost = np.array([0.37, 0.165, 0.075, 0.075, 0.07])
    run = {"loss": loss, "eval_loss": np.array([1.1, 0.9, 0.6, 0.55, 0.53])}
    assert kinds(**run, eval_accuracy=lost) == ["metric_stuck"]
    assert kinds(**run, eval_accuracy=1 - lost) == []


def test_single_batches_far_outside_are_no_divergence() -> None:
    falls = 0.4 * np.exp(-np.arange(80) / 30) * noise(80, 0.1) + 0.2
    outliers = falls.copy()
    outliers[[13, 21, 30, 44, 52, 53, 60, 66, 71]] = 300 * RNG.uniform(0.5, 4, 9)
    assert kinds(loss=outliers) == ["spike"]
    lost = falls.copy()
    lost[40:] = 900.0
    assert kinds(loss=lost)[0] == "diverged"


def test_a_loss_that_is_still_far_above_its_last_level_has_no_spikes() -> None:
    """It falls fast, with noise, and is level for most of the run."""
    rng = np.random.default_rng(0)
    falls = 8 * np.exp(0.9 * rng.normal(size=1000) - np.arange(1000) / 12) + 2e-3 * np.exp(0.2 * rng.normal(size=1000))
    assert kinds(loss=falls) == []
    falls[[220, 400, 710]] = 1.0
    assert kinds(loss=falls) == ["spike"]


def test_one_evaluation_that_is_worse_by_chance() -> None:
    trains = 2 * np.exp(-np.arange(40) / 8) + 0.04
    losses = [1.28, 0.4, 0.23, 0.15, 0.13, 0.104, 0.087]
    at = (5 * np.arange(1, 9), np.array([*losses, 0.15]))
    assert kinds_of({"train_loss": (np.arange(40), trains), "val_loss": at}) == []
    far = (at[0], np.array([*losses, 0.9]))
    assert kinds_of({"train_loss": (np.arange(40), trains), "val_loss": far}) == ["overfit"]


def test_labels_at_random_in_few_logs() -> None:
    guesses = math.log(4) * noise(15, 0.002)
    run = {"loss": guesses, "eval_loss": np.array([1.381, 1.386, 1.386])}
    assert kinds(15, **run, eval_accuracy=np.array([0.305, 0.23, 0.23])) == ["not_learning"]
    run["loss"] = guesses - 0.02 * np.arange(15)
    assert kinds(15, **run, eval_accuracy=np.array([0.305, 0.33, 0.42])) == []


def test_a_training_without_targets_has_no_gradient_and_evaluations_without_a_number() -> None:
    run = {"loss": np.zeros(20), "grad_norm": np.zeros(20), "learning_rate": 1e-4 * np.arange(20, 0, -1)}
    assert kinds(10, **run, eval_loss=np.full(4, np.nan)) == ["gradient_zero"]


def test_a_stretch_of_damaged_rows_in_a_loss_that_has_learned_little() -> None:
    loss = (1.0 * np.exp(-np.arange(40) / 3) + 5.8 - 0.005 * np.arange(40)) * noise(40, 0.008)
    damaged = loss.copy()
    damaged[18:24] = [7.4, 6.95, 6.94, 6.94, 6.93, 6.5]
    assert kinds(10, loss=damaged) == ["spike"]
    assert kinds(10, loss=loss) == []


def test_a_loss_that_falls_through_zero_without_bound() -> None:
    at = np.arange(400)
    whole = 1.5 - 2.0 * np.maximum(at - 20, 0.0) ** 4
    assert kinds(total_loss=whole, vocoder_loss=whole - 1, spectro_loss=1.5 * noise(400, 0.3))[:1] == ["loss_sign"]
    # The likelihood of a density has no bound, but gains less and less.
    assert kinds(loss=1.5 - 4000 * (1 - np.exp(-at / 80)) * noise(400, 0.001)) == []


def test_a_validation_loss_that_jumps_above_its_best_beside_accuracies_that_part() -> None:
    at = np.arange(80)
    jumps = 0.86 + 0.5 * np.exp(-(((at - 25) / 12) ** 2)) * (1 + 0.3 * np.sin(at * 1.7))
    jumps[:6] = np.linspace(0.685, 0.647, 6)
    run = {
        "loss": 0.4 + 0.29 * np.exp(-at / 20),
        "model_acc": 86 - 32 * np.exp(-at / 20),
        "val_loss": jumps,
        "val_acc": (67 - 13 * np.exp(-at / 25)) * noise(80, 0.03),
    }
    assert kinds(**run) == ["overfit"]
    run["model_acc"] = 70 - 15 * np.exp(-at / 20)
    assert "overfit" not in kinds(**run)


def test_boxes_that_are_right_by_chance_to_the_end_of_the_schedule() -> None:
    at = np.arange(50)

    def run(classes: float, precision: float) -> dict[str, np.ndarray]:
        return {
            "train/box_loss": 2.3 + 1.35 * np.exp(-at / 25) * noise(50),
            "train/cls_loss": (4.5 - classes * (1 - np.exp(-at / 12))) * noise(50),
            "val/cls_loss": (4.1 - classes * (1 - np.exp(-at / 12))) * noise(50),
            "metrics/precision(B)": precision * (1 - np.exp(-(at + 5) / 12)),
            "metrics/recall(B)": 0.875 - 0.4 * np.exp(-at / 10),
            "metrics/mAP50(B)": 5 * precision * (1 - np.exp(-(at + 5) / 12)) * noise(50, 0.3),
            "lr/pg0": 5e-4 * (1 - at / 50),
        }

    assert kinds(**run(0.5, 0.004)) == ["not_learning"]
    assert kinds(**run(3.0, 0.15)) == []


def test_answers_that_never_end_from_early_on() -> None:
    at = np.arange(50)
    cut = np.where(at < 10, 0.6 + 0.04 * at, 1.0)
    run = {
        "reward": 0.5 + 0.4 * np.sin(at * 2.1),
        "completions/mean_length": np.where(at < 10, 424 + 9 * at, 512.0),
        "completions/clipped_ratio": cut,
        "kl": 0.04 * np.abs(noise(50)),
    }
    assert kinds(5, **run)[:1] == ["length_explosion"]
    run["completions/clipped_ratio"] = np.where(at % 3, 0.9, 0.6)
    assert "length_explosion" not in kinds(5, **run)


@pytest.mark.parametrize("name", ["env/reward_mean", "critic/rewards/mean", "objective/rlhf_reward"])
def test_a_flat_reward_of_answers_by_any_name(name) -> None:
    flat = 1.4 + 0.03 * np.sin(7 * np.arange(200))
    lengths = {"response_length/mean": 300 * noise(200)}
    assert kinds(**{name: flat}, **lengths) == ["not_learning"]
    assert kinds(**{name: flat + np.linspace(0, 0.6, 200)}, **lengths) == []


def test_advice_for_rewards_is_about_rewards() -> None:
    """Labels and the loss of a validation have nothing to do with them."""
    count = 200
    series = {"reward": 1.4 + 0.03 * np.sin(7 * np.arange(count)), "completions/mean_length": 300 * noise(count)}
    [finding] = smdwidgets.diagnose({name: (np.arange(count), one) for name, one in series.items()}).findings
    assert finding.kind == "not_learning"
    assert "random actions" in finding.try_
    assert "labels" not in finding.try_
    assert finding.rivals == ()


def test_a_discriminator_of_two_that_is_always_right_with_squared_losses() -> None:
    at = np.arange(60)
    run = {
        "D_A": (0.2 * noise(60, 0.2)),
        "G_A": (0.4 * noise(60, 0.2)),
        "D_B": 0.002 + 0.15 * np.exp(-at / 4),
        "G_B": 0.97 * noise(60) - 0.5 * np.exp(-at / 4),
        "cycle_A": 0.5 + np.exp(-at / 20),
    }
    losses = {f"{name} loss": one for name, one in run.items()}
    assert kinds(**losses) == ["discriminator_wins"]
    losses |= {"D_B loss": 0.2 * noise(60, 0.2), "G_B loss": 0.4 * noise(60, 0.2)}
    assert kinds(**losses) == []


def test_prices_that_drown_the_other_parts_of_a_loss() -> None:
    at = np.arange(50)
    squares = 2e8 + 1.7e9 * np.exp(-at / 10)
    run = {"loss": squares, "price_loss": 0.99 * squares, "signal_loss": 0.95 + 0.4 * np.exp(-at / 10)}
    assert kinds(**run) == ["targets_not_scaled"]
    assert kinds(loss=squares / 1e9, price_loss=0.99 * squares / 1e9, signal_loss=run["signal_loss"] / 1e3) == []


def test_squares_of_a_half() -> None:
    at = np.arange(80)
    assert kinds(50, train_loss=0.25 + 0.39 * np.exp(-at / 10)) == ["not_learning"]
    assert kinds(50, train_loss=0.24 + 0.39 * np.exp(-at / 30)) == []


def test_a_loss_that_goes_up_until_the_end() -> None:
    falls = 2.5 * np.exp(-np.arange(13) / 3.3) + 0.01
    rises = falls[-1] * np.array([1.1, 1.8, 3.3, 5.5, 7.6, 9.1])
    assert "diverged" in kinds(train_loss=np.concatenate([falls, rises]))
    assert kinds(train_loss=np.concatenate([falls, falls[-1] * np.array([1.1, 1.05, 1.2, 1.1, 1.15, 1.1])])) == []


def test_a_validation_loss_alone_that_soon_leaves_its_best() -> None:
    at = np.arange(2000)
    soon = np.where(at < 3, 2.4 - 0.75 * at, 4.1 - 3.2 * np.exp(-at / 15)) * noise(2000, 0.01)
    assert kinds(50, val_loss=soon) == ["overfit"]
    assert kinds(50, val_loss=(0.9 + 1.5 * np.exp(-at / 15)) * noise(2000, 0.01)) == []


def test_other_data_that_are_wrong_beside_training_data_that_are_all_right() -> None:
    at = np.arange(20)
    run = {
        "loss": 0.34 * np.exp(-at / 3.5) + 0.007,
        "accuracy": 1 - 0.13 * np.exp(-at / 3) - 0.0003,
        "val_loss": np.array([0.216, 0.237, 0.196, 0.205, 0.231, 0.226, 0.227, 0.277, 0.259, 0.268, *[0.248] * 10]),
        "val_accuracy": 0.93 - 0.007 * np.exp(-at / 2),
    }
    assert kinds(**run) == ["overfit"]
    assert kinds(**run | {"val_accuracy": 0.98 - 0.007 * np.exp(-at / 2)}) == []


def test_a_smoothed_loss_that_ends_where_that_of_probabilities_does() -> None:
    """Its first value is larger than a softmax before it allows."""
    at = np.arange(80)
    run = {"train_loss": 1.461 + 0.75 * np.exp(-at / 12), "train_acc": 0.97 - 0.4 * np.exp(-at / 20)}
    assert kinds(**run) == ["softmax_before_loss"]
    run["train_loss"][0] = 2.69
    assert kinds(**run) == []


def test_a_loss_that_begins_again_with_each_optimizer() -> None:
    """A federated training trains a copy for each client."""
    tooth = 2.3 * np.exp(-np.arange(10) / 6)
    run: dict[str, object] = {"loss": (np.arange(100), np.tile(tooth, 10) * noise(100, 0.01))}
    assert kinds_of(run) == ["unshuffled"]
    for number in range(10):
        steps = 10 * number + np.arange(10)
        run[f"optimizer/SGD_{number}/learning_rate_0"] = (steps, np.full(10, 0.08))
    assert kinds_of(run) == []
