//! Sends requests: counts them, bounds each wait for bytes, and notes the answer for the current attempt.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, RANGE, RETRY_AFTER};
use http_body::{Body, Frame, SizeHint};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::attempt::{self, Answer};
use crate::counters::{Counters, Kind};
use crate::error::WebPage;
use crate::keys;

/// A page of a thousand keys of a thousand bytes, escaped, takes a tenth.
const LARGEST_LISTING: usize = 64 << 20;
/// Explanations of errors are short.
const LARGEST_EXPLANATION: usize = 64 << 10;
/// Uploads are expected to be at least this fast, in bytes a second.
const SLOWEST_UPLOAD: u64 = 64 << 10;

/// No byte arrived in time.
#[derive(Debug, thiserror::Error)]
#[error("the server sent nothing for {0} s")]
pub struct Silence(u64);

#[derive(Debug, thiserror::Error)]
#[error("the answer is larger than {0} bytes")]
struct TooLong(usize);

/// Whether an answer is a page for a browser.
fn is_web_page(answer: &[u8]) -> bool {
    let start = answer.trim_ascii_start();
    let begins = |mark: &[u8]| start.get(..mark.len()).is_some_and(|first| first.eq_ignore_ascii_case(mark));
    begins(b"<!doctype html") || begins(b"<html")
}

fn silent(silence: Duration) -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, Silence(silence.as_secs()))
}

/// Makes clients whose requests are counted and bounded.
#[derive(Debug, Clone)]
pub struct Connector {
    /// Counts the requests.
    pub counters: Arc<Counters>,
    /// The longest wait for bytes.
    pub silence: Duration,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let connect = |options: &ClientOptions| ReqwestConnector::default().connect(options);
        // A system without certificates can still read over plain HTTP; any other server is not trusted.
        let client = connect(options).or_else(|_| connect(&options.clone().with_no_system_certificates(true)))?;
        Ok(HttpClient::new(Service { client, about: self.clone() }))
    }
}

#[derive(Debug)]
struct Service {
    client: HttpClient,
    about: Connector,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Some(attempt) = attempt::current() else { return self.client.execute(request).await };
        self.about.counters.sent(attempt.kind);
        let silence = self.about.silence;
        let uploading = Duration::from_secs(request.body().content_length() as u64 / SLOWEST_UPLOAD);
        let has_range = request.headers().contains_key(RANGE);
        let response = timeout(silence + uploading, self.client.execute(request)).await;
        let (mut parts, body) = response.map_err(|_| silent(silence + uploading))??.into_parts();
        // Some servers send a range, and say so, but with the wrong status.
        if has_range && parts.status == StatusCode::OK && parts.headers.contains_key(CONTENT_RANGE) {
            parts.status = StatusCode::PARTIAL_CONTENT;
        }
        let body = Patient::new(body, self.about.clone());
        let mut answer = Answer {
            status: Some(parts.status.as_u16()),
            retry_after: retry_after(&parts.headers),
            region: text(&parts.headers, "x-amz-bucket-region"),
            ..Answer::default()
        };
        if parts.status.is_client_error() || parts.status.is_server_error() {
            let body = collect(body, LARGEST_EXPLANATION).await.unwrap_or_default();
            (answer.code, answer.message) = explanation(&String::from_utf8_lossy(&body));
            if answer.code.is_empty() {
                answer.code = text(&parts.headers, "x-ms-error-code");
            }
            attempt.answered(answer);
            return Ok(HttpResponse::from_parts(parts, Bytes::from(body).into()));
        }
        attempt.answered(answer);
        if attempt.kind != Kind::List {
            if attempt.kind != Kind::Get || parts.headers.contains_key(CONTENT_LENGTH) {
                return Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)));
            }
            // Web servers write pages without knowing their length.
            let page = collect(body, LARGEST_LISTING).await?;
            parts.headers.insert(CONTENT_LENGTH, page.len().into());
            return Ok(HttpResponse::from_parts(parts, Bytes::from(page).into()));
        }
        let listing = collect(body, LARGEST_LISTING).await?;
        if is_web_page(&listing) {
            return Err(HttpError::new(HttpErrorKind::Decode, WebPage));
        }
        let encoded = match str::from_utf8(&listing) {
            Ok(listing) => keys::encode(listing).into_bytes(),
            Err(_) => listing, // the parser explains what is wrong
        };
        Ok(HttpResponse::from_parts(parts, Bytes::from(encoded).into()))
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// The wait that the server asked for; dates are not read, since clocks differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The code and the message of an error document, which is XML, JSON or free text.
fn explanation(document: &str) -> (String, String) {
    let within = |opening: &str, closing: &str| {
        let (_, after) = document.split_once(opening)?;
        Some(after.split_once(closing)?.0.trim())
    };
    let element = |name: &str| within(&format!("<{name}>"), &format!("</{name}>"));
    let member =
        |name: &str| within(&format!("\"{name}\": \""), "\"").or_else(|| within(&format!("\"{name}\":\""), "\""));
    let code = element("Code").or_else(|| member("reason")).unwrap_or_default();
    let message = element("Message").or_else(|| member("message")).unwrap_or_default();
    let shorten = |text: &str, length: usize| text.chars().take(length).collect();
    (shorten(code, 80), shorten(message.lines().next().unwrap_or_default(), 300))
}

async fn collect(body: Patient, most: usize) -> Result<Vec<u8>, HttpError> {
    let mut stream = HttpResponseBody::new(body).bytes_stream();
    let mut collected = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        if collected.len() + chunk.len() > most {
            return Err(HttpError::new(HttpErrorKind::Decode, TooLong(most)));
        }
        collected.extend_from_slice(&chunk);
    }
    Ok(collected)
}

/// A body that fails if no byte arrives for a time.
struct Patient {
    body: HttpResponseBody,
    about: Connector,
    /// When the last bytes arrived.
    last: Instant,
    /// Set again only when it ends: bytes usually arrive earlier.
    alarm: Pin<Box<Sleep>>,
}

impl Patient {
    fn new(body: HttpResponseBody, about: Connector) -> Patient {
        let last = Instant::now();
        let alarm = Box::pin(sleep_until(last + about.silence));
        Patient { body, about, last, alarm }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.last = Instant::now();
            if let Some(bytes) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
                this.about.counters.received(bytes.len());
            }
            return Poll::Ready(frame);
        }
        loop {
            ready!(this.alarm.as_mut().poll(context));
            let end = this.last + this.about.silence;
            if Instant::now() >= end {
                return Poll::Ready(Some(Err(silent(this.about.silence))));
            }
            this.alarm.as_mut().reset(end);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_for_browsers_are_no_listings() {
        for page in ["<html><body>Sign in", "\n <!DOCTYPE HTML PUBLIC>", "<!doctype html>"] {
            assert!(is_web_page(page.as_bytes()), "{page}");
        }
        for listing in ["", "<?xml version=\"1.0\"?><ListBucketResult/>", "<ListBucketResult/>", "{}"] {
            assert!(!is_web_page(listing.as_bytes()), "{listing}");
        }
    }

    #[test]
    fn explanations_of_all_stores_are_read() {
        let of = |document| explanation(document);
        let xml = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Reduce\nmore</Message></Error>";
        assert_eq!(of(xml), ("SlowDown".to_owned(), "Reduce".to_owned()));
        let json = r#"{"error": {"code": 401, "message": "Invalid", "errors": [{"reason": "authError"}]}}"#;
        assert_eq!(of(json), ("authError".to_owned(), "Invalid".to_owned()));
        assert_eq!(of("<html>nothing"), (String::new(), String::new()));
    }
}
