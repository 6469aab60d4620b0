"""The table of what each trainer saves, compared with the runs of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sybil import Document

from frameworks.trainer_scripts import diagnosed, run
from pages.blocks import blocks
from smdwidgets import Trial, create_trial

PAGES = Path(__file__).resolve().parents[2] / "docs" / "trainers"
#: Rows of the table, and the page and the script of each.
SCRIPTS = {
    "PyTorch": ("pytorch", "train.py"),
    "Accelerate": ("pytorch", "accelerated.py"),
    "Transformers": ("transformers", "train.py"),
    "Lightning": ("lightning", "train.py"),
    "Keras": ("keras", "train.py"),
    "JAX": ("jax", "train.py"),
    "XGBoost": ("xgboost", "train.py"),
    "LightGBM": ("lightgbm", "train.py"),
    "scikit-learn": ("sklearn", "train.py"),
}
_IN_OR_OUTPUT = re.compile(r"_(in|out)put_\d+$|/(in|out)puts$")


def table() -> dict[str, dict[str, str]]:
    """Return the cells of the table by trainer and column."""
    text = (PAGES / "index.md").read_text(encoding="utf-8").partition("## What is saved")[2]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    columns = lines[0]
    return {cells[0]: dict(zip(columns[1:], cells[1:], strict=True)) for cells in lines[2:]}


def rows_for(environment: str) -> Iterator[str]:
    """Yield the trainers whose scripts run in this environment."""
    for trainer in SCRIPTS:
        if _script(trainer).needs == environment:
            yield trainer


def _script(trainer: str):
    page, title = SCRIPTS[trainer]
    return next(one for one in blocks(Document.parse(str(PAGES / f"{page}.md"))) if one.title == title)


def check(trainer: str, folder: Path) -> None:
    """Run the script of a trainer, and compare its run with the table."""
    run(str(_script(trainer).source), folder)
    (found,) = (folder / "runs").iterdir()
    with create_trial(found) as trial:
        assert _held(trial) == {column: cell == "yes" for column, cell in table()[trainer].items()}


def _held(trial: Trial) -> dict[str, bool]:
    series = set(diagnosed(trial).values())
    kinds = {kind for kind, _ in series}
    losses = set(trial.tensor_names(collection="losses"))
    return {
        "training loss": any(kind == "loss" and role != "validation" for kind, role in series),
        "validation loss": ("loss", "validation") in series,
        "learning rate": "learning rate" in kinds,
        "gradient norm": "gradient norm" in kinds,
        "weights": _has(trial, "weights"),
        "gradients": _has(trial, "gradients"),
        "inputs and outputs": any(_IN_OR_OUTPUT.search(name) for name in set(trial.tensor_names()) - losses),
    }


def _has(trial: Trial, collection: str) -> bool:
    return collection in trial.collections() and bool(trial.tensor_names(collection=collection))
