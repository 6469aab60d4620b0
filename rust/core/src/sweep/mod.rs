//! Reading many records, each once, on many threads.
//!
//! A [`Plan`] is plain data: which bytes of which files. It can be cut into parts and sent elsewhere. [`execute`] reads it
//! file by file from front to back, neighbours in one piece, into one buffer a thread, and gives each record to a function
//! of yours. One bad record is one bad answer; the others are what they are.

mod columns;
mod operations;
mod rows;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

pub use columns::{Cells, Column};
pub use operations::{Head, Reduced, Verified, first_head, heads, reductions, stack, verify};
pub use rows::{Failed, Job, Row, Rows, Which};

use crate::error::{Error, Location, Result};
use crate::pool;
use crate::source::{Blob, Reach, Source};

/// A larger buffer is given back once the record that needed it is done.
const KEPT: usize = 8 << 20;

/// How often somebody who waits is told how far things are.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Some bytes of some file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Which of the plan's files.
    pub file: u32,
    /// Where the record starts.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// What is to be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Keys of files, relative to the run.
    pub files: Vec<String>,
    /// Bytes in them, in any order.
    pub items: Vec<Item>,
}

impl Plan {
    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.items.iter().fold(0, |all, item| all.saturating_add(item.length))
    }
}

/// How to go about it.
#[derive(Default)]
pub struct Options<'o> {
    /// How many threads; as many as there are cores if nothing is said.
    pub threads: Option<usize>,
    /// Called in the calling thread some ten times a second with the bytes done and in all; false ends the sweep.
    pub progress: Option<&'o dyn Fn(u64, u64) -> bool>,
    /// Ends the sweep when it becomes true.
    pub cancel: Option<&'o AtomicBool>,
}

/// The bytes of one record, or why there are none: of a file that can't be opened, all records share the reason.
pub type Bytes<'b> = Result<&'b [u8], Arc<Error>>;

/// Read a plan and give each record to `each`, with the number of its item. [`Error::Cancelled`] if it was ended early: what
/// had been given stays given.
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
    // Threads take the next piece when they are done with one, so that files are read from front to back.
    let work = || {
        let mut reader = Reader { plan, source, open: None, buffer: Vec::new() };
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
    // A single piece is done before a thread would have started.
    if pieces.len() <= 1 {
        work();
    } else {
        let progress = |all: u64| options.progress.is_none_or(|tell| tell(done.load(Ordering::Relaxed), all));
        while_telling(options.threads, &work, &|| {
            if !progress(plan.bytes()) {
                cancelled.store(true, Ordering::Relaxed);
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

/// Run `work` on every thread, and `tell` on this one now and then until all are done.
fn while_telling(threads: Option<usize>, work: &(dyn Fn() + Sync), tell: &dyn Fn()) -> Result<()> {
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
            if bell.wait_for(&mut done, TOLD_EVERY).timed_out() {
                parking_lot::MutexGuard::unlocked(&mut done, tell);
            }
            // A worker that panicked rings no bell.
            if worker.is_finished() {
                break;
            }
        }
        drop(done);
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Items by file and place, and which of them are read in one go.
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

/// What one thread has: a file and a buffer.
struct Reader<'r> {
    plan: &'r Plan,
    source: &'r dyn Source,
    /// The file it is at, or why that can't be opened.
    open: Option<(u32, Opened)>,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    /// Read items that lie side by side in one file.
    fn read(&mut self, items: &[u32], each: &(dyn Fn(usize, Bytes<'_>) + Sync)) {
        let item = |at: &u32| self.plan.items[*at as usize];
        let Some(first) = items.first().map(item) else { return };
        let end = items.iter().map(|at| item(at).offset.saturating_add(item(at).length)).max().unwrap_or(0);
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
        for at in items {
            let Item { offset, length, .. } = item(at);
            let start = (offset - first.offset) as usize;
            let bytes = usize::try_from(length).ok().and_then(|length| found.get(start..start.checked_add(length)?));
            let bytes = bytes.ok_or_else(|| {
                let there = found.len().saturating_sub(start) as u64;
                Arc::new(Error::Truncated { place: Location::new(key.as_str(), offset), wanted: length, found: there })
            });
            each(*at as usize, bytes);
        }
        if self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        }
    }
}
