"""What commands print with `--json` has the form that `smdwidgets schema` prints."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from smdwidgets import cli
from smdwidgets.cli._schemas import SCHEMAS, schema_of
from smdwidgets.cli.replay import _facts, _result
from smdwidgets.coordinate_check import CoordinateCheck
from smdwidgets.coordinate_check.result import judged
from smdwidgets.modes import ModeKeys
from smdwidgets.numpy import Hook
from smdwidgets.replay.explanation import Explanation
from smdwidgets.replay.operators import Executed, Operator, first_operator
from smdwidgets.replay.places import Place
from smdwidgets.replay.protocol import StepResult
from smdwidgets.trials import create_trial

#: One line for each field of each schema. Lines are added to it; none is changed or removed before version 1.0.
KNOWN = Path(__file__).with_name("json_fields.txt")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of a hook, a table, an empty run and a damaged copy."""
    root = tmp_path_factory.mktemp("runs")
    for name, factor in (("a", 1.0), ("b", 2.0)):
        with Hook(root / name) as hook:
            for step in range(30):
                hook.set_mode(ModeKeys.TRAIN)
                weights = np.arange(24, dtype=np.float32).reshape(4, 6) * step * factor
                hook.save_tensor("w", weights if step < 20 else weights * np.nan, "weights")
                hook.save_scalar("loss", 1.0 / (step + 1) if step < 20 else float("nan"))
                hook.step()
    (root / "c").mkdir()
    (root / "c" / "metrics.csv").write_text(
        "step,train_loss,val_loss\n" + "".join(f"{n},{1 / n},{0.3 + abs(n - 6) / 20}\n" for n in range(1, 30))
    )
    with Hook(root / "damaged") as hook:
        for _ in range(3):
            hook.save_tensor("w", np.ones(9, np.float32), "weights")
            hook.step()
    [victim] = (root / "damaged" / "events").rglob("000000000001_worker_0.tfevents")
    victim.write_bytes(victim.read_bytes()[:-3])
    return root


#: Arguments of each command, below the directory of the runs; `{tmp}` is a directory of the test.
CASES = [
    ("bisect", "{runs}/a {runs}/b"),
    ("bisect", "{runs}/a {runs}/a"),
    ("catalog", "{runs}"),
    ("check", "{runs}/a"),
    ("check", "{runs}/c"),
    ("check", "{runs}/a --rules LossNotDecreasing,ExplodingTensor,all"),
    ("compact", "{runs}/b"),
    ("diagnose", "{runs}/a {runs}/c"),
    ("diagnose", "{runs}/b --against {runs}/c"),
    ("doctor", ""),
    ("du", "{runs}"),
    ("export", "{runs}/a --to csv -o {tmp}/a.csv"),
    ("export", "{runs}/damaged --to npz -o {tmp}/damaged.npz"),
    ("inspect", "{runs}/a"),
    ("inspect", "{runs}/c"),
    ("inspect", "{runs}/damaged"),
    ("query", "{runs}/a *"),
    ("runs", "{runs}"),
    ("runs", "{runs} --findings"),
    ("runs", "{runs} --group state"),
    ("show", "{runs}/a w"),
    ("show", "{runs}/a w --step 3"),
    ("show", "{runs}/c train_loss"),
    ("thin", "{runs} --older-than 0s"),
    ("verify", "{runs}/a"),
    ("verify", "{runs}"),
    ("verify", "{runs}/c"),
    ("verify", "{runs}/damaged"),
]


@pytest.mark.parametrize(("command", "arguments"), CASES, ids=[" ".join(case) for case in CASES])
def test_output_has_the_fields_of_the_schema(runs, tmp_path, capsys, monkeypatch, command, arguments):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = [word.format(runs=runs, tmp=tmp_path) for word in arguments.split()]
    code = cli.main([command, *words, "--json"])
    printed = capsys.readouterr()
    assert code in (0, 1), printed.err
    validate(command, json.loads(printed.out))


def test_replay_has_the_fields_of_the_schema():
    class Step:
        step, losses, by_order = 7, (0.5, float("nan")), False

    class Recording:
        about = {"source": {"file": "train.py", "line": 3}}
        lost = ("the state of CUDA",)
        recorded = (Step,)

        @staticmethod
        def row_ids(step):
            return [step, "row"]

    class Replay:
        recording, why_not = Recording, ""

    class Incident:
        step, recorded = 7, {"bytes": 12}

    validate("replay", json.loads(json.dumps(_facts(Incident(), Replay()))))
    results = [_result(StepResult(7, (float("inf"),), equal, "")) for equal in (True, None)]
    validate("replay", {"steps": results, "text": "bit for bit"})
    validate("replay", {"steps": [], "text": "", "explanation": Explanation("nothing", 7).to_json()})


def test_first_operator_has_the_fields_of_the_schema(runs):
    """Only recordings of PyTorch have operators, so that the trainings are stand-ins."""
    line = Place("train.py", 22, "x = F.leaky_relu(x, 0.2)")
    known = Executed(7, (Operator("forward", "aten.leaky_relu", "net (Net)", "", line, line, ("0.2",)),), "bit for bit")
    divergence = create_trial(runs / "a").bisect(create_trial(runs / "b"))
    for other in (known, replace(known, operators=())):
        found = replace(divergence, operator=first_operator(known, other))
        validate("bisect", json.loads(json.dumps(found.to_json())))
    validate("bisect", json.loads(json.dumps(replace(divergence, no_operator="no recording").to_json())))


def test_a_coordinate_check_has_the_fields_of_the_schema():
    rows = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, np.inf]])
    layers = judged([8, 16, 32], {"fc": rows, "out": rows[:, :1]}, {"fc": rows * np.nan, "out": rows[:, :1]}, 0.25)
    assert [one.verdict for one in layers] == ["not finite", "steady"]
    validate("coordcheck", json.loads(json.dumps(CoordinateCheck((8, 16, 32), 1, 1, 0.25, layers).to_json())))


def test_every_command_with_the_option_has_a_schema():
    commands = next(one for one in cli.parser()._actions if isinstance(one, argparse._SubParsersAction)).choices
    assert set(SCHEMAS) == {name for name, one in commands.items() if "--json" in one._option_string_actions}
    assert set(SCHEMAS) == {command for command, _ in CASES} | {"replay", "coordcheck"}


def test_fields_are_only_added():
    now = {line for command in SCHEMAS for line in fields(schema_of(command), command)}
    known = KNOWN.read_text().splitlines()
    assert sorted(now) == known, f"fields may be added to {KNOWN.name}, but none may be removed or get another type"


def test_schema_prints_and_lists(capsys):
    assert cli.main(["schema", "diagnose"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(schema_of("diagnose")))
    assert cli.main(["schema"]) == 0
    assert capsys.readouterr().out.split() == list(SCHEMAS)
    assert cli.main(["schema", "diagnosis"]) == 2
    assert "Did you mean 'diagnose'?" in capsys.readouterr().err


def validate(command, content):
    """Validate, and refuse fields that the schema does not name."""
    schema = schema_of(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(closed(schema)).validate(content)


def closed(schema):
    if isinstance(schema, dict):
        plain = {key: closed(value) for key, value in schema.items()}
        return {**plain, "additionalProperties": False} if isinstance(plain.get("properties"), dict) else plain
    return [closed(one) for one in schema] if isinstance(schema, list) else schema


def fields(schema, path):
    """Yield where each value is, whether it is always there, and its type."""
    kind = schema.get("type", "any")
    yield f"{path} {kind if isinstance(kind, str) else '|'.join(kind)}"
    for name, value in schema.get("properties", {}).items():
        yield from fields(value, f"{path}.{name}{'' if name in schema['required'] else '?'}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from fields(schema["additionalProperties"], f"{path}.*")
    for one in schema.get("anyOf", ()):
        yield from fields(one, path)
