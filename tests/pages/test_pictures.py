"""Pictures of README.md and docs/ show controls that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTROLS: list[str] = json.loads((ROOT / "docs" / "pictures" / "controls.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def front_end() -> str:
    """The sources of the page."""
    files = sorted((ROOT / "js" / "src").rglob("*.ts"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files).replace("\\u2212", "\N{MINUS SIGN}")


def exists(words: str, sources: str) -> bool:
    """Return whether a string of the sources begins with the words of a control.

    Its key, in brackets, may be elsewhere.
    """
    label = re.escape(re.sub(r" \(.\)$", "", words))
    return re.search(rf"[\"'`>]{label}[\"'`< ]", sources) is not None


@pytest.mark.parametrize("words", CONTROLS)
def test_a_control_of_the_pictures_exists(words, front_end):
    assert exists(words, front_end), "the pictures show a control that is gone; run `make pictures`"


def test_a_control_that_is_gone_is_noticed(front_end):
    assert not exists("Filter tensors, or /regex/", front_end)


def test_pages_show_only_pictures_that_exist():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for name in re.findall(r"pictures/([\w/-]+\.(?:webp|svg))", page.read_text(encoding="utf-8")):
            assert (ROOT / "docs" / "pictures" / name).is_file(), f"{page.name}: {name}"
