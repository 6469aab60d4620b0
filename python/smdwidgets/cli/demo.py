"""Train a small network in a process of its own and look at it, while it trains, in JupyterLab.

The training writes for two minutes, with two faults planted in it that rules will find. Ctrl-C ends everything.

Examples:
  smdwidgets demo
  smdwidgets demo --no-browser --port 8899
  smdwidgets demo --headless-check --seconds 10     execute the notebook here and print what it shows
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from smdwidgets.exceptions import SMDebugRuntimeError

NOTEBOOK = "01_look_around.ipynb"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to put run and notebook (default: a temporary one)"
    )
    parser.add_argument(
        "--seconds", type=float, default=120, metavar="N", help="how long to train (default: %(default)g)"
    )
    parser.add_argument("--port", type=int, help="JupyterLab's port (default: a free one near 8888)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    parser.add_argument(
        "--headless-check", action="store_true", help="without JupyterLab: execute the notebook, print what it shows"
    )


def run(args: argparse.Namespace) -> int:
    """Trains and shows, until the person has seen enough."""
    _need("nbclient" if args.headless_check else "jupyterlab")
    with _folder(args.out) as folder, _training(folder / "run", args.seconds) as training:
        notebook = folder / NOTEBOOK
        packaged = resources.files("smdwidgets.demo") / "look_around.ipynb"
        notebook.write_bytes(packaged.read_bytes())
        print(f"A training writes into {folder / 'run'} for {args.seconds:g} s.", flush=True)
        if args.headless_check:
            return _check(notebook, training)
        return _lab(notebook, args.port, browser=not args.no_browser)


def _need(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise SMDebugRuntimeError("The demo needs JupyterLab: pip install 'smdwidgets[lab]'")


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="smdwidgets-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _training(run: Path, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "smdwidgets.demo.training", str(run), "--seconds", str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes], patience: float = 10) -> None:
    """Asks a process to end, and makes it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _lab(notebook: Path, port: int | None, *, browser: bool) -> int:
    command = [sys.executable, "-m", "jupyterlab", str(notebook), f"--ServerApp.root_dir={notebook.parent}"]
    command += ["--ServerApp.ip=127.0.0.1", "--LabApp.news_url="]
    command += [f"--ServerApp.port={port}"] if port else []
    command += [] if browser else ["--no-browser"]
    command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    # A session of its own keeps Ctrl-C from reaching the server twice, which would make it ask whether we are sure.
    lab = subprocess.Popen(command, start_new_session=os.name != "nt")
    try:
        with _terminated_like_interrupted():
            return lab.wait()
    except KeyboardInterrupt:
        print("\nEnding the demo.", file=sys.stderr)
        return 0
    finally:
        _end(lab)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Within, SIGTERM ends the demo as Ctrl-C does, so that nothing stays behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check(notebook: Path, training: subprocess.Popen[bytes]) -> int:
    """Executes the notebook when half of the training is there, and again when it has ended."""
    for when in ("while it trains", "when it has ended"):
        if when != "while it trains" and training.wait():
            raise SMDebugRuntimeError(f"The training ended with {training.returncode}")
        began = time.monotonic()
        shown = _execute(notebook)
        print(f"\n=== {NOTEBOOK}, {when} ({time.monotonic() - began:.1f} s)\n")
        print("\n\n".join(shown))
    return 0


def _execute(path: Path) -> list[str]:
    """The text that each cell shows. A cell that raises is an error."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}})
    try:
        client.execute()
    except CellExecutionError as error:
        raise SMDebugRuntimeError(f"{path.name} failed: {error}") from error
    return [text for cell in notebook.cells for output in cell.get("outputs", []) if (text := _text(output))]


def _text(output: Any) -> str:
    found = output.get("text") or output.get("data", {}).get("text/plain", "")
    return str(found).rstrip()
