"""Test the table of ways to end and ways to hold the hook for one framework."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import pytest

from endings.running import Smdebug, check
from endings.scripts import ENDS, HOLDS

__all__ = ["smdebug", "table"]


@pytest.fixture(scope="module")
def smdebug() -> Iterator[Smdebug]:
    """smdebug, which also reads the runs."""
    reader = Smdebug()
    yield reader
    reader.close()


def table(framework: str, holds: Mapping[str, str] = HOLDS) -> Callable[..., None]:
    """Return a test that runs a script of this framework for each cell of the table."""

    @pytest.mark.skipif(os.name == "nt", reason="the table is one of POSIX signals")
    @pytest.mark.parametrize("hold", holds)
    @pytest.mark.parametrize("end", ENDS)
    def test_run_is_complete(hold, end, tmp_path, smdebug):
        check(framework, hold, end, tmp_path, smdebug)

    return test_run_is_complete
