//! Statistics of many records, with the change of each tensor since the step before.
//!
//! Threads take a tensor at a block of steps at a time and read its records in order, so a thread holds two values. The
//! last step of the previous block is read twice.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{Failed, KEPT, Options, Rows, run_with_progress};
use crate::catalog::{Catalog, Kind};
use crate::checked;
use crate::error::{Error, Location, Result};
use crate::source::{Blob, Source};
use crate::statistics::{Statistics, statistics};
use crate::tensor::{DType, Data, TensorView};

/// Steps that a thread reads of one tensor before it takes the next.
const BLOCK: usize = 64;
/// Files that are kept open.
const MAX_OPEN: usize = 256;

/// Items of the plan that are saves of one tensor by one worker, in the order of their steps.
pub struct Chain(Vec<usize>);

/// The statistics of every row that has a value, and the failed rows. Rows of strings and of stored reductions have none.
pub fn tensor_statistics(
    rows: &Rows,
    chains: &[Chain],
    source: &dyn Source,
    options: &Options<'_>,
) -> Result<(Vec<Option<Statistics>>, Failed)> {
    let sweep = Sweep { rows, source, open: Mutex::default() };
    let units = units(chains);
    let total = rows.plan.bytes();
    let found = Mutex::new(vec![None; rows.rows.len()]);
    let failed: Mutex<Failed> = Mutex::default();
    let (cancelled, flag) = (AtomicBool::new(false), options.cancel);
    let is_cancelled = || cancelled.load(Ordering::Relaxed) || flag.is_some_and(|flag| flag.load(Ordering::Relaxed));
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (mut statistics, mut errors) = (Vec::new(), Vec::new());
            let finished = sweep.unit(unit, &mut |row, outcome, bytes| {
                match outcome {
                    Ok(Some(one)) => statistics.push((row, one)),
                    Ok(None) => {}
                    Err(error) => errors.push((row, error)),
                }
                done.fetch_add(bytes, Ordering::Relaxed);
                !is_cancelled()
            });
            let mut found = found.lock();
            statistics.into_iter().for_each(|(row, one)| found[row as usize] = Some(one));
            failed.lock().extend(errors);
            if !finished {
                break;
            }
        }
    };
    let report = || {
        if options.progress.is_some_and(|tell| !tell(done.load(Ordering::Relaxed), total)) {
            cancelled.store(true, Ordering::Relaxed);
        }
    };
    if units.len() <= 1 {
        work();
    } else {
        run_with_progress(options.threads, &work, &report)?;
    }
    if is_cancelled() {
        return Err(Error::Cancelled);
    }
    report();
    let mut failed = failed.into_inner();
    failed.sort_by_key(|(row, _)| *row);
    Ok((found.into_inner(), failed))
}

/// The saves of each tensor by each worker.
pub fn chains(rows: &Rows, catalog: &Catalog) -> Vec<Chain> {
    let mut chains: BTreeMap<(u32, u32), Vec<(i64, usize)>> = BTreeMap::new();
    for (at, job) in rows.jobs.iter().enumerate().filter(|(_, job)| job.kind == Kind::VALUE) {
        let row = rows.rows[job.row as usize];
        let about = catalog.about(row.file);
        chains.entry((row.name, about.worker_id)).or_default().push((about.step, at));
    }
    let in_order = |mut chain: Vec<(i64, usize)>| {
        chain.sort_unstable();
        Chain(chain.into_iter().map(|(_, at)| at).collect())
    };
    chains.into_values().map(in_order).collect()
}

/// The part of a chain that a thread reads. The item before the part is read for its value only.
struct Unit<'c> {
    chain: &'c [usize],
    part: Range<usize>,
}

/// The units, in the order of their blocks, so that few files are open at a time.
fn units(chains: &[Chain]) -> Vec<Unit<'_>> {
    fn parts(Chain(chain): &Chain) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..chain.len()).step_by(BLOCK).map(|start| start..chain.len().min(start + BLOCK))
    }
    let mut units: Vec<Unit> =
        chains.iter().flat_map(|chain| parts(chain).map(|part| Unit { chain: &chain.0, part })).collect();
    units.sort_by_key(|unit| unit.part.start);
    units
}

/// The bytes of a value: part of a record's buffer, or decoded from typed fields.
enum Content {
    InRecord(Range<usize>),
    Decoded(Vec<u8>),
}

/// A value that stays for the next step: dtype, shape, record and content.
struct Previous {
    dtype: DType,
    shape: Vec<u64>,
    record: Vec<u8>,
    content: Content,
}

impl Previous {
    fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::InRecord(range) => &self.record[range.clone()],
            Content::Decoded(bytes) => bytes,
        }
    }
}

/// A file, or the error of opening it.
type Opened = Result<Arc<dyn Blob>, Arc<Error>>;

struct Sweep<'s> {
    rows: &'s Rows,
    source: &'s dyn Source,
    open: Mutex<HashMap<u32, Opened>>,
}

impl Sweep<'_> {
    /// Computes the statistics of a unit. `each` takes a row's result and the record's size, and returns whether to go on.
    fn unit(
        &self,
        unit: &Unit<'_>,
        each: &mut dyn FnMut(u32, Result<Option<Statistics>, Arc<Error>>, u64) -> bool,
    ) -> bool {
        let (mut previous, mut spare): (Option<Previous>, Vec<u8>) = (None, Vec::new());
        let start = unit.part.start.saturating_sub(1);
        for (place, at) in unit.chain[start..unit.part.end].iter().enumerate() {
            let job = &self.rows.jobs[*at];
            let outcome = self.value(*at, &mut spare, previous.as_ref(), start + place >= unit.part.start);
            if let Some(before) = previous.take() {
                // The buffer is used again, unless it is large.
                spare = if before.record.capacity() > KEPT { Vec::new() } else { before.record };
            }
            let outcome = outcome.map(|found| {
                let (value, one) = found.unzip();
                previous = value;
                one.flatten()
            });
            if start + place >= unit.part.start && !each(job.row, outcome, job.length) {
                return false;
            }
        }
        true
    }

    /// The value of an item, and its statistics if they are wanted; `None` for strings.
    fn value(
        &self,
        at: usize,
        record: &mut Vec<u8>,
        previous: Option<&Previous>,
        wanted: bool,
    ) -> Result<Option<(Previous, Option<Statistics>)>, Arc<Error>> {
        let item = self.rows.plan.items[at];
        let blob = self.opened(item.file)?;
        let mut record = std::mem::take(record);
        let there = blob.read_at(item.offset, item.length, &mut record).map_err(|error| self.rows.locate(at, error))?;
        record.truncate(there);
        let decoded = || {
            if (there as u64) < item.length {
                let location = Location::memory(0);
                return Err(Error::Truncated { location, needed: item.length, found: there as u64 });
            }
            let TensorView { dtype, shape, data } = checked::decode(&record, &self.rows.expected(at))?;
            let same = previous.filter(|previous| (previous.dtype, &previous.shape) == (dtype, &shape));
            let content = match data {
                Data::Strings(_) => return Ok(None),
                Data::Raw([]) => Content::InRecord(0..0),
                Data::Raw(raw) => {
                    let start = raw.as_ptr().addr() - record.as_ptr().addr();
                    Content::InRecord(start..start + raw.len())
                }
                Data::Owned(bytes) => Content::Decoded(bytes),
            };
            let bytes = match &content {
                Content::InRecord(range) => &record[range.clone()],
                Content::Decoded(bytes) => bytes,
            };
            let one = wanted.then(|| statistics(dtype, bytes, same.map(Previous::bytes))).transpose()?;
            Ok(Some((dtype, shape, content, one)))
        };
        let decoded = decoded().map_err(|error| self.rows.locate(at, error))?;
        Ok(decoded.map(|(dtype, shape, content, one)| (Previous { dtype, shape, record, content }, one)))
    }

    fn opened(&self, file: u32) -> Opened {
        if let Some(opened) = self.open.lock().get(&file) {
            return opened.clone();
        }
        let opened = self.source.open(&self.rows.plan.files[file as usize]).map(Arc::from).map_err(Arc::new);
        let mut open = self.open.lock();
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        open.insert(file, opened.clone());
        opened
    }
}
