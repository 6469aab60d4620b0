//! The writer of a worker's statistics.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use zstd::bulk::Compressor;

use super::segment::Segment;
use super::{DIRECTORY, MAX_ROWS, Name, Row, encode_batch};
use crate::error::{Error, Result};
use crate::step::Step;
use crate::writer::worker_file_name;

/// The usual size of a row in a file, by which the size of pending rows is estimated.
const ROW_SIZE: usize = 24;
/// Pending rows above this multiple of [`Limits::bytes`] are discarded if they cannot be written.
const KEPT: usize = 16;
/// Level 3 takes a quarter of the time for files that are 6 % larger; higher levels save less than 2 % more.
const LEVEL: i32 = 7;

/// When rows are written, and when a segment ends.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Rows are written after this number of steps,
    pub steps: usize,
    /// or at about this size,
    pub bytes: usize,
    /// or this time after the first of them was appended.
    pub time: Duration,
    /// A segment ends at this size.
    pub segment: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { steps: 64, bytes: 256 << 10, time: Duration::from_secs(2), segment: 64 << 20 }
    }
}

/// Writes the statistics of one worker. Every writer begins a new segment; the process that created a writer owns it.
pub struct StatisticsWriter {
    directory: PathBuf,
    limits: Limits,
    fsync: bool,
    names: Vec<Name>,
    numbers: HashMap<String, u32>,
    pending: Vec<Row>,
    /// Number of steps of the pending rows.
    steps: usize,
    /// When the first pending row was appended.
    since: Option<Instant>,
    segment: Option<Segment>,
    /// Names that the segment has.
    named: usize,
    compressor: Compressor<'static>,
    process: u32,
    written: u64,
    lost: u64,
}

impl StatisticsWriter {
    /// A writer for a worker of the run in `root`. Creates no file before the first flush.
    pub fn new(root: &Path, worker: &str, limits: Limits, fsync: bool) -> Result<StatisticsWriter> {
        let compressor = Compressor::new(LEVEL).map_err(|error| Error::Invalid(format!("cannot use zstd: {error}")))?;
        Ok(StatisticsWriter {
            directory: root.join(DIRECTORY).join(worker_file_name(worker)?),
            limits,
            fsync,
            names: Vec::new(),
            numbers: HashMap::new(),
            pending: Vec::new(),
            steps: 0,
            since: None,
            segment: None,
            named: 0,
            compressor,
            process: process::id(),
            written: 0,
            lost: 0,
        })
    }

    /// The number of a tensor, which `about` describes when it is new.
    pub fn add(&mut self, name: &str, about: impl FnOnce(u32) -> Name) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(about(number));
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Appends rows of one step, and writes what is due.
    pub fn append(&mut self, step: Step, rows: impl IntoIterator<Item = Row>) -> Result<()> {
        if self.add_rows(step, rows)? { self.flush() } else { Ok(()) }
    }

    /// Adds rows of a step to the pending ones, and returns whether these should be written. Does not wait for a disk.
    pub fn add_rows(&mut self, step: Step, rows: impl IntoIterator<Item = Row>) -> Result<bool> {
        self.adopt();
        let (known, before) = (self.names.len(), self.pending.len());
        let is_new = self.pending.last().is_none_or(|row| row.step != step);
        self.pending.extend(rows);
        if let Some(row) = self.pending[before..].iter().find(|row| row.tensor as usize >= known || row.step < 0) {
            let (tensor, step) = (row.tensor, row.step);
            self.pending.truncate(before);
            return Err(Error::Invalid(format!("invalid tensor {tensor} or step {step}; {known} tensors were added")));
        }
        if self.pending.is_empty() {
            return Ok(false);
        }
        self.steps += usize::from(is_new);
        self.since.get_or_insert_with(Instant::now);
        Ok(self.steps >= self.limits.steps
            || self.pending.len() * ROW_SIZE >= self.limits.bytes
            || self.seconds_until_flush() == Some(0.0))
    }

    /// Seconds until pending rows should be written; `None` without any.
    pub fn seconds_until_flush(&self) -> Option<f64> {
        self.since.map(|since| self.limits.time.saturating_sub(since.elapsed()).as_secs_f64())
    }

    /// Writes the pending rows. After an error they are still pending, unless there are too many.
    pub fn flush(&mut self) -> Result<()> {
        self.adopt();
        let done = self.write_pending();
        if self.pending.is_empty() {
            (self.steps, self.since) = (0, None);
        } else if done.is_err() && self.pending.len() * ROW_SIZE > self.limits.bytes.saturating_mul(KEPT) {
            self.lost += self.pending.len() as u64;
            self.pending.clear();
            (self.steps, self.since) = (0, None);
        }
        done
    }

    /// Writes the pending rows and ends the segment.
    pub fn close(&mut self) -> Result<()> {
        self.flush()?;
        self.end_segment()
    }

    /// The stream of the current segment.
    pub fn path(&self) -> Option<&Path> {
        self.segment.as_ref().map(Segment::path)
    }

    /// The directory of the worker.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Bytes written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Rows that are not written yet.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Rows that were discarded because they could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// In a forked process, leaves files and pending rows to the parent.
    fn adopt(&mut self) {
        if self.process != process::id() {
            self.process = process::id();
            self.segment = None;
            self.pending.clear();
            (self.steps, self.since, self.named, self.written) = (0, None, 0, 0);
        }
    }

    fn write_pending(&mut self) -> Result<()> {
        // Equal tensors together compress better.
        self.pending.sort_by_key(|row| row.tensor);
        while !self.pending.is_empty() {
            let count = self.pending.len().min(MAX_ROWS);
            let rows = &self.pending[..count];
            let block = encode_batch(rows, &mut self.compressor)?;
            let steps = || rows.iter().map(|row| row.step);
            let ends = (steps().min().unwrap_or(0), steps().max().unwrap_or(0));
            if self.segment.is_none() {
                self.segment = Some(Segment::create(&self.directory)?);
                self.named = 0;
            }
            let Some(segment) = &mut self.segment else { return Ok(()) };
            let names: Vec<u8> = self.names[self.named..].iter().flat_map(Name::line).collect();
            self.written += segment.append(&names, &block, ends, count)?;
            self.named = self.names.len();
            self.pending.drain(..count);
            if self.fsync {
                segment.sync()?;
            }
            if segment.size() >= self.limits.segment {
                self.end_segment()?;
            }
        }
        Ok(())
    }

    fn end_segment(&mut self) -> Result<()> {
        self.segment.take().map_or(Ok(()), Segment::close)
    }
}

impl Drop for StatisticsWriter {
    fn drop(&mut self) {
        if self.process == process::id() {
            // No caller is left to report an error to.
            let _ = self.close();
        }
    }
}
