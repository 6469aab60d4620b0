"""The check of the language of texts and names."""

import json
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def checker(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    before = set(sys.modules)
    yield __import__("check_language")
    for name in {"check_language", "hygiene", "steps"} - before:
        sys.modules.pop(name, None)


def found(checker, text):
    return [(line, match.lower()) for line, match, _ in sorted(checker.words_to_avoid(text), key=lambda one: one[:2])]


@pytest.mark.parametrize(
    "text",
    [
        "# The page is told.",
        "def test_page_is_told():",
        "const told = 1;",
        "class ToldSteps:",
        "let nowTold = 1;",
        "self._told = []",
    ],
)
def test_texts_and_names_are_searched(checker, text):
    assert found(checker, text) == [(1, "told")]


@pytest.mark.parametrize("text", ["retold", "toldya", "impulse", "amendment", "deskew", "letgoods", "waylaid"])
def test_parts_of_words_are_ignored(checker, text):
    assert found(checker, text) == []


@pytest.mark.parametrize("text", ["# lets\n# go", "/// lets\n/// go", "/** lets\n * go */", "lets\n    go", "lets go"])
def test_phrases_match_across_lines_of_a_comment(checker, text):
    assert found(checker, text) == [(1, "lets go")]


def test_phrases_do_not_match_across_paragraphs(checker):
    assert found(checker, "lets\n\ngo") == []


def test_only_markdown_cells_of_notebooks_are_searched(checker, tmp_path):
    cells = [
        {"cell_type": "code", "source": ["told = 1\n", "told"]},
        {"cell_type": "markdown", "source": ["# Title\n", "It is told “so”."]},
    ]
    notebook = tmp_path / "one.ipynb"
    notebook.write_text(json.dumps({"cells": cells}, indent=1))
    [(line, _)] = checker.problems(notebook, "one.ipynb")
    assert notebook.read_text().split("\n")[line - 1].strip().startswith('"It is told')


def test_long_first_lines_of_docstrings_are_reported(checker, tmp_path):
    source = f'"""{"x" * 80}"""\n\ndef f():\n    """{"y" * 81}\n\n    {"z" * 100}\n    """\n'
    assert [*checker.long_summaries(source)] == [(4, 81)]
    module = tmp_path / "one.py"
    module.write_text(source)
    assert [*checker.problems(module, "one.py")] == [
        (4, "first docstring line has 81 characters; shorten it to 80 or fewer")
    ]


def test_problem_names_place_word_reason_and_replacement(checker, monkeypatch, tmp_path, capsys):
    file = tmp_path / "page.ts"
    file.write_text("// one\n// The old value is laid anew.\n")
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    assert checker.main([str(file)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert (
        first
        == "page.ts:2: 'anew': reads as dialect or as literary English; write instead: again, or the verb alone: rebuild, reread"
    )
    assert second.startswith("page.ts:2: 'laid': ")


def test_exempt_word_is_not_reported(checker, monkeypatch, tmp_path):
    file = tmp_path / "one.md"
    file.write_text("Outbox, anew.")
    monkeypatch.setitem(checker.EXEMPT, ("one.md", "outbox"), "name of a class of another project")
    assert [message.partition(":")[0] for _, message in checker.problems(file, "one.md")] == ["'anew'"]


def test_replacements_do_not_contain_words_to_avoid(checker):
    for word in checker.WORDS:
        assert found(checker, word.instead) == [], word
