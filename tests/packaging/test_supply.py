"""All components of the wheel are known, with allowed licences."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def supply(repository: Path):
    sys.path.insert(0, str(repository / "tools"))
    try:
        import supply

        yield supply
    finally:
        sys.path.remove(str(repository / "tools"))


@pytest.mark.parametrize(
    ("expression", "permitted"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("MIT AND GPL-3.0", False),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", True),
        ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", True),
        ("none", False),
        ("", False),
    ],
)
def test_licence_expressions(supply, expression: str, permitted: bool) -> None:
    assert supply.permits(expression) is permitted


def test_problems_of_a_component_are_reported(supply) -> None:
    odd = supply.Component("cargo", "x", "1", "AGPL-3.0", "git+https://example.invalid/x")
    assert len(list(supply.problems([odd]))) == 2
    assert list(supply.problems([supply.Component("cargo", "x", "1", "MIT", supply.CRATES_IO)])) == []


def test_bill_of_materials_lists_each_component_once(supply, repository: Path) -> None:
    components = [*supply.crates(), *supply.distributions()]
    names = {(one.kind, one.name) for one in components}
    assert {("cargo", "pyo3"), ("cargo", "rayon"), ("pypi", "numpy"), ("pypi", "ipywidgets")} <= names
    assert ("cargo", "proptest") not in names, "a crate of the tests alone is not shipped"
    bill = supply.bill(components)
    assert bill == supply.bill(components)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    refs = [one["bom-ref"] for one in bill["components"]]
    assert len(refs) == len(set(refs)) == len(components)
    assert bill["dependencies"][0]["dependsOn"] == refs
    locked = (repository / "Cargo.lock").read_text()
    assert all(f'name = "{one.name}"' in locked for one in components if one.kind == "cargo")
    json.dumps(bill)


def test_all_licences_and_sources_are_allowed(repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/supply.py", "check"], cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
