"""The layers in docs/architecture.md are those that import-linter enforces."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import smdwidgets

ROOT = Path(__file__).parents[2]


def _contracts() -> dict[str, dict]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {contract["id"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}


def _documented_layers() -> list[set[str]]:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Layers of the package\n")[2].partition("\n## ")[0]
    layers: dict[int, set[str]] = {}
    for number, modules in re.findall(r"^\| (\d+) \| (.+?) \|", section, re.M):
        layers.setdefault(int(number), set()).update(re.findall(r"`(\w+)/?`", modules))
    assert list(layers) == list(range(1, len(layers) + 1))
    return list(layers.values())


def test_documented_layers_match_the_import_linter_contract():
    layers = [{name.strip() for name in layer.split("|")} for layer in _contracts()["layers"]["layers"]]
    assert _documented_layers() == layers[::-1]


def test_layers_list_every_module_of_the_package():
    package = Path(smdwidgets.__file__).parent
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    assert set().union(*_documented_layers()) == modules - {"__init__"}


def test_import_linter_has_no_exceptions():
    contracts = _contracts()
    assert contracts["layers"]["exhaustive"] is True
    assert contracts["acyclic"]["ancestors"] == ["smdwidgets"]
    assert not [
        name for name, contract in contracts.items() if {"ignore_imports", "exhaustive_ignores"} & set(contract)
    ]


def test_files_of_typical_changes_exist():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Where to change what\n")[2].partition("\n## ")[0]
    paths = re.findall(r"`((?:python|rust|js|tests|tools|docs|packaging)/[\w./-]+|pyproject\.toml)`", section)
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_only_is_address_tells_stores_from_directories():
    package = Path(smdwidgets.__file__).parent
    found = [path.name for path in package.rglob("*.py") if "is_absolute(" in path.read_text(encoding="utf-8")]
    assert found == []
