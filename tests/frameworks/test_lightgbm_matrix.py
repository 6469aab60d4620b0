"""What the scripts on trainers save that need LightGBM or scikit-learn."""

from __future__ import annotations

import pytest

from frameworks.trainer_matrix import check, rows_for


@pytest.mark.parametrize("trainer", rows_for("lightgbm"))
def test_the_table_is_right(trainer, tmp_path):
    check(trainer, tmp_path)
