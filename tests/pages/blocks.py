"""The code blocks of a Markdown page, in order, with language and options.

A block is run unless the line above it says otherwise, in a comment that readers of the page do not see:

    <!-- needs: torch -->               run by `make test-frameworks`, in that framework's environment
    <!-- not run: it takes a day -->    not run, and why

What a page takes for granted is prepared by a block that only its source shows:

    <!-- invisible-code-block: python
    prepare.demo("runs/mlp")
    -->
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from doctest import ELLIPSIS
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region, Sybil
from sybil.evaluators.doctest import DocTestEvaluator
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.abstract.doctest import DocTestStringParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

from pages import shell

MARK = re.compile(r"<!-- (?P<kind>needs|not run): (?P<text>.+?) -->\s*\Z")
TITLE = re.compile(r"\btitle=\"(?P<name>[^\"]+)\"")
#: Text for readers only: layouts of files, messages, outlines.
LOOKED_AT = frozenset({"text", "html"})

_fences = RawFencedCodeBlockLexer(re.compile(r"(?P<language>\S*)(?P<attributes>[^\n]*)$\n", re.MULTILINE))
_invisible = DirectiveInHTMLCommentLexer("invisible-code-block", arguments="python")
_sessions = DocTestStringParser(DocTestEvaluator(ELLIPSIS))


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    region: Region
    language: str
    source: Any  # the text, which has its location in the page
    title: str = ""  # a name: the block is that file
    needs: str = ""  # the framework
    not_run: str = ""  # the reason


def blocks(document: Document) -> Iterator[Block]:
    """Return all blocks of a page, in order."""
    found = [*_fences(document), *_invisible(document)]
    for region in sorted(found, key=lambda region: region.start):
        marked = MARK.search(document.text, 0, region.start)
        marks = {marked["kind"]: marked["text"]} if marked else {}
        titled = TITLE.search(region.lexemes.get("attributes") or "")
        yield Block(
            region,
            region.lexemes.get("language", "python"),
            region.lexemes["source"],
            titled["name"] if titled else "",
            marks.get("needs", ""),
            marks.get("not run", ""),
        )


class Page:
    """A page whose blocks are run in order, in one namespace."""

    def __init__(self, path: Path, namespace: dict[str, Any], environment: str = "") -> None:
        self._environment = environment
        self._document = Sybil([self._regions]).parse(path)
        self._document.namespace.update(namespace, __name__="__main__")

    def run(self) -> int:
        """Run them and return their number; raise at the first failure."""
        examples = list(self._document)
        for example in examples:
            example.evaluate()
        return len(examples)

    def _regions(self, document: Document) -> Iterable[Region]:
        for block in blocks(document):
            if not block.not_run and block.needs == self._environment:
                yield from _runnable(document, block)


def _runnable(document: Document, block: Block) -> Iterable[Region]:
    region = block.region
    if block.language in ("python", "pycon") and block.source.startswith(">>>"):
        for session in _sessions(block.source, document.path):
            session.adjust(region, block.source)
            yield session
        return
    run = {
        "python": PythonEvaluator(),
        "sh": shell.run_script,
        "console": shell.run_session,
        "json": _json,
        "toml": _toml,
    }.get(block.language)
    if run is None:
        place = f"{document.path}, {document.line_column(region.start)}"
        assert block.language in LOOKED_AT, f"{place}: a block of {block.language or 'no language'} is not known"
        return

    def evaluate(example: Example) -> Any:
        if block.title:
            Path(block.title).write_text(block.source, encoding="utf-8")
        return run(example)

    region.parsed, region.evaluator = block.source, evaluate
    yield region


def _json(example: Example) -> None:
    json.loads(example.parsed)


def _toml(example: Example) -> None:
    tomllib.loads(example.parsed)
