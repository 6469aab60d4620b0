"""What the diagnosis finds in signals of large models."""

import numpy as np
import pytest

import smdwidgets
from smdwidgets.numpy import Hook
from smdwidgets.signals.file import SignalFile, SignalWriter

EVERY = 8


def write(directory, by_kind, every=EVERY, most=None, names=(), steps=200):
    """Write a run with a healthy loss, and signals.

    They are arrays with one row per save, by kind and layer.
    """
    rng = np.random.default_rng(0)
    with Hook(directory) as hook:
        for step in range(steps):
            hook.save_scalar("loss", float(1 + np.exp(-step / 50) + rng.normal(0, 0.02)))
            hook.step()
    writer = SignalWriter(SignalFile(directory, "worker_0").append)
    for kind, layer in by_kind:
        writer.declare(kind, layer, names, most)
    for save in range(max(map(len, by_kind.values()))):
        writer.write(save * every, {key: rows[save].tolist() for key, rows in by_kind.items() if save < len(rows)})
    return smdwidgets.create_trial(directory)


def kinds(trial, **options):
    return {one.kind: one for one in smdwidgets.diagnose(trial, **options).findings}


def heads(saves=25, count=4):
    return 5 + np.random.default_rng(1).random((saves, count))


def growing(saves=25, head=2, rate=0.25):
    values = heads(saves)
    values[:, head] = 2 * np.exp(rate * np.arange(saves))
    return values


def test_growing_attention_logits_name_layer_head_and_the_step_that_they_reach(tmp_path):
    key = "attention_max", "blocks.1.attention"
    trial = write(tmp_path / "run", {("attention_max", "blocks.0.attention"): heads(), key: growing()})
    values = growing()[:, 2]
    first = int(np.argmax(values > 50)) * EVERY
    early = kinds(trial, until=first + 2 * EVERY)["attention_logits_grow"]
    assert (early.subject, early.first, early.level, early.confidence) == (key[1], first, "warning", "high")
    assert "head 2" in early.title
    reached = int(np.ceil(np.log(100 / 2) / 0.25 * EVERY))
    predicted = int(early.text.partition("at this rate 100 at step ")[2].split(")")[0])
    assert abs(predicted - reached) <= 2
    assert early.evidence[0].curve is not None
    assert not kinds(trial, until=first + EVERY)
    late = kinds(trial)["attention_logits_grow"]
    assert late.id == early.id
    assert "above 100 since step" in late.text


def test_single_large_logits_are_no_finding(tmp_path):
    values = heads()
    values[::3] = 80
    assert not kinds(write(tmp_path / "run", {("attention_max", "a"): values}))


def test_logits_that_were_large_once_are_said_not_to_grow(tmp_path):
    values = heads()
    values[5:9, 1] = 70
    fault = kinds(write(tmp_path / "run", {("attention_max", "a"): values}))["attention_logits_grow"]
    assert "no longer growing" in fault.text


@pytest.mark.parametrize("start", [0.5, 0.0])
@pytest.mark.slow
def test_singular_values_count_only_with_large_updates_and_not_from_zero(tmp_path, start):
    names = [f"w{index}" for index in range(5)]
    sigma = np.ones((25, 5))
    sigma[:, 3] = start + np.maximum(0, np.arange(25) - 5) * 2
    large = np.full((25, 5), 0.07)
    rows = {("sigma_max", "AdamW"): sigma, ("update_ratio", "AdamW"): large}
    faults = kinds(write(tmp_path / "large", rows, names=names))
    if start:
        assert faults["weights_blow_up"].subject == "w3"
        assert faults["weights_blow_up"].first == 10 * EVERY
    else:
        assert not faults
    rows["update_ratio", "AdamW"] = large / 10
    assert not kinds(write(tmp_path / "small", rows, names=names))


def loads(saves=80, experts=8):
    rng = np.random.default_rng(2)
    return rng.multinomial(2000, np.ones(experts) / experts, saves) / (2000 / experts)


def test_a_collapsed_router_names_layer_and_expert(tmp_path):
    values = loads()
    values[30:] = 0.02
    values[30:, 5] = 3.97
    values[30:, 1] = 3.8
    trial = write(tmp_path / "run", {("router_load", "blocks.1.moe"): values}, every=1, most=4.0)
    fault = kinds(trial)["experts_collapsed"]
    assert fault.subject == "blocks.1.moe"
    assert "expert 5" in fault.title
    assert 30 < fault.first <= 30 + 25
    assert fault.evidence[0].limit == pytest.approx(1 + 0.85 * 3)
    assert not kinds(trial, until=fault.first + 14)
    # The other experts are dead because of it: it is no second finding.
    assert "dead_experts" not in kinds(trial)


def test_a_dead_expert_is_named(tmp_path):
    values = loads(120)
    values[30:, 6] = 0
    faults = kinds(write(tmp_path / "run", {("router_load", "moe"): values}, every=1, most=4.0))
    assert set(faults) == {"dead_experts"}
    assert "Expert 6" in faults["dead_experts"].title
    assert 30 < faults["dead_experts"].first <= 30 + 35


@pytest.mark.parametrize("every", [1, 8])
def test_uneven_loads_at_the_start_are_healthy(tmp_path, every):
    values = loads()
    values[:5] = 0.05
    values[:5, 2] = 3.9
    assert not kinds(write(tmp_path / "run", {("router_load", "moe"): values}, every=every, most=4.0, steps=80 * every))


def test_an_expert_that_never_had_tokens_is_no_dead_one(tmp_path):
    values = loads()
    values[:, 6] = 0
    assert not kinds(write(tmp_path / "run", {("router_load", "moe"): values}, every=1, most=4.0))


def test_second_moments_that_lag_are_a_note_without_a_symptom(tmp_path):
    values = np.ones((25, 5))
    values[:2] = 5  # the first updates
    values[10:12, :3] = 3
    trial = write(tmp_path / "run", {("stale", "AdamW"): values}, names=[f"w{index}" for index in range(5)])
    diagnosis = smdwidgets.diagnose(trial)
    [note] = [one for one in diagnosis.notes if one.kind == "second_moments_lag"]
    assert (note.first, note.level) == (10 * EVERY, "note")
    assert not diagnosis.findings


@pytest.mark.parametrize("values", [np.full((25, 4), np.nan), np.full((25, 4), np.inf), np.zeros((25, 4)), heads(1)])
@pytest.mark.parametrize("kind", ["attention_max", "router_load", "stale", "sigma_max"])
@pytest.mark.slow
def test_odd_values_do_not_fail(tmp_path, kind, values):
    trial = write(tmp_path / "run", {(kind, "x"): values, ("update_ratio", "x"): values}, most=2.0)
    assert {*kinds(trial)} <= {"attention_logits_grow", "experts_collapsed"}
