"""The gradient noise scale, of problems whose noise scale is known."""

import numpy as np
import pytest

import smdwidgets
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.numpy import Hook
from smdwidgets.signals.file import SignalFile, SignalWriter

#: A gradient of 20 elements with noise of standard deviation 3 each: the noise scale is 20 * 9 / 4.
ELEMENTS, DEVIATION, SQUARED_NORM = 20, 3.0, 4.0
EXACT = ELEMENTS * DEVIATION**2 / SQUARED_NORM


def measured(generator, examples, count):
    """Return squared norms of gradients and numbers of examples.

    They are those of a micro-batch and of all.
    """
    gradient = np.full(ELEMENTS, np.sqrt(SQUARED_NORM / ELEMENTS))
    parts = gradient + DEVIATION * generator.standard_normal((count, examples, ELEMENTS)).mean(1)
    return [(parts**2).sum(1).mean(), (parts.mean(0) ** 2).sum(), examples, examples * count]


def train(folder, measure, steps=400):
    with Hook(folder) as hook:
        for step in range(steps):
            hook.save_signal("gradient_noise", "", measure(step))
            hook.step()
    return smdwidgets.create_trial(folder)


@pytest.mark.parametrize(("examples", "count"), [(4, 2), (4, 16), (64, 4), (256, 2)])
@pytest.mark.slow
def test_the_noise_scale_of_a_known_problem_is_found(tmp_path, examples, count):
    generator = np.random.default_rng(examples)
    found = train(tmp_path / "run", lambda step: measured(generator, examples, count)).noise_scale(400)
    assert found.low[-1] < found.value < found.high[-1]
    assert found.value == pytest.approx(EXACT, rel=0.3)
    assert found.signal.mean() == pytest.approx(SQUARED_NORM, rel=0.2)
    assert found.noise.mean() == pytest.approx(ELEMENTS * DEVIATION**2, rel=0.2)
    assert (found.batch, found.unit, len(found.steps)) == (examples * count, "examples", 400)
    assert found.efficiency == pytest.approx(1 / (1 + EXACT / found.batch), rel=0.3)
    assert f"of 400 measurements\nupdates of {found.batch:,.4g} examples" in repr(found)


def test_the_bounds_contain_the_exact_value_in_19_of_20_trainings():
    from smdwidgets.signals.noise import noise_scale_of
    from smdwidgets.signals.record import Signal, Signals

    generator, within = np.random.default_rng(0), []
    for _ in range(400):
        values = np.array([measured(generator, 16, 4) for _ in range(24)], np.float32)
        signal = Signal("gradient_noise", "gradient_noise", "", "part", (), 0, "worker_0", None, np.arange(24), values)
        found = noise_scale_of(Signals([signal]), 64)
        within.append(found.low[-1] <= EXACT <= found.high[-1])
    assert 0.92 < np.mean(within) < 0.98


def test_a_running_mean_follows_a_noise_scale_that_changes(tmp_path):
    generator = np.random.default_rng(1)

    def measure(step):
        return [one * (100 if step >= 200 else 1) for one in measured(generator, 16, 8)[:2]] + [16, 128]

    found = train(tmp_path / "run", measure).noise_scale(50)
    assert found.at(199) == pytest.approx(EXACT, rel=0.5)
    assert found.at(399) == found.value == pytest.approx(EXACT, rel=0.5)
    assert found.signal[300:].mean() == pytest.approx(100 * SQUARED_NORM, rel=0.3)
    with pytest.raises(SMDebugValueError, match="no noise scale up to step -1; the first is that of step 0"):
        found.at(-1)


def test_a_gradient_that_is_all_noise_has_a_lower_bound_only(tmp_path):
    generator = np.random.default_rng(2)

    def measure(step):
        parts = generator.standard_normal((4, 8, ELEMENTS)).mean(1)
        return [(parts**2).sum(1).mean(), (parts.mean(0) ** 2).sum(), 8, 32]

    found = train(tmp_path / "run", measure, 100).noise_scale()
    assert found.high[-1] == np.inf
    assert 32 < found.low[-1] < np.inf
    if np.isnan(found.value):
        assert "the gradient does not differ from its noise" in repr(found)


def test_one_measurement_and_one_that_is_not_finite_are_no_estimate(tmp_path):
    rows = [[26.0, 8.0, 4, 16], [np.nan, 8.0, 4, 16], [26.0, np.inf, 4, 16], [26.0, 8.0, 16, 16], [26.0, 8.0, 0, 16]]
    found = train(tmp_path / "run", lambda step: rows[step], 5).noise_scale()
    assert found.steps.tolist() == [0]
    assert (found.low[0], found.high[0]) == (0, np.inf)
    assert found.value == pytest.approx(48)


def test_batches_of_unknown_size_are_counted_in_micro_batches(tmp_path):
    generator = np.random.default_rng(3)
    found = train(tmp_path / "run", lambda step: [*measured(generator, 9, 4)[:2], np.nan, 4]).noise_scale(400)
    assert found.unit == "micro-batches"
    assert found.value == pytest.approx(EXACT / 9, rel=0.3)
    assert found.batch == 4


def test_workers_are_averaged(tmp_path):
    with Hook(tmp_path / "run") as hook:
        hook.save_scalar("loss", 1.0)
    generator = np.random.default_rng(4)
    for worker in ("worker_0", "worker_1"):
        writer = SignalWriter(SignalFile(tmp_path / "run", worker).append)
        for step in range(200):
            writer.write(step, {("gradient_noise", ""): measured(generator, 16, 4)})
    found = smdwidgets.create_trial(tmp_path / "run").noise_scale(200)
    assert len(found.steps) == 200
    assert found.value == pytest.approx(EXACT, rel=0.2)


def test_why_there_is_no_noise_scale_is_said(tmp_path):
    with Hook(tmp_path / "run") as hook:
        hook.save_scalar("loss", 1.0)
    trial = smdwidgets.create_trial(tmp_path / "run")
    with pytest.raises(SMDebugValueError, match="no gradients of two batch sizes were recorded"):
        trial.noise_scale()
    SignalWriter(SignalFile(tmp_path / "run", "worker_0").append).off("gradient_noise", "one backward pass")
    with pytest.raises(SMDebugValueError, match="the noise scale is unknown: one backward pass"):
        trial.noise_scale()
    assert not [one for one in smdwidgets.diagnose(trial).unjudged if "gradient_noise" in one.name]
    for window in (0, 1.5, True):
        with pytest.raises(SMDebugValueError, match="invalid window"):
            trial.noise_scale(window)


def test_rows_of_the_signal_have_names(tmp_path):
    trial = train(tmp_path / "run", lambda step: [26.0, 8.0, 4, 16], 3)
    assert trial.signal("gradient_noise").row_name(3) == "big_batch"
