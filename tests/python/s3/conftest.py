"""One server of each kind per session, and one bucket per test."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import CREDENTIALS, moto_server, rclone_server
from smdwidgets.storage.credentials.aws import connect

_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def credentials() -> Iterator[None]:
    """Credentials for loopback, without those of this machine."""
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    for name, value in {**CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}.items():
        patch.setenv(name, value)
    yield
    patch.undo()


@pytest.fixture(scope="session", params=["moto", pytest.param("rclone", marks=pytest.mark.slow)])
def endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, credentials: None
) -> Iterator[str]:
    """The endpoint of a real S3 server; tests that use it run against each."""
    server = moto_server() if request.param == "moto" else rclone_server(tmp_path_factory.mktemp("rclone"))
    with server as address:
        yield address


@pytest.fixture
def client_for() -> Iterator[Callable[[str], Any]]:
    """Create clients as the package does, and close them after the test."""
    with contextlib.ExitStack() as made:
        yield lambda endpoint: made.enter_context(contextlib.closing(connect(endpoint_url=endpoint)))


@pytest.fixture
def raw(endpoint: str, client_for: Callable[[str], Any]) -> Any:
    """A client that connects to the server directly."""
    return client_for(endpoint)


@pytest.fixture
def bucket(raw: Any) -> str:
    """A new, empty bucket."""
    name = f"runs-{os.getpid()}-{next(_numbers)}"
    raw.create_bucket(Bucket=name)
    return name


@pytest.fixture
def upload(raw: Any) -> Callable[[Path, str, str], None]:
    """Copy a run directory to a prefix of a bucket, in the order of names."""

    def copy(run: Path, bucket: str, prefix: str) -> None:
        for path in sorted(run.rglob("*")):
            if path.is_file():
                raw.upload_file(str(path), bucket, f"{prefix}/{path.relative_to(run).as_posix()}")

    return copy
