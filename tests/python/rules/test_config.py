"""Rules from JSON, base configurations and parameters."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest

from python.rules.memory_trial import MemoryTrial
from servers import CREDENTIALS, moto_server
from smdwidgets.exceptions import InsufficientInformationForRuleInvocation, RunNotFound, SMDebugError, SMDebugValueError
from smdwidgets.numpy import Hook
from smdwidgets.rules import (
    BUILTIN,
    RuleParameterError,
    RuleRunner,
    UnknownRule,
    VanishingGradient,
    rule_configs,
    rules_from_json,
)
from smdwidgets.rules.parameters import Choice, Flag, Integer, Numbers, OptionalReal, Patterns, Real, Words


def vanishing(**more: Any) -> dict[str, Any]:
    return {"RuleConfigurationName": "vg", "RuleParameters": {"rule_to_invoke": "VanishingGradient", **more}}


def gradients() -> MemoryTrial:
    trial = MemoryTrial(gradients=["g"])
    trial.put(0, "g", np.full(3, 1e-6))
    return trial


# -------------------------------------------------------------------------------------------------------------- JSON


def test_rules_from_a_training_request() -> None:
    request = {
        "DebugRuleConfigurations": [
            vanishing(threshold="20.0"),
            {
                "RuleConfigurationName": "zeros",
                "RuleParameters": {"rule_to_invoke": "AllZero", "tensor_regex": "a,b(c,d)"},
            },
        ]
    }
    for given in (request, json.dumps(request), request["DebugRuleConfigurations"]):
        rules = rules_from_json(given, gradients())
        assert list(rules) == ["vg", "zeros"]
        assert isinstance(rules["vg"], VanishingGradient)
        assert rules["vg"].threshold == 20.0
        assert rules["zeros"].formatted()["tensor_regex"] == "a,b(c,d)"  # type: ignore[attr-defined]
    runner = RuleRunner.from_json(gradients(), request).start()
    assert runner.wait(30)
    assert runner.status["vg"] == "IssuesFound"


def test_rules_from_a_json_file(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(vanishing()))
    assert list(rules_from_json(tmp_path / "rules.json", gradients())) == ["vg"]
    assert list(rules_from_json(str(tmp_path / "rules.json"), gradients())) == ["vg"]


@pytest.mark.parametrize("name", BUILTIN)
def test_every_base_configuration_names_its_rule(name: str) -> None:
    made = [function() for key, function in vars(rule_configs).items() if callable(function) and key.islower() and key[0] != "_"
            and key not in ("get_collection", "configuration", "did_you_mean", "shown")]  # fmt: skip
    mine = [each for each in made if each["DebugRuleConfiguration"]["RuleConfigurationName"] == name]
    assert len(mine) == 1
    assert mine[0]["DebugRuleConfiguration"]["RuleParameters"] == {"rule_to_invoke": name}
    try:
        rule = rules_from_json(mine[0], gradients())[name]
    except (InsufficientInformationForRuleInvocation, RuleParameterError):
        return  # requires parameters
    assert type(rule) is BUILTIN[name]


def test_collections_of_configurations() -> None:
    assert rule_configs.get_collection("relu_output")["CollectionParameters"]["include_regex"] == ".*relu_output"
    assert rule_configs.create_xgboost_report()["CollectionConfigurations"][2] == {
        "CollectionName": "hyperparameters",
        "CollectionParameters": {"save_steps": "0"},
    }
    assert "CollectionConfigurations" not in rule_configs.exploding_tensor()
    with pytest.raises(SMDebugValueError, match="relu_output"):
        rule_configs.get_collection("relu_outputs")


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ("{", SMDebugValueError, "as JSON"),
        ("[" * 100_000, SMDebugValueError, "as JSON"),
        (7, SMDebugValueError, "DebugRuleConfigurations"),
        ({}, SMDebugValueError, "DebugRuleConfigurations"),
        ("no/such/file.json", SMDebugValueError, "cannot read rule configuration"),
        (vanishing(threshold=[1]), SMDebugValueError, "must be a string or number"),
        ({"RuleParameters": {"rule": "AllZero"}}, SMDebugValueError, "rule_to_invoke"),
        (
            {"RuleConfigurationName": "a" * 257, "RuleParameters": {"rule_to_invoke": "AllZero"}},
            SMDebugValueError,
            "256",
        ),
        ([vanishing(), vanishing()], SMDebugValueError, "duplicate RuleConfigurationName 'vg'"),
        (vanishing(treshold="1"), RuleParameterError, "'threshold'"),
        ({"RuleParameters": {"rule_to_invoke": "VanishGradient"}}, UnknownRule, "'VanishingGradient'"),
        ({"RuleParameters": {"rule_to_invoke": "AllZero"}}, InsufficientInformationForRuleInvocation, "tensor_regex"),
        (
            {"RuleParameters": {"rule_to_invoke": "SimilarAcrossRuns", "other_trial_0": "/not/there"}},
            RunNotFound,
            "/not/there",
        ),
        (vanishing(action_json="{"), SMDebugValueError, "as JSON"),
        (vanishing(action_json='{"name":"reboot"}'), SMDebugValueError, "reboot"),
        (vanishing(source_s3_uri="rules.py"), SMDebugValueError, "allow_custom=True"),
    ],
)
def test_invalid_configurations(config: Any, error: type[SMDebugError], message: str) -> None:
    with pytest.raises(error) as raised:
        rules_from_json(config, gradients())
    assert message in str(raised.value)


def test_custom_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(
        "from smdwidgets.rules import Rule\n"
        "class Mine(Rule):\n"
        "    def __init__(self, base_trial, limit='1'):\n"
        "        super().__init__(base_trial, other_trials=None)\n"
        "        self.limit = float(limit)\n"
        "    def invoke_at_step(self, step):\n"
        "        return step >= self.limit\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    config = {"RuleParameters": {"rule_to_invoke": "Mine", "source_s3_uri": str(tmp_path / "rules.py"), "limit": "0"}}
    with pytest.raises(SMDebugValueError, match="executes code"):
        rules_from_json(config, gradients())
    rule = rules_from_json(config, gradients(), allow_custom=True)["Mine"]
    assert rule.evaluate(0)
    config["RuleParameters"]["rule_to_invoke"] = "Mien"
    with pytest.raises(UnknownRule, match="Did you mean 'Mine'"):
        rules_from_json(config, gradients(), allow_custom=True)
    config["RuleParameters"]["source_s3_uri"] = str(tmp_path / "broken.py")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        rules_from_json(config, gradients(), allow_custom=True)
    config["RuleParameters"]["source_s3_uri"] = str(tmp_path / "absent.py")
    with pytest.raises(SMDebugValueError, match="does not exist"):
        rules_from_json(config, gradients(), allow_custom=True)
    assert not [name for name in sys.modules if "broken" in name]


def test_other_trials_by_number(tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        with Hook(tmp_path / name) as hook:
            hook.save_tensor("g", np.full(3, value), "gradients")
            hook.step()
    parameters = {
        "rule_to_invoke": "SimilarAcrossRuns",
        "other_trial_1": str(tmp_path / "c"),
        "other_trial_0": str(tmp_path / "b"),
    }
    trial = gradients()
    rule = rules_from_json({"RuleParameters": parameters}, trial)["SimilarAcrossRuns"]
    assert [other.name for other in rule.other_trials or ()] == ["b", "c"]
    parameters = {"rule_to_invoke": "SimilarAcrossRuns", "other_trials": f"{tmp_path / 'b'}, {tmp_path / 'c'}"}
    rule = rules_from_json({"RuleParameters": parameters}, trial)["SimilarAcrossRuns"]
    assert [other.name for other in rule.other_trials or ()] == ["b", "c"]


# -------------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        (Real(0.0, ""), "1e-05", 1e-5),
        (Real(0.0, "", unit="%"), " 50% ", 50.0),
        (Real(0.0, "", minimum=0.0, maximum=1.0), "1%", 0.01),
        (Real(0.0, "", minimum=0.0, maximum=1.0), "100 %", 1.0),
        (Real(0.0, ""), "inf", float("inf")),
        (OptionalReal(1.0, ""), "None", None),
        (Integer(0, ""), "10.0", 10),
        (Integer(0, ""), 10, 10),
        (Flag(False, ""), "TRUE", True),
        (Flag(True, ""), "0", False),
        (Flag(True, ""), 1, True),
        (Words((), ""), "loss, losses", ("loss", "losses")),
        (Words((), ""), ["a", " b "], ("a", "b")),
        (Words((), ""), None, ()),
        (Patterns((), ""), r"a{1,2},[,],b\,c", ("a{1,2}", "[,]", r"b\,c")),
        (Numbers((), ""), "3, 0", (3.0, 0.0)),
        (Numbers((), ""), 4, (4.0,)),
        (Choice(None, "", choices=("EVAL",)), "eval", "EVAL"),
        (Choice("EVAL", "", choices=("EVAL",)), "", None),
    ],
)
def test_string_values_are_parsed(parameter: Any, text: Any, value: Any) -> None:
    assert parameter.parse(text) == value


def test_schemas_are_plain_json() -> None:
    class Holder:
        limit = OptionalReal(None, "A limit.", minimum=0.0)
        kinds = Words(("a", "b"), "Kinds.")
        mode = Choice(None, "A mode.", choices=("TRAIN", "EVAL"))

    holder = Holder()
    holder.limit = "inf"
    holder.mode = "eval"
    states = {name: vars(Holder)[name].state(holder) for name in ("limit", "kinds", "mode")}
    assert json.loads(json.dumps(states, allow_nan=False)) == states
    assert {name: (state["value"], state["default"]) for name, state in states.items()} == {
        "limit": ("inf", None),
        "kinds": (["a", "b"], ["a", "b"]),
        "mode": ("EVAL", None),
    }
    assert (states["limit"]["minimum"], states["limit"]["optional"]) == (0.0, True)
    assert states["mode"]["choices"] == ["TRAIN", "EVAL"]
    vars(holder)["limit"] = [object]
    assert isinstance(vars(Holder)["limit"].state(holder)["value"], str)


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        (Real(0.0, ""), "nan"),
        (Real(0.0, ""), "1,5"),
        (Real(0.0, ""), "50%"),
        (Real(0.0, "", minimum=0.0), "50%"),
        (Real(0.0, "", minimum=0.0, maximum=1.0), "101%"),
        (Real(0.0, "", unit="%"), "50%%"),
        (Integer(0, ""), "50%"),
        (Real(0.0, ""), True),
        (Real(0.0, ""), None),
        (Real(0.0, "", minimum=0.0), -1),
        (Real(0.0, "", maximum=1.0), "1.1"),
        (Integer(0, ""), "1.5"),
        (Integer(0, ""), "inf"),
        (Flag(False, ""), "perhaps"),
        (Flag(False, ""), 2),
        (Words((), ""), 3),
        (Words((), ""), [1]),
        (Patterns((), ""), "(unclosed"),
        (Patterns((), ""), ["["]),
        (Numbers((), ""), "1,two"),
        (Numbers((), ""), ""),
        (Choice(None, "", choices=("EVAL",)), "EVALUATE"),
    ],
)
def test_invalid_values_raise(parameter: Any, given: Any) -> None:
    parameter.name = "it"
    with pytest.raises(RuleParameterError, match=r"^it="):
        parameter.parse(given)


def test_rule_files_on_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    code = b"from smdwidgets.rules import Rule\nclass FromS3(Rule):\n    def invoke_at_step(self, step):\n        return True\n"
    with moto_server() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with closing(boto3.client("s3")) as client:
            client.create_bucket(Bucket="rules")
            client.put_object(Bucket="rules", Key="mine/../rules.py", Body=b"1 / 0")
            client.put_object(Bucket="rules", Key="mine/rules.py", Body=code)
            client.put_object(Bucket="rules", Key="mine/notes.txt", Body=b"1 / 0")
        for prefix in ("mine/", "mi", "mine/rules.py"):
            parameters = {"RuleParameters": {"rule_to_invoke": "FromS3", "source_s3_uri": f"s3://rules/{prefix}"}}
            assert rules_from_json(parameters, gradients(), allow_custom=True)["FromS3"].evaluate(0)
        parameters["RuleParameters"]["source_s3_uri"] = "s3://rules/none/"
        with pytest.raises(SMDebugValueError, match="no Python file"):
            rules_from_json(parameters, gradients(), allow_custom=True)
