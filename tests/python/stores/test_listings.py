"""How often a run in a store is listed when it is opened and read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import smdwidgets
from python.stores.places import Place
from python.stores.test_team import csv_run, hook_run, mlflow_run
from smdwidgets.run_table.discovery import find_remote_runs
from smdwidgets.run_table.summary import summarize
from smdwidgets.storage.remote import RemoteStorage


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the listings of each folder, by key in the bucket."""
    counts: Counter[str] = Counter()
    for method in ("folder", "listing"):
        call = getattr(RemoteStorage, method)

        def counted(self: RemoteStorage, key: str, *args: Any, call: Any = call, **kwargs: Any) -> Any:
            counts[self.address.below(key)] += 1
            return call(self, key, *args, **kwargs)

        monkeypatch.setattr(RemoteStorage, method, counted)
    return counts


@pytest.fixture
def place(s3: Place, tmp_path: Path) -> Place:
    for name, writer in (("table", csv_run), ("ml", mlflow_run), ("hook", hook_run)):
        for key, content in writer(1, tmp_path).items():
            s3.put(f"team/{name}/{key}", content)
    return s3


def test_opening_a_run_lists_it_once(place: Place, listed: Counter[str]) -> None:
    options = {"storage_options": place.options()}
    with smdwidgets.create_trial(place.address("team/table"), **options):
        pass
    # A run of a hook is looked for first, also where SageMaker puts it.
    looks = {"team/table/collections/000000000/": 1, "team/table/debug-output/collections/000000000/": 1}
    assert listed == {"team/table/": 2, **looks, "team/table/debug-output/": 1}
    listed.clear()
    with smdwidgets.create_trial(place.address("team/hook"), **options):
        pass
    assert listed == {"team/hook/collections/000000000/": 1, "team/hook/": 1}


@pytest.mark.parametrize("findings", [False, True])
def test_a_row_of_the_table_takes_one_listing_of_its_run(place: Place, listed: Counter[str], findings: bool) -> None:
    address = place.address("team")
    runs = {run.name: run for run in find_remote_runs(address, {"storage_options": place.options()})}
    assert set(listed.values()) == {1}
    for name, folders in (("table", {""}), ("ml", {"", "metrics/", "params/"})):
        listed.clear()
        assert summarize(runs[name], with_findings=findings)["tags"]["loss"]["count"] == 12
        assert listed == {f"team/{name}/{folder}": 1 for folder in folders}
