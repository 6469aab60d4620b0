"""What is imported, and when."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import smdwidgets
from smdwidgets.cli import COMMANDS

#: The only modules of the package that `import smdwidgets` loads. Everything else is loaded at its first use.
AT_ONCE = {
    "smdwidgets",
    "smdwidgets._core",
    "smdwidgets._extensions",
    "smdwidgets._text",
    "smdwidgets.compat",
    "smdwidgets.exceptions",
    "smdwidgets.modes",
}
#: Modules that take long to import.
HEAVY = {"IPython", "boto3", "ipywidgets", "matplotlib", "numpy", "pandas", "regex", "torch"}


def loaded(code: str) -> set[str]:
    """Return the names of the modules that a process has loaded at its end."""
    code = f"import sys\n{code}\nprint(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_package_loads_nothing_before_it_is_used():
    found = loaded("import smdwidgets")
    assert {name for name in found if name.partition(".")[0] == "smdwidgets"} == AT_ONCE
    assert not found & HEAVY


EXPLANATIONS = [["--help"], ["--version"], [], ["nonsense"], *([name, "--help"] for name in COMMANDS)]


@pytest.mark.parametrize("arguments", [*EXPLANATIONS, ["completion", "bash"]], ids=" ".join)
def test_the_command_line_needs_no_numpy_to_explain_itself(arguments: list[str]):
    code = f"from smdwidgets.cli import main\ntry: main({arguments})\nexcept SystemExit: pass"
    found = loaded(code)
    assert not found & HEAVY


def test_a_command_imports_no_other_command():
    found = loaded("from smdwidgets.cli import main\nmain(['show', 'no/such/run', 'loss'])")
    assert {name for name in COMMANDS if f"smdwidgets.cli.{name}" in found} == {"show"}
    assert {name for name in COMMANDS if f"smdwidgets.cli.arguments.{name}" in found} == {"show"}


def test_choices_of_arguments_are_those_of_the_modules_that_take_them():
    from smdwidgets.cli.arguments import export, run
    from smdwidgets.exports import FORMATS
    from smdwidgets.launch.options import WHAT

    assert tuple(FORMATS) == export.FORMATS
    assert run.WHAT == WHAT


def test_a_training_script_needs_no_widgets():
    found = loaded("from smdwidgets import create_trial, CapturePlan, diagnose\nfrom smdwidgets.numpy import Hook")
    assert not found & {"IPython", "ipywidgets", "matplotlib", "pandas"}


def test_a_widget_is_imported_without_what_it_needs_later():
    found = loaded("from smdwidgets import explore")
    assert {name.split(".")[1] for name in found if name.startswith("smdwidgets.")} == {
        *(name.split(".")[1] for name in AT_ONCE if "." in name),
        "naming",
        "widgets",
    }
    assert not found & {"matplotlib", "pandas", "boto3"}


def test_every_public_name_is_found():
    for name in smdwidgets.__all__:
        assert getattr(smdwidgets, name) is not None
    names: dict[str, object] = {}
    exec("from smdwidgets import *", names)
    assert names.keys() >= set(smdwidgets.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'create_trail'"):
        smdwidgets.create_trail  # noqa: B018


@pytest.mark.parametrize("name", ["config", "exceptions", "incident", "run_end", "stop", "storage", "trials"])
def test_submodules_need_no_separate_import(name: str):
    assert f"smdwidgets.{name}" in loaded(f"import smdwidgets; smdwidgets.{name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_texts_are_those_of_the_commands(name: str):
    source = Path(smdwidgets.__file__).parent / "cli" / "arguments" / f"{name}.py"
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    assert text is not None
    assert COMMANDS[name] == text.splitlines()[0]
