"""Options of stores, by the names that users of pandas, polars and fsspec know."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugValueError

#: Options of all stores, with other names.
_COMMON = {
    "endpoint_url": ("endpoint",),
    "anonymous": ("anon", "skip_signature"),
    "requester_pays": ("request_payer",),
    "timeout": (),
    "connect_timeout": (),
    "read_timeout": (),
    "proxy_url": ("proxy",),
    "ca_file": ("verify",),
    "allow_http": (),
    "headers": (),
}
#: Options of each kind of store, with other names. The prefix of the kind may precede each name.
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "s3": {
        "key": ("access_key_id", "access_key"),
        "secret": ("secret_access_key", "secret_key"),
        "token": ("session_token",),
        "region": ("region_name", "default_region"),
        "profile": ("profile_name",),
        "virtual_hosted": ("virtual_hosted_style_request",),
        "addressing_style": (),
    },
    "gs": {
        "service_account": ("service_account_path", "application_credentials", "service_account_key"),
        "token": ("bearer_token", "access_token"),
        "project": ("user_project",),
    },
    "az": {
        "account_name": ("account", "storage_account_name"),
        "account_key": ("access_key", "storage_account_key", "storage_access_key"),
        "sas_token": ("sas_key", "storage_sas_token", "storage_sas_key", "sas"),
        "token": ("bearer_token", "storage_token"),
        "connection_string": ("storage_connection_string",),
        "tenant_id": ("storage_tenant_id", "authority_id"),
        "client_id": ("storage_client_id",),
        "client_secret": ("storage_client_secret",),
        "use_emulator": ("storage_use_emulator",),
    },
    "https": {"token": ("bearer_token",)},
}
_PREFIXES = {"s3": ("aws_", "s3_"), "gs": ("google_", "gcs_"), "az": ("azure_",), "https": ()}
_YES, _NO = {"true", "1", "yes", "on", "requester"}, {"false", "0", "no", "off", ""}
_PLAIN = frozenset({"anonymous", "virtual_hosted", "use_emulator", "allow_http"})


def read_options(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a kind of store by their first name.

    None values are dropped.

    >>> read_options("s3", {"aws_access_key_id": "AKIA", "anon": False, "region_name": None})
    {'key': 'AKIA', 'anonymous': False}
    >>> read_options("s3", {"regoin": "eu-west-1"})
    Traceback (most recent call last):
    ...
    smdwidgets.exceptions.SMDebugValueError: unknown storage option 'regoin'. Did you mean 'region'?
    """
    kind = "https" if kind == "http" else kind
    names = {
        other: first
        for options in (_COMMON, _NAMES[kind])
        for first, others in options.items()
        for other in (first, *others)
    }
    found: dict[str, Any] = {}
    for name, value in _flat(given):
        plain = name.lower()
        for prefix in _PREFIXES[kind]:
            if plain not in names:
                plain = plain.removeprefix(prefix)
        if plain not in names:
            known = [*names, "client_kwargs"]
            raise SMDebugValueError(f"unknown storage option {shown(name)}.{did_you_mean(plain, known)}")
        if value is None:
            continue
        first = names[plain]
        if first in found and found[first] != value:
            raise SMDebugValueError(f"storage option {shown(name)} contradicts another name of {shown(first)}")
        found[first] = yes_or_no(name, value) if first in _PLAIN else value
    return found


def _flat(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return names and values, with those of fsspec's ``client_kwargs``."""
    flat: list[tuple[str, Any]] = []
    for name, value in given.items():
        if name in {"client_kwargs", "config_kwargs"}:
            if not isinstance(value, Mapping):
                raise SMDebugValueError(
                    f"storage option {shown(name)} must be a dictionary, got {type(value).__name__}"
                )
            flat += _flat(value)
        elif name == "s3" and isinstance(value, Mapping):
            flat += _flat(value)  # as in botocore's configuration
        else:
            flat.append((name, value))
    return flat


def yes_or_no(name: str, value: object) -> bool:
    """Return an option as a boolean.

    >>> yes_or_no("anon", "true"), yes_or_no("anon", False)
    (True, False)
    """
    text = str(value).strip().lower()
    if text not in _YES | _NO:
        raise SMDebugValueError(f"storage option {shown(name)} must be true or false, got {shown(value)}")
    return text in _YES


def from_environment(*names: str) -> str:
    """Return the first of these environment variables that is set and not empty."""
    return next((value for name in names if (value := os.environ.get(name, ""))), "")


def client_options(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of HTTP clients, as the core expects them.

    >>> client_options({"timeout": 30, "headers": {"x-a": "b"}, "ca_file": "ca.pem"})
    {'timeout': '30', 'ca_file': 'ca.pem', 'header:x-a': 'b'}
    """
    names = ("timeout", "connect_timeout", "read_timeout", "proxy_url", "ca_file", "allow_http")
    found = {
        name: str(given[name]).lower() if name == "allow_http" else str(given[name]) for name in names if name in given
    }
    if "ca_file" not in found and (bundle := from_environment("SSL_CERT_FILE")):
        found["ca_file"] = bundle
    headers = given.get("headers", {})
    if not isinstance(headers, Mapping):
        raise SMDebugValueError(f"storage option 'headers' must be a dictionary, got {type(headers).__name__}")
    return found | {f"header:{name.lower()}": str(value) for name, value in headers.items()}


def service_account(value: object) -> dict[str, str]:
    """Return the core's option for a service account: path, JSON or dictionary.

    >>> service_account({"type": "service_account"})
    {'google_service_account_key': '{"type": "service_account"}'}
    """
    if isinstance(value, Mapping):
        return {"google_service_account_key": json.dumps(dict(value))}
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if text.lstrip().startswith("{"):
        return {"google_service_account_key": text}
    return {"google_service_account": str(Path(text).expanduser())}
