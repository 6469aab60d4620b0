"""docs/api.md names everything that is public, and nothing that is not there."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

import smdwidgets
from pages.running import ROOT
from smdwidgets.rules import BUILTIN

API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
DIRECTIVE = re.compile(r"^::: (?P<of>[\w.]+)\n(?P<options>(?: {4}.*\n)*)", re.MULTILINE)
MEMBERS = re.compile(r"members: \[(?P<names>[^\]]*)\]")

#: Modules that are no lists of public names: smdebug's import paths, the command line, and what stands behind the others.
NOT_HERE = {"analysis", "cli", "compat", "core", "hooks", "plots"}


def public_names(module: str) -> list[str]:
    """``__all__`` of a module."""
    return list(importlib.import_module(module).__all__)


def told() -> Iterator[tuple[str, str]]:
    """Module and name of all that the page shows."""
    for found in DIRECTIVE.finditer(API):
        of, members = found["of"], MEMBERS.search(found["options"])
        module, _, name = of.rpartition(".")
        if name[0].isupper() or module.rpartition(".")[2] == name:
            yield module, name  # not a module: a class, or a function that is called as its module is
        else:
            names = members["names"].split(",") if members else public_names(of)
            yield from ((of, name.strip()) for name in names)


TOLD = list(told())
MODULES = [
    "smdwidgets",
    "smdwidgets.storage.s3",
    "smdwidgets.rules.actions",
    *(
        f"smdwidgets.{module.name}"
        for module in pkgutil.iter_modules(smdwidgets.__path__)
        if not module.name.startswith("_") and module.name not in NOT_HERE
    ),
]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    shown = {name for _, name in TOLD}
    assert sorted(set(public_names(module)) - shown - set(BUILTIN)) == [], "rules have a page of their own"


def test_what_the_reference_names_is_there() -> None:
    assert len(TOLD) == len(set(TOLD)), "said twice"
    for module, name in TOLD:
        held: ModuleType = importlib.import_module(module)
        try:
            value = getattr(held, name, None)
        except ModuleNotFoundError:  # the name needs a framework that is not installed
            assert name in public_names(module)
            continue
        assert value is not None, f"{module}.{name}"
        if callable(value):
            assert (value.__doc__ or "").strip(), f"{module}.{name} is not described"
