//! Counts of requests, for those who pay for them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Lists keys.
    List,
    /// Reads an object.
    Get,
    /// Asks about an object.
    Head,
    /// Writes an object or a part of one.
    Put,
    /// Deletes an object.
    Delete,
}

/// Requests of a store since it was opened.
#[derive(Debug, Default)]
pub struct Counters {
    kinds: [AtomicU64; 5],
    retries: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    /// Counts a request.
    pub fn sent(&self, kind: Kind) {
        self.kinds[kind as usize].fetch_add(1, Relaxed);
    }

    /// Counts a repeated request.
    pub fn repeated(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// Counts bytes of answers.
    pub fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    /// Lists, GETs, HEADs, PUTs, DELETEs, those of them that were repeats, and bytes received.
    pub fn all(&self) -> [u64; 7] {
        let [lists, gets, heads, puts, deletes] = self.kinds.each_ref().map(|count| count.load(Relaxed));
        [lists, gets, heads, puts, deletes, self.retries.load(Relaxed), self.received.load(Relaxed)]
    }
}
