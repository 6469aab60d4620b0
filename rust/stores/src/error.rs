//! Errors in the terms of the problem.

use std::fmt;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// No object has this key.
    Missing,
    /// No bucket has this name.
    NoBucket,
    /// The credentials do not permit the request.
    Denied,
    /// There are no credentials, or the server does not accept them.
    Credentials,
    /// The credentials have expired.
    Expired,
    /// The object has another ETag than expected.
    Changed,
    /// The object has no byte in the range.
    Range,
    /// The server asked for fewer requests until the time was over.
    Busy,
    /// The server failed at each attempt.
    Fault,
    /// No connection.
    Connect,
    /// No answer in time.
    Timeout,
    /// Connections or answers ended early at each attempt.
    Broken,
    /// The bucket is in another region.
    Region,
    /// The object is larger than permitted.
    TooLarge,
    /// The operation was cancelled.
    Cancelled,
    /// Anything else.
    Other,
}

impl Code {
    /// The name that Python knows.
    pub fn name(self) -> &'static str {
        match self {
            Code::Missing => "missing",
            Code::NoBucket => "no_bucket",
            Code::Denied => "denied",
            Code::Credentials => "credentials",
            Code::Expired => "expired",
            Code::Changed => "changed",
            Code::Range => "range",
            Code::Busy => "busy",
            Code::Fault => "fault",
            Code::Connect => "connect",
            Code::Timeout => "timeout",
            Code::Broken => "broken",
            Code::Region => "region",
            Code::TooLarge => "too_large",
            Code::Cancelled => "cancelled",
            Code::Other => "other",
        }
    }
}

/// A proxy or a login page answered in place of the store.
#[derive(Debug, thiserror::Error)]
#[error("the answer is a web page, not a list of objects: a proxy or a login page is between here and the store")]
pub struct WebPage;

/// A failed operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The object or the prefix; empty if the error is about the store.
    pub key: String,
    /// What went wrong.
    pub code: Code,
    /// The reason, without secrets.
    pub message: String,
}

impl Error {
    /// An error.
    pub fn new(key: &str, code: Code, message: impl Into<String>) -> Error {
        Error { key: key.to_owned(), code, message: message.into() }
    }

    /// A cancelled operation.
    pub fn cancelled(key: &str) -> Error {
        Error::new(key, Code::Cancelled, "the operation was cancelled")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() { write!(to, "{}", self.message) } else { write!(to, "{}: {}", self.key, self.message) }
    }
}

impl std::error::Error for Error {}

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;
