"""What a table of runs reads of each run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import smdwidgets
from smdwidgets import _core
from smdwidgets.trials.tensorboard.run import LocalTensorBoardRun


def test_each_run_is_opened_once_and_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        records = (_core.scalar_record("loss", step, 1.0 + step, 1 / (step + 1)) for step in range(5))
        (tmp_path / name / "events.out.tfevents.1.h").write_bytes(_core.version_record(1.0) + b"".join(records))
    counts: Counter[str] = Counter()
    refresh = LocalTensorBoardRun.refresh

    def counted(run: Any) -> None:
        counts[run.path] += 1
        refresh(run)

    monkeypatch.setattr(LocalTensorBoardRun, "refresh", counted)
    table = smdwidgets.runs(tmp_path, cache=False)
    assert [row.name for row in table] == ["a", "b", "c"]
    assert set(counts.values()) == {1}
