"""Faults in logs of strangers, each beside a healthy training that looks alike.

The numbers are invented after logs that people have published with their models.
"""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest

import smdwidgets

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def noise_of_each_test_alone(monkeypatch) -> None:
    """Make the noise of a test independent of those before it."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(11))


def noise(count: int, size: float = 0.02) -> np.ndarray:
    return 1 + size * RNG.standard_normal(count)


def kinds(every: int = 1, **series: np.ndarray) -> list[str]:
    """Return the kinds of the findings, without notes; `__` in a name is a slash."""
    run = {name.replace("__", "/"): (every * np.arange(len(one)), np.asarray(one)) for name, one in series.items()}
    return [one.kind for one in smdwidgets.diagnose(run).findings]


def kinds_of(run) -> list[str]:
    """Return the kinds of the findings of series with steps, without notes."""
    return [one.kind for one in smdwidgets.diagnose(run).findings]


def of_trainer(folder, rows, **state) -> list[str]:
    """Return the kinds of the findings in the state that Transformers writes."""
    folder.mkdir(exist_ok=True)
    file = folder / "trainer_state.json"
    last = rows[-1]["step"]
    file.write_text(
        json.dumps({"global_step": last, "max_steps": last, "num_train_epochs": 3, "log_history": rows, **state})
    )
    os.utime(file, (0, 0))
    return [one.kind for one in smdwidgets.diagnose(folder).findings]


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
