"""Open many runs with one listing, and read each at its first query."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from python.logs.logs import event as record
from python.logs.logs import field, log, scalars, strings
from python.logs.logs import value as logged
from smdwidgets import Trial, create_trial, create_trials
from smdwidgets.analysis.utils import no_refresh
from smdwidgets.exceptions import RunNotFound, TrialClosed
from smdwidgets.storage.local import LocalStorage
from smdwidgets.trials import TensorBoardTrial

QUERIES: dict[str, Callable[[TensorBoardTrial], Any]] = {
    "steps": lambda trial: trial.steps(),
    "modes": lambda trial: trial.modes(),
    "tensor_names": lambda trial: trial.tensor_names(),
    "names of a collection": lambda trial: trial.tensor_names(collection="losses"),
    "has_tensor": lambda trial: trial.has_tensor("loss"),
    "tensor": lambda trial: trial.tensor("loss").value(1).item(),
    "mode": lambda trial: trial.mode_modestep(1),
    "global_step": lambda trial: trial.global_step("GLOBAL", 1),
    "workers": lambda trial: trial.workers(),
    "collections": lambda trial: sorted(trial.collections()),
    "collection": lambda trial: trial.collection("losses").tensor_names,
    "scalars": lambda trial: trial.scalars()["value"].tolist(),
    "values": lambda trial: trial.values("loss")["value"].tolist(),
    "reductions": lambda trial: trial.reductions("loss", reductions="mean")["mean"].tolist(),
    "statistics": lambda trial: trial.statistics("loss")["mean"].tolist(),
    "wall_time": lambda trial: trial.wall_time("loss", 1),
    "hparams": lambda trial: trial.hparams(),
    "orphans": lambda trial: trial.orphans("loss")["step"].tolist(),
    "event": lambda trial: trial.event("note", 0).wall_time,
    "events": lambda trial: sorted(trial.events("note")),
    "problems": lambda trial: trial.problems(),
    "has_passed_step": lambda trial: trial.has_passed_step(1),
    "run_end": lambda trial: str(trial.run_end()),
    "runs": lambda trial: trial.runs(),
    "repr of a tensor": lambda trial: repr(trial.tensor("loss")),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs")
    for number in range(12):
        content = scalars({"loss": [3, 2, 1 + number], "acc": [0, 1, 2]})
        content += record(logged("note", strings(b"text"), plugin="text")) + b"\x05damaged, so not a record"
        log(root / f"sweep_{number % 3}" / f"run_{number}", content)
    return root


def test_one_listing_of_the_root_for_any_number_of_runs(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = sorted(str(path) for path in [directory, *directory.rglob("*")] if path.is_dir())
    listed: list[str] = []
    plain_list, plain_scan = LocalStorage.list, os.scandir

    def counted(self: LocalStorage, prefix: str, start_after: str = "") -> Iterator[str]:
        listed.append(f"{self.url}/{prefix}".rstrip("/"))
        return plain_list(self, prefix, start_after)

    def scanned(path: str) -> Any:
        listed.append(str(path))
        return plain_scan(path)

    monkeypatch.setattr(LocalStorage, "list", counted)
    monkeypatch.setattr(os, "scandir", scanned)
    trials = create_trials(directory)
    assert sorted(listed) == folders
    assert [trial.tensor("loss").value(2).item() for trial in trials.values()] == [
        1 + int(name.rpartition("_")[2]) for name in trials
    ]
    assert listed.count(str(directory)) == 1


def test_runs_are_read_at_the_first_query_only(directory: Path) -> None:
    trials = create_trials(directory)
    assert len(trials) == 12
    trial = trials["sweep_1/run_4"]
    assert "not read yet" in repr(trial)
    assert trial.steps() == [0, 1, 2]
    assert "not read yet" not in repr(trial)
    assert "not read yet" in repr(trials["sweep_1/run_7"])


@pytest.mark.parametrize("refreshing", [True, False])
@pytest.mark.parametrize("query", QUERIES)
def test_every_query_is_answered_as_by_a_trial_that_was_read(directory: Path, query: str, refreshing: bool) -> None:
    run = "sweep_1/run_4"
    [lazy] = [trial for name, trial in create_trials(directory).items() if name == run]
    assert isinstance(lazy, TensorBoardTrial)
    eager = create_trials(directory, lazy=False)[run]
    assert isinstance(eager, TensorBoardTrial)
    with lazy.refreshing(refreshing):
        assert QUERIES[query](lazy) == QUERIES[query](eager)


def test_all_runs_are_read_at_once_if_not_lazy(directory: Path) -> None:
    trials = create_trials(directory, lazy=False)
    assert not [name for name, trial in trials.items() if "not read yet" in repr(trial)]
    with no_refresh(list(trials.values())):
        assert {tuple(trial.steps()) for trial in trials.values()} == {(0, 1, 2)}


def test_a_run_that_was_deleted_before_its_first_query(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, root := tmp_path / "copy")
    trials = create_trials(root)
    shutil.rmtree(root)
    for _ in range(2):
        with pytest.raises(RunNotFound):
            next(iter(trials.values())).steps()


def test_an_unread_trial_can_be_pickled_and_closed(directory: Path) -> None:
    trial = create_trials(directory)["sweep_0/run_0"]
    again: Trial = pickle.loads(pickle.dumps(trial))
    assert (again.name, again.steps()) == ("sweep_0/run_0", [0, 1, 2])
    trial.close()
    with pytest.raises(TrialClosed):
        trial.steps()
    assert "closed" in repr(trial)


def test_names_of_runs(tmp_path: Path) -> None:
    log(tmp_path / "only" / "one", scalars({"loss": [1]}))
    assert {name: trial.name for name, trial in create_trials(tmp_path).items()} == {"only/one": "one"}
    log(tmp_path / "two", scalars({"loss": [1]}))
    log(tmp_path, scalars({"loss": [1]}))
    names = {name: trial.name for name, trial in create_trials(tmp_path).items()}
    assert names == {tmp_path.name: tmp_path.name, "only/one": "only/one", "two": "two"}
    with create_trial(tmp_path, lazy=True) as trial:
        assert "not read yet" in repr(trial)
        assert trial.steps() == [0]


def test_field_of_hparams_is_read_lazily(tmp_path: Path) -> None:
    session = field(3, field(1, field(1, "lr") + field(2, b"\x11" + bytes(8))))
    content = record(logged("_hparams_/session_start_info", b"", plugin="hparams", plugin_content=session))
    log(tmp_path / "a", content)
    log(tmp_path / "b", content)
    assert [trial.hparams() for trial in create_trials(tmp_path).values() if isinstance(trial, TensorBoardTrial)] == [
        {"lr": 0.0}
    ] * 2
