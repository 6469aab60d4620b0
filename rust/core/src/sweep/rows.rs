//! From questions to plans: which records answer for which row.

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

/// Whose tensors.
#[derive(Debug, Clone, Copy)]
pub enum Which<'w> {
    /// Those of the first worker by name who has the tensor.
    First,
    /// Those of these workers.
    These(&'w [String]),
    /// Those of every worker.
    Every,
}

/// One row of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which of the names asked for.
    pub name: u32,
    /// The file, and so step, worker and mode.
    pub file: FileId,
}

/// What one record of the plan is for.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// The row it answers for.
    pub row: u32,
    /// What it is to the row's tensor.
    pub kind: Kind,
    /// Bytes of the whole record, of which the plan may have only the beginning read.
    pub length: u64,
    /// The checksum in the index file.
    pub crc: Option<u32>,
    /// What is to be computed from it.
    pub wanted: OpSet,
}

/// Rows, and the records that answer for them.
#[derive(Default)]
pub struct Rows {
    /// The names asked for.
    pub names: Vec<String>,
    /// The rows, in the order of the question.
    pub rows: Vec<Row>,
    /// What to read.
    pub plan: Plan,
    /// What each of the plan's items is for.
    pub jobs: Vec<Job>,
    files: HashMap<FileId, u32>,
    /// SavedAt the tensors of each of the plan's files were saved.
    whens: Vec<SavedAt>,
}

/// Rows that failed, with the reason, in the order of rows.
pub type Failed = Vec<(u32, Arc<Error>)>;

/// What is done with each tensor: the number of its item, the tensor, its whole record.
pub type EachTensor<'e> = dyn Fn(usize, &TensorView<'_>, &[u8]) -> Result<()> + Sync + 'e;

impl Rows {
    /// Rows for these names at these steps (at all they have, if nothing is said): one for each worker in question that has a
    /// value or a stored reduction. `wanted` says what to compute where it is not stored.
    pub fn of(
        catalog: &Catalog,
        names: Vec<String>,
        steps: Option<&[Step]>,
        workers: Which<'_>,
        wanted: OpSet,
        recompute: bool,
    ) -> Rows {
        let mut rows = Rows { names, ..Rows::default() };
        for name in 0..rows.names.len() {
            let text = rows.names[name].clone();
            let Some(number) = catalog.number_of(&text) else { continue };
            let mut add = |file| rows.add(catalog, name as u32, number, file, wanted, recompute);
            let all = if steps.is_none() { catalog.steps_of(&text, None) } else { Vec::new() };
            for step in steps.unwrap_or(&all) {
                match workers {
                    Which::First => {
                        catalog.files_at(*step, None).any(&mut add);
                    }
                    Which::Every => catalog.files_at(*step, None).for_each(|file| {
                        add(file);
                    }),
                    Which::These(workers) => {
                        workers.iter().for_each(|worker| {
                            catalog.files_at(*step, Some(worker)).any(&mut add);
                        });
                    }
                }
            }
        }
        rows
    }

    /// One row for each question that has a value; the questions' numbers are `Row::name`.
    pub fn of_values(catalog: &Catalog, questions: Vec<(String, Step, Option<String>)>) -> Rows {
        let mut rows = Rows::default();
        for (at, (name, step, worker)) in questions.into_iter().enumerate() {
            if let Some(entry) = catalog.find(&name, step, worker.as_deref(), Kind::VALUE) {
                rows.rows.push(Row { name: at as u32, file: entry.file });
                rows.read(catalog, &entry, OpSet::NONE);
            }
            rows.names.push(name);
        }
        rows
    }

    /// Every record of these files; a row for each, under its tensor's name.
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

    /// A row for a tensor in a file, if there is anything to read for it.
    fn add(&mut self, catalog: &Catalog, name: u32, number: u32, file: FileId, wanted: OpSet, recompute: bool) -> bool {
        let mut entries = catalog.entries_of(file, number).peekable();
        if entries.peek().is_none() {
            return false;
        }
        self.rows.push(Row { name, file });
        let value = entries.next_if(|entry| entry.kind == Kind::VALUE);
        let mut missing = wanted;
        for entry in entries.filter(|_| !(recompute && value.is_some())) {
            if let Some((op, abs)) = entry.kind.as_reduction().filter(|(op, abs)| wanted.has(*op, *abs)) {
                missing = missing.without(op, abs);
                self.read(catalog, &entry, OpSet::NONE);
            }
        }
        if let Some(value) = value {
            self.read(catalog, &value, missing);
        }
        true
    }

    fn read(&mut self, catalog: &Catalog, entry: &Entry, wanted: OpSet) {
        let (files, whens) = (&mut self.plan.files, &mut self.whens);
        let file = *self.files.entry(entry.file).or_insert_with(|| {
            whens.push(catalog.when(entry.file));
            files.push(catalog.event_key(entry.file));
            files.len() as u32 - 1
        });
        self.plan.items.push(Item { file, offset: entry.offset, length: entry.length });
        let (row, Entry { kind, length, crc, .. }) = (self.rows.len() as u32 - 1, *entry);
        self.jobs.push(Job { row, kind, length, crc, wanted });
    }

    /// The same rows, but only these of the plan's items.
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

    /// What was promised of an item's record.
    pub fn expected(&self, at: usize) -> ExpectedRecord<'_> {
        let job = &self.jobs[at];
        let tensor = &self.names[self.rows[job.row as usize].name as usize];
        let when = self.whens[self.plan.items[at].file as usize];
        ExpectedRecord { tensor, kind: job.kind, when, length: job.length, crc: job.crc }
    }

    /// An error of an item's record, with its place in the run.
    pub fn place(&self, at: usize, error: Error) -> Arc<Error> {
        let item = &self.plan.items[at];
        Arc::new(error.within(&self.plan.files[item.file as usize], item.offset))
    }

    /// Read the plan and give each tensor to `each`, which may still find fault with it. The rows that failed.
    pub fn tensors(&self, source: &dyn Source, options: &Options<'_>, each: &EachTensor<'_>) -> Result<Failed> {
        self.records(source, options, &|at, bytes| each(at, &checked::decode(bytes, &self.expected(at))?, bytes))
    }

    /// Read the plan and give each record's bytes to `each`. The rows that failed.
    pub fn records(
        &self,
        source: &dyn Source,
        options: &Options<'_>,
        each: &(dyn Fn(usize, &[u8]) -> Result<()> + Sync),
    ) -> Result<Failed> {
        let failed: Mutex<Failed> = Mutex::default();
        execute(&self.plan, source, options, &|at, bytes: Bytes<'_>| {
            let outcome = bytes.and_then(|bytes| each(at, bytes).map_err(|error| self.place(at, error)));
            if let Err(error) = outcome {
                failed.lock().push((self.jobs[at].row, error));
            }
        })?;
        let mut failed = failed.into_inner();
        // Of a row's several records each may have failed; one reason is enough.
        failed.sort_by_key(|(row, _)| *row);
        failed.dedup_by_key(|(row, _)| *row);
        Ok(failed)
    }
}
