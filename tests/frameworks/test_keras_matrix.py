"""What the scripts on trainers save that need Keras."""

from __future__ import annotations

import pytest

from frameworks.trainer_matrix import check, rows_for


@pytest.mark.parametrize("trainer", rows_for("keras"))
def test_the_table_is_right(trainer, tmp_path):
    check(trainer, tmp_path)
