//! What a failed attempt means, and whether and when it is worth another one.

use std::error::Error as StdError;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;

use object_store::Error as StoreError;
use object_store::client::{HttpError, HttpErrorKind};

use crate::attempt::Answer;
use crate::counters::Kind;
use crate::credentials::Unavailable;
use crate::error::{Code, WebPage};

/// The first pause between attempts; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Names that servers give to expired credentials.
const EXPIRED: [&str; 4] = ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"];
/// Names that servers give to credentials which they do not accept.
const REFUSED: [&str; 8] = [
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "InvalidAuthenticationInfo",
    "AuthenticationFailed",
    "NoAuthenticationInformation",
    "RequestTimeTooSkewed",
    "InvalidSecurity",
];
const THROTTLED: [&str; 6] =
    ["SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "ServerBusy"];
const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"];
const REGION: [&str; 3] = ["PermanentRedirect", "AuthorizationHeaderMalformed", "TemporaryRedirect"];

/// The error of type `E` in the chain of causes.
fn cause<E: StdError + 'static>(error: &StoreError) -> Option<&E> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The last causes of an error, which name the problem; earlier ones repeat the request.
pub fn root(error: &dyn StdError) -> String {
    let mut causes = vec![error.to_string()];
    let mut next = error.source();
    while let Some(error) = next {
        causes.push(error.to_string());
        next = error.source();
    }
    let mut last: Vec<String> = causes.split_off(causes.len().saturating_sub(2));
    last.dedup();
    if let [outer, inner] = &last[..]
        && outer.contains(inner.as_str())
    {
        last.pop();
    }
    last.join(": ")
}

/// The reason of a failed attempt.
pub fn judge(error: &StoreError, kind: Kind, answer: &Answer) -> (Code, String) {
    if let Some(unavailable) = cause::<Unavailable>(error) {
        return (Code::Credentials, unavailable.to_string());
    }
    if let Some(page) = cause::<WebPage>(error) {
        return (Code::Other, page.to_string());
    }
    let transport = cause::<HttpError>(error);
    let status = match (answer.status, transport) {
        (Some(status @ 300..), _) => status,
        (_, Some(http)) => return (broken(http), root(http)),
        (None, None) => return (Code::Other, root(error)),
        // Azure answers to a batch of requests, each with its own status.
        (Some(_), None) if matches!(error, StoreError::NotFound { .. }) => return (Code::Missing, root(error)),
        // The answer was complete, but not as expected. A page or a confirmation may be whole the next time; the
        // headers of an object will not change.
        (Some(_), None) if matches!(kind, Kind::Get | Kind::Head) => return (Code::Other, root(error)),
        (Some(_), None) => return (Code::Broken, root(error)),
    };
    let code = refusal(status, kind, answer);
    let mut message = format!("the server answered {status}");
    for (separator, text) in [(" ", &answer.code), (": ", &answer.message)] {
        if !text.is_empty() {
            message.push_str(separator);
            message.push_str(text);
        }
    }
    if code == Code::Region && !answer.region.is_empty() {
        message.push_str(&format!("; the bucket is in region {}", answer.region));
    }
    (code, message)
}

/// Whether the encryption failed, for example by the server's certificate, which another attempt does not change.
fn is_untrusted(http: &HttpError) -> bool {
    let mut next: Option<&(dyn StdError + 'static)> = Some(http);
    while let Some(error) = next {
        if error.is::<rustls::Error>() {
            return true;
        }
        // The inner error of an I/O error is not its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map_or_else(|| error.source(), |inner| Some(inner));
    }
    false
}

fn broken(http: &HttpError) -> Code {
    match http.kind() {
        HttpErrorKind::Connect if is_untrusted(http) => Code::Other,
        HttpErrorKind::Connect => Code::Connect,
        HttpErrorKind::Timeout => Code::Timeout,
        _ => Code::Broken,
    }
}

/// What a status of 300 or more means.
fn refusal(status: u16, kind: Kind, answer: &Answer) -> Code {
    let named = |names: &[&str]| names.contains(&answer.code.as_str());
    if named(&EXPIRED) {
        return Code::Expired;
    }
    if named(&REFUSED) {
        return Code::Credentials;
    }
    if named(&THROTTLED) {
        return Code::Busy;
    }
    if named(&REGION) {
        return Code::Region;
    }
    if named(&NO_BUCKET) {
        return Code::NoBucket;
    }
    match status {
        301..=308 => Code::Region,
        // Answers to HEAD have no body that could name the reason.
        400 if kind == Kind::Head => Code::Expired,
        400 if answer.code == "RequestTimeout" => Code::Broken,
        401 => Code::Credentials,
        403 => Code::Denied,
        404 if kind == Kind::List => Code::NoBucket,
        404 | 410 => Code::Missing,
        408 => Code::Broken,
        // Two writers at once: the condition of the later one is judged again.
        409 if answer.code == "ConditionalRequestConflict" => Code::Fault,
        409 | 412 => Code::Changed,
        416 => Code::Range,
        429 | 503 => Code::Busy,
        500.. => Code::Fault,
        _ => Code::Other,
    }
}

/// The attempts of an operation that failed so far.
#[derive(Debug, Default)]
pub struct Failures(u32);

impl Failures {
    /// The pause before the next attempt, or `None` if there is none.
    pub fn pause(&mut self, code: Code, retry_after: Option<Duration>) -> Option<Duration> {
        let most = match code {
            Code::Busy => u32::MAX, // until the operation's time is over
            Code::Fault | Code::Broken => 10,
            Code::Connect => 6,
            Code::Timeout => 5,
            _ => 0,
        };
        self.0 += 1;
        if self.0 >= most {
            return None;
        }
        let longest = (FIRST_PAUSE * 2u32.pow((self.0 - 1).min(16))).min(LONGEST_PAUSE);
        // Clients that failed together do not return together.
        let share = (RandomState::new().hash_one(self.0) >> 11) as f64 / (1u64 << 53) as f64;
        let pause = longest.mul_f64(0.5 + 0.5 * share);
        Some(retry_after.map_or(pause, |asked| pause.max(asked)))
    }

    /// Their number.
    pub fn count(&self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(status: u16, code: &str, kind: Kind) -> Code {
        refusal(status, kind, &Answer { status: Some(status), code: code.to_owned(), ..Answer::default() })
    }

    #[test]
    fn refusals_have_different_codes() {
        for (status, code, kind, expected) in [
            (404, "NoSuchKey", Kind::Get, Code::Missing),
            (404, "NoSuchBucket", Kind::Get, Code::NoBucket),
            (404, "", Kind::Head, Code::Missing),
            (403, "AccessDenied", Kind::Get, Code::Denied),
            (401, "", Kind::Get, Code::Credentials),
            (403, "InvalidAccessKeyId", Kind::Get, Code::Credentials),
            (400, "ExpiredToken", Kind::Get, Code::Expired),
            (400, "", Kind::Head, Code::Expired),
            (400, "AuthorizationHeaderMalformed", Kind::Get, Code::Region),
            (301, "", Kind::Get, Code::Region),
            (412, "PreconditionFailed", Kind::Get, Code::Changed),
            (416, "InvalidRange", Kind::Get, Code::Range),
            (503, "SlowDown", Kind::Get, Code::Busy),
            (400, "SlowDown", Kind::Get, Code::Busy),
            (429, "", Kind::Get, Code::Busy),
            (500, "InternalError", Kind::Get, Code::Fault),
        ] {
            assert_eq!(meaning(status, code, kind), expected, "{status} {code}");
        }
    }

    #[test]
    fn failures_of_encryption_are_found_below_errors_of_connections() {
        let of = |inner: io::Error| broken(&HttpError::new(HttpErrorKind::Connect, io::Error::other(inner)));
        assert_eq!(of(io::Error::other(rustls::Error::DecryptError)), Code::Other);
        assert_eq!(of(io::ErrorKind::ConnectionRefused.into()), Code::Connect);
    }

    #[test]
    fn pauses_grow_and_end() {
        let mut failures = Failures::default();
        let pauses: Vec<_> = std::iter::from_fn(|| failures.pause(Code::Fault, None)).collect();
        assert_eq!(pauses.len(), 9);
        assert!(pauses[0] <= FIRST_PAUSE && pauses[8] >= LONGEST_PAUSE / 2 && pauses[8] <= LONGEST_PAUSE);
        let mut failures = Failures::default();
        assert!(failures.pause(Code::Busy, Some(Duration::from_secs(7))).unwrap() >= Duration::from_secs(7));
        assert_eq!(Failures::default().pause(Code::Denied, None), None);
    }
}
