"""What counts as an anomaly, in one table.

The limits of spikes were chosen on public logs and on trainings with planted faults; `docs/diagnosis-figures.md` has
the figures. A sensitivity of 2 halves them, one of 0.5 doubles them.
"""

from __future__ import annotations

from typing import Final

#: Earlier values that a value is compared with, and the least number of them.
SPIKE_WINDOW: Final = 50
SPIKE_FIRST: Final = 15
#: Least height of a spike above the median of the window: in robust standard deviations, and as a share of the median.
SPIKE_DEVIATIONS: Final = 8.0
SPIKE_RISE: Final = 0.5
#: Share of the least height from which on a rise is recorded. Noise with heavy tails has many such rises.
SPIKE_MILD: Final = 0.5

#: Steps or values without an anomaly after which the next one begins a new episode.
EPISODE_QUIET: Final = 10

#: Earlier sizes of a tensor that a size is compared with, and the least number of them.
SIZE_WINDOW: Final = 32
SIZE_FIRST: Final = 8
#: Least standard deviation of sizes, in decades.
SIZE_SPREAD: Final = 0.04
#: Deviation from the usual size that is a finding: noise of 10 million records stays below it.
SIZE_DEVIATIONS: Final = 12.0
