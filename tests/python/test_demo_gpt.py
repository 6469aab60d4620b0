"""The language model of the notebooks, and the diagnosis of its trainings."""

import subprocess
import sys

import numpy as np
import pytest

import smdwidgets
from smdwidgets.demo.gpt import GPT, Adam, words
from smdwidgets.numpy import Hook


@pytest.mark.parametrize("experts", [0, 4])
def test_gradients_are_differences_of_the_loss(experts):
    model = GPT(np.random.default_rng(0), experts, balance=0.0)
    model.parameters = {name: 3 * value.astype(np.float64) for name, value in model.parameters.items()}
    text = words(np.random.default_rng(1), 4, 33)
    _, gradients, _ = model.step(text)
    assert {*gradients} == {*model.parameters}
    for name, gradient in gradients.items():
        values, ends = model.parameters[name], []
        place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        for change in (1e-6, -2e-6, 1e-6):
            values[place] += change
            ends.append(model.step(text)[0])
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-3)


def train(run, rate, steps, **options):
    """Train a model, and return its losses."""
    rng = np.random.default_rng(0)
    model, losses = GPT(rng, **options), []
    optimizer = Adam(model.parameters)
    with Hook(run) as hook:
        for step in range(steps):
            loss, gradients, signals = model.step(words(rng, 8, 33))
            optimizer.step(gradients, rate(step))
            losses.append(loss)
            hook.save_scalar("loss", loss)
            for (kind, layer), values in signals.items():
                hook.save_signal(kind, layer, values, most=options.get("experts"))
            hook.step()
    return losses


def diagnosed(run, *options):
    """Return what the command prints, and its code."""
    command = [sys.executable, "-m", "smdwidgets", "diagnose", str(run), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.stdout, done.returncode


@pytest.mark.slow
def test_a_warm_up_without_end_is_found_50_steps_before_the_loss_moves(tmp_path):
    losses = train(tmp_path / "run", lambda step: 2.5e-4 * step, 420)
    calm = 300  # the loss has not moved up to here
    assert np.mean(losses[calm - 50 : calm]) < np.mean(losses[100:150]) + 0.1
    assert np.mean(losses[-30:]) > np.mean(losses[200:calm]) + 0.15
    text, code = diagnosed(tmp_path / "run", "--until", str(calm - 50))
    assert code == 1, text
    assert "1. Attention logits grow in `blocks." in text
    [first] = smdwidgets.diagnose(tmp_path / "run", until=calm - 50).findings
    assert first.kind == "attention_logits_grow"
    assert first.first <= calm - 50


@pytest.mark.slow
def test_a_balance_with_the_wrong_sign_is_found_and_the_loss_does_not_show_it(tmp_path):
    ends = {}
    for name, balance in (("right", 0.02), ("wrong", -0.02)):
        ends[name] = np.mean(train(tmp_path / name, lambda step: 3e-3, 140, experts=8, balance=balance)[-30:])
    assert abs(ends["wrong"] - ends["right"]) < 0.25
    text, code = diagnosed(tmp_path / "wrong")
    assert code == 1
    assert "1. The router `blocks." in text
    assert diagnosed(tmp_path / "right")[1] == 0
