"""The kinds that a diagnosis names, for tests of logs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import smdwidgets


def kinds_of(run: Any) -> list[str]:
    """Return the kinds of the findings of a run, without notes."""
    return [one.kind for one in smdwidgets.diagnose(run).findings]


def kinds(every: int = 1, **series: np.ndarray) -> list[str]:
    """Return the same of series with a value every so many steps.

    `__` in a name is a slash.
    """
    return kinds_of(
        {name.replace("__", "/"): (every * np.arange(len(one)), np.asarray(one)) for name, one in series.items()}
    )


def of_trainer(folder: Path, rows: list[dict[str, Any]], **state: Any) -> list[str]:
    """Return the same of the state that Transformers writes."""
    folder.mkdir(exist_ok=True)
    file = folder / "trainer_state.json"
    last = rows[-1]["step"]
    file.write_text(
        json.dumps({"global_step": last, "max_steps": last, "num_train_epochs": 3, "log_history": rows, **state})
    )
    os.utime(file, (0, 0))  # a training that has ended
    return kinds_of(folder)
