"""Data that pages use: runs, logs, a bucket.

The blocks of a page call this `prepare`.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
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
        self._stores: list[object] = []

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

    def log(self, directory: str, tag: str = "loss/train") -> None:
        """Write an event file of TensorBoard."""
        from tensorboardX import SummaryWriter

        with SummaryWriter(directory) as writer:
            for step in range(20):
                writer.add_scalar(tag, 1 / (step + 1), step)
                writer.add_histogram("fc1.weight", np.linspace(-1, 1, 50) * step, step)

    def bucket(self, address: str) -> None:
        """Start a local server that has a run at the address.

        The environment then says where it is.
        """
        from python.stores.places import places, without_clouds
        from servers import FaultyProxy

        kinds = {"s3": "moto", "gs": "google", "az": "azure", "http": "web"}
        scheme, _, rest = address.partition("://")
        host, _, rest = rest.partition("/") if scheme == "http" else ("", "", rest)
        name, _, prefix = rest.partition("/")
        if not self._stores:
            for variable in without_clouds(os.environ):
                self._patch.delenv(variable)
            for variable, value in {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}.items():
                self._patch.setenv(variable, value)
        folder = Path(f"server-of-{scheme}").absolute()
        folder.mkdir()
        place = self._cleared.enter_context(places(folder)).new(kinds[scheme], name)
        for variable, value in place.environment(folder).items():
            self._patch.setenv(variable, value)
        if host:
            # A proxy finds the host, which is none of this machine.
            proxy = self._cleared.enter_context(FaultyProxy(place.endpoint))
            self._patch.setenv("http_proxy", proxy.endpoint)
            self._patch.setenv("no_proxy", "127.0.0.1,localhost")
        if not self._stores:
            self.demo("in-the-bucket")
        self._stores.append(place)
        place.upload(Path("in-the-bucket"), prefix)
