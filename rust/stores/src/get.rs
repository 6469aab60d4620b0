//! Reading an object or a range of one, across as many attempts as it takes.

use std::ops::Range;
use std::sync::Arc;

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore};
use parking_lot::Mutex;

use crate::attempt;
use crate::error::Code;

/// Memory that is reserved before the bytes arrive.
pub const LARGEST_RESERVED: u64 = 64 << 20;

/// What is read of an object.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// All of it, if it has at most so many bytes.
    Whole(u64),
    /// The bytes of a range that exist.
    Part(Range<u64>),
}

/// A failed attempt.
pub enum Fault {
    /// Judged by the answer.
    Store(object_store::Error),
    /// Known from what arrived. `Code::Broken` is worth another attempt.
    Own(Code, String),
}

impl From<object_store::Error> for Fault {
    fn from(error: object_store::Error) -> Fault {
        Fault::Store(error)
    }
}

#[derive(Debug, Default)]
struct Received {
    bytes: Vec<u8>,
    /// As the server wrote it.
    etag: Option<String>,
    /// The number of bytes that there will be.
    expected: Option<u64>,
}

/// A read that may take several attempts.
#[derive(Debug, Clone)]
pub struct Get {
    path: Path,
    wanted: Wanted,
    /// The ETag that the caller expects.
    expected: Option<String>,
    received: Arc<Mutex<Received>>,
}

/// An ETag as the core returns it: without quotes, which listings of some stores omit.
pub fn bare(etag: Option<String>) -> String {
    let etag = etag.unwrap_or_default();
    match etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')) {
        Some(bare) => bare.to_owned(),
        None => etag,
    }
}

/// An ETag as servers expect it.
pub fn quoted(etag: &str) -> String {
    if etag.starts_with('"') || etag.starts_with("W/") { etag.to_owned() } else { format!("\"{etag}\"") }
}

impl Get {
    /// A read of which nothing has arrived.
    pub fn new(path: Path, wanted: Wanted, etag: &str) -> Get {
        let expected = (!etag.is_empty()).then(|| quoted(etag));
        Get { path, wanted, expected, received: Arc::default() }
    }

    /// Forgets what arrived: the object changed, and is read again from its start, unless the caller expects it unchanged.
    fn restart(&self) -> Fault {
        *self.received.lock() = Received::default();
        let code = if self.expected.is_some() { Code::Changed } else { Code::Broken };
        Fault::Own(code, "the object changed while it was read".to_owned())
    }

    /// Asks for the bytes that are missing, and receives them until the connection breaks.
    pub async fn attempt(self, store: Arc<dyn ObjectStore>) -> Result<(), Fault> {
        let (have, known, expected) = {
            let received = self.received.lock();
            (received.bytes.len() as u64, received.etag.clone(), received.expected)
        };
        if expected.is_some_and(|expected| have >= expected) {
            return Ok(());
        }
        // Weak ETags do not say that the bytes are equal.
        let strong = known.clone().filter(|etag| !etag.starts_with("W/"));
        if have > 0 && strong.is_none() {
            return Err(self.restart());
        }
        let range = match &self.wanted {
            Wanted::Whole(_) if have == 0 => None,
            Wanted::Whole(_) => Some(GetRange::Offset(have)),
            Wanted::Part(range) => Some(GetRange::Bounded(range.start + have..range.end)),
        };
        let if_match = strong.or_else(|| self.expected.clone());
        let options = GetOptions { range: range.clone(), if_match, ..GetOptions::default() };
        let mut skip = 0;
        let result = match store.get_opts(&self.path, options.clone()).await {
            // The server sends only whole objects.
            Err(_) if range.is_some() && attempt::current().is_some_and(|now| now.answer().status == Some(200)) => {
                skip = have + if let Wanted::Part(range) = &self.wanted { range.start } else { 0 };
                store.get_opts(&self.path, GetOptions { range: None, ..options }).await
            }
            Err(object_store::Error::Precondition { .. }) if have > 0 => return Err(self.restart()),
            result => result,
        }?;
        let (size, etag) = (result.meta.size, result.meta.e_tag.clone());
        // Some servers do not look at the condition.
        if etag.is_some()
            && self.expected.as_ref().is_some_and(|expected| bare(Some(expected.clone())) != bare(etag.clone()))
        {
            return Err(self.restart());
        }
        let total = match &self.wanted {
            Wanted::Whole(limit) if size > *limit => {
                return Err(Fault::Own(Code::TooLarge, format!("the object has {size} bytes, more than {limit}")));
            }
            Wanted::Whole(_) => size,
            Wanted::Part(range) if range.start >= size && range.end > range.start => {
                let message = format!("the object has {size} bytes, none from {}", range.start);
                return Err(Fault::Own(Code::Range, message));
            }
            Wanted::Part(range) => range.end.min(size) - range.start,
        };
        if have > 0 && (etag != known || expected != Some(total)) {
            return Err(self.restart());
        }
        {
            let mut received = self.received.lock();
            (received.etag, received.expected) = (etag, Some(total));
            let missing = (total - have).min(LARGEST_RESERVED);
            received.bytes.reserve_exact(usize::try_from(missing).unwrap_or_default());
        }
        let mut stream = result.into_stream();
        let mut missing = total - have;
        while missing > 0 {
            let Some(chunk) = stream.next().await else { break };
            let chunk = chunk?;
            let skipped = (chunk.len() as u64).min(skip);
            skip -= skipped;
            let chunk = &chunk[skipped as usize..];
            let taken = (chunk.len() as u64).min(missing);
            missing -= taken;
            self.received.lock().bytes.extend_from_slice(&chunk[..taken as usize]);
        }
        if missing > 0 {
            return Err(Fault::Own(Code::Broken, format!("the answer lacks {missing} of {total} bytes")));
        }
        Ok(())
    }

    /// The content and the bare ETag, after an attempt succeeded.
    pub fn finish(self) -> (Vec<u8>, String) {
        let received = std::mem::take(&mut *self.received.lock());
        (received.bytes, bare(received.etag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_lose_and_regain_their_quotes() {
        assert_eq!(bare(Some("\"a-1\"".to_owned())), "a-1");
        assert_eq!(bare(Some("W/\"a\"".to_owned())), "W/\"a\"");
        assert_eq!(bare(None), "");
        assert_eq!(quoted("a-1"), "\"a-1\"");
        assert_eq!(quoted("\"a\""), "\"a\"");
        assert_eq!(quoted("W/\"a\""), "W/\"a\"");
    }
}
