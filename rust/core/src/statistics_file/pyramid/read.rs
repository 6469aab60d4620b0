//! Reads a pyramid: its names once, and of its tiles those that a view needs.

use std::collections::{BTreeMap, HashMap};

use super::file::{Directory, In, Place, TileKey, block, directory, unpacked};
use super::measure::{COUNT, Record};
use super::seen::{self, Seen, take_record};
use super::tile::{Block, COUNTS, counts_at, row_size, values_at};
use super::window::WINDOW;
use super::{BLOCK, GROUP, key};
use crate::error::{Error, Location, Result};
use crate::source::{Blob, Source};
use crate::statistics_file::reader::Reader;

/// Tiles whose bytes follow each other are read at once, up to this size.
const PIECE: u64 = 8 << 20;
/// Bins of an answer at most.
const MOST_BINS: usize = 1 << 26;

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
    file: Box<dyn Blob>,
    pub(super) directory: Directory,
    tiles: HashMap<TileKey, Place>,
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
    pub fn open(source: &dyn Source, worker: &str) -> Result<Pyramid> {
        Pyramid::open_file(source, &key(worker))
    }

    /// Opens the pyramid in a file.
    pub fn open_file(source: &dyn Source, key: &str) -> Result<Pyramid> {
        let file = source.open(key)?;
        let directory = directory(file.as_ref(), key)?;
        let corrupt = |place: Option<&Place>, what: &str| Error::Corrupt {
            location: Location::new(key, place.map_or(0, |place| place.offset)),
            what: what.into(),
        };
        let section = |at: usize| {
            let mut joined = Vec::new();
            for place in &directory.sections[at] {
                joined.extend(block(file.as_ref(), key, place)?);
            }
            Ok::<_, Error>(joined)
        };
        let names = all(&section(0)?, |input| {
            let length = input.u32()? as usize;
            Some(std::str::from_utf8(input.take(length)?).ok()?.to_owned())
        })
        .ok_or_else(|| corrupt(directory.sections[0].first(), "the names are invalid"))?;
        let series = all(&section(1)?, |input| {
            let series = Series { tensor: input.u32()?, mode: input.u8()? };
            ((series.tensor as usize) < names.len()).then_some(series)
        })
        .ok_or_else(|| corrupt(directory.sections[1].first(), "the series are invalid"))?;
        let mut records = all(&section(2)?, |input| take_record(input, names.len()))
            .ok_or_else(|| corrupt(directory.sections[2].first(), "the records are invalid"))?;
        let (seen, sizes) = seen::decode(&block(file.as_ref(), key, &directory.state)?, names.len(), series.len())
            .ok_or_else(|| corrupt(Some(&directory.state), "the state is invalid"))?;
        records.extend(seen.iter().flat_map(Seen::standing));
        records.sort_by_key(|record| (record.tensor, record.step));
        records.dedup_by_key(|record| (record.tensor, record.step));
        let tiles = directory.tiles.iter().copied().collect();
        Ok(Pyramid { key: key.into(), file, directory, tiles, names, series, seen, sizes, records })
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
        let mut block = Block::new(number);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        for kind in 0..=COUNTS {
            let groups = 0..self.series.len().div_ceil(GROUP) as u32;
            let places = groups.filter_map(|group| Some((group, *self.tiles.get(&(level, kind, number, group))?)));
            self.each_tile(kind, places, &mut |group, raw| block.load(kind, group as usize, &raw))?;
        }
        Ok(block)
    }

    /// Merges series into bins.
    pub fn bins(&self, wanted: &Wanted<'_>) -> Result<Bins> {
        let (rows, count) = wanted.shape;
        let invalid = |what: &str| Error::Invalid(what.into());
        let size = rows.checked_mul(count).filter(|size| *size <= MOST_BINS);
        let size = size.ok_or_else(|| invalid("too many bins"))?;
        let outside = |(series, row): &(u32, u32)| *series as usize >= self.series.len() || *row as usize >= rows;
        let (base, top) = self.levels();
        if wanted.level < base || wanted.level >= 63 || wanted.measure >= COUNT || wanted.series.iter().any(outside) {
            return Err(invalid("no such bins"));
        }
        let mut found = Bins {
            values: [vec![f32::INFINITY; size], vec![0.0; size], vec![f32::NEG_INFINITY; size]],
            n: vec![0; size],
            flag: vec![0; size],
        };
        let mut known = vec![0i64; size];
        if size > 0 {
            self.merge(wanted, wanted.level.min(top), &mut found, &mut known)?;
        }
        for (at, known) in known.into_iter().enumerate() {
            if known == 0 {
                found.values.iter_mut().for_each(|plane| plane[at] = f32::NAN);
            } else {
                found.values[1][at] /= known as f32;
            }
        }
        Ok(found)
    }

    /// Merges the bins of a level, and behind its last block those of the levels below.
    fn merge(&self, wanted: &Wanted<'_>, level: u8, found: &mut Bins, known: &mut [i64]) -> Result<()> {
        let step = |bin: u64| if bin > u64::MAX >> wanted.level { u64::MAX } else { bin << wanted.level };
        let mut begin = step(wanted.first).max(self.directory.first as u64);
        let end = step(wanted.first.saturating_add(wanted.shape.1 as u64)).min(self.directory.last as u64 + 1);
        // The pairs of each group.
        let mut groups: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for (series, row) in wanted.series {
            groups.entry(series / GROUP as u32).or_default().push((series % GROUP as u32, *row));
        }
        for below in (self.directory.base..=level).rev() {
            let until = if below == self.directory.base { end } else { end.min(self.directory.complete(below)) };
            if begin < until {
                self.merge_level(wanted, below, (begin >> below, (until - 1) >> below), &groups, found, known)?;
                begin = until;
            }
        }
        Ok(())
    }

    fn merge_level(
        &self,
        wanted: &Wanted<'_>,
        level: u8,
        (first, last): (u64, u64),
        groups: &BTreeMap<u32, Vec<(u32, u32)>>,
        found: &mut Bins,
        known: &mut [i64],
    ) -> Result<()> {
        let (up, width) = (wanted.level - level, wanted.shape.1);
        let block_size = BLOCK as u64;
        for number in first / block_size..=last / block_size {
            let number_32 = u32::try_from(number).unwrap_or(u32::MAX);
            let places = |kind: u8| {
                groups
                    .keys()
                    .filter_map(move |group| Some((*group, *self.tiles.get(&(level, kind, number_32, *group))?)))
            };
            let bins = first.max(number * block_size)..=last.min((number + 1) * block_size - 1);
            let target = |row: u32, bin: u64| row as usize * width + ((bin >> up) - wanted.first) as usize;
            let mut counts: HashMap<u32, Vec<u8>> = HashMap::new();
            self.each_tile(COUNTS, places(COUNTS), &mut |group, raw| {
                for (series, row) in &groups[&group] {
                    for bin in bins.clone() {
                        let (n, flag) = counts_at(&raw, *series as usize * BLOCK + (bin % block_size) as usize);
                        let at = target(*row, bin);
                        found.n[at] += i64::from(n);
                        found.flag[at] |= flag;
                    }
                }
                counts.insert(group, raw);
            })?;
            self.each_tile(wanted.measure as u8, places(wanted.measure as u8), &mut |group, raw| {
                let Some(counted) = counts.get(&group) else { return };
                for (series, row) in &groups[&group] {
                    for bin in bins.clone() {
                        let cell = *series as usize * BLOCK + (bin % block_size) as usize;
                        let [low, mean, high] = values_at(&raw, wanted.measure, cell);
                        if low.is_nan() {
                            continue;
                        }
                        let n = counts_at(counted, cell).0.max(1);
                        let at = target(*row, bin);
                        found.values[0][at] = found.values[0][at].min(low);
                        found.values[1][at] += mean * n as f32;
                        found.values[2][at] = found.values[2][at].max(high);
                        known[at] += i64::from(n);
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Reads tiles and calls `each` with group and content. Those that follow each other are read at once.
    fn each_tile(
        &self,
        kind: u8,
        places: impl Iterator<Item = (u32, Place)>,
        each: &mut dyn FnMut(u32, Vec<u8>),
    ) -> Result<()> {
        let mut places = places.peekable();
        let mut buffer = Vec::new();
        while let Some(begin) = places.next() {
            let mut piece = vec![begin];
            let start = begin.1.offset;
            let mut end = start.saturating_add(begin.1.length.into());
            while let Some(next) =
                places.next_if(|(_, next)| next.offset == end && end - start + u64::from(next.length) <= PIECE)
            {
                end += u64::from(next.1.length);
                piece.push(next);
            }
            let count = self.file.read_at(start, end - start, &mut buffer)?;
            for (group, place) in piece {
                let from = ((place.offset - start) as usize).min(count);
                let until = from.saturating_add(place.length as usize).min(count);
                let raw = unpacked(&buffer[from..until], &self.key, &place)?;
                if raw.len() != GROUP * row_size(kind) {
                    let location = Location::new(self.key.as_str(), place.offset);
                    return Err(Error::Corrupt { location, what: "a tile of another size".into() });
                }
                each(group, raw);
            }
        }
        Ok(())
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
