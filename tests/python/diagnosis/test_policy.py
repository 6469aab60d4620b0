"""Reinforcement learning with language models: names of series, and faults."""

import numpy as np
import pytest

import smdwidgets
from smdwidgets.naming.policy import Quantity, quantity

COUNT = 80


def noise(scale, seed=0):
    return np.random.default_rng(seed).normal(0, scale, COUNT)


def log(**changes):
    """Return the series of a healthy GRPO training, with some of them replaced."""
    step = np.arange(COUNT)
    series = {
        "train/reward": 0.2 + 0.6 * (1 - np.exp(-step / 30)) + noise(0.03, 1),
        "train/reward_std": 0.4 + noise(0.03, 2),
        "train/frac_reward_zero_std": np.clip(0.2 + noise(0.1, 3), 0, 1),
        "train/entropy": 0.6 * np.exp(-step / 80) + noise(0.01, 4),
        "train/kl": 0.001 * step + np.abs(noise(0.002, 5)),
        "train/completions/mean_length": 300 + 2 * step + noise(10, 6),
        "train/completions/clipped_ratio": np.clip(0.05 + noise(0.02, 7), 0, 1),
        "train/sampling/sampling_logp_difference/mean": 0.02 + np.abs(noise(0.003, 8)),
        "train/sampling/importance_sampling_ratio/mean": 1 + noise(0.01, 9),
        "train/grad_norm": 0.3 + np.abs(noise(0.05, 10)),
    }
    return {**series, **{name.replace("__", "/"): values for name, values in changes.items()}}


def kinds(series):
    return {one.kind: one for one in smdwidgets.diagnose(series).findings}


def from_step(at, before, after):
    return np.where(np.arange(COUNT) < at, before, after)


def test_a_healthy_log_gives_nothing():
    assert not kinds(log())


def test_groups_with_equal_rewards():
    faults = kinds(log(train__frac_reward_zero_std=from_step(30, 0.3, 0.95), train__grad_norm=from_step(30, 0.3, 1e-6)))
    assert {*faults} == {"zero_advantage"}
    assert faults["zero_advantage"].first == 30
    assert "norm of the gradient 1e-06" in faults["zero_advantage"].text


def test_rewards_without_any_spread():
    assert kinds(log(train__reward_std=from_step(30, 0.3, 0.0)))["zero_advantage"].first == 30


LEVEL = 0.5 + noise(0.03, 1)
FALLING = np.interp(np.arange(COUNT), [0, 40, 79], [0.2, 0.7, 0.4]) + noise(0.02, 1)


def test_a_collapsed_entropy_is_found_where_the_reward_is_below_its_best():
    entropy = from_step(40, 0.6, 0.01) + np.abs(noise(0.003, 4))
    faults = kinds(log(train__entropy=entropy, train__reward=FALLING))
    assert "entropy_collapse" in faults
    assert abs(faults["entropy_collapse"].first - 40) <= 3
    assert not kinds(log(train__entropy=entropy))  # the reward still rises


def test_an_entropy_that_explodes():
    entropy = from_step(40, 0.5, 2.5) + np.abs(noise(0.01, 4))
    assert {*kinds(log(train__entropy=entropy, train__reward=LEVEL))} == {"entropy_explosion"}
    assert not kinds(log(train__entropy=entropy))


def test_a_divergence_without_a_higher_reward():
    kl = from_step(30, 0.02, 0.4) + np.abs(noise(0.005, 5))
    assert {*kinds(log(train__kl=kl, train__reward=LEVEL))} == {"kl_without_gain"}
    assert not kinds(log(train__kl=kl))


def test_answers_that_grow_to_the_limit():
    length = from_step(50, 300, 900) + noise(10, 6)
    truncated = from_step(50, 0.05, 0.6)
    faults = kinds(log(train__completions__mean_length=length, train__completions__clipped_ratio=truncated))
    assert {*faults} == {"length_explosion"}
    assert "60% truncated" in faults["length_explosion"].text
    assert not kinds(log(train__completions__mean_length=length))


def test_answers_that_all_grow_to_a_limit_near_their_first_length():
    length = from_step(8, 9, 16) + noise(0.1, 6)
    faults = kinds(
        log(train__completions__mean_length=length, train__completions__clipped_ratio=from_step(8, 0.05, 0.98))
    )
    assert {*faults} == {"length_explosion"}
    # The limit may be too low for the task from the start.
    assert not kinds(
        log(train__completions__mean_length=length, train__completions__clipped_ratio=from_step(8, 0.7, 0.98))
    )


def test_a_part_of_the_reward_that_is_lost_while_the_whole_rises():
    names = "train/rewards/correctness/mean", "train/rewards/format/mean"
    right, form = from_step(10, 0.3, 0.01) + noise(0.005, 7), from_step(10, 0.5, 4.5) + noise(0.02, 8)
    series = log() | {"train/reward": right + form} | dict(zip(names, (right, form), strict=True))
    assert {*kinds(series)} == {"collapsed"}
    soon = from_step(3, 0.3, 0.01) + noise(0.005, 7)  # it is lost before it was learned any further
    assert {*kinds(series | {"train/reward": soon + form, names[0]: soon})} == {"metric_falls"}
    right = from_step(10, 0.3, 0.6) + noise(0.005, 7)
    assert not kinds(series | {"train/reward": right + form, names[0]: right})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train/sampling/sampling_logp_difference/mean", 0.4),
        ("train/sampling/importance_sampling_ratio/mean", 0.465),
        ("training/rollout_probs_diff_mean", 0.136),
        ("training/rollout_actor_probs_pearson_corr", 0.8),
    ],
)
def test_a_sampler_that_differs_from_the_model(name, value):
    faults = kinds(log(**{name: from_step(20, {"corr": 0.99}.get(name[-4:], 1.0 if "ratio" in name else 0.01), value)}))
    assert {*faults} == {"sampler_mismatch"}
    assert abs(faults["sampler_mismatch"].first - 22) <= 2


def test_a_fault_that_is_over_is_not_found():
    share = np.where((np.arange(COUNT) > 20) & (np.arange(COUNT) < 50), 0.95, 0.2)
    assert not kinds(log(train__frac_reward_zero_std=share))


def test_a_policy_without_language_gives_nothing():
    series = {
        "rollout/ep_rew_mean": np.linspace(10, 200, COUNT) + noise(3),
        "train/entropy_loss": -np.linspace(0.69, 0.01, COUNT),
        "train/approx_kl": 0.01 + np.abs(noise(0.002)),
        "train/clip_fraction": np.full(COUNT, 0.1) + noise(0.01),
    }
    assert not kinds(series)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("entropy", Quantity.ENTROPY),
        ("scalar/actor/entropy", Quantity.ENTROPY),
        ("actor/entropy_loss", Quantity.ENTROPY),
        ("actor/entropy_coeff", None),
        ("train/cross_entropy", None),
        ("kl", Quantity.KL),
        ("objective/kl", Quantity.KL),
        ("actor/kl_loss", Quantity.KL),
        ("actor/reward_kl_penalty", Quantity.KL),
        ("actor/reward_kl_penalty_coeff", None),
        ("actor/ppo_kl", None),
        ("train/approx_kl", None),
        ("vllm_kl", None),
        ("rollout_corr/kl", None),
        ("frac_reward_zero_std", Quantity.EQUAL_GROUPS),
        ("reward_std", Quantity.REWARD_SPREAD),
        ("rewards/accuracy_reward/std", None),
        ("completions/mean_length", Quantity.LENGTH),
        ("completions/mean_terminated_length", None),
        ("completions/max_length", None),
        ("response_length/mean", Quantity.LENGTH),
        ("response_length", Quantity.LENGTH),
        ("response_length/clip_ratio", Quantity.TRUNCATED),
        ("response_length_non_aborted/mean", None),
        ("completions/clipped_ratio", Quantity.TRUNCATED),
        ("completions/truncated_fraction", Quantity.TRUNCATED),
        ("sampling/sampling_logp_difference/mean", Quantity.SAMPLER_LOG_GAP),
        ("sampling/sampling_logp_difference/max", None),
        ("sampling/importance_sampling_ratio/min", None),
        ("training/rollout_probs_diff_std", None),
        ("rollout_corr/log_ppl_abs_diff", Quantity.SAMPLER_LOG_GAP),
        ("loss", None),
        ("val/accuracy", None),
    ],
)
def test_a_name_tells_the_quantity(name, expected):
    assert quantity(name) is expected
