//! Statistics of many records, with the change of each tensor since the step before.
//!
//! Tensors that lie side by side in the same files are read together, so each file is read in few pieces and from front to
//! back. A thread takes such a group at a block of steps at a time and holds two steps of it, in buffers that stay in the
//! second-level cache. The last step of the previous block is read twice.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::readers::Readers;
use super::{Failed, Item, Options, Rows, run_with_progress};
use crate::catalog::{Catalog, Kind};
use crate::checked;
use crate::error::{Error, Location, Result};
use crate::source::{Blob, Reach, Source};
use crate::statistics::{Statistics, statistics};
use crate::tensor::{DType, Data, TensorView};

/// The most steps that a thread reads of one group before it takes the next.
const MOST_STEPS: usize = 64;
/// The fewest, since the step before them is read twice; and the number of such blocks for each thread, so that all threads
/// end at about the same time.
struct Cut {
    fewest: usize,
    blocks: usize,
    /// Bytes of a group at a step.
    group: u64,
}

/// Two steps of a group stay in the second-level cache.
const LOCAL: Cut = Cut { fewest: 16, blocks: 4, group: 128 << 10 };
/// Requests cost more than leaving the cache, and all take about the same time.
const REMOTE: Cut = Cut { fewest: 4, blocks: 1, group: Reach::REMOTE.piece };
/// Files that are kept open.
const MAX_OPEN: usize = 256;

/// Items of the plan that are saves of one tensor by one worker, in the order of their steps.
pub struct Chain(pub(super) Vec<usize>);

/// The statistics of every row that has a value, and the failed rows. Rows of strings and of stored reductions have none.
pub fn tensor_statistics(
    rows: &Rows,
    chains: &[Chain],
    source: &dyn Source,
    options: &Options<'_>,
) -> Result<(Vec<Option<Statistics>>, Failed)> {
    let readers = Readers::new(source, options, chains.len().max(rows.plan.items.len()));
    let units = units(rows, chains, &readers);
    let sweep = Sweep { rows, source, readers: &readers, open: Mutex::default() };
    let total = rows.plan.bytes();
    let found = Mutex::new(vec![None; rows.rows.len()]);
    let failed: Mutex<Failed> = Mutex::default();
    let (cancelled, flag) = (AtomicBool::new(false), options.cancel);
    let is_cancelled = || cancelled.load(Ordering::Relaxed) || flag.is_some_and(|flag| flag.load(Ordering::Relaxed));
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        let mut buffers = Buffers::default();
        while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (mut statistics, mut errors) = (Vec::new(), Vec::new());
            let mut each = |row, outcome, bytes| {
                match outcome {
                    Ok(Some(one)) => statistics.push((row, one)),
                    Ok(None) => {}
                    Err(error) => errors.push((row, error)),
                }
                done.fetch_add(bytes, Ordering::Relaxed);
                !is_cancelled()
            };
            let finished = readers.holding(unit.bytes.saturating_mul(2), || sweep.unit(unit, &mut buffers, &mut each));
            if readers.is_remote() {
                buffers.free(readers.kept / 2);
            }
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
        if is_cancelled() {
            source.cancel_reads();
        }
    };
    if units.len() <= 1 && !readers.is_remote() {
        work();
    } else {
        run_with_progress(readers.threads, &work, &report)?;
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

/// Tensors of the same files, and the steps that a thread reads of them. The step before these is read for its values only.
struct Unit<'c> {
    chains: Vec<&'c [usize]>,
    part: Range<usize>,
    /// Size of a step.
    bytes: u64,
}

/// The units, in the order of their files, so that few are open at a time.
fn units<'c>(rows: &Rows, chains: &'c [Chain], readers: &Readers) -> Vec<Unit<'c>> {
    let item = |at: usize| rows.plan.items[at];
    let mut groups: HashMap<Vec<u32>, Vec<&[usize]>> = HashMap::new();
    for Chain(chain) in chains {
        groups.entry(chain.iter().map(|at| item(*at).file).collect()).or_default().push(chain);
    }
    let cut = if readers.is_remote() { REMOTE } else { LOCAL };
    let mut whole: Vec<Unit<'c>> = Vec::new();
    for mut chains in groups.into_values() {
        let first = |chain: &&'c [usize]| chain.first().map(|at| item(*at));
        let size = |chain: &&'c [usize]| first(chain).map_or(0, |item| item.length);
        chains.sort_by_key(|chain| first(chain).map(|item| item.offset));
        let (mut start, mut bytes) = (0, 0u64);
        for at in 0..chains.len() {
            bytes = bytes.saturating_add(size(&chains[at]));
            let is_full = chains.get(at + 1).is_none_or(|next| bytes.saturating_add(size(next)) > cut.group);
            if is_full {
                let group = &chains[start..=at];
                whole.push(Unit { chains: group.to_vec(), part: 0..group[0].len(), bytes });
                (start, bytes) = (at + 1, 0);
            }
        }
    }
    let steps: usize = whole.iter().map(|unit| unit.part.len()).sum();
    let threads = readers.count();
    let blocks = threads * cut.blocks.max(steps.div_ceil(threads * MOST_STEPS));
    let block = steps.div_ceil(blocks).max(cut.fewest);
    let mut units: Vec<Unit<'c>> = Vec::new();
    for Unit { chains, part, bytes } in whole {
        let parts = part.clone().step_by(block).map(|start| start..part.end.min(start + block));
        units.extend(parts.map(|part| Unit { chains: chains.clone(), part, bytes }));
    }
    units.sort_by_key(|unit| unit.chains.first().map_or(0, |chain| item(chain[unit.part.start]).file));
    units
}

/// A tensor of a step that stays for the next: dtype, shape and content.
struct Value {
    dtype: DType,
    shape: Vec<u64>,
    content: Content,
}

/// The bytes of a value: part of a step's buffer, or decoded from typed fields.
enum Content {
    InBuffer(usize, Range<usize>),
    Decoded(Vec<u8>),
}

/// What was read of a group at one step.
#[derive(Default)]
struct Step {
    /// One buffer for each piece of the file.
    buffers: Vec<Vec<u8>>,
    /// The values, by the place of their chain in the group.
    values: Vec<Option<Value>>,
}

impl Step {
    fn bytes<'s>(&'s self, value: &'s Value) -> &'s [u8] {
        match &value.content {
            Content::InBuffer(buffer, range) => &self.buffers[*buffer][range.clone()],
            Content::Decoded(bytes) => bytes,
        }
    }

    /// The value of a chain if it has this dtype and shape.
    fn same(&self, chain: usize, dtype: DType, shape: &[u64]) -> Option<&[u8]> {
        let value = self.values.get(chain)?.as_ref()?;
        (value.dtype == dtype && value.shape == shape).then(|| self.bytes(value))
    }

    /// Keeps the buffers for another step, unless they are large.
    fn clear(&mut self, kept: usize) {
        self.values.clear();
        self.buffers.iter_mut().filter(|buffer| buffer.capacity() > kept).for_each(|buffer| *buffer = Vec::new());
    }
}

/// What a thread holds: two steps of a group.
#[derive(Default)]
struct Buffers {
    before: Step,
    now: Step,
}

impl Buffers {
    /// Frees large buffers.
    fn free(&mut self, kept: usize) {
        self.before.clear(kept);
        self.now.clear(kept);
    }
}

/// A file, or the error of opening it.
type Opened = Result<Arc<dyn Blob>, Arc<Error>>;

struct Sweep<'s> {
    rows: &'s Rows,
    source: &'s dyn Source,
    readers: &'s Readers,
    open: Mutex<HashMap<u32, Opened>>,
}

/// Takes a row's result and the record's size; returns whether to go on.
type Each<'e> = dyn FnMut(u32, Result<Option<Statistics>, Arc<Error>>, u64) -> bool + 'e;

impl Sweep<'_> {
    /// Computes the statistics of a unit.
    fn unit(&self, unit: &Unit<'_>, buffers: &mut Buffers, each: &mut Each<'_>) -> bool {
        let Buffers { before, now } = buffers;
        now.clear(self.readers.kept);
        for step in unit.part.start.saturating_sub(1)..unit.part.end {
            std::mem::swap(before, now);
            now.clear(self.readers.kept);
            let mut items: Vec<(usize, usize)> = unit.chains.iter().map(|chain| chain[step]).enumerate().collect();
            items.sort_by_key(|(_, at)| self.rows.plan.items[*at].offset);
            now.values.resize_with(items.len(), || None);
            let is_wanted = unit.part.contains(&step);
            for (piece, items) in self.pieces(&items).enumerate() {
                if now.buffers.len() == piece {
                    now.buffers.push(Vec::new());
                }
                if !self.piece(items, piece, before, now, is_wanted, each) {
                    return false;
                }
            }
        }
        true
    }

    /// Splits items of one file, sorted by offset, into the parts that are read at once.
    fn pieces<'i>(&self, mut items: &'i [(usize, usize)]) -> impl Iterator<Item = &'i [(usize, usize)]> {
        let reach = self.source.reach();
        std::iter::from_fn(move || {
            let (_, first) = items.first()?;
            let Item { offset: start, mut length, .. } = self.rows.plan.items[*first];
            let joins = |(_, at): &&(usize, usize)| {
                let item = self.rows.plan.items[*at];
                let all = item.offset.saturating_add(item.length).saturating_sub(start).max(length);
                let joins = item.offset - start <= length.saturating_add(reach.gap) && all <= reach.piece.max(length);
                length = if joins { all } else { length };
                joins
            };
            let (piece, rest) = items.split_at(items.iter().take_while(joins).count());
            items = rest;
            Some(piece)
        })
    }

    /// Reads adjacent items of one file: pairs of a chain's place in the group and an item.
    fn piece(
        &self,
        items: &[(usize, usize)],
        piece: usize,
        before: &Step,
        now: &mut Step,
        is_wanted: bool,
        each: &mut Each<'_>,
    ) -> bool {
        let item = |at: usize| self.rows.plan.items[at];
        let start = items.first().map_or(0, |(_, at)| item(*at).offset);
        let end = items.iter().map(|(_, at)| item(*at).offset.saturating_add(item(*at).length)).max().unwrap_or(start);
        let buffer = &mut now.buffers[piece];
        let found = items.first().map_or(Ok(0), |(_, at)| {
            self.opened(item(*at).file)?.read_at(start, end - start, buffer).map_err(Arc::new)
        });
        self.readers.computing(|| {
            for (chain, at) in items {
                let job = &self.rows.jobs[*at];
                let outcome = found.as_ref().map_err(Arc::clone).and_then(|found| {
                    let read = now.buffers[piece].get(..*found).unwrap_or_default();
                    let bytes = read.get((item(*at).offset - start) as usize..).unwrap_or_default();
                    let bytes = bytes.get(..usize::try_from(job.length).unwrap_or(usize::MAX)).ok_or(bytes.len());
                    let offset = |content: &[u8]| content.as_ptr().addr() - read.as_ptr().addr();
                    self.value(*at, bytes, before, *chain, is_wanted, &|content| (piece, offset(content)))
                        .map_err(|error| self.rows.locate(*at, error))
                });
                let outcome = outcome.map(|found| {
                    let (value, one) = found.unzip();
                    now.values[*chain] = value;
                    one.flatten()
                });
                if is_wanted && !each(job.row, outcome, job.length) {
                    return false;
                }
            }
            true
        })
    }

    /// The value of an item, and its statistics if they are wanted; `None` for strings.
    fn value(
        &self,
        at: usize,
        record: Result<&[u8], usize>,
        before: &Step,
        chain: usize,
        is_wanted: bool,
        place: &dyn Fn(&[u8]) -> (usize, usize),
    ) -> Result<Option<(Value, Option<Statistics>)>> {
        let record = record.map_err(|found| {
            let (location, needed) = (Location::memory(0), self.rows.plan.items[at].length);
            Error::Truncated { location, needed, found: found as u64 }
        })?;
        let TensorView { dtype, shape, data } = checked::decode(record, &self.rows.expected(at))?;
        let Some(bytes) = data.bytes() else { return Ok(None) };
        let one = is_wanted.then(|| statistics(dtype, bytes, before.same(chain, dtype, &shape))).transpose()?;
        let content = match data {
            Data::Owned(bytes) => Content::Decoded(bytes),
            _ if bytes.is_empty() => Content::Decoded(Vec::new()),
            _ => {
                let (piece, start) = place(bytes);
                Content::InBuffer(piece, start..start + bytes.len())
            }
        };
        Ok(Some((Value { dtype, shape, content }, one)))
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
