"""Fixtures of the browser tests: `lab`, `notebook7`, and `jupyter` for both."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from e2e.chromium import launch
from e2e.jupyter import Jupyter, Server
from e2e.training import WRITER

FAILED = pytest.StashKey[bool]()
# The expected result arrives; how soon depends on the load of the machine.
expect.set_options(timeout=90_000)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """The Chromium of this machine, without a display."""
    # Only loopback addresses resolve.
    browser = launch(playwright, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost")
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def shots(repository: Path) -> Path:
    """The folder of screenshots, for review."""
    return repository / ".cache" / "screenshots"


def _servers(app: str, factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(app, factory.mktemp(app))
    try:
        server.wait()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _servers("lab", tmp_path_factory)


@pytest.fixture(scope="session")
def notebook_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _servers("notebook", tmp_path_factory)


def _jupyter(request: pytest.FixtureRequest, server: str, browser: Browser, shots: Path) -> Iterator[Jupyter]:
    opened = Jupyter(request.getfixturevalue(server), browser, shots)
    yield opened
    # A failed test has its own message; errors of the page would hide it.
    opened.close(check=not request.node.stash.get(FAILED, False))


@pytest.fixture
def lab(request: pytest.FixtureRequest, browser: Browser, shots: Path) -> Iterator[Jupyter]:
    """JupyterLab."""
    yield from _jupyter(request, "lab_server", browser, shots)


@pytest.fixture
def notebook7(request: pytest.FixtureRequest, browser: Browser, shots: Path) -> Iterator[Jupyter]:
    """Notebook 7."""
    yield from _jupyter(request, "notebook_server", browser, shots)


@pytest.fixture(
    params=["lab_server", pytest.param("notebook_server", marks=pytest.mark.slow)], ids=["lab", "notebook7"]
)
def jupyter(request: pytest.FixtureRequest, browser: Browser, shots: Path) -> Iterator[Jupyter]:
    """JupyterLab, then Notebook 7."""
    yield from _jupyter(request, request.param, browser, shots)


@pytest.fixture
def writer(tmp_path: Path, repository: Path) -> Iterator[subprocess.Popen[str]]:
    """A training in another process that saves a step for each line of its input."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "live"), str(repository / "tests")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin
        yield process
        process.stdin.close()
        assert process.wait(30) == 0
