"""Run a page in a temporary directory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Document

from pages.blocks import Page, blocks
from pages.prepare import Prepare

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "trainers").glob("*.md")))


def pages_for(environment: str) -> list[Path]:
    """Return the pages with a block for this framework."""
    return [page for page in PAGES if any(block.needs == environment for block in blocks(Document.parse(str(page))))]


def name_of(page: Path) -> str:
    """Return the page's name for test ids."""
    return page.relative_to(ROOT).as_posix()


def run_page(page: Path, folder: Path, environment: str = "", kept: Path | None = None) -> int:
    """Run a page's blocks for a framework (or none) and return their number.

    What is prepared is kept in a folder, if one is given, for the next page.
    """
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as cleared:
        patch.chdir(folder)
        cleared.enter_context(_without_smdebug())
        cleared.enter_context(_closed_widgets())
        return Page(page, {"prepare": Prepare(kept or folder / ".prepared", cleared, patch)}, environment).run()


@contextlib.contextmanager
def _without_smdebug() -> Iterator[None]:
    """Undo the installation of this package as smdebug for the next test."""
    finders = list(sys.meta_path)
    try:
        yield
    finally:
        # Other packages install finders, too: that of importlib_metadata replaces one of Python's.
        ours = [each for each in sys.meta_path if type(each).__module__.partition(".")[0] == "smdwidgets"]
        sys.meta_path[:] = [each for each in sys.meta_path if each in finders or each not in ours]
        for name in [name for name in sys.modules if name.partition(".")[0] == "smdebug"]:
            del sys.modules[name]


@contextlib.contextmanager
def _closed_widgets() -> Iterator[None]:
    try:
        yield
    finally:
        if "ipywidgets" in sys.modules:
            sys.modules["ipywidgets"].Widget.close_all()
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")
