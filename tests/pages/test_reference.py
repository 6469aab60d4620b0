"""The generated reference documents every public name."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import smdwidgets
from pages.running import ROOT
from smdwidgets.rules import BUILTIN


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        yield importlib.import_module("reference")
    sys.modules.pop("reference", None)


@pytest.fixture(scope="module")
def package(reference: ModuleType) -> Any:
    """The reference of the package as it is; reading all its sources takes seconds."""
    return reference.Reference()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package's sources, to be changed."""
    shutil.copytree(
        ROOT / "python" / "smdwidgets",
        tmp_path / "python" / "smdwidgets",
        ignore=shutil.ignore_patterns("*.so", "*.pyd", "static", "__pycache__"),
    )
    return tmp_path


def test_every_public_name_has_a_docstring(reference, capsys):
    assert reference.main(["--check"]) == 0, capsys.readouterr().err


def test_every_name_that_the_package_exports_has_an_entry(package):
    documented = {entry.name for entry in package.homes.values()}
    for module in ["smdwidgets", *(f"smdwidgets.{name}" for name in package.modules)]:
        content = importlib.import_module(module)
        names = set(getattr(content, "__all__", ())) - set(BUILTIN)
        # Another name of a class, such as S3Storage, has the entry of the class.
        exported = {name if name in documented else getattr(getattr(content, name), "__name__", name) for name in names}
        if module != "smdwidgets.hooks.core.hook":
            assert exported <= documented, module


def test_documented_modules_need_no_further_import(reference):
    topics = {module.partition(".")[0] for topic, modules in reference.TOPICS.items() for module in modules}
    program = f"import smdwidgets\nfor name in {sorted(topics - {'hooks'})}: assert name in dir(smdwidgets), name\nsmdwidgets.exports.export"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_page_has_an_entry_for_each_method(package):
    page = package.pages()["trials.md"]
    methods = [name for name in dir(smdwidgets.Trial) if not name.startswith("_")]
    assert len(methods) > 20
    for name in methods:
        assert f"### Trial.{name}\n" in page


@pytest.mark.slow
def test_a_public_name_without_a_docstring_is_reported(reference, copy):
    modes = copy / "python" / "smdwidgets" / "modes.py"
    text = modes.read_text(encoding="utf-8")
    modes.write_text(text + "\n\n__all__ += ['bare']\n\n\ndef bare():\n    pass\n", encoding="utf-8")
    changed = reference.Reference(copy)
    changed.pages()
    assert changed.problems == ["smdwidgets.modes.bare has no docstring"] * len(changed.problems) != []


@pytest.mark.slow
def test_a_section_of_a_docstring_on_one_line_is_reported(reference, copy):
    modes = copy / "python" / "smdwidgets" / "modes.py"
    text = modes.read_text(encoding="utf-8")
    modes.write_text(
        text + '\n\n__all__ += ["f"]\n\n\ndef f(x):\n    """Do.\n\n    Args: x: this.\n    """\n', encoding="utf-8"
    )
    changed = reference.Reference(copy)
    changed.pages()
    assert changed.problems == ["smdwidgets.modes.f: `Args:` must be followed by a line break"]


@pytest.mark.slow
def test_a_public_module_without_a_page_is_reported(reference, copy):
    (copy / "python" / "smdwidgets" / "surprise.py").write_text('"""Surprise."""\n', encoding="utf-8")
    changed = reference.Reference(copy)
    changed.pages()
    assert changed.problems == ["smdwidgets.surprise is in no topic of tools/reference.py"]


def test_links_between_pages_resolve(reference, package):
    pages = package.pages()
    headings = {
        name: {"#" + reference.slug(text).strip("#") for text in re.findall(r"^#+ (.+)$", page, re.M)}
        for name, page in pages.items()
    }
    links = [link for page in pages.values() for link in re.findall(r"\]\(([\w.]+\.md)(#[\w-]+)?\)", page)]
    assert len(links) > 500
    assert [link for link in links if link[0] not in pages or (link[1] and link[1] not in headings[link[0]])] == []


def test_text_of_docstrings_becomes_markdown(package):
    assert package._prose("See :meth:`Trial.steps` and ``run``.", "stop") == (
        "See [`Trial.steps`](trials.md#trialsteps) and `run`."
    )
    assert package._prose("Options:\n* a\n* b", None) == "Options:\n\n* a\n* b"
    assert package._prose(">>> 1  # doctest: +SKIP\n1", None) == "```pycon\n>>> 1\n1\n```"
