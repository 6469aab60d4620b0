"""The first finding about logs of trainings is what is wrong with them.

Healthy ones have none.
"""

import numpy as np
import pytest

from python.diagnosis.scalar_runs import RUNS
from smdwidgets.diagnosis import diagnose


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", RUNS)
def test_what_is_wrong_comes_first(name, seed):
    kinds, draw = RUNS[name]
    result = diagnose(draw(np.random.default_rng(seed)))
    first = result.findings[0].kind if result.findings else None
    assert first in (kinds or (None,)), result
