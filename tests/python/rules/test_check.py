"""`smdwidgets check`: exit codes, output formats and argument errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from python.rules.trainings import History
from smdwidgets import create_trial
from smdwidgets.cli import main
from smdwidgets.finding import Finding
from smdwidgets.numpy import Hook
from smdwidgets.rules import RuleRunner, VanishingGradient

Trained = Callable[..., History]


@pytest.fixture
def healthy(trained: Trained) -> str:
    return str(trained().path)


@pytest.fixture
def sick(trained: Trained) -> str:
    return str(trained(rate=0.0).path)


def test_exit_codes(healthy: str, sick: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", healthy, "--rules", "LossNotDecreasing,VanishingGradient"]) == 0
    assert "0 of 2 rules fired over 30 steps" in capsys.readouterr().out
    assert main(["check", sick, "--rules", "LossNotDecreasing"]) == 1
    out = capsys.readouterr().out
    assert "fired at step 10 (2 of 2 judged steps): loss_output_0: stayed the same" in out
    assert main(["check", healthy, "--rules", "TreeDepth"]) == 2
    assert "judged no step" in capsys.readouterr().out
    assert main(["check", healthy, "--rules", "TreeDepth", "--allow-unjudged"]) == 0
    assert main(["check", sick, "--rules", "all"]) == 1
    assert "rules fired over 30 steps" in capsys.readouterr().out


def test_without_rules_the_run_is_diagnosed(
    healthy: str, sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", healthy]) == 0
    assert re.match(r"✓ Nothing wrong seen in \d+ series and \d+ tensors", capsys.readouterr().out)
    results = ["--json", str(tmp_path / "out.json"), "--junit", str(tmp_path / "out.xml")]
    assert main(["check", sick, *results]) == 1
    out = capsys.readouterr().out
    result: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    (finding, *_) = result["diagnosis"]["findings"]
    assert (result["exit_code"], result["rules"], finding["title"] in out) == (1, [], True)
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert suite.get("failures") == suite.get("tests") == str(len(result["diagnosis"]["findings"]))
    assert (suite[0].get("name"), suite[0][0].get("message")) == (finding["kind"], finding["title"])


def test_diagnosis_that_cannot_tell_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Hook(tmp_path / "run") as hook:
        hook.save_scalar("loss", 1.0)
        hook.step()
    assert main(["check", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().out.startswith("! Cannot tell")
    assert main(["check", str(tmp_path / "run"), "--allow-unjudged"]) == 0
    assert capsys.readouterr().out.startswith("- Cannot tell")
    assert main(["check", str(tmp_path / "run"), "--junit"]) == 2
    assert '<error message="Cannot tell' in capsys.readouterr().out


def test_diagnosis_follows_a_run_until_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time\n"
        "from smdwidgets.numpy import Hook\n"
        "with Hook(sys.argv[1]) as hook:\n"
        "    for step in range(60):\n"
        "        hook.save_scalar('loss', float('nan') if step > 30 else 1 / (1 + step))\n"
        "        hook.step()\n"
        "        time.sleep(0.01)\n"
    )
    with subprocess.Popen([sys.executable, str(script), str(tmp_path / "run")]) as training:
        assert main(["check", str(tmp_path / "run"), "--follow"]) == 1
    assert training.returncode == 0
    assert "step 31" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rules", "LossNotDecreasin"], "Did you mean 'LossNotDecreasing'?"),
        (["--rules", "VanishingGradient", "--param", "VanishingGradient.treshold=1"], "Did you mean 'threshold'?"),
        (["--rules", "VanishingGradient", "--param", "VanishingGradient.threshold=low"], "is not a number"),
        (
            ["--rules", "VanishingGradient", "--param", "AllZero.threshold=1"],
            "rule 'AllZero' is not among the rules to evaluate",
        ),
        (["--rules", "VanishingGradient", "--param", "threshold=1"], "RULE.NAME=VALUE"),
        (["--rules", "AllZero"], "tensor_regex"),
        (["--config", "/no/such/file.json"], "cannot read rule configuration"),
        (["--json", "--junit"], "cannot both write to standard output"),
        (["--param", "VanishingGradient.threshold=1"], "--param needs --rules or --config"),
        (["--start-step", "5"], "--start-step needs --rules or --config"),
        (["--stop-training"], "--stop-training needs --rules or --config"),
        (["--rules", ""], "name at least one"),
    ],
)
def test_invalid_arguments_are_reported(
    healthy: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", healthy, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_missing_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "nothing")]) == 2
    assert "no run at" in capsys.readouterr().err
    assert main(["check"]) == 2


def test_parameters(healthy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["check", healthy, "--rules", "VanishingGradient", "--param", "VanishingGradient.threshold=1e3", "--json"])
        == 1
    )
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result["exit_code"] == 1
    assert result["ended"] is True
    (rule,) = result["rules"]
    assert rule["parameters"] == {"threshold": "1000.0"}
    assert (rule["first_fired"], rule["fired"], rule["judged"], rule["RuleEvaluationStatus"]) == (
        0,
        30,
        30,
        "IssuesFound",
    )
    finding = Finding.from_json(rule["finding"])
    assert (finding.id, finding.source, finding.first, finding.last) == (
        "rule:VanishingGradient:0",
        "rule",
        0,
        29,
    )
    assert {one.subject for one in finding.evidence} == set(finding.names[1:])
    assert set(finding.names[1:]) == {f"gradient/fc{i}.{k}" for i in range(3) for k in ("weight", "bias")}
    assert finding.evidence[0].limit == 1000.0


def test_one_finding_for_each_rule_that_fired(healthy: str) -> None:
    with create_trial(healthy) as trial:
        runner = RuleRunner(trial, ["ExplodingTensor"])
        runner.add("VanishingGradient", threshold=1e3)
        runner.start()
        runner.wait()
    [finding] = runner.findings
    assert finding == runner["VanishingGradient"].finding
    assert runner["ExplodingTensor"].finding is None
    assert str(finding) == "`VanishingGradient` fires for `gradient/fc0.bias` and 5 more tensors (30 steps)"


def test_json_and_junit_files(healthy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = [
        {
            "RuleConfigurationName": "strict <&>",
            "RuleParameters": {"rule_to_invoke": "VanishingGradient", "threshold": "1e3"},
        },
        {"RuleConfigurationName": "idle", "RuleParameters": {"rule_to_invoke": "DeadRelu", "tensor_regex": "nothing"}},
    ]
    (tmp_path / "rules.json").write_text(json.dumps(config))
    results = ["--json", str(tmp_path / "out.json"), "--junit", str(tmp_path / "out.xml")]
    assert main(["check", healthy, "--config", str(tmp_path / "rules.json"), "--rules", "LossSpike", *results]) == 1
    assert "✗ strict <&>" in capsys.readouterr().out
    assert [rule["RuleConfigurationName"] for rule in json.loads((tmp_path / "out.json").read_text())["rules"]] == [
        "strict <&>",
        "idle",
        "LossSpike",
    ]
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
    }
    assert [[child.tag for child in case] for case in suite] == [["failure"], ["error"], []]
    assert suite[0][0].get("message", "").startswith("fired at step 0 (30 of 30 judged steps): gradient/")
    assert "judged no step" in suite[1][0].get("message", "")


def test_a_rule_that_raises_midway_has_not_passed(
    healthy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(rule: object, step: int) -> bool:
        if step > 10:
            raise ZeroDivisionError("midway")
        return False

    monkeypatch.setattr(VanishingGradient, "evaluate", raises)
    assert main(["check", healthy, "--rules", "VanishingGradient", "--junit", str(tmp_path / "out.xml")]) == 2
    out = capsys.readouterr().out
    assert "! VanishingGradient" in out
    assert "✓" not in out
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")
    assert [child.tag for child in suite[0]] == ["error"]
    assert "midway" in suite[0][0].get("message", "")


def test_step_range_and_stop_training(sick: str, tmp_path: Path, trained: Trained) -> None:
    from smdwidgets.stop import clear_stop, stop_requested

    assert main(["check", sick, "--rules", "LossNotDecreasing", "--end-step", "10", "--allow-unjudged"]) == 0
    assert main(["check", sick, "--rules", "LossNotDecreasing", "--start-step", "15", "--stop-training"]) == 1
    request = stop_requested(sick)
    assert request is not None
    assert request.step == 15
    clear_stop(sick)


def test_failed_action_is_reported_with_the_result(
    sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from smdwidgets.rules import StopTraining

    def fails(self: StopTraining, *args: object) -> None:
        raise PermissionError("the run is read-only")

    monkeypatch.setattr(StopTraining, "run", fails)
    assert main(["check", sick, "--rules", "LossNotDecreasing", "--stop-training"]) == 1
    out = capsys.readouterr().out
    assert "✗ LossNotDecreasing  fired at step 10" in out
    assert "action stoptraining failed: the run is read-only" in out


def test_follow_ends_at_the_timeout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from smdwidgets import create_trial
    from smdwidgets.numpy import Hook

    hook = Hook(tmp_path / "run")
    hook.save_tensor("loss", 1.0, "losses")
    hook.step()
    create_trial(tmp_path / "run", wait=30).wait_for_steps([0], timeout=30)
    assert main(["check", str(tmp_path / "run"), "--rules", "LossSpike", "--follow", "--timeout", "0.5"]) == 2
    assert "Timed out" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "run"), "--follow", "--timeout", "0.5"]) == 2
    assert "Timed out" in capsys.readouterr().out
    hook.close()


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list"]) == 0
    out = capsys.readouterr().out
    assert "VanishingGradient: Detect gradients that are so small" in out
    assert "    threshold=1e-07  Mean magnitude" in out
