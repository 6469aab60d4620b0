"""Logs that tell whether a model guesses, or was lost on the way."""

from __future__ import annotations

import json

import numpy as np
import pytest

from smdwidgets import diagnose


def write_state(folder, losses, eval_losses, accuracies):
    """Write a log of a Trainer with 10 steps between its values, evaluated evenly."""
    rng = np.random.default_rng(0)
    rows = [
        {"step": 10 * at, "loss": float(value), "grad_norm": float(rng.uniform(0.5, 1.0))}
        for at, value in enumerate(losses, 1)
    ]
    every = 10 * len(losses) // len(eval_losses)
    rows += [
        {"step": every * at, "eval_loss": float(loss), "eval_accuracy": float(accuracy)}
        for at, (loss, accuracy) in enumerate(zip(eval_losses, accuracies, strict=True), 1)
    ]
    state = {"epoch": 1.0, "global_step": 10 * len(losses), "log_history": rows}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def noisy(level, points=40, noise=0.02):
    return level + noise * np.random.default_rng(1).standard_normal(points)


def first(folder):
    found = [one for one in diagnose(folder) if one.level != "note"]
    return (found[0].kind, found[0].confidence) if found else None


def test_few_evaluations_that_do_not_change_show_that_nothing_is_learned(tmp_path):
    write_state(tmp_path, noisy(3.49), [3.488] * 8, [0.0317] * 8)
    assert first(tmp_path) == ("not_learning", "medium")


@pytest.mark.parametrize("unit", [1, 100])
def test_accuracy_of_guessing_shows_that_nothing_is_learned(tmp_path, unit):
    slowly = np.linspace(2.08, 2.02, 80) + 0.02 * np.random.default_rng(1).standard_normal(80)
    accuracies = unit * np.linspace(0.15, 0.17, 16)
    write_state(tmp_path, slowly, np.linspace(2.06, 2.03, 16), accuracies)
    assert first(tmp_path) == ("not_learning", "medium")


def test_level_loss_of_a_model_that_is_often_right_is_not_guessing(tmp_path):
    write_state(
        tmp_path, np.linspace(1.06, 1.03, 80) + noisy(0, 80), np.linspace(1.05, 1.03, 16), np.linspace(0.73, 0.74, 16)
    )
    assert first(tmp_path) is None


def test_accuracy_that_never_changes_is_that_of_one_class(tmp_path):
    falling = 0.35 + 1.8 * np.exp(-np.arange(40) / 4) + noisy(0, 40, 0.05)
    write_state(tmp_path, falling, [0.387, 0.333, 0.333, 0.325, 0.326, 0.325, 0.324, 0.324], [0.935] * 8)
    assert first(tmp_path) == ("one_class", "medium")
    [found] = diagnose(tmp_path)
    assert "`eval_accuracy` is 0.935 at each of 8 evaluations" in str(found)


def test_accuracy_of_almost_all_may_stay(tmp_path):
    falling = 0.02 + 1.8 * np.exp(-np.arange(40) / 4) + np.abs(noisy(0, 40, 0.01))
    write_state(tmp_path, falling, np.linspace(0.04, 0.02, 8), [0.992] * 8)
    assert first(tmp_path) is None


def test_loss_that_explodes_and_comes_back_has_diverged(tmp_path):
    losses = np.concatenate([[4.2, 6.0], np.geomspace(1e29, 1e6, 37), [2.06]])
    write_state(tmp_path, losses, [5e27, 1e27, 1e20, 2.04], [0.11, 0.11, 0.12, 0.15])
    assert first(tmp_path) == ("diverged", "high")
    assert "was above 1,000 times its first values for 92% of the run" in str(next(iter(diagnose(tmp_path))))


def test_part_of_a_loss_may_rise_while_the_whole_falls(tmp_path):
    whole = 1 + 3 * np.exp(-np.arange(200) / 50) + noisy(0, 200)
    part = 1 + np.arange(200) / 100 + noisy(0, 200)
    rows = [{"step": at, "loss": a, "aux_loss": b} for at, (a, b) in enumerate(zip(whole, part, strict=True))]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert first(tmp_path) is None
    rows = [{"step": row["step"], "aux_loss": row["aux_loss"]} for row in rows]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert first(tmp_path) == ("diverged", "high")
