"""Read a run with one library and print its content as JSON.

Usage: `python observe.py {smdebug|smdwidgets} RUN`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from describe import describe

MOST_VALUES = 4000


def observe(library: str, path: str) -> dict[str, Any]:
    """Return what a library reads from a run.

    The result has names, steps, modes, collections, values and the end marker.
    """
    os.environ.setdefault("SMDEBUG_LOG_LEVEL", "off")
    os.environ.setdefault("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0")
    os.environ.setdefault("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "1")
    logging.disable(logging.CRITICAL)
    if library == "smdwidgets":
        import smdwidgets

        smdwidgets.install_as_smdebug()
    from smdebug import modes
    from smdebug.trials import create_trial

    trial = create_trial(path)
    found: dict[str, Any] = {
        "names": sorted(trial.tensor_names()),
        "steps": {mode.name: list(trial.steps(mode)) for mode in modes},
        "workers": sorted(trial.workers()),
        "loaded_all_steps": bool(trial.loaded_all_steps),
        "collections": {name: sorted(trial.tensor_names(collection=name)) for name in sorted(trial.collections())},
    }
    values: dict[str, Any] = {}
    for name in found["names"]:
        tensor = trial.tensor(name)
        for step in tensor.steps():
            for worker in sorted(tensor.workers(step)):
                if len(values) == MOST_VALUES:
                    break
                try:
                    value = describe(tensor.value(step, worker=worker))
                except Exception as error:
                    try:
                        value = describe(tensor.reduction_values(step, worker=worker))
                    except Exception:
                        value = {"raises": type(error).__name__}
                values[f"{name} at step {step} of {worker}"] = value
    found["values"] = values
    return found


if __name__ == "__main__":
    print(json.dumps(observe(*sys.argv[1:3])))
