//! Selection of rows, and the records to read for them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Bytes, Item, Options, Plan, execute};
use crate::catalog::{Catalog, Entry, FileId, Kind, SavedAt};
use crate::checked::{self, ExpectedRecord};
use crate::error::{Error, Result};
use crate::reduce::OpSet;
use crate::source::Source;
use crate::step::Step;
use crate::tensor::TensorView;

/// A selection of workers.
#[derive(Debug, Clone, Copy)]
pub enum Workers<'w> {
    /// The first worker by name that has the tensor.
    First,
    /// These workers.
    These(&'w [String]),
    /// All workers.
    Every,
}

/// A row of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Index of the requested name.
    pub name: u32,
    /// The file, which determines step, worker and mode.
    pub file: FileId,
}

/// The purpose of an item of the plan.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// Index of the row.
    pub row: u32,
    /// The kind of the entry.
    pub kind: Kind,
    /// Size of the whole record; the plan may read only its beginning.
    pub length: u64,
    /// The checksum in the index file.
    pub crc: Option<u32>,
    /// The reductions to compute.
    pub requested: OpSet,
}

/// Rows, and the plan that reads them.
#[derive(Default)]
pub struct Rows {
    /// The requested names.
    pub names: Vec<String>,
    /// The rows, in the order of the request.
    pub rows: Vec<Row>,
    /// The plan.
    pub plan: Plan,
    /// The purpose of each item of the plan.
    pub jobs: Vec<Job>,
    files: HashMap<FileId, u32>,
    /// Step and mode of each file of the plan.
    whens: Vec<SavedAt>,
}

/// Failed rows with their errors, by ascending row.
pub type Failed = Vec<(u32, Arc<Error>)>;

/// A callback for each tensor: index of the item, tensor, whole record.
pub type EachTensor<'e> = dyn Fn(usize, &TensorView<'_>, &[u8]) -> Result<()> + Sync + 'e;

impl Rows {
    /// Rows for names and steps (all steps by default): one per selected worker that has a value or a stored reduction.
    /// `requested` lists what to compute unless it is stored.
    pub fn of(
        catalog: &Catalog,
        names: Vec<String>,
        steps: Option<&[Step]>,
        workers: Workers<'_>,
        requested: OpSet,
        recompute: bool,
    ) -> Rows {
        let mut rows = Rows { names, ..Rows::default() };
        for name in 0..rows.names.len() {
            let text = rows.names[name].clone();
            let Some(number) = catalog.number_of(&text) else { continue };
            let mut add = |file| rows.add(catalog, name as u32, number, file, requested, recompute);
            let all = if steps.is_none() { catalog.steps_of(&text, None) } else { Vec::new() };
            for step in steps.unwrap_or(&all) {
                match workers {
                    Workers::First => {
                        catalog.files_at(*step, None).any(&mut add);
                    }
                    Workers::Every => catalog.files_at(*step, None).for_each(|file| {
                        add(file);
                    }),
                    Workers::These(workers) => {
                        workers.iter().for_each(|worker| {
                            catalog.files_at(*step, Some(worker)).any(&mut add);
                        });
                    }
                }
            }
        }
        rows
    }

    /// One row per request that has a value; `Row::name` is the index of the request.
    pub fn of_values(catalog: &Catalog, requests: Vec<(String, Step, Option<String>)>) -> Rows {
        let mut rows = Rows::default();
        for (at, (name, step, worker)) in requests.into_iter().enumerate() {
            if let Some(entry) = catalog.find(&name, step, worker.as_deref(), Kind::VALUE) {
                rows.rows.push(Row { name: at as u32, file: entry.file });
                rows.read(catalog, &entry, OpSet::NONE);
            }
            rows.names.push(name);
        }
        rows
    }

    /// A row for every record of these files.
    pub fn of_files(catalog: &Catalog, files: &[FileId]) -> Rows {
        let mut rows = Rows::default();
        let mut ids: HashMap<&str, u32> = HashMap::new();
        for file in files {
            for (name, entry) in catalog.entries_in(*file) {
                let next = ids.len() as u32;
                let id = *ids.entry(name).or_insert(next);
                rows.rows.push(Row { name: id, file: *file });
                rows.read(catalog, &entry, OpSet::NONE);
            }
        }
        rows.names = vec![String::new(); ids.len()];
        ids.into_iter().for_each(|(name, id)| rows.names[id as usize] = name.to_owned());
        rows
    }

    /// Adds a row for a tensor in a file, if it has entries to read.
    fn add(
        &mut self,
        catalog: &Catalog,
        name: u32,
        number: u32,
        file: FileId,
        requested: OpSet,
        recompute: bool,
    ) -> bool {
        let mut entries = catalog.entries_of(file, number).peekable();
        if entries.peek().is_none() {
            return false;
        }
        self.rows.push(Row { name, file });
        let value = entries.next_if(|entry| entry.kind == Kind::VALUE);
        let mut missing = requested;
        for entry in entries.filter(|_| !(recompute && value.is_some())) {
            if let Some((op, abs)) = entry.kind.as_reduction().filter(|(op, abs)| requested.has(*op, *abs)) {
                missing = missing.without(op, abs);
                self.read(catalog, &entry, OpSet::NONE);
            }
        }
        if let Some(value) = value {
            self.read(catalog, &value, missing);
        }
        true
    }

    fn read(&mut self, catalog: &Catalog, entry: &Entry, requested: OpSet) {
        let (files, whens) = (&mut self.plan.files, &mut self.whens);
        let file = *self.files.entry(entry.file).or_insert_with(|| {
            whens.push(catalog.when(entry.file));
            files.push(catalog.event_key(entry.file));
            files.len() as u32 - 1
        });
        self.plan.items.push(Item { file, offset: entry.offset, length: entry.length });
        let (row, Entry { kind, length, crc, .. }) = (self.rows.len() as u32 - 1, *entry);
        self.jobs.push(Job { row, kind, length, crc, requested });
    }

    /// The same rows with only these items of the plan.
    #[must_use]
    pub fn part(&self, items: &[usize]) -> Rows {
        let items = || items.iter().copied().filter(|at| *at < self.jobs.len());
        let files = self.plan.files.clone();
        Rows {
            names: self.names.clone(),
            rows: self.rows.clone(),
            plan: Plan { files, items: items().map(|at| self.plan.items[at]).collect() },
            jobs: items().map(|at| self.jobs[at]).collect(),
            files: HashMap::new(),
            whens: self.whens.clone(),
        }
    }

    /// The expected record of an item.
    pub fn expected(&self, at: usize) -> ExpectedRecord<'_> {
        let job = &self.jobs[at];
        let tensor = &self.names[self.rows[job.row as usize].name as usize];
        let when = self.whens[self.plan.items[at].file as usize];
        ExpectedRecord { tensor, kind: job.kind, when, length: job.length, crc: job.crc }
    }

    /// Adds file and offset of an item to an error.
    pub fn locate(&self, at: usize, error: Error) -> Arc<Error> {
        let item = &self.plan.items[at];
        Arc::new(error.within(&self.plan.files[item.file as usize], item.offset))
    }

    /// Reads the plan and calls `each` with each verified tensor. Returns the failed rows.
    pub fn tensors(&self, source: &dyn Source, options: &Options<'_>, each: &EachTensor<'_>) -> Result<Failed> {
        self.records(source, options, &|at, bytes| each(at, &checked::decode(bytes, &self.expected(at))?, bytes))
    }

    /// Reads the plan and calls `each` with each record. Returns the failed rows.
    pub fn records(
        &self,
        source: &dyn Source,
        options: &Options<'_>,
        each: &(dyn Fn(usize, &[u8]) -> Result<()> + Sync),
    ) -> Result<Failed> {
        let failed: Mutex<Failed> = Mutex::default();
        execute(&self.plan, source, options, &|at, bytes: Bytes<'_>| {
            let outcome = bytes.and_then(|bytes| each(at, bytes).map_err(|error| self.locate(at, error)));
            if let Err(error) = outcome {
                failed.lock().push((self.jobs[at].row, error));
            }
        })?;
        let mut failed = failed.into_inner();
        // A row with several failed records reports one error.
        failed.sort_by_key(|(row, _)| *row);
        failed.dedup_by_key(|(row, _)| *row);
        Ok(failed)
    }
}
