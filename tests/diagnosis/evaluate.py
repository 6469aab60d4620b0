"""Train the cases of the proving ground, and evaluate the diagnosis of each run.

Each run is diagnosed in several views. The counts show what the diagnosis gets right.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import smdwidgets
from diagnosis import views
from diagnosis.cases import DOSES, DRAWN, DRAWN_HEALTHY, HEALTHY, PLANTED, dosed, is_healthy, seeds, supervised
from diagnosis.trainings import SAVE_EVERY

#: Shares of a run at which a live diagnosis is taken.
CUTS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)


@dataclass(frozen=True)
class Said:
    """What a diagnosis said: kinds and onsets of its findings, the first one first."""

    kinds: tuple[str, ...]
    onsets: tuple[int | None, ...]

    @property
    def first(self):
        return self.kinds[0] if self.kinds else ""


@dataclass(frozen=True)
class Outcome:
    """One training and its diagnoses by view.

    Views are "all", "fifth", "scalars", and cuts by share.
    """

    group: str
    case: str
    seed: int
    expected: tuple[str, ...]
    fault_at: int | None
    losses: tuple[float, ...]
    length: int
    said: dict[object, Said] = field(hash=False)
    harmed: bool = True

    def right(self, view="all"):
        """Whether the first finding is the cause.

        For a healthy training, whether there is none.
        """
        said = self.said[view]
        return said.first in self.expected if self.expected else not said.kinds

    def missed_harmlessly(self):
        """Whether there is no finding and the fault did no harm either."""
        return not self.said["all"].kinds and not self.harmed


def said(run, until=None):
    """Diagnose a run."""
    found = smdwidgets.diagnose(run, until=until).findings
    return Said(tuple(one.kind for one in found), tuple(one.first for one in found))


def scalars(trial):
    """Return the scalar series of a run, as someone who saves no tensors has them."""
    found = {}
    for name in trial.tensor_names():
        if name.endswith(("loss", "learning_rate", "reward", "entropy")):
            table = trial.reductions([name], reductions=["mean"])
            found[name] = table["step"], table["mean"]
    return found


def diagnosed(run, wanted):
    """Diagnose a run in several views."""
    trial = smdwidgets.create_trial(run)
    last = trial.steps()[-1]
    found = {"all": said(trial)}
    if "fifth" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            found["fifth"] = said(views.every_fifth_save(run, Path(folder) / "run", SAVE_EVERY))
    if "scalars" in wanted:
        found["scalars"] = said(scalars(trial))
    if "cuts" in wanted:
        found |= {share: said(trial, until=int(last * share)) for share in CUTS}
    return found, last


@dataclass(frozen=True)
class Task:
    """One training to do.

    It has the place of its case in a group, the seed, and the views to diagnose.
    """

    group: str
    at: int
    seed: int
    wanted: tuple[str, ...] = ()

    def case(self):
        cases = {
            "planted": PLANTED,
            "healthy": HEALTHY,
            "drawn": DRAWN,
            "drawn healthy": [DRAWN_HEALTHY],
            "dose": [dosed(name, strength) for name in DOSES for strength in range(4)],
        }
        return cases[self.group][self.at]


def run_task(task):
    """Train and diagnose."""
    case = task.case()
    with tempfile.TemporaryDirectory() as folder:
        losses = case.train(folder, task.seed)
        found, length = diagnosed(folder, task.wanted)
    harmed = True
    if task.group in ("drawn", "dose") and not found["all"].kinds:
        harmed = _harmed(losses, _twin(task))
    return Outcome(task.group, case.name, task.seed, case.expected, case.onset, tuple(losses), length, found, harmed)


def _twin(task):
    """Return the validation losses of the same training without the fault."""
    healthy = DRAWN[task.at].healthy if task.group == "drawn" else supervised(lambda setup, rng: setup)
    with tempfile.TemporaryDirectory() as folder:
        return healthy(folder, task.seed)


def _harmed(losses, healthy):
    return not np.isfinite(losses[-1]) or losses[-1] > 1.1 * healthy[-1]


def _use_cache(directory):
    os.environ["XDG_CACHE_HOME"] = directory


def run_tasks(tasks, processes=2, progress=None):
    """Run tasks side by side; return their outcomes in order."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when a worker imports NumPy
    outcomes = []
    # Thousands of runs would fill the user's cache of statistics.
    with (
        tempfile.TemporaryDirectory() as cache,
        ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _use_cache, (cache,)) as pool,
    ):
        for done, outcome in enumerate(pool.map(run_task, tasks), 1):
            outcomes.append(outcome)
            if progress is not None:
                progress(done, len(tasks))
    return [one for one in outcomes if one.group != "drawn healthy" or is_healthy(one.losses)]


def tasks_of(group, number, report, wanted=()):
    """Return the tasks of all cases of a group, with this number of seeds each."""
    sizes = {
        "planted": len(PLANTED),
        "healthy": len(HEALTHY),
        "drawn": len(DRAWN),
        "drawn healthy": 1,
        "dose": 4 * len(DOSES),
    }
    return [Task(group, at, seed, wanted) for at in range(sizes[group]) for seed in seeds(number, report)]


# --------------------------------------------------------------------------------------------------------- null series

NOISES = ("independent", "AR 0.9", "AR 0.98", "t2", "log-normal")


def null_series(noise, seed, length=400):
    """Return a decaying loss with noise, and a validation loss that decays with it.

    Nothing is wrong with either.
    """
    rng = np.random.default_rng([seed, NOISES.index(noise)])
    steps = np.arange(length) * 10
    decay = rng.uniform(0.5, 2) + rng.uniform(1, 3) * np.exp(-steps / rng.uniform(200, 1500))
    size = rng.uniform(0.01, 0.2)

    def noisy():
        normal = rng.normal(size=length)
        if noise.startswith("AR"):
            rho = float(noise.split()[1])
            normal *= np.sqrt(1 - rho**2)
            for at in range(1, length):
                normal[at] += rho * normal[at - 1]
        if noise == "t2":
            return decay + size * 0.5 * rng.standard_t(2, length)
        if noise == "log-normal":
            return decay * np.exp(size * normal)
        return decay + size * normal

    every = slice(None, None, 4)
    return {"train/loss": (steps, noisy()), "val/loss": (steps[every], (noisy() + 0.1)[every])}


def false_alarms_of_noise(noise, number, report):
    """Return the number of null series with a finding."""
    return sum(bool(said(null_series(noise, seed)).kinds) for seed in seeds(number, report))
