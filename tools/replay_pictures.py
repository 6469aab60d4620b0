"""Take the pictures of docs/time-travel.md from a notebook in JupyterLab.

Usage: `python tools/replay_pictures.py`.

The kernel trains the transformer of `notebooks/10_from_nan_to_fixed_line.ipynb`, a click on Replay executes its steps
again, and headless Chromium takes pictures before and after. PyTorch comes from `.venv-torch`, which
`make test-frameworks ARGS=torch` creates.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Locator, expect

from pictures import PICTURES, ROOT, chromium, save

sys.path.insert(0, str(ROOT / "tests"))
from e2e.jupyter import Jupyter, Notebook, Server

NOTEBOOK = ROOT / "notebooks" / "10_from_nan_to_fixed_line.ipynb"
#: The cells up to the explorer, which is the output of the third cell with code.
CELLS, EXPLORER = (1, 2, 4), 2


def main() -> None:
    """Write all pictures."""
    [packages] = (ROOT / ".venv-torch" / "lib").glob("python3*/site-packages") or sys.exit("error: no .venv-torch")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        server = Server("lab", Path(folder))
        try:
            # After the packages of the kernel, of which it has other versions.
            startup = Path(folder) / "ipython" / "profile_default" / "startup"
            startup.mkdir(parents=True)
            (startup / "torch.py").write_text(f"import sys\nsys.path.append({str(packages)!r})\n")
            server.wait()
            jupyter = Jupyter(server, browser, Path(folder))
            for theme in ("light", "dark"):
                notebook = jupyter.open(NOTEBOOK, dark=theme == "dark", size=(1280, 1000))
                explorer = opened(notebook)
                if theme == "light":
                    save(picture(explorer), "replay-offer")
                replayed(explorer)
                save(picture(explorer), f"replay-{theme}")
            jupyter.close(check=True)
        finally:
            server.stop()


def opened(notebook: Notebook) -> Locator:
    """Train, and return the explorer on the finding."""
    for cell in CELLS:
        notebook.run(cell, seconds=300)
    explorer = notebook.output(EXPLORER).locator(".smdw").first
    explorer.scroll_into_view_if_needed()
    expect(explorer.get_by_role("button", name="Replay", exact=True)).to_be_visible(timeout=120_000)
    located: Locator = explorer
    return located


def replayed(explorer: Locator) -> None:
    """Press Replay, then try a change that does not heal."""
    panel = explorer.get_by_role("group", name="Replay", exact=True)
    panel.get_by_role("button", name="Replay", exact=True).click()
    expect(panel).to_contain_text("without row 413: heals", timeout=120_000)
    expect(panel).to_contain_text("return scores.softmax(-1) @ self.value(x)")
    expect(panel).to_contain_text("bit-equal, 11 of 11 steps")
    panel.get_by_role("button", name="clip 1").click()
    expect(panel).to_contain_text("clip 1: stays", timeout=120_000)
    expect(panel.get_by_role("button", name="Replay again")).to_be_visible()


def picture(explorer: Locator) -> Image.Image:
    """Return a picture of the widget, without the name of this program's directory."""
    explorer.evaluate("el => { el.querySelector('.smdw-run-name').textContent = 'run'; }")
    explorer.page.mouse.move(0, 0)
    return Image.open(io.BytesIO(explorer.screenshot())).convert("RGB")


if __name__ == "__main__":
    main()
