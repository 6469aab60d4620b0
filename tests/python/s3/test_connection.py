"""How S3 is reached: credentials, addresses, certificates, regions."""

from __future__ import annotations

import datetime
import ipaddress
import pickle
import random
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from servers import CREDENTIALS, FaultyProxy
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.storage import Connection, RemoteStorage, StoreError
from smdwidgets.storage.credentials import aws
from smdwidgets.storage.credentials.aws import MissingBoto3, connect
from smdwidgets.storage.protocol import Range

CONTENTS = {f"run/events/{n:03}": random.Random(n).randbytes(3000 + n) for n in range(30)}
KEYS = [key.removeprefix("run/") for key in CONTENTS]
WANTED = [Range(key, 100, 2500) for key in KEYS]


@pytest.fixture
def objects(raw: Any, bucket: str) -> dict[str, bytes]:
    for key, content in CONTENTS.items():
        raw.put_object(Bucket=bucket, Key=key, Body=content)
    return CONTENTS


@contextmanager
def opened(bucket: str, **settings: Any) -> Iterator[RemoteStorage]:
    with closing(Connection(**settings).storage(f"s3://{bucket}/run")) as store:
        yield store


def read_all(store: RemoteStorage) -> None:
    assert dict(store.read_many(KEYS)) == {key: CONTENTS[f"run/{key}"] for key in KEYS}
    assert [bytes(a) for a in store.read_ranges(WANTED)] == [CONTENTS[f"run/{r.key}"][100:2600] for r in WANTED]


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No keys in the environment; the file of profiles."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path


def test_keys_by_option_need_no_boto3(
    endpoint: str, bucket: str, objects: dict[str, bytes], no_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingBoto3, match=r"smdwidgets\[s3\]"):
        Connection(endpoint_url=endpoint).storage(f"s3://{bucket}/run")
    keys = {"key": CREDENTIALS["AWS_ACCESS_KEY_ID"], "secret": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
    with opened(bucket, endpoint_url=endpoint, storage_options=keys) as store:
        read_all(store)
        with pytest.raises(SMDebugError, match="secrets in storage_options"):
            pickle.dumps(store)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with opened(bucket, endpoint_url=endpoint) as store:
        read_all(store)
        with closing(pickle.loads(pickle.dumps(store))) as again:
            read_all(again)
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"].encode() not in pickle.dumps(store)


def test_profile_with_region_and_endpoint(endpoint: str, bucket: str, objects: dict[str, bytes], no_keys: Path) -> None:
    (no_keys / "credentials").write_text(
        f"[mine]\naws_access_key_id = {CREDENTIALS['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {CREDENTIALS['AWS_SECRET_ACCESS_KEY']}\n"
    )
    (no_keys / "config").write_text(f"[profile mine]\nregion = us-east-1\nendpoint_url = {endpoint}\n")
    with opened(bucket, storage_options={"profile": "mine"}) as store:
        read_all(store)
    with pytest.raises(SMDebugValueError, match="other"):
        Connection(storage_options={"profile": "other"}).storage("s3://bucket/run")


def test_no_credentials_at_all(endpoint: str, bucket: str, no_keys: Path) -> None:
    with (
        opened(bucket, endpoint_url=endpoint) as store,
        pytest.raises(StoreError, match=r"no usable credentials found.*AWS_PROFILE.*anonymous=True"),
    ):
        list(store.list(""))


def test_expiring_credentials_of_a_session_are_renewed(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    """After a refused token the session is asked again, and only then."""
    given: list[str] = []

    class Session:
        """What is used of a boto3 session."""

        def client(self, *args: Any, **kwargs: Any) -> Any:
            return connect(endpoint_url=endpoint)

        def get_credentials(self) -> Any:
            return self

        def get_frozen_credentials(self) -> Any:
            given.append(f"token-{len(given)}")
            named = {"access_key": CREDENTIALS["AWS_ACCESS_KEY_ID"], "secret_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
            return type("Frozen", (), {**named, "token": None})

    with FaultyProxy(endpoint) as proxy, opened(bucket, endpoint_url=proxy.endpoint, session=Session()) as store:
        read_all(store)
        assert len(given) == 1, "one answer serves all requests of a minute"
        proxy.always = (400, "ExpiredToken")
        with pytest.raises(StoreError, match="credentials have expired"):
            store.read(KEYS[0])
        assert len(given) == 2
        proxy.always = None
        assert store.read(KEYS[0]) == objects[f"run/{KEYS[0]}"]


class Objects(BaseHTTPRequestHandler):
    """A minimal server: objects at any path, and a record of the requests."""

    protocol_version = "HTTP/1.1"
    hang_up = False
    asked: list[tuple[str, str, Any]]

    def do_GET(self) -> None:
        self.asked.append((self.headers["Host"], self.path, self.headers))
        key = "run/" + unquote(self.path).rpartition("run/")[2]
        content = CONTENTS[key]
        span = self.headers.get("Range", "")
        if span:
            first, _, last = span.removeprefix("bytes=").partition("-")
            part = content[int(first) : int(last) + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")
            content = part
        else:
            self.send_response(200)
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = self.hang_up

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(
    certificate: Path | None = None, *, hang_up: bool = False
) -> Iterator[tuple[int, list[tuple[str, str, Any]]]]:
    asked: list[tuple[str, str, Any]] = []
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
    """A certificate for 127.0.0.1 and its key; ``ca`` beside it is its authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def certify(name: str, public: Any, issuer: str, signer: Any, *more: tuple[Any, bool]) -> Any:
        names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (name, issuer)]
        made = (
            x509.CertificateBuilder()
            .subject_name(names[0])
            .issuer_name(names[1])
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension, critical in more:
            made = made.add_extension(extension, critical=critical)
        return made.sign(signer, hashes.SHA256())

    now = datetime.datetime.now(datetime.UTC)
    key, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = certify("CA", own.public_key(), "CA", own, (x509.BasicConstraints(ca=True, path_length=None), True))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = certify("127.0.0.1", key.public_key(), "CA", own, (address, False))
    path = tmp_path_factory.mktemp("tls") / "pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    path.with_name("ca").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    return path


def test_tls_with_the_certificates_of_boto3(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        serving(certificate) as (port, _),
        opened("bucket", endpoint_url=f"https://127.0.0.1:{port}") as store,
        pytest.raises(StoreError, match="invalid peer certificate"),
    ):
        store.read(KEYS[0])
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.with_name("ca")))
    with serving(certificate) as (port, asked), opened("bucket", endpoint_url=f"https://127.0.0.1:{port}") as store:
        read_all(store)
        assert {host for host, _, _ in asked} == {f"127.0.0.1:{port}"}


@pytest.mark.parametrize("options", [{"virtual_hosted": True}, {"addressing_style": "virtual"}])
def test_virtual_hosted_buckets(options: dict[str, Any]) -> None:
    with serving() as (port, asked):
        # The proxy gets whole URLs, so that no name has to be resolved.
        proxy = {"proxy_url": f"http://127.0.0.1:{port}"}
        with opened("bucket", endpoint_url="http://my.store", storage_options=options | proxy) as store:
            read_all(store)
        assert {host for host, _, _ in asked} == {"bucket.my.store"}
        assert "http://bucket.my.store/run/events/007" in {path for _, path, _ in asked}


def test_requester_pays_and_anonymous_requests() -> None:
    with serving() as (port, asked):
        with opened("bucket", endpoint_url=f"http://127.0.0.1:{port}", requester_pays=True) as store:
            store.read(KEYS[0])
        with opened("bucket", endpoint_url=f"http://127.0.0.1:{port}", anonymous=True) as store:
            store.read(KEYS[0])
        (_, _, paid), (_, _, free) = asked
        assert paid["x-amz-request-payer"] == "requester"
        assert "authorization" in paid
        assert "authorization" not in free


def test_region_and_endpoint_by_option_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert aws.access("b", {"region": "eu-west-1"}).options["aws_region"] == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2")
    options = aws.access("b", {}).options
    assert (options["aws_region"], options["aws_endpoint"]) == ("ap-south-1", "http://127.0.0.1:2")
    assert aws.access("b", {"endpoint_url": "http://127.0.0.1:3"}).options["aws_endpoint"] == "http://127.0.0.1:3"
    with pytest.raises(SMDebugValueError, match="endpoint_url must start with http"):
        aws.access("b", {"endpoint_url": "127.0.0.1:3"})


def test_connections_closed_by_the_server_cause_no_error() -> None:
    with serving(hang_up=True) as (port, asked), opened("b", endpoint_url=f"http://127.0.0.1:{port}") as store:
        for key in KEYS:
            assert store.read(key) == CONTENTS[f"run/{key}"]
        assert len(asked) >= 30
