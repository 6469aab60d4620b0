"""The trainings of the proving ground.

There are planted faults, healthy trainings, faults on drawn networks, and doses.
A case trains one network from a seed. What is drawn (a rate, a number of layers) comes from the same seed.

Seeds below `REPORT_SEEDS` are for tuning limits, those from it on for reporting only. `seeds` is the one place that
draws the line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from diagnosis.trainings import SAVE_EVERY, STEPS, Poles, Setup, train, train_bandit, train_gan, train_poles, train_rnn

REPORT_SEEDS = 2000


def seeds(number, report):
    """Return seeds for tuning or for reporting."""
    first = REPORT_SEEDS if report else 0
    return range(first, first + number)


@dataclass(frozen=True)
class Case:
    """A training with what its diagnosis should say.

    Attributes:
        expected: kinds of which the first finding is one; empty for a healthy training.
        onset: step of the fault; None if it is there from the start or begins by itself.
        train: trains and saves a run; returns the validation losses.
        healthy: the same training without the fault, if there is one.
    """

    name: str
    expected: tuple[str, ...]
    train: Callable[..., list[float]]
    onset: int | None = None
    healthy: Callable[..., list[float]] | None = None


# ----------------------------------------------------------------------------------------------------------- schedules


def cosine(step, steps):
    """Warm up for 100 steps, then decay to 0 along a cosine."""
    return min(1.0, (step + 1) / 100) * (0.5 + 0.5 * np.cos(np.pi * step / steps))


def drop(step, steps):
    """Divide the rate by 10 after two thirds."""
    return 1.0 if step < steps * 2 // 3 else 0.1


def jump(at, factor, step, steps):
    """Multiply the rate by a factor from one step on."""
    return 1.0 if step < at else factor


# ------------------------------------------------------------------------------------------------------ planted faults


def supervised(make):
    """Turn a function that changes a setup into the training of a case.

    The function takes a setup and a random generator, and returns a setup.
    """

    def run(directory, seed, save_every=SAVE_EVERY, base=None):
        return train(directory, make(base or Setup(), np.random.default_rng([seed, 7])), seed, save_every)

    return run


def high_rate(setup, rng):
    if setup.optimizer == "adam":
        return replace(setup, rate=rng.uniform(0.1, 0.3))
    rate = rng.uniform(0.6, 1.2)
    return replace(setup, rate=rate if setup.optimizer == "momentum" else 10 * rate)


def exploding_rnn(directory, seed, save_every=SAVE_EVERY):
    return train_rnn(directory, np.random.default_rng([seed, 7]).uniform(1.3, 1.5), None, seed, save_every)


def fast_policy(directory, seed, save_every=SAVE_EVERY):
    rate = float(10 ** np.random.default_rng([seed, 7]).uniform(-1, 0))
    return train_poles(directory, Poles(rate=rate), seed, save_every)


#: Faults of supervised trainings: (expected first finding, step of the fault, change of the setup).
FAULTS = {
    "rate too high": (("rate_too_high",), None, high_rate),
    "rate x 60 at 800": (
        ("rate_rise", "rate_too_high"),
        800,
        lambda s, rng: replace(s, schedule=functools.partial(jump, 800, 60.0)),
    ),
    "rate 1e-6": (("rate_too_low",), None, lambda s, rng: replace(s, rate=1e-6)),
    "rate 0 from 600": (("rate_zero",), 600, lambda s, rng: replace(s, schedule=functools.partial(jump, 600, 0.0))),
    "bias -6 to -8": (("dead",), None, lambda s, rng: replace(s, bias=rng.uniform(-8, -6))),
    "7 to 9 sigmoid layers": (
        ("vanishing",),
        None,
        lambda s, rng: replace(s, widths=(s.widths[0],) * int(rng.integers(7, 10)), activation="sigmoid"),
    ),
    "half-precision log 0": (("not_finite",), None, lambda s, rng: replace(s, half=True)),
    "permuted labels": (("labels_unrelated",), None, lambda s, rng: replace(s, permuted=True, samples=1000)),
    "frozen layer": (("frozen",), None, lambda s, rng: replace(s, frozen=int(rng.integers(len(s.widths))))),
    "decay 0.2 to 0.4": (("decay_too_strong",), None, lambda s, rng: replace(s, decay=rng.uniform(0.2, 0.4))),
    "inputs not scaled": (("input_not_scaled",), None, lambda s, rng: replace(s, input_scale=3.0)),
    "95 % one class": (("one_class",), None, lambda s, rng: replace(s, majority=0.95)),
    "150 to 250 samples": (("overfit",), None, lambda s, rng: replace(s, samples=int(rng.integers(150, 251)))),
    "same batch": (("same_batch",), None, lambda s, rng: replace(s, same_batch_from=0)),
    "same batch from 600": (("same_batch",), 600, lambda s, rng: replace(s, same_batch_from=600)),
    "ascent": (("loss_sign",), None, lambda s, rng: replace(s, ascend=True)),
    "gradients not reset": (("gradients_add_up",), None, lambda s, rng: replace(s, accumulate=True)),
    "workers apart": (("workers_apart",), None, lambda s, rng: replace(s, workers=2, apart=True)),
    "inputs x 30 for 3 steps": (("bad_batch",), 900, lambda s, rng: replace(s, burst=900)),
}

PLANTED = [
    Case("rate too high (Adam)", ("rate_too_high",), supervised(lambda s, rng: high_rate(replace(s, optimizer="adam"), rng))),
    *(Case(name, expected, supervised(change), onset) for name, (expected, onset, change) in FAULTS.items()),
    Case("linear RNN of radius 1.3 to 1.5", ("exploding",), exploding_rnn),
    Case("rate too high (policy)", ("rate_too_high",), fast_policy),
]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- healthy trainings


def healthy(name, **changes):
    """Return a healthy case with a changed setup."""
    return Case(name, (), supervised(lambda setup, rng: replace(setup, **changes)))


HEALTHY = [
    healthy("momentum"),
    healthy("SGD", optimizer="sgd", rate=0.1),
    healthy("Adam", optimizer="adam", rate=0.002),
    healthy("warm-up and cosine", rate=0.05, schedule=cosine),
    healthy("step drop", schedule=drop),
    healthy("dropout", dropout=0.2),
    healthy("batch 4", batch=4, rate=0.005),
    healthy("regression", task="regression"),
    healthy("deep tanh", activation="tanh", widths=(64,) * 5),
    healthy("sparse parity", task="parity", optimizer="sgd", rate=0.03),
    healthy("fine-tuning", pretrained=1500, rate=0.002),
    healthy("two workers", workers=2),
    Case("clipped RNN", (), lambda directory, seed, save_every=SAVE_EVERY: train_rnn(directory, 1.0, 1.0, seed, save_every)),
    Case("GAN", (), lambda directory, seed, save_every=SAVE_EVERY: train_gan(directory, seed, save_every)),
    Case("bandit", (), lambda directory, seed, save_every=SAVE_EVERY: train_bandit(directory, seed, save_every)),
    Case("policy", (), lambda directory, seed, save_every=SAVE_EVERY: train_poles(directory, Poles(), seed, save_every)),
]  # fmt: skip


# ----------------------------------------------------------------------------------------------------- drawn networks


def draw_setup(rng):
    """Draw an architecture, a batch size and an optimizer with a rate that suits it."""
    width = int(2 ** rng.uniform(4, 7.6))
    optimizer = str(rng.choice(["sgd", "momentum", "adam"]))
    rate = {"sgd": 0.1, "momentum": 0.02, "adam": 0.002}[optimizer] * 2 ** rng.uniform(-1, 0.5)
    return Setup(
        widths=(width,) * int(rng.integers(1, 6)),
        activation=str(rng.choice(["relu", "tanh"])),
        batch=int(2 ** rng.uniform(1, 9)),
        optimizer=optimizer,
        rate=rate,
        steps=STEPS // 2,
    )


def drawn_fault(name):
    """Return a case that plants a fault in a drawn network."""
    expected, onset, change = FAULTS[name]

    def run(directory, seed, save_every=SAVE_EVERY, *, healthy=False):
        rng = np.random.default_rng([seed, 11, list(FAULTS).index(name)])
        setup = draw_setup(rng)
        if "bias" in name:
            setup = replace(setup, activation="relu")
        if onset is not None:
            setup = replace(setup, steps=STEPS)
        return train(directory, setup if healthy else change(setup, rng), seed, save_every)

    return Case(name, expected, run, onset, functools.partial(run, healthy=True))


def train_drawn_healthy(directory, seed, save_every=SAVE_EVERY):
    """Train a drawn network without a fault."""
    return train(directory, draw_setup(np.random.default_rng([seed, 13])), seed, save_every)


DRAWN = [drawn_fault(name) for name in FAULTS]
DRAWN_HEALTHY = Case("healthy", (), train_drawn_healthy)


def is_healthy(losses):
    """Whether a training went well by its outcome.

    It did if it learned and ended near its best validation loss.
    """
    return bool(np.isfinite(losses).all()) and losses[-1] < 1.1 * min(losses) and losses[-1] < 0.9 * losses[0]


# ---------------------------------------------------------------------------------------------------------------- doses

#: Four strengths of a fault, the mildest first: what is expected if the outcome is harmed.
DOSES = {
    "rate": (("rate_too_high",), [{"rate": 0.02 * factor} for factor in (3, 6, 15, 40)]),
    "bias": (("dead",), [{"bias": -float(bias)} for bias in (1, 3, 5, 7)]),
    "sigmoid layers": (
        ("vanishing",),
        [{"activation": "sigmoid", "widths": (64,) * layers} for layers in (2, 4, 6, 8)],
    ),
    "decay": (("decay_too_strong",), [{"decay": decay} for decay in (0.001, 0.01, 0.05, 0.3)]),
    "inputs": (("input_not_scaled",), [{"input_scale": scale} for scale in (0.5, 1.0, 2.0, 3.0)]),
    "samples": (("overfit",), [{"samples": samples} for samples in (5000, 2000, 800, 200)]),
}


def dosed(name, strength):
    """Return the case of one strength of a fault."""
    expected, strengths = DOSES[name]
    return Case(
        f"{name} {strength + 1}/4", expected, supervised(lambda setup, rng: replace(setup, **strengths[strength]))
    )
