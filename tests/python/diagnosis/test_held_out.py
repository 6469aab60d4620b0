"""What evaluations contradict, each beside a healthy training that looks alike."""

import json
import math

import numpy as np
import pytest

import smdwidgets

STEPS = np.arange(0, 30)
FALLS = 2.3 * np.exp(-STEPS / 6) + 0.05
RNG = np.random.default_rng(5)
NOISE = 1 + 0.02 * RNG.standard_normal(30)


def kinds(**series):
    """Return the kinds that a run of these series shows; `__` in a name is a slash."""
    run = {name.replace("__", "/"): (STEPS[: len(values)], np.asarray(values)) for name, values in series.items()}
    return [one.kind for one in smdwidgets.diagnose(run)]


def test_labels_that_do_not_belong_to_their_inputs():
    guessed = 0.1 + 0.004 * RNG.standard_normal(30)
    rises = 2.32 + 0.005 * STEPS
    creeps = 2.35 - 0.01 * STEPS
    series = {"loss": creeps, "val_loss": rises}
    assert kinds(**series, val_accuracy=guessed) == ["labels_unrelated"]
    assert kinds(**series, val_accuracy=guessed + 0.01 * STEPS) != ["labels_unrelated"]


def test_evaluations_that_are_prepared_in_another_way():
    guessed = 12 + 0.2 * RNG.standard_normal(30)
    series = {"train_loss": FALLS, "eval_loss": 2.4 + 0.13 * STEPS}
    assert kinds(**series, eval_top1=guessed) == ["evaluation_differs"]
    # One that overfits was better at first.
    learned = np.concatenate([np.linspace(12, 60, 8), np.full(22, 55.0)])
    assert kinds(**series, eval_top1=learned) == ["overfit"]


@pytest.mark.parametrize(("name", "worst"), [("eval_wer", 1.0), ("metrics__mAP50(B)", 0.0), ("eval_exact_match", 0.0)])
def test_a_metric_that_ignores_what_is_learned(name, worst):
    stuck = np.full(30, worst)
    series = {"loss": FALLS, "eval_loss": FALLS * 1.1}
    assert kinds(**series, **{name: stuck}) == ["metric_stuck"]
    stuck[-3:] = 0.5
    assert kinds(**series, **{name: stuck}) == []
    assert kinds(loss=FALLS[:1] * NOISE, eval_loss=FALLS[:1] * NOISE, **{name: np.full(30, worst)}) != ["metric_stuck"]


def test_an_accuracy_of_either_of_two_classes():
    learned = np.linspace(0.6, 0.9, 10)
    classes = np.where(np.arange(20) % 3 == 0, 0.4785, 0.5215)
    series = {"loss": np.where(STEPS < 10, 0.4, 0.7) * NOISE, "eval_loss": np.where(STEPS < 10, 0.4, 0.72) * NOISE}
    assert "one_class" in kinds(**series, eval_accuracy=np.concatenate([learned, classes]))
    # What was learned stays as right as it is.
    series = {"loss": FALLS, "eval_loss": FALLS * 1.1 * NOISE}
    assert kinds(**series, eval_accuracy=np.concatenate([learned, np.full(20, 0.935)])) == []


def test_poor_evaluations_without_a_loss():
    learned = np.minimum(99.9, 40 + 5.0 * STEPS)
    assert kinds(Loss=FALLS, train__acc1=learned, val__acc1=10 + 0.1 * NOISE) == ["evaluation_differs"]
    assert kinds(Loss=FALLS, train__acc1=learned, val__acc1=0.9 * learned) == []


def test_a_loss_that_is_too_small_for_its_wrong_answers():
    answers = np.minimum(0.95, 0.44 + STEPS / 40)
    least = math.log(2) * (1 - answers)
    assert kinds(train_loss=FALLS, test_loss=0.05 * least, test_acc1=100 * answers) == ["losses_on_two_scales"]
    assert kinds(train_loss=FALLS, test_loss=1.5 * least, test_acc1=100 * answers) == []


def test_a_regression_that_explains_nothing():
    level = 3.3 * NOISE
    assert kinds(train_mse=level, val_mse=1.01 * level, val_r2=0.001 * (NOISE - 1)) == ["not_learning"]
    assert kinds(train_mse=FALLS, val_mse=FALLS * NOISE, val_r2=1 - np.exp(-STEPS / 6)) == []


def test_estimates_that_grow_while_returns_do_not():
    steps = np.arange(0, 20_000, 100)
    returns = 9.5 + np.random.default_rng(1).standard_normal(200)
    grows = {"losses/q_values": (steps, 0.2 + 230 * (steps / 20_000) ** 2), "charts/episodic_return": (steps, returns)}
    [found] = smdwidgets.diagnose(grows)
    assert found.kind == "diverged"
    learns = grows | {"charts/episodic_return": (steps, returns + steps / 50)}
    assert not smdwidgets.diagnose(learns).findings


def test_a_sum_that_is_reset_once_an_epoch():
    steps = 100 * np.arange(36)
    epochs = np.repeat(0.5 ** np.arange(6), 6)
    teeth = np.tile(np.arange(1.0, 7.0), 6) * epochs
    [found] = smdwidgets.diagnose({"loss": (steps, teeth)})
    assert (found.kind, found.level) == ("sum_not_reset", "warning")
    # Batches of growing length are as regular, but rise less.
    assert not smdwidgets.diagnose({"loss": (steps, epochs * (1 + np.tile(np.arange(6) / 30, 6)))}).findings


def test_losses_of_which_one_is_a_sum():
    assert kinds(train_loss=64 * FALLS, val_loss=FALLS * NOISE) == ["losses_on_two_scales"]
    assert kinds(train_loss=2 * FALLS, val_loss=FALLS * NOISE) == []


def test_an_evaluation_without_a_mistake():
    accuracy = np.minimum(1.0, 0.5 + STEPS / 20)
    high = 0.3 + FALLS
    assert kinds(train_loss=high, eval_loss=0.02 * FALLS + 0.004, eval_accuracy=accuracy) == ["evaluation_too_good"]
    # Dropout and augmentation make a training loss higher, too.
    assert kinds(train_loss=high, eval_loss=high / 3, eval_accuracy=accuracy) == []
    assert kinds(train_loss=FALLS / 50, eval_loss=FALLS / 400, eval_accuracy=accuracy) == []


def test_a_loss_that_does_not_settle():
    swings = 0.3 * np.tile([0.5, 1.7, 0.8, 2.2, 1.0, 0.6], 5) * NOISE
    bounces = 0.4 * np.tile([0.6, 1.6, 1.0], 10) * NOISE
    assert kinds(train__loss=bounces, val__mse=swings) == ["swings"]
    assert kinds(train__loss=FALLS, val__loss=FALLS * np.exp(0.05 * RNG.standard_normal(30))) == []


def test_a_metric_that_falls_while_the_loss_does():
    falls = 0.7 - 0.013 * STEPS
    assert kinds(train_loss=FALLS - 1, val_knn_top1=falls) == ["metric_falls"]
    assert kinds(train_loss=FALLS - 1, val_knn_top1=0.3 + 0.013 * STEPS) == []


def test_a_validation_loss_that_rises_little_while_all_training_data_are_right():
    rises = np.where(STEPS < 12, 1.2 - STEPS / 30, 0.8 + 0.004 * (STEPS - 12))
    training = 0.9 * np.exp(-STEPS / 4) + 0.004
    right = np.minimum(1.0, 0.6 + STEPS / 20)
    series = {"loss": training, "val_loss": rises, "accuracy": right}
    assert kinds(**series, val_accuracy=np.full(30, 0.73) + 0.001 * NOISE) == ["overfit"]
    assert kinds(**series, val_accuracy=np.full(30, 0.93) + 0.001 * NOISE) == []


def test_the_loss_of_older_data_rises():
    forgets = 2.2 + 0.05 * STEPS
    assert kinds(loss=FALLS, eval_general_loss=forgets, eval_new_loss=FALLS * 1.1 * NOISE) == ["overfit"]
    assert kinds(loss=FALLS, eval_general_loss=2.2 * NOISE, eval_new_loss=FALLS * 1.1 * NOISE) == []


def test_an_untrained_model_whose_loss_falls_in_a_straight_line():
    straight = 2.44 - 0.008 * STEPS
    slow = {"loss": straight, "accuracy": 0.06 + 0.004 * STEPS, "val_loss": straight * 1.001}
    assert kinds(**slow) == ["rate_too_low"]
    # A trained model was right more often from the start.
    assert kinds(**(slow | {"accuracy": 0.42 + 0.001 * STEPS})) == []


def test_a_policy_that_does_not_move():
    series = {"rollout__ep_rew_mean": 20 + NOISE, "train__value_loss": 1e6 * NOISE}
    still = {"train__approx_kl": np.abs(1e-5 * NOISE), "train__clip_fraction": 0 * NOISE}
    assert "policy_stuck" in kinds(**series, **still)
    moving = {"train__approx_kl": 8e-3 * NOISE, "train__clip_fraction": 0.1 * NOISE}
    assert "policy_stuck" not in kinds(**series, **moving)


def test_latent_variables_that_carry_nothing():
    assert kinds(val__kl=3e-4 * NOISE, val__recon=82 + NOISE) == ["posterior_collapse"]
    assert kinds(val__kl=7 * NOISE, val__recon=82 * np.exp(-STEPS / 9) + 7) == []
    assert kinds(val__kl=0.009 * NOISE, val__recon=0.09 * NOISE) == []  # both are means of elements


def test_a_schedule_that_climbs_again_and_undoes_what_was_learned():
    steps = np.arange(60)
    rate = 0.035 * (1 + np.cos(np.pi * steps / 20))
    loss = 0.1 + 4 * rate
    run = {"lr": (steps, rate), "train_loss": (steps, loss), "val_loss": (steps, 0.2 + 4 * rate)}
    run |= {"lr": (steps, np.roll(rate, 0)[:60])}
    ends_high = {name: (at[:42], values[:42]) for name, (at, values) in run.items()}
    assert [one.kind for one in smdwidgets.diagnose(ends_high)] == ["schedule_over"]
    ends_low = {name: (at, values) for name, (at, values) in run.items()}
    assert [one.kind for one in smdwidgets.diagnose(ends_low)] == []


def test_values_of_some_damaged_batches():
    steps = np.arange(150)
    loss = 1.8 + np.exp(-steps / 20) + 0.02 * np.tile(NOISE - 1, 5) / 0.02
    damaged = np.where((steps >= 70) & (steps < 76), 5.0, loss)
    [found] = smdwidgets.diagnose({"lm loss": (steps, damaged)})
    assert (found.kind, found.level, found.first) == ("spike", "warning", 70)
    once = np.where(steps == 70, 5.0, loss)
    assert not smdwidgets.diagnose({"lm loss": (steps, once)}).findings


def test_a_generator_that_always_loses():
    steps = np.arange(75)
    wins = np.where(steps < 2, 1.3, 0.01 * np.exp(-steps / 20))
    loses = np.where(steps < 2, 0.69, 5 + 7 * (1 - np.exp(-steps / 30)))
    [found] = smdwidgets.diagnose({"Loss_D": (steps, wins), "Loss_G": (steps, loses)})
    assert (found.kind, found.first) == ("discriminator_wins", 2)
    # Short spikes of the discriminator change nothing.
    spiky = np.where(steps % 25 == 24, 0.3, wins)
    [found] = smdwidgets.diagnose({"netD_loss": (steps, spiky), "netG_loss": (steps, loses)}).findings
    assert found.kind == "discriminator_wins"
    # The losses of a critic are of no known size.
    critic = {"critic_loss": (steps, 0.01 + 0 * wins), "generator_loss": (steps, loses)}
    assert "discriminator_wins" not in [one.kind for one in smdwidgets.diagnose(critic)]
    calm = {"Loss_D": (steps, np.full(75, 1.38)), "Loss_G": (steps, np.full(75, math.log(2)))}
    assert not smdwidgets.diagnose(calm).findings


def test_texts_that_are_generated_badly_although_each_token_is_foreseen():
    series = {"loss": FALLS, "eval_loss": FALLS - 0.03}
    assert kinds(**series, eval_bleu=np.linspace(20, 50, 30)) == ["metric_stuck"]
    assert kinds(**series, eval_bleu=np.linspace(20, 90, 30)) == []
    # Many texts are right where tokens are not certain.
    assert kinds(loss=FALLS + 0.3, eval_loss=FALLS + 0.31, eval_bleu=np.linspace(20, 50, 30)) == []


def test_a_checkpoint_that_was_worst(tmp_path):
    def found(best, step):
        evaluations = [{"eval_loss": loss, "step": 100 * at} for at, loss in enumerate((1.3, 0.6, 0.4, 0.3, 0.2), 1)]
        losses = [{"loss": float(2 * np.exp(-at / 15)), "step": 10 * at} for at in range(1, 51)]
        state = {"global_step": 500, "best_metric": best, "best_global_step": step, "log_history": losses + evaluations}
        (tmp_path / "trainer_state.json").write_text(json.dumps(state))
        return [one.kind for one in smdwidgets.diagnose(tmp_path)]

    assert found(1.3, 100) == ["metric_direction"]
    assert found(0.2, 500) == found(None, None) == found(1.3, 500) == []


def test_a_model_that_is_sure_and_never_right_at_first():
    series = {"loss": 12 * np.exp(-STEPS / 4) + 1.2, "entropy": np.full(30, 0.9)}
    learned = 0.6 * (1 - np.exp(-STEPS / 4))
    assert kinds(**series, mean_token_accuracy=learned) == ["labels_unrelated"]
    # An untrained model is not sure, and a trained one is right now and then.
    assert kinds(**series | {"entropy": np.full(30, 5.0)}, mean_token_accuracy=learned) == []
    assert kinds(**series, mean_token_accuracy=learned + 0.05) == []


def test_a_part_of_a_loss_that_another_part_works_against():
    series = {"loss": FALLS, "kd_loss": FALLS * 0.7}
    assert kinds(**series, ce_loss=np.concatenate([[0.8], np.full(29, 1.2)])) == ["not_learning"]
    assert kinds(**series, ce_loss=np.concatenate([[0.8], np.full(9, 1.2), np.linspace(1.2, 0.7, 20)])) == []


def test_pairs_of_answers_of_which_none_is_better():
    chance = {"loss": np.linspace(0.72, 0.66, 30), "eval_loss": 0.69 * NOISE**0.1, "mean_reward": -0.1 * NOISE}
    for_all = {"margin": 0.01 * STEPS, "accuracy": 0.5 * NOISE}
    assert kinds(**chance, **for_all, eval_accuracy=0.45 * NOISE) == ["labels_unrelated"]
    # Rewards of a model that compares answers are no agent's.
    peaks = np.concatenate([np.linspace(-1, 1, 10), np.linspace(1, -1, 20)])
    assert kinds(loss=FALLS, eval_loss=1.01 * FALLS, **for_all, mean_reward=peaks) == []


@pytest.mark.parametrize("epochs", [2, 3, 5])
def test_data_that_come_in_one_order(epochs):
    count = 24 * epochs
    steps = np.arange(1, count + 1)
    rng = np.random.default_rng(3)
    noise = 1 + 0.05 * rng.standard_normal(count)
    course = np.tile(np.repeat([3.0, 1.0, 2.5, 0.6], 6), epochs) * noise

    def found(loss):
        return [one.kind for one in smdwidgets.diagnose({"loss": (steps, loss), "epoch": (steps, steps / 24)})]

    assert found(course) == ["unshuffled"]
    assert found(2 * np.exp(-steps / 30) * noise) == []
    # A mean that begins again with each epoch falls within it.
    assert found(np.tile(np.linspace(3, 1, 24), epochs) * np.exp(-steps / 60)) == []
    assert "unshuffled" not in found(np.exp(0.4 * rng.standard_normal(count)) * 2 * np.exp(-steps / 60))
