"""What the hook takes beside the model.

Large tensors that nothing keeps are described where they lie.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from frameworks.wide_training import train_wide
from smdwidgets import CapturePlan, _core, create_trial, diagnose
from smdwidgets.hooks.core.memory import Memory

PLAN = CapturePlan(statistics=1, every=4, budget="40MB")
#: Weights, gradients, inputs and outputs of 67 MB each.
SCRIPT = """
import resource, sys
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4)))
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
if len(sys.argv) > 1:
    import smdwidgets.pytorch as smd

    smd.record(model, sys.argv[1])
for step in range(12):
    optimizer.zero_grad()
    model(torch.randn(2048, 2048)).square().mean().backward()
    optimizer.step()
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is in kilobytes on Linux")
def test_a_hook_takes_a_fixed_amount_of_memory_at_most(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))

    def peak(*arguments):
        command = [sys.executable, "train.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return int(re.search(r"peak (\d+)", done.stdout)[1])

    bare, hooked = peak(), peak(str(tmp_path / "run"))
    # About 240 MB, and what the allocator keeps. Copies of two steps would take 540 MB.
    assert hooked - bare <= 320
    with create_trial(tmp_path / "run") as trial:
        assert len(trial.tensor("Sequential_0.weight").steps()) >= 2  # values are saved all the same
        table = trial.statistics()
        assert {"Sequential_3.weight", "gradient/Sequential_3.weight"} <= {*table["name"][table["step"] > 0]}


def test_statistics_in_place_are_those_of_copies(tmp_path):
    bare, _ = train_wide(None)
    losses, expected = train_wide(tmp_path, plan=PLAN, recorder_bytes=1 << 20)
    assert losses == bare
    with create_trial(tmp_path) as trial:
        table = trial.statistics(columns=[*_core.statistics_of([])])
        rows = {pair: row for row, pair in enumerate(zip(table["name"], table["step"], strict=True))}
        before = None
        for step, tensors in expected.items():
            for name, tensor in tensors.items():
                earlier = before if name == "Wide_first.weight" else None
                columns = _core.statistics_of([tensor.numpy()], None if earlier is None else [earlier.numpy()])
                for column, numbers in columns.items():
                    near = 0.03 if column == "update" else 1e-6
                    found = float(table[column][rows[name, step]])
                    assert found == pytest.approx(float(numbers[0]), rel=near, nan_ok=True)
            before = tensors["Wide_first.weight"]
        weight = trial.tensor("Wide_first.weight")
        assert {0, 4} <= {*weight.steps()} < {*expected}
        for step in weight.steps():
            assert torch.equal(torch.from_numpy(np.asarray(weight.value(step))), expected[step]["Wide_first.weight"])


def test_samples_are_taken_of_what_was_not_copied(tmp_path):
    plan = CapturePlan(statistics=1, budget="4MB")  # too little for the values of the weight
    _, expected = train_wide(tmp_path, plan=plan, steps=20, recorder_bytes=1 << 20)
    with create_trial(tmp_path) as trial:
        weight = trial.tensor("Wide_first.weight")
        steps = weight.sample_steps()
        assert len(steps) >= 2
        for step in steps:
            sample = torch.from_numpy(np.asarray(weight.sample(step)))
            assert 4000 <= sample.numel() <= 4096
            assert torch.isin(sample, expected[step]["Wide_first.weight"]).all()


def test_the_gradient_norm_needs_no_copies(tmp_path):
    train_wide(tmp_path / "described", plan=PLAN, recorder_bytes=1 << 20)
    train_wide(tmp_path / "copied", plan=PLAN)
    norms = []
    for run in ("described", "copied"):
        with create_trial(tmp_path / run) as trial:
            norms.append([float(value) for value in trial.tensor("optimizer/Adam/gradient_norm").values().values()])
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)


def test_an_incident_is_found_in_what_was_not_copied(tmp_path):
    train_wide(tmp_path, breaks=6, plan=CapturePlan(statistics=1, every=1024), recorder_bytes=1 << 20)
    finding = diagnose(tmp_path).findings[0]
    assert (finding.kind, finding.first) == ("input_not_finite", 6)


def test_gradients_of_the_step_that_breaks_are_saved_if_two_steps_do_not_fit(tmp_path, caplog):
    plan = CapturePlan(statistics=1, every=1024, budget="1GB")
    # The gradients take 3.4 MB, what else a step has 6 MB.
    _, expected = train_wide(tmp_path, breaks=6, steps=9, plan=plan, recorder_bytes=12 << 20)
    with create_trial(tmp_path) as trial:
        gradient = trial.tensor("gradient/Wide_first.weight")
        incident = trial.incidents()[0]
        assert incident.step == 6
        assert 6 in gradient.steps()
        assert 5 not in gradient.steps()
        found = torch.from_numpy(np.asarray(gradient.value(6)))
        torch.testing.assert_close(found, expected[6]["gradient/Wide_first.weight"], rtol=0, atol=0, equal_nan=True)
    assert sum("and gradients of one step" in one.message for one in caplog.records) == 1


def test_sparse_gradients_are_recorded(tmp_path):
    import smdwidgets.pytorch as smd

    embedding = torch.nn.Embedding(8192, 64, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), 0.1)
    with smd.record(embedding, tmp_path, plan=PLAN, recorder_bytes=1 << 20):
        for _ in range(6):
            optimizer.zero_grad()
            embedding(torch.arange(8)).square().mean().backward()
            optimizer.step()
    with create_trial(tmp_path) as trial:
        table = trial.statistics()
        assert (
            sum(table["name"] == "gradient/Embedding_weight") >= 3
            or "gradient/Embedding_weight" in trial.tensor_names()
        )


def test_shares_of_the_memory():
    default = Memory.of(recorder=None, queue=None, is_bounded=True)
    assert default.recorder >= 80 << 20
    assert default.queue >= 40 << 20
    assert Memory.of(recorder=None, queue=None, is_bounded=False).queue == 1 << 30
    assert Memory.of(recorder=0, queue=5, is_bounded=True)[:2] == (0, 5)
