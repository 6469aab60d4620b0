"""Scalar logs of trainings as trainers write them, drawn by a seed.

They know what is wrong with each, or that nothing is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Log = Mapping[str, tuple[Any, Any]]

#: The kinds of which the first finding is one, and what draws the log, by name. No kinds: the training is healthy.
RUNS: dict[str, tuple[tuple[str, ...], Callable[[np.random.Generator], Log]]] = {}
UNSTABLE = ("diverged", "rate_too_high", "rate_rise", "not_finite")


def run(*kinds):
    def add(draw):
        RUNS[draw.__name__] = kinds, draw
        return draw

    return add


def steps(count, every=1, first=0):
    return np.arange(count) * every + first


def falling(rng, count, start, end, noise=0.03, rate=4.0):
    smooth = end + (start - end) * np.exp(-rate * np.arange(count) / count)
    return smooth * (1 + noise * rng.standard_normal(count))


def rising(count, start, end, rate=5.0):
    return start + (end - start) * (1 - np.exp(-rate * np.arange(count) / count))


def around(rng, count, level, noise):
    return level + noise * rng.standard_normal(count)


# ------------------------------------------------------------------------------------------------------- transformers


def fine_tuning(rng, **changed):
    at = steps(60, 5, 5)
    usual = {
        "loss": (at, falling(rng, 60, 2.5, 1.2)),
        "grad_norm": (at, falling(rng, 60, 2, 1, 0.2)),
        "learning_rate": (at, np.linspace(2e-4, 0, 60)),
        "epoch": (at, at / 200),
        "train_loss": ([305], [1.4]),
        "train_runtime": ([305], [300.0]),
    }
    return {**usual, **{name: (at if len(values) == 60 else values[0], values if len(values) == 60 else values[1]) for name, values in changed.items()}}  # fmt: skip


@run()
def fine_tuning_with_evaluations(rng):
    return fine_tuning(rng, eval_loss=([100, 200, 300], falling(rng, 3, 2.0, 1.3, 0.005)))


@run("overfit")
def fine_tuning_overfits(rng):
    evaluated = np.concatenate([np.linspace(1.6, 1.25, 5), np.linspace(1.3, 3.5, 15)])
    return fine_tuning(
        rng,
        loss=falling(rng, 60, 2.5, 0.05, 0.05),
        eval_loss=(steps(20, 15, 15), evaluated + around(rng, 20, 0, 0.02)),
    )


@run("overfit")
def three_evaluations_that_rise(rng):
    return {
        "loss": (steps(100, 30, 30), falling(rng, 100, 2.5, 0.1, rate=6)),
        "eval_loss": ([1000, 2000, 3000], np.array([1.2, 1.9, 3.1]) * around(rng, 3, 1, 0.01)),
    }


@run()
def three_evaluations_that_hardly_rise(rng):
    loss = np.repeat([1.5, 1.1, 0.8], 30) * around(rng, 90, 1, 0.08)
    return {"loss": (steps(90, 10), loss), "eval_loss": ([290, 590, 890], np.array([1.30, 1.27, 1.33]))}


@run()
def three_evaluations_while_a_metric_improves(rng):
    return {
        "loss": (steps(100, 30, 30), falling(rng, 100, 2.5, 0.1, rate=6)),
        "eval_loss": ([1000, 2000, 3000], [0.5, 0.6, 0.7]),
        "eval_accuracy": ([1000, 2000, 3000], [0.80, 0.84, 0.86]),
    }


@run(*UNSTABLE)
def rate_a_hundred_times_too_high(rng):
    loss = np.concatenate([[1.4, 3.0], 36 * np.exp(-np.arange(58) / 10) + 7.5]) * around(rng, 60, 1, 0.05)
    return fine_tuning(rng, loss=loss, grad_norm=falling(rng, 60, 2000, 200, 0.3))


@run("rate_zero")
def rate_of_zero(rng):
    return fine_tuning(rng, loss=around(rng, 60, 1.4, 0.08), learning_rate=np.zeros(60))


@run(*UNSTABLE)
def ten_values_of_which_the_first_is_best(rng):
    values = np.array([1.6, 11.8, 11.2, 10.9, 10.8, 10.7, 10.5, 10.6, 10.4, 10.4]) * around(rng, 10, 1, 0.02)
    return {"loss": (steps(10, 50, 50), np.append(1.6, values[1:]))}


@run("not_finite", "diverged")
def half_precision_that_overflows(rng):
    there = np.arange(60) < 20
    return fine_tuning(
        rng,
        loss=np.where(there, falling(rng, 60, 2.5, 1.2), 0.0),
        grad_norm=np.where(there, 1.0, math.nan),
    )


# -------------------------------------------------------------------------------------------------------- preferences


def preferences(rng, count=80):
    at, t = steps(count, 10, 10), np.arange(count) / count
    return {
        "loss": (at, 0.693 * np.exp(-1.2 * t) * around(rng, count, 1, 0.08)),
        "rewards/chosen": (at, -0.5 * t + around(rng, count, 0, 0.1)),
        "rewards/rejected": (at, -2.5 * t + around(rng, count, 0, 0.1)),
        "rewards/margins": (at, 2 * t + around(rng, count, 0, 0.1)),
        "rewards/accuracies": (at, 0.5 + 0.4 * t + around(rng, count, 0, 0.05)),
        "logps/rejected": (at, -220 - 90 * t + around(rng, count, 0, 5)),
        "logits/chosen": (at, around(rng, count, -1, 0.3)),
        "learning_rate": (at, np.linspace(5e-7, 0, count)),
    }


@run()
def preferences_that_are_learned(rng):
    return preferences(rng)


@run("not_learning", "rate_zero", "rate_too_low")
def preferences_that_are_not_learned(rng):
    log = {name: (at, around(rng, 80, 0, 1e-3)) for name, (at, _) in preferences(rng).items()}
    return {**log, "loss": (log["loss"][0], around(rng, 80, math.log(2), 1e-4)), "learning_rate": (log["loss"][0], np.full(80, 1e-9))}  # fmt: skip


@run(*UNSTABLE)
def preferences_that_diverge(rng):
    log = preferences(rng)
    at, loss = log["loss"]
    return {**log, "loss": (at, np.append(loss[:30], 0.4 + np.linspace(0, 6, 50) * around(rng, 50, 1, 0.1)))}


# ------------------------------------------------------------------------------------------------------------ rewards


def policy(rng, reward, name="rollout/ep_rew_mean"):
    count = len(reward)
    at = steps(count, 2048, 2048)
    return {
        name: (at, reward),
        "train/loss": (at, falling(rng, count, 50, 30, 0.4)),
        "train/value_loss": (at, falling(rng, count, 80, 60, 0.4)),
        "train/policy_gradient_loss": (at, around(rng, count, -0.01, 0.004)),
        "train/entropy_loss": (at, -np.linspace(1.4, 0.5, count)),
        "train/approx_kl": (at, np.abs(around(rng, count, 0.01, 0.003))),
        "train/explained_variance": (at, np.linspace(0, 0.8, count) + around(rng, count, 0, 0.05)),
    }


def grpo(rng, reward):
    count = len(reward)
    at = steps(count)
    return {
        "loss": (at, around(rng, count, 0, 1e-5)),
        "reward": (at, reward),
        "reward_std": (at, around(rng, count, 0.3, 0.05)),
        "kl": (at, 0.02 * np.arange(count) / count),
        "completions/mean_length": (at, around(rng, count, 300, 50)),
        "clip_ratio/region_mean": (at, np.abs(around(rng, count, 0, 0.01))),
        "entropy": (at, np.linspace(1.2, 0.7, count)),
    }


def dropping(rng, count, start, best, at, end, noise, rate=8.0):
    reward = rising(count, start, best, rate)
    reward[at:] = end
    return reward + around(rng, count, 0, noise)


@run()
def reward_of_language_that_rises(rng):
    return grpo(rng, rising(150, 0.2, 0.8) + around(rng, 150, 0, 0.06))


@run()
def reward_of_language_that_dips(rng):
    reward = rising(150, 0.2, 0.8)
    reward[60:80] = 0.1
    return grpo(rng, reward + around(rng, 150, 0, 0.05))


@run("collapsed")
def reward_of_language_that_collapses(rng):
    return grpo(rng, dropping(rng, 150, 0.2, 0.8, 90, 0.02, 0.04))


@run()
def reward_that_rises(rng):
    return policy(rng, rising(200, -200, 200) + around(rng, 200, 0, 15))


@run()
def reward_that_swings(rng):
    return policy(rng, rising(300, 0, 200) + 40 * np.sin(np.arange(300) / 12) + around(rng, 300, 0, 15))


@run()
def reward_that_loses_a_quarter(rng):
    reward = rising(200, 0, 200, 10)
    reward[120:] = np.linspace(reward[120], 150, 80)
    return policy(rng, reward + around(rng, 200, 0, 12))


@run("collapsed")
def reward_that_collapses_late(rng):
    return policy(rng, dropping(rng, 200, -200, 200, 150, -200, 15))


@run("collapsed")
def reward_that_peaks_early(rng):
    return policy(rng, dropping(rng, 200, 20, 480, 60, 25, 20, rate=20), "charts/episodic_return")


@run("collapsed")
def reward_that_fades(rng):
    reward = rising(120, 5, 390)
    reward[75:] = 380 * np.exp(-np.arange(45) / 4) + 9.75
    return policy(rng, reward + around(rng, 120, 0, 8), "Total Reward")


@run("collapsed")
def negative_reward_that_collapses(rng):
    return policy(rng, dropping(rng, 200, -1500, -180, 120, -1400, 60), "episode_reward")


@run("collapsed")
def reward_in_stairs(rng):
    reward = rising(240, 10, 500, 12)
    for begin, level in ((100, 250), (140, 100), (180, 15)):
        reward[begin:] = level
    return policy(rng, reward + around(rng, 240, 0, 15), "reward")


@run("collapsed")
def reward_of_sixteen_values(rng):
    reward = np.array([10, 50, 120, 200, 260, 300, 310, 305, 300, 20, 15, 12, 10, 12, 9, 11])
    return {"mean_return": (steps(16), reward + around(rng, 16, 0, 4))}


@run("diverged")
def critic_that_diverges(rng):
    log = policy(rng, around(rng, 200, -150, 10))
    del log["train/value_loss"]
    loss = np.exp(np.linspace(0, 16, 200)) * (1 + 0.2 * np.abs(rng.standard_normal(200)))
    return {**log, "train/critic_loss": (steps(200, 2048, 2048), loss)}


# ------------------------------------------------------------------------------------------------- losses of all sizes


@run()
def models_with_an_optimizer_each(rng):
    at = steps(300)
    rates = {f"optimizer/{name}/learning_rate_0": (at, np.full(300, 1e-3)) for name in ("Adam", "Adam_1")}
    swings = np.sin(np.arange(300) / 25)
    return {
        "loss_output_0": (at, 1.3 + 0.3 * swings + around(rng, 300, 0, 0.03) + np.linspace(0, 0.4, 300)),
        "loss_output_1": (at, 0.8 - 0.2 * swings + around(rng, 300, 0, 0.03)),
        **rates,
    }


@run("discriminator_wins")
def a_generator_that_always_loses(rng):
    at = steps(200, 50)
    lost = np.arange(200) >= 60
    return {
        "loss_D": (at, np.where(lost, 1e-4 * np.abs(rng.standard_normal(200)), around(rng, 200, 1.2, 0.15))),
        "loss_G": (at, around(rng, 200, 0.9, 0.15) + np.where(lost, 0.9 * (np.arange(200) - 60), 0)),
    }


@run()
def adversaries(rng):
    at = steps(300, 10)
    return {
        "loss_D": (at, around(rng, 300, 0.6, 0.15)),
        "loss_G": (at, 1.5 + np.linspace(0, 3, 300) + around(rng, 300, 0, 0.4)),
    }


@run()
def likelihood_below_zero(rng):
    return {
        "train_loss": (steps(200), np.linspace(1.5, -3, 200) + around(rng, 200, 0, 0.2)),
        "val_loss": (steps(20, 10, 9), np.linspace(1.4, -2.6, 20) + around(rng, 20, 0, 0.1)),
    }


@run()
def similarity_below_zero(rng):
    return {"loss": (steps(200), -rising(200, 0.05, 0.95) + around(rng, 200, 0, 0.01))}


@run("overfit")
def likelihood_that_overfits(rng):
    validation = np.concatenate([np.linspace(1.4, -1.5, 14), np.linspace(-1.5, 2.5, 26)])
    return {
        "train_loss": (steps(200), np.linspace(1.5, -4, 200) + around(rng, 200, 0, 0.2)),
        "val_loss": (steps(40, 5, 4), validation + around(rng, 40, 0, 0.1)),
    }


@run("loss_sign")
def loss_of_the_wrong_sign(rng):
    return {"loss": (steps(60), -math.log(8) * np.exp(np.arange(60) / rng.uniform(4, 10)))}


@run("loss_sign")
def loss_of_the_wrong_sign_that_is_lost(rng):
    values = -2.3 * np.exp(np.arange(80) ** 2 / 40)
    values[40:] = math.nan
    return {"loss": (steps(80), values * around(rng, 80, 1, 0.02)), "val_loss": (steps(8, 10), np.full(8, math.nan))}


@run()
def tiny_losses(rng):
    return {
        "loss": (steps(200), 1e-12 * falling(rng, 200, 8, 1, 0.1)),
        "val_loss": (steps(20, 10, 9), 1e-12 * falling(rng, 20, 8, 1.3, 0.05)),
    }


@run(*UNSTABLE)
def huge_losses_that_diverge(rng):
    loss = falling(rng, 200, 8, 1, 0.1)
    loss[120:] = around(rng, 80, 100, 10)
    return {"loss": (steps(200), 1e12 * loss)}


@run("overfit")
def huge_losses_that_overfit(rng):
    validation = np.concatenate([np.linspace(8, 3, 12), np.linspace(3, 9, 28)])
    return {
        "loss": (steps(200), 1e12 * falling(rng, 200, 8, 0.3, 0.05, 6)),
        "val_loss": (steps(40, 5, 4), 1e12 * validation * around(rng, 40, 1, 0.02)),
    }


@run("overfit")
def data_learned_by_heart(rng):
    return {
        "loss": (steps(200), falling(rng, 200, 2, 1e-5, 0.1, 30)),
        "val_loss": (steps(40, 5, 4), falling(rng, 40, 1.8, 0.5, 0.003, 30)),
    }


# ----------------------------------------------------------------------------------------------------------- odd logs


@run()
def log_with_gaps(rng):
    at = np.sort(rng.choice(3000, 300, replace=False))
    at[150:] += 5000
    return {"loss": (at, falling(rng, 300, 3, 1, 0.06))}


@run()
def resumed_training(rng):
    loss = falling(rng, 200, 3, 1, 0.05)
    return {
        "loss": (
            np.append(steps(120), steps(100, 1, 100)),
            np.append(loss[:120], loss[100:] * around(rng, 100, 1, 0.02)),
        )
    }


@run()
def steps_in_tokens(rng):
    return {"loss": (steps(100, 524_288_000), falling(rng, 100, 11, 3, 0.01, 9))}


@run()
def two_runs_in_turn(rng):
    one, other = falling(rng, 200, 3, 1, 0.04), falling(rng, 200, 3, 1.4, 0.04)
    return {"loss": (steps(200), np.where(np.arange(200) % 2, one, other))}


@run("not_finite")
def only_nan(rng):
    return {"loss": (steps(50), np.full(50, math.nan))}


@run()
def no_loss(rng):
    return {"accuracy": (steps(50), np.linspace(0.5, 0.9, 50) + around(rng, 50, 0, 0.01))}


@run(*UNSTABLE)
def diverges_in_the_first_twentieth(rng):
    return {"loss": (steps(400), np.append(np.linspace(2.3, 1.9, 12), around(rng, 388, 7, 0.3)))}


@run("not_learning")
def guesses(rng):
    return {"loss": (steps(300), around(rng, 300, math.log(10), 0.004))}


@run("not_learning")
def regression_that_learns_nothing(rng):
    return {
        "loss": (steps(300), 0.53 * around(rng, 300, 1, 0.05)),
        "val_loss": (steps(30, 10), 0.55 * around(rng, 30, 1, 0.01)),
    }


@run()
def fine_tuning_at_its_floor(rng):
    return {"loss": (steps(300), 1.3 * around(rng, 300, 1, 0.1))}


@run()
def diffusion(rng):
    return {"train_loss": (steps(400), (0.05 + 0.5 * np.exp(-np.arange(400) / 8)) * around(rng, 400, 1, 0.3))}


@run("rate_rise", "diverged")
def rate_that_jumps(rng):
    loss, rate = falling(rng, 200, 3, 1, 0.04), np.full(200, 1e-3)
    loss[120:], rate[120:] = around(rng, 80, 2.6, 0.2), 3e-2
    return {"loss": (steps(200), loss), "lr": (steps(200), rate)}


@run("clip_before_backward")
def clipping_before_the_backward_pass(rng):
    return {
        "loss": (steps(60), falling(rng, 60, 2.3, 1)),
        "optimizer/SGD/gradient_norm": (steps(60), falling(rng, 60, 2, 1)),
        "optimizer/SGD/gradient_norm_before_clipping": (steps(60), np.zeros(60)),
    }


@run()
def clipping_after_the_backward_pass(rng):
    return {
        "loss": (steps(60), falling(rng, 60, 2.3, 1)),
        "optimizer/SGD/gradient_norm": (steps(60), np.full(60, 0.1)),
        "optimizer/SGD/gradient_norm_before_clipping": (steps(60), falling(rng, 60, 2, 1)),
    }
