"""Direct GET requests return the same bytes and errors as boto3.

Unusual cases use boto3.
"""

from __future__ import annotations

import datetime
import ipaddress
import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from urllib3.exceptions import HTTPError

from faults import campaign
from python.s3.servers import CREDENTIALS, FaultyProxy
from smdwidgets.storage.protocol import Range
from smdwidgets.storage.s3 import Connection, S3Error, S3Storage, connect, direct

CONTENTS = {f"run/events/{n:03}": random.Random(n).randbytes(3000 + n) for n in range(30)}
KEYS = [key.removeprefix("run/") for key in CONTENTS]
WANTED = [Range(key, 100, 2500) for key in KEYS]


@pytest.fixture
def objects(raw: Any, bucket: str) -> dict[str, bytes]:
    for key, content in CONTENTS.items():
        raw.put_object(Bucket=bucket, Key=key, Body=content)
    return CONTENTS


@contextmanager
def opened(bucket: str, client: Any, **options: Any) -> Iterator[S3Storage]:
    """A storage that owns its client, so that it may send direct requests."""
    store = S3Storage(bucket, "run", client=client, owns_client=True, **options)
    try:
        yield store
    finally:
        store.close()


def asked_of_boto3(store: S3Storage) -> list[str]:
    asked: list[str] = []
    store._client.meta.events.register("before-call.s3.GetObject", lambda params, **_: asked.append(params["url_path"]))
    return asked


def is_direct(store: S3Storage) -> bool:
    return store._direct is not None and store._direct.ready


def read_all(store: S3Storage) -> None:
    assert dict(store.read_many(KEYS)) == {key: CONTENTS[f"run/{key}"] for key in KEYS}
    assert [bytes(a) for a in store.read_ranges(WANTED)] == [CONTENTS[f"run/{r.key}"][100:2600] for r in WANTED]


def test_first_request_uses_boto3_and_the_others_its_template(
    endpoint: str, bucket: str, objects: dict[str, bytes]
) -> None:
    with FaultyProxy(endpoint) as proxy, opened(bucket, connect(endpoint_url=proxy.endpoint)) as store:
        asked = asked_of_boto3(store)
        assert store.read("events/000") == objects["run/events/000"]
        assert is_direct(store)
        read_all(store)
        store.put("events/a b+c%20d&e'*ü😀", b"")
        assert store.read("events/a b+c%20d&e'*ü😀") == b""
        assert len(asked) == 1
        assert store.requests.retries == 0
        assert proxy.seen["GET"] == store.requests.gets == 1 + 30 + 30 + 1


def test_faults_change_no_byte(
    endpoint: str,
    bucket: str,
    objects: dict[str, bytes],
    hasty_client: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = campaign.size(200, 1000)
    monkeypatch.setattr(direct, "_BACKOFF", 0.02)
    monkeypatch.setattr("smdwidgets.storage.s3.download._LONGEST_PAUSE", 0.01)
    with (
        FaultyProxy(endpoint, seed=5, share=0.25, faults=faults) as proxy,
        opened(bucket, hasty_client(proxy.endpoint), cache_bytes=0) as store,
    ):
        asked = asked_of_boto3(store)
        rounds = 0
        while proxy.faults_left and rounds < 200:
            rounds += 1
            read_all(store)
        assert sum(proxy.played.values()) == faults
        assert set(proxy.played) == {"slow_down", "internal_error", "reset_before", "reset_in_body", "short_body"}
        assert 0 < len(asked) < store.requests.gets, "both ways were gone"


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (403, "AccessDenied", "s3:GetObject"),
        (400, "ExpiredToken", "credentials have expired"),
        (404, "NoSuchKey", "no such object"),
    ],
)
def test_permanent_errors_are_not_retried(
    endpoint: str, bucket: str, objects: dict[str, bytes], status: int, code: str, says: str
) -> None:
    with FaultyProxy(endpoint) as proxy, opened(bucket, connect(endpoint_url=proxy.endpoint)) as store:
        store.read("events/000")
        proxy.always = (status, code)
        with pytest.raises(S3Error, match=says) as caught:
            store.read("events/001")
        assert (caught.value.key, caught.value.code) == ("run/events/001", code)
        assert proxy.seen["GET"] == 2


def test_errors_that_boto3_can_handle_are_repeated_with_boto3(
    endpoint: str, bucket: str, objects: dict[str, bytes]
) -> None:
    with FaultyProxy(endpoint) as proxy, opened(bucket, connect(endpoint_url=proxy.endpoint)) as store:
        store.read("events/000")
        proxy.always = (403, "SignatureDoesNotMatch")
        with pytest.raises(S3Error, match="not accepted"):
            store.read("events/001")
        proxy.always = None
        read_all(store)
        assert not is_direct(store), "what was refused once is not tried again"


def test_proxy_disables_direct_requests(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    import boto3
    from botocore.config import Config

    with FaultyProxy(endpoint) as proxy:
        client = boto3.client("s3", endpoint_url=endpoint, config=Config(proxies={"http": proxy.endpoint}))
        with opened(bucket, client) as store:
            read_all(store)
            assert not is_direct(store)
        assert proxy.seen["GET"] == 60


def test_added_headers_disable_direct_requests(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    client = connect(endpoint_url=endpoint)
    client.meta.events.register(
        "before-call.s3.GetObject", lambda params, **_: params["headers"].update({"x-amz-request-payer": "requester"})
    )
    with opened(bucket, client) as store:
        asked = asked_of_boto3(store)
        read_all(store)
        assert not is_direct(store)
        assert len(asked) == 60


def test_client_of_the_caller_is_used_unchanged(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    client = connect(endpoint_url=endpoint)
    store = Connection(client=client).storage(f"s3://{bucket}/run")
    asked = asked_of_boto3(store)
    read_all(store)
    store.close()
    assert len(asked) == 60
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 30, "and stays open"
    client.close()


def test_expiring_credentials_are_renewed(
    endpoint: str, bucket: str, objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3
    from botocore.credentials import RefreshableCredentials
    from botocore.session import get_session

    key = CREDENTIALS["AWS_ACCESS_KEY_ID"]
    given: list[str] = []

    def renew() -> dict[str, str]:
        given.append(f"token-{len(given)}")
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)
        return {
            "access_key": key,
            "secret_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            "token": given[-1],
            "expiry_time": soon.isoformat(),
        }

    inner = get_session()
    # Five minutes are less than botocore's minimum remaining lifetime: it renews at each use.
    inner._credentials = RefreshableCredentials.create_from_metadata(renew(), renew, "test")  # type: ignore[attr-defined]
    sent: list[str] = []
    real = direct.compose

    def recorded(host: str, target: str, headers: Mapping[str, str]) -> bytes:
        sent.append(headers["x-amz-security-token"])
        return real(host, target, headers)

    monkeypatch.setattr(direct, "compose", recorded)
    session = boto3.Session(botocore_session=inner, region_name="us-east-1")
    store = Connection(endpoint_url=endpoint, session=session).storage(f"s3://{bucket}/run")
    store.read("events/000")
    for name in KEYS[:5]:
        assert store.read(name) == objects[f"run/{name}"]
    assert dict(store.read_many(KEYS)) == {key: CONTENTS[f"run/{key}"] for key in KEYS}
    store.close()
    assert len(set(sent)) == 5 + 30, "each request was signed with what was valid then"
    assert sent[-1] == given[-1]


class Objects(BaseHTTPRequestHandler):
    """A minimal server: objects at any path, and a record of the requests."""

    protocol_version = "HTTP/1.1"
    hang_up = False
    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.asked.append((self.headers["Host"], self.path))
        key = "run/" + unquote(self.path).rpartition("run/")[2]
        content = CONTENTS[key]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = self.hang_up

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(certificate: Path | None = None, *, hang_up: bool = False) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    asked: list[tuple[str, str]] = []
    handler = type("Handler", (Objects,), {"asked": asked, "hang_up": hang_up})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


def test_tls_with_the_certificates_of_boto3(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    with (
        serving(certificate) as (port, asked),
        opened("bucket", connect(endpoint_url=f"https://127.0.0.1:{port}")) as store,
    ):
        read_all(store)
        read_all(store)
        assert is_direct(store)
        assert {host for host, _ in asked} == {f"127.0.0.1:{port}"}


def test_untrusted_certificate_is_an_error(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    with (
        serving(certificate) as (port, _),
        opened("bucket", connect(endpoint_url=f"https://127.0.0.1:{port}")) as store,
    ):
        store.read("events/000")
        assert is_direct(store)
        pattern = store._direct._pattern  # type: ignore[union-attr]
        assert pattern is not None
        pattern.pool.close()
        pool = store._client._endpoint.http_session._manager.connection_from_url(f"https://{pattern.host}")
        pool.ca_certs = str(Path(__file__))
        with pytest.raises(HTTPError, match=r"certificate|verify|SSL"):
            pattern.pool.get(direct.compose(pattern.host, "/", {}))


def test_virtual_hosted_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3
    from botocore.config import Config

    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *a, **k: real("127.0.0.1" if host.endswith("my.store") else host, *a, **k)
    )
    with serving() as (port, asked):
        config = Config(s3={"addressing_style": "virtual"}, response_checksum_validation="when_required")
        with opened("bucket", boto3.client("s3", endpoint_url=f"http://my.store:{port}", config=config)) as store:
            read_all(store)
            assert is_direct(store)
        assert {host for host, _ in asked} == {f"bucket.my.store:{port}"}
        assert ("bucket.my.store:" + str(port), "/run/events/007") in asked


def test_connections_closed_by_the_server_cause_no_error() -> None:
    with serving(hang_up=True) as (port, asked), opened("b", connect(endpoint_url=f"http://127.0.0.1:{port}")) as store:
        for key in KEYS:
            assert store.read(key) == CONTENTS[f"run/{key}"]
        assert is_direct(store)
        assert len(asked) >= 30


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nabc",
        b"ICY 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"x" * 70_000,
        b"",
    ],
)
def test_malformed_response_is_a_connection_error(answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(answer)
    theirs.shutdown(socket.SHUT_WR)

    class Connected:
        sock = ours
        closed = False

        def close(self) -> None:
            self.closed = True
            ours.close()

    connection = Connected()
    with pytest.raises(ConnectionError):
        direct.ConnectionPool(lambda: connection, 30.0).get(b"")
    assert connection.closed
    theirs.close()


def test_header_injection_is_rejected() -> None:
    with pytest.raises(ConnectionError, match="line break"):
        direct.compose("host", "/key", {"if-match": "x\r\nX-Other: y"})
