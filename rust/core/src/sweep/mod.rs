//! Parallel reading of many records, each once.
//!
//! A [`Plan`] is plain data: byte ranges of files. [`execute`] reads it file by file from front to back, merges adjacent
//! ranges, uses one buffer per thread, and passes each record to a callback. A bad record is one error and does not affect
//! the others.

mod columns;
mod operations;
mod readers;
mod rows;
mod statistics;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

pub use columns::{Cells, Column};
pub use operations::{Head, Reduced, Verified, first_head, heads, reductions, stack, verify};
pub use rows::{Failed, Job, Row, Rows, Workers};
pub use statistics::{Chain, chains, tensor_statistics};

use self::readers::Readers;
use crate::error::{Error, Location, Result};
use crate::pool;
use crate::source::{Blob, Reach, Source};

/// Larger buffers are freed after the record that needed them.
const KEPT: usize = 8 << 20;

/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A byte range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Index of the file in the plan.
    pub file: u32,
    /// Offset of the record.
    pub offset: u64,
    /// Size in bytes.
    pub length: u64,
}

/// The byte ranges to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Keys of the files, relative to the run.
    pub files: Vec<String>,
    /// The ranges, in any order.
    pub items: Vec<Item>,
}

impl Plan {
    /// Total size in bytes.
    pub fn bytes(&self) -> u64 {
        self.items.iter().fold(0, |all, item| all.saturating_add(item.length))
    }
}

/// Options of a sweep.
#[derive(Default)]
pub struct Options<'o> {
    /// Number of threads that compute; by default one per core.
    pub threads: Option<usize>,
    /// Called in the calling thread about ten times a second with (bytes done, total bytes); false cancels the sweep.
    pub progress: Option<&'o dyn Fn(u64, u64) -> bool>,
    /// Cancels the sweep once true.
    pub cancel: Option<&'o AtomicBool>,
}

/// The bytes of a record, or the error. All records of a file that cannot be opened share one error.
pub type Bytes<'b> = Result<&'b [u8], Arc<Error>>;

/// Reads a plan and calls `each` with the index of each item and its bytes. Returns [`Error::Cancelled`] if cancelled;
/// earlier calls have taken effect.
pub fn execute(
    plan: &Plan,
    source: &dyn Source,
    options: &Options<'_>,
    each: &(dyn Fn(usize, Bytes<'_>) + Sync),
) -> Result<()> {
    let (order, pieces) = pieces(plan, source.reach());
    let cancelled = AtomicBool::new(false);
    let flag = options.cancel;
    let is_cancelled = || cancelled.load(Ordering::Relaxed) || flag.is_some_and(|flag| flag.load(Ordering::Relaxed));
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let readers = Readers::new(source, options, pieces.len());
    // Threads take pieces in order, so files are read from front to back.
    let work = || {
        let mut reader = Reader { plan, source, readers: &readers, open: None, buffer: Vec::new() };
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            if is_cancelled() {
                break;
            }
            let items = &order[piece.clone()];
            reader.read(items, each);
            let bytes = items.iter().fold(0u64, |all, item| all.saturating_add(plan.items[*item as usize].length));
            done.fetch_add(bytes, Ordering::Relaxed);
        }
    };
    // A single piece of a local file is read faster than a thread starts.
    if pieces.len() <= 1 && !readers.is_remote() {
        work();
    } else {
        let progress = |all: u64| options.progress.is_none_or(|tell| tell(done.load(Ordering::Relaxed), all));
        run_with_progress(readers.threads, &work, &|| {
            if !progress(plan.bytes()) {
                cancelled.store(true, Ordering::Relaxed);
            }
            if is_cancelled() {
                source.cancel_reads();
            }
        })?;
    }
    if is_cancelled() {
        return Err(Error::Cancelled);
    }
    if let Some(tell) = options.progress {
        tell(done.load(Ordering::Relaxed), plan.bytes());
    }
    Ok(())
}

/// Runs `work` on every thread, and `report` on this one at intervals until all are done.
fn run_with_progress(threads: Option<usize>, work: &(dyn Fn() + Sync), report: &dyn Fn()) -> Result<()> {
    let (is_done, bell) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let outcome = pool::run(threads, || {
                rayon::broadcast(|_| work());
            });
            *is_done.lock() = true;
            bell.notify_all();
            outcome
        });
        let mut done = is_done.lock();
        while !*done {
            if bell.wait_for(&mut done, PROGRESS_INTERVAL).timed_out() {
                parking_lot::MutexGuard::unlocked(&mut done, report);
            }
            // A worker that panicked does not signal.
            if worker.is_finished() {
                break;
            }
        }
        drop(done);
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sorts the items by file and offset and groups them into reads.
fn pieces(plan: &Plan, reach: Reach) -> (Vec<u32>, Vec<Range<usize>>) {
    let item = |at: u32| plan.items[at as usize];
    let mut order: Vec<u32> = (0..u32::try_from(plan.items.len()).unwrap_or(u32::MAX)).collect();
    order.sort_by_key(|at| (item(*at).file, item(*at).offset));
    let mut pieces: Vec<Range<usize>> = Vec::new();
    let (mut start, mut end) = (0, 0);
    for (at, this) in order.iter().map(|at| item(*at)).enumerate() {
        let this_end = this.offset.saturating_add(this.length);
        let joins = pieces.last().is_some_and(|piece| {
            item(order[piece.start]).file == this.file
                && this.offset <= u64::saturating_add(end, reach.gap)
                && this_end.max(end) - start <= reach.piece
        });
        match pieces.last_mut() {
            Some(piece) if joins => {
                piece.end = at + 1;
                end = end.max(this_end);
            }
            _ => {
                pieces.push(at..at + 1);
                (start, end) = (this.offset, this_end);
            }
        }
    }
    (order, pieces)
}

type Opened = Result<Box<dyn Blob>, Arc<Error>>;

/// The state of one thread: an open file and a buffer.
struct Reader<'r> {
    plan: &'r Plan,
    source: &'r dyn Source,
    readers: &'r Readers,
    /// The current file, or the error of opening it.
    open: Option<(u32, Opened)>,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    /// Reads items that are adjacent in one file.
    fn read(&mut self, items: &[u32], each: &(dyn Fn(usize, Bytes<'_>) + Sync)) {
        let item = |at: &u32| self.plan.items[*at as usize];
        let Some(first) = items.first().map(item) else { return };
        let end = items.iter().map(|at| item(at).offset.saturating_add(item(at).length)).max().unwrap_or(0);
        let readers = self.readers;
        readers.holding(end - first.offset, || self.read_bytes(items, first, end, each));
        if self.buffer.capacity() > readers.kept {
            self.buffer = Vec::new();
        }
    }

    fn read_bytes(&mut self, items: &[u32], first: Item, end: u64, each: &(dyn Fn(usize, Bytes<'_>) + Sync)) {
        let item = |at: &u32| self.plan.items[*at as usize];
        let key = &self.plan.files[first.file as usize];
        if self.open.as_ref().is_none_or(|(file, _)| *file != first.file) {
            self.open = Some((first.file, self.source.open(key).map_err(Arc::new)));
        }
        let blob = match &self.open {
            Some((_, Ok(blob))) => blob,
            Some((_, Err(error))) => return items.iter().for_each(|at| each(*at as usize, Err(error.clone()))),
            None => return,
        };
        let found = match blob.read_at(first.offset, end - first.offset, &mut self.buffer) {
            Ok(count) => &self.buffer[..count],
            Err(error) => {
                let error = Arc::new(error);
                return items.iter().for_each(|at| each(*at as usize, Err(error.clone())));
            }
        };
        self.readers.computing(|| {
            for at in items {
                let Item { offset, length, .. } = item(at);
                let start = (offset - first.offset) as usize;
                let bytes =
                    usize::try_from(length).ok().and_then(|length| found.get(start..start.checked_add(length)?));
                let bytes = bytes.ok_or_else(|| {
                    let there = found.len().saturating_sub(start) as u64;
                    Arc::new(Error::Truncated {
                        location: Location::new(key.as_str(), offset),
                        needed: length,
                        found: there,
                    })
                });
                each(*at as usize, bytes);
            }
        });
    }
}
