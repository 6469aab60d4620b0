"""Describe kinds of findings for documentation and ``smdwidgets explain``.

Run `python -m smdwidgets.finding.document docs/diagnosis.md docs/checks.md`. Only the text between the two markers is
replaced, and in the sections of checks only the text before the first code block.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from smdwidgets.finding.checks import CHECKS, CHECKS_PAGE
from smdwidgets.finding.kind import PAGE, Kind
from smdwidgets.finding.kinds import KINDS

__all__ = ["explanation", "with_kinds"]

BEGIN, END = "<!-- kinds: begin -->", "<!-- kinds: end -->"
#: The line before the example of a check.
EXAMPLE = "<!-- not run: "
_WIDTH = 128
_EXPLAINS = "It can explain"


def explanation(kind: Kind) -> list[str]:
    """Return paragraphs: meaning, healthy range, advice, test, consequences.

    >>> from smdwidgets.finding import KINDS
    >>> explanation(KINDS["frozen"])[1]
    'Healthy: weights of all layers that change.'
    """
    paragraphs = [*kind.meaning.split("\n\n"), f"Healthy: {kind.healthy}.", f"Try: {kind.advice}"]
    names = ", ".join(KINDS[other].title for other in KINDS if other in kind.explains)
    paragraphs += [f"Test: {kind.test}."] if kind.test else []
    paragraphs += [f"Frameworks: {', '.join(kind.frameworks)}."] if kind.frameworks else []
    return [*paragraphs, *([f"{_EXPLAINS}: {names}."] if names else [])]


def with_kinds(page: str, kinds: Iterable[Kind] | None = None) -> str:
    """Return the page with one section per kind regenerated.

    Args:
        page: the page.
        kinds: its kinds; default: those that a diagnosis finds. The examples in their sections stay.
    """
    before, _, rest = page.partition(BEGIN)
    written, _, after = rest.partition(END)
    if kinds is None:
        kinds, written = (kind for kind in KINDS.values() if kind.page == PAGE), ""
    sections = []
    for kind in kinds:
        texts = [part for part in explanation(kind) if not (written and part.startswith(_EXPLAINS))]
        parts = [f"### {kind.title}", *(textwrap.fill(part, _WIDTH) for part in texts)]
        sections.append("\n\n".join([*parts, *_example(written, kind)]))
    return "\n\n".join([f"{before}{BEGIN}", *sections, f"{END}{after}"])


def _example(written: str, kind: Kind) -> list[str]:
    """Return what the section of a kind has from its first code block on."""
    _, _, rest = written.partition(f"### {kind.title}\n")
    section = rest.partition("\n### ")[0]
    mark = section.find(EXAMPLE)
    return [section[mark:].strip()] if mark >= 0 else []


def main() -> None:
    """Update the pages given as command-line arguments."""
    for name in sys.argv[1:]:
        path = Path(name)
        kinds = CHECKS if path.name == CHECKS_PAGE else None
        path.write_text(with_kinds(path.read_text(encoding="utf-8"), kinds), encoding="utf-8")


if __name__ == "__main__":
    main()
