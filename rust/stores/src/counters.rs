//! Counts of requests, for those who pay for them, and why some were repeated.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::error::Code;

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
    /// Why requests were repeated, each cause once: its code, its message, and whether it was reported.
    causes: Mutex<Vec<(Code, String, bool)>>,
    /// Whether there are causes that were not reported.
    has_new: AtomicBool,
}

impl Counters {
    /// Counts a request.
    pub fn sent(&self, kind: Kind) {
        self.kinds[kind as usize].fetch_add(1, Relaxed);
    }

    /// Counts a repeated request.
    pub fn repeated(&self, code: Code, message: &str) {
        self.retries.fetch_add(1, Relaxed);
        let mut causes = self.causes.lock();
        if !causes.iter().any(|(known, _, _)| *known == code) {
            causes.push((code, message.to_owned(), false));
            self.has_new.store(true, Relaxed);
        }
    }

    /// Causes of repeats that were not returned before.
    pub fn new_causes(&self) -> Vec<String> {
        if !self.has_new.swap(false, Relaxed) {
            return Vec::new();
        }
        let mut causes = self.causes.lock();
        let unreported = causes.iter_mut().filter(|(_, _, reported)| !reported);
        unreported
            .map(|(_, message, reported)| {
                *reported = true;
                message.clone()
            })
            .collect()
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
