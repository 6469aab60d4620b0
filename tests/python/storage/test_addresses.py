"""Addresses of stores, and storage options by the names that other libraries use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import smdwidgets
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.storage.address import Address, is_address, parse, split_url
from smdwidgets.storage.connection import Connection, check_picklable
from smdwidgets.storage.credentials import azure, google
from smdwidgets.storage.options import read_options


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "STORAGE_EMULATOR_HOST",
        "AZURE_STORAGE_CONNECTION_STRING",
        "SSL_CERT_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("s3://bucket/jobs/mnist/", Address("s3", "bucket", "jobs/mnist", "", "s3")),
        (" S3A://bucket", Address("s3", "bucket", "", "", "s3")),
        ("gs://bucket/a b", Address("gs", "bucket", "a b", "", "gs")),
        ("az://data/run", Address("az", "data", "run", "", "az")),
        ("abfss://data@me.dfs.core.windows.net/run", Address("az", "data", "run", "me.dfs.core.windows.net", "abfss")),
        ("https://host:8443/a%20b/run/", Address("https", "host:8443", "a b/run", "", "https")),
    ],
)
def test_addresses(url: str, address: Address) -> None:
    assert is_address(url)
    assert parse(url) == address
    assert parse(address.url) == address or address.is_web


@pytest.mark.parametrize("path", ["runs/mlp", "C:\\runs", "c://runs", "file:///runs", "~/a:b", "./x/y://z", ""])
def test_paths_are_no_addresses(path: str) -> None:
    assert not is_address(path)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://host/run", "unsupported URL scheme 'ftp://'.*s3://bucket/prefix.*gs://.*az://.*https://"),
        ("s3://", "invalid S3 URL.*s3://bucket/prefix"),
        ("gs:///run", "invalid Google Cloud Storage URL.*gs://bucket/prefix"),
        ("https://user:secret@host/run", "must not contain a user name"),
        ("https://host/run?sig=secret", "must not contain"),
    ],
)
def test_invalid_addresses_are_explained_without_secrets(url: str, says: str) -> None:
    for reading in (lambda: parse(url), lambda: smdwidgets.create_trial(url)):
        with pytest.raises(SMDebugValueError, match=says) as caught:
            reading()
        assert "secret" not in str(caught.value)


def test_split_url_is_for_s3() -> None:
    assert split_url("s3://bucket/a/b/") == ("bucket", "a/b")
    with pytest.raises(SMDebugValueError, match="invalid S3 URL"):
        split_url("gs://bucket/a")


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        (
            "s3",
            {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": "u"}},
            {"key": "k", "secret": "s", "endpoint_url": "u"},
        ),
        ("s3", {"AWS_ACCESS_KEY_ID": "k", "aws_secret_access_key": "s"}, {"key": "k", "secret": "s"}),
        ("s3", {"anon": "true", "skip_signature": True}, {"anonymous": True}),
        ("gs", {"token": "anon", "google_service_account": None}, {"token": "anon"}),
        ("az", {"azure_storage_account_name": "a", "access_key": "k"}, {"account_name": "a", "account_key": "k"}),
        ("http", {"bearer_token": "t", "timeout": 3}, {"token": "t", "timeout": 3}),
    ],
)
def test_options_by_all_their_names(kind: str, given: dict[str, Any], read: dict[str, Any]) -> None:
    assert read_options(kind, given) == read


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("s3", {"secert": "x"}, "unknown storage option 'secert'.*Did you mean 'secret'"),
        ("gs", {"account_key": "x"}, "unknown storage option 'account_key'"),
        ("s3", {"anon": "perhaps"}, "'anon' must be true or false"),
        ("s3", {"key": "a", "access_key": "b"}, "contradicts another name of 'key'"),
        ("s3", {"client_kwargs": "x"}, "must be a dictionary"),
    ],
)
def test_wrong_options_are_explained(kind: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(SMDebugValueError, match=says):
        read_options(kind, given)


def test_wrong_options_of_the_core_are_explained() -> None:
    with pytest.raises(SMDebugValueError, match=r"cannot open gs://bucket/run: .*timeout"):
        Connection(anonymous=True, storage_options={"timeout": "soon"}).storage("gs://bucket/run")
    with pytest.raises(SMDebugValueError, match="belong together"):
        Connection(storage_options={"key": "only"}).storage("s3://bucket/run")
    with pytest.raises(SMDebugValueError, match="for S3 only"):
        Connection(session=object()).storage("gs://bucket/run")


@pytest.mark.parametrize(
    "options",
    [
        {"secret": "x"},
        {"azure_storage_account_key": "x"},
        {"client_kwargs": {"aws_secret_access_key": "x"}},
        {"sas_token": "x"},
        {"connection_string": "x"},
        {"service_account": {}},
        {"headers": {}},
    ],
)
def test_secrets_are_not_pickled(options: dict[str, Any]) -> None:
    with pytest.raises(smdwidgets.exceptions.SMDebugError, match="secrets in storage_options"):
        check_picklable({"storage_options": options})
    check_picklable({"storage_options": {"region": "eu-west-1", "account_name": "me"}, "client": None})
    assert "x" not in repr(Connection(storage_options=options))[-3:]


def test_account_of_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert azure.access("me.dfs.core.windows.net", {"account_key": "k"}).options == {
        "azure_storage_account_name": "me",
        "azure_storage_account_key": "k",
    }
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=me;AccountKey=a2V5;BlobEndpoint=http://h:1/me")
    found = azure.access("", {})
    assert found.options["azure_storage_account_key"] == "a2V5"
    assert (found.options["azure_storage_endpoint"], found.options["allow_http"]) == ("http://h:1/me", "true")
    given = azure.access("", {"account_name": "me", "sas_token": "?sv=1"}).options
    assert given["azure_storage_sas_key"] == "sv=1", "an explicit secret replaces that of the environment"
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(SMDebugValueError, match=r"no account.*AZURE_STORAGE_ACCOUNT_NAME.*abfss://"):
        azure.access("", {})


def test_project_that_pays_at_google(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    assert google.access("b", {"requester_pays": "mine"}).options["header:x-goog-user-project"] == "mine"
    with pytest.raises(SMDebugValueError, match="GOOGLE_CLOUD_PROJECT"):
        google.access("b", {"requester_pays": True})
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "other")
    assert google.access("b", {"requester_pays": True}).options["header:x-goog-user-project"] == "other"


def test_emulator_of_google_needs_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")
    options = google.access("b", {}).options
    assert options["google_base_url"] == "http://localhost:4443"
    assert options["google_skip_signature"] == options["allow_http"] == "true"
