"""Read the files that a hook wrote, without the analysis API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from smdwidgets import _core


class Written:
    """The files of a run, read only according to the format specification."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def index(self, step: int, worker: str = "worker_0") -> dict[str, Any]:
        return json.loads((self.root / f"index/{step // 1000:09d}/{step:012d}_{worker}.json").read_bytes())

    def steps(self, worker: str = "worker_0") -> list[int]:
        return sorted(int(path.name[:12]) for path in self.root.glob(f"index/*/*_{worker}.json"))

    def names(self, step: int, worker: str = "worker_0") -> list[str]:
        return [entry["tensorname"] for entry in self.index(step, worker)["tensor_payload"]]

    def value(self, name: str, step: int, worker: str = "worker_0") -> Any:
        return self.values(step, worker)[name]

    def values(self, step: int, worker: str = "worker_0") -> dict[str, Any]:
        """Return all values of a step."""
        index = self.index(step, worker)
        events = (self.root / index["meta"]["event_file_name"]).read_bytes()
        found = {}
        for entry in index["tensor_payload"]:
            record = events[entry["start_idx"] : entry["start_idx"] + entry["length"]]
            assert len(record) == entry["length"]
            assert _core.crc32c(record[12:-4]) == entry["crc32c"]
            found[entry["tensorname"]] = _core.decode(record)
        return found

    def mode(self, step: int) -> tuple[str, int]:
        meta = self.index(step)["meta"]
        return meta["mode"], meta["mode_step"]

    def collections(self, worker: str = "worker_0") -> dict[str, Any]:
        content = json.loads((self.root / f"collections/000000000/{worker}_collections.json").read_bytes())
        return content["collections"]

    @property
    def ended(self) -> bool:
        return (self.root / "training_job_end.ts").exists()

    def leftovers(self) -> list[str]:
        return [str(path) for path in self.root.rglob("*") if path.name.endswith((".tmp", ".smd"))]
