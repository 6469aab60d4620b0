"""Diagnose runs in parts, in bounded memory.

The findings are those of the whole table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from diagnosis.cases import PLANTED
from smdwidgets import _core
from smdwidgets.diagnosis import Diagnoser, step_sample, tensor_columns
from smdwidgets.diagnosis.tensor_columns import read_tensors

NAMES = [f"fc{layer}.{part}" for layer in range(24) for part in ("weight", "relu_output")]
NAMES += [f"gradient/fc{layer}.weight" for layer in range(24)]
#: Steps of the faults that `write` plants.
BROKEN, EXPLODES, DIES = 81_237, 40_000, 30_000


def write(root: Path, steps: int, tensors: int, *faults: str) -> None:
    """Write statistics of a training, with values of activations at 200 steps."""
    names, count = NAMES[:tensors], np.full(tensors, 4096)
    chance, zeros = np.random.default_rng(0), np.zeros(tensors, np.int64)
    folder = root / "collections/000000000"
    folder.mkdir(parents=True)
    patterns = {"losses": "^loss$", "weights": r"^fc\d+\.weight", "gradients": "^gradient/", "activations": "_output$"}
    collections = {name: {"name": name, "include_regex": [regex]} for name, regex in patterns.items()}
    content = {"collections": collections, "_meta": {"num_workers": 1}}
    (folder / "worker_0_collections.json").write_text(json.dumps(content))
    is_gradient = np.array([name.startswith("gradient/") for name in names])
    is_output = np.array([name.endswith("_output") for name in names])
    is_weight = ~is_gradient & ~is_output
    base = np.where(is_gradient, 1e-4, 0.1)
    last = names.index("gradient/fc20.weight")
    dead = names.index("fc3.relu_output")
    with _core.StatisticsWriter(root, seconds=1e9) as writer:
        numbers = [writer.add(name, "float32", [64, 64]) for name in names]
        for step in range(steps):
            std = base * (1 + 0.02 * chance.normal(size=tensors))
            std[is_weight] = base[is_weight] * (1 + 0.1 * step / steps)
            if "exploding" in faults and step >= EXPLODES:
                std[is_gradient] *= 1e6
            lost = zeros.copy()
            if "broken" in faults and step >= BROKEN:
                lost[last] = 7
            if "dead" in faults and step >= DIES:
                std[dead] = 0
            mean = np.where(is_output, std, 0.01 * std * chance.normal(size=tensors))
            l2 = np.sqrt(4096 * (std**2 + mean**2))
            update = np.where(is_weight, 1e-3 * l2, 1.4 * l2)
            low = np.where(is_output, 0.0, mean - 4 * std)
            counts = {"count": count, "nan": lost, "neg_inf": zeros, "pos_inf": zeros, "zeros": zeros}
            moments = {
                "min": low,
                "max": mean + 4 * std,
                "mean": mean,
                "std": std,
                "l1": std,
                "abs_max": mean + 4 * std,
            }
            writer.append(step, numbers, {**counts, **moments, "l2": l2, "update": update}, 1)
            if step % (steps // 200) == 0 or step == steps - 1:
                with _core.StepWriter(root, step, "worker_0", 1) as event:
                    event.tensor("loss", np.float32(2 + np.exp(-step / steps)))
                    for name, size in zip(names, std, strict=True):
                        if name.endswith("_output"):
                            value = np.maximum(chance.normal(size=(256, 16)), 0) * (size > 0)
                            event.tensor(name, value.astype(np.float32))
    (root / "training_job_end.ts").touch()


def sample_above(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a sample of so many rows of larger runs."""
    monkeypatch.setattr(step_sample, "WHOLE_ROWS", rows)
    monkeypatch.setattr(step_sample, "MOST_ROWS", rows)


def findings(run: Path) -> tuple[object, ...]:
    diagnosis = smdwidgets.diagnose(run)
    return diagnosis.findings, diagnosis.notes, diagnosis.coverage, diagnosis.judged, diagnosis.unjudged


@pytest.mark.parametrize(
    "case",
    [case if at % 6 == 0 else pytest.param(case, marks=pytest.mark.slow) for at, case in enumerate(PLANTED)],
    ids=lambda case: case.name,
)
def test_parts_give_the_findings_of_the_whole_table(case, tmp_path, monkeypatch):
    case.train(tmp_path, 0)
    whole = findings(tmp_path)
    monkeypatch.setattr(tensor_columns, "BLOCK_ROWS", 300)
    assert findings(tmp_path) == whole
    assert whole[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case for case in PLANTED if not case.name.startswith("inputs x 30 for")], ids=lambda case: case.name
)
def test_a_sample_of_the_steps_finds_the_cause(case, tmp_path, monkeypatch):
    # Three large batches may lie between the steps that are read, as the coverage says.
    case.train(tmp_path, 0)
    rows = sum(len(one) for one in read_tensors(smdwidgets.create_trial(tmp_path)))
    sample_above(rows // 2, monkeypatch)
    diagnosis = smdwidgets.diagnose(tmp_path)
    assert [one.kind for one in diagnosis][:1] == [kind for kind in case.expected if kind == diagnosis.findings[0].kind]
    assert "steps were read, since the run is very large" in " ".join(diagnosis.coverage.gaps)


def test_a_sample_keeps_stretches_values_and_first_lost_values(tmp_path, monkeypatch):
    write(tmp_path, 4000, 72, "dead")
    sample_above(72 * 400, monkeypatch)
    monkeypatch.setattr(tensor_columns, "BLOCK_ROWS", 1000)
    diagnoser = Diagnoser(smdwidgets.create_trial(tmp_path), marks=False)
    data = diagnoser.read()
    read, every = data.sampled
    assert every == 4000
    assert 350 <= read <= 400
    weight = next(one for one in data.tensors if one.name == "fc5.weight")
    assert len(weight) == read
    # A change is that since the step before, so it is unknown where that was not read.
    follows = np.diff(weight.steps) == 1
    assert 0.6 < follows.mean() < 0.95
    assert (np.isfinite(weight["update"][1:]) == follows).all()
    output = next(one for one in data.tensors if one.name == "fc3.relu_output")
    assert np.isfinite(output["dead"]).sum() >= 60


def test_a_sampled_run_that_grows_reads_on_and_starts_over_when_it_has_doubled(tmp_path, monkeypatch):
    write(tmp_path, 4000, 72)
    sample_above(72 * 400, monkeypatch)
    sizes = []
    reader = None
    for end in (600, 800, 1000, 1300, 2000, None):
        trial = smdwidgets.create_trial(tmp_path, range_steps=(None, end))
        reader = reader or tensor_columns.TensorReader(trial)
        reader._trial = trial
        tensors = reader.update()
        assert {len(one) for one in tensors} == {len(tensors[0])}
        assert (np.diff(tensors[0].steps) > 0).all()
        sizes.append(len(tensors[0]))
    assert max(sizes) <= 900
    assert reader.sampled is not None
    assert reader.sampled[0] == sizes[-1]


def test_ctrl_c_ends_the_choice_of_steps(tmp_path, monkeypatch):
    write(tmp_path, 4000, 72)
    sample_above(1000, monkeypatch)
    calls: list[tuple[int, int]] = []

    def interrupted(done: int, total: int) -> None:
        if total == 72 * 4000:
            calls.append((done, total))
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        smdwidgets.diagnose(smdwidgets.create_trial(tmp_path), progress=interrupted)
    assert len(calls) == 3
    assert 0 < calls[0][0] < calls[1][0] < calls[2][0] < 72 * 4000


MEASURED = """
import json, pathlib, resource, sys
import smdwidgets
from smdwidgets.diagnosis import Diagnoser
diagnosis = Diagnoser(smdwidgets.create_trial(sys.argv[1])).update()
found = [(one.kind, one.first, one.subject) for one in (*diagnosis.listed, *diagnosis.explained)]
status = pathlib.Path("/proc/self/status")
# On Linux, ru_maxrss may be that of the process that started this one.
peak = status.read_text().partition("VmHWM:")[2].split()[0] if status.exists() else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([found, diagnosis.coverage.gaps, int(peak) / 1024]))
"""


@pytest.mark.slow
def test_faults_of_ten_million_rows_are_found_in_bounded_memory(tmp_path):
    write(tmp_path / "run", 140_000, 72, "broken", "exploding", "dead")
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "run")], env=env, capture_output=True, text=True, check=True
    )
    found, gaps, megabytes = json.loads(done.stdout)
    onsets = {(kind, subject): first for kind, first, subject in found}
    assert onsets["not_finite", "gradient/fc20.weight"] == BROKEN
    [exploding] = [first for kind, first, _ in found if kind == "exploding"]
    # A stretch of 64 steps is read of 7.
    assert 0 <= exploding - EXPLODES <= 7 * 64
    assert 0 <= onsets["dead", "fc3.relu_output"] - DIES <= 7 * 64
    assert {kind for kind, *_ in found} <= {"not_finite", "dead", "exploding", "stands_out"}
    assert "steps were read, since the run is very large" in " ".join(gaps)
    assert megabytes < 600
