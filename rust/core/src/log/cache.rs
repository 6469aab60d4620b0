//! An on-disk cache of scanned event files. It can be deleted at any time.
//!
//! A cache file is used only if it matches the current event file: not longer, of the same time if of the same size, with
//! the same bytes at the start and before the end of the scanned part. It is parsed as untrusted input; on any fault the
//! event file is read instead.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::column::{Cells, Class, Column, ValueLocation};
use super::scan::{Problem, Scanner, Series};
use crate::crc::crc32c;
use crate::source::{Blob, Local};

const MAGIC: &[u8; 8] = b"smdlog\x00\x02";
/// Size of the magic and of the checksum of all following bytes.
const FRONT: usize = 12;
/// Bytes at both ends of the scanned part that must be unchanged.
const LOOKED_AT: u64 = 64 << 10;
/// Files are not cached below this size, since reading them again costs as little.
const LEAST_GROWTH: u64 = 1 << 20;
/// Limit on the size of a cached row relative to its record.
const MOST: u64 = 16;

/// Size and time of an event file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileVersion {
    /// Size in bytes; 0 if unknown.
    pub size: u64,
    /// Modification time, in nanoseconds since 1970; 0 if unknown.
    pub written: u64,
}

/// A cache directory.
#[derive(Debug)]
pub struct Cache {
    directory: PathBuf,
    /// Distinguishes logs that share the directory.
    log: String,
}

impl Cache {
    /// A cache in a directory, which may not exist yet, for the log of this name.
    pub fn new(directory: PathBuf, log: String) -> Cache {
        Cache { directory, log }
    }

    /// The name of the cache file of an event file. Hash collisions are detected by the stored key.
    fn name(&self, key: &str) -> String {
        let text = format!("{}\n{key}", self.log);
        // FNV-1a with 128 bits: the same in every version of this program.
        let hash = text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        format!("{hash:032x}.log-cache")
    }

    /// Restores the scanner of an event file, if the cache still matches.
    pub fn load(&self, key: &str, blob: &dyn Blob, about: FileVersion) -> Option<Scanner> {
        let directory = Local::new(&self.directory);
        let file = directory.open_file(&self.name(key)).ok()?;
        let size = file.metadata().ok()?.len();
        if !reaches(blob, size.saturating_sub(LOOKED_AT) / MOST) {
            return None;
        }
        let bytes = directory.read_whole(file, key).ok()?;
        let (scanner, was) = decode(&bytes, key)?;
        let end = scanner.end();
        let grown = about.size > was.about.size;
        let fits = about.size == 0 || (about.size >= end && (grown || about == was.about));
        (fits && Ends::of(blob, end)? == was.ends).then_some(scanner)
    }

    /// Decodes a cache file, without checking that it matches the event file.
    pub fn decoded(bytes: &[u8], key: &str) -> Option<Scanner> {
        decode(bytes, key).map(|(scanner, _)| scanner)
    }

    /// Encodes a scanner as a cache file that matches no event file.
    pub fn encoded(scanner: &Scanner, key: &str) -> Vec<u8> {
        encode(scanner, &CachedVersion { about: FileVersion::default(), ends: Ends { head: 0, tail: 0 } }, key)
    }

    /// Stores the scanner of an event file if enough has changed since `cached_until`. Returns the offset up to which it is stored.
    pub fn store(&self, key: &str, blob: &dyn Blob, about: FileVersion, scanner: &Scanner, cached_until: u64) -> u64 {
        // A growing file is stored again after growing by a fraction, which bounds the total cost.
        if scanner.end() < cached_until + LEAST_GROWTH.max(cached_until / 4) {
            return cached_until;
        }
        let Some(ends) = Ends::of(blob, scanner.end()) else { return cached_until };
        let bytes = encode(scanner, &CachedVersion { about, ends }, key);
        // A failed write is not an error: a full disk must not stop reading.
        self.write(&self.name(key), &bytes).map_or(cached_until, |()| scanner.end())
    }

    /// Writes a file atomically, also with concurrent writers.
    fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.directory)?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.directory.join(format!("{name}.{}-{count}.unfinished", process::id()));
        let written = fs::OpenOptions::new().write(true).create_new(true).open(&unfinished);
        let moved = written
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&unfinished, self.directory.join(name)));
        if moved.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        moved
    }
}

/// Whether the file has at least `size` bytes.
fn reaches(blob: &dyn Blob, size: u64) -> bool {
    size == 0 || blob.read_at(size - 1, 1, &mut Vec::new()).is_ok_and(|count| count == 1)
}

/// Identifies the version of the event file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CachedVersion {
    about: FileVersion,
    ends: Ends,
}

/// Checksums of the first and the last bytes of the scanned part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends {
    head: u32,
    tail: u32,
}

impl Ends {
    fn of(blob: &dyn Blob, end: u64) -> Option<Ends> {
        let length = LOOKED_AT.min(end);
        let mut buffer = Vec::new();
        let mut sum = |at: u64| {
            let count = blob.read_at(at, length, &mut buffer).ok()?;
            (count as u64 == length).then(|| crc32c(buffer.get(..count).unwrap_or_default()))
        };
        Some(Ends { head: sum(0)?, tail: sum(end - length)? })
    }
}

// ------------------------------------------------------------------------------------------------------- encoding

fn encode(scanner: &Scanner, vouched: &CachedVersion, key: &str) -> Vec<u8> {
    let mut out = Out(MAGIC.to_vec());
    out.0.extend([0; 4]);
    out.text(key);
    for number in [vouched.about.size, vouched.about.written, scanner.end] {
        out.number(number);
    }
    out.0.extend(vouched.ends.head.to_le_bytes());
    out.0.extend(vouched.ends.tail.to_le_bytes());
    out.optional(scanner.version.as_deref(), |out, version| out.text(version));
    out.optional(scanner.lost.as_ref(), |out, (at, what)| {
        out.number(*at);
        out.text(what);
    });
    out.numbers(scanner.restarts.iter().map(|step| step.cast_unsigned()));
    out.number(scanner.graphs);
    out.number(scanner.more_problems);
    out.number(scanner.problems.len() as u64);
    for Problem { at, what, resumed } in &scanner.problems {
        out.number(*at);
        out.text(what);
        out.optional(*resumed, Out::number);
    }
    out.number(scanner.series.len() as u64);
    for Series { tag, class, plugin, description, column } in &scanner.series {
        out.0.push(*class as u8);
        for text in [tag, plugin, description] {
            out.text(text);
        }
        out.number(column.len() as u64);
        out.numbers(column.runs().flat_map(|(restarts, first, _)| [u64::from(restarts), first as u64]));
        let steps = column.steps().iter().map(|step| step.cast_unsigned());
        // Steps mostly have a constant stride, and most numbers were stored with 32 bits.
        match stride(column.steps()) {
            Some((first, stride)) => {
                out.0.push(1);
                out.number(first.cast_unsigned());
                out.number(stride.cast_unsigned());
            }
            None => {
                out.0.push(0);
                steps.for_each(|step| out.number(step));
            }
        }
        column.wall_times().iter().for_each(|time| out.number(time.to_bits()));
        match &column.cells {
            Cells::Numbers(numbers) if numbers.iter().all(|one| f64::from(*one as f32).to_bits() == one.to_bits()) => {
                out.0.push(2);
                numbers.iter().for_each(|number| out.0.extend((*number as f32).to_le_bytes()));
            }
            Cells::Numbers(numbers) => {
                out.0.push(1);
                numbers.iter().for_each(|number| out.number(number.to_bits()));
            }
            Cells::Places(locations) => {
                out.0.push(0);
                for ValueLocation { at, size, record, length, footer } in locations {
                    [*at, *size, *record, *length, u64::from(*footer)]
                        .into_iter()
                        .for_each(|number| out.number(number));
                }
            }
        }
    }
    let crc = crc32c(&out.0[FRONT..]);
    out.0[MAGIC.len()..FRONT].copy_from_slice(&crc.to_le_bytes());
    out.0
}

fn stride(steps: &[i64]) -> Option<(i64, i64)> {
    let [first, second, ..] = steps else { return None };
    let stride = second.checked_sub(*first)?;
    steps.windows(2).all(|pair| pair[0].checked_add(stride) == Some(pair[1])).then_some((*first, stride))
}

/// Decodes a scanner and the file version. `None` for anything that a scanner could not have produced.
fn decode(bytes: &[u8], key: &str) -> Option<(Scanner, CachedVersion)> {
    let (front, rest) = bytes.split_first_chunk::<FRONT>()?;
    let crc = u32::from_le_bytes(front.last_chunk().copied()?);
    if !front.starts_with(MAGIC) || crc32c(rest) != crc {
        return None;
    }
    let mut from = In(rest);
    if from.text()? != key {
        return None;
    }
    let about = FileVersion { size: from.number()?, written: from.number()? };
    let end = from.number()?;
    let ends = Ends { head: from.small()?, tail: from.small()? };
    let mut scanner = Scanner::default();
    scanner.end = end;
    scanner.version = from.optional(|from| from.text().map(str::to_owned))?;
    scanner.lost = from.optional(|from| Some((from.number()?, from.text()?.to_owned())))?;
    scanner.restarts = from.numbers()?.into_iter().map(u64::cast_signed).collect();
    scanner.graphs = from.number()?;
    scanner.more_problems = from.number()?;
    for _ in 0..from.number()? {
        let (at, what) = (from.number()?, from.text()?.to_owned());
        scanner.problems.push(Problem { at, what, resumed: from.optional(In::number)? });
    }
    for _ in 0..from.number()? {
        let class = *Class::ALL.get(usize::from(from.byte()?))?;
        let [tag, plugin, description] = [from.text()?, from.text()?, from.text()?].map(str::to_owned);
        let column = column(&mut from, class, scanner.restarts.len() as u64, end)?;
        scanner.put(Series { tag, class, plugin, description, column })?;
    }
    from.0.is_empty().then_some((scanner, CachedVersion { about, ends }))
}

fn column(from: &mut In<'_>, class: Class, restarts: u64, end: u64) -> Option<Column> {
    let rows = usize::try_from(from.number()?).ok()?;
    let runs = from.numbers()?;
    let (runs, []) = runs.as_chunks::<2>() else { return None };
    let in_order = runs.windows(2).all(|pair| pair[0][0] < pair[1][0] && pair[0][1] < pair[1][1]);
    let known = runs.iter().all(|[before, first]| *before <= restarts && (*first as usize) < rows);
    if !in_order || !known || runs.first().map(|run| run[1]) != (rows > 0).then_some(0) {
        return None;
    }
    let steps = match from.byte()? {
        0 => from.words(rows)?.map(u64::cast_signed).collect(),
        // Allocates no more than the wall times take in the input.
        1 if rows.checked_mul(8)? <= from.0.len() => {
            let (first, stride) = (from.number()?.cast_signed(), from.number()?.cast_signed());
            let step = |row: usize| first.checked_add(stride.checked_mul(row as i64)?);
            (0..rows).map(step).collect::<Option<Vec<i64>>>()?
        }
        _ => return None,
    };
    let wall_times = from.words(rows)?.map(f64::from_bits).collect();
    let cells = match (from.byte()?, class) {
        (0, class) if class != Class::Scalar => {
            let words: Vec<u64> = from.words(rows.checked_mul(5)?)?.collect();
            let inside = |[at, size, record, length, footer]: &[u64; 5]| {
                let (value_end, record_end) = (at.checked_add(*size)?, record.checked_add(*length)?);
                let footer = u32::try_from(*footer).ok()?;
                let location = ValueLocation { at: *at, size: *size, record: *record, length: *length, footer };
                (record <= at && value_end <= record_end && record_end <= end).then_some(location)
            };
            Cells::Places(words.as_chunks().0.iter().map(inside).collect::<Option<_>>()?)
        }
        (1, Class::Scalar) => Cells::Numbers(from.words(rows)?.map(f64::from_bits).collect()),
        (2, Class::Scalar) => {
            let numbers = from.take(rows.checked_mul(4)?)?.as_chunks().0;
            Cells::Numbers(numbers.iter().map(|number| f64::from(f32::from_le_bytes(*number))).collect())
        }
        _ => return None,
    };
    let runs = runs.iter().map(|[before, first]| (*before as u32, *first as usize)).collect();
    Some(Column::of(steps, wall_times, cells, runs))
}

struct Out(Vec<u8>);

impl Out {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = u64>) {
        let at = self.0.len();
        self.number(0);
        numbers.for_each(|number| self.number(number));
        let count = ((self.0.len() - at) / 8 - 1) as u64;
        self.0[at..at + 8].copy_from_slice(&count.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Out, T)) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    fn small(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn words(&mut self, count: usize) -> Option<impl Iterator<Item = u64> + use<'a>> {
        let taken = self.take(count.checked_mul(8)?)?.as_chunks().0;
        Some(taken.iter().map(|word| u64::from_le_bytes(*word)))
    }

    fn numbers(&mut self) -> Option<Vec<u64>> {
        let count = usize::try_from(self.number()?).ok()?;
        Some(self.words(count)?.collect())
    }

    fn text(&mut self) -> Option<&'a str> {
        let count = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.take(count)?).ok()
    }

    fn optional<T>(&mut self, get: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            1 => get(self).map(Some),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
