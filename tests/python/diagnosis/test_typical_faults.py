"""Faults that practitioners meet most often, in logs of scalars.

Each is beside a healthy training that looks alike.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import smdwidgets
from python.diagnosis.named import kinds
from smdwidgets.numpy import Hook

RNG = np.random.default_rng(7)


def noise(count: int, size: float = 0.02) -> np.ndarray:
    return 1 + size * RNG.standard_normal(count)


def test_an_accuracy_of_two_classes_that_rises_is_none_of_guessing() -> None:
    at = np.arange(15)
    loss = {"loss": 0.75 * np.exp(-at / 4) + 0.01}
    validation = {
        "eval_loss": np.array(
            [0.676, 0.645, 0.658, 0.76, 0.93, 0.92, 0.98, 1.06, 1.12, 1.19, 1.21, 1.23, 1.245, 1.25, 1.26]
        ),
        "eval_accuracy": np.minimum(0.70, 0.58 + 0.02 * at),
    }
    assert kinds(**loss, **validation) == ["overfit"]
    # As many right answers as of guessing, in both classes, and a loss that was never better than at first.
    guessed = {"eval_loss": 0.7 + 0.03 * at, "eval_accuracy": 0.5 + 0.004 * RNG.standard_normal(15)}
    assert kinds(**loss, **guessed) in (["labels_unrelated"], ["evaluation_differs"])


def test_evaluations_that_equal_those_of_the_training() -> None:
    loss = 0.7 * np.exp(-np.arange(40) / 15) * noise(40)
    assert kinds(train_logloss=loss, valid_logloss=loss) == ["evaluation_too_good"]
    assert kinds(train_logloss=loss, valid_logloss=loss * noise(40)) == []


def test_a_rate_that_is_tiny_long_before_the_end() -> None:
    at = np.arange(25)
    fell = np.where(at < 5, 2.2 - 0.26 * at, 1.06) * noise(25, 0.004)
    early = np.maximum(1.6e-3 * 0.1**at, 2e-7)
    assert kinds(train__box_loss=fell, lr__pg0=early) == ["rate_zero"]
    # The loss falls on, or the rate is tiny at the end only.
    falls = 2.2 * np.exp(-at / 20) * noise(25, 0.002)
    assert kinds(train__box_loss=falls, lr__pg0=early) == []
    assert kinds(train__box_loss=fell, lr__pg0=1e-3 * np.linspace(1, 1e-4, 25)) == []


def test_a_warm_up_by_epochs_is_no_jump_of_the_rate() -> None:
    at = np.arange(72)
    rate = np.select([at < 8, at < 16], [1e-3, 0.0158], 0.026)
    loss = 2.4 * np.exp(-at / 8) * noise(72) + 0.01
    assert kinds(Loss=loss, LR=rate) == []
    lost = np.where(at < 22, loss, np.nan)
    assert kinds(Loss=lost, LR=rate) == ["not_finite"]
    # A rate that jumps where the loss does explains it.
    jumps = np.where(at < 36, 2.4 * np.exp(-at / 8) + 0.3, 2.0 + 0.01 * at) * noise(72)
    assert kinds(Loss=jumps, LR=np.where(at < 36, 1e-3, 0.03))[0] == "rate_rise"


@pytest.mark.parametrize("peak", [2.72, 3.0])
def test_a_loss_that_was_lowest_during_the_warm_up(peak: float) -> None:
    at = np.arange(200)
    rate = 0.03 * np.minimum(1, (at + 1) / 20) * np.cos(np.maximum(0, at - 20) / 180 * math.pi / 2)
    warm = np.interp(at, [0, 10, 19, 30], [4.6, peak, 3.3, 3.3]) * noise(200, 0.005)
    assert kinds(5, loss=warm, learning_rate=rate) == ["peak_rate_too_high"]
    back = np.where(at < 40, warm, np.maximum(1.5, 3.3 - 0.02 * (at - 40)) * noise(200, 0.005))
    assert "peak_rate_too_high" not in kinds(5, loss=back, learning_rate=rate)


def test_a_setback_after_a_restart() -> None:
    at = np.arange(150)
    smooth = 1.6 + 2.9 * np.exp(-at / 25)
    resumed = np.where(at < 81, smooth, 2.6 - 0.012 * (at - 81)) * noise(150, 0.05)
    assert kinds(10, loss=resumed) == ["spike"]
    assert kinds(10, loss=smooth * noise(150, 0.05)) == []
    # A schedule that begins again raises the loss, too.
    rate = np.where(at < 81, 1e-3 * (1 - at / 90), 1e-3 * (1 - (at - 81) / 90))
    assert "spike" not in kinds(10, loss=np.where(at < 81, smooth, 2.3 - 0.012 * (at - 81)), learning_rate=rate)


def test_updates_that_are_all_clipped() -> None:
    at = np.arange(70)
    stays = np.where(at < 4, 6.4 - 0.4 * at, 4.7) * noise(70, 0.005)
    assert kinds(25, loss=stays, clip=np.full(70, 100.0), lr=np.full(70, 2.0)) == ["rate_too_low"]
    learns = 6.4 * np.exp(-at / 50) * noise(70, 0.005)
    assert kinds(25, loss=learns, clip=np.full(70, 100.0), lr=np.full(70, 2.0)) == []
    # An optimizer that divides by the size of the gradients is not slowed down.
    assert kinds(25, loss=stays, clip=np.full(70, 100.0), lr=np.full(70, 5e-4)) == []


def test_sorted_data_in_a_table_with_the_number_of_the_epoch() -> None:
    epoch = np.repeat(np.arange(8), 25)
    of_class = np.where(np.arange(25) % 5 == 0, 3.0, 0.2) * (1 + 0.3 * RNG.random(25))
    sorted_ = np.tile(of_class, 8) * np.exp(0.4 * RNG.standard_normal(200))
    assert kinds(5, train_loss=sorted_, epoch=epoch)[:1] == ["unshuffled"]
    shuffled = np.concatenate([RNG.permutation(of_class) for _ in range(8)])
    assert "unshuffled" not in kinds(5, train_loss=shuffled, epoch=epoch)
    # Batches that were drawn at random once differ alike in each epoch, and no stretch of them is alike.
    drawn = np.random.default_rng(4)
    of_batch = np.exp(0.2 * drawn.standard_normal(25))
    fixed = np.tile(of_batch, 8) * np.exp(0.03 * drawn.standard_normal(200) - np.arange(200) / 100)
    assert "unshuffled" not in kinds(5, train_loss=fixed, epoch=epoch)
    # Stretches of some sources do.
    of_source = np.repeat(np.exp(0.3 * drawn.permutation(5)), 5) * np.exp(0.03 * drawn.standard_normal(25))
    stretches = np.tile(of_source, 8) * np.exp(0.03 * drawn.standard_normal(200))
    assert kinds(5, train_loss=stretches, epoch=epoch)[:1] == ["unshuffled"]


def test_a_policy_that_is_certain_after_the_first_updates() -> None:
    at = np.arange(80)
    reward = 19 + 0.5 * at + RNG.standard_normal(80)
    large = np.where(at == 0, 3.6, 0.03) * np.abs(noise(80, 0.3))
    entropy = -0.69 * np.exp(-3.0 * at) - 0.003
    series = {"rollout__ep_rew_mean": reward, "train__approx_kl": large}
    assert kinds(**series, train__entropy_loss=entropy) == ["entropy_collapse"]
    slow = -0.69 * np.exp(-at / 40)
    assert kinds(**series, train__entropy_loss=slow) == []
    series["train__approx_kl"] = 0.01 * np.abs(noise(80, 0.3))
    assert kinds(**series, train__entropy_loss=entropy) == []


def test_a_divergence_that_costs_nothing() -> None:
    at = np.arange(120)
    scores = 4.3 - 4.5 * np.exp(-at / 15) + 0.03 * RNG.standard_normal(120)
    away = 125 * (1 - np.exp(-at / 20)) * noise(120)
    entropy = 11 + 26 * np.exp(-at / 30)

    def found(divergence: np.ndarray, weight: float) -> list[str]:
        cost = -weight * divergence
        rewards = {"objective__scores": scores, "objective__rlhf_reward": scores + cost}
        return kinds(**rewards, objective__kl=divergence, objective__non_score_reward=cost, objective__entropy=entropy)

    assert found(away, 0.0005) == ["kl_unbounded"]
    assert found(away / 50, 0.05) == []
    # The penalty alone is no reward that it could be compared with.
    alone = {"objective__kl": away, "objective__non_score_reward": -0.0005 * away}
    assert kinds(**alone, objective__entropy=entropy) == []


def test_few_evaluations_whose_loss_doubles_while_their_accuracy_rises() -> None:
    at = np.arange(57)
    steps = np.arange(76, 570, 76)

    def diagnosed(loss: list[float]) -> list[str]:
        run = {
            "loss": (10 * (at + 1), 0.75 * np.exp(-at / 12) + 0.01),
            "eval_loss": (steps, np.array(loss)),
            "eval_accuracy": (steps, np.array([0.62, 0.672, 0.698, 0.7007, 0.704, 0.6953, 0.7027])),
        }
        return [one.kind for one in smdwidgets.diagnose(run).findings]

    assert diagnosed([0.645, 0.763, 0.92, 1.06, 1.19, 1.18, 1.26]) == ["overfit"]
    assert diagnosed([0.645, 0.66, 0.70, 0.73, 0.76, 0.80, 0.85]) == []  # over-confidence, beside a better accuracy


def test_adversaries_and_policies_whose_log_begins_late() -> None:
    at = np.arange(40)
    right, unreal = 0.06 * np.exp(-at) + 1e-5, 12.5 - 9 * np.exp(-at / 5)
    assert kinds(Loss_D=right, Loss_G=unreal) == ["discriminator_wins"]
    assert kinds(Loss_D=0.6 * noise(40), Loss_G=1.2 * noise(40)) == []
    rewards = {"rollout__ep_rew_mean": 22 + at * noise(40)}
    decided = -0.07 * np.exp(-at / 4) - 0.002
    updates = {"train__approx_kl": np.where(at % 9 == 8, 0.8, 0.02)}
    assert kinds(**rewards, **updates, train__entropy_loss=decided) == ["entropy_collapse"]
    assert kinds(**rewards, **updates, train__entropy_loss=-0.6 * np.exp(-at / 40)) == []


def test_answers_that_grow_to_their_limit_from_the_second_log_on() -> None:
    at = np.arange(36)
    run = {
        "completions__mean_length": np.where(at == 0, 7.1, 23.2) * noise(36),
        "completions__clipped_ratio": np.where(at == 0, 0.05, 0.96),
        "reward": np.where(at == 0, 0.4, 1.0) * noise(36),
    }
    assert kinds(**run) == ["length_explosion"]
    healthy = {**run, "completions__clipped_ratio": np.full(36, 0.05)}
    assert kinds(**healthy) == []


def test_the_evaluated_model_is_not_the_one_that_is_trained() -> None:
    at = np.arange(20)
    loss = {"train_loss": 2.32 * np.exp(-at / 7) + 0.4}
    chance = {"eval_top1": 7 + 0.01 * at}
    assert kinds(**loss, **chance, eval_loss=2.5677 - 0.0012 * at) == ["evaluation_differs"]
    assert kinds(**loss, **chance, eval_loss=2.33 + 0.15 * at) == ["labels_unrelated"]
    # Far above guessing from the first evaluation on, and falling.
    falls = {"accuracy": 0.5 + 0.02 * at[:15], "loss": 1.3 * np.exp(-at[:15] / 16)}
    far = {"val_accuracy": 0.109 + 0.001 * (at[:15] % 2), "val_loss": np.linspace(88, 57, 15)}
    assert kinds(**falls, **far) == ["evaluation_differs"]


def test_a_noisy_loss_of_batches_beside_its_falling_mean() -> None:
    batches, epochs = np.arange(37), np.arange(29)
    step = (0.21 * np.exp(-batches / 50) + 0.02) * (1 + 0.2 * np.random.default_rng(3).standard_normal(37))
    mean = 0.13 + 0.13 * np.exp(-epochs / 8)
    held_out = 0.3544 + 0.03 * np.exp(-epochs / 6)
    run = {
        "train_loss_step": (199 + 50 * batches, step),
        "train_loss_epoch": (251 + 63 * epochs, mean),
        "val_loss": (251 + 63 * epochs, held_out),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == []


def test_a_second_stage_is_no_swing() -> None:
    at = np.arange(19)
    loss = np.where(at < 10, 0.34 * np.exp(-at), 0.6 * np.exp(-(at - 10) / 3)) + 0.006
    held_out = np.where(at < 10, 0.026 + 0.012 * np.exp(-at), 0.06 + 0.12 * np.exp(-(at - 10) / 3))
    assert kinds(train_loss=loss, val_loss_general=held_out) == []


def test_a_language_model_at_rest_one_nat_below_guessing() -> None:
    at = np.arange(40)
    rest = 4.69 + 1.5 * np.exp(-at / 1.5)
    assert "softmax_before_loss" not in kinds(50, loss=rest * noise(40, 0.003), lr=np.full(40, 1e-3))
    # With few classes, the floor of a second softmax tells.
    floor = 1.4612 + 0.84 * np.exp(-np.maximum(0, at - 2) / 5)
    assert kinds(50, loss=floor * (1 + 0.002 * RNG.random(40))) == ["softmax_before_loss"]


@pytest.mark.parametrize("every", [1, 2, 5])
def test_evaluations_counted_in_epochs_beside_updates(every: int) -> None:
    updates = np.arange(1, 151)
    epochs = np.arange(every - 1, 60, every)
    of_update, of_epoch = 1.9 * np.exp(-updates / 30) + 0.02, 1.9 * np.exp(-(epochs + 1) / 12) + 0.02
    run = {"Loss/train": (320 * updates, of_update), "Loss/val": (epochs, of_epoch)}
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == []


def test_data_on_which_the_model_gets_worse_while_evaluations_get_better() -> None:
    at = np.arange(120)
    falls = 0.08 + 0.41 * np.exp(-at / 20)
    run = {"train-logloss": falls - 0.04, "valid-logloss": falls, "live_month-logloss": 1.03 - 0.45 * np.exp(-at / 20)}
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == ["evaluation_too_good"]
    run["live_month-logloss"] = falls + 0.05
    assert not smdwidgets.diagnose(run).findings


def test_targets_that_the_outputs_never_reach() -> None:
    at = np.arange(30)
    squares, share = 1.23e11 * (1 - 0.4 * (at / 29) ** 2), -5 + 2.5 * (at / 29) ** 2
    assert kinds(loss=squares, val_loss=0.98 * squares, val_r2=share) == ["targets_not_scaled"]
    # Targets that are scaled, and large ones that are reached.
    assert kinds(loss=squares / 1e11, val_loss=squares / 9e10, val_r2=0.9 - 0.3 * np.exp(-at / 5)) == []
    reached = 1.2e9 + 1.2e11 * np.exp(-at / 4)
    assert kinds(loss=reached, val_loss=1.1 * reached, val_r2=0.9 - 5 * np.exp(-at / 4)) == []


def test_a_loss_that_does_not_move_at_all() -> None:
    at = np.arange(21)
    flat = 51.986 + np.where(at == 0, -7e-4, 1e-5 * (at % 3))
    assert kinds(train_loss=flat) == ["not_learning"]
    assert kinds(train_loss=51.986 - 2 * at) == []


def test_a_loss_that_explodes_with_the_first_updates() -> None:
    at = np.arange(60)
    stays = np.where(at == 0, 6e20, 1450 + 900 * np.exp(-at / 2)) * noise(60)
    assert kinds(10, loss=stays, grad_norm=np.where(at == 0, 2.5e16, 25) * noise(60)) == ["diverged"]
    # Large targets at first, which are learned.
    assert kinds(10, loss=np.where(at == 0, 6e10, 1e4 * np.exp(-at / 15)) * noise(60)) == []


def test_a_rate_that_starts_again_after_a_restart() -> None:
    at = np.arange(24)
    rate = np.where(at < 14, 2e-3 - 9e-5 * at, 2e-2 - 7e-4 * (at - 14))
    resumed = np.where(at < 14, 1.5 * np.exp(-at / 2.5) + 0.04, 0.4 * np.exp(-(at - 14) / 4) + 0.06)
    assert kinds(62, train_loss=resumed, val_loss=resumed, lr=rate)[0] == "rate_rise"
    assert kinds(62, train_loss=1.5 * np.exp(-at / 2.5) + 0.04, lr=rate[:14].repeat(2)[:24]) == []


def test_a_share_of_episodes_that_the_reward_does_not_count() -> None:
    at = np.arange(77)
    reward = {"episode_reward_mean": 3.4 - 3.2 * np.exp(-at / 6) + 0.02 * RNG.standard_normal(77)}
    delivered = np.interp(at, [0, 5, 9, 15], [0.19, 0.95, 0.2, 0.0]) + 0.01 * RNG.random(77)
    assert kinds(**reward, custom_metrics__delivered_mean=delivered) == ["metric_falls"]
    assert kinds(**reward, custom_metrics__delivered_mean=np.minimum(1, 0.2 + 0.1 * at)) == []


def test_updates_of_a_policy_that_are_far_too_large_again_and_again() -> None:
    at = np.arange(25)
    rewards = {"rollout__ep_rew_mean": np.interp(at, [0, 6, 9, 24], [21, 109, 23, 138])}
    updates = {"train__approx_kl": np.where(at < 4, 0.02, np.where(at % 2, 1.2, 0.3))}
    entropy = -np.interp(at, [0, 3, 5, 24], [0.675, 0.5, 0.04, 0.07])
    assert kinds(**rewards, **updates, train__entropy_loss=entropy) == ["entropy_collapse"]
    small = {"train__approx_kl": np.full(25, 0.008)}
    assert kinds(rollout__ep_rew_mean=20 + 10 * at, **small, train__entropy_loss=-0.67 + 0.02 * at) == []


def test_a_loss_around_zero_does_not_say_what_is_learned(tmp_path) -> None:
    """That of a policy gradient is noise around 0, while its rewards rise.

    Large first updates are then no rate that is too high.
    """
    rng = np.random.default_rng(3)
    weight = rng.standard_normal(400)
    with Hook(tmp_path / "run") as hook:
        for step in range(150):
            loss = 0.01 * rng.standard_normal()
            hook.save_tensor("loss_output_0", np.float32(loss), "losses")
            hook.save_tensor("net.0.weight", weight.astype(np.float32), "weights")
            hook.step()
            change = rng.standard_normal(400)
            size = max(0.12 * 0.8**step, 0.006) * np.linalg.norm(weight)
            weight = weight + size * change / np.linalg.norm(change)
    assert not smdwidgets.diagnose(tmp_path / "run").findings


def test_a_mean_accuracy_of_classes_of_which_one_is_predicted() -> None:
    at = np.arange(8)
    falls = 0.3 * np.exp(-np.arange(32) / 6) * noise(32) + 0.03
    assert kinds(loss=falls, aAcc=np.full(8, 98.7), mIoU=np.full(8, 49.35), mAcc=np.full(8, 50.0)) == ["one_class"]
    assert kinds(loss=falls, mAcc=np.full(8, 33.33)) == ["one_class"]
    learns = np.where(at == 0, 50.0, 96 - 9 * np.exp(-at / 2))
    assert kinds(loss=falls, aAcc=98.7 + 0.1 * at, mIoU=learns - 15, mAcc=learns) == []
    assert kinds(loss=falls, mAcc=np.full(8, 91.3)) == []


def test_a_rate_of_errors_of_all_words_beside_a_loss_that_stays() -> None:
    at = np.arange(70)
    blank = np.where(at < 3, 48 - 4 * at, 36.5) * noise(70, 0.01)
    valid = {"valid_loss": 37 * noise(10, 0.005)}
    for name in ("valid_wer", "valid_uer", "valid_per"):
        assert kinds(loss=blank, **valid, **{name: np.full(10, 100.0)}) == ["output_constant"]
    plateau = np.minimum(100.0, 500 * np.exp(-np.arange(10) / 2.5))
    learned = np.where(at < 30, blank, 36 * np.exp(-(at - 30) / 8) + 0.2)
    evaluated = 37 * np.exp(-np.maximum(0, np.arange(10) - 4)) + 0.2
    assert kinds(loss=learned, valid_loss=evaluated, valid_wer=plateau) == []
    # The loss still falls: what is written may come later.
    falls = np.linspace(48, 37, 70) * noise(70, 0.002)
    assert kinds(loss=falls, valid_loss=np.linspace(47, 36, 10), valid_wer=np.full(10, 100.0)) == []


def test_a_norm_of_the_gradient_that_is_zero_at_every_step() -> None:
    at = np.arange(50)
    zero, rate = np.zeros(50), 5e-3 * np.cos(at / 33)
    level = 3.79 * noise(50, 0.006)
    assert kinds(10, loss=level, grad_norm=zero, learning_rate=rate, eval_loss=np.full(5, 3.808)) == ["gradient_zero"]
    # A trainer that does not compute the norm logs 0 as well.
    assert kinds(10, loss=3.8 * np.exp(-at / 30) * noise(50), grad_norm=zero, learning_rate=rate) == []
    moves = np.linspace(3.81, 3.79, 5)
    assert "gradient_zero" not in kinds(10, loss=level, grad_norm=zero, learning_rate=rate, eval_loss=moves)
    assert "gradient_zero" not in kinds(10, loss=level, grad_norm=zero, learning_rate=zero)


def test_a_part_of_a_loss_that_no_target_reaches() -> None:
    at = np.arange(12)
    falls = 3 * np.exp(-at / 2) + 0.03
    empty = {"train__box_loss": np.zeros(12), "train__dfl_loss": np.zeros(12), "train__cls_loss": falls}
    rises = {"val__box_loss": 1.02 + 0.001 * at, "val__dfl_loss": 1.65 + 0.003 * at, "val__cls_loss": 2.5 + 0.25 * at}
    nothing = {"metrics__mAP50": np.where(at == 0, 0.02, 0.0)}
    assert kinds(**empty, **rises, **nothing) == ["no_targets"]
    full = dict.fromkeys(empty, falls + 0.2)
    found = dict.fromkeys(rises, 1.1 * falls + 0.25)
    assert kinds(**full, **found, metrics__mAP50=0.9 - 0.5 * np.exp(-at / 3)) == []
    # A part whose weight is 0, or that evaluations do not have either.
    unweighted = {"train__kl_loss": np.zeros(12), "val__kl_loss": 1.4 * noise(12, 0.01)}
    learned = {"train__loss": falls, "val__loss": 1.1 * falls}
    assert "no_targets" not in kinds(**unweighted, **learned, val__accuracy=0.9 - 0.5 * np.exp(-at / 3))
    assert "no_targets" not in kinds(**full, train__mask_loss=np.zeros(12), val__mask_loss=np.zeros(12))


def test_a_spread_that_vanishes_beside_a_cosine_of_one() -> None:
    at = np.arange(60)
    same = -1 + 0.97 * np.exp(-at / 2) + 0.001 * np.abs(noise(60, 0.3))
    vanishes = 0.09 * np.exp(-at / 4) + 0.006
    assert kinds(Loss=same, Std=vanishes) == ["features_collapse"]
    assert kinds(Loss=same, Std=0.125 * noise(60, 0.01)) == []
    # The spread of a policy, or of what is predicted, may fall.
    assert "features_collapse" not in kinds(Loss=2 * np.exp(-at / 10) * noise(60), Std=vanishes)
    assert "features_collapse" not in kinds(rollout__ep_rew_mean=20.0 + at, train__std=vanishes, train__loss=same)
    assert kinds(Loss=0.2 * np.exp(-at / 9) * noise(60), emb_std=vanishes) == ["features_collapse"]


def test_a_loss_that_is_a_floor_and_the_share_of_wrong_answers() -> None:
    at = np.arange(15)
    right, held_out = 0.997 - 0.39 * np.exp(-at / 1.5), 0.9967 - 0.035 * np.exp(-at / 2)

    def losses(floor: float, slope: float = 1.0) -> dict[str, np.ndarray]:
        late = floor + slope * (1 - right) + 0.003 + 0.03 * np.exp(-at / 1.5), floor + slope * (1 - held_out) + 0.002
        return {"loss": late[0], "val_loss": late[1] + 0.02 * np.exp(-at / 2)}

    accuracies = {"accuracy": right, "val_accuracy": held_out}
    for classes in (5, 10, 20):
        floor = math.log(math.e + classes - 1) - 1
        assert kinds(**losses(floor), **accuracies) == ["softmax_before_loss"]
    # Smoothed labels have a floor, too: those of 10 and of 1,000 classes, smoothed by a tenth.
    for smoothed in (0.5, 1.016):
        assert "softmax_before_loss" not in kinds(**losses(smoothed, 2.4), **accuracies)
    assert kinds(**losses(0.0), **accuracies) == []


def test_a_forecast_that_repeats_the_last_value() -> None:
    at = np.arange(30)
    falls = {"train_mse": 0.12 * np.exp(-at / 2) + 1e-4, "val_mse": 0.017 * np.exp(-at / 2) + 1.2e-4}
    copied = {"backtest_mae_1h": 0.2704 * noise(30, 0.008), "persistence_mae_1h": np.full(30, 0.27036)}
    assert kinds(**falls, **copied) == ["as_baseline"]
    assert kinds(**falls, skill_vs_persistence=0.004 * RNG.standard_normal(30)) == ["as_baseline"]
    better = {**copied, "backtest_mae_1h": 0.09 + 0.04 * np.exp(-at / 3)}
    assert kinds(**falls, **better, skill_vs_persistence=0.66 - 0.15 * np.exp(-at / 3)) == []


@pytest.mark.parametrize(("falls_to", "expected"), [(9.0, ["spike"]), (5.6, [])])
def test_a_loss_that_begins_again_has_lost_its_weights(falls_to: float, expected: list[str]) -> None:
    """A jump by less than what was learned comes from the learning rate or the data."""
    at = np.arange(14)
    course, second = 4 + 5 * np.exp(-at / 3), 4 + (falls_to - 4) * np.exp(-at / 3)
    assert kinds(25, train__nll=np.concatenate([course, second]) * noise(28, 0.002)) == expected


@pytest.mark.parametrize(("rows", "expected"), [(25, []), (800, ["evaluation_too_good"])])
def test_few_samples_without_a_mistake_are_luck(rows: int, expected: list[str]) -> None:
    at = np.arange(26)
    right = np.where(at < 9, np.round((0.5 + at / 18) * rows) / rows, 1.0)
    losses = {"train_loss": 1.8 * np.exp(-at / 4) + 0.11, "val_loss": 1.6 * np.exp(-at / 2.5) + 0.004}
    assert kinds(**losses, train_acc=np.minimum(0.96, 0.4 + at / 15), val_acc=right) == expected


def test_a_rare_class_that_is_never_answered() -> None:
    loss = 0.69 - 0.03 * np.arange(7)
    never = {"eval_accuracy": np.full(7, 0.985), "eval_f1": np.full(7, 0.985 / 1.985)}
    assert kinds(eval_loss=loss, **never) == ["one_class"]
    found = {"eval_accuracy": 0.985 + 0.001 * np.arange(7), "eval_f1": 0.5 + 0.06 * np.arange(7)}
    assert kinds(eval_loss=loss, **found) == []


def test_a_metric_of_0_is_that_of_no_class() -> None:
    falls = 0.9 * np.exp(-np.arange(18) / 5) + 0.2
    assert kinds(loss=falls, val_loss=1.02 * falls, val_accuracy=np.zeros(18)) == ["metric_stuck"]


@pytest.mark.parametrize(("summed", "expected"), [(8, ["losses_on_two_scales"]), (1, [])])
def test_losses_of_accumulated_batches_that_are_not_divided(summed: int, expected: list[str]) -> None:
    """Few evaluations show it, although the loss itself moves by little."""
    at = np.arange(24)
    loss = 7.0 + 0.9 * np.exp(-at / 9)
    run = {"loss": (5 * at, 1.5 * summed * loss), "eval_loss": (25 * np.arange(1, 5), 1.01 * loss[5:21:5])}
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == expected


def test_a_loss_that_falls_in_a_line_by_next_to_nothing() -> None:
    at = np.arange(14)
    line = 3.9 - 0.0003 * at
    assert kinds(train_loss=line, val_loss=line + 0.004, lr=np.full(14, 2e-4)) == ["rate_too_low"]
    assert kinds(train_loss=3.9 * np.exp(-at / 20), val_loss=4 * np.exp(-at / 21), lr=np.full(14, 2e-4)) == []


@pytest.mark.parametrize(("fall", "expected"), [(0.001, ["rate_too_low"]), (0.4, [])])
def test_a_rate_for_trained_models_with_which_nothing_moves(fall: float, expected: list[str]) -> None:
    at = np.arange(18)
    loss = 7.6 - fall * (1 - np.exp(-at / 6))
    run = {
        "loss": (10 * at, loss * noise(18, 0.0003)),
        "eval_loss": (60 * np.arange(3), loss[::6] + 0.1),
        "learning_rate": (10 * at, np.linspace(1.5e-6, 1e-7, 18)),
    }
    assert [one.kind for one in smdwidgets.diagnose(run).findings] == expected


def test_accuracies_below_1_percent() -> None:
    at = np.arange(14)
    trains = {"train_loss": 2.2 * np.exp(-at / 2) + 0.05, "eval_loss": 2.6 + 0.4 * at}
    wrong = {"eval_top1": 0.9 * np.exp(-at / 2), "eval_top5": 36 + RNG.standard_normal(14)}
    assert kinds(**trains, **wrong) == ["evaluation_differs"]
