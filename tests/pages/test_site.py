"""The pages are consistent: links, lists and measured figures."""

from __future__ import annotations

import operator
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from pages.running import PAGES, ROOT, name_of
from smdwidgets.cli.document import with_reference
from smdwidgets.numpy import Hook

LINK = re.compile(r"\]\((?P<to>[^)\s]+)\)|\b(?:src|srcset)=\"(?P<picture>[^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, which GitHub and the site form alike."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_resolve(page):
    for found in LINK.finditer(FENCED.sub("", page.read_text(encoding="utf-8"))):
        target, _, anchor = (found["to"] or found["picture"]).partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{found[0]} leads nowhere"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{found[0]}: no such heading"


def test_every_page_is_in_the_navigation():
    def names(entries: list[dict[str, Any]]) -> list[str]:
        found: list[str] = []
        for entry in entries:
            for value in entry.values():
                found += names(value) if isinstance(value, list) else [value]
        return found

    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    written = {page for page in pages if not page.startswith("reference/")}
    # `make docs` generates the reference, whose first page links to the others.
    assert set(names(nav)) == written | {"reference/index.md"}


def test_commands_page_equals_their_help():
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == with_reference(page), "run: python -m smdwidgets.cli.document docs/commands.md"


def test_tests_named_on_the_page_about_reliability_exist():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [line for line in page.partition("## Campaign results")[0].splitlines() if line.startswith("| ")]
    missing = []
    for row in rows:
        defined = ""
        for file, test in re.findall(r"`((?:faults|python|frameworks)/[\w/]+\.py)`|`(test_\w+)`", row):
            path = ROOT / "tests" / file
            if file:
                defined += path.read_text(encoding="utf-8") if path.is_file() else ""
                missing += [] if path.is_file() else [file]
            elif f"def {test}(" not in defined:
                missing.append(test)
    assert len(rows) > 25
    assert missing == []


def test_every_notebook_is_listed():
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"`{notebook.name}`" in page


#: Each figure of README.md, and the row of RESULTS.md that it comes from.
FIGURES = {
    "open a run of 200,000 records | over 40 times": "| open A |",
    "18 reductions of 1 GB of tensors | over 200 times": "| 18 reductions of all of B |",
    "evaluate ten rules over a run | over 100 times": "| ten rules over all of A |",
    "a million scalars | over 8 times faster than TensorBoard's server": "TensorBoard's server, checksums",
    "one by one | over 50 times": "| 1000 values one by one |",
}


@pytest.mark.parametrize("said", FIGURES)
def test_readme_claims_no_more_than_was_measured(said):
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")
    results = (ROOT / "tests" / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    row = next(line for line in results.splitlines() if FIGURES[said] in line)
    measured = re.search(r"([\d,.]+)(?:x faster|×)", row)
    assert measured, row
    promised = re.search(r"over (\d+) times", said)
    assert promised
    assert float(measured[1].replace(",", "")) >= float(promised[1]), row


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    phony = set(re.findall(r"[a-z0-9-]+", makefile.partition(".PHONY:")[2].partition("\n\n")[0]))
    named = set()
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]:
        named |= set(re.findall(r"(?:`|^)make ([a-z][a-z0-9-]*)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert phony == rules
    assert named - rules == set()


def test_names_and_queries_of_the_api_page_exist(tmp_path):
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    names = re.findall(r"\bsmdwidgets((?:\.\w+)+)", page)
    for name in names:
        operator.attrgetter(name[1:])(smdwidgets)
    for name in re.findall(r"\btrial\.(\w+)", page):
        assert hasattr(smdwidgets.trials.Trial, name), name
    queries = re.findall(r"smdwidgets\.query\(\w+, \"(.+?)\"\)", page)
    with Hook(tmp_path / "run", plan=False) as hook:
        for step in range(3):
            hook.save_tensor("fc1.weight", np.full(4, step, np.float32))
            hook.step()
    for text in queries:
        assert smdwidgets.query(tmp_path / "run", text.replace("\\|", "|")).names == ["fc1.weight"]
    assert names
    assert queries
