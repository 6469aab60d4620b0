"""The page on rules says what the rules say."""

from __future__ import annotations

import re
from pathlib import Path

from smdwidgets.rules import BUILTIN
from smdwidgets.rules.document import with_reference


def test_the_page_is_true(repository: Path) -> None:
    page = (repository / "docs" / "rules.md").read_text(encoding="utf-8")
    assert page == with_reference(page), "run: python -m smdwidgets.rules.document docs/rules.md"


def test_every_rule_has_its_picture(repository: Path) -> None:
    pictures = repository / "docs" / "pictures" / "rules"
    drawn = {path.stem: path.stat().st_size for path in pictures.iterdir()}
    assert set(drawn) == set(BUILTIN) - {"CreateXgboostReport"}, "run: make pictures"
    assert sum(drawn.values()) < 600_000
    page = (repository / "docs" / "rules.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(pictures/rules/(\w+)\.webp\)", page)) == set(drawn)


def test_every_rule_says_what_to_do() -> None:
    for rule in BUILTIN.values():
        if rule.__name__ != "CreateXgboostReport":
            assert "What to do:" in (rule.__doc__ or ""), rule.__name__
        for parameter in rule.parameters().values():
            assert parameter.doc.endswith("."), (rule.__name__, parameter.name)
