//! The operations of a store in one process.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use object_store::list::PaginatedListOptions;
use object_store::{GetOptions, ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};

use crate::attempt::Attempt;
use crate::counters::{Counters, Kind};
use crate::credentials::{Credentials, Provider};
use crate::error::{Code, Error, Result};
use crate::get::{Fault, Get, LARGEST_RESERVED, Wanted, bare, quoted};
use crate::judge::{Failures, judge};
use crate::keys;
use crate::limiter::Limiter;
use crate::open::{Bucket, open};
use crate::ranges::{Piece, Span, pieces};
use crate::service::Connector;
use crate::settings::{Options, Settings};

/// Bytes of ranges that are requested at once, in units of `UNIT`.
const WRITE_SLOTS: usize = (64 << 20) / UNIT as usize;
const UNIT: u64 = 1 << 10;
const PAGE: usize = 1000;
/// Longer ranges are refused: their pieces alone would fill the memory.
const LONGEST_RANGE: u64 = 1 << 40;

/// An object in a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was written, in seconds since 1970.
    pub modified: f64,
    /// Its ETag, without quotes; empty if the server has none.
    pub etag: String,
}

/// A page of a listing.
#[derive(Debug, Default)]
pub struct Page {
    /// Its objects.
    pub entries: Vec<Entry>,
    /// The folders in a folder, without the slashes at their ends.
    pub folders: Vec<String>,
    /// Asks for the next page; `None` after the last one.
    pub next: Option<String>,
}

/// When an object is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// In any case.
    Always,
    /// If there is none.
    Absent,
    /// If it has this ETag.
    Unchanged(String),
}

/// A client of a store.
pub struct Client {
    pub(crate) bucket: Bucket,
    pub(crate) concurrency: usize,
    timeout: Duration,
    limiter: Arc<Limiter>,
    counters: Arc<Counters>,
    credentials: Option<Arc<Credentials>>,
    slots: Semaphore,
    closed: watch::Sender<bool>,
}

fn modified(meta: &ObjectMeta) -> f64 {
    meta.last_modified.timestamp_micros() as f64 / 1e6
}

impl Client {
    /// Opens a store. Sends nothing.
    pub fn new(
        url: &str,
        options: &Options,
        concurrency: usize,
        credentials: Option<Arc<Credentials>>,
        limiter: Arc<Limiter>,
        counters: Arc<Counters>,
    ) -> Result<Client> {
        let settings = Settings::new(options)?;
        let timeout = settings.timeout;
        let connector = Connector { counters: counters.clone(), silence: settings.silence };
        let bucket = open(url, settings, credentials.clone().map(Provider), connector)?;
        let (slots, closed) = (Semaphore::new(WRITE_SLOTS), watch::Sender::new(false));
        Ok(Client { bucket, concurrency, timeout, limiter, counters, credentials, slots, closed })
    }

    /// The credentials that the caller must provide, if it does.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_deref()
    }

    /// Ends all operations.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Returns when the store is closed.
    pub(crate) async fn closed(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Repeats `once` until it succeeds, cannot succeed, or the time is over.
    pub(crate) async fn repeat<T, F>(&self, kind: Kind, key: &str, mut once: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let deadline = Instant::now() + self.timeout;
        let mut failures = Failures::default();
        let mut renewed = false;
        let mut last = Error::new(key, Code::Timeout, format!("no answer within {} s", self.timeout.as_secs()));
        loop {
            let attempt = Attempt::new(kind);
            let once = async {
                let permit = self.limiter.acquire().await;
                let (code, message) = match attempt.run(once()).await {
                    Ok(value) => return Ok(value),
                    Err(Fault::Own(code, message)) => (code, message),
                    Err(Fault::Store(error)) => judge(&error, kind, &attempt.answer()),
                };
                if code == Code::Busy {
                    permit.throttled();
                }
                Err(Error::new(key, code, message))
            };
            let error = match timeout_at(deadline, once).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(_) => return Err(last),
            };
            let was_refused =
                matches!(error.code, Code::Expired | Code::Credentials) && attempt.answer().status.is_some();
            let pause = match (&self.credentials, attempt.version()) {
                (Some(credentials), Some(version)) if was_refused && !renewed => {
                    credentials.reject(version);
                    renewed = true;
                    Duration::ZERO
                }
                _ => match failures.pause(error.code, attempt.answer().retry_after) {
                    Some(pause) if Instant::now() + pause < deadline => pause,
                    _ => return Err(after(error, &failures)),
                },
            };
            self.counters.repeated(error.code, &error.message);
            last = after(error, &failures);
            sleep(pause).await;
        }
    }

    /// A page of the objects whose keys begin with `prefix` and are above `start_after`.
    pub async fn page(&self, prefix: &str, start_after: &str, token: Option<&str>) -> Result<Page> {
        let options = PaginatedListOptions {
            offset: (token.is_none() && !start_after.is_empty()).then(|| start_after.to_owned()),
            page_token: token.map(str::to_owned),
            ..PaginatedListOptions::default()
        };
        self.listed(prefix, start_after, options).await
    }

    /// A page of the objects and folders directly in a folder, whose name ends with a slash; the root's is empty.
    pub async fn folder(&self, folder: &str, token: Option<&str>) -> Result<Page> {
        let (delimiter, page_token) = (Some("/".into()), token.map(str::to_owned));
        self.listed(folder, "", PaginatedListOptions { delimiter, page_token, ..Default::default() }).await
    }

    async fn listed(&self, prefix: &str, start_after: &str, options: PaginatedListOptions) -> Result<Page> {
        let Some(pages) = &self.bucket.pages else {
            return Err(Error::new(prefix, Code::Other, "a plain web server has no list of objects"));
        };
        let options = PaginatedListOptions { max_keys: Some(PAGE), ..options };
        let found = self.repeat(Kind::List, prefix, || {
            let (pages, options) = (pages.clone(), options.clone());
            async move { Ok(pages.list_paginated(Some(prefix).filter(|prefix| !prefix.is_empty()), options).await?) }
        });
        let found = found.await?;
        let entry = |meta: ObjectMeta| Entry {
            key: keys::decode(&meta.location),
            size: meta.size,
            modified: modified(&meta),
            etag: bare(meta.e_tag),
        };
        let entries = found.result.objects.into_iter().map(entry);
        // Some servers ignore the start.
        let entries = entries.filter(|entry| entry.key.starts_with(prefix) && entry.key.as_str() > start_after);
        let folder = |path| {
            let key = keys::decode(path);
            key.strip_suffix('/').map_or(key.clone(), str::to_owned)
        };
        let folders = found.result.common_prefixes.iter().map(folder).collect();
        Ok(Page { entries: entries.collect(), folders, next: found.page_token })
    }

    /// The size, the time and the ETag of an object, or `None` if there is none.
    pub async fn head(&self, key: &str) -> Result<Option<Entry>> {
        let entry = |meta: ObjectMeta| {
            let (size, modified) = (meta.size, modified(&meta));
            Entry { key: key.to_owned(), size, modified, etag: bare(meta.e_tag) }
        };
        Ok(self.meta(key).await?.map(entry))
    }

    async fn meta(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let (store, path) = self.bucket.find(key)?;
        let found = self.repeat(Kind::Head, key, || {
            let (store, path) = (store.clone(), path.clone());
            let options = GetOptions { head: true, ..GetOptions::default() };
            async move { Ok(store.get_opts(&path, options).await?.meta) }
        });
        match found.await {
            Ok(meta) => Ok(Some(meta)),
            Err(error) if error.code == Code::Missing => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, key: &str, wanted: Wanted, etag: &str) -> Result<(Vec<u8>, String)> {
        let (store, path) = self.bucket.find(key)?;
        let get = Get::new(path, wanted, etag);
        self.repeat(Kind::Get, key, || get.clone().attempt(store.clone())).await?;
        Ok(get.finish())
    }

    /// The content and the ETag of an object, if it has at most `limit` bytes.
    pub async fn get(&self, key: &str, limit: u64) -> Result<(Vec<u8>, String)> {
        self.read(key, Wanted::Whole(limit), "").await
    }

    /// The bytes of a range that exist, and the object's ETag, which must be `etag` unless that is empty.
    pub async fn get_range(&self, key: &str, range: Range<u64>, etag: &str) -> Result<(Vec<u8>, String)> {
        if range.is_empty() {
            return Ok((Vec::new(), etag.to_owned()));
        }
        self.read(key, Wanted::Part(range), etag).await
    }

    /// The contents of objects in the order of arrival.
    pub fn get_many(
        self: &Arc<Client>,
        keys: Vec<String>,
        limit: u64,
    ) -> impl Stream<Item = (String, Result<Vec<u8>>)> + Send + use<> {
        let client = self.clone();
        let gets = stream::iter(keys).map(move |key| {
            let client = client.clone();
            async move {
                let content = client.get(&key, limit).await;
                (key, content.map(|(bytes, _)| bytes))
            }
        });
        gets.buffer_unordered(self.concurrency)
    }

    /// The bytes of ranges and the ETags of their objects, one result for each. Close ranges are read together, long ones in pieces.
    pub async fn get_ranges(
        &self,
        ranges: Vec<(String, Range<u64>)>,
        etags: &HashMap<String, String>,
    ) -> Vec<Result<(Vec<u8>, String)>> {
        let mut numbers = HashMap::new();
        let mut objects: Vec<&str> = Vec::new();
        let spans: Vec<Span> = ranges
            .iter()
            .map(|(key, range)| {
                let number = *numbers.entry(key.as_str()).or_insert_with(|| {
                    objects.push(key);
                    objects.len() - 1
                });
                let is_readable = range.end.saturating_sub(range.start) <= LONGEST_RANGE;
                (number, if is_readable { range.clone() } else { 0..0 })
            })
            .collect();
        let objects = &objects;
        let mut reads = stream::iter(pieces(&spans))
            .map(|piece| async move {
                let size = (piece.range.end - piece.range.start).div_ceil(UNIT);
                let _slots = self.slots.acquire_many(size as u32).await;
                let key = objects[piece.object];
                let etag = etags.get(key).map_or("", String::as_str);
                let read = self.read(key, Wanted::Part(piece.range.clone()), etag).await;
                (piece, read)
            })
            .buffer_unordered(self.concurrency);
        let mut assembly = Assembly::new(&spans, objects);
        while let Some((piece, read)) = reads.next().await {
            assembly.add(piece, read);
        }
        drop(reads);
        let results = assembly.finish().into_iter().zip(&ranges);
        let checked = results.map(|(result, (key, range))| match range.end.saturating_sub(range.start) {
            ..=LONGEST_RANGE => result,
            length => Err(Error::new(key, Code::TooLarge, format!("a range of {length} bytes is not readable"))),
        });
        checked.collect()
    }

    /// Writes an object and returns its ETag.
    pub async fn put(&self, key: &str, content: Bytes, condition: Condition) -> Result<String> {
        let (store, path) = self.bucket.find(key)?;
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Unchanged(etag) => {
                let version = if self.bucket.has_versions { self.version(key, &etag).await? } else { None };
                PutMode::Update(UpdateVersion { e_tag: Some(quoted(&etag)), version })
            }
        };
        let written = self.repeat(Kind::Put, key, || {
            let (store, path) = (store.clone(), path.clone());
            let options = PutOptions { mode: mode.clone(), ..PutOptions::default() };
            let payload = PutPayload::from_bytes(content.clone());
            async move { Ok(store.put_opts(&path, payload, options).await?) }
        });
        Ok(bare(written.await?.e_tag))
    }

    /// The version of an object that has this ETag now.
    async fn version(&self, key: &str, etag: &str) -> Result<Option<String>> {
        match self.meta(key).await? {
            Some(meta) if bare(meta.e_tag.clone()) == bare(Some(quoted(etag))) => Ok(meta.version),
            _ => Err(Error::new(key, Code::Changed, "the object has another ETag")),
        }
    }

    /// Deletes objects; missing ones are no error.
    pub async fn delete(&self, keys: Vec<String>) -> Result<()> {
        let deletes = stream::iter(keys).map(async |key| {
            let (store, path) = self.bucket.find(&key)?;
            let deleted = self.repeat(Kind::Delete, &key, || {
                let (store, path) = (store.clone(), path.clone());
                async move { Ok(store.delete(&path).await?) }
            });
            match deleted.await {
                Err(error) if error.code == Code::Missing => Ok(()),
                deleted => deleted,
            }
        });
        deletes.buffer_unordered(self.concurrency).try_collect().await
    }
}

/// The error of an operation that was tried several times.
fn after(mut error: Error, failures: &Failures) -> Error {
    if failures.count() > 1 {
        error.message = format!("{} ({} attempts)", error.message, failures.count());
    }
    error
}

/// Puts pieces together.
struct Assembly<'a> {
    spans: &'a [Span],
    objects: &'a [&'a str],
    /// The ETag of each object that was read.
    etags: HashMap<usize, String>,
    results: Vec<Result<Vec<u8>>>,
}

impl<'a> Assembly<'a> {
    fn new(spans: &'a [Span], objects: &'a [&'a str]) -> Assembly<'a> {
        Assembly { spans, objects, etags: HashMap::new(), results: spans.iter().map(|_| Ok(Vec::new())).collect() }
    }

    fn add(&mut self, piece: Piece, read: Result<(Vec<u8>, String)>) {
        let read = read.and_then(|(bytes, etag)| match self.etags.entry(piece.object).or_insert(etag.clone()) {
            known if *known == etag => Ok(bytes),
            _ => Err(Error::new(self.objects[piece.object], Code::Changed, "the object changed while it was read")),
        });
        match read {
            // A piece that is one range becomes its value without a copy.
            Ok(bytes) if piece.parts.len() == 1 && self.spans[piece.parts[0]].1 == piece.range => {
                self.results[piece.parts[0]] = Ok(bytes);
            }
            Ok(bytes) => piece.parts.iter().for_each(|&part| self.copy(part, &piece, &bytes)),
            Err(error) => {
                for &part in &piece.parts {
                    // The end of the object is in an earlier piece.
                    let is_end = error.code == Code::Range && piece.range.start > self.spans[part].1.start;
                    if !is_end {
                        self.results[part] = Err(error.clone());
                    }
                }
            }
        }
    }

    fn finish(self) -> Vec<Result<(Vec<u8>, String)>> {
        let etag = |object: &usize| self.etags.get(object).cloned().unwrap_or_default();
        let results = self.results.into_iter().zip(self.spans);
        results.map(|(result, (object, _))| result.map(|bytes| (bytes, etag(object)))).collect()
    }

    /// Copies the bytes of a piece that belong to a range.
    fn copy(&mut self, part: usize, piece: &Piece, bytes: &[u8]) {
        let range = &self.spans[part].1;
        let end = piece.range.end.min(range.end).min(piece.range.start + bytes.len() as u64);
        let start = piece.range.start.max(range.start);
        if start >= end {
            if start == range.start {
                let message = format!("the object has no byte from {start}");
                self.results[part] = Err(Error::new(self.objects[piece.object], Code::Range, message));
            }
            return;
        }
        let Ok(result) = &mut self.results[part] else { return };
        let (from, to) = ((start - range.start) as usize, (end - range.start) as usize);
        if result.is_empty() {
            result.reserve_exact((range.end - range.start).min(LARGEST_RESERVED) as usize);
        }
        if result.len() < to {
            result.resize(to, 0);
        }
        let at = (start - piece.range.start) as usize;
        result[from..to].copy_from_slice(&bytes[at..at + to - from]);
    }
}
