"""Other processes read what this one opened, also if one of them is lost."""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import signal
from pathlib import Path

import dask
import numpy as np
import pytest

from python.trials import runs
from smdwidgets import create_trial
from smdwidgets.exceptions import CorruptDataError, VersionMismatch
from smdwidgets.trials import shipping
from smdwidgets.trials.shipping import pack, use_storage_options

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(13)


@pytest.fixture
def trial(tmp_path):
    runs.collections(tmp_path)
    for step in range(20):
        runs.step(tmp_path, step, {"w": RNG.normal(size=(30, 5)).astype(np.float32), "count": np.arange(3) + step})
    return create_trial(runs.end(tmp_path))


def stacked(tensor):
    return np.stack([tensor.value(step) for step in tensor.steps()])


def without_index(trial):
    """Delete the index files, so that no process can read them again."""
    shutil.rmtree(Path(trial.path, "index"))


def test_processes(trial):
    expected, lazy = stacked(trial.tensor("w")), trial.tensor("w").to_dask(chunk_bytes=1200)
    without_index(trial)
    with dask.config.set(scheduler="processes", num_workers=2):
        assert lazy.compute().tobytes() == expected.tobytes()


@pytest.mark.parametrize("verify", ["record", "none"])
def test_workers(trial, client, verify):
    expected = {name: stacked(trial.tensor(name)) for name in ("w", "count")}
    statistics = trial.statistics(cache=False).to_pandas()
    arrays = {name: trial.tensor(name).to_dask(chunk_bytes=400, verify=verify) for name in expected}
    dataset = trial.to_xarray(chunk_bytes=400, verify=verify)
    frame = trial.to_dask_dataframe(partition_rows=10)
    without_index(trial)
    for name, lazy in arrays.items():
        assert client.compute(lazy).result().tobytes() == expected[name].tobytes()
    read = client.compute(dataset).result()
    assert read["w"].values.tobytes() == expected["w"].tobytes()
    assert read["wall_time"].values.tobytes() == dataset["wall_time"].compute(scheduler="synchronous").values.tobytes()
    found = client.compute(frame).result()
    assert found["l2"].to_numpy().tobytes() == statistics["l2"].to_numpy().tobytes()
    assert found["name"].tolist() == statistics["name"].tolist()


def test_each_worker_opens_the_run_once(trial, client):
    def opened():
        from smdwidgets.trials import shipping

        return [trial.path for trial in shipping._opened._runs.values()]

    arrays = [trial.tensor(name).to_dask(chunk_bytes=200) for name in ("w", "count")]
    client.gather(client.compute(arrays))
    for paths in client.run(opened).values():
        assert paths.count(trial.path) <= 1
    assert any(trial.path in paths for paths in client.run(opened).values())


def test_a_worker_that_is_lost_changes_nothing(trial, client, tmp_path):
    expected = stacked(trial.tensor("w"))
    mark = str(tmp_path / "killed")

    def die_once(block):
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return block
        return os.kill(os.getpid(), signal.SIGKILL)

    # With `meta`, Dask does not try the function in this process.
    lazy = trial.tensor("w").to_dask(chunk_bytes=600).map_blocks(die_once, meta=np.empty((0, 0, 0), np.float32))
    assert client.compute(lazy).result().tobytes() == expected.tobytes()
    assert Path(mark).exists()
    client.wait_for_workers(2)


def test_other_versions_are_refused_first(trial, client):
    other = dataclasses.replace(pack(trial.reader), version="0.0.1", reopening=b"not read")
    with pytest.raises(VersionMismatch, match=r"but got a run from smdwidgets '0\.0\.1'; install the same version"):
        pickle.loads(pickle.dumps(other)).open()
    with pytest.raises(VersionMismatch, match=r"0\.0\.1"):
        client.submit(lambda shipment: shipment.open(), other).result()


def test_a_shipment_answers_as_the_trial_does(trial):
    sent = pickle.loads(pickle.dumps(pack(trial.reader))).open()
    assert type(sent) is type(trial)
    assert (sent.name, sent.path, sent.steps(), sent.tensor_names()) == (
        trial.name,
        trial.path,
        trial.steps(),
        trial.tensor_names(),
    )
    assert sent.workers() == trial.workers()
    assert list(sent.collections()) == list(trial.collections())
    assert sent.tensor("w").value(7).tobytes() == trial.tensor("w").value(7).tobytes()
    assert sent is not trial
    assert sent.run_end() == trial.run_end()
    part = pack(trial.reader, ["w"], [3, 5]).open()
    assert (part.tensor_names(), part.steps()) == (["w"], [3, 5])
    assert part.reductions("w", reductions="mean")["step"].tolist() == [3, 5]


def test_a_shipment_of_a_growing_run_is_a_snapshot(tmp_path):
    runs.run(tmp_path, range(3), ended=False)
    trial = create_trial(tmp_path)
    shipment = pack(trial.reader)
    assert (shipment.last_step, shipment.ended) == (2, False)
    runs.step(tmp_path, 3)
    assert trial.steps() == [0, 1, 2, 3]
    assert shipment.open().steps() == [0, 1, 2]
    assert pack(trial.reader).run_identity == shipment.run_identity
    assert pack(trial.reader).identity != shipment.identity


def test_a_part_is_kept_and_few_are(trial, monkeypatch):
    shipping._opened.forget()
    first = pack(trial.reader, ["w"], [1])
    assert first.open() is pickle.loads(pickle.dumps(first)).open()
    monkeypatch.setattr(shipping, "KEPT_COLUMNS", 3 * first.columns)
    kept = first.open()
    for step in range(2, 12):
        pack(trial.reader, ["w"], [step]).open()
    assert first.open() is not kept
    assert len(shipping._opened._parts) <= 4
    assert len(shipping._opened._runs) == 1


def test_a_damaged_catalog_is_refused(trial):
    sent = pack(trial.reader)
    for wrong in (
        sent.catalog[:-9],
        b"x" + sent.catalog,
        sent.catalog[:20] + bytes([sent.catalog[20] ^ 1]) + sent.catalog[21:],
    ):
        with pytest.raises(CorruptDataError, match="catalog"):
            dataclasses.replace(sent, catalog=wrong, identity="wrong").open()
    with pytest.raises(CorruptDataError, match="invalid size"):
        dataclasses.replace(sent, columns=1 << 40, identity="wrong").open()


def test_forked_children_open_the_run_themselves(trial):
    shipment = pack(trial.reader)
    parent = shipment.open()
    child = os.fork()
    if not child:
        os._exit(0 if shipment.open() is not parent and shipment.open().steps() == trial.steps() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_storage_options_are_those_of_a_bucket(trial):
    use_storage_options({"no_such_option": True})
    try:
        assert pack(trial.reader).open().steps() == trial.steps()
    finally:
        use_storage_options(None)
