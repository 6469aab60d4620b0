"""Read the same runs with smdebug and smdwidgets and compare every public call.

The runs are written by smdebug. Intended differences are listed here with the reason, and documented in
docs/differences.md.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.conftest import output

#: Calls (and smdebug's results) that differ on purpose.
ON_PURPOSE = [
    # smdebug fails; smdwidgets returns a result.
    (r"", r"KeyError|NameError|AttributeError|IndexError"),
    # Norms are over all elements, not numpy's matrix norms, which reject other ranks.
    (r"t\.reduction_value\(.*name=l[12] ", r""),
]


def numbers_apart(answer: Any) -> bool:
    """Return whether a result is one number, which is compared with a tolerance.

    numpy sums in another order.
    """
    return isinstance(answer, dict) and isinstance(answer.get("is"), str) and len(answer["is"]) < 40


def same(ours: Any, theirs: Any) -> bool:
    if ours == theirs:
        return True
    if numbers_apart(ours) and numbers_apart(theirs) and ours.keys() == theirs.keys():
        a, b = float(ours["is"]), float(theirs["is"])
        return a == pytest.approx(b, rel=2e-3 if "float16" in ours else 2e-6, abs=1e-12, nan_ok=True)
    return False


def on_purpose(call: str, theirs: Any) -> bool:
    raised = theirs.get("raises", "") if isinstance(theirs, dict) else ""
    return any(re.match(which, call) and (not error or re.fullmatch(error, raised)) for which, error in ON_PURPOSE)


@pytest.fixture(scope="module")
def answers(smdebug_python: Path, runs: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Results of both packages by run."""
    ask = Path(__file__).with_name("ask.py")
    names = sorted(folder.name for folder in runs.iterdir())
    theirs = json.loads(output(smdebug_python, ask, "smdebug", *names, cwd=runs))
    ours = json.loads(output(sys.executable, ask, "smdwidgets", *names, cwd=runs))
    return {name: {"ours": ours[name], "theirs": theirs[name]} for name in names}


def test_every_call_on_every_run(answers: dict[str, dict[str, dict[str, Any]]]) -> None:
    asked, wrong = 0, []
    for run, both in answers.items():
        for call in sorted({*both["ours"], *both["theirs"]}):
            ours, theirs = both["ours"].get(call, "not asked"), both["theirs"].get(call, "not asked")
            asked += 1
            if not same(ours, theirs) and not on_purpose(call, theirs):
                wrong.append(f"{run}: {call}\n    smdebug {str(theirs)[:300]}\n    ours    {str(ours)[:300]}")
    assert asked > 20_000
    assert not wrong, f"{len(wrong)} of {asked} answers differ:\n" + "\n".join(wrong[:20])


def test_runs_contain_the_compared_features(answers: dict[str, dict[str, dict[str, Any]]]) -> None:
    assert len(answers) == 13
    theirs = {run: both["theirs"] for run, both in answers.items()}
    assert theirs["collections_missing"] == {"create_trial": {"raises": "MissingCollectionFiles"}}
    assert theirs["no_steps"]["trial.steps(show_incomplete_steps=True) "] == []
    assert theirs["hook_modes"]["sorted(mode.name for mode in trial.modes()) "] == ["EVAL", "PREDICT", "TRAIN"]
    assert len(theirs["workers_running"]["trial.workers() "]) == 12
    assert any("reduction_values" in call and answer for call, answer in theirs["hook_reductions"].items())
