"""Rates that come back, models that are destroyed at first, and guesses."""

from __future__ import annotations

import numpy as np
import pytest

import smdwidgets
from python.diagnosis.named import kinds, kinds_of, of_trainer

RNG = np.random.default_rng(31)


def noise(count: int, size: float = 0.02) -> np.ndarray:
    return 1 + size * RNG.standard_normal(count)


def of_period(count: int, period: int, least: float = 0.06) -> np.ndarray:
    """Return a rate that rises and falls in a straight line, again and again."""
    place = (np.arange(count) % period) / period
    return 0.1 * (least + (1 - least) * (1 - np.abs(2 * place - 1)))


@pytest.mark.parametrize("period", [4, 6, 10])
def test_evaluations_that_follow_a_cyclic_rate(period) -> None:
    rate = of_period(60, period)
    falls = 2.3 * np.exp(-np.arange(60) / 3) + 0.2
    follows = falls * (1 + 5 * (rate / 0.1) ** 2) * noise(60, 0.05)
    run = {"train_loss": falls * noise(60), "val_loss": follows, "lr": rate}
    assert kinds(**run) == []
    if period == 4:
        assert kinds(**{**run, "lr": np.full(60, 0.1)}) == ["swings"]


def test_a_rate_that_comes_back_once_is_a_restart() -> None:
    at = np.arange(100)
    falls = 1e-3 * 0.97 ** (at % 60)
    loss = np.where(at < 60, 2.3 * np.exp(-at / 15) + 0.3, 1.1) * noise(100)
    assert "rate_rise" in kinds(loss=loss, lr=falls)


def test_a_rate_that_is_nothing_after_the_first_logs() -> None:
    at = np.arange(60)
    run = {"train_loss": 2.3 + 1e-3 * RNG.standard_normal(60), "lr": 1e-6 * 1e-3**at}
    run |= {"val_loss": np.full(60, 2.306)}
    assert kinds(**run)[:1] == ["rate_zero"]
    assert kinds(**{**run, "lr": np.full(60, 1e-8)})[:1] == ["rate_too_low"]


@pytest.mark.parametrize("levels", [(0.8, 4.0), (-4.0, -0.5), (12.0, 55.0)])
def test_a_reward_that_rises_within_its_first_values(levels) -> None:
    first, last = levels
    reward = np.full(150, last) + 1e-3 * RNG.standard_normal(150)
    reward[:6] = np.linspace(first, last, 6)
    entropy = np.interp(np.arange(150), [0, 6, 149], [3.0, 1e-4, 1e-4])
    assert "not_learning" not in kinds(objective__rewards=reward, objective__entropy=entropy)
    stays = last + 0.1 * abs(last) * RNG.standard_normal(150)
    assert kinds(objective__rewards=stays, objective__entropy=entropy) != []


def rows_of(loss: np.ndarray, evaluated: list[dict[str, float]], every: int) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    for at, one in enumerate(loss):
        rows.append({"step": 10 * (at + 1), "loss": float(one), "learning_rate": 1e-4, "epoch": at / every})
        if at % every == every - 1:
            rows.append({"step": 10 * (at + 1), "epoch": (at + 1) / every, **evaluated[at // every]})
    return rows


def test_a_model_that_was_good_before_its_fine_tuning(tmp_path) -> None:
    losses = 0.3 * (1 + 0.4 * RNG.standard_normal(24)).clip(0.3, 2)
    losses[0] = 0.17
    good = [
        {"eval_loss": 0.363 - 0.006 * at, "eval_accuracy": 0.886 + 0.002 * at + 0.001 * (at % 2)} for at in range(6)
    ]
    assert of_trainer(tmp_path / "fix", rows_of(losses, good, 4)) == []
    chance = [{"eval_loss": 0.694, "eval_accuracy": 0.5 + 0.004 * (at % 3)} for at in range(6)]
    level = 0.693 * (1 + 0.005 * RNG.standard_normal(24))
    assert of_trainer(tmp_path / "bug", rows_of(level, chance, 4))[:1] == ["not_learning"]


@pytest.mark.parametrize(
    ("losses", "shares"),
    [
        ((0.686, 0.673, 0.652, 0.656, 0.663), (0.555, 0.62, 0.63, 0.645, 0.63)),
        ((0.695, 0.673, 0.671, 0.672, 0.676), (0.495, 0.565, 0.6, 0.61, 0.61)),
    ],
)
def test_noisy_labels_that_are_learned_and_then_learned_by_heart(losses, shares, tmp_path) -> None:
    at = np.arange(90)
    loss = np.where(at < 20, 0.693, 0.693 - 0.09 * (1 - np.exp(-(at - 20) / 12))) + 0.012 * RNG.standard_normal(90)
    evaluated = [{"eval_loss": one, "eval_accuracy": share} for one, share in zip(losses, shares, strict=True)]
    assert of_trainer(tmp_path / "fix", rows_of(loss, evaluated, 18)) == []
    never = [{**one, "eval_loss": 0.694 + 0.01 * at, "eval_accuracy": 0.52} for at, one in enumerate(evaluated)]
    assert of_trainer(tmp_path / "bug", rows_of(loss, never, 18)) != []


@pytest.mark.parametrize("top", [60.0, 2000.0, 1e5])
def test_first_updates_after_which_a_loss_comes_back(top) -> None:
    at = np.arange(60)
    usual = 2.2 + 1.4 * np.exp(-at / 8)
    loss = usual * noise(60)
    loss[0] = 3.6
    assert kinds(loss=loss) == []
    loss[1:8] = np.geomspace(top * 3.6, 5 * 3.6, 7)
    if top > 60:
        assert kinds(loss=loss)[:1] == ["diverged"]
    # The first value of an average that was divided by too many steps is no loss of an untrained model.
    artefact = usual * noise(60)
    artefact[0] = 0.02
    assert kinds(loss=artefact) == []


def test_a_penalty_after_which_only_guessing_is_left() -> None:
    at = np.arange(25)
    loss = of_guessing(10) + 0.004 + 100 * np.exp(-at / 1.6)
    right = np.interp(at, [0, 4, 8, 12, 24], [0.17, 0.34, 0.13, 0.108, 0.104])
    run = {
        "loss": loss,
        "val_loss": loss * 0.8 + 0.2 * of_guessing(10),
        "accuracy": right,
        "val_accuracy": right - 0.01,
    }
    assert kinds(**run)[:1] == ["not_learning"]
    learns = np.interp(at, [0, 8, 24], [0.17, 0.5, 0.83])
    assert kinds(**{**run, "accuracy": learns, "val_accuracy": learns - 0.02}) == []


def of_guessing(classes: int) -> float:
    return float(np.log(classes))


def test_evaluations_that_only_guess_after_a_loss_fell_from_far_above() -> None:
    at = np.arange(30)
    loss = of_guessing(10) * 1.01 * noise(30, 0.006) + 20 * np.exp(-2.0 * at)
    share = 0.1 + 0.02 * RNG.standard_normal(6).clip(-1, 1)
    evaluated = 5 * np.arange(1, 7)
    run = {
        "loss": (at, loss),
        "eval_loss": (evaluated, of_guessing(10) * np.array([1.001, 1.012, 1.003, 1.002, 1.001, 1.001])),
        "eval_accuracy": (evaluated, share),
    }
    assert kinds_of(run)[:1] == ["not_learning"]
    run["eval_loss"] = (evaluated, np.linspace(2.2, 1.2, 6))
    run["eval_accuracy"] = (evaluated, np.linspace(0.15, 0.6, 6))
    run["loss"] = (at, np.linspace(2.3, 1.1, 30) * noise(30))
    assert kinds_of(run) == []


def test_detections_that_never_improve_after_the_first_epoch() -> None:
    def run(fall: float, least: float) -> dict[str, np.ndarray]:
        at = np.arange(40)
        box = 1.2 * (1 - fall * (1 - np.exp(-at / 10))) * noise(40, 0.06)
        box[0] = 6700.0
        return {
            "train/box_loss": box,
            "train/cls_loss": 0.71 * noise(40, 0.02),
            "val/box_loss": 1.15 * (1 - fall * (1 - np.exp(-at / 10))) * noise(40, 0.06),
            "metrics/mAP50(B)": (0.015 * RNG.random(40) if not least else least * (1 - np.exp(-at / 10))),
        }

    assert kinds(**run(0.0, 0.0)) == ["not_learning"]
    assert "not_learning" not in kinds(**run(0.7, 0.0))
    assert kinds(**run(0.7, 0.6)) == []


@pytest.mark.parametrize("share", [[0.835] * 3, [0.505, 0.495, 0.495, 0.505], [0.9] * 6])
def test_an_f1_of_two_classes_that_only_one_answer_gives(share, tmp_path) -> None:
    right = np.array(share)
    score = np.where(right == right[0], 2 * right / (1 + right), 0.0) if right[0] < 0.6 else np.zeros(len(right))
    losses = np.linspace(0.633, 0.547, len(right))
    rows = [{"eval_loss": a, "eval_accuracy": b, "eval_f1": c} for a, b, c in zip(losses, right, score, strict=True)]
    loss = np.linspace(0.69, 0.55, 7 * len(right)) * noise(7 * len(right))
    assert of_trainer(tmp_path / "bug", rows_of(loss, rows, 7))[:1] == ["one_class"]
    for at, row in enumerate(rows):
        row["eval_f1"] = 0.2 + 0.1 * at
        row["eval_accuracy"] = 0.84 + 0.01 * at
    assert of_trainer(tmp_path / "fix", rows_of(loss, rows, 7)) == []


def test_a_divergence_that_is_nothing_while_the_decoder_learns_the_mean() -> None:
    at = np.arange(30)
    recon = 27.3 + 14.4 * np.exp(-at / 3.0)
    run = {"loss": recon + 0.01, "recon": recon, "KLD": 6e-4 + 0.012 * np.exp(-at / 4)}
    assert kinds(**run) == ["posterior_collapse"]
    assert kinds(**{**run, "KLD": 2 + 3 * (1 - np.exp(-at / 6))}) == []
    falls = 60 * np.exp(-at / 12) + 5
    assert kinds(**{**run, "recon": falls, "loss": falls, "KLD": 6e-4 + 1e-4 * at}) == []


def test_samples_of_a_generator_that_become_equal() -> None:
    at = np.arange(120)
    run = {
        "loss/discriminator": 1.38 * noise(120),
        "loss/generator": 0.71 * noise(120),
        "sample_std": 0.15 * np.exp(-at / 4),
    }
    assert kinds(**run) == ["features_collapse"]
    assert kinds(**{**run, "sample_std": 0.6 * noise(120, 0.1)}) == []
    # Without adversaries it may be the noise of actions.
    assert kinds(loss=2 * np.exp(-at / 40) * noise(120), sample_std=run["sample_std"]) == []


def test_a_metric_that_falls_because_the_model_learns_by_heart() -> None:
    at = np.arange(120)
    rises = 0.48 + 0.4 * (1 - np.exp(-at / 40))
    run = {
        "train_loss": 0.65 * np.exp(-at / 20) + 0.003,
        "val_loss": rises + 0.03 * np.exp(-at / 3) + 0.004 * RNG.standard_normal(120),
        "val_r2": 0.95 - rises + 0.004 * RNG.standard_normal(120),
    }
    result = smdwidgets.diagnose({name: (at, one) for name, one in run.items()})
    assert [one.kind for one in result.findings] == ["overfit"]


@pytest.mark.parametrize("above", [1.02, 1.06, 1.09])
def test_batches_of_a_model_that_a_rate_keeps_from_learning(above) -> None:
    at = np.arange(60)
    run = {
        "Loss": (at, above * of_guessing(10) * noise(60, 0.07)),
        "Acc@1": (at, 3.125 * RNG.integers(0, 8, 60)),
        "val/Loss": (5 * np.arange(12), above * of_guessing(10) * (1 + 0.02 * RNG.random(12))),
        "val/Acc@1": (5 * np.arange(12), 10 + RNG.uniform(-1, 1, 12)),
    }
    assert kinds_of(run) == ["not_learning"]
    rises = 10 + 80 * (1 - np.exp(-np.arange(12) / 4))
    learns = {**run, "val/Acc@1": (5 * np.arange(12), rises), "Loss": (at, 2.3 * np.exp(-at / 25) * noise(60, 0.07))}
    learns["val/Loss"] = (5 * np.arange(12), 2.3 * np.exp(-np.arange(12) / 5))
    assert kinds_of(learns) == []


def test_held_out_text_that_follows_a_rule_is_never_sure() -> None:
    trained = [3.317, 2.066, 1.145, 0.699, 0.443, 0.301, 0.234, 0.203, 0.182, 0.171, 0.167, 0.166]
    evaluated = [2.544, 1.201, 0.538, 0.207, 0.115, 0.083, 0.079, 0.084, 0.089, 0.092, 0.094, 0.098]
    run = {"train/nll_loss": trained, "val/nll_loss": evaluated}
    run |= {name.replace("nll_loss", "ppl"): [2**one for one in values] for name, values in run.items()}
    result = smdwidgets.diagnose({name: (50 * np.arange(1, 13), np.array(one)) for name, one in run.items()})
    assert [(one.kind, one.confidence) for one in result.findings] == [("evaluation_too_good", "medium")]
    assert [one.kind for one in result.explained] == ["overfit"]
