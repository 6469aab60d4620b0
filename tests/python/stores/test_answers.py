"""Answers that are not the store's, and repeats in the log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import smdwidgets
from smdwidgets.exceptions import RunNotFound, SMDebugError

_PAGE = b"<!DOCTYPE html><html><body>Sign in to the network</body></html>"
_EMPTY = (
    b'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Name>b</Name><Prefix></Prefix><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
    b"</ListBucketResult>"
)


@contextmanager
def answering(*answers: tuple[int, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Serve these answers one after the other, the last one for ever."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers[min(len(asked), len(answers) - 1)]
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if body is _PAGE else "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_a_page_of_a_proxy_is_no_listing() -> None:
    with answering((200, _PAGE)) as (endpoint, asked):
        with pytest.raises(SMDebugError, match="the answer is a web page, not a list of objects") as error:
            smdwidgets.create_trial("s3://b/run", endpoint_url=endpoint)
        assert not isinstance(error.value, RunNotFound)
        assert len(asked) == 1, "another attempt gives the same page"


def test_repeats_are_logged_once_per_cause_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    busy = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
    with answering((503, busy), (503, busy), (200, _EMPTY)) as (endpoint, asked):
        with pytest.raises(RunNotFound, match="no object has this prefix"):
            smdwidgets.create_trial("s3://b/run", endpoint_url=endpoint)
        assert len(asked) > 2
    messages = [record.getMessage() for record in caplog.records if "repeated" in record.getMessage()]
    assert messages == ["s3://b: the server answered 503 SlowDown: Reduce your request rate.; the request is repeated"]
    assert "very-secret" not in caplog.text
