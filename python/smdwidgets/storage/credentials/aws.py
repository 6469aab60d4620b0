"""Credentials, region and endpoint of S3.

Explicit keys and those of the environment are used as they are. boto3 finds all others by its public calls: profiles,
SSO, roles, containers and instances. It also reads regions and endpoints from the configuration files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.storage.address import scheme_of
from smdwidgets.storage.credentials import Access, Source
from smdwidgets.storage.options import client_options, from_environment, yes_or_no

#: Region of endpoints that have none, and of clients without a region.
_NO_REGION = "us-east-1"


class MissingBoto3(SMDebugError, ImportError):
    """boto3, which finds the credentials of S3, is not installed."""

    def _message(self) -> str:
        return (
            "runs on S3 require boto3, which is not installed, unless the credentials are given explicitly; "
            "run: pip install 'smdwidgets[s3]'"
        )


def connect(*, session: Any = None, endpoint_url: str | None = None) -> Any:
    """Create an S3 client with boto3's default chain of credentials and configuration.

    >>> client = connect(endpoint_url="http://127.0.0.1:9000")                       # doctest: +SKIP
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise MissingBoto3 from error

    if endpoint_url is not None and scheme_of(endpoint_url) not in {"http", "https"}:
        raise SMDebugValueError(f"endpoint_url must start with http:// or https://, got {endpoint_url!r}")
    # Some servers send the checksum of the whole object with a range; boto3 would compare it with the range.
    config = Config(response_checksum_validation="when_required", request_checksum_calculation="when_required")
    return (session or boto3.Session()).client("s3", endpoint_url=endpoint_url, config=config)


def access(bucket: str, given: Mapping[str, Any], session: Any = None) -> Access:
    """Return what opens a bucket of S3.

    Args:
        bucket: name of the bucket.
        given: storage options.
        session: boto3 session of the caller.

    >>> access("bucket", {"key": "AKIA", "secret": "s", "region": "eu-west-1"}).options["aws_region"]
    'eu-west-1'
    """
    options = client_options(given)
    if "ca_file" not in given and (bundle := from_environment("AWS_CA_BUNDLE")):
        options["ca_file"] = bundle
    endpoint = given.get("endpoint_url") or ""
    region = given.get("region") or ""
    style = str(given.get("addressing_style", "")).lower()
    if session is None:
        ignored = from_environment("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS").lower() == "true"
        endpoint = endpoint or ("" if ignored else from_environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
        region = region or from_environment("AWS_REGION", "AWS_DEFAULT_REGION")
    keys = _explicit(given, session)
    source: Source | None = None
    if keys is None or _needs_files(given, endpoint, region):
        session = session or _session(given)
        client = connect(session=session, endpoint_url=endpoint or None)
        try:
            endpoint, region = endpoint or client.meta.endpoint_url, region or client.meta.region_name
            style = style or str((client.meta.config.s3 or {}).get("addressing_style", ""))
        finally:
            client.close()
        if keys is None:
            keys, source = {}, _Chain(session)
    if yes_or_no("virtual_hosted", given.get("virtual_hosted", style == "virtual")):
        options["aws_virtual_hosted_style_request"] = "true"
        if endpoint:
            parts = urlsplit(endpoint)
            endpoint = parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()
    if endpoint:
        if urlsplit(endpoint).scheme not in {"http", "https"}:
            raise SMDebugValueError(f"endpoint_url must start with http:// or https://, got {endpoint!r}")
        options["aws_endpoint"] = endpoint
        options.setdefault("allow_http", str(endpoint.startswith("http:")).lower())
    options["aws_region"] = _NO_REGION if region in {"", "aws-global", None} else region
    if yes_or_no("requester_pays", given.get("requester_pays", False)):
        options["aws_request_payer"] = "true"
    return Access(options | keys, source, endpoint or f"{options['aws_region']}.amazonaws.com")


def _explicit(given: Mapping[str, Any], session: Any) -> dict[str, str] | None:
    """Return the keys of options and environment for the core, or None."""
    if given.get("anonymous"):
        return {"aws_skip_signature": "true"}
    key, secret, token = (given.get(name) for name in ("key", "secret", "token"))
    if (key is None) != (secret is None):
        raise SMDebugValueError("storage options 'key' and 'secret' belong together; one of them is missing")
    if key is None and session is None and "profile" not in given:
        key = from_environment("AWS_ACCESS_KEY_ID")
        secret = from_environment("AWS_SECRET_ACCESS_KEY")
        token = from_environment("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")
    if not key or not secret:
        return None
    found = {"aws_access_key_id": str(key), "aws_secret_access_key": str(secret)}
    return found | ({"aws_session_token": str(token)} if token else {})


def _needs_files(given: Mapping[str, Any], endpoint: str, region: str) -> bool:
    """Whether boto3 can add an endpoint or a region from a configuration file."""
    if (endpoint and region) or find_spec("boto3") is None:
        return False
    path = os.environ.get("AWS_CONFIG_FILE") or Path("~/.aws/config")
    return "profile" in given or Path(path).expanduser().is_file()


def _session(given: Mapping[str, Any]) -> Any:
    """Return a boto3 session of the profile."""
    try:
        import boto3
    except ImportError as error:
        raise MissingBoto3 from error
    from botocore.exceptions import ProfileNotFound

    try:
        return boto3.Session(profile_name=given.get("profile"))
    except ProfileNotFound as error:
        raise SMDebugValueError(f"{error}; profiles are in ~/.aws/config") from error


class _Chain:
    """The credentials of a boto3 session, which renews them before they expire."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __call__(self) -> dict[str, str]:
        """Return the credentials that are valid now."""
        from botocore.exceptions import BotoCoreError

        try:
            found = self._session.get_credentials()
            now = None if found is None else found.get_frozen_credentials()
        except BotoCoreError as error:
            raise SMDebugValueError(
                f"the credentials have expired or cannot be read: sign in again (for example `aws sso login`) and retry: {error}"
            ) from error
        if now is None:
            raise SMDebugValueError(
                "no usable credentials found: sign in, or set AWS_PROFILE (in Python: session=, or anonymous=True for a "
                "public bucket)"
            )
        found = {"key_id": now.access_key, "secret": now.secret_key}
        return found | ({"token": now.token} if now.token else {})
