//! The catalog of a run: which tensor, step, mode and worker is stored where.
//!
//! Files are first known by name (`add_keys`), which suffices for steps and workers; their content is added on demand
//! (`insert`). All data is in integer columns: names are interned, the entries of a file are sorted by tensor, and files
//! are sorted by step and worker, so (tensor, step, worker) is found by binary search. Files share what they have in
//! common. Adding a step costs time proportional to that step, not to the run.

mod columns;
mod insert;
mod intern;
mod keys;
mod lists;
mod modes;
mod queries;
mod rows;
mod sorted;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;

pub use insert::LoadedIndex;
pub use keys::{
    INDEX, Kind, display_worker, event_key, index_key, parse_key, parse_name, parse_recorded_name, recorded_name,
    tag_matches, without_output_index,
};

use crate::error::{Error, Result};
use crate::index::SEGMENTS;
use crate::step::{Mode, Step};
use intern::Interner;
use keys::is_usual;
use modes::Modes;
use rows::{EntryRow, EntryTable, SectionId};
use sorted::{merge, reserve};

/// The number of an index file, valid for the lifetime of its catalog.
pub type FileId = u32;

/// The state of an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Listed, not read.
    Unread,
    /// Read.
    Read,
    /// Malformed or unreadable.
    Bad,
}

/// An index file and its event file.
struct File {
    step: Step,
    mode_step: Step,
    /// Its rows, once it has been read.
    section: Option<SectionId>,
    worker: u32,
    /// A hash of size and time of the file that was read.
    stamp: u32,
    mode: Mode,
    state: State,
}

/// The location of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The file.
    pub file: FileId,
    /// The stamp of the index file; differs once the files have been replaced.
    pub stamp: u32,
    /// The kind of the entry.
    pub kind: Kind,
    /// Offset of the record.
    pub offset: u64,
    /// Size of the record.
    pub length: u64,
    /// CRC32C of the payload, if the index file has one.
    pub crc: Option<u32>,
}

/// Step and mode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedAt {
    /// The global step.
    pub step: Step,
    /// The mode.
    pub mode: Mode,
    /// The step within the mode.
    pub mode_step: Step,
}

/// Metadata of a file that has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileInfo<'a> {
    /// The global step.
    pub step: Step,
    /// The worker as spelled in file names.
    pub worker: &'a str,
    /// The number of the worker.
    pub worker_id: u32,
    /// The mode.
    pub mode: Mode,
    /// The step within the mode.
    pub mode_step: Step,
}

/// The catalog of one run.
pub struct Catalog {
    range: Range<Step>,
    names: Interner,
    /// For each name, the tensor it belongs to and the kind of the entry.
    meanings: Vec<(u32, Kind)>,
    /// Whether some name contains `:digits`, so that its reductions may be stored under another name.
    any_digits: bool,
    workers: Interner,
    files: Vec<File>,
    /// Files ordered by step, then by the worker's display name.
    order: Vec<FileId>,
    /// Unread files, and some that have been read since.
    pending: Vec<FileId>,
    unread: usize,
    modes: Modes,
    rows: EntryTable,
    /// Number of rows that belong to replaced files.
    dead_rows: usize,
    shapes: Vec<Box<[u64]>>,
    shape_ids: HashMap<Box<[u64]>, u32>,
    /// Positions of shards. They repeat from step to step.
    shards: Interner,
    /// Keys that differ from smdebug's scheme.
    unusual_index_keys: HashMap<FileId, Box<str>>,
    unusual_event_keys: HashMap<FileId, Box<str>>,
    problems: HashMap<FileId, String>,
    generation: u64,
    scratch: Vec<EntryRow>,
}

impl Catalog {
    /// An empty catalog that ignores steps outside `range`.
    pub fn new(range: Range<Step>) -> Catalog {
        Catalog {
            range,
            names: Interner::default(),
            meanings: Vec::new(),
            any_digits: false,
            workers: Interner::default(),
            files: Vec::new(),
            order: Vec::new(),
            pending: Vec::new(),
            unread: 0,
            modes: Modes::default(),
            rows: EntryTable::default(),
            dead_rows: 0,
            shapes: Vec::new(),
            shape_ids: HashMap::new(),
            shards: Interner::default(),
            unusual_index_keys: HashMap::new(),
            unusual_event_keys: HashMap::new(),
            problems: HashMap::new(),
            generation: 0,
            scratch: Vec::new(),
        }
    }

    /// Increases whenever a result may have changed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Adds keys, relative to the run. Returns the number of new index files.
    pub fn add_keys<'k>(&mut self, keys: impl IntoIterator<Item = &'k str>) -> Result<usize> {
        let mut new: Vec<(Step, u32, &str)> = Vec::new();
        for key in keys {
            let Some((step, worker)) = parse_key(key) else { continue };
            if !self.range.contains(&step) {
                continue;
            }
            let guess = new.last().map_or(0, |(_, worker, _)| *worker);
            let worker = self.workers.intern(worker, guess).ok_or_else(too_many)?;
            match self.file_of(step, worker) {
                Some(file) => self.prefer(file, key),
                None => new.push((step, worker, key)),
            }
        }
        self.add_new(new)
    }

    /// Adds steps of a segment, given by the key of its index. Returns the file of each step, `None` if it is outside the
    /// range or has a separate index file, which counts; and the number of new files.
    pub fn add_segment(&mut self, key: &str, worker: &str, steps: &[Step]) -> Result<(Vec<Option<FileId>>, usize)> {
        let worker = self.workers.intern(worker, 0).ok_or_else(too_many)?;
        let mut new = Vec::new();
        for step in steps.iter().copied().filter(|step| self.range.contains(step)) {
            match self.file_of(step, worker) {
                Some(file) if self.is_in_segment(file) => drop(self.unusual_index_keys.insert(file, key.into())),
                Some(_) => {}
                None => new.push((step, worker, key)),
            }
        }
        let count = self.add_new(new)?;
        let found = steps.iter().map(|step| self.file_of(*step, worker).filter(|file| self.is_in_segment(*file)));
        Ok((found.collect(), count))
    }

    /// Whether a step is in a segment, and has no separate index file.
    pub fn is_in_segment(&self, file: FileId) -> bool {
        let key = self.unusual_index_keys.get(&file);
        key.is_some_and(|key| key.starts_with(SEGMENTS) && key[SEGMENTS.len()..].starts_with('/'))
    }

    fn add_new(&mut self, mut new: Vec<(Step, u32, &str)>) -> Result<usize> {
        let shown = |worker: u32| display_worker(self.workers.get(worker));
        new.sort_by(|(step_a, worker_a, key_a), (step_b, worker_b, key_b)| {
            (step_a, shown(*worker_a), worker_a)
                .cmp(&(step_b, shown(*worker_b), worker_b))
                .then_with(|| (!is_usual(key_a, *step_a), key_a).cmp(&(!is_usual(key_b, *step_b), key_b)))
        });
        new.dedup_by_key(|(step, worker, _)| (*step, *worker));
        let first = self.files.len();
        FileId::try_from(first + new.len()).map_err(|_| too_many())?;
        reserve(&mut self.files, new.len());
        for (step, worker, key) in new {
            if !is_usual(key, step) {
                self.unusual_index_keys.insert(self.files.len() as FileId, key.into());
            }
            self.files.push(File::unread(step, worker));
        }
        let ids: Vec<FileId> = (first as FileId..self.files.len() as FileId).collect();
        let Catalog { order, files, workers, pending, .. } = self;
        // Most batches have higher steps than all known files, so comparing steps is enough.
        let last = order.last().map(|file| files[*file as usize].step);
        if ids.first().is_some_and(|new| last.is_none_or(|last| last < files[*new as usize].step)) {
            reserve(order, ids.len());
            order.extend_from_slice(&ids);
        } else {
            merge(order, &ids, |file: FileId| {
                let File { step, worker, .. } = files[file as usize];
                (step, display_worker(workers.get(worker)), worker)
            });
        }
        reserve(pending, ids.len());
        pending.extend_from_slice(&ids);
        self.unread += ids.len();
        self.generation += u64::from(!ids.is_empty());
        Ok(ids.len())
    }

    /// Whether `add_keys` would use an index file of this name.
    pub fn is_new(&self, file_name: &str) -> bool {
        let Some((step, worker)) = parse_name(file_name) else { return false };
        let known = || self.workers.find(worker).and_then(|worker| self.file_of(step, worker));
        self.range.contains(&step) && known().is_none_or(|file| self.unusual_index_keys.contains_key(&file))
    }

    fn file_of(&self, step: Step, worker: u32) -> Option<FileId> {
        self.at_step(step).iter().copied().find(|file| self.files[*file as usize].worker == worker)
    }

    /// Resolves two index files of one step and worker: the one with smdebug's own name wins, else the first by name.
    fn prefer(&mut self, file: FileId, key: &str) {
        let step = self.files[file as usize].step;
        if self.unusual_index_keys.get(&file).is_some_and(|odd| is_usual(key, step) || key < odd) {
            self.unusual_index_keys.remove(&file);
            if !is_usual(key, step) {
                self.unusual_index_keys.insert(file, key.into());
            }
            self.mark_unread(file);
        }
    }

    /// The files of a step, by the worker's display name.
    fn at_step(&self, step: Step) -> &[FileId] {
        let step_at = |at: usize| self.files[self.order[at] as usize].step;
        let Some(last) = self.order.len().checked_sub(1) else { return &[] };
        let (low, high) = (step_at(0), step_at(last));
        if step < low || step > high {
            return &[];
        }
        // Steps are mostly evenly spaced, so interpolation nearly always hits.
        let guess = (u128::from(step.abs_diff(low)) * last as u128 / u128::from(high.abs_diff(low).max(1))) as usize;
        let start = if step_at(guess) == step {
            (0..guess).rev().take_while(|at| step_at(*at) == step).last().unwrap_or(guess)
        } else {
            self.order.partition_point(|file| self.files[*file as usize].step < step)
        };
        let count = (start..=last).take_while(|at| step_at(*at) == step).count();
        &self.order[start..start + count]
    }

    /// The key of an index file.
    pub fn index_key(&self, file: FileId) -> String {
        let File { step, worker, .. } = self.files[file as usize];
        self.unusual_index_keys
            .get(&file)
            .map_or_else(|| index_key(step, self.workers.get(worker)), ToString::to_string)
    }

    /// The key of the event file of an index file.
    pub fn event_key(&self, file: FileId) -> String {
        let File { step, worker, .. } = self.files[file as usize];
        self.unusual_event_keys
            .get(&file)
            .map_or_else(|| event_key(step, self.workers.get(worker)), ToString::to_string)
    }

    /// The file of a known key.
    pub fn find_key(&self, key: &str) -> Option<FileId> {
        let (step, worker) = parse_key(key)?;
        self.file_of(step, self.workers.find(worker)?)
    }

    /// Step and mode of a file.
    pub fn when(&self, file: FileId) -> SavedAt {
        let File { step, mode, mode_step, .. } = self.files[file as usize];
        SavedAt { step, mode, mode_step }
    }

    /// Metadata of a file that has been read.
    pub fn about(&self, file: FileId) -> FileInfo<'_> {
        let File { step, worker, mode, mode_step, .. } = self.files[file as usize];
        FileInfo { step, worker: self.workers.get(worker), worker_id: worker, mode, mode_step }
    }
}

impl File {
    fn unread(step: Step, worker: u32) -> File {
        let (mode, state) = (Mode::Global, State::Unread);
        File { step, mode_step: 0, section: None, worker, stamp: 0, mode, state }
    }
}

fn too_many() -> Error {
    Error::Invalid("the run exceeds 2^32 names or files".into())
}
