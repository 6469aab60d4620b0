"""The page on rules says what the rules say."""

from __future__ import annotations

from pathlib import Path

from smdwidgets.rules import BUILTIN
from smdwidgets.rules.document import with_reference


def test_the_page_is_true(repository: Path) -> None:
    page = (repository / "docs" / "rules.md").read_text(encoding="utf-8")
    assert page == with_reference(page), "run: python -m smdwidgets.rules.document docs/rules.md"


def test_every_rule_says_what_to_do() -> None:
    for rule in BUILTIN.values():
        if rule.__name__ != "CreateXgboostReport":
            assert "What to do:" in (rule.__doc__ or ""), rule.__name__
        for parameter in rule.parameters().values():
            assert parameter.doc.endswith("."), (rule.__name__, parameter.name)
