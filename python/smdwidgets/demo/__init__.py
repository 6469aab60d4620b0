"""Start a demo run: a small classifier that trains in a separate process.

The training saves every step. Its code contains two deliberate mistakes, which rules detect.

>>> from smdwidgets import demo
>>> run = demo.run()                       # doctest: +SKIP
>>> import smdwidgets
>>> smdwidgets.explore(run)                # doctest: +SKIP
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path

from smdwidgets.demo.process import TrainingProcess

__all__ = ["RULES", "RUN_VARIABLE", "SECONDS", "TrainingProcess", "notebooks", "run"]

SECONDS = 120.0
"""Default duration of the training in seconds."""
RUN_VARIABLE = "SMDWIDGETS_DEMO_RUN"
"""Environment variable with the path of the run that `smdwidgets demo` started, for the notebooks."""
RULES: dict[str, dict[str, str]] = {
    "UnchangedTensor": {"tensor_regex": r"^fc\d\.weight$"},
    "LossSpike": {},
    "DeadRelu": {},
}
"""Rules that detect the mistakes in the demo training, with their parameters."""

_started: dict[str, TrainingProcess] = {}


def run(seconds: float | None = None, directory: str | os.PathLike[str] = "runs/demo") -> str:
    """Return the path of a demo run, and start the training if none is running.

    If ``smdwidgets demo`` started this program, its run is returned. Otherwise the training runs in a separate process
    and stops when this process exits. While it runs, further calls return the same run; after that, a call starts a new
    training.

    Args:
        seconds: duration of the training; by default the environment variable ``SMDWIDGETS_DEMO_SECONDS``, or 120.
        directory: where the run is saved.

    >>> path = run(seconds=30)             # doctest: +SKIP
    """
    attached = os.environ.get(RUN_VARIABLE)
    if attached and Path(attached).is_dir():
        return attached
    if seconds is None:
        seconds = float(os.environ.get("SMDWIDGETS_DEMO_SECONDS", SECONDS))
    place = str(Path(directory).absolute())
    process = _started.get(place)
    if process is None or not process.running:
        process = _started[place] = TrainingProcess(place, seconds)
        atexit.register(process.stop)
        process.wait_for_first_steps()
    return place


def notebooks() -> Path:
    """Return the notebook directory of the checkout or the installed package."""
    here = Path(__file__).resolve().parent
    checkout = here.parents[2] / "notebooks"
    return checkout if (checkout / "01_look_around.ipynb").is_file() else here / "notebooks"
