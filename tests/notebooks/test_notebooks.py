"""Every committed notebook runs from top to bottom in a real kernel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"


def missing(path: Path) -> list[str]:
    """Return the packages that a notebook needs and the kernel does not have.

    Its metadata lists those that it needs.
    """
    needs = nbformat.read(path, as_version=4).metadata.get("smdwidgets", {}).get("needs", [])
    return [name for name in needs if importlib.util.find_spec(name) is None]


def execute(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> nbformat.NotebookNode:
    """Run a copy of a notebook in `folder`, which also contains Jupyter's directories."""
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        place = folder / f".{name.lower()}"
        place.mkdir()
        monkeypatch.setenv(name, str(place))
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("SMDWIDGETS_DEMO_SECONDS", "0")  # what a user watches for two minutes
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute()
    return notebook


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # of the kernel's client libraries
def test_notebook_runs(path, tmp_path, monkeypatch):
    if names := missing(path):
        pytest.skip(f"{path.name} needs {', '.join(names)}; make test-frameworks runs it")
    expect_no_error(execute(path, tmp_path, monkeypatch))


def expect_no_error(notebook: nbformat.NotebookNode) -> None:
    """Assert that no cell raised or wrote to standard error."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error"
            assert output.get("name") != "stderr", f"a cell wrote to standard error: {output.text}"


@pytest.mark.filterwarnings("default")
def test_notebooks_run_in_one_kernel_in_reverse_order(tmp_path, monkeypatch):
    """No notebook is harmed by what another one left in the kernel."""
    paths = sorted((path for path in FOLDER.glob("*.ipynb") if not missing(path)), reverse=True)
    cells = [cell for path in paths for cell in nbformat.read(path, as_version=4).cells]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell{number}"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "all.ipynb")
    expect_no_error(execute(tmp_path / "all.ipynb", tmp_path, monkeypatch))


@pytest.mark.filterwarnings("default")
def test_exception_in_a_notebook_is_detected(tmp_path, monkeypatch):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    nbformat.write(notebook, tmp_path / "raises.ipynb")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(tmp_path / "raises.ipynb", tmp_path, monkeypatch)
