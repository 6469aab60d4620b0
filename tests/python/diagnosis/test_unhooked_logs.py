"""Logs of trainings without a hook, each beside a healthy one that looks alike."""

from __future__ import annotations

import math

import numpy as np
import pytest

import smdwidgets
from smdwidgets.sources.log_pairs import tells

RNG = np.random.default_rng(11)


def noise(count: int, size: float = 0.02) -> np.ndarray:
    return 1 + size * RNG.standard_normal(count)


def first(every: int = 1, **series: np.ndarray) -> str:
    """Return the kind of the first finding; `__` in a name is a slash."""
    run = {name.replace("__", "/"): (every * np.arange(len(one)), np.asarray(one)) for name, one in series.items()}
    return next((one.kind for one in smdwidgets.diagnose(run).findings), "")


def policy_run(rate: float, best: float, end: float) -> dict[str, np.ndarray]:
    at = np.arange(40)
    reward = np.where(at < 14, 20 + (best - 20) * at / 14, best + (end - best) * np.minimum(1, (at - 14) / 4))
    return {
        "rollout__ep_rew_mean": reward * noise(40, 0.03),
        "rollout__ep_len_mean": reward * noise(40, 0.03),
        "train__approx_kl": 0.06 * np.abs(noise(40, 0.5)),
        "train__clip_fraction": 0.1 * np.abs(noise(40, 0.5)),
        "train__explained_variance": np.minimum(0.9, at / 10) * noise(40),
        "train__learning_rate": np.full(40, rate),
        "train__value_loss": 40 * np.exp(-at / 20),
    }


def test_a_reward_that_collapses_with_an_absurd_rate() -> None:
    assert first(**policy_run(0.05, 160, 55)) == "rate_too_high"
    assert first(**policy_run(3e-4, 160, 55)) == "collapsed"
    # The rate alone is no fault.
    assert first(**policy_run(0.05, 160, 200)) == ""


@pytest.mark.parametrize(("rate", "expected"), [(0.06, "rate_too_high"), (3e-5, "not_learning")])
def test_two_classes_that_are_guessed_with_an_absurd_rate(rate: float, expected: str) -> None:
    at = np.arange(20)
    run = {
        "loss": (20 * at, np.where(at < 3, 1.99 - 0.4 * at, 0.694 * noise(20, 0.002))),
        "learning_rate": (20 * at, rate * (1 - at / 20)),
        "eval_loss": (100 * np.arange(1, 5), np.array([0.70, 0.688, 0.688, 0.691])),
        "eval_accuracy": (100 * np.arange(1, 5), np.array([0.447, 0.553, 0.553, 0.553])),
        "total_flos": (np.array([400]), np.array([1e12])),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings][:1] == [expected]


@pytest.mark.parametrize(("peak", "expected"), [(3.0, "rate_too_high"), (0.01, "swings")])
def test_losses_that_swing_with_a_rate_above_2(peak: float, expected: str) -> None:
    at = np.arange(40)
    run = {"train__cls_loss": 4 * noise(40, 0.1), "val__cls_loss": 4 * np.exp(0.9 * RNG.standard_normal(40))}
    assert first(**run, lr__pg0=peak * (1 - at / 41)) == expected
    falls = {"train__cls_loss": 4 * np.exp(-at / 15) + 0.3, "val__cls_loss": 4 * np.exp(-at / 15) + 0.4}
    assert first(**falls, lr__pg0=peak * (1 - at / 41)) == ""


@pytest.mark.parametrize(("least", "expected"), [(6e-5, ["not_finite"]), (16384, [])])
def test_a_scale_of_gradients_in_lines_of_a_script(tmp_path, least: float, expected: list[str]) -> None:
    lines = [
        f"[epoch {at // 5}] step {10 * at:5d} loss {2.3 * math.exp(-at / 9):.4f} grad_scale {max(least, 65536 / 4**at):g} lr 0.001"
        for at in range(40)
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines))
    with smdwidgets.create_trial(tmp_path / "log.txt") as trial:
        found = [one.kind for one in smdwidgets.diagnose(trial).findings]
        assert "grad_scale" in trial.tensor_names()
    assert found == expected
    assert not tells(["scale"])


@pytest.mark.parametrize(("right", "falls", "expected"), [(0.56, 0.005, "preferences_by_chance"), (0.66, 0.08, "")])
def test_evaluations_of_pairs_that_are_ordered_by_chance(right: float, falls: float, expected: str) -> None:
    at, of = np.arange(60), np.arange(6)
    run = {
        "loss": (5 * at, 0.693 - 0.06 * at / 60),
        "rewards/accuracies": (5 * at, (0.5 + 0.16 * at / 60) * noise(60)),
        "rewards/margins": (5 * at, 0.001 * at),
        "eval_loss": (50 * of, 0.693 * (1 - falls * of / 5)),
        "eval_rewards/accuracies": (50 * of, 0.5 + (right - 0.5) * np.minimum(1, of / 3)),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings][:1] == [expected][: bool(expected)]


@pytest.mark.parametrize(("batches", "expected"), [(5, ["losses_on_two_scales"]), (2, [])])
def test_losses_of_transformers_that_differ_by_the_batches_of_an_update(batches: int, expected: list[str]) -> None:
    at = np.arange(24)
    loss = 2.7 + 1.7 * np.exp(-at / 6)
    run = {
        "loss": (10 * at, batches * loss * noise(24, 0.01)),
        "eval_loss": (50 * np.arange(1, 5), 0.98 * loss[5:21:5]),
        "total_flos": (np.array([230]), np.array([1e12])),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == expected


@pytest.mark.parametrize(
    ("explained", "loss", "expected"), [(0.0, 2.0, "not_learning"), (0.3, 2.0, ""), (0.0, 0.1, "")]
)
def test_a_critic_that_explains_nothing(explained: float, loss: float, expected: str) -> None:
    at = np.arange(40)
    run = policy_run(3e-4, 160, 200)
    run["train__explained_variance"] = explained * np.minimum(1, at / 10) + 0.01 * RNG.standard_normal(40)
    # The loss of a critic whose returns are nearly equal is small, and there is nothing to explain.
    run["train__value_loss"] = 100 * loss ** np.minimum(1, at / 20)
    assert first(**run) == expected
    assert first(**{**run, "rollout__ep_len_mean": np.ones(40)}) == ""


@pytest.mark.parametrize(("best", "expected"), [(0.01, "labels_unrelated"), (0.4, "overfit")])
def test_a_metric_of_nothing_beside_data_that_are_learned_by_heart(best: float, expected: str) -> None:
    at = np.arange(40)
    trained = 7.4 * np.exp(-at / 5) + 0.003
    run = {"train__box_loss": trained, "val__box_loss": np.minimum(12, 5.9 + 0.3 * at) * noise(40, 0.005)}
    assert first(**run, metrics__mAP50=best * (1 - np.exp(-at / 3))) == expected


@pytest.mark.parametrize(("speed", "expected"), [(1.0, "labels_unrelated"), (8.0, "overfit")])
def test_a_regression_that_learns_single_rows(speed: float, expected: str) -> None:
    """Single rows are learned slowly, and from the first epoch on nothing else is."""
    at = np.arange(60) / 59
    trained = 1.06 - 0.39 * (at**1.5 if speed == 1 else 1 - np.exp(-speed * at))
    assert first(train_loss=trained * noise(60, 0.002), val_loss=(1.15 + 0.3 * at) * noise(60, 0.003)) == expected


def test_validation_rows_that_are_trained_on() -> None:
    at = np.arange(20)
    learned = {
        "train_loss": 2.2 * np.exp(-at / 9),
        "val_loss": 2.1 * np.exp(-at / 9),
        "test_loss": 1.4 + 0.8 * np.exp(-at / 3),
    }
    run = {**learned, "train_acc": 0.1 + 0.045 * at, "test_acc": 0.55 - 0.45 * np.exp(-at / 3)}
    assert first(**run, val_acc=np.minimum(0.98, 0.1 + 0.065 * at)) == "evaluation_differs"
    assert first(**run, val_acc=0.6 - 0.5 * np.exp(-at / 3)) != "evaluation_differs"


@pytest.mark.parametrize(("jump", "expected"), [(0.8, "spike"), (0.0, "")])
def test_a_jump_from_which_a_run_has_not_recovered_at_its_end(jump: float, expected: str) -> None:
    at = np.arange(140)
    loss = 2.3 + 2.2 * np.exp(-at / 18) + np.where(at > 80, jump * (0.4 + 0.6 * np.exp(-(at - 80) / 30)), 0)
    assert first(5, loss=loss * noise(140, 0.03)) == expected


@pytest.mark.parametrize(("sorted_rows", "expected"), [(True, "unshuffled"), (False, "")])
def test_classes_that_follow_each_other_from_log_to_log(sorted_rows: bool, expected: str) -> None:
    """Each log of an epoch is that of another class, so that neighbours differ."""
    rng = np.random.default_rng(5)
    hard = rng.permutation(np.linspace(-0.5, 0.5, 11))
    at = np.arange(11)
    # The first classes are learned at once, and every other one is wrong; later, only how hard a class is remains.
    first = np.log(np.minimum(1.3 + 0.9 * at, 3.6)) if sorted_rows else np.log(2.3) + 0.2 * hard - 0.04 * at
    later = [np.log(2.2) - 0.18 * epoch + hard * (0.4 + 0.1 * epoch) for epoch in range(1, 15)]
    loss = np.exp(np.concatenate([first, *later])) * (1 + 0.03 * rng.standard_normal(165))
    steps = 4 * np.arange(165) + 3
    run = {
        "epoch": (steps, np.repeat(np.arange(15.0), 11)),
        "train_loss": (steps, loss),
        "val_loss": (44 * np.arange(1, 16) - 1, 2.2 * np.exp(-0.13 * np.arange(15))),
    }
    assert next((one.kind for one in smdwidgets.diagnose(run).findings), "") == expected


@pytest.mark.parametrize(("far", "clipped", "expected"), [(0.9, 0.2, "policy_steps_large"), (0.15, 0.2, "")])
def test_updates_that_are_too_far_for_a_policy_that_is_sure(far: float, clipped: float, expected: str) -> None:
    at = np.arange(40)
    run = policy_run(3e-4, 160, 170)
    run["train__approx_kl"] = np.where(at < 14, 0.03, far) * np.exp(0.8 * RNG.standard_normal(40))
    run["train__clip_fraction"] = clipped * noise(40, 0.2)
    assert first(**run) == expected


@pytest.mark.parametrize(
    ("best", "entropy", "expected"), [(1.0, 0.9, ""), (1.0, 1e-4, "zero_advantage"), (0.4, 0.9, "zero_advantage")]
)
def test_groups_of_equal_rewards_after_a_task_is_solved(best: float, entropy: float, expected: str) -> None:
    at = np.arange(100)
    solved = at > 40
    reward = np.where(solved, 1.0, 0.1 + 0.9 * at / 40)
    if best < 1:  # all answers to a prompt are the same, but not those to another one
        reward = np.where(solved, best * noise(100, 0.1), reward * best)
    run = {
        "reward": reward,
        "reward_std": np.where(solved, 0.0, 0.2),
        "frac_reward_zero_std": np.where(solved, 1.0, 0.1),
        "entropy": np.maximum(3.8 * np.exp(-at / 14), entropy),
        "grad_norm": np.where(solved, 0.0, 0.5),
        "loss": np.where(solved, 0.0, -0.05 * noise(100, 0.5)),
    }
    assert first(**run) == expected
