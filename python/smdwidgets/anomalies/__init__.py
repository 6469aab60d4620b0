"""What is odd in a series: spikes, values that are not finite, unusual sizes.

Rules, the diagnosis, the triggers of the flight recorder and the survey ask these modules, so that they agree on the
step at which something begins. Each primitive has one set of defaults, in `defaults`. Those that are needed while a
training runs have a form for a whole column and one for values as they arrive (`push`), which give the same answers.
"""

from __future__ import annotations

from smdwidgets.anomalies.anomaly import Anomaly
from smdwidgets.anomalies.episodes import Episodes, begins_episode
from smdwidgets.anomalies.not_finite import NotFinite, not_finite
from smdwidgets.anomalies.spikes import NO_RISES, Rises, SpikeScan, rises

__all__ = [
    "NO_RISES",
    "Anomaly",
    "Episodes",
    "NotFinite",
    "Rises",
    "SpikeScan",
    "begins_episode",
    "not_finite",
    "rises",
]
