"""Every code block of README.md and docs/ works as documented."""

from __future__ import annotations

from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

import pytest
from sybil import Document

from pages.blocks import Page, blocks
from pages.running import PAGES, ROOT, name_of, run_page

#: Blocks that cannot run here, by page. A new one needs a reason.
NOT_RUN: dict[str, list[str]] = {
    "docs/run.md": ["it writes into the Python environment"],
    "docs/scale.md": ["it needs a cluster"] * 3,
    # Tests of test_torch_time_travel.py and test_torch_operators.py run the same calls in scripts of their files.
    "docs/time-travel.md": [
        "the loop of this page is in no Python file",
        *["it takes a training script"] * 2,
        *["the loop of this page is in no Python file"] * 3,
        "it takes two training scripts",
    ],
}
#: Other tests that run the blocks of a page.
RUN_BY = {
    "docs/checks.md": [
        f"tests/frameworks/test_{name}_checks.py" for name in ("torch", "keras", "jax", "xgboost", "lightgbm")
    ],
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("prepared")


#: Pages of the first hour, which every change must leave right.
FIRST = ("README.md", "docs/index.md", "docs/tutorial.md")
#: Pages that work as printed, typed from top to bottom: they have no block that only their source shows.
AS_PRINTED = (
    *FIRST,
    *(
        f"docs/{name}.md"
        for name in (
            "commands",
            "comparison",
            "diagnosis",
            "guide",
            "help",
            "plots",
            "query",
            "sharing",
            "using-rules",
            "widgets",
        )
    ),
)
MARKED = [page if name_of(page) in FIRST else pytest.param(page, marks=pytest.mark.slow) for page in PAGES]


@pytest.mark.parametrize("page", MARKED, ids=name_of)
def test_blocks_of_a_page_run(page, tmp_path, prepared, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    run_page(page, tmp_path, kept=prepared)


def test_skipped_blocks_are_listed_here():
    skipped = {
        name_of(page): [block.not_run for block in blocks(Document.parse(str(page))) if block.not_run] for page in PAGES
    }
    for page, tests in RUN_BY.items():
        for test in tests:
            reason = f"{test} runs it"
            assert reason in skipped[page]
            assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
            skipped[page] = [other for other in skipped[page] if other != reason]
    assert {page: reasons for page, reasons in skipped.items() if reasons} == NOT_RUN


@pytest.mark.parametrize("page", AS_PRINTED)
def test_pages_of_the_first_hour_hide_nothing(page):
    assert "invisible-code-block" not in (ROOT / page).read_text(encoding="utf-8")


def test_the_first_output_of_the_readme_is_that_of_the_demo(tmp_path):
    from smdwidgets import diagnose
    from smdwidgets.demo import training

    training.train(tmp_path / "demo")
    first = (ROOT / "README.md").read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    command, _, output = first.partition("\n")
    assert command == "$ smdwidgets demo"
    printed = str(diagnose(tmp_path / "demo")) + "\n"
    assert OutputChecker().check_output(output.rstrip() + "\n", printed, ELLIPSIS), printed


def test_framework_blocks_are_run_by_the_framework_tests():
    needed = {block.needs for page in PAGES for block in blocks(Document.parse(str(page)))} - {""}
    frameworks = ROOT / "tests" / "frameworks"
    for framework in needed:
        assert (frameworks / f"test_{framework}_pages.py").is_file(), framework


def written(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text.replace("'''", "```"), encoding="utf-8")
    return page


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("'''python\n1 / 0\n'''\n", "division by zero"),
        ("'''python\n>>> 1 + 1\n3\n'''\n", "Expected:\n    3"),
        ("'''\nnothing\n'''\n", "a block of no language is not known"),
        ("'''sh\nsmdwidgets inspect nowhere\n'''\n", "ended with 2"),
        ("'''sh\nmake nothing\n'''\n", "no such target"),
        ("'''console\n$ smdwidgets --version\nsmdwidgets 0\n'''\n", "and not\nsmdwidgets 0"),
        ("'''json\n{]\n'''\n", "line 1 column 2"),
        ("<!-- invisible-code-block: python\n1 / 0\n-->\n", "division by zero"),
        ("<!-- needs: torch -->\n'''python\nx\n'''\n\n'''python\n1 / 0\n'''\n", "division by zero"),
    ],
)
def test_failures_are_detected(text, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as raised:
        Page(written(tmp_path, text), {}).run()
    assert wrong in str(raised.value)


def test_blocks_share_a_namespace_and_marked_ones_wait_for_their_framework(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = """
'''python title="printed.py"
print("x is", 1)
x = 1
'''

<!-- needs: torch -->
'''python
x = 2
'''

<!-- not run: it is wrong -->
'''python
1 / 0
'''

'''python
>>> x
1
'''

'''console
$ python printed.py
x is ...
'''
"""
    page = written(tmp_path, text)
    assert Page(page, {}).run() == 3
    assert Page(page, {}, "torch").run() == 1
