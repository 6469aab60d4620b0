"""A real Jupyter server on loopback, with a notebook open in a real browser.

A notebook is ready when its kernel's session is, not when an icon shows idle. Nothing is awaited inside the page,
because a promise that never settles has no time limit.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

TOKEN = "loopback-only"
MS = 1000
#: A page is closed after so many tests, which bounds its memory.
USES = 12
#: Numbers of the runs of cells, which differ between the notebooks of a page.
RUNS = itertools.count()

READY = """([path, cells]) => {
  const panel = window.jupyterapp && window.jupyterapp.shell.currentWidget;
  const session = panel && panel.context && panel.context.sessionContext;
  return session && session.isReady && session.session && session.kernelDisplayStatus === "idle"
    && panel.context.path === path && panel.content.widgets.length === cells;
}"""
OPEN = """(path) => { window.jupyterapp.commands.execute("docmanager:open", { path }); }"""
# Without the question whether to save.
CLOSE_ALL = """() => {
  for (const each of [...window.jupyterapp.shell.widgets("main")]) each.dispose();
  return !document.querySelector(".jp-Dialog, .smdw");
}"""
# The command's promise settles after the cell has run and its outputs exist; it is recorded, not awaited.
RUN = """([index, run]) => {
  const content = window.jupyterapp.shell.currentWidget.content;
  content.activeCellIndex = index;
  content.deselectAll();
  window.jupyterapp.commands.execute("notebook:run-cell").then(() => { (window.ranByTest ??= new Set()).add(run); });
}"""
RAN = "(run) => window.ranByTest?.has(run)"
RUN_ALL = """() => { window.jupyterapp.commands.execute("notebook:run-all-cells"); }"""
# An output that was on its way when it was cleared comes after it.
CLEARED = """(index) => {
  const { content } = window.jupyterapp.shell.currentWidget;
  if (content.widgets[index].model.outputs.length === 0) return true;
  content.activeCellIndex = index;
  content.deselectAll();
  window.jupyterapp.commands.execute("notebook:clear-cell-output");
  return false;
}"""
RESTART = """() => {
  window.restartedByTest = false;
  const { kernel } = window.jupyterapp.shell.currentWidget.context.sessionContext.session;
  kernel.restart().then(() => { window.restartedByTest = true; });
}"""
SAVE = """() => {
  window.savedByTest = false;
  window.jupyterapp.shell.currentWidget.context.save().then(() => { window.savedByTest = true; });
}"""
THEME = """(name) => { window.jupyterapp.commands.execute("apputils:change-theme", { theme: name }); }"""
THEMED = """(name) => document.body.dataset.jpThemeName === name && !document.getElementById("jupyterlab-splash")"""

# Notebook 7 logs this on every page.
KNOWN_NOISE = ("Cannot read properties of undefined (reading 'schema')",)


#: A kernel that handles all messages on one thread, as ipykernel 6 does.
ONE_THREAD = """
from ipykernel.kernelapp import IPKernelApp
class OneThread(IPKernelApp):
    def init_control(self, context):
        super().init_control(context)
        self.shell_channel_thread = None
OneThread.launch_instance()
"""


def notebook_json(cells: Sequence[str], kernel: str = "python3") -> dict[str, Any]:
    """Return a notebook with these code cells."""
    return {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell{i}",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": text,
            }
            for i, text in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": kernel, "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def free_port() -> int:
    """Return a port of this machine on which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Server:
    """JupyterLab ("lab") or Notebook 7 ("notebook") with a separate home directory."""

    def __init__(self, app: str, root: Path) -> None:
        self.app = app
        self.files = root / "files"
        self.log = root / "server.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = self._start(root)
        self._context: BrowserContext | None = None
        self._spare: list[Page] = []
        self._uses: dict[Page, int] = {}

    def context(self, browser: Browser) -> BrowserContext:
        """The browser context of this server's pages, which share a cache."""
        if self._context is None:
            self._context = browser.new_context()
            self._context.set_default_timeout(90 * MS)
        return self._context

    def take(self, browser: Browser) -> tuple[Page, bool]:
        """Return a page, and whether it shows JupyterLab without a notebook.

        To load JupyterLab takes longer than most tests, so a page is used for several, as people do.
        """
        if self._spare:
            return self._spare.pop(), True
        return self.context(browser).new_page(), False

    def give_back(self, page: Page) -> None:
        """Close the notebooks of a page, and keep it for the next test."""
        self._uses[page] = self._uses.get(page, 0) + 1
        if page.is_closed():
            return
        page.mouse.move(0, 0)
        if self.app != "lab" or self._uses[page] >= USES or not page.evaluate(CLOSE_ALL):
            page.close()
        else:
            self._spare.append(page)

    def _start(self, root: Path) -> subprocess.Popen[bytes]:
        self.files.mkdir(parents=True)
        settings = root / "settings"
        settings.mkdir()
        quiet = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
        (settings / "overrides.json").write_text(json.dumps(quiet))
        homes = {
            "HOME": root / "home",
            "IPYTHONDIR": root / "ipython",
            "JUPYTER_CONFIG_DIR": root / "config",
            "JUPYTER_DATA_DIR": root / "data",
            "JUPYTER_RUNTIME_DIR": root / "runtime",
            "JUPYTERLAB_SETTINGS_DIR": root / "user-settings",
            "JUPYTERLAB_WORKSPACES_DIR": root / "workspaces",
        }
        for home in homes.values():
            home.mkdir()
        spec = homes["JUPYTER_DATA_DIR"] / "kernels" / "one-thread"
        spec.mkdir(parents=True)
        command = [sys.executable, "-c", ONE_THREAD, "-f", "{connection_file}"]
        (spec / "kernel.json").write_text(
            json.dumps({"argv": command, "display_name": "One thread", "language": "python"})
        )
        # Kernels must have the default warning filters, not those of pytest.
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "JUPYTER_", "PYTHONWARNINGS"))}
        command = [
            sys.executable,
            "-m",
            "jupyterlab" if self.app == "lab" else "notebook",
            "--no-browser",
            "--allow-root",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={self.port}",
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={self.files}",
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.extension_manager=readonly",
            "--JupyterNotebookApp.expose_app_in_browser=True",
            f"--LabApp.app_settings_dir={settings}",
            f"--LabServerApp.app_settings_dir={settings}",
        ]
        with self.log.open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=root,
                env=env | {name: str(home) for name, home in homes.items()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, seconds: float = 90) -> None:
        """Wait until the server replies."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/api?token={TOKEN}", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise RuntimeError(f"the Jupyter server did not start:\n{self.log.read_text(errors='replace')[-4000:]}")

    def stop(self) -> None:
        """Stop the server and its kernels, which are its children."""
        if os.name == "nt":
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(self._process.pid)], capture_output=True, check=False)
            self._process.wait(30)
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                os.killpg(self._process.pid, how)
                try:
                    self._process.wait(15)
                except subprocess.TimeoutExpired:
                    continue

    def page_of(self, name: str) -> str:
        """Return the address of a notebook."""
        # A separate workspace: JupyterLab would otherwise reopen the notebooks of earlier tests.
        place = f"lab/workspaces/{Path(name).parent}/tree" if self.app == "lab" else "notebooks"
        return f"{self.url}/{place}/{name}?token={TOKEN}"


class Notebook:
    """One notebook, open in the browser with its kernel ready."""

    def __init__(self, page: Page, server: Server, shots: Path) -> None:
        self.page = page
        self.server = server
        self.shots = shots
        self.foreign: list[str] = []
        self.errors: list[str] = []
        # Observed, not routed: routing would disable the browser's cache, and JupyterLab has megabytes of scripts.
        self._listeners: dict[str, Callable[[Any], None]] = {
            "request": self._request,
            "pageerror": lambda error: self._error(str(error)),
            "console": self._console,
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)  # type: ignore[call-overload]

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.server.url, "blob:", "data:")):
            self.foreign.append(request.url)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._error(message.text)

    def _error(self, text: str) -> None:
        if not any(noise in text for noise in KNOWN_NOISE):
            self.errors.append(text[:500])

    def open(self, name: str, cells: int, *, dark: bool = False, running: bool = False) -> None:
        """Open a notebook and wait for its kernel.

        With `running`, in the JupyterLab that the page shows.
        """
        if running:
            self.page.evaluate(OPEN, name)
        else:
            self.page.goto(self.server.page_of(name), wait_until="domcontentloaded")
        self.page.wait_for_function(READY, arg=[name, cells])
        theme = f"JupyterLab {'Dark' if dark else 'Light'}"
        if self.page.evaluate("() => document.body.dataset.jpThemeName") != theme:
            self.theme(theme)

    def leave(self) -> None:
        """Listen to the page no longer."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def theme(self, name: str) -> None:
        """Change the page's theme in the menu, and wait until the splash is gone.

        JupyterLab removes its splash screen twice, which is an error, if the theme is changed again before.
        """
        self.page.evaluate(THEME, name)
        self.page.wait_for_function(THEMED, arg=name)

    def run(self, index: int, *, wait: bool = True, seconds: float = 90) -> Notebook:
        """Run a cell; with `wait`, until it has finished."""
        run = next(RUNS)
        self.page.evaluate(RUN, [index, run])
        if wait:
            self.page.wait_for_function(RAN, arg=run, timeout=seconds * MS)
        return self

    def restart(self) -> None:
        """Restart the kernel, and wait until it has."""
        self.page.evaluate(RESTART)
        self.page.wait_for_function("() => window.restartedByTest")

    def save(self) -> None:
        """Save the notebook's file, and wait until it is written."""
        self.page.evaluate(SAVE)
        self.page.wait_for_function("() => window.savedByTest")

    def run_all(self) -> Notebook:
        """Select Run All in the menu, without waiting for the cells."""
        self.page.evaluate(RUN_ALL)
        return self

    def prompt(self, index: int) -> Any:
        """Return the locator of a cell's prompt, which is "[*]:" while the cell runs."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index).locator(".jp-InputPrompt")

    def clear(self, index: int) -> None:
        """Clear a cell's output in the menu."""
        self.page.wait_for_function(CLEARED, arg=index, polling=50)

    def output(self, index: int) -> Any:
        """Return the locator of a cell's output area."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index).locator(".jp-Cell-outputArea")

    def text(self, index: int) -> str:
        """Return what a cell printed or displayed, as text."""
        text: str = self.output(index).inner_text()
        return text.strip()

    def expect_output(self, index: int, ending: str) -> None:
        """Run a cell until its output ends with this text.

        State from the browser is sent separately from the cell, and may arrive later.
        """
        heard: list[str] = []
        while len(heard) < 100 and not (heard and heard[-1].endswith(ending)):
            heard.append(self.run(index).text(index))
        assert heard[-1].endswith(ending), heard[-1]

    def screenshot(self, name: str, index: int | None = None) -> Path:
        """Save a screenshot of the page, or of one cell's output, for review."""
        self.shots.mkdir(parents=True, exist_ok=True)
        path = self.shots / f"{name}.png"
        (self.page if index is None else self.output(index)).screenshot(path=str(path))
        return path

    def check(self) -> None:
        """Assert that there were no requests beyond loopback, and no errors in the page."""
        assert not self.foreign, f"requests beyond loopback: {self.foreign}"
        assert not self.errors, f"errors in the browser's console: {self.errors}"


class Jupyter:
    """A server and a browser: opens notebooks, and checks each after the test."""

    def __init__(self, server: Server, browser: Browser, shots: Path) -> None:
        self.server = server
        self.app = server.app
        self._browser = browser
        self._shots = shots
        #: Notebooks, and what to close after the test: None for a page that later tests use.
        self._open: list[tuple[Page | BrowserContext | None, Notebook]] = []
        self._count = 0

    def open(
        self,
        cells: Sequence[str] | Path,
        *,
        dark: bool = False,
        folder: str | None = None,
        size: tuple[int, int] = (1280, 900),
        kernel: str = "python3",
        prepare: Callable[[Page], None] | None = None,
        fresh: bool = False,
    ) -> Notebook:
        """Open a notebook of these cells (or a copy of this .ipynb) in a separate tab.

        The kernel's working directory is `folder` below the server's root, a new one by default. `prepare` gets the
        page before anything is loaded, to add init scripts. With `fresh`, no earlier test has used the page.
        """
        self._count += 1
        folder = folder or f"test{time.monotonic_ns()}"
        place = self.server.files / folder
        place.mkdir(exist_ok=True)
        content = json.loads(cells.read_text("utf-8")) if isinstance(cells, Path) else notebook_json(cells, kernel)
        (place / "notebook.ipynb").write_text(json.dumps(content), encoding="utf-8")
        own = fresh or prepare is not None
        page, running = (
            (self.server.context(self._browser).new_page(), False) if own else self.server.take(self._browser)
        )
        page.set_viewport_size({"width": size[0], "height": size[1]})
        if prepare:
            prepare(page)
        return self._show(page, page if own else None, folder, len(content["cells"]), dark, running)

    def reopen(self, folder: str, cells: int) -> Notebook:
        """Open a notebook again with its running kernel, as another tab or user does."""
        context = self._browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(90 * MS)
        return self._show(context.new_page(), context, folder, cells, False)

    def _show(
        self,
        page: Page,
        opened: Page | BrowserContext | None,
        folder: str,
        cells: int,
        dark: bool,
        running: bool = False,
    ) -> Notebook:
        notebook = Notebook(page, self.server, self._shots)
        self._open.append((opened, notebook))
        notebook.open(f"{folder}/notebook.ipynb", cells, dark=dark, running=running)
        return notebook

    def close(self, *, check: bool) -> None:
        """Close all notebooks and stop their kernels."""
        opened, self._open = self._open, []
        for each, notebook in opened:
            notebook.leave()
            if each:
                each.close()
            elif check:
                self.server.give_back(notebook.page)
            else:
                notebook.page.close()
        self.end_kernels()
        if check:
            for _, notebook in opened:
                notebook.check()

    def end_kernels(self) -> None:
        """End the kernels of all notebooks."""
        headers = {"Authorization": f"token {TOKEN}"}
        asked = urllib.request.Request(f"{self.server.url}/api/sessions", headers=headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            sessions = json.load(answer)
        for session in sessions:
            url = f"{self.server.url}/api/sessions/{session['id']}"
            with urllib.request.urlopen(urllib.request.Request(url, method="DELETE", headers=headers), timeout=30):
                pass
