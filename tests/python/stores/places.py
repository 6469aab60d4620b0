"""A bucket on a server of each kind, and how to connect to it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers import CREDENTIALS, azure_server, google_server, moto_server, rclone_server, web_server
from servers.azure import ACCOUNT, KEY
from servers.google import Front

TOKEN = "a-token-of-the-tests"
KINDS = ("moto", "rclone", "google", "azure", "web")
WRITABLE = KINDS[:-1]
SCHEMES = {"moto": "s3", "rclone": "s3", "google": "gs", "azure": "az", "web": "https"}
_numbers = itertools.count()


@dataclass(frozen=True)
class Place:
    """An empty bucket; `put` writes to it without smdwidgets."""

    kind: str
    bucket: str
    endpoint: str
    put: Callable[[str, bytes], None]
    front: Front | None = None

    @property
    def scheme(self) -> str:
        """The kind of its store, as in addresses."""
        return SCHEMES[self.kind]

    def address(self, prefix: str, endpoint: str = "") -> str:
        """Return the URL of a prefix, for a web server at another endpoint."""
        if self.kind == "web":
            return f"{endpoint or self.endpoint}/{self.bucket}/{prefix}"
        return f"{self.scheme}://{self.bucket}/{prefix}"

    def options(self, endpoint: str = "") -> dict[str, Any]:
        """Return what `storage_options` says."""
        address = {} if self.kind == "web" else {"endpoint_url": endpoint or self.endpoint}
        return {**address, **self.secrets()}

    def secrets(self) -> dict[str, str]:
        """Return the credentials among the options."""
        if self.scheme == "s3":
            key, secret = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
            return {"key": key, "secret": secret, "region": "us-east-1"}
        return {"gs": {"token": TOKEN}, "az": {"account_name": ACCOUNT, "account_key": KEY}, "https": {}}[self.scheme]

    def environment(self, folder: Path, endpoint: str = "") -> dict[str, str]:
        """Return the variables by which a program finds this server.

        Files that they name are written to the folder.
        """
        there = endpoint or self.endpoint
        if self.scheme == "s3":
            return {**CREDENTIALS, "AWS_ENDPOINT_URL": there}
        if self.scheme == "gs":
            account = folder / "service-account.json"
            account.write_text(json.dumps(service_account()))
            return {"STORAGE_EMULATOR_HOST": there, "GOOGLE_APPLICATION_CREDENTIALS": str(account)}
        if self.scheme == "az":
            account_name = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
            return {**account_name, "AZURE_STORAGE_ENDPOINT": there}
        return {}

    def core(self, endpoint: str = "") -> tuple[str, dict[str, str]]:
        """Return the URL of the bucket and the options of `_core.ObjectStore`."""
        there = endpoint or self.endpoint
        if self.kind == "web":
            return f"{there}/{self.bucket}/", {"allow_http": "true"}
        options = {
            "s3": {
                "aws_endpoint": there,
                "aws_region": "us-east-1",
                "aws_access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
                "aws_secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            },
            "gs": {"google_base_url": there, "google_bearer_token": TOKEN},
            "az": {
                "azure_endpoint": there,
                "azure_storage_account_name": ACCOUNT,
                "azure_storage_account_key": KEY,
            },
        }[self.scheme]
        return f"{self.scheme}://{self.bucket}", {**options, "allow_http": "true"}

    def upload(self, run: Path, prefix: str) -> None:
        """Copy the files of a directory, in the order of their names."""
        for path in sorted(run.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(run).as_posix()}", path.read_bytes())


@functools.cache
def service_account() -> dict[str, str]:
    """Return the content of a key file of Google Cloud, with a new key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "tests",
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": "tests@tests.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "http://127.0.0.1:1/token",
    }


class Places:
    """Servers that start when they are first asked for, and run until the end."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder, self._running = folder, running
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()

    def new(self, kind: str, name: str = "") -> Place:
        """Return a new bucket on a server of this kind."""
        bucket = name or f"runs-{os.getpid()}-{next(_numbers)}"
        with self._lock:
            make: Callable[[str], Place] = getattr(self, f"_{kind}")
            return make(bucket)

    def _once(self, kind: str, start: Callable[[], contextlib.AbstractContextManager[Any]]) -> Any:
        if kind not in self._made:
            self._made[kind] = self._running.enter_context(start())
        return self._made[kind]

    def _s3(self, kind: str, bucket: str, endpoint: str) -> Place:
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        self._running.callback(client.close)
        client.create_bucket(Bucket=bucket)

        def put(key: str, content: bytes) -> None:
            client.put_object(Bucket=bucket, Key=key, Body=content)

        return Place(kind, bucket, endpoint, put)

    def _moto(self, bucket: str) -> Place:
        return self._s3("moto", bucket, self._once("moto", moto_server))

    def _rclone(self, bucket: str) -> Place:
        return self._s3("rclone", bucket, self._once("rclone", lambda: rclone_server(self._directory("rclone"))))

    def _google(self, bucket: str) -> Place:
        front: Front = self._once("google", google_server)
        # Signed tokens of a key file, and the token of the tests.
        front.accepts = lambda token: token == TOKEN or token.count(".") == 2
        front.create_bucket(bucket)
        return Place("google", bucket, front.endpoint, lambda key, content: front.put(bucket, key, content), front)

    def _azure(self, bucket: str) -> Place:
        from azure.storage.blob import BlobServiceClient

        endpoint: str = self._once("azure", azure_server)
        service = BlobServiceClient(endpoint, credential={"account_name": ACCOUNT, "account_key": KEY})
        self._running.callback(service.close)
        container = service.create_container(bucket)

        def put(key: str, content: bytes) -> None:
            container.upload_blob(key, content, overwrite=True)

        return Place("azure", bucket, endpoint, put)

    def _web(self, bucket: str) -> Place:
        root = self._directory("web")
        endpoint: str = self._once("web", lambda: web_server(root))
        (root / bucket).mkdir()

        def put(key: str, content: bytes) -> None:
            path = root / bucket / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

        return Place("web", bucket, endpoint, put)

    def _directory(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return folder


@contextlib.contextmanager
def places(folder: Path) -> Iterator[Places]:
    """Stop the servers at the end."""
    with ExitStack() as running:
        yield Places(folder, running)


def without_clouds(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that configure access to a store on this machine."""
    start = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST", "CLOUDSDK_")
    return [name for name in environment if name.startswith(start)]
