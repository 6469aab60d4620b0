"""The code blocks of README.md and docs/ that train with Keras."""

from __future__ import annotations

import keras
import pytest

from pages.running import name_of, pages_for, run_page


@pytest.mark.parametrize("page", pages_for("keras"), ids=name_of)
def test_the_blocks_of_a_page_run(page, tmp_path):
    keras.utils.clear_session()  # names of layers count from the first again, as in a new process
    assert run_page(page, tmp_path, "keras")
