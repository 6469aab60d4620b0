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
from e2e.jupyter import Jupyter, Server
from e2e.replaying import CAUSE, NOTEBOOK, ROW, replayed, trained, tried


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
                explorer = trained(notebook)
                if theme == "light":
                    save(picture(explorer), "replay-offer")
                panel = replayed(explorer)
                expect(panel).to_contain_text(f"without row {ROW}: heals")
                expect(panel).to_contain_text(CAUSE)
                expect(tried(panel, "clip 1")).to_contain_text("stays")
                save(picture(explorer), f"replay-{theme}")
            jupyter.close(check=True)
        finally:
            server.stop()


def picture(explorer: Locator) -> Image.Image:
    """Return a picture of the widget, without the name of this program's directory."""
    explorer.evaluate("el => { el.querySelector('.smdw-run-name').textContent = 'run'; }")
    explorer.page.mouse.move(0, 0)
    return Image.open(io.BytesIO(explorer.screenshot())).convert("RGB")


if __name__ == "__main__":
    main()
