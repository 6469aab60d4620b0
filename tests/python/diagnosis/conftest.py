"""The same noise for a test, whichever tests run before it in its process."""

from __future__ import annotations

from typing import Any

import pytest

#: How the generator of each module was when it had been imported.
_STATES: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _same_noise_in_any_order(request: pytest.FixtureRequest) -> None:
    generator = getattr(request.module, "RNG", None)
    if generator is not None:
        bits = generator.bit_generator
        bits.state = _STATES.setdefault(request.module.__name__, bits.state)
