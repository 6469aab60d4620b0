"""docs/rules.md matches the docstrings of the rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smdwidgets.rules import BUILTIN
from smdwidgets.rules.document import with_reference


def test_page_matches_the_docstrings(repository: Path) -> None:
    page = (repository / "docs" / "rules.md").read_text(encoding="utf-8")
    assert page == with_reference(page), "run: python -m smdwidgets.rules.document docs/rules.md"


def test_every_rule_has_a_picture(repository: Path) -> None:
    pictures = repository / "docs" / "pictures" / "rules"
    drawn = {path.stem: path.stat().st_size for path in pictures.iterdir()}
    assert set(drawn) == set(BUILTIN) - {"CreateXgboostReport"}, "run: make pictures"
    assert sum(drawn.values()) < 600_000
    page = (repository / "docs" / "rules.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(pictures/rules/(\w+)\.webp\)", page)) == set(drawn)


def test_picture_shows_a_run_on_which_the_rule_fires(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(repository / "tools"))
    import rule_pictures

    assert set(rule_pictures.PICTURES_OF) == set(BUILTIN) - {"CreateXgboostReport"}
    picture = rule_pictures.drawn("SaturatedActivation", tmp_path)
    assert picture.width > 1000
    colours = {colour for _, colour in picture.convert("RGBA").getcolors(1 << 24)}
    assert (0xE5, 0x48, 0x4D, 255) in colours  # the marker of the firing


def test_every_rule_documents_what_to_do() -> None:
    for rule in BUILTIN.values():
        if rule.__name__ != "CreateXgboostReport":
            assert "What to do:" in (rule.__doc__ or ""), rule.__name__
        for parameter in rule.parameters().values():
            assert parameter.doc.endswith("."), (rule.__name__, parameter.name)
