"""Names of any length are interpreted in bounded time."""

from __future__ import annotations

import pytest

from smdwidgets.naming import scalars, tensors


@pytest.mark.parametrize("part", ["loss/", "val-loss ", "a", "aB", "<b onclick=alert(1)>", "1."])
@pytest.mark.slow
def test_a_name_of_a_megabyte(part: str) -> None:
    name = part * (1_000_000 // len(part))
    assert scalars.describe(name).kind is scalars.Kind.UNKNOWN
    assert len(scalars.words_of(name)) <= 1000
    assert not scalars.is_loss(name)
    assert scalars.describe_all([name, "loss"])["loss"].kind is scalars.Kind.LOSS
    tensors.describe(name)
