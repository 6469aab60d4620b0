"""Write the golden TensorBoard log with PyTorch's SummaryWriter.

Usage: `python write_tensorboard.py FOLDER`.

The run `trained` has two losses, Markdown, precision-recall curves and hyperparameters; `restarted` was started twice,
the second time from step 40.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from torch.utils.tensorboard import SummaryWriter

BEGAN = 1_700_000_000.0
NOTES = "# Notes\n\n| step | loss |\n|---:|---|\n| 0 | **2.5** |\n\n<script>alert(1)</script>\n"


def trained(folder: Path) -> None:
    """Write the run with every kind of data."""
    labels = np.arange(200) % 2
    with SummaryWriter(str(folder)) as log:
        for step in range(0, 100, 10):
            log.add_scalar("train_loss", 2.5 - step / 50, step, walltime=BEGAN + step * 2.5)
            if step % 30 == 0:
                log.add_scalar("val_loss", 2.75 - step / 50, step, walltime=BEGAN + step * 2.5 + 1)
        log.add_text("notes", NOTES, 0, walltime=BEGAN)
        for step in (0, 50):
            scores = np.where(labels == 1, 0.3 + step / 100, 0.25) + np.linspace(0, 0.2, 200)
            log.add_pr_curve("pr", labels, scores, step, num_thresholds=11, walltime=BEGAN + step * 2.5)
        log.add_hparams({"lr": 0.125, "optimizer": "adam", "amp": True}, {"best": 0.7}, run_name=".")


def restarted(folder: Path) -> None:
    """Write a run that was started again from an earlier step, in the same directory."""
    for launch, steps in enumerate((range(0, 80, 10), range(40, 100, 10))):
        with SummaryWriter(str(folder), filename_suffix=f".{launch}") as log:
            for step in steps:
                log.add_scalar("loss", launch * 10 + step / 100, step, walltime=BEGAN + launch * 1000 + step)
        time.sleep(1.1)  # the name of an event file contains the second in which it was begun


if __name__ == "__main__":
    trained(Path(sys.argv[1]) / "trained")
    restarted(Path(sys.argv[1]) / "restarted")
