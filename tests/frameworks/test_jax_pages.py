"""The code blocks of README.md and docs/ that train with JAX."""

from __future__ import annotations

import pytest

from pages.running import name_of, pages_for, run_page


@pytest.mark.parametrize("page", pages_for("jax"), ids=name_of)
def test_the_blocks_of_a_page_run(page, tmp_path):
    assert run_page(page, tmp_path, "jax")
