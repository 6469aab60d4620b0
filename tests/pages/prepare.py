"""Data that pages use: runs, logs, a bucket.

The blocks of a page call this `prepare`.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from python.trials import runs


class Prepare:
    """Creates what a page needs, and removes it afterwards."""

    def __init__(self, kept: Path, cleared: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self._kept = kept
        self._cleared = cleared
        self._patch = patch

    def demo(self, directory: str) -> None:
        """The run of `smdwidgets demo`, ended: 330 steps, two faults."""
        from smdwidgets.demo import training

        once = self._kept / "demo"
        if not once.exists():
            training.train(once)
        shutil.copytree(once, directory)

    def small(self, directory: str) -> None:
        """Write steps 0 to 80 by tens, with known values; each third step is of mode EVAL."""
        from smdwidgets import Collection, modes

        root = Path(directory)
        runs.collections(root, given=[Collection("weights", ["^fc.*weight$"])])
        for step in range(0, 90, 10):
            values = {"loss": np.float32(10 / (step + 10)), "fc2.weight": np.ones((3, 2), np.float32)}
            values |= {"fc1.weight": np.full((4, 3), step, np.float32), "gradient/fc1.weight": np.ones((4, 3))}
            mode = modes.EVAL if step % 30 == 20 else modes.TRAIN
            runs.step(root, step, values, mode=mode, mode_step=step // 10)
        runs.end(root)

    def vanishing(self, directory: str) -> None:
        """Write thirty steps with vanishing gradients and a falling loss."""
        from smdwidgets.numpy import Hook

        with Hook(directory) as hook:
            for step in range(30):
                hook.save_tensor("gradient/fc1.weight", np.full((4, 3), 0.4**step, np.float32), "gradients")
                hook.save_tensor("loss", np.float32(0.8**step), "losses")
                hook.step()

    def log(self, directory: str, tag: str = "loss/train") -> None:
        """Write an event file of TensorBoard."""
        from tensorboardX import SummaryWriter

        with SummaryWriter(directory) as writer:
            for step in range(20):
                writer.add_scalar(tag, 1 / (step + 1), step)
                writer.add_histogram("fc1.weight", np.linspace(-1, 1, 50) * step, step)

    def bucket(self, address: str) -> None:
        """Start a local server with a bucket that contains a run."""
        from python.s3.servers import CREDENTIALS, moto_server

        for name in [name for name in os.environ if name.startswith("AWS_")]:
            self._patch.delenv(name)
        for name, value in {**CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}.items():
            self._patch.setenv(name, value)
        endpoint = self._cleared.enter_context(moto_server())
        self._patch.setenv("AWS_ENDPOINT_URL", endpoint)

        import boto3

        name, _, prefix = address.removeprefix("s3://").partition("/")
        client = self._cleared.enter_context(closing(boto3.client("s3")))
        client.create_bucket(Bucket=name)
        self.demo("in-the-bucket")
        for path in sorted(Path("in-the-bucket").rglob("*")):
            if path.is_file():
                key = f"{prefix}/{path.relative_to('in-the-bucket').as_posix()}"
                client.upload_file(str(path), name, key)
