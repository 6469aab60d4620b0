//! Reads a pyramid: its names once, and of its tiles those that a view needs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::file::{Directory, In, Place, TileKey, directory, unpacked};
use super::measure::{COUNT, Record};
use super::seen::{self, Seen, take_record};
use super::tile::{Block, COUNTS, counts_at, row_size, values_at};
use super::window::WINDOW;
use super::{BLOCK, GROUP, key};
use crate::error::{Error, Location, Result};
use crate::source::{Blob, Reach, Source};
use crate::statistics_file::reader::{Covered, Reader};
use crate::sweep::{self, Bytes, Item, Options, Plan};

/// Bins of an answer at most.
const MOST_BINS: usize = 1 << 26;
/// Bytes between tiles that a view reads along, at most.
const MOST_BETWEEN: u64 = 8 << 20;
/// Bytes of tiles of a store that are kept for the next views, at most.
const MOST_KEPT: usize = 32 << 20;

/// A tensor in one mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// The number of the tensor.
    pub tensor: u32,
    /// The number of the mode.
    pub mode: u8,
}

/// An open pyramid.
pub struct Pyramid {
    key: String,
    pub(super) file: OneFile,
    pub(super) directory: Directory,
    tiles: HashMap<TileKey, Place>,
    /// Tiles that were read last; of a store, which takes long to ask again.
    recent: Option<Mutex<Recent>>,
    /// The tensors, in the order of the file.
    pub names: Vec<String>,
    /// The series.
    pub series: Vec<Series>,
    /// What is known of each tensor.
    pub seen: Vec<Seen>,
    /// The last sizes of each series, from the oldest one on; NaN is none. What follows is compared with them.
    pub sizes: Vec<[f32; WINDOW]>,
    /// The records that findings are made of, by tensor and step.
    pub records: Vec<Record>,
}

/// The bins that are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// Pairs of a series and the row that it is merged into.
    pub series: &'w [(u32, u32)],
    /// The number of the measure.
    pub measure: usize,
    /// The level, not below the lowest one.
    pub level: u8,
    /// The number of the first bin.
    pub first: u64,
    /// Rows and bins.
    pub shape: (usize, usize),
}

/// Bins, row by row. NaN is no value.
#[derive(Debug, Default, PartialEq)]
pub struct Bins {
    /// Minimum, mean and maximum.
    pub values: [Vec<f32>; 3],
    /// Number of records.
    pub n: Vec<i64>,
    /// Their flags.
    pub flag: Vec<u8>,
}

impl Pyramid {
    /// Opens the pyramid of a worker.
    pub fn open(source: Arc<dyn Source>, worker: &str) -> Result<Pyramid> {
        Pyramid::open_file(source, &key(worker))
    }

    /// Opens the pyramid in a file.
    pub fn open_file(source: Arc<dyn Source>, key: &str) -> Result<Pyramid> {
        let opened: Arc<dyn Blob> = source.open(key)?.into();
        let directory = directory(opened.as_ref(), key)?;
        let file = OneFile { reach: source.reach(), source, opened };
        let corrupt = |place: Option<&Place>, what: &str| Error::Corrupt {
            location: Location::new(key, place.map_or(0, |place| place.offset)),
            what: what.into(),
        };
        let mut parts = parts(&directory, &file, key)?.into_iter();
        let mut section = |at: usize| parts.by_ref().take(directory.sections[at].len()).collect::<Vec<_>>().concat();
        let names = all(&section(0), |input| {
            let length = input.u32()? as usize;
            Some(std::str::from_utf8(input.take(length)?).ok()?.to_owned())
        })
        .ok_or_else(|| corrupt(directory.sections[0].first(), "the names are invalid"))?;
        let series = all(&section(1), |input| {
            let series = Series { tensor: input.u32()?, mode: input.u8()? };
            ((series.tensor as usize) < names.len()).then_some(series)
        })
        .ok_or_else(|| corrupt(directory.sections[1].first(), "the series are invalid"))?;
        let mut records = all(&section(2), |input| take_record(input, names.len()))
            .ok_or_else(|| corrupt(directory.sections[2].first(), "the records are invalid"))?;
        let (seen, sizes) = seen::decode(&parts.next().unwrap_or_default(), names.len(), series.len())
            .ok_or_else(|| corrupt(Some(&directory.state), "the state is invalid"))?;
        records.extend(seen.iter().flat_map(Seen::standing));
        records.sort_by_key(|record| (record.tensor, record.step));
        records.dedup_by_key(|record| (record.tensor, record.step));
        let tiles = directory.tiles.iter().copied().collect();
        let recent = file.reads_at_once().map(|_| Mutex::default());
        Ok(Pyramid { key: key.into(), file, directory, tiles, recent, names, series, seen, sizes, records })
    }

    /// The lowest and the highest level.
    pub fn levels(&self) -> (u8, u8) {
        (self.directory.base, self.directory.top)
    }

    /// The first and the last step.
    pub fn ends(&self) -> (i64, i64) {
        (self.directory.first, self.directory.last)
    }

    /// The size of the file.
    pub fn size(&self) -> u64 {
        self.directory.size
    }

    /// Number of rows of statistics, and of records for which there was no room.
    pub fn rows(&self) -> (u64, u64) {
        (self.directory.rows, self.directory.dropped)
    }

    /// The segments whose tensors it has.
    pub fn covered(&self) -> &[Covered] {
        &self.directory.covered
    }

    /// Whether the statistics that were read are those of the pyramid, and maybe later steps.
    pub fn belongs_to(&self, reader: &Reader, worker: &str) -> bool {
        let Some(segments) = reader.segments(worker) else { return false };
        let (_, last) = self.ends();
        let covered: HashMap<u64, _> = self.directory.covered.iter().map(|each| (each.segment, each)).collect();
        let known = covered.keys().all(|number| segments.contains_key(number));
        known
            && segments.iter().all(|(number, segment)| {
                let done = covered.get(number).map_or(0, |each| each.batches as usize);
                let same = match (covered.get(number), done.checked_sub(1).and_then(|at| segment.commits.get(at))) {
                    (None, _) => true,
                    (Some(each), Some(commit)) => {
                        commit.offset + u64::from(commit.length) == each.end && commit.crc == each.crc
                    }
                    (Some(_), None) => false,
                };
                same && segment.commits.iter().skip(done).all(|commit| i64::from(commit.first) > last)
            })
    }

    /// Whether it has all statistics that were read.
    pub fn is_current(&self, reader: &Reader, worker: &str) -> bool {
        let segments = || reader.segments(worker).into_iter().flatten();
        let last = segments().flat_map(|(_, segment)| &segment.commits).map(|commit| i64::from(commit.last)).max();
        let covered = segments().filter_map(|(number, segment)| segment.covered(*number));
        last == Some(self.directory.last) && covered.eq(self.directory.covered.iter().copied())
    }

    /// Reads a block of bins with all measures.
    pub(super) fn block(&self, level: u8, number: u64) -> Result<Block> {
        let block = Mutex::new(Block::new(number));
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let groups = self.series.len().div_ceil(GROUP) as u32;
        let keys = (0..=COUNTS).flat_map(|kind| (0..groups).map(move |group| (level, kind, number, group)));
        let keys: Vec<TileKey> = keys.filter(|key| self.tiles.contains_key(key)).collect();
        self.read(&keys, &|(_, kind, _, group), raw| block.lock().load(kind, group as usize, &raw))?;
        Ok(block.into_inner())
    }

    /// Merges series into bins.
    pub fn bins(&self, wanted: &Wanted<'_>) -> Result<Bins> {
        let size = self.size_of(wanted)?;
        let mut merged = Merged::new(wanted, size);
        if size > 0 {
            let keys = self.tiles_of(wanted, &merged.groups);
            let merging = Mutex::new(merged);
            self.read(&keys, &|key, raw| merging.lock().take(key, raw))?;
            merged = merging.into_inner();
        }
        Ok(merged.finish())
    }

    /// Reads from a store what [`Pyramid::bins`] will ask for in several parts, unless that is too much to keep.
    pub fn read_ahead(&self, wanted: &Wanted<'_>) -> Result<()> {
        let is_empty = self.size_of(wanted)? == 0;
        let Some(recent) = self.recent.as_ref().filter(|_| !is_empty) else { return Ok(()) };
        let mut keys = self.tiles_of(wanted, &groups(wanted.series));
        keys.retain(|key| recent.lock().get(key).is_none());
        if keys.iter().map(|key| u64::from(self.tiles[key].length)).sum::<u64>() > MOST_KEPT as u64 / 2 {
            return Ok(());
        }
        self.fetch(&keys, &|key, bytes| {
            // Who asks for a tile that is missing then sees why.
            bytes.into_iter().for_each(|bytes| recent.lock().put(key, bytes));
        })
    }

    /// The number of bins of a view that can be answered.
    fn size_of(&self, wanted: &Wanted<'_>) -> Result<usize> {
        let (rows, count) = wanted.shape;
        let invalid = |what: &str| Error::Invalid(what.into());
        let size = rows.checked_mul(count).filter(|size| *size <= MOST_BINS);
        let size = size.ok_or_else(|| invalid("too many bins"))?;
        let outside = |(series, row): &(u32, u32)| *series as usize >= self.series.len() || *row as usize >= rows;
        let is_below = wanted.level < self.directory.base;
        if is_below || wanted.level >= 63 || wanted.measure >= COUNT || wanted.series.iter().any(outside) {
            return Err(invalid("no such bins"));
        }
        Ok(size)
    }

    /// The tiles of a view: those of a level, and behind its last block those of the levels below.
    fn tiles_of(&self, wanted: &Wanted<'_>, groups: &Groups) -> Vec<TileKey> {
        let level = wanted.level.min(self.directory.top);
        let step = |bin: u64| if bin > u64::MAX >> wanted.level { u64::MAX } else { bin << wanted.level };
        let mut begin = step(wanted.first).max(self.directory.first as u64);
        let end = step(wanted.first.saturating_add(wanted.shape.1 as u64)).min(self.directory.last as u64 + 1);
        let mut found = Vec::new();
        for below in (self.directory.base..=level).rev() {
            let until = if below == self.directory.base { end } else { end.min(self.directory.complete(below)) };
            if begin >= until {
                continue;
            }
            let block = |step: u64| (step >> below) / BLOCK as u64;
            for number in block(begin)..=block(until - 1) {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                for group in groups.keys() {
                    // A measure without counts has no records.
                    let kinds = [COUNTS, wanted.measure as u8].map(|kind| (below, kind, number, *group));
                    let known = kinds.into_iter().take_while(|key| self.tiles.contains_key(key));
                    found.extend(known);
                }
            }
            begin = until;
        }
        found
    }

    /// Reads tiles in the order of the file, and calls `each` with key and content.
    ///
    /// Those near each other are read at once: of a store, one request reads a measure of neighbouring series.
    fn read(&self, keys: &[TileKey], each: &(dyn Fn(TileKey, Vec<u8>) + Sync)) -> Result<()> {
        let failed: Mutex<Option<Arc<Error>>> = Mutex::new(None);
        let take = |key: TileKey, bytes: Bytes<'_>| {
            let place = &self.tiles[&key];
            match bytes.and_then(|bytes| self.tile(key, bytes, place).map_err(Arc::new)) {
                Ok(raw) => each(key, raw),
                Err(error) => drop(failed.lock().get_or_insert(error)),
            }
        };
        let mut missing = Vec::new();
        for key in keys {
            match self.recent.as_ref().and_then(|recent| recent.lock().get(key)) {
                Some(bytes) => take(*key, Ok(&bytes)),
                None => missing.push(*key),
            }
        }
        self.fetch(&missing, &|key, bytes| {
            if let (Some(recent), Ok(bytes)) = (&self.recent, &bytes) {
                recent.lock().put(key, bytes);
            }
            take(key, bytes);
        })?;
        failed.into_inner().map_or(Ok(()), |error| Err(owned(error)))
    }

    /// Reads the bytes of tiles by one plan.
    fn fetch(&self, keys: &[TileKey], each: &(dyn Fn(TileKey, Bytes<'_>) + Sync)) -> Result<()> {
        let items = keys.iter().map(|key| item(&self.tiles[key])).collect();
        let plan = Plan { files: vec![self.key.clone()], items };
        sweep::execute(&plan, &self.file.reading(&plan), &Options::default(), &|at, bytes| each(keys[at], bytes))
    }

    fn tile(&self, (_, kind, ..): TileKey, bytes: &[u8], place: &Place) -> Result<Vec<u8>> {
        let raw = unpacked(bytes, &self.key, place)?;
        if raw.len() != GROUP * row_size(kind) {
            let location = Location::new(self.key.as_str(), place.offset);
            return Err(Error::Corrupt { location, what: "a tile of another size".into() });
        }
        Ok(raw)
    }
}

/// The pairs of a series in its group and a row, by group.
type Groups = BTreeMap<u32, Vec<(u32, u32)>>;

fn groups(series: &[(u32, u32)]) -> Groups {
    let mut groups = Groups::new();
    for (series, row) in series {
        groups.entry(series / GROUP as u32).or_default().push((series % GROUP as u32, *row));
    }
    groups
}

/// Bins that tiles are merged into, in any order.
struct Merged<'w> {
    wanted: &'w Wanted<'w>,
    groups: Groups,
    bins: Bins,
    /// Sums of the means of records, and the number of records with a value.
    sums: Vec<f64>,
    known: Vec<i64>,
    /// Tiles of which the other one, of the counts or of the measure, was not read yet.
    halves: HashMap<(u8, u32, u32), Vec<u8>>,
}

impl<'w> Merged<'w> {
    fn new(wanted: &'w Wanted<'w>, size: usize) -> Merged<'w> {
        let bins = Bins {
            values: [vec![f32::INFINITY; size], vec![0.0; size], vec![f32::NEG_INFINITY; size]],
            n: vec![0; size],
            flag: vec![0; size],
        };
        Merged {
            wanted,
            groups: groups(wanted.series),
            bins,
            sums: vec![0.0; size],
            known: vec![0; size],
            halves: HashMap::new(),
        }
    }

    fn take(&mut self, (level, kind, number, group): TileKey, raw: Vec<u8>) {
        if kind == COUNTS {
            self.take_counts(level, number, group, &raw);
        }
        match (self.halves.remove(&(level, number, group)), kind) {
            (None, _) => drop(self.halves.insert((level, number, group), raw)),
            (Some(measure), COUNTS) => self.take_measure(level, number, group, &raw, &measure),
            (Some(counts), _) => self.take_measure(level, number, group, &counts, &raw),
        }
    }

    fn take_counts(&mut self, level: u8, number: u32, group: u32, counts: &[u8]) {
        let (bins, wanted) = (&mut self.bins, self.wanted);
        for (cell, at) in cells(wanted, &self.groups[&group], level, number) {
            let (n, flag) = counts_at(counts, cell);
            bins.n[at] += i64::from(n);
            bins.flag[at] |= flag;
        }
    }

    fn take_measure(&mut self, level: u8, number: u32, group: u32, counts: &[u8], measure: &[u8]) {
        let (bins, wanted) = (&mut self.bins, self.wanted);
        for (cell, at) in cells(wanted, &self.groups[&group], level, number) {
            let [low, mean, high] = values_at(measure, wanted.measure, cell);
            if low.is_nan() {
                continue;
            }
            let n = counts_at(counts, cell).0.max(1);
            bins.values[0][at] = bins.values[0][at].min(low);
            bins.values[2][at] = bins.values[2][at].max(high);
            self.sums[at] += f64::from(mean) * f64::from(n);
            self.known[at] += i64::from(n);
        }
    }

    fn finish(self) -> Bins {
        let mut bins = self.bins;
        for (at, (sum, known)) in self.sums.into_iter().zip(self.known).enumerate() {
            if known == 0 {
                bins.values.iter_mut().for_each(|plane| plane[at] = f32::NAN);
            } else {
                bins.values[1][at] = (sum / known as f64) as f32;
            }
        }
        bins
    }
}

/// The cells of a tile that a view shows, and the bin of each.
fn cells<'c>(
    wanted: &'c Wanted<'c>,
    pairs: &'c [(u32, u32)],
    level: u8,
    number: u32,
) -> impl Iterator<Item = (usize, usize)> + 'c {
    let (up, width, first) = (wanted.level - level, wanted.shape.1, wanted.first);
    let bins = (0..BLOCK).filter_map(move |bin| {
        let column = ((u64::from(number) * BLOCK as u64 + bin as u64) >> up).checked_sub(first)?;
        (column < width as u64).then_some((bin, column as usize))
    });
    pairs.iter().flat_map(move |(series, row)| {
        bins.clone().map(move |(bin, column)| (*series as usize * BLOCK + bin, *row as usize * width + column))
    })
}

/// The names, series, records and state of a file, block by block, all of them read at once.
fn parts(directory: &Directory, file: &OneFile, key: &str) -> Result<Vec<Vec<u8>>> {
    let places: Vec<&Place> = directory.sections.iter().flatten().chain([&directory.state]).collect();
    // Tiles may lie behind all else, in a slot that is used again; without them the file must not be used.
    let end = Item { file: 0, offset: directory.size.saturating_sub(1), length: 1 };
    let items = places.iter().map(|place| item(place)).chain([end]).collect();
    let plan = Plan { files: vec![key.into()], items };
    let found: Vec<Mutex<Result<Vec<u8>>>> = plan.items.iter().map(|_| Mutex::new(Ok(Vec::new()))).collect();
    sweep::execute(&plan, file, &Options::default(), &|at, bytes| {
        let unpack = |bytes: &[u8]| places.get(at).map_or(Ok(Vec::new()), |place| unpacked(bytes, key, place));
        *found[at].lock() = bytes.map_err(owned).and_then(unpack);
    })?;
    found.into_iter().map(Mutex::into_inner).collect()
}

fn item(place: &Place) -> Item {
    Item { file: 0, offset: place.offset, length: place.length.into() }
}

fn owned(error: Arc<Error>) -> Error {
    Arc::try_unwrap(error).unwrap_or_else(|shared| Error::Invalid(shared.to_string()))
}

/// Compressed tiles that were read last. What was not asked for while the newer half filled is forgotten.
#[derive(Default)]
struct Recent {
    newer: HashMap<TileKey, Arc<[u8]>>,
    older: HashMap<TileKey, Arc<[u8]>>,
    /// Bytes of the newer half.
    size: usize,
}

impl Recent {
    fn get(&mut self, key: &TileKey) -> Option<Arc<[u8]>> {
        if let Some(bytes) = self.older.remove(key) {
            self.keep(*key, bytes);
        }
        self.newer.get(key).cloned()
    }

    fn put(&mut self, key: TileKey, bytes: &[u8]) {
        self.keep(key, bytes.into());
    }

    fn keep(&mut self, key: TileKey, bytes: Arc<[u8]>) {
        if self.size + bytes.len() > MOST_KEPT / 2 {
            (self.older, self.size) = (std::mem::take(&mut self.newer), 0);
        }
        self.size += bytes.len();
        self.newer.insert(key, bytes);
    }
}

/// A source of which one file is open.
///
/// What was opened is read even after it was replaced.
pub(super) struct OneFile {
    source: Arc<dyn Source>,
    opened: Arc<dyn Blob>,
    reach: Reach,
}

impl OneFile {
    /// This file for a plan, of which the smallest gaps are read along, so that there are few requests, as long as they
    /// have not too many bytes.
    pub(super) fn reading(&self, plan: &Plan) -> OneFile {
        let range = |item: &Item| (item.offset, item.offset.saturating_add(item.length));
        let mut ranges: Vec<(u64, u64)> = plan.items.iter().map(range).collect();
        ranges.sort_unstable();
        let mut gaps: Vec<u64> = ranges.windows(2).map(|two| two[1].0.saturating_sub(two[0].1)).collect();
        gaps.sort_unstable();
        let mut between = 0u64;
        let exceeds = gaps.into_iter().find(|gap| {
            between = between.saturating_add(*gap);
            between > MOST_BETWEEN
        });
        let gap = exceeds.map_or(self.reach.gap, |gap| self.reach.gap.min(gap - 1));
        let (source, opened) = (self.source.clone(), self.opened.clone());
        OneFile { source, opened, reach: Reach { gap, ..self.reach } }
    }
}

impl Source for OneFile {
    fn root(&self) -> String {
        self.source.root()
    }

    fn open(&self, _key: &str) -> Result<Box<dyn Blob>> {
        Ok(Box::new(Opened(self.opened.clone())))
    }

    fn reach(&self) -> Reach {
        self.reach
    }

    fn reads_at_once(&self) -> Option<usize> {
        self.source.reads_at_once()
    }

    fn cancel_reads(&self) {
        self.source.cancel_reads();
    }
}

struct Opened(Arc<dyn Blob>);

impl Blob for Opened {
    fn read_at(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        self.0.read_at(offset, length, buffer)
    }
}

/// Reads items until the bytes end; `None` if an item is invalid.
fn all<T>(bytes: &[u8], mut next: impl FnMut(&mut In<'_>) -> Option<T>) -> Option<Vec<T>> {
    let (input, mut found) = (&mut In(bytes), Vec::new());
    while !input.0.is_empty() {
        found.push(next(input)?);
    }
    Some(found)
}
