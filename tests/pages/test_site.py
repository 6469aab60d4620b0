"""The pages hang together: links lead somewhere, lists are complete, figures are those that were measured."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pages.running import PAGES, ROOT, name_of
from smdwidgets.cli.document import with_reference

LINK = re.compile(r"\]\((?P<to>[^)\s]+)\)|\b(?:src|srcset)=\"(?P<picture>[^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a page's headings are called in links, by GitHub and by the site alike."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_lead_somewhere(page):
    for found in LINK.finditer(FENCED.sub("", page.read_text(encoding="utf-8"))):
        target, _, anchor = (found["to"] or found["picture"]).partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{found[0]} leads nowhere"
        if anchor and place.suffix == ".md" and place.name != "api.md":
            assert anchor in anchors(place), f"{found[0]}: no such heading"


def test_every_page_is_in_the_navigation():
    def names(entries: list[dict[str, Any]]) -> list[str]:
        found: list[str] = []
        for entry in entries:
            for value in entry.values():
                found += names(value) if isinstance(value, list) else [value]
        return found

    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    assert sorted(names(nav)) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_page_on_commands_says_what_they_say_themselves():
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == with_reference(page), "run: python -m smdwidgets.cli.document docs/commands.md"


def test_every_notebook_is_listed():
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"`{notebook.name}`" in page


#: What README.md says, and the row of RESULTS.md that it says it of.
FIGURES = {
    "open a run of 200,000 records | over 40 times": "| open A |",
    "one value of a million floats | over 10 times": "| the same, read for the first time |",
    "18 reductions of all values | over 200 times": "| 18 reductions of all of B |",
    "over 10 times numpy's": r"numpy on arrays in memory",
    "verify every checksum | over 15 times": "| verify all checksums of B |",
    "ten rules over a run | over 100 times": "| ten rules over all of A |",
    "over 8 times TensorBoard's server": "TensorBoard's server, checksums",
    "over 150 times its `EventAccumulator`": "| EventAccumulator |",
    "all held in memory | over 100 times": "(all values held)",
    "one by one | over 50 times": "| 1000 values one by one |",
}


@pytest.mark.parametrize("said", FIGURES)
def test_the_readme_promises_no_more_than_was_measured(said):
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")
    results = (ROOT / "tests" / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    row = next(line for line in results.splitlines() if FIGURES[said] in line)
    measured = re.search(r"([\d,.]+)(?:x faster|×)", row)
    assert measured, row
    promised = re.search(r"over (\d+) times", said)
    assert promised
    assert float(measured[1].replace(",", "")) >= float(promised[1]), row
