"""The explorer makes its overview from statistics that a cluster computes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, Event, LocalCluster

import smdwidgets
from python.survey import runs
from python.widgets.talk import Page
from servers import CREDENTIALS, rclone_server
from smdwidgets.survey import Survey, cluster
from smdwidgets.survey import survey as survey_module
from smdwidgets.survey.bins import UNREAD
from smdwidgets.trials import plans
from smdwidgets.trials.smdebug.run import SmdebugRun
from smdwidgets.widgets import live_survey
from smdwidgets.widgets.live_diagnosis import LiveDiagnosis

pytestmark = pytest.mark.slow

STEPS = 150
URL = "s3://runs/run"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, two levels below the directory that is served."""
    return runs.written(tmp_path_factory.mktemp("served") / "runs" / "run", runs.nan, STEPS)


@pytest.fixture(scope="module")
def bucket(directory: Path) -> Iterator[None]:
    """An S3 server, and the variables with which this process and the workers find it."""
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    with rclone_server(directory.parents[1]) as endpoint:
        found = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, "AWS_EC2_METADATA_DISABLED": "true"}
        for name, value in {**found, "AWS_CONFIG_FILE": os.devnull}.items():
            patch.setenv(name, value)
        yield
    patch.undo()


@pytest.fixture(scope="module")
def near_bucket(bucket: None) -> Iterator[LocalCluster]:
    """Two processes that have the variables."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def client(near_bucket: LocalCluster) -> Iterator[Client]:
    with Client(near_bucket, set_as_default=False) as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses, and parts of 24 steps."""
    monkeypatch.setattr(plans, "AIM", 0.01)
    monkeypatch.setattr(plans, "LEAST", 0.01)
    monkeypatch.setattr(live_survey, "PAUSE", 0.01)
    monkeypatch.setattr(live_survey, "SHARE", 0)
    monkeypatch.setattr(live_survey, "_PICTURES", 0.0)
    monkeypatch.setattr(cluster, "LOOK_EVERY", 0.05)


@pytest.fixture
def explore() -> Iterator[Callable[..., Any]]:
    widgets = []

    def made(*arguments: Any, **options: Any) -> Any:
        widgets.append(smdwidgets.explore(*arguments, **options))
        return widgets[-1]

    yield made
    smdwidgets.use(None)
    for widget in widgets:
        widget.close()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process compute no statistics."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("statistics are computed in this process")

    monkeypatch.setattr(SmdebugRun, "statistics", refuse)


class Seen:
    """What a page has received."""

    def __init__(self, widget: Any) -> None:
        self.page = Page(widget)
        self.readings: list[dict[str, Any]] = []
        #: Share of unread bins of each poster.
        self.unread: list[float] = []
        self.sentence = ""
        self._take(self.page.ask("hello", protocol=1, again=False)[1])

    def _take(self, packets: list[Any]) -> None:
        for head, arrays in packets:
            if head["kind"] == "reading":
                self.readings.append(head)
            elif head["kind"] == "survey" and "shown" in arrays:
                self.unread.append(float((arrays["flag"] & UNREAD).astype(bool).mean()))
            elif head["kind"] == "findings":
                self.sentence = "".join(clause["text"] for clause in head["sentence"])

    def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait for a state of reading; return it."""
        deadline = time.monotonic() + 120
        while not (self.readings and condition(self.readings[-1])):
            assert time.monotonic() < deadline, self.readings[-1:]
            time.sleep(0.01)
            taken, self.page.updates = self.page.updates, []
            self._take(taken)
        return self.readings[-1]


def ended(reading: dict[str, Any]) -> bool:
    return reading["state"] not in ("reading",)


@pytest.mark.usefixtures("elsewhere")
def test_workers_compute_the_overview(
    client: Client, explore: Any, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_by_page, added, add = threading.Event(), [], Survey._add

    def held(survey: Survey, *arguments: Any) -> None:
        if len(added) == 2:
            assert seen_by_page.wait(120)
        add(survey, *arguments)
        added.append(arguments)

    monkeypatch.setattr(Survey, "_add", held)
    with smdwidgets.use(client):
        widget = explore(URL)  # it reads later, in another thread
    seen = Seen(widget)
    part = seen.until(lambda reading: 0 < reading["done"] < reading["total"])
    assert (part["state"], part["workers"]) == ("reading", 2)
    seen.until(lambda _: 0 < seen.unread[-1] < 1)
    seen_by_page.set()
    assert seen.until(ended)["state"] == "complete", seen.readings[-1]
    assert len(added) > 3
    seen.until(lambda _: seen.sentence.startswith("`layers.2.weight` is NaN from step 120"))
    seen.until(lambda _: seen.unread[-1] == 0)


def test_the_overview_is_that_of_this_process(client: Client, explore: Any, directory: Path) -> None:
    smdwidgets.use(client)
    far = explore(URL)
    Seen(far).until(ended)
    mine = far.live_survey._runs[0].survey
    smdwidgets.use(None)
    its = Survey(smdwidgets.create_trial(directory))
    its.update()
    assert mine.names() == its.names()
    for stat in ("surprise", "size", "update", "zeros", "not_finite"):
        one, other = (each.bins(its.names(), "", 0, stat, 0, 0, STEPS) for each in (mine, its))
        for column in ("lo", "mid", "hi", "n", "flag"):
            np.testing.assert_array_equal(getattr(one, column), getattr(other, column), stat)
    assert mine.findings() == its.findings()


def _hold(name: str) -> None:
    Event(name).wait()


def test_stop_cancels_the_parts_on_the_workers(client: Client, explore: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveDiagnosis, "check", lambda self: None)  # it has parts, too
    held = [client.submit(_hold, "held", key=f"held-{number}", pure=False) for number in range(2)]
    until(lambda: sum(map(len, client.processing().values())) == 2)
    smdwidgets.use(client)
    seen = Seen(explore(URL))
    seen.until(lambda reading: reading.get("workers") == 2)
    until(lambda: parts_of(client))  # they wait for the workers
    seen.page.ask("read_all", do="stop", run=0)
    assert seen.until(ended)["state"] == "stopped"
    until(lambda: not parts_of(client))
    Event("held", client=client).set()
    client.gather(held)
    seen.page.ask("read_all", do="start", run=0)
    assert seen.until(lambda reading: reading["state"] == "complete")["done"] == 13 * (STEPS)


def parts_of(client: Client) -> list[str]:
    """Return the keys of the parts that the scheduler knows."""
    return client.run_on_scheduler(_keys)


def _keys(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if str(key).startswith("smdwidgets-")]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("large", [False, True], ids=["small run", "large run"])
def test_a_closed_client_is_said_and_this_process_reads(
    near_bucket: LocalCluster, explore: Any, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr(survey_module, "SAMPLE_BYTES", 40_000)
    with Client(near_bucket, set_as_default=False) as client:
        smdwidgets.use(client)
    seen = Seen(explore(URL))
    reading = seen.until(ended)
    assert reading["state"] == ("sampled" if large else "complete")
    assert reading["message"].startswith("Read without the cluster: the Dask client is closed")
    assert reading["done"]
    assert "workers" not in reading


def test_a_client_that_is_closed_while_workers_read(
    near_bucket: LocalCluster, explore: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey_module, "SAMPLE_BYTES", 1_000)  # less than what is left, however much has come before
    client = Client(near_bucket, set_as_default=False)
    smdwidgets.use(client)
    original = Survey._add

    def add(survey: Survey, *arguments: Any) -> None:
        original(survey, *arguments)
        if client.status == "running":
            client.close()

    monkeypatch.setattr(Survey, "_add", add)
    reading = Seen(explore(URL)).until(ended)
    assert reading["state"] == "sampled"
    assert "the Dask client is clos" in reading["message"]


def test_workers_of_another_version(client: Client, explore: Any) -> None:
    [worker, *_] = client.scheduler_info()["workers"]
    client.run(_set_version, "0.0.1", workers=[worker])
    try:
        smdwidgets.use(client)
        reading = Seen(explore(URL)).until(ended)
    finally:
        client.run(_set_version, smdwidgets.__version__, workers=[worker])
    assert reading["state"] == "complete"
    assert "workers have other versions" in reading["message"]


def _set_version(version: str) -> None:
    from smdwidgets import _core

    _core.__version__ = version


def test_a_cluster_without_workers(bucket: None, explore: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WITHOUT_WORKERS", 0.3)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        Client(empty, set_as_default=False) as client,
    ):
        smdwidgets.use(client)
        seen = Seen(explore(URL))
        reading = seen.until(ended)
    assert reading["state"] == "complete"
    assert reading["message"].startswith("Read without the cluster: the cluster has had no workers for")
    assert any(reading.get("workers") == 0 for reading in seen.readings)
