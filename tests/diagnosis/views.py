"""Other views of a saved run: fewer of its saves, or its first part."""

from __future__ import annotations

import shutil
from pathlib import Path

import smdwidgets


def every_fifth_save(run, directory, save_every):
    """Copy a run with every fifth of its saves, as if it had been saved less often."""
    shutil.copytree(run, directory, ignore=lambda folder, names: _dropped(names, 5 * save_every))
    return directory


def _dropped(names, every):
    """Return the index files of steps that are no multiple of a number."""
    steps = {name: name.partition("_")[0] for name in names if name.endswith(".json")}
    return [name for name, step in steps.items() if step.isdecimal() and int(step) % every]


def cut(run: str | Path, end):
    """Open a run as it was before a step."""
    return smdwidgets.create_trial(str(run), range_steps=(None, end))
