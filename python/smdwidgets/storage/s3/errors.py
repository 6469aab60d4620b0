"""Exceptions of S3 with bucket, object and advice."""

from __future__ import annotations

from smdwidgets._text import shown
from smdwidgets.exceptions import RunFileMissing, RunIOError, RunNotFound, SMDebugError


class S3Error(RunIOError):
    """A request to S3 failed after retries.

    ``code`` is S3's error code, such as ``SlowDown``, or the name of boto3's exception.
    """

    def __init__(self, bucket: str, key: str, code: str, advice: str) -> None:
        super().__init__(bucket, key, code, advice)
        self.bucket = bucket
        self.key = key
        self.code = code
        self.advice = advice

    def _message(self) -> str:
        return f"{s3_url(self.bucket, self.key)}: {self.advice} ({self.code})"


class S3ObjectMissing(S3Error, RunFileMissing):
    """The object does not exist."""


class S3ObjectChanged(S3Error):
    """The object was overwritten while it was read."""


def s3_url(bucket: str, key: str = "") -> str:
    """Return ``s3://bucket/key``, quoted and escaped."""
    return shown(f"s3://{bucket}/{key}", 400)


_MISSING_OBJECT = {"NoSuchKey", "404", "NotFound"}
_DENIED = {"AccessDenied", "403", "Forbidden", "AllAccessDisabled", "AccountProblem"}
_BAD_CREDENTIALS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthorizationHeaderMalformed"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_BUSY = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "503", "429"}
_FAULT = {"InternalError", "ServiceUnavailable", "500", "502", "504", "RequestTimeout", "RequestTimeTooSkewed"}


def retryable(code: str) -> bool:
    """Return whether the same request may succeed later."""
    return code in _BUSY or code in _FAULT


def final(code: str) -> bool:
    """Return whether the request also fails with boto3."""
    return code in _MISSING_OBJECT | _DENIED | _EXPIRED | {
        "NoSuchBucket",
        "PreconditionFailed",
        "412",
        "InvalidRange",
        "416",
    }


def from_client_error(error: Exception, bucket: str, key: str) -> SMDebugError:
    """Convert a ``botocore.exceptions.ClientError``."""
    response = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", "")) or type(error).__name__
    if code == "NoSuchBucket":
        return RunNotFound(f"s3://{bucket}", "no such bucket in this region or at this endpoint")
    if code in _MISSING_OBJECT:
        return S3ObjectMissing(bucket, key, code, "no such object")
    if code in {"PreconditionFailed", "412"}:
        return S3ObjectChanged(bucket, key, code, "the object was overwritten while it was read; retry")
    if code in {"InvalidRange", "416"}:
        return S3Error(
            bucket,
            key,
            code,
            "the index refers to bytes past the end of the object; the object is truncated or belongs to another run",
        )
    if code in _DENIED:
        return S3Error(
            bucket,
            key,
            code,
            "access denied: the credentials need s3:ListBucket on the bucket and s3:GetObject on its objects",
        )
    if code in _EXPIRED:
        return S3Error(
            bucket, key, code, "the credentials have expired: sign in again (for example `aws sso login`) and retry"
        )
    if code in _BAD_CREDENTIALS:
        return S3Error(
            bucket, key, code, "the credentials were not accepted: check AWS_PROFILE, AWS_ACCESS_KEY_ID and the region"
        )
    if code in {"PermanentRedirect", "301", "IllegalLocationConstraintException"}:
        return S3Error(bucket, key, code, "the bucket is in another region: set AWS_DEFAULT_REGION or pass session=")
    if code in _BUSY:
        return S3Error(bucket, key, code, "S3 throttled the request through all retries; retry later")
    if code in _FAULT:
        return S3Error(bucket, key, code, "S3 failed in all retries; retry later")
    return S3Error(bucket, key, code, str(response.get("Error", {}).get("Message", "")) or str(error))


def from_transport_error(error: Exception, bucket: str, key: str) -> SMDebugError:
    """Convert an exception of botocore or urllib3 about a missing or short response."""
    kind = type(error).__name__
    if kind in {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "UnauthorizedSSOTokenError",
    }:
        advice = "no usable credentials found: sign in, set AWS_PROFILE, or pass session= or client="
    elif kind in {"SSOTokenLoadError", "TokenRetrievalError"}:
        advice = "the credentials have expired: sign in again (for example `aws sso login`) and retry"
    elif kind in {"EndpointConnectionError", "ConnectionRefusedError", "ConnectTimeoutError"}:
        advice = f"cannot connect: check the network, the region and AWS_ENDPOINT_URL: {error}"
    elif kind in {"ParamValidationError", "InvalidBucketNameError"}:
        advice = f"invalid S3 name: {error}"
    else:
        advice = f"the connection broke in all retries: {error}"
    return S3Error(bucket, key, kind, advice)
