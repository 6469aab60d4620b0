"""Rules and diagnoses of runs, by a cluster or a process pool."""

from __future__ import annotations

import json

import numpy as np
import pytest

import smdwidgets
from python.scale import runs
from smdwidgets.cli import main
from smdwidgets.diagnosis import diagnose_all
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.executors import ProcessExecutor, executor_of
from smdwidgets.rules import Rule, RuleRunner
from smdwidgets.survey import Survey

pytestmark = pytest.mark.slow

RULES = {"AllZero": {"tensor_regex": ".*"}, "ExplodingTensor": {"tensor_regex": ".*"}}


class FiresAtThree(Rule):
    """Fires at step 3."""

    def invoke_at_step(self, step: int) -> bool:
        return step == 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two healthy runs, one with NaN, one that is no run."""
    folder = tmp_path_factory.mktemp("runs")
    for name, at in (("good", None), ("nan", 5), ("good2", None)):
        for step in range(12):
            value = np.full(20, np.nan if step == at else 1.0 + step, np.float32)
            runs.write_step(folder / name, step, "worker_0", {"w": value, "loss": np.float32([1 / (step + 1)])})
        runs.finish(folder / name)
    return folder


@pytest.fixture(params=["dask", "processes", "default"])
def executor(request):
    if request.param == "default":
        return None
    return request.getfixturevalue("client") if request.param == "dask" else ProcessExecutor(2)


def test_check_all_ranks_runs_and_reports_those_that_cannot_be_read(folder, executor):
    calls = []
    names = [folder / "good", folder / "nan", folder / "none"]
    found = smdwidgets.check_all(names, RULES, executor, progress=lambda *call: calls.append(call))
    assert [run.run for run in found] == [str(folder / name) for name in ("nan", "none", "good")]
    [fired] = found[0].fired
    assert (fired.rule, fired.first_step, found[0].last_step) == ("ExplodingTensor", 5, 11)
    assert found[1].error
    assert {one.status for one in found[2].outcomes} == {"passed"}
    assert calls[-1] == (3, 3)


def test_check_all_evaluates_rules_of_the_user(folder, executor):
    found = smdwidgets.check_all([smdwidgets.create_trial(folder / "good"), folder / "nan"], [FiresAtThree], executor)
    assert [run.fired[0].first_step for run in found] == [3, 3]
    with pytest.raises(SMDebugTypeError, match="pass names or classes"):
        smdwidgets.check_all([], [FiresAtThree(smdwidgets.create_trial(folder / "good"))])


def test_diagnoses_are_equal_to_those_of_single_runs(folder, executor):
    table = smdwidgets.runs(folder, cache=False)
    found = table.diagnose(executor)
    single = {str(row.path): smdwidgets.diagnose(row.path) for row in table}
    assert {one.run: one.to_json() for one in found} == {path: one.to_json() for path, one in single.items()}
    assert not diagnose_all([folder / "none"], client=executor)[0].can_tell


@pytest.mark.usefixtures("many_parts")
def test_rules_and_diagnosis_of_one_run_are_equal(folder, client):
    trial = smdwidgets.create_trial(folder / "nan")
    here = smdwidgets.diagnose(folder / "nan")
    assert smdwidgets.diagnose(trial, client=client).to_json() == here.to_json()
    summaries = []
    for one in (None, client):
        runner = RuleRunner(smdwidgets.create_trial(folder / "nan"), follow=False, client=one)
        for name, parameters in RULES.items():
            runner.add(name, **parameters)
        runner.start().wait()
        summaries.append([(each.name, each.judged, [str(event) for event in each.firings]) for each in runner])
    assert summaries[0] == summaries[1]


@pytest.mark.usefixtures("many_parts")
def test_survey_by_a_cluster_is_equal(folder, client):
    here, there = (Survey(smdwidgets.create_trial(folder / "good")) for _ in range(2))
    here.trial.reader.run._caches["every"] = there.trial.reader.run._caches["every"] = None
    here.update()
    calls = []
    with smdwidgets.use(client):
        run = executor_of(client).run
        executor_of(client).run = lambda *arguments: calls.append(arguments) or run(*arguments)
        try:
            there.update()
        finally:
            del executor_of(client).run
    assert calls
    assert there.reading.state == "complete"
    # Numbers of rows, and the part that a record was read in, depend on the order in which parts arrive.
    found = [by_name(survey.table) for survey in (here, there)]
    assert found[0].keys() == found[1].keys()
    for name, column in found[0].items():
        assert np.array_equal(found[1][name], column, equal_nan=column.dtype.kind == "f")


def by_name(table):
    """Return the records with names instead of rows, sorted by name and step."""
    records = dict(table.records())
    del records["span"]
    records["row"] = np.array(table.row_names())[records["row"]]
    order = np.lexsort((records["step"], records["row"]))
    return {name: column[order] for name, column in records.items()}


@pytest.mark.parametrize(
    "command",
    [["verify"], ["diagnose"], ["check", "--rules", "AllZero", "--param", "AllZero.tensor_regex=.*"]],
    ids=lambda c: c[0],
)
def test_commands_use_a_scheduler(folder, cluster, client, capsys, command):
    codes, outputs = [], []
    for more in ([], ["--scheduler", cluster.scheduler_address]):
        codes.append(main([command[0], str(folder / "nan"), *command[1:], *more, "--json"]))
        found = json.loads(capsys.readouterr().out)
        outputs.append(found)
    assert codes[0] == codes[1]
    if command == ["verify"]:
        assert outputs[0] == outputs[1]


def test_unknown_scheduler_is_an_error(folder, capsys):
    import dask
    from distributed import config  # noqa: F401 - sets the defaults of dask.config

    with dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}):
        assert main(["verify", str(folder / "good"), "--scheduler", "tcp://127.0.0.1:1"]) == 2
    assert "cannot connect to the Dask scheduler 'tcp://127.0.0.1:1'" in capsys.readouterr().err
