"""Evidence for and against causes decides which is named, and how surely."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import smdwidgets
from python.diagnosis import curves
from smdwidgets import CapturePlan
from smdwidgets._text import capitalized
from smdwidgets.checks.file import CheckFile
from smdwidgets.checks.record import CheckRecord, CheckRecords
from smdwidgets.cli import main
from smdwidgets.diagnosis import diagnose, summary_of
from smdwidgets.diagnosis.cause_table import CAUSES, READS
from smdwidgets.diagnosis.causes import explained
from smdwidgets.diagnosis.inputs import RunData, TensorColumns
from smdwidgets.diagnosis.observations import OBSERVATIONS
from smdwidgets.diagnosis.reference import (
    Quantity,
    Summary,
    differences,
    is_baseline,
    read_summaries,
    write_summaries,
)
from smdwidgets.finding import KINDS, Finding, ordered
from smdwidgets.numpy import Hook

STEPS = 200


def finding(kind, confidence="high", first=0, level="problem"):
    return Finding(kind, level, confidence, "x", first, None, title=kind)


def saved(directory, make, loss, count=STEPS, learning_rate=None):
    """Save a run of tensors that `make` returns by step, and a loss."""
    with Hook(directory) as hook:
        for step in range(count):
            for name, (value, collection) in make(step).items():
                hook.save_tensor(name, np.asarray(value, np.float32), collection)
            hook.save_scalar("loss", float(loss[step]))
            if learning_rate is not None:
                hook.save_scalar("learning_rate", float(learning_rate[step]))
            hook.step()
    return smdwidgets.create_trial(directory)


def test_the_table_names_observations_and_kinds_only():
    names = OBSERVATIONS | KINDS.keys()
    for kind, cause in CAUSES.items():
        assert kind in KINDS
        assert names >= {*cause.needs, *cause.excluded_by, *cause.supports, *cause.against, *cause.sure_with}
        assert names >= {*cause.alone, *cause.raised_by}
        assert KINDS.keys() >= {*cause.rivals}
        assert kind not in cause.rivals
    assert KINDS.keys() >= READS.keys()


def test_a_proof_outranks_statistics_and_has_no_rivals():
    joined = explained(
        [finding("rate_too_high"), finding("frozen", "proof"), finding("not_learning", "medium")], 0, 100
    )
    assert [one.kind for one in joined.causes] == ["rate_too_high", "frozen"]
    [frozen] = [one for one in joined.causes if one.kind == "frozen"]
    assert (frozen.confidence, frozen.rivals) == ("proof", ())


@pytest.mark.parametrize(("checked", "confidence"), [(0, "high"), (500, "medium")])
def test_what_checks_that_ran_have_not_proved_is_never_of_high_confidence(checked, confidence):
    found = [finding("exploding"), finding("frozen", "proof"), finding("diverged", "medium")]
    joined = explained(found, 0, 100, RunData([], TensorColumns(), checked=checked))
    assert {one.kind: one.confidence for one in joined.causes} == {"exploding": confidence, "frozen": "proof"}
    [explosion] = [one for one in joined.causes if one.kind == "exploding"]
    assert explosion.rivals == ("rate_too_high", "loss_sign")


@pytest.mark.parametrize(
    ("cause", "is_first"),
    [
        (finding("exploding"), False),
        (finding("exploding", "low"), True),
        (replace(finding("exploding"), last=20), True),
        (replace(finding("exploding"), last=59), False),
        (finding("symmetric_units", "proof"), False),
    ],
    ids=["high", "low", "over", "near", "proof"],
)
def test_only_a_sure_cause_that_is_not_over_stands_above_a_value_that_is_not_finite(cause, is_first):
    lost = finding("not_finite", "proof", 60)
    data = RunData([], TensorColumns(), [], True)
    joined = explained([cause, lost], 0, 100, data)
    names = [one.kind for one in ordered(joined.causes)]
    assert names.index("not_finite") == 0 if is_first else names == [cause.kind]


def test_a_single_large_value_does_not_hide_a_nan_of_another_tensor(tmp_path):
    rng = np.random.default_rng(0)

    def weights(step):
        large, lost = rng.normal(1, 0.01, (2, 8, 8))
        large *= 1e4 if step == 80 else 1
        lost[0, 0] = np.nan if step == 120 else lost[0, 0]
        return {"a.weight": (large, "weights"), "b.weight": (lost, "weights")}

    found = diagnose(saved(tmp_path / "run", weights, np.exp(-np.arange(STEPS) / 50))).findings
    assert [(one.kind, one.subject) for one in found] == [("not_finite", "b.weight"), ("rate_too_high", "a.weight")]
    assert found[1].title.endswith("at step 79")


@pytest.mark.parametrize("every", [1, 5, 20])
def test_weights_that_never_change_are_found_at_any_interval_of_saves(tmp_path, every):
    rng = np.random.default_rng(every)
    moving, still = rng.normal(size=(2, 16, 16))
    with Hook(tmp_path / "run") as hook:
        for step in range(20 * every):
            moving = moving + rng.normal(0, 0.001, moving.shape)
            hook.save_scalar("loss", float(np.exp(-step / (5 * every))))
            if step % every == 0:
                hook.save_tensor("a.weight", np.asarray(moving, np.float32), "weights")
                hook.save_tensor("b.weight", np.asarray(still, np.float32), "weights")
            hook.step()
    [found] = diagnose(tmp_path / "run").findings
    assert (found.kind, found.names, found.confidence) == ("frozen", ("b.weight",), "proof")


def test_a_cause_names_rivals_with_the_test_that_distinguishes_them():
    joined = explained([finding("rate_too_high"), finding("diverged")], 0, 100)
    [one] = joined.causes
    assert one.rivals
    assert all(f"? {capitalized(KINDS[kind].test)}." in one.try_ for kind in one.rivals)


def test_a_cause_without_a_symptom_is_a_note():
    [one] = explained([finding("rate_too_high")], 0, 100).causes
    assert not one.counts


@pytest.mark.parametrize(("other", "level"), [("diverged", "problem"), ("overfit", "note")])
def test_a_note_whose_consequences_are_seen_is_the_cause(other, level):
    joined = explained([finding("sum_reduction", "proof", level="note"), finding(other)], 0, 100)
    [one] = [each for each in joined.causes if each.kind == "sum_reduction"]
    assert one.level == level
    assert [each.kind for each in joined.explained] == (["diverged"] if level == "problem" else [])
    assert (one.confidence == "proof") == (level == "note")


def level_loss(seed=0):
    return np.log(10) * (1 + 2e-3 * np.random.default_rng(seed).normal(size=STEPS))


def moving(rng, spread=0.002, large=()):
    """Return a function that makes tensors of a network that is trained."""
    weight = rng.normal(size=(16, 16)).astype(np.float32)

    def make(step):
        nonlocal weight
        weight = weight + (0.3 if step in large else spread) * rng.normal(size=weight.shape).astype(np.float32)
        gradient = rng.normal(size=weight.shape)
        return {
            "x": (rng.normal(size=(32, 16)), "inputs"),
            "fc.weight": (weight, "weights"),
            "gradient/fc.weight": (gradient, "gradients"),
            "net_output": (rng.normal(size=(32, 10)), "outputs"),
        }

    return make


def test_a_loss_at_guessing_while_weights_move_is_a_matter_of_labels(tmp_path):
    result = diagnose(saved(tmp_path, moving(np.random.default_rng(0)), level_loss()))
    [one] = result.findings
    assert (one.kind, one.confidence) == ("labels_unrelated", "medium")  # it is what remains
    assert "32 fixed samples" in KINDS[one.kind].test
    assert [below.kind for below in result.explained] == ["not_learning"]


def test_one_large_step_beside_a_level_loss_does_not_make_the_rate_the_cause(tmp_path):
    result = diagnose(saved(tmp_path, moving(np.random.default_rng(0), large=(0,)), level_loss()))
    assert result.findings[0].kind == "labels_unrelated"
    assert all(one.confidence != "high" for one in result if one.kind == "rate_too_high")


@pytest.mark.parametrize(("end", "counts"), [(1.0, True), (0.2, False)])
def test_a_loss_that_only_comes_back_shows_that_the_rate_was_too_high(tmp_path, end, counts):
    noise = np.random.default_rng(0).normal(size=STEPS)
    loss = np.r_[1.0, 300 * np.exp(-np.arange(STEPS - 1) / 8) + end] * (1 + 0.01 * noise)
    make = moving(np.random.default_rng(0), large=range(6))
    with saved(tmp_path, make, loss) as trial:
        assert ("rate_too_high" in {one.kind for one in diagnose(trial)}) == counts


@pytest.mark.parametrize(("rate", "expected"), [(1.0, False), (0.0, True), (None, True)])
def test_weights_that_stop_at_a_rate_above_0_have_converged(tmp_path, rate, expected):
    make = moving(np.random.default_rng(0))
    kept = {}

    def converged(step):
        tensors = make(step)
        kept.setdefault("fc.weight", []).append(tensors["fc.weight"])
        return tensors | {"fc.weight": kept["fc.weight"][min(step, 80)]}

    rates = None if rate is None else np.where(np.arange(STEPS) < 80, 1.0, rate)
    with saved(tmp_path, converged, curves.falling(STEPS), learning_rate=rates) as trial:
        assert ("rate_zero" in {one.kind for one in diagnose(trial)}) == expected


def test_inputs_near_0_are_not_scaled_if_nothing_is_learned(tmp_path):
    make = moving(np.random.default_rng(0))

    def small(step):
        tensors = make(step)
        return tensors | {"x": (tensors["x"][0] * 1e-3, "inputs")}

    with saved(tmp_path / "level", small, level_loss()) as trial:
        assert [one.kind for one in diagnose(trial)] == ["input_not_scaled"]
    with saved(tmp_path / "learns", small, curves.falling(STEPS)) as trial:
        assert not list(diagnose(trial))


def test_inputs_that_are_never_finite_are_the_cause_though_the_loss_was_saved_first(tmp_path):
    with Hook(tmp_path / "run") as hook:
        for step in range(40):
            if step:
                hook.save_tensor("x", np.full((8, 4), np.nan, np.float32), "inputs")
            hook.save_scalar("loss", float("nan"))
            hook.step()
    assert diagnose(tmp_path / "run").findings[0].kind == "input_not_finite"


@pytest.mark.parametrize(("clipped", "kinds"), [(1e-3, {"rate_too_low"}), (0.5, set())])
def test_clipping_to_a_thousandth_of_the_gradients_is_named(tmp_path, clipped, kinds):
    rng = np.random.default_rng(0)
    make = moving(rng, spread=4e-4)
    with Hook(tmp_path / "run") as hook:
        for step in range(STEPS):
            for name, (value, collection) in make(step).items():
                hook.save_tensor(name, np.asarray(value, np.float32), collection)
            hook.save_scalar("loss", 3 - 0.0015 * step + 0.002 * rng.normal())
            hook.save_scalar("optimizer/SGD/gradient_norm_before_clipping", 1 + 0.1 * rng.random())
            hook.save_scalar("optimizer/SGD/gradient_norm", clipped)
            hook.step()
    found = list(diagnose(tmp_path / "run"))
    assert {one.kind for one in found} == kinds
    assert all("clipping divides gradients by 1,0" in one.text for one in found)


@pytest.mark.parametrize(("loss", "confidence"), [(level_loss(), "medium"), (curves.falling(STEPS), "high")])
def test_one_class_is_sure_only_if_the_training_learns(tmp_path, loss, confidence):
    rng = np.random.default_rng(0)
    make = moving(rng, spread=0.01)
    outputs = np.eye(10)[0] * 9

    def one(step):
        return make(step) | {"net_output": (outputs + rng.normal(size=(32, 10)), "outputs")}

    with saved(tmp_path, one, loss) as trial:
        [found] = [each for each in (*diagnose(trial), *diagnose(trial).explained) if each.kind == "one_class"]
    assert found.confidence in (confidence, "medium")


def test_full_batch_training_has_no_finding(tmp_path):
    rng = np.random.default_rng(0)
    batch, make = rng.normal(size=(32, 16)), moving(rng)
    result = diagnose(saved(tmp_path, lambda step: {**make(step), "x": (batch, "inputs")}, curves.falling(STEPS)))
    assert not result.findings
    assert "same_batch" in {one.kind for one in result.notes}


def test_a_batch_that_stays_the_same_from_some_step_on_is_named(tmp_path):
    rng = np.random.default_rng(0)
    batch, make = rng.normal(size=(32, 16)), moving(rng)
    trial = saved(
        tmp_path, lambda step: make(step) | ({"x": (batch, "inputs")} if step >= 80 else {}), curves.falling(STEPS)
    )
    [one] = diagnose(trial).findings
    assert (one.kind, one.first) == ("same_batch", 80)


def test_states_of_one_1_each_are_not_the_same_batch(tmp_path):
    rng = np.random.default_rng(0)
    make = moving(rng)

    # Batches of a memory that grows until they have their full size.
    def rows(step):
        return np.eye(8, dtype=np.float32)[rng.integers(0, 8, min(32, 4 * (step + 1)))]

    trial = saved(tmp_path, lambda step: make(step) | {"x": (rows(step), "inputs")}, curves.falling(STEPS))
    result = diagnose(trial)
    assert "same_batch" not in {one.kind for one in (*result.findings, *result.notes)}


@pytest.mark.parametrize("restored", [True, False])
def test_overfitting_before_weights_are_restored_is_a_note(tmp_path, restored):
    training, validation = curves.falling(STEPS), curves.rising_after(0.4, height=1.5)
    with Hook(tmp_path) as hook:
        for step in range(STEPS):
            hook.save_scalar("loss", float(training[step]))
            hook.save_scalar("val_loss", float(validation[step * len(validation) // STEPS]))
            hook.step()
    (tmp_path / "checks").mkdir(exist_ok=True)
    settings = {"parameters.type": "float32", **({"weights.restored": True} if restored else {})}
    (tmp_path / "checks" / "worker_0.jsonl").write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")
    result = diagnose(smdwidgets.create_trial(tmp_path))
    assert "overfit" in {one.kind for one in (result.notes if restored else result.findings)}


@pytest.mark.parametrize(("value", "word"), [(1.0, "softmax"), (0.0, "ReLU")])
def test_an_output_that_is_one_number_is_named(tmp_path, value, word):
    make = moving(np.random.default_rng(0))
    trial = saved(
        tmp_path, lambda step: {**make(step), "net_output": (np.full((32, 1), value), "outputs")}, np.full(STEPS, 0.7)
    )
    one = diagnose(trial).findings[0]
    assert one.kind == "output_constant"
    assert word in one.text


@pytest.mark.parametrize(("names", "kinds"), [(["loss"], {"one_class"}), (["loss_D", "loss_G"], set())])
def test_outputs_of_adversaries_are_no_classes(tmp_path, names, kinds):
    rng = np.random.default_rng(0)
    with Hook(tmp_path) as hook:
        for _ in range(STEPS):
            hook.save_tensor("net_output", rng.normal([0, 9], 1, (64, 2)), "outputs")
            for name in names:
                hook.save_scalar(name, float(0.7 + 0.01 * rng.normal()))
            hook.step()
    assert {one.kind for one in diagnose(tmp_path)} == kinds


def test_units_that_stay_equal_are_a_proof(tmp_path):
    make = moving(np.random.default_rng(0))
    trial = saved(
        tmp_path, lambda step: {**make(step), "fc.weight": (np.full((8, 8), 0.1 + step / 1e3), "weights")}, level_loss()
    )
    one = diagnose(trial).findings[0]
    assert (one.kind, one.confidence) == ("symmetric_units", "proof")


def test_weights_that_are_equal_at_first_only_are_healthy(tmp_path):
    rng = np.random.default_rng(0)
    make = moving(rng)
    trial = saved(
        tmp_path,
        lambda step: {
            **make(step),
            "head.weight": (np.zeros((8, 8)) + step * 1e-3 * rng.normal(size=(8, 8)), "weights"),
        },
        curves.falling(STEPS),
    )
    assert not diagnose(trial).findings


def test_a_rate_that_was_high_for_six_steps_has_an_end(tmp_path):
    rate = np.where((np.arange(STEPS) >= 120) & (np.arange(STEPS) < 126), 3.0, 0.09)
    loss = np.where(np.arange(STEPS) < 120, curves.falling(STEPS), 5.0)
    result = diagnose({"learning_rate": (np.arange(STEPS), rate), "loss": (np.arange(STEPS), loss)})
    [one] = [one for one in result if one.kind == "rate_rise"]
    assert (one.first, one.last) == (120, 125)
    assert "is back at step 126" in one.text


def layers_of(rng, sizes, moves=1e-3):
    """Return a function that makes weights with gradients of these sizes."""
    weights = {name: rng.normal(size=(16, 16)).astype(np.float32) for name in sizes}

    def make(step):
        tensors = {}
        for name, size in sizes.items():
            if size is not None:
                change = (moves if size > 1e-6 else 0.0) * rng.normal(size=(16, 16))
                weights[name] = weights[name] + change.astype(np.float32)
            tensors[name] = weights[name], "weights"
            tensors[f"gradient/{name}"] = (size or 1.0) * rng.normal(size=(16, 16)), "gradients"
        return tensors

    return make


def test_gradients_of_two_models_are_not_compared(tmp_path):
    rng = np.random.default_rng(0)
    sizes = {f"Generator_{index}.weight": 1e-4 * 1.2**index for index in range(3)}
    sizes |= {f"Critic_{index}.weight": 0.5 * 1.2**index for index in range(3)}
    with saved(tmp_path / "two", layers_of(rng, sizes), level_loss()) as trial:
        assert "vanishing" not in {one.kind for one in [*diagnose(trial), *diagnose(trial).notes]}
    sizes = {f"Net_{index}.weight": 1e-5 * 8**index for index in range(6)}
    with saved(tmp_path / "one", layers_of(rng, sizes), level_loss()) as trial:
        assert "vanishing" in {one.kind for one in diagnose(trial)}


@pytest.mark.parametrize(("first", "is_found"), [("block.first.weight", True), ("block.wq.weight", False)])
def test_gradients_of_queries_are_small_by_nature(tmp_path, first, is_found):
    sizes = {first: 1e-4, "block.wv.weight": 0.05, "mid.weight": 0.1, "head.weight": 0.2}
    with saved(tmp_path, layers_of(np.random.default_rng(0), sizes), level_loss()) as trial:
        assert ("vanishing" in {one.kind for one in diagnose(trial)}) is is_found


@pytest.mark.parametrize(("held", "is_found"), [("fc1.base.weight", False), ("fc2.weight", True)])
def test_a_layer_that_an_adapter_holds_is_frozen_on_purpose(tmp_path, held, is_found):
    rng = np.random.default_rng(0)
    still = rng.normal(size=(16, 16))
    moved = {name: rng.normal(size=(16, 16)) for name in ("fc0.A", "fc1.A", "head.weight")}

    def make(_step):
        for value in moved.values():
            value += 1e-3 * rng.normal(size=(16, 16))
        tensors = {"fc0.A": moved["fc0.A"], held: still, "fc1.A": moved["fc1.A"], "head.weight": moved["head.weight"]}
        return {name: (value, "weights") for name, value in tensors.items()}

    with saved(tmp_path, make, level_loss()) as trial:
        assert ("frozen" in {one.kind for one in diagnose(trial)}) is is_found


@pytest.mark.parametrize("loss", [None, "cross_entropy"])
def test_outputs_of_a_loss_that_checks_have_not_seen_are_no_classes(tmp_path, loss):
    rng = np.random.default_rng(0)
    with Hook(tmp_path) as hook:
        for _ in range(STEPS):
            hook.save_tensor("net_output", rng.normal([0, 4, 9], 0.5, (64, 3)), "outputs")
            hook.save_scalar("loss", float(0.7 + 0.01 * rng.normal()))
            hook.step()
    (tmp_path / "checks").mkdir()
    settings = {"parameters.type": "float32", **({"loss": loss} if loss else {})}
    (tmp_path / "checks" / "worker_0.jsonl").write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")
    assert ("one_class" in {one.kind for one in diagnose(tmp_path)}) is (loss is not None)


def test_updates_that_rounding_takes_away_are_not_frozen(tmp_path):
    rng = np.random.default_rng(0)
    vanished = {"a.weight": 1e-9, "b.weight": 1e-3, "c.weight": 0.1}
    with saved(tmp_path / "rounded", layers_of(rng, vanished), level_loss()) as trial:
        assert "frozen" not in {one.kind for one in diagnose(trial)}
    kept = {"a.weight": None, "b.weight": 1e-3, "c.weight": 0.1}
    with saved(tmp_path / "kept", layers_of(rng, kept), level_loss()) as trial:
        assert "frozen" in {one.kind for one in diagnose(trial)}


def test_a_regression_at_the_mean_of_its_targets_does_not_learn(tmp_path):
    rng = np.random.default_rng(0)
    loss = 1 + np.exp(-np.arange(STEPS) / 10) + 0.05 * rng.normal(size=STEPS)
    record = CheckRecord(
        "no_better_than_mean", "note", 96, STEPS - 5, 8, ("loss",), {}, "The error is the variance", "Look."
    )
    with saved(tmp_path / "alone", lambda step: {}, loss) as trial:
        assert not list(diagnose(trial))
    saved(tmp_path / "checked", lambda step: {}, loss).close()
    CheckFile(tmp_path / "checked", "worker_0").append(record.to_line())
    [found] = diagnose(tmp_path / "checked")
    assert (found.kind, found.confidence) == ("not_learning", "medium")
    assert "mean of the targets" in found.text


def test_a_note_hides_no_problem():
    joined = explained([finding("same_batch", "medium", level="note"), finding("overfit", "medium")], 0, 100)
    assert [one.kind for one in joined.causes if one.counts] == ["overfit"]


def test_the_rate_is_the_cause_of_matrices_that_grow():
    grown = finding("weights_blow_up", "medium", level="warning")
    joined = explained([grown, finding("rate_too_high"), finding("diverged")], 0, 100)
    assert [one.kind for one in joined.causes] == ["rate_too_high"]
    assert [one.kind for one in explained([grown], 0, 100).causes] == ["weights_blow_up"]


@pytest.mark.parametrize(("last", "found"), [(STEPS - 5, []), (STEPS // 2, ["diverged"])])
def test_a_loss_that_rises_with_its_targets_does_not_diverge(tmp_path, last, found):
    at = np.arange(STEPS)
    loss = np.where(at < 80, 0.2, 0.2 + (at - 80) / 300) + 0.01 * np.random.default_rng(0).normal(size=STEPS)
    record = CheckRecord("targets_grow", "note", 96, last, 8, ("loss",), {}, "The targets have grown", "Divide.")
    saved(tmp_path, lambda step: {}, loss).close()
    CheckFile(tmp_path, "worker_0").append(record.to_line())
    assert [one.kind for one in diagnose(tmp_path)] == found


@pytest.mark.parametrize("is_policy", [True, False])
@pytest.mark.parametrize(
    ("course", "kind"),
    [
        (np.linspace(-0.2, 0.4, STEPS), "diverged"),
        (np.tile(-3 - 0.5 * (1 - np.exp(-np.arange(STEPS // 2) / 20)), 2), "spike"),
    ],
    ids=["rises", "falls twice"],
)
def test_the_value_of_a_policy_loss_is_not_judged(tmp_path, is_policy, course, kind):
    rng = np.random.default_rng(0)
    loss = course + 0.01 * rng.normal(size=STEPS)
    identifier = "policy_loss" if is_policy else "stands_out"
    record = CheckRecord(identifier, "note", 0, STEPS - 5, 8, ("loss",), {}, "The loss weighs", "Look at the reward.")
    saved(tmp_path, lambda step: {}, loss).close()
    CheckFile(tmp_path, "worker_0").append(record.to_line())
    assert [one.kind for one in diagnose(tmp_path)] == ([] if is_policy else [kind])


def test_an_empty_batch_among_others_is_named(tmp_path):
    rng = np.random.default_rng(0)
    make = moving(rng)
    spike = curves.falling(STEPS) + 3 * (np.arange(STEPS) >= 100)
    trial = saved(
        tmp_path,
        lambda step: make(step) | {"x": (np.zeros((32, 16)) if step == 100 else rng.normal(size=(32, 16)), "inputs")},
        spike,
    )
    one = diagnose(trial).findings[0]
    assert (one.kind, one.first, one.last) == ("bad_batch", 100, 100)
    assert "are all equal" in one.title


@pytest.mark.parametrize(
    ("units_before", "is_dead"), [(8, False), (None, True), (2, True)], ids=["padding", "unknown", "dead"]
)
def test_zeros_of_padding_are_not_dead_units(tmp_path, units_before, is_dead):
    rng = np.random.default_rng(0)
    weights = moving(rng)

    def make(step):
        values = rng.normal(size=(300, 8))
        given = np.zeros((300, 32))
        given[:, :8] = np.maximum(values, 0)
        after = weights(step) | {"fc_input_0": (given, "activations")}
        if units_before is None:
            return after
        values[:, units_before:] = -1 - np.abs(values[:, units_before:])
        return {"conv_output_0": (values, "activations")} | after

    with saved(tmp_path, make, level_loss()) as trial:
        assert ("dead" in {one.kind for one in diagnose(trial)}) == is_dead


@pytest.mark.parametrize("is_input", [True, False])
def test_a_category_in_a_row_of_zeros_is_no_unit(tmp_path, is_input):
    """The first module gets the input of the model."""
    rng = np.random.default_rng(0)
    weights = moving(rng)

    def make(step):
        x = np.eye(7)[np.zeros(300, int)]
        given = {"x": (x, "inputs")} if is_input else {}
        return weights(step) | given | {"fc_input_0": (x, "activations")}

    with saved(tmp_path, make, level_loss()) as trial:
        assert ("dead" in {one.kind for one in diagnose(trial)}) is not is_input


@pytest.mark.parametrize("recovers", [False, True])
def test_units_that_are_zero_to_the_end_are_dead_where_few_values_were_kept(tmp_path, recovers):
    rng = np.random.default_rng(0)
    weights = moving(rng)
    with Hook(tmp_path, plan=CapturePlan(budget="1MB")) as hook:
        for step in range(STEPS):
            relu = np.maximum(rng.normal(size=(4, 64)), 0)  # too few samples to judge units
            relu[:, : max(0, step - 100)] = 0
            if recovers and step >= STEPS - 4:
                relu[0, 0] = 1
            for name, (value, collection) in weights(step).items():
                hook.save_tensor(name, np.asarray(value, np.float32), collection)
            hook.save_tensor("fc.relu_output_0", relu.astype(np.float32), "relu_outputs")
            hook.save_scalar("loss", float(np.exp(-step / 50)))
            hook.step()
    trial = smdwidgets.create_trial(tmp_path)
    assert 4 * len(trial["fc.relu_output_0"].steps()) < 256
    found = {one.kind: one for one in diagnose(trial)}
    assert ("dead" in found) is not recovers
    if not recovers:
        assert (found["dead"].subject, found["dead"].first) == ("fc.relu_output_0", 164)
        assert "died during the training" in found["dead"].text


def test_units_died_when_they_did_although_some_come_back(tmp_path):
    rng = np.random.default_rng(0)
    weights = moving(rng)

    def make(step):
        relu = np.maximum(rng.normal(size=(300, 64)), 0)
        relu[:, : 0 if step < 120 else 58 if step < STEPS - 18 else 40] = 0
        return weights(step) | {"fc.relu_output_0": (relu, "relu_outputs")}

    with saved(tmp_path, make, level_loss()) as trial:
        dead = next(one for one in diagnose(trial) if one.kind == "dead")
    assert dead.first == 120
    assert "died during the training" in dead.text


def test_what_was_not_recorded_is_said_in_the_terms_of_the_user(tmp_path):
    scalars = diagnose({"loss": (np.arange(100), curves.falling(100))})
    assert "Only scalars were recorded" in " ".join(repr(scalars).split())
    assert scalars.to_json()["not_recorded"]
    assert "overfitting not judged" in repr(scalars)
    trial = saved(tmp_path, moving(np.random.default_rng(0)), curves.falling(STEPS))
    assert "dead units" in diagnose(trial).text(notes=True)


def test_nothing_wrong_needs_a_series_that_shows_learning(tmp_path):
    with Hook(tmp_path) as hook:
        for step in range(50):
            hook.save_tensor("fc.weight", np.random.default_rng(step).normal(size=(8, 8)), "weights")
            hook.step()
    assert "learning not judged" in diagnose(smdwidgets.create_trial(tmp_path)).summary


# ----------------------------------------------------------------------------------------------------------- reference


def noisy(seed, end=0.3, noise=0.05):
    at = np.arange(300)
    return {"loss": (at, curves.falling(300, noise, end=end, seed=seed))}


@pytest.mark.parametrize("others", [1, 3])
def test_healthy_runs_of_other_seeds_do_not_differ(others):
    good = [noisy(10 + seed) for seed in range(others)]
    assert sum(bool(diagnose(noisy(seed), against=good).findings) for seed in range(8)) == 0


@pytest.mark.parametrize("others", [1, 3])
def test_a_loss_at_another_level_differs_from_good_runs(others):
    good = [noisy(10 + seed) for seed in range(others)]
    [one] = diagnose(noisy(1, end=0.9), against=good).findings
    assert (one.kind, one.subject, one.source) == ("differs_from_reference", "loss", "reference")
    assert "instead of" in one.text
    assert 0 < one.first < 150


def test_settings_that_differ_are_named(tmp_path):
    for name, rate, scale in (("good", 0.1, 1), ("other", 0.5, 40)):
        log = [{"step": step, "loss": 1 + scale / (1 + step)} for step in range(1, 60)]
        (tmp_path / name).mkdir()
        content = {"log_history": log, "global_step": 59, "eval_steps": int(10 * rate)}
        (tmp_path / name / "trainer_state.json").write_text(json.dumps(content), encoding="utf-8")
    result = diagnose(tmp_path / "other" / "trainer_state.json", against=tmp_path / "good" / "trainer_state.json")
    [one] = result.findings
    assert one.kind == "differs_from_reference"
    assert one.title == "`eval_steps` differs from the reference"
    assert "(5 instead of 1 in `trainer_state.json`)" in one.text


def recorded(folder, seed, end=0.3, settings=None):
    with Hook(folder) as hook:
        for value in curves.falling(300, 0.05, end=end, seed=seed):
            hook.save_scalar("loss", float(value))
            hook.step()
    if settings is not None:
        (folder / "checks").mkdir()
        (folder / "checks" / "worker_0.jsonl").write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")
    return folder


@pytest.mark.slow
def test_settings_that_a_hook_recorded_come_before_what_follows_from_them(tmp_path):
    usual = {"AdamW.lr": 0.001, "AdamW.weight_decay": 0.01, "data.rows": 100, "seed": 1}
    good = [recorded(tmp_path / f"good{seed}", seed, settings={**usual, "seed": seed}) for seed in range(3)]
    assert not diagnose(recorded(tmp_path / "same", 5, settings=usual), against=good).findings
    decayed = recorded(tmp_path / "decayed", 6, 0.9, {**usual, "AdamW.weight_decay": 0.3})
    [one] = diagnose(decayed, against=good).findings
    assert one.title == "`AdamW.weight_decay` differs from the reference"
    assert "0.3 instead of 0.01 in 3 good runs" in one.text
    assert "Then differ from step" in one.text
    both = recorded(tmp_path / "both", 7, 0.9, {**usual, "AdamW.weight_decay": 0.3, "data.rows": 50})
    [one] = diagnose(both, against=good).findings
    assert one.title == "`AdamW.weight_decay` and `data.rows` differ from the reference"
    # Another setting without any consequence is no problem.
    result = diagnose(recorded(tmp_path / "harmless", 8, settings={**usual, "data.rows": 50}), against=good)
    assert not result.findings
    assert [one.text for one in result.notes] == [
        "`data.rows` differs from the reference (50 instead of 100 in 3 good runs). No quantity differs by more than the spread."
    ]
    # A run of an earlier version recorded none.
    assert not diagnose(recorded(tmp_path / "earlier", 9), against=good).findings
    with smdwidgets.create_trial(decayed) as trial:
        assert trial.hparams() == {**usual, "AdamW.weight_decay": 0.3}


@pytest.mark.parametrize("settings", ['{"a": [1], "b": null, "c": {"d": 1}, "e": 2}', "[1]", '"text"', "5"])
def test_settings_of_a_damaged_file_are_left_out(settings):
    records = CheckRecords.parse({"worker_0": f'{{"settings": {settings}}}\n'.encode()})
    assert records.settings == ({"e": 2} if settings.startswith("{") else {})
    assert len(records.problems) == (not settings.startswith("{"))


def quantities(seed, **changed):
    """Return the summary of a run with quantities of several groups."""
    draw = np.random.default_rng(seed)
    usual = {
        "rate": ("learning rate", 0.01 * np.ones(24), 0),
        "activation": ("activation", 1.0 * np.ones(24), 1),
        "norm": ("norm", 3.0 * np.ones(24), 6),
        "loss": ("loss", np.linspace(2, 1, 24), 4),
    }
    by_name = {}
    for name, (group, values, offset) in usual.items():
        noise = 0.0 if name == "rate" else 0.01
        values = changed.get(name, values) * (1 + noise * draw.normal(size=24))
        by_name[f"`{name}`"] = Quantity(group, 0, tuple(10.0 * np.arange(24) + offset), tuple(values.tolist()), noise)
    return Summary(f"run{seed}", by_name)


@pytest.mark.parametrize(
    ("changed", "title"),
    [
        ({}, None),
        # A warm-up that is missing: the rate differs in the first blocks only.
        ({"rate": np.r_[np.full(4, 0.05), np.full(20, 0.01)]}, "`rate` differs from the reference since step 0"),
        # Other initial weights, though an activation was saved at an earlier step.
        ({"norm": np.full(24, 9.0), "activation": np.full(24, 3.0)}, "`norm` differs from the reference since step 6"),
        ({"loss": np.linspace(2, 1.6, 24), "activation": np.r_[np.ones(20), np.full(4, 3.0)]}, "`loss` differs"),
        # One of many quantities, by chance.
        ({"activation": np.full(24, 1.6)}, None),
    ],
    ids=["the same", "no warm-up", "initial weights", "loss first", "chance"],
)
def test_what_differs_first_is_named(changed, title):
    good = [quantities(seed) for seed in range(3)]
    findings = list(differences(quantities(7, **changed), good))
    assert [one.title.startswith(title) for one in findings] == ([True] if title else [])


def test_a_summary_survives_a_file(tmp_path):
    path = tmp_path / "good.json"
    write_summaries(path, [summary_of(noisy(0), "a"), summary_of(noisy(1), "b")])
    assert is_baseline(path)
    assert [one.name for one in read_summaries(path)] == ["a", "b"]
    assert not diagnose(noisy(2), against=path).findings
    assert diagnose(noisy(2, end=1.0), against=path).findings
    assert path.stat().st_size < 10_000


def test_the_command_keeps_summaries_of_good_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(2):
        recorded(tmp_path / f"good{seed}", seed, settings={"SGD.lr": 0.1})
        assert main(["baseline", "add", f"main{seed}", str(tmp_path / f"good{seed}")]) == 0
    assert "baselines.json: 2 baselines" in capsys.readouterr().out
    assert main(["baseline", "list"]) == 0
    assert "main1" in capsys.readouterr().out
    # The summaries serve after the runs are gone.
    for seed in range(2):
        shutil.rmtree(tmp_path / f"good{seed}")
    recorded(tmp_path / "same", 5, settings={"SGD.lr": 0.1})
    recorded(tmp_path / "other", 6, 1.2, {"SGD.lr": 0.5})
    assert main(["diagnose", "same", "--against", "baselines.json"]) == 0
    assert main(["diagnose", "other", "--against", "baselines.json"]) == 1
    assert "`SGD.lr` differs from the reference" in capsys.readouterr().out
    assert main(["baseline", "remove", "main0"]) == 0
    assert [one.name for one in read_summaries(tmp_path / "baselines.json")] == ["main1"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["remove", "gone"], "baselines.json has no baseline 'gone'; it has main"),
        (["add", "b", "missing"], "missing"),
        (["list", "--file", "none.json"], "none.json"),
        (["list", "--file", "broken.json"], "broken.json is no file of baselines"),
        (["add", "b", "run", "--file", "broken.json"], "broken.json is no file of baselines"),
        (["add", "b", "run", "--file", "no/such/folder.json"], "cannot write the baselines"),
    ],
)
@pytest.mark.slow
def test_errors_of_baselines_are_said_in_words_and_change_nothing(tmp_path, capsys, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "run", 0)
    (tmp_path / "broken.json").write_text('{"a": {"quantities": 5}}', encoding="utf-8")
    assert main(["baseline", "add", "main", "run"]) == 0
    before = (tmp_path / "baselines.json").read_bytes()
    assert main(["baseline", *words]) == 2
    assert says in capsys.readouterr().err
    assert (tmp_path / "baselines.json").read_bytes() == before


def test_the_command_compares_with_good_runs(tmp_path, capsys):
    for name, seed, end in (("good", 0, 0.3), ("same", 1, 0.3), ("other", 2, 1.2)):
        with Hook(tmp_path / name) as hook:
            for value in curves.falling(300, 0.05, end=end, seed=seed):
                hook.save_scalar("loss", float(value))
                hook.step()
    against = ["--against", str(tmp_path / "good")]
    assert main(["diagnose", str(tmp_path / "same"), *against]) == 0
    assert main(["diagnose", str(tmp_path / "other"), *against]) == 1
    assert "differs from the reference" in capsys.readouterr().out
    assert main(["diagnose", str(tmp_path / "other"), "--follow", *against]) == 2


# ------------------------------------------------------------------------------------- evidence that separates rivals


@pytest.mark.parametrize(("others", "counts"), [(1.0, True), (30.0, False)], ids=["alike", "of any size"])
def test_a_batch_far_outside_is_named_though_nothing_follows(tmp_path, others, counts):
    rng = np.random.default_rng(0)

    def make(step):
        scale = 5000.0 if step == 120 else others ** rng.normal()
        return {"input": (scale * rng.normal(size=(8, 6)), "inputs")}

    run = saved(tmp_path / "run", make, np.exp(-np.arange(STEPS) / 40) + rng.normal(0, 0.01, STEPS))
    found = [(one.kind, one.confidence, one.first) for one in diagnose(run)]
    assert found == ([("bad_batch", "medium", 120)] if counts else [])


def test_an_output_that_is_one_number_explains_a_loss_at_guessing():
    joined = explained([finding("labels_unrelated"), finding("constant_output", "proof", 60)], 0, 100)
    assert [one.kind for one in joined.causes] == ["constant_output"]


@pytest.mark.parametrize(
    ("is_sum", "is_lost", "expected"),
    [(False, False, ["exploding"]), (True, False, []), (True, True, ["sum_reduction"])],
)
@pytest.mark.slow
def test_gradients_of_a_sum_explode_only_if_they_are_lost(tmp_path, is_sum, is_lost, expected):
    rng = np.random.default_rng(0)
    weights = moving(rng)

    def make(step):
        gradient = 300 * rng.normal(size=(16, 16)) if not is_lost or step < STEPS // 2 else np.full((16, 16), np.nan)
        return weights(step) | {"gradient/fc.weight": (gradient, "gradients")}

    with saved(tmp_path, make, curves.falling(STEPS)):
        pass
    if is_sum:
        record = CheckRecord("sum_reduction", "note", 0, STEPS, STEPS, ("loss",), {"count": STEPS}, "A sum", "Look.")
        CheckFile(tmp_path, "worker_0").append(record.to_line())
    # The sum is a note, and the cause where gradients are lost.
    assert [one.kind for one in diagnose(tmp_path).findings] == expected


@pytest.mark.parametrize(("kind", "is_explained"), [("not_learning", True), ("one_class", False)])
def test_a_cause_within_the_first_half_explains_a_loss_that_never_falls(kind, is_explained):
    joined = explained([finding("rate_too_high", first=40), finding("spike", first=40), finding(kind)], 0, 100)
    assert (kind in {one.kind for one in joined.explained}) is is_explained


@pytest.mark.parametrize(("first", "confidence"), [(1e-5, "high"), (0.4, "medium")])
def test_gradients_that_vanish_later_are_less_sure(tmp_path, first, confidence):
    rng = np.random.default_rng(3)
    weights = {f"{layer}.weight": rng.normal(size=(16, 16)) for layer in "abcd"}

    def make(step):
        found = {}
        for order, name in enumerate(weights):
            ratio = (first if step < 3 else 1e-5) ** (1 - order / 3)
            weights[name] = weights[name] + rng.normal(0, 1e-3, (16, 16))
            found[name] = (weights[name], "weights")
            found[f"gradient/{name}"] = (ratio * rng.normal(size=(16, 16)), "gradients")
        return found

    run = saved(tmp_path / "run", make, 1 + rng.normal(0, 0.01, STEPS))
    found = next(one for one in diagnose(run) if one.kind == "vanishing")
    assert found.confidence == confidence


def test_a_policy_loss_that_ends_within_its_first_values_has_not_diverged(tmp_path):
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.choice([-4.0, 4.0], 40), np.abs(rng.normal(0.1, 0.03, 160))])
    values[:3] = -3.8, 4.6, -3.9
    with Hook(tmp_path / "run") as hook:
        for value in values:
            hook.save_scalar("loss", float(value))
            hook.step()
    assert "diverged" not in {one.kind for one in diagnose(tmp_path / "run")}


def test_a_loss_that_varied_more_at_its_best_has_not_diverged(tmp_path):
    rng = np.random.default_rng(1)
    values = 0.01 + 0.002 * rng.normal(size=200)
    values[:16] = np.tile([-3.8, 4.6, -0.1, -0.7, -1.2, -3.9, 5.6, -1.0], 2)
    with Hook(tmp_path / "run") as hook:
        for value in values:
            hook.save_scalar("loss", float(value))
            hook.step()
    assert "diverged" not in {one.kind for one in diagnose(tmp_path / "run")}
