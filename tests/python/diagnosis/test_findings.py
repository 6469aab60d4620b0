"""Each scalar fault is found with its onset, and healthy curves are not."""

from __future__ import annotations

import numpy as np
import pytest
from tensorboardX import SummaryWriter

import smdwidgets
from python.diagnosis import curves
from smdwidgets.diagnosis import diagnose
from smdwidgets.finding import CONFIDENCES


def kinds_of(diagnosis):
    return [one.kind for one in diagnosis.findings]


def found(diagnosis, kind):
    [one] = [one for one in (*diagnosis.findings, *diagnosis.notes) if one.kind == kind]
    return one


def test_healthy_run_gives_no_finding_and_no_note():
    at = curves.steps()
    result = diagnose(
        {
            "train/loss": (at, curves.falling()),
            "val/loss": (at, curves.falling(seed=5, end=0.4)),
            "val/accuracy": (at, 1 - curves.falling(seed=6, start=0.9, end=0.1)),
            "lr": (at, np.linspace(1e-3, 0, len(at))),
            "time/fps": (at, np.full(len(at), 30.0)),
        }
    )
    assert (result.findings, result.notes) == ((), ())
    assert result.summary == "Nothing wrong seen in 4 series, steps 0 to 3,990 (7 of 28 checks)."
    assert result.not_judged() == "Not judged: 1 × setting, time or resource."
    [validation] = [one for one in result.judged if one.name == "val/loss"]
    assert (validation.kind, validation.role, validation.partner) == ("loss", "validation", "train/loss")


def test_overfitting_is_found_where_the_validation_loss_turns():
    at = curves.steps()
    result = diagnose({"train/loss": (at, curves.falling()), "val/loss": (at, curves.rising_after(0.5))})
    assert kinds_of(result) == ["overfit"]
    one = found(result, "overfit")
    assert one.confidence == "high"
    assert abs(one.first - 2000) <= 0.05 * 4000
    assert one.names == ("val/loss", "train/loss")
    assert f"step {one.first:,}" in one.title
    assert "Keep the checkpoint" in one.try_
    assert one.url == "diagnosis.md#overfit"


def test_rising_validation_loss_alone_must_rise_over_half_of_the_run():
    at = curves.steps()
    assert not diagnose({"val/loss": (at, curves.rising_after(0.6))}).findings
    [one] = diagnose({"val/loss": (at, curves.rising_after(0.4))}).findings
    assert (one.kind, one.confidence) == ("overfit", "medium")
    better = {"val/accuracy": (at, np.linspace(0.5, 0.9, len(at)))}
    assert not diagnose({"val/loss": (at, curves.rising_after(0.4)), **better}).findings


def test_validation_loss_that_rises_with_the_training_loss_is_not_called_overfitting():
    at = curves.steps()
    rising = curves.rising_after(0.5)
    assert "overfit" not in kinds_of(diagnose({"train/loss": (at, rising), "val/loss": (at, rising)}))


@pytest.mark.parametrize(
    "first",
    [[1.6], [1.6, 3.0], [1.4, 1.5, 40.0, 90.0, 30.0], [-1.2, -1.1, 9.0], [1e-12, 2e-12], [1e12, 1.1e12]],
    ids=str,
)
@pytest.mark.parametrize("count", [10, 60, 400])
def test_a_loss_whose_only_good_values_are_the_first_ones_has_diverged(first, count):
    size = abs(first[0])
    rest = size * (
        6.5 + np.linspace(1, 0, count - len(first)) + 0.02 * np.random.default_rng(0).normal(size=count - len(first))
    )
    [one] = diagnose({"loss": (np.arange(count) * 5, [*first, *rest])}).findings
    assert one.kind == "diverged"
    assert one.confidence == ("high" if one.confidence == "high" and count >= 20 and len(first) > 1 else "medium")
    assert one.first < 5 * len(first)
    assert "checkpoint" not in one.try_ or count == 10


@pytest.mark.parametrize("first", [0.0, 0.02, 2.0])
def test_a_first_value_that_was_logged_wrongly_is_no_divergence(first):
    loss = np.append(first, curves.falling(60))
    assert not diagnose({"loss": (np.arange(61), loss)}).findings


def test_a_critic_that_grows_without_bound_has_diverged_unless_the_reward_improves():
    at = curves.steps()
    critic = {"train/value_loss": (at, np.exp(np.linspace(0, 9, 400)))}
    rewards = np.random.default_rng(0).normal(20, 3, 400)
    assert kinds_of(diagnose({**critic, "rollout/ep_rew_mean": (at, rewards)})) == ["diverged"]
    assert not diagnose({**critic, "rollout/ep_rew_mean": (at, curves.reward())}).findings
    assert not diagnose(critic).findings


def test_both_losses_after_a_jump_are_not_called_overfitting():
    """Losses of a training whose learning rate was far too high at step 200."""
    before = [
        1.59,
        1.42,
        1.28,
        1.16,
        1.05,
        0.96,
        0.88,
        0.82,
        0.76,
        0.7,
        0.67,
        0.63,
        0.6,
        0.56,
        0.56,
        0.53,
        0.51,
        0.5,
        0.48,
        0.46,
    ]
    validation = np.array([*before, 3.63, 2.34, 1.69, 1.39, 1.27, 1.19, 1.14, 1.1, 1.07, 1.04])
    at = np.arange(300)
    training = np.interp(at, at[::10], validation) * (1 + 0.1 * np.random.default_rng(0).normal(size=300))
    run = {"train/loss": (at, training), "val/loss": (at[::10], validation)}
    assert "overfit" not in kinds_of(diagnose(run))


def test_improving_accuracy_lowers_the_confidence_of_overfitting():
    at = curves.steps()
    noise = 1 + 0.01 * np.random.default_rng(4).normal(size=400)
    run = {
        "train/loss": (at, curves.falling()),
        "val/loss": (at, np.interp(at, [0, 2000, 4000], [2, 0.4, 0.58]) * noise),
    }
    assert found(diagnose(run), "overfit").confidence == "high"
    run["val/accuracy"] = at, np.linspace(0.5, 0.9, len(at))
    one = found(diagnose(run), "overfit")
    assert one.confidence == "medium"
    assert "over-confidence" in one.text


def test_loss_that_becomes_nan():
    values = curves.falling()
    values[250:] = np.nan
    one = found(diagnose({"loss": (curves.steps(), values)}), "not_finite")
    assert (one.first, one.confidence, one.level) == (2500, "proof", "problem")
    assert one.title == "`loss` is NaN since step 2,500"


def test_single_nan_of_a_loss_is_a_warning_and_infinite_gradient_norms_are_not():
    at, values = curves.steps(), curves.falling()
    values[100] = np.inf
    result = diagnose({"loss": (at, values), "grad_norm": (at, np.where(values > 1e3, np.inf, 1.0))})
    assert [(one.kind, one.level, one.names) for one in result] == [("not_finite", "warning", ("loss",))]


def test_loss_that_was_never_finite():
    at = curves.steps(20)
    result = diagnose({"loss": (at, np.full(20, np.nan))})
    assert kinds_of(result) == ["not_finite"]
    assert result.can_tell


def test_a_loss_that_rises_slowly_to_where_it_began_has_diverged_less_surely():
    """As in Q-learning, whose targets move."""
    at = curves.steps(300)
    noise = 0.03 * np.random.default_rng(0).normal(size=300)
    values = 0.2 + 0.2 * np.exp(-np.arange(300) / 20) + np.linspace(0, 0.17, 300) + noise
    assert [(one.kind, one.confidence) for one in diagnose({"loss": (at, values)})] == [("diverged", "medium")]


def test_diverged_loss():
    result = diagnose({"loss": (curves.steps(), curves.rising_after(0.6, height=3))})
    assert kinds_of(result) == ["diverged"]
    one = found(result, "diverged")
    assert one.confidence == "high"
    assert abs(one.first - 2400) <= 0.1 * 4000


def test_jump_of_the_learning_rate_explains_the_divergence():
    at = curves.steps()
    rate = np.where(at < 2400, 1e-3, 1e-1)
    result = diagnose({"loss": (at, curves.rising_after(0.6, height=3)), "lr": (at, rate)})
    assert kinds_of(result) == ["rate_rise"]
    one = found(result, "rate_rise")
    assert (one.first, one.explains, one.confidence) == (2400, (result.explained[0].id,), "high")
    assert [each.kind for each in result.explained] == ["diverged"]
    assert result.consequences(one) == "It explains: a loss that rises."
    assert {each.subject for each in one.evidence} == {"lr", "loss"}


def test_jump_of_the_learning_rate_on_a_run_that_learns_is_a_note():
    at = curves.steps()
    result = diagnose({"loss": (at, curves.falling()), "lr": (at, np.where(at < 2400, 1e-3, 1e-1))})
    assert not result.findings
    assert [one.kind for one in result.notes] == ["rate_rise"]


@pytest.mark.parametrize(("from_step", "level"), [(0, "problem"), (2000, "warning")])
def test_learning_rate_of_zero(from_step, level):
    at = curves.steps()
    loss = curves.falling() if from_step else 2.3 + 0.01 * np.random.default_rng(0).standard_normal(len(at))
    result = diagnose({"loss": (at, loss), "lr": (at, np.where(at < from_step, 1e-3, 0.0))})
    one = found(result, "rate_zero")
    assert (one.first, one.level) == (from_step, level)


def test_lasting_spike_is_a_warning_and_a_recovered_one_a_note():
    at, values = curves.steps(), curves.falling()
    values[200] = 3.0
    result = diagnose({"loss": (at, values)})
    assert not result.findings
    assert [(one.kind, one.first) for one in result.notes] == [("spike", 2000)]
    values[200:240] += np.linspace(2, 0.5, 40)
    result = diagnose({"loss": (at, values)})
    assert [(one.kind, one.level, one.first) for one in result] == [("spike", "warning", 2000)]


def test_repeated_spikes_are_a_warning_but_heavy_tails_are_noise():
    at, values = curves.steps(2000), curves.falling(2000)
    values[[500, 900, 1300, 1700]] = 3.0
    assert [(one.kind, one.level) for one in diagnose({"loss": (at, values)})] == [("spike", "warning")]
    heavy = curves.falling(2000, 0) + 0.05 * np.abs(np.random.default_rng(0).standard_t(2, 2000))
    assert not diagnose({"loss": (at, heavy)}).findings


def test_collapsed_reward():
    values = curves.reward()
    values[300:] = 10 + 5 * np.random.default_rng(3).normal(size=100)
    one = found(diagnose({"rollout/ep_rew_mean": (curves.steps(), values)}), "collapsed")
    assert one.confidence == "medium"
    assert abs(one.first - 3000) <= 0.05 * 4000


def test_short_collapse_is_a_note_while_the_run_goes_on():
    values = curves.reward()
    values[200:] = 10 + 5 * np.random.default_rng(3).normal(size=200)
    steps = curves.steps()
    short = diagnose({"reward": (steps, values)}, until=int(steps[280]))
    assert not short.findings
    assert found(short, "collapsed").confidence == "low"
    long = diagnose({"reward": (steps, values)}, until=int(steps[370]))
    assert found(long, "collapsed").confidence == "medium"
    ended = diagnose({"reward": (steps[:281], values[:281])})
    assert found(ended, "collapsed").confidence == "medium"


def test_reward_that_dips_and_recovers_is_not_collapsed():
    values = curves.reward()
    values[200:250] = 10
    assert not diagnose({"reward": (curves.steps(), values)}).findings


def test_loss_at_the_level_of_guessing():
    values = np.log(10) + 0.01 * np.random.default_rng(0).normal(size=100)
    result = diagnose({"loss": (curves.steps(100), values)})
    one = found(result, "not_learning")
    assert one.confidence == "medium"
    assert "one of 10 classes" in one.text
    level = diagnose({"loss": (curves.steps(100), values + 1)})
    assert not level.findings
    assert found(level, "not_learning").confidence == "low"


def test_level_losses_of_fine_tuned_models_rarely_look_like_guessing():
    random = np.random.default_rng(0)
    levels = np.linspace(0.5, 4, 200)
    runs = [level * (1 + random.uniform(0.01, 0.1) * random.normal(size=200)) for level in levels]
    assert np.mean([bool(diagnose({"loss": (curves.steps(200), values)}).findings) for values in runs]) < 0.05


def test_level_loss_is_not_judged_where_a_metric_rises():
    at = curves.steps(100)
    values = np.log(10) + 0.01 * np.random.default_rng(0).normal(size=100)
    rising = np.linspace(0.1, 0.6, 100)
    assert not diagnose({"loss": (at, values), "accuracy": (at, rising)}).findings


def test_constant_loss_is_a_note():
    result = diagnose({"loss": (curves.steps(50), np.full(50, 0.7))})
    assert "constant" in [one.kind for one in result.notes]


@pytest.mark.parametrize("name", ["generator/loss", "actor_loss", "fps", "foo"])
def test_kinds_without_a_direction_are_not_judged(name):
    at = curves.steps()
    result = diagnose({name: (at, curves.rising_after(0.5, height=5))})
    assert not result.findings
    assert [one.name for one in result.unjudged] == [name]
    assert not result.can_tell
    assert result.summary.startswith("Cannot tell: ")


@pytest.mark.parametrize("others", [{}, {"loss": curves.falling()}])
def test_the_first_line_names_a_value_that_is_not_finite(others, tmp_path):
    lost = np.where(curves.steps() == 600, np.nan, 1.0)
    with SummaryWriter(tmp_path) as writer:
        for name, values in {**others, "weight/a.weight": lost, "weight/b.weight": np.ones_like(lost)}.items():
            for step, value in zip(curves.steps(), values, strict=True):
                writer.add_scalar(name, value, step)
    result = diagnose(tmp_path)
    first, rest = result.summary.split(". ", 1)
    assert first == "`weight/a.weight` is NaN at step 600"
    assert rest.startswith("Nothing else seen in 1 series" if others else "Cannot tell more: no loss, metric or reward")


def test_no_reason_that_a_reader_must_look_up_stands_in_the_first_line():
    result = diagnose({f"model.layers.{layer}.mlp.weight": (curves.steps(), curves.falling()) for layer in range(5)})
    assert result.summary == (
        "Cannot tell: no loss, metric or reward among 5 series "
        "(model.layers.0.mlp.weight, model.layers.1.mlp.weight, model.layers.2.mlp.weight and 2 more)."
    )


def test_losses_of_reinforcement_learning_and_adversarial_runs_have_no_direction():
    at = curves.steps()
    rising = at, curves.rising_after(0.5, height=5)
    assert diagnose({"loss": rising}).findings
    assert not diagnose({"loss": rising, "reward": (at, curves.reward())}).findings
    assert not diagnose({"d_loss": rising, "g_loss": (at, curves.falling())}).findings


def test_kinds_can_be_given():
    at = curves.steps()
    rising = at, curves.rising_after(0.5, height=5)
    assert kinds_of(diagnose({"foo": rising}, kinds={"foo": "loss"})) == ["diverged"]
    assert not diagnose({"loss": rising}, kinds={"loss": "not judged"}).findings
    assert kinds_of(diagnose({"wealth": (at, -rising[1])}, kinds={"wealth": "reward"})) == ["collapsed"]
    absent = diagnose({"loss": rising}, kinds={"los": "loss"})
    assert ("los", "no series of this name, given in kinds") in absent.unjudged


def test_until_is_the_last_step_that_is_read():
    run = {"loss": (curves.steps(), curves.rising_after(0.6, height=3))}
    early = diagnose(run, until=2400)
    assert not early.findings
    assert early.steps == (0, 2400)


def test_findings_are_ordered_by_confidence_then_onset():
    at = curves.steps()
    lost = curves.falling()
    lost[300:] = np.nan
    result = diagnose(
        {
            "a/loss": (at, lost),
            "b/train_loss": (at, curves.falling()),
            "b/val_loss": (at, curves.rising_after(0.5)),
            "lr": (at, np.where(at < 3000, 1e-3, 0.0)),
            "c/loss": (at, np.where(at < 2000, curves.falling(), curves.falling() + 5)),
        }
    )
    assert len(result.findings) == 5
    order = [(CONFIDENCES.index(one.confidence), one.first) for one in result.findings]
    assert order == sorted(order)
    assert [one.kind for one in result.listed] == [*kinds_of(result), *(one.kind for one in result.notes)]


@pytest.mark.parametrize(("values", "steps"), [([3.0, 2.0, 1.0, float("nan")], (0, 3)), ([float("nan")] * 5, (0, 4))])
def test_the_steps_of_a_diagnosis_contain_those_that_are_not_finite(values, steps):
    diagnosis = smdwidgets.diagnose({"loss": values})
    assert diagnosis.steps == steps
    assert f"steps {steps[0]} to {steps[1]}" in str(diagnosis)
