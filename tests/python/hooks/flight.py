"""A flight recorder with the writer of steps behind it, fed by hand."""

from __future__ import annotations

import numpy as np

from smdwidgets import _core
from smdwidgets.hooks.capture.arrays import Staging, copy_tensor
from smdwidgets.hooks.capture.captured import Captured, StepStatistics
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.incidents.flight_recorder import FlightRecorder
from smdwidgets.hooks.incidents.incident_log import IncidentLog
from smdwidgets.hooks.writing.step_files import StepFiles
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.tensors import Kinds
from smdwidgets.trials import create_trial

MIB = 1 << 20
NOTHING = SaveSpec(raw=False)
SAVED = SaveSpec(raw=True)
COLLECTIONS = {"losses": "loss", "gradients": "gradient", "weights": "weight", "biases": "bias"}


def statistics_of(tensors):
    """Return the statistics of arrays by name."""
    arrays = [np.ascontiguousarray(array, "float64").reshape(-1) for array in tensors.values()]
    return StepStatistics(list(tensors), _core.statistics_of(arrays))


class Rig:
    """Records steps into a directory."""

    def __init__(self, root, limit=512 * MIB, clock=None, **options):
        self.root = root
        self.staging = Staging(1 << 40)
        self.files = StepFiles(root, "worker_0", self.staging, None, False)
        clocks = {} if clock is None else {"clock": clock}
        self.log = IncidentLog(root, "worker_0", run=str(root), **clocks)
        kinds = Kinds(lambda collection, name: name.startswith(COLLECTIONS.get(collection, "\0")))
        self.flight = FlightRecorder(limit, self.staging, kinds, self.files, self.log, **options)
        self.files.observe(self.flight)
        self.files.collections('{"collections": {}, "_meta": {"num_workers": 1, "debug_hook_config": {}}}')

    def step(self, number, saved=("loss",), mode=ModeKeys.TRAIN, judged=True, **tensors):
        """Record a step.

        Tensors named in ``saved`` are written to the run at once; those in ``judged`` (True: all) have statistics.
        """
        key = (number, mode, number)
        arrays = {name: np.asarray(value, "float32") for name, value in tensors.items()}
        captured = []
        for name, array in arrays.items():
            copy = copy_tensor(name, array, self.staging)
            captured.append(Captured(name, copy, copy.shape, SAVED if name in saved else NOTHING, 0.0))
        self.files.write(key, captured)
        names = arrays if judged is True else judged or ()
        if names:
            self.flight.statistics(key, statistics_of({name: arrays[name] for name in names}))
        self.files.finish(key)

    def close(self):
        """Complete all steps and return the trial."""
        self.flight.close()
        self.files.close()
        return create_trial(str(self.root), wait=0)
