"""Test the statistics of tensors that the diagnosis reads.

They are right, from values or reductions, in one call or in many.
"""

import itertools

import numpy as np
import pytest

import smdwidgets
from diagnosis.trainings import Setup, hooks, train
from smdwidgets.config import ReductionConfig
from smdwidgets.diagnosis.tensor_columns import TensorReader, read_tensors
from smdwidgets.modes import ModeKeys
from smdwidgets.numpy import Hook


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    train(directory, Setup(steps=200, widths=(32, 32)), 0)
    return smdwidgets.create_trial(directory)


def column(tensors, name, worker="worker_0"):
    return next(one for one in tensors if (one.name, one.worker) == (name, worker))


def test_roles_and_forward_order(trained):
    found = [(one.name, one.role, one.layer) for one in read_tensors(trained)]
    assert [one for one in found if one[1] in ("input", "weight", "activation", "output")] == [
        ("input", "input", "input"),
        ("fc1.weight", "weight", "fc1"),
        ("fc1.relu_output", "activation", "fc1.relu_output"),
        ("fc2.weight", "weight", "fc2"),
        ("fc2.relu_output", "activation", "fc2.relu_output"),
        ("fc3.weight", "weight", "fc3"),
        ("output", "output", "output"),
    ]
    gradients = {name: layer for name, role, layer in found if role == "gradient"}
    assert gradients["gradient/fc2.weight"] == "fc2"
    assert not any("loss" in name or "rate" in name for name, *_ in found)


def test_updates_and_cosines_are_close_to_those_of_the_values(trained):
    tensors = read_tensors(trained)
    weight, gradient = trained.tensor("fc2.weight"), trained.tensor("gradient/fc2.weight")
    steps = weight.steps()
    values = np.array([weight.value(step) for step in steps]).reshape(len(steps), -1).astype(float)
    slopes = np.array([gradient.value(step) for step in steps]).reshape(len(steps), -1).astype(float)
    change = np.diff(values, axis=0)
    found = column(tensors, "fc2.weight")
    assert found["update"][1:] == pytest.approx(np.linalg.norm(change, axis=1), rel=1e-6)
    cosine = (change * slopes[:-1]).sum(1) / np.linalg.norm(change, axis=1) / np.linalg.norm(slopes[:-1], axis=1)
    assert found["along"][1:] == pytest.approx(cosine, abs=0.5)
    assert np.median(np.abs(found["along"][1:] - cosine)) < 0.15
    assert np.isnan(found["update"][0])


@pytest.mark.parametrize("ends", [(None,), (7, 20, None)])
def test_an_evaluation_after_each_update_hides_no_update(tmp_path, ends):
    rng = np.random.default_rng(0)
    weight, steps = rng.normal(size=(8, 8)).astype(np.float32), []
    with Hook(tmp_path) as hook:
        for _ in range(20):
            hook.set_mode(ModeKeys.TRAIN)
            hook.save_tensor("fc.weight", weight, "weights")
            hook.step()
            steps.append(rng.normal(size=(8, 8)).astype(np.float32) * 0.01)
            weight = weight + steps[-1]
            hook.set_mode(ModeKeys.EVAL)
            hook.save_tensor("fc.weight", weight, "weights")
            hook.step()
    reader = None
    for end in ends:
        trial = smdwidgets.create_trial(tmp_path, range_steps=(None, end))
        reader = reader or TensorReader(trial)
        reader._trial = trial
        tensors = reader.update()
    found = next(one for one in tensors if one.mode == "TRAIN")
    assert found["update"][1:] == pytest.approx([np.linalg.norm(one) for one in steps[:-1]], rel=1e-3)


def test_statistics_equal_those_of_the_trial(trained):
    found = column(read_tensors(trained), "fc1.weight")
    value = trained.tensor("fc1.weight").value(100)
    at = found.steps.tolist().index(100)
    assert found["l2"][at] == pytest.approx(np.linalg.norm(value))
    assert found["std"][at] == pytest.approx(value.std())
    assert found["count"][at] == value.size


def test_a_weight_that_does_not_change_has_updates_of_exactly_0(tmp_path):
    train(tmp_path, Setup(steps=100, widths=(32, 32), frozen=1), 0)
    found = column(read_tensors(smdwidgets.create_trial(tmp_path)), "fc2.weight")
    assert (found["update"][1:] == 0).all()


def test_many_updates_equal_one(trained, tmp_path):
    train(tmp_path, Setup(steps=200, widths=(32, 32)), 0)
    reader = None
    for end in (31, 32, 111, None):
        trial = smdwidgets.create_trial(tmp_path, range_steps=(None, end))
        if reader is None:
            reader = TensorReader(trial)
        reader._trial = trial
        parts = reader.update()
    for one in read_tensors(trained):
        other = column(parts, one.name)
        assert other.steps.tolist() == one.steps.tolist()
        for name, values in one.columns.items():
            np.testing.assert_array_equal(other[name], values, err_msg=f"{one.name} {name}")


def test_reductions_alone_give_what_they_can(tmp_path):
    rng = np.random.default_rng(0)
    with Hook(tmp_path, reduction_config=ReductionConfig(norms=["l2"], reductions=["mean", "std"])) as hook:
        for _ in range(5):
            hook.save_tensor("fc.weight", rng.normal(size=(8, 8)), "weights")
            hook.step()
    reader = TensorReader(smdwidgets.create_trial(tmp_path))
    found = column(reader.update(), "fc.weight")
    assert np.isfinite(found["l2"]).all()
    assert np.isnan(found["count"]).all()
    assert "update" not in found
    assert reader.missing == {"fc.weight": "only reductions were saved"}


def test_tensors_are_judged_by_written_statistics_alone(tmp_path):
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=(8, 8)).astype(np.float32) for name in ("fc1", "fc2")}
    with Hook(tmp_path, plan={"every": 0}) as hook:
        for step in range(100):
            for name, weight in weights.items():
                hook.save_tensor(f"{name}.weight", weight, "weights")
                gradient = rng.normal(size=(8, 8)).astype(np.float32)
                hook.save_tensor(f"gradient/{name}.weight", gradient, "gradients")
            hook.save_tensor("loss", np.float32(2 / (1 + step)), "losses")
            hook.step()
            weights["fc1"] = weights["fc1"] - np.float32(0.001) * rng.normal(size=(8, 8)).astype(np.float32)
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names(collection="weights") == []
    found = column(read_tensors(trial), "fc1.weight")
    assert found.steps.tolist() == list(range(100))
    diagnosis = smdwidgets.diagnose(trial)
    assert [(one.kind, one.names) for one in diagnosis] == [("frozen", ("fc2.weight",))]


def test_live_statistics_are_read_once(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    hook = Hook(tmp_path)
    reader, asked, expected, read_until = None, [], [], []
    for end in (20, 30, 40):
        for _ in range(end - len(expected)):
            expected.append(rng.normal(size=(8, 8)).astype(np.float32))
            hook.save_tensor("fc.weight", expected[-1], "weights")
            hook.step()
        hook.flush()
        trial = smdwidgets.create_trial(tmp_path)
        if reader is None:
            reader = TensorReader(trial)
        reader._trial = trial
        statistics = trial.statistics
        monkeypatch.setattr(
            trial,
            "statistics",
            lambda names, steps, *more, statistics=statistics, **named: (
                asked.append(steps) or statistics(names, steps, *more, **named)
            ),
        )
        found = column(reader.update(), "fc.weight")
        last = trial.steps()[-1]
        read_until.append(last)
        change = np.linalg.norm(np.diff(np.array(expected[: last + 1]), axis=0).reshape(last, -1), axis=1)
        np.testing.assert_allclose(found["update"][1:], change, rtol=1e-6)
    hook.close()
    assert asked == [None, *(range(begin + 1, end + 1) for begin, end in itertools.pairwise(read_until))]


def test_distance_of_workers(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(8, 8)).astype(np.float32)
    with hooks(tmp_path, 2, 1) as opened:
        for step in range(4):
            for rank, hook in enumerate(opened):
                hook.save_tensor("fc.weight", weight * (1 + rank * (step == 3)), "weights")
                hook.step()
    found = column(read_tensors(smdwidgets.create_trial(tmp_path)), "fc.weight", "worker_1")
    assert found["apart"].tolist() == pytest.approx([0, 0, 0, 1])


def test_dead_units_need_enough_samples(tmp_path):
    rng = np.random.default_rng(0)
    with Hook(tmp_path) as hook:
        for _ in range(12):
            value = np.maximum(rng.normal(size=(32, 10)), 0)
            value[:, :4] = 0
            hook.save_tensor("relu_output", value, "activations")
            hook.step()
    dead = column(read_tensors(smdwidgets.create_trial(tmp_path)), "relu_output")["dead"]
    assert np.isnan(dead[:7]).all()
    assert dead[7:] == pytest.approx([0.4] * 5)


@pytest.mark.parametrize("kind", ["empty", "text", "scalars", "integers", "changing shape", "not finite"])
def test_unusual_tensors_raise_nothing(tmp_path, kind):
    made = {
        "empty": lambda step: np.zeros((0, 3), np.float32),
        "text": lambda step: np.array(["a", "b"]),
        "scalars": lambda step: np.float32(step),
        "integers": lambda step: np.arange(6).reshape(2, 3),
        "changing shape": lambda step: np.ones((step + 2, step + 3), np.float32),
        "not finite": lambda step: np.full((4, 4), np.nan, np.float32),
    }[kind]
    with Hook(tmp_path) as hook:
        for step in range(5):
            for name in ("fc.weight", "gradient/fc.weight", "relu_output", "output", "input"):
                hook.save_tensor(name, made(step))
            hook.step()
    tensors = read_tensors(smdwidgets.create_trial(tmp_path))
    assert all(len(one.steps) == 5 for one in tensors)
