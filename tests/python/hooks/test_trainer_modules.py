"""The modules of trainers where their libraries are not installed."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "name", "package"),
    [
        ("transformers", "Callback", "transformers"),
        ("lightning", "Callback", "torch"),
        ("lightgbm", "callback", "lightgbm"),
        ("lightgbm", "Hook", "lightgbm"),
        ("jax", "Hook", "jax"),
    ],
)
def test_module_names_the_missing_package_when_it_is_needed(monkeypatch, module, name, package):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, f"smdwidgets.hooks.{module}", raising=False)
    found = importlib.import_module(f"smdwidgets.{module}")
    assert found.CapturePlan(budget="1GB")
    assert {name, "SaveConfig", "modes"} <= set(dir(found)) & set(found.__all__)
    with pytest.raises(ModuleNotFoundError, match=f"needs the package '{package}'.*pip install {package}"):
        getattr(found, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = found.nothing
