"""docs/security.md names existing tests for all its statements."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PAGE = "docs/security.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def named_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")}


def test_every_statement_names_an_existing_test(repository: Path) -> None:
    text = (repository / PAGE).read_text(encoding="utf-8")
    rows, title = [], ""
    for line in text.splitlines():
        title = (title or line) if line.startswith("|") else ""
        if title.startswith("| guarantee") and line.startswith("| ") and line != title:
            rows.append(line)
    assert len(rows) > 20
    for row in rows:
        named = NAMED.findall(row)
        assert named, f"nothing proves this: {row}"
        for file, test in named:
            assert test in named_in(repository / file), f"{file} has no {test}"


def test_page_names_the_browser_tests(repository: Path) -> None:
    text = (repository / PAGE).read_text(encoding="utf-8")
    for name in ("test_hostile", "test_recovery"):
        for test in named_in(repository / "tests" / "e2e" / f"{name}.py"):
            assert test in text, f"{PAGE} does not name {test}"
