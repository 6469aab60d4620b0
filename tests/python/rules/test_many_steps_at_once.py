"""Rules judge many steps of a log at once, with the outcomes of single steps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python.logs.logs import log, scalars
from smdwidgets import Trial, _core, create_trial
from smdwidgets.rules import RuleRunner, runner
from smdwidgets.rules.rule import Rule

RULES: list[tuple[str, dict[str, Any]]] = [
    ("LossSpike", {}),
    ("LossSpike", {"sensitivity": 5}),
    ("LossSpike", {"collection_names": "", "tensor_regex": "loss|other"}),
    ("LossNotDecreasing", {}),
    ("LossNotDecreasing", {"num_steps": 1, "diff_percent": 20}),
    ("LossNotDecreasing", {"mode": "TRAIN", "num_steps": 3}),
    ("LossNotDecreasing", {"mode": "GLOBAL", "tensor_regex": "other"}),
    ("Overtraining", {}),
    ("Overtraining", {"patience_train": 1, "patience_validation": 2, "delta": 0.5}),
    ("Overtraining", {"tensor_regex": "acc|loss"}),
    ("Overfit", {}),
    ("Overfit", {"patience": 3, "start_step": 40, "ratio_threshold": 0.0}),
    ("Overfit", {"tensor_regex": "loss"}),
]


def losses(rng: np.random.Generator, count: int) -> list[float]:
    values = np.exp(-np.arange(count) / 60) + rng.normal(0, 0.05, count)
    values[rng.random(count) < 0.03] *= 40
    values[rng.random(count) < 0.02] = rng.choice([math.nan, math.inf, -math.inf, 0.0])
    return [float(value) for value in np.round(values, 2)]


def sparse(rng: np.random.Generator, tags: list[str], steps: int, keep: float) -> bytes:
    """Records of tags at some of the steps, in any order of tags."""
    out = b""
    values = {tag: losses(rng, steps) for tag in tags}
    for step in range(steps):
        for tag in tags:
            if rng.random() < keep:
                out += _core.scalar_record(tag, step - 3, 100.0 + step, values[tag][step])
    return out


@pytest.fixture(scope="module", params=["one curve", "by name", "modes", "both", "sparse", "workers", "few"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(7)
    root = tmp_path_factory.mktemp("log")
    if request.param == "one curve":
        log(root, scalars({"loss": losses(rng, 400), "accuracy": losses(rng, 400)}))
    elif request.param == "by name":
        log(root, sparse(rng, ["train/loss", "val/loss", "loss_10", "loss_2", "lr", "other"], 400, 0.6))
    elif request.param == "modes":
        for mode, keep in (("train", 1.0), ("eval", 0.3), ("predict", 0.1)):
            log(root / mode, sparse(rng, ["loss", "acc"], 300, keep))
    elif request.param == "both":
        tags = ["loss", "val_loss", "train/loss", "loss/test", "val_train/loss", "other_loss"]
        for mode in ("train", "eval"):
            log(root / mode, sparse(rng, tags, 300, 0.2))
    elif request.param == "sparse":
        log(root, sparse(rng, ["loss", "val_loss", "other"], 500, 0.2))
    elif request.param == "workers":  # two workers of one mode: judged one by one
        for directory in ("validation", "test"):
            log(root / directory, sparse(rng, ["loss"], 100, 0.9))
    else:
        log(root, scalars({"loss": [1.0, math.nan, 0.5]}))
    return root


def results(trial: Trial, rule: str, parameters: dict[str, Any]) -> dict[str, Any]:
    made = RuleRunner(trial)
    evaluation = made.add(rule, **parameters)
    made.start()
    made.wait()
    report = dict(evaluation.rule.report)
    return {
        "outcomes": evaluation.outcomes,
        "firings": evaluation.firings,
        "first": evaluation.first_firing,
        "status": evaluation.status,
        "message": evaluation.message,
        "details": evaluation.status_details(),
        "judged": evaluation.judged,
        "report": report,
        "findings": evaluation.rule.findings,
        "skipped": evaluation.rule.skipped,
    }


@pytest.mark.parametrize(("rule", "parameters"), RULES, ids=[f"{name}{given or ''}" for name, given in RULES])
@pytest.mark.slow
def test_outcomes_are_those_of_single_steps(
    directory: Path, rule: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    plain = Rule.evaluate_many

    def counted(self: Rule, steps: Any) -> Any:
        found = plain(self, steps)
        calls.append(found is not None)
        return found

    monkeypatch.setattr(Rule, "evaluate_many", counted)
    monkeypatch.setattr(runner, "MANY", 2)
    with create_trial(directory, live=False) as trial:
        at_once = results(trial, rule, parameters)
    monkeypatch.setattr(runner, "MANY", 10**9)
    with create_trial(directory, live=False) as trial:
        one_by_one = results(trial, rule, parameters)
    # NaN in findings does not equal NaN.
    assert repr(at_once) == repr(one_by_one)
    assert any(calls)


@pytest.mark.parametrize("rule", ["LossSpike", "LossNotDecreasing", "Overtraining", "Overfit"])
def test_a_live_run_continues_step_by_step(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    content = {"loss": losses(rng, 300), "val_loss": losses(rng, 300)}
    first = {tag: values[:280] for tag, values in content.items()}
    log(tmp_path / "live", scalars(first))
    log(tmp_path / "whole", scalars(content))
    with create_trial(tmp_path / "live", live=True) as trial:
        made = RuleRunner(trial, [rule])
        made.start()
        made.catch_up()
        log(tmp_path / "live", scalars({tag: values[280:] for tag, values in content.items()}, first=280))
        made.catch_up()
        made.stop()
        [live] = made.evaluations
    monkeypatch.setattr(runner, "MANY", 10**9)
    with create_trial(tmp_path / "whole", live=False) as trial:
        made = RuleRunner(trial, [rule])
        made.start()
        made.wait()
        [whole] = made.evaluations
    assert live.outcomes == whole.outcomes
    assert repr(live.firings) == repr(whole.firings)


def test_parameters_are_changed_and_steps_judged_again(directory: Path) -> None:
    with create_trial(directory, live=False) as trial:
        made = RuleRunner(trial, ["Overtraining"])
        made.start()
        made.wait()
        before = made["Overtraining"].outcomes
        made.set_parameters("Overtraining", patience_train=1000, patience_validation=1000)
        made.wait()
        assert list(made["Overtraining"].outcomes) == list(before)
        assert not made["Overtraining"].fired
