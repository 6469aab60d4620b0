"""Azurite, Microsoft's emulator of Azure Blob Storage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from servers.processes import free_port, running

#: The account that every Azurite has, and its published key.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
#: Where the set-up step `servers` installs it.
PROGRAM = Path(__file__).resolve().parents[2] / ".cache" / "servers" / "node_modules" / "azurite"


@contextlib.contextmanager
def azure_server() -> Iterator[str]:
    """Run Azurite with its data in memory; yield the endpoint of its account."""
    if not PROGRAM.is_dir():
        raise RuntimeError("Azurite is missing: python tools/setup.py servers")
    port = free_port()
    command = ["node", str(PROGRAM / "dist" / "src" / "blob" / "main.js"), "--blobHost", "127.0.0.1"]
    # Without --disableTelemetry it sends reports to Microsoft.
    options = ["--blobPort", str(port), "--silent", "--inMemoryPersistence", "--disableTelemetry"]
    with running([*command, *options, "--skipApiVersionCheck"], port) as endpoint:
        yield f"{endpoint}/{ACCOUNT}"
