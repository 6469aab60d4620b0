"""Credentials of Azure: keys, SAS tokens, connection strings and identities.

Everything except signed-in users is known to the core. azure-identity, if it is installed, finds all others by its
DefaultAzureCredential.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.storage.credentials import Access, Source
from smdwidgets.storage.options import client_options, from_environment

_SCOPE = "https://storage.azure.com/.default"
#: Environment variables of options.
_VARIABLES = {
    "connection_string": ("AZURE_STORAGE_CONNECTION_STRING",),
    "account_name": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY"),
    "sas_token": ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
    "endpoint_url": ("AZURE_STORAGE_ENDPOINT",),
    "tenant_id": ("AZURE_TENANT_ID",),
    "client_id": ("AZURE_CLIENT_ID",),
    "client_secret": ("AZURE_CLIENT_SECRET",),
}
_SECRETS = ("account_key", "sas_token", "token", "client_secret")


def access(account: str, given: Mapping[str, Any], session: Any = None) -> Access:
    """Return what opens a container of an account of Azure.

    Args:
        account: the account in the URL, such as ``name.dfs.core.windows.net``; empty if it is elsewhere.
        given: storage options.
        session: not supported.

    >>> access("", {"account_name": "data", "sas_token": "?sv=1"}).options["azure_storage_sas_key"]
    'sv=1'
    """
    if session is not None:
        raise SMDebugValueError("session= is a boto3 session, which is for S3 only")
    options = client_options(given)
    found = _with_environment(given)
    if "connection_string" in found:
        found = parse_connection_string(found["connection_string"]) | found
    name = account.partition(".")[0] or found.get("account_name", "")
    if found.get("use_emulator"):
        options["azure_storage_use_emulator"] = "true"
    elif not name:
        raise SMDebugValueError(
            "the URL of Azure has no account: pass account_name in storage_options, set AZURE_STORAGE_ACCOUNT_NAME, or use "
            "abfss://container@account.dfs.core.windows.net/prefix"
        )
    if name:
        options["azure_storage_account_name"] = name
    endpoint = str(found.get("endpoint_url") or "").rstrip("/")
    if endpoint:
        options["azure_storage_endpoint"] = endpoint
        options.setdefault("allow_http", str(urlsplit(endpoint).scheme == "http").lower())
    secrets, source = _credentials(found)
    return Access(options | secrets, source, endpoint or f"{name}.blob.core.windows.net")


def _with_environment(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, with those of the environment where they do not contradict."""
    found = dict(given)
    has_secret = given.get("anonymous") or any(name in given for name in (*_SECRETS, "connection_string"))
    for name, variables in _VARIABLES.items():
        if name in found or (has_secret and name in {*_SECRETS, "connection_string"}):
            continue
        if value := from_environment(*variables):
            found[name] = value
    return found


def _credentials(found: Mapping[str, Any]) -> tuple[dict[str, str], Source | None]:
    if found.get("anonymous"):
        return {"azure_skip_signature": "true"}, None
    if key := found.get("account_key"):
        return {"azure_storage_account_key": str(key)}, None
    if sas := found.get("sas_token"):
        return {"azure_storage_sas_key": str(sas).lstrip("?")}, None
    if token := found.get("token"):
        return {}, lambda: {"token": str(token)}
    identity = {
        f"azure_storage_{name}": str(found[name])
        for name in ("tenant_id", "client_id", "client_secret")
        if name in found
    }
    if len(identity) == 3:
        return identity, None
    file = from_environment("AZURE_FEDERATED_TOKEN_FILE")
    if file:
        return identity | {"azure_federated_token_file": file}, None
    if found.get("use_emulator"):
        return {}, None
    try:
        import azure.identity
    except ImportError:
        return identity, None  # the core asks for a managed identity
    credential = azure.identity.DefaultAzureCredential()
    return {}, lambda: {"token": str(credential.get_token(_SCOPE).token)}


def parse_connection_string(text: str) -> dict[str, Any]:
    """Return the options in a connection string.

    >>> parse_connection_string("DefaultEndpointsProtocol=https;AccountName=data;AccountKey=a2V5==")
    {'account_name': 'data', 'account_key': 'a2V5=='}
    """
    parts: dict[str, str] = {}
    for part in filter(None, text.strip().split(";")):
        name, mark, value = part.partition("=")
        if not mark:
            raise SMDebugValueError("invalid connection string of Azure: a part has no '='")
        parts[name.strip().lower()] = value.strip()
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        return {"use_emulator": True}
    names = {
        "accountname": "account_name",
        "accountkey": "account_key",
        "sharedaccesssignature": "sas_token",
        "blobendpoint": "endpoint_url",
    }
    found: dict[str, Any] = {names[name]: value for name, value in parts.items() if name in names}
    suffix = parts.get("endpointsuffix", "core.windows.net")
    if suffix != "core.windows.net" and "endpoint_url" not in found and "account_name" in found:
        found["endpoint_url"] = f"https://{found['account_name']}.blob.{suffix}"
    if "account_name" not in found and "endpoint_url" in found:
        found["account_name"] = (urlsplit(found["endpoint_url"]).hostname or "").partition(".")[0]
    if not found:
        raise SMDebugValueError(f"invalid connection string of Azure: known parts are {shown(', '.join(names))}")
    return found
