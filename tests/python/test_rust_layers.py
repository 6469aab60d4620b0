"""The checker of layers in the Rust code."""

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def checker(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    yield __import__("check_rust_layers")
    sys.modules.pop("check_rust_layers", None)


def test_repository_has_no_violation(checker, capsys):
    assert checker.main() == 0, capsys.readouterr().out


def test_use_trees_expand(checker):
    paths = [*checker.expanded("crate::{\n    a::{self, B as C},\n    d,\n}")]
    assert paths == ["crate::a::self", "crate::a::B", "crate::d"]


def test_use_of_higher_layer_is_reported(checker):
    modules = {(): "", ("low",): "use crate::high::Thing;", ("high",): "", ("new",): ""}
    assert [*checker.check_layers(modules, ["low", "high", "gone"])] == [
        "module `new` is not in the table of layers in docs/architecture.md",
        "the table of layers in docs/architecture.md lists `gone`, which is not a module",
        "low uses high, which is in a higher layer",
    ]


def test_cycle_through_reexport_is_reported(checker):
    modules = {
        (): "",
        ("top",): "mod one;\nmod two;\npub use one::Thing;",
        ("top", "one"): "use super::two;",
        ("top", "two"): "use super::Thing;",
    }
    [problem] = checker.check_cycles(modules)
    assert problem.startswith("import cycle: ")
    assert "top::one" in problem
    del modules["top", "two"]
    assert not [*checker.check_cycles(modules)]


def test_tests_and_comments_are_exempt(checker):
    code = '//! crate::above\nfn f() { g("crate::above") }\n#[cfg(test)]\nmod tests {\n    use crate::above::X;\n}\n'
    assert "above" not in checker.code_of(code)
