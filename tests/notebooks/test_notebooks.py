"""Every committed notebook runs from top to bottom in a real kernel.

The pages that its widgets save have no dead end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from pathlib import Path

import nbformat
import pytest
import zmq
from jupyter_client.channels import HBChannel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from notebooks.saved_pages import expect_no_dead_end, without_network

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
#: Saves each widget that the cells made twice: as it is, and without pictures.
SAVE_PAGES = """
from ipywidgets.widgets import widget as _widget
from smdwidgets.widgets.base import RunWidget
for _number, _shown in enumerate([one for one in list(_widget._instances.values()) if isinstance(one, RunWidget)]):
    _shown.to_html(f"{_number}-{_shown.KIND}-full.html")
    _shown.to_html(f"{_number}-{_shown.KIND}-statistics.html", tensors=[])
"""


class Client(NotebookClient):
    """Stops the heartbeat before the cleanup, which closes all sockets.

    The heartbeat's thread opens a socket each second while a kernel ends. One opened during the cleanup lets it wait
    for ever.
    """

    async def _async_cleanup_kernel(self) -> None:
        if self.kc is not None and self.kc.hb_channel.is_alive():
            self.kc.hb_channel.stop()
        await super()._async_cleanup_kernel()


def missing(path: Path) -> list[str]:
    """Return the packages that a notebook needs and the kernel does not have.

    Its metadata lists those that it needs.
    """
    needs = nbformat.read(path, as_version=4).metadata.get("smdwidgets", {}).get("needs", [])
    return [name for name in needs if importlib.util.find_spec(name) is None]


def execute(path: Path, folder: Path, *, then: str = "") -> nbformat.NotebookNode:
    """Run a copy of a notebook in `folder`, and then one cell more.

    The folder also contains Jupyter's directories.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(then))
    client = Client(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            place = folder / f".{name.lower()}"
            place.mkdir()
            patch.setenv(name, str(place))
        patch.setenv("CI", "true")
        patch.setenv("SMDWIDGETS_DEMO_SECONDS", "0")  # what a user watches for two minutes
        client.execute()
    return notebook


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # of the kernel's client libraries
def test_notebook_runs_and_its_pages_have_no_dead_end(path, tmp_path, browser):
    if names := missing(path):
        pytest.skip(f"{path.name} needs {', '.join(names)}; make test-frameworks runs it")
    expect_no_error(execute(path, tmp_path, then=SAVE_PAGES))
    pages = sorted(tmp_path.glob("[0-9]*.html"))
    assert bool(pages) == (path.stem != "07_hook_your_script")  # the only notebook without a widget
    with without_network(browser) as opened:
        for page in pages:
            expect_no_dead_end(opened(page), statistics=page.stem.endswith("statistics"))


def expect_no_error(notebook: nbformat.NotebookNode) -> None:
    """Assert that no cell raised or wrote to standard error."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error"
            assert output.get("name") != "stderr", f"a cell wrote to standard error: {output.text}"


@pytest.mark.timeout(1200)  # as long as all tests of single notebooks together
@pytest.mark.filterwarnings("default")
def test_notebooks_run_in_one_kernel_in_reverse_order(tmp_path):
    """No notebook is harmed by what another one left in the kernel."""
    paths = sorted((path for path in FOLDER.glob("*.ipynb") if not missing(path)), reverse=True)
    cells = [cell for path in paths for cell in nbformat.read(path, as_version=4).cells]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell{number}"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "all.ipynb")
    expect_no_error(execute(tmp_path / "all.ipynb", tmp_path))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("source", ["1", "1 / 0"])
def test_no_heartbeat_uses_sockets_while_they_are_closed(source, tmp_path, monkeypatch):
    beating = []
    destroy = zmq.Context.destroy

    def observed(context, **options):
        beating.extend(thread for thread in threading.enumerate() if isinstance(thread, HBChannel))
        destroy(context, **options)

    monkeypatch.setattr(zmq.Context, "destroy", observed)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbformat.write(notebook, tmp_path / "short.ipynb")
    with contextlib.suppress(CellExecutionError):
        execute(tmp_path / "short.ipynb", tmp_path)
    assert beating == []


@pytest.mark.filterwarnings("default")
def test_exception_in_a_notebook_is_detected(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    nbformat.write(notebook, tmp_path / "raises.ipynb")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(tmp_path / "raises.ipynb", tmp_path)
