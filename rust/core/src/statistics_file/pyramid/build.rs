//! Builds the pyramid of a worker in one pass over its statistics, or continues it with the rows that followed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use super::file::{Directory, FileWriter, Out};
use super::measure::{Sample, Sampler};
use super::read::Pyramid;
use super::seen::{self, Kept, RECORD_SIZE, Seen, put_record};
use super::tile::{Block, Open};
use super::window::{LANES, Windows};
use super::{BASE, BLOCK, COARSEST, FINE};
use crate::error::{Error, Result};
use crate::source::{Local, Source};
use crate::statistics_file::Commit;
use crate::statistics_file::arrow::Columns;
use crate::statistics_file::reader::{Names, Reader, Segment, check_rows, each_block, stem};

/// Called with the rows done and their total; an error ends the work.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64) -> Result<()>;

/// How much is built.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// More rows may follow, also of the last step: that one is left out, and the lowest level is that of large runs.
    pub growing: bool,
    /// Ends after about so many rows.
    pub rows: u64,
}

impl Extent {
    /// All rows, of which no more may follow at the last step.
    pub const WHOLE: Extent = Extent { growing: false, rows: u64::MAX };

    /// Samples that are collected before they are merged, tensor by tensor.
    fn at_once(self) -> usize {
        // A training has less memory to spare.
        if self.growing { 1 << 16 } else { 1 << 19 }
    }
}

/// Writes the pyramid of a worker's statistics to `path`, and returns its size. If the file has the pyramid of earlier
/// rows, it is continued. `whole` are names of tensors of which findings need all records, such as losses.
///
/// Steps that a later segment has again are read from that one. Fails if that is not possible in one pass: if the later
/// segment ends before the earlier one, or steps are not in order.
pub fn build(
    reader: &Reader,
    source: &dyn Source,
    worker: &str,
    path: &Path,
    whole: &HashSet<&str>,
    extent: Extent,
    progress: Progress<'_>,
) -> Result<u64> {
    let none = || Error::Invalid(format!("no statistics of worker {worker}"));
    let segments = reader.segments(worker).ok_or_else(none)?;
    let mut plan = Plan::new(segments, extent)?.ok_or_else(none)?;
    let mut file = FileWriter::claim(path)?;
    let before = earlier(path).filter(|before| before.belongs_to(reader, worker) && before.levels().0 == plan.base);
    // A file with damage is written again.
    let blocks = before.and_then(|before| Some((plan.blocks_to_continue(&before).ok()?, before)));
    let mut builder = match blocks {
        Some((blocks, before)) => {
            plan.begin = before.ends().1 + 1;
            plan.limit(segments, extent);
            if plan.end <= plan.begin {
                return Ok(before.size());
            }
            file.resume(&before.directory)?;
            Builder::new(&plan, file, whole, extent.growing).continued(before, blocks)?
        }
        None => {
            plan.limit(segments, extent);
            if plan.end <= plan.first {
                return Ok(0);
            }
            file.create(!extent.growing)?;
            Builder::new(&plan, file, whole, extent.growing)
        }
    };
    let mut done = 0;
    let names: Vec<String> = builder.tensors.iter().map(|tensor| tensor.name.clone()).collect();
    // Rows are read by another thread while those before are merged.
    std::thread::scope(|scope| {
        let (sender, parts) = std::sync::mpsc::sync_channel(0);
        let (merged, free) = std::sync::mpsc::channel();
        let plan = &plan;
        let reads = scope.spawn(move || Parts::new(plan, names, extent, free).read(source, worker, segments, &sender));
        for part in parts {
            done += part.rows;
            builder.directory.rows += part.rows;
            part.names.into_iter().for_each(|name| builder.tensor(name));
            builder.merge(&part.samples)?;
            builder.settle(part.frontier)?;
            // Nobody takes that of the last part.
            let _ = merged.send(part.samples);
            progress(done, plan.rows)?;
        }
        reads.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    builder.finish(segments)
}

/// The pyramid in a file, if there is one that can be read.
fn earlier(path: &Path) -> Option<Pyramid> {
    Pyramid::open_file(Arc::new(Local::new(path.parent()?)), path.file_name()?.to_str()?).ok()
}

/// Rows that are merged at once, and the tensors that they are the first of.
#[derive(Default)]
struct Part {
    names: Vec<String>,
    samples: Vec<Sample>,
    rows: u64,
    /// The first step that may follow.
    frontier: i64,
}

/// Reads the rows of a worker's segments, part by part.
struct Parts<'p> {
    plan: &'p Plan,
    at_once: usize,
    by_name: HashMap<String, u32>,
    sampler: Sampler,
    part: Part,
    /// Memory of parts that were merged: the system would clear it again and again.
    free: Receiver<Vec<Sample>>,
}

impl<'p> Parts<'p> {
    fn new(plan: &'p Plan, names: Vec<String>, extent: Extent, free: Receiver<Vec<Sample>>) -> Parts<'p> {
        let by_name = names.into_iter().zip(0..).collect();
        Parts { plan, at_once: extent.at_once(), by_name, sampler: Sampler::new(), part: Part::default(), free }
    }

    /// Sends each part, until nobody receives them.
    fn read(
        mut self,
        source: &dyn Source,
        worker: &str,
        segments: &BTreeMap<u64, Segment>,
        sender: &SyncSender<Part>,
    ) -> Result<()> {
        let (mut columns, mut numbers) = (Columns::default(), Numbers::default());
        let mut before: Option<(&Segment, Names)> = None;
        for (number, segment) in segments {
            let cut = self.plan.cut[number];
            let frontiers = &self.plan.frontier[number];
            let chosen = segment.commits.iter().zip(frontiers).filter(|(commit, _)| self.plan.has_rows_of(commit));
            if chosen.clone().next().is_none() {
                continue;
            }
            let names = segment.names(source, &stem(worker, *number), before.as_ref().map(|(before, _)| *before))?;
            if !before.as_ref().is_some_and(|(_, before)| Arc::ptr_eq(before, &names)) {
                numbers = self.numbers(&names);
            }
            before = Some((segment, names));
            let mut after = chosen.clone().map(|(_, frontier)| *frontier);
            let key = stem(worker, *number) + ".arrows";
            each_block(source, &key, chosen.map(|(commit, _)| commit), &mut |commit, block, decompressor| {
                let decoded = block.and_then(|bytes| check_rows(columns.decode(bytes, decompressor)?, commit));
                decoded.map_err(|error| error.within(&key, commit.offset))?;
                self.collect(&mut numbers, &columns, cut);
                // Rows behind the end are not read.
                self.part.frontier = after.next().unwrap_or(0).min(self.plan.end);
                if self.part.samples.len() >= self.at_once { self.send(sender) } else { Ok(()) }
            })?;
        }
        self.part.frontier = 0;
        self.send(sender)
    }

    fn send(&mut self, sender: &SyncSender<Part>) -> Result<()> {
        let ended = |_| Error::Invalid("the rows are not wanted any more".into());
        sender.send(std::mem::take(&mut self.part)).map_err(ended)?;
        self.part.samples = self.free.try_recv().unwrap_or_default();
        self.part.samples.clear();
        Ok(())
    }

    /// The tensor of each number of a segment.
    fn numbers(&mut self, names: &Names) -> Numbers {
        let mut names: Vec<_> = names.values().collect();
        names.sort_by_key(|name| name.id);
        let each = names.into_iter().map(|about| {
            let next = self.by_name.len() as u32;
            let number = *self.by_name.entry(about.name.clone()).or_insert(next);
            if number == next {
                self.part.names.push(about.name.clone());
            }
            (about.id, number)
        });
        Numbers { sorted: each.collect(), next: 0 }
    }

    /// Collects the rows of a batch before a step.
    fn collect(&mut self, numbers: &mut Numbers, columns: &Columns, cut: i64) {
        let steps = self.plan.begin..self.plan.end;
        for (at, (id, step)) in columns.tensor.iter().zip(&columns.step).enumerate() {
            if !steps.contains(step) {
                continue;
            }
            self.part.rows += 1;
            if *step < cut
                && let Some(number) = numbers.find(*id)
            {
                self.part.samples.push(self.sampler.sample(number, columns, at));
            }
        }
    }
}

/// What the commit records say before anything is read.
struct Plan {
    rows: u64,
    base: u8,
    top: u8,
    first: i64,
    last: i64,
    /// The steps to read: the first one, and the one behind the last.
    begin: i64,
    end: i64,
    /// The first step of later segments, by segment.
    cut: HashMap<u64, i64>,
    /// The first step that may follow, after each batch of a segment.
    frontier: HashMap<u64, Vec<i64>>,
}

impl Plan {
    fn new(segments: &BTreeMap<u64, Segment>, extent: Extent) -> Result<Option<Plan>> {
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
        let rows: u64 = all().map(|commit| u64::from(commit.rows)).sum();
        let lowest = if extent.growing { BASE } else { 0 };
        let base = (lowest..BASE).find(|level| rows >> level <= FINE).unwrap_or(BASE);
        Ok(Some(Plan { rows, base, top: base, first, last, begin: 0, end: last + 1, cut, frontier }))
    }

    /// Sets the step behind the last one to read, and what follows from it.
    fn limit(&mut self, segments: &BTreeMap<u64, Segment>, extent: Extent) {
        let all = segments.iter().flat_map(|(number, segment)| segment.commits.iter().zip(&self.frontier[number]));
        let mut rows = 0;
        self.end = if extent.growing { self.last } else { self.last + 1 };
        for (commit, frontier) in all.filter(|(commit, _)| i64::from(commit.last) >= self.begin) {
            rows += u64::from(commit.rows);
            if rows >= extent.rows && (self.begin.max(self.first) + 1..self.end).contains(frontier) {
                self.end = *frontier;
                break;
            }
        }
        let chosen = segments.values().flat_map(|segment| &segment.commits).filter(|commit| self.has_rows_of(commit));
        self.rows = chosen.map(|commit| u64::from(commit.rows)).sum();
        let bins = |level: u8| ((self.end - 1) >> level) - (self.first >> level) + 1;
        self.top = (self.base..63).find(|level| bins(*level) as u64 <= COARSEST).unwrap_or(self.base);
    }

    /// Whether a batch has steps to read.
    fn has_rows_of(&self, commit: &Commit) -> bool {
        i64::from(commit.last) >= self.begin && i64::from(commit.first) < self.end
    }

    /// The blocks of a pyramid that are merged with what follows, by level: of the lowest level the one that has room,
    /// and of each level those that no block above has.
    fn blocks_to_continue(&self, before: &Pyramid) -> Result<Vec<(u8, Block)>> {
        let directory = &before.directory;
        let complete = |level: u8| (directory.complete(level) >> level) / BLOCK as u64;
        let mut blocks = vec![(self.base, before.block(self.base, complete(self.base))?)];
        for level in self.base..=directory.top {
            // Above the highest level there is nothing yet.
            let first =
                if level == directory.top { (directory.first as u64 >> level) / BLOCK as u64 } else { complete(level) };
            for number in first & !1..complete(level) {
                blocks.push((level, before.block(level, number)?));
            }
        }
        Ok(blocks)
    }
}

/// A tensor in one mode.
struct One {
    tensor: u32,
    mode: u8,
    /// The bin that is being filled; -1 for none.
    bin: i64,
    open: Open,
}

/// A tensor.
struct Tensor {
    name: String,
    /// Its series, by the number of the mode.
    series: [u32; 8],
    /// All records are kept.
    whole: bool,
    seen: Seen,
}

const NO_SERIES: u32 = u32::MAX;
/// Rows of a tensor that are compared at once.
const TURNS: usize = 32;

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
    whole: &'p HashSet<&'p str>,
    tensors: Vec<Tensor>,
    series: Vec<One>,
    /// Tensors and series that the file has.
    written: (usize, usize),
    /// Blocks of the lowest level that are being filled.
    blocks: BTreeMap<u64, Block>,
    /// The block of each higher level that is being filled.
    above: Vec<Option<Block>>,
    /// The last sizes of [`LANES`] tensors, by the number of the mode.
    windows: Vec<[Option<Box<Windows>>; 8]>,
    kept: Kept,
    /// Places of rows that are merged, tensor by tensor.
    order: Vec<u32>,
    directory: Directory,
    growing: bool,
}

impl<'p> Builder<'p> {
    fn new(plan: &'p Plan, file: FileWriter, whole: &'p HashSet<&'p str>, growing: bool) -> Builder<'p> {
        Builder {
            plan,
            file,
            whole,
            tensors: Vec::new(),
            series: Vec::new(),
            written: (0, 0),
            blocks: BTreeMap::new(),
            above: (plan.base..plan.top).map(|_| None).collect(),
            windows: Vec::new(),
            kept: Kept::default(),
            order: Vec::new(),
            directory: Directory::default(),
            growing,
        }
    }

    /// Continues a pyramid, of which these are the blocks that have room or that no block above has.
    fn continued(mut self, before: Pyramid, blocks: Vec<(u8, Block)>) -> Result<Builder<'p>> {
        for (name, seen) in before.names.into_iter().zip(before.seen) {
            self.tensor(name);
            self.tensors.last_mut().into_iter().for_each(|tensor| tensor.seen = seen);
        }
        for (series, sizes) in before.series.iter().zip(&before.sizes) {
            self.tensors[series.tensor as usize].series[usize::from(series.mode) % 8] = self.series.len() as u32;
            self.series.push(One::new(series.tensor, series.mode));
            let (windows, lane) = windows_of(&mut self.windows, series.tensor, series.mode);
            windows.set(lane, sizes);
        }
        self.written = (self.tensors.len(), self.series.len());
        self.directory = before.directory;
        let stored = self.directory.sections[2].iter().map(|place| u64::from(place.raw) / RECORD_SIZE).sum();
        self.kept = Kept { records: Vec::new(), stored, dropped: self.directory.dropped };
        let mut blocks = blocks.into_iter();
        if let Some((_, open)) = blocks.next() {
            self.directory
                .tiles
                .retain(|((level, _, number, _), _)| *level != self.plan.base || u64::from(*number) != open.number);
            self.blocks.insert(open.number, open);
        }
        for (level, block) in blocks {
            self.lift(usize::from(level - self.plan.base), &block)?;
        }
        Ok(self)
    }

    /// Adds a tensor.
    fn tensor(&mut self, name: String) {
        let whole = self.whole.contains(name.as_str());
        self.tensors.push(Tensor { name, series: [NO_SERIES; 8], whole, seen: Seen::default() });
    }

    /// Merges rows, all of a tensor one after the other: what is known of it is then at hand.
    fn merge(&mut self, samples: &[Sample]) -> Result<()> {
        let mut begins = vec![0u32; self.tensors.len().next_multiple_of(LANES) + 1];
        for sample in samples {
            begins[sample.tensor() as usize + 1] += 1;
        }
        for tensor in 1..begins.len() {
            begins[tensor] += begins[tensor - 1];
        }
        let (mut order, mut next) = (std::mem::take(&mut self.order), begins.clone());
        order.resize(samples.len(), 0);
        for (at, sample) in (0..).zip(samples) {
            let next = &mut next[sample.tensor() as usize];
            order[*next as usize] = at;
            *next += 1;
        }
        let mut found = Vec::new();
        for first in (0..self.tensors.len()).step_by(LANES) {
            let begins = &begins[first..=first + LANES];
            self.compare(first, samples, &order, begins, &mut found);
            let places = &order[begins[0] as usize..begins[LANES] as usize];
            for (at, found) in places.iter().zip(&found) {
                self.add(&samples[*at as usize], *found)?;
            }
        }
        self.order = order;
        Ok(())
    }

    /// Compares the sizes of [`LANES`] tensors from the first one on. Their samples, in `order`, begin at these places.
    fn compare(
        &mut self,
        first: usize,
        samples: &[Sample],
        order: &[u32],
        begins: &[u32],
        found: &mut Vec<(f32, f32)>,
    ) {
        let of = |lane: usize| &order[begins[lane] as usize..begins[lane + 1] as usize];
        let most = (0..LANES).map(|lane| of(lane).len()).max().unwrap_or(0);
        found.clear();
        found.resize((begins[LANES] - begins[0]) as usize, (f32::NAN, f32::NAN));
        let (mut turns, mut results) = ([[None; LANES]; TURNS], [[(f32::NAN, f32::NAN); LANES]; TURNS]);
        for turn in (0..most).step_by(TURNS) {
            let mut modes = 0u8;
            let samples_of = |lane: usize| of(lane).iter().skip(turn).take(TURNS).map(|at| &samples[*at as usize]);
            for sample in (0..LANES).flat_map(samples_of) {
                modes |= 1 << (sample.mode() % 8);
            }
            // Sizes of different modes are not compared.
            for mode in (0..8).filter(|mode| modes & 1 << mode > 0) {
                let count = TURNS.min(most - turn);
                turns[..count].fill([None; LANES]);
                for lane in 0..LANES {
                    for (turn, sample) in turns.iter_mut().zip(samples_of(lane)) {
                        turn[lane] = (sample.mode() % 8 == mode).then(|| sample.size());
                    }
                }
                let (windows, _) = windows_of(&mut self.windows, first as u32, mode);
                windows.compare(&turns[..count], &mut results[..count]);
                for lane in 0..LANES {
                    let begin = (begins[lane] - begins[0]) as usize + turn;
                    let end = (begins[lane + 1] - begins[0]) as usize;
                    let into = found.get_mut(begin..end).unwrap_or_default();
                    for ((into, result), turn) in into.iter_mut().zip(&results[..count]).zip(&turns) {
                        if turn[lane].is_some() {
                            *into = result[lane];
                        }
                    }
                }
            }
        }
    }

    fn add(&mut self, sample: &Sample, found: (f32, f32)) -> Result<()> {
        let number = sample.tensor();
        let tensor = &mut self.tensors[number as usize];
        if tensor.seen.before.is_some_and(|(before, _)| before.step >= sample.step()) {
            return Err(Error::Invalid(format!("the steps of {:?} are not in order", tensor.name)));
        }
        let mode = sample.mode();
        let at = &mut tensor.series[usize::from(mode) % 8];
        if *at == NO_SERIES {
            *at = self.series.len() as u32;
            self.series.push(One::new(number, mode));
        }
        let index = *at as usize;
        let one = &mut self.series[index];
        let record = sample.record(found);
        let bin = sample.step() >> self.plan.base;
        if bin != one.bin {
            if one.bin >= 0 {
                put(&mut self.blocks, index, one);
            }
            one.bin = bin;
        }
        one.open.add(&record.values, record.flag);
        tensor.seen.note(record, tensor.whole, &mut self.kept);
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

    /// Writes a block, and merges it into the level above.
    fn write(&mut self, up: usize, block: Block) -> Result<()> {
        self.write_tiles(up, &block)?;
        self.lift(up, &block)
    }

    fn write_tiles(&mut self, up: usize, block: &Block) -> Result<()> {
        let level = self.plan.base + up as u8;
        let number = u32::try_from(block.number).unwrap_or(u32::MAX);
        block.tiles(|kind, group, raw| {
            let place = self.file.tile(raw)?;
            self.directory.tiles.push(((level, kind, number, group), place));
            Ok::<(), Error>(())
        })
    }

    /// Merges a block into the level above, whose block before is then complete.
    fn lift(&mut self, up: usize, block: &Block) -> Result<()> {
        let Some(slot) = self.above.get_mut(up) else { return Ok(()) };
        let before = slot.take_if(|above| above.number != block.number / 2);
        slot.get_or_insert_with(|| Block::new(block.number / 2)).take(block);
        before.map_or(Ok(()), |before| self.write(up + 1, before))
    }

    fn finish(mut self, segments: &BTreeMap<u64, Segment>) -> Result<u64> {
        let plan = self.plan;
        (self.directory.base, self.directory.top) = (plan.base, plan.top);
        (self.directory.first, self.directory.last) = (plan.first, plan.end - 1);
        self.directory.dropped = self.kept.dropped;
        self.directory.covered = segments.iter().filter_map(|(number, segment)| segment.covered(*number)).collect();
        self.close(i64::MAX);
        let complete = |level: u8| (self.directory.complete(level) >> level) / BLOCK as u64;
        let ends: Vec<u64> = (plan.base..=plan.top).map(complete).collect();
        self.write_until(ends[0])?;
        for up in 0..self.above.len() {
            if let Some(block) = self.above[up].take_if(|block| block.number < ends[up + 1]) {
                self.write(up + 1, block)?;
            }
        }
        // The rest of a higher level is merged from the levels below when it is read.
        for (_, block) in std::mem::take(&mut self.blocks) {
            self.write_tiles(0, &block)?;
        }
        self.file.arrange(&mut self.directory)?;
        let (tensors, series) = self.written;
        let sections = [self.names(tensors), self.modes(series), self.records()];
        for (at, raw) in sections.iter().enumerate().filter(|(_, raw)| !raw.is_empty()) {
            let place = self.file.block(raw)?;
            self.directory.sections[at].push(place);
        }
        let sizes = self.series.iter().map(|one| {
            let (windows, lane) = windows_of(&mut self.windows, one.tensor, one.mode);
            windows.sizes(lane)
        });
        let state = seen::encode(self.tensors.iter().map(|tensor| &tensor.seen), sizes);
        self.file.finish(&mut self.directory, &state, self.growing)
    }

    fn names(&self, from: usize) -> Vec<u8> {
        let mut out = Out::default();
        for tensor in &self.tensors[from..] {
            out.u32(tensor.name.len() as u32);
            out.0.extend_from_slice(tensor.name.as_bytes());
        }
        out.0
    }

    fn modes(&self, from: usize) -> Vec<u8> {
        let mut out = Out::default();
        self.series[from..].iter().for_each(|one| {
            out.u32(one.tensor);
            out.u8(one.mode);
        });
        out.0
    }

    fn records(&self) -> Vec<u8> {
        let mut out = Out::default();
        self.kept.records.iter().for_each(|record| put_record(&mut out, record));
        out.0
    }
}

/// The last sizes of a tensor in a mode and of its neighbours, and its lane in them.
fn windows_of(all: &mut Vec<[Option<Box<Windows>>; 8]>, tensor: u32, mode: u8) -> (&mut Windows, usize) {
    let (group, lane) = (tensor as usize / LANES, tensor as usize % LANES);
    if group >= all.len() {
        all.resize_with(group + 1, Default::default);
    }
    (all[group][usize::from(mode) % 8].get_or_insert_with(|| Box::new(Windows::new())), lane)
}

impl One {
    fn new(tensor: u32, mode: u8) -> One {
        One { tensor, mode, bin: -1, open: Open::EMPTY }
    }
}

/// Moves the bin of a series into its block.
fn put(blocks: &mut BTreeMap<u64, Block>, index: usize, one: &mut One) {
    let number = one.bin as u64 / BLOCK as u64;
    blocks.entry(number).or_insert_with(|| Block::new(number)).put(index, one.bin as u64, &one.open);
    one.open = Open::EMPTY;
}
