"""What the scripts on trainers save that need XGBoost."""

from __future__ import annotations

import pytest

from frameworks.trainer_matrix import check, rows_for


@pytest.mark.parametrize("trainer", rows_for("xgboost"))
def test_the_table_is_right(trainer, tmp_path):
    check(trainer, tmp_path)
