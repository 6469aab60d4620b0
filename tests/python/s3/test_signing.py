"""Signatures are equal to those of botocore."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets.storage.s3.signing import Signer, read_authorization

words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
regions = st.sampled_from(["us-east-1", "eu-central-1", ""])


@given(
    key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    region=regions,
    secret=words,
    token=st.none() | words,
    etag=st.none() | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40),
)
def test_equal_requests_have_equal_signatures(
    key: str, region: str, secret: str, token: str | None, etag: str | None
) -> None:
    credentials = Credentials("AKID", secret, token).get_frozen_credentials()
    url = f"https://bucket.s3.amazonaws.com/{quote(key, safe='/~')}"
    others = {"range": "bytes=5-99"} | ({} if etag is None else {"if-match": etag})
    theirs = AWSRequest("GET", url, headers=others)
    S3SigV4Auth(credentials, "s3", region).add_auth(theirs)
    sent = {name.lower(): value for name, value in theirs.headers.items()}
    signer = Signer(region, sent["x-amz-content-sha256"])
    parts = urlsplit(url)
    ours = signer.headers(credentials, parts.netloc, parts.path, others, sent["x-amz-date"])
    assert ours == {name: value.decode() if isinstance(value, bytes) else value for name, value in sent.items()}
    parsed = read_authorization(ours["authorization"])
    if region:
        assert parsed is not None
        assert (parsed.key_id, parsed.region) == ("AKID", region)
        assert {"host", "range", "x-amz-date"} <= parsed.headers


def test_new_day_or_credentials_change_the_key() -> None:
    signer = Signer("us-east-1", "UNSIGNED-PAYLOAD")
    signatures = [
        signer.authorization(Credentials("a", secret), "/k", {"host": "h"}, f"{day}T000000Z")
        for secret, day in [("one", "20260101"), ("one", "20260102"), ("two", "20260102"), ("one", "20260101")]
    ]
    assert len(set(signatures)) == 3
    assert signatures[0] == signatures[3]


@pytest.mark.parametrize("text", ["", "AWS test:abc=", "AWS4-ECDSA-P256-SHA256 Credential=a/b", "AWS4-HMAC-SHA256 "])
def test_other_signature_versions_are_not_parsed(text: str) -> None:
    assert read_authorization(text) is None


def test_signed_body_is_not_supported() -> None:
    with pytest.raises(LookupError):
        Signer("us-east-1", "0" * 64)
