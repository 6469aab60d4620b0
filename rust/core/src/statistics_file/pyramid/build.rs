//! Builds the pyramid of a worker in one pass over its statistics.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::file::{Directory, FileWriter, Out};
use super::measure::{MEASURES, Record, Sample, Sampler};
use super::tile::{Block, Open};
use super::window::Window;
use super::{BASE, BLOCK, COARSEST, FINE};
use crate::error::{Error, Result};
use crate::source::Source;
use crate::statistics_file::Commit;
use crate::statistics_file::arrow::Columns;
use crate::statistics_file::reader::{Reader, Segment, check_rows, each_block, stem};

/// Records of findings that are kept at most. Of values that stay NaN only the first and the last are.
const MOST_RECORDS: usize = 2_000_000;
/// Samples that are collected before they are merged, tensor by tensor.
const AT_ONCE: usize = 1 << 19;
/// Called with the rows done and their total; an error ends the work.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64) -> Result<()>;

/// Writes the pyramid of a worker's statistics to `path`, and returns its size. `whole` are names of tensors of which
/// findings need all records, such as losses.
///
/// Steps that a later segment has again are read from that one. Fails if that is not possible in one pass: if the later
/// segment ends before the earlier one, or steps are not in order.
pub fn build(
    reader: &Reader,
    source: &dyn Source,
    worker: &str,
    path: &Path,
    whole: &HashSet<&str>,
    progress: Progress<'_>,
) -> Result<u64> {
    let none = || Error::Invalid(format!("no statistics of worker {worker}"));
    let segments = reader.segments(worker).ok_or_else(none)?;
    let plan = Plan::new(segments)?.ok_or_else(none)?;
    let mut builder = Builder::new(&plan, FileWriter::create(path)?);
    let mut done = 0;
    // Rows are read by another thread while those before are merged.
    std::thread::scope(|scope| {
        let (sender, parts) = std::sync::mpsc::sync_channel(0);
        let plan = &plan;
        let reads = scope.spawn(move || Parts::new(plan, whole).read(source, worker, segments, &sender));
        for part in parts {
            done += part.rows;
            builder.tensors.extend(part.tensors);
            builder.merge(&part.samples)?;
            builder.settle(part.frontier)?;
            progress(done, plan.rows)?;
        }
        reads.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    builder.finish(segments)
}

/// Rows that are merged at once, and the tensors that they are the first of.
struct Part {
    tensors: Vec<Tensor>,
    samples: Vec<Sample>,
    rows: u64,
    /// The first step that may follow.
    frontier: i64,
}

/// Reads the rows of a worker's segments, part by part.
struct Parts<'p> {
    plan: &'p Plan,
    whole: &'p HashSet<&'p str>,
    by_name: HashMap<String, u32>,
    sampler: Sampler,
    part: Part,
}

impl<'p> Parts<'p> {
    fn new(plan: &'p Plan, whole: &'p HashSet<&'p str>) -> Parts<'p> {
        Parts { plan, whole, by_name: HashMap::new(), sampler: Sampler::new(), part: Part::EMPTY }
    }

    /// Sends each part, until nobody receives them.
    fn read(
        mut self,
        source: &dyn Source,
        worker: &str,
        segments: &BTreeMap<u64, Segment>,
        sender: &SyncSender<Part>,
    ) -> Result<()> {
        let (mut columns, mut numbers, mut before) = (Columns::default(), Numbers::default(), None);
        for (number, segment) in segments {
            if !before.replace(&segment.names).is_some_and(|before| Arc::ptr_eq(before, &segment.names)) {
                numbers = self.numbers(segment);
            }
            let cut = self.plan.cut[number];
            let mut frontiers = self.plan.frontier[number].iter();
            let key = stem(worker, *number) + ".arrows";
            each_block(source, &key, segment.commits.iter(), &mut |commit, block, decompressor| {
                let decoded = block.and_then(|bytes| check_rows(columns.decode(bytes, decompressor)?, commit));
                decoded.map_err(|error| error.within(&key, commit.offset))?;
                self.collect(&mut numbers, &columns, cut);
                self.part.rows += u64::from(commit.rows);
                self.part.frontier = frontiers.next().copied().unwrap_or(0);
                if self.part.samples.len() >= AT_ONCE { self.send(sender) } else { Ok(()) }
            })?;
        }
        self.part.frontier = 0;
        self.send(sender)
    }

    fn send(&mut self, sender: &SyncSender<Part>) -> Result<()> {
        let ended = |_| Error::Invalid("the rows are not wanted any more".into());
        sender.send(std::mem::replace(&mut self.part, Part::EMPTY)).map_err(ended)
    }

    /// The tensor of each number of a segment.
    fn numbers(&mut self, segment: &Segment) -> Numbers {
        let mut names: Vec<_> = segment.names.values().collect();
        names.sort_by_key(|name| name.id);
        let each = names.into_iter().map(|about| {
            let next = self.by_name.len() as u32;
            let number = *self.by_name.entry(about.name.clone()).or_insert(next);
            if number == next {
                self.part.tensors.push(Tensor {
                    name: about.name.clone(),
                    series: [NO_SERIES; 8],
                    whole: self.whole.contains(about.name.as_str()),
                    several: false,
                    starts: [None; 2],
                    before: None,
                    largest: None,
                });
            }
            (about.id, number)
        });
        Numbers { sorted: each.collect(), next: 0 }
    }

    /// Collects the rows of a batch before a step.
    fn collect(&mut self, numbers: &mut Numbers, columns: &Columns, cut: i64) {
        for (at, (id, step)) in columns.tensor.iter().zip(&columns.step).enumerate() {
            if *step < cut
                && let Some(number) = numbers.find(*id)
            {
                self.part.samples.push(self.sampler.sample(number, columns, at));
            }
        }
    }
}

impl Part {
    const EMPTY: Part = Part { tensors: Vec::new(), samples: Vec::new(), rows: 0, frontier: 0 };
}

/// What the commit records say before anything is read.
struct Plan {
    rows: u64,
    base: u8,
    top: u8,
    first: i64,
    last: i64,
    /// The first step of later segments, by segment.
    cut: HashMap<u64, i64>,
    /// The first step that may follow, after each batch of a segment.
    frontier: HashMap<u64, Vec<i64>>,
}

impl Plan {
    fn new(segments: &BTreeMap<u64, Segment>) -> Result<Option<Plan>> {
        let all = || segments.values().flat_map(|segment| &segment.commits);
        if all().any(|commit| commit.last == u32::MAX) {
            return Err(Error::Invalid("steps beyond 4,294,967,294 have no pyramid".into()));
        }
        let ends = |commit: &Commit| (i64::from(commit.first), i64::from(commit.last));
        let (Some(first), Some(last)) = (all().map(|each| ends(each).0).min(), all().map(|each| ends(each).1).max())
        else {
            return Ok(None);
        };
        let (mut cut, mut frontier) = (HashMap::new(), HashMap::new());
        let (mut next, mut reached) = (i64::MAX, -1);
        for (number, segment) in segments.iter().rev() {
            let own_last = segment.commits.iter().map(|each| ends(each).1).max().unwrap_or(-1);
            if next < i64::MAX && own_last > reached {
                return Err(Error::Invalid("a later segment ends before an earlier one".into()));
            }
            cut.insert(*number, next);
            let mut least = next;
            let mut after: Vec<i64> = segment
                .commits
                .iter()
                .rev()
                .map(|commit| {
                    let here = least;
                    least = least.min(ends(commit).0);
                    here
                })
                .collect();
            after.reverse();
            frontier.insert(*number, after);
            (next, reached) = (least, reached.max(own_last));
        }
        let rows = all().map(|commit| u64::from(commit.rows)).sum();
        let base = (0..BASE).find(|level| rows >> level <= FINE).unwrap_or(BASE);
        let bins = |level: u8| (last >> level) - (first >> level) + 1;
        let top = (base..63).find(|level| bins(*level) as u64 <= COARSEST).unwrap_or(base);
        Ok(Some(Plan { rows, base, top, first, last, cut, frontier }))
    }
}

/// A tensor in one mode.
struct One {
    tensor: u32,
    mode: u8,
    /// The bin that is being filled; -1 for none.
    bin: i64,
    open: Open,
    window: Window,
}

/// A tensor.
struct Tensor {
    name: String,
    /// Its series, by the number of the mode.
    series: [u32; 8],
    /// All records are kept.
    whole: bool,
    /// Has several elements.
    several: bool,
    /// The first finite size and norm, and their steps.
    starts: [Option<(i64, f32)>; 2],
    /// The record before, and whether it was kept; a bad one after another is kept if no more follow.
    before: Option<(Record, bool)>,
    /// The record with the largest surprise.
    largest: Option<Record>,
}

const NO_SERIES: u32 = u32::MAX;

/// The tensors of a segment, sorted by their numbers there. Rows mostly come in this order.
#[derive(Default)]
struct Numbers {
    sorted: Vec<(u32, u32)>,
    next: usize,
}

impl Numbers {
    fn find(&mut self, id: u32) -> Option<u32> {
        if self.sorted.get(self.next).is_none_or(|(known, _)| *known != id) {
            self.next = self.sorted.binary_search_by_key(&id, |(known, _)| *known).ok()?;
        }
        let (_, number) = self.sorted[self.next];
        self.next += 1;
        Some(number)
    }
}

struct Builder<'p> {
    plan: &'p Plan,
    file: FileWriter,
    tensors: Vec<Tensor>,
    series: Vec<One>,
    /// Blocks of the lowest level that are being filled.
    blocks: BTreeMap<u64, Block>,
    /// The block of each higher level that is being filled.
    above: Vec<Option<Block>>,
    records: Vec<Record>,
    /// Places of rows that are merged, tensor by tensor.
    order: Vec<u32>,
    directory: Directory,
}

impl<'p> Builder<'p> {
    fn new(plan: &'p Plan, file: FileWriter) -> Builder<'p> {
        let (base, top, first, last, rows) = (plan.base, plan.top, plan.first, plan.last, plan.rows);
        Builder {
            plan,
            file,
            tensors: Vec::new(),
            series: Vec::new(),
            blocks: BTreeMap::new(),
            above: (base..top).map(|_| None).collect(),
            records: Vec::new(),
            order: Vec::new(),
            directory: Directory { base, top, first, last, rows, ..Directory::default() },
        }
    }

    /// Merges rows, all of a tensor one after the other: what is known of it is then at hand.
    fn merge(&mut self, samples: &[Sample]) -> Result<()> {
        let mut begins = vec![0u32; self.tensors.len() + 1];
        for sample in samples {
            begins[sample.tensor() as usize + 1] += 1;
        }
        for tensor in 1..begins.len() {
            begins[tensor] += begins[tensor - 1];
        }
        self.order.resize(samples.len(), 0);
        for (at, sample) in (0..).zip(samples) {
            let next = &mut begins[sample.tensor() as usize];
            self.order[*next as usize] = at;
            *next += 1;
        }
        let order = std::mem::take(&mut self.order);
        order.iter().try_for_each(|at| self.add(&samples[*at as usize]))?;
        self.order = order;
        Ok(())
    }

    fn add(&mut self, sample: &Sample) -> Result<()> {
        let number = sample.tensor();
        let tensor = &mut self.tensors[number as usize];
        if tensor.before.is_some_and(|(before, _)| before.step >= sample.step()) {
            return Err(Error::Invalid(format!("the steps of {:?} are not in order", tensor.name)));
        }
        let mode = sample.mode();
        let at = &mut tensor.series[usize::from(mode) % 8];
        if *at == NO_SERIES {
            *at = self.series.len() as u32;
            self.series.push(One { tensor: number, mode, bin: -1, open: Open::EMPTY, window: Window::new() });
        }
        let index = *at as usize;
        let one = &mut self.series[index];
        let record = sample.record(&mut one.window);
        let bin = sample.step() >> self.plan.base;
        if bin != one.bin {
            if one.bin >= 0 {
                put(&mut self.blocks, index, one);
            }
            one.bin = bin;
        }
        one.open.add(&record.values, record.flag);
        tensor.note(record, &mut self.records, &mut self.directory.dropped);
        Ok(())
    }

    /// Writes what cannot change when all further rows are of this step or later ones.
    fn settle(&mut self, frontier: i64) -> Result<()> {
        let until = (frontier >> self.plan.base) / BLOCK as i64;
        if frontier == i64::MAX || self.blocks.keys().next().is_none_or(|first| (*first as i64) >= until) {
            return Ok(());
        }
        self.close(frontier >> self.plan.base);
        self.write_until(until as u64)
    }

    /// Closes the bins below one.
    fn close(&mut self, until: i64) {
        for (index, one) in self.series.iter_mut().enumerate() {
            if one.bin >= 0 && one.bin < until {
                put(&mut self.blocks, index, one);
                one.bin = -1;
            }
        }
    }

    fn write_until(&mut self, until: u64) -> Result<()> {
        let rest = self.blocks.split_off(&until);
        for (_, block) in std::mem::replace(&mut self.blocks, rest) {
            self.write(0, block)?;
        }
        Ok(())
    }

    /// Writes a block, and merges it into the level above, whose block before is then complete.
    fn write(&mut self, up: usize, block: Block) -> Result<()> {
        let level = self.plan.base + up as u8;
        let number = u32::try_from(block.number).unwrap_or(u32::MAX);
        block.tiles(|kind, group, raw| {
            let place = self.file.block(raw)?;
            self.directory.tiles.push(((level, kind, number, group), place));
            Ok::<(), Error>(())
        })?;
        let Some(slot) = self.above.get_mut(up) else { return Ok(()) };
        let before = slot.take_if(|above| above.number != block.number / 2);
        slot.get_or_insert_with(|| Block::new(block.number / 2)).take(&block);
        drop(block);
        before.map_or(Ok(()), |before| self.write(up + 1, before))
    }

    fn finish(mut self, segments: &BTreeMap<u64, Segment>) -> Result<u64> {
        self.close(i64::MAX);
        self.write_until(u64::MAX)?;
        for up in 0..self.above.len() {
            if let Some(block) = self.above[up].take() {
                self.write(up + 1, block)?;
            }
        }
        for tensor in &mut self.tensors {
            tensor.end(&mut self.records);
        }
        self.records.sort_by_key(|record| (record.tensor, record.step));
        self.records.dedup_by_key(|record| (record.tensor, record.step));
        self.directory.covered = segments.iter().filter_map(|(number, segment)| segment.covered(*number)).collect();
        let sections = [self.names(), self.series(), self.starts(), self.kept()];
        for (at, raw) in sections.iter().enumerate() {
            self.directory.sections[at] = self.file.block(raw)?;
        }
        self.file.finish(&mut self.directory)
    }

    fn names(&self) -> Vec<u8> {
        let mut out = Out::default();
        for tensor in &self.tensors {
            out.u32(tensor.name.len() as u32);
            out.0.extend_from_slice(tensor.name.as_bytes());
        }
        out.0
    }

    fn series(&self) -> Vec<u8> {
        let mut out = Out::default();
        self.series.iter().for_each(|one| {
            out.u32(one.tensor);
            out.u8(one.mode);
        });
        out.0
    }

    fn starts(&self) -> Vec<u8> {
        let mut out = Out::default();
        for tensor in &self.tensors {
            out.u8(tensor.several.into());
            for start in tensor.starts {
                let (step, value) = start.unwrap_or((i64::MAX, 0.0));
                out.i64(step);
                out.f32(value);
            }
        }
        out.0
    }

    fn kept(&self) -> Vec<u8> {
        let mut out = Out::default();
        for record in &self.records {
            out.u32(record.tensor);
            out.i64(record.step);
            out.u8(record.mode);
            out.u8(record.flag);
            let numbers = [record.mean, record.elements, record.usual];
            debug_assert_eq!(record.values.len(), MEASURES.len());
            record.values.iter().chain(&numbers).for_each(|number| out.f32(*number));
        }
        out.0
    }
}

/// Moves the bin of a series into its block.
fn put(blocks: &mut BTreeMap<u64, Block>, index: usize, one: &mut One) {
    let number = one.bin as u64 / BLOCK as u64;
    blocks.entry(number).or_insert_with(|| Block::new(number)).put(index, one.bin as u64, &one.open);
    one.open = Open::EMPTY;
}

impl Tensor {
    /// Notes a record, and keeps those that stand out with their neighbours.
    fn note(&mut self, record: Record, kept: &mut Vec<Record>, dropped: &mut u64) {
        self.several |= record.elements != 1.0;
        for (at, start) in self.starts.iter_mut().enumerate() {
            if start.is_none() && record.values[at].is_finite() {
                *start = Some((record.step, record.values[at]));
            }
        }
        if record.amount() > self.largest.map_or(0.0, |largest| largest.amount()) {
            self.largest = Some(record);
        }
        let stands_out =
            |record: &Record| self.whole || record.is_bad() || record.flag & super::measure::flag::SUDDEN != 0;
        let follows_bad = self.before.is_some_and(|(before, _)| before.is_bad()) && record.is_bad() && !self.whole;
        let mut keep = |record: Record| {
            if kept.len() < MOST_RECORDS {
                kept.push(record);
            } else {
                *dropped += 1;
            }
        };
        let mut is_kept = stands_out(&record) && !follows_bad;
        if let Some((before, was_kept)) = self.before {
            // The neighbour before, which may be the last of a series of bad ones.
            if !was_kept && (is_kept || (before.is_bad() && !record.is_bad())) {
                keep(before);
            }
            // The neighbour after.
            is_kept |= !follows_bad && stands_out(&before);
        }
        if is_kept {
            keep(record);
        }
        self.before = Some((record, is_kept));
    }

    /// Keeps the last of bad records that did not end, and the one with the largest surprise.
    fn end(&mut self, kept: &mut Vec<Record>) {
        kept.extend(self.before.filter(|(last, was_kept)| last.is_bad() && !was_kept).map(|(last, _)| last));
        kept.extend(self.largest);
    }
}
