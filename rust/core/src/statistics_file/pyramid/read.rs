//! Reads a pyramid: its names once, and of its tiles those that a view needs.

use std::collections::{BTreeMap, HashMap};

use super::file::{Directory, In, Place, TileKey, block, directory, unpacked};
use super::measure::{COUNT, Record};
use super::tile::{COUNTS, counts_at, row_size, values_at};
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

/// The first finite size and norm of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Start {
    /// Whether it has several elements.
    pub several: bool,
    /// Steps, or `i64::MAX`, and logarithms.
    pub first: [(i64, f32); 2],
}

/// An open pyramid.
pub struct Pyramid {
    key: String,
    file: Box<dyn Blob>,
    directory: Directory,
    tiles: HashMap<TileKey, Place>,
    /// The tensors, in the order of the file.
    pub names: Vec<String>,
    /// The series.
    pub series: Vec<Series>,
    /// By tensor.
    pub starts: Vec<Start>,
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
        let key = key(worker);
        let file = source.open(&key)?;
        let directory = directory(file.as_ref(), &key)?;
        let corrupt = |at: usize, what: &str| Error::Corrupt {
            location: Location::new(key.as_str(), directory.sections[at].offset),
            what: what.into(),
        };
        let section = |at: usize| block(file.as_ref(), &key, &directory.sections[at]);
        let names = all(&section(0)?, |input| {
            let length = input.u32()? as usize;
            Some(std::str::from_utf8(input.take(length)?).ok()?.to_owned())
        })
        .ok_or_else(|| corrupt(0, "the names are invalid"))?;
        let series = all(&section(1)?, |input| {
            let series = Series { tensor: input.u32()?, mode: input.u8()? };
            ((series.tensor as usize) < names.len()).then_some(series)
        })
        .ok_or_else(|| corrupt(1, "the series are invalid"))?;
        let starts = all(&section(2)?, |input| {
            let several = input.u8()? != 0;
            Some(Start { several, first: [(input.i64()?, input.f32()?), (input.i64()?, input.f32()?)] })
        })
        .filter(|starts| starts.len() == names.len())
        .ok_or_else(|| corrupt(2, "the starts are invalid"))?;
        let records = all(&section(3)?, |input| {
            let (tensor, step, mode, flag) = (input.u32()?, input.i64()?, input.u8()?, input.u8()?);
            let mut values = [0.0; COUNT];
            for value in &mut values {
                *value = input.f32()?;
            }
            let (mean, elements, usual) = (input.f32()?, input.f32()?, input.f32()?);
            ((tensor as usize) < names.len() && step >= 0).then_some(Record {
                tensor,
                step,
                mode,
                flag,
                values,
                mean,
                elements,
                usual,
            })
        })
        .ok_or_else(|| corrupt(3, "the records are invalid"))?;
        let tiles = directory.tiles.iter().copied().collect();
        Ok(Pyramid { key, file, directory, tiles, names, series, starts, records })
    }

    /// The lowest and the highest level.
    pub fn levels(&self) -> (u8, u8) {
        (self.directory.base, self.directory.top)
    }

    /// The first and the last step.
    pub fn ends(&self) -> (i64, i64) {
        (self.directory.first, self.directory.last)
    }

    /// The size of the file, but for the directory.
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
        let segments = reader.segments(worker).into_iter().flatten();
        segments.filter_map(|(number, segment)| segment.covered(*number)).eq(self.directory.covered.iter().copied())
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

    fn merge(&self, wanted: &Wanted<'_>, level: u8, found: &mut Bins, known: &mut [i64]) -> Result<()> {
        let up = wanted.level - level;
        let width = wanted.shape.1;
        let first = wanted.first.checked_shl(up.into()).unwrap_or(u64::MAX);
        let last = first.saturating_add((width as u64).checked_shl(up.into()).unwrap_or(u64::MAX) - 1);
        let ends = (self.directory.first as u64 >> level, self.directory.last as u64 >> level);
        let (first, last) = (first.max(ends.0), last.min(ends.1));
        if first > last {
            return Ok(());
        }
        // The pairs of each group.
        let mut groups: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for (series, row) in wanted.series {
            groups.entry(series / GROUP as u32).or_default().push((series % GROUP as u32, *row));
        }
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
