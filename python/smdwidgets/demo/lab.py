"""Run JupyterLab as a process, and execute notebooks in a kernel."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugRuntimeError

_TIMEOUT = 90.0
#: JupyterLab's question whether it may notify about news would cover a corner of the first notebook.
_PAGE_CONFIG = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}


def has_lab() -> bool:
    """Whether JupyterLab is installed in this environment."""
    return importlib.util.find_spec("jupyterlab") is not None


def free_port(wanted: int | None = None) -> int:
    """Return a free port: `wanted`, or by default 8888 or any other.

    Raises if `wanted` is in use.
    """
    for port in [wanted] if wanted is not None else [8888, 0]:
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = sock.getsockname()[1]
            return found
    raise SMDebugRuntimeError(f"port {wanted} is in use; choose another --port, or omit it to use any free port")


class Lab:
    """A JupyterLab server process on the loopback interface with a random token."""

    def __init__(
        self, root: Path, notebook: str, port: int, *, browser: bool, log: Path, environment: dict[str, str]
    ) -> None:
        self.notebook = notebook
        self.port = port
        self.log = log
        self._token = secrets.token_urlsafe(16)
        command = [
            sys.executable,
            "-m",
            "jupyterlab",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={root}",
            *([] if browser else ["--no-browser"]),
            *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
            str(root / notebook),
        ]
        config = root / ".jupyter"
        (config / "labconfig").mkdir(parents=True, exist_ok=True)
        (config / "labconfig" / "page_config.json").write_text(json.dumps(_PAGE_CONFIG), encoding="utf-8")
        paths = [str(config), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
        own_group: dict[str, Any] = {"process_group": 0}
        if sys.platform == "win32":
            own_group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                cwd=root,
                # A token on the command line would be visible to every user of the machine.
                env={
                    **os.environ,
                    **environment,
                    "JUPYTER_CONFIG_PATH": os.pathsep.join(paths),
                    "JUPYTER_TOKEN": self._token,
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                **own_group,
            )

    @property
    def url(self) -> str:
        """URL of the notebook, including the token."""
        return f"http://127.0.0.1:{self.port}/lab/tree/{self.notebook}?token={self._token}"

    @property
    def running(self) -> bool:
        """Whether the server process is running."""
        return self._process.poll() is None

    def wait_until_up(self, timeout: float = _TIMEOUT) -> None:
        """Wait until the server answers for the notebook URL.

        Raises if the server exits or the timeout expires first.
        """
        end = time.monotonic() + timeout
        while self.running and time.monotonic() < end:
            try:
                with urllib.request.urlopen(self.url, timeout=10):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        reason = f": {lines[-1]}" if lines else ""
        raise SMDebugRuntimeError(f"JupyterLab did not start; see its log {shown(str(self.log), 400)}{reason}")

    def stop(self, timeout: float = 15.0) -> None:
        """Stop the server, which stops its kernels; kill it after the timeout."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(timeout)


def executed(notebook: Path, timeout: int = 120) -> Iterator[tuple[str, list[str]]]:
    """Execute a notebook and yield the source and text outputs of each code cell.

    Raises:
        SMDebugRuntimeError: a cell raised an exception.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    book = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        book, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": str(notebook.parent)}}
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise SMDebugRuntimeError(f"{notebook.name}: a cell raised {error.ename}: {error.evalue}") from None
    for cell in book.cells:
        if cell.cell_type == "code":
            yield cell.source, [text for output in cell.outputs if (text := _text_of(output))]


def _text_of(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text).rstrip()
    return str(output.get("data", {}).get("text/plain", "")).rstrip()
