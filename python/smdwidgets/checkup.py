"""Check this installation: versions, notebook host, missing packages.

>>> import smdwidgets
>>> smdwidgets.doctor().ok
True
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from smdwidgets._core import __version__
from smdwidgets._text import ShownAsText, visible

__all__ = ["Check", "Checkup", "doctor"]

State = Literal["ok", "absent", "problem"]

#: Purpose of each group of optional requirements.
EXTRAS = {
    "s3": "runs on S3",
    "tensorboard": "images of TensorBoard logs",
    "bfloat16": "bfloat16 and float8 tensors",
    "plots": "plots with Matplotlib",
    "parquet": "export to Parquet",
    "dask": "arrays and tables of Dask and xarray",
    "lab": "JupyterLab",
}
#: Programs that display notebooks, and the packages that they come with.
HOSTS = {"JupyterLab": "jupyterlab", "Notebook": "notebook", "marimo": "marimo"}
#: Frameworks whose trainings are recorded.
FRAMEWORKS = {
    "PyTorch": ("torch",),
    "Transformers": ("transformers",),
    "Lightning": ("lightning", "pytorch-lightning"),
    "Keras": ("keras",),
    "TensorFlow": ("tensorflow", "tensorflow-cpu"),
    "JAX": ("jax",),
    "XGBoost": ("xgboost",),
    "LightGBM": ("lightgbm",),
    "MXNet": ("mxnet",),
}
#: The part of ipywidgets that runs in the page of JupyterLab and Notebook.
_MANAGER = Path("@jupyter-widgets") / "jupyterlab-manager" / "package.json"
_MARKS = {"ok": "✓", "absent": "–", "problem": "✗"}
_REQUIREMENT = re.compile(r"""^([\w.-]+)[^;]*?(?:>=([\w.]+))?[^;]*(?:;.*extra\s*==\s*['"]([\w-]+)['"])?""")


@dataclass(frozen=True)
class Check:
    """One line of a check-up.

    Attributes:
        state: "ok", "absent" (something optional is not installed) or "problem".
        text: what was found.
        remedy: what to do about it, usually a command; "" if nothing.
    """

    group: str
    name: str
    state: State
    text: str
    remedy: str = ""


class Checkup(ShownAsText):
    """The result of :func:`doctor`, which a terminal and a notebook show as a table."""

    def __init__(self, checks: list[Check]) -> None:
        self.checks = checks

    @property
    def ok(self) -> bool:
        """Whether nothing required is missing or broken."""
        return not self.problems

    @property
    def problems(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.state == "problem"]

    def to_json(self) -> str:
        """Return the checks as JSON."""
        return json.dumps({"ok": self.ok, "checks": [asdict(check) for check in self.checks]}, indent=2)

    def __str__(self) -> str:
        wide = max(len(check.name) for check in self.checks)
        lines: list[str] = []
        for group in dict.fromkeys(check.group for check in self.checks):
            lines += ["", group]
            for check in (check for check in self.checks if check.group == group):
                lines.append(f"  {_MARKS[check.state]} {check.name:<{wide}}  {check.text}")
                if check.remedy:
                    lines.append(f"    {'':<{wide}}  → {check.remedy}")
        count = len(self.problems)
        lines += [
            "",
            "Everything required works." if self.ok else f"{count} problem{'s' * (count > 1)} found: see ✗ above.",
        ]
        return "\n".join(lines[1:])


def doctor() -> Checkup:
    """Check versions, notebook host and packages; write and read a run.

    In a notebook cell the check-up knows the notebook's kernel, which may run in another environment than the
    command ``smdwidgets doctor``.

    >>> print(smdwidgets.doctor())             # doctest: +SKIP
    """
    parts = (_python, _package, _requirements, _display, _extras, _frameworks, _self_test)
    return Checkup([check for part in parts for check in part()])


# --------------------------------------------------------------------------------------------------------- the checks


def _python() -> Iterator[Check]:
    group = "Environment"
    yield Check(group, "Python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield Check(group, "platform", "ok", f"{platform.platform(terse=True)}, {platform.machine()}")
    yield Check(group, "host", "ok", _host())
    for name in sorted(os.environ):
        if name.startswith("SMDWIDGETS_"):
            yield Check(group, name, "ok", visible(os.environ[name], 100))


def _package() -> Iterator[Check]:
    group = "smdwidgets"
    yield Check(group, "version", "ok", f"{__version__}, {Path(__file__).parent}")
    installed = _version("smdwidgets")
    if installed is not None and installed != __version__:
        text = f"compiled part {__version__}, package {installed}"
        yield Check(group, "compiled part", "problem", text, "pip install --force-reinstall smdwidgets")
    yield _tried(group, "front end", _front_end, "pip install --force-reinstall smdwidgets; in a clone: make setup")


def _front_end() -> str:
    from smdwidgets.widgets import bundle

    return f"{bundle.size() / 1000:.0f} kB"


def _requirements() -> Iterator[Check]:
    for name, least, extra in _declared():
        if extra == "":
            yield _found("Required packages", name, least, f"pip install '{name}>={least}'", required=True)


def _extras() -> Iterator[Check]:
    for name, least, extra in _declared():
        if extra in EXTRAS:
            remedy = f"for {EXTRAS[extra]}: pip install 'smdwidgets[{extra}]'"
            yield _found("Optional packages", name, least, remedy, required=False)


def _frameworks() -> Iterator[Check]:
    group = "Frameworks"
    for framework, packages in FRAMEWORKS.items():
        version = next(filter(None, map(_version, packages)), None)
        yield Check(group, framework, "absent" if version is None else "ok", version or "not installed")


def _display() -> Iterator[Check]:
    group = "Notebook hosts"
    for host, package in HOSTS.items():
        version = _version(package)
        yield Check(group, host, "absent" if version is None else "ok", version or "not installed in this environment")
    found = next((path for folder in _labextensions() if (path := folder / _MANAGER).is_file()), None)
    if found is not None:
        yield Check(group, "widget manager", "ok", f"{_json_version(found)}, for JupyterLab and Notebook")
        return
    lab = any(_version(HOSTS[host]) for host in ("JupyterLab", "Notebook"))
    yield Check(
        group,
        "widget manager",
        "problem" if lab else "absent",
        "not found: JupyterLab and Notebook need it to display widgets",
        "in the environment of JupyterLab: pip install jupyterlab_widgets",
    )


def _self_test() -> Iterator[Check]:
    yield _tried("Self-test", "write and read a run", _write_and_read, "report the error above")


def _write_and_read() -> str:
    import numpy as np

    from smdwidgets.numpy import Hook
    from smdwidgets.trials import create_trial

    with tempfile.TemporaryDirectory(prefix="smdwidgets-doctor-", ignore_cleanup_errors=True) as folder:
        with Hook(folder) as hook:
            for step in range(3):
                hook.save_tensor("x", np.full((2, 3), step), "weights")
                hook.step()
        with create_trial(folder) as trial:
            values = trial.tensor("x").value(2)
    if values.tolist() != [[2] * 3] * 2:
        raise RuntimeError(f"read {values.tolist()} instead of what was written")
    return "3 steps"


# ------------------------------------------------------------------------------------------------------------ helpers


def _host() -> str:
    """Return the program that displays the outputs of this process, if known."""
    modules = sys.modules
    if "google.colab" in modules:
        return "Colab; once per notebook: from google.colab import output; output.enable_custom_widget_manager()"
    if "marimo" in modules and modules["marimo"].running_in_notebook():
        return "marimo"
    if "ipykernel" not in modules:
        return "no notebook: call smdwidgets.doctor() in a cell to check a notebook's environment"
    kernel = f"a kernel of ipykernel {_version('ipykernel')}"
    if any(name.startswith("VSCODE_") for name in os.environ):
        return f"{kernel}, in VS Code"
    return f"{kernel}, in Jupyter" if "JPY_PARENT_PID" in os.environ else kernel


def _declared() -> Iterator[tuple[str, str, str]]:
    """Return name, least version and extra of each requirement."""
    try:
        lines = metadata.requires("smdwidgets") or []
    except metadata.PackageNotFoundError:  # imported from a source tree
        lines = []
    for line in lines:
        found = _REQUIREMENT.match(line)
        if found and found[1] != "smdwidgets":
            yield found[1], found[2] or "0", found[3] or ""


def _found(group: str, name: str, least: str, remedy: str, required: bool) -> Check:
    version = _version(name)
    if version is None:
        return Check(group, name, "problem" if required else "absent", "not installed", remedy)
    if _numbers(version) < _numbers(least):
        return Check(group, name, "problem", f"{version} is older than {least}", f"pip install '{name}>={least}'")
    return Check(group, name, "ok", version)


def _tried(group: str, name: str, do: Callable[[], str], remedy: str) -> Check:
    """Return the result of an action; an exception is a problem."""
    try:
        return Check(group, name, "ok", do())
    except Exception as error:
        return Check(group, name, "problem", visible(f"{type(error).__name__}: {error}", 400), remedy)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number)  # type: ignore[index]


def _labextensions() -> list[Path]:
    try:
        from jupyter_core.paths import jupyter_path
    except ImportError:
        return [Path(sys.prefix) / "share" / "jupyter" / "labextensions"]
    return [Path(folder) for folder in jupyter_path("labextensions")]


def _json_version(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("version", "?")
    except (OSError, ValueError):
        return "unreadable"
