"""A live run to look at: a small classifier trains in a process of its own and writes every step, with mistakes planted.

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
"""How long the training lasts, unless said."""
RUN_VARIABLE = "SMDWIDGETS_DEMO_RUN"
"""Set by `smdwidgets demo`: the run that it has started, for the notebooks to attach to."""
RULES: dict[str, dict[str, str]] = {
    "UnchangedTensor": {"tensor_regex": r"^fc\d\.weight$"},
    "LossSpike": {},
    "DeadRelu": {},
}
"""Rules that find what is wrong with the demo's training, with their parameters."""

_started: dict[str, TrainingProcess] = {}


def run(seconds: float | None = None, directory: str | os.PathLike[str] = "runs/demo") -> str:
    """The path of a live run: the one that ``smdwidgets demo`` has started, or else a training started here and now.

    It goes on in a process of its own for about two minutes, and ends with this one. Called again it gives the same run
    while that is being written, and begins a new one after it.

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
    """The folder of the notebooks: the checkout's, or that of the installed package."""
    here = Path(__file__).resolve().parent
    checkout = here.parents[2] / "notebooks"
    return checkout if (checkout / "01_look_around.ipynb").is_file() else here / "notebooks"
