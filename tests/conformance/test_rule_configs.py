"""Base configurations and actions equal those of smdebug-rulesconfig 1.0.1."""

from __future__ import annotations

import json
from pathlib import Path

from conformance.conftest import output
from smdwidgets.rules import BUILTIN, SMS, ActionList, Email, StopTraining, rule_configs

_THEIRS = """
import json
import smdebug_rulesconfig as theirs
from smdebug_rulesconfig import ActionList, Email, SMS, StopTraining, get_collection

actions = ActionList(StopTraining("job-1"), Email("abc@abc.com"), SMS("+1234567890"))
print(json.dumps({
    "rules": {name: getattr(theirs, name)() for name in %s if hasattr(theirs, name)},
    "collections": {name: get_collection(name) for name in %s},
    "actions": actions.serialize(),
}))
"""
COLLECTIONS = ["weights", "gradients", "losses", "input_image", "relu_output", "relu_input", "input_sequence"]


def test_parts_of_a_training_request(smdebug_python: Path) -> None:
    names = [
        name
        for name, made in vars(rule_configs).items()
        if (made.__doc__ or "").startswith("Return the base configuration of ")
    ]
    names.remove("configuration")
    theirs = json.loads(output(smdebug_python, "-c", _THEIRS % (names, COLLECTIONS)))
    assert len(theirs["rules"]) == sum(rule.sagemaker for rule in BUILTIN.values())
    for name, configuration in theirs["rules"].items():
        assert getattr(rule_configs, name)() == configuration, name
    for name, collection in theirs["collections"].items():
        ours = rule_configs.get_collection(name)
        # Configurations of ReLU lack the nesting that all others have and that a request needs.
        assert collection in (ours, ours["CollectionParameters"]), name
    ours = ActionList(StopTraining("job-1"), Email("abc@abc.com"), SMS("+1234567890"))
    # A list of objects with escaped quotes; the order of keys and spaces are irrelevant.
    assert _decoded(ours.serialize()) == _decoded(theirs["actions"])


def _decoded(wire: str) -> object:
    assert '"' not in wire.replace('\\"', "")
    return json.loads(wire.replace('\\"', '"'))
