"""A worker notices the incidents of others by their records."""

from __future__ import annotations

from smdwidgets.hooks.incidents.peers import PeerIncidents
from smdwidgets.incident import INCIDENTS_PREFIX, Incident


def write(root, worker, name, step):
    folder = root / INCIDENTS_PREFIX / worker
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_bytes(Incident(worker, step, ("NaN in 'w'",)).to_json())


def test_new_records_of_other_workers_are_noticed_once(tmp_path):
    write(tmp_path, "worker_1", "1_10_0", 5)
    peers = PeerIncidents(tmp_path, "worker_0", 3)
    assert peers.folder == tmp_path / INCIDENTS_PREFIX / "worker_0"
    assert peers.new() == []
    write(tmp_path, "worker_0", "2_10_0", 30)
    write(tmp_path, "worker_2", "3_11_0", 31)
    assert peers.new() == [("3_11_0", 31)]
    assert peers.new() == []
    broken = tmp_path / INCIDENTS_PREFIX / "worker_1" / "4_10_0.json"
    broken.write_bytes(b"{")
    (broken.parent / "notes.txt").write_text("no record")
    assert peers.new() == []


def test_many_workers_are_looked_at_in_turn(tmp_path):
    peers = PeerIncidents(tmp_path, "worker_0", 200)
    write(tmp_path, "worker_150", "3_11_0", 31)
    assert [one for _ in range(4) for one in peers.new()] == [("3_11_0", 31)]
