//! Which tensor, step, mode and worker lies where.
//!
//! Files become known by name (`add_keys`), which is enough for steps and workers; their content is taken in when a question
//! needs it (`take_in`). Everything is a column of numbers: names are interned, an index file's entries lie together sorted by
//! tensor, files are sorted by step and worker, and so (tensor, step, worker) is found by bisection. Taking in one step
//! costs that step, not the run.

mod ask;
mod intake;
mod intern;
mod keys;
mod modes;
mod rows;
mod sorted;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;

pub use intake::Intake;
pub use keys::{
    INDEX, Kind, event_key, index_key, meaning, parse_key, parse_name, recorded_name, shown_worker, tag_fits,
    without_digits,
};

use crate::error::{Error, Result};
use crate::step::{Mode, Step};
use intern::Interner;
use keys::is_usual;
use modes::Modes;
use rows::{Row, Rows};
use sorted::{merge, reserve};

/// The number of an index file within its catalog: for as long as the catalog lives.
pub type FileId = u32;

/// What is known of an index file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Listed only.
    Unread,
    /// Taken in.
    Read,
    /// Could not be understood.
    Bad,
}

/// One index file, and so one event file.
struct File {
    step: Step,
    mode_step: Step,
    first: u32,
    count: u32,
    worker: u32,
    /// A digest of size and time of the file whose content this is.
    stamp: u32,
    mode: Mode,
    state: State,
}

impl File {
    fn rows(&self) -> Range<usize> {
        self.first as usize..self.first as usize + self.count as usize
    }
}

/// Where one record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The file it is in.
    pub file: FileId,
    /// Another number when the index file was replaced since, and so the event file, too.
    pub stamp: u32,
    /// What it is to its tensor.
    pub kind: Kind,
    /// Where it starts.
    pub offset: u64,
    /// Bytes of the whole record.
    pub length: u64,
    /// CRC32C of its payload, if the index file says.
    pub crc: Option<u32>,
}

/// When the tensors of a file were saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When {
    /// The global step.
    pub step: Step,
    /// The mode.
    pub mode: Mode,
    /// The step counted within the mode.
    pub mode_step: Step,
}

/// What is known of a file that has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About<'a> {
    /// The global step.
    pub step: Step,
    /// The worker, as file names spell it.
    pub worker: &'a str,
    /// The worker's number.
    pub worker_id: u32,
    /// The mode this worker was in.
    pub mode: Mode,
    /// Its step within the mode.
    pub mode_step: Step,
}

/// The catalog of one run.
pub struct Catalog {
    range: Range<Step>,
    names: Interner,
    /// For each name: the tensor it speaks of, and as what.
    meanings: Vec<(u32, Kind)>,
    /// For each name: the files with something of that tensor.
    postings: Vec<Vec<FileId>>,
    /// Some name has `:digits`, so that its reductions may be filed under another.
    any_digits: bool,
    workers: Interner,
    files: Vec<File>,
    /// Files by step, then by the worker's shown name.
    order: Vec<FileId>,
    /// Files whose content nobody has asked for, and some that were read since.
    pending: Vec<FileId>,
    unread: usize,
    modes: Modes,
    rows: Rows,
    /// Rows of files that were replaced.
    dead_rows: usize,
    shapes: Vec<Box<[u64]>>,
    shape_ids: HashMap<Box<[u64]>, u32>,
    /// Keys that are not where smdebug puts them.
    odd_index_keys: HashMap<FileId, Box<str>>,
    odd_event_keys: HashMap<FileId, Box<str>>,
    problems: HashMap<FileId, String>,
    generation: u64,
    scratch: Vec<Row>,
}

impl Catalog {
    /// An empty catalog of the steps in `range`; others are passed over when their names come.
    pub fn new(range: Range<Step>) -> Catalog {
        Catalog {
            range,
            names: Interner::default(),
            meanings: Vec::new(),
            postings: Vec::new(),
            any_digits: false,
            workers: Interner::default(),
            files: Vec::new(),
            order: Vec::new(),
            pending: Vec::new(),
            unread: 0,
            modes: Modes::default(),
            rows: Rows::default(),
            dead_rows: 0,
            shapes: Vec::new(),
            shape_ids: HashMap::new(),
            odd_index_keys: HashMap::new(),
            odd_event_keys: HashMap::new(),
            problems: HashMap::new(),
            generation: 0,
            scratch: Vec::new(),
        }
    }

    /// Grows whenever an answer may have changed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Take in names of files, relative to the run; how many are index files not seen before.
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
        let shown = |worker: u32| shown_worker(self.workers.get(worker));
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
                self.odd_index_keys.insert(self.files.len() as FileId, key.into());
            }
            self.files.push(File::unread(step, worker));
        }
        let ids: Vec<FileId> = (first as FileId..self.files.len() as FileId).collect();
        let Catalog { order, files, workers, pending, .. } = self;
        // Most batches go behind the end, where only numbers are compared.
        let last = order.last().map(|file| files[*file as usize].step);
        if ids.first().is_some_and(|new| last.is_none_or(|last| last < files[*new as usize].step)) {
            reserve(order, ids.len());
            order.extend_from_slice(&ids);
        } else {
            merge(order, &ids, |file: FileId| {
                let File { step, worker, .. } = files[file as usize];
                (step, shown_worker(workers.get(worker)), worker)
            });
        }
        reserve(pending, ids.len());
        pending.extend_from_slice(&ids);
        self.unread += ids.len();
        self.generation += u64::from(!ids.is_empty());
        Ok(ids.len())
    }

    /// Whether a file of this name is an index file that `add_keys` would have a use for.
    pub fn is_news(&self, file_name: &str) -> bool {
        let Some((step, worker)) = parse_name(file_name) else { return false };
        let known = || self.workers.find(worker).and_then(|worker| self.file_of(step, worker));
        self.range.contains(&step) && known().is_none_or(|file| self.odd_index_keys.contains_key(&file))
    }

    fn file_of(&self, step: Step, worker: u32) -> Option<FileId> {
        self.at_step(step).iter().copied().find(|file| self.files[*file as usize].worker == worker)
    }

    /// Of two index files for one step and worker the one with smdebug's own name counts, else the first by name.
    fn prefer(&mut self, file: FileId, key: &str) {
        let step = self.files[file as usize].step;
        if self.odd_index_keys.get(&file).is_some_and(|odd| is_usual(key, step) || key < odd) {
            self.odd_index_keys.remove(&file);
            if !is_usual(key, step) {
                self.odd_index_keys.insert(file, key.into());
            }
            self.forget(file);
        }
    }

    /// The files of a step, by the worker's shown name.
    fn at_step(&self, step: Step) -> &[FileId] {
        let step_at = |at: usize| self.files[self.order[at] as usize].step;
        let Some(last) = self.order.len().checked_sub(1) else { return &[] };
        let (low, high) = (step_at(0), step_at(last));
        if step < low || step > high {
            return &[];
        }
        // Steps are mostly evenly spaced, so where one lies is easily guessed.
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
        self.odd_index_keys.get(&file).map_or_else(|| index_key(step, self.workers.get(worker)), ToString::to_string)
    }

    /// The key of the event file beside an index file.
    pub fn event_key(&self, file: FileId) -> String {
        let File { step, worker, .. } = self.files[file as usize];
        self.odd_event_keys.get(&file).map_or_else(|| event_key(step, self.workers.get(worker)), ToString::to_string)
    }

    /// The file of a key that was taken in.
    pub fn find_key(&self, key: &str) -> Option<FileId> {
        let (step, worker) = parse_key(key)?;
        self.file_of(step, self.workers.find(worker)?)
    }

    /// When the tensors of a file were saved.
    pub fn when(&self, file: FileId) -> When {
        let File { step, mode, mode_step, .. } = self.files[file as usize];
        When { step, mode, mode_step }
    }

    /// What is known of a file.
    pub fn about(&self, file: FileId) -> About<'_> {
        let File { step, worker, mode, mode_step, .. } = self.files[file as usize];
        About { step, worker: self.workers.get(worker), worker_id: worker, mode, mode_step }
    }
}

impl File {
    fn unread(step: Step, worker: u32) -> File {
        let (mode, state) = (Mode::Global, State::Unread);
        File { step, mode_step: 0, first: 0, count: 0, worker, stamp: 0, mode, state }
    }
}

fn too_many() -> Error {
    Error::Invalid("a run of more names or files than a catalog can number (2^32)".into())
}
