"""What S3 and boto3 say, in words that name the bucket, the object and what to do."""

from __future__ import annotations

from smdwidgets._text import shown
from smdwidgets.exceptions import RunFileMissing, RunIOError, RunNotFound, SMDebugError


class S3Error(RunIOError):
    """S3 refused or could not be reached, also after the retries that made sense.

    ``bucket``, ``key`` and ``code`` (S3's own word, such as ``SlowDown``) say what it was about.
    """

    def __init__(self, bucket: str, key: str, code: str, advice: str) -> None:
        super().__init__(bucket, key, code, advice)
        self.bucket = bucket
        self.key = key
        self.code = code
        self.advice = advice

    def _said(self) -> str:
        return f"{s3_url(self.bucket, self.key)}: {self.advice} ({self.code})"


class S3ObjectMissing(S3Error, RunFileMissing):
    """The object is not there (any more)."""


class S3ObjectChanged(S3Error):
    """The object was written again while it was being read."""


def s3_url(bucket: str, key: str = "") -> str:
    """``s3://bucket/key`` as text that is safe to print."""
    return shown(f"s3://{bucket}/{key}", 400)


_MISSING_OBJECT = {"NoSuchKey", "404", "NotFound"}
_DENIED = {"AccessDenied", "403", "Forbidden", "AllAccessDisabled", "AccountProblem"}
_BAD_CREDENTIALS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthorizationHeaderMalformed"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_BUSY = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "503", "429"}
_FAULT = {"InternalError", "ServiceUnavailable", "500", "502", "504", "RequestTimeout", "RequestTimeTooSkewed"}


def retryable(code: str) -> bool:
    """Whether the same request may succeed a little later."""
    return code in _BUSY or code in _FAULT


def final(code: str) -> bool:
    """Whether the answer is the same however it is asked: boto3 knows no cure either."""
    return code in _MISSING_OBJECT | _DENIED | _EXPIRED | {
        "NoSuchBucket",
        "PreconditionFailed",
        "412",
        "InvalidRange",
        "416",
    }


def from_client_error(error: Exception, bucket: str, key: str) -> SMDebugError:
    """The error of the vocabulary that a ``botocore.exceptions.ClientError`` means."""
    response = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", "")) or type(error).__name__
    if code == "NoSuchBucket":
        return RunNotFound(f"s3://{bucket}", "there is no such bucket, or not in this region or at this endpoint")
    if code in _MISSING_OBJECT:
        return S3ObjectMissing(bucket, key, code, "there is no such object")
    if code in {"PreconditionFailed", "412"}:
        return S3ObjectChanged(bucket, key, code, "it was written again while it was being read; read it once more")
    if code in {"InvalidRange", "416"}:
        return S3Error(
            bucket,
            key,
            code,
            "the index asks for bytes past the end of the object; it is cut short or belongs to another run",
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
            bucket, key, code, "the credentials are not accepted: look at AWS_PROFILE, AWS_ACCESS_KEY_ID and the region"
        )
    if code in {"PermanentRedirect", "301", "IllegalLocationConstraintException"}:
        return S3Error(bucket, key, code, "the bucket lives in another region: set AWS_DEFAULT_REGION or pass session=")
    if code in _BUSY:
        return S3Error(
            bucket, key, code, "S3 is throttling and did not let the request through after all retries; try later"
        )
    if code in _FAULT:
        return S3Error(bucket, key, code, "S3 failed and went on failing through all retries; try later")
    return S3Error(bucket, key, code, str(response.get("Error", {}).get("Message", "")) or str(error))


def from_transport_error(error: Exception, bucket: str, key: str) -> SMDebugError:
    """The error of the vocabulary for what botocore or urllib3 raise when no answer, or half an answer, came."""
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
        advice = f"could not be reached: look at the network, the region and AWS_ENDPOINT_URL. {error}"
    elif kind in {"ParamValidationError", "InvalidBucketNameError"}:
        advice = f"not a name that S3 accepts: {error}"
    else:
        advice = f"the connection broke again and again while reading: {error}"
    return S3Error(bucket, key, kind, advice)
