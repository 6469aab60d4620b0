"""smdebug reads the steps of a run with segments that have index files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from conformance.conftest import output
from smdwidgets.numpy import Hook

PROGRAM = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from smdebug.trials import create_trial
trial = create_trial(sys.argv[1])
values = {
    name: {step: trial.tensor(name).value(step).ravel().tolist() for step in trial.tensor(name).steps()}
    for name in trial.tensor_names()
}
print(json.dumps([trial.steps(), bool(trial.loaded_all_steps), values]))
"""


def test_smdebug_reads_some_steps_of_segments(smdebug_python: Path, tmp_path: Path) -> None:
    with Hook(tmp_path / "run", plan={"budget": "10MB"}) as hook:
        for step in range(400):
            hook.save_scalar("loss", step)
            hook.save_tensor("w", np.full(1000, step, "float32"), "weights")
            hook.step()
    assert list((tmp_path / "run" / "segments").rglob("*.tfevents"))
    steps, ended, values = json.loads(output(smdebug_python, "-W", "ignore", "-c", PROGRAM, tmp_path / "run"))
    assert ended
    assert len(steps) >= 48
    assert (steps[0], steps[-1]) == (0, 399)
    assert {int(step) for step in values["scalar/loss"]} == set(steps)
    assert len(values["w"]) >= 16
    for name in ("scalar/loss", "w"):
        assert all(set(found) == {float(step)} for step, found in values[name].items())
