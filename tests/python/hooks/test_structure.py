"""Hooks are composed of parts, and a tensor passes few of them."""

from __future__ import annotations

import ast
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import smdwidgets.hooks
from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.capture.captured import Captured
from smdwidgets.numpy import Hook

PACKAGE = Path(smdwidgets.hooks.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}


def _name(path):
    return ".".join(("smdwidgets.hooks", *path.relative_to(PACKAGE).with_suffix("").parts))


def _bases():
    """Return the classes of the package with their base classes, by name."""
    bases = {}
    for path, tree in TREES.items():
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                names = [ast.unparse(base) for base in node.bases]
                bases[f"{_name(path)}.{node.name}"] = [imported.get(name, f"{_name(path)}.{name}") for name in names]
    return bases


def _chain(name, bases):
    """Return the classes of the package that a class consists of."""
    if name not in bases:
        return set()
    return {name}.union(*(_chain(base, bases) for base in bases[name]))


def test_hooks_have_at_most_three_classes():
    bases = _bases()
    hooks = {name: _chain(name, bases) for name in bases if name.endswith((".Hook", ".Callback"))}
    assert len([name for name in hooks if name.endswith(".Hook")]) == 9
    assert {name: sorted(chain) for name, chain in hooks.items() if len(chain) > 3} == {}


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_constructors_relay_at_most_one_positional_argument(path):
    """``super().__init__(*args)`` hides what a class needs."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            for call in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
                if ast.unparse(call.func).endswith("__init__"):
                    assert not [one for one in call.args if isinstance(one, ast.Starred)], ast.unparse(call)
            if node.args.vararg is not None:
                starred = [one for one in ast.walk(node) if isinstance(one, ast.Starred)]
                assert not starred, f"{_name(path)}:{node.lineno} relays *{node.args.vararg.arg}"


def test_no_part_uses_private_members_of_another():
    """The import-linter cannot see calls: an underscore is for the object itself."""
    found = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                owner = ast.unparse(node.value)
                if owner in ("hook", "self._hook", "self.parts", "parts") or owner.startswith("self.parts."):
                    found.append(f"{_name(path)}:{node.lineno} {ast.unparse(node)}")
    assert found == []


def test_a_value_passes_at_most_four_modules_to_its_file(tmp_path):
    """Trace the calls that receive the copy of a tensor, on both threads."""
    modules = []

    def holds(value):
        if isinstance(value, TensorCopy):
            return value.shape == (3, 5, 7)
        if isinstance(value, Captured):
            return value.shape == (3, 5, 7)
        return isinstance(value, list | tuple) and any(holds(item) for item in value)

    def trace(frame, event, _argument):
        module = frame.f_globals.get("__name__", "")
        if event == "return" and module.startswith("smdwidgets.hooks") and any(map(holds, frame.f_locals.values())):
            modules.append(module)

    hook = Hook(tmp_path / "run", plan=False, recorder_bytes=0)
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        hook._begin_step()
        hook.parts.plan.include("all", ".*")
        hook.save_tensor("w", np.ones((3, 5, 7), "float32"), "all")
        hook.close()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    passed = set(modules) - {"smdwidgets.hooks.capture.arrays", "smdwidgets.hooks.capture.captured"}
    assert {"smdwidgets.hooks.writing.write_queue", "smdwidgets.hooks.writing.step_files"} <= passed
    # What the script passes enters through the hook and its steps; a framework's tensor does not.
    assert passed - {"smdwidgets.hooks.core.hook", "smdwidgets.hooks.core.steps"} == {
        "smdwidgets.hooks.core.tensors",
        "smdwidgets.hooks.writing.write_queue",
        "smdwidgets.hooks.writing.background",
        "smdwidgets.hooks.writing.step_files",
    }
