"""The pages on trainers: short scripts, and a matrix of what they save."""

from __future__ import annotations

from pathlib import Path

import pytest
from sybil import Document

from frameworks.trainer_matrix import SCRIPTS as ROWS
from frameworks.trainer_matrix import table
from pages.blocks import blocks

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "trainers").glob("*.md"))
SCRIPTS = [page for page in PAGES if page.name != "index.md"]
_MOST_LINES = 25


@pytest.mark.parametrize("page", SCRIPTS, ids=lambda page: page.name)
def test_a_page_begins_with_a_short_script_that_is_run(page):
    first = next(block for block in blocks(Document.parse(str(page))) if block.language == "python")
    assert first.title == "train.py"
    assert first.needs
    assert not first.not_run
    assert len(str(first.source).strip().splitlines()) <= _MOST_LINES


def test_every_row_of_the_table_has_a_script_that_is_compared_with_it():
    assert list(table()) == list(ROWS)
    assert {cell for row in table().values() for cell in row.values()} == {"yes", "no", "if passed"}
    assert {page for page, _ in ROWS.values()} == {page.stem for page in SCRIPTS}
