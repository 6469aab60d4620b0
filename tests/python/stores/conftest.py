"""One server of each kind per session, and one bucket per test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from python.stores.places import KINDS, WRITABLE, Place, Places, places, without_clouds


@pytest.fixture(scope="session", autouse=True)
def no_credentials() -> Iterator[pytest.MonkeyPatch]:
    """Hide the credentials of this machine."""
    patch = pytest.MonkeyPatch()
    for name in without_clouds(os.environ):
        patch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        patch.setenv(name, os.devnull)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("NO_GCE_CHECK", "true")
    yield patch
    patch.undo()


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """The servers; each starts when a test first asks for it."""
    with places(tmp_path_factory.mktemp("stores")) as made:
        yield made


#: Kinds of servers with which `make test` does not repeat each test.
SLOW = {"rclone", "azure"}


def _with_marks(kinds: tuple[str, ...]) -> list[Any]:
    return [pytest.param(kind, marks=pytest.mark.slow) if kind in SLOW else kind for kind in kinds]


@pytest.fixture(params=_with_marks(KINDS))
def place(request: pytest.FixtureRequest, stores: Places) -> Place:
    """A new bucket on each kind of server."""
    return stores.new(request.param)


@pytest.fixture(params=_with_marks(WRITABLE))
def bucket(request: pytest.FixtureRequest, stores: Places) -> Place:
    """A new bucket on each kind of server that can be written to."""
    return stores.new(request.param)


@pytest.fixture
def s3(stores: Places) -> Place:
    """A new bucket on moto."""
    return stores.new("moto")
