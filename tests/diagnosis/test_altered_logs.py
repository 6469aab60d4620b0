"""Verdicts on logs as another trainer would have written them.

Values of the same trainings are logged half as often, begin later, have other names or a little noise. A verdict that
depends on such details holds for one log only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from diagnosis.exam import logs
from fixtures import unpacked
from smdwidgets.diagnosis import reading
from smdwidgets.diagnosis.reading import Key, Rows

pytestmark = pytest.mark.slow

Scalars = list[tuple[Key, Rows]]
Change = Callable[[Scalars], Scalars]

HELD_OUT = re.compile(r"(?i)(?<![a-z])(val|valid|validation|eval|dev)(?![a-z])[_/ ]?")
TRAINING = re.compile(r"(?i)(?<![a-z])train(?![a-z])[_/ ]")
#: Words of series that random numbers may change by a little: no shares, counts or settings.
NOISY = frozenset({"loss", "norm", "reward", "ppl", "nll", "mse", "mae", "rmse"})


def _kept(rows: Rows, mask: np.ndarray) -> Rows:
    return rows._replace(steps=rows.steps[mask], values=rows.values[mask])


def thinned(every: int) -> Change:
    """Keep each n-th value of series that are long enough."""

    def change(scalars: Scalars) -> Scalars:
        return [
            (key, rows if len(rows.steps) < 30 * every else _kept(rows, np.arange(1, len(rows.steps) + 1) % every == 0))
            for key, rows in scalars
        ]

    return change


def fewer_evaluations(scalars: Scalars) -> Scalars:
    """Evaluate half as often."""
    return [
        (
            key,
            _kept(rows, np.arange(len(rows.steps)) % 2 == 1)
            if 12 <= len(rows.steps) <= 60 and HELD_OUT.search(key.name + key.mode)
            else rows,
        )
        for key, rows in scalars
    ]


def begun_later(scalars: Scalars) -> Scalars:
    """Leave out the first values."""
    return [(key, _kept(rows, np.arange(len(rows.steps)) >= 3 * (len(rows.steps) >= 25))) for key, rows in scalars]


def until(share: float) -> Change:
    """Keep the beginning, as of a run that is still written."""

    def change(scalars: Scalars) -> Scalars:
        last = max((rows.steps[-1] for _, rows in scalars if len(rows.steps)), default=0)
        return [(key, _kept(rows, rows.steps <= share * last)) for key, rows in scalars]

    return change


def with_noise(scalars: Scalars) -> Scalars:
    """Change losses, norms and rewards by 0.3 %."""
    random = np.random.default_rng(0)
    return [
        (key, rows._replace(values=rows.values * (1 + 0.003 * random.standard_normal(len(rows.values)))))
        if any(word in key.name.lower() for word in NOISY)
        else (key, rows)
        for key, rows in scalars
    ]


def renamed(held_out: str, training: str) -> Change:
    """Name the data of series in another way, where the names stay different."""

    def change(scalars: Scalars) -> Scalars:
        names = {key.name for key, _ in scalars}
        taken: dict[tuple[str, str, str], str] = {}
        changed = []
        for key, rows in scalars:
            name = TRAINING.sub(training, HELD_OUT.sub(held_out, key.name))
            is_new = name not in names and taken.setdefault((name, key.mode, key.worker), key.name) == key.name
            changed.append((key._replace(name=name) if is_new else key, rows))
        return changed

    return change


def without(word: str) -> Change:
    """Leave out series of which a trainer logs nothing."""
    return lambda scalars: [(key, rows) for key, rows in scalars if word not in key.name.lower()]


@dataclass(frozen=True)
class Alteration:
    """A change of logs.

    It hides so many faults at most, because the log no longer shows them.
    """

    name: str
    change: Change
    hides: int


ALTERATIONS = (
    Alteration("half of the values", thinned(2), 8),
    Alteration("a quarter of the values", thinned(4), 7),
    Alteration("half of the evaluations", fewer_evaluations, 5),
    Alteration("begun later", begun_later, 15),
    Alteration("noise", with_noise, 7),
    Alteration("named test", renamed("test_", "training_"), 2),
    Alteration("named in folders", renamed("valid/", "train/"), 1),
    Alteration("without the norm of the gradient", without("norm"), 2),
    Alteration("the first 60 %", until(0.6), 54),
    Alteration("the first 80 %", until(0.8), 25),
)


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    read = reading._LogScalars.new_rows

    def change_by(change: Change) -> None:
        monkeypatch.setattr(reading._LogScalars, "new_rows", lambda self, progress: change(read(self, progress)))

    return change_by


@cache
def named_as_they_are() -> frozenset[str]:
    """Return the logs whose verdict is right where nothing is altered."""
    return frozenset(one.name for one in logs(unpacked("training-logs"), "") if one.right)


@pytest.mark.parametrize("alteration", ALTERATIONS, ids=lambda one: one.name)
def test_altered_logs_have_the_same_verdict(alteration: Alteration, altered: Callable[[Change], None]) -> None:
    right = named_as_they_are()
    altered(alteration.change)
    results = {one.name: one for one in logs(unpacked("training-logs"), "")}
    alarms = {name: one.kinds for name, one in results.items() if name.endswith("_good") and one.kinds}
    assert alarms == {}
    hidden = sorted(name for name in right if not results[name].right)
    assert len(hidden) <= alteration.hides, hidden
