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


@pytest.mark.parametrize(
    ("rate", "chosen", "right", "expected"),
    [(0.01, -1.3, 0.56, "rate_too_high"), (0.01, -1.3, 0.8, ""), (1e-4, -1.3, 0.56, ""), (0.01, 0.3, 0.56, "")],
)
def test_preferred_answers_that_become_less_likely_at_an_absurd_rate(
    rate: float, chosen: float, right: float, expected: str
) -> None:
    at, of = np.arange(30), np.arange(6)
    gained = 1 - np.exp(-at / 6)
    run = {
        "loss": (10 * at, 0.69 - 0.05 * gained * noise(30)),
        "learning_rate": (10 * at, rate * (1 - at / 30)),
        "rewards/chosen": (10 * at, chosen * gained * noise(30, 0.1)),
        "rewards/accuracies": (10 * at, (0.5 + (right - 0.5) * gained) * noise(30)),
        "rewards/margins": (10 * at, 0.3 * gained),
        "mean_token_accuracy": (10 * at, 0.09 + 0.03 * gained),
        "eval_loss": (50 * of + 50, 0.69 - 0.007 * of),
        "eval_rewards/accuracies": (50 * of + 50, right + 0.002 * of),
        "total_flos": (np.array([300]), np.array([1e12])),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == [expected][: bool(expected)]


@pytest.mark.parametrize(("fall", "expected"), [(0.001, "rate_too_low"), (0.3, "")])
def test_updates_that_are_clipped_to_nothing(fall: float, expected: str) -> None:
    """The loss falls with each update by what its rate allows."""
    at, of = np.arange(24), np.arange(1, 13)
    line = np.cumsum(1 - np.arange(24) / 24)[1::2] / 12.5 if fall < 0.1 else 1 - np.exp(-of / 3)
    run = {
        "loss": (44 * at, 2.303 * (1 - fall * (1 - np.exp(-at / 6))) * noise(24, 0.001)),
        "grad_norm": (44 * at, 0.5 * noise(24, 0.3)),
        "learning_rate": (44 * at, 0.1 * (1 - at / 24)),
        "eval_loss": (88 * of, 2.31 * (1 - fall * line)),
        "eval_accuracy": (88 * of, 0.1 + 2 * fall * line),
        "total_flos": (np.array([1056]), np.array([1e12])),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == [expected][: bool(expected)]


def test_since_when_gradients_overflow_at_any_scale() -> None:
    at = np.arange(60)
    scale = np.where(at < 30, np.where(at % 8 < 4, 2.0**18, 2.0**17), 2.0 ** np.maximum(17 - (at - 29), -8))
    [one] = smdwidgets.diagnose({"loss": (at, 2 * np.exp(-at / 9)), "loss_scale": (at, scale)}).findings
    assert (one.kind, one.first is not None and 30 <= one.first <= 34) == ("not_finite", True)


def test_accuracies_of_tokens_beside_a_loss_of_pairs() -> None:
    """A tenth of the tokens may be right in a training that orders its pairs well."""
    at, of = np.arange(30), np.arange(6)
    run = {
        "loss": (10 * at, (0.64 + 0.04 * np.exp(-at / 8)) * noise(30, 0.005)),
        "rewards/accuracies": (10 * at, (0.58 + 0.1 * (1 - np.exp(-at / 5))) * noise(30)),
        "rewards/margins": (10 * at, 0.13 * (1 - np.exp(-at / 8))),
        "eval_loss": (50 * of + 50, 0.638 + 0.023 * np.exp(-of)),
        "eval_rewards/accuracies": (50 * of + 50, 0.61 + 0.006 * of),
        "eval_mean_token_accuracy": (50 * of + 50, 0.1 + 0.005 * of),
        "total_flos": (np.array([300]), np.array([1e12])),
    }
    assert not smdwidgets.diagnose(run).findings


@pytest.mark.parametrize(
    ("noisy", "evaluated", "expected"), [(0.6, 0.6, "swings"), (0.6, 0.35, "swings"), (0.05, 0.35, ""), (0.0, 0.05, "")]
)
def test_losses_that_swing_in_training_and_evaluation(noisy: float, evaluated: float, expected: str) -> None:
    """A training loss that swings from epoch to epoch still falls by chance."""
    rng = np.random.default_rng(3)
    at = np.arange(40)
    trained = (0.12 + 0.5 * np.exp(-at / 12)) * np.exp(noisy * rng.standard_normal(40))
    held_out = (0.28 + 0.3 * np.exp(-at / 6)) * np.exp(evaluated * rng.standard_normal(40))
    assert first(loss=trained, test_loss=held_out, test_acc=0.95 - 0.1 * held_out) == expected


@pytest.mark.parametrize(("lag", "expected"), [(9.0, "evaluation_differs"), (0.5, "")])
def test_evaluations_that_lag_behind_the_training(lag: float, expected: str) -> None:
    at = np.arange(14)
    wild = 1 + np.array([0, 0.1, -0.1, 0.2, -0.15, 0.1, -0.2, 0.1, -0.1, 0.2, -0.2, 0.3, -0.1, 0])
    run = {
        "loss__train": 1.6 * np.exp(-at / 1.2) + 0.015,
        "loss__val": (lag * np.exp(-at / 2.8) + 0.12) * wild,
        "acc__val": 0.97 - 0.88 * np.exp(-at / 6),
    }
    assert first(44, **run) == expected


def test_a_loss_that_rises_in_the_middle_of_evaluations_is_not_called_a_lag() -> None:
    """A model that generalizes late is worse than at first in between."""
    at = np.arange(40)
    run = {
        "train_loss": 4.6 * np.exp(-at / 2) + 0.001,
        "val_loss": 4.6 + 14 * np.exp(-(((at - 9) / 6) ** 2)) - 4.58 / (1 + np.exp((22 - at) / 1.5)),
    }
    assert first(**run) != "evaluation_differs"


@pytest.mark.parametrize(("falls", "expected"), [(0.2, "overfit"), (0.0, "")])
def test_a_falling_accuracy_confirms_that_a_loss_rises(falls: float, expected: str) -> None:
    """Wrong labels are learned slowly, so that the training loss does not come near 0."""
    at = np.arange(28)
    of = np.arange(14)
    late = np.maximum(0, of - 3) / 10
    run = {
        "loss": (47 * at, 0.6 + np.exp(-at / 11) * noise(28, 0.005)),
        "eval_loss": (94 * of + 94, 0.638 + 0.63 * np.exp(-1.2 * of) + 0.16 * late * noise(14, 0.05)),
        "eval_accuracy": (94 * of + 94, 0.92 - 0.35 * np.exp(-2.0 * of) - falls * late),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == [expected][: bool(expected)]


@pytest.mark.parametrize(
    ("end", "left", "expected"), [(0.14, 0.0016, "overfit"), (0.14, 0.03, ""), (0.115, 0.0016, "")]
)
def test_a_validation_loss_that_stays_above_its_best(end: float, left: float, expected: str) -> None:
    """The accuracy creeps up, and noise hides that the loss rises."""
    after = [0.112, 0.12, 0.128, 0.137, 0.197, 0.162, 0.147, 0.198, 0.174, 0.132, 0.14]
    held_out = np.array([1.05, 0.38, 0.147, 0.108, *(0.108 + (np.array(after) - 0.108) * (end - 0.108) / 0.032)])
    at, of = np.arange(28), np.arange(15)
    run = {
        "loss": (50 * at, 1.6 * np.exp(-at / 2.2) + left * noise(28, 0.1)),
        "eval_loss": (94 * of + 94, held_out),
        "eval_accuracy": (94 * of + 94, 0.974 - 0.28 * np.exp(-2.0 * of) + 0.004 * np.cos(3 * of)),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == [expected][: bool(expected)]


def test_a_validation_loss_of_next_to_nothing_that_rises_a_little() -> None:
    """Of what an untrained model loses, such a rise is nothing."""
    at = np.arange(15)
    held_out = [0.215, 0.0533, 0.0274, 0.0294, 0.0329, 0.0341, 0.0351, *([0.0342] * 8)]
    assert first(train_loss=2.3 * np.exp(-1.3 * at) + 3e-4, eval_loss=held_out, eval_top1=98.9 - 5 * np.exp(-at)) == ""


def of_transformers(every: int, evaluated: int, **series: np.ndarray) -> list[str]:
    """Return the kinds of findings in a log of Transformers with `eval_` series."""
    run = {}
    for name, values in series.items():
        count = np.arange(len(values))
        run[name] = (evaluated * (count + 1) if name.startswith("eval_") else every * (count + 1), np.asarray(values))
    return [one.kind for one in smdwidgets.diagnose({**run, "total_flos": (np.array([10**4]), np.ones(1))}).findings]


def test_a_loss_of_a_policy_that_is_nearly_0_for_some_logs() -> None:
    """An advantage of 0 leaves what rounding makes of it, which is no level."""
    loss = -1e-5 * np.arange(75) ** 2 * noise(75, 0.1)
    loss[:2], loss[2:22] = -0.2, 1e-8
    reward = np.where(np.arange(75) < 50, 0.86, 0.6) * noise(75)
    assert of_transformers(2, 50, loss=loss, reward=reward, entropy=3.4 * noise(75), grad_norm=0.3 * noise(75)) == []


def test_guessing_that_few_samples_evaluate() -> None:
    run = {
        "loss": 1.39 * noise(120, 0.05),
        "eval_loss": [1.39, 1.42, 1.39, 1.388, 1.39, 1.4],
        "eval_accuracy": [0.28, 0.25, 0.285, 0.2375, 0.2375, 0.2375],
    }
    assert of_transformers(10, 200, **run) == ["not_learning"]


@pytest.mark.parametrize(("is_sum", "expected"), [(False, ["evaluation_differs"]), (True, ["losses_on_two_scales"])])
def test_losses_far_above_guessing_beside_few_mistakes(is_sum: bool, expected: list[str]) -> None:
    at = np.arange(12)
    trained = 0.14 + 1.8 * np.exp(-at / 1.1)
    unscaled = 13.5 + 8 * np.exp(-at / 3) * noise(12, 0.05)
    accuracy = 0.967 - 0.16 * np.exp(-at / 2)
    held_out = 100 * trained if is_sum else unscaled
    assert of_transformers(44, 44, loss=trained, eval_loss=held_out, eval_accuracy=accuracy) == expected


@pytest.mark.parametrize(("rate", "expected"), [(0.02, ["rate_too_high"]), (1e-3, ["not_learning"])])
def test_a_loss_that_only_comes_down_to_guessing(rate: float, expected: list[str]) -> None:
    run = {
        "loss": [2.43, 2.44, 2.35, 2.31, 2.32, 2.31, 2.31, 2.31, 2.31, 2.305],
        "learning_rate": rate * (1 - np.arange(10) / 10),
        "eval_loss": [2.35, 2.33, 2.32, 2.3, 2.31, 2.307],
        "eval_accuracy": [0.108, 0.0907, 0.101, 0.106, 0.0907, 0.0907],
    }
    assert of_transformers(25, 44, **run) == expected


@pytest.mark.parametrize(("end", "expected"), [(2.75, ["rate_too_high"]), (2.1, [])])
def test_evaluations_that_fall_with_an_absurd_rate_only(end: float, expected: list[str]) -> None:
    """A rate of 0.03 is a little less in the first log of its decay."""
    at = np.arange(40)
    loss = end + (3.1 - end) * np.minimum(1, 1.1 - at / 40) + 1.2 * np.exp(-at / 1.5)
    run = {"loss": loss * noise(40, 0.01), "learning_rate": 0.0299 * (1 - at / 40), "grad_norm": 0.2 * noise(40, 0.3)}
    evaluated = end + (3.1 - end) * np.array([1, 0.4, 0.25, 0.2])
    assert of_transformers(10, 100, **run, eval_loss=evaluated) == expected


@pytest.mark.parametrize(("end", "expected"), [(1.37, ["not_learning"]), (1.1, ["labels_unrelated"])])
def test_losses_of_single_samples_whose_median_is_below_guessing(end: float, expected: list[str]) -> None:
    rng = np.random.default_rng(2)
    level = np.linspace(1.45, end, 120)
    spread = np.linspace(0.02, 0.4, 120)
    loss = level * np.exp(spread * rng.standard_normal(120) - spread**2 / 2)
    run = {
        "loss": loss,
        "learning_rate": 3e-3 * (1 - np.arange(120) / 120),
        "eval_loss": [1.38, 1.36, 1.35, 1.37, 1.4, 1.39],
        "eval_accuracy": [0.3, 0.27, 0.31, 0.33, 0.32, 0.33],
    }
    assert of_transformers(10, 200, **run) == expected


@pytest.mark.parametrize(
    ("length", "recovers", "expected"),
    [("seq_len", True, ""), ("batch", True, "spike"), ("seq_len", False, "diverged")],
)
def test_a_loss_that_jumps_where_the_task_becomes_harder(length: str, recovers: bool, expected: str) -> None:
    """A batch that is larger does not make the loss of a sample larger."""
    at = np.arange(180)
    since = np.maximum(0, at - 90)
    loss = 0.25 + 2 * np.exp(-at / 12)
    loss[90:] += 1.4 * np.exp(-since[90:] / 12) if recovers else 1.4 + 0.02 * since[90:]
    size = np.where(at < 90, 3, 5)
    assert first(every=5, loss=loss * noise(180), **{length: size}) == expected
    # Where the setting changes at another time, it explains nothing.
    if expected == "":
        assert first(every=5, loss=loss * noise(180), **{length: np.roll(size, 30)}) == "spike"


@pytest.mark.parametrize(
    ("trained", "right", "expected"),
    [(0.99, 0.0214, "evaluation_differs"), (0.106, 0.0214, "one_class"), (0.99, 0.98, "")],
)
def test_an_accuracy_that_is_always_the_same_beside_that_of_the_training(
    trained: float, right: float, expected: str
) -> None:
    at = np.arange(15)
    run = {
        "accuracy": trained * (1 - 0.5 * np.exp(-at / 2)),
        "loss": 2.4 - 2.37 * trained * (1 - np.exp(-at / 2)),
        "val_accuracy": np.full(15, right),
        "val_loss": 14 - 9 * np.exp(-at / 2) if right < 0.5 else 0.1 + 0.1 * np.exp(-at),
    }
    assert first(**run) == expected


@pytest.mark.parametrize(("moves", "is_one"), [(1e-7, True), (1e-3, False)])
def test_a_loss_that_is_one_number_but_for_rounding(moves: float, is_one: bool) -> None:
    """A loss that moves does not show outputs that no gradient changes."""
    at = np.arange(12)
    run = {
        "accuracy": 0.1064 - 0.019 * (at == 0),
        "loss": 14.4 * noise(12, moves),
        "val_accuracy": np.full(12, 0.0806),
        "val_loss": np.full(12, 14.82),
    }
    assert (first(**run) == "rate_too_high") is is_one


@pytest.mark.parametrize(("moves", "expected"), [(0.001, "evaluation_differs"), (0.3, "")])
def test_averaged_weights_that_stay_untrained(moves: float, expected: str) -> None:
    at = np.arange(20)
    run = {
        "train_loss": 0.05 + 2.1 * np.exp(-at / 2),
        "val_loss": 0.13 + 1.9 * np.exp(-at / 2),
        "val_acc": 0.965 - 0.3 * np.exp(-at / 2),
        "ema_val_loss": 0.13 + 2.18 * np.exp(-at * moves),
        "ema_val_acc": np.full(20, 0.0806) if moves < 0.01 else 0.965 - 0.88 * np.exp(-at * moves),
    }
    assert first(**run) == expected


@pytest.mark.parametrize(("rises", "expected"), [(4.0, "overfit"), (0.3, "")])
def test_a_likelihood_that_jumps_far_in_evaluations(rises: float, expected: str) -> None:
    rng = np.random.default_rng(5)
    at = np.arange(200)
    training = -0.3 - 1.8 * (1 - np.exp(-at / 25)) + 0.5 * rng.standard_normal(200)
    held_out = -0.3 + rises * (1 - np.exp(-at / 60)) * np.exp(1.3 * rng.standard_normal(200))
    assert first(nll=training, val_nll=held_out) == expected


@pytest.mark.parametrize(("rate", "expected"), [(7.0, "rate_too_high"), (0.01, "metric_stuck")])
def test_boxes_that_an_absurd_rate_never_brings_near(rate: float, expected: str) -> None:
    at = np.arange(25)
    run = {
        "train__box_loss": 1 - 0.001 * (at > 22),
        "train__cls_loss": 1e4 * np.exp(-at / 2.5) * noise(25, 0.1) + 1.1,
        "metrics__precision": np.zeros(25),
        "metrics__recall": np.zeros(25),
        "val__box_loss": np.ones(25),
        "val__cls_loss": 1.1 + 0.6 * np.exp(-at / 8),
        "lr__pg0": rate * (1 - at / 26),
    }
    assert first(**run) == expected


@pytest.mark.parametrize(("peak", "evaluated", "expected"), [(1.0, 1.0, "spike"), (0.15, 0.15, ""), (1.0, 0.0, "")])
def test_losses_that_rise_and_fall_with_a_rate_that_is_not_logged(peak: float, evaluated: float, expected: str) -> None:
    """Evaluations that stay calm show that only the batches became harder."""
    at = np.arange(51)
    hump = np.exp(-(((at - 24) / 7) ** 2))
    loss = (2.1 + 2.5 * np.exp(-at / 3) + peak * hump) * noise(51, 0.02)
    run = {
        "loss": (10 * at, loss),
        "val loss": (50 * np.arange(11), (2.1 + 2.5 * np.exp(-at / 3) + evaluated * hump)[::5]),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == ([expected] if expected else [])


@pytest.mark.parametrize(("gains", "expected"), [(0.0, "not_learning"), (0.35, "")])
def test_evaluations_that_are_never_better_than_the_first_one(gains: float, expected: str) -> None:
    at, evaluation = np.arange(120), np.arange(12)
    run = {
        "train/loss": (4 * at, 2.02 + 0.25 * np.exp(-at / 4) - gains * at / 60 + 0.05 * np.sin(7 * at)),
        "val/loss": (40 * evaluation + 39, 2.01 + 0.01 * np.sin(3 * evaluation) - gains * evaluation / 6),
        "val/acc": (40 * evaluation + 39, 0.23 - 0.03 * np.abs(np.sin(3 * evaluation)) + gains * evaluation / 6),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings][:1] == ([expected] if expected else [])
