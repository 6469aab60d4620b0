"""Any series gives a diagnosis, never an exception."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from python.diagnosis import curves
from smdwidgets.diagnosis import Diagnoser, diagnose
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError

NAMES = [
    "loss",
    "val_loss",
    "train/accuracy",
    "val/accuracy",
    "reward",
    "lr",
    "grad_norm",
    "损失",
    "потери\x1b[2J",
    "",
    "`{x}`",
]
values = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 1.0, -0.0, 1e308, -1e308, 5e-324, np.nan, np.inf]),
)
one_series = st.tuples(
    st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 50), max_size=90),
    st.lists(values, max_size=12),
    st.integers(0, 2),
)


def arrays(given_series):
    steps, few, manner = given_series
    few = few or [1.0]
    column = np.resize(np.array(few), len(steps))
    if manner == 1:
        steps = list(range(len(steps)))
    return np.array(steps, dtype=np.int64), column


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), one_series, max_size=5))
@pytest.mark.filterwarnings("error")
def test_any_series_give_a_diagnosis(given_run):
    run = {name: arrays(one) for name, one in given_run.items()}
    result = diagnose(run)
    assert result.summary
    assert "\x1b" not in repr(result) + result._repr_html_()
    json.dumps(result.to_json())
    assert len(result.judged) + len(result.unjudged) == sum(len(steps) > 0 for steps, _ in run.values())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 80), st.floats(-5, 5) | st.sampled_from([np.nan, 1e6])), min_size=1, max_size=150
    ),
    st.lists(st.integers(0, 150), max_size=5),
)
def test_updates_in_portions_equal_one_call(table, cuts):
    steps, values = (np.array(column) for column in zip(*table, strict=True))
    run: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    live = Diagnoser(run)
    for end in [*sorted(cuts), len(table)]:
        if end:
            run["loss"] = steps[:end], values[:end]
        result = live.update()
    assert result == diagnose({"loss": (steps, values)})


@pytest.mark.parametrize("count", [1, 3, 9])
def test_few_values_cannot_be_judged(count):
    result = diagnose({"loss": (np.arange(count), np.ones(count))})
    assert result.summary == "Cannot tell: fewer than 10 values (loss)."
    assert not result.can_tell


#: One name of each kind that a detector asks for.
OF_DETECTORS = (
    *(
        "loss",
        "grad_norm",
        "learning_rate",
        "epoch",
        "reward",
        "kl",
        "entropy",
        "completions/mean_length",
        "reward_std",
    ),
    *("rewards/accuracies", "rewards/margins", "logps/chosen", "train/accuracy", "accuracy", "test/success_rate"),
    *("eval_loss", "eval_accuracy", "eval_f1", "eval_wer", "eval_bleu", "eval_auc", "eval_sys_len", "eval_ref_len"),
    *(
        "d_loss",
        "g_loss",
        "value_loss",
        "approx_kl",
        "clip_fraction",
        "epsilon",
        "episode reward",
        "explained_variance",
    ),
)


@pytest.mark.parametrize("name", OF_DETECTORS)
@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.filterwarnings("error")
def test_one_series_has_few_finite_values(name, left, tmp_path):
    """The others have many, so that every detector gets as far as that one."""
    at = np.arange(1, 41)
    numbers = {one: 0.5 + np.exp(-at / 9) + 0.01 * n for n, one in enumerate(OF_DETECTORS)} | {"epoch": at / 2}
    numbers[name] = np.where(at <= left, numbers[name], np.nan)
    rows = [{"step": 10 * n} | {one: float(numbers[one][n - 1]) for one in OF_DETECTORS} for n in at.tolist()]
    state = {"global_step": 400, "max_steps": 400, "num_train_epochs": 20, "best_metric": 1.5, "log_history": rows}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert diagnose(tmp_path).summary
    only = {name: (at, numbers[name]), "loss": (at, numbers["loss"]), "eval_loss": (at, numbers["eval_loss"])}
    assert diagnose(only).summary


def test_no_series_cannot_be_judged():
    assert diagnose({}).summary == "Cannot tell: the run has no scalars."


def test_extreme_values_are_judged():
    at = np.arange(100)
    for scale in (1e-300, 1e300, 1.7e308):
        values = np.linspace(1, 0.1, 100) * scale
        assert not diagnose({"loss": (at, values)}).findings
        assert [one.kind for one in diagnose({"loss": (at, values[::-1] - values[::-1].min())}).findings] == [
            "diverged"
        ]


def test_gaps_between_steps_are_no_findings():
    steps = np.cumsum(np.random.default_rng(0).choice([1, 10, 5000], size=400))
    assert not diagnose({"train/loss": (steps, curves.falling())}).findings
    lost = curves.falling()
    lost[250:] = np.nan
    [finding] = diagnose({"train/loss": (steps, lost)}).findings
    assert (finding.kind, finding.first) == ("not_finite", steps[250])


def test_series_that_ends_early_does_not_change_the_others():
    steps = curves.steps()
    whole = {"train/loss": (steps, curves.falling()), "val/loss": (steps[::4], curves.falling()[::4] + 0.1)}
    for end in (3, 12, 100, 200):
        for name, (at, values) in whole.items():
            result = diagnose(whole | {name: (at[:end], values[:end])})
            assert not result.findings
            # It is judged for what it has, and the run lasts as long as the other series.
            judged = {one.name for one in result.judged}
            assert judged == set(whole) - ({name} if end < 10 else set())
            assert result.steps == (0, 3960 if name == "train/loss" else 3990)
    rising = curves.rising_after(0.2, height=3)[:200]
    [finding] = diagnose({"a/train_loss": (steps[:200], rising), "b/train_loss": (steps, curves.falling())}).findings
    assert (finding.kind, finding.names) == ("diverged", ("a/train_loss",))
    assert finding.last <= 1990


@pytest.mark.parametrize("value", [0.0, 1.5, -3e300, 5e-324])
def test_constant_values_are_no_findings(value):
    at = np.arange(500)
    result = diagnose({name: (at, np.full(500, value)) for name in ("train/loss", "acc", "val/loss")})
    assert not result.findings
    assert "constant" in {one.kind for one in result.notes}
    assert not diagnose({"reward": (at, np.full(500, value))}).findings


@pytest.mark.slow
def test_ten_million_values():
    count = 10_000_000
    at = np.arange(count)
    values = (0.3 + 2 * np.exp(-at / 2e6)).astype(np.float64)
    values += 0.01 * np.random.default_rng(0).normal(size=1000).repeat(count // 1000)
    values[7_000_000:] = np.nan
    [finding] = diagnose({"train/loss": (at, values)}).findings
    assert (finding.kind, finding.first) == ("not_finite", 7_000_000)
    assert len(finding.evidence[0].curve.steps) < 200


def test_unequal_columns_are_refused_by_name():
    with pytest.raises(SMDebugValueError, match="series 'loss' must have equally many steps and values"):
        diagnose({"loss": ([1, 2], [0.5])})


def test_arrays_cannot_be_followed():
    with pytest.raises(SMDebugTypeError, match="follow=True requires a trial"):
        diagnose({"loss": ([1], [0.5])}, follow=True)
