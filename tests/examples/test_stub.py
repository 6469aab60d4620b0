"""The examples in the extension module's stub are true. doctest cannot import it."""

from __future__ import annotations

import ast
import doctest
from pathlib import Path

import numpy as np
import pytest

from smdwidgets import _core

STUB = Path(_core.__file__).with_name("_core.pyi")


def examples() -> list[doctest.DocTest]:
    parser = doctest.DocTestParser()
    names = {name: getattr(_core, name) for name in dir(_core)} | {"np": np}
    found = []
    for node in ast.walk(ast.parse(STUB.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)) and ">>>" in text:
            found.append(parser.get_doctest(text, dict(names), node.name, str(STUB), node.lineno))  # noqa: PERF401
    return found


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_example_is_true(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(example, out=said.append)
    assert not runner.failures, "".join(said)
