"""Credentials of Google Cloud Storage: application default credentials.

The core reads files of service accounts and of signed-in users, and asks the metadata server of a machine in Google
Cloud. google-auth, if it is installed, reads files of all other kinds, such as those of federated identities.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.storage.credentials import Access
from smdwidgets.storage.options import client_options, from_environment, service_account

_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]
#: Kinds of credential files that the core reads.
_READ_BY_CORE = frozenset({"service_account", "authorized_user"})


def access(bucket: str, given: Mapping[str, Any], session: Any = None) -> Access:
    """Return what opens a bucket of Google Cloud Storage.

    Args:
        bucket: name of the bucket.
        given: storage options.
        session: not supported.

    >>> access("bucket", {"anonymous": True}).options["google_skip_signature"]
    'true'
    """
    if session is not None:
        raise SMDebugValueError("session= is a boto3 session, which is for S3 only")
    options = client_options(given)
    emulator = from_environment("STORAGE_EMULATOR_HOST")
    endpoint = given.get("endpoint_url") or (emulator if not emulator or "://" in emulator else f"http://{emulator}")
    if endpoint:
        options["google_base_url"] = endpoint.rstrip("/")
        options.setdefault("allow_http", str(endpoint.startswith("http:")).lower())
    payer = given.get("requester_pays") or ""
    project = given.get("project") or ("" if isinstance(payer, bool) else str(payer))
    if payer and str(payer).lower() != "false" and (not project or str(payer).lower() == "true"):
        project = given.get("project") or from_environment("GOOGLE_CLOUD_PROJECT")
        if not project:
            raise SMDebugValueError(
                "requester_pays needs the project that pays: set GOOGLE_CLOUD_PROJECT or pass project"
            )
    if project and payer:
        options["header:x-goog-user-project"] = project
    found, source = _credentials(given, endpoint)
    return Access(options | found, source, endpoint)


def _credentials(given: Mapping[str, Any], endpoint: str) -> tuple[dict[str, str], Any]:
    token, account = given.get("token"), given.get("service_account")
    if given.get("anonymous") or token == "anon":
        return {"google_skip_signature": "true"}, None
    if account is not None:
        return service_account(account), None
    if isinstance(token, Mapping) or (isinstance(token, str) and token.endswith(".json")):
        return service_account(token), None
    if token not in {None, "google_default", "cloud"}:
        return {}, lambda: {"token": str(token)}
    path = from_environment("GOOGLE_APPLICATION_CREDENTIALS") or _usual_file()
    if path:
        if _kind_of(path) in _READ_BY_CORE:
            return {"google_application_credentials": path}, None
        return {}, _Default()
    if endpoint and "googleapis.com" not in endpoint:
        return {"google_skip_signature": "true"}, None  # an emulator, as in Google's own clients
    return {}, None


def _usual_file() -> str:
    """Return gcloud's file of application default credentials, or empty text."""
    base = Path(os.environ["APPDATA"]) if os.name == "nt" and "APPDATA" in os.environ else Path.home() / ".config"
    folder = Path(os.environ["CLOUDSDK_CONFIG"]) if os.environ.get("CLOUDSDK_CONFIG") else base / "gcloud"
    path = folder / "application_default_credentials.json"
    return str(path) if path.is_file() else ""


def _kind_of(path: str) -> str:
    try:
        content = json.loads(Path(path).expanduser().read_bytes())
    except (OSError, ValueError) as error:
        raise SMDebugValueError(f"cannot read the credentials in GOOGLE_APPLICATION_CREDENTIALS: {error}") from error
    return str(content.get("type", "")) if isinstance(content, dict) else ""


class _Default:
    """Application default credentials that google-auth finds and renews."""

    def __init__(self) -> None:
        try:
            import google.auth
            import google.auth.exceptions
            import google.auth.transport.requests
        except ImportError as error:
            raise SMDebugValueError(
                "credentials of this kind are read by google-auth, which is not installed; run: pip install google-auth requests"
            ) from error
        try:
            found: tuple[Any, Any] = google.auth.default(scopes=_SCOPES)
            self._credentials = found[0]
        except google.auth.exceptions.GoogleAuthError as error:
            raise SMDebugValueError(f"cannot read the application default credentials of Google: {error}") from error
        self._request = google.auth.transport.requests.Request()

    def __call__(self) -> dict[str, str]:
        """Return the token that is valid now."""
        if not self._credentials.valid:
            self._credentials.refresh(self._request)
        return {"token": str(self._credentials.token)}
