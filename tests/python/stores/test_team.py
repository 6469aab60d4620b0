"""A team's bucket with runs in five formats, used by a new process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

import smdwidgets
from python.stores.places import Place
from smdwidgets import cli
from smdwidgets._core import ObjectStore
from smdwidgets.exceptions import RunNotFound
from smdwidgets.numpy import Hook
from smdwidgets.retention import disk_use
from smdwidgets.run_table import update_catalog
from smdwidgets.run_table.catalog_file import CatalogChanged, CatalogFile
from smdwidgets.sources.parquet import CATALOG

STEPS = 12
#: Runs of the last test. Each takes a dozen requests, and the server answers some hundred a second.
RUNS = 200


def losses(number: int) -> list[float]:
    """Return the losses of a run. One of ten runs has NaN from step 6 on."""
    return [float("nan") if number % 10 == 3 and step >= 6 else 1 / (step + 1) + number / 1e4 for step in range(STEPS)]


def hook_run(number: int, folder: Path) -> dict[str, bytes]:
    place = folder / str(number)
    with Hook(place) as hook:
        weights = np.full(4096, number, np.float32)
        for step, loss in enumerate(losses(number)):
            hook.save_scalar("loss", loss)
            hook.save_tensor("weights", weights + step)
            hook.step()
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def csv_run(number: int, folder: Path) -> dict[str, bytes]:
    rows = "".join(f"{step},{loss}\n" for step, loss in enumerate(losses(number)))
    return {"metrics.csv": f"step,loss\n{rows}".encode(), "hparams.yaml": f"lr: {number}\n".encode()}


def trainer_run(number: int, folder: Path) -> dict[str, bytes]:
    history = [{"step": step, "loss": loss} for step, loss in enumerate(losses(number))]
    return {"trainer_state.json": json.dumps({"global_step": STEPS, "log_history": history}, indent=1).encode()}


def mlflow_run(number: int, folder: Path) -> dict[str, bytes]:
    rows = "".join(f"17000000{step:02d}000 {loss} {step}\n" for step, loss in enumerate(losses(number)))
    about = f"run_id: {number}\nstatus: 3\nuser_id: ann\n"
    return {"meta.yaml": about.encode(), "metrics/loss": rows.encode(), "params/lr": f"{number}".encode()}


def text_run(number: int, folder: Path) -> dict[str, bytes]:
    lines = "".join(f"step: {step} loss: {loss} lr: 0.1\n" for step, loss in enumerate(losses(number)))
    return {"train.log": lines.encode()}


WRITERS = {"hooks": hook_run, "tables": csv_run, "trainers": trainer_run, "mlruns": mlflow_run, "logs": text_run}


def fill(place: Place, count: int, folder: Path, hooks: int) -> None:
    """Write runs in five formats.

    Of runs of hooks, which have many objects, there are fewer.
    """
    put: list[tuple[str, bytes]] = []
    for number in range(count):
        kind = list(WRITERS)[number % 5]
        if kind == "hooks" and number >= 5 * hooks:
            kind = "tables"
        files = WRITERS[kind](number, folder)
        put += [(f"team/{kind}/{number:04d}/{key}", content) for key, content in files.items()]
    with closing(ObjectStore(*place.core())) as store, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pair: store.put(*pair), put))


@pytest.fixture
def environment(s3: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in {**s3.environment(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    return dict(os.environ)


def rows(place: Place, endpoint: str) -> list[dict[str, Any]]:
    import boto3

    client = boto3.client("s3", endpoint_url=endpoint)
    content = client.get_object(Bucket=place.bucket, Key=f"team/{CATALOG}")["Body"].read()
    table: list[dict[str, Any]] = parquet.read_table(io.BytesIO(content)).to_pylist()
    return table


def test_a_catalog_in_a_bucket(s3: Place, environment: dict[str, str], tmp_path: Path) -> None:
    fill(s3, 10, tmp_path / "runs", hooks=2)
    address = s3.address("team")
    done = update_catalog(address)
    assert (done.runs, len(done.added), done.place) == (10, 10, f"{address}/{CATALOG}")
    cataloged = rows(s3, s3.endpoint)
    assert {row["format"] for row in cataloged} == {"smdebug", "table", "trainer state", "mlflow files", "text log"}
    assert [row["run"] for row in cataloged if row["findings"]] == ["mlruns/0003"]
    table = smdwidgets.runs(address, cache=False, findings=True)
    assert table.as_of
    assert [row.name for row in table] == [row["name"] for row in cataloged]
    by_name = {row.name: row for row in table}
    assert by_name["mlruns/0003"].findings
    assert by_name["tables/0001"].open().tensor("loss").value(0) == losses(1)[0]
    # The catalog itself is no run.
    assert [row.name for row in smdwidgets.runs(address, cache=False, catalog=False)] == [row.name for row in table]


def test_programs_that_write_at_the_same_time(s3: Place, environment: dict[str, str], tmp_path: Path) -> None:
    fill(s3, 4, tmp_path, hooks=0)
    address = s3.address("team")
    first, second = CatalogFile(address, {}), CatalogFile(address, {})
    update_catalog(address, findings=False)
    content = first.read()
    assert second.read() is not None
    second.write(content)
    first.write(content)  # as if the answer to its own upload was lost
    with pytest.raises(CatalogChanged):
        first.write(content.slice(0, 2))
    with ThreadPoolExecutor(4) as pool:
        for done in pool.map(lambda _: update_catalog(address), range(4)):
            assert done.runs == 4
    assert all(row["diagnosed"] for row in rows(s3, s3.endpoint))


def test_what_runs_take_in_a_bucket(s3: Place, environment: dict[str, str], tmp_path: Path, log_runs: Path) -> None:
    fill(s3, 5, tmp_path / "runs", hooks=1)
    log = min(log_runs.rglob("*tfevents*"), key=lambda path: path.stat().st_size)
    s3.put("team/tb/events.out.tfevents.1700000000.host", log.read_bytes())
    local = tmp_path / "copy"
    for number, (kind, writer) in enumerate(WRITERS.items()):
        for key, content in writer(number, tmp_path / "again").items():
            place = local / kind / f"{number:04d}" / key
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    (local / "tb").mkdir()
    (local / "tb" / "events.out.tfevents.1700000000.host").write_bytes(log.read_bytes())
    here = {one.name: one for one in disk_use(local)}
    there = {one.name: one for one in disk_use(s3.address("team"))}
    assert here.keys() == there.keys()
    for name, one in there.items():
        assert (one.kind, one.path) == (here[name].kind, f"{s3.address('team')}/{name}")
        if one.kind != "smdebug":  # whose files have times and hosts
            assert one.size == here[name].size
    hook = there["hooks/0000"]
    assert hook.tensors == here["hooks/0000"].tensors
    assert hook.parts["values"] == here["hooks/0000"].parts["values"]
    assert hook.size == sum(hook.parts.values())
    with pytest.raises(RunNotFound, match="no object has this prefix"):
        disk_use(s3.address("tame"))


@pytest.mark.slow
def test_many_runs_from_a_new_process(
    s3: Place, environment: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(s3, RUNS, tmp_path / "runs", hooks=5)
    address = s3.address("team")

    def said(*command: str) -> str:
        line = [sys.executable, "-m", "smdwidgets", *command]
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=True).stdout

    done = json.loads(said("catalog", address, "--json"))
    assert (done["runs"], len(done["added"])) == (RUNS, RUNS)
    cataloged = rows(s3, s3.endpoint)
    ill = sorted(
        int(row["run"].rpartition("/")[2])
        for row in cataloged
        if any(one["kind"] == "not_finite" for one in row["findings"])
    )
    assert ill == [number for number in range(RUNS) if number % 10 == 3]
    again = json.loads(said("catalog", address, "--json"))
    assert (again["added"], again["changed"], again["removed"]) == ([], [], [])
    table = json.loads(said("runs", address, "--json"))
    assert len(table) == RUNS
    assert len({row["kind"] for row in table}) == 5
    chosen = json.loads(said("runs", address, "--json", "--query", "last(loss) < 0.1 | top 20 by loss"))
    assert len(chosen) == 20
    assert cli.main(["diagnose", f"{address}/logs/0014", "--json"]) == 0
    capsys.readouterr()
