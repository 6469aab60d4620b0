"""Credentials of each store: their sources, their renewal, their secrecy."""

from __future__ import annotations

import base64
import configparser
import json
import logging
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

import smdwidgets
from python.stores.places import TOKEN, Place, Places, service_account
from servers import CREDENTIALS, FaultyProxy
from servers.azure import ACCOUNT, KEY
from servers.loopback import Loopback
from smdwidgets import create_trial
from smdwidgets._core import ObjectStore, StoreError
from smdwidgets.exceptions import SMDebugError
from smdwidgets.numpy import Hook

SECRET = "this-must-not-be-shown"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three steps."""
    every = smdwidgets.SaveConfig(save_interval=1)
    with Hook(str(tmp_path / "run"), save_all=True, save_config=every) as hook:
        for step in range(3):
            hook.save_tensor("w", np.full(4, step, np.float32))
            hook.step()
    return tmp_path / "run"


def check(address: str, **options: Any) -> None:
    """Open the run and read all of it."""
    with create_trial(address, **options) as trial:
        assert [trial.tensor("w").value(step).tolist() for step in trial.steps()] == [[step] * 4 for step in range(3)]


# --------------------------------------------------------------------------------------------------------- renewal


class Expiring:
    """Credentials that a server accepts a number of times, and their renewal."""

    def __init__(self, lasts: int) -> None:
        self._lasts, self._lock = lasts, threading.Lock()
        self.made = 0
        self._used: Counter[str] = Counter()

    def source(self, form: Callable[[str], dict[str, str]]) -> Callable[[], dict[str, str]]:
        """Return a function that makes credentials with a new token."""

        def make() -> dict[str, str]:
            with self._lock:
                self.made += 1
                return form(f"token-{self.made}")

        return make

    def refuses(self, headers: Mapping[str, str]) -> bool:
        """Whether the token of a request has been used too often; only the newest counts."""
        known = {name.lower(): value for name, value in headers.items()}
        token = known.get("x-amz-security-token") or known.get("authorization", "").removeprefix("Bearer ")
        with self._lock:
            self._used[token] += 1
            return self._used[token] > self._lasts or token != f"token-{self.made}"


def form(place: Place) -> Callable[[str], dict[str, str]]:
    if place.scheme == "s3":
        keys = {"key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"], "secret": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
        return lambda token: {**keys, "token": token}
    return lambda token: {"token": token}


@pytest.mark.parametrize("kind", ["moto", "google"])
def test_tokens_that_expire_while_reading_are_renewed(kind: str, stores: Places) -> None:
    """A token lasts for 20 requests, and the reading takes 120."""
    place = stores.new(kind)
    for n in range(120):
        place.put(f"run/{n:03}", b"%d" % n)
    expiring = Expiring(20)
    with FaultyProxy(place.endpoint, dialect=place.scheme) as proxy:
        if place.front is not None:
            place.front.accepts = lambda token: token.startswith("token-")
        proxy.refuses = expiring.refuses
        url, options = place.core(proxy.endpoint)
        fixed = {name: value for name, value in options.items() if "access" not in name and "token" not in name}
        with closing(ObjectStore(url, fixed, credentials=expiring.source(form(place)))) as store:
            for n in range(120):
                assert store.get(f"run/{n:03}", 100)[0] == b"%d" % n
        assert expiring.made >= 5
        assert proxy.played["expired"] >= 5


def test_credentials_that_stay_expired_are_an_error(s3: Place) -> None:
    with FaultyProxy(s3.endpoint) as proxy:
        proxy.refuses = lambda headers: True
        url, options = s3.core(proxy.endpoint)
        fixed = {name: value for name, value in options.items() if "access" not in name}
        source = Expiring(0).source(form(s3))
        with closing(ObjectStore(url, fixed, credentials=source)) as store, pytest.raises(StoreError) as raised:
            store.get("w", 100)
        assert raised.value.args[1] == "expired"
        assert sum(proxy.seen.values()) < 10, "one forced renewal, and no storm of requests"


def test_source_that_fails_is_an_error_with_its_reason(s3: Place) -> None:
    def fail() -> dict[str, str]:
        raise ValueError("the vault is closed")

    url, options = s3.core()
    fixed = {name: value for name, value in options.items() if "access" not in name}
    with closing(ObjectStore(url, fixed, credentials=fail)) as store, pytest.raises(StoreError) as raised:
        store.get("w", 100)
    assert raised.value.args[1] == "credentials"
    assert "the vault is closed" in raised.value.args[2]


# -------------------------------------------------------------------------------------------------------------- S3


def test_profile_with_an_endpoint(s3: Place, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.upload(run, "run")
    config = configparser.ConfigParser()
    with FaultyProxy(s3.endpoint) as proxy:
        config["profile training"] = {
            "aws_access_key_id": "the-key-of-the-profile",
            "aws_secret_access_key": SECRET,
            "region": "eu-west-1",
            "endpoint_url": proxy.endpoint,
        }
        with (tmp_path / "config").open("w") as file:
            config.write(file)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_PROFILE", "training")
        check(s3.address("run"))
        assert "the-key-of-the-profile" in proxy.headers[-1]["authorization"]
        assert "/eu-west-1/s3/" in proxy.headers[-1]["authorization"]
        monkeypatch.delenv("AWS_PROFILE")
        proxy.headers.clear()
        check(s3.address("run"), storage_options={"profile": "training"})
        assert "the-key-of-the-profile" in proxy.headers[-1]["authorization"]


def test_session_of_the_caller(s3: Place, run: Path) -> None:
    import boto3

    s3.upload(run, "run")
    session = boto3.Session("the-key-of-the-session", SECRET, region_name="us-east-1")
    with FaultyProxy(s3.endpoint) as proxy:
        check(s3.address("run"), session=session, endpoint_url=proxy.endpoint)
        assert all("the-key-of-the-session" in lower(headers)["authorization"] for headers in proxy.headers)


def publish(place: Place) -> None:
    """Permit everybody to read the objects of a bucket of S3."""
    import boto3

    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    with closing(boto3.client("s3", endpoint_url=place.endpoint, **keys)) as client:
        for found in client.list_objects_v2(Bucket=place.bucket)["Contents"]:
            client.put_object_acl(Bucket=place.bucket, Key=found["Key"], ACL="public-read")
        client.put_bucket_acl(Bucket=place.bucket, ACL="public-read")


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def test_anonymous_requests_are_not_signed(place: Place, run: Path) -> None:
    if place.kind == "azure":
        from azure.storage.blob import BlobServiceClient

        service = BlobServiceClient(place.endpoint, credential={"account_name": ACCOUNT, "account_key": KEY})
        with service, service.get_container_client(place.bucket) as container:
            container.set_container_access_policy({}, public_access="container")
    if place.kind == "rclone":
        pytest.skip("rclone requires signatures")
    if place.front is not None:
        place.front.accepts = lambda token: True
    place.upload(run, "run")
    if place.kind == "moto":
        publish(place)
    with FaultyProxy(place.endpoint, dialect=place.scheme) as proxy:
        account = {"account_name": ACCOUNT} if place.kind == "azure" else {}
        endpoint = {} if place.kind == "web" else {"endpoint_url": proxy.endpoint}
        check(place.address("run", proxy.endpoint), anonymous=True, storage_options={**account, **endpoint})
        assert proxy.headers
        assert not any("authorization" in lower(headers) for headers in proxy.headers)


def test_requester_pays(stores: Places, run: Path) -> None:
    for kind, asked, header, value in (
        ("moto", True, "x-amz-request-payer", "requester"),
        ("google", "a-project", "x-goog-user-project", "a-project"),
    ):
        place = stores.new(kind)
        place.upload(run, "run")
        with FaultyProxy(place.endpoint, dialect=place.scheme) as proxy:
            check(place.address("run"), requester_pays=asked, storage_options=place.options(proxy.endpoint))
            assert {lower(headers).get(header) for headers in proxy.headers} == {value}


def test_virtual_hosted_style(s3: Place, run: Path) -> None:
    """The bucket is in the name of the host, which a proxy resolves."""
    s3.upload(run, "run")
    with FaultyProxy(s3.endpoint) as proxy:
        options = {**s3.options("http://s3.amazonaws.com"), "proxy_url": proxy.endpoint}
        check(s3.address("run"), storage_options={**options, "virtual_hosted": True})
        assert {lower(headers)["host"] for headers in proxy.headers} == {f"{s3.bucket}.s3.amazonaws.com"}
        assert not any(f"/{s3.bucket}" in path.removeprefix("http://") for path in proxy.paths)
        proxy.headers.clear()
        check(s3.address("run"), storage_options=options)
        assert {lower(headers)["host"] for headers in proxy.headers} == {"s3.amazonaws.com"}


# ---------------------------------------------------------------------------------------------------- Google Cloud


class TokenEndpoint(Loopback):
    """A service that exchanges one token for another, as those of clouds do."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                service.asked.append(parse_qs(content.decode()))
                kind = "urn:ietf:params:oauth:token-type:access_token"
                answer = json.dumps(
                    {"access_token": TOKEN, "issued_token_type": kind, "token_type": "Bearer", "expires_in": 3600}
                ).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(Handler)
        self.url = f"{self.address}/token"


@pytest.fixture
def google(stores: Places, run: Path) -> Place:
    place = stores.new("google")
    place.upload(run, "run")
    return place


def test_key_file_of_a_service_account(google: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in google.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with FaultyProxy(google.endpoint, dialect="gs") as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.endpoint)
        check(google.address("run"))
        token = lower(proxy.headers[-1])["authorization"].removeprefix("Bearer ").split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert claims["iss"] == service_account()["client_email"]


@pytest.fixture
def token_endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as service:
        yield service


def test_file_of_a_federated_identity(
    google: Place, token_endpoint: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "subject").write_text("the-token-of-the-cluster")
    content = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": token_endpoint.url,
        "credential_source": {"file": str(tmp_path / "subject")},
    }
    (tmp_path / "adc.json").write_text(json.dumps(content))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "a-project")
    assert google.front is not None
    google.front.accepts = lambda token: token == TOKEN
    check(google.address("run"), endpoint_url=google.endpoint)
    assert token_endpoint.asked[0]["subject_token"] == ["the-token-of-the-cluster"]
    assert len(token_endpoint.asked) == 1, "one token for all requests"


# ----------------------------------------------------------------------------------------------------------- Azure


@pytest.fixture
def azure(stores: Places, run: Path) -> Place:
    place = stores.new("azure")
    place.upload(run, "run")
    return place


def sas(place: Place, permissions: str = "rl", hours: float = 1) -> str:
    from azure.storage.blob import generate_container_sas

    ends = datetime.now(UTC) + timedelta(hours=hours)
    token: str = generate_container_sas(ACCOUNT, place.bucket, KEY, permission=permissions, expiry=ends)
    return token


def test_shared_access_signature(azure: Place) -> None:
    options = {"endpoint_url": azure.endpoint, "account_name": ACCOUNT}
    check(azure.address("run"), storage_options={**options, "sas_token": sas(azure)})
    check(azure.address("run"), storage_options={**options, "sas_token": "?" + sas(azure)})


def test_account_key_in_all_forms(azure: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={azure.endpoint};"
    check(azure.address("run"), storage_options={"connection_string": text})
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    check(azure.address("run"))
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    account = {"endpoint_url": azure.endpoint, "azure_storage_account_key": KEY}
    check(f"abfs://{azure.bucket}@{ACCOUNT}.dfs.core.windows.net/run", storage_options=account)


@pytest.mark.parametrize("hours", [-1, 1])
def test_signature_that_does_not_permit_reading_is_an_error(azure: Place, hours: float) -> None:
    token = sas(azure, "w", hours)
    options = {"endpoint_url": azure.endpoint, "account_name": ACCOUNT, "sas_token": token}
    with pytest.raises(SMDebugError) as raised:
        create_trial(azure.address("run"), storage_options=options)
    signature = token.partition("sig=")[2].partition("&")[0]
    assert azure.bucket in str(raised.value)
    assert signature not in str(raised.value)


# --------------------------------------------------------------------------------------------------------- secrets

#: Storage options with a secret, by kind of server.
WITH_SECRETS = {
    "moto": {"key": "id", "secret": SECRET},
    "rclone": {"key": "id", "secret": SECRET, "token": SECRET},
    "google": {"token": SECRET},
    "azure": {"account_name": ACCOUNT, "account_key": base64.b64encode(SECRET.encode()).decode()},
}


def forms(secret: str) -> list[str]:
    return [secret, base64.b64encode(secret.encode()).decode()]


def test_no_error_or_log_line_shows_a_secret(bucket: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The server refuses the credentials, or has no run."""
    bucket.put("other/file", b"")
    options = {"endpoint_url": bucket.endpoint, **WITH_SECRETS[bucket.kind]}
    caplog.set_level(logging.DEBUG)
    with pytest.raises(SMDebugError) as raised:
        create_trial(bucket.address("run"), storage_options=options)
    shown, error = [caplog.text], raised.value
    chain: BaseException | None = error
    while chain is not None:
        shown += [str(chain), repr(chain), repr(chain.args)]
        chain = chain.__cause__ or chain.__context__
    assert not [text for text in shown for secret in forms(SECRET) if secret in text]


def test_trial_with_secrets_shows_and_pickles_none(s3: Place, run: Path) -> None:
    s3.upload(run, "run")
    with create_trial(s3.address("run"), storage_options={**s3.options(), "secret": SECRET}) as trial:
        assert trial.steps() == [0, 1, 2]
        assert SECRET not in repr(trial)
        with pytest.raises(SMDebugError, match="secret") as raised:
            pickle.dumps(trial)
        assert SECRET not in str(raised.value)
