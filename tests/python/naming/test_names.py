"""The table of real names, on which hook, survey, rules, diagnosis and logs agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
import smdwidgets.numpy as smd
from python.logs.logs import log
from python.logs.logs import scalars as tags
from smdwidgets.naming import scalars, tensors
from smdwidgets.naming.scalars import Role, by_role, describe, describe_all, is_loss, pairs
from smdwidgets.rules.selector import Selector
from smdwidgets.run_table.table import best_of
from smdwidgets.survey import Survey

TABLE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "names.json").read_text("utf-8"))
SERIES = TABLE["series"]
#: Each name once, as it is judged without other series.
ALONE = {case["name"]: case for case in SERIES if "run" not in case and not case["name"].startswith("scalar/")}
LOSSES = {name for name, case in ALONE.items() if case["kind"] == "loss"}


def by_writer(cases: list[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        groups.setdefault(case[key], []).append(case)
    return groups


TRAINERS = by_writer(SERIES, "trainer")
WRITERS = by_writer(TABLE["tensors"], "writer")


def test_the_table_has_names_of_many_trainers():
    assert len(SERIES) >= 400
    assert len(TRAINERS) >= 20
    assert {case["kind"] for case in SERIES} == {kind.value for kind in scalars.Kind}
    assert {case["kind"] for case in TABLE["tensors"]} == {kind.value for kind in tensors.Kind}


def test_names_of_layers_say_the_same_as_if_each_was_interpreted_alone():
    """Names that differ in the numbers of layers are interpreted once."""
    for plain in ALONE:
        for name in (f"a.0.b/2/{plain}", f"{plain}/12/12/q_12", plain.replace("/", ".3.", 1), f"val/1/{plain}"):
            assert describe(name) == scalars._describe(name)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_series(trainer):
    for case in TRAINERS[trainer]:
        run = [case["name"], *([case["run"]] if "run" in case else [])]
        series = describe_all(run)[case["name"]]
        described = {
            "kind": series.kind.value,
            "role": series.role.value,
            "better": series.better,
            "stem": " ".join(series.stem),
        }
        assert case == case | described


@pytest.mark.parametrize("writer", WRITERS)
def test_tensors(writer):
    for case in WRITERS[writer]:
        collections = [case["collection"]] if case["collection"] else []
        tensor = tensors.describe(case["name"], collections)
        kinds = tensors.Kinds(lambda collection, _, known=collections: collection in known)
        assert (tensor.kind.value, tensor.layer) == (case["kind"], case["layer"]), case
        assert kinds[case["name"]] is tensor.kind
        assert tensors._letters([case["name"]], {name: [0] for name in collections}) == [case["row"]]


def test_first_tensor():
    for case in TABLE["first"]:
        assert tensors.first_tensor(case["names"], case["collections"]) == case["tensor"]


# ------------------------------------------------------------------------------------------------- the modules agree


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with every name as a scalar and as a metric."""
    root = tmp_path_factory.mktemp("names") / "run"
    with smd.Hook(root, include_collections=["metrics"]) as hook:
        for name in ALONE:
            hook.save_scalar(name, 1.0)
            hook.save_tensor(f"metric/{name}", np.float32(1), "metrics")
        hook.step()
    with smdwidgets.create_trial(root) as trial:
        yield trial


def test_hook_agrees(run):
    assert set(run.tensor_names(collection="losses")) == {f"scalar/{name}" for name in LOSSES}


def test_rules_agree(run):
    names = Selector((), losses_of=("metrics",)).names(run)
    assert names == {f"metric/{name}" for name in LOSSES}


def test_survey_agrees(run):
    survey = Survey(run)
    survey.update()
    names = survey._losses()
    assert {name for name in names if name.startswith("metric/")} == {f"metric/{name}" for name in LOSSES}


def test_rules_and_diagnosis_agree_on_pairs():
    for name, case in ALONE.items():
        training, held_out = by_role({name: 1.0})
        assert bool(training) == (case["role"] == "training"), name
        assert bool(held_out) == (case["role"] in ("validation", "test")), name


@pytest.mark.parametrize("trainer", TRAINERS)
def test_diagnosis_agrees(trainer):
    steps = np.arange(12)
    values = np.linspace(2, 1, 12)
    for case in TRAINERS[trainer]:
        run = {name: (steps, values) for name in (case["name"], case.get("run")) if name}
        result = smdwidgets.diagnose(run)
        judged = {one.name: one for one in result.judged}
        is_judged_loss = case["name"] in judged and judged[case["name"]].kind == "loss"
        assert is_judged_loss == (case["kind"] == "loss" and case["better"] == "lower"), case
        if case["kind"] == "loss" and not case["better"]:
            assert [one.reason for one in result.unjudged if one.name == case["name"]] == ["loss that need not fall"]
        if case["name"] in judged and case["role"] != "none":
            assert judged[case["name"]].role == case["role"]


def test_table_of_runs_agrees():
    for name, case in ALONE.items():
        assert best_of(name) == ("max" if case["better"] == "higher" else "min")


def test_logs_agree(tmp_path):
    log(tmp_path, tags({name: [1.0, 0.5] for name in ALONE}))
    with smdwidgets.create_trial(tmp_path) as trial:
        written = set(trial.tensor_names())
        assert len(written) > 500
        assert set(trial.tensor_names(collection="losses")) == written & LOSSES


# --------------------------------------------------------------------------------------------------- single functions


def test_partners_of_transformers():
    names = ["loss", "eval_loss", "eval_accuracy", "train_loss", "train_runtime", "learning_rate"]
    assert pairs(names) == {"eval_loss": "loss"}
    assert describe_all(names)["train_loss"].role is Role.SUMMARY


@pytest.mark.parametrize("prefix", ["val", "valid", "validation", "eval", "evaluation", "dev", "holdout", "test"])
@pytest.mark.parametrize(
    "form", ["{}_loss", "{}/loss", "{}-loss", "{}.loss", "loss/{}", "loss_{}", "{}Loss", "scalar/{}_loss"]
)
def test_held_out_data_are_recognized_everywhere(prefix, form):
    name = form.format(prefix)
    assert describe(name).role.is_held_out
    assert describe(name).stem == ("loss",)
    assert by_role({"loss": 2.0, name: 1.0}) == ({"loss": 2.0}, {"loss": 1.0})
    assert pairs(["loss", name]) == {name: "loss"}


@pytest.mark.parametrize(
    "word", ["scale", "weight", "coef", "count", "time", "tokens", "lambda", "ratio", "fn", "threshold", "std"]
)
@pytest.mark.parametrize("form", ["loss_{}", "train/loss_{}", "loss/{}", "mlmLoss_{}_ema"])
def test_a_word_after_that_of_a_loss_says_what_is_measured(word, form):
    assert not is_loss(form.format(word))


def test_rewards_and_adversaries_change_what_losses_mean():
    assert describe_all(["loss", "reward"])["loss"].better == ""
    assert describe_all(["d_loss", "g_loss"])["d_loss"].better == ""
    assert describe_all(["loss", "rewards/chosen", "rewards/rejected"])["loss"].better == "lower"
